//! Limits how long complete chunks wait for their digests. Waiting chunks occupy memory and cannot
//! be verified.
//!
//! A sender sends a chunk's digest as soon as it has read the chunk, both by datagram and on the
//! control stream. A session ends after 30 s of silence. A sender that keeps its session alive and
//! sends no digest for twice that time is broken, or wants to occupy the memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};

/// How long a digest may be missing: twice the silence timeout of a session.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum time that counts between two checks. A longer gap is a pause of this host: its disk was
/// slow, or the host slept.
const MOST_COUNTED: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct MissingDigests {
    patience: Duration,
    checked: Instant,
    /// The time since the start, without pauses of this host.
    waited: Duration,
    /// Chunks that had to wait, each with the value of `waited` at the start of its last wait.
    /// Includes chunks that no longer wait.
    begun: BTreeMap<u64, Duration>,
}

impl MissingDigests {
    pub(super) fn new(patience: Duration) -> MissingDigests {
        let (checked, waited) = (Instant::now(), Duration::ZERO);
        MissingDigests { patience, checked, waited, begun: BTreeMap::new() }
    }

    pub(super) fn begin(&mut self, chunk: u64) {
        self.begun.insert(chunk, self.waited);
    }

    /// Fails if a chunk has waited longer than the patience; `waits` says whether a chunk still
    /// waits. To be called several times a second.
    pub(super) fn judge(&mut self, now: Instant, waits: impl Fn(u64) -> bool) -> Result<(), Error> {
        self.waited += now.saturating_duration_since(self.checked).min(MOST_COUNTED);
        self.checked = now;
        self.begun.retain(|&chunk, _| waits(chunk));
        let Some((&chunk, &since)) = self.begun.iter().min_by_key(|(_, since)| **since) else {
            return Ok(());
        };
        if self.waited - since <= self.patience {
            return Ok(());
        }
        let count = self.begun.len();
        let what = format!(
            "cannot verify {count} chunks of 1 MiB: the other side has \
             not sent their digests; the longest wait is {} s, for chunk {chunk}",
            self.patience.as_secs()
        );
        let error = Error::new(ErrorKind::Verification, what);
        Err(error.advise("use the same release of longhaul on both sides"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks every 100 ms for `seconds` with the chunks `waiting`; returns whether that was too
    /// long.
    fn waits_too_long(missing_digests: &mut MissingDigests, seconds: u64, waiting: &[u64]) -> bool {
        (0..seconds * 10).any(|_| {
            let now = missing_digests.checked + Duration::from_millis(100);
            missing_digests.judge(now, |chunk| waiting.contains(&chunk)).is_err()
        })
    }

    #[test]
    fn the_error_names_the_chunk_that_waited_longest_and_the_number_of_waiting_chunks() {
        let mut missing_digests = MissingDigests::new(PATIENCE);
        (0..4).for_each(|chunk| missing_digests.begin(chunk));
        assert!(!waits_too_long(&mut missing_digests, 59, &[1, 3]));
        let now = |missing_digests: &MissingDigests| missing_digests.checked + MOST_COUNTED;
        let checks =
            (0..9).map(|_| missing_digests.judge(now(&missing_digests), |chunk| chunk % 2 == 1));
        let error = checks.filter_map(Result::err).next().expect("a minute has passed");
        assert_eq!(error.kind, ErrorKind::Verification);
        assert!(error.what.contains("2 chunks") && error.what.contains("60 s"), "{error}");
        assert!(error.what.ends_with("chunk 1"), "{error}");
    }

    #[test]
    fn each_chunk_has_its_own_time_limit() {
        let mut missing_digests = MissingDigests::new(PATIENCE);
        for chunk in 0..10 {
            missing_digests.begin(chunk);
            assert!(!waits_too_long(&mut missing_digests, 30, &[chunk]), "chunk {chunk}");
        }
        assert!(!waits_too_long(&mut missing_digests, 600, &[]));
    }

    #[test]
    fn a_chunk_that_waits_again_gets_the_whole_time_again() {
        let mut missing_digests = MissingDigests::new(PATIENCE);
        (0..2).for_each(|chunk| missing_digests.begin(chunk));
        // Chunk 1 gets its digest during this time, fails verification, and arrives again.
        assert!(!waits_too_long(&mut missing_digests, 40, &[0]));
        missing_digests.begin(1);
        assert!(!waits_too_long(&mut missing_digests, 59, &[1]));
        assert!(waits_too_long(&mut missing_digests, 2, &[1]));
    }

    #[test]
    fn a_pause_of_this_host_does_not_count_against_the_sender() {
        let mut missing_digests = MissingDigests::new(PATIENCE);
        missing_digests.begin(0);
        for _ in 0..100 {
            let now = missing_digests.checked + Duration::from_secs(100);
            assert_eq!(missing_digests.judge(now, |_| true), Ok(()));
        }
    }
}
