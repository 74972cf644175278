//! The state that every sender keeps: pacing, round-trip time, the receiver's pulses (periodic
//! reports), the circuit breaker, counters and queued messages.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use super::complete_segments::CompleteSegments;
use super::frontier::{Frontier, Run};
use super::loss_window::{Expected, LossWindow};
use crate::accounting::SenderAccounting;
use crate::coded::payload_len;
use crate::endpoint::{Carrier, Event, FlowId, Outgoing, PacketNumber, Setup, Wake, Why};
use crate::layout::{Block, Layout};
use crate::pace::Pacer;
use crate::rate::Feedback;
use crate::rtt::Rtt;
use crate::sent::SentLog;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::{Control, Echo, Pulse};

/// The circuit breaker of RFC 8085, section 3.1.10: silence for the longer of this and
/// [`SILENT_RTTS`] round trips stops the flow.
const SILENT: Span = Span::from_secs(3);
const SILENT_RTTS: u64 = 8;

/// A flow's sending end without the protocol's decisions.
pub struct SendingEnd {
    /// The flow.
    pub flow: FlowId,
    /// How the object is divided into blocks.
    pub layout: Layout,
    /// Blocks never sent, and blocks known to have arrived.
    pub frontier: Frontier,
    /// Releases datagrams; the protocol sets its rate.
    pub pacer: Pacer,
    /// The round-trip time, from the pulses' echoes.
    pub rtt: Rtt,
    /// The counters; [`SendingEnd::send`] counts sent blocks.
    pub accounting: SenderAccounting,
    overhead: Bytes,
    complete_segments: CompleteSegments,
    sent: SentLog,
    /// Highest packet number used, plus one. A pulse that reports a higher number is invalid.
    numbered: u64,
    /// When something was last received; until then, when the first datagram left. `None` before
    /// the first datagram left.
    last_received: Option<Time>,
    silent: bool,
    finished: bool,
    last_pulse: u64,
    loss: LossWindow,
    outgoing: VecDeque<Outgoing>,
    events: VecDeque<Event>,
}

impl SendingEnd {
    /// A sending end that starts at `rate`, in bits a second of UDP payload.
    pub fn new(setup: &Setup, rate: Rate) -> SendingEnd {
        let mut end = SendingEnd {
            flow: setup.flow,
            layout: setup.layout,
            frontier: Frontier::new(setup),
            pacer: Pacer::new(rate, setup.datagram()),
            rtt: Rtt::new(setup.rtt),
            accounting: SenderAccounting::default(),
            overhead: setup.overhead,
            complete_segments: CompleteSegments::new(setup.layout),
            sent: SentLog::default(),
            numbered: 0,
            last_received: None,
            silent: false,
            finished: false,
            last_pulse: 0,
            loss: LossWindow::new(setup.known_path().map(|path| path.loss)),
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
        };
        if setup.layout.blocks() == 0 {
            end.finish();
        }
        end
    }

    /// Records that the receiver misses nothing; later calls change nothing.
    pub fn finish(&mut self) {
        if !core::mem::replace(&mut self.finished, true) {
            self.events.push_back(Event::Finished);
        }
    }

    /// Records that every block of a segment has arrived; returns whether that is new. The flow is
    /// finished when all segments are complete.
    pub(crate) fn set_whole(&mut self, segment: u32) -> bool {
        if self.complete_segments.contains(segment) {
            return false;
        }
        let base = self.layout.number(Block { segment, index: 0 });
        let blocks = base..base + u64::from(self.layout.blocks_in(segment));
        self.frontier.set_there(blocks.clone());
        self.note(blocks);
        true
    }

    /// Notes blocks that the frontier has just marked as arrived. Reports the segments that these
    /// blocks complete, and the end of the flow.
    pub fn note(&mut self, blocks: Range<u64>) {
        let SendingEnd { frontier, complete_segments, events, .. } = self;
        complete_segments.note(frontier.there(), blocks, |segment| {
            events.push_back(Event::SegmentDone { segment });
        });
        if complete_segments.is_all() {
            self.finish();
        }
    }

    /// Whether all blocks of the segment from index `from` on are known to have arrived.
    pub fn is_there(&self, segment: u32, from: u32) -> bool {
        let base = self.layout.number(Block { segment, index: 0 });
        let end = base + u64::from(self.layout.blocks_in(segment));
        self.frontier.there().covers(base + u64::from(from)..end)
    }

    /// Whether the receiver is known to miss nothing.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether nothing may be sent: the flow is finished or the circuit breaker is open.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.finished || self.silent
    }

    /// Records a message of `flow`; returns whether it is for this flow.
    pub fn hear(&mut self, now: Time, flow: FlowId) -> bool {
        if flow != self.flow {
            return false;
        }
        if core::mem::take(&mut self.silent) && !self.finished {
            self.events.push_back(Event::Resumed);
        }
        self.last_received = self.last_received.map(|_| now);
        true
    }

    /// Takes the grant (the bytes that may be sent for the first time), the round-trip time and the
    /// loss from a pulse. Returns feedback for a rate controller, or `None` if the pulse is old or
    /// impossible.
    pub(crate) fn on_pulse<'a>(&mut self, now: Time, pulse: &'a Pulse) -> Option<Feedback<'a>> {
        let is_sent = |echo: Echo| echo.number.0 < self.numbered;
        if pulse.highest > self.numbered || !pulse.echo.is_none_or(is_sent) {
            self.accounting.refused += 1;
            return None;
        }
        self.frontier.raise_grant(pulse.grant);
        if pulse.sequence <= self.last_pulse {
            return None;
        }
        self.last_pulse = pulse.sequence;
        self.loss.note(pulse.highest, pulse.received);
        let sample = pulse.echo.and_then(|echo| self.sent.sample(now, echo));
        if let Some(sample) = sample {
            self.rtt.sample(sample);
        }
        Some(Feedback { pulse, min_rtt: self.rtt.min(), rtt: self.rtt.smoothed(), sample })
    }

    /// Sends a run of blocks: appends them to `out`, counts them and charges the pacer.
    pub fn send(&mut self, now: Time, run: &Run, first_time: bool, out: &mut Vec<Block>) {
        let mut bytes = 0;
        for index in run.blocks.clone() {
            let block = Block { segment: run.segment, index };
            bytes += u64::from(payload_len(&self.layout, block));
            out.push(block);
        }
        let count = run.blocks.len() as u64;
        self.accounting.sent += count;
        if first_time {
            self.accounting.first += count;
        } else {
            self.accounting.retransmitted += count;
        }
        self.pacer.spend(now, Bytes::new(bytes + count * self.overhead.get()));
    }

    pub(crate) fn loss(&self, least: u64) -> Option<Expected> {
        self.loss.expected(least)
    }

    pub(crate) fn pace(&mut self, now: Time, rate: Rate, most: u64) {
        self.pacer.set_rate(now, rate);
        self.pacer.limit_burst(most);
    }

    /// Records the datagrams of a poll, the first with number `next`. Call it once after all
    /// [`SendingEnd::send`] of a poll.
    pub fn sent(&mut self, now: Time, next: PacketNumber, count: u64) {
        if count > 0 {
            self.last_received.get_or_insert(now);
            self.numbered = next.0 + count;
            self.sent.record(now, next, count, self.rtt.min());
        }
    }

    /// Highest packet number used, plus one.
    pub fn numbered(&self) -> u64 {
        self.numbered
    }

    /// Queues a control message.
    pub fn say(&mut self, carrier: Carrier, control: Control) {
        self.outgoing.push_back(Outgoing { flow: self.flow, carrier, control });
    }

    /// Queues an event.
    pub fn push_event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// The next control message to send.
    pub fn poll_control(&mut self) -> Option<Outgoing> {
        self.outgoing.pop_front()
    }

    /// The next event to report.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Opens the circuit breaker if the silence has lasted too long. Returns true if the breaker is
    /// open or the flow is finished.
    pub(crate) fn check_breaker(&mut self, now: Time) -> bool {
        if self.is_at_rest() {
            return true;
        }
        if self.breaker().is_some_and(|at| at <= now) {
            self.silent = true;
            let last_received = self.last_received.unwrap_or(now);
            self.events.push_back(Event::Silent(now.since(last_received)));
        }
        self.silent
    }

    fn breaker(&self) -> Option<Time> {
        let silence = SILENT.max(self.rtt.smoothed() * SILENT_RTTS);
        self.last_received.filter(|_| !self.silent).map(|last_received| last_received + silence)
    }

    /// When to call again for the breaker and, if the protocol wants to send blocks (`is_work`),
    /// for the pacer. The protocol adds its own timers with [`Wake::earlier`].
    pub fn next_wakeup(&self, is_work: bool) -> Wake {
        if self.is_at_rest() {
            return Wake::OnInput;
        }
        let pacing = if is_work { Wake::At(self.pacer.next(), Why::Pacing) } else { Wake::OnInput };
        pacing.earlier(self.breaker().map_or(Wake::OnInput, |at| Wake::At(at, Why::Breaker)))
    }
}
