//! How fast bytes come to stand, just now and on the whole.

use std::time::{Duration, Instant};

use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};

/// What "now" means for a rate.
const NOW: Duration = Duration::from_secs(1);

/// Bytes that stood at recent times.
#[derive(Debug, Default)]
pub(crate) struct Recent(Vec<(Instant, u64)>);

impl Recent {
    /// So many bytes stand at `now`.
    pub(crate) fn note(&mut self, now: Instant, written: u64) {
        self.0.push((now, written));
        let old = self.0.iter().rposition(|(at, _)| now.duration_since(*at) >= NOW);
        self.0.drain(..old.unwrap_or(0));
    }

    /// The rate over the last second, or what there is of it.
    pub(crate) fn rate(&self) -> Rate {
        match (self.0.first(), self.0.last()) {
            (Some((since, before)), Some((at, now))) if at > since => {
                over(now.saturating_sub(*before), at.duration_since(*since))
            }
            _ => Rate::ZERO,
        }
    }
}

/// So many bytes in so much time.
pub(crate) fn over(bytes: u64, time: Duration) -> Rate {
    Bytes::new(bytes) / Span::from_nanos(time.as_nanos() as u64)
}
