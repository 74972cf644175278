//! Tests of the sending end. The *circle* is the order in which unacknowledged blocks are resent.
//! The *signal* is the receiver's message that the whole object has arrived. A *chunk* is the FOBS
//! setting of that name. A *stretch* is a run of blocks whose losses are judged together.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use proptest::prelude::*;

use super::{FLOW, RTT, listed, ms, selective, settings, setup};
use crate::endpoint::{BlockRange, Event, PacketNumber, Sender, Setup, Wake, Why};
use crate::fobs::FobsSender;
use crate::fobs::circle::STRETCH;
use crate::fobs::sender::Standing;
use crate::layout::{Block, Layout};
use crate::settings::Settings;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::{Ack, Control, Pulse, Selective};

struct Out {
    sender: FobsSender,
    now: Time,
    sent: Vec<Block>,
}

impl Out {
    fn new(setup: &Setup) -> Out {
        Out { sender: FobsSender::greedy(setup), now: Time::ZERO, sent: Vec::new() }
    }

    /// The next block sent; `None` if the sender waits for anything but its pacing timer.
    fn next(&mut self) -> Option<Block> {
        loop {
            let before = self.sent.len();
            let next = PacketNumber(before as u64);
            self.sender.poll_transmit(self.now, next, 1, &mut self.sent);
            if let Some(block) = self.sent.get(before) {
                return Some(*block);
            }
            let Wake::At(at, why) = self.sender.next_wakeup() else { return None };
            if why != Why::Pacing {
                return None;
            }
            self.now = self.now.max(at);
        }
    }

    fn take(&mut self, count: usize) -> Vec<u32> {
        (0..count).map_while(|_| self.next()).map(|block| block.index).collect()
    }

    fn hear(&mut self, control: Control) {
        self.sender.on_control(self.now, FLOW, &control);
    }

    fn acknowledge(&mut self, report: Selective) {
        self.hear(Control::Selective(report));
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
fn the_circle_repeats_unacknowledged_blocks_until_the_signal() {
    let mut out = Out::new(&setup(6, 0));
    assert_eq!(out.take(9), [0, 1, 2, 3, 4, 5, 0, 1, 2]);
    out.acknowledge(selective(1, 0, 0..6, &[1..2, 3..5], Some((9, 3))));
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
fn a_segment_that_has_begun_is_sent_to_its_end_before_losses_of_the_previous_one() {
    let mut out = Out::new(&setup(20, 10));
    out.take(12);
    out.acknowledge(selective(1, 0, 0..10, &[2..3], Some((12, 9))));
    assert_eq!(out.take(8), [2, 3, 4, 5, 6, 7, 8, 9]);
    assert!(out.sent[12..].iter().all(|block| block.segment == 1));
    assert_eq!(out.next(), Some(Block { segment: 0, index: 2 }));
    assert_eq!(out.next(), Some(Block { segment: 1, index: 0 }));
}

#[test]
fn blocks_present_before_their_segment_began_are_never_sent() {
    let mut out = Out::new(&setup(20, 10));
    let there = BlockRange { first: Block { segment: 1, index: 3 }, count: 2 };
    out.sender.skip(out.now, FLOW, there);
    let rest: Vec<u32> = (0..10).chain(0..3).chain(5..10).collect();
    assert_eq!(out.take(18), rest);
    assert_eq!(out.take(18), rest, "the blocks present before are not resent either");
    out.acknowledge(selective(1, 1, 0..3, &[], None));
    assert_eq!(out.sender.poll_event(), None);
    out.acknowledge(selective(2, 1, 5..10, &[], Some((18, 8))));
    let whole = Event::SegmentDone { segment: 1 };
    assert_eq!(out.sender.poll_event(), Some(whole), "all other blocks have arrived");
}

#[test]
fn after_a_segment_known_losses_are_resent_before_the_next_one() {
    let mut out = Out::new(&setup(40, 10));
    out.take(10);
    out.acknowledge(selective(1, 0, 0..10, &[2..3, 7..9], Some((10, 7))));
    let next = |out: &mut Out, count: usize| {
        (0..count).filter_map(|_| out.next()).map(|b| (b.segment, b.index)).collect::<Vec<_>>()
    };
    // Then new data follow: the sender does not wait for the three resent blocks in flight.
    assert_eq!(next(&mut out, 5), [(0, 2), (0, 7), (0, 8), (1, 0), (1, 1)]);
    next(&mut out, 8);
    out.acknowledge(selective(2, 0, 0..10, &[7..8], Some((23, 11))));
    out.acknowledge(selective(3, 1, 0..10, &[1..2], Some((23, 0))));
    assert_eq!(next(&mut out, 3), [(1, 1), (0, 7), (2, 0)]);
}

#[test]
fn a_sender_that_has_sent_nothing_and_has_no_grant_waits_for_input() {
    let mut out = Out::new(&Setup { grant: Bytes::ZERO, ..setup(20, 0) });
    assert!(out.take(1).is_empty());
    assert_eq!(out.sender.next_wakeup(), Wake::OnInput);
}

#[test]
fn a_sender_without_grant_resends_only_known_losses() {
    let mut out = Out::new(&Setup { grant: Bytes::new(8_000), ..setup(20, 0) });
    assert_eq!(out.take(100), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(out.sender.is_blocked_by_grant());
    // The eight blocks are one stretch. Block 1 counts as lost only when an acknowledgement covers
    // all datagrams of the stretch; this one covers four.
    out.acknowledge(selective(1, 0, 0..4, &[1..2], Some((4, 3))));
    assert!(out.take(1).is_empty());
    out.acknowledge(selective(2, 0, 0..8, &[1..2, 5..6], Some((8, 3))));
    assert_eq!(out.take(100), [1, 5]);
    assert!(out.sender.is_blocked_by_grant());
    // Without an answer the resent blocks count as lost again after three round trips: the timeout
    // before the first sample of the round-trip time.
    let Wake::At(at, _) = out.sender.next_wakeup() else { panic!("it waits for ever") };
    assert!(at.since(out.now) >= RTT && at.since(out.now) <= RTT * 3);
    out.sender.on_timeout(out.now + (at.since(out.now) - Span::from_nanos(1)));
    assert_eq!(out.sender.next_wakeup(), Wake::At(at, Why::Repeat));
    out.now = at;
    out.sender.on_timeout(at);
    assert!(matches!(out.sender.next_wakeup(), Wake::At(_, Why::Pacing)));
    assert_eq!(out.take(100), [1, 5]);
    out.grant(1, 10_000);
    assert_eq!(out.take(100), [8, 9]);
}

#[test]
fn a_batch_has_the_set_size_or_the_number_of_newly_acknowledged_blocks_but_at_least_two() {
    let batch = |out: &mut Out| {
        out.now += Span::from_millis(50);
        let before = out.sent.len();
        let next = PacketNumber(before as u64);
        out.sender.poll_transmit(out.now, next, 44, &mut out.sent);
        out.sent.len() - before
    };
    let fast = |batch| {
        let rate = Some(Rate::from_mbps(1_000));
        Out::new(&Setup { rate, settings: settings(1, batch), ..setup(2_000, 0) })
    };
    assert_eq!(batch(&mut fast(3)), 3);
    let mut out = fast(0);
    let most = batch(&mut out);
    assert!(most > 20);
    for (sequence, fresh, expected) in [(2, 5, 5), (1, 9, 5), (3, 1, 2), (4, 20, 20)] {
        let highest = out.numbered();
        out.acknowledge(selective(sequence, 0, 0..20, &[], Some((highest, fresh))));
        assert_eq!(batch(&mut out), expected, "after acknowledgement {sequence}");
    }
}

#[test]
fn after_an_acknowledgement_without_new_blocks_only_known_losses_are_resent() {
    let mut out = Out::new(&Setup { settings: settings(1, 0), ..setup(8, 0) });
    out.take(12);
    // The blocks 0 to 3 were resent and are in flight.
    out.acknowledge(selective(1, 0, 0..8, &[2..3, 6..7], Some((8, 0))));
    assert_eq!(out.take(100), [6]);
    out.acknowledge(selective(2, 0, 0..8, &[2..3, 6..7], Some((13, 1))));
    assert_eq!(out.take(4), [2, 6, 2, 6]);
}

#[test]
fn an_older_acknowledgement_that_arrives_late_counts_for_the_blocks_that_it_covers() {
    let mut out = Out::new(&setup(6, 0));
    out.take(6);
    out.acknowledge(selective(5, 0, 0..3, &[0..1], Some((6, 2))));
    out.acknowledge(selective(4, 0, 3..6, &[4..5], Some((6, 0))));
    assert_eq!(out.take(4), [0, 4, 0, 4]);
}

#[test]
fn impossible_messages_are_refused() {
    let mut out = Out::new(&setup(6, 0));
    out.take(6);
    out.acknowledge(selective(1, 0, 0..7, &[], Some((6, 6))));
    out.acknowledge(selective(1, 1, 0..6, &[], Some((6, 6))));
    out.acknowledge(selective(1, 0, 0..6, &[], Some((7, 6))));
    out.complete(5);
    out.complete(7);
    assert_eq!(out.sender.accounting().refused, 5);
    assert!(!out.sender.is_finished());
    assert_eq!(out.take(6), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_completely_acknowledged_object_needs_no_signal() {
    let mut out = Out::new(&setup(20, 10));
    out.take(20);
    out.acknowledge(selective(1, 1, 0..10, &[], None));
    out.acknowledge(selective(1, 0, 0..10, &[], Some((20, 20))));
    assert!(out.sender.is_finished() && out.take(1).is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    /// The receiver reports on the blocks `start..start + len` of a segment. With `closes` the
    /// report is the last part of an acknowledgement.
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
    /// The receiver grants this many more blocks. Of the blocks sent since the last grant, half
    /// were lost if `loses` is true, otherwise none.
    Grant {
        more: u64,
        loses: bool,
    },
    Later(u64),
}

/// Steps over segments of 30 times `wide` blocks.
fn steps(wide: u32) -> impl Strategy<Value = Vec<Step>> {
    let (at, many) = (0..40 * wide, u64::from(wide));
    let step = prop_oneof![
        6 => (1..80 * wide as usize).prop_map(Step::Send),
        4 => (0u32..4, at.clone(), 1..40 * wide, any::<u64>(), any::<bool>()).prop_map(
            |(segment, start, len, draw, closes)| Step::Tell { segment, start, len, draw, closes },
        ),
        1 => (0u32..4, at, 1..10 * wide)
            .prop_map(|(segment, index, count)| Step::Skip { segment, index, count }),
        2 => (1..30 * many, any::<bool>()).prop_map(|(more, loses)| Step::Grant { more, loses }),
        1 => (1u64..400).prop_map(Step::Later),
    ];
    prop::collection::vec(step, 1..60)
}

/// Adjacent blocks whose first sends followed each other.
#[derive(Default)]
struct Stretch {
    len: u32,
    /// For each number of sends: how many of the remaining blocks were sent that often.
    left: BTreeMap<u32, u32>,
    /// Highest packet number and latest time of the first sends, of the second sends, and so on.
    sent: Vec<(u64, Time)>,
}

impl Stretch {
    fn go(&mut self, before: u32, number: u64, now: Time) {
        if before == 0 {
            self.len += 1;
        } else {
            self.take(before);
        }
        *self.left.entry(before + 1).or_default() += 1;
        self.sent.resize(self.sent.len().max(before as usize + 1), (0, now));
        self.sent[before as usize] = (number, now);
    }

    fn take(&mut self, goes: u32) {
        let count = self.left.get_mut(&goes).expect("a remaining block was sent this often");
        *count -= 1;
        if *count == 0 {
            self.left.remove(&goes);
        }
    }

    /// The smallest number of sends of a remaining block; `None` if no block is left.
    fn least(&self) -> Option<u32> {
        self.left.keys().next().copied()
    }

    /// Whether the blocks with the fewest sends are known to be lost: their last packet number is
    /// below `highest`, or it is at most `by_time_to` and was sent `patience` ago or earlier.
    fn is_known(&self, highest: u64, patience: Span, by_time_to: u64, now: Time) -> bool {
        self.least().is_some_and(|least| {
            let (last, at) = self.sent[least as usize - 1];
            last < highest || (last <= by_time_to && at + patience <= now)
        })
    }
}

/// A simple model of the sender: how often each block was sent, and the block's stretch.
#[derive(Default)]
struct Model {
    goes: BTreeMap<Block, (u32, usize)>,
    there: BTreeSet<Block>,
    stretches: Vec<Stretch>,
    /// The block that would extend the newest stretch.
    next: Option<Block>,
    /// The highest packet number plus one in the receiver's last complete acknowledgement.
    highest: u64,
    /// The packet number of the last block that was sent for the first time.
    last_first: u64,
}

impl Model {
    fn arrive(&mut self, block: Block) {
        if let (true, Some((goes, of))) = (self.there.insert(block), self.goes.get(&block)) {
            self.stretches[*of].take(*goes);
        }
    }

    /// Call before each poll of the sender. If the sender will look for repeats, closes the newest
    /// stretch, as the sender does.
    fn ask(&mut self, standing: Standing) {
        if standing.repeats_first || !standing.first_left {
            self.next = None;
        }
    }

    /// Checks a block that is sent under a packet number, by the paper's rule: no block is resent
    /// before all others were sent as often.
    ///
    /// In states in which only known losses may be resent, the rule holds among the stretches known
    /// to be lost. While a first send is possible, time alone does not show the loss of a block
    /// that was resent after the last first send.
    fn check(&mut self, now: Time, block: Block, number: u64, standing: Standing) {
        assert!(!self.there.contains(&block), "{block:?} was acknowledged");
        let (before, of) = match self.goes.get(&block) {
            Some((goes, of)) => {
                let Standing { repeats_first, known_only, first_left, first_may_go, patience } =
                    standing;
                let by_time_to = if first_may_go { self.last_first } else { u64::MAX };
                assert!(!first_left || repeats_first, "{block:?} before an unsent block");
                let is_known = |stretch: &&Stretch| {
                    !known_only || stretch.is_known(self.highest, patience, by_time_to, now)
                };
                assert!(is_known(&&self.stretches[*of]), "{block:?} may be in flight");
                let known = self.stretches.iter().filter(is_known);
                let least = known.filter_map(Stretch::least).min();
                let time = goes + 1;
                assert_eq!(least, Some(*goes), "{block:?} sent {time} times, another below {goes}");
                (*goes, *of)
            }
            None => {
                self.last_first = number;
                (0, self.stretch(block))
            }
        };
        self.goes.insert(block, (before + 1, of));
        self.stretches[of].go(before, number, now);
    }

    fn stretch(&mut self, block: Block) -> usize {
        let is_open = self.stretches.last().is_some_and(|newest| newest.len < STRETCH);
        if !is_open || self.next != Some(block) {
            self.stretches.push(Stretch::default());
        }
        self.next = Some(Block { index: block.index + 1, ..block });
        self.stretches.len() - 1
    }
}

struct Input {
    out: Out,
    model: Model,
    layout: Layout,
    sequence: u64,
    pulse: Pulse,
}

impl Input {
    fn new(setup: &Setup, is_table: bool) -> Input {
        let mut out = Out::new(setup);
        if is_table {
            out.sender = FobsSender::by_table(setup);
        }
        let pulse = Pulse { grant: setup.grant, ..Pulse::default() };
        Input { out, model: Model::default(), layout: setup.layout, sequence: 0, pulse }
    }

    fn step(&mut self, step: Step) {
        let layout = self.layout;
        match step {
            Step::Send(count) => {
                for _ in 0..count {
                    let standing = self.out.sender.standing();
                    self.model.ask(standing);
                    let Some(block) = self.out.next() else { break };
                    let number = self.out.numbered() - 1;
                    self.model.check(self.out.now, block, number, standing);
                }
            }
            Step::Tell { segment, start, len, draw, closes } => {
                let slice = start..(start + len).min(layout.blocks_in(segment));
                if !slice.is_empty() {
                    self.report(segment, slice, draw, closes);
                }
            }
            Step::Skip { segment, index, count } => {
                let end = (index + count).min(layout.blocks_in(segment));
                let first = Block { segment, index };
                (index..end).for_each(|index| self.model.arrive(Block { segment, index }));
                self.out.sender.skip(self.out.now, FLOW, BlockRange { first, count });
            }
            Step::Grant { more, loses } => {
                let highest = self.out.numbered();
                self.pulse.sequence += 1;
                self.pulse.received += (highest - self.pulse.highest) / if loses { 2 } else { 1 };
                self.pulse.highest = highest;
                self.pulse.grant += Bytes::new(more * 1000);
                self.out.hear(Control::Pulse(self.pulse));
            }
            Step::Later(millis) => {
                self.out.now += Span::from_millis(millis);
                self.out.sender.on_timeout(self.out.now);
            }
        }
    }

    /// Reports on a slice of a segment; the bits of `draw` choose the sent blocks that arrived.
    fn report(&mut self, segment: u32, slice: Range<u32>, draw: u64, closes: bool) {
        let came = |index: &u32| {
            self.model.goes.contains_key(&Block { segment, index: *index })
                && draw >> (index % 64) & 1 == 1
        };
        let mut missing: Vec<Range<u32>> = Vec::new();
        for index in slice.clone().filter(|index| !came(index)) {
            match missing.last_mut() {
                Some(last) if last.end == index => last.end += 1,
                _ => missing.push(index..index + 1),
            }
        }
        self.sequence += 1;
        let highest = self.out.numbered();
        let closing = closes.then_some((highest, draw % 3));
        let report = selective(self.sequence, segment, slice, &missing, closing);
        // A message may be too short for all missing blocks.
        let lacks = listed(report.report.missing());
        let come = report.report.slice().filter(|index| lacks.binary_search(index).is_err());
        come.for_each(|index| self.model.arrive(Block { segment, index }));
        self.model.highest = if closes { highest } else { self.model.highest };
        self.out.acknowledge(report);
    }
}

proptest! {
    #[test]
    fn no_block_is_resent_before_all_others_were_sent_as_often(
        // A segment of 360 blocks has at least two stretches.
        (wide, steps) in prop_oneof![3 => Just(1), 1 => Just(12)]
            .prop_flat_map(|wide| (Just(wide), steps(wide))),
        batch in prop::sample::select(&[0, 1, 2, 7][..]), is_table in any::<bool>(),
    ) {
        check_steps(wide, steps, batch, is_table);
    }
}

/// Takes the steps, then sends without acknowledgements: every remaining block must be sent.
fn check_steps(wide: u32, steps: Vec<Step>, batch: u32, is_table: bool) {
    let row = crate::registry::find("fobs-table").unwrap();
    let settings = settings(1, batch).with(row, "state-segment", 20.0).unwrap();
    let (scale, grant) = (u64::from(wide), Bytes::new(25_000 * u64::from(wide)));
    let setup = Setup { grant, settings, ..setup(100 * scale, 30 * scale) };
    let mut input = Input::new(&setup, is_table);
    steps.into_iter().for_each(|step| input.step(step));
    if !input.out.sender.is_finished() {
        input.out.grant(u64::MAX, u64::MAX);
        input.out.take(400 * wide as usize);
        let goes =
            |block: &Block| input.model.there.contains(block) || input.out.sent.contains(block);
        let layout = setup.layout;
        let never = (0..layout.blocks()).filter_map(|n| layout.block(n)).find(|b| !goes(b));
        assert_eq!(never, None, "a block was never sent");
    }
}

#[test]
fn a_slow_sender_without_acknowledgements_continues_with_the_next_segment() {
    let grant = |loses| Step::Grant { more: 1, loses };
    // The losses bring the rate to 20 Mbit/s: three segments take 446 ms. A block without an
    // acknowledgement counts as lost after 300 ms. So a sender that always resends known losses
    // first would repeat the three segments for ever.
    let lost = || [Step::Send(1), grant(false), Step::Send(20), grant(true)];
    let steps = lost().into_iter().chain(lost()).collect();
    check_steps(12, steps, 0, true);
}

#[test]
fn known_losses_of_a_segment_in_flight_are_resent_by_stretches() {
    let (len, grant) = (STRETCH, u64::from(STRETCH) * 5 / 2);
    let mut out = Out::new(&Setup { grant: Bytes::new(grant * 1000), ..setup(2_000, 0) });
    assert_eq!(out.take(10_000).len() as u64, grant);
    // Two blocks of the first stretch and all blocks of the second are missing. The last block of
    // the second may still be in flight.
    let second = len..2 * len;
    out.acknowledge(selective(
        1,
        0,
        0..2 * len,
        &[3..5, second],
        Some((2 * u64::from(len) - 1, 9)),
    ));
    assert_eq!(out.take(10_000), [3, 4]);
    out.acknowledge(selective(2, 0, 0..1, &[], Some((2 * u64::from(len), 9))));
    assert_eq!(out.take(10_000), (len..2 * len).collect::<Vec<_>>());
    out.acknowledge(selective(3, 0, 0..1, &[], Some((grant + 2, 9))));
    let rest = 2 * len..grant as u32;
    assert_eq!(out.take(10_000), rest.chain(3..5).collect::<Vec<_>>());
}

#[test]
fn the_variant_fobs_table_sends_bursts_of_25_datagrams() {
    let setup = Setup { settings: Settings::default(), ..setup(1_000, 0) };
    // Sends everything that may leave at one instant; returns the number of blocks.
    let burst = |sender: &mut FobsSender, now: Time, sent: &mut Vec<Block>| {
        let from = sent.len();
        loop {
            let before = sent.len();
            sender.poll_transmit(now, PacketNumber(before as u64), 44, sent);
            if sent.len() == before {
                return before - from;
            }
        }
    };
    let (mut sender, mut now, mut sent) = (FobsSender::by_table(&setup), Time::ZERO, Vec::new());
    for _ in 0..10 {
        assert_eq!(burst(&mut sender, now, &mut sent), 25);
        let Wake::At(at, Why::Pacing) = sender.next_wakeup() else { panic!("it does not pace") };
        assert_eq!(at.since(now), Bytes::new(25 * 1032) / Rate::from_mbps(80));
        now = at;
    }
    let mut greedy = FobsSender::greedy(&setup);
    assert!(burst(&mut greedy, Time::ZERO, &mut Vec::new()) < 25);
}

#[test]
fn after_a_silence_a_grant_resumes_the_sender() {
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
fn after_a_chunk_known_losses_are_resent_and_then_the_next_chunk_follows() {
    let row = crate::registry::find("fobs-table").unwrap();
    let settings = settings(1, 2).with(row, "chunk", 10_100.0).unwrap();
    let setup = Setup { settings, ..setup(25, 0) };
    let mut out = Out::new(&setup);
    out.sender = FobsSender::by_table(&setup);
    assert_eq!(out.take(6), [0, 1, 2, 3, 4, 5]);
    out.acknowledge(selective(1, 0, 0..6, &[2..3], Some((6, 5))));
    assert_eq!(out.take(8), [6, 7, 8, 9, 10, 11, 12, 13]);
    out.acknowledge(selective(2, 0, 0..14, &[2..3, 12..13], Some((14, 7))));
    assert_eq!(out.take(6), [14, 15, 16, 17, 18, 19]);
    out.acknowledge(selective(3, 0, 0..20, &[2..3, 12..13], Some((20, 6))));
    assert_eq!(out.take(7), [2, 12, 20, 21, 22, 23, 24]);
    assert_eq!(out.take(9), [20, 21, 22, 23, 24, 2, 12, 20, 21]);
}
