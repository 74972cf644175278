//! Finds the rate from packet trains and from the delivery rate.
//!
//! 1. **Start.** The first datagrams leave back to back, as a train. The bottleneck stretches the
//!    train; the receiver times the train and reports the result. Until the report arrives only a
//!    limited trickle follows.
//! 2. **Epochs.** The sender holds a rate until the receiver has reported on enough datagrams sent
//!    at that rate. The arrival rate is compared with the departure rate, because the sender may
//!    not reach the rate that it holds.
//! 3. **Up.** A clean epoch (no growing queue, no excess loss) raises the rate: towards the rate
//!    that the last trains showed if that is higher, else by a step. After a rate that was too high
//!    (a *ceiling*), the rate stays near the ceiling for some epochs; then a train probes again.
//! 4. **Down.** A queue that we cause shows in a round-trip time that grows and stays high. Then
//!    the arrival rate is the capacity, and the rate goes below it. The round-trip time counts as
//!    high only if two pulses (the receiver's periodic reports) in a row show it, because a host
//!    that stalls for a moment delays only one pulse.
//! 5. **Loss** beyond the path's own loss ratio raises the question whether we cause it. The sender
//!    sends more if neither a ceiling nor that ratio is known, less than a fifth is lost, and the
//!    sender reaches its rate. If more arrives, the path loses that share at any rate. In all other
//!    cases the sender reduces its rate to a little below the delivery rate. If we caused the loss,
//!    the loss stops and as much arrives as before; if the path loses that share anyway, less
//!    arrives. On a lossy path a short dip repeats this check from time to time. Two kinds of loss
//!    are no overload of the path. The loss of an outage does not change the rate. A sender that
//!    was late catches up, and may overfill a short queue: after such a loss the rate stays near
//!    the highest rate that lately arrived ([`proven`]).
//!
//! **Jitter** spoils single trains: if the first train arrived in few bunches, or the round-trip
//! time varies before the first rate takes effect ([`jitter`](super::jitter)), the rate doubles or
//! rises by half, and then follows several trains together ([`pool`](super::pool)). **Short
//! queues** overflow when a burst arrives. So the sender tries shorter bursts before the rate falls
//! below the rate of the trains, and before a loss counts as the path's own. The receiver's drain
//! rate and the user's limit cap the rate.

mod first;
mod judge;
mod measure;
mod proven;

pub(crate) use self::first::{FIRST_SHARE, TRICKLE, first_rate};
use self::first::{MOST_TRICKLED, TRICKLE_LEN};
use self::measure::{Ceiling, Epoch, MIN_QUEUE, Measure, Snapshot, fills};
use self::proven::Proven;
use super::asked::Asked;
use super::departures::Departures;
use super::jitter::Jitter;
use super::pool::Pool;
use super::{Feedback, RateController};
use crate::endpoint::PacketNumber;
use crate::law::{Found, Phase};
use crate::pulse::{TRAIN_EVERY, TRAIN_LEN};
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};

/// Lowest and highest rate in bits a second, before the user's limit and the receiver's drain rate
/// apply.
const MIN_RATE: f64 = 100e3;
const MAX_RATE: f64 = 1e12;
/// Minimum length of an epoch, in datagrams and in time. While the controller is `blind`,
/// [`BLIND_EPOCH`] is enough.
const MIN_EPOCH_LEN: u64 = 64;
const MIN_EPOCH: Span = Span::from_millis(20);
const BLIND_EPOCH: Span = Span::from_millis(10);
/// A loss ratio that exceeds the path's own ratio plus its noise by this much shows an overload.
const EXCESS: f64 = 0.02;
/// A path with a loss ratio below [`LOSSLESS`] over more than [`KNOWN`] datagrams loses almost
/// nothing. The noise is computed with at least the ratio [`LOSSLESS`].
const LOSSLESS: f64 = 0.002;
const KNOWN: f64 = 100.0;
/// Factor by which the rate rises to test whether loss grows with the rate.
const TRIED: f64 = 1.25;
/// A raised rate is tested only if the loss is below this.
const TRIED_LOSS: f64 = 0.2;
/// Length of a short burst, in datagrams. Short bursts are tried against a loss only if the queue
/// is shorter than [`SHALLOW`].
const SHORT_BURST: u64 = 8;
const SHALLOW: Span = Span::from_millis(1);
/// Share of a ceiling to which the rate goes.
const BELOW: f64 = 0.97;
/// Share of a ceiling above which a clean epoch refutes the ceiling.
const REFUTED: f64 = 1.07;
/// Factor by which a clean epoch raises the rate if nothing is known.
const GUESSED: f64 = 1.5;
/// Factor by which a clean epoch raises the rate after a ceiling was refuted, a raised rate was
/// tried, or trains were timed poorly. Also the limit of the current rate in [`Trains::carried`],
/// as a multiple of the rate that arrived.
const CAREFUL: f64 = 1.25;
/// Factor by which a clean epoch raises the rate after a well-timed train or a remembered rate; the
/// step then doubles with each epoch, up to [`GUESSED`]. Also the factor of a clean epoch after a
/// ceiling has expired, and of the epoch in which later trains confirm a doubted first train
/// without showing a higher rate.
const NEAR: f64 = 1.04;
/// Highest factor of a step towards the rate of poorly timed trains; the lowest is [`CAREFUL`].
const JUMP: f64 = 4.0;
/// Highest factor of a step towards the rate of trains that confirm a doubted first train.
const CONFIRMED: f64 = 16.0;
/// While the controller is `blind`, each clean epoch adds this to the factor, up to [`FASTEST`].
const FASTER: f64 = 0.07;
const FASTEST: f64 = 1.6;
/// The path had an outage if no pulse reported new datagrams for longer than this, and for longer
/// than [`OUTAGE_RTTS`] round trips, and fewer than half of the datagrams since then arrived.
const OUTAGE: Span = Span::from_millis(200);
const OUTAGE_RTTS: u64 = 4;
/// A loss may come from a late sender if the sender was late in this epoch or in the one before.
const LATE_EPOCHS: u32 = 2;
/// Minimum number of epochs for which a ceiling is believed. Also the number of epochs for which a
/// [`proven`] rate counts, and the number of epochs between checks of the path's own loss.
const BELIEF: u32 = 16;
/// A ceiling is believed for about this long at least.
const BELIEVED: Span = Span::from_secs(1);

pub(crate) struct Trains {
    datagram: Bytes,
    limit: f64,
    rate: f64,
    drain: f64,
    /// Highest packet number sent, plus one.
    sent: u64,
    departures: Departures,
    /// Trains that left back to back and await their report.
    asked: Asked,
    pool: Pool,
    jitter: Jitter,
    /// Whether the path's rate is unknown: neither trains nor an overload have shown it, or the
    /// last ceiling was refuted. The rate then grows by the factor `growth` each epoch.
    blind: bool,
    /// Whether the first train was too fast to be believed, and later trains have not confirmed the
    /// rate yet.
    is_unsure: bool,
    /// Factor by which the next clean epoch raises the rate, unless trains or a ceiling determine
    /// the new rate.
    growth: f64,
    /// Whether an overload has shown a ceiling.
    bounded: bool,
    min_rtt: Span,
    /// The path's own loss ratio.
    loss: f64,
    /// Number of datagrams over which `loss` was measured.
    seen: f64,
    mode: Mode,
    epoch: Epoch,
    /// State at the last pulse that reported new datagrams.
    arrival: Option<Snapshot>,
    ceiling: Option<Ceiling>,
    proven: Proven,
    /// For how many more epochs a loss may come from a sender that was late.
    late: u32,
    /// Epochs since the path's own loss was last checked.
    unchecked: u32,
    /// Whether bursts are short, because longer ones overfill a short queue on the path.
    is_smooth: bool,
    /// Whether short bursts were tested.
    was_smoothed: bool,
    /// When the first datagram left.
    began: Option<Time>,
    /// When the first rate was set.
    started: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// Waiting for the report on the first train.
    Start,
    /// Epochs raise the rate.
    Up,
    /// Bursts were made shorter to see whether the loss ends. If it does not end, the loss is the
    /// path's own (`is_own`), or we caused it by a high rate.
    Smooth { before: Measure, is_own: bool },
    /// The rate was raised to see whether more arrives despite the loss.
    Try(Measure),
    /// The rate was lowered to see whether the loss falls with it.
    Check(Measure),
}

impl Trains {
    /// A controller for datagrams of `datagram` bytes; it never exceeds `limit`.
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
            pool: Pool::default(),
            jitter: Jitter::default(),
            blind: true,
            is_unsure: false,
            growth: GUESSED,
            bounded: false,
            min_rtt: Span::ZERO,
            loss: 0.0,
            seen: 0.0,
            mode: Mode::Start,
            epoch: Epoch::new(0),
            arrival: None,
            ceiling: None,
            proven: Proven::default(),
            late: 0,
            unchecked: 0,
            is_smooth: false,
            was_smoothed: false,
            began: None,
            started: None,
        }
    }

    pub(super) fn path_loss(&self) -> f64 {
        self.loss
    }

    /// Continues from `rate`, in bits a second, which is taken to be near the path's ceiling.
    pub(super) fn resume(&mut self, rate: f64) {
        self.is_smooth &= !matches!(self.mode, Mode::Smooth { .. });
        (self.mode, self.ceiling, self.pool) = (Mode::Up, None, Pool::default());
        (self.jitter, self.proven) = (Jitter::default(), Proven::default());
        (self.blind, self.is_unsure) = (false, false);
        (self.bounded, self.unchecked) = (true, 0);
        self.set_rate(rate);
    }

    fn set_rate(&mut self, rate: f64) {
        self.rate = rate.clamp(MIN_RATE, MAX_RATE);
        self.epoch = Epoch::new(self.sent);
    }

    /// Takes in a train that the pulse reports, if it is new.
    fn note_train(&mut self, feedback: &Feedback<'_>) {
        let Some(train) = feedback.pulse.train.filter(|train| self.asked.has(train.first.0)) else {
            return;
        };
        self.asked.forget(train.first.0 + TRAIN_LEN);
        if train.first.0 == 0 {
            self.jitter.note_train(&train, self.datagram);
        }
        self.pool.add(&train, self.datagram);
        if self.shown().is_some() && self.blind {
            self.blind = false;
            if self.pool.is_poor() {
                self.growth = CAREFUL;
            }
        }
    }

    /// The rate that the last trains showed, in bits a second.
    fn shown(&self) -> Option<f64> {
        self.pool.rate(self.datagram)
    }

    /// Whether the rate is only a guess so far. A shorter epoch is then enough to raise it.
    fn is_guess(&self) -> bool {
        !self.bounded && (self.blind || self.is_unsure || self.pool.is_poor())
    }

    /// Notes that the flow sends at `rate` in bits a second, which may be less than the
    /// controller's rate.
    pub(super) fn cap(&mut self, rate: f64) {
        self.epoch.is_capped |= rate < self.rate();
    }

    /// Starts the epoch over after an outage, which says nothing about the capacity.
    fn note_outage(&mut self, feedback: &Feedback<'_>) {
        let now = Snapshot::of(feedback);
        let before = *self.arrival.get_or_insert(now);
        if now.highest <= before.highest {
            return;
        }
        self.arrival = Some(now);
        let pause = now.clock.saturating_sub(before.clock);
        let is_long = pause > OUTAGE.max(feedback.min_rtt * OUTAGE_RTTS);
        let came = now.received.saturating_sub(before.received);
        if is_long && came < (now.highest - before.highest) / 2 {
            self.epoch.start = None;
        }
    }

    /// Returns the epoch's measurements, once the epoch is long enough.
    fn measure(&mut self, feedback: &Feedback<'_>) -> Option<Measure> {
        let end = Snapshot::of(feedback);
        if end.highest <= self.epoch.from {
            return None;
        }
        // A short stall delays one pulse, a queue delays all of them.
        let before = core::mem::replace(&mut self.epoch.last, end.rtt);
        let lasting = end.rtt.zip(before).map(|(rtt, before)| rtt.min(before));
        let Some(start) = self.epoch.start else {
            self.departures.forget(end.highest);
            self.epoch.start = Some(end);
            return None;
        };
        let (span, sent) = (end.clock - start.clock, end.highest.saturating_sub(start.highest));
        let came = end.received.saturating_sub(start.received).min(sent);
        let loss = 1.0 - came as f64 / sent.max(1) as f64;
        let shortest = if self.blind { BLIND_EPOCH } else { MIN_EPOCH };
        let is_whole = span >= shortest.max(feedback.min_rtt / 2);
        let is_early = self.mode == Mode::Up && self.is_guess();
        if !is_whole && (span < shortest || !is_early) || sent < self.epoch_len(loss) {
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
        let measure = Measure { rate, left, paced, delivered, loss, datagrams, queue, queued };
        (is_whole || measure.is_clean(self.loss)).then_some(measure)
    }

    /// Number of datagrams that an epoch with this loss needs. On a path known to lose almost
    /// nothing, few datagrams show that a loss is ours.
    fn epoch_len(&self, loss: f64) -> u64 {
        let is_lossless = self.seen > KNOWN && self.loss < LOSSLESS;
        let is_decided = is_lossless || loss > self.loss + 0.25;
        MIN_EPOCH_LEN + if is_decided { 0 } else { (loss * 2_500.0).min(500.0) as u64 }
    }

    /// The rate that the path carries, as far as known: that of the ceiling, else the current rate.
    /// After a clean epoch, the current rate counts up to a quarter above what arrived.
    fn carried(&self) -> f64 {
        let arrived = self.proven.rate() / (1.0 - self.loss.min(0.9));
        let most = if arrived > 0.0 { arrived * CAREFUL } else { f64::INFINITY };
        let rate = self.ceiling.map_or(self.rate.min(most), |ceiling| ceiling.rate);
        rate.min(self.limit).min(self.drain)
    }

    fn rate(&self) -> f64 {
        self.rate.min(self.limit).min(self.drain)
    }

    fn is_excess(&self, measure: &Measure) -> bool {
        let own = self.loss.max(LOSSLESS);
        let noise = libm::sqrt(own * (1.0 - own) / measure.datagrams);
        measure.loss > self.loss + EXCESS + 2.5 * noise
    }

    /// Adds an epoch without overload to the average of the path's own loss.
    fn learn(&mut self, measure: &Measure) {
        let weight = measure.datagrams / (self.seen + measure.datagrams);
        self.loss += (measure.loss - self.loss) * weight;
        self.seen = (self.seen + measure.datagrams).min(measure.datagrams * 8.0);
    }

    /// The capacity, estimated from the delivery rate.
    fn capacity(&self, measure: &Measure) -> f64 {
        (measure.delivered / (1.0 - self.loss.min(0.9))).max(measure.left / 2.0).min(measure.rate)
    }

    /// The capacity that an epoch with excess loss shows. If the sender was late, its catching up
    /// may have caused the loss. Then the rate that lately arrived counts too.
    fn top(&self, measure: &Measure) -> f64 {
        let proven = if self.late > 0 { self.proven.rate() } else { 0.0 };
        let proven = proven / (1.0 - self.loss.min(0.9));
        self.capacity(measure).max(proven).min(measure.rate)
    }

    fn up(&mut self, measure: &Measure) {
        self.doubt();
        if measure.queued {
            self.drain_queue(measure);
            return;
        }
        if self.is_excess(measure) {
            self.unchecked = 0;
            self.proven.doubt();
            // Test a higher rate if neither a ceiling nor the path's own loss is known, less than
            // `TRIED_LOSS` is lost, and the sender reaches its rate. Otherwise test a lower rate.
            let is_new = self.seen == 0.0 && !self.bounded;
            let is_new = is_new && measure.loss < TRIED_LOSS && measure.is_used();
            if is_new {
                self.mode = Mode::Try(*measure);
                self.set_rate(measure.rate * TRIED);
            } else {
                self.mode = Mode::Check(*measure);
                self.set_rate(self.top(measure) * BELOW);
            }
            return;
        }
        self.proven.note(measure);
        // Above a ceiling, slowly rising loss is our own, so it is not learned.
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

    fn raise(&mut self, measure: &Measure) {
        // The epoch starts over if the flow does not use its rate or its datagrams already arrive
        // stretched: such an epoch shows nothing about a higher rate.
        if measure.is_used() && !measure.is_stretched() {
            let rate = self.higher(measure);
            self.set_rate(rate);
        } else {
            self.epoch.start = None;
        }
    }

    /// Lowers the rate because we fill the path's queue: the arrival rate is the capacity.
    fn drain_queue(&mut self, measure: &Measure) {
        let proven = core::mem::take(&mut self.proven).rate();
        (self.mode, self.unchecked) = (Mode::Up, 0);
        // If the datagrams arrive stretched and the path's own loss is unknown, the lost datagrams
        // count as if they had arrived.
        let is_new = measure.is_stretched() && self.seen == 0.0;
        let came = if is_new { measure.paced } else { self.capacity(measure) };
        // Stalls of the hosts look like a queue and must not cost most of the rate, unless the rate
        // is a doubtful one anyway.
        let least = if self.is_unsure { 0.0 } else { measure.left.max(proven) * 0.7 };
        let top = came.max(least);
        self.set_ceiling(top);
        let drained = if measure.queue > MIN_QUEUE { 0.9 } else { BELOW };
        self.set_rate(top * drained);
    }

    fn set_ceiling(&mut self, rate: f64) {
        (self.blind, self.is_unsure, self.bounded) = (false, false, true);
        // Epochs of a short round trip are short. Each probe above a ceiling may cost losses.
        let epochs = BELIEVED.as_nanos() / MIN_EPOCH.max(self.min_rtt).as_nanos();
        self.ceiling = Some(Ceiling { rate, epochs: BELIEF.max(epochs as u32) });
    }

    /// The next rate after a clean epoch.
    fn higher(&mut self, measure: &Measure) -> f64 {
        let rate = measure.rate;
        if let Some(ceiling) = &mut self.ceiling {
            ceiling.epochs -= 1;
            let (top, epochs) = (ceiling.rate, ceiling.epochs);
            if measure.left > top * REFUTED {
                // The supposed ceiling was a stall, or no longer exists.
                self.ceiling = None;
                (self.blind, self.growth) = (true, CAREFUL);
            } else if epochs == 0 {
                self.ceiling = None;
                self.pool = Pool::default();
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
        let shown = self.shown().map(|shown| shown / (1.0 - self.loss.min(0.9)) * BELOW);
        match shown {
            Some(shown) if shown > rate * 1.05 && self.is_guess() => {
                let most = if self.is_unsure { CONFIRMED } else { JUMP };
                shown.clamp(rate * CAREFUL, rate * most)
            }
            Some(shown) if shown > rate * 1.05 => shown.min(rate * 1.25),
            Some(_) if self.is_unsure => {
                self.is_unsure = false;
                rate * NEAR
            }
            _ if self.bounded => rate * NEAR,
            _ if self.is_guess() => rate * self.growth,
            _ => {
                let growth = self.growth;
                self.growth = (2.0 * growth - 1.0).min(GUESSED);
                rate * growth
            }
        }
    }
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
            Mode::Up => {
                start > 0 && self.ceiling.is_none() && (self.shown().is_none() || self.is_guess())
            }
            Mode::Smooth { .. } | Mode::Try(_) | Mode::Check(_) => false,
        };
        if wanted && place == 0 {
            self.asked.ask(start);
        }
        if self.asked.is_newest(start) { TRAIN_LEN - place } else { 0 }
    }

    fn burst(&self) -> u64 {
        if self.is_smooth { SHORT_BURST } else { u64::MAX }
    }

    fn on_sent(&mut self, now: Time, first: PacketNumber, count: u64) {
        self.began.get_or_insert(now);
        self.departures.note(now, first.0, self.min_rtt);
        self.sent = first.0 + count;
    }

    fn start_at(&mut self, rate: Rate) {
        let rate = rate.as_bps() as f64;
        if self.mode == Mode::Up && (rate > self.rate || self.is_unsure) {
            (self.blind, self.is_unsure, self.growth) = (false, false, NEAR);
            self.set_rate(rate);
        }
    }

    fn found(&self) -> Found {
        let Some((started, began)) = self.started.zip(self.began) else {
            return Found { phase: Some(Phase::Start), ..Found::default() };
        };
        let (rate, after) = (Rate::from_bps_f64(self.carried()), started.since(began));
        let loss_ppm = (self.loss.clamp(0.0, 1.0) * 1e6) as u32;
        Found { rate, after, loss_ppm, shared: None, phase: Some(Phase::Alone) }
    }

    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>) {
        // The drain rate may reflect only our own sending, so it gets 10 % of headroom.
        self.drain = feedback.pulse.drain.map_or(f64::INFINITY, |rate| rate.as_bps() as f64 * 1.1);
        self.min_rtt = feedback.min_rtt;
        // Datagrams sent before the first rate show jitter.
        let is_quiet = (feedback.pulse.highest..=MOST_TRICKLED).contains(&self.epoch.from);
        if let Some(rtt) = feedback.sample.filter(|_| is_quiet && self.mode != Mode::Start) {
            self.jitter.note(rtt);
        }
        self.note_train(feedback);
        if self.mode == Mode::Start {
            self.start(feedback);
            self.started = (self.mode != Mode::Start).then_some(now);
            return;
        }
        self.note_outage(feedback);
        let is_capped = self.epoch.is_capped;
        let Some(measure) = self.measure(feedback) else { return };
        let is_late = measure.is_late() && !is_capped;
        self.late = if is_late { LATE_EPOCHS } else { self.late.saturating_sub(1) };
        match self.mode {
            Mode::Start => {}
            Mode::Up => self.up(&measure),
            Mode::Smooth { before, is_own } => self.smoothed(&before, is_own, &measure),
            Mode::Try(before) => self.tried(&before, &measure),
            Mode::Check(before) => self.check(&before, &measure),
        }
    }
}

#[cfg(test)]
mod tests;
