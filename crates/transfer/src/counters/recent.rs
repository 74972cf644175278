//! The rate of writing, recent and overall.

use std::time::{Duration, Instant};

use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};

/// Window of the recent rate.
const NOW: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Recent(Vec<(Instant, u64)>);

impl Recent {
    pub(crate) fn note(&mut self, now: Instant, written: u64) {
        self.0.push((now, written));
        let old = self.0.iter().rposition(|(at, _)| now.duration_since(*at) >= NOW);
        self.0.drain(..old.unwrap_or(0));
    }

    /// Returns the rate up to the last record. The rate is measured from the newest record that is
    /// at least a second older than the last. Without such a record, it is measured from the first.
    pub(crate) fn rate(&self) -> Rate {
        match (self.0.first(), self.0.last()) {
            (Some((since, before)), Some((at, now))) if at > since => {
                over(now.saturating_sub(*before), at.duration_since(*since))
            }
            _ => Rate::ZERO,
        }
    }
}

pub(crate) fn over(bytes: u64, time: Duration) -> Rate {
    Bytes::new(bytes) / Span::from_nanos(time.as_nanos() as u64)
}
