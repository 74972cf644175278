//! TCP as a model: what the kernel's does on a path, segment by segment, without sockets and bytes.
//!
//! A connection is a [`Sender`] and a [`Receiver`], driven as the protocols' cores are: time as an
//! argument, input by `on_…`, output polled, `next_timeout` says when to come back. All segments
//! but the last are of one size, so they are counted, not measured.
//!
//! What is in it, and by which rules:
//! - connection set-up by SYN and SYN-ACK, each repeated after 1 s, 2 s, … (RFC 6298, section 2.1);
//! - slow start and congestion avoidance (RFC 5681), an initial window of 10 (RFC 6928), a window
//!   that grows only while it is the limit (RFC 7661), restart after idleness (RFC 5681, 4.1);
//! - selective acknowledgements (RFC 2018): losses and what is in flight as RFC 6675 has them; a
//!   lost repair is found by what was sent after it (RFC 8985, section 6.2), and the last segments'
//!   loss by a probe (section 7), as Linux does both; how much goes out while that is repaired is
//!   by proportional rate reduction (RFC 6937);
//! - NewReno (RFC 6582) or CUBIC (RFC 9438) with `HyStart` as Linux has them, each a
//!   [`Congestion`]: windows in whole segments, halved or cut from the window rather than from what
//!   is in flight, CUBIC's growth looked at every 32 ms at most while the window stays;
//! - time-outs by RFC 6298, with Linux's least variation of 200 ms;
//! - delayed acknowledgements: every second segment or 40 ms, the first 16 and whatever is out of
//!   order at once (RFC 5681, 4.2; Linux's times);
//! - BBR version 1, with its own window and pace, and no rate reduction.
//!
//! What is not: Nagle, urgent data, closing, ECN, undoing of spurious recoveries. The receive
//! window is the limit that is given, from the start: the kernel's tuning grows it as fast as slow
//! start needs.
//!
//! Files by decision: `board` (what is sacked, lost, in flight), `window` (how much may be), with
//! `cubic`, `hystart`, `bbr` and `prr`; `rto` (how long to wait); `sender`, `receiver`.
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
/// Runs in one acknowledgement: what fits beside timestamps (RFC 2018, section 3).
const SACK_RUNS: usize = 3;

/// What the two ends send each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// Begins a connection.
    Syn,
    /// Answers that.
    SynAck,
    /// Carries data.
    Data(Data),
    /// Says what has come.
    Ack(Ack),
}

/// A segment of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data {
    /// Its number, from 0.
    pub number: u32,
    /// When it was sent: its timestamp (RFC 7323).
    pub sent: Time,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// All segments below have come.
    pub next: u32,
    /// The timestamp that it echoes.
    pub echo: Time,
    /// Runs that came beyond, the latest first; empty ones mean nothing.
    pub sacked: [(u32, u32); SACK_RUNS],
}

impl Segment {
    /// The size as an IP packet, given the payload of a full segment.
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
