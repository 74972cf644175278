//! A token bucket that drops excess packets, without a queue.

use longhaul_proto::time::Time;
use longhaul_proto::units::{Bytes, Rate};

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// Long-term rate in bits a second on the wire.
    pub rate: Rate,
    /// Maximum bytes on the wire at once after a pause.
    pub burst: Bytes,
}

/// When the bucket will be full again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PolicerState {
    full: Time,
}

impl PolicerState {
    pub(super) fn drops(&mut self, policer: &Policer, now: Time, wire: Bytes) -> bool {
        let full = self.full.max(now) + wire / policer.rate;
        if full.since(now) > policer.burst / policer.rate {
            return true;
        }
        self.full = full;
        false
    }
}

#[cfg(test)]
mod tests {
    use longhaul_proto::time::Span;

    use super::*;

    #[test]
    fn a_burst_passes_and_then_packets_at_the_rate() {
        // A packet takes 1 ms; the bucket holds five packets.
        let policer = Policer { rate: Rate::from_mbps(8), burst: Bytes::new(5_000) };
        let mut state = PolicerState::default();
        let mut passed = |from: u64, count: u64, apart: u64| {
            let at = |i| Time::ZERO + Span::from_micros(from + i * apart);
            let passes = |i: &u64| !state.drops(&policer, at(*i), Bytes::new(1_000));
            (0..count).filter(passes).count()
        };
        assert_eq!(passed(0, 10, 0), 5);
        assert_eq!(passed(1_000, 20, 500), 10);
        assert_eq!(passed(100_000, 10, 0), 5);
    }
}
