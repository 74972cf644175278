//! Rate control by [`Trains`], and by a window like CUBIC's while other traffic shares the path.
//!
//! Packet trains are groups of datagrams that leave back to back, and arrive at the path's rate.
//! [`Trains`] sends at the capacity that they show. It drains every queue that it finds, and hardly
//! slows down for loss. Traffic that fills a deep queue therefore displaces [`Trains`] almost
//! completely. At a shallow queue or under CoDel, [`Trains`] leaves little to others.
//!
//! This controller detects other flows. Its own datagrams queue only if it sends above the
//! capacity. The controller computes how much of a queue its own datagrams make, and attributes the
//! rest to others. If other flows have a queue for several rounds (of about a round trip each), a
//! *shadow window* takes over. It grows and shrinks as CUBIC's window does (RFC 9438), and the rate
//! is the window divided by the round-trip time. Differences from CUBIC:
//!
//! - Only loss above the path's own loss ratio counts. Rounds without a queue show that ratio.
//! - Until the first loss the window is at least a fixed share of the bandwidth-delay product,
//!   however long the queue grows meanwhile.
//! - After a loss our window shrinks. If the others shrink too, our share of the path stays. If our
//!   share falls, they have not slowed down. If our share was also less than a fair share, the
//!   window then grows beyond its old size, up to a little more than a fair share of the
//!   bandwidth-delay product. For some round trips the window is held at that share of the
//!   bandwidth-delay product (queue included): it rises as the queue grows, and losses do not take
//!   it lower. Without this rule BBR, which does not slow down for loss, would take most of the
//!   path. BBR empties the queue at least every ten seconds, to measure the round-trip time. If a
//!   queue has lasted for more than 12 s, the other flows are not BBR, and the window is not raised
//!   beyond CUBIC's curve.
//!
//! A copy of higher weight has several windows (`windows`). A copy of the lowest weight ignores its
//! window: while others are present it sends only enough to notice when they leave.
//!
//! While no window is in use, and the path's own loss ratio is known, a long queue (longer than
//! [`LEAST_QUEUE`] and than [`QUEUE_SHARE`] of a round trip) is drained, even a queue of other
//! flows: the sender sends at a little less than the capacity until the queue is gone. Otherwise
//! another flow could fill a short queue, and this controller would mistake the losses there for
//! the path's own loss.
//!
//! [`Trains`] takes over again once our data arrive at nearly the path's capacity and others make
//! no queue, or once others have made no queue for a long time, whatever our rate.
//!
//! The queue is measured as the rise of the one-way delay towards the receiver: the arrival time by
//! the receiver's clock minus the departure time by ours. The measured queue is capped by the rise
//! of the round-trip time. A delayed report does not look like a queue, because it does not change
//! the one-way delay. Clock drift does not look like a queue, because it does not change the
//! round-trip time.

mod windows;

use alloc::vec::Vec;

use self::windows::Windows;
use super::asked::Asked;
use super::departures::Departures;
use super::pool::{MIN_STEPS, MISDATED, at_least};
use super::train::Trains;
use super::{Feedback, RateController};
use crate::endpoint::PacketNumber;
use crate::law::{Found, Phase, Weight};
use crate::pulse::{TRAIN_EVERY, TRAIN_LEN};
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};

/// A queue of other flows counts if it is longer than [`LEAST_QUEUE`] seconds and longer than
/// [`QUEUE_SHARE`] of the round-trip time. While one of our own trains may still be in the queue,
/// the queue must exceed both limits by the train's transmission time. A counter rises with each
/// round that has such a queue, and falls towards zero with each round that has none. Other flows
/// are detected when the counter reaches [`ENTER_ROUNDS`], if a train has confirmed the capacity
/// meanwhile.
const LEAST_QUEUE: f64 = 0.0015;
const QUEUE_SHARE: f64 = 1.0 / 16.0;
const ENTER_ROUNDS: u32 = 3;
/// Without a confirming train, other flows are detected when the counter reaches this number.
const BLIND_ROUNDS: u32 = 24;
/// The queue of our own train may show for this number of rounds, the round of the train included.
const TRAIN_ROUNDS: u32 = 3;
/// A train is sent to confirm the capacity only if a train takes less than this share of a round
/// trip. A longer train overfills a short queue.
const FITS: f64 = 0.25;
/// When other flows seem to appear, the next train checks the capacity. If the capacity that it
/// shows differs from the known one by more than this share plus the train's possible error, the
/// path has changed.
const CHANGED: f64 = 0.2;
/// The flow is alone again in two cases. For [`LEAVE_ROUNDS`] rounds in a row, our data arrive at
/// more than [`ALONE`] of the capacity and others make no queue. Or others make no queue for
/// [`IDLE`] seconds and [`IDLE_RTTS`] round trips, whatever our rate.
const ALONE: f64 = 0.92;
const LEAVE_ROUNDS: u32 = 3;
const IDLE: f64 = 4.0;
const IDLE_RTTS: f64 = 40.0;
/// Minimum share of the path for one window, until the first loss.
const FLOOR: f64 = 0.3;
/// While others are present, a copy of the lowest weight takes the share [`LEAST_PART`] of the
/// path, but sends at least [`LEAST_LEN`] datagrams in a round.
const LEAST_PART: f64 = 0.02;
const LEAST_LEN: u64 = 4;
/// The other flows have not slowed down after a loss if our share of the path, [`JUDGED_AFTER`]
/// round trips later, is below [`UNYIELDING`] of its value before the loss. The window may then
/// rise to [`BACK_TO`] times its old size, but at most to [`MAKES_UP`] times our fair share.
const UNYIELDING: f64 = 0.9;
const JUDGED_AFTER: f64 = 2.0;
const BACK_TO: f64 = 1.6;
const MAKES_UP: f64 = 1.1;
/// For this many round trips the window then keeps its share of the path.
const HELD: f64 = 6.0;
/// The window is not raised if the path has had a queue for this many seconds: BBR's ProbeRTT would
/// have emptied the queue (draft-cardwell-iccrg-bbr-congestion-control-00, 4.3.5).
const PROBES_RTT: f64 = 12.0;
/// While no window is in use, the sender sends at this share of the capacity until the queue is
/// gone.
const DRAINS: f64 = 0.97;
/// The capacity is the median of the last trains, of which at most this many count.
const TRAINS: usize = 5;
/// A round takes at least a round trip, [`ROUND`] seconds and [`ROUND_LEN`] datagrams
/// ([`LEAST_LEN`] for a copy of the lowest weight beside others). A round that takes more than
/// [`LONGEST`] round trips, and more than [`LONGEST`] times [`ROUND`] seconds, may contain a pause
/// and is discarded.
const ROUND: f64 = 0.02;
const ROUND_LEN: u64 = 16;
const LONGEST: f64 = 4.0;
/// The path's own loss ratio is computed over [`CALM_LEN`] to [`CALM_MOST`] datagrams. Only
/// rounds without a queue count.
const CALM_LEN: f64 = 150.0;
const CALM_MOST: f64 = 20_000.0;
/// If the path's own loss ratio is above this, one more lost datagram in a round is attributed to
/// the path.
const CLEAN: f64 = 0.000_2;
/// Highest rate while a window is in use, as a share of the capacity.
const MOST: f64 = 1.1;

pub(crate) struct Shadow {
    trains: Trains,
    datagram: f64,
    limit: f64,
    departures: Departures,
    queue: Queue,
    round: Option<Round>,
    /// Capacities that the last trains showed, in bits a second.
    carries: Vec<f64>,
    /// The first packet number of the newest train that was reported.
    shown: Option<u64>,
    /// The trains that left back to back and did not end before the current round.
    asked: Asked,
    /// Whether a train was timed since other flows seemed to appear.
    is_fresh: bool,
    /// Whether a train takes less than [`FITS`] of a round trip.
    fits: bool,
    /// Number of rounds for which the last train still affects the queue.
    after_train: u32,
    /// Number of recent rounds that support a change of state.
    agreeing: u32,
    /// Longest queue of the previous round, in seconds.
    longest: f64,
    /// Datagrams sent and lost in rounds without a queue.
    calm: (f64, f64),
    windows: Option<Windows>,
    weight: Weight,
    /// Our share of the path in the last round.
    part: f64,
    /// A loss that has not been judged: our share and the window before the loss, and the time
    /// of the loss.
    judged: Option<(f64, f64, Time)>,
    /// Until when the windows keep a share of the path in spite of losses, and that share.
    held: (Time, f64),
    /// Whether the last round had a queue that needs draining.
    has_queue: bool,
    /// The newest value of [`Shadow::cap`]; not updated while windows are in use.
    capped: Rate,
    shared_at: Time,
    /// When the path last had no queue, or no window was in use.
    drained: Time,
    /// The shadow window's rate, in bits a second.
    rate: f64,
    drain: f64,
    reported: Time,
    /// Total time for which the windows have set the rate.
    shared: Span,
}

/// State at the start of a round: the receiver's clock, datagrams sent and received.
#[derive(Clone, Copy, Debug)]
struct Round {
    clock: Span,
    highest: u64,
    received: u64,
}

#[derive(Clone, Copy, Debug)]
struct Shown {
    sent: u64,
    came: u64,
    /// Length by the receiver's clock, in seconds.
    span: f64,
    /// Rate at departure, in bits a second.
    left: f64,
    /// Rate at arrival, in bits a second.
    arrived: f64,
    /// Mean and longest queue of the path, in seconds, if a sample showed it.
    queue: Option<(f64, f64)>,
    /// Whether the round contains a train of ours.
    has_train: bool,
}

/// Length of the path's queue, in seconds.
#[derive(Clone, Copy, Debug)]
struct Queue {
    /// Smallest one-way delay towards the receiver, including the offset between the two clocks.
    base: f64,
    now: f64,
    sum: f64,
    count: f64,
    longest: f64,
    /// The part of the queue that our own datagrams made.
    own: f64,
}

impl Queue {
    const NEW: Queue =
        Queue { base: f64::INFINITY, now: 0.0, sum: 0.0, count: 0.0, longest: 0.0, own: 0.0 };

    /// Takes in a sample: `delay` is the one-way delay by the two clocks, `rise` is the rise of
    /// the round-trip time above its minimum, both in seconds.
    fn note(&mut self, delay: f64, rise: f64) {
        self.base = self.base.min(delay);
        self.now = (delay - self.base).min(rise).max(0.0);
        (self.sum, self.count) = (self.sum + self.now, self.count + 1.0);
        self.longest = self.longest.max(self.now);
    }

    /// Ends a round and returns the mean and the maximum of its samples; `None` without a sample.
    fn close(&mut self) -> Option<(f64, f64)> {
        let shown = (self.count > 0.0).then_some((self.sum / self.count, self.longest));
        (self.sum, self.count, self.longest) = (0.0, 0.0, 0.0);
        shown
    }

    /// Returns the other flows' part of a queue of `queue` seconds, after a round of `span` seconds
    /// in which we sent `load` times the capacity.
    fn of_others(&mut self, queue: f64, load: f64, span: f64) -> f64 {
        self.own = (self.own + (load - 1.0) * span).clamp(0.0, queue);
        queue - self.own
    }

    /// Attributes the whole queue to our own datagrams, because its origin is unknown.
    fn take_all(&mut self) {
        self.own = f64::INFINITY;
    }
}

impl Shadow {
    /// A controller for datagrams of `datagram` bytes; it never exceeds `limit`.
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
            held: (Time::ZERO, 0.0),
            has_queue: false,
            capped: Rate::from_bps_f64(f64::INFINITY),
            shared_at: Time::ZERO,
            drained: Time::ZERO,
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
        // A train that did not leave back to back shows our own rate.
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

    fn train_bits(&self) -> f64 {
        TRAIN_LEN as f64 * self.datagram
    }

    /// Lower bound of the capacity if the trains showed `carries`, in bits a second.
    fn at_least(&self, carries: f64) -> f64 {
        at_least(carries, self.carries.len().max(1) as f64, self.train_bits())
    }

    /// Capacity of the path and the receiver, in bits a second, once a train has shown it.
    fn carries(&self) -> Option<f64> {
        let mut sorted = self.carries.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).map(|carries| carries.min(self.drain))
    }

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

    fn path_loss(&self) -> f64 {
        let (sent, lost) = self.calm;
        if sent >= CALM_LEN { lost / sent } else { self.trains.path_loss() }
    }

    /// Maximum rate while no window is in use: below the capacity while a queue persists, if the
    /// path's own loss ratio is known.
    fn cap(&self) -> Rate {
        let drains = self.has_queue && self.calm.0 >= CALM_LEN;
        let known = drains.then(|| self.carries()).flatten();
        // `part` is already corrected for the path's own loss, so the division below counts this
        // loss twice. If the loss counted once, the experiment `auto-grid` would have nine cells,
        // instead of three, in which a copy alone is more than 2 points below `Trains`.
        // While a queue persists, our arrival rate shows how much the path gives us. If the trains
        // prove a higher capacity, the cap follows that capacity instead.
        let cap = |carries: f64| {
            let arrived = (self.part * carries).max(self.at_least(carries));
            DRAINS * arrived / (1.0 - self.path_loss().min(0.9))
        };
        Rate::from_bps_f64(known.map_or(f64::INFINITY, cap))
    }

    /// Whether a round lost more than the path's own loss ratio explains.
    fn is_own_loss(&self, sent: u64, came: u64) -> bool {
        let (sent, own) = (sent as f64, self.path_loss());
        let noise = 2.5 * libm::sqrt(sent * own * (1.0 - own));
        let one = if own > CLEAN { 1.0 } else { 0.0 };
        sent - came as f64 > sent * own + noise + one
    }

    /// Whether other flows have a queue, after a round on a path with this capacity in bits a
    /// second.
    fn is_shared(&mut self, rtt: f64, carries: f64, shown: &Shown) -> bool {
        let Some((queue, longest)) = shown.queue else {
            self.has_queue = false;
            return false;
        };
        let rounds = self.after_train.saturating_sub(1);
        self.after_train = if shown.has_train { TRAIN_ROUNDS } else { rounds };
        let train = if self.after_train > 0 { self.train_bits() } else { 0.0 };
        let margin = (rtt * QUEUE_SHARE).max(LEAST_QUEUE) + train / carries;
        // A train may overfill a short queue; the train's losses are not the path's own.
        let is_calm = self.after_train == 0 || self.windows.is_some();
        if is_calm && longest.max(self.longest) < margin {
            let (sent, lost) = self.calm;
            let (sent, lost) = (sent + shown.sent as f64, lost + (shown.sent - shown.came) as f64);
            let kept = if sent > CALM_MOST { 0.5 } else { 1.0 };
            self.calm = (sent * kept, lost * kept);
        }
        self.longest = longest;
        self.has_queue = queue > margin;
        // A queue that may be our own is not counted as a queue of others.
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
        if !self.has_queue || self.windows.is_none() {
            self.drained = now;
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

    /// Whether other flows have been present for long enough to start the windows.
    fn enters(&mut self, is_shared: bool) -> bool {
        let before = self.agreeing;
        self.agreeing = if is_shared { before + 1 } else { before.saturating_sub(1) };
        if (before, self.agreeing) == (0, 1) {
            self.is_fresh = false;
        }
        self.agreeing >= if self.is_fresh { ENTER_ROUNDS } else { BLIND_ROUNDS }
    }

    /// Starts the windows with a sum of `arrived` datagrams. If our share of the path is more than
    /// a fair share, the windows start as after a loss.
    fn enter(&mut self, now: Time, arrived: f64) {
        let windows = Windows::new(now, arrived, self.weight.windows(), self.part > self.fair());
        (self.windows, self.agreeing, self.judged) = (Some(windows), 0, None);
        self.held = (Time::ZERO, 0.0);
    }

    /// Our fair share of the path beside one other flow: with one window, half of the path.
    fn fair(&self) -> f64 {
        let count = f64::from(self.weight.windows());
        count / (count + 1.0)
    }

    /// The minimum share of the path for all windows together, until the first loss.
    fn floor(&self) -> f64 {
        let floor = f64::from(self.weight.windows()) * FLOOR;
        floor / (floor + 1.0 - FLOOR)
    }

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

    /// Updates the windows after a round in which our own sending caused `lost` losses. `long` is
    /// the round-trip time with its queue, in seconds; `whole` is the bandwidth-delay product, in
    /// datagrams.
    fn resize(&mut self, now: Time, lost: u64, long: f64, whole: f64) {
        let (fair, floor) = (self.fair(), self.floor());
        let Some(windows) = &mut self.windows else { return };
        if let Some((part, size, at)) = self.judged
            && now.since(at).as_secs_f64() > long * JUDGED_AFTER
        {
            self.judged = None;
            let may_be_bbr = now.since(self.drained).as_secs_f64() < PROBES_RTT;
            if may_be_bbr && part < fair && self.part < part * UNYIELDING {
                let until = now + Span::from_secs_f64(long * HELD);
                self.held = (until, (size / whole * BACK_TO).min(fair * MAKES_UP));
            }
        }
        let (until, part) = self.held;
        if now < until {
            windows.raise(whole * part);
        }
        let is_held = now < until && windows.size() <= whole * part * (1.0 + 1e-9);
        if self.judged.is_none()
            && !is_held
            && let Some(before) = windows.lose(now, long, lost)
        {
            self.judged = Some((self.part, before, now));
        }
        if !windows.has_lost() {
            windows.raise(whole * floor);
        }
    }

    /// The rate while other flows are present, in bits a second, for this round-trip time in
    /// seconds.
    fn rate_among_others(&self, windows: &Windows, rtt: f64) -> f64 {
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
            None => self.trains.rate().min(self.capped),
        }
    }

    fn train(&mut self, now: Time, next: PacketNumber) -> u64 {
        let place = next.0 % TRAIN_EVERY;
        let start = next.0 - place;
        let trained = if self.windows.is_none() { self.trains.train(now, next) } else { 0 };
        // While others are present, trains measure the capacity all the time. While others only
        // seem to be present, a train confirms the capacity.
        let asks = self.windows.is_some() || self.agreeing > 0 && !self.is_fresh && self.fits;
        if trained > 0 || place == 0 && asks {
            self.asked.ask(start);
        }
        let wanted = place < TRAIN_LEN && self.asked.is_newest(start);
        if wanted { TRAIN_LEN - place } else { 0 }
    }

    fn burst(&self) -> u64 {
        self.trains.burst()
    }

    fn on_sent(&mut self, now: Time, first: PacketNumber, count: u64) {
        self.departures.note_burst(now, first.0, count);
        self.trains.on_sent(now, first, count);
    }

    fn start_at(&mut self, rate: Rate) {
        self.trains.start_at(rate);
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
            self.capped = self.cap();
            self.trains.cap(self.capped.as_bps() as f64);
            return;
        };
        if let Some(shown) = &shown {
            windows.grow(now, shown.span, rtt + self.queue.now);
        }
        self.rate = self.rate_among_others(&windows, rtt);
        self.windows = Some(windows);
    }
}

#[cfg(test)]
mod tests;
