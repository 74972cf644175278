//! The exact times of the timers of RBUDP's sender and receiver, the limit of extra copies of
//! blocks, and the counting of losses. The sender sends DONE at the end of a round.

use alloc::vec::Vec;

use super::{FLOW, In, Out, ms, setup, tail_copies};
use crate::endpoint::{BlockRange, Event, Receiver, Sender, Setup, Wake, Why};
use crate::layout::Block;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::{Control, Pulse, Report};

/// A timeout (300 ms: three assumed round trips of 100 ms, because none is measured) plus half a
/// round trip.
const WAIT: Span = Span::from_millis(350);

fn repeat(out: &Out) -> Time {
    let Wake::At(at, Why::Repeat) = out.sender.next_wakeup() else { panic!("no repeat") };
    at
}

/// The waits before each repeat of DONE in ms, while the receiver sends only pulses (periodic
/// reports).
fn waits(rtt: Span, count: u64) -> Vec<u64> {
    let mut out = Out::new(&Setup { rtt, ..setup(10, 0) });
    out.run();
    let wait = |sequence| {
        let at = repeat(&out);
        let waited = at.since(out.now);
        out.now = at;
        // The circuit breaker stops a flow whose receiver is silent, so the receiver sends a pulse.
        out.sender.on_control(at, FLOW, &Control::Pulse(Pulse { sequence, ..Pulse::default() }));
        out.sender.on_timeout(at);
        waited.as_nanos() / 1_000_000
    };
    (1..=count).map(wait).collect()
}

#[test]
fn done_is_repeated_after_a_timeout_and_half_a_round_trip_and_then_at_doubled_waits() {
    assert_eq!(waits(Span::from_millis(100), 5), [350, 700, 1_400, 2_000, 2_000]);
    // The longest wait is 2 s or two timeouts of three round trips, whichever is longer.
    assert_eq!(waits(Span::from_secs(2), 3), [7_000, 12_000, 12_000]);
}

#[test]
fn a_replaced_partial_done_is_not_repeated() {
    let mut out = Out::new(&Setup { grant: Bytes::new(4_500), ..setup(10, 0) });
    out.run();
    assert_eq!(repeat(&out), out.now + WAIT);
    out.grant(1, 100_000);
    out.run();
    assert_eq!(out.dones().len(), 2);
    assert_eq!(repeat(&out), out.now + WAIT);
}

#[test]
fn no_done_is_repeated_for_a_complete_segment() {
    let mut out = Out::new(&Setup { rate: Some(Rate::from_mbps(10)), ..setup(20, 10) });
    out.run();
    let sent = out.now;
    assert!(repeat(&out) < sent + WAIT, "DONE of the first segment was sent earlier");
    out.report(0, 10, &[]);
    assert_eq!(repeat(&out), sent + WAIT);
}

#[test]
fn part_of_an_answer_delays_the_repeat_and_the_whole_answer_ends_it() {
    let mut out = Out::new(&setup(10, 0));
    out.run();
    let asked = out.now;
    out.report(1, 5, &[2..3]);
    assert_eq!(out.run(), [2]);
    assert_eq!(repeat(&out), asked + Span::from_millis(100) + WAIT);
    out.report(1, 5, &[2..3]);
    assert_eq!(repeat(&out), asked + Span::from_millis(100) + WAIT);
    out.hear_later(&Control::Report(Report::fill(0, 1, 5..10, [7..8].into_iter())));
    assert_eq!(out.run(), [7]);
    assert_eq!(repeat(&out), out.now + WAIT, "the repeat of the next round's DONE");
}

#[test]
fn copies_of_small_last_rounds_use_up_their_limit() {
    // 2048 / 256 = 8 extra blocks. A round takes at most half of the extra blocks that are left,
    // and repeats all its blocks equally often. So the five rounds take 4, 2, 0, 1 and 0.
    let mut out = Out::new(&Setup { settings: tail_copies(3), ..setup(2048, 0) });
    out.run();
    let mut round = 0;
    let mut sent = |missing: &[core::ops::Range<u32>]| {
        round += 1;
        out.report(round, 2048, missing);
        out.run()
    };
    assert_eq!(sent(&[0..1, 5..6]), [0, 5, 0, 5, 0, 5]);
    assert_eq!(sent(&[0..1, 5..6]), [0, 5, 0, 5]);
    assert_eq!(sent(&[0..1, 5..6]), [0, 5]);
    assert_eq!(sent(&[0..1]), [0, 0]);
    assert_eq!(sent(&[0..1]), [0]);
}

#[test]
fn needless_blocks_are_subtracted_from_the_counted_losses_only_once() {
    let mut inn = In::new(&setup(20, 0));
    inn.arrive(ms(0), &[(0, 3), (1, 9)]);
    inn.done(ms(1), 1, 10, 1);
    assert_eq!(inn.reports(ms(1)).len(), 1);
    let lost = |inn: &In| inn.receiver.accounting(FLOW).unwrap().blocks_lost;
    assert_eq!(lost(&inn), 8);
    // Two of the eight lost blocks, one block that arrived, and ten blocks beyond the report.
    let needless = BlockRange { first: Block { segment: 0, index: 7 }, count: 13 };
    for _ in 0..2 {
        inn.receiver.skip(ms(2), FLOW, needless);
        assert_eq!(lost(&inn), 6);
    }
}

#[test]
fn an_answer_in_slices_is_sent_completely() {
    const BLOCKS: u32 = 30_000;
    let mut inn = In::new(&setup(BLOCKS.into(), 0));
    let every_other: Vec<(u64, u32)> = (0..BLOCKS / 2).map(|n| (n.into(), n * 2)).collect();
    inn.arrive(ms(0), &every_other);
    inn.done(ms(1), 1, BLOCKS, u64::from(BLOCKS) / 2 - 1);
    let reports = inn.reports(ms(1));
    let ends = reports.iter().map(|report| report.slice().end);
    let starts: Vec<u32> = reports.iter().map(|report| report.slice().start).collect();
    let before: Vec<u32> = [0].into_iter().chain(ends).collect();
    assert!(starts.len() > 1, "it fits one message");
    assert_eq!(before, [starts, Vec::from([BLOCKS])].concat());
    assert_eq!(reports.iter().map(Report::count).sum::<u32>(), BLOCKS / 2);
}

#[test]
fn a_repeated_done_is_ignored_for_a_round_trip_but_at_least_10_ms_after_the_answer() {
    for (rtt, copy) in [(100, 100), (1, 10)] {
        let mut inn = In::new(&Setup { rtt: Span::from_millis(rtt), ..setup(4, 0) });
        inn.arrive(ms(0), &[(3, 3)]);
        let mut answers = |at| {
            inn.done(at, 1, 4, 3);
            inn.reports(at).len()
        };
        assert_eq!(answers(ms(1)), 1);
        let last = ms(1) + (Span::from_millis(copy) - Span::from_nanos(1));
        assert_eq!((answers(last), answers(ms(1 + copy))), (0, 1));
    }
}

#[test]
fn the_event_of_a_round_has_the_number_of_blocks_sent_in_the_round() {
    let mut out = Out::new(&setup(10, 0));
    let rounds = |out: &mut Out| {
        let events = core::iter::from_fn(|| out.sender.poll_event());
        let rounds = events.filter_map(|event| match event {
            Event::Round { segment, round, blocks } => Some((segment, round, blocks)),
            _ => None,
        });
        rounds.collect::<Vec<_>>()
    };
    out.run();
    assert_eq!(rounds(&mut out), [(0, 1, 10)]);
    out.report(1, 10, &[2..4, 9..10]);
    out.run();
    assert_eq!(rounds(&mut out), [(0, 2, 3)]);
}
