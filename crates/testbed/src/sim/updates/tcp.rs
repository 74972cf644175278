//! Updates by TCP; the model is at [`run`](super::run).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use longhaul_proto::time::{Span, Time};

use super::{Tally, UpdatesRun};
use crate::link::{Fate, Link};

/// Bytes of content in a full segment.
const SEGMENT: usize = 1_448;
/// Bytes of a segment's headers.
const HEADERS: u32 = 52;
/// Segments of the first window.
const FIRST: f64 = 10.0;
/// A segment counts as lost when a segment sent at least this many transmissions later is
/// acknowledged.
const LATER: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Update,
    /// A segment arrives.
    Arrival {
        segment: u64,
        order: u64,
    },
    Acknowledged {
        segment: u64,
        order: u64,
    },
    /// Check for segments lost by age.
    Look,
}

struct Segment {
    updates: Vec<u32>,
    sent: Time,
    /// The number of the segment's last transmission, counted over all segments.
    order: u64,
    /// Whether the segment waits to be sent again.
    is_lost: bool,
}

struct Tcp<'a> {
    run: &'a UpdatesRun,
    link: Link,
    back: Span,
    rtt: Span,
    events: BinaryHeap<Reverse<(Time, Event)>>,
    unsent: VecDeque<u32>,
    open: BTreeMap<u64, Segment>,
    next: u64,
    order: u64,
    /// The highest number of a transmission that was acknowledged.
    newest: u64,
    window: f64,
    threshold: f64,
    /// Losses of segments that were sent before this time do not halve the window.
    recovered: Time,
    expected: u64,
    /// The updates of segments that arrived out of order, by segment.
    early: BTreeMap<u64, Vec<u32>>,
}

pub(super) fn run(run: &UpdatesRun, tally: &mut Tally) {
    let mut tcp = Tcp {
        run,
        link: Link::new(run.link.clone(), run.seed),
        back: run.link.delay,
        rtt: run.link.delay * 2,
        events: BinaryHeap::new(),
        unsent: VecDeque::new(),
        open: BTreeMap::new(),
        next: 0,
        order: 0,
        newest: 0,
        window: FIRST,
        threshold: f64::INFINITY,
        recovered: Time::ZERO,
        expected: 0,
        early: BTreeMap::new(),
    };
    let mut number = 0;
    tcp.events.push(Reverse((Time::ZERO, Event::Update)));
    while let Some(Reverse((now, event))) = tcp.events.pop() {
        match event {
            Event::Update => {
                tcp.unsent.push_back(number);
                number += 1;
                if number < run.count {
                    tcp.events.push(Reverse((tally.at(number), Event::Update)));
                }
            }
            Event::Arrival { segment, order } => tcp.arrive(now, segment, order, tally),
            Event::Acknowledged { segment, order } => tcp.acknowledged(now, segment, order),
            Event::Look => tcp.look(now),
        }
        tcp.send(now, tally);
    }
}

impl Tcp<'_> {
    /// Sends what the window allows, lost segments first.
    fn send(&mut self, now: Time, tally: &mut Tally) {
        loop {
            let flying = self.open.values().filter(|segment| !segment.is_lost).count();
            if flying as f64 >= self.window {
                return;
            }
            let lost = self.open.iter().find(|(_, segment)| segment.is_lost);
            let number = match lost.map(|(number, _)| *number) {
                Some(number) => number,
                None if self.unsent.is_empty() => return,
                None => {
                    let most = (SEGMENT / self.run.size.max(1)).max(1);
                    let updates = self.unsent.drain(..most.min(self.unsent.len())).collect();
                    let segment = Segment { updates, sent: now, order: 0, is_lost: false };
                    self.open.insert(self.next, segment);
                    self.next += 1;
                    self.next - 1
                }
            };
            self.order += 1;
            let order = self.order;
            let Some(segment) = self.open.get_mut(&number) else { return };
            (segment.sent, segment.order, segment.is_lost) = (now, order, false);
            let packet = (segment.updates.len() * self.run.size) as u32 + HEADERS;
            tally.sent(packet);
            if let Fate::Arrives(passage) = self.link.offer(now, packet) {
                let event = Event::Arrival { segment: number, order };
                self.events.push(Reverse((passage.at, event)));
            }
            for patience in [self.rtt * 5 / 4, self.rtt * 2] {
                self.events.push(Reverse((now + patience, Event::Look)));
            }
        }
    }

    fn arrive(&mut self, now: Time, segment: u64, order: u64, tally: &mut Tally) {
        let acknowledged = Event::Acknowledged { segment, order };
        self.events.push(Reverse((now + self.back, acknowledged)));
        if segment >= self.expected
            && let Some(sent) = self.open.get(&segment)
        {
            self.early.insert(segment, sent.updates.clone());
        }
        while let Some(updates) = self.early.remove(&self.expected) {
            self.expected += 1;
            for number in updates {
                tally.delivered(now, number);
            }
        }
    }

    fn acknowledged(&mut self, now: Time, segment: u64, order: u64) {
        if self.open.remove(&segment).is_some() {
            self.window += if self.window < self.threshold { 1.0 } else { 1.0 / self.window };
        }
        let by_count =
            |other: &Segment| !other.is_lost && other.order.saturating_add(LATER) <= order;
        self.lose(now, by_count);
        self.newest = self.newest.max(order);
        self.look(now);
    }

    /// Finds segments lost by age: older than 5/4 of a round trip if a later transmission was
    /// acknowledged, otherwise older than two round trips.
    fn look(&mut self, now: Time) {
        let (rtt, newest) = (self.rtt, self.newest);
        self.lose(now, |other| {
            let patience = if other.order < newest { rtt * 5 / 4 } else { rtt * 2 };
            !other.is_lost && now >= other.sent + patience
        });
    }

    fn lose(&mut self, now: Time, is_lost: impl Fn(&Segment) -> bool) {
        let mut latest = None;
        for segment in self.open.values_mut() {
            if is_lost(segment) {
                segment.is_lost = true;
                latest = latest.max(Some(segment.sent));
            }
        }
        if latest.is_some_and(|sent| sent >= self.recovered) {
            self.window = (self.window / 2.0).max(2.0);
            self.threshold = self.window;
            self.recovered = now;
        }
    }
}
