//! Conversion of counters to and from [`Status`], a message of the control stream.

use longhaul_proto::law::{Found, Phase};
use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;

use super::{Counters, ReceiverCounters, SenderCounters, Times, Written};
use crate::control::Status;

/// Upper bound of plausible counts (as bytes: 72 PB) and of times in nanoseconds (2.3 years).
const MOST: u64 = 1 << 56;

impl From<&Counters> for Status {
    fn from(counters: &Counters) -> Status {
        let Counters { sender, receiver, written, times, looked } = counters;
        Status {
            sent: sender.sent,
            first: sender.first,
            retransmitted: sender.retransmitted,
            // Each side counts in its own role; the other role's count is zero.
            reported_lost: sender.reported_lost.max(receiver.reported_lost),
            rounds: sender.rounds,
            rate_bps: sender.rate.as_bps(),
            rtt_nanos: sender.rtt.as_nanos(),
            written: written.bytes,
            files: written.files,
            received: receiver.received,
            distinct: receiver.distinct,
            duplicates: receiver.duplicates,
            blocks_lost: receiver.blocks_lost,
            socket_lost: receiver.socket_lost,
            highest: receiver.highest,
            paced_nanos: times.paced.as_nanos(),
            granted_nanos: times.granted.as_nanos(),
            disk_nanos: times.disk.as_nanos(),
            busy_nanos: times.busy.as_nanos(),
            refused: receiver.refused,
            disk_cpu_nanos: times.disk_cpu.as_nanos(),
            memory_lost: receiver.memory_lost,
            streams: sender.streams,
            streams_found: sender.streams_found,
            streamed: written.streamed,
            early_lost: receiver.early_lost,
            looked: *looked,
            carrier_nanos: times.carrier.as_nanos(),
            unasked: receiver.unasked,
            awake_nanos: times.awake.as_nanos(),
            due: written.due,
            too_fast: receiver.too_fast,
            stream_nanos: times.stream.as_nanos(),
            room_nanos: times.room.as_nanos(),
            found_bps: sender.found.rate.as_bps(),
            found_nanos: sender.found.after.as_nanos(),
            path_loss_ppm: sender.found.loss_ppm,
            shared_nanos: sender.found.shared.map(Span::as_nanos),
            coded: sender.coded,
            recovered: receiver.recovered,
            phase: sender.found.phase.map_or(0, |phase| phase as u32 + 1),
        }
    }
}

impl From<&Status> for Counters {
    /// Caps every 64-bit number, so that a few of them can be added without overflow.
    fn from(status: &Status) -> Counters {
        let count = |count: u64| count.min(MOST);
        let span = |nanos: u64| Span::from_nanos(nanos.min(MOST));
        let reported_lost = count(status.reported_lost);
        Counters {
            sender: SenderCounters {
                sent: count(status.sent),
                first: count(status.first),
                retransmitted: count(status.retransmitted),
                coded: count(status.coded),
                reported_lost,
                rounds: status.rounds,
                rate: Rate::from_bps(count(status.rate_bps)),
                rtt: span(status.rtt_nanos),
                streams: status.streams,
                streams_found: status.streams_found,
                found: Found {
                    rate: Rate::from_bps(count(status.found_bps)),
                    after: span(status.found_nanos),
                    loss_ppm: status.path_loss_ppm.min(1_000_000),
                    shared: status.shared_nanos.map(span),
                    phase: Phase::ALL.get((status.phase as usize).wrapping_sub(1)).copied(),
                },
            },
            receiver: ReceiverCounters {
                received: count(status.received),
                distinct: count(status.distinct),
                duplicates: count(status.duplicates),
                recovered: count(status.recovered),
                blocks_lost: count(status.blocks_lost),
                reported_lost,
                highest: count(status.highest),
                socket_lost: count(status.socket_lost),
                early_lost: count(status.early_lost),
                memory_lost: count(status.memory_lost),
                refused: count(status.refused),
                unasked: count(status.unasked),
                too_fast: count(status.too_fast),
            },
            written: Written {
                bytes: count(status.written),
                files: count(status.files),
                streamed: count(status.streamed),
                due: status.due.map(count),
            },
            times: Times {
                paced: span(status.paced_nanos),
                granted: span(status.granted_nanos),
                stream: span(status.stream_nanos),
                room: span(status.room_nanos),
                disk: span(status.disk_nanos),
                disk_cpu: span(status.disk_cpu_nanos),
                busy: span(status.busy_nanos),
                carrier: span(status.carrier_nanos),
                awake: span(status.awake_nanos),
            },
            looked: count(status.looked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_survives_the_wire() {
        let mut number = 0;
        let mut next = || {
            number += 1;
            number
        };
        let reported_lost = next();
        let sent = Status {
            sent: next(),
            first: next(),
            retransmitted: next(),
            reported_lost,
            rounds: next() as u32,
            rate_bps: next(),
            rtt_nanos: next(),
            written: next(),
            files: next(),
            received: next(),
            distinct: next(),
            duplicates: next(),
            blocks_lost: next(),
            socket_lost: next(),
            highest: next(),
            paced_nanos: next(),
            granted_nanos: next(),
            disk_nanos: next(),
            busy_nanos: next(),
            refused: next(),
            disk_cpu_nanos: next(),
            memory_lost: next(),
            streams: next() as u32,
            streams_found: true,
            streamed: next(),
            early_lost: next(),
            looked: next(),
            carrier_nanos: next(),
            unasked: next(),
            awake_nanos: next(),
            due: Some(next()),
            too_fast: next(),
            stream_nanos: next(),
            room_nanos: next(),
            found_bps: next(),
            found_nanos: next(),
            path_loss_ppm: next() as u32,
            shared_nanos: Some(next()),
            phase: 3,
            coded: next(),
            recovered: next(),
        };
        assert_eq!(Status::from(&Counters::from(&sent)), sent);
        let unknown = Status { phase: u32::MAX, ..Status::default() };
        assert_eq!(Status::from(&Counters::from(&unknown)), Status::default());
    }
}
