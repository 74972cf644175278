//! A receiver's flow. Each datagram has a symbol of a frame: an original (a part of the frame), or
//! a repair, which can replace a lost original. Frames with enough symbols go to the thread that
//! restores originals. A payload (frames sent together) counts as one frame here.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_net::clock::{self, Time};
use longhaul_net::port::{Datagrams, FlowSink};
use longhaul_net::sealing::keys::Suite;
use longhaul_net::sealing::open::Opener;
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::fec::{Losses, Shape};
use longhaul_proto::stream::{Delivery, Head, Meter, Placed, Receiver as Core, Request};
use longhaul_proto::time::Span;
use longhaul_proto::wire::header::Kind;
use longhaul_session::Exporter;
use tokio::sync::mpsc;

use crate::announcer::Announcer;
use crate::messages::Again;
use crate::queue::Outlet;
use crate::terms::{Phase, Terms, keys};

/// Maximum bytes of the originals of undelivered frames. Their repairs take at most as much again.
const MEMORY: usize = 64 << 20;

/// A frame or payload, with its symbols so far.
pub(crate) struct Frame {
    pub(crate) number: u32,
    pub(crate) length: usize,
    pub(crate) shape: Shape,
    /// The originals at their offsets; missing ones are zeros.
    pub(crate) originals: Vec<u8>,
    /// Whether each original has been received.
    pub(crate) here: Vec<bool>,
    /// The numbers of the received repairs.
    pub(crate) numbers: Vec<u16>,
    /// The received repairs, in the order of `numbers`.
    pub(crate) repairs: Vec<u8>,
    /// When the frame was complete and next in order.
    pub(crate) at: Time,
    /// The delay from the sender until `at`.
    pub(crate) took: Span,
    pub(crate) deadline: Span,
    /// Maximum number of frames in a payload; 1 without payloads.
    pub(crate) group: u32,
}

impl Frame {
    fn new(head: &Head, shape: Shape) -> Frame {
        let (originals, length) = (usize::from(shape.originals()), head.length as usize);
        Frame {
            number: head.frame,
            length,
            shape,
            originals: vec![0; length],
            here: vec![false; originals],
            numbers: Vec::new(),
            repairs: Vec::new(),
            at: Time::ZERO,
            took: Span::ZERO,
            deadline: Span::ZERO,
            group: 1,
        }
    }

    fn keep(&mut self, index: u16, symbol: &[u8]) {
        match index.checked_sub(self.shape.originals()) {
            None => {
                let start = usize::from(index) * usize::from(self.shape.symbol());
                self.originals[start..start + symbol.len()].copy_from_slice(symbol);
                self.here[usize::from(index)] = true;
            }
            Some(repair) => {
                if self.repairs.capacity() == 0 {
                    let most = self.shape.repairs().min(self.shape.originals());
                    self.repairs.reserve(usize::from(most) * symbol.len());
                }
                self.numbers.push(repair);
                self.repairs.extend_from_slice(symbol);
            }
        }
    }
}

pub(crate) enum Gathered {
    Whole(Frame),
    /// Frames that the reader (the program that takes the restored frames) does not get: the first,
    /// the last, and how many of them arrived but were dropped because the reader was too slow.
    Gap(u32, u32, u32),
    Begun(Terms),
    Ended,
}

struct Run {
    number: u64,
    terms: Terms,
    core: Core,
    /// One-way delay: half the sum of both hops' round-trip times.
    path: Span,
    frames: BTreeMap<u32, Frame>,
    /// After the stream's end: when nothing more is expected, and the number of frames.
    ends: Option<(Time, u32)>,
}

/// The state that survives a lost connection.
pub(crate) struct Gathering {
    run: Option<Run>,
    meter: Meter,
    out: Outlet<Gathered>,
    /// Whether the queue had room when the present delivery began. Frames that wait for an earlier
    /// frame become due together, and such a burst does not show that the reader is too slow. So
    /// the queue may hold the frames of one delivery, at most [`MEMORY`], in addition to the
    /// undelivered frames.
    has_room: bool,
    /// Missing frames still to be reported, as in `Gap`.
    owed: Option<(u32, u32, u32)>,
    begun: bool,
    ended: bool,
    over: bool,
    datagrams: u64,
    overdue: u64,
}

pub(crate) type Shared = Arc<Mutex<Gathering>>;

pub(crate) fn lock(shared: &Shared) -> MutexGuard<'_, Gathering> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gathering {
    pub(crate) fn new(out: Outlet<Gathered>) -> Shared {
        Arc::new(Mutex::new(Gathering {
            run: None,
            meter: Meter::new(Span::from_secs(1)),
            out,
            has_room: true,
            owed: None,
            begun: false,
            ended: false,
            over: false,
            datagrams: 0,
            overdue: 0,
        }))
    }

    pub(crate) fn datagrams(&self) -> u64 {
        self.datagrams
    }

    pub(crate) fn overdue(&self) -> u64 {
        self.overdue + self.run.as_ref().map_or(0, |run| run.core.overdue())
    }

    /// Returns the losses between server and receiver, and the whole path's spread and jitter.
    pub(crate) fn seen(&self) -> (Losses, Span, Span) {
        (self.meter.losses(), self.meter.spread(), self.meter.jitter())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Handles the server's report; `own` is the round-trip time to the server.
    fn on_phase(&mut self, now: Time, phase: &Phase, own: Span) {
        match *phase {
            Phase::Idle => {}
            Phase::Ended(frames) => {
                let beyond = self.run.as_ref().map_or(Span::ZERO, |run| run.terms.deadline);
                match &mut self.run {
                    // The server repeats its report.
                    Some(run) => drop(run.ends.get_or_insert((now + beyond, frames))),
                    None => self.ended = true,
                }
            }
            Phase::Live { run, terms, sender, frame, .. } => {
                if self.run.as_ref().is_some_and(|known| known.number == run) {
                    return;
                }
                self.overdue = self.overdue();
                // Numbers of the old run must not become part of a gap of the new run, so the old
                // run's last gap is reported now. A reader that is too slow does not learn of it.
                self.settle();
                self.owed = None;
                let path = (sender + own) / 2;
                let core = Core::new(terms.symbol, terms.deadline, path, MEMORY);
                let core = core.starting_at(frame).paced(terms.interval());
                let frames = BTreeMap::new();
                self.run = Some(Run { number: run, terms, core, path, frames, ends: None });
                self.begun = true;
            }
        }
        self.deliver();
    }

    fn take(&mut self, at: Time, number: u64, block: u64, payload: &[u8]) {
        self.datagrams += 1;
        self.meter.on_datagram(at, number);
        let Some(run) = &mut self.run else { return };
        let symbol = run.terms.symbol;
        let Ok(head) = Head::decode(block, payload, symbol) else { return };
        let (Ok(shape), Ok(len)) = (head.shape(symbol), head.symbol_len(symbol)) else { return };
        let bytes = &payload[Head::LEN..];
        if bytes.len() != len {
            return;
        }
        let placed = run.core.on_symbol(at, &head);
        // A symbol that was sent again says nothing about the path's delay. Frames with repairs
        // have no such symbols.
        let is_first = head.repairs > 0 || placed == Placed::Keep;
        if head.index == 0 && is_first && !run.core.is_requested(head.frame) {
            self.meter.on_stamp(at, head.at);
        }
        if placed == Placed::Keep {
            let frame = run.frames.entry(head.frame).or_insert_with(|| Frame::new(&head, shape));
            frame.keep(head.index, bytes);
        }
    }

    /// Sends everything that is due to the thread that restores originals.
    fn deliver(&mut self) {
        let now = clock::now();
        self.has_room = self.out.has_room();
        self.settle();
        while let Some(run) = &mut self.run {
            let delivery = match run.core.poll(now) {
                None => run.ends.filter(|(at, _)| *at <= now).and_then(|(_, frames)| {
                    let rest = run.core.finish(frames);
                    self.ended |= rest.is_none();
                    rest
                }),
                some => some,
            };
            let Some(delivery) = delivery else {
                // If no frame is outstanding, do not wait for the last deadline.
                self.ended |= run.ends.is_some_and(|(_, frames)| run.core.next() >= frames);
                break;
            };
            match delivery {
                Delivery::Frame { frame, beyond_path, .. } => {
                    if let Some(mut whole) = run.frames.remove(&frame) {
                        (whole.at, whole.took) = (now, run.path + beyond_path);
                        (whole.deadline, whole.group) = (run.terms.deadline, run.terms.group);
                        self.hand_over(whole);
                    }
                }
                Delivery::Missed { first, last } => {
                    run.frames = run.frames.split_off(&last.saturating_add(1));
                    self.owe(first, last, 0);
                }
            }
        }
        self.settle();
    }

    fn request(&mut self, now: Time, requests: &mpsc::Sender<Again>) {
        let Some(run) = &mut self.run else { return };
        while let Some(Request { frame, ranges }) = run.core.poll_request(now) {
            let (first, last) =
                ranges.into_iter().map(|(a, b)| (u32::from(a), u32::from(b))).unzip();
            // If the queue is full, the core requests the symbols again later.
            let _ = requests.try_send(Again { frame, first, last, receiver: 0 });
        }
    }

    fn hand_over(&mut self, frame: Frame) {
        self.settle();
        let number = frame.number;
        if !self.has_room {
            return self.owe(number, number, 1);
        }
        self.over |= !self.out.send(Gathered::Whole(frame));
    }

    fn owe(&mut self, first: u32, last: u32, unread: u32) {
        let before = self.owed.map_or((first, 0), |(first, _, unread)| (first, unread));
        self.owed = Some((before.0, last, before.1.saturating_add(unread)));
    }

    /// Sends the reports that had no room.
    fn settle(&mut self) {
        while self.has_room && !self.over {
            let input = match (self.begun, self.owed, self.ended) {
                (true, ..) => {
                    let Some(run) = &self.run else { return };
                    Gathered::Begun(run.terms)
                }
                (_, Some((first, last, unread)), _) => Gathered::Gap(first, last, unread),
                (_, None, true) => Gathered::Ended,
                _ => return,
            };
            match self.out.send(input) {
                true if self.begun => self.begun = false,
                true if self.owed.is_some() => self.owed = None,
                _ => self.over = true,
            }
        }
    }

    fn next_wakeup(&self) -> Option<Time> {
        let run = self.run.as_ref();
        let core = run.and_then(|run| run.core.next_wakeup());
        let end = run.and_then(|run| run.ends).filter(|_| !self.ended).map(|(at, _)| at);
        let request = run.and_then(|run| run.core.next_request(clock::now()));
        core.into_iter().chain(end).chain(request).min()
    }
}

pub(crate) struct Gather {
    pub(crate) shared: Shared,
    pub(crate) exporter: Exporter,
    pub(crate) suite: Suite,
    pub(crate) flow: FlowId,
    pub(crate) announcer: Announcer,
    pub(crate) states: Receiver<(Phase, Span)>,
    pub(crate) data: Option<(u64, Opener)>,
    pub(crate) scratch: Vec<u8>,
    pub(crate) requests: mpsc::Sender<Again>,
}

impl FlowSink for Gather {
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>) {
        let Some((_, data)) = &mut self.data else { return };
        let mut gathering = lock(&self.shared);
        for datagram in datagrams.filter(|datagram| datagram.header.kind == Kind::Data) {
            let header = &datagram.header;
            if let Ok(len) = data.open(now, header, datagram.bytes, &mut self.scratch) {
                let (number, payload) = (header.number.0, &self.scratch[..len]);
                gathering.take(datagram.at, number, header.block, payload);
            }
        }
        gathering.deliver();
        gathering.request(clock::now(), &self.requests);
    }

    fn on_wake(&mut self, now: Time) {
        let shared = self.shared.clone();
        let mut gathering = lock(&shared);
        while let Ok((phase, own)) = self.states.try_recv() {
            if let Phase::Live { epoch, .. } = phase
                && self.data.as_ref().is_none_or(|(known, _)| *known < epoch)
            {
                let keys = keys(&self.exporter, self.suite, epoch, self.flow);
                self.data = Some((epoch, keys.receiving_end().data));
                // The announcement tells the server that this end has the new keys.
                self.announcer.hasten();
                gathering.meter = Meter::new(Span::from_secs(1));
            }
            gathering.on_phase(now, &phase, own);
        }
        gathering.deliver();
        gathering.request(now, &self.requests);
        drop(gathering);
        let epoch = self.data.as_ref().map_or(0, |(epoch, _)| *epoch);
        self.announcer.send_if_due(now, epoch);
    }

    fn next_wakeup(&self) -> Option<Time> {
        let due = lock(&self.shared).next_wakeup();
        due.into_iter().chain([self.announcer.due()]).min()
    }

    fn is_closed(&self) -> bool {
        lock(&self.shared).is_over()
    }

    fn on_port_closed(&mut self, _: &str) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Inlet, queue};

    /// Run `run` of a stream of frames of 150 bytes, in symbols of 100.
    fn phase(run: u64) -> Phase {
        let deadline = Span::from_secs(60);
        let terms = Terms { symbol: 100, frame: 150, per_second: 1.0, deadline, group: 1 };
        Phase::Live { run, epoch: 1, terms, sender: Span::ZERO, frame: 0 }
    }

    fn live() -> (Shared, Inlet<Gathered>) {
        let (out, gathered) = queue();
        let shared = Gathering::new(out);
        lock(&shared).on_phase(clock::now(), &phase(1), Span::ZERO);
        assert!(matches!(gathered.next(), Some(Gathered::Begun(_))));
        (shared, gathered)
    }

    fn symbol(gathering: &mut Gathering, frame: u32, index: u16) {
        let head = Head { frame, index, repairs: 0, length: 150, skipped: 0, at: 0 };
        let payload = [&head.encode()[..], &vec![7; if index == 0 { 100 } else { 50 }]].concat();
        let number = u64::from(frame) * 2 + u64::from(index);
        gathering.take(clock::now(), number, head.block(), &payload);
        gathering.deliver();
    }

    #[test]
    fn the_last_frame_is_passed_on_before_an_end_that_overtook_it() {
        let (shared, gathered) = live();
        let mut gathering = lock(&shared);
        symbol(&mut gathering, 0, 0);
        gathering.on_phase(clock::now(), &Phase::Ended(1), Span::ZERO);
        assert!(!gathering.is_over());
        symbol(&mut gathering, 0, 1);
        assert!(matches!(gathered.next(), Some(Gathered::Whole(frame)) if frame.number == 0));
        assert!(matches!(gathered.next(), Some(Gathered::Ended)));
        assert!(gathering.is_over());
    }

    #[test]
    fn an_idle_reader_gets_all_frames_that_waited_for_an_earlier_frame_and_a_slow_reader_a_gap() {
        let (shared, gathered) = live();
        let mut gathering = lock(&shared);
        symbol(&mut gathering, 0, 0);
        for frame in 1..20 {
            symbol(&mut gathering, frame, 0);
            symbol(&mut gathering, frame, 1);
        }
        symbol(&mut gathering, 0, 1);
        for frame in 20..23 {
            symbol(&mut gathering, frame, 0);
            symbol(&mut gathering, frame, 1);
        }
        for number in 0..20 {
            let next = gathered.next();
            assert!(matches!(next, Some(Gathered::Whole(frame)) if frame.number == number));
        }
        gathering.deliver();
        assert!(matches!(gathered.next(), Some(Gathered::Gap(20, 22, 3))));
    }

    #[test]
    fn a_gap_does_not_continue_in_the_frames_of_a_sender_that_has_restarted() {
        let (shared, gathered) = live();
        let mut gathering = lock(&shared);
        symbol(&mut gathering, 0, 0);
        for frame in 1..20 {
            symbol(&mut gathering, frame, 0);
            symbol(&mut gathering, frame, 1);
        }
        symbol(&mut gathering, 0, 1);
        symbol(&mut gathering, 20, 0);
        symbol(&mut gathering, 20, 1);
        assert_eq!(gathering.owed, Some((20, 20, 1)));
        gathering.on_phase(clock::now(), &phase(2), Span::ZERO);
        symbol(&mut gathering, 0, 0);
        symbol(&mut gathering, 0, 1);
        assert_eq!(gathering.owed, Some((0, 0, 1)));
        for _ in 0..20 {
            assert!(matches!(gathered.next(), Some(Gathered::Whole(_))));
        }
        gathering.deliver();
        assert!(matches!(gathered.next(), Some(Gathered::Begun(_))));
        assert!(matches!(gathered.next(), Some(Gathered::Gap(0, 0, 1))));
    }
}
