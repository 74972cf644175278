//! Trains alone, and beside other traffic the window that CUBIC would have.
//!
//! [`Trains`] drains every queue that it finds, and hardly slows down for loss. So beside traffic
//! that fills a deep queue it gives way until little is left, and at a shallow one it leaves little
//! to others. This law looks for others: what a packet train shows is what the path carries, and
//! where less arrives although a queue stands for several round trips, or although datagrams are
//! lost that the path does not lose by itself, others have the rest. Then a *shadow window* takes
//! over: it grows and shrinks as CUBIC's does (RFC 9438), and the rate is the window over the
//! round-trip time. Two things differ from CUBIC:
//!
//! - Until the first loss the window is at least half of what the path holds, however long the
//!   queue grows meanwhile.
//! - If our share of the path falls with our window after a loss, the others have not slowed down:
//!   then the window goes back, unless it was more than half of what the path holds.
//!
//! Once all that the path carries arrives, trains go on.
//!
//! The queue is the rise of the delay towards the receiver, by the receiver's clock, and never more
//! than that of the round-trip time: so neither reports that wait nor clocks that drift make one.

use alloc::vec::Vec;

use super::departures::Departures;
use super::train::Trains;
use super::{Feedback, RateController};
use crate::endpoint::PacketNumber;
use crate::pulse::{TRAIN_EVERY, TRAIN_LEN};
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};

/// A queue stands if it was never shorter than this, or than this share of the round trip, for so
/// many round trips or so long.
const LEAST_QUEUE: f64 = 0.003;
const QUEUE_SHARE: f64 = 1.0 / 8.0;
const STANDS_RTTS: f64 = 4.0;
const STANDS: f64 = 0.2;
/// Others have a part of the path if less than this arrives of what a train shows; we are alone
/// again above the second.
const SHARED: f64 = 0.85;
const ALONE: f64 = 0.92;
/// Where the path loses more than this, a ceiling found by loss says nothing about others.
const CLEAN: f64 = 0.01;
/// A window without a queue is given up after so long, and so many round trips.
const IDLE: f64 = 1.5;
const IDLE_RTTS: f64 = 20.0;
/// For so many rounds.
const ROUNDS: u32 = 3;
/// The part of the path that the window holds at least until the first loss, and at most when it
/// goes back after one.
const HALF: f64 = 0.5;
/// Others have not slowed down if our share falls below this part of what it was before the loss,
/// so many round trips after it; then the window goes back to this part of what it was.
const UNYIELDING: f64 = 0.9;
const JUDGED_AFTER: f64 = 2.0;
const BACK_TO: f64 = 1.15;
/// What the path carries is the median of so many trains.
const TRAINS: usize = 5;
/// A round measures at least this long, and so many datagrams.
const ROUND: f64 = 0.02;
const ROUND_LEN: u64 = 16;
const LONGEST: f64 = 4.0;
/// Loss beyond the path's own, as a share and with its noise.
const EXCESS: f64 = 0.002;
/// RFC 9438, sections 4.1 and 4.6.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// The rate is never more than this part of what the path carries.
const MOST: f64 = 1.1;
/// A train that came in fewer steps is not timed well.
const MIN_STEPS: u32 = 6;
/// The least window, in datagrams.
const LEAST_WINDOW: f64 = 4.0;

/// Trains, and beside other traffic a window as CUBIC has it.
pub struct Shadow {
    trains: Trains,
    datagram: f64,
    limit: f64,
    departures: Departures,
    queue: Queue,
    round: Option<Round>,
    /// What the last trains showed, in bits a second, and the first number of the newest of them.
    carries: Vec<f64>,
    shown: Option<u64>,
    /// Rounds on end that speak for the other state.
    agreeing: u32,
    window: Option<Window>,
    /// The part of the path that we had, by the last round; and before the last loss, with the
    /// window then and its time, until that is judged.
    part: f64,
    judged: Option<(f64, f64, Time)>,
    entered: Time,
    train: Option<u64>,
    /// The shadow window's rate, in bits a second.
    rate: f64,
    drain: f64,
}

/// Where a round began: the receiver's clock, datagrams sent and received.
#[derive(Clone, Copy, Debug)]
struct Round {
    clock: Span,
    highest: u64,
    received: u64,
}

/// How long the path's queue is, in seconds.
#[derive(Clone, Copy, Debug)]
struct Queue {
    /// The least delay towards the receiver, by two clocks.
    base: f64,
    now: f64,
    /// The least in this stretch of time and in the one before, and when this one began.
    least: (f64, f64),
    began: Option<Span>,
}

impl Queue {
    const NEW: Queue = Queue { base: f64::INFINITY, now: 0.0, least: (0.0, 0.0), began: None };

    /// A datagram took `delay` by two clocks, and its echo `rise` longer than the shortest.
    fn note(&mut self, clock: Span, delay: f64, rise: f64, stands: f64) {
        self.base = self.base.min(delay);
        self.now = (delay - self.base).min(rise).max(0.0);
        let began = *self.began.get_or_insert(clock);
        if clock.saturating_sub(began).as_secs_f64() >= stands {
            (self.least, self.began) = ((self.now, self.least.0), Some(clock));
        } else {
            self.least.0 = self.least.0.min(self.now);
        }
    }

    /// The shortest that it was for one to two stretches.
    fn standing(&self) -> f64 {
        self.least.0.min(self.least.1)
    }
}

/// CUBIC's window, in datagrams, by the clock.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Window {
    size: f64,
    /// The window before the last loss and after it, and when that was.
    most: f64,
    from: f64,
    since: Time,
    /// What Reno's would be.
    reno: f64,
    has_lost: bool,
}

impl Window {
    fn new(now: Time, size: f64) -> Window {
        let size = size.max(LEAST_WINDOW);
        Window { size, most: size, from: size, since: now, reno: size, has_lost: false }
    }

    fn grow(&mut self, now: Time, span: f64, rtt: f64) {
        let k = libm::cbrt((self.most - self.from).max(0.0) / C);
        let t = now.since(self.since).as_secs_f64() - k;
        let cubic = C * t * t * t + self.most;
        // RFC 9438, 4.3: as much as Reno with this decrease.
        self.reno += 3.0 * (1.0 - BETA) / (1.0 + BETA) * span / rtt.max(1e-6);
        // RFC 9438, 4.2: not more than half as much again in a round trip.
        let bound = self.size * (1.0 + 0.5 * span / rtt.max(1e-6));
        self.size = cubic.max(self.reno).min(bound).max(self.size);
    }

    /// A loss that is not the path's own; at most one in `rtt` counts. Returns the window before.
    fn lose(&mut self, now: Time, rtt: f64) -> Option<f64> {
        if self.has_lost && now.since(self.since).as_secs_f64() < rtt {
            return None;
        }
        let before = self.size;
        // RFC 9438, 4.7: who has not come back to its last window leaves room.
        self.most = if self.size < self.most { self.size * (1.0 + BETA) / 2.0 } else { self.size };
        self.size = (self.size * BETA).max(LEAST_WINDOW);
        (self.reno, self.from, self.since) = (self.size, self.size, now);
        self.has_lost = true;
        Some(before)
    }
}

impl Shadow {
    /// A controller for datagrams of `datagram` bytes; it never goes above `limit`.
    pub fn new(datagram: Bytes, limit: Option<Rate>) -> Shadow {
        Shadow {
            trains: Trains::new(datagram, limit),
            datagram: datagram.bits(),
            limit: limit.map_or(f64::INFINITY, |rate| rate.as_bps() as f64),
            departures: Departures::default(),
            queue: Queue::NEW,
            round: None,
            carries: Vec::new(),
            shown: None,
            agreeing: 0,
            window: None,
            part: 1.0,
            judged: None,
            entered: Time::ZERO,
            train: None,
            rate: 0.0,
            drain: f64::INFINITY,
        }
    }

    fn note_queue(&mut self, feedback: &Feedback<'_>) {
        let pulse = feedback.pulse;
        let Some((echo, sample)) = pulse.echo.zip(feedback.sample) else { return };
        let Some(left) = self.departures.at(echo.number.0) else { return };
        let came = pulse.clock.saturating_sub(echo.age).as_secs_f64();
        let rise = sample.saturating_sub(feedback.min_rtt).as_secs_f64();
        let stands = (feedback.min_rtt.as_secs_f64() * STANDS_RTTS).max(STANDS);
        self.queue.note(pulse.clock, came - left.since(Time::ZERO).as_secs_f64(), rise, stands);
    }

    fn note_train(&mut self, feedback: &Feedback<'_>) {
        // A train that did not leave at once shows our own rate.
        let ours = |first: u64| Some(first) == self.train && Some(first) != self.shown;
        let Some(train) = feedback.pulse.train.filter(|train| ours(train.first.0)) else { return };
        self.shown = Some(train.first.0);
        if train.steps >= MIN_STEPS {
            if self.carries.len() == TRAINS {
                self.carries.remove(0);
            }
            self.carries.push((train.bytes / train.span).as_bps() as f64);
        }
    }

    /// What the path carries, in bits a second, once a train has shown it.
    fn carries(&self) -> Option<f64> {
        let mut sorted = self.carries.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }

    /// What a round shows, once it is long enough: datagrams sent and received, and bits a second
    /// that arrived.
    fn close_round(&mut self, feedback: &Feedback<'_>) -> Option<(u64, u64, f64)> {
        let pulse = feedback.pulse;
        let now = Round { clock: pulse.clock, highest: pulse.highest, received: pulse.received };
        let Some(round) = self.round else {
            self.round = Some(now);
            return None;
        };
        let span = now.clock.saturating_sub(round.clock).as_secs_f64();
        let sent = now.highest.saturating_sub(round.highest);
        if span < feedback.min_rtt.as_secs_f64().max(ROUND) || sent < ROUND_LEN {
            return None;
        }
        self.round = Some(now);
        // A round that took so long had a hole in it.
        if span > LONGEST * feedback.min_rtt.as_secs_f64().max(ROUND) {
            return None;
        }
        let came = now.received.saturating_sub(round.received).min(sent);
        Some((sent, came, came as f64 * self.datagram / span))
    }

    /// Whether more of a round was lost than the path loses by itself.
    fn is_own_loss(&self, sent: u64, came: u64) -> bool {
        let (sent, own) = (sent as f64, self.trains.path_loss());
        let noise = 2.5 * libm::sqrt(sent * own * (1.0 - own));
        sent - came as f64 > sent * (own + EXCESS) + noise + 1.0
    }

    fn on_round(&mut self, now: Time, rtt: f64, (sent, came, arrived): (u64, u64, f64)) {
        let lossless = arrived / (1.0 - self.trains.path_loss().min(0.9));
        let Some(carries) = self.carries() else { return };
        self.part = lossless / carries;
        let least = (rtt * QUEUE_SHARE).max(LEAST_QUEUE);
        let (is_own, long) = (self.is_own_loss(sent, came), rtt + self.queue.now);
        if self.window.is_some() {
            self.agreeing = if self.part > ALONE { self.agreeing + 1 } else { 0 };
            let lasted = now.since(self.entered).as_secs_f64();
            let is_idle = self.queue.standing() < least / 2.0 && lasted > IDLE.max(rtt * IDLE_RTTS);
            if self.agreeing >= ROUNDS || is_idle {
                self.window = None;
                self.trains.resume(lossless);
                return;
            }
        } else {
            let stands = self.queue.standing() > least;
            let ceiling = self.trains.ceiling().is_some_and(|top| top < carries * SHARED);
            let is_clean = self.trains.path_loss() < CLEAN;
            let is_shared = self.part <= SHARED && is_clean && (stands || ceiling);
            self.agreeing = if is_shared { self.agreeing + 1 } else { 0 };
            if self.agreeing < ROUNDS {
                return;
            }
            self.entered = now;
            self.window = Some(Window::new(now, lossless * long / self.datagram));
            (self.agreeing, self.judged) = (0, None);
        }
        self.resize(now, is_own, long, carries * long / self.datagram);
    }

    /// The shadow window after a round; `whole` is what the path holds, in datagrams.
    fn resize(&mut self, now: Time, is_own: bool, long: f64, whole: f64) {
        let Some(window) = &mut self.window else { return };
        if let Some((part, size, at)) = self.judged
            && now.since(at).as_secs_f64() > long * JUDGED_AFTER
        {
            self.judged = None;
            if part < HALF && self.part < part * UNYIELDING {
                window.size = window.size.max((size * BACK_TO).min(whole * HALF));
            }
        }
        if is_own
            && self.judged.is_none()
            && let Some(before) = window.lose(now, long)
        {
            self.judged = Some((self.part, before, now));
        }
        if !window.has_lost {
            window.size = window.size.max(whole * HALF);
        }
    }
}

impl RateController for Shadow {
    fn rate(&self) -> Rate {
        match self.window {
            Some(_) => Rate::from_bps_f64(self.rate.min(self.limit).min(self.drain)),
            None => self.trains.rate(),
        }
    }

    fn train(&mut self, now: Time, next: PacketNumber) -> u64 {
        let place = next.0 % TRAIN_EVERY;
        let start = next.0 - place;
        if self.window.is_none() {
            let count = self.trains.train(now, next);
            if count > 0 {
                self.train = Some(start);
            }
            return count;
        }
        // What the path carries is asked all the time.
        if place == 0 {
            self.train = Some(start);
        }
        let wanted = place < TRAIN_LEN && self.train == Some(start);
        if wanted { TRAIN_LEN - place } else { 0 }
    }

    fn on_sent(&mut self, now: Time, first: PacketNumber, count: u64) {
        self.departures.note(now, first.0, Span::ZERO);
        self.trains.on_sent(now, first, count);
    }

    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>) {
        self.note_queue(feedback);
        self.note_train(feedback);
        self.departures.forget(feedback.pulse.highest);
        self.drain = feedback.pulse.drain.map_or(f64::INFINITY, |rate| rate.as_bps() as f64 * 1.1);
        let rtt = feedback.min_rtt.as_secs_f64();
        let before = self.round.map_or(feedback.pulse.clock, |round| round.clock);
        let shown = self.close_round(feedback);
        if let Some(shown) = shown {
            self.on_round(now, rtt, shown);
        }
        let Some(window) = &mut self.window else {
            self.trains.on_feedback(now, feedback);
            return;
        };
        if shown.is_some() {
            let span = feedback.pulse.clock.saturating_sub(before).as_secs_f64();
            window.grow(now, span, rtt + self.queue.now);
        }
        let rate = window.size * self.datagram / (rtt + self.queue.now);
        self.rate = rate.min(self.carries().map_or(f64::INFINITY, |carries| carries * MOST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: f64) -> Time {
        Time::ZERO + Span::from_secs_f64(secs)
    }

    fn is(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-6, "{value}, expected {expected}");
    }

    #[test]
    fn the_window_grows_as_reno_at_first_and_then_as_the_cubic() {
        let mut window = Window::new(Time::ZERO, 100.0);
        window.grow(at(1.0), 0.1, 0.1);
        // Reno's 0.9 / 1.7 a round trip is more than 0.4 · 1³.
        is(window.size, 100.0 + 0.9 / 1.7);
        window.grow(at(5.0), 0.1, 0.1);
        is(window.size, 100.0 + 0.4 * 125.0);
        // Never more than half as much again in a round trip.
        window.grow(at(50.0), 0.1, 0.1);
        is(window.size, 225.0);
    }

    #[test]
    fn a_loss_takes_three_tenths_once_a_round_trip() {
        let mut window = Window::new(Time::ZERO, 100.0);
        assert_eq!(window.lose(at(5.0), 0.1), Some(100.0));
        is(window.size, 70.0);
        assert_eq!(window.lose(at(5.05), 0.1), None);
        // Below the last window: room for who came.
        assert_eq!(window.lose(at(5.2), 0.1).map(|before| before as u32), Some(70));
        is(window.size, 49.0);
        is(window.most, 70.0 * 0.85);
        // The curve is back at its origin after the cube root of (59.5 − 49) / 0.4 s.
        window.grow(at(5.2 + libm::cbrt(10.5 / 0.4)), 0.0, 1e3);
        is(window.size, 49.0);
        window.grow(at(5.2 + libm::cbrt(10.5 / 0.4)), 1e3, 1e3);
        is(window.size, 59.5);
    }

    #[test]
    fn a_queue_stands_by_both_delays_over_two_stretches() {
        let mut queue = Queue::NEW;
        let mut note = |millis, delay, rise| {
            queue.note(Span::from_millis(millis), delay, rise, 0.2);
            queue.standing()
        };
        is(note(0, 5.0, 1.0), 0.0);
        is(note(200, 5.03, 0.02), 0.0);
        is(note(300, 5.015, 0.5), 0.0);
        is(note(400, 5.05, 0.05), 0.015);
        is(note(500, 5.01, 0.05), 0.01);
    }

    #[test]
    fn loss_beyond_the_paths_own_is_ours() {
        let shadow = Shadow::new(Bytes::new(1_472), None);
        assert!(!shadow.is_own_loss(1_000, 997));
        assert!(shadow.is_own_loss(1_000, 996));
    }

    #[test]
    fn others_that_do_not_yield_give_the_window_back_up_to_half() {
        let mut shadow = Shadow::new(Bytes::new(1_472), None);
        shadow.window = Some(Window::new(Time::ZERO, 300.0));
        shadow.part = 0.3;
        shadow.resize(at(1.0), true, 0.1, 1_000.0);
        // A loss is judged after two round trips.
        is(shadow.window.unwrap().size, 210.0);
        shadow.part = 0.21;
        shadow.resize(at(1.1), false, 0.1, 1_000.0);
        is(shadow.window.unwrap().size, 210.0);
        shadow.resize(at(1.3), false, 0.1, 1_000.0);
        is(shadow.window.unwrap().size, 345.0);
        assert_eq!(shadow.judged, None);
        // Those that yield leave our part as it was: the window stays.
        shadow.part = 0.3;
        shadow.resize(at(2.0), true, 0.1, 1_000.0);
        shadow.resize(at(2.3), false, 0.1, 1_000.0);
        is(shadow.window.unwrap().size, 345.0 * 0.7);
    }
}
