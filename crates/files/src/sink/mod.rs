//! The receiving end: verified chunks become files under their final names. The chunks belong to
//! the virtual object, which holds the files of a copy one after the other. A chunk's value is its
//! BLAKE3 hash or chaining value (see [`digest`]).
//!
//! Modules in reading order:
//! - `destination` (the location of a copy), `plan` (the existing data), [`Sink`] (writes chunks).
//! - `large` and `partial` (files with a journal), `small` (files that share a sync), `workers` (a
//!   worker pool), `resync` (recovery from a failed sync).
//! - `compare` (the sender's answers about existing data), `settle` (entries become done, skipped
//!   or failed), `finish` (links, folders, the outcome), `extra` (names that the source lacks).
//! - `pipe` (a file of unknown length), `alike` (names that differ only in case), `alone` (locks on
//!   folders), `left` (partial files of earlier attempts), `attributes`, `order`, `space`, `bits`.
//!
//! The order of writes makes a kill at any moment safe: no file with wrong content gets a final
//! name, and little work is lost. A chunk of a large file is verified, written to the partial file,
//! synced, and journalled. The complete file gets its permissions and time, is synced and renamed;
//! then its folder is synced, and the journal removed.

mod alike;
mod alone;
mod attributes;
mod bits;
mod compare;
mod destination;
mod extra;
mod finish;
mod large;
mod left;
mod order;
mod partial;
mod pipe;
mod plan;
mod resync;
mod settle;
mod small;
mod space;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::alone::Alone;
use self::attributes::Keep;
use self::bits::Bits;
use self::destination::Ground;
use self::extra::Extra;
use self::large::{HoleBudget, Large, Named};
use self::order::Order;
use self::small::{Complete, Small};
use super::digest::{self, Digest, SequenceHasher};
use super::manifest::FileTime;
use super::place::Place;
use super::store::Attributes;
use super::virtual_object::{ChunkKind, Extent};
use super::{Failure, Manifest, VirtualObject, Watch};
use crate::error::{Error, FileErrorKind};

pub use self::alone::Together;
pub use self::destination::{Mark, make_folders};
pub use self::extra::{Age, Delete, Deleted};
pub use self::finish::SinkOutcome;
pub use self::left::Left;
pub use self::pipe::PipeFile;

/// Options of a destination.
#[derive(Clone, Debug, Default)]
pub struct SinkOptions {
    /// Keep permissions, and times of folders and links. Without this option, new files and folders
    /// get the source's mode minus the umask. In both cases files keep their times, unless
    /// `modified` is set.
    pub preserve: bool,
    /// With `preserve`, also keep set-uid, set-gid and sticky bits.
    pub set_id: bool,
    /// The modification time of all new files, in place of the source's times. Set it only if the
    /// source knows none.
    pub modified: Option<FileTime>,
    /// Compare existing files by content instead of size and time.
    pub checksum: bool,
    /// Compare the data of an earlier run with the source, even if a valid journal matches the
    /// source's size and time.
    pub distrust: bool,
    /// Do not ask the sender about chunks of a partial file, because the question would contain
    /// their digests. The chunks are sent again. Has no effect on the questions about files under
    /// their final names, so a caller that conceals must not set `checksum`.
    pub conceal: bool,
    /// Dry run: create, write and remove nothing.
    pub dry_run: bool,
    /// Create missing parent folders of the destination.
    pub make_path: bool,
    /// Remove names that the source lacks, after the copy is complete.
    pub delete: Option<Delete>,
    /// Record which entries have their final names, for [`Sink::take_named`].
    pub names: bool,
    /// How long to wait for another copy that has locked a file or the folder; zero for no wait.
    pub patience: Duration,
    /// The state shared with other sources of the same command, which write into the same folders.
    pub together: Option<Arc<Together>>,
    /// The partial files that earlier attempts of the same client or server left.
    pub left: Arc<Left>,
}

/// Values of existing chunks, for the sender to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The number of the file's entry in the manifest.
    pub entry: u32,
    /// Numbers of chunks within the file, and their values (see [`digest::file_value`]).
    pub values: Arc<[(u64, Digest)]>,
}

/// The data that exist already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Chunks of the virtual object that need not be sent. Chunks in holes are not listed.
    pub have: Vec<Range<u64>>,
    /// Comparisons for the sender; the answers go to [`Sink::compare_result`].
    pub compare: Vec<Compare>,
    /// The numbers of existing equal files and links, and of existing folders, in the manifest.
    pub skipped: Vec<u32>,
    /// Bytes of files that need not be sent.
    pub resumed_bytes: u64,
    /// Bytes of content in all missing chunks, before any comparison.
    pub bytes_due: u64,
}

/// The result for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The chunk is correct. It was written, unless it was not needed, its file failed, or this is
    /// a dry run.
    Written,
    /// The chunk is wrong; nothing was written.
    Mismatch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Due,
    Done,
    Skipped,
    Failed,
}

#[derive(Debug)]
struct Comparing {
    values: Arc<[(u64, Digest)]>,
    /// The attributes of the file under the final name, if the values belong to it; `None` if the
    /// values belong to the partial file.
    under_final_name: Option<Attributes>,
}

/// Maximum bytes that may wait for a sync.
const MOST_UNSYNCED: u64 = 48 << 20;

/// Longest time that verified data may wait for the sync and the journal.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of large files that are open at the same time.
const KEPT: usize = 64;

/// The files of an object at the receiving end.
///
/// A drop at any moment leaves the data for a later run, except small files that are incomplete.
#[derive(Debug)]
pub struct Sink {
    object: VirtualObject,
    options: SinkOptions,
    watch: Watch,
    /// When this copy began to wait for another copy to unlock a file.
    held_since: Option<Instant>,
    keep: Keep,
    ground: Ground,
    /// Folders that this copy has locked; `None` for a lock that the sources of a command share.
    alone: Vec<Option<Alone>>,
    states: Vec<State>,
    larges: BTreeMap<u32, Large>,
    small: Small,
    comparing: BTreeMap<u32, Comparing>,
    /// The missing chunks.
    needed: Bits,
    /// Chunks that are no longer needed, and were not reported yet.
    needless: Vec<Range<u64>>,
    /// Chunks that the sender counts as done, but must send again.
    changed: Vec<u64>,
    /// Entries that were written again after a failed sync. After a second failure they are given
    /// up.
    restarted: BTreeSet<u32>,
    unsynced: u64,
    most_unsynced: u64,
    /// Whether the folders that this copy or an interrupted copy has created are synced.
    has_synced_folders: bool,
    failures: Vec<Failure>,
    /// Whether the source failed to read something, so its list may lack existing names.
    is_source_incomplete: bool,
    /// Bytes of the reasons that the source gave for its failures.
    reason_bytes: usize,
    /// The hash over the BLAKE3 hashes of whole large files, in the manifest's order.
    roots: SequenceHasher,
    /// The hash over the values of packed chunks, in order.
    packed: SequenceHasher,
    single_root: Option<Digest>,
    order: Order,
    extra: Option<Extra>,
    holes: HoleBudget,
    files_done: u64,
    /// Entries that got their names in this run, and were not reported yet.
    named: Vec<u32>,
    written: u64,
    made_folders: u64,
    /// Whether a large file has its final name, but the folder's sync failed.
    has_unsynced_name: bool,
    /// The error of a sync that may have lost names. No later sync reports it again.
    lost_names: Option<Error>,
    /// Whether the user knows that journals of large files have stopped.
    has_warned: bool,
    /// Folders that this copy or an interrupted copy has created, without their final mode.
    unfinished: Bits,
    uses: u64,
    synced: Instant,
    #[cfg(test)]
    is_killed: bool,
}

impl Sink {
    /// Prepares a destination for `manifest`: creates folders, resumes the data of an earlier run,
    /// and checks the free space.
    ///
    /// `manifest_prefix_len` is the length of the encoded manifest if it is the first part of the
    /// virtual object, else zero. `watch` counts the progress, and may cancel the work.
    ///
    /// # Errors
    /// The destination is missing, of the wrong kind, not writable, in use by another copy, or has
    /// not enough space (`File`). A name is reserved (`Request`). `watch` has cancelled the work
    /// (`Unfinished`).
    pub fn open(
        place: &Place,
        manifest: &Arc<Manifest>,
        manifest_prefix_len: u64,
        options: &SinkOptions,
        watch: &Watch,
    ) -> Result<(Sink, Plan), Error> {
        let delete = options.delete.as_ref();
        let extra = delete.map(|delete| Extra::new(place, manifest.shape(), delete)).transpose()?;
        let ground = Ground::open_or_make(place, manifest, options)?;
        let object = VirtualObject::new(manifest, manifest_prefix_len);
        let mut sink = Sink {
            needed: Bits::default(),
            object,
            options: options.clone(),
            watch: watch.clone(),
            held_since: None,
            keep: Keep {
                permissions: options.preserve,
                set_id: options.set_id,
                modified: options.modified,
            },
            ground,
            alone: Vec::new(),
            states: vec![State::Due; manifest.entries().len()],
            larges: BTreeMap::new(),
            small: Small::new(manifest.entries().len()),
            comparing: BTreeMap::new(),
            needless: Vec::new(),
            changed: Vec::new(),
            restarted: BTreeSet::new(),
            unsynced: 0,
            most_unsynced: MOST_UNSYNCED,
            has_synced_folders: false,
            failures: Vec::new(),
            is_source_incomplete: false,
            reason_bytes: 0,
            roots: SequenceHasher::default(),
            packed: SequenceHasher::default(),
            single_root: None,
            order: Order::default(),
            extra,
            holes: HoleBudget::default(),
            files_done: 0,
            named: Vec::new(),
            written: 0,
            made_folders: 0,
            has_unsynced_name: false,
            lost_names: None,
            has_warned: false,
            unfinished: Bits::new(manifest.entries().len() as u64),
            uses: 0,
            synced: Instant::now(),
            #[cfg(test)]
            is_killed: false,
        };
        sink.order = Order::new(&sink.object, manifest);
        sink.check_extra()?;
        sink.date_extra()?;
        let plan = sink.plan()?;
        sink.complete_resumed()?;
        Ok((sink, plan))
    }

    /// Returns the layout of the files in the virtual object.
    pub fn object(&self) -> &VirtualObject {
        &self.object
    }

    /// Returns the failed entries, with reasons; new failures are added at the end.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Returns the number of regular files with final names, including skipped files.
    pub fn files_done(&self) -> u64 {
        self.files_done
    }

    /// Returns the missing chunks of the virtual object.
    pub fn missing(&self) -> Vec<Range<u64>> {
        self.needed.runs(true)
    }

    /// Returns whether chunk `chunk` is missing.
    pub fn needs(&self, chunk: u64) -> bool {
        self.needed.has(chunk)
    }

    /// Returns whether an entry was skipped because an equal one exists.
    pub fn is_skipped(&self, entry: u32) -> bool {
        self.states.get(entry as usize) == Some(&State::Skipped)
    }

    /// Returns the number of missing chunks.
    pub fn missing_chunks(&self) -> u64 {
        self.needed.count()
    }

    /// Returns the bytes of content that this run has written.
    pub fn bytes_written(&self) -> u64 {
        self.written
    }

    /// Returns whether no chunk is missing.
    pub fn is_complete(&self) -> bool {
        self.needed.is_empty()
    }

    /// Returns entries that have got their names since the last call, including created folders, if
    /// names are recorded.
    pub fn take_named(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.named)
    }

    /// Returns the chunks that became unnecessary, because their files failed or exist already;
    /// each once.
    pub fn take_needless(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.needless)
    }

    /// Returns the chunks that the sender counts as done but must send again: their sync failed,
    /// or the existing data changed after the comparison. Returns each once.
    pub fn take_changed(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.changed)
    }

    /// Verifies chunk `chunk` of the virtual object against the value from the sender, and writes
    /// it. A large file that the chunk completes gets its name at once; small files get their names
    /// at the next [`sync`](Sink::sync).
    ///
    /// An error of one file makes its entry fail. Other files continue.
    ///
    /// # Errors
    /// The chunk is outside of the object (`Request`). The disk is full, or the copy has only one
    /// file and the file fails (`File`). Written data stay for a later run.
    pub fn write_chunk(
        &mut self,
        chunk: u64,
        content: &[u8],
        expected: &Digest,
    ) -> Result<Verdict, Error> {
        let Some(kind) = self.object.chunk_kind(chunk) else {
            let what = format!("chunk {chunk} is not in the object");
            return Err(Error::new(FileErrorKind::Request, what));
        };
        if content.len() != self.object.chunk_content(chunk) {
            return Ok(Verdict::Mismatch);
        }
        let manifest = self.ground.manifest.clone();
        let value = match kind {
            ChunkKind::Large { entry, chunk } => {
                let size = manifest.entries()[entry as usize].size().unwrap_or(0);
                digest::file_value(size, chunk, content)
            }
            ChunkKind::Manifest | ChunkKind::Packed => digest::packed_value(content),
        };
        if value != *expected {
            return Ok(Verdict::Mismatch);
        }
        if !self.needed.has(chunk) || self.options.dry_run {
            return Ok(Verdict::Written);
        }
        // Remove the chunk before the write: if a sync fails during the write, the chunk becomes
        // needed again.
        self.needed.remove(chunk);
        self.written += content.len() as u64;
        self.unsynced += content.len() as u64;
        match kind {
            ChunkKind::Manifest => {}
            ChunkKind::Large { entry, chunk } => self.write_large(entry, chunk, content, value)?,
            ChunkKind::Packed => self.write_packed(chunk, content, value)?,
        }
        self.tick(Instant::now())?;
        Ok(Verdict::Written)
    }

    /// Reads the content of a verified chunk of a large file back from its partial file.
    ///
    /// # Errors
    /// The chunk belongs to no partial file of this copy (`Request`); or it is missing or cannot be
    /// read (`File`).
    pub fn read_back(&mut self, chunk: u64) -> Result<Vec<u8>, Error> {
        let request = |what: String| Error::new(FileErrorKind::Request, what);
        let not_there = || request(format!("chunk {chunk} is not in a partial file"));
        let Some(ChunkKind::Large { entry, chunk }) = self.object.chunk_kind(chunk) else {
            return Err(not_there());
        };
        let large = self.larges.get_mut(&entry).ok_or_else(not_there)?;
        let read = large.read_back(&mut self.ground, chunk);
        read.map_err(|error| super::place::file_error("read", &self.ground.place, &error))
    }

    /// Syncs data that have waited long enough; to be called a few times a second while no chunks
    /// arrive.
    ///
    /// # Errors
    /// As [`write_chunk`](Sink::write_chunk).
    pub fn tick(&mut self, now: Instant) -> Result<(), Error> {
        let is_due = now.saturating_duration_since(self.synced) >= SYNC_EVERY;
        if is_due || self.small.is_full() || self.unsynced >= self.most_unsynced {
            self.sync()?;
        }
        Ok(())
    }

    fn write_large(
        &mut self,
        entry: u32,
        chunk: u64,
        content: &[u8],
        value: Digest,
    ) -> Result<(), Error> {
        if self.states[entry as usize] != State::Due {
            return Ok(());
        }
        let is_all = self.object.chunks_of(entry).count() == 1;
        let is_equal = if is_all { self.leave_equal(entry, content) } else { Ok(false) };
        let wrote = match is_equal {
            Ok(false) => self.try_write_large(entry, chunk, content, value),
            left => left.map(|_| ()),
        };
        match wrote {
            Ok(()) => self.close_the_oldest(),
            Err(error) => self.large_failure(entry, &error),
        }
    }

    fn try_write_large(
        &mut self,
        entry: u32,
        chunk: u64,
        content: &[u8],
        value: Digest,
    ) -> io::Result<()> {
        if !self.larges.contains_key(&entry) {
            let large = Large::create(entry, &mut self.ground)?;
            self.larges.insert(entry, large);
        }
        self.uses += 1;
        let Some(large) = self.larges.get_mut(&entry) else { return Ok(()) };
        large.used = self.uses;
        large.write(&mut self.ground, chunk, content, value)?;
        if large.is_whole() { self.complete_large(entry) } else { Ok(()) }
    }

    fn close_the_oldest(&mut self) -> Result<(), Error> {
        let open = self.larges.values().filter(|large| large.is_open());
        if open.count() <= super::store::kept(KEPT) {
            return Ok(());
        }
        let open = self.larges.iter_mut().filter(|(_, large)| large.is_open());
        let Some((entry, oldest)) = open.min_by_key(|(_, large)| large.used) else {
            return Ok(());
        };
        let entry = *entry;
        match oldest.close(&mut self.ground) {
            Ok(()) => Ok(()),
            Err(error) => self.large_failure(entry, &error),
        }
    }

    fn complete_large(&mut self, entry: u32) -> io::Result<()> {
        let Some(mut large) = self.larges.remove(&entry) else { return Ok(()) };
        large.hash_holes(&mut self.holes, self.written, &self.watch);
        let Named { root, is_name_synced } = match large.complete(&mut self.ground, self.keep) {
            Ok(named) => named,
            Err(error) => {
                self.larges.insert(entry, large);
                return Err(error);
            }
        };
        self.has_unsynced_name |= !is_name_synced;
        self.comparing.remove(&entry);
        self.settle(entry, State::Done);
        if let Some(root) = root {
            self.roots.give(self.order.of_large(entry), root);
        }
        if self.ground.manifest.is_single() {
            self.single_root = root;
        }
        Ok(())
    }

    /// Gives files their final names if an earlier run had completed them, or if they consist of
    /// holes.
    fn complete_resumed(&mut self) -> Result<(), Error> {
        let whole: Vec<u32> =
            self.larges.iter().filter(|(_, l)| l.is_whole()).map(|(n, _)| *n).collect();
        for entry in whole {
            if let Err(error) = self.complete_large(entry) {
                self.large_failure(entry, &error)?;
            }
        }
        Ok(())
    }

    fn write_packed(&mut self, chunk: u64, content: &[u8], value: Digest) -> Result<(), Error> {
        let manifest = self.ground.manifest.clone();
        let size = |extent: &Extent| manifest.entries()[extent.entry as usize].size();
        let piece = |extent: &Extent| &content[extent.chunk_offset..][..extent.len];
        let due = |extent: &Extent| self.states[extent.entry as usize] == State::Due;
        let (complete, pieces): (Vec<Extent>, Vec<Extent>) = self
            .object
            .extents(chunk)
            .filter(due)
            .partition(|extent| size(extent) == Some(extent.len as u64));
        let mut files = Vec::with_capacity(complete.len());
        for extent in &complete {
            match self.leave_equal(extent.entry, piece(extent)) {
                Ok(true) => {}
                Ok(false) => files.push(Complete { entry: extent.entry, content: piece(extent) }),
                Err(error) => self.local_failure(extent.entry, &error)?,
            }
        }
        for (entry, error) in self.small.write_complete(&mut self.ground, self.keep, &files) {
            self.local_failure(entry, &error)?;
        }
        for extent in &pieces {
            let wrote = self.small.write(&mut self.ground, self.keep, extent, piece(extent));
            if let Err(error) = wrote {
                self.local_failure(extent.entry, &error)?;
            }
        }
        let first = self.object.extents(chunk).next().map_or(0, |extent| extent.entry);
        self.packed.give(self.order.of_packed(chunk, first), value);
        Ok(())
    }
}

#[cfg(test)]
impl Sink {
    pub(crate) fn sync_every(&mut self, bytes: u64) {
        self.most_unsynced = bytes;
    }

    /// Ends like a kill: drops everything that waits for a sync or the journal.
    pub(crate) fn kill(mut self) {
        self.is_killed = true;
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        #[cfg(test)]
        if self.is_killed {
            return;
        }
        self.leave();
        self.small.forget_begun(&mut self.ground);
    }
}
