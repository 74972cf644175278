//! Syncs, and recovery from a failed sync.
//!
//! A sync fails if Linux cannot write some pages. Linux then marks these pages as clean. A second
//! sync then succeeds although the data are not on disk, and reads return the data until the cache
//! drops them. So after a failed sync, the sink trusts nothing that was written since the last
//! successful sync. A large file continues in a new partial file ([`Large::restart`]). Small files
//! are written again. The sender repeats the chunks that may be missing on disk. After a second
//! failure the sink gives up the file.

use std::io;
use std::path::Path;
use std::time::Instant;

use super::large::Large;
use super::small::Settled;
use super::{Sink, State};
use crate::error::{Error, FileErrorKind};
use longhaul_text::reason;

impl Sink {
    /// Syncs all waiting data, and renames synced small files to their final names. Afterwards
    /// [`Sink::take_changed`] returns the chunks that must be sent again because their sync failed.
    ///
    /// # Errors
    /// As [`write_chunk`](Sink::write_chunk).
    pub fn sync(&mut self) -> Result<(), Error> {
        self.synced = Instant::now();
        self.unsynced = 0;
        // Folders of a killed run count as new: their names may be missing on disk.
        let has_new_folders = !self.unfinished.is_empty() || self.ground.has_new_base;
        let for_folders = has_new_folders && self.uses > 0 && !self.has_synced_folders;
        let one_sync = for_folders || self.small.wants_one_sync();
        if one_sync {
            if let Err(error) = self.ground.sync_file_systems() {
                self.ground.lose_names(&error);
                if for_folders || self.has_unsynced_names() {
                    self.lost_names = Some(self.sync_error(&self.ground.place, &error));
                }
                return self.lose_all(&error);
            }
            self.has_synced_folders |= for_folders;
        }
        for (entry, settled) in self.small.settle(&mut self.ground, one_sync) {
            match settled {
                Settled::Named => self.settle(entry, State::Done),
                Settled::Unsynced(error) => self.rewrite_small(entry, &error)?,
                Settled::Failed(error) => self.local_failure(entry, &error)?,
            }
        }
        self.sync_larges()
    }

    fn sync_larges(&mut self) -> Result<(), Error> {
        let mut failed = Vec::new();
        for (entry, large) in &mut self.larges {
            if let Err(error) = large.sync(&mut self.ground) {
                failed.push((*entry, error));
            }
        }
        self.warn_of_lost_names();
        failed.into_iter().try_for_each(|(entry, error)| self.large_failure(entry, &error))
    }

    /// Warns once if a failed sync of names keeps chunks of large files out of their journals.
    fn warn_of_lost_names(&mut self) {
        let Some(reason) = &self.ground.names_lost else { return };
        if self.has_warned || !self.larges.values().any(Large::has_pending) {
            return;
        }
        self.has_warned = true;
        let (place, device) = (self.ground.place.display(), self.ground.base().device());
        self.watch.warn(format!(
            "cannot sync the names in {place} to {device}: {reason}; if this copy is interrupted, \
             it may send its unfinished large files again from the start; check the device and \
             the kernel's log"
        ));
    }

    /// Handles a failed sync of the whole file system: everything written since the last successful
    /// sync counts as lost.
    fn lose_all(&mut self, error: &io::Error) -> Result<(), Error> {
        for entry in self.small.on_their_way() {
            self.rewrite_small(entry, error)?;
        }
        let mut lost = Vec::new();
        for (entry, large) in self.larges.iter_mut().filter(|(_, large)| large.has_pending()) {
            large.lose_pending();
            lost.push(*entry);
        }
        lost.into_iter().try_for_each(|entry| self.large_failure(entry, error))
    }

    fn rewrite_small(&mut self, entry: u32, error: &io::Error) -> Result<(), Error> {
        self.small.forget(&mut self.ground, entry);
        if !self.restarted.insert(entry) {
            return self.sync_failure(entry, error);
        }
        let chunks = self.object.chunks_of(entry).collect();
        self.want_again(chunks);
        Ok(())
    }

    /// Handles an error of a large file. After its first failed sync the file continues in a new
    /// partial file.
    pub(super) fn large_failure(&mut self, entry: u32, error: &io::Error) -> Result<(), Error> {
        if !self.larges.get(&entry).is_some_and(Large::has_lost) {
            return self.local_failure(entry, error);
        }
        let Some(large) = self.larges.remove(&entry) else { return Ok(()) };
        if !self.restarted.insert(entry) {
            let _ = large.distrust(&mut self.ground);
            return self.sync_failure(entry, error);
        }
        let Ok((large, lost)) = large.restart(&mut self.ground, &self.watch) else {
            return self.sync_failure(entry, error);
        };
        let is_whole = large.is_whole();
        self.larges.insert(entry, large);
        let first = self.object.chunks_of(entry).start;
        self.want_again(lost.into_iter().map(|chunk| first + chunk).collect());
        match if is_whole { self.complete_large(entry) } else { Ok(()) } {
            Ok(()) => Ok(()),
            Err(error) => self.large_failure(entry, &error),
        }
    }

    fn want_again(&mut self, chunks: Vec<u64>) {
        for chunk in chunks {
            if self.needed.insert(chunk) {
                self.changed.push(chunk);
                let content = self.object.chunk_content(chunk) as u64;
                self.written = self.written.saturating_sub(content);
            }
        }
    }

    fn sync_failure(&mut self, entry: u32, error: &io::Error) -> Result<(), Error> {
        if self.ground.manifest.is_single() {
            return Err(self.sync_error(&self.ground.place, error));
        }
        let device = self.ground.base().device();
        self.give_up(entry, format!("cannot be synced to {device}: {}; {ADVICE}", reason(error)));
        Ok(())
    }

    pub(super) fn sync_error(&self, path: &Path, error: &io::Error) -> Error {
        let device = self.ground.base().device();
        let what = format!("cannot sync {} to {device}: {}", path.display(), reason(error));
        Error::new(FileErrorKind::File, what).at(path).advise(ADVICE)
    }

    pub(super) fn leave(&mut self) {
        // A failure cannot be reported here. It does no harm: a later run hashes content that no
        // journal lists.
        let synced = self.small.wants_one_sync().then(|| self.ground.sync_file_systems());
        if !matches!(synced, Some(Err(_))) {
            self.small.settle(&mut self.ground, synced.is_some());
        }
        for large in self.larges.values_mut() {
            if matches!(synced, Some(Err(_))) && large.has_pending() {
                large.lose_pending();
            }
            let _ = large.sync(&mut self.ground);
            large.leave(&self.options.left);
        }
    }
}

const ADVICE: &str = "check the device and the kernel's log, then run the same command again";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::buffers::Store;
    use crate::store::memory::{Disk, Faults};
    use crate::{CHUNK, LARGE, Place, SinkOptions, Source, SourceOptions, Watch};

    struct Copy {
        source: Source,
        sink: Sink,
    }

    impl Copy {
        fn begin(to: &Disk, size: u64) -> Copy {
            let from = Disk::new(1);
            let file = from.root().create(b"file", 0o600).unwrap();
            file.set_len(size).unwrap();
            // Content in the first chunks; the rest of a large file is a hole.
            for at in [0, CHUNK, 2 * CHUNK].into_iter().filter(|at| *at < size) {
                file.write_all_at(b"x", at).unwrap();
            }
            let place = |disk: &Disk, path: &str| Place::Stored {
                root: Store(disk.root()),
                path: path.into(),
            };
            let options = SourceOptions { recursive: true, ..SourceOptions::default() };
            let source = Source::open(&[place(&from, "")], &options).unwrap();
            let (manifest, options) = (source.manifest().clone(), SinkOptions::default());
            let watch = Watch::default();
            let (sink, _) = Sink::open(&place(to, "new/"), &manifest, 0, &options, &watch).unwrap();
            Copy { source, sink }
        }

        fn write(&mut self) -> u64 {
            let chunk = self.sink.missing()[0].start;
            let mut buffer = vec![0; CHUNK as usize];
            let read = self.source.read_chunk(chunk, &mut buffer).unwrap();
            self.sink.write_chunk(chunk, &buffer[..read.len], &read.value).unwrap();
            chunk
        }
    }

    #[test]
    fn new_folders_are_synced_for_a_large_file_and_not_for_a_small_one() {
        for (size, is_synced) in [(10, false), (LARGE, true)] {
            let mut copy = Copy::begin(&Disk::new(2), size);
            copy.write();
            copy.sink.sync().unwrap();
            assert_eq!(copy.sink.has_synced_folders, is_synced, "{size}");
        }
    }

    #[test]
    fn a_sync_that_succeeds_after_a_failed_one_does_not_prove_that_new_folders_are_on_disk() {
        let to = Disk::new(2);
        let mut copy = Copy::begin(&to, LARGE);
        copy.write();
        to.fail_next_file_system_sync();
        copy.sink.sync().unwrap();
        while !copy.sink.is_complete() {
            copy.write();
        }
        let error = copy.sink.finish().unwrap_err();
        assert!(error.what.starts_with("cannot sync"), "{error}");
    }

    #[test]
    fn a_failed_folder_sync_warns_once_that_large_files_may_be_sent_again() {
        let to = Disk::new(2);
        let mut copy = Copy::begin(&to, LARGE);
        copy.write();
        copy.sink.sync().unwrap();
        assert_eq!(copy.sink.watch.take_warning(), None);
        let to = Disk::new(2);
        let mut copy = Copy::begin(&to, LARGE);
        copy.write();
        to.set_faults(Faults { folder_sync: 10_000, ..Faults::default() });
        copy.sink.sync().unwrap();
        let warning = copy.sink.watch.take_warning().unwrap();
        assert!(warning.starts_with("cannot sync the names in "), "{warning}");
        assert!(warning.contains("send its unfinished large files again"), "{warning}");
        copy.write();
        copy.sink.sync().unwrap();
        assert_eq!(copy.sink.watch.take_warning(), None);
    }

    #[test]
    fn a_small_file_is_requested_again_after_one_failed_sync_and_given_up_after_two() {
        let to = Disk::new(2);
        let mut copy = Copy::begin(&to, 10);
        let chunk = copy.write();
        to.fail_next_sync();
        copy.sink.sync().unwrap();
        assert_eq!((copy.sink.take_changed(), copy.sink.failures().len()), (vec![chunk], 0));
        assert_eq!(copy.write(), chunk);
        to.fail_next_sync();
        copy.sink.sync().unwrap();
        assert_eq!((copy.sink.take_changed(), copy.sink.failures().len()), (vec![], 1));
        assert!(copy.sink.is_complete());
    }
}
