//! Every step of the controller, with exact values. A train is 32 datagrams sent back to back. An
//! epoch is a series of datagrams sent at one rate. A ceiling is a rate that was too high. A try
//! raises the rate, and a check lowers it, to learn whether the path or the sender causes a loss.

use super::*;
use crate::wire::Pulse;
use crate::wire::Train;

/// 10,000 bits: 100 Mbit/s are ten datagrams a millisecond.
const DATAGRAM: Bytes = Bytes::new(1_250);
const MBPS: f64 = 1e6;

fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs(), "{found} is not {expected}");
}

/// A pool with one well-timed first train, which shows this rate in Mbit/s.
fn shows(mbps: f64) -> Pool {
    let (bytes, span) = (Bytes::new(mbps as u64 * 125), Span::from_millis(1));
    let mut pool = Pool::default();
    pool.add(&Train { first: PacketNumber(0), bytes, span, steps: 31 }, DATAGRAM);
    pool
}

/// A controller at 100 Mbit/s whose start has ended.
fn up() -> Trains {
    let mut trains = Trains::new(DATAGRAM, None);
    trains.mode = Mode::Up;
    trains.set_rate(100.0 * MBPS);
    trains
}

fn with_ceiling(mbps: f64) -> Trains {
    let mut trains = up();
    trains.set_ceiling(mbps * MBPS);
    trains
}

/// An epoch at this rate, in Mbit/s, that lost this share.
fn epoch(mbps: f64, loss: f64) -> Measure {
    let rate = mbps * MBPS;
    let delivered = rate * (1.0 - loss);
    let (left, paced, datagrams) = (rate, rate, 1_000.0);
    Measure { rate, left, paced, delivered, loss, datagrams, queue: Span::ZERO, queued: false }
}

/// An epoch during which a queue grew and datagrams arrived at `paced` Mbit/s.
fn queued(mbps: f64, paced: f64, queue: Span) -> Measure {
    let paced = paced * MBPS;
    Measure { paced, delivered: paced, queue, queued: true, ..epoch(mbps, 0.0) }
}

fn delivering(mbps: f64, delivered: f64) -> Measure {
    Measure { delivered: delivered * MBPS, ..epoch(mbps, 1.0 - delivered / mbps) }
}

fn train(first: u64, steps: u32) -> Train {
    let first = PacketNumber(first);
    Train { first, bytes: Bytes::new(100_000), span: ms(1), steps }
}

fn feedback(pulse: &Pulse, min_rtt: Span, sample: Option<Span>) -> Feedback<'_> {
    Feedback { pulse, min_rtt, rtt: min_rtt, sample }
}

#[test]
fn the_first_rate_is_a_share_of_a_timed_trains_rate_otherwise_32_datagrams_in_half_a_ms() {
    let pulse = |train, highest| Pulse { train, highest, received: highest, ..Pulse::default() };
    let first = |train, highest| {
        first_rate(DATAGRAM, &pulse(train, highest), 0.9).map(|rate| rate.as_bps())
    };
    assert_eq!(first(Some(train(0, 9)), 32), Some(720_000_000));
    // 32 datagrams in half a millisecond.
    assert_eq!((first(None, 31), first(None, 32)), (None, Some(640_000_000)));
    assert_eq!(first(Some(train(1024, 9)), 32), Some(640_000_000), "that is not the first train");
}

#[test]
fn before_the_first_report_a_trickle_of_128_datagrams_follows_the_train() {
    let mut trains = Trains::new(DATAGRAM, None);
    let mut after = |first, count| {
        trains.on_sent(Time::ZERO, PacketNumber(first), count);
        RateController::rate(&trains).as_bps()
    };
    assert_eq!([after(0, 32), after(32, 128), after(160, 1)], [8_000_000, 8_000_000, 100_000]);
    trains.mode = Mode::Up;
    assert_eq!(RateController::rate(&trains), TRICKLE);
}

#[test]
fn a_train_goes_whole_or_not_at_all() {
    let room = |trains: &mut Trains, number| trains.train(Time::ZERO, PacketNumber(number));
    let mut start = Trains::new(DATAGRAM, None);
    assert_eq!(room(&mut start, 3), 0, "it has not begun");
    let at = [0, 5, 31, 32, 1023, 1024];
    assert_eq!(at.map(|number| room(&mut start, number)), [32, 27, 1, 0, 0, 0]);
    let mut later = up();
    assert_eq!([0, 1024, 1030, 2047].map(|number| room(&mut later, number)), [0, 32, 26, 0]);
    (later.pool, later.blind) = (shows(1.0), false);
    assert_eq!(room(&mut later, 2048), 0, "the last train was timed");
    assert_eq!(room(&mut with_ceiling(100.0), 1024), 0);
    let before = epoch(100.0, 0.0);
    for mode in [Mode::Smooth { before, is_own: false }, Mode::Try(before), Mode::Check(before)] {
        assert_eq!(room(&mut Trains { mode, ..up() }, 1024), 0);
    }
}

fn asked(starts: impl IntoIterator<Item = u64>) -> Trains {
    let mut trains = up();
    starts.into_iter().for_each(|start| trains.asked.ask(start));
    trains
}

fn report(trains: &mut Trains, train: Train) -> Option<f64> {
    let pulse = Pulse { train: Some(train), ..Pulse::default() };
    trains.on_feedback(Time::ZERO, &feedback(&pulse, ms(20), None));
    trains.shown()
}

#[test]
fn a_train_of_six_steps_is_timed() {
    let shown = |train: Train| {
        let mut trains = asked([1024]);
        let shown = report(&mut trains, train);
        assert_eq!(trains.blind, shown.is_none());
        shown
    };
    // 32 datagrams take 0.4 ms at 800 Mbit/s. With the timing error, 0.5 ms: 640 Mbit/s.
    near(shown(train(1024, 6)).unwrap(), 640.0 * MBPS);
    assert_eq!((shown(train(1024, 5)), shown(train(2048, 6))), (None, None));
    near(report(&mut asked([0]), train(0, 6)).unwrap(), 800.0 * MBPS);
}

#[test]
fn a_train_counts_once_even_if_later_trains_left_before_its_report() {
    let mut trains = asked([1024, 2048, 3072]);
    near(report(&mut trains, train(2048, 6)).unwrap(), 640.0 * MBPS);
    // The end of a ceiling drops the value that a train showed. An old report does not restore it.
    trains.pool = Pool::default();
    assert_eq!(report(&mut trains, train(2048, 6)), None);
    assert_eq!(report(&mut trains, train(1024, 6)), None);
    near(report(&mut trains, train(3072, 6)).unwrap(), 640.0 * MBPS);
}

#[test]
fn the_first_report_ends_the_start() {
    // 100,000 bytes in 1 ms. Jitter stretched the train of five steps, so the rate is doubled.
    for (steps, mbps, growth, blind) in [(5, 1_440.0, GUESSED, true), (6, 720.0, NEAR, false)] {
        let mut trains = Trains::new(DATAGRAM, None);
        trains.train(Time::ZERO, PacketNumber(0));
        trains.on_sent(Time::ZERO, PacketNumber(0), 40);
        let pulse = Pulse { train: Some(train(0, steps)), highest: 32, ..Pulse::default() };
        trains.on_feedback(Time::ZERO, &feedback(&pulse, ms(20), None));
        assert_eq!((trains.mode, trains.epoch.from), (Mode::Up, 40));
        assert_eq!((trains.growth, trains.blind), (growth, blind));
        near(trains.rate, mbps * MBPS);
    }
    // The first train was too fast to be timed: the pulse (the receiver's periodic report) has no
    // train, and the growth does not change.
    let mut trains = Trains { growth: 3.0, ..Trains::new(DATAGRAM, None) };
    let pulse = Pulse { highest: 32, ..Pulse::default() };
    trains.on_feedback(Time::ZERO, &feedback(&pulse, ms(20), None));
    assert_eq!((trains.growth, trains.rate), (3.0, 640.0 * MBPS));
}

#[test]
fn each_new_rate_stays_within_its_bounds_and_begins_an_epoch() {
    let mut trains = up();
    trains.sent = 77;
    for (rate, expected) in [(1.0, 100e3), (1e13, 1e12), (5e6, 5e6)] {
        trains.set_rate(rate);
        assert_eq!((trains.rate, trains.epoch.from), (expected, 77));
        assert!(trains.epoch.start.is_none());
    }
}

/// A controller that sends ten datagrams each millisecond. The first pulse of its epoch left when
/// 100 datagrams had arrived, at 50 ms on the receiver's clock.
fn begun(blind: bool, min_rtt: Span) -> Trains {
    let mut trains = Trains { blind, ..up() };
    for millis in 0..100 {
        trains.on_sent(Time::ZERO + ms(millis), PacketNumber(millis * 10), 10);
    }
    assert_eq!(tell(&mut trains, ms(50), (100, 100), min_rtt, min_rtt), None);
    trains
}

fn tell(
    trains: &mut Trains,
    clock: Span,
    (highest, received): (u64, u64),
    min_rtt: Span,
    sample: Span,
) -> Option<Measure> {
    let pulse = Pulse { clock, highest, received, ..Pulse::default() };
    trains.measure(&feedback(&pulse, min_rtt, Some(sample)))
}

#[test]
fn an_epoch_shows_departures_arrivals_and_whether_a_queue_grew() {
    let mut trains = begun(false, ms(20));
    let found = tell(&mut trains, ms(90), (400, 385), ms(20), ms(35)).expect("it is long enough");
    near(found.left, 100.0 * MBPS);
    near(found.paced, 75.0 * MBPS);
    near(found.delivered, 71.25 * MBPS);
    near(found.loss, 0.05);
    assert_eq!((found.rate, found.datagrams), (100.0 * MBPS, 300.0));
    assert_eq!((found.queue, found.queued), (Span::ZERO, false), "one late pulse is a stall");
    let found = tell(&mut trains, ms(90), (400, 385), ms(20), ms(32)).expect("it is long enough");
    assert_eq!((found.queue, found.queued), (ms(12), true), "two late pulses are a queue");
    // A short queue counts because arrivals were stretched by a quarter.
    let found = tell(&mut trains, ms(90), (400, 385), ms(20), ms(26)).expect("it is long enough");
    assert_eq!((found.queue, found.queued), (ms(6), true));
    // A sender slower than its rate: 300 datagrams took 30 ms.
    trains.rate = 200.0 * MBPS;
    let found = tell(&mut trains, ms(90), (400, 400), ms(20), ms(20)).expect("it is long enough");
    near(found.left, 100.0 * MBPS);
    assert!(!found.is_used());
    // A sender cannot exceed its rate for long: anything above is a burst.
    trains.rate = 50.0 * MBPS;
    let found = tell(&mut trains, ms(90), (400, 400), ms(20), ms(20)).expect("it is long enough");
    assert_eq!(found.left, 50.0 * MBPS);
}

#[test]
fn an_epoch_is_long_enough_in_time_and_in_datagrams() {
    let cases = [
        // Columns: blind; round trip in ms; duration; datagrams; whether the epoch ends.
        (false, 20, Span::from_nanos(19_999_999), 300, false),
        (false, 20, ms(20), 300, true),
        (false, 100, Span::from_nanos(49_999_999), 300, false),
        (false, 100, ms(50), 300, true),
        (true, 4, Span::from_nanos(9_999_999), 300, false),
        (true, 4, ms(10), 300, true),
        (false, 20, ms(40), 63, false),
        (false, 20, ms(40), 64, true),
    ];
    for (blind, rtt, span, count, expected) in cases {
        let (mut trains, counts) = (begun(blind, ms(rtt)), (100 + count, 100 + count));
        let found = tell(&mut trains, ms(50) + span, counts, ms(rtt), ms(rtt));
        assert_eq!(found.is_some(), expected, "{blind} {rtt} {span} {count}");
    }
}

#[test]
fn an_epoch_with_loss_is_longer_until_the_loss_is_beyond_doubt() {
    let len = |own, loss| Trains { loss: own, ..up() }.epoch_len(loss);
    assert_eq!([len(0.0, 0.0), len(0.0, 0.1), len(0.0, 0.25)], [64, 314, 564]);
    assert_eq!([len(0.0, 0.26), len(0.1, 0.3), len(0.1, 0.36)], [64, 564, 64]);
    let known = |seen, own| Trains { loss: own, seen, ..up() }.epoch_len(0.1);
    assert_eq!([known(100.0, 0.0), known(101.0, 0.001_9), known(101.0, 0.002)], [314, 64, 314]);
}

#[test]
fn loss_is_excess_if_it_exceeds_the_paths_own_loss_plus_2_percent_plus_noise() {
    let is_excess = |own, loss, datagrams| {
        Trains { loss: own, ..up() }.is_excess(&Measure { datagrams, ..epoch(100.0, loss) })
    };
    // The limit: 2 %, plus noise, which assumes a loss of at least 0.2 %:
    // 2.5 · √(0.002 · 0.998 / 1000) = 0.35 %.
    assert!(!is_excess(0.0, 0.0235, 1_000.0) && is_excess(0.0, 0.0236, 1_000.0));
    // The limit: the path's own 10 %, plus 2 %, plus noise of 2.5 · √(0.1 · 0.9 / 900) = 2.5 %.
    assert!(!is_excess(0.1, 0.1449, 900.0) && is_excess(0.1, 0.1451, 900.0));
}

#[test]
fn the_paths_own_loss_is_a_mean_over_the_last_epochs() {
    let mut trains = up();
    let mut learn = |loss, datagrams| {
        trains.learn(&Measure { datagrams, ..epoch(100.0, loss) });
        (trains.loss, trains.seen)
    };
    assert_eq!(learn(0.1, 100.0), (0.1, 100.0));
    let (loss, seen) = learn(0.2, 300.0);
    near(loss, 0.175);
    assert_eq!(seen, 400.0);
    // The loss average covers eight epochs of this length.
    let (loss, seen) = learn(0.0, 25.0);
    near(loss, 0.175 * 400.0 / 425.0);
    assert_eq!(seen, 200.0);
}

#[test]
fn the_capacity_counts_own_loss_as_arrived_and_lies_between_half_the_rate_and_the_rate() {
    let capacity = |own, delivered| {
        Trains { loss: own, ..up() }.capacity(&delivering(100.0, delivered)) / MBPS
    };
    near(capacity(0.1, 72.0), 80.0);
    assert_eq!([capacity(0.0, 40.0), capacity(0.5, 90.0)], [50.0, 100.0]);
    near(capacity(0.95, 6.0), 60.0);
}

#[test]
fn after_a_late_senders_loss_the_rate_stays_near_the_rate_that_recently_arrived() {
    let lossy = delivering(104.0, 60.0);
    let (mut punctual, mut late) = (proven(100.0, 0), proven(100.0, 1));
    punctual.up(&lossy);
    near(punctual.rate / MBPS, 58.2);
    late.up(&lossy);
    assert_eq!(late.mode, Mode::Check(lossy));
    near(late.rate / MBPS, 97.0);
    late.check(&lossy, &epoch(97.0, 0.0));
    near(late.ceiling.expect("it is set").rate / MBPS, 100.0);
    near(late.rate / MBPS, 97.0);
}

#[test]
fn a_second_loss_of_a_punctual_sender_refutes_the_rate_that_recently_arrived() {
    let (lossy, again) = (delivering(104.0, 60.0), delivering(97.0, 60.0));
    let after = |late| {
        let mut trains = proven(100.0, late);
        trains.check(&lossy, &again);
        assert_eq!(trains.mode, Mode::Check(again));
        (trains.rate / MBPS, trains.proven == Proven::default())
    };
    let ((late, late_is_refuted), (punctual, is_refuted)) = (after(1), after(0));
    near(late, 94.09);
    near(punctual, 58.2);
    assert!(!late_is_refuted && is_refuted);
}

/// A controller after an epoch in which `mbps` Mbit/s arrived. Its sender counts as late for `late`
/// more epochs.
fn proven(mbps: f64, late: u32) -> Trains {
    let mut trains = Trains { seen: 1_000.0, late, ..up() };
    trains.up(&epoch(mbps, 0.0));
    trains
}

#[test]
fn a_sender_is_late_below_97_percent_of_its_rate() {
    let is_late = |left: f64| Measure { left: left * MBPS, ..epoch(100.0, 0.0) }.is_late();
    assert_eq!([is_late(97.0), is_late(96.9)], [false, true]);
}

#[test]
fn a_sender_that_does_not_reach_its_rate_counts_as_late_for_two_epochs_unless_it_is_capped() {
    let late = |cap: f64| {
        let mut trains = up();
        let (mut number, mut now) = (0, Time::ZERO);
        let mut send = |trains: &mut Trains, count: u64, micros: u64| {
            for _ in 0..count {
                trains.on_sent(now, PacketNumber(number), 1);
                (number, now) = (number + 1, now + Span::from_micros(micros));
            }
            let (clock, highest) = (now.since(Time::ZERO), number - 1);
            let pulse = Pulse { clock, highest, received: highest, ..Pulse::default() };
            trains.on_feedback(now, &feedback(&pulse, ms(20), None));
            trains.cap(cap * MBPS);
            trains.late
        };
        // Datagrams of 10,000 bits, 200 µs apart: half of the rate.
        send(&mut trains, 400, 200);
        let at_half = send(&mut trains, 400, 200);
        send(&mut trains, 400, 100);
        [at_half, send(&mut trains, 400, 100)]
    };
    assert_eq!([late(200.0), late(50.0)], [[2, 1], [0, 0]]);
}

#[test]
fn the_loss_of_an_outage_does_not_change_the_rate() {
    let is_outage = |rtt, gap: u64, received| {
        let mut trains = Trains { seen: 1_000.0, ..up() };
        for (clock, highest, received) in [(20, 100, 100), (20 + gap, 3_000, received)] {
            let pulse = Pulse { clock: ms(clock), highest, received, ..Pulse::default() };
            trains.on_feedback(Time::ZERO + ms(clock), &feedback(&pulse, ms(rtt), None));
        }
        trains.mode == Mode::Up && trains.rate == 100.0 * MBPS
    };
    assert_eq!([is_outage(50, 201, 1_549), is_outage(50, 200, 1_549)], [true, false]);
    assert_eq!([is_outage(100, 401, 100), is_outage(100, 400, 100)], [true, false]);
    // Half of the datagrams arrived.
    assert!(!is_outage(50, 201, 1_550));
}

#[test]
fn a_queue_that_we_fill_sets_a_ceiling_and_is_drained() {
    let known = |measure: Measure, seen: f64| {
        let mut trains = Trains { unchecked: 5, seen, ..up() };
        trains.up(&measure);
        assert_eq!((trains.mode, trains.unchecked), (Mode::Up, 0));
        assert!(trains.bounded && !trains.blind);
        let ceiling = trains.ceiling.expect("it is set");
        assert_eq!(ceiling.epochs, 50);
        (ceiling.rate / MBPS, trains.rate / MBPS)
    };
    let after = |measure| known(measure, 0.0);
    assert_eq!(after(queued(100.0, 80.0, ms(11))), (80.0, 72.0));
    assert_eq!(after(queued(100.0, 80.0, ms(10))), (80.0, 77.6));
    assert_eq!(after(queued(100.0, 30.0, ms(11))), (70.0, 63.0), "a stall costs at most 30 %");
    // Without stretching, the delivery rate shows the capacity.
    let even = Measure { delivered: 90.0 * MBPS, ..queued(100.0, 96.0, ms(11)) };
    assert_eq!(after(even), (90.0, 81.0));
    // Lost datagrams count as arrived only while the path's own loss is unknown (`seen` is 0).
    let lossy = Measure { delivered: 80.0 * MBPS, ..queued(100.0, 90.0, ms(11)) };
    assert_eq!((after(lossy), known(lossy, 1.0)), ((90.0, 81.0), (80.0, 72.0)));
}

#[test]
fn the_first_moderate_loss_leads_to_a_try_if_the_rate_is_used_and_other_loss_to_a_check() {
    let after = |mut trains: Trains, measure: Measure| {
        trains.unchecked = 5;
        trains.up(&measure);
        assert_eq!(trains.unchecked, 0);
        (trains.mode, trains.rate)
    };
    let lossy = epoch(100.0, 0.19);
    assert_eq!(after(up(), lossy), (Mode::Try(lossy), 125.0 * MBPS));
    let below = 81.0 * MBPS * 0.97;
    let unused = Measure { left: 90.0 * MBPS, ..lossy };
    for (trains, measure) in [
        (Trains { bounded: true, ..up() }, lossy),
        (Trains { seen: 1.0, ..up() }, lossy),
        (up(), unused),
    ] {
        let (mode, rate) = after(trains, measure);
        assert_eq!(mode, Mode::Check(measure));
        near(rate, below);
    }
    let heavy = epoch(100.0, 0.2);
    assert_eq!(after(up(), heavy).0, Mode::Check(heavy));
}

#[test]
fn a_clean_epoch_raises_the_rate_if_it_was_used() {
    let mut trains = up();
    trains.up(&epoch(100.0, 0.01));
    assert_eq!((trains.rate, trains.loss, trains.unchecked), (150.0 * MBPS, 0.01, 1));
    let (clock, highest, received) = (ms(1), 1, 1);
    for kept in [
        Measure { left: 90.0 * MBPS, ..epoch(100.0, 0.0) },
        Measure { paced: 95.9 * MBPS, ..epoch(100.0, 0.0) },
    ] {
        let mut trains = up();
        trains.epoch.start = Some(Snapshot { clock, highest, received, rtt: None });
        trains.up(&kept);
        assert_eq!((trains.rate, trains.epoch.start.is_none()), (100.0 * MBPS, true));
    }
    let mut raised = up();
    raised.up(&Measure { left: 90.1 * MBPS, paced: 86.6 * MBPS, ..epoch(100.0, 0.0) });
    assert_eq!(raised.rate, 150.0 * MBPS, "96 % of the departure rate is not stretched");
}

#[test]
fn loss_above_a_ceiling_is_not_the_paths_own() {
    for (ceiling, loss) in [(100.0, 0.01), (99.9, 0.0)] {
        let mut trains = with_ceiling(ceiling);
        trains.up(&epoch(100.0, 0.01));
        assert_eq!(trains.loss, loss);
    }
}

#[test]
fn own_loss_above_1_percent_is_checked_every_16_epochs() {
    let after = |unchecked, loss| {
        let mut trains = Trains { unchecked, loss, seen: 1e9, bounded: true, ..up() };
        trains.blind = false;
        trains.up(&epoch(100.0, loss));
        (matches!(trains.mode, Mode::Check(_)), trains.unchecked, trains.rate / MBPS)
    };
    assert_eq!(after(15, 0.011), (true, 0, 90.0));
    assert_eq!(after(14, 0.011), (false, 15, 104.0));
    assert_eq!(after(15, 0.01), (false, 16, 104.0));
}

#[test]
fn below_a_ceiling_the_rate_grows_in_steps_and_above_it_the_ceiling_is_refuted() {
    let after = |rate: f64| with_ceiling(100.0).higher(&epoch(rate, 0.0)) / MBPS;
    for (rate, expected) in [(50.0, 55.0), (92.0, 97.0), (93.0, 93.93), (100.0, 103.0)] {
        near(after(rate), expected);
    }
    let mut refuted = with_ceiling(100.0);
    near(refuted.higher(&epoch(107.0, 0.0)), 110.21 * MBPS);
    assert!(refuted.ceiling.is_some());
    // The sender was slower than its rate.
    let slow = Measure { left: 100.0 * MBPS, ..epoch(110.0, 0.0) };
    near(refuted.higher(&slow), 113.3 * MBPS);
    assert!(refuted.ceiling.is_some());
    near(refuted.higher(&epoch(107.1, 0.0)), 110.313 * MBPS);
    assert!(refuted.ceiling.is_none() && refuted.blind);
    near(refuted.higher(&epoch(100.0, 0.0)), 125.0 * MBPS);
}

#[test]
fn a_ceiling_is_believed_for_at_least_16_epochs_and_at_least_a_second() {
    for (rtt, epochs) in [(1, 50), (30, 33), (100, 16)] {
        let mut trains = Trains { min_rtt: ms(rtt), ..up() };
        trains.set_ceiling(100.0 * MBPS);
        assert_eq!(trains.ceiling.expect("it is set").epochs, epochs);
    }
    let mut trains = Trains { pool: shows(1.0), ..with_ceiling(100.0) };
    for _ in 0..49 {
        near(trains.higher(&epoch(95.0, 0.0)), 95.95 * MBPS);
    }
    assert!(trains.ceiling.is_some() && trains.shown().is_some());
    near(trains.higher(&epoch(95.0, 0.0)), 95.95 * MBPS);
    assert!(trains.ceiling.is_none() && trains.shown().is_none() && !trains.blind);
}

#[test]
fn without_a_ceiling_the_rate_grows_by_guess_or_towards_the_rate_of_a_train() {
    let mut blind = up();
    for expected in [150.0, 157.0, 160.0, 160.0] {
        near(blind.higher(&epoch(100.0, 0.0)), expected * MBPS);
    }
    let timed = || Trains { blind: false, growth: NEAR, ..up() };
    let mut near_shown = timed();
    for expected in [104.0, 108.0, 116.0, 132.0, 150.0, 150.0] {
        near(near_shown.higher(&epoch(100.0, 0.0)), expected * MBPS);
    }
    // The rate rises to 97 % of the train's rate divided by (1 − loss), but by at most a quarter. A
    // target less than 5 % above the rate is ignored.
    let towards = |shown: f64, loss| {
        let mut trains = Trains { pool: shows(shown), loss, bounded: true, ..timed() };
        trains.higher(&epoch(100.0, 0.0)) / MBPS
    };
    near(towards(120.0, 0.0), 116.4);
    near(towards(100.0, 0.2), 121.25);
    near(towards(500.0, 0.0), 125.0);
    near(towards(108.0, 0.0), 104.0);
}

#[test]
fn a_try_becomes_a_check_if_the_sender_did_not_send_enough_faster() {
    let before = epoch(100.0, 0.1);
    let after = |left: f64| {
        let mut trains = up();
        trains.tried(&before, &Measure { left: left * MBPS, ..delivering(125.0, 100.0) });
        (trains.mode, trains.rate / MBPS)
    };
    let (mode, rate) = after(112.0);
    assert!(matches!(mode, Mode::Check(_)));
    near(rate, 97.0);
    assert_eq!(after(112.5).0, Mode::Up);
}

#[test]
fn a_try_that_delivers_more_shows_own_loss_and_a_try_that_does_not_shows_a_ceiling() {
    let before = epoch(100.0, 0.1);
    // A quarter more was sent, so an eighth more must arrive: 101.25 Mbit/s.
    let mut more = Trains { seen: 5.0, loss: 0.05, ..up() };
    more.tried(&before, &delivering(125.0, 101.3));
    assert_eq!((more.mode, more.seen), (Mode::Up, 2_000.0));
    near(more.loss, (0.1 + 1.0 - 101.3 / 125.0) / 2.0);
    near(more.rate, 156.25 * MBPS);
    let mut less = up();
    less.tried(&before, &delivering(125.0, 101.2));
    near(less.ceiling.expect("it is set").rate, 90.0 * MBPS);
    near(less.rate, 87.3 * MBPS);
    assert_eq!((less.mode, less.growth), (Mode::Up, CAREFUL));
}

#[test]
fn a_try_that_fills_a_queue_drains_it() {
    let before = epoch(100.0, 0.1);
    for (loss, own) in [(0.11, 0.105), (0.1 + EXCESS, 0.0), (0.13, 0.0)] {
        let mut trains = up();
        let delivered = 100.0 * (1.0 - loss) * MBPS;
        trains.tried(&before, &Measure { loss, delivered, ..queued(125.0, 100.0, ms(11)) });
        // The path's own loss is added to the arrivals. While this loss is unknown, all lost
        // datagrams count as arrived.
        let arrived = if own > 0.0 { delivered / (1.0 - own) } else { 100.0 * MBPS };
        near(trains.rate, arrived * 0.9);
        near(trains.loss, own);
    }
}

#[test]
fn a_check_tells_the_paths_own_loss_from_ours() {
    let before = epoch(100.0, 0.1);
    let check = |measure: &Measure| {
        let mut trains = Trains { seen: 5.0, ..up() };
        trains.check(&before, measure);
        trains
    };
    let tested = check(&epoch(90.0, 0.1));
    assert_eq!((tested.mode, tested.burst()), (Mode::Smooth { before, is_own: true }, SHORT_BURST));
    near(tested.rate, before.rate);
    // Short bursts lose less, so the loss is not the path's own.
    let mut shorter = tested;
    shorter.smoothed(&before, true, &epoch(100.0, 0.01));
    assert_eq!((shorter.mode, shorter.burst()), (Mode::Up, SHORT_BURST));
    near(shorter.loss, 0.01 * 1_000.0 / 1_005.0);
    // Short bursts lose as much, so the loss is the path's own.
    let mut own = check(&epoch(90.0, 0.1));
    own.smoothed(&before, true, &epoch(90.0, 0.1));
    assert_eq!(own.burst(), u64::MAX);
    assert_eq!((own.mode, own.rate, own.seen), (Mode::Up, 100.0 * MBPS, 2_000.0));
    near(own.loss, 0.1);
    let ours = check(&epoch(90.0, 0.0));
    assert_eq!((ours.mode, ours.loss, ours.seen), (Mode::Up, 0.0, 1_000.0));
    near(ours.ceiling.expect("it is set").rate, 90.0 * MBPS);
    near(ours.rate, 87.3 * MBPS);
    // Either the rate is still too high, or the delivery rate fell by more than the rate.
    for delivered in [86.0, 72.0] {
        let measure = delivering(90.0, delivered);
        let again = check(&measure);
        assert_eq!(again.mode, Mode::Check(measure));
        near(again.rate, delivered * 0.97 * MBPS);
    }
    near(check(&queued(90.0, 80.0, ms(11))).rate, 72.0 * MBPS);
}

#[test]
fn a_queue_is_ours_if_it_is_long_and_grows() {
    let (span, micros) = (ms(40), Span::from_micros);
    // A queue counts if it exceeds 10 ms and a quarter of the round trip, and grew by more than a
    // 200th of the epoch of 40 ms.
    let long = |queue, growth, rtt| fills(queue, growth, span, 1.0, rtt);
    assert!(long(micros(10_001), micros(201), ms(20)));
    assert!(!long(ms(10), micros(201), ms(20)) && !long(micros(10_001), micros(200), ms(20)));
    assert!(!long(ms(20), ms(1), ms(80)) && long(micros(20_001), ms(1), ms(80)));
    // Arrivals are stretched by a tenth of the epoch (4 ms). Then a queue counts if it exceeds 5 ms
    // and a 20th of the round trip, and grew by more than a quarter of the 4 ms.
    let stretched = |queue, growth, rtt| fills(queue, growth, span, 0.9, rtt);
    assert!(stretched(micros(5_001), micros(1_001), ms(20)));
    assert!(!stretched(ms(5), micros(1_001), ms(20)));
    assert!(!stretched(micros(5_001), micros(999), ms(20)));
    assert!(!stretched(ms(10), ms(2), ms(200)) && stretched(micros(10_001), ms(2), ms(200)));
    assert!(!fills(ms(9), ms(9), span, 0.96, ms(20)));
}

#[test]
fn found_reports_the_rate_the_time_it_took_and_the_paths_own_loss() {
    let at = |millis| Time::ZERO + ms(millis);
    let mut trains = Trains::new(DATAGRAM, None);
    assert_eq!(trains.found(), Found { phase: Some(Phase::Start), ..Found::default() });
    trains.train(at(100), PacketNumber(0));
    trains.on_sent(at(100), PacketNumber(0), 40);
    trains.on_sent(at(110), PacketNumber(40), 1);
    let pulse = Pulse { train: Some(train(0, 9)), highest: 32, ..Pulse::default() };
    trains.on_feedback(at(125), &feedback(&pulse, ms(20), None));
    trains.loss = 0.01;
    let (rate, after) = (Rate::from_mbps(720), ms(25));
    assert_eq!(
        trains.found(),
        Found { rate, after, loss_ppm: 10_000, shared: None, phase: Some(Phase::Alone) }
    );
}

#[test]
fn the_rate_found_is_the_ceiling_or_the_rate_up_to_a_quarter_above_what_arrived() {
    let found = |trains: &Trains| trains.found().rate.as_bps();
    let begun = |trains| Trains { began: Some(Time::ZERO), started: Some(Time::ZERO), ..trains };
    let mut trains = begun(Trains { loss: 0.1, ..up() });
    assert_eq!(found(&trains), 100_000_000, "nothing has arrived yet");
    trains.proven.note(&delivering(60.0, 54.0));
    assert_eq!(found(&trains), 75_000_000, "60 Mbit/s arrived if the own loss is added");
    trains.set_ceiling(95.0 * MBPS);
    assert_eq!(found(&trains), 95_000_000);
    trains.limit = 80.0 * MBPS;
    assert_eq!(found(&trains), 80_000_000);
}

mod start;

#[test]
fn an_epoch_is_clean_if_departures_and_arrivals_reach_nearly_the_rate_with_little_loss() {
    let clean = epoch(100.0, 0.0);
    assert!(clean.is_clean(0.0));
    let with =
        |left, paced, loss| Measure { left: left * MBPS, paced: paced * MBPS, loss, ..clean };
    // The departure rate must exceed 90 % of the rate, the arrival rate 98 % of the departure rate.
    // Less than 0.5 % may be lost beyond the path's own loss.
    let is_clean = |left, paced, loss, own| with(left, paced, loss).is_clean(own);
    assert_eq!([is_clean(90.0, 90.0, 0.0, 0.0), is_clean(90.1, 90.1, 0.0, 0.0)], [false, true]);
    assert_eq!([is_clean(100.0, 98.0, 0.0, 0.0), is_clean(100.0, 98.1, 0.0, 0.0)], [false, true]);
    assert_eq!(
        [is_clean(100.0, 100.0, 0.005, 0.0), is_clean(100.0, 100.0, 0.004, 0.0)],
        [false, true]
    );
    assert_eq!([0.02, 0.03].map(|own| is_clean(100.0, 100.0, 0.026, own)), [false, true]);
}
