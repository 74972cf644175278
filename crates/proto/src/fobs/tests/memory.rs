//! The memory use of a sender: it keeps open segments, and stretches (runs of blocks that were sent
//! equally often).

use super::*;
use crate::endpoint::{PacketNumber, Sender};
use crate::ends::SendingFlow;
use crate::fobs::FobsSender;
use crate::layout::Block;
use crate::wire::Control;

#[test]
fn a_sender_of_a_billion_blocks_keeps_only_those_in_flight() {
    const SEGMENT: u32 = 16_000;
    const SEGMENTS: u32 = 62_500;
    let setup = setup(u64::from(SEGMENT) * u64::from(SEGMENTS), u64::from(SEGMENT));
    assert_eq!(setup.layout.blocks(), 1_000_000_000);
    let mut sender = FobsSender::greedy(&setup);
    let (mut now, mut number, mut most) = (Time::ZERO, 0, 0);
    for segment in 0..SEGMENTS {
        let end = setup.layout.number(Block { segment, index: SEGMENT - 1 }) + 1;
        while sender.end().frontier.passed() < end {
            let (run, _) = sender.next_run(now, number, 1_000).expect("the grant has no end");
            let count = u64::from(run.blocks.end - run.blocks.start);
            sender.end_mut().sent(now, PacketNumber(number), count);
            number += count;
            now += Span::from_micros(count);
        }
        // One block in a thousand is lost once. The acknowledgement that completes a segment
        // arrives four segments later.
        let lost: Vec<Range<u32>> = (0..16).map(|nth| nth * 1_000..nth * 1_000 + 1).collect();
        let report = selective(number, segment, 0..SEGMENT, &lost, Some((number, 1)));
        sender.on_control(now, FLOW, &Control::Selective(report));
        if let Some(before) = segment.checked_sub(4) {
            let whole = selective(number, before, 0..SEGMENT, &[], None);
            sender.on_control(now, FLOW, &Control::Selective(whole));
        }
        most = most.max(sender.remembered());
        while sender.poll_event().is_some() {}
    }
    assert!((4..200).contains(&most), "{most} segments and stretches");
    for segment in SEGMENTS - 4..SEGMENTS {
        let whole = selective(number, segment, 0..SEGMENT, &[], None);
        sender.on_control(now, FLOW, &Control::Selective(whole));
    }
    assert!(sender.is_finished() && sender.remembered() == 0, "{}", sender.remembered());
}
