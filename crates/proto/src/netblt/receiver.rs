//! The receiving end. It tells the sender how many buffers (ranges of blocks that NETBLT
//! acknowledges as a whole) may be sent (GO), confirms complete buffers (OK), and requests a
//! buffer's missing blocks when its data timer expires (RESEND).

use alloc::collections::{BTreeMap, VecDeque};
use core::ops::Range;

use super::buffers::Buffers;
use super::incoming::{Incoming, Patience};
use super::{BUFFERS, BURST};
use crate::endpoint::{Arrival, BlockRange, Carrier, Event, Setup, Wake, Why};
use crate::ends::{Flows, ReceivingEnd, ReceivingFlow, Tallies};
use crate::ranges::RangeSet;
use crate::time::Time;
use crate::units::Bytes;
use crate::wire::{Begun, BufferOk, Burst, Control, Go, Resend};

/// The burst size offered by default, in datagrams. It is larger than the default burst of any
/// sender, so it limits nothing.
const OFFERED_BURST: u32 = 128;
/// The offered rate is the rate at which the host drains received data, times this factor. A host
/// cannot drain data faster than they arrive, so with a factor of 1 the sender could never become
/// faster.
const OFFER: f64 = 1.1;

/// NETBLT's receiver for any number of flows.
pub type NetbltReceiver = Flows<Flow>;

/// One flow of the receiver.
pub struct Flow {
    end: ReceivingEnd,
    tallies: Tallies,
    buffers: Buffers,
    datagram: Bytes,
    burst: u32,
    /// Maximum number of incomplete buffers that the sender may have in flight.
    most: u64,
    /// Total number of buffers that GO has allowed so far.
    go: u64,
    /// Buffers that have begun and are incomplete.
    open: BTreeMap<u64, Incoming>,
    whole: RangeSet,
    /// Highest buffer with a received block, plus one.
    seen: u64,
    patience: Patience,
    /// Messages that are sent before GO and before requests.
    say: VecDeque<Control>,
    /// Buffers whose missing blocks are to be requested.
    asking: VecDeque<u64>,
}

impl Flow {
    /// Total number of buffers that GO may allow now: the number of complete buffers plus `most`,
    /// but at most the number of the object's buffers.
    fn free(&self) -> u64 {
        self.whole.count().saturating_add(self.most).min(self.buffers.count())
    }

    fn next_go(&mut self) -> Option<Control> {
        let free = self.free();
        if free <= self.go {
            return None;
        }
        self.go = free;
        Some(Control::Go(Go { buffers: free }))
    }

    fn set_buffer_whole(&mut self, buffer: u64) {
        let begun = self.open.remove(&buffer).is_some();
        self.asking.retain(|asking| *asking != buffer);
        if self.whole.insert(buffer..buffer + 1) == 0 {
            return;
        }
        // If this buffer never began here, the receiver has its blocks from another source. The
        // sender skips them too, so it waits for no OK.
        if begun {
            let drain = self.end.pulses.drain().map(|drain| drain.scale(OFFER));
            let offer = drain.and_then(|drain| Burst::of(drain, self.burst, self.datagram));
            self.say.push_back(Control::BufferOk(BufferOk { buffer, offer }));
        }
    }

    fn set_segment_whole(&mut self, segment: u32) {
        self.end.push_event(Event::SegmentDone { segment });
        if self.tallies.is_complete() {
            self.end.finish();
        }
    }

    /// Marks arrivals of one buffer; returns how many blocks are new.
    fn mark(&mut self, now: Time, run: &[Arrival]) -> u64 {
        let segment = run[0].block.segment;
        let buffer = self.buffers.of(run[0].block);
        let marked = self.tallies.mark(segment, run);
        // The number of a block beyond the segment's end may map to a buffer of a later segment.
        // Such a block is ignored.
        let place = self.buffers.place(buffer).filter(|(of, _)| *of == segment);
        let Some((_, blocks)) = place else { return marked.new };
        if !self.whole.contains(buffer) {
            let known = run.iter().map(|arrival| arrival.block.index);
            let last = known.filter(|index| blocks.contains(index)).max();
            let missing = || self.tallies.missing_in(segment, blocks.clone());
            let incoming = match self.open.entry(buffer) {
                alloc::collections::btree_map::Entry::Occupied(entry) => {
                    let incoming = entry.into_mut();
                    incoming.left -= marked.new as u32;
                    incoming
                }
                alloc::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert(Incoming::new(segment, blocks.clone(), missing()))
                }
            };
            if let Some(last) = last {
                incoming.on_data(now, last, self.patience);
                self.seen = self.seen.max(buffer + 1);
            }
            if incoming.left == 0 {
                self.set_buffer_whole(buffer);
            }
        }
        // Buffers are sent in order, so every block of the earlier buffers has been sent.
        for earlier in self.open.range_mut(..buffer).map(|(_, earlier)| earlier) {
            earlier.on_later_data(now, self.patience);
        }
        if marked.is_last {
            self.set_segment_whole(segment);
        }
        marked.new
    }

    fn on_begun(&mut self, now: Time, begun: &Begun) {
        let place = self.buffers.place(begun.buffer).filter(|_| begun.buffer < self.go);
        let Some((segment, blocks)) = place else {
            self.end.accounting.refused += 1;
            return;
        };
        if self.whole.contains(begun.buffer) {
            return;
        }
        let left = self.tallies.missing_in(segment, blocks.clone());
        let fresh = || Incoming::new(segment, blocks, left);
        let incoming = self.open.entry(begun.buffer).or_insert_with(fresh);
        incoming.on_begun(now, begun.burst, self.patience);
        if left == 0 {
            self.set_buffer_whole(begun.buffer);
        }
    }

    fn expire(&mut self, now: Time) {
        for (buffer, incoming) in &mut self.open {
            if incoming.due().is_some_and(|due| due <= now) {
                incoming.ask();
                self.asking.push_back(*buffer);
            }
        }
    }

    /// How many of these blocks of a segment are missing and counted as lost.
    fn lost_in(&self, segment: u32, blocks: &Range<u32>) -> u64 {
        let buffers = self.buffers.touching(segment, blocks.clone());
        let begun = buffers.filter_map(|buffer| self.open.get(&buffer));
        let missing = |incoming: &Incoming| {
            u64::from(self.tallies.missing_in(segment, incoming.counted(blocks)))
        };
        begun.map(missing).sum()
    }

    fn next_request(&mut self, now: Time) -> Option<Resend> {
        while let Some(&buffer) = self.asking.front() {
            let is_past = buffer + 1 < self.seen;
            let highest = self.end.accounting.highest;
            if let Some(incoming) = self.open.get_mut(&buffer)
                && let Some(tally) = self.tallies.open(incoming.segment())
                && let Some(asked) = incoming.next_slice(now, tally, is_past, self.patience)
            {
                self.end.accounting.blocks_lost += u64::from(asked.newly_lost);
                self.end.accounting.reported_lost += u64::from(asked.lost);
                return Some(Resend { buffer, highest, report: asked.report });
            }
            self.asking.pop_front();
        }
        None
    }
}

impl ReceivingFlow for Flow {
    fn new(now: Time, setup: &Setup) -> Flow {
        let burst = u32::try_from(setup.settings.count(&BURST)).unwrap_or(u32::MAX);
        Flow {
            end: ReceivingEnd::new(now, setup),
            tallies: Tallies::new(setup.layout),
            buffers: Buffers::new(setup),
            datagram: setup.datagram(),
            burst: if burst > 0 { burst } else { OFFERED_BURST },
            most: setup.settings.count(&BUFFERS),
            go: 0,
            open: BTreeMap::new(),
            whole: RangeSet::new(),
            seen: 0,
            patience: Patience::new(setup.rtt),
            say: VecDeque::new(),
            asking: VecDeque::new(),
        }
    }

    fn end(&self) -> &ReceivingEnd {
        &self.end
    }

    fn end_mut(&mut self) -> &mut ReceivingEnd {
        &mut self.end
    }

    fn on_datagrams(&mut self, now: Time, arrivals: &[Arrival]) {
        let received = self.end.on_arrivals(now, arrivals);
        let buffers = self.buffers;
        let buffer = |arrival: &Arrival| (arrival.block.segment, buffers.of(arrival.block));
        let runs = arrivals.chunk_by(|a, b| buffer(a) == buffer(b));
        let new = runs.map(|run| self.mark(now, run)).sum();
        self.end.count(received, new);
        self.expire(now);
    }

    fn on_control(&mut self, now: Time, control: &Control) {
        match control {
            Control::Begun(begun) => self.on_begun(now, begun),
            _ => self.end.accounting.refused += 1,
        }
    }

    fn on_timeout(&mut self, now: Time) {
        self.expire(now);
    }

    fn skip(&mut self, _: Time, blocks: BlockRange) {
        let (segment, indices) = (blocks.first.segment, blocks.indices(&self.end.layout));
        if indices.is_empty() {
            return;
        }
        self.end.forget_lost(self.lost_in(segment, &indices));
        let is_whole = self.tallies.skip(blocks);
        for buffer in self.buffers.touching(segment, indices) {
            let Some((_, blocks)) = self.buffers.place(buffer) else { continue };
            let left = self.tallies.missing_in(segment, blocks);
            if let Some(incoming) = self.open.get_mut(&buffer) {
                incoming.left = left;
            }
            if left == 0 {
                self.set_buffer_whole(buffer);
            }
        }
        if is_whole {
            self.set_segment_whole(segment);
        }
    }

    fn poll_report(&mut self, now: Time) -> Option<(Carrier, Control)> {
        let said = self.say.pop_front().or_else(|| self.next_go());
        let said = said.or_else(|| self.next_request(now).map(Control::Resend));
        Some((Carrier::Reliable, said?))
    }

    fn next_report(&self) -> Wake {
        if !self.say.is_empty() || !self.asking.is_empty() || self.free() > self.go {
            return Wake::Now;
        }
        let due = self.open.values().filter_map(Incoming::due).min();
        due.map_or(Wake::OnInput, |due| Wake::At(due, Why::Report))
    }
}
