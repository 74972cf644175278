//! Counters of a transfer's threads.
//! - [`board`]: publishes the counters to other threads.
//! - [`spent`]: the time that a writing thread has spent; [`recent`]: the recent goodput.
//! - [`path_watch`]: the state of the path; [`chunk_map`]: the chunks of the object that have
//!   arrived.
//! - [`bound`] and `stream_bound`: find the bottleneck of a transfer over UDP, and over streams.
//! - `wire`: converts counters to messages and back.
//!
//! A block is the payload of one datagram. A coded symbol (of an erasure code) replaces any one
//! missing block of its chunk. A segment is a sequence of chunks that a protocol transfers like a
//! separate object. A pass is one transmission of the missing chunks. A core is the state machine
//! of a protocol.

pub(crate) mod board;
pub(crate) mod bound;
pub(crate) mod chunk_map;
pub(crate) mod path_watch;
pub(crate) mod recent;
pub(crate) mod spent;
mod stream_bound;
mod wire;

use std::ops::AddAssign;

use longhaul_proto::accounting::{ReceiverAccounting, SenderAccounting};
use longhaul_proto::law::Found;
use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;

/// The counters of a transfer over all passes: of one side, or of both. The fields of a missing
/// role are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) sender: SenderCounters,
    pub(crate) receiver: ReceiverCounters,
    pub(crate) written: Written,
    pub(crate) times: Times,
    /// Number of names examined and chunks read to find the missing chunks.
    pub(crate) looked: u64,
}

/// Counters of the sending end. If a later pass or attempt is added, its rate, round-trip time and
/// streams replace the earlier values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SenderCounters {
    /// Datagrams sent.
    pub(crate) sent: u64,
    /// Blocks sent for the first time.
    pub(crate) first: u64,
    /// Blocks sent again, and coded symbols.
    pub(crate) retransmitted: u64,
    /// Number of coded symbols in `retransmitted`.
    pub(crate) coded: u64,
    /// Losses as the receiving end reported them.
    pub(crate) reported_lost: u64,
    /// The highest number of rounds that a segment needed.
    pub(crate) rounds: u32,
    pub(crate) rate: Rate,
    /// Smoothed round-trip time.
    pub(crate) rtt: Span,
    /// Connections that carry the chunks now, if they go over streams.
    pub(crate) streams: u32,
    /// Whether `streams` was the best of the numbers tried.
    pub(crate) streams_found: bool,
    /// The path's properties as the rate control measured them last. The time during which other
    /// traffic shared the path is the sum over all passes and attempts.
    pub(crate) found: Found,
}

/// Counters of a receiving end's flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceiverCounters {
    /// Datagrams received, including duplicates.
    pub(crate) received: u64,
    /// Blocks received for the first time.
    pub(crate) distinct: u64,
    /// Blocks received again.
    pub(crate) duplicates: u64,
    /// Blocks restored from coded symbols; a part of `distinct`.
    pub(crate) recovered: u64,
    /// Blocks found missing, once each.
    pub(crate) blocks_lost: u64,
    /// Losses reported to the sending end.
    pub(crate) reported_lost: u64,
    /// One more than the highest packet number received, summed over passes.
    pub(crate) highest: u64,
    /// Datagrams that the kernel dropped because a buffer was full.
    pub(crate) socket_lost: u64,
    /// Datagrams with data that arrived before the port knew their flow, and that the port dropped
    /// because of the limits on the size and age of early datagrams.
    pub(crate) early_lost: u64,
    /// Genuine datagrams dropped because there was no memory for their chunk.
    pub(crate) memory_lost: u64,
    /// Datagrams that the flow refused (forged, malformed, replayed or too old to check), and all
    /// datagrams that its port refused since the flow began (of unknown flows, or early and beyond
    /// the limits).
    pub(crate) refused: u64,
    /// Blocks that were not requested or do not exist, and invalid control messages of protocols.
    pub(crate) unasked: u64,
    /// Datagrams known to have been sent faster than requested.
    pub(crate) too_fast: u64,
}

/// Progress of a receiving end's writes. If a later attempt is added, its number of files replaces
/// the earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes of the object at the destination.
    pub(crate) bytes: u64,
    /// Files with their final name.
    pub(crate) files: u64,
    /// Bytes of chunks received over streams.
    pub(crate) streamed: u64,
    /// Blocks that had to arrive as datagrams; `None` before the outcome (the destination's report
    /// at the end of the transfer).
    pub(crate) due: Option<u64>,
}

/// How one side of a transfer spent its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// Waiting for the pacer.
    pub(crate) paced: Span,
    /// Waiting for the receiver's grant (how much may be sent for the first time).
    pub(crate) granted: Span,
    /// Waiting for room in a stream.
    pub(crate) stream: Span,
    /// Waiting for memory for chunks from streams, all streams together.
    pub(crate) room: Span,
    /// Reading at the source, or writing at the destination.
    pub(crate) disk: Span,
    /// The part of `disk` that was CPU time, for hashing and moving bytes.
    pub(crate) disk_cpu: Span,
    /// Reading and sending data; at the receiving end, CPU time of the receiving thread.
    pub(crate) busy: Span,
    /// CPU time of the thread that carries the control stream and chunks over streams.
    pub(crate) carrier: Span,
    /// Time in which the receiving thread did not wait for datagrams; includes waits for a CPU.
    pub(crate) awake: Span,
}

impl From<&SenderCounters> for SenderAccounting {
    fn from(counters: &SenderCounters) -> SenderAccounting {
        let SenderCounters { sent, first, retransmitted, coded, reported_lost, rounds, .. } =
            *counters;
        SenderAccounting {
            sent,
            first,
            retransmitted,
            coded,
            reported_lost,
            rounds,
            ..SenderAccounting::default()
        }
    }
}

impl SenderCounters {
    pub(crate) fn of(
        core: &SenderAccounting,
        rate: Rate,
        rtt: Span,
        found: Found,
    ) -> SenderCounters {
        let SenderAccounting { sent, first, retransmitted, coded, reported_lost, rounds, .. } =
            *core;
        let (streams, streams_found) = (0, false);
        SenderCounters {
            sent,
            first,
            retransmitted,
            coded,
            reported_lost,
            rounds,
            rate,
            rtt,
            streams,
            streams_found,
            found,
        }
    }
}

impl From<&ReceiverCounters> for ReceiverAccounting {
    fn from(counters: &ReceiverCounters) -> ReceiverAccounting {
        ReceiverAccounting {
            received: counters.received,
            distinct: counters.distinct,
            duplicates: counters.duplicates,
            recovered: counters.recovered,
            blocks_lost: counters.blocks_lost,
            reported_lost: counters.reported_lost,
            highest: counters.highest,
            refused: counters.unasked,
            too_fast: counters.too_fast,
        }
    }
}

impl From<&ReceiverAccounting> for ReceiverCounters {
    fn from(core: &ReceiverAccounting) -> ReceiverCounters {
        ReceiverCounters {
            received: core.received,
            distinct: core.distinct,
            duplicates: core.duplicates,
            recovered: core.recovered,
            blocks_lost: core.blocks_lost,
            reported_lost: core.reported_lost,
            highest: core.highest,
            unasked: core.refused,
            too_fast: core.too_fast,
            ..ReceiverCounters::default()
        }
    }
}

/// Adds counts without overflow, because a peer may report any numbers.
fn add<const N: usize>(pairs: [(&mut u64, u64); N]) {
    for (sum, more) in pairs {
        *sum = sum.saturating_add(more);
    }
}

impl AddAssign for SenderCounters {
    fn add_assign(&mut self, later: SenderCounters) {
        let earlier = std::mem::replace(self, later);
        add([
            (&mut self.sent, earlier.sent),
            (&mut self.first, earlier.first),
            (&mut self.retransmitted, earlier.retransmitted),
            (&mut self.coded, earlier.coded),
            (&mut self.reported_lost, earlier.reported_lost),
        ]);
        self.rounds = self.rounds.max(earlier.rounds);
        let shared = [earlier.found.shared, self.found.shared];
        if self.found.rate <= Rate::ZERO {
            self.found = earlier.found;
        }
        self.found.shared = shared.into_iter().flatten().reduce(|earlier, later| earlier + later);
    }
}

impl AddAssign for ReceiverCounters {
    fn add_assign(&mut self, later: ReceiverCounters) {
        add([
            (&mut self.received, later.received),
            (&mut self.distinct, later.distinct),
            (&mut self.duplicates, later.duplicates),
            (&mut self.recovered, later.recovered),
            (&mut self.blocks_lost, later.blocks_lost),
            (&mut self.reported_lost, later.reported_lost),
            (&mut self.highest, later.highest),
            (&mut self.socket_lost, later.socket_lost),
            (&mut self.early_lost, later.early_lost),
            (&mut self.memory_lost, later.memory_lost),
            (&mut self.refused, later.refused),
            (&mut self.unasked, later.unasked),
            (&mut self.too_fast, later.too_fast),
        ]);
    }
}

impl AddAssign for Written {
    /// Keeps the higher count of bytes: the count of a later attempt includes the bytes that
    /// earlier attempts have written.
    fn add_assign(&mut self, later: Written) {
        let (bytes, streamed) =
            (self.bytes.max(later.bytes), self.streamed.saturating_add(later.streamed));
        *self = Written { bytes, streamed, ..later };
    }
}

impl AddAssign for Times {
    fn add_assign(&mut self, later: Times) {
        *self = Times {
            paced: self.paced + later.paced,
            granted: self.granted + later.granted,
            stream: self.stream + later.stream,
            room: self.room + later.room,
            disk: self.disk + later.disk,
            disk_cpu: self.disk_cpu + later.disk_cpu,
            busy: self.busy + later.busy,
            carrier: self.carrier + later.carrier,
            awake: self.awake + later.awake,
        };
    }
}

impl Counters {
    /// Joins both ends: the sender's counts and times, and the receiver's counts. The sender's last
    /// report may be older than the receiver's counts. So the sender's counts are raised: it has
    /// sent at least the datagrams and blocks that the receiver knows of.
    pub(crate) fn joined(from: &Counters, to: &Counters) -> Counters {
        let sent = from.sender.sent.max(to.receiver.highest);
        let first = from.sender.first.max(to.receiver.distinct).min(sent);
        let sender = SenderCounters { sent, first, retransmitted: sent - first, ..from.sender };
        let (receiver, written, times) = (to.receiver, to.written, from.times);
        Counters { sender, receiver, written, times, looked: from.looked.saturating_add(to.looked) }
    }
}

impl AddAssign for Counters {
    /// Adds the counters of a later attempt. `looked` is not added: the later count replaces it.
    fn add_assign(&mut self, mut later: Counters) {
        // An earlier attempt has not reported how many blocks were due. Use the number of blocks
        // that it sent.
        let sent = self.sender.first;
        later.written.due = later.written.due.map(|due| due.saturating_add(sent));
        self.sender += later.sender;
        self.receiver += later.receiver;
        self.written += later.written;
        self.times += later.times;
        self.looked = later.looked;
    }
}

pub(crate) fn thread_time() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

pub(crate) fn process_time() -> Span {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Span::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

pub(crate) fn span(duration: std::time::Duration) -> Span {
    Span::from_nanos(duration.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_senders_old_counts_are_raised_to_the_receivers_counts() {
        let sender = SenderCounters { sent: 50, first: 49, retransmitted: 1, ..Default::default() };
        let from = Counters { sender, ..Counters::default() };
        let came = |received, distinct, highest| {
            let receiver = ReceiverCounters { received, distinct, highest, ..Default::default() };
            let to = Counters { receiver, ..Counters::default() };
            let SenderCounters { sent, first, retransmitted, .. } =
                Counters::joined(&from, &to).sender;
            (sent, first, retransmitted)
        };
        assert_eq!(came(90, 88, 95), (95, 88, 7));
        // A sender's count that is already higher is kept.
        assert_eq!(came(40, 40, 41), (50, 49, 1));
    }

    #[test]
    fn a_later_attempt_adds_its_counts_and_replaces_current_values() {
        let attempt = |n: u64, due| Counters {
            sender: SenderCounters {
                sent: n,
                first: n,
                rounds: n as u32,
                rtt: Span::from_millis(n),
                ..Default::default()
            },
            receiver: ReceiverCounters { received: n, ..Default::default() },
            written: Written { bytes: 10 * n, files: n, streamed: n, due },
            times: Times { paced: Span::from_secs(n), ..Default::default() },
            looked: n,
        };
        let mut sum = attempt(9, None);
        sum += attempt(4, Some(2));
        assert_eq!((sum.sender.sent, sum.sender.rounds, sum.receiver.received), (13, 9, 13));
        assert_eq!((sum.sender.rtt, sum.times.paced), (Span::from_millis(4), Span::from_secs(13)));
        assert_eq!(sum.written, Written { bytes: 90, files: 4, streamed: 13, due: Some(11) });
        assert_eq!(sum.looked, 4);
    }
}
