//! Over any channel that loses, copies, delays and reorders, every object arrives exactly.

use longhaul_proto::registry::all;
use longhaul_proto::time::Span;
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn an_object_arrives_exactly_over_any_hostile_channel(
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
            // Tsunami asks every 350 ms: at 40 % loss and little memory that takes minutes.
            rig.run(Span::from_secs(300));
            rig.linger(Span::from_secs(2));
        }
    }
}
