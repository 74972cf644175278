//! Tests of the rate controllers against a small model of a bottleneck, in virtual time.

use std::collections::VecDeque;
use std::vec::Vec;

use super::fixed::Fixed;
use super::train::Trains;
use super::{Feedback, RateController};
use crate::accounting::ReceiverAccounting;
use crate::endpoint::{Arrival, FlowId, PacketNumber, Setup};
use crate::layout::{Block, Layout};
use crate::pace::Pacer;
use crate::pulse::{Pulses, until_train};
use crate::sent::SentLog;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::{Pulse, Train};

const DATAGRAM: Bytes = Bytes::new(1472);

/// One bottleneck with a drop-tail queue, random loss after it, and a return path without loss.
#[derive(Clone, Copy, Debug)]
struct Path {
    capacity: Rate,
    rtt: Span,
    queue: Bytes,
    loss: f64,
    /// Interval at which the receiving host reads its socket.
    look: Span,
    /// Length of the pause that the receiving host makes every [`STALL_EVERY`].
    stall: Span,
    /// Highest rate of the sending host.
    fastest: Rate,
    /// Highest read rate of the receiving host, and the size of the host's socket buffer.
    reads: Option<(Rate, Bytes)>,
}

const STALL_EVERY: Span = Span::from_millis(100);

struct Run {
    /// Arrival rate after the start-up, divided by the path's initial capacity × (1 − random loss).
    goodput: f64,
    /// Share of the datagrams sent after the start-up that the queue or a full socket dropped.
    dropped: f64,
    /// The sender's rate after each pulse (the receiver's periodic report).
    rates: Vec<(Time, Rate)>,
    /// Datagrams sent during the start-up.
    sent_at_start: u64,
    /// Datagrams sent during the start-up that the queue or a full socket dropped.
    dropped_at_start: u64,
    /// Datagrams sent before the first pulse arrived at the sender.
    sent_before_report: u64,
    /// Mean time that a datagram waited in the receiving host's socket after the start-up.
    waited: Span,
}

struct Model {
    path: Path,
    now: Time,
    /// When the bottleneck has sent all datagrams of its queue.
    free: Time,
    /// When the receiving host has read all datagrams of its socket.
    read: Time,
    /// Total waiting time of all arrivals in the receiving host's socket.
    waited: Span,
    arrivals: VecDeque<(Time, u64)>,
    pulses: VecDeque<(Time, Pulse)>,
    receiver: Pulses,
    accounting: ReceiverAccounting,
    /// The state of the random number generator.
    chance: u64,
    drops: u64,
}

impl Model {
    fn new(path: Path, seed: u64) -> Model {
        let layout = Layout::whole(Bytes::new(1 << 40), 1440).unwrap();
        let overhead = Bytes::new(32);
        let setup = Setup { overhead, ..Setup::new(FlowId(1), layout, path.rtt) };
        Model {
            path,
            now: Time::ZERO,
            free: Time::ZERO,
            read: Time::ZERO,
            waited: Span::ZERO,
            arrivals: VecDeque::new(),
            pulses: VecDeque::new(),
            receiver: Pulses::new(Time::ZERO, &setup),
            accounting: ReceiverAccounting::default(),
            chance: seed * 2 + 1,
            drops: 0,
        }
    }

    fn hits(&mut self, probability: f64) -> bool {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        ((self.chance >> 11) as f64 / (1u64 << 53) as f64) < probability
    }

    fn send(&mut self, number: u64) {
        if self.path.capacity.over(self.free.since(self.now)) + DATAGRAM > self.path.queue {
            self.drops += 1;
            return;
        }
        self.free = self.free.max(self.now) + DATAGRAM / self.path.capacity;
        if !self.hits(self.path.loss) {
            let at = (self.free + self.path.rtt / 2).as_nanos();
            let seen = Time::from_nanos(at.next_multiple_of(self.path.look.as_nanos()));
            if let Some(read) = self.reads(seen) {
                self.arrivals.push_back((read, number));
            }
        }
    }

    /// When the receiving host reads a datagram that arrives at `at`; `None` if the socket is full.
    fn reads(&mut self, at: Time) -> Option<Time> {
        let Some((rate, socket)) = self.path.reads else { return Some(at) };
        let waits = self.read.since(at);
        if rate.over(waits) + DATAGRAM > socket {
            self.drops += 1;
            return None;
        }
        self.read = at + waits + DATAGRAM / rate;
        self.waited = self.waited + waits;
        Some(self.read)
    }

    /// When the receiving host's current pause ends; now, if the host does not pause.
    fn awake(&self) -> Time {
        let within = self.now.as_nanos() % STALL_EVERY.as_nanos();
        let left = self.path.stall.as_nanos().saturating_sub(within);
        self.now + Span::from_nanos(left)
    }

    fn receive(&mut self) {
        if self.awake() > self.now {
            return;
        }
        while let Some(&(at, number)) = self.arrivals.front()
            && at <= self.now
        {
            self.arrivals.pop_front();
            let block = Block { segment: 0, index: number as u32 };
            let number = PacketNumber(number);
            self.receiver.on_arrivals(&[Arrival { number, block, at }]);
            self.accounting.received += 1;
            self.accounting.distinct += 1;
            self.accounting.highest = number.0 + 1;
        }
        if self.receiver.due() <= self.now {
            let pulse = self.receiver.make(self.now, &self.accounting);
            self.pulses.push_back((self.now + self.path.rtt / 2, pulse));
        }
    }
}

fn run(path: Path, later: Option<(Time, Rate)>, seed: u64, lasts: Span, startup: Span) -> Run {
    let mut model = Model::new(path, seed);
    let mut trains = Trains::new(DATAGRAM, None);
    let mut pacer = Pacer::new(trains.rate(), DATAGRAM);
    let mut host = Pacer::new(path.fastest, DATAGRAM);
    let (mut log, mut next, mut min_rtt) = (SentLog::default(), 0u64, path.rtt * 100);
    let mut rates = Vec::new();
    let mut at_start: Option<(u64, u64, u64, Span)> = None;
    let mut before_report = None;
    while model.now < Time::ZERO + lasts {
        if let Some((_, capacity)) = later.filter(|(at, _)| *at <= model.now) {
            model.path.capacity = capacity;
        }
        model.receive();
        while let Some((at, pulse)) = model.pulses.front().copied()
            && at <= model.now
        {
            model.pulses.pop_front();
            before_report.get_or_insert(next);
            let sample = pulse.echo.and_then(|echo| log.sample(model.now, echo));
            min_rtt = sample.map_or(min_rtt, |sample| sample.min(min_rtt));
            let rtt = sample.unwrap_or(min_rtt);
            trains.on_feedback(model.now, &Feedback { pulse: &pulse, min_rtt, rtt, sample });
            rates.push((model.now, trains.rate()));
        }
        pacer.set_rate(model.now, trains.rate());
        pacer.limit_burst(trains.burst());
        let first = PacketNumber(next);
        let room = trains.train(model.now, first).max(pacer.allowance(model.now));
        let room = room.min(until_train(first)).min(host.allowance(model.now));
        for _ in 0..room {
            model.send(next);
            next += 1;
        }
        if room > 0 {
            pacer.spend(model.now, Bytes::new(room * DATAGRAM.get()));
            host.spend(model.now, Bytes::new(room * DATAGRAM.get()));
            log.record(model.now, first, room, min_rtt.min(path.rtt));
            trains.on_sent(model.now, first, room);
        }
        if model.now >= Time::ZERO + startup && at_start.is_none() {
            at_start = Some((next, model.accounting.received, model.drops, model.waited));
        }
        let arrival = model.arrivals.front().map_or(Time::NEVER, |(at, _)| *at);
        let pulse = model.pulses.front().map_or(Time::NEVER, |(at, _)| *at);
        let looks = model.receiver.due().min(arrival).max(model.awake());
        let sends = pacer.next().max(host.next());
        model.now = sends.min(looks).min(pulse).max(model.now);
    }
    let (sent, received, drops, waited) = at_start.unwrap();
    let span = lasts - startup;
    let came = model.accounting.received - received;
    let goodput = Bytes::new(came * DATAGRAM.get()) / span;
    Run {
        goodput: goodput.as_bps() as f64 / (path.capacity.as_bps() as f64 * (1.0 - path.loss)),
        dropped: (model.drops - drops) as f64 / (next - sent) as f64,
        rates,
        sent_at_start: sent,
        dropped_at_start: drops,
        sent_before_report: before_report.unwrap(),
        waited: (model.waited - waited) / came,
    }
}

fn path(mbps: u64, rtt_micros: u64, bdps: f64, loss: f64) -> Path {
    let (capacity, rtt) = (Rate::from_mbps(mbps), Span::from_micros(rtt_micros));
    let queue = capacity.over(rtt).get() as f64 * bdps;
    // A real port holds at least ten packets, 100 µs of data, and the burst that a sender's kernel
    // emits at once: a millisecond of data or one send of 64 KiB, whichever is less.
    let at_once = capacity.over(Span::from_millis(1)).min(Bytes::new(65_536));
    let least = Bytes::new(10 * 1472).max(at_once).max(capacity.over(Span::from_micros(100)));
    let queue = Bytes::new(queue as u64).max(least);
    Path {
        capacity,
        rtt,
        queue,
        loss,
        look: Span::from_nanos(1),
        stall: Span::ZERO,
        fastest: Rate::from_bps(u64::MAX),
        reads: None,
    }
}

/// Returns the duration of the start-up: ten round trips plus 200 ms, or the time of 2,000
/// datagrams if that is longer.
fn startup(path: Path) -> Span {
    let enough = Bytes::new(2_000 * DATAGRAM.get()) / path.capacity;
    (path.rtt * 10 + Span::from_millis(200)).max(enough)
}

fn settle(path: Path, seed: u64) -> Run {
    let startup = startup(path);
    run(path, None, seed, startup * 3, startup)
}

#[test]
fn the_rate_is_found_on_slow_and_fast_and_on_short_and_long_paths() {
    let (mut goodput, mut dropped, mut runs) = (0.0, 0.0, 0.0);
    for mbps in [10, 100, 1_000, 10_000] {
        for rtt in [50, 1_000, 20_000, 100_000, 300_000] {
            for (bdps, loss) in [(0.02, 0.0), (0.2, 0.01), (0.2, 0.12), (1.0, 0.0), (1.0, 0.12)] {
                if mbps == 10_000 && rtt > 20_000 {
                    continue;
                }
                let path = path(mbps, rtt, bdps, loss);
                let run = settle(path, 1);
                assert!(run.goodput >= 0.85, "{path:?}: {}", run.goodput);
                assert!(run.dropped <= 0.06, "{path:?}: {}", run.dropped);
                (goodput, dropped, runs) =
                    (goodput + run.goodput, dropped + run.dropped, runs + 1.0);
            }
        }
    }
    assert!(goodput / runs > 0.96 && dropped / runs < 0.012, "{goodput} {dropped} of {runs}");
}

#[test]
fn a_host_that_reads_its_socket_rarely_does_not_mislead_the_sender() {
    for (mbps, rtt) in [(100, 200), (1_000, 200), (1_000, 100_000), (10_000, 20_000)] {
        for look in [50, 300, 1_000] {
            for bdps in [0.1, 1.0] {
                let mut path = path(mbps, rtt, bdps, 0.0);
                path.look = Span::from_micros(look);
                path.queue = path.queue.max(Bytes::new(60_000));
                let run = settle(path, 1);
                assert!(run.goodput >= 0.9, "{path:?}: {}", run.goodput);
                assert!(run.dropped <= 0.06, "{path:?}: {}", run.dropped);
                let share = run.dropped_at_start as f64 / run.sent_at_start as f64;
                assert!(share < 0.08, "{path:?}: {share} at the start");
            }
        }
    }
}

#[test]
fn drops_at_the_start_are_bounded() {
    for rtt in [1_000, 100_000] {
        for bdps in [0.02, 0.2, 1.0] {
            let path = path(1_000, rtt, bdps, 0.0);
            let run = settle(path, 2);
            let bdp = path.capacity.over(path.rtt).get() / DATAGRAM.get();
            let bound = bdp / 4 + run.sent_at_start / 50;
            assert!(run.dropped_at_start < bound, "{path:?}: {}", run.dropped_at_start);
            assert!(run.sent_before_report < 200, "{path:?}: {}", run.sent_before_report);
        }
    }
}

/// A burst of a millisecond's data, as a sender emits by default, is larger than this queue.
#[test]
fn a_queue_shorter_than_a_burst_lowers_the_goodput_little_and_drops_few_datagrams() {
    let short = Path { queue: Bytes::new(20 * 1_472), ..path(1_000, 1_000, 0.25, 0.0) };
    let run = settle(short, 1);
    assert!(run.goodput > 0.9, "{}", run.goodput);
    assert!(run.dropped < 0.01, "{}", run.dropped);
}

#[test]
fn random_loss_does_not_bring_the_rate_down() {
    for seed in 1..20 {
        let path = path(100, 20_000, 0.5, 0.12);
        let run = settle(path, seed);
        assert!(run.goodput > 0.85, "seed {seed}: {}", run.goodput);
        let least = run.rates.iter().filter(|(at, _)| *at > Time::ZERO + startup(path));
        let least = least.map(|(_, rate)| rate.as_bps()).min();
        assert!(least > Some(70_000_000), "seed {seed}: {least:?}");
    }
}

#[test]
fn random_loss_from_the_start_is_recognised_and_does_not_lower_the_goodput() {
    for loss in [0.0, 0.001, 0.01, 0.05] {
        for look in [1, 150_000, 400_000] {
            let mut path = path(957, 100_000, 1.0, loss);
            path.look = Span::from_nanos(look);
            let run = run(path, None, 3, Span::from_millis(2_700), Span::from_millis(100));
            assert!(run.goodput > 0.95, "{path:?}: {}", run.goodput);
            assert!(run.dropped < 0.004, "{path:?}: {}", run.dropped);
        }
    }
}

#[test]
fn a_host_that_stalls_now_and_then_does_not_lower_the_goodput() {
    for (mbps, rtt) in [(1_000, 200), (5_000, 200), (1_000, 20_000)] {
        for stall in [2, 12] {
            let mut path = path(mbps, rtt, 1.0, 0.0);
            // The queue is as large as a socket buffer.
            path.queue = Bytes::mebi(32);
            path.stall = Span::from_millis(stall);
            let startup = Span::from_millis(500);
            let run = run(path, None, 1, Span::from_secs(3), startup);
            assert!(run.goodput > 0.93, "{path:?}: {}", run.goodput);
            assert!(run.dropped < 0.01, "{path:?}: {}", run.dropped);
        }
    }
}

#[test]
fn a_sender_slower_than_the_path_does_not_raise_its_rate_for_ever() {
    let mut path = path(10_000, 200, 1.0, 0.0);
    path.queue = Bytes::mebi(4);
    // The receiving host reads too seldom to time a packet train (datagrams sent back to back).
    path.look = Span::from_micros(400);
    path.fastest = Rate::from_mbps(3_000);
    let run = run(path, None, 1, Span::from_secs(3), Span::from_millis(500));
    assert!(run.goodput > 0.28, "{}", run.goodput);
    let last = run.rates.last().map(|(_, rate)| rate.as_bps());
    assert!(last < Some(6_000_000_000), "{last:?}");
}

/// A pulse has an echo: the newest datagram and its age, which the sender subtracts. In this model
/// the age starts when the receiver reads the datagram. So the wait in the receiving socket counts
/// towards the round-trip time.
#[test]
fn a_receiver_that_reads_slower_than_the_path_sets_the_rate() {
    for (mbps, reads, rtt) in [(1_000, 300, 200), (1_000, 300, 20_000), (10_000, 2_000, 20_000)] {
        for look in [1, 1_000_000] {
            let mut path = path(mbps, rtt, 1.0, 0.0);
            (path.look, path.queue) = (Span::from_nanos(look), Bytes::mebi(4));
            let (reads, socket) = (Rate::from_mbps(reads), Bytes::mebi(32));
            path.reads = Some((reads, socket));
            let run = run(path, None, 1, Span::from_secs(4), Span::from_secs(1));
            let share = run.goodput * path.capacity.as_bps() as f64 / reads.as_bps() as f64;
            assert!(share > 0.85, "{path:?}: {share}");
            assert!(run.dropped < 0.01, "{path:?}: {}", run.dropped);
            // If the age started at the arrival, datagrams would wait in the socket for 140 ms or
            // longer.
            assert!(run.waited < Span::from_millis(40), "{path:?}: {}", run.waited);
        }
    }
}

#[test]
fn the_rate_follows_a_path_that_becomes_slower_or_faster() {
    for (before, after) in [(100, 40), (40, 100), (300, 900)] {
        for seed in 1..10 {
            let path = path(before, 20_000, 0.5, 0.01);
            let (change, lasts) = (Span::from_secs(1), Span::from_secs(8));
            let later = Some((Time::ZERO + change, Rate::from_mbps(after)));
            let run = run(path, later, seed, lasts, Span::from_secs(5));
            let share = run.goodput * before as f64 / after as f64;
            assert!(share > 0.85, "{before} to {after}, seed {seed}: {share}");
            assert!(run.dropped < 0.05, "{before} to {after}, seed {seed}: {}", run.dropped);
        }
    }
}

#[test]
fn the_users_limit_and_the_receivers_drain_rate_cap_the_rate() {
    let mut trains = Trains::new(DATAGRAM, Some(Rate::from_mbps(5)));
    assert_eq!(trains.rate(), Rate::from_mbps(5));
    trains.train(Time::ZERO, PacketNumber(0));
    trains.on_sent(Time::ZERO, PacketNumber(0), 32);
    let train =
        Train { first: PacketNumber(0), bytes: DATAGRAM, span: Span::from_micros(10), steps: 9 };
    let mut pulse = Pulse { highest: 32, received: 32, train: Some(train), ..Pulse::default() };
    let (min_rtt, rtt) = (Span::from_millis(10), Span::from_millis(10));
    trains.on_feedback(Time::ZERO, &Feedback { pulse: &pulse, min_rtt, rtt, sample: None });
    assert_eq!(trains.rate(), Rate::from_mbps(5));
    pulse.drain = Some(Rate::from_mbps(2));
    trains.on_feedback(Time::ZERO, &Feedback { pulse: &pulse, min_rtt, rtt, sample: None });
    assert_eq!(trains.rate(), Rate::from_bps(2_200_000));
}

#[test]
fn a_fixed_rate_never_reacts() {
    let mut fixed = Fixed::new(Rate::from_mbps(940));
    let pulse = Pulse { highest: 1_000_000, received: 10, ..Pulse::default() };
    let (min_rtt, rtt) = (Span::from_millis(1), Span::from_secs(1));
    fixed.on_feedback(Time::ZERO, &Feedback { pulse: &pulse, min_rtt, rtt, sample: Some(rtt) });
    assert_eq!(fixed.rate(), Rate::from_mbps(940));
    assert_eq!(fixed.train(Time::ZERO, PacketNumber(0)), 0);
}
