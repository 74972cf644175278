//! The end of an entry (done, skipped or failed), and the chunks that become unnecessary.

use std::io;
use std::ops::Range;

use super::{Sink, State, space};
use crate::error::Error;
use crate::place::{as_path, file_error};
use crate::{Failure, Kind};

/// Number of failures that store their whole path of up to 4 KiB; further failures store the name
/// only.
const WHOLE_PATHS: usize = 4096;

/// Maximum total bytes of stored reasons from the source.
const REASON_BYTES: usize = 1 << 20;

impl Sink {
    /// Marks an entry as failed at the source: it never gets its final name. Returns the chunks
    /// that are no longer needed.
    ///
    /// Call this before writing the first chunk whose value was computed after the failure.
    pub fn fail_entry(&mut self, entry: u32, reason: &str) -> Vec<Range<u64>> {
        let is_due = self.states.get(entry as usize) == Some(&State::Due);
        if is_due {
            // The source may name millions of files, with kilobytes of text for each.
            self.reason_bytes = self.reason_bytes.saturating_add(reason.len());
            let is_short = self.reason_bytes <= REASON_BYTES;
            let reason = if is_short { reason } else { "it failed at the source" };
            // The sender may have sent zeros instead of the file's content, so the file's journal
            // (the list of written chunks) cannot be trusted.
            if let Some(large) = self.larges.remove(&entry)
                && let Err(error) = large.distrust(&mut self.ground)
            {
                let why = longhaul_text::reason(&error);
                self.give_up(entry, format!("{reason}; and its journal cannot be removed: {why}"));
            } else {
                self.give_up(entry, reason.to_owned());
            }
        }
        self.take_needless()
    }

    /// Sets the final state of an entry that is done or skipped.
    pub(super) fn settle(&mut self, entry: u32, state: State) {
        self.states[entry as usize] = state;
        let it = &self.ground.manifest.entries()[entry as usize];
        if it.size().is_some() {
            self.files_done += 1;
        }
        // A folder got its name when it was created.
        if self.options.names && state == State::Done && it.kind != Kind::Folder {
            self.named.push(entry);
        }
    }

    /// Handles an error of an entry: the entry fails, and the copy continues. A full disk ends the
    /// copy, and so does any error of a single-file copy.
    pub(super) fn local_failure(&mut self, entry: u32, error: &io::Error) -> Result<(), Error> {
        let manifest = self.ground.manifest.clone();
        let it = &manifest.entries()[entry as usize];
        if space::is_full(error) {
            return Err(space::full(as_path(&manifest.path(entry)), it.size().unwrap_or(0), error));
        }
        if manifest.is_single() {
            return Err(file_error("write", &self.ground.place, error));
        }
        self.larges.remove(&entry);
        self.give_up(entry, format!("cannot be written: {}", longhaul_text::reason(error)));
        Ok(())
    }

    pub(super) fn give_up(&mut self, entry: u32, reason: String) {
        self.states[entry as usize] = State::Failed;
        self.comparing.remove(&entry);
        self.small.forget(&mut self.ground, entry);
        let manifest = &self.ground.manifest;
        // The list of failures must not take more memory than the list of files.
        let path = match self.failures.len() < WHOLE_PATHS {
            true => manifest.path(entry),
            false => manifest.name(entry).to_vec(),
        };
        self.failures.push(Failure { entry: Some(entry), path, reason, changed: false });
        self.settle_chunks(entry);
    }

    /// Marks the chunks of `entry` that no entry needs any more.
    pub(super) fn settle_chunks(&mut self, entry: u32) {
        for chunk in self.object.chunks_of(entry) {
            let is_due = |other| self.states[other as usize] == State::Due;
            if self.needed.has(chunk) && !self.object.any_near(chunk, entry, is_due) {
                self.set_needless(chunk);
            }
        }
    }

    pub(super) fn set_needless(&mut self, chunk: u64) {
        if self.needed.remove(chunk) {
            match self.needless.last_mut() {
                Some(last) if last.end == chunk => last.end += 1,
                _ => self.needless.push(chunk..chunk + 1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::single_range_in_vec_init, reason = "the lists have one range")]

    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::manifest::FileTime;
    use crate::sink::{SYNC_EVERY, SinkOptions};
    use crate::{CHUNK, LARGE, Listed, Manifest, Place, Shape, Verdict, Watch};

    fn sink(top: &std::path::Path) -> Sink {
        let file = |path: &str, size| {
            let kind = Kind::file(size);
            Listed {
                path: path.as_bytes().into(),
                kind,
                mode: 0o600,
                modified: FileTime::default(),
            }
        };
        let folder = Listed { kind: Kind::Folder, ..file("d", 0) };
        let listed = vec![folder, file("d/large", LARGE), file("d/small", 5)];
        let manifest = Arc::new(Manifest::new(Shape::Contents, listed).unwrap());
        let (place, watch) = (Place::Ambient(top.to_owned()), Watch::default());
        Sink::open(&place, &manifest, 0, &SinkOptions::default(), &watch).unwrap().0
    }

    #[test]
    fn each_needless_chunk_is_reported_once_and_neighbours_form_one_range() {
        let top = tempfile::tempdir().unwrap();
        let mut sink = sink(top.path());
        assert_eq!((sink.missing(), sink.missing_chunks()), (vec![0..9], 9));
        [1, 2, 2, 4].into_iter().for_each(|chunk| sink.set_needless(chunk));
        assert_eq!(sink.take_needless(), [1..3, 4..5]);
        assert_eq!((sink.missing_chunks(), sink.take_needless()), (6, vec![]));
        assert!(sink.needs(0) && !sink.needs(1) && !sink.needs(9));
        assert_eq!(sink.fail_entry(1, "it is gone"), [0..1, 3..4, 5..8]);
        assert_eq!(sink.fail_entry(1, "it is gone"), []);
    }

    #[test]
    fn after_4096_failures_only_names_are_stored() {
        let top = tempfile::tempdir().unwrap();
        let mut sink = sink(top.path());
        sink.failures = vec![Failure::default(); WHOLE_PATHS - 1];
        (1..3).for_each(|entry| sink.give_up(entry, "why".to_owned()));
        let paths: Vec<&[u8]> =
            sink.failures[WHOLE_PATHS - 1..].iter().map(|it| &*it.path).collect();
        assert_eq!(paths, [&b"d/large"[..], b"small"]);
    }

    #[test]
    fn after_a_mebibyte_of_reasons_from_the_source_no_further_reason_is_stored() {
        let top = tempfile::tempdir().unwrap();
        let kept = |len| {
            let mut sink = sink(top.path());
            sink.fail_entry(1, &"w".repeat(len));
            sink.fail_entry(2, "why");
            sink.failures().iter().map(|it| it.reason.len()).collect::<Vec<_>>()
        };
        let short = "it failed at the source".len();
        assert_eq!(kept(REASON_BYTES - 3), [REASON_BYTES - 3, 3]);
        assert_eq!(kept(REASON_BYTES - 2), [REASON_BYTES - 2, short]);
        assert_eq!(kept(REASON_BYTES + 1), [short; 2]);
    }

    #[test]
    fn data_are_synced_after_a_second_or_48_mib() {
        let top = tempfile::tempdir().unwrap();
        let mut sink = sink(top.path());
        let nano = Duration::from_nanos(1);
        let mut is_synced = |unsynced, waits| {
            (sink.unsynced, sink.synced) = (unsynced, Instant::now());
            sink.tick(sink.synced + waits).unwrap();
            sink.unsynced == 0
        };
        assert!(!is_synced(5, SYNC_EVERY - nano) && is_synced(5, SYNC_EVERY));
        assert!(!is_synced((48 << 20) - 1, Duration::ZERO) && is_synced(48 << 20, Duration::ZERO));
    }

    #[test]
    fn a_chunk_is_counted_once_and_only_if_its_content_matches() {
        let top = tempfile::tempdir().unwrap();
        let mut sink = sink(top.path());
        let value = crate::digest::packed_value(&[3; 5]);
        assert!(sink.write_chunk(9, &[3; 5], &value).is_err());
        for wrong in [&[3; 4][..], &[3; 6], &[4; 5]] {
            assert_eq!(sink.write_chunk(8, wrong, &value), Ok(Verdict::Mismatch));
        }
        for _ in 0..2 {
            assert_eq!(sink.write_chunk(8, &[3; 5], &value), Ok(Verdict::Written));
            assert_eq!((sink.bytes_written(), sink.unsynced), (5, 5));
        }
        sink.sync().unwrap();
        assert_eq!((sink.files_done(), sink.is_skipped(2), sink.is_complete()), (1, false, false));
        let content = vec![1; CHUNK as usize];
        let value = crate::digest::file_value(LARGE, 2, &content);
        assert_eq!(sink.write_chunk(2, &content, &value), Ok(Verdict::Written));
        assert_eq!((sink.bytes_written(), sink.missing_chunks()), (5 + CHUNK, 7));
        assert!(sink.read_back(2).unwrap() == content);
        assert!(
            sink.read_back(3).is_err() && sink.read_back(8).is_err() && sink.read_back(9).is_err()
        );
    }
}
