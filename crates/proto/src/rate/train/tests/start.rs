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
