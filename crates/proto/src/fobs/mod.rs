//! FOBS, the fast object-based transfer system: Dickens, Gropp, "An evaluation of object-based
//! data transfers on high performance networks".
//!
//! > the algorithm executed by the sender is very greedy, continuing to transmit (or re-transmit)
//! > packets (without blocking) until it receives the completion signal from the data receiver
//! > specifying that all data has been successfully received.
//!
//! The sender sends a batch, looks for an acknowledgement without waiting for one, and chooses
//! the next packet out of all that are unacknowledged, as from a circular buffer. The receiver
//! acknowledges over UDP after every so many newly received packets ([`ACK_FREQUENCY`]), and says
//! by one signal on the reliable channel that all is there. A sender that does not stop before
//! that signal sends for one round trip in vain: the waste is at least C·RTT/S.
//!
//! Where we go beyond the paper, and why:
//! - The paper's rate was that of the network card. Ours is the user's, else the path's capacity
//!   as it is measured; the table's is that of the two cards, where both are known.
//! - The acknowledgement of a large object takes several messages; the first cover what is new.
//!   Each counts alone, and what has not changed is told again in turn (`telling`).
//! - With one circle over an object of any size nearly every chunk has a hole until all of it has
//!   been sent once: a receiver that is killed then has next to nothing, for at a loss of 1 % a MiB
//!   is whole with a chance of 0.99^728, one in 1,500. So the circle takes the object in a segment
//!   at a time, as the release takes it in a chunk at a time: after each segment's new data what is
//!   known to be lost of earlier ones goes, then the next segment's. Among what the circle has
//!   taken in the paper's rule holds. Nothing is waited for, and nothing goes that may still be on
//!   its way: a circle closed for each segment would spend a round trip of useless repeats at the
//!   end of every one, C·RTT over a segment's size; so that is paid once, at the object's end.
//! - The receiver's grant ends the greed too. A sender that is out of grant repeats, but only what
//!   is known to be lost: an acknowledgement shows how far datagrams had come when it was made,
//!   and a block sent before that and not told is lost. What is on its way is not sent again, for
//!   the receiver is slow because its disk is, and copies would not make room. The circle's rule
//!   then holds among the lost. Blocks sent again need no grant.
//! - The batch that an acknowledgement makes ([`BATCH`]: 0) waits in the same way after one that
//!   brought nothing new.
//!
//! The table (`fobs-table`) is FOBS with the congestion response of its release, as a study at Oak
//! Ridge National Laboratory ("Faster bulk transfer starring: UDP") found it: see `table`. It
//! sends bursts of [`BURST`], and goes back after each [`CHUNK`] of new data, if that is less than
//! a segment. The study saw the sender wait there until the receiver had written the chunk, and
//! send packets of it in vain meanwhile. Ours repeats what is known to be lost and goes on with the
//! next chunk. While there is congestion it repeats nothing else; it returns to greed when that is
//! over.
//!
//! The paper's other outlook, "it switches to a high-performance TCP algorithm when congestion in
//! the network is detected … Then, when the congestion appears to have dissipated, FOBS could
//! switch back" (section 7), is not built. What the switch is for, to yield while others need the
//! path, the table does within the flow, and it costs nothing to come back; a TCP that begins in a
//! congested moment needs many round trips to find its window, and a change of carrier is a pass of
//! its own: what is under way is dropped or comes twice. Who wants TCP's share takes
//! `--protocol tcp`.
//!
//! Files by decision: `circle` chooses what goes again, `unacked` knows what is left, `sender`
//! sends batches of it, `receiver` counts, `telling` says what an acknowledgement covers,
//! `table` sets the rate.

mod circle;
mod receiver;
mod sender;
mod table;
mod telling;
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
    "newly received blocks that make an acknowledgement",
    (1.0, 1e9),
    64.0,
);

/// The packets of a batch-send operation (section 3.1.1): two were best, of fixed ones, on hosts of
/// 2002 that sent each in a system call of its own, and looked for an acknowledgement in another.
/// Ours looks at every poll, which costs nothing, and a batch is one system call: two datagrams
/// each would give most of its gain away. So the default is the paper's other rule, by what the
/// last acknowledgement brought.
pub(crate) const BATCH: ProtocolOption = ProtocolOption::new(
    Kind::Count,
    "batch",
    "datagrams between two looks for an acknowledgement (0: as many as the last one brought)",
    (0.0, 1e6),
    0.0,
);

/// About 10,000 packets, in the release that the ORNL study measured.
pub(crate) const STATE_SEGMENT: ProtocolOption = ProtocolOption::new(
    Kind::Count,
    "state-segment",
    "datagrams after which the state of the network is looked at",
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
    "datagrams that leave at once before the rate is enforced",
    (1.0, 4096.0),
    25.0,
);

/// 100 MiB in the release that the ORNL study measured. A segment bounds it: with those of
/// `longhaul cp`, 16 MiB unless `--segment` says otherwise, this is 16 MiB in effect.
pub(crate) const CHUNK: ProtocolOption = ProtocolOption::new(
    Kind::Size,
    "chunk",
    "new data, at most a segment, after which what was lost goes again",
    (1024.0, 1e15),
    104_857_600.0,
);

/// The paper's FOBS knows no chunks: it goes back after a segment, which may be the whole object.
/// The largest chunk is no limit.
pub(crate) const GREEDY_CHUNK: ProtocolOption = ProtocolOption { default: CHUNK.most, ..CHUNK };

/// FOBS in the registry, as its paper has it.
pub(crate) const ROW: Row = Row {
    name: "fobs",
    title: "FOBS, greedy",
    paper: "Dickens, Gropp, An evaluation of object-based data transfers on high performance \
            networks, HPDC-11 (2002)",
    summary: "Sends the object as from a circular buffer, batch after batch, and goes round and \
              round over what is not acknowledged until the receiver says that all is there. \
              Acknowledgements come by datagram after every so many new blocks; the sender never \
              waits for one. It keeps a path full at any loss and pays for it with at least one \
              round trip of useless datagrams at the end.",
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

/// FOBS with a rate table in the registry, as the ORNL study has it.
pub(crate) const TABLE_ROW: Row = Row {
    name: "fobs-table",
    title: "FOBS with a rate table",
    paper: "Oak Ridge National Laboratory, Faster bulk transfer starring: UDP, which \
            measured its release",
    summary: "FOBS with a congestion response: a table of rates, one for each state of the \
              network, and a look at the loss after every so many datagrams. More loss than is \
              tolerated puts the rate where the path still carries it, and repeats are only of \
              what is known to be lost; after that the rate climbs state by state, and the greed \
              returns. The highest rate is that of the slower network card, where both hosts \
              know theirs.",
    experiments: &["ornl-memory", "ornl-file"],
    frugal: false,
    many: false,
    options: &[ACK_FREQUENCY, BATCH, STATE_SEGMENT, TOLERATED_LOSS, BURST, CHUNK],
    sender: |setup| Box::new(FobsSender::by_table(setup)),
    receiver: || Box::new(FobsReceiver::default()),
};
