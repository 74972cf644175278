//! The verbs by which every protocol is driven.
//!
//! A protocol is a [`Sender`] and a [`Receiver`]. Both are driven, never driving: input comes in
//! by `on_*` with the time as an argument, output is polled, and `next_wakeup` says when to come
//! back and why. After any `on_*` the driver polls until nothing is left. Every verb names its
//! flow: a sender has one, a receiver may have many.
//!
//! The core names blocks, the driver moves bytes. Packet numbers are counted where datagrams are
//! sealed and nowhere else; the driver tells the core which numbers its blocks will get.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use crate::accounting::{ReceiverAccounting, SenderAccounting};
use crate::law::Law;
use crate::layout::{Block, Layout};
use crate::remembered::Remembered;
use crate::settings::Settings;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::Control;

pub use crate::wire::{FlowId, PacketNumber};

/// A data datagram that has arrived and is genuine, seen for the first time under its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number.
    pub number: PacketNumber,
    /// The block that it carried.
    pub block: Block,
    /// When it came to the host: no later than it is told, and sooner where the program was busy.
    pub at: Time,
}

/// A run of blocks of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// The first.
    pub first: Block,
    /// How many; at least 1.
    pub count: u32,
}

impl BlockRange {
    /// What of it the object has, within its segment; empty if it has none of it.
    pub fn indices(&self, layout: &Layout) -> Range<u32> {
        let BlockRange { first: Block { segment, index }, count } = *self;
        let end = index.saturating_add(count).min(layout.blocks_in(segment));
        index.min(end)..end
    }

    /// The same, counted through the object.
    pub fn numbers(&self, layout: &Layout) -> Range<u64> {
        let indices = self.indices(layout);
        let base = layout.number(Block { index: 0, ..self.first });
        base + u64::from(indices.start)..base + u64::from(indices.end)
    }
}

/// How a control message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The session's ordered, reliable stream. The driver may send a copy ahead by datagram, so
    /// every control message is idempotent and may come twice, early or out of order.
    Reliable,
    /// One sealed datagram that may be lost.
    Datagram,
}

/// A control message on its way out.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// The flow it belongs to.
    pub flow: FlowId,
    /// How it travels.
    pub carrier: Carrier,
    /// What it says.
    pub control: Control,
}

/// Why the core wants to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The pacer releases the next burst.
    Pacing,
    /// A report is due, or its reordering grace ends.
    Report,
    /// The other side's answer is late; say it again.
    Repeat,
    /// A pulse is due.
    Pulse,
    /// Nothing has come back for too long (RFC 8085's circuit breaker).
    Breaker,
}

/// When the core wants to be driven next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// At once: there is output to poll.
    Now,
    /// At this time, for this reason, if no input comes earlier.
    At(Time, Why),
    /// Only when input comes.
    OnInput,
}

impl Wake {
    /// The earlier of two wake-ups.
    pub fn earlier(self, other: Wake) -> Wake {
        match (self, other) {
            (Wake::Now, _) | (_, Wake::Now) => Wake::Now,
            (Wake::At(a, _), Wake::At(b, _)) => {
                if b < a {
                    other
                } else {
                    self
                }
            }
            (Wake::OnInput, other) => other,
            (first, Wake::OnInput) => first,
        }
    }
}

/// What the driver and its user may want to know; one vocabulary for progress, traces, monitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A round over a segment has been sent whole, or reported.
    Round {
        /// The segment.
        segment: u32,
        /// The round, from 1.
        round: u32,
        /// Blocks that the round had (sender) or that are missing after it (receiver).
        blocks: u32,
    },
    /// Every block of the segment is known to have arrived.
    SegmentDone {
        /// The segment.
        segment: u32,
    },
    /// The network is in another state, to which this rate belongs.
    Rate(Rate),
    /// Nothing of the object is missing.
    Finished,
    /// Nothing came back for this long; the sender has stopped (RFC 8085, section 3.1.10).
    Silent(Span),
    /// Something came back again after [`Event::Silent`]; sending goes on.
    Resumed,
}

/// What a protocol is told at the start of a flow.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The flow.
    pub flow: FlowId,
    /// How the object is cut.
    pub layout: Layout,
    /// Bytes of a datagram's UDP payload that are not its block: header and tag.
    pub overhead: Bytes,
    /// The session's estimate of the round-trip time.
    pub rtt: Span,
    /// The rate that the user fixed, in bits a second of UDP payload. It is never exceeded, and it
    /// never reacts to loss, unless that is what the protocol is about (its page says so).
    /// Without it the protocol finds its rate by itself.
    pub rate: Option<Rate>,
    /// The most that a protocol which finds its rate by itself may send; also in bits a second of
    /// UDP payload. Beside a fixed rate the smaller of the two holds.
    pub rate_limit: Option<Rate>,
    /// What the sending host's card puts out of UDP payload in full datagrams, in bits a second,
    /// where that is known; told to the sending end only. A protocol whose receiver shares its
    /// link out tells it there, another makes its highest rate of it and the receiving host's
    /// ([`Sender::set_peer_card`]). It is no limit of its own, for a card holds its programs back.
    pub card: Option<Rate>,
    /// How the protocol finds its rate, if it has none and no law of its own.
    pub law: Law,
    /// What the path was like before; used by a protocol that finds its rate by `law`. It is a
    /// hint that may come from the other end, and the path's first report overrules it.
    pub remembered: Option<Remembered>,
    /// How much may be sent for the first time before the receiver grants more.
    pub grant: Bytes,
    /// The protocol's own settings.
    pub settings: Settings,
}

impl Setup {
    /// A flow that finds its rate by itself, under no limit, with every setting at its default.
    pub fn new(flow: FlowId, layout: Layout, rtt: Span) -> Setup {
        Setup {
            flow,
            layout,
            overhead: Bytes::ZERO,
            rtt,
            rate: None,
            rate_limit: None,
            card: None,
            law: Law::default(),
            remembered: None,
            grant: Bytes::MAX,
            settings: Settings::default(),
        }
    }

    /// The fixed rate, if there is one, as far as the limit lets it.
    pub fn fixed_rate(&self) -> Option<Rate> {
        self.rate.map(|rate| self.rate_limit.map_or(rate, |limit| rate.min(limit)))
    }

    /// The UDP payload of a full datagram.
    pub fn datagram(&self) -> Bytes {
        Bytes::new(u64::from(self.layout.block_size())) + self.overhead
    }

    /// What is never exceeded: the smaller of the fixed rate and the limit.
    pub fn cap(&self) -> Option<Rate> {
        self.fixed_rate().or(self.rate_limit)
    }
}

/// What else came in on the receiving host's access link: TCP, and whatever is no flow of the
/// receiver's. Counted as if all of it were UDP: without Ethernet's header, IP's and 8 bytes more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Others {
    /// What the host's card takes of UDP payload in full datagrams, in bits a second; nothing
    /// where it is not known, or is no real card.
    pub link: Option<Rate>,
    /// Bytes that came in since a moment that stays the same.
    pub bytes: Bytes,
    /// About how many flows they came in; none counts as one.
    pub flows: u32,
}

/// Where a receiver knows from what it can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The user has said so.
    Given,
    /// It is the user's limit for all flows.
    Limit,
    /// It is what the host's card takes.
    Card,
    /// It was found by receiving.
    Found,
}

/// What a receiver that shares a link out takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReceiveCapacity {
    /// All its flows together, in bits a second of UDP payload.
    pub rate: Rate,
    /// What the link carries of everything, likewise.
    pub link: Rate,
    /// Where that comes from.
    pub origin: Origin,
    /// The share of the link that it may take, from 0 to 1.
    pub share: f64,
    /// What of the link is left to other traffic; nothing where that is not looked at.
    pub others: Option<Rate>,
}

/// The sending end of a protocol.
pub trait Sender: Send {
    /// A control message has come, by either carrier.
    fn on_control(&mut self, now: Time, flow: FlowId, control: &Control);

    /// The time that [`Sender::next_wakeup`] named has come.
    fn on_timeout(&mut self, now: Time);

    /// The receiver has these blocks from elsewhere: they are not sent, or not again.
    fn skip(&mut self, now: Time, flow: FlowId, blocks: BlockRange);

    /// What the receiving host's card takes of UDP payload in full datagrams, in bits a second:
    /// told soon after the flow's start, where it is known. A sender whose rate has nothing to do
    /// with cards takes no notice.
    fn set_peer_card(&mut self, _: Time, _: Rate) {}

    /// Appends to `out` the blocks to send now, at most `max`. The first will get packet number
    /// `next`, the others those that follow. Nothing appended: nothing is due now.
    fn poll_transmit(&mut self, now: Time, next: PacketNumber, max: usize, out: &mut Vec<Block>);

    /// The next control message to send.
    fn poll_control(&mut self, now: Time) -> Option<Outgoing>;

    /// The next event to tell.
    fn poll_event(&mut self) -> Option<Event>;

    /// When to come back. Valid after polling until nothing was left.
    fn next_wakeup(&self) -> Wake;

    /// Whether the receiver has said that nothing is missing.
    fn is_finished(&self) -> bool;

    /// Whether the flow waits for nothing but a higher grant.
    fn is_blocked_by_grant(&self) -> bool;

    /// The rate at which datagrams go out now, in bits a second of UDP payload.
    fn rate(&self) -> Rate;

    /// The smoothed round-trip time.
    fn rtt(&self) -> Span;

    /// The study's columns at the sending end.
    fn accounting(&self) -> &SenderAccounting;
}

/// The receiving end of a protocol.
pub trait Receiver: Send {
    /// A batch of genuine data datagrams has come.
    fn on_datagrams(&mut self, now: Time, flow: FlowId, arrivals: &[Arrival]);

    /// A control message has come, by either carrier.
    fn on_control(&mut self, now: Time, flow: FlowId, control: &Control);

    /// The time that [`Receiver::next_wakeup`] named has come.
    fn on_timeout(&mut self, now: Time);

    /// These blocks are there already (resumed, or implied by the object): count them as arrived.
    fn skip(&mut self, now: Time, flow: FlowId, blocks: BlockRange);

    /// The receiving host can take this much in all since the start of the flow (bytes of blocks
    /// sent for the first time), and drains at about this rate. Neither makes losses: the sender
    /// waits.
    fn set_grant(&mut self, now: Time, flow: FlowId, grant: Bytes, drain: Option<Rate>);

    /// The receiving host has dropped this many of the flow's datagrams before the flow saw them
    /// since the start, in its socket for want of buffer or before it knew the flow: a loss of the
    /// host, not of the path.
    fn set_socket_lost(&mut self, now: Time, flow: FlowId, lost: u64);

    /// Whether [`Receiver::set_others`] is of use. A receiver whose senders decide how fast they
    /// send takes no notice.
    fn wants_others(&self) -> bool {
        false
    }

    /// What the host's card takes, and what else came in on its access link; to be told some times
    /// a second, from the start. A receiver that shares the link out among its flows leaves the
    /// others what they would have among equals.
    fn set_others(&mut self, _: Time, _: Others) {}

    /// A limit for all flows together, in bits a second of UDP payload. A receiver whose senders
    /// decide how fast they send takes no notice.
    fn set_receive_limit(&mut self, _: Rate) {}

    /// What the receiver takes in all, where it shares that out.
    fn receive_capacity(&self) -> Option<ReceiveCapacity> {
        None
    }

    /// The next control message to send.
    fn poll_control(&mut self, now: Time) -> Option<Outgoing>;

    /// The next event to tell, with its flow.
    fn poll_event(&mut self) -> Option<(FlowId, Event)>;

    /// When to come back. Valid after polling until nothing was left.
    fn next_wakeup(&self) -> Wake;

    /// Whether every block of the flow's object has arrived.
    fn is_finished(&self, flow: FlowId) -> bool;

    /// The study's columns at the receiving end.
    fn accounting(&self, flow: FlowId) -> Option<&ReceiverAccounting>;

    /// Adds a flow; a flow whose id is there already is left as it is.
    fn add_flow(&mut self, now: Time, setup: &Setup);

    /// Forgets a flow.
    fn remove_flow(&mut self, flow: FlowId);
}

/// A sender made by the registry.
pub type BoxedSender = Box<dyn Sender>;
/// A receiver made by the registry.
pub type BoxedReceiver = Box<dyn Receiver>;
