//! The end of a copy: files without content, links, the removal of names, permissions and times of
//! folders, and the outcome.

use std::io;

use super::plan::left_off;
use super::{Deleted, Mark, Sink, State};
use crate::digest::{self, Digest};
use crate::error::Error;
use crate::{Failure, Kind, names};

/// The outcome of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkOutcome {
    /// Regular files that got their final names in this run.
    pub files: u64,
    /// Files that existed and were equal.
    pub skipped: u64,
    /// Incomplete files; another run of the copy completes them.
    pub unfinished: u64,
    /// Bytes of content that this run has written.
    pub bytes: u64,
    /// Bytes of the files that failed.
    pub failed_bytes: u64,
    /// Symbolic links that this run created.
    pub links: u64,
    /// Folders that this run created.
    pub folders: u64,
    /// Names that the source lacks and that this run removed.
    pub deleted: u64,
    /// The paths of the removed names, if names are recorded; folders end with a slash.
    pub deleted_names: Vec<Vec<u8>>,
    /// Whether a requested removal was left out because an entry failed or the source's list is
    /// incomplete.
    pub kept_extra: bool,
    /// The failures at the source and at the destination.
    pub failures: Vec<Failure>,
    /// Numbers of the entries that have their final names and that [`Sink::take_named`] has not
    /// returned.
    pub named: Vec<u32>,
    /// For one file: its BLAKE3 hash, as `b3sum` prints it. For a tree: BLAKE3 of three
    /// concatenated hashes. The first covers the encoded manifest without version stamps, the
    /// second the roots of the large files in the manifest's order, the third the values of the
    /// packed chunks (which hold small files) in order. `None` if this run has not copied every
    /// file, or if the holes of a file were not hashed because they exceed a limit or because the
    /// copy was cancelled.
    pub digest: Option<Digest>,
}

impl Sink {
    /// Ends the copy. Syncs everything. If no chunk is missing, creates links and files without
    /// content (empty files, and files that are one hole), removes names that the source lacks (if
    /// requested), and gives folders their permissions and times.
    ///
    /// If chunks are missing, keeps the data for a later run and reports the number of unfinished
    /// files.
    ///
    /// # Errors
    /// As [`write_chunk`](Sink::write_chunk).
    pub fn finish(self) -> Result<SinkOutcome, Error> {
        let (outcome, mark) = self.finish_without_reply()?;
        mark.map_or(Ok(()), Mark::remove)?;
        Ok(outcome)
    }

    /// Ends a copy for a remote client. While the returned mark exists, a repeated copy writes into
    /// the same folder. Remove the mark when the client has received the outcome; before that, the
    /// client may repeat its request for the same destination.
    ///
    /// # Errors
    /// As [`write_chunk`](Sink::write_chunk).
    pub fn finish_without_reply(mut self) -> Result<(SinkOutcome, Option<Mark>), Error> {
        let mut mark = None;
        let mut deleted = Deleted::default();
        let mut kept_extra = false;
        if !self.options.dry_run {
            let complete = self.is_complete();
            if complete {
                self.create_whole_holes()?;
                self.each(Kind::is_empty_file, Sink::make_empty)?;
            }
            self.sync()?;
            if complete {
                // Empty files are never sent, so recreate those whose sync failed.
                self.each(Kind::is_empty_file, Sink::make_empty)?;
                self.sync()?;
            }
            if complete && self.is_complete() {
                self.each(|kind| matches!(kind, Kind::Link { .. }), Sink::make_link)?;
                kept_extra = self.keeps_extra();
                // Remove names before the folders get their times, because a removal changes a
                // folder's time.
                deleted = self.delete_extra()?;
                self.finish_folders();
                mark = self.end_on_disk()?;
            }
        }
        let mut outcome = self.account();
        (outcome.deleted, outcome.kept_extra) = (deleted.count, kept_extra);
        if self.options.names {
            outcome.deleted_names = deleted.names;
        }
        Ok((outcome, mark))
    }

    /// Calls `act` for each entry whose kind is `wanted` and that is not done, skipped or failed
    /// yet.
    fn each(
        &mut self,
        wanted: impl Fn(&Kind) -> bool,
        mut act: impl FnMut(&mut Sink, u32) -> io::Result<()>,
    ) -> Result<(), Error> {
        let manifest = self.ground.manifest.clone();
        for (number, entry) in manifest.entries().iter().enumerate() {
            let number = number as u32;
            self.watch.go_on().map_err(|_| left_off())?;
            if wanted(&entry.kind)
                && self.states[number as usize] == State::Due
                && let Err(error) = act(self, number)
            {
                self.large_failure(number, &error)?;
            }
        }
        Ok(())
    }

    /// Creates the large files that consist of one hole, because no chunk of such a file arrives.
    fn create_whole_holes(&mut self) -> Result<(), Error> {
        self.each(
            |kind| matches!(kind, Kind::File { size: 1.., .. }),
            |sink, number| {
                if sink.object.is_large(number) && !sink.larges.contains_key(&number) {
                    let large = super::Large::create(number, &mut sink.ground)?;
                    sink.larges.insert(number, large);
                    return sink.complete_large(number);
                }
                Ok(())
            },
        )
    }

    fn make_empty(&mut self, number: u32) -> io::Result<()> {
        self.small.write_empty(&mut self.ground, self.keep, number)
    }

    fn make_link(&mut self, number: u32) -> io::Result<()> {
        let manifest = self.ground.manifest.clone();
        let entry = &manifest.entries()[number as usize];
        let Kind::Link { target } = &entry.kind else { return Ok(()) };
        let (folder, name) = self.ground.at(number)?;
        let partial = names::link(&name);
        folder.remove(&partial)?;
        folder.make_link(target, &partial)?;
        if self.keep.permissions {
            folder.set_link_modified(&partial, entry.modified)?;
        }
        let found = folder.look_if_there(&name)?;
        if found.is_some_and(|found| found.kind.is_special()) {
            folder.remove(&partial)?;
            let what = "a device, socket or pipe is in its place";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        folder.rename(&partial, &name)?;
        self.settle(number, State::Done);
        Ok(())
    }

    /// Gives folders their permissions and times. Starts with the innermost folders: the final
    /// permissions of an outer folder may forbid access to them.
    fn finish_folders(&mut self) {
        let manifest = self.ground.manifest.clone();
        for (number, entry) in manifest.entries().iter().enumerate().rev() {
            let number = number as u32;
            self.watch.step();
            if entry.kind != Kind::Folder || self.states[number as usize] != State::Due {
                continue;
            }
            match self.finish_folder(number) {
                Ok(()) => self.settle(number, State::Done),
                Err(error) => {
                    let why = longhaul_text::reason(&error);
                    self.give_up(number, format!("cannot set its permissions and time: {why}"));
                }
            }
        }
    }

    fn finish_folder(&mut self, number: u32) -> io::Result<()> {
        let manifest = self.ground.manifest.clone();
        let entry = &manifest.entries()[number as usize];
        if !self.keep.permissions && !self.unfinished.has(number.into()) {
            return Ok(());
        }
        self.keep.apply_to_folder(self.ground.folder(number)?, entry)
    }

    /// Syncs the names; returns the mark if nothing failed, neither here nor at the source.
    fn end_on_disk(&mut self) -> Result<Option<Mark>, Error> {
        self.sync_names()?;
        if self.lacks_entries() {
            return Ok(None);
        }
        Ok(self.ground.take_mark())
    }

    pub(super) fn sync_names(&self) -> Result<(), Error> {
        if let Some(error) = &self.lost_names {
            return Err(error.clone());
        }
        if !self.has_unsynced_names() {
            return Ok(());
        }
        // No second try: Linux reports the error of a lost block only once for each handle, so a
        // second sync would succeed although the block is lost.
        let synced = self.ground.sync_file_systems();
        synced.map_err(|error| self.sync_error(&self.ground.place, &error))
    }

    /// Returns whether any name may be missing on disk. The name of an existing file may come from
    /// a run that was killed before its sync.
    pub(super) fn has_unsynced_names(&self) -> bool {
        let entries = self.ground.manifest.entries().iter().zip(&self.states).enumerate();
        let mut named = entries.filter(|(_, (_, state))| **state == State::Done);
        let synced = |number| self.object.is_large(number as u32);
        self.made_folders > 0
            || self.has_unsynced_name
            || self.ground.has_new_base
            || self.states.contains(&State::Skipped)
            || named.any(|(number, (entry, _))| entry.kind != Kind::Folder && !synced(number))
    }

    fn account(&mut self) -> SinkOutcome {
        let manifest = self.ground.manifest.clone();
        let entries = || manifest.entries().iter().zip(&self.states);
        let files: Vec<State> = entries()
            .filter(|(entry, _)| entry.size().is_some())
            .map(|(_, state)| *state)
            .collect();
        let failed = entries().filter(|(_, state)| **state == State::Failed);
        let is_link = |kind: &Kind| matches!(kind, Kind::Link { .. });
        let links = entries().filter(|(it, state)| is_link(&it.kind) && **state == State::Done);
        let count = |wanted| files.iter().filter(|state| **state == wanted).count() as u64;
        SinkOutcome {
            files: count(State::Done),
            skipped: count(State::Skipped),
            unfinished: count(State::Due),
            bytes: self.written,
            failed_bytes: failed.filter_map(|(entry, _)| entry.size()).sum(),
            links: links.count() as u64,
            folders: self.made_folders,
            deleted: 0,
            deleted_names: Vec::new(),
            kept_extra: false,
            failures: std::mem::take(&mut self.failures),
            named: std::mem::take(&mut self.named),
            digest: if count(State::Done) == files.len() as u64 { self.digest() } else { None },
        }
    }

    fn digest(&self) -> Option<Digest> {
        let manifest = &self.ground.manifest;
        if manifest.is_single() {
            let empty = manifest.bytes() == 0;
            return if empty { Some(digest::packed_value(&[])) } else { self.single_root };
        }
        let parts = [
            digest::packed_value(&manifest.encode_content()),
            self.roots.finish(self.order.larges())?,
            self.packed.finish(self.order.packed(&self.object))?,
        ];
        Some(digest::packed_value(parts.as_flattened()))
    }
}

impl Kind {
    fn is_empty_file(&self) -> bool {
        matches!(self, Kind::File { size: 0, .. })
    }
}
