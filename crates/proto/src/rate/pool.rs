//! The rate that several packet trains (datagrams sent back to back) show together.
//!
//! Jitter stretches or squeezes a train. The rate of several trains together is much closer to the
//! capacity than the rate of a single train.

use crate::pulse::TRAIN_LEN;
use crate::time::Span;
use crate::units::{Bytes, Rate};
use crate::wire::Train;

/// Timing error of a train, in seconds, because hosts sleep between two reads. Over the emulator,
/// trains of 0.39 ms at 1 Gbit/s were timed as 0.32 to 0.48 ms.
pub(super) const MISDATED: f64 = 0.000_1;
/// Minimum number of distinct arrival times after the first ([`Train::steps`]) of a train that is
/// timed well.
pub(super) const MIN_STEPS: u32 = 6;
/// A short queue may drop most datagrams of a train. The rest is timed well too if it takes longer
/// than this (ten timing errors) and each datagram arrived by itself.
const LONG: Span = Span::from_millis(1);
/// Minimum [`Train::steps`] of such a train: if only two datagrams arrived, a pause of a host could
/// be most of the time between them.
const MIN_SINGLE: u32 = 2;
/// Minimum number of trains that show a rate if one of them was not timed well.
const MIN_TRAINS: f64 = 3.0;
/// If the pool has this many trains, they count half when another train is added.
const MOST: f64 = 8.0;

/// A flow's first train is not believed alone beyond this rate, in bits a second. A host or a
/// switch that pauses for a moment passes a train on faster than the path carries it.
pub(super) const SURE: f64 = 1.25e9;

/// The sum of a flow's recent trains.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pool {
    bits: f64,
    span: f64,
    count: f64,
    /// The sum of [`Train::steps`] over all trains.
    steps: u32,
    /// Whether a train was not timed well, or the path has jitter.
    is_poor: bool,
    /// Whether the flow's first train is the only one.
    is_first: bool,
}

impl Pool {
    /// Adds a train of datagrams of `datagram` bytes. Leaves out a flow's first train if it was not
    /// timed well, or was too fast: it would spoil even the sum.
    pub(super) fn add(&mut self, train: &Train, datagram: Bytes) {
        let (is_first, is_poor) = (train.first.0 == 0, !is_timed_well(train, datagram));
        let rate = (train.bytes / train.span).as_bps() as f64;
        if is_first && (is_poor || rate > SURE) {
            return;
        }
        if self.count >= MOST {
            self.bits /= 2.0;
            self.span /= 2.0;
            self.count /= 2.0;
        }
        self.bits += train.bytes.bits();
        self.span += train.span.as_secs_f64();
        self.count += 1.0;
        self.steps = self.steps.saturating_add(train.steps);
        self.is_poor |= is_poor;
        self.is_first = is_first;
    }

    /// Returns the rate that the trains show, in bits a second, for datagrams of `datagram` bytes.
    /// `None` without a train, and for a poor pool while there are too few trains or arrival times.
    ///
    /// If the pool has only a flow's first train, the result is the measured rate. All other
    /// results are reduced by the timing error, so that they do not lead to an overload.
    pub(super) fn rate(&self, datagram: Bytes) -> Option<f64> {
        let are_few = self.steps < MIN_STEPS || self.count < MIN_TRAINS;
        if self.count == 0.0 || self.is_poor && are_few {
            return None;
        }
        let shown = Rate::from_bps_f64(self.bits / self.span).as_bps() as f64;
        let trains = if self.is_first { f64::INFINITY } else { self.count };
        Some(at_least(shown, trains, TRAIN_LEN as f64 * datagram.bits()))
    }

    /// Whether several trains are needed to show the rate.
    pub(super) fn is_poor(&self) -> bool {
        self.is_poor
    }

    /// Notes that the path has jitter: a single train no longer counts.
    pub(super) fn doubt(&mut self) {
        if self.count <= 1.0 {
            *self = Pool::default();
        }
        self.is_poor = true;
    }
}

fn is_timed_well(train: &Train, datagram: Bytes) -> bool {
    let is_single = train.bytes.get() == u64::from(train.steps) * datagram.get();
    train.steps >= MIN_STEPS || is_single && train.steps >= MIN_SINGLE && train.span > LONG
}

/// Returns a lower bound of the capacity, in bits a second. `trains` trains of `train_bits` bits
/// each showed the rate `shown`, and the duration of each may be wrong by [`MISDATED`]. The error
/// of several trains shrinks with the square root of their number.
pub(super) fn at_least(shown: f64, trains: f64, train_bits: f64) -> f64 {
    let error = MISDATED / libm::sqrt(trains);
    shown / (1.0 + error * shown / train_bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::PacketNumber;

    const DATAGRAM: Bytes = Bytes::new(1_250);

    /// A train whose 30,000 bytes (24 datagrams) took `micros`.
    fn train(first: u64, micros: u64, steps: u32) -> Train {
        let (bytes, span) = (Bytes::new(30_000), Span::from_micros(micros));
        Train { first: PacketNumber(first), bytes, span, steps }
    }

    fn pool(trains: &[Train]) -> Pool {
        let mut pool = Pool::default();
        trains.iter().for_each(|train| pool.add(train, DATAGRAM));
        pool
    }

    fn mbps(pool: &Pool) -> Option<f64> {
        pool.rate(DATAGRAM).map(|rate| (rate / 1e3).round() / 1e3)
    }

    #[test]
    fn a_well_timed_first_train_shows_its_rate() {
        assert_eq!(mbps(&pool(&[train(0, 240, 6)])), Some(1_000.0));
        assert_eq!(mbps(&pool(&[train(0, 240, 5)])), None);
    }

    #[test]
    fn a_later_train_shows_its_rate_less_the_timing_error() {
        // At this rate a full train of 32 datagrams (320,000 bits) takes 0.32 ms; 0.1 ms of error
        // is added.
        assert_eq!(mbps(&pool(&[train(1024, 240, 6)])), Some(761.905));
        let four = [1, 2, 3, 4].map(|n| train(1024 * n, 240, 6));
        assert_eq!(mbps(&pool(&four)), Some(864.865));
    }

    #[test]
    fn poorly_timed_trains_show_a_rate_if_there_are_three() {
        let trains = [train(1024, 100, 2), train(2048, 500, 2), train(3072, 120, 2)];
        assert_eq!(mbps(&pool(&trains[..2])), None);
        // 720,000 bits in 0.72 ms. The timing error of three trains of 0.32 ms is 0.1 ms / √3.
        assert_eq!(mbps(&pool(&trains)), Some(847.155));
        let few = [1, 2, 3].map(|n| train(1024 * n, 240, 1));
        assert_eq!(mbps(&pool(&few)), None, "three arrival times");
    }

    #[test]
    fn a_long_train_of_single_datagrams_shows_its_rate() {
        let shown = |steps: u32, micros| {
            let bytes = Bytes::new(3 * DATAGRAM.get());
            mbps(&pool(&[Train { bytes, ..train(0, micros, steps) }]))
        };
        assert_eq!((shown(3, 2_000), shown(2, 2_000)), (Some(15.0), None));
        assert_eq!((shown(3, 1_001), shown(3, 1_000)), (Some(29.97), None));
    }

    #[test]
    fn one_well_timed_train_after_a_poorly_timed_train_shows_no_rate() {
        let trains = [train(1024, 100, 5), train(2048, 240, 31)];
        assert_eq!((mbps(&pool(&trains)), pool(&trains).is_poor()), (None, true));
    }

    #[test]
    fn at_the_ninth_train_the_eight_before_count_half() {
        let mut trains = [train(1024, 480, 6); 9];
        trains[8] = train(2048, 240, 6);
        let pool = pool(&trains);
        assert_eq!((pool.bits, pool.count, pool.steps), (1_200_000.0, 5.0, 54));
        assert!((pool.span - 0.002_16).abs() < 1e-12);
    }

    #[test]
    fn with_jitter_a_single_train_is_dropped_and_two_are_kept() {
        let mut one = pool(&[train(0, 240, 31)]);
        one.doubt();
        assert_eq!((mbps(&one), one.count, one.is_poor()), (None, 0.0, true));
        let mut two = pool(&[train(1024, 240, 31), train(2048, 240, 31)]);
        two.doubt();
        assert_eq!((mbps(&two), two.count), (None, 2.0));
        two.add(&train(3072, 240, 2), DATAGRAM);
        assert_eq!(mbps(&two), Some(847.155));
    }
}
