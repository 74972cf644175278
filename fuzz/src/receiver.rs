//! Every protocol's receiver with a sender that sends anything, in any order, at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use longhaul_proto::coded::{SYMBOLS, Symbol};
use longhaul_proto::endpoint::{
    Arrival, BlockRange, BoxedReceiver, Event, FlowId, PacketNumber, Setup,
};
use longhaul_proto::layout::Block;
use longhaul_proto::registry::Row;
use longhaul_proto::tally::Tally;
use longhaul_proto::time::Time;
use longhaul_proto::units::{Bytes, Rate};
use longhaul_proto::wire::{Control, Header, Report};

use super::flow::{self, Driven, FLOW, ROUNDS, check_wire, is_due, later, message};
use super::input::Input;

/// A second flow that gets no input.
const OTHER: FlowId = FlowId(FLOW.0 + 1);

/// Checks that the receiver does not keep its driver (the code that polls it) busy without end,
/// acknowledge missing blocks, or request blocks that have arrived. Its counts must be right, and
/// other flows unchanged.
pub fn run(bytes: &[u8]) {
    flow::run::<Receiving>(bytes);
}

pub fn heard(row: &'static Row, bytes: &[u8]) -> Vec<Control> {
    flow::run_by::<Receiving>(row, bytes).heard
}

struct Receiving {
    /// Whether the receiver accepts only requested blocks (GTP, section 3.3).
    picky: bool,
    /// Whether the receiver accepts coded symbols. Each can replace any missing block of its chunk.
    coded: bool,
    symbols: BTreeSet<Symbol>,
    setup: Setup,
    receiver: BoxedReceiver,
    now: Time,
    /// Blocks that arrived, were restored or were skipped, numbered from the start of the object.
    there: Tally,
    /// Packet numbers that arrived. A driver passes each number only once.
    numbers: BTreeSet<u64>,
    next: u64,
    arrived: u64,
    refused: u64,
    finished: bool,
    heard: Vec<Control>,
}

impl Driven for Receiving {
    fn new(row: &'static Row, setup: Setup) -> Receiving {
        let mut receiver = (row.receiver)();
        receiver.add_flow(Time::ZERO, &setup);
        receiver.add_flow(Time::ZERO, &Setup { flow: OTHER, ..setup.clone() });
        let blocks = u32::try_from(setup.layout.blocks()).expect("a small object");
        Receiving {
            picky: row.name == "gtp",
            coded: row.name == "rbudp",
            symbols: BTreeSet::new(),
            setup,
            receiver,
            now: Time::ZERO,
            there: Tally::new(blocks),
            numbers: BTreeSet::new(),
            next: 0,
            arrived: 0,
            refused: 0,
            finished: false,
            heard: Vec::new(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 8 {
            0 => self.now = later(input, self.now),
            1 => self.receiver.on_timeout(self.now),
            2 => self.skip(input),
            3 => {
                let drain = input.flag().then(|| Rate::from_bps(input.any()));
                self.receiver.set_grant(self.now, FLOW, Bytes::new(input.any()), drain);
                self.receiver.set_socket_lost(self.now, FLOW, input.any());
            }
            4 => {
                if let Some(control) = message(input, &self.setup.layout) {
                    self.receiver.on_control(self.now, FLOW, &control);
                    self.receiver.on_control(self.now, FlowId(OTHER.0 + 1), &control);
                    self.heard.push(control);
                }
            }
            5 => self.run_of_blocks(input),
            6 => self.coded(input),
            _ => self.datagrams(input),
        }
    }

    fn look(&mut self) {
        let most = ROUNDS + 10 * u64::from(self.setup.layout.segments());
        for round in 0.. {
            assert!(round < most, "the receiver sends messages without end at one moment");
            if let Some(outgoing) = self.receiver.poll_control(self.now) {
                check_wire(&outgoing.control);
                match &outgoing.control {
                    control if outgoing.flow == FLOW => self.check(control),
                    Control::Report(_) | Control::Selective(_) | Control::Loss(_) => {
                        panic!("the receiver reports on a flow without arrivals")
                    }
                    _ => {}
                }
            } else if is_due(self.receiver.next_wakeup(), self.now) {
                self.receiver.on_timeout(self.now);
            } else {
                break;
            }
        }
        while let Some((flow, event)) = self.receiver.poll_event() {
            if flow == FLOW {
                assert!(!self.finished, "{event:?} after it has finished");
                self.finished = event == Event::Finished;
                if let Event::Restored { chunk } = event {
                    let (first, count) = self.setup.layout.blocks_of_chunk(chunk);
                    for index in first.index..first.index + count {
                        self.there.mark(self.setup.layout.number(Block { index, ..first }) as u32);
                    }
                }
            } else {
                assert_eq!(event, Event::Finished);
            }
        }
        assert_eq!(self.receiver.is_finished(FLOW), self.there.is_whole());
        assert_eq!(self.finished, self.there.is_whole());
        assert_eq!(self.receiver.is_finished(OTHER), self.setup.layout.segments() == 0);
        let counts = self.receiver.accounting(FLOW).expect("the flow is there");
        assert_eq!(counts.received, self.arrived);
        assert_eq!(counts.distinct + counts.duplicates, counts.received);
        assert!(counts.refused >= self.refused);
        assert!(counts.highest >= counts.received);
    }
}

impl Receiving {
    fn skip(&mut self, input: &mut Input<'_>) {
        let (first, count) = (self.block(input), input.any_u32());
        self.receiver.skip(self.now, FLOW, BlockRange { first, count });
        let layout = &self.setup.layout;
        let end = first.index.saturating_add(count).min(layout.blocks_in(first.segment));
        for index in first.index..end {
            self.there.mark(layout.number(Block { index, ..first }) as u32);
        }
    }

    /// Returns a block, usually one of the object's.
    fn block(&self, input: &mut Input<'_>) -> Block {
        let layout = &self.setup.layout;
        let segment = input.mostly_below(layout.segments().max(1));
        let index = input.mostly_below(layout.blocks_in(segment).max(1));
        Block { segment, index }
    }

    /// Lets a batch of any blocks arrive, with any packet numbers.
    fn datagrams(&mut self, input: &mut Input<'_>) {
        let mut arrivals = Vec::new();
        for _ in 0..=input.byte() % 16 {
            let number = match input.byte() {
                255 => input.any() % Header::NUMBERS,
                gap => self.next + u64::from(gap % 3),
            };
            let block = self.block(input);
            arrivals.extend(self.first_seen(number, block));
        }
        self.arrive(&arrivals);
    }

    /// Lets a batch of blocks arrive in order.
    fn run_of_blocks(&mut self, input: &mut Input<'_>) {
        let first = self.block(input);
        let count = input.any_u32() % 3_000;
        let mut arrivals = Vec::new();
        for index in first.index..first.index.saturating_add(count) {
            let block = Block { index, ..first };
            arrivals.extend(self.first_seen(self.next, block));
        }
        self.arrive(&arrivals);
    }

    /// Lets a batch of coded symbols of a chunk arrive.
    fn coded(&mut self, input: &mut Input<'_>) {
        let chunk = self.setup.layout.chunk_of(self.block(input));
        let mut arrivals = Vec::new();
        for _ in 0..=input.byte() % 16 {
            let symbol = Symbol { chunk, number: input.byte() % SYMBOLS };
            let block = symbol.block(&self.setup.layout);
            arrivals.extend(block.and_then(|block| self.first_seen(self.next, block)));
        }
        self.arrive(&arrivals);
    }

    fn first_seen(&mut self, number: u64, block: Block) -> Option<Arrival> {
        if number >= Header::NUMBERS || !self.numbers.insert(number) {
            return None;
        }
        self.next = self.next.max(number + 1);
        Some(Arrival { number: PacketNumber(number), block, at: self.now })
    }

    fn arrive(&mut self, arrivals: &[Arrival]) {
        let at_once = if self.picky { 1 } else { arrivals.len().max(1) };
        for batch in arrivals.chunks(at_once) {
            let before = self.received();
            self.receiver.on_datagrams(self.now, FLOW, batch);
            let is_refused = self.picky && self.received() == before;
            let layout = &self.setup.layout;
            for Arrival { block, .. } in batch {
                if let Some(symbol) = Symbol::of(layout, *block).filter(|_| self.coded) {
                    self.symbols.insert(symbol);
                    self.arrived += 1;
                } else if block.index < layout.blocks_in(block.segment) && !is_refused {
                    self.there.mark(layout.number(*block) as u32);
                    self.arrived += 1;
                } else {
                    self.refused += 1;
                }
            }
        }
    }

    fn received(&self) -> u64 {
        self.receiver.accounting(FLOW).expect("the flow is there").received
    }

    fn check(&self, control: &Control) {
        match control {
            Control::Report(report) => self.names_enough(report),
            Control::Selective(selective) => {
                // The receiver may report an arrival late, but never early.
                let told = selective.report.missing();
                let lacks = |run: &Range<u32>| told.iter().any(|told| covers(told, run));
                assert!(self.missing(&selective.report).iter().all(lacks), "{selective:?}");
            }
            Control::Ack(ack) => assert!(self.there.missing(0..ack.next as u32).next().is_none()),
            Control::Loss(loss) => self.lacks(loss.lost()),
            Control::Request(request) => self.lacks(request.blocks()),
            _ => {}
        }
    }

    /// Checks that a report names only missing blocks, and that it names them all. For each coded
    /// symbol that has arrived, the report may omit one missing block of the symbol's chunk.
    fn names_enough(&self, report: &Report) {
        let (layout, named) = (&self.setup.layout, report.missing());
        let missing = self.missing(report);
        if self.symbols.is_empty() {
            assert_eq!(named, missing);
        }
        let mut unnamed = BTreeMap::new();
        for index in missing.iter().cloned().flatten() {
            let block = Block { segment: report.segment(), index };
            if !named.iter().any(|run| run.contains(&index)) {
                *unnamed.entry(layout.chunk_of(block)).or_insert(0) += 1;
            }
        }
        for (chunk, count) in unnamed {
            assert!(count <= self.symbols.iter().filter(|symbol| symbol.chunk == chunk).count());
        }
        let is_missing = |run: &Range<u32>| missing.iter().any(|missing| covers(missing, run));
        assert!(named.iter().all(is_missing));
    }

    /// Returns the missing blocks of a report's slice (the part of the segment that it covers).
    fn missing(&self, report: &Report) -> Vec<Range<u32>> {
        let layout = &self.setup.layout;
        let segment = report.segment();
        let base = layout.number(Block { segment, index: 0 }) as u32;
        let slice = report.slice();
        assert!(slice.end <= layout.blocks_in(segment));
        let missing = self.there.missing(base + slice.start..base + slice.end);
        missing.map(|run| run.start - base..run.end - base).collect()
    }

    fn lacks(&self, wanted: &[Range<u64>]) {
        for run in wanted.iter().map(|run| run.start as u32..run.end as u32) {
            let missing: Vec<_> = self.there.missing(run.clone()).collect();
            assert_eq!(missing, [run]);
        }
    }
}

fn covers(outer: &Range<u32>, inner: &Range<u32>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}
