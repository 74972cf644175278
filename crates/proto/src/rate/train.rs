//! Finds the rate without being told: by packet trains and by what is delivered.
//!
//! 1. **Start.** The first datagrams leave as a train; the bottleneck draws it apart, and the
//!    receiver times it. Until that report comes only a bounded trickle follows.
//! 2. **Epochs.** A rate is held until the receiver has told of enough datagrams that were sent at
//!    it: so each epoch is one question to the path, and takes a round trip and a half. What comes
//!    in is compared with what went out: a sender that is too slow for its rate shows nothing.
//! 3. **Up.** A clean epoch raises the rate: towards what the last train showed, else a little.
//!    Where the path has shown its ceiling the rate stays near it for some epochs; then a train
//!    asks again.
//! 4. **Down.** Datagrams that come in slower than they went out, while the round-trip time grows
//!    and does not come back, fill a queue: what comes in is what the path carries, and the rate
//!    goes below it. A host that stalls for a moment makes one late pulse, not two. The receiving
//!    host's socket is such a queue as well: an echo's age begins when its datagram is read.
//! 5. **Loss** beyond the path's own is a question: is it of our own making? Before a ceiling is
//!    known, a little more is sent: where the path loses that share at any rate, more arrives.
//!    Later the rate goes to what was delivered: loss of our own making is gone then, and as much
//!    arrives as before; loss that the path makes anyway stays, and less arrives. Where there is
//!    such loss, a short dip repeats this check from time to time.
//!
//! The receiver's own drain caps the rate, and so does the user's limit.

use super::asked::Asked;
use super::departures::Departures;
use super::{Feedback, RateController};
use crate::endpoint::PacketNumber;
use crate::law::{Found, Phase};
use crate::pulse::{TRAIN_EVERY, TRAIN_LEN};
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::Pulse;

/// The rate after the first train, and how many datagrams that may be before it slows down more.
pub(crate) const TRICKLE: Rate = Rate::from_mbps(8);
const TRICKLE_LEN: u64 = 128;
/// A train that came in one instant was faster than this can tell.
const INSTANT: Span = Span::from_micros(500);
/// A train that came in fewer steps is not timed well: the host looked too seldom.
const MIN_STEPS: u32 = 6;
/// How far hosts that sleep between two looks misdate a train, in seconds. Over the emulator,
/// trains of 0.39 ms at 1 Gbit/s were timed as 0.32 to 0.48 ms.
pub(super) const MISDATED: f64 = 0.000_1;
/// What of a first train's rate is taken: others may fill the path as well.
pub(crate) const FIRST_SHARE: f64 = 0.9;
/// No rate is lower or higher than these, whatever a report says.
const MIN_RATE: f64 = 100e3;
const MAX_RATE: f64 = 1e12;
/// An epoch measures at least so many datagrams over at least this time; less will do as long as
/// the rate grows in large steps.
const MIN_EPOCH_LEN: u64 = 64;
const MIN_EPOCH: Span = Span::from_millis(20);
const BLIND_EPOCH: Span = Span::from_millis(10);
/// Loss beyond the path's own, with its noise, that is an overload.
const EXCESS: f64 = 0.02;
/// A queue shorter than this is none: hosts that were asleep make as much. Less will do where
/// datagrams also came in slower than they went out, by this share at least.
const MIN_QUEUE: Span = Span::from_millis(10);
const MIN_FILLING: Span = Span::from_millis(5);
const STRETCHED: f64 = 0.96;
/// A sender that reaches less than this share of its rate is too slow for it.
const USED: f64 = 0.9;
/// How much more is sent to learn whether loss grows with the rate, and up to which loss.
const TRIED: f64 = 1.25;
const TRIED_LOSS: f64 = 0.2;
/// How far below a known ceiling the rate goes, and above which share of it there is none.
const BELOW: f64 = 0.97;
const REFUTED: f64 = 1.07;
/// How fast the rate grows by guess: where nothing is known; where a ceiling was refuted; where a
/// train was timed, at first; and how much faster after each clean epoch.
const GUESSED: f64 = 1.5;
const CAREFUL: f64 = 1.25;
const NEAR: f64 = 1.04;
const FASTER: f64 = 0.07;
const FASTEST: f64 = 1.6;
/// For how many epochs a ceiling is believed, and after how many the path's own loss is checked.
const BELIEF: u32 = 16;

/// A rate found by trains and epochs.
pub(crate) struct Trains {
    datagram: Bytes,
    limit: f64,
    rate: f64,
    drain: f64,
    /// One more than the highest packet number sent, and when which of them left.
    sent: u64,
    departures: Departures,
    /// The trains that left at once, whose reports have not come.
    asked: Asked,
    /// What the last train showed at least, if it could be timed well.
    shown: Option<f64>,
    /// No train has been timed well, and no overload has shown a ceiling: the rate grows fast, by
    /// this factor an epoch.
    blind: bool,
    growth: f64,
    /// An overload has shown a ceiling.
    bounded: bool,
    /// The smallest round-trip time when datagrams were last noted.
    min_rtt: Span,
    /// The path's own loss ratio, and how many datagrams it was seen over.
    loss: f64,
    seen: f64,
    mode: Mode,
    epoch: Epoch,
    ceiling: Option<Ceiling>,
    /// Epochs since the path's own loss was last checked.
    unchecked: u32,
    /// When the first datagram left, and when the start ended.
    began: Option<Time>,
    started: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// The first train's report has not come.
    Start,
    /// Epochs raise the rate.
    Up,
    /// The rate was raised: does more arrive, for all the loss?
    Try(Measure),
    /// The rate was lowered: does the loss fall with it?
    Check(Measure),
}

/// The rate to begin with, by a flow's first train: a share of what it showed, or what is too fast
/// to be timed. Nothing as long as the train's report has not come.
pub(crate) fn first_rate(datagram: Bytes, pulse: &Pulse, share: f64) -> Option<Rate> {
    match pulse.train.filter(|train| train.first.0 == 0) {
        Some(train) => Some((train.bytes / train.span).scale(share)),
        None if pulse.highest >= TRAIN_LEN => {
            Some(Bytes::new(datagram.get() * TRAIN_LEN) / INSTANT)
        }
        None => None,
    }
}

/// Datagrams sent at one rate.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// The first number sent at this rate.
    from: u64,
    start: Option<Snapshot>,
    /// The last pulse's round-trip time.
    last: Option<Span>,
}

/// What a pulse said.
#[derive(Clone, Copy, Debug)]
struct Snapshot {
    clock: Span,
    highest: u64,
    received: u64,
    rtt: Option<Span>,
}

/// What an epoch showed; rates in bits a second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Measure {
    rate: f64,
    /// As it was sent; as it came in, with what was lost; and delivered.
    left: f64,
    paced: f64,
    delivered: f64,
    loss: f64,
    datagrams: f64,
    /// How long the path's queue was, and whether we fill it.
    queue: Span,
    queued: bool,
}

#[derive(Clone, Copy, Debug)]
struct Ceiling {
    rate: f64,
    epochs: u32,
}

impl Trains {
    /// A controller for datagrams of `datagram` bytes; it never goes above `limit`.
    pub(crate) fn new(datagram: Bytes, limit: Option<Rate>) -> Trains {
        let limit = limit.map_or(f64::INFINITY, |rate| rate.as_bps() as f64);
        Trains {
            datagram,
            limit,
            rate: (TRICKLE.as_bps() as f64).min(limit),
            drain: f64::INFINITY,
            sent: 0,
            departures: Departures::default(),
            asked: Asked::default(),
            shown: None,
            blind: true,
            growth: GUESSED,
            bounded: false,
            min_rtt: Span::ZERO,
            loss: 0.0,
            seen: 0.0,
            mode: Mode::Start,
            epoch: Epoch { from: 0, start: None, last: None },
            ceiling: None,
            unchecked: 0,
            began: None,
            started: None,
        }
    }

    /// The path's own loss ratio, as far as it is known.
    pub(super) fn path_loss(&self) -> f64 {
        self.loss
    }

    /// Goes on from `rate`, in bits a second, near which the path's ceiling is.
    pub(super) fn resume(&mut self, rate: f64) {
        (self.mode, self.ceiling, self.shown) = (Mode::Up, None, None);
        (self.blind, self.bounded, self.unchecked) = (false, true, 0);
        self.set_rate(rate);
    }

    fn set_rate(&mut self, rate: f64) {
        self.rate = rate.clamp(MIN_RATE, MAX_RATE);
        self.epoch = Epoch { from: self.sent, start: None, last: None };
    }

    /// Remembers what a train showed, if it is new, and to be believed.
    fn note_train(&mut self, feedback: &Feedback<'_>) {
        let Some(train) = feedback.pulse.train.filter(|train| self.asked.has(train.first.0)) else {
            return;
        };
        self.asked.forget(train.first.0 + TRAIN_LEN);
        if train.steps < MIN_STEPS {
            return;
        }
        let shown = (train.bytes / train.span).as_bps() as f64;
        // The start believes the first train as it is; a later one must not lead to an overload.
        let error = if train.first.0 == 0 { 0.0 } else { MISDATED };
        let bits = TRAIN_LEN as f64 * self.datagram.bits();
        self.shown = Some(shown / (1.0 + error * shown / bits));
        self.blind = false;
    }

    /// The first report: the train's, or that it came too fast to be timed.
    fn start(&mut self, feedback: &Feedback<'_>) {
        let Some(rate) = first_rate(self.datagram, feedback.pulse, FIRST_SHARE) else { return };
        if feedback.pulse.train.is_some_and(|train| train.first.0 == 0) {
            // A host that stalled meanwhile has drawn the train apart: what it showed is no
            // ceiling.
            self.growth = if self.blind { GUESSED } else { NEAR };
        }
        self.mode = Mode::Up;
        self.set_rate(rate.as_bps() as f64);
    }

    /// What the epoch shows, once it is long enough.
    fn measure(&mut self, feedback: &Feedback<'_>) -> Option<Measure> {
        let pulse = feedback.pulse;
        let (clock, highest, received) = (pulse.clock, pulse.highest, pulse.received);
        let end = Snapshot { clock, highest, received, rtt: feedback.sample };
        if highest <= self.epoch.from {
            return None;
        }
        // A moment's stall makes one pulse late, a queue makes all of them late.
        let before = core::mem::replace(&mut self.epoch.last, end.rtt);
        let lasting = end.rtt.zip(before).map(|(rtt, before)| rtt.min(before));
        let Some(start) = self.epoch.start else {
            self.departures.forget(highest);
            self.epoch.start = Some(end);
            return None;
        };
        // A receiver that takes back what it said shows nothing.
        let (span, sent) = (end.clock - start.clock, end.highest.saturating_sub(start.highest));
        let came = end.received.saturating_sub(start.received).min(sent);
        let loss = 1.0 - came as f64 / sent.max(1) as f64;
        let shortest = if self.blind { BLIND_EPOCH } else { MIN_EPOCH };
        if span < shortest.max(feedback.min_rtt / 2) || sent < self.epoch_len(loss) {
            return None;
        }
        let over = |count: u64, span: Span| {
            (Bytes::new(count * self.datagram.get()) / span).as_bps() as f64
        };
        let left = self.departures.span(start.highest, end.highest);
        let left = left.map_or(self.rate(), |span| over(sent, span)).min(self.rate());
        let (paced, delivered) = (over(sent, span), over(came, span));
        let (queue, queued) = match (lasting, start.rtt) {
            (Some(lasting), Some(first)) => {
                let queue = lasting - feedback.min_rtt;
                (queue, fills(queue, lasting - first, span, paced / left, feedback.min_rtt))
            }
            _ => (Span::ZERO, false),
        };
        let (rate, datagrams) = (self.rate(), sent as f64);
        Some(Measure { rate, left, paced, delivered, loss, datagrams, queue, queued })
    }

    /// Datagrams that an epoch with this loss needs: it takes more to tell a share of a tenth from
    /// another than to tell none, or half.
    fn epoch_len(&self, loss: f64) -> u64 {
        let decided = loss > self.loss + 0.25;
        MIN_EPOCH_LEN + if decided { 0 } else { (loss * 2_500.0).min(500.0) as u64 }
    }

    fn rate(&self) -> f64 {
        self.rate.min(self.limit).min(self.drain)
    }

    /// Whether an epoch's loss is more than the path's own.
    fn is_excess(&self, measure: &Measure) -> bool {
        let own = self.loss.max(0.002);
        let noise = libm::sqrt(own * (1.0 - own) / measure.datagrams);
        measure.loss > self.loss + EXCESS + 2.5 * noise
    }

    /// Takes an epoch that did not overload the path into its own loss.
    fn learn(&mut self, measure: &Measure) {
        let weight = measure.datagrams / (self.seen + measure.datagrams);
        self.loss += (measure.loss - self.loss) * weight;
        self.seen = (self.seen + measure.datagrams).min(measure.datagrams * 8.0);
    }

    /// The capacity that shows in what was delivered.
    fn capacity(&self, measure: &Measure) -> f64 {
        (measure.delivered / (1.0 - self.loss.min(0.9))).max(measure.rate / 2.0).min(measure.rate)
    }

    fn up(&mut self, measure: &Measure) {
        if measure.queued {
            self.drain_queue(measure);
            return;
        }
        if self.is_excess(measure) {
            self.unchecked = 0;
            // Loss that was not there at a lower rate is most likely our own.
            let is_new = self.seen == 0.0 && !self.bounded;
            let is_new = is_new && measure.loss < TRIED_LOSS && measure.is_used();
            if is_new {
                self.mode = Mode::Try(*measure);
                self.set_rate(measure.rate * TRIED);
            } else {
                self.mode = Mode::Check(*measure);
                self.set_rate(self.capacity(measure) * BELOW);
            }
            return;
        }
        // Above a ceiling, loss that creeps up is our own.
        if self.ceiling.is_none_or(|ceiling| measure.rate <= ceiling.rate) {
            self.learn(measure);
        }
        self.unchecked += 1;
        if self.loss > 0.01 && self.unchecked >= BELIEF {
            self.mode = Mode::Check(*measure);
            self.unchecked = 0;
            self.set_rate(measure.rate * 0.9);
            return;
        }
        self.raise(measure);
    }

    /// After a clean epoch.
    fn raise(&mut self, measure: &Measure) {
        // A flow that does not use its rate, or whose datagrams already come in slower, learns
        // nothing about a higher one: it goes on looking.
        if measure.is_used() && !measure.is_stretched() {
            let rate = self.higher(measure.rate);
            self.set_rate(rate);
        } else {
            self.epoch.start = None;
        }
    }

    /// We fill the path's queue: what comes in is what the path carries.
    fn drain_queue(&mut self, measure: &Measure) {
        self.mode = Mode::Up;
        self.unchecked = 0;
        let came = if measure.is_stretched() { measure.paced } else { self.capacity(measure) };
        // Stalls of both hosts look the same, and are no reason to give up most of the rate.
        let top = came.max(measure.rate * 0.7);
        self.set_ceiling(top);
        let drained = if measure.queue > MIN_QUEUE { 0.9 } else { BELOW };
        self.set_rate(top * drained);
    }

    fn set_ceiling(&mut self, rate: f64) {
        self.blind = false;
        self.bounded = true;
        self.ceiling = Some(Ceiling { rate, epochs: BELIEF });
    }

    /// The rate after a clean epoch at `rate`.
    fn higher(&mut self, rate: f64) -> f64 {
        if let Some(ceiling) = &mut self.ceiling {
            ceiling.epochs -= 1;
            let (top, epochs) = (ceiling.rate, ceiling.epochs);
            if rate > top * REFUTED {
                // What looked like a ceiling was a stall, or is gone.
                self.ceiling = None;
                (self.blind, self.growth) = (true, CAREFUL);
            } else if epochs == 0 {
                self.ceiling = None;
                self.shown = None;
            }
            return match rate / top {
                share if share < 0.93 => (rate * 1.1).min(top * BELOW),
                share if share < 1.0 => rate * 1.01,
                _ => rate * 1.03,
            };
        }
        if self.blind {
            let growth = self.growth;
            self.growth = (growth + FASTER).min(FASTEST);
            return rate * growth;
        }
        let shown = self.shown.map(|shown| shown / (1.0 - self.loss.min(0.9)) * BELOW);
        match shown {
            Some(shown) if shown > rate * 1.05 => shown.min(rate * 1.25),
            _ if self.bounded => rate * NEAR,
            _ => {
                let growth = self.growth;
                self.growth = (2.0 * growth - 1.0).min(GUESSED);
                rate * growth
            }
        }
    }

    /// More was sent: did more arrive?
    fn tried(&mut self, before: &Measure, measure: &Measure) {
        self.mode = Mode::Up;
        let raised = measure.left / before.left - 1.0;
        let gained = measure.delivered / before.delivered.max(1.0) - 1.0;
        self.growth = CAREFUL;
        if measure.queued {
            if measure.loss < before.loss + EXCESS {
                self.learn(before);
                self.learn(measure);
            }
            self.drain_queue(measure);
        } else if raised < (TRIED - 1.0) / 2.0 {
            // It could not be: then the other way.
            self.mode = Mode::Check(*measure);
            self.set_rate(self.capacity(measure) * BELOW);
        } else if gained > raised / 2.0 {
            self.seen = 0.0;
            self.learn(before);
            self.learn(measure);
            self.raise(measure);
        } else {
            let top = self.capacity(before);
            self.set_ceiling(top);
            self.set_rate(top * BELOW);
        }
    }

    /// Did the loss fall with the rate?
    fn check(&mut self, before: &Measure, measure: &Measure) {
        self.mode = Mode::Up;
        let slowed = measure.rate / before.rate;
        let fell = measure.delivered / before.delivered.max(1.0);
        let (was, is) = (self.is_excess(before), self.is_excess(measure));
        let less = fell < slowed * 0.9;
        if measure.queued {
            self.drain_queue(measure);
        } else if !less && fell < (1.0 + slowed) / 2.0 && was == is {
            // Less was sent, less arrived: the path loses that share at any rate.
            self.seen = 0.0;
            self.learn(before);
            self.learn(measure);
            self.set_rate(before.rate);
        } else if less || is {
            // Still too fast, or the path has become slower meanwhile: that was no answer.
            self.mode = Mode::Check(*measure);
            self.set_rate(self.capacity(measure) * BELOW);
        } else {
            self.seen = 0.0;
            self.learn(measure);
            let top = self.capacity(before);
            self.set_ceiling(top);
            self.set_rate(top * BELOW);
        }
    }
}

impl Measure {
    fn is_used(&self) -> bool {
        self.left > self.rate * USED
    }

    fn is_stretched(&self) -> bool {
        self.paced < self.left * STRETCHED
    }
}

/// Whether a queue that was `queue` long at the end of an epoch of `span`, and had grown by
/// `growth`, is filled by us. `stretch` is the pace of what came in, in terms of what went out.
fn fills(queue: Span, growth: Span, span: Span, stretch: f64, min_rtt: Span) -> bool {
    if queue > MIN_QUEUE.max(min_rtt / 4) && growth > span / 200 {
        return true;
    }
    // The round-trip time grows by what the datagrams are drawn apart. Noise may hide some.
    let expected = span.as_secs_f64() * (1.0 - stretch) / 4.0;
    stretch < STRETCHED && queue > MIN_FILLING.max(min_rtt / 20) && growth.as_secs_f64() > expected
}

impl RateController for Trains {
    fn rate(&self) -> Rate {
        let waits = self.mode == Mode::Start && self.sent > TRAIN_LEN + TRICKLE_LEN;
        let rate = if waits { MIN_RATE } else { self.rate() };
        Rate::from_bps_f64(rate)
    }

    fn train(&mut self, _: Time, next: PacketNumber) -> u64 {
        let place = next.0 % TRAIN_EVERY;
        if place >= TRAIN_LEN {
            return 0;
        }
        let start = next.0 - place;
        let wanted = match self.mode {
            Mode::Start => start == 0,
            Mode::Up => self.ceiling.is_none() && self.shown.is_none() && start > 0,
            Mode::Try(_) | Mode::Check(_) => false,
        };
        // A train is whole, or none.
        if wanted && place == 0 {
            self.asked.ask(start);
        }
        if self.asked.is_newest(start) { TRAIN_LEN - place } else { 0 }
    }

    fn on_sent(&mut self, now: Time, first: PacketNumber, count: u64) {
        self.began.get_or_insert(now);
        self.departures.note(now, first.0, self.min_rtt);
        self.sent = first.0 + count;
    }

    fn found(&self) -> Found {
        let Some((started, began)) = self.started.zip(self.began) else {
            return Found { phase: Some(Phase::Start), ..Found::default() };
        };
        let (rate, after) = (Rate::from_bps_f64(self.rate()), started.since(began));
        let loss_ppm = (self.loss.clamp(0.0, 1.0) * 1e6) as u32;
        Found { rate, after, loss_ppm, shared: None, phase: Some(Phase::Alone) }
    }

    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>) {
        // A drain that was measured on what we sent must not hold us there.
        self.drain = feedback.pulse.drain.map_or(f64::INFINITY, |rate| rate.as_bps() as f64 * 1.1);
        self.min_rtt = feedback.min_rtt;
        self.note_train(feedback);
        if self.mode == Mode::Start {
            self.start(feedback);
            self.started = (self.mode != Mode::Start).then_some(now);
            return;
        }
        let Some(measure) = self.measure(feedback) else { return };
        match self.mode {
            Mode::Start => {}
            Mode::Up => self.up(&measure),
            Mode::Try(before) => self.tried(&before, &measure),
            Mode::Check(before) => self.check(&before, &measure),
        }
    }
}

#[cfg(test)]
mod tests;
