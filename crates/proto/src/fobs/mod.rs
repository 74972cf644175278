//! FOBS, the fast object-based transfer system: Dickens, Gropp, "An evaluation of object-based
//! data transfers on high performance networks".
//!
//! > the algorithm executed by the sender is very greedy, continuing to transmit (or re-transmit)
//! > packets (without blocking) until it receives the completion signal from the data receiver
//! > specifying that all data has been successfully received.
//!
//! The sender sends a batch and checks for an acknowledgement without waiting for one. It chooses
//! the next packet among all unacknowledged packets, as from a circular buffer (the *circle*). The
//! receiver acknowledges over UDP after a fixed number of newly received packets
//! ([`ACK_FREQUENCY`]) or a delay, and sends one completion signal on the reliable channel.
//!
//! Differences from the paper, and why:
//! - The paper's rate was that of the network card. Here it is the rate that the user fixed, or
//!   else the measured capacity of the path. `fobs-table` uses the rate of the slower network card
//!   instead of the measured capacity, if both cards' rates are known.
//! - The acknowledgement of a large object covers the parts with recent arrivals, in as many
//!   messages as needed. See `pending_reports`.
//! - With one circle over a large object, nearly every hashed chunk (1 MiB, 729 blocks) lacks a
//!   block until the whole object has been sent once: at a loss of 1 % a chunk is complete with a
//!   probability of 0.99^729, or 1/1,500. A receiver that is killed before then can keep almost
//!   nothing. So the circle takes one segment at a time. After a segment's new data, the sender
//!   resends known losses, and then begins the next segment. Within the segments begun so far the
//!   paper's rule holds: no block is resent before all have been sent once. Until the last segment
//!   has been sent, the sender neither waits for blocks in flight nor resends them.
//! - The receiver's grant (the bytes that may be sent for the first time) limits the greed too.
//!   While the grant is used up, a sender resends only known losses. Resent blocks need no grant.
//! - If acknowledgements set the batch size ([`BATCH`]: 0), an acknowledgement without new blocks
//!   also restricts the sender to known losses.
//!
//! The variant `fobs-table` is FOBS with the congestion response of the released program, as
//! described in a study at Oak Ridge National Laboratory (ORNL; "Faster bulk transfer starring:
//! UDP"): see `table`. It sends bursts of [`BURST`], and resends losses after each [`CHUNK`] of new
//! data (not a hashed chunk), if that is less than a segment. During congestion it resends only
//! known losses; afterwards it becomes greedy again.
//!
//! The paper's other proposal, "it switches to a high-performance TCP algorithm when congestion in
//! the network is detected … Then, when the congestion appears to have dissipated, FOBS could
//! switch back" (section 7), is not implemented.
//!
//! Modules: `circle` chooses blocks to resend, `unacked` tracks unacknowledged blocks,
//! `sender` sends batches, `receiver` decides when to acknowledge, `pending_reports` chooses the
//! content of an acknowledgement, `table` sets the rate.

mod circle;
mod pending_reports;
mod receiver;
mod sender;
mod table;
#[cfg(test)]
mod tests;
mod unacked;

pub(crate) use receiver::FobsReceiver;
pub(crate) use sender::FobsSender;

use alloc::boxed::Box;

use crate::kind::Kind;
use crate::row::Row;
use crate::settings::ProtocolOption;

/// The paper's main parameter (section 3.2).
pub(crate) const ACK_FREQUENCY: ProtocolOption = ProtocolOption::new(
    Kind::Count,
    "ack-frequency",
    "newly received blocks per acknowledgement",
    (1.0, 1e9),
    64.0,
);

/// Packets of a batch-send operation (section 3.1.1). The paper's best fixed size was two packets;
/// such small batches would waste the gain of one system call for many datagrams. The default is
/// the paper's other rule: as many as the last acknowledgement confirmed.
pub(crate) const BATCH: ProtocolOption = ProtocolOption::new(
    Kind::Count,
    "batch",
    "datagrams between two checks for an acknowledgement (0: as many as the last one confirmed)",
    (0.0, 1e6),
    0.0,
);

/// About 10,000 packets, in the release that the ORNL study measured.
pub(crate) const STATE_SEGMENT: ProtocolOption = ProtocolOption::new(
    Kind::Count,
    "state-segment",
    "datagrams between two checks of the network's state",
    (1.0, 1e9),
    10_000.0,
);

/// 1 % in the release that the ORNL study measured.
pub(crate) const TOLERATED_LOSS: ProtocolOption = ProtocolOption::new(
    Kind::Ratio,
    "tolerated-loss",
    "share of a state segment that may be lost before the rate falls",
    (0.0, 1.0),
    0.01,
);

/// 25 packets in the release that the ORNL study measured.
pub(crate) const BURST: ProtocolOption = ProtocolOption::new(
    Kind::Count,
    "burst",
    "datagrams that are sent back to back, before a pause that keeps the rate",
    (1.0, 4096.0),
    25.0,
);

/// 100 MiB in the release that the ORNL study measured. A chunk is at most a segment.
pub(crate) const CHUNK: ProtocolOption = ProtocolOption::new(
    Kind::Size,
    "chunk",
    "new data, at most a segment, after which losses are resent",
    (1024.0, 1e15),
    104_857_600.0,
);

/// The paper has no chunks. This default, the largest chunk, leaves the segment as the only limit:
/// losses are resent after a segment.
pub(crate) const GREEDY_CHUNK: ProtocolOption = ProtocolOption { default: CHUNK.most, ..CHUNK };

pub(crate) const ROW: Row = Row {
    name: "fobs",
    title: "FOBS, greedy",
    paper: "Dickens, Gropp, An evaluation of object-based data transfers on high performance \
            networks, HPDC-11 (2002)",
    summary: "Sends the object as from a circular buffer, batch after batch, and resends \
              unacknowledged blocks again and again until the receiver reports that the object is \
              complete. The receiver acknowledges by datagram after a fixed number of new blocks; \
              the sender never waits for an acknowledgement. FOBS keeps a path full at any loss, \
              at the cost of at least one round trip of useless datagrams at the end.",
    experiments: &[
        "fobs-fig1",
        "fobs-fig2",
        "fobs-fig3",
        "fobs-table1",
        "fobs-table2",
        "ornl-memory",
        "ornl-file",
    ],
    frugal: false,
    many: false,
    options: &[ACK_FREQUENCY, BATCH, GREEDY_CHUNK],
    sender: |setup| Box::new(FobsSender::greedy(setup)),
    receiver: || Box::new(FobsReceiver::default()),
};

pub(crate) const TABLE_ROW: Row = Row {
    name: "fobs-table",
    title: "FOBS with a rate table",
    paper: "Oak Ridge National Laboratory, Faster bulk transfer starring: UDP, which \
            measured FOBS's release",
    summary: "FOBS with a congestion response: a table of rates, one for each state of the \
              network, and a check of the loss after a fixed number of datagrams. If the loss \
              exceeds the tolerated ratio, the rate falls to what the path carries, and only \
              known losses are resent. Then the rate rises state by state, and the sender becomes \
              greedy again. The highest rate is the slower network card's if both hosts know \
              their card's speed, and otherwise the measured rate.",
    experiments: &["ornl-memory", "ornl-file"],
    frugal: false,
    many: false,
    options: &[ACK_FREQUENCY, BATCH, STATE_SEGMENT, TOLERATED_LOSS, BURST, CHUNK],
    sender: |setup| Box::new(FobsSender::by_table(setup)),
    receiver: || Box::new(FobsReceiver::default()),
};
