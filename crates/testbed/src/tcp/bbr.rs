//! BBR version 1 as in Linux: the window and the pace follow the largest delivery rate of ten round
//! trips and the smallest round-trip time of ten seconds.
//!
//! Source: Cardwell et al., *BBR Congestion Control*,
//! draft-cardwell-iccrg-bbr-congestion-control-00 (2017), with Linux's constants. Not modelled: the
//! detection of policers (`lt_bw`), and the allowance for aggregated acknowledgements.

use std::collections::VecDeque;

use longhaul_proto::time::{Span, Time};

/// 2 / ln 2: the least gain that doubles the rate each round trip.
const HIGH_GAIN: f64 = 2.885;
/// The window in bandwidth-delay products in the mode `ProbeRate`.
const WINDOW_GAIN: f64 = 2.0;
/// The pacing gains of a cycle, one per round trip.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Factor on the pace, against a standing queue.
const MARGIN: f64 = 0.99;
/// Rounds for which the largest rate is kept.
const RATE_ROUNDS: u64 = 10;
const MIN_RTT_LASTS: Span = Span::from_secs(10);
const PROBE_RTT_LASTS: Span = Span::from_millis(200);
/// The minimum window in segments, except after a timeout and in the first round of a recovery; the
/// maximum in a round-trip probe.
const LEAST: u32 = 4;
/// Start-up ends after this many rounds without enough growth.
const FULL_ROUNDS: u32 = 3;
const FULL_GROWTH: f64 = 1.25;
/// Maximum number of segments in one segmented send (GSO).
const MOST_AT_ONCE: f64 = 44.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeRate,
    ProbeRtt,
}

/// A delivery rate sample from an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Segments a second.
    pub(super) rate: f64,
    /// The delivered count when the newest acknowledged segment was sent.
    pub(super) before: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Acked {
    pub(super) arrived: u32,
    pub(super) lost: u32,
    /// Segments delivered since the start.
    pub(super) delivered: u64,
    /// Segments in flight before the acknowledgement, and after.
    pub(super) flight: (u32, u32),
    pub(super) rtt: Option<Span>,
    pub(super) sample: Option<Sample>,
    pub(super) in_recovery: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Bbr {
    mode: Mode,
    /// The candidates for the largest rate of the last rounds, each with its round, from the
    /// largest to the smallest.
    rates: VecDeque<(u64, f64)>,
    round: u64,
    /// The round ends with the acknowledgement of a segment that was sent after this many
    /// deliveries.
    round_ends: u64,
    round_starts: bool,
    /// The smallest round-trip time, and when it was measured.
    min_rtt: Option<(Span, Time)>,
    /// The rate at the last sufficient growth, and the number of rounds since then.
    full: (f64, u32),
    /// The position in [`CYCLE`], and when it was reached.
    cycle: (usize, Time),
    /// When the round-trip probe may end, and whether a round has passed since its start; `None`
    /// until few enough segments are in flight.
    probe_rtt: Option<(Time, bool)>,
    /// The window before a recovery or a round-trip probe.
    saved: u32,
    in_recovery: bool,
    /// Whether the first round of a recovery runs.
    conserves: bool,
    pace: Option<f64>,
    initial: u32,
    window: u32,
}

impl Bbr {
    pub(super) fn new(initial: u32) -> Bbr {
        Bbr {
            mode: Mode::Startup,
            rates: VecDeque::new(),
            round: 0,
            round_ends: 0,
            round_starts: false,
            min_rtt: None,
            full: (0.0, 0),
            cycle: (0, Time::ZERO),
            probe_rtt: None,
            saved: 0,
            in_recovery: false,
            conserves: false,
            pace: None,
            initial,
            window: initial,
        }
    }

    pub(super) fn window(&self) -> u32 {
        self.window
    }

    /// The pace in segments a second, once known.
    pub(super) fn pace(&self) -> Option<f64> {
        self.pace
    }

    /// The burst size: the segments of a millisecond, from 2 to [`MOST_AT_ONCE`]. Without a pace,
    /// the initial window.
    pub(super) fn at_once(&self) -> u32 {
        self.pace.map_or(self.initial, |pace| (pace / 1e3).clamp(2.0, MOST_AT_ONCE) as u32)
    }

    fn rate(&self) -> f64 {
        self.rates.front().map_or(0.0, |(_, rate)| *rate)
    }

    fn is_full(&self) -> bool {
        self.full.1 >= FULL_ROUNDS
    }

    /// The window for `gain` bandwidth-delay products.
    fn target(&self, gain: f64) -> u32 {
        let Some((rtt, _)) = self.min_rtt.filter(|_| self.rate() > 0.0) else {
            return self.initial;
        };
        let segments = (self.rate() * rtt.as_secs_f64() * gain).ceil() as u32;
        // As in Linux, add three bursts for both hosts' buffers, and round up to an even number.
        let probes = self.mode == Mode::ProbeRate && self.cycle.0 == 0;
        (segments + 3 * self.at_once()).next_multiple_of(2) + if probes { 2 } else { 0 }
    }

    pub(super) fn on_ack(&mut self, now: Time, acked: &Acked) {
        self.note_rate(acked);
        self.advance_cycle(now, acked);
        self.check_full(now, acked);
        self.note_rtt(now, acked);
        self.set_pace();
        self.set_window(acked);
    }

    fn note_rate(&mut self, acked: &Acked) {
        self.round_starts = false;
        let Some(sample) = acked.sample else { return };
        if sample.before >= self.round_ends {
            (self.round_ends, self.round_starts) = (acked.delivered, true);
            self.round += 1;
            self.conserves = false;
        }
        while self.rates.back().is_some_and(|(_, rate)| *rate <= sample.rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round, sample.rate));
        while self.rates.front().is_some_and(|(round, _)| round + RATE_ROUNDS < self.round) {
            self.rates.pop_front();
        }
    }

    fn advance_cycle(&mut self, now: Time, acked: &Acked) {
        if self.mode != Mode::ProbeRate {
            return;
        }
        let gain = CYCLE[self.cycle.0];
        let lasted = self.min_rtt.is_some_and(|(rtt, _)| now.since(self.cycle.1) > rtt);
        let ends = if gain > 1.0 {
            lasted && (acked.lost > 0 || acked.flight.0 >= self.target(gain))
        } else if gain < 1.0 {
            lasted || acked.flight.0 <= self.target(1.0)
        } else {
            lasted
        };
        if ends {
            self.cycle = ((self.cycle.0 + 1) % CYCLE.len(), now);
        }
    }

    fn probe_rate(&mut self, now: Time) {
        self.mode = Mode::ProbeRate;
        // Linux starts at a random phase, never at the slow one.
        let place = (now.as_nanos() / 1_000 % 7) as usize;
        self.cycle = (if place == 0 { 0 } else { place + 1 }, now);
    }

    fn check_full(&mut self, now: Time, acked: &Acked) {
        if !self.is_full() && self.round_starts {
            let rate = self.rate();
            let grows = rate >= self.full.0 * FULL_GROWTH;
            self.full = if grows { (rate, 0) } else { (self.full.0, self.full.1 + 1) };
        }
        if self.mode == Mode::Startup && self.is_full() {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && acked.flight.1 <= self.target(1.0) {
            self.probe_rate(now);
        }
    }

    fn note_rtt(&mut self, now: Time, acked: &Acked) {
        let expired = self.min_rtt.is_some_and(|(_, at)| now.since(at) > MIN_RTT_LASTS);
        if let Some(rtt) = acked.rtt
            && (expired || self.min_rtt.is_none_or(|(min, _)| rtt <= min))
        {
            self.min_rtt = Some((rtt, now));
        }
        if expired && self.mode != Mode::ProbeRtt {
            (self.mode, self.probe_rtt, self.saved) = (Mode::ProbeRtt, None, self.window);
        }
        if self.mode != Mode::ProbeRtt {
            return;
        }
        match &mut self.probe_rtt {
            None if acked.flight.1 <= LEAST => {
                self.probe_rtt = Some((now + PROBE_RTT_LASTS, false));
                self.round_ends = acked.delivered;
            }
            None => {}
            Some((until, round_is_over)) => {
                *round_is_over |= self.round_starts;
                if *round_is_over && now >= *until {
                    self.min_rtt = self.min_rtt.map(|(rtt, _)| (rtt, now));
                    self.window = self.window.max(self.saved);
                    self.mode = Mode::Startup;
                    if self.is_full() {
                        self.probe_rate(now);
                    }
                }
            }
        }
    }

    fn set_pace(&mut self) {
        let gain = match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => 1.0 / HIGH_GAIN,
            Mode::ProbeRate => CYCLE[self.cycle.0],
            Mode::ProbeRtt => 1.0,
        };
        let first = self.min_rtt.filter(|_| self.rates.is_empty());
        let rate = match first {
            Some((rtt, _)) => f64::from(self.initial) / rtt.as_secs_f64().max(1e-6),
            None => self.rate(),
        };
        let pace = rate * gain * MARGIN;
        if pace > 0.0 && (self.is_full() || self.pace.is_none_or(|before| pace > before)) {
            self.pace = Some(pace);
        }
    }

    fn set_window(&mut self, acked: &Acked) {
        self.window = self.window.saturating_sub(acked.lost).max(1);
        if acked.in_recovery && !self.in_recovery {
            self.conserves = true;
            self.round_ends = acked.delivered;
            self.window = acked.flight.1 + acked.arrived;
        } else if !acked.in_recovery && self.in_recovery {
            self.window = self.window.max(self.saved);
            self.conserves = false;
        }
        self.in_recovery = acked.in_recovery;
        if self.conserves {
            self.window = self.window.max(acked.flight.1 + acked.arrived);
        } else {
            let gain = if self.mode == Mode::ProbeRate { WINDOW_GAIN } else { HIGH_GAIN };
            let gain = if self.mode == Mode::ProbeRtt { 1.0 } else { gain };
            let target = self.target(gain);
            if self.is_full() {
                self.window = (self.window + acked.arrived).min(target);
            } else if self.window < target || acked.delivered < u64::from(self.initial) {
                self.window += acked.arrived;
            }
            self.window = self.window.max(LEAST);
        }
        if self.mode == Mode::ProbeRtt {
            self.window = self.window.min(LEAST);
        }
    }

    /// Saves the window at a recovery's first loss.
    pub(super) fn on_loss(&mut self) {
        if self.mode != Mode::ProbeRtt {
            self.saved = self.window;
        }
    }

    /// Handles a timeout: keeps the model, restarts the window.
    pub(super) fn on_timeout(&mut self) {
        if !self.in_recovery && self.mode != Mode::ProbeRtt {
            self.saved = self.window;
        }
        self.full = (0.0, self.full.1);
        self.window = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(100);

    /// One round trip of acknowledgements at `rate` segments a second.
    fn round(bbr: &mut Bbr, now: Time, delivered: &mut u64, rate: f64) {
        let arrived = (rate * RTT.as_secs_f64()) as u32;
        let before = *delivered;
        *delivered += u64::from(arrived);
        let acked = Acked {
            arrived,
            lost: 0,
            delivered: *delivered,
            flight: (arrived, arrived),
            rtt: Some(RTT),
            sample: Some(Sample { rate, before }),
            in_recovery: false,
        };
        bbr.on_ack(now, &acked);
    }

    #[test]
    fn start_up_ends_after_three_rounds_without_growth_and_the_cycle_begins() {
        let (mut bbr, mut delivered) = (Bbr::new(10), 0);
        let mut modes = Vec::new();
        for (number, rate) in [100.0, 280.0, 800.0, 1_000.0, 1_000.0, 1_000.0].iter().enumerate() {
            round(&mut bbr, Time::ZERO + RTT * (number as u64 + 1), &mut delivered, *rate);
            modes.push(bbr.mode);
        }
        // The first 1,000 is a quarter above 800, so it counts as growth. The later rounds bring
        // none.
        assert_eq!(modes, [Mode::Startup; 6]);
        round(&mut bbr, Time::ZERO + RTT * 7, &mut delivered, 1_000.0);
        assert_eq!(bbr.mode, Mode::ProbeRate);
        let gain = CYCLE[bbr.cycle.0];
        assert_eq!(bbr.pace(), Some(1_000.0 * gain * MARGIN));
        // Twice 100 segments, plus three bursts of two.
        assert_eq!(bbr.target(WINDOW_GAIN), 206 + if bbr.cycle.0 == 0 { 2 } else { 0 });
    }

    #[test]
    fn the_largest_rate_is_forgotten_after_ten_rounds() {
        let (mut bbr, mut delivered) = (Bbr::new(10), 0);
        for number in 0..12 {
            assert_eq!(bbr.rate(), [0.0, 500.0][usize::from(number > 0)]);
            let rate = if number == 0 { 500.0 } else { 200.0 };
            round(&mut bbr, Time::ZERO + RTT * number, &mut delivered, rate);
        }
        assert_eq!(bbr.rate(), 200.0);
    }

    #[test]
    fn after_ten_seconds_without_a_shorter_round_trip_the_window_is_small_for_a_moment() {
        let (mut bbr, mut delivered) = (Bbr::new(10), 0);
        let mut least = u32::MAX;
        // 119 round trips take 11.9 s. The first one is the shortest, and is forgotten after ten
        // seconds.
        for number in 1..120 {
            let arrived = 100;
            let before = delivered;
            delivered += arrived;
            let flight = bbr.window().min(200);
            bbr.on_ack(
                Time::ZERO + RTT * number,
                &Acked {
                    arrived: arrived as u32,
                    lost: 0,
                    delivered,
                    flight: (flight, flight),
                    rtt: Some(RTT + Span::from_millis(u64::from(number > 1))),
                    sample: Some(Sample { rate: 1_000.0, before }),
                    in_recovery: false,
                },
            );
            if number > 20 {
                least = least.min(bbr.window());
            }
        }
        assert_eq!((least, bbr.mode), (LEAST, Mode::ProbeRate));
        assert!(bbr.window() > 100, "{}", bbr.window());
    }
}
