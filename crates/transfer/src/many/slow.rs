//! Detects a source that became slow while the others did not.

use std::time::{Duration, Instant};

use longhaul_proto::units::Rate;

/// A source is slow below this share of its usual rate.
const SLOW: f64 = 0.2;
/// A source that is slow for this long is reported.
const LASTING: Duration = Duration::from_secs(5);
/// Time over which the usual rates are averaged.
const MEMORY: Duration = Duration::from_secs(10);
/// After a source was reported as slow, it must reach this share of its usual rate before it is
/// reported again.
const WELL: f64 = 0.5;
/// If the rate of all sources together is below this share of its usual value, no single source is
/// reported.
const OTHERS: f64 = 0.5;

/// A slow period of the source.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    since: Instant,
    /// The recent mean rate. Chunks are counted whole, for example none in one second and two in
    /// the next, so a single second does not show a slow source's rate.
    mean: f64,
}

#[derive(Debug, Default)]
pub(super) struct Slow {
    /// The usual rates of the source and of all sources together, in bits a second.
    usual: (f64, f64),
    /// When the source began to send, and the time of the last call.
    begun: Option<(Instant, Instant)>,
    stretch: Option<Stretch>,
    reported: bool,
}

impl Slow {
    /// Records the rate of the source and the rate of all sources. `rate` is `None` while nothing
    /// is requested from the source, or the source is not connected. If the source must be reported
    /// as slow, returns its usual rate.
    pub(super) fn look(&mut self, now: Instant, rate: Option<Rate>, all: Rate) -> Option<Rate> {
        let Some(rate) = rate else {
            (self.begun, self.stretch) = (None, None);
            return None;
        };
        let (begun, last) = *self.begun.get_or_insert((now, now));
        self.begun = Some((begun, now));
        let (rate, all) = (rate.as_bps() as f64, all.as_bps() as f64);
        let passed = now.duration_since(last).as_secs_f64();
        if all >= self.usual.1 * OTHERS && self.is_slow(now, rate, passed) {
            let stretch = *self.stretch.get_or_insert(Stretch { since: now, mean: rate });
            let is_long = now.duration_since(stretch.since) >= LASTING;
            let is_new = is_long && !self.reported && rate < self.usual.0 * SLOW;
            self.reported |= is_new;
            return is_new.then(|| Rate::from_bps_f64(self.usual.0));
        }
        self.stretch = None;
        self.reported &= rate < self.usual.0 * WELL;
        let weight = weight(passed, now.duration_since(begun), MEMORY);
        self.usual.0 += (rate - self.usual.0) * weight;
        self.usual.1 += (all - self.usual.1) * weight;
        None
    }

    /// Returns whether the source is slow now, or is slow in the mean of the current slow period
    /// and has not recovered.
    fn is_slow(&mut self, now: Instant, rate: f64, passed: f64) -> bool {
        let little = self.usual.0 * SLOW;
        let Some(stretch) = self.stretch.as_mut() else { return rate < little };
        let weight = weight(passed, now.duration_since(stretch.since), LASTING);
        stretch.mean += (rate - stretch.mean) * weight;
        rate < little || (stretch.mean < little && rate < self.usual.0 * WELL)
    }
}

/// Returns the weight of the last `passed` seconds in a mean over at most `memory`, when
/// measurements cover the time `known`.
fn weight(passed: f64, known: Duration, memory: Duration) -> f64 {
    let known = known.clamp(Duration::from_millis(1), memory);
    (passed / known.as_secs_f64()).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `look` ten times a second for `seconds`, with the rates of the source and of all
    /// sources in Mbit/s; returns the reported rates.
    fn watch(slow: &mut Slow, at: &mut Instant, seconds: u32, mbps: [u64; 2]) -> Vec<Rate> {
        let [own, all] = mbps.map(Rate::from_mbps);
        let each = (0..seconds * 10).filter_map(|_| {
            *at += Duration::from_millis(100);
            slow.look(*at, Some(own), all)
        });
        each.collect()
    }

    #[test]
    fn a_source_at_a_tenth_of_its_rate_for_five_seconds_is_reported_once() {
        let (mut slow, mut at) = (Slow::default(), Instant::now());
        assert!(watch(&mut slow, &mut at, 20, [300, 900]).is_empty());
        assert!(watch(&mut slow, &mut at, 4, [30, 900]).is_empty());
        let reported = watch(&mut slow, &mut at, 30, [30, 900]);
        assert_eq!(reported.len(), 1);
        assert!((reported[0].as_bps() as f64 - 300e6).abs() < 1e6, "{reported:?}");
        // The source recovers, and then becomes slow again.
        assert!(watch(&mut slow, &mut at, 10, [300, 900]).is_empty());
        assert_eq!(watch(&mut slow, &mut at, 10, [30, 900]).len(), 1);
    }

    #[test]
    fn pairs_of_chunks_do_not_end_a_slow_period_and_a_third_of_the_usual_rate_is_not_slow() {
        let (mut slow, mut at) = (Slow::default(), Instant::now());
        watch(&mut slow, &mut at, 20, [60, 180]);
        let mut reported = Vec::new();
        // Two chunks of 1 MiB arrive in one second of four. The usual rate is 60 Mbit/s, the rate
        // in that second 17 Mbit/s, and the mean of the four seconds 4 Mbit/s.
        for _ in 0..2 {
            reported.extend(watch(&mut slow, &mut at, 3, [0, 170]));
            reported.extend(watch(&mut slow, &mut at, 1, [17, 170]));
        }
        assert_eq!(reported.len(), 1, "{reported:?}");
        // A source that sends at a third of its usual rate after a short pause is not reported.
        let mut paused = Slow::default();
        watch(&mut paused, &mut at, 20, [300, 900]);
        assert!(watch(&mut paused, &mut at, 2, [0, 700]).is_empty());
        assert!(watch(&mut paused, &mut at, 20, [90, 700]).is_empty());
        // The source recovers after a long slow period, and the next slow period is reported too.
        assert_eq!(watch(&mut paused, &mut at, 60, [0, 700]).len(), 1);
        assert!(watch(&mut paused, &mut at, 30, [120, 700]).is_empty());
        assert_eq!(watch(&mut paused, &mut at, 20, [0, 700]).len(), 1);
        // A source that stays at a third of its usual rate is not slow.
        let mut third = Slow::default();
        watch(&mut third, &mut at, 20, [60, 180]);
        assert!(watch(&mut third, &mut at, 1, [10, 150]).is_empty());
        assert!(watch(&mut third, &mut at, 30, [20, 150]).is_empty());
    }

    #[test]
    fn a_link_slow_for_all_sources_and_a_short_pause_are_not_reported() {
        let (mut slow, mut at) = (Slow::default(), Instant::now());
        watch(&mut slow, &mut at, 20, [300, 900]);
        // A pause of 3 s, then a link that carries a tenth of every source's usual rate.
        assert!(watch(&mut slow, &mut at, 3, [0, 700]).is_empty());
        assert!(watch(&mut slow, &mut at, 3, [300, 900]).is_empty());
        assert!(watch(&mut slow, &mut at, 30, [30, 90]).is_empty());
        // A source without a lease (assigned chunks) cannot be slow.
        let mut idle = Slow::default();
        watch(&mut idle, &mut at, 20, [300, 900]);
        for _ in 0..100 {
            at += Duration::from_millis(100);
            assert_eq!(idle.look(at, None, Rate::from_mbps(600)), None);
        }
    }
}
