//! A receiving host's program behind its socket buffer, and its disk.

use std::collections::VecDeque;

use longhaul_proto::endpoint::Arrival;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;

use crate::scenario::{Disk, Host, Pace};

/// Maximum number of datagrams that a program takes per call. The program takes only as many as it
/// can process within [`TURN`], but at least one. A program whose reports take time takes one
/// datagram per call.
const BATCH: usize = 64;
const TURN: Span = Span::from_micros(250);

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) agent: u32,
    pub(super) arrival: Arrival,
    pub(super) payload: u32,
}

/// A host's receiving program: one thread, one socket.
#[derive(Debug)]
pub(super) struct Program {
    pace: Pace,
    report_cost: Span,
    /// When the program finishes sending its reports.
    free: Time,
    buffer: Bytes,
    waiting: VecDeque<Waiting>,
    occupied: Bytes,
    /// The datagrams that the program is processing.
    pub(super) batch: Vec<Waiting>,
    busy: bool,
}

impl Program {
    pub(super) fn new(host: &Host) -> Program {
        Program {
            pace: host.receives,
            report_cost: host.report_cost,
            free: Time::ZERO,
            buffer: host.socket_buffer,
            waiting: VecDeque::new(),
            occupied: Bytes::ZERO,
            batch: Vec::new(),
            busy: false,
        }
    }

    /// Whether the program processes datagrams without delay.
    pub(super) fn is_instant(&self) -> bool {
        !self.pace.is_limited() && self.report_cost == Span::ZERO
    }

    /// Notes `count` reports; each takes `report_cost`.
    pub(super) fn report(&mut self, now: Time, count: u64) {
        self.free = self.free.max(now) + self.report_cost * count;
    }

    /// Puts a datagram into the socket buffer, if it fits.
    pub(super) fn arrive(&mut self, datagram: Waiting) -> bool {
        let payload = Bytes::new(datagram.payload.into());
        if self.occupied + payload > self.buffer {
            return false;
        }
        self.occupied += payload;
        self.waiting.push_back(datagram);
        true
    }

    /// Lets the program take waiting datagrams, or first finish its reports. Returns how long this
    /// takes; `None` if the program is busy or no datagram waits.
    pub(super) fn begin(&mut self, now: Time) -> Option<Span> {
        if self.busy || self.waiting.is_empty() {
            return None;
        }
        let held_up = self.free.since(now);
        if held_up > Span::ZERO {
            self.busy = true;
            return Some(held_up);
        }
        let batch = if self.report_cost == Span::ZERO { BATCH } else { 1 };
        let mut cost = Span::ZERO;
        while let Some(datagram) = self.waiting.front()
            && self.batch.len() < batch
        {
            let payload = Bytes::new(datagram.payload.into());
            let more = cost + self.pace.cost(payload);
            if more > TURN && !self.batch.is_empty() {
                break;
            }
            cost = more;
            self.occupied -= payload;
            self.batch.extend(self.waiting.pop_front());
        }
        self.busy = true;
        Some(cost)
    }

    pub(super) fn end(&mut self) {
        self.batch.clear();
        self.busy = false;
    }

    pub(super) fn holds(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().chain(&self.batch)
    }
}

/// The bytes that a disk writes in `span` after `from`; during a stall it writes nothing.
pub(super) fn disk_work(disk: &Disk, from: Time, span: Span) -> Bytes {
    let from = from.since(Time::ZERO);
    let end = from + span;
    let Some(stalls) = disk.stalls else { return disk.rate.over(span) };
    let (mut at, mut work) = (stalls.resume(from), Span::ZERO);
    while at < end {
        let period = at.as_nanos() / stalls.every.as_nanos().max(1) + 1;
        let next = Span::from_nanos(period.saturating_mul(stalls.every.as_nanos().max(1)));
        work = work + (next.min(end) - at);
        at = stalls.resume(next);
    }
    disk.rate.over(work)
}

#[cfg(test)]
mod tests {
    use longhaul_proto::endpoint::PacketNumber;
    use longhaul_proto::layout::Block;
    use longhaul_proto::units::Rate;

    use super::*;
    use crate::scenario::Stalls;

    fn datagram() -> Waiting {
        let block = Block { segment: 0, index: 0 };
        let arrival = Arrival { number: PacketNumber(0), block, at: Time::ZERO };
        Waiting { agent: 0, arrival, payload: 1_000 }
    }

    #[test]
    fn a_full_socket_buffer_drops_datagrams_until_the_program_takes_some() {
        let mut host = Host::new("b");
        host.socket_buffer = Bytes::new(3_500);
        host.receives.packets = Some(10_000.0);
        let mut program = Program::new(&host);
        assert!(!program.is_instant());
        let taken = (0..5).filter(|_| program.arrive(datagram())).count();
        assert_eq!(taken, 3);
        // A datagram takes 100 µs, so two fit into a turn of 250 µs.
        assert_eq!(program.begin(Time::ZERO), Some(Span::from_micros(200)));
        assert_eq!((program.begin(Time::ZERO), program.batch.len()), (None, 2));
        assert!(program.arrive(datagram()) && program.arrive(datagram()));
        assert_eq!(program.holds().count(), 5);
        program.end();
        assert!(program.begin(Time::ZERO).is_some());
    }

    #[test]
    fn a_program_takes_no_datagrams_while_it_sends_reports() {
        let mut host = Host::new("b");
        host.report_cost = Span::from_millis(1);
        let mut program = Program::new(&host);
        assert!(!program.is_instant());
        assert!(program.arrive(datagram()) && program.arrive(datagram()));
        assert_eq!((program.begin(Time::ZERO), program.batch.len()), (Some(Span::ZERO), 1));
        program.end();
        program.report(Time::ZERO, 2);
        let now = Time::ZERO + Span::from_micros(500);
        assert_eq!(program.begin(now), Some(Span::from_micros(1_500)));
        assert!(program.batch.is_empty());
        program.end();
        let now = now + Span::from_micros(1_500);
        assert_eq!((program.begin(now), program.batch.len()), (Some(Span::ZERO), 1));
    }

    #[test]
    fn a_disk_does_nothing_while_it_stalls() {
        let ms = Span::from_millis;
        // 1,000 bytes a millisecond. From 1 s on, the disk stalls for the first 200 ms of each
        // second.
        let stalls = Some(Stalls { every: ms(1_000), length: ms(200) });
        let disk = Disk { rate: Rate::from_mbps(8), stalls };
        let work = |from, span| disk_work(&disk, Time::ZERO + ms(from), ms(span)).get();
        assert_eq!(work(0, 1_000), 1_000_000);
        assert_eq!(work(0, 2_000), 1_800_000);
        assert_eq!(work(1_050, 100), 0);
        assert_eq!(work(900, 400), 200_000);
        assert_eq!(disk_work(&Disk { stalls: None, ..disk }, Time::ZERO, ms(500)).get(), 500_000);
    }
}
