//! The rate at which the writer empties the memory, reported only if the writer limits a flow.
//!
//! While the writer waits for data, the measured rate is the rate at which data arrive. A report of
//! this rate would keep the sender from becoming faster. The receiver therefore reports only while
//! data that wait for the writer fill at least half of the memory: the writer is behind.

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

/// Measurement window. A shorter window is inaccurate, because the writer takes whole chunks.
const WINDOW: Span = Span::from_millis(250);

#[derive(Debug, Default)]
pub(super) struct Drain {
    /// When the window began, and the bytes drained before; `None` while the writer is not behind.
    began: Option<(Time, Bytes)>,
    rate: Option<Rate>,
}

impl Drain {
    /// Returns the writer's rate if the writer has been behind for a whole window; otherwise
    /// `None`. `drained` bytes have left the memory so far. Of the flow's `memory` bytes, `waiting`
    /// hold data that wait for the writer.
    pub(super) fn look(
        &mut self,
        now: Time,
        drained: Bytes,
        waiting: Bytes,
        memory: Bytes,
    ) -> Option<Rate> {
        if waiting.get().saturating_mul(2) < memory.get() {
            *self = Drain::default();
            return None;
        }
        let (since, before) = *self.began.get_or_insert((now, drained));
        let passed = now.since(since);
        if passed >= WINDOW {
            let written = drained.saturating_sub(before);
            *self = Drain { began: Some((now, drained)), rate: Some(written / passed) };
        }
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Bytes = Bytes::new(32 << 20);

    #[test]
    fn the_rate_of_a_writer_is_reported_while_it_is_behind_but_not_while_it_waits_for_data() {
        let mut drain = Drain::default();
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let mut look = |millis: u64, drained: u64, waiting: u64| {
            drain.look(at(millis), Bytes::new(drained), Bytes::new(waiting), MEMORY)
        };
        // The writer is as fast as the path.
        for n in 0..50 {
            assert_eq!(look(n * 100, n * 10_000_000, 2 << 20), None);
        }
        // The writer writes 10 MB a second, and the memory is nearly full.
        let reported: Vec<_> =
            (0..10).map(|n| look(5_000 + n * 100, 490_000_000 + n * 1_000_000, 30 << 20)).collect();
        assert_eq!(reported[0], None, "the writer has not been behind for a whole window");
        assert_eq!(reported[9], Some(Rate::from_mbps(80)));
        assert_eq!(look(6_000, 500_000_000, 1 << 20), None, "the writer has caught up");
        // A pause of the sender does not count as time in which the writer was slow.
        assert_eq!(look(16_000, 501_000_000, 30 << 20), None);
        assert_eq!(look(16_500, 541_000_000, 30 << 20), Some(Rate::from_mbps(640)));
    }
}
