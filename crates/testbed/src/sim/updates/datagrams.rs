//! State updates by datagrams: with a fixed erasure code, or with the code that a deadline needs on
//! the measured path.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use longhaul_proto::channel::{Code, Cover, Cutter, Datagram, Joiner, cover};
use longhaul_proto::stream::{Meter, Path};
use longhaul_proto::time::{Span, Time};

use super::{Tally, UpdatesRun};
use crate::link::{Fate, Link, UDP_IP};

/// A datagram on the path: arrival time, position in the order of sending, block, content.
type Flying = (Time, u64, u64, Vec<u8>);

/// Header and tag of a sealed datagram, in bytes.
const SEALED: u32 = 32;
/// The longest content of a datagram, in bytes.
const PAYLOAD: usize = 1_420;
/// How long a group (datagrams with common repairs) may stay incomplete before its repairs are
/// sent. With a deadline, the receiver's reports may change this wait.
const WAIT: Span = Span::from_millis(20);

/// How often the receiver reports. A report takes half a round trip, except the first report, which
/// the sender has from the start.
const REPORT: Span = Span::from_secs(1);

/// What adapts the code to a deadline: the receiver's measurements and its reports to the sender.
struct Known {
    deadline: Span,
    meter: Meter,
    /// When the receiver sends its next report.
    due: Time,
    /// The report in flight, and when it arrives.
    report: Option<(Time, Path)>,
    /// Number of datagrams, not counting repairs, that the sender had sent when the last report
    /// arrived.
    count: u64,
}

impl Known {
    fn new(deadline: Span, run: &UpdatesRun) -> Known {
        let meter = Meter::new(REPORT);
        let report = Some((Time::ZERO, path(run, &meter)));
        Known { deadline, meter, due: Time::ZERO + REPORT, report, count: 0 }
    }

    fn next_wakeup(&self) -> Time {
        self.report.map_or(self.due, |(at, _)| at.min(self.due))
    }

    /// Adapts `cutter` to a report that has arrived; sends a report that is due.
    fn follow(&mut self, now: Time, run: &UpdatesRun, cutter: &mut Cutter) {
        if let Some((_, path)) = self.report.take_if(|(at, _)| *at <= now) {
            let per_second = (cutter.count() - self.count) as f64 / REPORT.as_secs_f64();
            self.count = cutter.count();
            if let Some(Cover { code, wait }) = cover(self.deadline, per_second, &path) {
                cutter.follow(code, wait);
            }
        }
        if self.due <= now {
            self.due = now + REPORT;
            self.report = Some((now + run.link.delay, path(run, &self.meter)));
        }
    }
}

fn path(run: &UpdatesRun, meter: &Meter) -> Path {
    let (rtt, symbol) = (run.link.delay * 2, run.size as u16);
    Path { rtt, jitter: meter.spread(), losses: meter.losses(), symbol }
}

pub(super) fn run(run: &UpdatesRun, code: Code, deadline: Option<Span>, tally: &mut Tally) {
    let (mut cutter, mut joiner) = (Cutter::new(PAYLOAD, code, WAIT), Joiner::default());
    let mut known = deadline.map(|deadline| Known::new(deadline, run));
    let mut link = Link::new(run.link.clone(), run.seed);
    let mut flying: BinaryHeap<Reverse<Flying>> = BinaryHeap::new();
    let (mut cut, mut joined, mut number) = (Vec::new(), Vec::new(), 0);
    loop {
        let update = (number < run.count).then(|| tally.at(number));
        let arrival = flying.peek().map(|Reverse((at, ..))| *at);
        let Some(now) = [update, arrival, cutter.next_wakeup()].into_iter().flatten().min() else {
            return;
        };
        if let Some(known) = known.as_mut().filter(|known| known.next_wakeup() <= now) {
            known.follow(now, run, &mut cutter);
        }
        if update == Some(now) {
            let mut message = vec![0; run.size.max(8)];
            message[..4].copy_from_slice(&number.to_be_bytes());
            // Only messages above the size limit are refused.
            let _ = cutter.message(now, &message, &mut cut);
            number += 1;
        }
        cutter.flush(now, &mut cut);
        for Datagram { block, payload } in cut.drain(..) {
            let packet = payload.len() as u32 + SEALED + UDP_IP;
            tally.sent(packet);
            if let Fate::Arrives(passage) = link.offer(now, packet)
                && passage.turned_bit.is_none()
            {
                let order = tally.outcome.packets;
                flying.push(Reverse((passage.at, order, block, payload)));
            }
        }
        while flying.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((_, order, block, payload))) = flying.pop() else { break };
            joiner.take(block, &payload, &mut joined);
            if let Some(known) = &mut known {
                known.meter.on_datagram(now, order);
            }
        }
        for joined in joined.drain(..) {
            let Some(number) = joined.message.first_chunk() else { continue };
            let number = u32::from_be_bytes(*number);
            let age = now.since(tally.at(number));
            if deadline.is_none_or(|deadline| age <= deadline) {
                tally.delivered(now, number);
            }
        }
    }
}
