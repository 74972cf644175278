//! Shares: max-min fair from any start, after joins and departures, with little loss.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::star::{Star, jain, ms, settings};
use crate::endpoint::{FlowId, Origin, Others, Outgoing, ReceiveCapacity, Receiver, Sender, Setup};
use crate::gtp::scheduler::{Demand, shares};
use crate::gtp::{EARLY, GtpReceiver, OTHERS, RECEIVE_SHARE};
use crate::time::Span;
use crate::units::{Bytes, Rate};
use crate::wire::Control;

/// Values of the setting `others`.
const FAIR: f64 = 1.0;
const IGNORED: f64 = 2.0;

/// A test network whose receiver has a given capacity C_r, a little below its link.
fn given(mbps: u64) -> Star {
    Star::new(mbps, settings(&[("receive-rate", mbps as f64 * 0.98e6)]))
}

#[test]
fn flows_with_different_round_trips_share_evenly_after_each_join() {
    // Figure 7 of the paper, at a fifth of its rate.
    let mut star = given(200);
    let mut flows = 0;
    for (rtt, from, to) in [(20, 0, 2000), (40, 2000, 3000), (60, 3000, 4000), (80, 4000, 5000)] {
        flows += 1;
        star.join(flows, rtt, 200);
        star.run(ms(to));
        let rates = star.rates(from + 500, to);
        assert!(jain(&rates) > 0.995, "{rates:?}");
        assert!(rates.iter().sum::<f64>() > 188.0, "{rates:?}");
    }
    assert!(star.loss() < 0.0006, "{}", star.loss());
}

#[test]
fn the_other_flow_gets_the_capacity_that_a_limited_sender_cannot_use() {
    // Figure 9 of the paper, at a tenth of its rate: the second sender has a limit of 20, then of
    // 30 Mbit/s, on a link of 100 Mbit/s.
    for limit in [20, 30] {
        let mut star = given(100);
        star.join(1, 20, 100);
        star.run(ms(1000));
        star.join(2, 20, 100).limit = Some(Rate::from_mbps(limit));
        star.run(ms(5000));
        let rates = star.rates(3000, 5000);
        assert!((rates[1] - limit as f64).abs() < 1.0, "{rates:?}");
        assert!(rates[0] > 98.0 - limit as f64 * 1.15 - 2.0, "{rates:?}");
        assert!(star.loss() < 0.001, "{}", star.loss());
    }
}

#[test]
fn a_reported_card_speed_limits_its_sender_and_the_others_get_the_rest() {
    let card = Rate::from_mbps(20);
    let mut star = given(100);
    star.join(1, 20, 100);
    let with_card = Setup { card: Some(card), ..star.setup(2, 40, 100) };
    star.join_with(&with_card);
    star.run(ms(3000));
    let rates = star.rates(500, 3000);
    assert!((19.0..20.2).contains(&rates[1]), "{rates:?}");
    assert!(rates[0] > 76.0, "{rates:?}");
}

#[test]
fn minimum_rates_that_add_up_to_more_than_the_capacity_cause_little_loss() {
    let mut star = Star::new(10, settings(&[("receive-rate", 9.8e6), (EARLY.name, 0.0)]));
    for flow in 0..50 {
        star.join(flow, 10 + 4 * u64::from(flow), 10);
    }
    star.run(ms(6000));
    let rates = star.rates(2000, 6000);
    assert!(star.loss() < 0.03, "{}", star.loss());
    assert!(rates.iter().sum::<f64>() > 9.0 && jain(&rates) > 0.95, "{rates:?}");
}

#[test]
fn the_others_take_a_finished_flows_rate_immediately() {
    let mut star = given(100);
    star.join(1, 20, 100);
    star.join(2, 80, 6);
    star.run(ms(3000));
    assert!(star.receiver.is_finished(FlowId(2)));
    let shared = star.rates(400, 900);
    assert!(jain(&shared) > 0.99, "{shared:?}");
    // Six megabytes at half of 98 Mbit/s take a second.
    assert!(star.rate(1, 1400, 3000) > 92.0, "{}", star.rate(1, 1400, 3000));
    star.receiver.remove_flow(FlowId(1));
    star.receiver.remove_flow(FlowId(2));
    star.paths.clear();
    star.run(ms(3500));
    star.join(3, 40, 10);
    star.run(ms(4500));
    assert!(star.receiver.is_finished(FlowId(3)));
}

#[test]
fn the_receive_share_leaves_the_rest_of_the_link_free() {
    let settings = settings(&[("receive-rate", 100e6), (RECEIVE_SHARE.name, 0.85)]);
    let mut star = Star::new(100, settings);
    star.join(1, 20, 100);
    star.join(2, 50, 100);
    star.run(ms(2000));
    let sum: f64 = star.rates(500, 2000).iter().sum();
    assert!((80.0..85.5).contains(&sum), "{sum}");
}

/// Runs two GTP flows and a TCP flow for ten seconds; in the last third TCP wants only 5 Mbit/s.
/// Returns the star and the receiver's capacity at the end.
fn with_tcp(mut star: Star, link: Option<Rate>) -> (Star, ReceiveCapacity) {
    star.join(1, 20, 200);
    star.join(2, 40, 200);
    let (mut others, mut bytes) = (0.0f64, 0.0);
    for step in 1..=100 {
        star.receiver
            .set_others(star.now, Others { link, bytes: Bytes::new(bytes as u64), flows: 1 });
        star.taken = Rate::from_bps_f64(others * 1e6);
        star.run(ms(step * 100));
        let ours: f64 = star.rates(step * 100 - 100, step * 100).iter().sum();
        bytes += others * 1e6 / 8.0 * 0.1;
        // TCP takes free capacity slowly and gives way quickly.
        let could = if step > 66 { 5.0 } else { 100.0 };
        others = (others + 0.3 * (100.0 - ours - others)).min(100.0 - ours).clamp(0.0, could);
    }
    let capacity = star.receiver.receive_capacity().unwrap();
    (star, capacity)
}

#[test]
fn reported_other_traffic_gets_its_fair_share() {
    let card = Some(Rate::from_mbps(100));
    for (given, link, origin) in [
        (&[("receive-rate", 98e6), (OTHERS.name, FAIR)][..], None, Origin::Given),
        (&[], card, Origin::Card),
        (&[], None, Origin::Found),
        (&[(RECEIVE_SHARE.name, 0.95)], card, Origin::Card),
    ] {
        let (star, capacity) = with_tcp(Star::new(100, settings(given)), link);
        let beside = star.rates(5_000, 6_600);
        // Our flows get two thirds of the link's capacity.
        let sum = beside.iter().sum::<f64>();
        assert!((55.0..75.0).contains(&sum), "{origin:?}: {beside:?}");
        assert!(jain(&beside) > 0.98, "{origin:?}: {beside:?}");
        let after = star.rates(9_000, 10_000).iter().sum::<f64>();
        assert!(after > 84.0, "{origin:?}: {after}");
        assert_eq!(capacity.origin, origin, "{capacity:?}");
        assert!(capacity.others < Some(Rate::from_mbps(12)), "{capacity:?}");
    }
}

#[test]
fn other_traffic_is_ignored_with_a_given_rate_or_on_request() {
    for given in [("receive-rate", 98e6), (OTHERS.name, IGNORED)] {
        let (star, capacity) = with_tcp(Star::new(100, settings(&[given])), None);
        assert_eq!(capacity.others, None);
        let sum: f64 = star.rates(5_000, 6_600).iter().sum();
        assert!(sum > 78.0, "{given:?}: {sum}");
    }
    let mut receiver = GtpReceiver::default();
    assert!(!receiver.wants_others());
    receiver.add_flow(ms(0), &given(100).setup(1, 20, 1));
    assert!(!receiver.wants_others());
    let mut receiver = GtpReceiver::default();
    receiver.add_flow(ms(0), &Star::new(100, settings(&[])).setup(1, 20, 1));
    assert!(receiver.wants_others());
}

#[test]
fn weights_give_shares_in_proportion() {
    let mut star = given(100);
    for (flow, weight) in [(1, 3.0), (2, 1.0)] {
        let weighted = settings(&[("receive-rate", 98e6), ("weight", weight)]);
        star.join_with(&Setup { settings: weighted, ..star.setup(flow, 30, 100) });
    }
    star.run(ms(2000));
    let rates = star.rates(500, 2000);
    assert!((rates[0] / rates[1] - 3.0).abs() < 0.15, "{rates:?}");
}

#[test]
fn an_unknown_capacity_is_found_by_the_first_datagrams() {
    for rtts in [&[40][..], &[25, 50, 100]] {
        let mut star = Star::new(100, settings(&[]));
        for (flow, &rtt) in (1..).zip(rtts) {
            star.join(flow, rtt, 200);
        }
        star.run(ms(6000));
        let (early, late) = (star.rates(500, 1000), star.rates(2000, 6000));
        let sum = |rates: &[f64]| rates.iter().sum::<f64>();
        assert!(sum(&early) > 75.0, "{early:?}");
        assert!(sum(&late) > 94.0 && jain(&late) > 0.99, "{late:?}");
        assert!(star.loss() < 0.005, "{rtts:?}: {}", star.loss());
    }
}

#[test]
fn a_host_that_reads_its_card_at_intervals_and_sometimes_sleeps_finds_its_capacity() {
    // At 100 Mbit/s a reading every 750 µs gives as many packets as one every 75 µs at 1 Gbit/s.
    for sleeps in [None, Some((Span::from_millis(8), Span::from_millis(290)))] {
        let mut star = Star::new(100, settings(&[]));
        star.read_interval = Span::from_micros(750);
        star.sleeps = sleeps;
        star.queue = star.link.over(Span::from_millis(16));
        for (flow, rtt, at) in [(1, 25, 0), (2, 50, 170), (3, 100, 430)] {
            star.run(ms(at));
            star.join(flow, rtt, 200);
        }
        star.run(ms(15_000));
        let (early, late) = (star.rates(1_000, 3_000), star.rates(3_000, 15_000));
        let sum = |rates: &[f64]| rates.iter().sum::<f64>();
        assert!(sum(&early) > 80.0, "{early:?}");
        assert!(sum(&late) > 95.0 && jain(&late) > 0.99, "{late:?}");
        assert!(star.loss() < 0.0006, "{sleeps:?}: {}", star.loss());
    }
}

#[test]
fn a_capacity_is_found_on_a_path_whose_loss_does_not_depend_on_the_rate() {
    for every in [200, 50, 20] {
        let mut star = Star::new(100, settings(&[]));
        star.join(1, 40, 200).lose_every = Some(every);
        star.run(ms(12_000));
        // Mbit/s that arrive if the link is full.
        let most = 100.0 * (1.0 - 1.0 / every as f64);
        let rate = star.rate(1, 6_000, 12_000);
        assert!(rate > 0.85 * most, "one lost in {every}: {rate}");
    }
}

#[test]
fn drops_of_the_hosts_socket_slow_a_flow_down_and_a_paths_own_loss_does_not() {
    let late = |every: u64, tells: bool| {
        let mut star = Star::new(100, settings(&[]));
        star.join(1, 10, 1000).lose_every = Some(every);
        for tenth in 1..=100 {
            star.run(ms(tenth * 100));
            let lost = if tells { star.sent() / every } else { 0 };
            star.receiver.set_socket_lost(star.now, FlowId(1), lost);
        }
        star.rate(1, 8_000, 10_000)
    };
    for every in [3, 20] {
        let (of_the_path, of_the_host) = (late(every, false), late(every, true));
        assert!(of_the_path > 40.0, "{of_the_path}");
        assert!(of_the_host < of_the_path / 4.0, "{of_the_host} beside {of_the_path}");
    }
}

#[test]
fn a_capacity_is_found_without_an_early_train_as_well() {
    let mut star = Star::new(100, settings(&[("early", 0.0)]));
    star.join(1, 20, 200);
    star.join(2, 40, 200);
    star.run(ms(6000));
    let rates = star.rates(3000, 6000);
    assert!(rates.iter().sum::<f64>() > 85.0 && jain(&rates) > 0.98, "{rates:?}");
    assert!(star.loss() < 0.02, "{}", star.loss());
}

#[test]
fn the_flows_adapt_to_a_link_that_slows_down() {
    let mut star = Star::new(100, settings(&[]));
    star.join(1, 20, 200);
    star.join(2, 40, 200);
    star.run(ms(2000));
    star.link = Rate::from_mbps(40);
    star.run(ms(3000));
    let before = star.dropped();
    star.run(ms(6000));
    let rates = star.rates(3500, 6000);
    assert!(rates.iter().sum::<f64>() > 35.0 && jain(&rates) > 0.98, "{rates:?}");
    assert!(star.dropped() - before < 300, "{}", star.dropped() - before);
}

#[test]
fn a_queue_is_kept_short_by_delay_control() {
    for (delay_control, most) in [(0.0, u64::MAX), (1.0, 35)] {
        let given = settings(&[("receive-rate", 98e6), ("delay-control", delay_control)]);
        let mut star = Star::new(100, given);
        star.join(1, 40, 200).narrow = Some(Rate::from_mbps(20));
        star.run(ms(8000));
        let queue = star.paths[&1].sender.rtt() - Span::from_millis(40);
        assert!(queue < Span::from_millis(most), "{queue}");
        assert!(star.rate(1, 3000, 8000) > 17.0, "{}", star.rate(1, 3000, 8000));
    }
}

#[test]
fn a_flow_whose_round_trip_grows_from_10_to_200_ms_regains_its_share_in_five_seconds() {
    let mut star = given(100);
    star.join(1, 10, 100);
    star.join(2, 10, 100);
    star.run(ms(2000));
    star.paths.get_mut(&2).unwrap().rtt = Span::from_millis(200);
    star.run(ms(8500));
    let rates = star.rates(7000, 8500);
    assert!(jain(&rates) > 0.98 && rates.iter().sum::<f64>() > 92.0, "{rates:?}");
    assert_eq!(star.dropped(), 0);
    let again = star.accounting(2).duplicates;
    assert!(again < 300, "{again} blocks came twice");
}

#[test]
fn a_schedule_of_a_thousand_flows_takes_of_the_order_of_n_log_n_steps() {
    let star = given(1000);
    let mut receiver = GtpReceiver::default();
    for flow in 0..1000 {
        receiver.add_flow(ms(0), &star.setup(flow, 1 + u64::from(flow) % 300, 1));
    }
    let bound = 1000.0 * (2.0 * 1000f64.log2() + 6.0);
    while receiver.poll_control(ms(0)).is_some() {}
    assert!((1_000.0..bound).contains(&(receiver.work as f64)), "{}", receiver.work);
    let (mut before, mut intervals) = (receiver.work, 0);
    // No sender answers. All flows stay in the schedule for about a second and then leave it.
    for at in 1..2000 {
        receiver.on_timeout(ms(at));
        while receiver.poll_control(ms(at)).is_some() {}
        let work = receiver.work - before;
        assert!((work as f64) < bound, "{work} steps in a millisecond");
        intervals += u32::from(work > 0);
        before = receiver.work;
    }
    assert!(intervals > 0);
}

#[test]
fn the_papers_variant_fills_a_link_with_even_shares() {
    let paper = settings(&[("gtp-variant", 1.0), ("receive-rate", 98e6)]);
    let mut star = Star::new(100, paper);
    for flow in 1..4 {
        star.join(flow, 20 * u64::from(flow), 100);
    }
    star.run(ms(4000));
    let rates = star.rates(2000, 4000);
    assert!(jain(&rates) > 0.99 && rates.iter().sum::<f64>() > 96.0, "{rates:?}");
}

#[test]
fn a_thousand_joins_send_fewer_than_two_thousand_requests() {
    let star = given(1000);
    let mut receiver = GtpReceiver::default();
    let mut asked = 0;
    for flow in 0..1000 {
        receiver.add_flow(ms(0), &star.setup(flow, 20, 1));
        while let Some(Outgoing { control, .. }) = receiver.poll_control(ms(0)) {
            asked += u32::from(matches!(control, Control::Request(_)));
        }
    }
    assert!((1_000..2_000).contains(&asked), "{asked}");
}

#[test]
fn many_senders_get_few_requests_and_none_starves() {
    let mut star = Star::new(100, settings(&[("receive-rate", 98e6), ("early", 0.0)]));
    star.receiver.tuning.requests = 200;
    for flow in 0..20 {
        star.join(flow, 5 + 5 * u64::from(flow), 20);
    }
    star.run(ms(3000));
    let before = star.requests;
    star.run(ms(6000));
    // The minimum time between requests allows 200 a second in all. Each schedule sends one more
    // request to every sender, which at most doubles the number.
    let asked = star.requests - before;
    assert!(asked < 2 * 3 * 200, "{asked}");
    let rates = star.rates(3000, 6000);
    assert!(jain(&rates) > 0.999 && rates.iter().sum::<f64>() > 97.0, "{rates:?}");
    assert_eq!(star.dropped(), 0);
}

fn fair(limits: &[Option<u64>], capacity: f64) -> Vec<f64> {
    let limit = |limit: &Option<u64>| limit.map_or(f64::INFINITY, |mbps| mbps as f64);
    let demand = |l: &Option<u64>| Demand { estimate: limit(l), weight: 1.0 };
    shares(&limits.iter().map(demand).collect::<Vec<_>>(), capacity, &mut 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn requests_to_all_flows_together_stay_within_the_capacity(
        flows in prop::collection::vec((0.01f64..100.0, 0.01f64..1e3), 1..300),
        capacity in 1f64..1e4,
    ) {
        let mut receiver = GtpReceiver::default();
        for (flow, &(weight, least)) in (0u32..).zip(&flows) {
            let list = [
                ("receive-rate", capacity * 1e6),
                ("weight", weight),
                ("least-rate", least * 1e6),
            ];
            receiver.add_flow(ms(0), &Star::new(1, settings(&list)).setup(flow, 20, 1));
        }
        let mut asked = BTreeMap::new();
        for at in [0, 10, 20, 50, 100, 200] {
            receiver.on_timeout(ms(at));
            while let Some(Outgoing { flow, control, .. }) = receiver.poll_control(ms(at)) {
                if let Control::Request(request) = control {
                    asked.insert(flow, request.rate().as_bps() as f64);
                }
            }
            let sum: f64 = asked.values().sum();
            // A rate is a whole number of bits a second, at least one.
            prop_assert!(sum <= capacity * 1e6 + flows.len() as f64, "{sum} of {capacity}");
        }
        prop_assert_eq!(asked.len(), flows.len());
    }

    #[test]
    fn any_start_leads_to_max_min_fair_shares(
        flows in prop::collection::vec((1u64..120, prop::option::of(4u64..40), 0u64..900), 1..6),
    ) {
        let mut star = given(50);
        let mut joins: Vec<_> = (1u32..).zip(&flows).collect();
        joins.sort_by_key(|(_, (.., start))| *start);
        for (flow, &(rtt, limit, start)) in joins {
            star.run(ms(start));
            star.join(flow, rtt, 100).limit = limit.map(Rate::from_mbps);
        }
        star.run(ms(6000));
        let rates = star.rates(4500, 6000);
        let limits: Vec<_> = flows.iter().map(|(_, limit, _)| *limit).collect();
        // Flows at their own limit are sometimes asked for a little more, to see whether they could
        // do more. The other flows do not get this part.
        for (rate, fair) in rates.iter().zip(fair(&limits, 49.0)) {
            prop_assert!((rate - fair).abs() < 0.12 * fair + 0.5, "{:?}, {}", rates, fair);
        }
        // Early blocks may find the queue full.
        let early = EARLY.default as u64 * flows.len() as u64;
        let lost = star.dropped().saturating_sub(early) as f64 / star.sent() as f64;
        prop_assert!(lost < 0.001, "{}", lost);
    }
}
