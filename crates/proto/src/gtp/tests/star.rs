//! Test network: senders on separate paths to one receiver behind one link, in virtual time.
//!
//! Every path has a round-trip time, and may have a rate limit at its sender and a narrow link. The
//! receiver's link has a rate and a queue that drops the excess. Control messages are never lost,
//! and take half a round trip.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::accounting::ReceiverAccounting;
use crate::endpoint::{
    Arrival, FlowId, Outgoing, PacketNumber, Receiver, Sender, Setup, Wake, Why,
};
use crate::gtp::{GtpReceiver, GtpSender, ROW};
use crate::layout::{Block, Layout};
use crate::settings::Settings;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::{Control, Request};

const BLOCK: u32 = 1000;
const OVERHEAD: Bytes = Bytes::new(32);

/// How a sender breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Lie {
    /// For each requested datagram, sends this many additional ones with a block that was not
    /// requested.
    Unrequested(u32),
    /// Offers this round-trip time instead of the true one.
    Rtt(Span),
    /// Offers this rate limit.
    Limit(Rate),
    /// Reverses the order of the datagrams of each poll.
    Backwards,
    /// Sends this many times as fast as requested, but only requested blocks.
    Fast(u64),
}

pub(super) struct Path {
    pub(super) rtt: Span,
    pub(super) limit: Option<Rate>,
    /// Rate of a link with an unlimited queue on the path.
    pub(super) narrow: Option<Rate>,
    /// One in this many datagrams is lost on the path.
    pub(super) lose_every: Option<u64>,
    pub(super) lie: Option<Lie>,
    /// Time during which the host is frozen and handles nothing.
    pub(super) frozen: Option<(Time, Time)>,
    pub(super) sender: GtpSender,
    blocks: u64,
    next: u64,
    ready: Time,
    /// When the narrow link is ready for the next datagram.
    free: Time,
    /// Received UDP payload in each 100 ms, in bytes.
    came: Vec<u64>,
    /// Datagrams that the receiver's link dropped.
    pub(super) dropped: u64,
}

enum Item {
    AtLink(PacketNumber, Block),
    AtReceiver(PacketNumber, Block),
    ToReceiver(Box<Control>),
    ToSender(Box<Control>),
}

pub(super) struct Star {
    pub(super) now: Time,
    pub(super) receiver: GtpReceiver,
    pub(super) paths: BTreeMap<u32, Path>,
    pub(super) link: Rate,
    pub(super) queue: Bytes,
    /// Rate of other traffic on the link.
    pub(super) taken: Rate,
    /// Interval at which the receiving host reads its card; zero: at every packet.
    pub(super) read_interval: Span,
    /// The receiving host sleeps at the start of each period: length of the sleep, and the period.
    pub(super) sleeps: Option<(Span, Span)>,
    pub(super) requests: u64,
    /// Each request of the receiver: time, flow and requested rate.
    pub(super) asked: Vec<(Time, u32, Rate)>,
    settings: Settings,
    free: Time,
    heap: BinaryHeap<Reverse<(Time, u64, u32)>>,
    items: BTreeMap<u64, Item>,
    serial: u64,
}

pub(super) fn ms(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

pub(super) fn settings(list: &[(&str, f64)]) -> Settings {
    let with = |settings: Settings, &(name, value): &(&str, f64)| settings.with(&ROW, name, value);
    list.iter().try_fold(Settings::default(), with).unwrap()
}

/// Jain's index of fairness (section 5.1.1).
pub(super) fn jain(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    sum * sum / (rates.len() as f64 * squares)
}

impl Star {
    /// A receiver behind a link of `mbps` with 20 ms of queue.
    pub(super) fn new(mbps: u64, settings: Settings) -> Star {
        let link = Rate::from_mbps(mbps);
        Star {
            now: Time::ZERO,
            receiver: GtpReceiver::default(),
            paths: BTreeMap::new(),
            link,
            taken: Rate::ZERO,
            queue: link.over(Span::from_millis(20)),
            read_interval: Span::ZERO,
            sleeps: None,
            requests: 0,
            asked: Vec::new(),
            settings,
            free: Time::ZERO,
            heap: BinaryHeap::new(),
            items: BTreeMap::new(),
            serial: 0,
        }
    }

    pub(super) fn setup(&self, flow: u32, rtt: u64, megabytes: u64) -> Setup {
        let object = Bytes::new(megabytes * 1_000_000);
        let layout = Layout::new(object, Bytes::ZERO, Bytes::new(100_000), BLOCK).unwrap();
        let settings = self.settings.clone();
        let setup = Setup::new(FlowId(flow), layout, Span::from_millis(rtt));
        Setup { overhead: OVERHEAD, settings, ..setup }
    }

    /// Adds a sender with an object of `megabytes`, over a path of `rtt` milliseconds.
    pub(super) fn join(&mut self, flow: u32, rtt: u64, megabytes: u64) -> &mut Path {
        let setup = self.setup(flow, rtt, megabytes);
        self.join_with(&setup)
    }

    pub(super) fn join_with(&mut self, setup: &Setup) -> &mut Path {
        self.receiver.add_flow(self.now, setup);
        let path = Path {
            rtt: setup.rtt,
            limit: None,
            narrow: None,
            lose_every: None,
            lie: None,
            frozen: None,
            sender: GtpSender::new(setup),
            blocks: setup.layout.blocks(),
            next: 0,
            ready: Time::ZERO,
            free: Time::ZERO,
            came: Vec::new(),
            dropped: 0,
        };
        self.paths.entry(setup.flow.0).or_insert(path)
    }

    /// When the receiving host reads a datagram that arrives at the time `at`.
    fn seen(&self, at: Time) -> Time {
        let after = |at: Time, step: Span| {
            let past = at.as_nanos() % step.as_nanos().max(1);
            if past == 0 { at } else { at + (step - Span::from_nanos(past)) }
        };
        let at = after(at, self.read_interval);
        match self.sleeps {
            Some((long, every)) if at.as_nanos() % every.as_nanos() < long.as_nanos() => {
                at + (long - Span::from_nanos(at.as_nanos() % every.as_nanos()))
            }
            _ => at,
        }
    }

    fn push(&mut self, at: Time, flow: u32, item: Item) {
        self.serial += 1;
        self.items.insert(self.serial, item);
        self.heap.push(Reverse((at, self.serial, flow)));
    }

    pub(super) fn run(&mut self, end: Time) {
        loop {
            let flows: Vec<u32> = self.paths.keys().copied().collect();
            flows.into_iter().for_each(|flow| self.pump_sender(flow));
            self.pump_receiver();
            let wakes = self.paths.values().map(|path| (path, path.sender.next_wakeup()));
            let ready = |path: &Path, wake| match wake {
                Wake::At(_, Why::Pacing) => at(wake, self.now).max(path.ready),
                _ => at(wake, self.now),
            };
            let wakes = wakes.map(|(path, wake)| path.awake(ready(path, wake)));
            let wake = wakes.min().unwrap_or(Time::NEVER);
            let wake = wake.min(at(self.receiver.next_wakeup(), self.now));
            let arrival = self.heap.peek().map_or(Time::NEVER, |Reverse((at, ..))| *at);
            let next = wake.min(arrival).max(self.now);
            if next > end {
                self.now = end;
                self.assert_honest_obey();
                return;
            }
            self.now = next;
            self.deliver();
            let now = self.now;
            for path in self.paths.values_mut().filter(|path| path.awake(now) == now) {
                path.sender.on_timeout(now);
            }
            self.receiver.on_timeout(now);
        }
    }

    /// Asserts that only a few datagrams of each honest sender count as too fast: at most four, or
    /// 1 % if that is more.
    fn assert_honest_obey(&self) {
        for (flow, _) in self.paths.iter().filter(|(_, path)| path.lie.is_none()) {
            let came = self.accounting(*flow);
            assert!(came.too_fast <= 4.max(came.highest / 100), "flow {flow}: {came:?}");
        }
    }

    fn pump_sender(&mut self, flow: u32) {
        let (now, mut blocks, mut out) = (self.now, Vec::new(), Vec::new());
        let Some(path) = self.paths.get_mut(&flow) else { return };
        if path.awake(now) > now {
            return;
        }
        let blocks_in_all = path.blocks;
        loop {
            let first = path.next;
            blocks.clear();
            if path.ready > now {
                break;
            }
            let max = if path.limit.is_some() { 1 } else { 44 };
            path.sender.poll_transmit(now, PacketNumber(first), max, &mut blocks);
            path.next += blocks.len() as u64;
            let count = blocks.len() as u64;
            if count == 0 {
                break;
            }
            if let Some(limit) = path.limit {
                path.ready = now + (Bytes::new(u64::from(BLOCK)) + OVERHEAD) / limit;
            }
            if path.lie == Some(Lie::Backwards) {
                blocks.reverse();
            }
            for (number, &block) in (first..).zip(&blocks) {
                out.push((PacketNumber(number), block));
            }
            if let Some(Lie::Unrequested(times)) = path.lie {
                for _ in 0..count * u64::from(times) {
                    let last = blocks_in_all as u32 - 1;
                    out.push((PacketNumber(path.next), Block { segment: 0, index: last }));
                    path.next += 1;
                }
            }
        }
        let mut said = Vec::new();
        while let Some(Outgoing { mut control, .. }) = path.sender.poll_control(now) {
            match (path.lie, &mut control) {
                (Some(Lie::Rtt(rtt)), Control::SenderOffer(offer)) => offer.rtt = rtt,
                (Some(Lie::Limit(limit)), Control::SenderOffer(offer)) => offer.limit = Some(limit),
                _ => (),
            }
            said.push(control);
        }
        while path.sender.poll_event().is_some() {}
        let (half, lose_every) = (path.rtt / 2, path.lose_every);
        for (number, block) in out {
            let path = self.paths.get_mut(&flow).expect("it is sending");
            let mut at = now;
            if let Some(narrow) = path.narrow {
                path.free = path.free.max(now) + Bytes::new(u64::from(BLOCK) + 32) / narrow;
                at = path.free;
            }
            if lose_every.is_none_or(|every| number.0 % every != every - 1) {
                self.push(at + half, flow, Item::AtLink(number, block));
            }
        }
        for control in said {
            self.push(now + half, flow, Item::ToReceiver(Box::new(control)));
        }
    }

    fn pump_receiver(&mut self) {
        while let Some(Outgoing { flow, control, .. }) = self.receiver.poll_control(self.now) {
            if let Control::Request(request) = &control {
                self.requests += 1;
                self.asked.push((self.now, flow.0, request.rate()));
            }
            if let Some(path) = self.paths.get(&flow.0) {
                let at = path.awake(self.now + path.rtt / 2);
                self.push(at, flow.0, Item::ToSender(Box::new(control)));
            }
        }
        while self.receiver.poll_event().is_some() {}
    }

    fn deliver(&mut self) {
        while let Some(&Reverse((at, serial, flow))) = self.heap.peek()
            && at <= self.now
        {
            self.heap.pop();
            let item = self.items.remove(&serial).expect("each serial is pushed once");
            let Some(path) = self.paths.get_mut(&flow) else { continue };
            let (now, id) = (self.now, FlowId(flow));
            match item {
                Item::AtLink(number, block) => {
                    let left = self.link.as_bps().saturating_sub(self.taken.as_bps());
                    let left = Rate::from_bps(left);
                    if left.over(self.free.since(now)) > self.queue {
                        path.dropped += 1;
                        continue;
                    }
                    let bytes = Bytes::new(u64::from(BLOCK)) + OVERHEAD;
                    self.free = self.free.max(now) + bytes / left;
                    self.push(self.seen(self.free), flow, Item::AtReceiver(number, block));
                }
                Item::AtReceiver(number, block) => {
                    path.note(now);
                    self.receiver.on_datagrams(now, id, &[Arrival { number, block, at: now }]);
                }
                Item::ToReceiver(control) => self.receiver.on_control(now, id, &control),
                Item::ToSender(control) => {
                    path.sender.on_control(now, id, &path.received(*control));
                }
            }
        }
    }

    /// A flow's received UDP payload in Mbit/s, between two times in ms.
    pub(super) fn rate(&self, flow: u32, from: u64, to: u64) -> f64 {
        let came = &self.paths[&flow].came;
        let sum: u64 = came.iter().take(to as usize / 100).skip(from as usize / 100).sum();
        sum as f64 * 8.0 / (to - from) as f64 / 1e3
    }

    pub(super) fn rates(&self, from: u64, to: u64) -> Vec<f64> {
        self.paths.keys().map(|&flow| self.rate(flow, from, to)).collect()
    }

    pub(super) fn accounting(&self, flow: u32) -> &ReceiverAccounting {
        self.receiver.accounting(FlowId(flow)).expect("it was added")
    }

    pub(super) fn loss(&self) -> f64 {
        self.dropped() as f64 / self.sent() as f64
    }

    pub(super) fn dropped(&self) -> u64 {
        self.paths.values().map(|path| path.dropped).sum()
    }

    pub(super) fn sent(&self) -> u64 {
        self.paths.values().map(|path| path.next).sum()
    }
}

impl Path {
    /// Returns `at`, or the end of the freeze if the host is frozen at that time.
    fn awake(&self, at: Time) -> Time {
        match self.frozen {
            Some((from, to)) if (from..to).contains(&at) => to,
            _ => at,
        }
    }

    fn received(&self, control: Control) -> Control {
        match (self.lie, control) {
            (Some(Lie::Fast(times)), Control::Request(asked)) => {
                let rate = Rate::from_bps(asked.rate().as_bps() * times);
                let mut blocks = asked.blocks().iter().cloned().peekable();
                let (sequence, anew) = (asked.sequence(), asked.is_anew());
                Control::Request(Request::fill(sequence, rate, anew, &mut blocks))
            }
            (_, control) => control,
        }
    }

    fn note(&mut self, now: Time) {
        let slot = (now.as_nanos() / 100_000_000) as usize;
        self.came.resize(self.came.len().max(slot + 1), 0);
        self.came[slot] += u64::from(BLOCK) + OVERHEAD.get();
    }
}

fn at(wake: Wake, now: Time) -> Time {
    match wake {
        Wake::Now => now,
        Wake::At(at, _) => at,
        Wake::OnInput => Time::NEVER,
    }
}
