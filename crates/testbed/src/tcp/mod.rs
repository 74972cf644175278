//! A model of the kernel's TCP, segment by segment, without sockets or payload bytes.
//!
//! A connection is a [`Sender`] and a [`Receiver`] with the interface of the protocols' cores: time
//! is an argument, input enters by `on_…`, output is polled, and `next_timeout` returns the next
//! wake-up. The model counts segments of one size, not bytes.
//!
//! Implemented, with the source of each rule:
//! - connection set-up by SYN and SYN-ACK, each repeated after 1 s, 2 s, … (RFC 6298, section 2.1);
//! - slow start and congestion avoidance (RFC 5681), an initial window of 10 (RFC 6928), a window
//!   that grows only while it is the limit (RFC 7661), restart after idleness (RFC 5681, 4.1);
//! - selective acknowledgements (RFC 2018), with losses and flight size as in RFC 6675. A lost
//!   retransmission is detected by segments sent after it (RFC 8985, section 6.2), and the loss of
//!   the last segments by a probe (section 7). Proportional rate reduction (RFC 6937) limits
//!   sending during recovery;
//! - NewReno (RFC 6582) or CUBIC (RFC 9438) with `HyStart` as in Linux, each a [`Congestion`].
//!   Windows are whole segments. After a loss the new window is a share of the old window, not of
//!   the flight size;
//! - timeouts by RFC 6298, with Linux's minimum of 200 ms for the variation term (4 × RTTVAR);
//! - delayed acknowledgements: for every second segment or after 40 ms; immediately for the first
//!   16 and for segments out of order (RFC 5681, 4.2; Linux's times);
//! - BBR version 1, with its own window and pace, without proportional rate reduction.
//!
//! Not implemented: Nagle, urgent data, closing, ECN, undoing of spurious recoveries, autotuning of
//! the receive window.
//!
//! Modules: `board` (sacked, lost, in flight), `window` (how much may be in flight), with `cubic`,
//! `hystart`, `bbr` and `prr`; `rto` (timeouts); `sender`, `receiver`.
//!
//! [`Congestion`]: crate::scenario::Congestion

mod bbr;
mod board;
mod cubic;
mod hystart;
mod prr;
mod receiver;
mod rto;
mod sender;
#[cfg(test)]
mod tests;
mod window;

use longhaul_proto::time::Time;

pub(crate) use receiver::Receiver;
pub(crate) use sender::Sender;

/// Headers of IPv4 and TCP with timestamps: 52 bytes of each packet.
pub(crate) const HEADERS: u32 = 52;
/// Sack runs that fit next to timestamps (RFC 2018, section 3).
const SACK_RUNS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// Opens a connection.
    Syn,
    /// Answers a SYN.
    SynAck,
    Data(Data),
    Ack(Ack),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data {
    /// Its number, from 0.
    pub number: u32,
    /// When it was sent: its timestamp (RFC 7323).
    pub sent: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// All segments below this number have arrived.
    pub next: u32,
    /// The returned timestamp of the sender (RFC 7323).
    pub echo: Time,
    /// Arrived runs beyond `next`, the latest first; empty if unused.
    pub sacked: [(u32, u32); SACK_RUNS],
}

impl Segment {
    /// The IP packet's size, with `mss` bytes in a full segment.
    pub(crate) fn bytes(&self, mss: u32) -> u32 {
        match self {
            Segment::Syn | Segment::SynAck => 60,
            Segment::Data(_) => HEADERS + mss,
            Segment::Ack(ack) => {
                let runs = ack.sacked.iter().filter(|(start, end)| start < end).count() as u32;
                // The option's own four bytes, with padding, and eight for each run.
                HEADERS + if runs > 0 { 4 + 8 * runs } else { 0 }
            }
        }
    }
}
