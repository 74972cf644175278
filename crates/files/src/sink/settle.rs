//! The end of an entry (done, skipped or failed), and the chunks that become unnecessary.

use std::io;
use std::ops::Range;

use super::{Sink, State, space};
use crate::error::Error;
use crate::place::{as_path, file_error};
use crate::{Extent, Failure, Kind};

/// Number of failures that store their whole path of up to 4 KiB; further failures store the name
/// only.
const WHOLE_PATHS: usize = 4096;

impl Sink {
    /// Marks an entry as failed at the source: it never gets its final name. Returns the chunks
    /// that are no longer needed.
    ///
    /// Call this before writing the first chunk whose value was computed after the failure.
    pub fn fail_entry(&mut self, entry: u32, reason: &str) -> Vec<Range<u64>> {
        let is_due = self.states.get(entry as usize) == Some(&State::Due);
        if is_due {
            // The sender may have sent zeros instead of the file's content, so the file's journal
            // cannot be trusted.
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

    /// Records the final state of an entry.
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

    /// Marks an entry as failed, and finds the chunks that only this entry needed.
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

    /// Records the chunks that became unnecessary because `entry` is settled.
    pub(super) fn settle_chunks(&mut self, entry: u32) {
        for chunk in self.object.chunks_of(entry) {
            let is_due = |extent: Extent| self.states[extent.entry as usize] == State::Due;
            if self.needed.has(chunk) && !self.object.extents(chunk).any(is_due) {
                self.set_needless(chunk);
            }
        }
    }

    /// Records that a chunk of the object need not arrive, if it was missing.
    pub(super) fn set_needless(&mut self, chunk: u64) {
        if self.needed.remove(chunk) {
            match self.needless.last_mut() {
                Some(last) if last.end == chunk => last.end += 1,
                _ => self.needless.push(chunk..chunk + 1),
            }
        }
    }
}
