//! Every protocol's sender with a receiver that sends anything, at any time.

use std::collections::BTreeSet;

use longhaul_proto::coded::Symbol;
use longhaul_proto::endpoint::{BlockRange, BoxedSender, Event, FlowId, PacketNumber, Setup};
use longhaul_proto::layout::Block;
use longhaul_proto::ranges::RangeSet;
use longhaul_proto::registry::Row;
use longhaul_proto::time::Time;
use longhaul_proto::units::Bytes;
use longhaul_proto::wire::{Control, Header};

use super::flow::{self, Driven, FLOW, ROUNDS, check_wire, is_due, later, message};
use super::input::Input;

/// Checks that the sender does not keep its driver (the code that polls it) busy without end. The
/// sender must not send blocks that are outside the object or that the receiver has. It must not
/// exceed the receiver's grant or a fixed rate, or send after it has finished.
pub fn run(bytes: &[u8]) {
    flow::run::<Sending>(bytes);
}

pub fn heard(row: &'static Row, bytes: &[u8]) -> Vec<Control> {
    flow::run_by::<Sending>(row, bytes).heard
}

struct Sending {
    row: &'static Row,
    setup: Setup,
    sender: BoxedSender,
    now: Time,
    next: u64,
    blocks: Vec<Block>,
    sent: BTreeSet<u64>,
    /// Blocks that must not be sent any more.
    needless: BTreeSet<u64>,
    /// Blocks that any request to GTP's sender has named. A request that the sender accepts grants
    /// its blocks.
    requested: RangeSet,
    /// Sent blocks that count towards the grant.
    charged: BTreeSet<u64>,
    charged_bytes: Bytes,
    grant: Bytes,
    sent_in_all: u64,
    finished: bool,
    heard: Vec<Control>,
}

impl Driven for Sending {
    fn new(row: &'static Row, setup: Setup) -> Sending {
        let mut sender = (row.sender)(&setup);
        sender.allow_coded();
        Sending {
            row,
            grant: setup.grant,
            setup,
            sender,
            now: Time::ZERO,
            next: 0,
            blocks: Vec::new(),
            sent: BTreeSet::new(),
            needless: BTreeSet::new(),
            requested: RangeSet::new(),
            charged: BTreeSet::new(),
            charged_bytes: Bytes::ZERO,
            sent_in_all: 0,
            finished: false,
            heard: Vec::new(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 8 {
            0 => self.now = later(input, self.now),
            1 => self.transmit(usize::from(input.byte())),
            2 => self.sender.on_timeout(self.now),
            3 => self.skip(input),
            4 => self.drive(),
            5 => {
                // Other datagrams of the flow also use packet numbers, so those of blocks may have
                // gaps.
                self.next = self.next.saturating_add(input.any()).min(Header::NUMBERS - (1 << 20));
            }
            _ => self.hear(input),
        }
    }

    fn look(&mut self) {
        let most = ROUNDS + 3 * u64::from(self.setup.layout.segments());
        for said in 0.. {
            assert!(said < most, "it sends messages without end");
            let Some(outgoing) = self.sender.poll_control(self.now) else { break };
            assert_eq!(outgoing.flow, FLOW);
            check_wire(&outgoing.control);
        }
        for told in 0.. {
            assert!(told < most, "it reports events without end");
            let Some(event) = self.sender.poll_event() else { break };
            assert!(!self.finished, "{event:?} after it has finished");
            if let Event::SegmentDone { segment } = event {
                let layout = &self.setup.layout;
                let indices = 0..layout.blocks_in(segment);
                let numbers = indices.map(|index| layout.number(Block { segment, index }));
                self.needless.extend(numbers);
            }
            self.finished |= event == Event::Finished;
        }
        assert_eq!(self.sender.is_finished(), self.finished);
        let counts = self.sender.accounting();
        assert_eq!(counts.sent, self.sent_in_all);
        assert_eq!(counts.first + counts.retransmitted, counts.sent);
        assert_eq!(counts.first, self.sent.len() as u64);
        if let Some(rate) = self.setup.fixed_rate() {
            // Some pacers count the time between datagrams, and round that time.
            let (of, most) = (self.sender.rate().as_bps(), rate.as_bps());
            let rounded = most.saturating_add(1 + most / (1 << 30));
            assert!(of <= rounded, "{of} bit/s is more than the fixed {rate}");
            assert!(of == most || self.row.name != "rbudp", "RBUDP sends at the fixed rate");
        }
    }
}

impl Sending {
    fn hear(&mut self, input: &mut Input<'_>) {
        let Some(control) = message(input, &self.setup.layout) else { return };
        // Messages for another flow are ignored.
        self.sender.on_control(self.now, FlowId(FLOW.0 + 1), &control);
        if let Control::Pulse(pulse) = &control {
            self.grant = self.grant.max(pulse.grant);
        }
        if let Control::Request(request) = &control
            && self.row.name == "gtp"
        {
            let all = self.setup.layout.blocks();
            for run in request.blocks() {
                self.requested.insert(run.start.min(all)..run.end.min(all));
            }
        }
        self.sender.on_control(self.now, FLOW, &control);
        self.heard.push(control);
    }

    fn skip(&mut self, input: &mut Input<'_>) {
        let layout = &self.setup.layout;
        let segment = input.mostly_below(layout.segments().max(1));
        let index = input.mostly_below(layout.blocks_in(segment).max(1));
        let blocks = BlockRange { first: Block { segment, index }, count: input.any_u32() };
        self.sender.skip(self.now, FLOW, blocks);
        let end = index.saturating_add(blocks.count).min(layout.blocks_in(segment));
        for block in (index..end).map(|index| Block { segment, index }) {
            let number = layout.number(block);
            // The receiver does not store blocks that were sent and then skipped, so they do not
            // use up the grant.
            if self.needless.insert(number) && self.charged.remove(&number) {
                let len = Bytes::new(layout.extent(block).len.into());
                self.charged_bytes = self.charged_bytes.saturating_sub(len);
            }
        }
    }

    fn transmit(&mut self, max: usize) {
        self.blocks.clear();
        let next = PacketNumber(self.next);
        self.sender.poll_transmit(self.now, next, max, &mut self.blocks);
        assert!(self.blocks.len() <= max);
        assert!(self.blocks.is_empty() || !self.finished, "it sends after it has finished");
        let layout = &self.setup.layout;
        for block in &self.blocks {
            if Symbol::of(layout, *block).is_some() {
                continue;
            }
            let number = layout.number(*block);
            assert_eq!(layout.block(number), Some(*block), "the object has no such block");
            assert!(!self.needless.contains(&number), "the receiver has {block:?} already");
            if self.sent.insert(number) && !self.requested.contains(number) {
                self.charged.insert(number);
                self.charged_bytes += Bytes::new(layout.extent(*block).len.into());
            }
        }
        assert!(self.charged_bytes <= self.grant, "it sends more than was granted");
        self.next += self.blocks.len() as u64;
        self.sent_in_all += self.blocks.len() as u64;
    }

    /// Drives the sender until it waits for a later time.
    fn drive(&mut self) {
        let most = ROUNDS + 2 * self.setup.layout.blocks();
        for _ in 0..most {
            if is_due(self.sender.next_wakeup(), self.now) {
                self.sender.on_timeout(self.now);
            }
            self.transmit(44);
            self.look();
            if self.blocks.is_empty() && !is_due(self.sender.next_wakeup(), self.now) {
                return;
            }
        }
        // A protocol that is not frugal repeats blocks without a report that they are missing, so
        // it may send any number of blocks before the time advances.
        if !self.row.frugal && !self.blocks.is_empty() {
            return;
        }
        let (now, wake) = (self.now, self.sender.next_wakeup());
        panic!("at {now:?} it wants to be driven for ever: {wake:?}, {:?}", self.setup);
    }
}
