//! Properties of all protocols: every object arrives completely over any channel that loses,
//! duplicates, delays and reorders datagrams, and skipped blocks never count as lost.

use longhaul_proto::endpoint::BlockRange;
use longhaul_proto::ranges::RangeSet;
use longhaul_proto::registry::all;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};
use proptest::prelude::*;

use crate::rig::{Channel, Host, Rig, setup, tail_copies};

prop_compose! {
    fn channels()(
        delay in 1u64..80, loss in 0.0..0.4, duplicate in 0.0..0.2, reorder in 0.0..0.5,
        lateness in 0u64..60, stall in 0.0..0.5, copies: bool,
        queue in prop::option::of(5_000u64..200_000),
    ) -> Channel {
        Channel {
            bottleneck: queue.map(|queue| (Rate::from_mbps(30), Bytes::new(queue))),
            loss, duplicate, reorder,
            lateness: Span::from_millis(lateness),
            stall, copies,
            ..Channel::perfect(Span::from_millis(delay))
        }
    }
}

prop_compose! {
    /// Two times and a run of blocks that another source sends. At the first time the receiver
    /// learns to skip the blocks; at the second time the sender does.
    fn left_out()(
        known in prop::array::uniform2(0u64..250), number in 0u64..600, count in 1u32..120,
    ) -> ([Time; 2], u64, u32) {
        (known.map(|millis| Time::ZERO + Span::from_millis(millis)), number, count)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn skipped_blocks_never_count_as_lost_whichever_end_learns_first(
        seed: u64, delay in 1u64..40, loss in prop_oneof![Just(0.0), 0.0..0.2],
        left_out in prop::collection::vec(left_out(), 1..6), segment in 0u64..12,
    ) {
        for row in all() {
            let delay = Span::from_millis(delay);
            let channel = Channel { loss, ..Channel::perfect(delay) };
            let mut rig = Rig::new(row, seed, channel);
            let rate = Some(Rate::from_mbps(30));
            rig.add_flow(setup(1, 600, segment * 8, rate, delay * 2), Host::Fast);
            let layout = rig.flows[0].setup.layout;
            let mut spared = RangeSet::new();
            for (known, number, count) in &left_out {
                let first = layout.block(*number).expect("the object has it");
                let blocks = BlockRange { first, count: *count };
                spared.insert(blocks.numbers(&layout));
                rig.skip_apart(*known, 0, blocks);
            }
            rig.finish(Span::from_secs(300));
            rig.linger(Span::from_secs(2));
            rig.audit();
            let (sent, flow) = (rig.flows[0].sender.accounting(), &rig.flows[0]);
            let came = rig.receiver.accounting(flow.setup.flow).expect("a flow that was added");
            // This path does not reorder datagrams, so only dropped datagrams may count as lost.
            prop_assert!(came.blocks_lost <= flow.dropped, "{}: {:?}", row.name, came);
            prop_assert!(sent.first >= layout.blocks() - spared.count(), "{}", row.name);
        }
    }

    #[test]
    fn an_object_arrives_completely_over_any_hostile_channel(
        seed: u64, channel in channels(), blocks in 0u64..600, segment in 0u64..12,
        copies in 1u32..4, mbps in prop::option::of(5u64..200),
        budget in prop::option::of(20_000u64..200_000),
    ) {
        for row in all() {
            let rtt = channel.delay * 2;
            let mut rig = Rig::new(row, seed, channel.clone());
            let host = budget.map_or(Host::Fast, |budget| {
                Host::Slow(Rate::from_mbps(20), Bytes::new(budget))
            });
            for flow in 1..3 {
                let rate = mbps.map(Rate::from_mbps);
                let mut setup = setup(flow, blocks, segment * 8, rate, rtt);
                setup.settings = tail_copies(copies);
                rig.add_flow(setup, host);
            }
            // Tsunami reports every 350 ms, so its copy takes minutes at 40 % loss and with little
            // memory.
            rig.run(Span::from_secs(300));
            rig.linger(Span::from_secs(2));
        }
    }
}
