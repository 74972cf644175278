//! SABUL with a million ranges of lost blocks.

use super::*;

#[test]
fn a_million_ranges_are_reported_listed_and_sent_in_order() {
    const RANGES: u32 = 1_000_000;
    let setup = Setup {
        rate: Some(Rate::from_mbps(100_000)),
        settings: set(&ROW, &[("window", 1e9)]),
        ..setup(2 * u64::from(RANGES))
    };
    let mut out = Out::new(&setup);
    out.sender.window.on_loss();
    assert_eq!(out.run_for(190).len(), 2 * RANGES as usize);
    // Every other block is lost: the largest possible number of ranges.
    let mut inn = In::<SabulReceiver>::new(&setup);
    inn.arrive(out.now, (0..RANGES).map(|n| 2 * n + 1));
    let (mut messages, mut intervals) = (0, 0);
    while out.sender.accounting().reported_lost < RANGES.into() {
        for control in inn.said(out.now) {
            messages += u64::from(matches!(control, Control::Loss(_)));
            out.sender.on_control(out.now, FLOW, &control);
        }
        intervals += 1;
        out.now += Span::from_millis(10);
    }
    // A range takes two bytes, the first of a message up to four. A message holds 1,100 bytes of
    // ranges, and the receiver sends at most 32 messages in an interval.
    assert!((1_800..3_000).contains(&messages), "{messages}");
    assert!(intervals >= messages / 32, "{intervals}");
    let accounting = *inn.receiver.accounting(FLOW).unwrap();
    assert!(accounting.blocks_lost == u64::from(RANGES), "{accounting:?}");
    out.now += Span::from_millis(100);
    let before = out.sent.len();
    let mut again = Vec::new();
    while !out.sender.repairs.is_empty() {
        let next = PacketNumber((before + again.len()) as u64);
        out.sender.poll_transmit(out.now, next, 44, &mut again);
        out.now += Span::from_micros(20);
        assert!(out.now < ms(60_000), "{} in a minute", again.len());
    }
    assert_eq!(again.len(), RANGES as usize);
    assert!(again.iter().all(|block| block.index.is_multiple_of(2)));
    assert!(again.windows(2).all(|pair| pair[0].index < pair[1].index));
}
