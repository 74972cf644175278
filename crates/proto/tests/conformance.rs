//! Requirements on every protocol of the registry.

use longhaul_proto::endpoint::{BlockRange, Event, Setup};
use longhaul_proto::layout::Block;
use longhaul_proto::registry::{Row, all};
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

use crate::rig::{Channel, Flow, Host, Rig, setup};

const RTT: Span = Span::from_millis(40);
const MINUTE: Span = Span::from_secs(60);

fn rate() -> Option<Rate> {
    Some(Rate::from_mbps(50))
}

fn hostile() -> Channel {
    Channel {
        loss: 0.05,
        duplicate: 0.02,
        reorder: 0.1,
        lateness: Span::from_millis(30),
        stall: 0.1,
        copies: true,
        ..Channel::perfect(RTT / 2)
    }
}

fn two_flows(row: &Row, seed: u64, channel: Channel, host: Host) -> Rig {
    let mut rig = Rig::new(row, seed, channel);
    rig.add_flow(setup(11, 1_003, 104, rate(), RTT), host);
    rig.add_flow(setup(12, 500, 0, rate(), RTT), host);
    rig
}

#[test]
fn an_object_arrives_over_a_perfect_path_and_frugal_protocols_send_nothing_twice() {
    for row in all() {
        let mut rig = two_flows(row, 1, Channel::perfect(RTT / 2), Host::Fast);
        rig.run(MINUTE);
        for flow in &rig.flows {
            assert!(!row.frugal || flow.sends.values().all(|sends| *sends == 1), "{}", row.name);
        }
        rig.linger(Span::from_secs(1));
    }
}

#[test]
fn two_flows_through_one_receiver_arrive_over_a_hostile_path() {
    for row in all() {
        for seed in 0..20 {
            let mut rig = two_flows(row, seed, hostile(), Host::Fast);
            rig.run(MINUTE);
            rig.linger(Span::from_secs(1));
        }
    }
}

#[test]
fn an_empty_object_and_an_object_of_one_block_arrive() {
    for row in all() {
        for blocks in [0, 1] {
            let mut rig = Rig::new(row, 3, hostile());
            rig.add_flow(setup(1, blocks, 0, rate(), RTT), Host::Fast);
            rig.run(MINUTE);
        }
    }
}

#[test]
fn blocks_skipped_before_the_start_are_never_sent() {
    for row in all() {
        let mut rig = two_flows(row, 4, hostile(), Host::Fast);
        let blocks = |segment, index, count| BlockRange { first: Block { segment, index }, count };
        let skipped = [blocks(0, 10, 30), blocks(3, 0, 104), blocks(9, 60, 7)];
        for range in skipped {
            let id = rig.flows[0].setup.flow;
            rig.flows[0].sender.skip(Time::ZERO, id, range);
            rig.skip(Time::ZERO, 0, range);
        }
        rig.run(MINUTE);
        for range in skipped {
            for index in range.first.index..range.first.index + range.count {
                let block = Block { segment: range.first.segment, index };
                assert_eq!(rig.flows[0].sends.get(&block), None);
            }
        }
    }
}

#[test]
fn blocks_may_be_skipped_midway() {
    for row in all() {
        for seed in 0..20 {
            let mut rig = two_flows(row, seed, hostile(), Host::Fast);
            for (turn, segment) in [0, 2, 5, 7, 8].into_iter().enumerate() {
                let at = Time::ZERO + Span::from_millis(15 + 20 * turn as u64);
                let first = Block { segment, index: 16 * turn as u32 };
                rig.skip(at, 0, BlockRange { first, count: 40 });
            }
            let first = Block { segment: 0, index: 0 };
            rig.skip(Time::ZERO + Span::from_millis(90), 1, BlockRange { first, count: 500 });
            rig.run(MINUTE);
        }
    }
}

/// A sender that compares the receiver's files with its source skips equal blocks. The sender may
/// have sent some of these blocks already. The two ends learn of a skip at different times.
#[test]
fn blocks_skipped_by_the_sender_do_not_count_as_lost() {
    for row in all() {
        let mut rig = two_flows(row, 12, Channel::perfect(RTT / 2), Host::Fast);
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let blocks = |segment, index, count| BlockRange { first: Block { segment, index }, count };
        // The sender skips these blocks at 3 ms. The receiver learns of the skips at 300 ms, and
        // may request the blocks until then.
        for (flow, range) in [(0, blocks(0, 32, 72)), (0, blocks(1, 0, 80)), (1, blocks(0, 8, 400))]
        {
            rig.skip_apart([at(300), at(3)], flow, range);
        }
        rig.skip_apart([at(1), at(100)], 0, blocks(4, 0, 104));
        rig.finish(MINUTE);
        rig.linger(Span::from_secs(1));
        rig.audit();
        for (flow, left_out) in rig.flows.iter().zip([72 + 80 + 104, 400]) {
            let (sent, blocks) = (flow.sender.accounting(), flow.setup.layout.blocks());
            let came = rig.receiver.accounting(flow.setup.flow).expect("a flow that was added");
            assert_eq!((came.blocks_lost, flow.dropped), (0, 0), "{}", row.name);
            let due = blocks - left_out;
            assert!((due..blocks).contains(&sent.first), "{}: {sent:?}", row.name);
        }
    }
}

#[test]
fn a_slow_host_slows_the_sender_and_loses_nothing() {
    for row in all() {
        let host = Host::Slow(Rate::from_mbps(8), Bytes::new(40_000));
        let mut rig = two_flows(row, 5, Channel::perfect(RTT / 2), host);
        rig.run(MINUTE);
        let once = |flow: &Flow| flow.sends.values().all(|sends| *sends == 1);
        assert!(!row.frugal || rig.flows.iter().all(once), "{}", row.name);
        for seed in 0..10 {
            two_flows(row, seed, hostile(), host).run(MINUTE);
        }
    }
}

#[test]
fn a_flow_reports_silence_during_an_outage_and_resumes_afterwards() {
    for row in all() {
        let from = Time::ZERO + Span::from_millis(60);
        let outage = Some((from, from + Span::from_secs(20)));
        let channel = Channel { outage, ..hostile() };
        let mut rig = two_flows(row, 6, channel, Host::Fast);
        rig.run(MINUTE);
        for flow in &rig.flows {
            let silent = flow.events.iter().position(|e| matches!(e, Event::Silent(_)));
            let resumed = flow.events.iter().position(|e| *e == Event::Resumed);
            assert!(silent.is_some() && silent < resumed);
        }
    }
}

#[test]
fn an_object_arrives_over_a_bottleneck_without_a_given_rate() {
    for row in all() {
        let bottleneck = Some((Rate::from_mbps(80), Bytes::new(100_000)));
        let channel = Channel { bottleneck, loss: 0.01, ..Channel::perfect(RTT / 2) };
        let mut rig = Rig::new(row, 7, channel);
        rig.add_flow(setup(1, 8_000, 0, None, RTT), Host::Fast);
        rig.run(MINUTE);
    }
}

#[test]
fn a_limit_below_a_fixed_rate_applies() {
    let (fast, slow) = (Rate::from_mbps(900), Rate::from_mbps(8));
    for row in all() {
        let limited = Setup { rate_limit: Some(slow), ..setup(1, 8_000, 0, Some(fast), RTT) };
        assert_eq!((limited.fixed_rate(), limited.cap()), (Some(slow), Some(slow)));
        let rate = (row.sender)(&limited).rate();
        assert!(rate <= slow, "{} begins at {rate}", row.name);
        let mut rig = Rig::new(row, 9, Channel::perfect(RTT / 2));
        rig.add_flow(limited, Host::Fast);
        rig.run(MINUTE);
        // 8,000 blocks of 1,032 bytes.
        let least = Bytes::new(8_000 * 1_032) / slow;
        assert!(rig.now >= Time::ZERO + least * 9 / 10, "{} took {:?}", row.name, rig.now);
    }
}

#[test]
fn a_removed_flow_is_forgotten_and_the_other_flow_stays() {
    for row in all() {
        let mut rig = two_flows(row, 8, Channel::perfect(RTT / 2), Host::Fast);
        for _ in 0..50 {
            rig.step();
        }
        let gone = rig.flows.remove(0).setup.flow;
        rig.receiver.remove_flow(gone);
        assert!(rig.receiver.accounting(gone).is_none() && !rig.receiver.is_finished(gone));
        assert!(rig.receiver.next_wakeup() != longhaul_proto::endpoint::Wake::OnInput);
    }
}
