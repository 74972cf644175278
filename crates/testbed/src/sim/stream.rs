//! A stream over one link in virtual time: frames at regular intervals, each sent as symbols, one
//! per datagram. Requests for lost datagrams return over a link with the same faults.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use longhaul_proto::stream::{Delivery, Head, Placed, Receiver, Request, Sender, Settings};
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

use crate::link::{Fate, Link, LinkSpec, UDP_IP};

/// Bytes of a request's packet.
const REQUEST: u32 = 300;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct StreamRun {
    /// The sender's settings; the receiver has the same symbol size, deadline and path delay.
    pub settings: Settings,
    /// The receiver's memory for symbols, in bytes.
    pub memory: usize,
    /// The link between sender and receiver.
    pub link: LinkSpec,
    /// Frame size in bytes.
    pub frame: u32,
    /// Time from one frame to the next.
    pub interval: Span,
    /// Number of frames.
    pub frames: u32,
    /// The seed of the link's randomness.
    pub seed: u64,
}

/// The outcome of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOutcome {
    /// Frames that the receiver delivered.
    pub delivered: u32,
    /// Frames that the receiver reported as missed, and frames after the last datagram that
    /// arrived.
    pub missed: u32,
    /// Frames delivered after their deadline: a failure, unless a queue or jitter delays every
    /// datagram.
    pub late: u32,
    /// Frames delivered out of order or with too few symbols, or neither delivered nor missed:
    /// bugs.
    pub broken: u32,
    /// Each delivered frame's delay, shortest first.
    pub delays: Vec<Span>,
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes of UDP payload sent.
    pub bytes: Bytes,
    /// Peak memory of symbols, in bytes.
    pub memory: usize,
    /// From the first frame to the end of the last interval.
    pub elapsed: Span,
}

impl StreamOutcome {
    /// The delay that `share` of the delivered frames did not exceed.
    pub fn delay(&self, share: f64) -> Span {
        let last = self.delays.len().saturating_sub(1);
        let place = (self.delays.len() as f64 * share) as usize;
        self.delays.get(place.min(last)).copied().unwrap_or(Span::ZERO)
    }

    /// The rate of UDP payload sent, averaged over the run.
    pub fn rate(&self) -> Rate {
        self.bytes / self.elapsed
    }
}

/// Runs a stream to its end.
pub fn run(stream: &StreamRun) -> StreamOutcome {
    let mut world = World::new(stream);
    while let Some(now) = world.next() {
        world.step(now);
    }
    world.outcome.elapsed = stream.interval * u64::from(stream.frames);
    let told = world.outcome.delivered + world.outcome.missed;
    // The receiver cannot know of later frames.
    let silent = world.receiver.next()..stream.frames;
    world.outcome.missed += silent.len() as u32;
    world.outcome.broken += stream.frames - told - silent.len() as u32;
    world.outcome.delays.sort_unstable();
    world.outcome
}

struct World<'a> {
    stream: &'a StreamRun,
    sender: Sender,
    receiver: Receiver,
    link: Link,
    /// Datagrams on the link, by arrival time and number.
    flying: BinaryHeap<Reverse<(Time, u64, Flying)>>,
    back: Link,
    /// Requests on the way back, by arrival time and number.
    requests: BTreeMap<(Time, u64), Request>,
    requested: u64,
    now: Time,
    offered: u32,
    /// Symbols kept of each open frame.
    kept: BTreeMap<u32, u32>,
    outcome: StreamOutcome,
}

/// A datagram's head, ordered for the heap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Flying {
    block: u64,
    head: [u8; Head::LEN],
}

impl World<'_> {
    fn new(stream: &StreamRun) -> World<'_> {
        let Settings { symbol, deadline, path, .. } = stream.settings;
        World {
            stream,
            sender: Sender::new(stream.settings),
            receiver: Receiver::new(symbol, deadline, path, stream.memory).paced(stream.interval),
            link: Link::new(stream.link.clone(), stream.seed),
            flying: BinaryHeap::new(),
            back: Link::new(stream.link.clone(), stream.seed + 1),
            requests: BTreeMap::new(),
            requested: 0,
            now: Time::ZERO,
            offered: 0,
            kept: BTreeMap::new(),
            outcome: StreamOutcome::default(),
        }
    }

    fn frame_at(&self) -> Option<Time> {
        let at = self.stream.interval * u64::from(self.offered);
        (self.offered < self.stream.frames).then(|| Time::ZERO + at)
    }

    fn next(&self) -> Option<Time> {
        let arrival = self.flying.peek().map(|Reverse((at, ..))| *at);
        let request = self.requests.first_key_value().map(|((at, _), _)| *at);
        let (wakes, asks) = (self.receiver.next_wakeup(), self.receiver.next_request(self.now));
        let wakes = [self.sender.next_wakeup(), wakes, asks, request];
        // A wake-up may have no effect and stay due, so each is at least 1 ns from now.
        let after = self.now + Span::from_nanos(1);
        let wakes = wakes.into_iter().flatten().map(|at| at.max(after));
        self.frame_at().into_iter().chain(arrival).chain(wakes).min()
    }

    fn step(&mut self, now: Time) {
        self.now = now;
        while self.frame_at().is_some_and(|at| at <= now) {
            // Without room the frame is lost; a real source would wait.
            let _: Result<u32, _> = self.sender.offer(now, self.stream.frame);
            self.offered += 1;
        }
        while let Some(entry) = self.requests.first_entry().filter(|entry| entry.key().0 <= now) {
            self.sender.again(now, &entry.remove(), 1);
        }
        while let Some((head, _)) = self.sender.poll_transmit(now) {
            self.send(now, head);
        }
        while self.flying.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((_, _, Flying { block, head }))) = self.flying.pop() else { break };
            let head = Head::decode(block, &head, self.stream.settings.symbol);
            let head = head.expect("a head that the sender wrote");
            if self.receiver.on_symbol(now, &head) == Placed::Keep {
                *self.kept.entry(head.frame).or_default() += 1;
            }
            self.outcome.memory = self.outcome.memory.max(self.receiver.used());
        }
        self.deliver(now);
        while let Some(request) = self.receiver.poll_request(now) {
            self.requested += 1;
            if let Fate::Arrives(passage) = self.back.offer(now, REQUEST)
                && passage.turned_bit.is_none()
            {
                self.requests.insert((passage.at, self.requested), request);
            }
        }
    }

    fn send(&mut self, now: Time, head: Head) {
        let Settings { symbol, overhead, .. } = self.stream.settings;
        let payload = u32::from(symbol) + u32::from(overhead);
        self.outcome.sent += 1;
        self.outcome.bytes += Bytes::new(payload.into());
        if let Fate::Arrives(passage) = self.link.offer(now, payload + UDP_IP)
            && passage.turned_bit.is_none()
        {
            let flying = Flying { block: head.block(), head: head.encode() };
            let number = self.outcome.sent;
            self.flying.push(Reverse((passage.at, number, flying)));
            if passage.twice {
                self.flying.push(Reverse((passage.at, number, flying)));
            }
        }
    }

    fn deliver(&mut self, now: Time) {
        let mut next = self.receiver.next();
        while let Some(delivery) = self.receiver.poll(now) {
            match delivery {
                Delivery::Frame { frame, shape, .. } => {
                    let kept = self.kept.get(&frame).copied().unwrap_or(0);
                    let is_whole = kept == u32::from(shape.originals());
                    self.outcome.broken += u32::from(!is_whole || frame != next);
                    let begun = Time::ZERO + self.stream.interval * u64::from(frame);
                    let delay = now.since(begun);
                    self.outcome.late += u32::from(delay > self.allowed());
                    self.outcome.delays.push(delay);
                    self.outcome.delivered += 1;
                }
                Delivery::Missed { first, last } => {
                    self.outcome.broken += u32::from(first != next);
                    self.outcome.missed += last - first + 1;
                }
            }
            next = self.receiver.next();
            self.kept = self.kept.split_off(&next);
        }
    }

    /// The deadline, plus the time by which the actual path delay exceeds the configured one. The
    /// receiver knows only the configured delay.
    fn allowed(&self) -> Span {
        let Settings { symbol, overhead, deadline, path, .. } = self.stream.settings;
        let wire = u32::from(symbol) + u32::from(overhead) + UDP_IP + self.stream.link.framing;
        let serialised = self.stream.link.rate.map(|rate| Bytes::new(wire.into()) / rate);
        let fastest = self.stream.link.delay + serialised.unwrap_or(Span::ZERO);
        // Timestamps have a resolution of one microsecond.
        deadline + fastest.saturating_sub(path) + Span::from_micros(2)
    }
}
