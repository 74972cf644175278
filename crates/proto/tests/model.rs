//! Compares any protocol's sender with a simple model of a correct sender, over random operations
//! and with a receiver that sends any message.
//!
//! The model knows only two facts about a protocol: whether it sends listed losses before new
//! blocks, and whether, without a timeout, it resends only blocks that were named as missing. For
//! each block the model tracks how often the block was sent, how often it was named as missing, and
//! whether it is known to have arrived. A message that the sender refuses has no effect on the
//! model.

use std::collections::BTreeMap;
use std::ops::Range;

use longhaul_proto::coded::Symbol;
use longhaul_proto::endpoint::{BlockRange, BoxedSender, FlowId, PacketNumber, Setup, Wake, Why};
use longhaul_proto::layout::{Block, Layout};
use longhaul_proto::registry::{Row, all};
use longhaul_proto::settings::Settings;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};
use longhaul_proto::wire::{
    Ack, BufferOk, Closing, Control, ErrorRate, Go, Loss, Pulse, Report, Request, Resend,
    Selective, Sync,
};
use proptest::prelude::*;

use crate::canary::{Flaw, broken};
use crate::rig::setup;

const FLOW: FlowId = FlowId(1);
const RTT: Span = Span::from_millis(50);
const BLOCKS: u64 = 120;
/// Blocks in a segment.
const SEGMENT: u64 = 48;
/// Blocks in a buffer.
const BUFFER: u64 = 16;

/// Protocols whose papers require that listed losses are resent before new blocks.
const LOST_FIRST: [&str; 3] = ["sabul", "sabul-ornl", "tsunami"];

#[derive(Clone, Debug)]
enum Step {
    /// Polls the sender this many times, as far as its pacer allows.
    Send(usize),
    /// The receiver sends a message: its kind, a range of blocks, which of those are missing (a
    /// repeated bit pattern), and a number whose meaning depends on the kind.
    Hear(u8, Range<u64>, u64, u64),
    /// The driver marks these blocks as not needed.
    Skip(Range<u64>),
    /// The receiver grants this many more blocks.
    Grant(u64),
    /// This many milliseconds pass.
    Later(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let blocks = || (0..BLOCKS, 1..50u64).prop_map(|(at, len)| at..(at + len).min(BLOCKS));
    let hear = (0..10u8, blocks(), any::<u64>(), 0..12u64);
    let step = prop_oneof![
        8 => (1usize..60).prop_map(Step::Send),
        6 => hear.prop_map(|(kind, blocks, draw, number)| Step::Hear(kind, blocks, draw, number)),
        1 => blocks().prop_map(Step::Skip),
        3 => (1u64..40).prop_map(Step::Grant),
        2 => (1u64..300).prop_map(Step::Later),
    ];
    prop::collection::vec(step, 1..60)
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    sends: u32,
    /// How often the receiver named the block as missing or requested it.
    named: u32,
    /// When the block was sent last.
    at: Time,
    /// Whether the block was on a list of losses and has not been resent since.
    listed: bool,
    /// Whether a message has reported the block as received.
    reported: bool,
    /// Whether the sender certainly knows that the block was received.
    sure: bool,
    skipped: bool,
}

struct Pair {
    row: Row,
    layout: Layout,
    sender: BoxedSender,
    now: Time,
    sent: u64,
    blocks: BTreeMap<u64, Known>,
    grant: Bytes,
    first_bytes: Bytes,
    /// The lowest block that may be sent for the first time: first sends are in order, unless
    /// the receiver has requested blocks (`asked`).
    next_first: u64,
    /// Whether the receiver has requested blocks by number.
    asked: bool,
    /// Number of timeouts so far; after each timeout, the sender may resend a block that no message
    /// named.
    waits: u32,
    sequence: u64,
    requests: u64,
}

impl Pair {
    fn new(row: &Row, setup: &Setup) -> Pair {
        let mut sender = (row.sender)(setup);
        sender.allow_coded();
        Pair {
            row: *row,
            layout: setup.layout,
            sender,
            now: Time::ZERO,
            sent: 0,
            blocks: (0..setup.layout.blocks()).map(|number| (number, Known::default())).collect(),
            grant: setup.grant,
            first_bytes: Bytes::ZERO,
            next_first: 0,
            asked: false,
            waits: 0,
            sequence: 0,
            requests: 0,
        }
    }

    fn len(&self, number: u64) -> Bytes {
        let block = self.layout.block(number).expect("a block of the object");
        Bytes::new(self.layout.extent(block).len.into())
    }

    /// Polls the sender as time passes. Stops when the sender waits for input, or for longer than a
    /// round trip.
    fn send(&mut self, polls: usize) {
        let mut out = Vec::new();
        for _ in 0..polls {
            out.clear();
            let was_finished = self.sender.is_finished();
            self.sender.poll_transmit(self.now, PacketNumber(self.sent), 7, &mut out);
            assert!(out.len() <= 7 && (out.is_empty() || !was_finished));
            for block in &out {
                self.note_send(*block);
            }
            self.sent += out.len() as u64;
            match self.sender.next_wakeup() {
                Wake::At(at, _) if out.is_empty() && at > self.now + RTT => return,
                Wake::At(at, why) => {
                    self.now = self.now.max(at);
                    // If the circuit breaker (which stops a silent flow) and a repeat are due at
                    // the same time, `why` names the breaker.
                    self.waits += u32::from(matches!(why, Why::Repeat | Why::Breaker));
                }
                Wake::Now => {}
                Wake::OnInput => return,
            }
            self.sender.on_timeout(self.now);
        }
    }

    fn note_send(&mut self, block: Block) {
        if Symbol::of(&self.layout, block).is_some() {
            return;
        }
        let number = self.layout.number(block);
        assert_eq!(self.layout.block(number), Some(block), "the object has no such block");
        let len = self.len(number);
        let (waits, frugal) = (self.waits, self.row.frugal);
        let listed = |known: &Known| known.listed && !known.reported;
        let is_first = self.blocks[&number].sends == 0;
        if is_first && LOST_FIRST.contains(&self.row.name) {
            let left = self.blocks.iter().find(|(_, known)| listed(known));
            assert!(left.is_none(), "{block:?} goes before {left:?}, which was lost");
        }
        let known = self.blocks.get_mut(&number).expect("a block of the object");
        assert!(!known.sure, "{block:?} is sent although it arrived");
        known.sends += 1;
        known.at = self.now;
        known.listed = false;
        if known.sends == 1 {
            self.first_bytes += len;
            assert!(self.asked || number >= self.next_first, "{block:?} out of order");
            assert!(self.asked || self.first_bytes <= self.grant, "{block:?} beyond the grant");
            self.next_first = number + 1;
        } else {
            let reasons = known.named + waits;
            assert!(
                !frugal || known.sends <= 1 + reasons,
                "{block:?} is resent for no reason: {known:?}"
            );
        }
    }

    /// Passes a message of the receiver to the sender. The message counts unless the sender refuses
    /// it.
    fn hear(&mut self, kind: u8, blocks: &Range<u64>, draw: u64, number: u64) {
        let Some((control, meaning)) = self.message(kind, blocks, draw, number) else { return };
        let refused = self.sender.accounting().refused;
        self.sender.on_control(self.now, FLOW, &control);
        if self.sender.accounting().refused > refused {
            return;
        }
        self.asked |= matches!(control, Control::Request(_));
        // A selective report may name unsent blocks as received. The sender may send these blocks
        // all the same.
        let only_sent = matches!(control, Control::Selective(_));
        let is_list = matches!(control, Control::Loss(_));
        for (at, known) in self.blocks.range_mut(meaning.about) {
            let missing = meaning.missing.contains(at);
            known.named += u32::from(missing);
            // The sender may ignore a listed block that it resent less than a round trip ago: the
            // list was made before this block could arrive.
            let is_fresh = known.sends > 1 && self.now < known.at + RTT;
            known.listed |= is_list && missing && known.sends > 0 && !is_fresh;
            known.reported |= !missing;
            known.sure |= !missing && meaning.sure && (known.sends > 0 || !only_sent);
        }
    }

    fn message(
        &mut self,
        kind: u8,
        blocks: &Range<u64>,
        draw: u64,
        number: u64,
    ) -> Option<(Control, Meaning)> {
        self.sequence += 1;
        let sequence = self.sequence;
        let about = |sure| Meaning { about: blocks.clone(), missing: Vec::new(), sure };
        let lost: Vec<u64> = blocks.clone().filter(|n| draw >> (n % 64) & 1 == 1).collect();
        let runs = lost.chunk_by(|a, b| a + 1 == *b).map(|run| run[0]..run[run.len() - 1] + 1);
        let named = || Meaning { missing: lost.clone(), ..about(false) };
        Some(match kind {
            0 => {
                let report = self.report(blocks, &lost, number as u32)?;
                (Control::Report(report), named())
            }
            1 => {
                let report = self.report(blocks, &lost, 0)?;
                let closing = Closing { highest: self.sent.saturating_sub(number), fresh: number };
                let closing = Some(closing).filter(|_| !draw.is_multiple_of(3));
                let reported = Selective { sequence, report, closing };
                // The sender accepts this message, even if it is false.
                (Control::Selective(reported), Meaning { sure: true, ..named() })
            }
            2 => {
                let report = self.report(blocks, &lost, number as u32)?;
                let resend = Resend { buffer: blocks.start / BUFFER, highest: self.sent, report };
                (Control::Resend(resend), named())
            }
            3 => (Control::Loss(Loss::fill(sequence, &mut runs.peekable())), named()),
            4 => {
                let control =
                    Control::Ack(Ack { sequence, next: blocks.end, received: blocks.end });
                let about = 0..blocks.end;
                (control, Meaning { about, missing: Vec::new(), sure: true })
            }
            5 => {
                let restart = Some(blocks.start).filter(|_| !draw.is_multiple_of(2));
                let missing = restart.map_or(Vec::new(), |from| (from..BLOCKS).collect());
                let control = ErrorRate { sequence, rate: draw as u32 % 100_000, restart };
                let about = blocks.start..if restart.is_some() { BLOCKS } else { blocks.start };
                (Control::ErrorRate(control), Meaning { about, missing, sure: false })
            }
            6 => (Control::Go(Go { buffers: number % 9 }), Meaning::default()),
            7 => {
                let (buffer, offer) = (blocks.start / BUFFER, None);
                let about = buffer * BUFFER..((buffer + 1) * BUFFER).min(BLOCKS);
                let meaning = Meaning { about, missing: Vec::new(), sure: true };
                (Control::BufferOk(BufferOk { buffer, offer }), meaning)
            }
            8 => {
                let rate = Rate::from_mbps(5 + number);
                let anew = draw.is_multiple_of(7);
                self.requests += 1;
                let request = Request::fill(self.requests, rate, anew, &mut runs.peekable());
                (Control::Request(request), named())
            }
            _ => (Control::Sync(Sync { sequence }), Meaning::default()),
        })
    }

    /// A report on the slice `blocks`; `None` if the slice is not within one segment.
    fn report(&self, blocks: &Range<u64>, lost: &[u64], round: u32) -> Option<Report> {
        let Block { segment, index } = self.layout.block(blocks.start)?;
        let base = blocks.start - u64::from(index);
        let end = base + u64::from(self.layout.blocks_in(segment));
        if blocks.end > end {
            return None;
        }
        let runs = lost.chunk_by(|a, b| a + 1 == *b);
        let runs = runs.map(|run| (run[0] - base) as u32..(run[run.len() - 1] - base) as u32 + 1);
        Some(Report::fill(segment, round, index..(blocks.end - base) as u32, runs))
    }

    fn skip(&mut self, blocks: &Range<u64>) {
        let Some(first) = self.layout.block(blocks.start) else { return };
        let left = u64::from(self.layout.blocks_in(first.segment) - first.index);
        let count = (blocks.end - blocks.start).min(left);
        self.sender.skip(self.now, FLOW, BlockRange { first, count: count as u32 });
        for number in blocks.start..blocks.start + count {
            let len = self.len(number);
            let known = self.blocks.get_mut(&number).expect("a block of the object");
            // A skipped block that was sent no longer counts against the grant: the receiver
            // has it already and does not write the duplicate.
            if known.sends > 0 && !known.skipped {
                self.first_bytes = self.first_bytes.saturating_sub(len);
            }
            (known.reported, known.sure, known.skipped) = (true, true, true);
        }
    }

    fn grant(&mut self, blocks: u64) {
        self.sequence += 1;
        let grant = self.grant + Bytes::new(blocks.saturating_mul(1000));
        self.grant = grant;
        let pulse = Pulse { sequence: self.sequence, grant, ..Pulse::default() };
        self.sender.on_control(self.now, FLOW, &Control::Pulse(pulse));
    }

    fn later(&mut self, millis: u64) {
        self.now += Span::from_millis(millis);
        self.waits += 1;
        self.sender.on_timeout(self.now);
    }

    fn check(&mut self) {
        while self.sender.poll_control(self.now).is_some() {}
        while self.sender.poll_event().is_some() {}
        let accounting = self.sender.accounting();
        let sent = self.blocks.values().filter(|known| known.sends > 0).count() as u64;
        assert_eq!((accounting.sent, accounting.first), (self.sent, sent));
        assert_eq!(accounting.sent, accounting.first + accounting.retransmitted);
        if self.sender.is_finished() {
            assert!(
                self.blocks.values().all(|known| known.reported),
                "the sender is finished, but a block is missing"
            );
            assert_eq!(self.sender.next_wakeup(), Wake::OnInput);
        } else {
            assert!(
                !self.blocks.values().all(|known| known.sure),
                "all blocks arrived, but the sender is not finished"
            );
        }
    }

    /// After all operations: checks that the sender sends every block that no message has reported
    /// as received.
    fn finish(&mut self) {
        for _ in 0..40 {
            self.grant(BLOCKS);
            self.hear(6, &(0..1), 0, 8);
            let rest = 0..BLOCKS;
            self.hear(8, &rest, u64::MAX, 5);
            // Acknowledges the blocks before the first block that was neither sent nor received.
            let gone = self.blocks.values().take_while(|known| known.sends > 0 || known.reported);
            let gone = gone.count() as u64;
            self.hear(4, &(0..gone), 0, 0);
            self.later(100);
            self.send(60);
        }
        assert!(self.sender.is_finished() || self.is_all_out(), "a block was never sent");
    }

    fn is_all_out(&self) -> bool {
        self.blocks.values().all(|known| known.sends > 0 || known.reported)
    }
}

#[derive(Clone, Debug, Default)]
struct Meaning {
    about: Range<u64>,
    missing: Vec<u64>,
    /// Whether blocks not listed as missing have certainly arrived.
    sure: bool,
}

/// Runs a protocol's sender through the operations, and then until everything is sent.
fn run(row: &Row, settings: Settings, mbps: u64, steps: &[Step]) {
    let setup = setup(1, BLOCKS, SEGMENT, Some(Rate::from_mbps(mbps)), RTT);
    let mut pair = Pair::new(row, &Setup { grant: Bytes::new(30_000), settings, ..setup });
    for step in steps {
        match step {
            Step::Send(polls) => pair.send(*polls),
            Step::Hear(kind, blocks, draw, number) => pair.hear(*kind, blocks, *draw, *number),
            Step::Skip(blocks) => pair.skip(blocks),
            Step::Grant(blocks) => pair.grant(*blocks),
            Step::Later(millis) => pair.later(*millis),
        }
        pair.check();
    }
    pair.finish();
    pair.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_sender_conforms_to_a_simple_model(
        // Rates at which a burst of the pacer has 4 blocks, or 48 blocks.
        mbps in prop::sample::select(vec![40, 400]), steps in steps(),
    ) {
        for row in all() {
            run(row, settings(row), mbps, &steps);
        }
    }
}

fn run_broken(sender: fn(&Setup) -> BoxedSender) {
    let row = &all()[0];
    run(&Row { sender, ..*row }, settings(row), 400, &[Step::Grant(90), Step::Send(60)]);
}

#[test]
fn a_sound_sender_passes_the_model() {
    run_broken(|setup| (all()[0].sender)(setup));
}

#[test]
#[should_panic(expected = "for no reason")]
fn a_sender_that_resends_blocks_that_are_not_missing_is_detected() {
    run_broken(|setup| broken(setup, Flaw::Repeats));
}

#[test]
#[should_panic(expected = "out of order")]
fn a_sender_that_reverses_the_order_of_its_blocks_is_detected() {
    run_broken(|setup| broken(setup, Flaw::Disorders));
}

#[test]
#[should_panic(expected = "which was lost")]
fn a_sender_that_sends_new_blocks_before_lost_ones_is_detected() {
    let row = &all()[0];
    let deaf = Row { name: LOST_FIRST[0], sender: |setup| broken(setup, Flaw::Deaf), ..*row };
    let lost = Step::Hear(3, 0..5, u64::MAX, 0);
    run(&deaf, settings(row), 400, &[Step::Grant(90), Step::Send(1), lost, Step::Send(60)]);
}

/// Settings without extra copies, early blocks or a limiting window; buffers have [`BUFFER`]
/// blocks.
fn settings(row: &'static Row) -> Settings {
    let wanted = [("tail-copies", 1.0), ("buffer", BUFFER as f64), ("early", 0.0), ("window", 1e9)];
    let has = |name: &str| row.options.iter().any(|option| option.name == name);
    wanted.into_iter().filter(|(name, _)| has(name)).fold(Settings::default(), |settings, set| {
        settings.with(row, set.0, set.1).expect("a setting of the protocol")
    })
}
