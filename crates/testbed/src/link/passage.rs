//! A link in operation: each packet's fate.

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;

use super::codel::CoDelState;
use super::loss::LossState;
use super::policer::PolicerState;
use super::schedule::{RateCourse, Schedule};
use super::serialiser::Serialiser;
use super::{LinkSpec, QueueControl};
use crate::random::Random;

/// The outcome for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet arrives.
    Arrives(Passage),
    /// The line lost it, after it was sent.
    Lost,
    /// The queue had no room.
    QueueFull,
    /// CoDel dropped it.
    Managed,
    /// The policer's bucket was empty.
    Policed,
    /// The link was down.
    Down,
    /// Larger than the link's size limit.
    TooLarge,
}

impl Fate {
    /// Whether a full queue or CoDel dropped the packet.
    pub(crate) fn is_queue(&self) -> bool {
        match self {
            Fate::QueueFull | Fate::Managed => true,
            Fate::Arrives(_) | Fate::Lost | Fate::Policed | Fate::Down | Fate::TooLarge => false,
        }
    }
}

/// How a packet arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The time of arrival.
    pub at: Time,
    /// Whether a duplicate arrives right behind it.
    pub twice: bool,
    /// Selects the bit to flip, if any.
    pub turned_bit: Option<u32>,
}

/// Counters of a link: `offered = arrives + dropped`; duplicates are extra.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTally {
    /// Packets offered.
    pub offered: u64,
    /// Bytes offered, as IP packets.
    pub offered_bytes: Bytes,
    /// Packets that arrive, without duplicates.
    pub arrives: u64,
    /// Bytes that arrive, as IP packets, without duplicates.
    pub arrives_bytes: Bytes,
    /// Packets lost on the line.
    pub lost: u64,
    /// Packets that found the queue full.
    pub queue_full: u64,
    /// Packets that CoDel dropped.
    pub managed: u64,
    /// Packets that the policer dropped.
    pub policed: u64,
    /// Packets offered while the link was down.
    pub down: u64,
    /// Packets too large for the link.
    pub too_large: u64,
    /// Duplicates that arrive.
    pub duplicates: u64,
    /// Packets that arrive with a flipped bit.
    pub corrupted: u64,
    /// Packets held back for reordering.
    pub held_back: u64,
}

/// One count of a [`LinkTally`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkCount {
    /// Its name in JSON.
    pub name: &'static str,
    /// The count.
    pub value: u64,
    /// The words after the count in a summary; empty for the first counts.
    pub words: &'static str,
}

impl LinkTally {
    /// All counts, in the order of output.
    pub fn counts(&self) -> [LinkCount; 13] {
        // Every field is named, so a new one does not compile until it is placed.
        let LinkTally {
            offered,
            offered_bytes,
            arrives,
            arrives_bytes,
            lost,
            queue_full,
            managed,
            policed,
            down,
            too_large,
            duplicates,
            corrupted,
            held_back,
        } = *self;
        [
            ("offered", offered, ""),
            ("offered_bytes", offered_bytes.get(), ""),
            ("arrives", arrives, ""),
            ("arrives_bytes", arrives_bytes.get(), ""),
            ("lost", lost, ""),
            ("queue_full", queue_full, ""),
            ("managed", managed, "by CoDel"),
            ("policed", policed, "by the policer"),
            ("down", down, "by an outage"),
            ("too_large", too_large, "as too large"),
            ("duplicates", duplicates, "doubled"),
            ("corrupted", corrupted, "corrupted"),
            ("held_back", held_back, "held back"),
        ]
        .map(|(name, value, words)| LinkCount { name, value, words })
    }

    /// Packets that do not arrive, for any reason.
    pub fn dropped(&self) -> u64 {
        // Every field is named, so a new one does not compile until it is placed.
        let LinkTally {
            offered: _,
            offered_bytes: _,
            arrives: _,
            arrives_bytes: _,
            lost,
            queue_full,
            managed,
            policed,
            down,
            too_large,
            duplicates: _,
            corrupted: _,
            held_back: _,
        } = *self;
        lost + queue_full + managed + policed + down + too_large
    }

    /// Packets with [`Fate::is_queue`].
    pub(crate) fn dropped_by_queue(&self) -> u64 {
        self.queue_full + self.managed
    }
}

/// A link in operation: takes packets and returns their fates.
#[derive(Clone, Debug)]
pub struct Link {
    spec: LinkSpec,
    schedule: Schedule,
    /// The rate at the current time.
    rate: RateCourse,
    /// The rate at the time when the offered packet leaves the queue.
    serves: RateCourse,
    random: Random,
    loss: LossState,
    serialiser: Serialiser,
    codel: CoDelState,
    policer: PolicerState,
    latest_arrival: Time,
    tally: LinkTally,
}

impl Link {
    /// Creates a link from `spec`; `seed` is the seed of its random numbers.
    pub fn new(spec: LinkSpec, seed: u64) -> Link {
        let mut random = Random::new(seed);
        let loss = LossState::new(&spec.loss, &mut random);
        let rate = RateCourse::new(spec.rate);
        Link {
            spec,
            schedule: Schedule::default(),
            serves: rate.clone(),
            rate,
            random,
            loss,
            serialiser: Serialiser::default(),
            codel: CoDelState::default(),
            policer: PolicerState::default(),
            latest_arrival: Time::ZERO,
            tally: LinkTally::default(),
        }
    }

    /// The configuration, with the schedule's changes up to the last offered packet.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// Replaces the configuration; packets in flight or in the queue keep their fate.
    pub fn update(&mut self, spec: LinkSpec) {
        self.loss = LossState::new(&spec.loss, &mut self.random);
        self.rate = RateCourse::new(spec.rate);
        self.serves = self.rate.clone();
        self.spec = spec;
        self.schedule = Schedule::default();
    }

    /// The counters so far.
    pub fn tally(&self) -> &LinkTally {
        &self.tally
    }

    /// The queue at `now`, in bytes on the wire.
    pub(crate) fn backlog(&self, now: Time) -> Bytes {
        self.serialiser.backlog(now)
    }

    /// The fate of an IP packet of `packet_bytes` at `now`. Times must not go back.
    pub fn offer(&mut self, now: Time, packet_bytes: u32) -> Fate {
        if self.schedule.follow(&mut self.spec, now) {
            self.loss = LossState::new(&self.spec.loss, &mut self.random);
        }
        self.spec.rate = self.rate.at(&self.spec.schedule, now);
        self.tally.offered += 1;
        self.tally.offered_bytes += Bytes::new(packet_bytes.into());
        let fate = self.judge(now, packet_bytes);
        match fate {
            Fate::Arrives(passage) => {
                self.tally.arrives += 1;
                self.tally.arrives_bytes += Bytes::new(packet_bytes.into());
                self.tally.duplicates += u64::from(passage.twice);
                self.tally.corrupted += u64::from(passage.turned_bit.is_some());
            }
            Fate::Lost => self.tally.lost += 1,
            Fate::QueueFull => self.tally.queue_full += 1,
            Fate::Managed => self.tally.managed += 1,
            Fate::Policed => self.tally.policed += 1,
            Fate::Down => self.tally.down += 1,
            Fate::TooLarge => self.tally.too_large += 1,
        }
        fate
    }

    fn judge(&mut self, now: Time, packet_bytes: u32) -> Fate {
        if !self.spec.up {
            return Fate::Down;
        }
        if self.spec.swallow_above.is_some_and(|most| packet_bytes > most) {
            return Fate::TooLarge;
        }
        let wire = u64::from(packet_bytes) + u64::from(self.spec.framing);
        if let Some(policer) = &self.spec.policer
            && self.policer.drops(policer, now, Bytes::new(wire))
        {
            return Fate::Policed;
        }
        let sent = match self.queued(now, Bytes::new(wire)) {
            Ok(sent) => sent,
            Err(fate) => return fate,
        };
        if self.loss.takes(wire, &mut self.random) {
            return Fate::Lost;
        }
        let at = self.arrival(sent);
        let twice = self.random.chance(self.spec.duplicate);
        let corrupted = self.random.chance(self.spec.corrupt);
        let turned_bit = corrupted.then(|| (self.random.bits() >> 32) as u32);
        Fate::Arrives(Passage { at, twice, turned_bit })
    }

    /// The departure time of a packet of `wire` bytes at `now`, or its fate if the queue drops it.
    fn queued(&mut self, now: Time, wire: Bytes) -> Result<Time, Fate> {
        let (queue, serialiser) = (self.spec.queue, &mut self.serialiser);
        let turn = serialiser.turn(now);
        let rate = self.serves.at(&self.spec.schedule, turn);
        if rate.is_some()
            && let QueueControl::CoDel(codel) = &self.spec.control
        {
            let ahead = serialiser.backlog(now);
            let room = ahead + wire <= queue;
            if room && self.codel.drops(codel, now, turn, wire, ahead) {
                return Err(Fate::Managed);
            }
        }
        serialiser.accept(now, wire, rate, queue).ok_or(Fate::QueueFull)
    }

    /// The arrival time of a packet that left the near end at `sent`.
    fn arrival(&mut self, sent: Time) -> Time {
        let mut at = sent + self.spec.delay;
        let jitter = self.spec.jitter;
        if jitter.spread > Span::ZERO {
            at += Span::from_nanos(self.random.below(jitter.spread.as_nanos() + 1));
        }
        if !jitter.overtakes {
            at = at.max(self.latest_arrival);
        }
        self.latest_arrival = self.latest_arrival.max(at);
        if self.random.chance(self.spec.reorder.share) {
            self.tally.held_back += 1;
            at += self.spec.reorder.by;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use longhaul_proto::units::{LossRatio, Rate};
    use proptest::prelude::*;

    use super::*;
    use crate::link::{Change, CoDel, Jitter, Loss, Policer, Reorder, Step};

    /// Offers `n` packets, one per `every`; returns counters and fates.
    fn offered(spec: LinkSpec, n: u64, every: Span, packet: u32) -> (LinkTally, Vec<Fate>) {
        let mut link = Link::new(spec, 3);
        let fates = (0..n).map(|i| link.offer(Time::ZERO + every * i, packet)).collect();
        (*link.tally(), fates)
    }

    fn arrivals(fates: &[Fate]) -> Vec<Time> {
        let at = |fate: &Fate| match fate {
            Fate::Arrives(passage) => Some(passage.at),
            _ => None,
        };
        fates.iter().filter_map(at).collect()
    }

    /// A link on which some packets of a fast sender meet this fate.
    fn doomed(fate: Fate) -> LinkSpec {
        let path = LinkSpec::path(Rate::from_mbps(10), Span::from_millis(1));
        match fate {
            Fate::Arrives(_) => path,
            Fate::Lost => path.with_loss(Loss::Pattern([false, true, true, true].into())),
            Fate::QueueFull => LinkSpec { queue: Bytes::new(1_538), ..path },
            Fate::Managed => {
                let (target, interval) = (Span::ZERO, Span::from_nanos(1));
                let control = QueueControl::CoDel(CoDel { target, interval });
                LinkSpec { control, ..path }
            }
            Fate::Policed => {
                let policer = Policer { rate: Rate::from_mbps(1), burst: Bytes::new(1_538) };
                LinkSpec { policer: Some(policer), ..path }
            }
            Fate::Down => LinkSpec { up: false, ..path },
            Fate::TooLarge => LinkSpec { swallow_above: Some(1_499), ..path },
        }
    }

    #[test]
    fn every_fate_except_arrival_is_a_drop_and_only_a_full_queue_or_codel_is_a_queue_drop() {
        let arrives = Fate::Arrives(Passage { at: Time::ZERO, twice: false, turned_bit: None });
        let drops =
            [Fate::Lost, Fate::QueueFull, Fate::Managed, Fate::Policed, Fate::Down, Fate::TooLarge];
        for fate in drops.into_iter().chain([arrives]) {
            let (tally, fates) = offered(doomed(fate), 40, Span::from_micros(100), 1_500);
            let arrived = arrivals(&fates).len() as u64;
            let met = fates.iter().filter(|met| **met == fate).count();
            assert!(met > 0 || arrived == 40, "no packet has the fate {fate:?}: {tally:?}");
            assert_eq!((tally.offered, tally.arrives), (40, arrived));
            assert_eq!(tally.dropped(), 40 - arrived, "{fate:?}: {tally:?}");
            let by_queue = fates.iter().filter(|fate| fate.is_queue()).count() as u64;
            assert_eq!(tally.dropped_by_queue(), by_queue, "{fate:?}: {tally:?}");
        }
        let by_queue = drops.into_iter().filter(Fate::is_queue).collect::<Vec<_>>();
        assert_eq!(by_queue, [Fate::QueueFull, Fate::Managed]);
    }

    #[test]
    fn a_gigabit_carries_1500_of_1538_bytes() {
        let gigabit = LinkSpec {
            queue: Bytes::new(10_000),
            ..LinkSpec::path(Rate::from_mbps(1_000), Span::from_millis(100))
        };
        // 2 Gbit/s: 1538 bytes every 6.152 µs.
        let (tally, fates) = offered(gigabit, 100_000, Span::from_nanos(6_152), 1_500);
        let times = arrivals(&fates);
        let span = times[times.len() - 1].since(times[0]);
        let rate = Bytes::new((times.len() as u64 - 1) * 1_500) / span;
        let expected = 1e9 * 1_500.0 / 1_538.0;
        assert!((rate.as_bps() as f64 / expected - 1.0).abs() < 1e-6, "{rate}");
        let half = tally.queue_full as f64 / tally.offered as f64;
        assert!((half - 0.5).abs() < 0.001, "{half}");
        // The queue's 10,000 bytes add to the delay of 50 ms.
        let waited = times[times.len() - 1].since(Time::ZERO + Span::from_nanos(6_152) * 99_999);
        assert!(waited <= Span::from_millis(50) + Bytes::new(10_000) / Rate::from_mbps(1_000));
    }

    #[test]
    fn lost_packets_occupy_the_line_like_delivered_ones() {
        let spec = LinkSpec::path(Rate::from_mbps(100), Span::ZERO)
            .with_loss(Loss::Pattern([true, false].into()));
        let (_, fates) = offered(spec, 4, Span::ZERO, 1_500);
        let slot = Bytes::new(1_538) / Rate::from_mbps(100);
        assert_eq!(arrivals(&fates), [Time::ZERO + slot * 2, Time::ZERO + slot * 4]);
    }

    #[test]
    fn jitter_is_uniform_and_keeps_the_order_by_default() {
        let (delay, spread) = (Span::from_millis(10), Span::from_millis(2));
        let jitter = |overtakes| LinkSpec {
            delay,
            jitter: Jitter { spread, overtakes },
            ..LinkSpec::default()
        };
        let every = Span::from_micros(10);
        let n = 10_000;
        let (_, free) = offered(jitter(true), n, every, 100);
        let free = arrivals(&free);
        let extra = |(i, at): (usize, &Time)| {
            at.since(Time::ZERO + every * i as u64 + delay).as_secs_f64() / spread.as_secs_f64()
        };
        let mean = free.iter().enumerate().map(extra).sum::<f64>() / n as f64;
        assert!((mean - 0.5).abs() < 4.0 / (12.0 * n as f64).sqrt(), "{mean}");
        // The test of Kolmogorov and Smirnov: with a probability of 99.9 %, for every i, the i-th
        // of n sorted uniform numbers is at most 1.95 / √n from i / n.
        let mut shares: Vec<f64> = free.iter().enumerate().map(extra).collect();
        shares.sort_by(f64::total_cmp);
        let apart = |(i, share): (usize, &f64)| {
            (share - i as f64 / n as f64).abs().max((share - (i + 1) as f64 / n as f64).abs())
        };
        let widest = shares.iter().enumerate().map(apart).fold(0.0, f64::max);
        assert!(widest < 1.95 / (n as f64).sqrt(), "{widest}");
        assert!(!free.is_sorted());
        let (_, kept) = offered(jitter(false), n, every, 100);
        assert!(arrivals(&kept).is_sorted());
    }

    #[test]
    fn reordering_duplication_and_corruption_have_the_configured_shares() {
        let (n, share) = (100_000u64, 0.03);
        let by = Span::from_millis(1);
        let spec = LinkSpec {
            reorder: Reorder { share, by },
            duplicate: share,
            corrupt: share,
            ..LinkSpec::default()
        };
        let (tally, fates) = offered(spec, n, Span::from_micros(100), 100);
        let margin = 4.0 * (share * (1.0 - share) / n as f64).sqrt();
        for found in [tally.held_back, tally.duplicates, tally.corrupted] {
            assert!((found as f64 / n as f64 - share).abs() < margin, "{found}");
        }
        let late = |(i, at): &(usize, Time)| {
            at.since(Time::ZERO) >= by + Span::from_micros(100) * *i as u64
        };
        let late = arrivals(&fates).into_iter().enumerate().filter(late).count();
        assert_eq!(late as u64, tally.held_back);
    }

    #[test]
    fn each_step_of_a_schedule_applies_from_its_time_on() {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let step = |millis, change| Step { at: at(millis), change };
        let lossy = Loss::Independent(LossRatio::new(1.0).unwrap());
        let spec = LinkSpec {
            schedule: vec![
                step(1, Change::Up(false)),
                step(3, Change::Up(true)),
                step(4, Change::Loss(lossy)),
                step(5, Change::Loss(Loss::None)),
                step(5, Change::Delay(Span::from_millis(7))),
                step(6, Change::Rate(Some(Rate::from_mbps(8)))),
            ],
            queue: Bytes::new(2_000),
            framing: 0,
            ..LinkSpec::default()
        };
        let (_, fates) = offered(spec, 7, Span::from_millis(1), 1_000);
        let arrives =
            |millis| Fate::Arrives(Passage { at: at(millis), twice: false, turned_bit: None });
        let expected =
            [arrives(0), Fate::Down, Fate::Down, arrives(3), Fate::Lost, arrives(12), arrives(14)];
        assert_eq!(fates, expected);
    }

    /// Fills the queue (250 kB, 200 ms) of a link of 10 Mbit/s just before `change` at 100 ms, then
    /// sends a packet of 1250 bytes per `every`. Returns the bytes that arrive in `between` (ms).
    fn after_a_change(
        change: Change,
        control: QueueControl,
        every: Span,
        between: core::ops::Range<u64>,
    ) -> u64 {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let spec = LinkSpec {
            queue: Bytes::new(250_000),
            framing: 0,
            control,
            schedule: vec![Step { at: at(100), change }],
            ..LinkSpec::path(Rate::from_mbps(10), Span::ZERO)
        };
        let mut link = Link::new(spec, 1);
        let mut arrived = 0;
        let mut now = Time::from_nanos(99_999_999);
        for _ in 0..400_000 {
            if let Fate::Arrives(passage) = link.offer(now, 1_250) {
                let within = at(between.start) <= passage.at && passage.at < at(between.end);
                arrived += if within { 1_250 } else { 0 };
            }
            assert!(link.backlog(now) <= Bytes::new(250_000));
            if link.tally().offered >= 400 {
                now += every;
            }
        }
        let t = link.tally();
        assert_eq!(t.offered, t.arrives + t.queue_full + t.managed);
        arrived
    }

    #[test]
    fn after_a_rate_change_a_full_queue_drains_at_the_new_rate_and_keeps_its_byte_limit() {
        let controls = [QueueControl::DropTail, QueueControl::CoDel(CoDel::default())];
        let rate = |mbps| Change::Rate(Some(Rate::from_mbps(mbps)));
        let over = Span::from_millis(200);
        let ramp = |mbps| Change::RateRamp { to: Rate::from_mbps(mbps), over };
        // (change, every, from..until in ms, expected bytes)
        let cases = [
            // The rate rises above the offered 500 Mbit/s: no loss. 250 kB drain in 2 ms.
            (rate(1_000), Span::from_micros(20), 102..202, 6_250_000),
            (rate(1), Span::from_millis(1), 100..1_100, 125_000),
            // Evenly from 10 to 100 Mbit/s within 200 ms: 55 on average.
            (ramp(100), Span::from_micros(50), 100..300, 1_375_000),
            (ramp(1), Span::from_micros(500), 100..300, 137_500),
        ];
        for control in controls {
            for (change, every, between, bytes) in cases.clone() {
                let found = after_a_change(change.clone(), control, every, between);
                let ratio = found as f64 / bytes as f64;
                assert!((ratio - 1.0).abs() < 0.03, "{change:?}, {control:?}: {ratio}");
            }
        }
    }

    #[test]
    fn when_a_rate_limit_is_lifted_waiting_packets_leave_at_once_and_in_order() {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let spec = LinkSpec {
            framing: 0,
            schedule: vec![Step { at: at(2), change: Change::Rate(None) }],
            ..LinkSpec::path(Rate::from_mbps(8), Span::ZERO)
        };
        let mut link = Link::new(spec, 1);
        let mut arrival = |now| arrivals(&[link.offer(now, 1_000)]);
        assert_eq!(arrival(at(0)), [at(1)]);
        assert_eq!(arrival(at(0)), [at(2)]);
        assert_eq!(arrival(at(0)), [at(2)]);
        assert_eq!(arrival(at(3)), [at(3)]);
    }

    #[test]
    fn a_black_hole_drops_large_packets_only() {
        let spec = LinkSpec { swallow_above: Some(1_280), ..LinkSpec::default() };
        let mut link = Link::new(spec, 1);
        assert!(matches!(link.offer(Time::ZERO, 1_280), Fate::Arrives(_)));
        assert_eq!(link.offer(Time::ZERO, 1_281), Fate::TooLarge);
    }

    proptest! {
        #[test]
        fn packets_are_conserved_and_never_early(
            seed: u64,
            mbps in 1u64..1_000,
            queue in 2_000u64..100_000,
            loss in 0.0..1.0,
            sizes in prop::collection::vec((20u32..1_500, 0u64..200_000), 1..300),
        ) {
            let delay = Span::from_millis(5);
            let codel = CoDel { target: Span::from_micros(50), interval: Span::from_millis(1) };
            let controls = [QueueControl::DropTail, QueueControl::CoDel(codel)];
            let spec = LinkSpec {
                queue: Bytes::new(queue),
                delay,
                corrupt: 0.1,
                duplicate: 0.1,
                jitter: Jitter { spread: Span::from_micros(50), overtakes: seed % 2 == 0 },
                swallow_above: Some(1_400),
                control: controls[usize::from(seed % 3 == 0)],
                ..LinkSpec::path(Rate::from_mbps(mbps), Span::ZERO)
            };
            let spec = spec.with_loss(Loss::independent(LossRatio::new(loss).unwrap()));
            let mut link = Link::new(spec, seed);
            let mut now = Time::ZERO;
            for (size, pause) in sizes {
                now += Span::from_nanos(pause);
                if let Fate::Arrives(passage) = link.offer(now, size) {
                    prop_assert!(passage.at >= now + delay);
                }
                prop_assert!(link.backlog(now) <= Bytes::new(queue));
            }
            let t = link.tally();
            let dropped = t.lost + t.queue_full + t.managed + t.down + t.too_large;
            prop_assert_eq!(t.offered, t.arrives + dropped);
            prop_assert!(t.duplicates <= t.arrives && t.corrupted <= t.arrives);
        }
    }
}
