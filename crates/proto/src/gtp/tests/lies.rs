//! Senders that lie, stall, die and return: most of them harm only themselves. A sender that sends
//! too fast also harms the others, until it is removed.

use alloc::vec::Vec;

use super::star::{Lie, Star, ms, settings};
use crate::endpoint::{FlowId, Receiver};
use crate::time::{Span, Time};
use crate::units::Rate;

/// Three senders with round trips of 20, 40 and 60 ms, and one receiver that requests 96 Mbit/s in
/// all. Flow 2 lies in most tests.
fn three() -> Star {
    let mut star = Star::new(100, settings(&[("receive-rate", 96e6)]));
    for flow in 1..4 {
        star.join(flow, 20 * u64::from(flow), 100);
    }
    star
}

#[test]
fn unrequested_blocks_are_counted_and_refused() {
    let mut star = three();
    star.link = crate::units::Rate::from_mbps(1000);
    // The liar sends the last block of its object unrequested, nine times for each other block.
    star.paths.get_mut(&2).unwrap().lie = Some(Lie::Unrequested(9));
    star.run(ms(3000));
    let (liar, honest) = (star.accounting(2), star.accounting(1));
    assert!(liar.refused > 8 * liar.received, "{liar:?}");
    assert_eq!((honest.refused, honest.blocks_lost), (0, 0));
    let rates = star.rates(1000, 3000);
    assert!(rates[0] > 30.0 && rates[2] > 30.0, "{rates:?}");
    assert!(!star.receiver.is_finished(FlowId(2)), "the refused last block finishes no flow");
}

/// Removes flow 2; returns the rates of the other flows afterwards, in Mbit/s.
fn without_liar(star: &mut Star) -> Vec<f64> {
    star.receiver.remove_flow(FlowId(2));
    star.paths.remove(&2);
    star.run(ms(8000));
    star.rates(6000, 8000)
}

#[test]
fn the_others_recover_when_a_flooding_sender_is_removed() {
    let mut star = three();
    star.paths.get_mut(&2).unwrap().lie = Some(Lie::Unrequested(9));
    star.run(ms(3000));
    let (liar, during) = (star.accounting(2), star.rates(1000, 3000));
    assert!(liar.too_fast > liar.highest / 4 && liar.refused > 5_000, "it is counted: {liar:?}");
    assert!(during[0] < 25.0 && during[2] < 25.0, "the flood has the link: {during:?}");
    let after = without_liar(&mut star);
    assert!(after.iter().all(|rate| *rate > 44.0), "{after:?}, and {during:?} before");
}

#[test]
fn a_sender_above_its_rate_is_counted_and_the_others_recover_when_it_is_removed() {
    let mut star = three();
    // The liar has the shortest round trip, which lets it exceed its rate most.
    star.paths.get_mut(&2).unwrap().rtt = Span::from_millis(10);
    star.paths.get_mut(&2).unwrap().lie = Some(Lie::Fast(10));
    star.run(ms(3000));
    let (liar, during) = (*star.accounting(2), star.rates(1000, 3000));
    assert!(liar.too_fast > liar.highest / 4, "{liar:?}, {during:?}");
    assert!(during[0] < 30.0, "it takes from the others: {during:?}");
    assert_eq!((liar.refused, liar.duplicates), (0, 0), "{liar:?}");
    let after = without_liar(&mut star);
    assert!(after.iter().all(|rate| *rate > 44.0), "{after:?}, and {during:?} before");
}

#[test]
fn a_burst_beyond_the_allowance_is_too_fast() {
    let too_fast = |at_once| {
        let mut star = Star::new(100, settings(&[("receive-rate", 10e6)]));
        star.receiver.tuning.at_once = at_once;
        star.join(1, 10, 100);
        star.paths.get_mut(&1).unwrap().lie = Some(Lie::Fast(10));
        star.run(ms(1000));
        star.accounting(1).too_fast
    };
    let [less, default, more] = [1.0, 2.0, 100.0].map(too_fast);
    assert!(less > default && default > 0 && more == 0, "{less}, {default}, {more}");
}

#[test]
fn a_false_round_trip_time_slows_no_flow_down() {
    let mut star = three();
    star.paths.get_mut(&2).unwrap().lie = Some(Lie::Rtt(Span::from_secs(3600)));
    star.run(ms(1000));
    star.receiver.remove_flow(FlowId(1));
    star.paths.remove(&1);
    star.run(ms(3000));
    let rates = star.rates(1800, 3000);
    assert!(rates.iter().sum::<f64>() > 88.0, "{rates:?}");
}

#[test]
fn an_absurd_access_rate_harms_only_its_own_flow() {
    for (limit, own) in [(1, 0.0..1.0), (u64::MAX, 30.0..33.0)] {
        let mut star = three();
        star.paths.get_mut(&2).unwrap().lie = Some(Lie::Limit(Rate::from_bps(limit)));
        star.run(ms(4000));
        let rates = star.rates(2000, 4000);
        assert!(own.contains(&rates[1]), "{limit}: {rates:?}");
        assert!(rates[0] > 30.0 && rates[2] > 30.0, "{limit}: {rates:?}");
        assert!(rates.iter().sum::<f64>() > 90.0, "{limit}: {rates:?}");
    }
}

#[test]
fn a_sender_that_reverses_the_order_of_its_blocks_harms_no_flow() {
    let mut star = three();
    star.paths.get_mut(&2).unwrap().lie = Some(Lie::Backwards);
    star.run(ms(3000));
    let rates = star.rates(1000, 3000);
    assert!(rates[0] > 30.0 && rates[2] > 30.0, "{rates:?}");
    assert!(star.accounting(2).distinct > 5_000);
}

#[test]
fn a_sender_that_dies_leaves_its_share_to_the_others_within_two_seconds() {
    let mut star = three();
    star.paths.get_mut(&2).unwrap().frozen = Some((ms(2000), Time::NEVER));
    star.run(ms(5000));
    let rates = star.rates(4000, 5000);
    assert!(rates[0] + rates[2] > 90.0 && rates[1] == 0.0, "{rates:?}");
}

#[test]
fn a_sender_that_was_frozen_regains_its_share() {
    let mut star = three();
    star.paths.get_mut(&2).unwrap().frozen = Some((ms(2000), ms(12_000)));
    star.run(ms(12_000));
    assert!(star.rate(1, 10_000, 12_000) > 45.0);
    star.run(ms(16_000));
    let rates = star.rates(14_000, 16_000);
    assert!(rates.iter().all(|rate| (30.0..34.0).contains(rate)), "{rates:?}");
    assert!(star.loss() < 0.002, "{}", star.loss());
}

#[test]
fn a_lossy_path_slows_no_other_flow_and_hardly_its_own_if_its_loss_is_tolerated_or_known() {
    for (own, tolerated, least) in [(0.0, 0.0, 0.4), (0.0, 0.05, 25.0), (1.0, 0.0, 25.0)] {
        let given = [("receive-rate", 96e6), ("tolerated-loss", tolerated), ("own-loss", own)];
        let given = settings(&given);
        let mut star = Star::new(100, given);
        for flow in 1..4 {
            star.join(flow, 20, 100);
        }
        star.paths.get_mut(&2).unwrap().lose_every = Some(40);
        star.run(ms(4000));
        let rates = star.rates(2000, 4000);
        assert!(rates[1] > least && rates[0] > 31.0 && rates[2] > 31.0, "{rates:?}");
        let lost = star.accounting(2);
        assert!(lost.blocks_lost > 0 && lost.duplicates < 20, "{lost:?}");
    }
}
