//! Tests of when the receiver requests new rates after flows have joined. All new rates take effect
//! together, so the sender with the longest round trip gets the first request. A flow whose rate
//! falls below a quarter of its old value gets its request immediately, to make room for the
//! others. The last tests check flows on narrow paths that share one link.

use super::star::{Star, ms, settings};
use crate::time::{Span, Time};
use crate::units::Rate;

/// Two flows with round trips of 20 and 100 ms have half of 96 Mbit/s each. Then `others` more
/// flows join. Returns the time of the first request below `most` Mbit/s to each of the two.
fn joined(others: u32, most: u64) -> [Time; 2] {
    let mut star = Star::new(100, settings(&[("receive-rate", 96e6)]));
    star.join(1, 20, 100);
    star.join(2, 100, 100);
    star.run(ms(3000));
    assert!(star.rates(2000, 3000).iter().all(|rate| (46.0..50.0).contains(rate)));
    star.asked.clear();
    for flow in 3..3 + others {
        star.join(flow, 20, 100);
    }
    star.run(ms(3500));
    [1, 2].map(|flow| {
        let is_first =
            |asked: &&(Time, u32, Rate)| asked.1 == flow && asked.2 < Rate::from_mbps(most);
        star.asked.iter().find(is_first).expect("others have joined").0
    })
}

#[test]
fn a_shorter_round_trip_delays_the_request_by_the_difference() {
    let [near, far] = joined(1, 40);
    let later = near.since(far);
    let least = Span::from_millis(79);
    assert!((least..Span::from_millis(81)).contains(&later), "{later}");
}

#[test]
fn a_rate_below_a_quarter_of_the_old_rate_is_requested_immediately() {
    // Fourteen flows share 96 Mbit/s: 6.9 each, less than a quarter of 48.
    let [near, far] = joined(12, 12);
    assert_eq!(near.since(far), Span::ZERO);
    assert_eq!(far.since(near), Span::ZERO);
}

/// Three senders, each on a path of 250 Mbit/s, and a receiver's link of `link` Mbit/s.
fn three_narrow_paths(link: u64) -> Star {
    let mut star = Star::new(link, settings(&[]));
    for flow in 1..=3 {
        star.join(flow, 50, 300).narrow = Some(Rate::from_mbps(250));
    }
    star
}

#[test]
fn senders_on_narrow_paths_fill_a_wide_link_together() {
    let mut star = three_narrow_paths(10_000);
    star.run(ms(6000));
    let total: f64 = star.rates(4000, 6000).iter().sum();
    assert!(total > 600.0, "{total} Mbit/s of 750");
}

#[test]
fn senders_on_several_narrow_paths_hardly_overrun_a_link_that_they_share() {
    for link in [260, 400, 700] {
        let mut star = three_narrow_paths(link);
        star.run(ms(8000));
        let total: f64 = star.rates(5000, 8000).iter().sum();
        assert!(total > 0.85 * link as f64, "{total} of {link} Mbit/s");
        assert!(star.loss() < 0.02, "{} at {link} Mbit/s", star.loss());
    }
}
