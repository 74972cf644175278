//! A large file on its way: its partial file, its journal, its root.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::attributes::Keep;
use super::bits::Bits;
use super::destination::Ground;
use super::left;
use super::partial::{self, Writing};
use crate::objects::digest::{self, Digest, RootBuilder};
use crate::objects::journal::{Header, Journal};
use crate::objects::manifest::FileTime;
use crate::objects::{CHUNK, Entry, Watch, folders, names};

/// A large file that has begun.
#[derive(Debug)]
pub(super) struct Large {
    number: u32,
    header: Header,
    holes: Box<[Range<u64>]>,
    writing: Writing,
    file: Option<File>,
    identity: (u64, u64),
    /// When the partial file had been modified last as it was closed.
    closed: Option<FileTime>,
    root: RootBuilder,
    /// The chunks that were verified.
    have: Bits,
    /// How many more chunks are to come.
    missing: u64,
    /// Verified since the journal was written last.
    pending: Vec<(u64, Digest)>,
    /// When it was used last, for closing the one that was not for longest.
    pub(super) used: u64,
}

/// What an earlier run left of a file.
#[derive(Debug)]
pub(super) struct Remains {
    pub(super) large: Large,
    /// Values of chunks that may be right, to be compared by the sender.
    pub(super) compare: Vec<(u64, Digest)>,
    /// Bytes that the partial file already takes on the disk.
    pub(super) allocated: u64,
}

impl Large {
    fn new(number: u32, entry: &Entry) -> Large {
        let size = entry.size().unwrap_or(0);
        let chunks = size.div_ceil(CHUNK);
        let holes: Box<[Range<u64>]> = entry.holes().into();
        let in_holes: u64 = holes.iter().map(|hole| hole.end - hole.start).sum();
        let sparse = matches!(entry.kind, crate::objects::Kind::File { sparse: true, .. });
        Large {
            number,
            header: Header { size, modified: entry.modified },
            holes,
            writing: Writing { sparse, fresh: true },
            file: None,
            identity: (0, 0),
            closed: None,
            root: RootBuilder::new(size),
            have: Bits::new(chunks),
            missing: chunks - in_holes,
            pending: Vec::new(),
            used: 0,
        }
    }

    /// Begins a file: makes its partial file and reserves its room.
    pub(super) fn create(number: u32, ground: &mut Ground, keep: Keep) -> io::Result<Large> {
        let manifest = ground.manifest.clone();
        let entry = &manifest.entries()[number as usize];
        let mut large = Large::new(number, entry);
        let (folder, name) = ground.at(number)?;
        let mode = keep.mode_at_first(entry, keep.own_mode(folder, &name)?);
        let file =
            partial::open(folder, &names::partial(&name), Some(mode))?.ok_or(Errno::NOENT)?;
        folders::remove_if_there(folder, &names::journal(&name))?;
        large.identity = folders::look_at(&file)?.identity;
        file.set_len(0)?;
        file.set_len(large.header.size)?;
        if !large.writing.sparse {
            partial::reserve(&file, large.header.size)?;
        }
        large.file = Some(file);
        Ok(large)
    }

    /// Takes up what an earlier run left, if it left something: chunks that the journal vouches
    /// for count once they were read and are what it says. With `distrust` nothing of it counts
    /// before it is compared. `watch` is told of each chunk that is read, and may end it.
    pub(super) fn resume(
        number: u32,
        ground: &mut Ground,
        distrust: bool,
        watch: &Watch,
    ) -> io::Result<Option<Remains>> {
        let manifest = ground.manifest.clone();
        let mut large = Large::new(number, &manifest.entries()[number as usize]);
        let (folder, name) = ground.at(number)?;
        let Some(file) = partial::open(folder, &names::partial(&name), None)? else {
            return Ok(None);
        };
        let found = folders::look_at(&file)?;
        let untouched = left::take(&found);
        (large.identity, large.writing.fresh) = (found.identity, false);
        let size = large.header.size;
        let journal = read_journal(ground, number, size)?;
        let is_its = |journal: &Journal| journal.header == large.header;
        let valid = !distrust && journal.as_ref().is_some_and(is_its);
        // Before the file is touched: an old journal must never speak of new content.
        large.settle_journal(ground, journal.as_ref().filter(|_| valid))?;
        file.set_len(size)?;
        for hole in &large.holes {
            partial::clear(&file, hole.start * CHUNK..(hole.end * CHUNK).min(size))?;
        }
        let mut known = Bits::new(large.chunks());
        let mut compare = Vec::new();
        for (chunk, value) in journal.iter().flat_map(|journal| &journal.values) {
            watch.go_on()?;
            if large.is_hole(*chunk) {
            } else if valid {
                // Disk or another program may have changed it since; what differs comes again.
                let is_there = || read_value(&file, size, *chunk).is_ok_and(|v| v == *value);
                if (untouched || is_there()) && large.have.insert(*chunk) {
                    large.missing -= 1;
                    large.root.give(*chunk, *value);
                }
            } else if same_place(journal.as_ref().map_or(0, |j| j.header.size), size, *chunk)
                && known.insert(*chunk)
            {
                // Asked of the source is what is there, not what was.
                let there = if untouched { Ok(*value) } else { read_value(&file, size, *chunk) };
                compare.extend(there.map(|value| (*chunk, value)));
            }
        }
        for chunk in partial::chunks_with_content(&file, size).into_iter().flatten() {
            if !large.have.has(chunk) && !known.has(chunk) && !large.is_hole(chunk) {
                watch.go_on()?;
                compare.push((chunk, read_value(&file, size, chunk)?));
            }
        }
        compare.sort_unstable_by_key(|(chunk, _)| *chunk);
        large.file = Some(file);
        Ok(Some(Remains { large, compare, allocated: found.allocated }))
    }

    fn chunks(&self) -> u64 {
        self.header.size.div_ceil(CHUNK)
    }

    fn is_hole(&self, chunk: u64) -> bool {
        let after = self.holes.partition_point(|hole| hole.end <= chunk);
        self.holes.get(after).is_some_and(|hole| hole.contains(&chunk))
    }

    /// Whether chunk `chunk` is there and verified.
    pub(super) fn has(&self, chunk: u64) -> bool {
        self.have.has(chunk)
    }

    /// Whether nothing is missing any more.
    pub(super) fn is_whole(&self) -> bool {
        self.missing == 0
    }

    /// Bytes that are there and verified, holes not counted.
    pub(super) fn bytes(&self) -> u64 {
        let last = self.chunks().saturating_sub(1);
        let runs = self.have.runs(true).into_iter();
        let bytes: u64 = runs.map(|run| (run.end - run.start) * CHUNK).sum();
        let short = self.chunks() * CHUNK - self.header.size;
        if self.have.has(last) { bytes - short } else { bytes }
    }

    /// Writes a chunk whose value was verified.
    pub(super) fn write(
        &mut self,
        ground: &mut Ground,
        chunk: u64,
        content: &[u8],
        value: Digest,
    ) -> io::Result<()> {
        if self.have.has(chunk) {
            return Ok(());
        }
        let how = self.writing;
        partial::write(self.file(ground)?, how, chunk * CHUNK, content)?;
        self.take(chunk, value);
        Ok(())
    }

    /// Takes a chunk as verified whose content is in the partial file.
    pub(super) fn take(&mut self, chunk: u64, value: Digest) {
        if self.have.insert(chunk) {
            self.missing = self.missing.saturating_sub(1);
            self.root.give(chunk, value);
            self.pending.push((chunk, value));
        }
    }

    /// The partial file, opened and locked again if it was closed meanwhile.
    fn file(&mut self, ground: &mut Ground) -> io::Result<&File> {
        if self.file.is_none() {
            let (folder, name) = ground.at(self.number)?;
            let file = partial::open(folder, &names::partial(&name), None)?;
            let file = file.ok_or(Errno::NOENT)?;
            let found = folders::look_at(&file)?;
            // Without the lock another copy may have written it.
            if found.identity != self.identity || self.closed != Some(found.modified) {
                let what = "another copy took the partial file away";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
            }
            self.file = Some(file);
        }
        Ok(self.file.as_ref().expect("it was opened above"))
    }

    pub(super) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Brings what was written onto the disk, then into the journal.
    pub(super) fn sync(&mut self, ground: &mut Ground) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.file(ground)?.sync_data()?;
        let mut records = Vec::new();
        for (chunk, value) in &self.pending {
            records.extend(self.header.encode_record(*chunk, value));
        }
        let mut journal = open_journal(ground, self.number)?;
        if journal.metadata()?.len() == 0 {
            records.splice(0..0, self.header.encode());
        }
        journal.write_all(&records)?;
        self.pending.clear();
        Ok(())
    }

    /// The same, then closes the partial file until it is needed again.
    pub(super) fn close(&mut self, ground: &mut Ground) -> io::Result<()> {
        self.sync(ground)?;
        if let Some(file) = self.file.take() {
            self.closed = Some(folders::look_at(&file)?.modified);
        }
        Ok(())
    }

    /// Remembers how the partial file is left, all of it on the disk and in the journal.
    pub(super) fn leave(&self) {
        let open = self.file.as_ref().and_then(|file| folders::look_at(file).ok());
        let modified = open.map(|found| found.modified).or(self.closed);
        if let Some(modified) = modified.filter(|_| self.pending.is_empty()) {
            left::leave(self.identity, modified);
        }
    }

    /// Forgets what the journal says: a later run shall compare what is in the partial file.
    pub(super) fn distrust(mut self, ground: &mut Ground) -> io::Result<()> {
        self.pending.clear();
        let (folder, name) = ground.at(self.number)?;
        folders::remove_if_there(folder, &names::journal(&name))
    }

    /// Removes all that is there of it but the final file, which is as it should be.
    pub(super) fn remove(self, ground: &mut Ground) -> io::Result<()> {
        let (folder, name) = ground.at(self.number)?;
        folders::remove_if_there(folder, &names::partial(&name))?;
        folders::remove_if_there(folder, &names::journal(&name))
    }

    /// Gives the whole file its final name; returns its root.
    pub(super) fn complete(&mut self, ground: &mut Ground, keep: Keep) -> io::Result<Digest> {
        let size = self.header.size;
        let mut zeros = Vec::new();
        for chunk in self.holes.clone().into_iter().flatten() {
            zeros.resize(CHUNK as usize, 0);
            let len = (size - chunk * CHUNK).min(CHUNK) as usize;
            if self.have.insert(chunk) {
                self.root.give(chunk, digest::file_value(size, chunk, &zeros[..len]));
            }
        }
        let root = self.root.root().ok_or_else(|| io::Error::other("chunks are missing"))?;
        let manifest = ground.manifest.clone();
        let entry = &manifest.entries()[self.number as usize];
        let (folder, name) = ground.at(self.number)?;
        let own = keep.own_mode(folder, &name)?;
        let file = self.file(ground)?;
        keep.apply(file, entry, own)?;
        file.sync_all()?;
        let (folder, name) = ground.at(self.number)?;
        rustix::fs::renameat(folder, names::partial(&name), folder, &name)?;
        match rustix::fs::fsync(folder) {
            // Some file systems cannot sync a folder; there is no other way to do it.
            Ok(()) | Err(Errno::INVAL | Errno::NOTSUP) => {}
            Err(error) => return Err(error.into()),
        }
        folders::remove_if_there(folder, &names::journal(&name))?;
        self.pending.clear();
        Ok(root)
    }

    /// Leaves of the journal what is sound, or nothing.
    fn settle_journal(&self, ground: &mut Ground, sound: Option<&Journal>) -> io::Result<()> {
        match sound {
            Some(journal) => open_journal(ground, self.number)?.set_len(journal.sound),
            None => {
                let (folder, name) = ground.at(self.number)?;
                folders::remove_if_there(folder, &names::journal(&name))
            }
        }
    }
}

/// Removes what an earlier run left of a file that is there and equal, unless another copy is at
/// it.
pub(super) fn remove_remains(number: u32, ground: &mut Ground) -> io::Result<()> {
    let (folder, name) = ground.at(number)?;
    match partial::open(folder, &names::partial(&name), None) {
        Ok(Some(_locked)) => {
            folders::remove_if_there(folder, &names::partial(&name))?;
            folders::remove_if_there(folder, &names::journal(&name))
        }
        Ok(None) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether a chunk's value means the same in a file of `old` and one of `new` bytes.
fn same_place(old: u64, new: u64, chunk: u64) -> bool {
    let len = |size: u64| size.saturating_sub(chunk.saturating_mul(CHUNK)).min(CHUNK);
    len(old) == len(new) && len(new) > 0 && (old <= CHUNK) == (new <= CHUNK)
}

/// The value of a chunk as it is in `file`, taken as one of `size` bytes.
pub(super) fn read_value(file: &File, size: u64, chunk: u64) -> io::Result<Digest> {
    let mut content = vec![0; (size - chunk * CHUNK).min(CHUNK) as usize];
    file.read_exact_at(&mut content, chunk * CHUNK)?;
    Ok(digest::file_value(size, chunk, &content))
}

fn open_journal(ground: &mut Ground, number: u32) -> io::Result<File> {
    let (folder, name) = ground.at(number)?;
    let name = names::journal(&name);
    let how = OFlags::APPEND | OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW;
    let how = how | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(File::from(rustix::fs::openat(folder, name, how, Mode::from_bits_truncate(0o600))?))
}

fn read_journal(ground: &mut Ground, number: u32, size: u64) -> io::Result<Option<Journal>> {
    let (folder, name) = ground.at(number)?;
    let Ok(file) = folders::open(folder, &names::journal(&name), OFlags::RDONLY) else {
        // Lost is harmless; whatever is in its place is removed.
        return Ok(None);
    };
    let found = folders::look_at(&file)?;
    let owner = rustix::process::geteuid().as_raw();
    if found.owner != owner || found.kind != folders::FileKind::File {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    // The source may have shrunk since.
    file.take(Header::longest(size.max(found.size))).read_to_end(&mut bytes)?;
    Ok(Journal::decode(&bytes))
}
