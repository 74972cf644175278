//! A link of the emulator and the packets in flight on it. A frame is a packet as the kernel passes
//! it; a frame may represent several packets on the wire, its segments. Segments of one frame that
//! travel together are a run. A link holds runs in the order of their due times.

use std::collections::VecDeque;
use std::ops::Range;

use longhaul_proto::time::{Span, Time};

use super::slab::{Slab, Slot};
use super::superpacket::Shape;
use crate::link::{Fate, Link, Passage};
use crate::scenario::LinkBetween;

/// Segments of a frame that are due within this time may stay together in one run.
const CLUMP: Span = Span::from_micros(50);

pub(super) struct Lane {
    /// The node at the link's end, possibly a host.
    pub(super) to: usize,
    pub(super) link: Link,
    /// The time at which the last run was offered. Runs of several preceding links may come out of
    /// order, but a link's time must not go back. So the forwarder offers a run with an earlier due
    /// time at `offered`.
    pub(super) offered: Time,
    pub(super) due: VecDeque<Run>,
    /// Bunched packets ([`Run::bunched`]) that the queue or CoDel dropped.
    pub(super) burst_drops: u64,
}

/// Segments of one frame that travel together.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) at: Time,
    pub(super) slot: Slot,
    pub(super) segments: Range<u16>,
    pub(super) turned_bit: Option<u32>,
    /// The number of the route.
    pub(super) way: u32,
    /// The number of further links on the route.
    pub(super) left: u16,
    /// Whether the frame may have waited too long for the forwarder, and so arrived in a burst.
    pub(super) bunched: bool,
}

impl Lane {
    pub(super) fn new(between: LinkBetween, seed: u64) -> Lane {
        Lane {
            to: between.to,
            link: Link::new(between.link, seed),
            offered: Time::ZERO,
            due: VecDeque::new(),
            burst_drops: 0,
        }
    }

    /// Offers each packet of `run` to the link at the run's due time. Returns how many packets will
    /// arrive, duplicates included.
    pub(super) fn offer(&mut self, slab: &mut Slab, shape: &Shape, run: Run) -> u64 {
        self.offered = run.at;
        let bunched = run.bunched;
        let mut on_their_way = 0;
        let mut gathered: Option<(Run, Time)> = None;
        for segment in run.segments.clone() {
            let fate = self.link.offer(run.at, shape.packet_bytes(segment.into()));
            let Fate::Arrives(passage) = fate else {
                self.burst_drops += u64::from(bunched && fate.is_queue());
                continue;
            };
            let run = run.only(segment, passage);
            if passage.twice {
                self.schedule(slab, run.clone());
                on_their_way += 1;
            }
            on_their_way += 1;
            match &mut gathered {
                Some((before, first)) if before.takes(&run, *first) => {
                    before.segments.end += 1;
                    before.at = run.at;
                }
                _ => {
                    let first = run.at;
                    if let Some((before, _)) = gathered.replace((run, first)) {
                        self.schedule(slab, before);
                    }
                }
            }
        }
        if let Some((last, _)) = gathered {
            self.schedule(slab, last);
        }
        on_their_way
    }

    /// Inserts a run by its due time.
    fn schedule(&mut self, slab: &mut Slab, run: Run) {
        slab.hold(run.slot);
        if self.due.back().is_none_or(|last| last.at <= run.at) {
            self.due.push_back(run);
        } else {
            let place = self.due.partition_point(|other| other.at <= run.at);
            self.due.insert(place, run);
        }
    }
}

impl Run {
    fn only(&self, segment: u16, passage: Passage) -> Run {
        let turned_bit = self.turned_bit.or(passage.turned_bit);
        let (at, segments) = (passage.at, segment..segment + 1);
        Run { at, segments, turned_bit, ..self.clone() }
    }

    /// Whether `next` can join this run, whose first segment is due at `first`.
    fn takes(&self, next: &Run, first: Time) -> bool {
        self.segments.end == next.segments.start
            && next.at >= self.at
            && next.at.since(first) <= CLUMP
            && self.turned_bit.is_none()
            && next.turned_bit.is_none()
    }
}
