//! Jitter, poorly timed trains (datagrams sent back to back), and short queues.

use super::*;

/// Passes `trains` a report that covers only the trickle: datagrams sent before the first rate
/// applied.
fn trickled(trains: &mut Trains, rtt: Span) {
    let pulse = Pulse { highest: 100, ..Pulse::default() };
    trains.epoch.from = 160;
    trains.on_feedback(Time::ZERO, &feedback(&pulse, ms(20), Some(rtt)));
}

/// A first train that takes `span`. Its datagrams after the first arrive at `steps` distinct times.
fn first_train(span: Span, steps: u32) -> Train {
    Train { span, steps, ..train(0, steps) }
}

#[test]
fn jitter_of_more_than_half_the_first_train_makes_that_train_useless() {
    for (rtt, steps, growth) in
        [(21_500, 6, GUESSED), (21_500, 5, GUESSED), (21_000, 6, NEAR), (21_000, 5, NEAR)]
    {
        let mut trains = Trains { pool: shows(100.0), blind: false, growth: NEAR, ..up() };
        trains.jitter.note_train(&first_train(ms(2), steps), DATAGRAM);
        trickled(&mut trains, ms(20));
        trickled(&mut trains, Span::from_micros(rtt));
        trains.doubt();
        let is_useless = growth != NEAR;
        assert_eq!(
            (trains.growth, trains.blind, trains.is_guess()),
            (growth, is_useless, is_useless)
        );
        assert_eq!((trains.shown().is_none(), trains.jitter.judge()), (is_useless, false));
    }
}

#[test]
fn round_trip_times_of_datagrams_sent_at_the_first_rate_do_not_count_as_jitter() {
    let mut trains = up();
    trickled(&mut trains, ms(20));
    let pulse = Pulse { highest: 161, ..Pulse::default() };
    trains.on_feedback(Time::ZERO, &feedback(&pulse, ms(20), Some(ms(30))));
    assert_eq!(trains.jitter.range(), Span::ZERO);
}

#[test]
fn with_more_than_256_datagrams_before_the_first_rate_no_round_trip_time_counts_as_jitter() {
    for (trickled, range) in [(256, ms(10)), (257, Span::ZERO)] {
        let mut trains = up();
        trains.epoch.from = trickled;
        for rtt in [ms(20), ms(30)] {
            let pulse = Pulse { highest: 100, ..Pulse::default() };
            trains.on_feedback(Time::ZERO, &feedback(&pulse, ms(20), Some(rtt)));
        }
        assert_eq!(trains.jitter.range(), range);
    }
}

#[test]
fn poorly_timed_trains_set_the_rate_and_let_it_grow_by_a_quarter() {
    let mut trains = Trains { growth: GUESSED, ..asked([1024, 2048, 3072]) };
    for start in [1024, 2048] {
        assert_eq!(report(&mut trains, train(start, 3)), None);
    }
    // 32 datagrams take 0.4 ms at 800 Mbit/s. The timing error of three trains is 0.1 ms divided by
    // the root of 3.
    let shown = 800.0 / (1.0 + 0.25 / libm::sqrt(3.0));
    near(report(&mut trains, train(3072, 3)).unwrap(), shown * MBPS);
    assert_eq!((trains.blind, trains.growth, trains.is_guess()), (false, CAREFUL, true));
    near(trains.higher(&epoch(200.0, 0.0)), shown * BELOW * MBPS);
    near(trains.higher(&epoch(100.0, 0.0)), 100.0 * JUMP * MBPS);
    near(trains.higher(&epoch(690.0, 0.0)), 690.0 * CAREFUL * MBPS);
    trains.set_ceiling(900.0 * MBPS);
    assert!(!trains.is_guess());
}

#[test]
fn a_loss_that_we_caused_shortens_the_bursts_once_if_the_queue_is_short() {
    let lossy = Measure { queue: Span::from_micros(999), ..epoch(100.0, 0.4) };
    let timed = || Trains { pool: shows(100.0), ..up() };
    let mut trains = timed();
    assert_eq!(trains.burst(), u64::MAX);
    trains.caused(&lossy);
    assert_eq!(
        (trains.mode, trains.burst()),
        (Mode::Smooth { before: lossy, is_own: false }, SHORT_BURST)
    );
    near(trains.rate, lossy.rate);
    let mut ended = timed();
    ended.caused(&lossy);
    ended.smoothed(&lossy, false, &epoch(100.0, 0.1));
    assert_eq!(ended.burst(), SHORT_BURST);
    trains.smoothed(&lossy, false, &epoch(100.0, 0.2));
    assert_eq!((trains.mode, trains.burst()), (Mode::Up, u64::MAX));
    near(trains.rate, 0.6 * BELOW * lossy.rate);
    trains.caused(&lossy);
    assert_eq!(trains.mode, Mode::Up);
}

#[test]
fn a_loss_that_we_caused_lowers_the_rate_at_once_if_the_queue_is_long_or_trains_showed_less() {
    for (shown, queue) in [(100.0, SHALLOW), (99.0, Span::ZERO)] {
        let mut trains = Trains { pool: shows(shown), ..up() };
        trains.caused(&Measure { queue, ..epoch(100.0, 0.4) });
        assert_eq!((trains.mode, trains.burst()), (Mode::Up, u64::MAX));
        near(trains.rate, 0.6 * BELOW * 100.0 * MBPS);
    }
}

/// A controller after a report on a first train of 31 datagrams that took `micros`.
fn started(micros: u64) -> Trains {
    let mut trains = Trains::new(DATAGRAM, None);
    trains.train(Time::ZERO, PacketNumber(0));
    trains.on_sent(Time::ZERO, PacketNumber(0), 40);
    let bytes = Bytes::new(31 * 1250);
    let first = Train { bytes, ..first_train(Span::from_micros(micros), 31) };
    let pulse = Pulse { train: Some(first), highest: 40, received: 40, ..Pulse::default() };
    trains.on_feedback(Time::ZERO, &feedback(&pulse, ms(20), None));
    trains
}

#[test]
fn a_first_train_of_more_than_1250_megabits_a_second_is_believed_once_a_later_train_confirms_it() {
    // 310,000 bits in 250 µs; nine tenths of 1,240 Mbit/s.
    let normal = started(250);
    near(normal.rate, 0.9 * 310_000.0 / 250e-6);
    assert!(!normal.is_unsure && normal.shown().is_some());
    // 31 Gbit/s.
    let fast = started(10);
    near(fast.rate, 0.9 * 1.25e9);
    assert!(fast.is_unsure && fast.blind && fast.shown().is_none());
    // Later trains show 800 Mbit/s: no jump.
    let mut slow = fast;
    slow.pool = shows(800.0);
    slow.blind = false;
    near(slow.higher(&epoch(2_000.0, 0.0)), 2_000.0 * NEAR * MBPS);
    assert!(!slow.is_unsure);
    // A later train shows about as much.
    let mut confirmed = started(10);
    confirmed.asked.ask(2048);
    let later =
        Train { span: Span::from_micros(10), bytes: Bytes::new(31 * 1250), ..train(2048, 31) };
    let shown = report(&mut confirmed, later).expect("it is timed well");
    assert!(shown > 2.5e9 && shown < 3e9, "the train's duration may be wrong by 100 µs: {shown}");
    near(confirmed.higher(&epoch(1_000.0, 0.0)), shown * BELOW);
    near(confirmed.higher(&epoch(100.0, 0.0)), 100.0 * CONFIRMED * MBPS);
    // If the doubted rate fills a queue, the rate falls without a limit.
    let mut queueing = started(10);
    queueing.up(&queued(1_125.0, 300.0, ms(11)));
    near(queueing.ceiling.expect("it is set").rate, 300.0 * MBPS);
    assert!(!queueing.is_unsure);
}

#[test]
fn a_remembered_rate_replaces_a_first_rate_that_is_doubted() {
    for (micros, expected) in [(10, 950.0), (240, 950.0), (250, 0.9 * 310_000.0 / 250.0)] {
        let mut trains = started(micros);
        trains.start_at(Rate::from_mbps(950));
        near(trains.rate, expected * MBPS);
    }
}

#[test]
fn an_overload_lowers_the_rate_by_what_was_sent_not_by_the_rate_that_the_sender_did_not_reach() {
    let unreached = |measure: Measure| Measure { left: 300.0 * MBPS, ..measure };
    let mut trains = up();
    trains.up(&unreached(queued(1_000.0, 100.0, ms(11))));
    near(trains.ceiling.expect("it is set").rate, 0.7 * 300.0 * MBPS);
    let mut lossy = up();
    lossy.up(&unreached(delivering(1_000.0, 100.0)));
    near(lossy.rate, 300.0 / 2.0 * BELOW * MBPS);
}
