//! The traits that every protocol implements.
//!
//! A protocol is a [`Sender`] and a [`Receiver`]. Each is a core: a state machine without I/O. A
//! sender has one flow, a receiver may have many. The driver (the program that does the I/O) calls
//! the core: `on_*` passes input with the current time, `poll_*` returns output, `next_wakeup` says
//! when to call again and why. After any `on_*` the driver polls until nothing is left.
//!
//! The core names blocks; the driver moves bytes. The code that encrypts datagrams assigns packet
//! numbers; the driver passes the next number to [`Sender::poll_transmit`].

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use crate::accounting::{ReceiverAccounting, SenderAccounting};
use crate::law::{Found, Law, Weight};
use crate::layout::{Block, Layout};
use crate::receipt::Receipt;
use crate::remembered::Remembered;
use crate::settings::Settings;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::Control;

pub use crate::wire::{FlowId, PacketNumber};

/// A data datagram that passed authentication and replay protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The packet number of the datagram.
    pub number: PacketNumber,
    /// The block that the datagram carried.
    pub block: Block,
    /// When the datagram reached the host.
    pub at: Time,
}

/// A run of blocks of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// The first block.
    pub first: Block,
    /// Number of blocks, at least 1.
    pub count: u32,
}

impl BlockRange {
    /// Returns the indices of the blocks within the segment, without blocks that the object
    /// does not have; may be empty.
    pub fn indices(&self, layout: &Layout) -> Range<u32> {
        let BlockRange { first: Block { segment, index }, count } = *self;
        let end = index.saturating_add(count).min(layout.blocks_in(segment));
        index.min(end)..end
    }

    /// Returns the numbers of the blocks in the object, without blocks that the object does not
    /// have; may be empty.
    pub fn numbers(&self, layout: &Layout) -> Range<u64> {
        let indices = self.indices(layout);
        let base = layout.number(Block { index: 0, ..self.first });
        base + u64::from(indices.start)..base + u64::from(indices.end)
    }
}

/// How a control message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The session's ordered, reliable stream. The driver may also send a copy ahead by datagram,
    /// so every control message is idempotent and may arrive twice, early or out of order.
    Reliable,
    /// One sealed datagram that may be lost.
    Datagram,
}

/// A control message on its way out.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// The message's flow.
    pub flow: FlowId,
    /// How the message travels.
    pub carrier: Carrier,
    /// The message.
    pub control: Control,
}

/// Why the core wants to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The pacer releases the next burst.
    Pacing,
    /// A report is due, or has waited long enough for overtaken datagrams.
    Report,
    /// The peer has not answered a message in time; the message is repeated.
    Repeat,
    /// A pulse (the receiver's periodic report) is due.
    Pulse,
    /// The peer has been silent for too long (RFC 8085's circuit breaker).
    Breaker,
}

/// When the core wants to be called next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Now: there is output to poll.
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

/// An event for the driver and its user: progress, traces, monitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A round over a segment was sent completely (sender) or reported (receiver).
    Round {
        /// The segment.
        segment: u32,
        /// The round, from 1.
        round: u32,
        /// Blocks that the round sent (sender) or that are still missing (receiver).
        blocks: u32,
    },
    /// Every block of the segment is known to have arrived.
    SegmentDone {
        /// The segment.
        segment: u32,
    },
    /// Coded symbols ([`crate::coded`]) replace the missing blocks of a chunk; the driver computes
    /// the blocks (receiver).
    Restored {
        /// The chunk, counted from the start of the object.
        chunk: u64,
    },
    /// The sender has changed its estimate of the network's state; this is the rate for the new
    /// state (`fobs-table`).
    Rate(Rate),
    /// Nothing of the object is missing.
    Finished,
    /// Nothing was received for this long; the sender has stopped (RFC 8085, section 3.1.10).
    Silent(Span),
    /// Something was received again after [`Event::Silent`]; the sender continues.
    Resumed,
}

/// Parameters of a flow at its start.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The flow.
    pub flow: FlowId,
    /// How the object is divided into blocks.
    pub layout: Layout,
    /// Bytes of the UDP payload besides the block: header and tag.
    pub overhead: Bytes,
    /// The session's estimate of the round-trip time.
    pub rtt: Span,
    /// The rate that the user fixed, in bits a second of UDP payload; the protocol never exceeds
    /// this rate. `None`: the protocol finds a rate by itself.
    pub rate: Option<Rate>,
    /// The highest rate that a protocol may choose by itself, in bits a second of UDP payload. With
    /// a fixed rate as well, the smaller of the two applies.
    pub rate_limit: Option<Rate>,
    /// The speed of the sending host's network card in bits a second of UDP payload in full
    /// datagrams, if known. Only the sending end gets this number.
    pub card: Option<Rate>,
    /// The law that finds the rate, if no rate is fixed and the protocol has no rate control.
    pub law: Law,
    /// The flow's weight when flows that find their own rates share a path.
    pub weight: Weight,
    /// Properties of the path from an earlier copy, for a protocol that finds its rate by `law`: a
    /// hint that may come from the peer.
    pub remembered: Option<Remembered>,
    /// Bytes that may be sent for the first time before the receiver grants more.
    pub grant: Bytes,
    /// The protocol's own settings.
    pub settings: Settings,
}

impl Setup {
    /// A flow without a fixed rate, a limit or any changed setting.
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
            weight: Weight::default(),
            remembered: None,
            grant: Bytes::MAX,
            settings: Settings::default(),
        }
    }

    /// The fixed rate, reduced to the limit if there is one.
    pub fn fixed_rate(&self) -> Option<Rate> {
        self.rate.map(|rate| self.rate_limit.map_or(rate, |limit| rate.min(limit)))
    }

    /// UDP payload of a full datagram.
    pub fn datagram(&self) -> Bytes {
        Bytes::new(u64::from(self.layout.block_size())) + self.overhead
    }

    /// The remembered path, if its round-trip time shows that this can still be the same path.
    pub(crate) fn known_path(&self) -> Option<Remembered> {
        self.remembered.filter(|path| path.fits(self.rtt))
    }

    /// The rate that is never exceeded: the smaller of the fixed rate and the limit.
    pub fn cap(&self) -> Option<Rate> {
        self.fixed_rate().or(self.rate_limit)
    }
}

/// Traffic on the receiving host's access link that does not belong to the receiver's flows,
/// counted as if it were UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Others {
    /// Speed of the host's card in bits a second of UDP payload in full datagrams; `None` if
    /// unknown or if the card is virtual.
    pub link: Option<Rate>,
    /// Bytes received since a fixed point in time.
    pub bytes: Bytes,
    /// Approximate number of flows that carried these bytes; zero counts as one.
    pub flows: u32,
}

/// How a receiver learned its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The user gave the capacity.
    Given,
    /// The capacity is the user's limit for all flows.
    Limit,
    /// The capacity is the speed of the host's card.
    Card,
    /// The capacity was measured from the received data.
    Found,
}

/// The capacity of a receiver that divides a link among its flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReceiveCapacity {
    /// Total rate for the receiver's flows, in bits a second of UDP payload.
    pub rate: Rate,
    /// Total rate for all traffic on the link, in bits a second of UDP payload.
    pub link: Rate,
    /// How the receiver learned the number.
    pub origin: Origin,
    /// Largest share of the link that the receiver may use, from 0 to 1.
    pub share: f64,
    /// The rate left to other traffic; `None` if other traffic is not observed.
    pub others: Option<Rate>,
}

/// The sending end of a protocol.
pub trait Sender: Send {
    /// Handles a control message from either carrier.
    fn on_control(&mut self, now: Time, flow: FlowId, control: &Control);

    /// Handles the timeout that [`Sender::next_wakeup`] announced.
    fn on_timeout(&mut self, now: Time);

    /// Marks blocks that the receiver does not need from this sender; the sender no longer sends
    /// them.
    fn skip(&mut self, now: Time, flow: FlowId, blocks: BlockRange);

    /// Sets the speed of the receiving host's card in bits a second of UDP payload in full
    /// datagrams. A sender whose rate does not depend on cards ignores it.
    fn set_peer_card(&mut self, _: Time, _: Rate) {}

    /// Lets the sender send coded symbols ([`crate::coded`]). Without this call a sender sends
    /// blocks only.
    fn allow_coded(&mut self) {}

    /// Whether the sender sends coded symbols if datagrams are lost.
    fn uses_coded(&self) -> bool {
        false
    }

    /// Handles a receipt: the receiving host's report on datagrams that left before the session was
    /// open. A receipt is not authenticated, so a false one must do no harm.
    fn on_receipt(&mut self, _: Time, _: &Receipt) {}

    /// Raises the grant (the bytes that may be sent for the first time), as a pulse does.
    fn raise_grant(&mut self, _: Time, _: Bytes) {}

    /// Appends to `out` at most `max` blocks to send now. The first block gets packet number
    /// `next`, the others the numbers that follow. Appends nothing if nothing is due.
    fn poll_transmit(&mut self, now: Time, next: PacketNumber, max: usize, out: &mut Vec<Block>);

    /// The next control message to send.
    fn poll_control(&mut self, now: Time) -> Option<Outgoing>;

    /// The next event to report.
    fn poll_event(&mut self) -> Option<Event>;

    /// When to call again. Valid after polling until nothing is left.
    fn next_wakeup(&self) -> Wake;

    /// Whether the receiver is known to miss nothing.
    fn is_finished(&self) -> bool;

    /// Whether the flow waits only for a higher grant.
    fn is_blocked_by_grant(&self) -> bool;

    /// Current sending rate, in bits a second of UDP payload.
    fn rate(&self) -> Rate;

    /// The smoothed round-trip time.
    fn rtt(&self) -> Span;

    /// Results of the law that finds the rate; empty if no law finds it.
    fn found(&self) -> Found {
        Found::default()
    }

    /// The sender's counters.
    fn accounting(&self) -> &SenderAccounting;
}

/// The receiving end of a protocol.
pub trait Receiver: Send {
    /// Handles a batch of authenticated data datagrams.
    fn on_datagrams(&mut self, now: Time, flow: FlowId, arrivals: &[Arrival]);

    /// Handles a control message from either carrier.
    fn on_control(&mut self, now: Time, flow: FlowId, control: &Control);

    /// Handles the timeout that [`Receiver::next_wakeup`] announced.
    fn on_timeout(&mut self, now: Time);

    /// Counts blocks as arrived, because they need no transfer.
    fn skip(&mut self, now: Time, flow: FlowId, blocks: BlockRange);

    /// Sets the grant: how many bytes of blocks may be sent for the first time, counted from the
    /// start of the flow. `drain` is the approximate rate at which the host empties its buffers.
    fn set_grant(&mut self, now: Time, flow: FlowId, grant: Bytes, drain: Option<Rate>);

    /// Sets the number of the flow's datagrams that the receiving host has dropped since the start.
    /// These are losses of the host, not of the path.
    fn set_socket_lost(&mut self, now: Time, flow: FlowId, lost: u64);

    /// Whether [`Receiver::set_others`] has an effect.
    fn wants_others(&self) -> bool {
        false
    }

    /// Reports the speed of the host's card and the other traffic on its access link. The driver
    /// calls it from the start, several times a second while the link carries traffic.
    fn set_others(&mut self, _: Time, _: Others) {}

    /// Sets a limit for all flows together, in bits a second of UDP payload. A receiver whose
    /// senders choose their own rate ignores it.
    fn set_receive_limit(&mut self, _: Rate) {}

    /// The receiver's total capacity, if the receiver divides it among its flows.
    fn receive_capacity(&self) -> Option<ReceiveCapacity> {
        None
    }

    /// The next control message to send.
    fn poll_control(&mut self, now: Time) -> Option<Outgoing>;

    /// The next event to report, with its flow.
    fn poll_event(&mut self) -> Option<(FlowId, Event)>;

    /// When to call again. Valid after polling until nothing is left.
    fn next_wakeup(&self) -> Wake;

    /// Whether every block of the flow's object has arrived or was skipped.
    fn is_finished(&self, flow: FlowId) -> bool;

    /// The flow's counters.
    fn accounting(&self, flow: FlowId) -> Option<&ReceiverAccounting>;

    /// Adds a flow; does nothing if a flow with this id exists.
    fn add_flow(&mut self, now: Time, setup: &Setup);

    /// Removes a flow.
    fn remove_flow(&mut self, flow: FlowId);
}

/// A sender made by the registry.
pub type BoxedSender = Box<dyn Sender>;
/// A receiver made by the registry.
pub type BoxedReceiver = Box<dyn Receiver>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    #[test]
    fn earlier_returns_the_first_of_two_wake_ups_at_the_same_time() {
        let at = |millis, why| Wake::At(Time::ZERO + Span::from_millis(millis), why);
        let (repeat, report) = (at(5, Why::Repeat), at(5, Why::Report));
        assert_eq!((repeat.earlier(report), report.earlier(repeat)), (repeat, report));
        for other in [at(6, Why::Report), Wake::OnInput] {
            assert_eq!((repeat.earlier(other), other.earlier(repeat)), (repeat, repeat));
        }
        assert_eq!((repeat.earlier(Wake::Now), Wake::Now.earlier(repeat)), (Wake::Now, Wake::Now));
    }
}
