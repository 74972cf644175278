//! Whether one of several sources has become slow, while the others have not.

use std::time::{Duration, Instant};

use longhaul_proto::units::Rate;

/// A source that brings less than this part of what it usually does is slow,
const SLOW: f64 = 0.2;
/// and told to be when that has lasted for so long.
const LASTING: Duration = Duration::from_secs(5);
/// What is usual is a mean over about this long.
const MEMORY: Duration = Duration::from_secs(10);
/// One that brings this part of it again may be told of anew.
const WELL: f64 = 0.5;
/// All together still bring this part of what they usually do: the trouble is the source's own.
const OTHERS: f64 = 0.5;

/// A stretch in which a source brings little.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    since: Instant,
    /// The mean rate of late. Chunks come whole, none in one second and two in the next: no single
    /// second says how slow a slow source is.
    mean: f64,
}

/// One source's rates.
#[derive(Debug, Default)]
pub(super) struct Slow {
    /// Mean rates of the source and of all, in bits a second.
    usual: (f64, f64),
    /// Since when it brings something, and when that was last looked at.
    begun: Option<(Instant, Instant)>,
    stretch: Option<Stretch>,
    told: bool,
}

impl Slow {
    /// It brings `rate` of `all`; nothing where nothing is asked of it, or it is not there.
    /// What it usually brought, if it has become slow.
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
            let is_news = is_long && !self.told && rate < self.usual.0 * SLOW;
            self.told |= is_news;
            return is_news.then(|| Rate::from_bps_f64(self.usual.0));
        }
        self.stretch = None;
        self.told &= rate < self.usual.0 * WELL;
        let weight = weight(passed, now.duration_since(begun), MEMORY);
        self.usual.0 += (rate - self.usual.0) * weight;
        self.usual.1 += (all - self.usual.1) * weight;
        None
    }

    /// Whether it is slow now, or in the mean of the stretch in which it has been.
    fn is_slow(&mut self, now: Instant, rate: f64, passed: f64) -> bool {
        let little = self.usual.0 * SLOW;
        let Some(stretch) = self.stretch.as_mut() else { return rate < little };
        let weight = weight(passed, now.duration_since(stretch.since), LASTING);
        stretch.mean += (rate - stretch.mean) * weight;
        rate < little || (stretch.mean < little && rate < self.usual.0 * WELL)
    }
}

/// What the last `passed` seconds count for in a mean over about `memory`, of which so much is
/// known: a short past counts for more than its part.
fn weight(passed: f64, known: Duration, memory: Duration) -> f64 {
    let known = known.clamp(Duration::from_millis(1), memory);
    (passed / known.as_secs_f64()).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks ten times a second for so many seconds; how often it was told, and of what.
    fn watch(slow: &mut Slow, at: &mut Instant, seconds: u32, mbps: [u64; 2]) -> Vec<Rate> {
        let [own, all] = mbps.map(Rate::from_mbps);
        let each = (0..seconds * 10).filter_map(|_| {
            *at += Duration::from_millis(100);
            slow.look(*at, Some(own), all)
        });
        each.collect()
    }

    #[test]
    fn a_source_that_brings_a_tenth_for_five_seconds_is_told_once() {
        let (mut slow, mut at) = (Slow::default(), Instant::now());
        assert!(watch(&mut slow, &mut at, 20, [300, 900]).is_empty());
        assert!(watch(&mut slow, &mut at, 4, [30, 900]).is_empty());
        let told = watch(&mut slow, &mut at, 30, [30, 900]);
        assert_eq!(told.len(), 1);
        assert!((told[0].as_bps() as f64 - 300e6).abs() < 1e6, "{told:?}");
        // It is itself again, and then once more not.
        assert!(watch(&mut slow, &mut at, 10, [300, 900]).is_empty());
        assert_eq!(watch(&mut slow, &mut at, 10, [30, 900]).len(), 1);
    }

    #[test]
    fn chunks_that_come_now_none_now_two_at_once_do_not_end_a_slow_stretch() {
        let (mut slow, mut at) = (Slow::default(), Instant::now());
        watch(&mut slow, &mut at, 20, [60, 180]);
        let mut told = Vec::new();
        // Two chunks of 1 MiB in one second of four: 17 of 60 Mbit/s in it, 4 in the mean.
        for _ in 0..2 {
            told.extend(watch(&mut slow, &mut at, 3, [0, 170]));
            told.extend(watch(&mut slow, &mut at, 1, [17, 170]));
        }
        assert_eq!(told.len(), 1, "{told:?}");
        // One that brings a third after a pause was slow, and is no more.
        let mut paused = Slow::default();
        watch(&mut paused, &mut at, 20, [300, 900]);
        assert!(watch(&mut paused, &mut at, 2, [0, 700]).is_empty());
        assert!(watch(&mut paused, &mut at, 20, [90, 700]).is_empty());
        // A long stretch is over soon after its end, and the next one is told too.
        assert_eq!(watch(&mut paused, &mut at, 60, [0, 700]).len(), 1);
        assert!(watch(&mut paused, &mut at, 30, [120, 700]).is_empty());
        assert_eq!(watch(&mut paused, &mut at, 20, [0, 700]).len(), 1);
        // A source that brings a third all the time is not slow.
        let mut third = Slow::default();
        watch(&mut third, &mut at, 20, [60, 180]);
        assert!(watch(&mut third, &mut at, 1, [10, 150]).is_empty());
        assert!(watch(&mut third, &mut at, 30, [20, 150]).is_empty());
    }

    #[test]
    fn a_link_that_is_slow_for_all_and_a_short_pause_are_not_the_sources_trouble() {
        let (mut slow, mut at) = (Slow::default(), Instant::now());
        watch(&mut slow, &mut at, 20, [300, 900]);
        assert!(watch(&mut slow, &mut at, 3, [0, 700]).is_empty());
        assert!(watch(&mut slow, &mut at, 3, [300, 900]).is_empty());
        assert!(watch(&mut slow, &mut at, 30, [30, 90]).is_empty());
        // Nothing to bring is nothing to be slow at.
        let mut idle = Slow::default();
        watch(&mut idle, &mut at, 20, [300, 900]);
        for _ in 0..100 {
            at += Duration::from_millis(100);
            assert_eq!(idle.look(at, None, Rate::from_mbps(600)), None);
        }
    }
}
