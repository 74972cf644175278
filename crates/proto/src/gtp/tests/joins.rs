//! The time of requests with new rates: all take effect together, unless there is no room.

use super::star::{Star, ms, settings};
use crate::time::{Span, Time};
use crate::units::Rate;

/// Two flows of 20 and 100 ms have half of 96 Mbit/s each when `others` join. Returns when each of
/// the two first got a request for less than `most` Mbit/s.
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
fn a_rate_that_falls_below_a_quarter_is_requested_immediately() {
    // 96 Mbit/s among fourteen.
    let [near, far] = joined(12, 12);
    assert_eq!(near.since(far), Span::ZERO);
    assert_eq!(far.since(near), Span::ZERO);
}
