//! Reads and hashes the chunks of the virtual object (all files of a copy, packed together) at the
//! sending end.
//!
//! Names work as in `rsync -a`: `folder` is the folder itself, so the paths of its entries start
//! with the folder's name; `folder/` (and `.`, `..`) is the folder's content. With `recursive`, a
//! link given without a trailing slash is copied as a link. Without `recursive`, the copy follows
//! the link and keeps the link's name, as `cp` does. Links within a tree stay links. Filters apply
//! to entries found inside folders, never to the given names.

mod chunk;

pub use self::chunk::{ChunkRead, PartialChunk};

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::digest::{self, Digest};
use super::filter::{CompiledFilters, Filter};
use super::folders::Folders;
use super::manifest::{Entry, ListMemory, Manifest, ManifestError, Shape, TWICE, split};
use super::place::{Found, Place};
use super::store::{self, Access, Attributes, NameKind, OpenFile, SharedFolder};
use super::virtual_object::VirtualObject;
use super::walk::{Spot, Walk};
use super::watch::Watch;
use super::{CHUNK, Failure, LARGE, names};
use crate::error::{Advice, Error, FileErrorKind};

/// Options of a source.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// Copy folders with their content.
    pub recursive: bool,
    /// Selects files of a tree.
    pub filters: Vec<Filter>,
    /// Counts each name found, and each chunk compared.
    pub watch: Watch,
}

#[derive(Debug)]
struct Origin {
    folders: Folders,
    /// Bytes to remove from the start of a manifest path, to get the path below the base of
    /// `folders`.
    strip: usize,
    /// For a file, its name in its folder; if a link was given, the name of the target.
    own_name: Option<Vec<u8>>,
}

impl Origin {
    fn new(base: SharedFolder, strip: usize) -> Origin {
        Origin { folders: Folders::new(base), strip, own_name: None }
    }
}

/// Maximum number of files that stay open between two reads.
const KEPT: usize = 64;

/// The files of an object at the sending end.
#[derive(Debug)]
pub struct Source {
    manifest: Arc<Manifest>,
    object: VirtualObject,
    encoded: Arc<[u8]>,
    origins: Vec<Origin>,
    /// The origin of each entry; empty if there is only one origin.
    origin_of: Vec<u16>,
    /// Open files, the most recently used last.
    open: Vec<(u32, OpenFile)>,
    failed: BTreeSet<u32>,
    /// For open files that were unlinked: the version (from the change time) that the unlinking
    /// gave them.
    unnamed: BTreeMap<u32, u64>,
    failures: Vec<Failure>,
    warnings: Vec<String>,
    watch: Watch,
    /// The memory account of the list of files, and the number of bytes reserved there.
    memory: (Box<dyn ListMemory>, u64),
    /// The error, if there was no memory for another failure.
    refused: Option<Error>,
}

impl Source {
    /// Walks `places`. An unreadable part of a tree, or an unreadable place among several, becomes
    /// one of the [`failures`](Source::failures); the walk continues.
    ///
    /// # Errors
    /// No source exists or can be read, or an entry is not valid in a list of files (`File`); a
    /// folder without `recursive`, two sources with the same name, an invalid filter, no place,
    /// more than 65,535 places, or more than ten million entries (`Request`); the watch in
    /// `options` has ended the walk (`Unfinished`).
    pub fn open(places: &[Place], options: &SourceOptions) -> Result<Source, Error> {
        Source::open_within(places, options, Box::new(()))
    }

    /// As [`Source::open`], and reserves the memory for the list of files in `memory`.
    ///
    /// # Errors
    /// As [`Source::open`] and [`ListMemory::hold`].
    pub fn open_within(
        places: &[Place],
        options: &SourceOptions,
        memory: Box<dyn ListMemory>,
    ) -> Result<Source, Error> {
        let filters = CompiledFilters::new(&options.filters)?;
        let Ok(1..) = u16::try_from(places.len()) else {
            let what = "between 1 and 65535 sources can be copied";
            return Err(Error::new(FileErrorKind::Request, what));
        };
        let (mut origins, mut shape) = (Vec::new(), Shape::Several);
        let mut first_refused = None;
        let only = places.len() == 1;
        let mut walk = Walk::new(options.watch.clone(), !only, memory);
        for place in places {
            let number = origins.len() as u16;
            match take(&mut walk, number, place, only, options.recursive, &filters) {
                Ok((found, origin)) => {
                    origins.push(origin);
                    if only {
                        shape = found;
                    }
                }
                Err(Refused::Whole(error)) => return Err(error),
                Err(Refused::Place { reason, is_missing }) => {
                    first_refused.get_or_insert_with(|| unreadable(place, &reason, is_missing));
                    let path = place.path().as_os_str().as_bytes().to_vec();
                    walk.failures.push(Failure { path, reason, ..Failure::default() });
                }
            }
        }
        if let (true, Some(error)) = (origins.is_empty(), first_refused) {
            return Err(error);
        }
        if shape == Shape::File && walk.listing.len() == 0 {
            let reason = walk.failures.pop().map(|failure| failure.reason).unwrap_or_default();
            return Err(unreadable(&places[0], &reason, false));
        }
        let bytes = walk.bytes();
        let listed = walk.listing.into_manifest(shape);
        let (manifest, numbers) = listed.map_err(|error| list_error(error, origins.len()))?;
        let origin_of = match origins.len() > 1 {
            true => numbers.iter().map(|number| walk.origins[*number as usize]).collect(),
            false => Vec::new(),
        };
        let folder = origins[0].folders.base().attributes().ok();
        let manifest = manifest.with_folder_mode(folder.map(|folder| folder.mode));
        let manifest = Arc::new(manifest);
        Ok(Source {
            object: VirtualObject::new(&manifest, 0),
            manifest,
            encoded: Arc::from([]),
            origins,
            origin_of,
            open: Vec::new(),
            failed: BTreeSet::new(),
            unnamed: BTreeMap::new(),
            failures: walk.failures,
            warnings: walk.warnings,
            watch: walk.watch,
            memory: (walk.memory, bytes),
            refused: None,
        })
    }

    /// Returns the list of files.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Makes the encoded manifest the first part of the virtual object.
    pub fn prefix_manifest(&mut self, encoded: Arc<[u8]>) {
        self.object = VirtualObject::new(&self.manifest, encoded.len() as u64);
        self.encoded = encoded;
    }

    /// Treats holes as zeros, so equal files have equal chunks at every source. Call this before
    /// anything is read.
    pub fn fill_holes(&mut self) {
        self.manifest = Arc::new(self.manifest.without_holes());
        self.object = VirtualObject::new(&self.manifest, 0);
    }

    /// Returns the layout of the files in the virtual object.
    pub fn object(&self) -> &VirtualObject {
        &self.object
    }

    /// Returns the files that could not be read or that changed; new entries are added at the end.
    /// If such a file is in the manifest, its content was sent as zeros, at least in part, so the
    /// file must never get its final name. The receiver must learn of the failure before it gets
    /// the value of the chunk whose read failed.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Returns warnings about skipped devices, sockets, pipes, and remains of unfinished copies.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns which chunks of a file have the values that the receiver found.
    ///
    /// The chunk numbers in `values` count from the start of the file, even if the file is small
    /// and shares a chunk of the object with other files. A chunk outside of the file does not
    /// match.
    pub fn compare(&mut self, entry: u32, values: &[(u64, Digest)]) -> Vec<bool> {
        let size = self.manifest.entries().get(entry as usize).and_then(Entry::size);
        let size = size.unwrap_or(0);
        let mut buf = vec![0; CHUNK as usize];
        let mut same = |(chunk, value): &(u64, Digest)| {
            if self.watch.go_on().is_err() {
                return false;
            }
            let start = chunk.checked_mul(CHUNK).filter(|start| *start < size);
            start.is_some_and(|start| {
                let content = &mut buf[..(size - start).min(CHUNK) as usize];
                self.read_piece(entry, start, content)
                    && digest::file_value(size, *chunk, content) == *value
            })
        };
        values.iter().map(&mut same).collect()
    }

    fn size(&self, entry: u32) -> u64 {
        self.manifest.entries()[entry as usize].size().unwrap_or(0)
    }

    fn read_piece(&mut self, entry: u32, offset: u64, piece: &mut [u8]) -> bool {
        if !self.failed.contains(&entry) {
            match self.read_unchanged(entry, offset, piece) {
                Ok(()) => return true,
                Err(trouble) => self.fail(entry, trouble),
            }
        }
        piece.fill(0);
        false
    }

    fn fail(&mut self, entry: u32, Trouble { reason, changed }: Trouble) {
        self.failed.insert(entry);
        let path = self.manifest.path(entry);
        let failure = Failure { entry: Some(entry), path, reason, changed };
        let (memory, bytes) = &mut self.memory;
        *bytes += failure.bytes();
        match memory.hold(*bytes) {
            Ok(()) => self.failures.push(failure),
            // `read_chunk` and `read_within` return this error, so the zeros in place of this
            // file's data are never sent.
            Err(error) => self.refused = Some(error),
        }
    }

    /// Reads, then compares the file with the manifest. The system updates the change time before a
    /// write changes any content. So the comparison detects a change that precedes the read, even
    /// if somebody has set the modification time back. The comparison misses a change within the
    /// clock tick in which the walk read the attributes, and some writes through memory maps.
    fn read_unchanged(&mut self, entry: u32, at: u64, piece: &mut [u8]) -> Result<(), Trouble> {
        let cached = self.open.iter().position(|(number, _)| *number == entry);
        let file = match cached {
            Some(at) => self.open.remove(at).1,
            None => self.open_file(entry)?,
        };
        file.read_exact_at(piece, at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Trouble::changed("it shrank while it was copied"),
            _ => Trouble::from(error),
        })?;
        let now = file.attributes()?;
        let then = &self.manifest.entries()[entry as usize];
        let size = then.size().unwrap_or(0);
        // Unlinking changes the change time, but not the content. So an unlinked file is compared
        // with its version at the first read after the unlinking. Such a file cannot be opened
        // again.
        let version = match now.links {
            0 => *self.unnamed.entry(entry).or_insert(now.version()),
            _ => then.version,
        };
        if !is_same(&now, then, version) {
            return Err(Trouble::changed(match now.size {
                to if to != size => {
                    format!("it changed while it was copied, from {size} to {to} bytes")
                }
                _ => "it was modified while it was copied".to_owned(),
            }));
        }
        if at + (piece.len() as u64) < size || size >= LARGE {
            while self.open.len() >= store::kept(KEPT) {
                self.open.remove(0);
            }
            self.open.push((entry, file));
        }
        Ok(())
    }

    fn open_file(&mut self, entry: u32) -> io::Result<OpenFile> {
        let origin = self.origin_of.get(entry as usize).map_or(0, |o| usize::from(*o));
        let origin = &mut self.origins[origin];
        let path = self.manifest.path(entry);
        let (folder, name) = split(&path);
        let folder = origin.folders.at(folder.get(origin.strip..).unwrap_or(&[]))?;
        let file = folder.open(origin.own_name.as_deref().unwrap_or(name), Access::Read)?;
        let entry = &self.manifest.entries()[entry as usize];
        if entry.size().is_some_and(|size| size >= LARGE) {
            file.read_ahead();
        }
        Ok(file)
    }
}

struct Trouble {
    reason: String,
    changed: bool,
}

impl Trouble {
    fn changed(reason: impl Into<String>) -> Trouble {
        Trouble { reason: reason.into(), changed: true }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble { reason: longhaul_text::reason(&error), changed: false }
    }
}

enum Refused {
    /// Nothing can be copied.
    Whole(Error),
    /// This place cannot be read; other places may be readable.
    Place { reason: String, is_missing: bool },
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Whole(error)
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        Refused::Place { reason: longhaul_text::reason(&error), is_missing }
    }
}

/// Returns whether a file with the attributes `now` is still as the manifest's entry `then`
/// describes it, and has the change time from which `version` was made.
fn is_same(now: &Attributes, then: &Entry, version: u64) -> bool {
    now.kind == NameKind::File
        && Some(now.size) == then.size()
        && now.modified == then.modified
        && store::is_same_change(now.version(), version)
}

fn take(
    walk: &mut Walk,
    number: u16,
    place: &Place,
    only: bool,
    recursive: bool,
    filters: &CompiledFilters,
) -> Result<(Shape, Origin), Refused> {
    let contents = place.says_folder();
    if place.name().is_some_and(|name| name.len() > names::NAME_MAX) {
        let reason = "its name is longer than 255 bytes".to_owned();
        return Err(Refused::Place { reason, is_missing: false });
    }
    let as_link = match (recursive && !contents, place.name()) {
        (true, Some(name)) => {
            let parent = place.parent().folder()?;
            let attributes = parent.look(&name)?;
            (attributes.kind == NameKind::Link).then_some((parent, name, attributes))
        }
        _ => None,
    };
    if let Some((parent, name, attributes)) = as_link {
        walk.link(top(number, &name), &*parent, &attributes);
        return Ok((Shape::Named, Origin::new(parent, 0)));
    }
    match place.find_at_end()? {
        Found::Nothing { .. } => Err(store::not_found().into()),
        Found::Folder(_) if !recursive => {
            let what = format!("{} is a folder", place.shown());
            let error = Error::new(FileErrorKind::Request, what).at(place.named());
            Err(error.advise(Advice::Recursive).into())
        }
        Found::Folder(base) if contents => {
            let folders = walk.tree(number, base, None, filters)?;
            Ok((Shape::Contents, Origin { folders, strip: 0, own_name: None }))
        }
        Found::Folder(base) => {
            let name = place.name().ok_or_else(store::not_found)?;
            let attributes = base.attributes()?;
            let folder = walk.folder(top(number, &name), &attributes);
            let folders = walk.tree(number, base, Some(folder), filters)?;
            Ok((Shape::Named, Origin { folders, strip: name.len() + 1, own_name: None }))
        }
        Found::Other { .. } if contents => Err(store::not_a_folder().into()),
        Found::Other { parent, name, attributes } if attributes.kind == NameKind::File => {
            let large_from = if only { 1 } else { LARGE };
            let shown = place.name().unwrap_or_else(|| name.clone());
            walk.file(top(number, &shown), (&*parent, &name), &attributes, large_from);
            Ok((Shape::File, Origin { own_name: Some(name), ..Origin::new(parent, 0) }))
        }
        Found::Other { .. } => {
            let reason = "it is a device, socket or pipe, which cannot be copied".to_owned();
            Err(Refused::Place { reason, is_missing: false })
        }
    }
}

fn unreadable(place: &Place, reason: &str, is_missing: bool) -> Error {
    let what = format!("cannot read {}: {reason}", place.shown());
    Error { is_missing, ..Error::new(FileErrorKind::File, what).at(place.named()) }
}

fn top(source: u16, name: &[u8]) -> Spot<'_> {
    Spot { source, folder: None, path: name }
}

fn list_error(error: ManifestError, sources: usize) -> Error {
    match error.entry {
        Some(path) if error.reason == TWICE && sources > 1 => {
            let what = format!("two sources have {path}");
            Error::new(FileErrorKind::Request, what).advise("copy them one after the other")
        }
        entry => Error::new(FileErrorKind::File, ManifestError { entry, ..error }.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::manifest::FileTime;

    const SMALL: usize = 3 * CHUNK as usize;

    /// Returns a source of three files: `a` is small and fills three chunks, `b` is large, and `c`
    /// has 5 bytes.
    fn source(top: &Path) -> Source {
        std::fs::write(top.join("a"), vec![1; SMALL]).unwrap();
        std::fs::write(top.join("b"), vec![2; LARGE as usize]).unwrap();
        std::fs::write(top.join("c"), [3; 5]).unwrap();
        let options = SourceOptions { recursive: true, ..SourceOptions::default() };
        Source::open(&[Place::Ambient(top.join(""))], &options).unwrap()
    }

    #[test]
    fn a_file_stays_open_until_its_last_byte_and_a_large_one_longer() {
        let top = tempfile::tempdir().unwrap();
        let mut source = source(top.path());
        let mut buf = vec![0; CHUNK as usize];
        let mut after = |chunk| {
            source.read_chunk(chunk, &mut buf).unwrap();
            source.open.iter().map(|(entry, _)| *entry).collect::<Vec<_>>()
        };
        assert_eq!((after(0), after(1), after(2)), (vec![0], vec![0], vec![]));
        assert_eq!((after(3), after(10), after(11)), (vec![1], vec![1], vec![1]));
        assert_eq!(after(0), [1, 0], "the most recently used file is last");
    }

    #[test]
    fn chunks_beyond_the_object_and_short_buffers_and_0_or_65536_sources_are_refused() {
        let top = tempfile::tempdir().unwrap();
        let mut source = source(top.path());
        assert_eq!(source.object().chunks(), 12);
        let mut buf = vec![0; CHUNK as usize];
        for (chunk, len, is_read) in
            [(11, 5, true), (11, 4, false), (12, 5, false), (u64::MAX, 5, false)]
        {
            let read = source.read_chunk(chunk, &mut buf[..len]);
            assert_eq!(read.as_ref().ok().map(|read| read.len), is_read.then_some(5), "{chunk}");
            assert_eq!(source.read_within(chunk, 0, &mut buf[..len]).is_ok(), chunk == 11);
        }
        let places = vec![Place::Ambient(top.path().join("c")); 1 << 16];
        for few in [&[][..], &places] {
            let error = Source::open(few, &SourceOptions::default()).unwrap_err();
            assert!(error.what.contains("between 1 and 65535 sources"), "{error}");
        }
    }

    #[test]
    fn a_name_in_two_sources_is_reported_as_a_conflict_of_the_sources() {
        let error = |reason, sources| {
            list_error(ManifestError { entry: Some("x".to_owned()), reason }, sources).what
        };
        assert_eq!(error(TWICE, 2), "two sources have x");
        assert_eq!(error(TWICE, 1), "manifest entry \"x\": appears twice");
        assert_eq!(error("is torn", 2), "manifest entry \"x\": is torn");
    }

    #[test]
    fn a_file_of_another_kind_size_or_time_is_not_the_listed_one() {
        let folder = crate::MemoryFolder::new(10);
        folder.put("x".as_ref(), b"12345".to_vec());
        let now = store::Folder::look(&folder, b"x").unwrap();
        let then = Entry::new(crate::Kind::file(5), 0o600, now.modified);
        let later = |time: FileTime| FileTime { seconds: time.seconds + 1, ..time };
        let same = |now: Attributes, version| is_same(&now, &then, version);
        assert!(same(now, now.version()));
        assert!(!same(Attributes { kind: NameKind::Link, ..now }, now.version()));
        assert!(!same(Attributes { size: 4, ..now }, now.version()));
        assert!(!same(Attributes { modified: later(now.modified), ..now }, now.version()));
        let changed = Attributes { changed: later(now.changed), ..now };
        assert!(!same(changed, now.version()) && same(changed, changed.version()));
    }

    #[test]
    fn the_last_chunk_of_the_manifest_is_short_and_reads_beyond_its_end_return_zeros() {
        let top = tempfile::tempdir().unwrap();
        let mut source = source(top.path());
        let encoded: Vec<u8> = (0..CHUNK + 9).map(|at| (at % 251) as u8).collect();
        source.prefix_manifest(encoded.clone().into());
        let mut buf = vec![0; CHUNK as usize];
        assert_eq!(source.read_chunk(1, &mut buf).unwrap().len, 9);
        assert_eq!(buf[..9], encoded[CHUNK as usize..]);
        let mut part = [7; 6];
        source.read_within(1, 5, &mut part).unwrap();
        assert_eq!(part, [&encoded[CHUNK as usize + 5..], &[0, 0][..]].concat()[..]);
        source.read_within(1, 9, &mut part).unwrap();
        assert_eq!(part, [0; 6]);
    }

    #[test]
    fn filled_holes_are_chunks_of_zeros() {
        let top = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        std::fs::File::create(top.path().join("a")).unwrap().set_len(LARGE).unwrap();
        let mut source =
            Source::open(&[Place::Ambient(top.path().join("a"))], &SourceOptions::default())
                .unwrap();
        source.fill_holes();
        assert!(source.manifest().entries()[0].holes().is_empty());
        assert_eq!(source.object().hole_chunks().count(), 0);
        let zeros = digest::file_value(LARGE, 1, &vec![0; CHUNK as usize]);
        assert_eq!(source.compare(0, &[(1, zeros)]), [true]);
    }

    #[test]
    fn a_comparison_matches_only_equal_chunks_within_the_file() {
        let top = tempfile::tempdir().unwrap();
        let mut source = source(top.path());
        let content = vec![1; CHUNK as usize];
        let value = |chunk| digest::file_value(SMALL as u64, chunk, &content);
        let values =
            [(0, value(0)), (2, value(2)), (1, value(0)), (3, value(3)), (u64::MAX, value(0))];
        assert_eq!(source.compare(0, &values), [true, true, false, false, false]);
        assert_eq!(source.compare(9, &values[..1]), [false]);
        let short = [(0, digest::file_value(5, 0, &[3; 5]))];
        assert_eq!(source.compare(2, &short), [true]);
        source.watch.end();
        assert_eq!(source.compare(2, &short), [false], "the copy has ended");
    }
}
