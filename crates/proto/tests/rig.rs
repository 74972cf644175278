//! Any protocol's sender and receiver over a hostile channel, in virtual time.
//!
//! Several flows go to one receiver. Data datagrams are lost, copied, delayed and reordered.
//! Control messages pass through the codec and travel on an ordered stream with delays, or in
//! datagrams that are lost, copied and reordered like data. After each run the rig checks three
//! conditions. Everything sent has arrived, was dropped or is in flight. The counters of sender and
//! receiver agree with the channel's. Every block has arrived.
//!
//! A failure prints the seed that repeats it. Not modelled: encryption, the socket's buffer, and
//! the time that the code around the protocol takes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use longhaul_proto::coded::{Symbol, payload_len};
use longhaul_proto::endpoint::{
    Arrival, BlockRange, BoxedReceiver, BoxedSender, Carrier, Event, FlowId, Outgoing,
    PacketNumber, Setup, Wake,
};
use longhaul_proto::layout::{Block, Layout};
use longhaul_proto::registry::{Row, find};
use longhaul_proto::settings::Settings;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};
use longhaul_proto::wire::{Control, ErrorRate, MAX_CONTROL};

/// Maximum number of datagrams requested in one poll.
const BATCH: usize = 44;
/// Number of polls at one instant after which the run counts as stuck.
const MAX_POLLS: u32 = 1_000;

/// All randomness comes from one number (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn hits(&mut self, probability: f64) -> bool {
        ((self.next() >> 11) as f64 / (1u64 << 53) as f64) < probability
    }

    fn span(&mut self, most: Span) -> Span {
        Span::from_nanos(self.next() % (most.as_nanos() + 1))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Channel {
    /// One-way delay.
    pub(crate) delay: Span,
    /// The bottleneck towards the receiver, and its queue.
    pub(crate) bottleneck: Option<(Rate, Bytes)>,
    /// Loss ratio of data datagrams and of control messages in datagrams, in both directions.
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    /// Share of datagrams that are delayed, by up to `lateness`.
    pub(crate) reorder: f64,
    pub(crate) lateness: Span,
    /// Probability that a message of the stream is late, by up to `lateness`; later messages wait.
    pub(crate) stall: f64,
    /// Whether each reliable message is sent on the stream and also in a datagram.
    pub(crate) copies: bool,
    /// Start and end of an outage. A datagram sent in the outage is lost; a stream message sent in
    /// the outage arrives after the outage.
    pub(crate) outage: Option<(Time, Time)>,
    /// When the receiving host sleeps; it reads the arrived data datagrams at the end of the sleep.
    pub(crate) asleep: Option<(Time, Time)>,
}

impl Channel {
    pub(crate) fn perfect(delay: Span) -> Channel {
        Channel {
            delay,
            bottleneck: None,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            lateness: Span::ZERO,
            stall: 0.0,
            copies: false,
            outage: None,
            asleep: None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Host {
    Fast,
    /// Writes at this rate and buffers this much.
    Slow(Rate, Bytes),
    /// Writes immediately, but only complete chunks, and buffers this much: a missing block keeps
    /// its whole chunk in the buffer.
    Chunked(Bytes),
    /// Writes at this rate for half of each period, then pauses, and buffers this much.
    Stalling(Rate, Span, Bytes),
}

#[derive(Clone, Debug)]
enum Item {
    Data(PacketNumber, Block),
    ToReceiver(Vec<u8>),
    ToSender(Vec<u8>),
    SkipAtSender(BlockRange),
    SkipAtReceiver(BlockRange),
    Grant,
}

pub(crate) struct Flow {
    pub(crate) setup: Setup,
    pub(crate) sender: BoxedSender,
    pub(crate) events: Vec<Event>,
    pub(crate) received_events: Vec<Event>,
    pub(crate) finished_at: Option<Time>,
    pub(crate) sends: BTreeMap<Block, u32>,
    /// Whether, after the last poll, the sender waited only for a grant (permission to send more).
    pub(crate) blocked: bool,
    /// Additional one-way delay of the flow's path.
    pub(crate) further: Span,
    host: Host,
    next: u64,
    seen: BTreeSet<PacketNumber>,
    there: BTreeSet<Block>,
    copied: u64,
    pub(crate) dropped: u64,
    replayed: u64,
    stream: [Time; 2],
}

pub(crate) struct Rig {
    pub(crate) now: Time,
    pub(crate) flows: Vec<Flow>,
    pub(crate) receiver: BoxedReceiver,
    row: Row,
    seed: u64,
    chance: Chance,
    pub(crate) channel: Channel,
    under_way: std::collections::BinaryHeap<Reverse<(Time, u64, usize)>>,
    items: BTreeMap<u64, Item>,
    serial: u64,
    link_free: Time,
    polls: u32,
    /// Control messages sent so far, in both directions, on the stream or in datagrams.
    pub(crate) controls: u64,
    pub(crate) restarts: u32,
}

impl Drop for Rig {
    #[allow(clippy::print_stderr, reason = "a failed run says how to repeat it")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Rig { row, seed, channel, now, .. } = self;
            eprintln!("replay: {} seed {seed} at {now:?} over {channel:?}", row.name);
        }
    }
}

pub(crate) fn tail_copies(times: u32) -> Settings {
    let rbudp = find("rbudp").expect("it is registered");
    Settings::default().with(rbudp, "tail-copies", times.into()).expect("1 to 8 times")
}

/// A flow's setup; sizes in blocks of 1,000 bytes, chunks of 8 blocks.
pub(crate) fn setup(flow: u32, blocks: u64, segment: u64, rate: Option<Rate>, rtt: Span) -> Setup {
    let (object, segment) = (Bytes::new(blocks * 1000), Bytes::new(segment * 1000));
    Setup {
        flow: FlowId(flow),
        layout: Layout::new(object, segment, Bytes::new(8000), 1000).expect("sizes that fit"),
        overhead: Bytes::new(32),
        rtt,
        rate,
        rate_limit: None,
        card: None,
        law: longhaul_proto::law::Law::default(),
        weight: longhaul_proto::law::Weight::default(),
        remembered: None,
        grant: Bytes::MAX,
        settings: tail_copies(1),
    }
}

impl Flow {
    /// Received bytes of incomplete chunks, which a killed receiver would lose.
    pub(crate) fn unfinished(&self) -> Bytes {
        let layout = self.setup.layout;
        let chunk = |a: &&Block, b: &&Block| layout.chunk_of(**a) == layout.chunk_of(**b);
        let blocks: Vec<&Block> = self.there.iter().collect();
        let is_open = |run: &&[&Block]| {
            let (_, count) = layout.blocks_of_chunk(layout.chunk_of(*run[0]));
            (run.len() as u32) < count
        };
        let open = blocks.chunk_by(chunk).filter(is_open).flatten();
        Bytes::new(open.map(|block| u64::from(layout.extent(**block).len)).sum())
    }
}

impl Rig {
    pub(crate) fn new(row: &Row, seed: u64, channel: Channel) -> Rig {
        Rig {
            now: Time::ZERO,
            flows: Vec::new(),
            receiver: (row.receiver)(),
            row: *row,
            seed,
            chance: Chance::new(seed),
            channel,
            under_way: Default::default(),
            items: BTreeMap::new(),
            serial: 0,
            link_free: Time::ZERO,
            polls: 0,
            controls: 0,
            restarts: 0,
        }
    }

    pub(crate) fn add_flow(&mut self, mut setup: Setup, host: Host) {
        if let Host::Slow(_, budget) | Host::Chunked(budget) | Host::Stalling(.., budget) = host {
            setup.grant = budget;
            self.push(self.now, self.flows.len(), Item::Grant);
        }
        self.receiver.add_flow(self.now, &setup);
        let mut sender = (self.row.sender)(&setup);
        sender.allow_coded();
        self.flows.push(Flow {
            sender,
            setup,
            events: Vec::new(),
            received_events: Vec::new(),
            finished_at: None,
            sends: BTreeMap::new(),
            blocked: false,
            further: Span::ZERO,
            host,
            next: 0,
            seen: BTreeSet::new(),
            there: BTreeSet::new(),
            copied: 0,
            dropped: 0,
            replayed: 0,
            stream: [Time::ZERO; 2],
        });
    }

    /// At `at`, the receiver learns that another source has sent it `blocks`; one delay later, the
    /// sender learns the same.
    pub(crate) fn skip(&mut self, at: Time, flow: usize, blocks: BlockRange) {
        self.skip_apart([at, at + self.channel.delay], flow, blocks);
    }

    /// At `at[0]`, the receiver learns that another source has sent it `blocks`; at `at[1]`, the
    /// sender learns the same.
    pub(crate) fn skip_apart(&mut self, at: [Time; 2], flow: usize, blocks: BlockRange) {
        self.push(at[0], flow, Item::SkipAtReceiver(blocks));
        self.push(at[1], flow, Item::SkipAtSender(blocks));
    }

    /// Runs until every sender knows that its object has arrived; then audits.
    pub(crate) fn run(&mut self, limit: Span) {
        self.finish(limit);
        self.audit();
    }

    pub(crate) fn finish(&mut self, limit: Span) {
        let end = self.now + limit;
        while !self.step() {
            assert!(self.now <= end, "not finished after {limit}");
        }
    }

    /// Advances to the next instant; returns whether every sender has finished.
    pub(crate) fn step(&mut self) -> bool {
        self.pump_senders();
        self.pump_receiver();
        if self.flows.iter().all(|flow| flow.finished_at.is_some()) {
            return true;
        }
        let wakes = self.flows.iter().map(|flow| flow.sender.next_wakeup());
        let wake = wakes.fold(self.receiver.next_wakeup(), Wake::earlier);
        let wake = match wake {
            Wake::Now => self.now,
            Wake::At(at, _) => at,
            Wake::OnInput => Time::NEVER,
        };
        let arrival = self.under_way.peek().map_or(Time::NEVER, |Reverse((at, ..))| *at);
        let next = wake.min(arrival);
        assert!(next < Time::NEVER, "nothing will ever happen again");
        self.polls = if next > self.now { 0 } else { self.polls + 1 };
        assert!(self.polls < MAX_POLLS, "one instant was polled {MAX_POLLS} times");
        self.now = self.now.max(next);
        self.deliver();
        if wake <= self.now {
            self.flows.iter_mut().for_each(|flow| flow.sender.on_timeout(self.now));
            self.receiver.on_timeout(self.now);
        }
        false
    }

    fn push(&mut self, at: Time, flow: usize, item: Item) {
        self.serial += 1;
        self.items.insert(self.serial, item);
        self.under_way.push(Reverse((at, self.serial, flow)));
    }

    fn pump_senders(&mut self) {
        let mut batch = Vec::new();
        for index in 0..self.flows.len() {
            for turn in 0.. {
                assert!(turn < MAX_POLLS, "a sender sends without end in one instant");
                let flow = &mut self.flows[index];
                batch.clear();
                let first = PacketNumber(flow.next);
                flow.sender.poll_transmit(self.now, first, BATCH, &mut batch);
                assert!(batch.len() <= BATCH, "more blocks than were asked for");
                assert!(flow.finished_at.is_none() || batch.is_empty(), "sent after the end");
                flow.next += batch.len() as u64;
                if batch.is_empty() {
                    break;
                }
                for (offset, block) in batch.drain(..).enumerate() {
                    self.send_data(index, PacketNumber(first.0 + offset as u64), block);
                }
            }
            while let Some(outgoing) = self.flows[index].sender.poll_control(self.now) {
                self.send_control(index, outgoing, 0);
            }
            let flow = &mut self.flows[index];
            flow.blocked = flow.sender.is_blocked_by_grant();
            while let Some(event) = flow.sender.poll_event() {
                flow.events.push(event);
            }
            if flow.finished_at.is_none() && flow.sender.is_finished() {
                flow.finished_at = Some(self.now);
                assert_eq!(flow.events.last(), Some(&Event::Finished));
            }
        }
    }

    fn pump_receiver(&mut self) {
        let mut turns = 0;
        while let Some(outgoing) = self.receiver.poll_control(self.now) {
            let of = |flow: &Flow| flow.setup.flow == outgoing.flow;
            let index = self.flows.iter().position(of).expect("a message of a flow that exists");
            self.note_restart(&outgoing.control);
            self.send_control(index, outgoing, 1);
            turns += 1;
            assert!(turns < MAX_POLLS, "a receiver speaks without end in one instant");
        }
        while let Some((id, event)) = self.receiver.poll_event() {
            let of = |flow: &&mut Flow| flow.setup.flow == id;
            let flow = self.flows.iter_mut().find(of).expect("an event of a flow that exists");
            if let Event::Restored { chunk } = event {
                let (first, count) = flow.setup.layout.blocks_of_chunk(chunk);
                let blocks = first.index..first.index + count;
                flow.there.extend(blocks.map(|index| Block { index, ..first }));
            }
            flow.received_events.push(event);
        }
    }

    fn note_restart(&mut self, control: &Control) {
        let is_restart = matches!(control, Control::ErrorRate(ErrorRate { restart: Some(_), .. }));
        self.restarts += u32::from(is_restart);
    }

    fn is_out(&self) -> bool {
        self.channel.outage.is_some_and(|(from, to)| (from..to).contains(&self.now))
    }

    /// The arrival time of a datagram sent now, without the flow's `further` delay; `None` if the
    /// datagram is lost.
    fn fate(&mut self, bytes: Bytes, forward: bool) -> Option<Time> {
        if self.is_out() {
            return None;
        }
        let mut at = self.now;
        if let Some((rate, queue)) = self.channel.bottleneck.filter(|_| forward) {
            if rate.over(self.link_free.since(self.now)) > queue {
                return None;
            }
            self.link_free = self.link_free.max(self.now) + bytes / rate;
            at = self.link_free;
        }
        if self.chance.hits(self.channel.loss) {
            return None;
        }
        at += self.channel.delay;
        if self.chance.hits(self.channel.reorder) {
            at += self.chance.span(self.channel.lateness);
        }
        Some(at)
    }

    fn send_data(&mut self, index: usize, number: PacketNumber, block: Block) {
        let setup = &self.flows[index].setup;
        let (layout, overhead) = (setup.layout, setup.overhead);
        let len = payload_len(&layout, block);
        assert!(len > 0, "{block:?} is not of the object");
        let bytes = Bytes::new(len.into()) + overhead;
        if Symbol::of(&layout, block).is_none() {
            *self.flows[index].sends.entry(block).or_default() += 1;
        }
        let copies = if self.chance.hits(self.channel.duplicate) { 2 } else { 1 };
        let further = self.flows[index].further;
        self.flows[index].copied += copies - 1;
        for _ in 0..copies {
            match self.fate(bytes, true) {
                Some(at) => self.push(at + further, index, Item::Data(number, block)),
                None => self.flows[index].dropped += 1,
            }
        }
    }

    fn send_control(&mut self, index: usize, outgoing: Outgoing, direction: usize) {
        self.controls += 1;
        let mut bytes = Vec::new();
        outgoing.control.encode(&mut bytes);
        assert!(bytes.len() <= MAX_CONTROL, "a message of {} bytes", bytes.len());
        let item = |bytes: Vec<u8>| match direction {
            0 => Item::ToReceiver(bytes),
            _ => Item::ToSender(bytes),
        };
        let further = self.flows[index].further;
        if outgoing.carrier == Carrier::Datagram || self.channel.copies {
            let copies = if self.chance.hits(self.channel.duplicate) { 2 } else { 1 };
            for _ in 0..copies {
                if let Some(at) = self.fate(Bytes::new(bytes.len() as u64), false) {
                    self.push(at + further, index, item(bytes.clone()));
                }
            }
        }
        if outgoing.carrier == Carrier::Reliable {
            let mut at = self.now + self.channel.delay + further;
            if let Some((_, to)) = self.channel.outage.filter(|_| self.is_out()) {
                at = to + self.channel.delay;
            }
            if self.chance.hits(self.channel.stall) {
                at += self.chance.span(self.channel.lateness);
            }
            let stream = &mut self.flows[index].stream[direction];
            *stream = (*stream).max(at);
            let at = *stream;
            self.push(at, index, item(bytes));
        }
    }

    fn deliver(&mut self) {
        while let Some(Reverse((at, serial, index))) = self.under_way.peek().copied()
            && at <= self.now
        {
            self.under_way.pop();
            let item = self.items.remove(&serial).expect("each serial is pushed once");
            let (now, id) = (self.now, self.flows[index].setup.flow);
            let decode = |bytes: Vec<u8>| Control::decode(&bytes).expect("what we encoded");
            let asleep = self.channel.asleep.filter(|(from, to)| (*from..*to).contains(&now));
            match item {
                Item::Data(..) if let Some((_, to)) = asleep => self.push(to, index, item),
                Item::Data(number, block) => self.arrive(index, number, block),
                Item::ToReceiver(bytes) => self.receiver.on_control(now, id, &decode(bytes)),
                Item::ToSender(bytes) => {
                    self.flows[index].sender.on_control(now, id, &decode(bytes));
                }
                Item::SkipAtSender(blocks) => self.flows[index].sender.skip(now, id, blocks),
                Item::SkipAtReceiver(blocks) => {
                    let flow = &mut self.flows[index];
                    let segment = blocks.first.segment;
                    let indices = blocks.indices(&flow.setup.layout);
                    flow.there.extend(indices.map(|index| Block { segment, index }));
                    self.receiver.skip(now, id, blocks);
                }
                Item::Grant => self.grant(index),
            }
        }
    }

    fn arrive(&mut self, index: usize, number: PacketNumber, block: Block) {
        let flow = &mut self.flows[index];
        if !flow.seen.insert(number) {
            flow.replayed += 1;
            return;
        }
        if Symbol::of(&flow.setup.layout, block).is_none() {
            flow.there.insert(block);
        }
        let id = flow.setup.flow;
        self.receiver.on_datagrams(self.now, id, &[Arrival { number, block, at: self.now }]);
    }

    fn grant(&mut self, index: usize) {
        let flow = &self.flows[index];
        let layout = flow.setup.layout;
        let len = |block: Block| u64::from(layout.extent(block).len);
        let there = || Bytes::new(flow.there.iter().map(|block| len(*block)).sum());
        let ran = self.now.since(Time::ZERO);
        let (written, budget, drain) = match flow.host {
            Host::Fast => return,
            Host::Slow(rate, budget) => (there().min(rate.over(ran)), budget, Some(rate)),
            Host::Stalling(rate, period, budget) => {
                let periods = ran.as_nanos() / period.as_nanos();
                let rest = ran - period * periods;
                let wrote = period / 2 * periods + rest.min(period / 2);
                (there().min(rate.over(wrote)), budget, None)
            }
            Host::Chunked(budget) => (there() - flow.unfinished(), budget, None),
        };
        self.receiver.set_grant(self.now, flow.setup.flow, written + budget, drain);
        if flow.finished_at.is_none() {
            self.push(self.now + Span::from_millis(5), index, Item::Grant);
        }
    }

    /// Lets another `span` pass after all flows have finished.
    pub(crate) fn linger(&mut self, span: Span) {
        let end = self.now + span;
        while let Some(Reverse((at, ..))) = self.under_way.peek().copied()
            && at <= end
        {
            self.now = self.now.max(at);
            self.deliver();
            self.pump_senders();
            self.pump_receiver();
        }
        for flow in &self.flows {
            assert_eq!(flow.sender.next_wakeup(), Wake::OnInput, "a finished sender wants to wake");
        }
    }

    pub(crate) fn audit(&self) {
        for (index, flow) in self.flows.iter().enumerate() {
            let blocks = flow.setup.layout.blocks();
            let (sent, id) = (flow.sender.accounting(), flow.setup.flow);
            let came = self.receiver.accounting(id).expect("a flow that was added");
            let mine = |(_, serial, of): &(Time, u64, usize)| {
                *of == index && matches!(self.items.get(serial), Some(Item::Data(..)))
            };
            let under_way = self.under_way.iter().filter(|Reverse(entry)| mine(entry)).count();
            let under_way = under_way as u64;
            assert_eq!(sent.sent, flow.next);
            assert_eq!(sent.sent, sent.first + sent.retransmitted);
            assert_eq!(came.received, came.distinct + came.duplicates);
            assert_eq!(came.received, flow.seen.len() as u64);
            assert_eq!(
                sent.sent + flow.copied,
                came.received + flow.replayed + flow.dropped + under_way
            );
            assert_eq!(sent.first, flow.sends.len() as u64);
            // A report does not name a lost block that a coded symbol has restored.
            let known = came.reported_lost + came.recovered + came.duplicates;
            assert!(came.blocks_lost <= known.min(blocks));
            assert!(sent.first <= blocks && came.distinct <= blocks);
            assert_eq!((sent.refused, came.refused), (0, 0));
            assert_eq!(flow.there.len() as u64, blocks, "the object is not whole");
            assert!(self.receiver.is_finished(id));
            let done = |events: &[Event]| {
                let done = events.iter().filter(|e| matches!(e, Event::SegmentDone { .. }));
                (done.count(), events.iter().filter(|e| **e == Event::Finished).count())
            };
            let segments = flow.setup.layout.segments() as usize;
            assert_eq!(done(&flow.events), (segments, 1));
            assert_eq!(done(&flow.received_events), (segments, 1));
        }
    }
}
