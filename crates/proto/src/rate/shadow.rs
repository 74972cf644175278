//! Trains alone, and beside other traffic the window that CUBIC would have.
//!
//! [`Trains`] drains every queue that it finds, and hardly slows down for loss. Beside traffic that
//! fills a deep queue it gives way until little is left, and at a shallow queue or under CoDel it
//! leaves little to others. This law looks for others. A packet train shows what the path carries.
//! A flow that sends less than that makes no queue. So the law computes the queue that its own
//! datagrams make, and every queue beyond that is the queue of others, whatever the path loses and
//! however short its queue is. Where others have a queue for several rounds, a *shadow window*
//! takes over: it grows and shrinks as CUBIC's does (RFC 9438), and the rate is the window over the
//! round-trip time. Three things differ from CUBIC:
//!
//! - Loss counts where it is more than the path loses in rounds without a queue.
//! - Until the first loss the window is at least a part of what the path holds, however long the
//!   queue grows meanwhile.
//! - If our part of the path falls with our window after a loss, the others have not slowed down:
//!   then the window goes back, unless it was more than half of what the path holds.
//!
//! A copy of more weight has several windows (`windows`). One of the least weight has none: beside
//! others it only sends enough to notice when they are gone.
//!
//! Trains go on once all that the path carries arrives, or once others have made no queue for long.
//!
//! The queue is the rise of the delay towards the receiver, by the receiver's clock, and never more
//! than that of the round-trip time: so neither reports that wait nor clocks that drift make one.

mod windows;

use alloc::vec::Vec;

use self::windows::Windows;
use super::asked::Asked;
use super::departures::Departures;
use super::train::{MISDATED, Trains};
use super::{Feedback, RateController};
use crate::endpoint::PacketNumber;
use crate::law::{Found, Phase, Weight};
use crate::pulse::{TRAIN_EVERY, TRAIN_LEN};
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};

/// Others are there if their queue is longer than this, and than this share of the round trip, in
/// more rounds than not, by so many.
const LEAST_QUEUE: f64 = 0.0015;
const QUEUE_SHARE: f64 = 1.0 / 16.0;
const ENTER_ROUNDS: u32 = 3;
/// Before that a train has to show again what the path carries; on a slow path, where a train is
/// rare, so many rounds will do.
const BLIND_ROUNDS: u32 = 24;
/// Our own train makes a queue in its round and in so many after it.
const TRAIN_ROUNDS: u32 = 3;
/// Alone, a train is asked for only where it takes less than this part of a round trip: a longer
/// one overfills a short queue.
const FITS: f64 = 0.25;
/// A train that differs from the last ones by this part shows that the path has changed.
const CHANGED: f64 = 0.2;
/// We are alone again if more than this part of what the path carries arrives for so many rounds,
/// or if others make no queue for so long and so many round trips.
const ALONE: f64 = 0.92;
const LEAVE_ROUNDS: u32 = 3;
const IDLE: f64 = 4.0;
const IDLE_RTTS: f64 = 40.0;
/// The part of the path that one window holds at least until the first loss.
const FLOOR: f64 = 0.3;
/// The part of the path that a copy of the least weight takes beside others, and how many datagrams
/// of a round it sends at least.
const LEAST_PART: f64 = 0.02;
const LEAST_LEN: u64 = 4;
/// Others have not slowed down if our part falls below this share of what it was before the loss,
/// so many round trips after it; then the window goes back to this many times what it was.
const UNYIELDING: f64 = 0.9;
const JUDGED_AFTER: f64 = 2.0;
const BACK_TO: f64 = 1.6;
/// What the path carries is the median of so many trains.
const TRAINS: usize = 5;
/// A round measures at least this long, in seconds, and so many datagrams. One that takes so many
/// times as long as it must has a hole in it.
const ROUND: f64 = 0.02;
const ROUND_LEN: u64 = 16;
const LONGEST: f64 = 4.0;
/// The path's own loss is that of rounds without a queue, over so many datagrams at least and at
/// most.
const CALM_LEN: f64 = 150.0;
const CALM_MOST: f64 = 20_000.0;
/// On a path that loses less than this by itself, one datagram lost counts.
const CLEAN: f64 = 0.000_2;
/// The rate is never more than this part of what the path carries.
const MOST: f64 = 1.1;
/// A train that came in fewer steps is not timed well.
const MIN_STEPS: u32 = 6;

/// Trains, and beside other traffic a window as CUBIC has it.
pub(crate) struct Shadow {
    trains: Trains,
    datagram: f64,
    limit: f64,
    departures: Departures,
    queue: Queue,
    round: Option<Round>,
    /// What the last trains showed, in bits a second, and the first number of the newest of them.
    carries: Vec<f64>,
    shown: Option<u64>,
    /// The trains that left at once and are not behind the current round.
    asked: Asked,
    /// Whether a train was timed since others seemed to be there.
    is_fresh: bool,
    /// Whether a train takes less than [`FITS`] of a round trip.
    fits: bool,
    /// For how many rounds the last train matters.
    after_train: u32,
    /// Rounds that speak for the other state.
    agreeing: u32,
    /// The longest queue of the round before, and datagrams sent and lost in rounds without one.
    longest: f64,
    calm: (f64, f64),
    windows: Option<Windows>,
    weight: Weight,
    /// The part of the path that we had, by the last round; and before the last loss, with the
    /// window then and its time, until that is judged.
    part: f64,
    judged: Option<(f64, f64, Time)>,
    /// When others last had a queue.
    shared_at: Time,
    /// The shadow window's rate, in bits a second.
    rate: f64,
    drain: f64,
    /// When a report last came.
    reported: Time,
    /// How long the windows have held the rate.
    shared: Span,
}

/// Where a round began: the receiver's clock, datagrams sent and received.
#[derive(Clone, Copy, Debug)]
struct Round {
    clock: Span,
    highest: u64,
    received: u64,
}

/// What a round showed.
#[derive(Clone, Copy, Debug)]
struct Shown {
    /// Datagrams sent and received.
    sent: u64,
    came: u64,
    /// Its length by the receiver's clock, in seconds.
    span: f64,
    /// Bits a second, as they left and as they arrived.
    left: f64,
    arrived: f64,
    /// The path's queue, if it was seen: the mean and the longest, in seconds.
    queue: Option<(f64, f64)>,
    /// Whether a train of ours was in it.
    has_train: bool,
}

/// How long the path's queue is, in seconds.
#[derive(Clone, Copy, Debug)]
struct Queue {
    /// The least delay towards the receiver, by two clocks.
    base: f64,
    now: f64,
    /// The samples of this round: their sum, how many, and the longest.
    sum: f64,
    count: f64,
    longest: f64,
    /// The queue that our own datagrams have made.
    own: f64,
}

impl Queue {
    const NEW: Queue =
        Queue { base: f64::INFINITY, now: 0.0, sum: 0.0, count: 0.0, longest: 0.0, own: 0.0 };

    /// A datagram took `delay` by two clocks, and its echo `rise` longer than the shortest.
    fn note(&mut self, delay: f64, rise: f64) {
        self.base = self.base.min(delay);
        self.now = (delay - self.base).min(rise).max(0.0);
        (self.sum, self.count) = (self.sum + self.now, self.count + 1.0);
        self.longest = self.longest.max(self.now);
    }

    /// The mean and the longest of a round that ends; nothing without a sample.
    fn close(&mut self) -> Option<(f64, f64)> {
        let shown = (self.count > 0.0).then_some((self.sum / self.count, self.longest));
        (self.sum, self.count, self.longest) = (0.0, 0.0, 0.0);
        shown
    }

    /// What others have of a queue of `queue`, after a round of `span` in which we sent `load`
    /// times what the path carries.
    fn of_others(&mut self, queue: f64, load: f64, span: f64) -> f64 {
        self.own = (self.own + (load - 1.0) * span).clamp(0.0, queue);
        queue - self.own
    }

    /// The whole queue is taken to be ours: what was known of the path no longer holds.
    fn take_all(&mut self) {
        self.own = f64::INFINITY;
    }
}

impl Shadow {
    /// A controller for datagrams of `datagram` bytes; it never goes above `limit`.
    pub(crate) fn new(datagram: Bytes, limit: Option<Rate>, weight: Weight) -> Shadow {
        Shadow {
            trains: Trains::new(datagram, limit),
            datagram: datagram.bits(),
            limit: limit.map_or(f64::INFINITY, |rate| rate.as_bps() as f64),
            departures: Departures::default(),
            queue: Queue::NEW,
            round: None,
            carries: Vec::new(),
            shown: None,
            asked: Asked::default(),
            is_fresh: false,
            fits: true,
            after_train: 0,
            agreeing: 0,
            longest: 0.0,
            calm: (0.0, 0.0),
            windows: None,
            weight,
            part: 1.0,
            judged: None,
            shared_at: Time::ZERO,
            rate: 0.0,
            drain: f64::INFINITY,
            reported: Time::ZERO,
            shared: Span::ZERO,
        }
    }

    fn note_queue(&mut self, feedback: &Feedback<'_>) {
        let pulse = feedback.pulse;
        let Some((echo, sample)) = pulse.echo.zip(feedback.sample) else { return };
        let Some(left) = self.departures.at(echo.number.0) else { return };
        let came = pulse.clock.saturating_sub(echo.age).as_secs_f64();
        let rise = sample.saturating_sub(feedback.min_rtt).as_secs_f64();
        self.queue.note(came - left.since(Time::ZERO).as_secs_f64(), rise);
    }

    fn note_train(&mut self, feedback: &Feedback<'_>) {
        // A train that did not leave at once shows our own rate.
        let ours = |first: u64| self.asked.has(first) && Some(first) != self.shown;
        let Some(train) = feedback.pulse.train.filter(|train| ours(train.first.0)) else { return };
        self.shown = Some(train.first.0);
        if train.steps < MIN_STEPS {
            return;
        }
        let new = (train.bytes / train.span).as_bps() as f64;
        let was_fresh = core::mem::replace(&mut self.is_fresh, true);
        let error = MISDATED * new / self.train_bits();
        let differs = |old: f64| (new / old - 1.0).abs() > CHANGED + error;
        if !was_fresh && self.carries().is_some_and(differs) {
            self.carries.clear();
            self.queue.take_all();
            self.agreeing = 0;
        }
        if self.carries.len() == TRAINS {
            self.carries.remove(0);
        }
        self.carries.push(new);
    }

    /// The bits of a train.
    fn train_bits(&self) -> f64 {
        TRAIN_LEN as f64 * self.datagram
    }

    /// What the path carries at least, if the trains' error made it seem to be `carries`. The error
    /// of several trains is less, by the root of their number.
    fn at_least(&self, carries: f64) -> f64 {
        let error = MISDATED / libm::sqrt(self.carries.len().max(1) as f64);
        carries / (1.0 + error * carries / self.train_bits())
    }

    /// What the path and the receiver carry, in bits a second, once a train has shown it.
    fn carries(&self) -> Option<f64> {
        let mut sorted = self.carries.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).map(|carries| carries.min(self.drain))
    }

    /// What a round shows, once it is long enough.
    fn close_round(&mut self, feedback: &Feedback<'_>) -> Option<Shown> {
        let pulse = feedback.pulse;
        let now = Round { clock: pulse.clock, highest: pulse.highest, received: pulse.received };
        let Some(round) = self.round else {
            self.round = Some(now);
            return None;
        };
        let span = now.clock.saturating_sub(round.clock).as_secs_f64();
        let sent = now.highest.saturating_sub(round.highest);
        let least = feedback.min_rtt.as_secs_f64().max(ROUND);
        let is_low = self.windows.is_some() && self.weight == Weight::LOW;
        if span < least || sent < if is_low { LEAST_LEN } else { ROUND_LEN } {
            return None;
        }
        self.round = Some(now);
        let queue = self.queue.close();
        let left = self.departures.span(round.highest, now.highest);
        self.departures.forget(now.highest);
        if span > LONGEST * least {
            self.queue.take_all();
            return None;
        }
        let came = now.received.saturating_sub(round.received).min(sent);
        let bits = sent as f64 * self.datagram;
        let left = bits / left.map_or(span, Span::as_secs_f64);
        let arrived = came as f64 * self.datagram / span;
        let has_train = self.asked.any_within(round.highest, now.highest);
        self.asked.forget(now.highest);
        Some(Shown { sent, came, span, left, arrived, queue, has_train })
    }

    /// The path's own loss ratio.
    fn path_loss(&self) -> f64 {
        let (sent, lost) = self.calm;
        if sent >= CALM_LEN { lost / sent } else { self.trains.path_loss() }
    }

    /// Whether more of a round was lost than the path loses by itself.
    fn is_own_loss(&self, sent: u64, came: u64) -> bool {
        let (sent, own) = (sent as f64, self.path_loss());
        let noise = 2.5 * libm::sqrt(sent * own * (1.0 - own));
        let one = if own > CLEAN { 1.0 } else { 0.0 };
        sent - came as f64 > sent * own + noise + one
    }

    /// Whether others have a queue, after a round on a path that carries so many bits a second.
    fn is_shared(&mut self, rtt: f64, carries: f64, shown: &Shown) -> bool {
        let Some((queue, longest)) = shown.queue else { return false };
        let rounds = self.after_train.saturating_sub(1);
        self.after_train = if shown.has_train { TRAIN_ROUNDS } else { rounds };
        let train = if self.after_train > 0 { self.train_bits() } else { 0.0 };
        let margin = (rtt * QUEUE_SHARE).max(LEAST_QUEUE) + train / carries;
        if longest.max(self.longest) < margin {
            let (sent, lost) = self.calm;
            let (sent, lost) = (sent + shown.sent as f64, lost + (shown.sent - shown.came) as f64);
            let kept = if sent > CALM_MOST { 0.5 } else { 1.0 };
            self.calm = (sent * kept, lost * kept);
        }
        self.longest = longest;
        // A queue that may be ours is not that of others.
        self.queue.of_others(queue, shown.left / self.at_least(carries), shown.span) > margin
    }

    fn on_round(&mut self, now: Time, rtt: f64, shown: &Shown) {
        let Some(carries) = self.carries() else { return };
        self.fits = self.train_bits() / carries < rtt * FITS;
        let lossless = shown.arrived / (1.0 - self.trains.path_loss().min(0.9));
        self.part = lossless / carries;
        let is_shared = self.is_shared(rtt, carries, shown);
        let (is_own, long) = (self.is_own_loss(shown.sent, shown.came), rtt + self.queue.now);
        if is_shared {
            self.shared_at = now;
        }
        if self.windows.is_none() {
            if self.enters(is_shared) {
                self.enter(now, lossless * long / self.datagram);
            }
        } else if self.leaves(now, rtt, is_shared) {
            self.windows = None;
            self.trains.resume(lossless);
        }
        let own = if is_own { shown.sent - shown.came } else { 0 };
        self.resize(now, own, long, carries * long / self.datagram);
    }

    /// Whether others have been there for long enough.
    fn enters(&mut self, is_shared: bool) -> bool {
        let before = self.agreeing;
        self.agreeing = if is_shared { before + 1 } else { before.saturating_sub(1) };
        if (before, self.agreeing) == (0, 1) {
            self.is_fresh = false;
        }
        self.agreeing >= if self.is_fresh { ENTER_ROUNDS } else { BLIND_ROUNDS }
    }

    /// The windows begin with `arrived` datagrams: as after a loss, if that is more than our part.
    fn enter(&mut self, now: Time, arrived: f64) {
        let windows = Windows::new(now, arrived, self.weight.windows(), self.part > self.fair());
        (self.windows, self.agreeing, self.judged) = (Some(windows), 0, None);
    }

    /// Our part of the path beside one flow: half of it with one window. The windows hold no more
    /// when they go back after a loss.
    fn fair(&self) -> f64 {
        let count = f64::from(self.weight.windows());
        count / (count + 1.0)
    }

    /// The part of the path that the windows hold at least until the first loss.
    fn floor(&self) -> f64 {
        let floor = f64::from(self.weight.windows()) * FLOOR;
        floor / (floor + 1.0 - FLOOR)
    }

    /// Whether we are alone again.
    fn leaves(&mut self, now: Time, rtt: f64, is_shared: bool) -> bool {
        let is_whole = self.part > ALONE && !is_shared;
        self.agreeing = if is_whole { self.agreeing + 1 } else { 0 };
        let quiet = now.since(self.shared_at).as_secs_f64();
        let leaves = self.agreeing >= LEAVE_ROUNDS || quiet > IDLE.max(rtt * IDLE_RTTS);
        if leaves {
            self.agreeing = 0;
        }
        leaves
    }

    /// The windows after a round in which `lost` datagrams were lost by our own making; `whole` is
    /// what the path holds, in datagrams.
    fn resize(&mut self, now: Time, lost: u64, long: f64, whole: f64) {
        let (fair, floor) = (self.fair(), self.floor());
        let Some(windows) = &mut self.windows else { return };
        if let Some((part, size, at)) = self.judged
            && now.since(at).as_secs_f64() > long * JUDGED_AFTER
        {
            self.judged = None;
            if part < fair && self.part < part * UNYIELDING {
                windows.raise((size * BACK_TO).min(whole * fair));
            }
        }
        if self.judged.is_none()
            && let Some(before) = windows.lose(now, long, lost)
        {
            self.judged = Some((self.part, before, now));
        }
        if !windows.has_lost() {
            windows.raise(whole * floor);
        }
    }

    /// The rate beside others, in bits a second, on a path with this round trip.
    fn beside_others(&self, windows: &Windows, rtt: f64) -> f64 {
        let carries = self.carries();
        if self.weight == Weight::LOW {
            let seen = LEAST_LEN as f64 * self.datagram / rtt.max(ROUND);
            return seen.max(carries.unwrap_or(0.0) * LEAST_PART);
        }
        let rate = windows.size() * self.datagram / (rtt + self.queue.now);
        rate.min(carries.map_or(f64::INFINITY, |carries| carries * MOST))
    }
}

impl RateController for Shadow {
    fn rate(&self) -> Rate {
        match self.windows {
            Some(_) => Rate::from_bps_f64(self.rate.min(self.limit).min(self.drain)),
            None => self.trains.rate(),
        }
    }

    fn train(&mut self, now: Time, next: PacketNumber) -> u64 {
        let place = next.0 % TRAIN_EVERY;
        let start = next.0 - place;
        let trained = if self.windows.is_none() { self.trains.train(now, next) } else { 0 };
        // What the path carries is asked all the time beside others, and before others are
        // believed to be there.
        let asks = self.windows.is_some() || self.agreeing > 0 && !self.is_fresh && self.fits;
        if trained > 0 || place == 0 && asks {
            self.asked.ask(start);
        }
        let wanted = place < TRAIN_LEN && self.asked.is_newest(start);
        if wanted { TRAIN_LEN - place } else { 0 }
    }

    fn on_sent(&mut self, now: Time, first: PacketNumber, count: u64) {
        self.departures.note_burst(now, first.0, count);
        self.trains.on_sent(now, first, count);
    }

    fn found(&self) -> Found {
        let found = self.trains.found();
        let phase = if self.windows.is_some() { Some(Phase::Shared) } else { found.phase };
        Found { shared: Some(self.shared), phase, ..found }
    }

    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>) {
        if self.windows.is_some() {
            self.shared = self.shared + now.since(self.reported);
        }
        self.reported = now;
        self.note_queue(feedback);
        self.note_train(feedback);
        self.drain = feedback.pulse.drain.map_or(f64::INFINITY, |rate| rate.as_bps() as f64 * 1.1);
        let rtt = feedback.min_rtt.as_secs_f64();
        let shown = self.close_round(feedback);
        if let Some(shown) = &shown {
            self.on_round(now, rtt, shown);
        }
        let Some(mut windows) = self.windows.take() else {
            self.trains.on_feedback(now, feedback);
            return;
        };
        if let Some(shown) = &shown {
            windows.grow(now, shown.span, rtt + self.queue.now);
        }
        self.rate = self.beside_others(&windows, rtt);
        self.windows = Some(windows);
    }
}

#[cfg(test)]
mod tests;
