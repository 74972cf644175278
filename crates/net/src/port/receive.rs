//! The receive thread of a port.
//!
//! A flow's clock shows the time up to which the socket has been read. The thread therefore
//! delivers arrived datagrams before mailbox messages (those of other threads to a flow), and
//! before any flow learns that time has passed. Otherwise a flow would count unread datagrams as
//! lost when the control stream reports them as sent.

use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};

use longhaul_proto::endpoint::FlowId;
use longhaul_proto::time::Time;
use longhaul_proto::wire::header::{Header, Kind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::answers::Answers;
use super::early::{EarlyDatagrams, EarlyVerdict};
use super::scatter::{ScatterCall, Spill};
use super::{Counters, Datagrams, FlowSink, PortCommand, Shared, Slot, mtu, receipts};
use crate::socket::{Inbox, Message};
use crate::{clock, wait};

/// Maximum number of receiving system calls before timers and mailboxes are handled.
const CALLS_PER_TURN: usize = 64;
/// Maximum number of receive errors with no datagram between them; one more closes the port.
const MAX_ERRORS: u32 = 100;

pub(super) struct ReceiveLoop {
    shared: Arc<Shared>,
    commands: Receiver<PortCommand>,
    flows: HashMap<FlowId, Box<dyn FlowSink>>,
    early: EarlyDatagrams,
    slots: Vec<Slot>,
    due: Vec<FlowId>,
    /// Flows that other threads have woken, usually with a mailbox message.
    woken: Vec<FlowId>,
    /// Everything that arrived before this time has been read.
    heard: Time,
    answers: Answers,
    errors: u32,
    why: Option<String>,
}

impl ReceiveLoop {
    pub(super) fn new(shared: Arc<Shared>, commands: Receiver<PortCommand>) -> ReceiveLoop {
        ReceiveLoop {
            shared,
            commands,
            flows: HashMap::new(),
            early: EarlyDatagrams::default(),
            slots: Vec::new(),
            due: Vec::new(),
            woken: Vec::new(),
            heard: clock::now(),
            answers: Answers::default(),
            errors: 0,
            why: None,
        }
    }

    pub(super) fn run(mut self) {
        wait::be_punctual();
        let (mut inbox, mut spill) = (Inbox::new(), Spill::default());
        while self.why.is_none() {
            let mut readable = self.sleep();
            self.obey();
            for _ in 0..CALLS_PER_TURN {
                if self.why.is_some() || !self.receive(readable, &mut inbox, &mut spill) {
                    break;
                }
                readable = true;
            }
            self.wake();
        }
        let why = self.why.take().unwrap_or_default();
        self.shared.close(&why);
        for command in self.commands.try_iter() {
            if let PortCommand::Register(flow, sink) = command {
                self.flows.insert(flow, sink);
            }
        }
        for sink in self.flows.values_mut() {
            let _ = catch_unwind(AssertUnwindSafe(|| sink.on_port_closed(&why)));
        }
    }

    /// Waits for datagrams, commands or the next wake-up. Returns whether there are datagrams.
    fn sleep(&mut self) -> bool {
        let wakeups = self.flows.values().filter_map(|sink| sink.next_wakeup());
        let earliest = wakeups.chain(self.early.next_expiry()).min();
        let now = clock::now();
        let timeout = earliest.filter(|time| *time != Time::NEVER).map(|time| {
            let left = clock::duration(time.since(now));
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        let mut fds = [
            PollFd::new(&*self.shared.socket, PollFlags::IN),
            PollFd::new(&self.shared.bell, PollFlags::IN),
        ];
        let polled = poll(&mut fds, timeout.as_ref());
        let idle = clock::now().since(now).as_nanos();
        self.shared.counters.idle_nanos.fetch_add(idle, Ordering::Relaxed);
        // An interrupted or failed poll counts as an early wake-up.
        if polled.is_err() {
            return false;
        }
        let [socket, bell] = fds.map(|fd| fd.revents());
        if !bell.is_empty() {
            let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
        }
        if socket.is_empty() {
            self.hear(clock::now());
        }
        !socket.is_empty()
    }

    fn obey(&mut self) {
        loop {
            match self.commands.try_recv() {
                Ok(command) => self.obey_one(command),
                Err(TryRecvError::Empty) => return,
                // Every handle is gone, even the port's own.
                Err(TryRecvError::Disconnected) => {
                    self.why = Some("the port was closed".into());
                    return;
                }
            }
        }
    }

    fn obey_one(&mut self, command: PortCommand) {
        let now = clock::now();
        match command {
            PortCommand::Register(flow, sink) => self.register(self.heard, flow, sink),
            PortCommand::Unregister(flow) => self.remove(flow),
            PortCommand::Wake(flow) => self.woken.push(flow),
            PortCommand::Expect(address) => self.early.expect(now, address),
            PortCommand::Announce(flow, address) => self.early.announce(now, flow, address),
            PortCommand::Close => self.why = Some("the port was closed".into()),
        }
    }

    fn register(&mut self, now: Time, flow: FlowId, sink: Box<dyn FlowSink>) {
        self.flows.insert(flow, sink);
        // A sink may have messages from before its registration.
        self.call(flow, |sink| sink.on_wake(now));
        if let Some(held) = self.early.take(flow) {
            self.call(flow, |sink| sink.on_early_drops(held.data_drops));
            let messages: Vec<Message<'_>> = held
                .datagrams
                .iter()
                .map(|d| {
                    let bytes = &held.bytes[d.start..][..d.len];
                    Message { path: d.path, bytes, stride: d.len, at: d.at }
                })
                .collect();
            let slots: Vec<Slot> = held
                .datagrams
                .iter()
                .enumerate()
                .map(|(n, d)| Slot {
                    header: d.header,
                    message: n as u32,
                    start: 0,
                    len: d.len as u32,
                })
                .collect();
            self.call(flow, |sink| sink.on_batch(now, &mut Datagrams::new(&messages, &slots)));
            self.call(flow, |sink| sink.on_batches_delivered(now));
        }
    }

    /// Calls a flow's sink, if there is one. A flow that ends is removed. A flow whose code panics
    /// is removed too and gets [`FlowSink::on_port_closed`]; the port continues for the others.
    fn call<T>(&mut self, flow: FlowId, work: impl FnOnce(&mut dyn FlowSink) -> T) -> Option<T> {
        let sink = self.flows.get_mut(&flow)?;
        let done = catch_unwind(AssertUnwindSafe(|| work(&mut **sink)));
        if done.is_err() {
            let why = "the flow's code panicked";
            let _ = catch_unwind(AssertUnwindSafe(|| sink.on_port_closed(why)));
            self.remove(flow);
        } else {
            self.remove_if_closed(flow);
        }
        done.ok()
    }

    fn remove(&mut self, flow: FlowId) {
        let sink = self.flows.remove(&flow);
        // Free the id before the drop: the sink's owner may see the drop and register the id again.
        self.shared.forget(flow);
        if sink.is_some() {
            self.early.end(flow);
        }
        drop(sink);
    }

    fn remove_if_closed(&mut self, flow: FlowId) {
        if self.flows.get(&flow).is_some_and(|sink| sink.is_closed()) {
            self.remove(flow);
        }
    }

    /// Reads datagrams with one system call, even if `readable` is false. Returns whether there may
    /// be more.
    fn receive(&mut self, readable: bool, inbox: &mut Inbox, spill: &mut Spill) -> bool {
        let before = clock::now();
        let scattered = if readable { self.receive_scattered(spill) } else { Ok(false) };
        let received = match scattered {
            Ok(false) => self.shared.socket.receive(inbox),
            Ok(true) => {
                self.errors = 0;
                let message = [spill.message()];
                self.hear(message[0].at);
                // `receive_scattered` has counted the train (datagrams that the kernel merged).
                self.sort_out(0, &message);
                self.deliver(&message);
                return true;
            }
            Err(error) => Err(error),
        };
        match received {
            Ok(()) => self.errors = 0,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.hear(before);
                return false;
            }
            Err(error) => {
                self.hear(before);
                self.errors += 1;
                if self.errors > MAX_ERRORS {
                    self.why = Some(format!("receiving fails repeatedly: {error}"));
                }
                return false;
            }
        }
        let messages = inbox.messages(self.heard);
        let newest = messages[..inbox.trains() as usize].iter().map(|message| message.at).max();
        let newest = newest.unwrap_or(before);
        self.hear(if inbox.is_full() { newest } else { newest.max(before) });
        self.sort_out(inbox.trains(), &messages);
        self.deliver(&messages);
        inbox.is_full()
    }

    fn hear(&mut self, until: Time) {
        self.heard = self.heard.max(until);
    }

    /// If the port has only one flow, lets that flow receive by itself, if it can. Returns false if
    /// the port must receive instead.
    fn receive_scattered(&mut self, spill: &mut Spill) -> io::Result<bool> {
        if self.flows.len() != 1 {
            return Ok(false);
        }
        let Some(&flow) = self.flows.keys().next() else { return Ok(false) };
        let shared = self.shared.clone();
        let mut call = ScatterCall::new(&shared.socket, spill, self.heard);
        let received = self.call(flow, |sink| sink.receive(&mut call));
        if let Some(Ok(true)) = received {
            shared.counters.trains.fetch_add(1, Ordering::Relaxed);
        }
        shared.counters.received.fetch_add(call.taken(), Ordering::Relaxed);
        shared.counters.bytes.fetch_add(call.taken_bytes(), Ordering::Relaxed);
        received.unwrap_or(Ok(false))
    }

    /// Records the positions of datagrams of registered flows; handles all others.
    fn sort_out(&mut self, trains: u64, messages: &[Message<'_>]) {
        let mut tally = Tally { trains, ..Tally::default() };
        let mut last = None;
        self.slots.clear();
        for (n, message) in messages.iter().enumerate() {
            tally.bytes += message.bytes.len() as u64;
            for (index, bytes) in message.bytes.chunks(message.stride).enumerate() {
                tally.received += 1;
                let Some(header) = Header::decode(bytes) else {
                    tally.foreign += 1;
                    continue;
                };
                if last != Some(header.flow) && !self.flows.contains_key(&header.flow) {
                    self.dispose(&mut tally, header, message, bytes);
                    continue;
                }
                last = Some(header.flow);
                self.slots.push(Slot {
                    header,
                    message: n as u32,
                    start: (index * message.stride) as u32,
                    len: bytes.len() as u32,
                });
            }
        }
        tally.add_to(&self.shared.counters);
    }

    fn dispose(&mut self, tally: &mut Tally, header: Header, message: &Message<'_>, bytes: &[u8]) {
        let is_probe = header.kind == Kind::Probe;
        let answer = if is_probe { mtu::answer(&header, bytes.len()) } else { None };
        if let Some(answer) = answer.filter(|_| self.may_answer(message)) {
            let receipt = self.early.receipt(header.flow, message.path.remote.ip());
            // A lost answer has the effect of a lost probe: the peer sends the probe again.
            let _ = match receipt {
                Some(receipt) => {
                    let answer = receipts::answer(&answer, &receipt);
                    self.shared.socket.send(message.path, &answer)
                }
                None => self.shared.socket.send(message.path, &answer),
            };
            tally.probes += 1;
            return;
        }
        if is_probe {
            tally.foreign += 1;
            return;
        }
        match self.early.offer(message.at, header, message.path, bytes) {
            EarlyVerdict::Held => tally.held += 1,
            EarlyVerdict::Full => tally.dropped += 1,
            EarlyVerdict::Late => {}
            EarlyVerdict::Foreign => tally.foreign += 1,
        }
    }

    fn may_answer(&mut self, probe: &Message<'_>) -> bool {
        let (now, from) = (probe.at, probe.path.remote.ip());
        self.answers.may(now, from, self.early.expects(now, from))
    }

    /// Delivers each flow's datagrams in a single call. Then reports the end of the batch to these
    /// flows.
    fn deliver(&mut self, messages: &[Message<'_>]) {
        let now = self.heard;
        let mut slots = std::mem::take(&mut self.slots);
        if !slots.is_sorted_by_key(|slot| slot.header.flow) {
            // A flow's datagrams stay in the order of arrival.
            slots.sort_unstable_by_key(|slot| (slot.header.flow, slot.message, slot.start));
        }
        for slots in slots.chunk_by(|a, b| a.header.flow == b.header.flow) {
            let flow = slots[0].header.flow;
            self.call(flow, |sink| sink.on_batch(now, &mut Datagrams::new(messages, slots)));
        }
        for slots in slots.chunk_by(|a, b| a.header.flow == b.header.flow) {
            self.call(slots[0].header.flow, |sink| sink.on_batches_delivered(now));
        }
        self.slots = slots;
    }

    fn wake(&mut self) {
        let now = self.heard;
        let mut woken = std::mem::take(&mut self.woken);
        for flow in woken.drain(..) {
            self.call(flow, |sink| sink.on_wake(now));
        }
        self.woken = woken;
        self.shared.counters.dropped.fetch_add(self.early.expire(now), Ordering::Relaxed);
        let mut due = std::mem::take(&mut self.due);
        let wakes = self.flows.iter().filter_map(|(flow, sink)| Some((*flow, sink.next_wakeup()?)));
        due.extend(wakes.filter(|(_, time)| *time <= now).map(|(flow, _)| flow));
        for flow in due.drain(..) {
            self.call(flow, |sink| sink.on_wake(now));
        }
        self.due = due;
    }
}

#[derive(Default)]
struct Tally {
    received: u64,
    trains: u64,
    bytes: u64,
    foreign: u64,
    held: u64,
    dropped: u64,
    probes: u64,
}

impl Tally {
    fn add_to(&self, counters: &Counters) {
        let add = |counter: &AtomicU64, count: u64| {
            if count > 0 {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        };
        add(&counters.received, self.received);
        add(&counters.trains, self.trains);
        add(&counters.bytes, self.bytes);
        add(&counters.foreign, self.foreign);
        add(&counters.held, self.held);
        add(&counters.dropped, self.dropped);
        add(&counters.probes, self.probes);
    }
}
