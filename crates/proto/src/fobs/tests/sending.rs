//! The sending end.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use proptest::prelude::*;

use super::{FLOW, RTT, ms, settings, setup, told};
use crate::endpoint::{BlockRange, Event, PacketNumber, Sender, Setup, Wake};
use crate::fobs::FobsSender;
use crate::fobs::sender::Standing;
use crate::layout::Block;
use crate::time::{Span, Time};
use crate::units::Bytes;
use crate::wire::{Ack, Control, Pulse, Selective};

/// A sender, and what it has sent under which number.
struct Out {
    sender: FobsSender,
    now: Time,
    sent: Vec<Block>,
}

impl Out {
    fn new(setup: &Setup) -> Out {
        Out { sender: FobsSender::greedy(setup), now: Time::ZERO, sent: Vec::new() }
    }

    /// The next block that goes, if one does before input is needed.
    fn next(&mut self) -> Option<Block> {
        loop {
            let before = self.sent.len();
            let next = PacketNumber(before as u64);
            self.sender.poll_transmit(self.now, next, 1, &mut self.sent);
            if let Some(block) = self.sent.get(before) {
                return Some(*block);
            }
            let Wake::At(at, why) = self.sender.next_wakeup() else { return None };
            if why != crate::endpoint::Why::Pacing {
                return None;
            }
            self.now = self.now.max(at);
        }
    }

    /// The next blocks, by index.
    fn take(&mut self, count: usize) -> Vec<u32> {
        (0..count).map_while(|_| self.next()).map(|block| block.index).collect()
    }

    fn hear(&mut self, control: Control) {
        self.sender.on_control(self.now, FLOW, &control);
    }

    fn hear_told(&mut self, told: Selective) {
        self.hear(Control::Selective(told));
    }

    fn complete(&mut self, blocks: u64) {
        self.hear(Control::Ack(Ack { sequence: 9, next: blocks, received: blocks }));
    }

    fn grant(&mut self, sequence: u64, bytes: u64) {
        let grant = Bytes::new(bytes);
        self.hear(Control::Pulse(Pulse { sequence, grant, ..Pulse::default() }));
    }

    fn numbered(&self) -> u64 {
        self.sent.len() as u64
    }
}

#[test]
fn the_circle_goes_round_over_what_is_not_acknowledged_until_the_signal() {
    let mut out = Out::new(&setup(6, 0));
    assert_eq!(out.take(9), [0, 1, 2, 3, 4, 5, 0, 1, 2]);
    out.hear_told(told(1, 0, 0..6, &[1..2, 3..5], Some((9, 3))));
    // The round is finished first, then it begins anew.
    assert_eq!(out.take(7), [3, 4, 1, 3, 4, 1, 3]);
    assert_eq!(out.sender.accounting().rounds, 4);
    out.complete(6);
    assert!(out.take(1).is_empty() && out.sender.is_finished());
    assert_eq!(out.sender.next_wakeup(), Wake::OnInput);
    let events: Vec<Event> = core::iter::from_fn(|| out.sender.poll_event()).collect();
    assert_eq!(events, [Event::SegmentDone { segment: 0 }, Event::Finished]);
}

#[test]
fn a_sender_whose_signal_is_late_never_stops() {
    let mut out = Out::new(&setup(10, 0));
    let started = out.now;
    assert_eq!(out.take(1_000).len(), 1_000);
    // A thousand datagrams of 1,032 bytes at 80 Mbit/s: no time was lost between them.
    assert!(out.now.since(started) < Span::from_millis(104));
}

#[test]
fn the_next_segment_goes_before_what_was_lost_of_the_one_before() {
    let mut out = Out::new(&setup(20, 10));
    out.take(12);
    out.hear_told(told(1, 0, 0..10, &[2..3], Some((12, 9))));
    assert_eq!(out.take(8), [2, 3, 4, 5, 6, 7, 8, 9]);
    assert!(out.sent[12..].iter().all(|block| block.segment == 1));
    assert_eq!(out.next(), Some(Block { segment: 0, index: 2 }));
    assert_eq!(out.next(), Some(Block { segment: 1, index: 0 }));
}

#[test]
fn after_a_segment_what_is_known_to_be_lost_goes_before_the_next_one() {
    let mut out = Out::new(&setup(40, 10));
    out.take(10);
    out.hear_told(told(1, 0, 0..10, &[2..3, 7..9], Some((10, 7))));
    let next = |out: &mut Out, count: usize| {
        (0..count).filter_map(|_| out.next()).map(|b| (b.segment, b.index)).collect::<Vec<_>>()
    };
    // Then new data come: nothing of the three that are on their way again is waited for.
    assert_eq!(next(&mut out, 5), [(0, 2), (0, 7), (0, 8), (1, 0), (1, 1)]);
    next(&mut out, 8);
    out.hear_told(told(2, 0, 0..10, &[7..8], Some((23, 11))));
    out.hear_told(told(3, 1, 0..10, &[1..2], Some((23, 0))));
    // What has gone twice goes behind what has gone once.
    assert_eq!(next(&mut out, 3), [(1, 1), (0, 7), (2, 0)]);
}

#[test]
fn a_sender_without_grant_repeats_what_is_known_to_be_lost_and_nothing_else() {
    let mut out = Out::new(&Setup { grant: Bytes::new(8_000), ..setup(20, 0) });
    assert_eq!(out.take(100), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(out.sender.is_blocked_by_grant());
    // When it was told only four had come: the others may be on their way.
    out.hear_told(told(1, 0, 0..4, &[1..2], Some((4, 3))));
    assert!(out.take(1).is_empty());
    out.hear_told(told(2, 0, 0..8, &[1..2, 5..6], Some((8, 3))));
    assert_eq!(out.take(100), [1, 5]);
    assert!(out.sender.is_blocked_by_grant());
    // No answer comes: after two round trips they count as lost again.
    let Wake::At(at, _) = out.sender.next_wakeup() else { panic!("it waits for ever") };
    assert!(at.since(out.now) >= RTT && at.since(out.now) <= RTT * 3);
    out.now = at;
    out.sender.on_timeout(at);
    assert_eq!(out.take(100), [1, 5]);
    out.grant(1, 10_000);
    assert_eq!(out.take(100), [8, 9]);
}

#[test]
fn a_batch_is_what_was_set_or_what_the_last_acknowledgement_brought() {
    let batch = |out: &mut Out| {
        out.now += Span::from_millis(50);
        let before = out.sent.len();
        let next = PacketNumber(before as u64);
        out.sender.poll_transmit(out.now, next, 44, &mut out.sent);
        out.sent.len() - before
    };
    // The pacer alone would let go more than that.
    let fast = |batch| {
        let rate = Some(crate::units::Rate::from_mbps(1_000));
        Out::new(&Setup { rate, settings: settings(1, batch), ..setup(2_000, 0) })
    };
    assert_eq!(batch(&mut fast(3)), 3);
    let mut out = fast(0);
    let most = batch(&mut out);
    assert!(most > 20);
    for (sequence, fresh, expected) in [(2, 5, 5), (1, 9, 5), (3, 1, 2), (4, 20, 20)] {
        let highest = out.numbered();
        out.hear_told(told(sequence, 0, 0..20, &[], Some((highest, fresh))));
        assert_eq!(batch(&mut out), expected, "after acknowledgement {sequence}");
    }
}

#[test]
fn an_acknowledgement_that_brought_nothing_makes_repeats_wait_for_the_next() {
    let mut out = Out::new(&Setup { settings: settings(1, 0), ..setup(8, 0) });
    out.take(12);
    // Four are on their way again.
    out.hear_told(told(1, 0, 0..8, &[2..3, 6..7], Some((8, 0))));
    assert_eq!(out.take(100), [6]);
    out.hear_told(told(2, 0, 0..8, &[2..3, 6..7], Some((13, 1))));
    assert_eq!(out.take(4), [2, 6, 2, 6]);
}

#[test]
fn an_older_acknowledgement_counts_for_its_blocks_alone() {
    let mut out = Out::new(&setup(6, 0));
    out.take(6);
    out.hear_told(told(5, 0, 0..3, &[0..1], Some((6, 2))));
    out.hear_told(told(4, 0, 3..6, &[4..5], Some((6, 0))));
    assert_eq!(out.take(4), [0, 4, 0, 4]);
}

#[test]
fn what_no_flow_of_this_object_says_is_refused() {
    let mut out = Out::new(&setup(6, 0));
    out.take(6);
    out.hear_told(told(1, 0, 0..7, &[], Some((6, 6))));
    out.hear_told(told(1, 1, 0..6, &[], Some((6, 6))));
    out.hear_told(told(1, 0, 0..6, &[], Some((7, 6))));
    out.complete(5);
    out.complete(7);
    assert_eq!(out.sender.accounting().refused, 5);
    assert!(!out.sender.is_finished());
    assert_eq!(out.take(6), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn an_object_that_is_acknowledged_whole_needs_no_signal() {
    let mut out = Out::new(&setup(20, 10));
    out.take(20);
    out.hear_told(told(1, 1, 0..10, &[], None));
    out.hear_told(told(1, 0, 0..10, &[], Some((20, 20))));
    assert!(out.sender.is_finished() && out.take(1).is_empty());
}

/// What may happen between two datagrams.
#[derive(Clone, Debug)]
enum Step {
    /// So many go.
    Send(usize),
    /// The receiver tells of a slice of a segment: what it lacks is drawn from the number.
    Tell {
        segment: u32,
        start: u32,
        len: u32,
        draw: u64,
        closes: bool,
    },
    Skip {
        segment: u32,
        index: u32,
        count: u32,
    },
    Grant(u64),
    Later(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1usize..80).prop_map(Step::Send),
        4 => (0u32..4, 0u32..40, 1u32..40, any::<u64>(), any::<bool>()).prop_map(
            |(segment, start, len, draw, closes)| Step::Tell { segment, start, len, draw, closes },
        ),
        1 => (0u32..4, 0u32..40, 1u32..10)
            .prop_map(|(segment, index, count)| Step::Skip { segment, index, count }),
        2 => (1u64..30).prop_map(Step::Grant),
        1 => (1u64..400).prop_map(Step::Later),
    ];
    prop::collection::vec(step, 1..60)
}

/// The simple model: of each block, how often it went, and when it last did.
#[derive(Default)]
struct Model {
    goes: BTreeMap<Block, (u32, u64)>,
    there: BTreeSet<Block>,
    /// What the receiver had heard of when it last spoke to the end.
    highest: u64,
}

impl Model {
    /// A block goes under a number: may it?
    fn check(&mut self, block: Block, number: u64, standing: Standing) {
        assert!(!self.there.contains(&block), "{block:?} is known to be there");
        let goes = self.goes.get(&block).map_or(0, |(goes, _)| *goes);
        if goes > 0 {
            let Standing { repeats_first, known_only, first_left } = standing;
            assert!(!first_left || repeats_first, "{block:?} before one that never went");
            // Where only what is known to be lost goes again, that is what it is compared with: all
            // of a segment is known once the receiver has told of a higher number.
            let is_open = |(other, (_, last)): (&Block, &(u32, u64))| {
                (*last >= self.highest).then_some(other.segment)
            };
            let open: BTreeSet<u32> = self.goes.iter().filter_map(is_open).collect();
            let others = self.goes.iter().filter(|(other, _)| !self.there.contains(other));
            let others = others.filter(|(other, _)| !known_only || !open.contains(&other.segment));
            let least = others.map(|(_, (goes, _))| *goes).min();
            let in_turn = least.is_none_or(|least| goes <= least);
            assert!(in_turn, "{block:?} for time {} before others of their turn", goes + 1);
        }
        self.goes.insert(block, (goes + 1, number));
    }
}

proptest! {
    #[test]
    fn no_block_goes_again_before_all_others_have_gone_as_often(
        steps in steps(), batch in prop::sample::select(&[0, 1, 2, 7][..]), table in any::<bool>(),
    ) {
        let settings = settings(1, batch);
        let setup = Setup { grant: Bytes::new(25_000), settings, ..setup(100, 30) };
        let layout = setup.layout;
        let (mut out, mut model) = (Out::new(&setup), Model::default());
        if table {
            out.sender = FobsSender::by_table(&setup);
        }
        let (mut granted, mut sequence) = (25, 0);
        for step in steps {
            match step {
                Step::Send(count) => for _ in 0..count {
                    // What may go is what was so before the choice.
                    let standing = out.sender.standing();
                    let Some(block) = out.next() else { break };
                    model.check(block, out.numbered() - 1, standing);
                },
                Step::Tell { segment, start, len, draw, closes } => {
                    let blocks = layout.blocks_in(segment);
                    let slice = start..(start + len).min(blocks);
                    if slice.is_empty() { continue }
                    let came = |index: &u32| {
                        model.goes.contains_key(&Block { segment, index: *index })
                            && draw >> (index % 64) & 1 == 1
                    };
                    let missing: Vec<_> =
                        slice.clone().filter(|i| !came(i)).map(|i| i..i + 1).collect();
                    let come = slice.clone().filter(came).collect::<Vec<_>>();
                    model.there.extend(come.into_iter().map(|index| Block { segment, index }));
                    sequence += 1;
                    let highest = out.numbered();
                    if closes { model.highest = highest }
                    let closing = closes.then_some((highest, draw % 3));
                    // Runs that touch are one.
                    let mut runs: Vec<core::ops::Range<u32>> = Vec::new();
                    for run in missing {
                        match runs.last_mut() {
                            Some(last) if last.end == run.start => last.end = run.end,
                            _ => runs.push(run),
                        }
                    }
                    out.hear_told(told(sequence, segment, slice, &runs, closing));
                }
                Step::Skip { segment, index, count } => {
                    let end = (index + count).min(layout.blocks_in(segment));
                    model.there.extend((index..end).map(|index| Block { segment, index }));
                    let first = Block { segment, index };
                    out.sender.skip(out.now, FLOW, BlockRange { first, count });
                }
                Step::Grant(more) => {
                    granted += more;
                    out.grant(granted, granted * 1000);
                }
                Step::Later(millis) => {
                    out.now += Span::from_millis(millis);
                    out.sender.on_timeout(out.now);
                }
            }
        }
        // Whatever has happened, all that is left still goes.
        if !out.sender.is_finished() {
            out.grant(u64::MAX, u64::MAX);
            out.take(400);
            let known = |block| model.there.contains(block) || out.sent.contains(block);
            let all: Vec<Block> = (0..layout.blocks()).filter_map(|n| layout.block(n)).collect();
            prop_assert!(all.iter().all(known));
        }
    }
}

#[test]
fn a_wait_without_an_end_is_impossible_after_silence() {
    let mut out = Out::new(&Setup { grant: Bytes::new(3_000), ..setup(20, 0) });
    out.take(10);
    out.now = ms(10_000);
    out.sender.on_timeout(out.now);
    let events: Vec<Event> = core::iter::from_fn(|| out.sender.poll_event()).collect();
    assert!(matches!(events[..], [Event::Silent(_)]));
    assert!(out.take(1).is_empty());
    out.grant(1, 3_000);
    assert_eq!(out.sender.poll_event(), Some(Event::Resumed));
    assert_eq!(out.take(100), [0, 1, 2]);
}

#[test]
fn after_a_chunk_what_is_known_to_be_lost_goes_and_then_the_next_chunk() {
    let row = crate::registry::find("fobs-table").unwrap();
    // Ten blocks of 1,000 bytes.
    let settings = settings(1, 2).with(row, "chunk", 10_100.0 / f64::from(1 << 20)).unwrap();
    let setup = Setup { settings, ..setup(25, 0) };
    let mut out = Out::new(&setup);
    out.sender = FobsSender::by_table(&setup);
    assert_eq!(out.take(6), [0, 1, 2, 3, 4, 5]);
    out.hear_told(told(1, 0, 0..6, &[2..3], Some((6, 5))));
    // The new data of the chunk come first; nothing waits for what is still on its way.
    assert_eq!(out.take(8), [6, 7, 8, 9, 10, 11, 12, 13]);
    out.hear_told(told(2, 0, 0..14, &[2..3, 12..13], Some((14, 7))));
    assert_eq!(out.take(6), [14, 15, 16, 17, 18, 19]);
    out.hear_told(told(3, 0, 0..20, &[2..3, 12..13], Some((20, 6))));
    assert_eq!(out.take(7), [2, 12, 20, 21, 22, 23, 24]);
    // In the end it is greedy.
    assert_eq!(out.take(9), [20, 21, 22, 23, 24, 2, 12, 20, 21]);
}
