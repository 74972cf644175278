//! Pulses: the receiver's periodic report on a flow, and the measurements in it.
//!
//! While data arrive, the receiver sends a pulse every quarter of a round trip (5 to 100 ms); on an
//! idle flow every 250 ms. Silence therefore means a broken path (RFC 8085, section 3.1.10).
//!
//! Datagrams whose number modulo [`TRAIN_EVERY`] is below [`TRAIN_LEN`] form a packet train. The
//! receiver always times them; a sender that wants to measure sends them back to back. The first
//! train of a flow may be longer, if sender and receiver know its length.

use crate::accounting::ReceiverAccounting;
use crate::endpoint::{Arrival, PacketNumber, Setup};
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::{Echo, Pulse, Train};

/// Packet trains begin at multiples of this packet number.
pub(crate) const TRAIN_EVERY: u64 = 1024;
pub(crate) const TRAIN_LEN: u64 = 32;

/// A sleep of the receiving host is left out of a train's time only if at least this many datagrams
/// arrived outside the sleep. The first datagram of the train does not count.
const MIN_REST: u64 = 6;

/// Number of datagrams from `next` on that may be sent before the start of the next train. A
/// burst across the start would leave no complete train.
pub(crate) fn until_train(next: PacketNumber) -> u64 {
    TRAIN_EVERY - next.0 % TRAIN_EVERY
}

/// Shortest interval between pulses. Only the end of the first measured train is reported before
/// the interval is over.
const MIN_INTERVAL: Span = Span::from_millis(5);
const MAX_INTERVAL: Span = Span::from_millis(100);
/// Interval of pulses without data or changes.
const IDLE_INTERVAL: Span = Span::from_millis(250);

/// One flow's pulses.
#[derive(Clone, Debug)]
pub struct Pulses {
    started: Time,
    interval: Span,
    last: Option<Time>,
    sequence: u64,
    /// Whether something arrived or changed since the last pulse.
    news: bool,
    /// Whether the first measured train ended since the last pulse; the sender waits for the
    /// measurement.
    urgent: bool,
    newest: Option<(PacketNumber, Time)>,
    meter: TrainMeter,
    grant: Bytes,
    drain: Option<Rate>,
    socket_lost: u64,
}

impl Pulses {
    /// The pulses of a flow that started at `now`.
    pub fn new(now: Time, setup: &Setup) -> Pulses {
        Pulses {
            started: now,
            interval: (setup.rtt / 4).clamp(MIN_INTERVAL, MAX_INTERVAL),
            last: None,
            sequence: 0,
            news: false,
            urgent: false,
            newest: None,
            meter: TrainMeter::new(setup.datagram()),
            grant: setup.grant,
            drain: None,
            socket_lost: 0,
        }
    }

    /// Handles a batch of arrivals whose blocks belong to the object.
    pub(crate) fn on_arrivals<'a>(&mut self, arrivals: impl IntoIterator<Item = &'a Arrival>) {
        for arrival in arrivals {
            self.news = true;
            if self.newest.is_none_or(|(newest, _)| arrival.number > newest) {
                self.newest = Some((arrival.number, arrival.at));
            }
            let first = self.meter.ended.is_none();
            self.urgent |= self.meter.arrive(arrival.at, arrival.number) && first;
        }
    }

    /// Sets the length of the first train, at most [`TRAIN_EVERY`].
    pub(crate) fn set_first_train(&mut self, len: u64) {
        self.meter.first_len = len.min(TRAIN_EVERY);
    }

    /// Sets the grant (bytes that may be sent for the first time), which never shrinks, and the
    /// drain rate (at which the host empties its buffers).
    pub fn set_grant(&mut self, grant: Bytes, drain: Option<Rate>) {
        self.news |= grant > self.grant;
        self.grant = self.grant.max(grant);
        self.drain = drain.filter(|rate| *rate > Rate::ZERO);
    }

    /// The host's drain rate, if known.
    pub fn drain(&self) -> Option<Rate> {
        self.drain
    }

    /// Sets the number of datagrams that the receiving host dropped; never shrinks.
    pub fn set_socket_lost(&mut self, lost: u64) {
        self.news |= lost > self.socket_lost;
        self.socket_lost = self.socket_lost.max(lost);
    }

    /// Number of datagrams that the receiving host dropped so far.
    pub fn socket_lost(&self) -> u64 {
        self.socket_lost
    }

    /// The newest packet train with a measurement.
    pub fn train(&self) -> Option<Train> {
        self.meter.ended
    }

    /// When the next pulse is due.
    pub fn due(&self) -> Time {
        match self.last {
            None if self.news => self.started,
            Some(last) if self.urgent => last,
            Some(last) if self.news => last + self.interval,
            last => last.unwrap_or(self.started) + IDLE_INTERVAL,
        }
    }

    /// Makes the pulse to send now.
    pub fn make(&mut self, now: Time, accounting: &ReceiverAccounting) -> Pulse {
        self.sequence += 1;
        self.last = Some(now);
        self.news = false;
        self.urgent = false;
        Pulse {
            sequence: self.sequence,
            clock: now.since(self.started),
            highest: accounting.highest,
            received: accounting.received,
            distinct: accounting.distinct,
            grant: self.grant,
            drain: self.drain,
            echo: self.newest.map(|(number, at)| Echo { number, age: now.since(at) }),
            train: self.meter.ended,
            socket_lost: self.socket_lost,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TrainMeter {
    datagram: Bytes,
    /// Length of the train that begins at number 0.
    first_len: u64,
    current: Option<Passing>,
    ended: Option<Train>,
}

/// A train that is still arriving.
#[derive(Clone, Copy, Debug)]
struct Passing {
    start: u64,
    first: Time,
    last: Time,
    /// Number of datagrams that arrived after `first`.
    after: u64,
    /// Number of distinct arrival times after `first`.
    steps: u32,
    /// The longest pause between two arrivals.
    pause: Span,
    /// When the longest pause ended.
    woke: Time,
    /// Number of datagrams that arrived at `woke`.
    at_once: u64,
}

impl TrainMeter {
    pub(crate) fn new(datagram: Bytes) -> TrainMeter {
        TrainMeter { datagram, first_len: TRAIN_LEN, current: None, ended: None }
    }

    /// Records a datagram; returns whether the datagram ended a train that could be timed.
    pub(crate) fn arrive(&mut self, at: Time, number: PacketNumber) -> bool {
        let place = number.0 % TRAIN_EVERY;
        let start = number.0 - place;
        let len = |start| if start == 0 { self.first_len } else { TRAIN_LEN };
        let past = self.current.is_some_and(|train| number.0 >= train.start + len(train.start));
        let len = len(start);
        let mut ended = past && self.end();
        if place >= len {
            return ended;
        }
        let train = self.current.get_or_insert(Passing::new(start, at));
        if train.start == start {
            train.note(at);
            // The last datagram of a train ends the train, because there may be no later datagram.
            ended |= place + 1 == len && self.end();
        }
        ended
    }

    /// The newest train that could be timed.
    pub(crate) fn ended(&self) -> Option<Train> {
        self.ended
    }

    fn end(&mut self) -> bool {
        let Some(train) = self.current.take() else { return false };
        // With only one arrival time there is no span to measure.
        if train.last == train.first {
            return false;
        }
        let (after, span, steps) = train.timed();
        self.ended = Some(Train {
            first: PacketNumber(train.start),
            bytes: Bytes::new(after * self.datagram.get()),
            span,
            steps,
        });
        true
    }
}

impl Passing {
    fn new(start: u64, now: Time) -> Passing {
        Passing {
            start,
            first: now,
            last: now,
            after: 0,
            steps: 0,
            pause: Span::ZERO,
            woke: now,
            at_once: 0,
        }
    }

    fn note(&mut self, now: Time) {
        // The clock of the arrival times may have been set back.
        let now = now.max(self.last);
        let pause = now.since(self.last);
        if pause > self.pause {
            (self.pause, self.woke, self.at_once) = (pause, now, 0);
        }
        self.at_once += u64::from(now == self.woke);
        self.after += u64::from(now > self.first);
        self.steps += u32::from(now > self.last);
        self.last = now;
    }

    /// Returns the datagrams that show the rate, the time they took, and the number of steps.
    ///
    /// If one pause is longer than the rest of the train, and several datagrams arrive together at
    /// the end of the pause, the receiving host slept. The pause and these datagrams say nothing
    /// about the path, so they are left out if at least [`MIN_REST`] datagrams remain.
    fn timed(&self) -> (u64, Span, u32) {
        let (span, rest) = (self.last.since(self.first), self.after.saturating_sub(self.at_once));
        if self.pause > span / 2 && self.at_once > 1 && rest >= MIN_REST {
            (rest, span - self.pause, self.steps - 1)
        } else {
            (self.after, span, self.steps)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::FlowId;
    use crate::layout::{Block, Layout};
    use alloc::vec::Vec;

    fn setup() -> Setup {
        let layout = Layout::whole(Bytes::new(1_440_000), 1440).unwrap();
        let (overhead, grant) = (Bytes::new(32), Bytes::new(1000));
        Setup { overhead, grant, ..Setup::new(FlowId(1), layout, Span::from_millis(80)) }
    }

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    fn arrivals(at: Time, numbers: core::ops::Range<u64>) -> Vec<Arrival> {
        let block = Block { segment: 0, index: 0 };
        numbers.map(|number| Arrival { number: PacketNumber(number), block, at }).collect()
    }

    fn make(pulses: &mut Pulses, now: Time) -> Pulse {
        pulses.make(now, &ReceiverAccounting { highest: 1 << 20, ..Default::default() })
    }

    #[test]
    fn pulses_are_frequent_with_data_and_rare_without() {
        let mut pulses = Pulses::new(at(0), &setup());
        assert_eq!(pulses.due(), at(250_000));
        pulses.on_arrivals(&arrivals(at(1_000), 100..101));
        assert!(pulses.due() <= at(1_000));
        let pulse = make(&mut pulses, at(1_500));
        let age = Span::from_micros(500);
        assert_eq!(pulse.echo, Some(Echo { number: PacketNumber(100), age }));
        assert_eq!(pulses.due(), at(251_500));
        pulses.on_arrivals(&arrivals(at(2_000), 101..102));
        assert_eq!(pulses.due(), at(21_500));
        // An earlier datagram that arrives late is not echoed, and neither is a copy.
        pulses.on_arrivals(&arrivals(at(3_000), 99..100));
        pulses.on_arrivals(&arrivals(at(3_500), 101..102));
        let second = make(&mut pulses, at(4_000));
        let age = Span::from_micros(2_000);
        assert_eq!(second.echo, Some(Echo { number: PacketNumber(101), age }));
        assert_eq!((pulse.sequence, second.sequence), (1, 2));
        assert_eq!((pulse.clock, second.clock), (Span::from_micros(1_500), Span::from_millis(4)));
    }

    #[test]
    fn a_grant_or_drop_count_that_grows_triggers_a_pulse_and_neither_shrinks() {
        let mut pulses = Pulses::new(at(0), &setup());
        make(&mut pulses, at(0));
        pulses.set_grant(Bytes::new(500), Some(Rate::ZERO));
        assert_eq!((pulses.due(), pulses.drain()), (at(250_000), None));
        pulses.set_grant(Bytes::new(2000), None);
        assert_eq!(pulses.due(), at(20_000));
        pulses.set_socket_lost(5);
        pulses.set_socket_lost(4);
        let pulse = make(&mut pulses, at(20_000));
        // Numbers that do not grow are no news.
        pulses.set_grant(Bytes::new(2000), Some(Rate::from_bps(1)));
        pulses.set_socket_lost(5);
        assert_eq!((pulses.due(), pulses.drain()), (at(270_000), Some(Rate::from_bps(1))));
        pulses.set_socket_lost(6);
        assert_eq!((pulses.due(), pulses.socket_lost()), (at(40_000), 6));
        assert_eq!((pulse.grant, pulse.drain, pulse.socket_lost), (Bytes::new(2000), None, 5));
    }

    #[test]
    fn the_end_of_the_first_train_is_reported_immediately() {
        let mut pulses = Pulses::new(at(0), &setup());
        for number in 0..TRAIN_LEN {
            pulses.on_arrivals(&arrivals(at(1_000 + number * 12), number..number + 1));
            if number == 0 {
                make(&mut pulses, at(1_000));
            }
        }
        assert_eq!(pulses.due(), at(1_000));
        let train = make(&mut pulses, at(1_400)).train.unwrap();
        assert_eq!(train.first, PacketNumber(0));
        assert_eq!(train.bytes, Bytes::new(31 * 1472));
        assert_eq!((train.span, train.steps), (Span::from_micros(31 * 12), 31));
        pulses.on_arrivals(&arrivals(at(2_000), TRAIN_EVERY..TRAIN_EVERY + 1));
        pulses.on_arrivals(&arrivals(at(2_100), TRAIN_EVERY + 1..TRAIN_EVERY + TRAIN_LEN));
        assert_eq!(pulses.due(), at(21_400));
        let train = make(&mut pulses, at(21_400)).train.unwrap();
        assert_eq!((train.first, train.span), (PacketNumber(1024), Span::from_micros(100)));
    }

    #[test]
    fn a_train_whose_end_is_lost_ends_with_the_next_datagram() {
        let mut pulses = Pulses::new(at(0), &setup());
        pulses.on_arrivals(&arrivals(at(0), 0..10));
        pulses.on_arrivals(&arrivals(at(100), 10..20));
        pulses.on_arrivals(&arrivals(at(900), 40..41));
        let train = make(&mut pulses, at(900)).train.unwrap();
        assert_eq!((train.bytes, train.span), (Bytes::new(14_720), Span::from_micros(100)));
    }

    #[test]
    fn a_sleep_of_the_receiving_host_is_left_out_of_a_trains_time() {
        let mut pulses = Pulses::new(at(0), &setup());
        for number in 0..TRAIN_LEN {
            // One datagram every 100 µs; after the first twelve the host sleeps for 20 ms.
            let came = if number < 12 { number * 100 } else { (number * 100).max(21_100) };
            pulses.on_arrivals(&arrivals(at(came), number..number + 1));
        }
        let train = make(&mut pulses, at(22_000)).train.unwrap();
        assert_eq!((train.bytes, train.span), (Bytes::new(11 * 1472), Span::from_micros(1_100)));
        assert_eq!(train.steps, 11);
        // A pause of half of the train's time is not a sleep.
        let mut pulses = Pulses::new(at(0), &setup());
        for number in 0..TRAIN_LEN {
            let came = if number < 12 { number * 100 } else { 2_200 };
            pulses.on_arrivals(&arrivals(at(came), number..number + 1));
        }
        let train = pulses.train().unwrap();
        assert_eq!((train.bytes, train.span), (Bytes::new(31 * 1472), Span::from_micros(2_200)));
        // The datagrams after this pause arrive one by one, so the path caused the pause, and it
        // counts.
        let mut pulses = Pulses::new(at(0), &setup());
        for number in 0..TRAIN_LEN {
            let came = number * 100 + if number < 12 { 0 } else { 20_000 };
            pulses.on_arrivals(&arrivals(at(came), number..number + 1));
        }
        let train = make(&mut pulses, at(30_000)).train.unwrap();
        assert_eq!((train.bytes, train.span), (Bytes::new(31 * 1472), Span::from_micros(23_100)));
    }

    #[test]
    fn the_first_train_may_be_longer_than_the_others() {
        let mut pulses = Pulses::new(at(0), &setup());
        pulses.set_first_train(64);
        for number in 0..64 {
            assert_eq!(pulses.train(), None);
            pulses.on_arrivals(&arrivals(at(1_000 + number * 12), number..number + 1));
        }
        assert_eq!(pulses.train().unwrap().bytes, Bytes::new(63 * 1472));
        pulses.on_arrivals(&arrivals(at(5_000), TRAIN_EVERY..TRAIN_EVERY + 1));
        pulses.on_arrivals(&arrivals(at(5_100), TRAIN_EVERY + 1..TRAIN_EVERY + TRAIN_LEN));
        assert_eq!(pulses.train().unwrap().first, PacketNumber(TRAIN_EVERY));
    }

    #[test]
    fn no_burst_crosses_the_start_of_a_train() {
        let until = |next| until_train(PacketNumber(next));
        assert_eq!((until(0), until(1000), until(TRAIN_EVERY)), (1024, 24, 1024));
    }

    #[test]
    fn a_train_with_one_arrival_time_is_not_reported() {
        let mut pulses = Pulses::new(at(0), &setup());
        pulses.on_arrivals(&arrivals(at(5), 0..TRAIN_LEN));
        assert_eq!(make(&mut pulses, at(5)).train, None);
    }
}
