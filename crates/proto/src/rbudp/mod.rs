//! Reliable Blast UDP: He, Alimohideen, Eliason, Krishnaprasad, Leigh, Yu, DeFanti, "Quanta: a
//! toolkit for high performance data delivery over photonic networks", section 4.
//!
//! > In the first data transmission phase, RBUDP sends the entire payload at a user-specified
//! > sending rate using UDP datagrams. … The receiver therefore must keep a tally of the packets
//! > that are received in order to determine which packets must be retransmitted. At the end of
//! > the bulk data transmission phase, the sender sends a DONE signal via TCP so that the receiver
//! > knows that no more UDP packets will arrive. The receiver responds by sending an
//! > Acknowledgment consisting of a bitmap tally of the received packets. The sender responds by
//! > resending the missing packets, and the process repeats itself until no more packets need to
//! > be retransmitted.
//!
//! Differences from the paper, and why:
//! - The paper's object is our segment. Several segments are in flight: while one waits for its
//!   report, the sender sends the next. Repairs of an earlier segment precede first sends of a
//!   later segment.
//! - "No more UDP packets will arrive" does not hold: DONE may overtake data. DONE carries the
//!   highest packet number of its round. The receiver reports when that number has arrived, or
//!   after a grace of max(RTT/4, 1 ms) without newer data.
//! - In the paper's section 3, the receiver reports after a timeout. Here the sender has a timeout:
//!   it repeats DONE if no report arrives in time.
//! - A segment that becomes complete is reported immediately, without DONE.
//! - The receiver grants the bytes that may be sent for the first time. A sender whose grant ends
//!   in the middle of a segment requests a report on the blocks sent so far (a partial DONE). The
//!   repairs then complete these blocks, and the receiver can free their memory. Repairs need no
//!   grant.
//! - The sender adds a few coded symbols ([`crate::coded`]) to rounds near the end of the object.
//!   They replace lost blocks without another round trip. Where symbols cannot be used, the sender
//!   repeats the blocks of a small last round ([`TAIL_COPIES`]).
//!
//! Modules: `sender` selects and paces blocks, `segments` keeps a sender's rounds, `receiver` keeps
//! tallies of arrived blocks, `reports` decides the time and content of reports.

mod receiver;
mod reports;
mod segments;
mod sender;
#[cfg(test)]
mod tests;

pub use receiver::RbudpReceiver;
pub use sender::RbudpSender;

use alloc::boxed::Box;

use crate::kind::Kind;
use crate::row::Row;
use crate::settings::ProtocolOption;

/// Each round costs a round trip; sending a few blocks again costs almost nothing.
pub const TAIL_COPIES: ProtocolOption = ProtocolOption::new(
    Kind::Count,
    "tail-copies",
    "2 or more: adds coded symbols to the last rounds or, where chunks cannot be coded, sends each \
     block of a small last round this many times (1: no additions, as in the paper)",
    (1.0, 8.0),
    2.0,
);

/// RBUDP in the registry.
pub const ROW: Row = Row {
    name: "rbudp",
    title: "Reliable Blast UDP",
    paper: "He et al., Quanta: a toolkit for high performance data delivery over photonic \
            networks, Future Generation Computer Systems 19 (2003), section 4",
    summary: "Sends the whole segment at the sending rate, then asks for a report and resends the \
              missing blocks, round after round until none is missing. The sender never waits \
              within a round, a report costs one round trip per round, and a given rate does not \
              react to loss. Made for paths of known capacity without much other traffic; without \
              a given rate it measures the path with packet trains.",
    experiments: &["quanta-fig5", "quanta-fig6", "quanta-fig7", "quanta-streaming"],
    frugal: true,
    many: false,
    options: &[TAIL_COPIES],
    sender: |setup| Box::new(RbudpSender::new(setup)),
    receiver: || Box::new(RbudpReceiver::default()),
};
