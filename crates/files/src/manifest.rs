//! The manifest of an object: its files, folders and links, in an order that both ends share.
//!
//! A [`Manifest`] is always valid, even if a peer wrote it: each name is a single path component,
//! each entry's folder is an earlier entry, no path appears twice, and the sizes are within limits.
//! Paths are bytes, because names need not be UTF-8. Entries are in the order of a walk: a folder,
//! then its content.
//!
//! An entry stores its name and the number of its folder, so memory does not grow with the depth of
//! the tree.

mod check;
mod listing;
mod wire;

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use super::LARGE;
use crate::error::Error;

pub(crate) use self::check::TWICE;
pub(crate) use self::listing::Listing;
pub use self::wire::Measured;
#[cfg(test)]
pub(crate) use self::wire::encode_unchecked;

pub(crate) const MAX_ENTRIES: u64 = 10_000_000;

/// Maximum bytes of an object, including padding.
pub const MAX_OBJECT: u64 = 1 << 50;

/// Maximum length of a path and of a link target, in bytes.
pub const MAX_PATH: usize = 4096;

/// Maximum number of holes of one file. A source sends the zeros of further holes.
pub(crate) const MAX_HOLES: usize = 1 << 20;

/// Memory of an entry in bytes, without its name, its holes and its link target: the entry, and 40
/// bytes that the object's layout and a destination keep for it.
const FIXED: u64 = size_of::<Entry>() as u64 + 40;

/// Maximum bytes of an entry's encoding in addition to its name, its holes and its link target.
const ENCODED: u64 = 56;

/// The folder number of an entry at the top.
const TOP: u32 = u32::MAX;

/// The memory account for lists of files. Dropping the account returns the memory.
pub trait ListMemory: fmt::Debug + Send {
    /// Reserves more memory if needed, so that the account has at least `bytes` in total.
    ///
    /// # Errors
    /// There is not enough memory.
    fn hold(&mut self, bytes: u64) -> Result<(), Error>;
}

/// Memory without a limit.
impl ListMemory for () {
    fn hold(&mut self, _bytes: u64) -> Result<(), Error> {
        Ok(())
    }
}

/// The kind of source, which decides how paths relate to the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One plain file, under its own name or the destination's name.
    File,
    /// One folder (or link) with its content, under its own name or the destination's name.
    Named,
    /// The content of a folder (`folder/`), which goes directly into the destination.
    Contents,
    /// Several sources, which go into an existing folder.
    Several,
}

/// A time with the precision of file systems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds, below 10⁹.
    pub nanos: u32,
}

impl FileTime {
    /// Returns the time that lies `span` before this one.
    pub(crate) fn before(self, span: Duration) -> FileTime {
        let borrows = self.nanos < span.subsec_nanos();
        let seconds = self.seconds.saturating_sub_unsigned(span.as_secs());
        FileTime {
            seconds: seconds.saturating_sub(i64::from(borrows)),
            nanos: self.nanos + u32::from(borrows) * 1_000_000_000 - span.subsec_nanos(),
        }
    }
}

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File {
        /// The file's length in bytes.
        size: u64,
        /// Whether the file has holes of any size. If so, a destination need not write zero pages.
        sparse: bool,
        /// The chunks (numbered within the file) that are holes and never sent; ascending and not
        /// adjacent.
        holes: Box<[Range<u64>]>,
    },
    /// A folder.
    Folder,
    /// A symbolic link.
    Link {
        /// The link's target, unchanged.
        target: Box<[u8]>,
    },
}

impl Kind {
    /// Returns the kind of a regular file of `size` bytes without holes.
    pub fn file(size: u64) -> Kind {
        Kind::File { size, sparse: false, holes: Box::default() }
    }
}

/// A file, folder or link. The manifest returns its [name](Manifest::name) and
/// [path](Manifest::path).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The number of the folder that holds the entry; [`TOP`] at the top of the copy.
    parent: u32,
    /// Offset of the entry's name in the names of all entries.
    name: u32,
    name_len: u8,
    /// The entry's kind.
    pub kind: Kind,
    /// Permission bits, with set-uid, set-gid and sticky: 12 bits.
    pub mode: u32,
    /// The modification time.
    pub modified: FileTime,
    /// The stamp of a file's version, meaningful at the source only; zero for none.
    pub version: u64,
}

impl Entry {
    pub(crate) fn new(kind: Kind, mode: u32, modified: FileTime) -> Entry {
        Entry { parent: TOP, name: 0, name_len: 0, kind, mode, modified, version: 0 }
    }

    fn at(mut self, parent: Option<u32>, name: usize, name_len: usize) -> Entry {
        self.parent = parent.unwrap_or(TOP);
        // Ten million names of 255 bytes take fewer than 2^32 bytes.
        (self.name, self.name_len) = (name as u32, name_len as u8);
        self
    }

    /// Returns the number of the folder that holds the entry; `None` at the top of the copy.
    pub fn parent(&self) -> Option<u32> {
        (self.parent != TOP).then_some(self.parent)
    }

    /// Returns the length of a regular file.
    pub fn size(&self) -> Option<u64> {
        match self.kind {
            Kind::File { size, .. } => Some(size),
            _ => None,
        }
    }

    /// Returns the holes of a regular file, as numbers of chunks within the file.
    pub fn holes(&self) -> &[Range<u64>] {
        match &self.kind {
            Kind::File { holes, .. } => holes,
            _ => &[],
        }
    }

    fn name<'a>(&self, names: &'a [u8]) -> &'a [u8] {
        &names[self.name as usize..][..usize::from(self.name_len)]
    }

    /// Returns the bytes of memory that the entry refers to, except its name.
    fn extra(&self) -> u64 {
        match &self.kind {
            Kind::File { holes, .. } => size_of_val(&**holes) as u64,
            Kind::Link { target } => target.len() as u64,
            Kind::Folder => 0,
        }
    }
}

/// Returns the path of entry `number` of a list in which each folder precedes its content.
fn path(entries: &[Entry], names: &[u8], number: u32) -> Vec<u8> {
    let entry = |number: u32| &entries[number as usize];
    let folders = || std::iter::successors(Some(number), |number| entry(*number).parent());
    let len: usize = folders().map(|number| usize::from(entry(number).name_len) + 1).sum();
    let mut path = vec![b'/'; len - 1];
    let mut end = path.len();
    for number in folders() {
        let name = entry(number).name(names);
        path[end - name.len()..end].copy_from_slice(name);
        end = (end - name.len()).saturating_sub(1);
    }
    path
}

/// An entry with its whole path, as input for a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Components joined by `/`, relative.
    pub path: Box<[u8]>,
    /// The entry's kind.
    pub kind: Kind,
    /// Permission bits, with set-uid, set-gid and sticky: 12 bits.
    pub mode: u32,
    /// The modification time.
    pub modified: FileTime,
}

impl Listed {
    fn entry(&self) -> Entry {
        Entry::new(self.kind.clone(), self.mode, self.modified)
    }
}

pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

/// Compares two paths in the order of a walk: component by component, so a folder's content follows
/// the folder directly.
pub(crate) fn walk_order(a: &[u8], b: &[u8]) -> Ordering {
    let at = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    // A separator sorts before any byte of a name.
    let key = |path: &[u8]| path.get(at).map(|b| if *b == b'/' { 0 } else { *b });
    key(a).cmp(&key(b))
}

/// Why bytes or entries are not a manifest; names the entry if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestError {
    /// The path of the entry at fault, as text.
    pub entry: Option<String>,
    /// The fault.
    pub reason: &'static str,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.entry {
            Some(entry) => write!(f, "manifest entry {entry:?}: {}", self.reason),
            None => write!(f, "manifest: {}", self.reason),
        }
    }
}

impl std::error::Error for ManifestError {}

/// A valid list of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    shape: Shape,
    folder_mode: Option<u32>,
    entries: Vec<Entry>,
    names: Vec<u8>,
}

impl Manifest {
    /// Sorts `entries` into the order of a walk and checks them.
    ///
    /// # Errors
    /// The first fault.
    pub fn new(shape: Shape, mut entries: Vec<Listed>) -> Result<Manifest, ManifestError> {
        entries.sort_unstable_by(|a, b| walk_order(&a.path, &b.path));
        let mut check = check::Check::new(shape);
        let (mut sound, mut names) = (Vec::with_capacity(entries.len()), Vec::new());
        for listed in &entries {
            let entry = listed.entry();
            let placed = check.next(0, &listed.path);
            let taken = placed.and_then(|placed| check.take(&entry, placed).map(|()| placed));
            let placed = taken.map_err(|reason| at_path(&listed.path, reason))?;
            let name = &listed.path[placed.name_at..];
            sound.push(entry.at(placed.parent, names.len(), name.len()));
            names.extend_from_slice(name);
        }
        check.end().map_err(whole)?;
        Ok(Manifest { shape, folder_mode: None, entries: sound, names })
    }

    /// Returns the manifest of one file, without a walk. `version` is the stamp of the file.
    ///
    /// # Errors
    /// The name is not one path component, or the size is beyond the limit.
    pub fn of_file(
        name: &[u8],
        size: u64,
        modified: FileTime,
        version: u64,
    ) -> Result<Manifest, ManifestError> {
        let kind = Kind::file(size);
        let listed = Listed { path: name.into(), kind, mode: 0o644, modified };
        let mut manifest = Manifest::new(Shape::File, vec![listed])?;
        manifest.entries[0].version = version;
        Ok(manifest)
    }

    /// Sets the permission bits of the source folder, if the manifest is the content of a folder.
    pub(crate) fn with_folder_mode(self, mode: Option<u32>) -> Manifest {
        Manifest { folder_mode: mode.filter(|_| self.shape == Shape::Contents), ..self }
    }

    pub(crate) fn folder_mode(&self) -> Option<u32> {
        self.folder_mode
    }

    pub(crate) fn without_holes(&self) -> Manifest {
        let mut filled = self.clone();
        for entry in &mut filled.entries {
            if let Kind::File { sparse, holes, .. } = &mut entry.kind {
                (*sparse, *holes) = (false, Box::default());
            }
        }
        filled
    }

    /// Returns the last component of the path of entry `number`.
    pub fn name(&self, number: u32) -> &[u8] {
        self.entries[number as usize].name(&self.names)
    }

    /// Returns the path of entry `number`: components joined by `/`, relative.
    pub fn path(&self, number: u32) -> Vec<u8> {
        path(&self.entries, &self.names, number)
    }

    /// Returns the path of entry `number` as text: bytes that are not UTF-8 are replaced.
    pub fn shown(&self, number: u32) -> String {
        String::from_utf8_lossy(&self.path(number)).into_owned()
    }

    /// Returns how the paths relate to the destination.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns whether the object is one plain file, not a tree.
    pub fn is_single(&self) -> bool {
        self.shape == Shape::File
    }

    /// Returns the entries, in the order of a walk.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the number of regular files.
    pub fn files(&self) -> u64 {
        self.entries.iter().filter(|e| e.size().is_some()).count() as u64
    }

    /// Returns the bytes of all regular files, including holes.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().filter_map(Entry::size).sum()
    }

    /// Returns whether entry `entry` starts on a chunk boundary and has a journal: files of
    /// [`LARGE`] bytes or more, and the file of a single-file object unless it is empty.
    pub fn is_large(&self, entry: u32) -> bool {
        let size = self.entries.get(entry as usize).and_then(Entry::size);
        size.is_some_and(|size| size >= self.large_from())
    }

    fn large_from(&self) -> u64 {
        large_from(self.shape)
    }
}

pub(crate) fn large_from(shape: Shape) -> u64 {
    if shape == Shape::File { 1 } else { LARGE }
}

fn whole(reason: &'static str) -> ManifestError {
    ManifestError { entry: None, reason }
}

fn at_path(path: &[u8], reason: &'static str) -> ManifestError {
    let shown = String::from_utf8_lossy(path).chars().take(300).collect();
    ManifestError { entry: Some(shown), reason }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::single_range_in_vec_init, reason = "the lists have one range")]

    use super::*;

    fn listed(path: &str, kind: Kind) -> Listed {
        let modified = FileTime { seconds: 5, nanos: 6 };
        Listed { path: path.as_bytes().into(), kind, mode: 0o640, modified }
    }

    fn file(path: &str, size: u64) -> Listed {
        listed(path, Kind::file(size))
    }

    fn tree() -> Manifest {
        let link = listed("a/l", Kind::Link { target: b"target".as_slice().into() });
        let hole = Kind::File { size: LARGE, sparse: true, holes: Box::new([1..3]) };
        let listed = vec![
            file("b", 7),
            listed("a", Kind::Folder),
            link,
            listed("a/d", Kind::Folder),
            file("a/d/x", LARGE - 1),
            listed("a/d/y", hole),
        ];
        Manifest::new(Shape::Contents, listed).expect("it is sound")
    }

    #[test]
    fn a_span_is_subtracted_from_a_time_to_the_nanosecond() {
        let time = |seconds, nanos| FileTime { seconds, nanos };
        let before = |at: FileTime, seconds, nanos| at.before(Duration::new(seconds, nanos));
        assert_eq!(before(time(5, 6), 2, 6), time(3, 0));
        assert_eq!(before(time(5, 6), 2, 7), time(2, 999_999_999));
        assert_eq!(before(time(0, 0), 0, 1), time(-1, 999_999_999));
        assert_eq!(before(time(0, 0), u64::MAX, 0), time(i64::MIN, 0));
    }

    #[test]
    fn a_manifest_knows_the_names_paths_and_sizes_of_its_entries() {
        let tree = tree();
        let paths = ["a", "a/d", "a/d/x", "a/d/y", "a/l", "b"];
        for (number, path) in (0..).zip(paths) {
            assert_eq!(tree.shown(number), path);
            assert_eq!(tree.name(number), path.rsplit('/').next().unwrap_or("").as_bytes());
        }
        let entries = tree.entries();
        let parents: Vec<_> = entries.iter().map(Entry::parent).collect();
        assert_eq!(parents, [None, Some(0), Some(1), Some(1), Some(0), None]);
        let sizes: Vec<_> = entries.iter().map(Entry::size).collect();
        assert_eq!(sizes, [None, None, Some(LARGE - 1), Some(LARGE), None, Some(7)]);
        assert_eq!((entries[3].holes(), entries[0].holes()), (&[1..3][..], &[][..]));
        let extra: Vec<_> = entries.iter().map(Entry::extra).collect();
        assert_eq!(extra, [0, 0, 0, 16, 6, 0]);
        assert_eq!((tree.files(), tree.bytes()), (3, 2 * LARGE + 6));
        let large: Vec<_> = (0..7).filter(|number| tree.is_large(*number)).collect();
        assert_eq!(large, [3]);
        assert_eq!((tree.is_single(), tree.shape()), (false, Shape::Contents));
    }

    #[test]
    fn the_one_file_of_a_copy_is_large_unless_it_is_empty() {
        let of = |size| Manifest::of_file(b"x", size, FileTime::default(), 9).expect("it is sound");
        assert!(of(1).is_large(0) && !of(0).is_large(0) && of(1).is_single());
        assert_eq!((of(3).entries()[0].version, of(3).entries()[0].mode), (9, 0o644));
        assert!(Manifest::of_file(b"a/b", 1, FileTime::default(), 0).is_err());
    }

    #[test]
    fn only_the_contents_of_a_folder_have_a_folder_mode() {
        let contents = tree().with_folder_mode(Some(0o750));
        assert_eq!((contents.folder_mode(), tree().folder_mode()), (Some(0o750), None));
        let file = Manifest::of_file(b"x", 1, FileTime::default(), 0).expect("it is sound");
        assert_eq!(file.with_folder_mode(Some(0o750)).folder_mode(), None);
    }

    #[test]
    fn a_manifest_without_holes_has_the_same_files() {
        let filled = tree().without_holes();
        assert_eq!(filled.entries()[3].size(), Some(LARGE));
        let kind = Kind::file(LARGE);
        assert_eq!(filled.entries()[3].kind, kind);
    }

    #[test]
    fn a_fault_is_shown_with_at_most_300_characters_of_its_path() {
        let fault = at_path("é".repeat(301).as_bytes(), "too long");
        assert_eq!(fault.entry, Some("é".repeat(300)));
        assert_eq!(at_path(b"x", "twice").to_string(), "manifest entry \"x\": twice");
        assert_eq!(whole("no head").to_string(), "manifest: no head");
    }

    #[test]
    fn the_content_of_a_folder_follows_the_folder_directly() {
        let mut paths = ["a", "a/b", "a/b/c", "a/c", "a!", "ab", "b"];
        let sorted = paths;
        paths.reverse();
        paths.sort_by(|a, b| walk_order(a.as_bytes(), b.as_bytes()));
        assert_eq!(paths, sorted);
        assert_eq!(walk_order(b"a/b", b"a/b"), Ordering::Equal);
        assert_eq!(
            (split(b"a/b/c"), split(b"c")),
            ((&b"a/b"[..], &b"c"[..]), (&b""[..], &b"c"[..]))
        );
    }

    #[test]
    fn an_entry_is_checked_at_the_exact_limits() {
        let sound = |shape, listed: Vec<Listed>| Manifest::new(shape, listed).is_ok();
        let with = |mode, nanos| {
            let modified = FileTime { seconds: 0, nanos };
            sound(Shape::Several, vec![Listed { mode, modified, ..file("x", 1) }])
        };
        assert!(with(0o7777, 999_999_999));
        assert!(!with(0o10000, 0) && !with(0, 1_000_000_000));
        let link = |len| {
            let target = vec![b't'; len].into();
            sound(Shape::Several, vec![listed("x", Kind::Link { target })])
        };
        assert!(link(1) && link(MAX_PATH) && !link(0) && !link(MAX_PATH + 1));
        let zero = Kind::Link { target: b"a\0b".as_slice().into() };
        assert!(!sound(Shape::Several, vec![listed("x", zero)]));
        let named = |len: usize| sound(Shape::Several, vec![file(&"n".repeat(len), 1)]);
        assert!(named(255) && !named(256));
        // Each file counts with a chunk of padding before it and another one after it.
        let most = MAX_OBJECT - 2 * crate::CHUNK;
        let sized = |sizes: &[u64]| {
            let files =
                sizes.iter().enumerate().map(|(number, size)| file(&number.to_string(), *size));
            sound(Shape::Several, files.collect())
        };
        assert!(sized(&[most]) && !sized(&[most + 1]) && !sized(&[u64::MAX]));
        assert!(sized(&[most - 2 * crate::CHUNK - 5, 5]));
        assert!(!sized(&[most - 2 * crate::CHUNK - 5, 6]) && !sized(&[most, 0]));
    }

    #[test]
    fn a_listing_with_too_long_a_path_is_no_manifest() {
        let mut listing = Listing::default();
        let folder = || Entry::new(Kind::Folder, 0o700, FileTime::default());
        let parents =
            (0..16).fold(None, |parent, _| Some(listing.add(parent, &[b'x'; 255], folder())));
        listing.add(parents, b"y", folder());
        let error = listing.into_manifest(Shape::Contents).unwrap_err();
        assert_eq!(error.reason, "path longer than 4096 bytes");
    }

    #[test]
    fn a_path_of_4096_bytes_is_the_longest() {
        let deep = |len: usize| {
            let path = "d/".repeat(len / 2) + if len % 2 == 1 { "x" } else { "xx" };
            let path = &path[path.len() - len..];
            let folders = path.match_indices('/').map(|(at, _)| listed(&path[..at], Kind::Folder));
            let all = folders.chain([file(path, 1)]).collect();
            Manifest::new(Shape::Several, all).map(|_| ()).map_err(|error| error.reason)
        };
        assert_eq!(deep(MAX_PATH), Ok(()));
        assert_eq!(deep(MAX_PATH + 1), Err("path longer than 4096 bytes"));
    }

    #[test]
    fn holes_are_ordered_chunks_of_a_large_file() {
        let sound = |size, holes: &[Range<u64>]| {
            let kind = Kind::File { size, sparse: true, holes: holes.into() };
            Manifest::new(Shape::Several, vec![listed("x", kind)]).is_ok()
        };
        assert!(sound(LARGE, &[0..1, 2..8]) && sound(LARGE + 1, &[8..9]));
        assert!(!sound(LARGE - 1, &[0..1]), "a small file");
        for holes in
            [&[1..1][..], &[Range { start: 2, end: 1 }], &[0..2, 2..3], &[2..3, 0..1], &[7..9]]
        {
            assert!(!sound(LARGE, holes), "{holes:?}");
        }
        let kind = Kind::File { size: 1, sparse: true, holes: Box::new([0..1]) };
        assert!(Manifest::new(Shape::File, vec![listed("x", kind)]).is_ok());
    }

    #[test]
    fn a_manifest_whose_entries_at_the_top_contradict_its_shape_is_refused() {
        let sound = |shape, listed: Vec<Listed>| Manifest::new(shape, listed).is_ok();
        let folder = || listed("a", Kind::Folder);
        assert!(sound(Shape::File, vec![file("a", 1)]) && !sound(Shape::File, vec![]));
        assert!(!sound(Shape::File, vec![folder()]));
        assert!(!sound(Shape::File, vec![file("a", 1), file("b", 1)]));
        assert!(sound(Shape::Named, vec![folder(), file("a/b", 1)]));
        assert!(!sound(Shape::Named, vec![]) && !sound(Shape::Named, vec![folder(), file("b", 1)]));
        assert!(sound(Shape::Contents, vec![]) && sound(Shape::Several, vec![]));
    }

    #[test]
    fn the_memory_of_a_list_includes_its_entries_names_holes_and_link_targets() {
        let mut listing = Listing::default();
        assert_eq!((listing.len(), listing.bytes()), (0, 0));
        let folder = listing.add(None, b"folder", listed("", Kind::Folder).entry());
        let target = Kind::Link { target: b"target!".as_slice().into() };
        let link = listing.add(Some(folder), b"l", listed("", target).entry());
        assert_eq!((folder, link, listing.len()), (0, 1, 2));
        assert_eq!(listing.path(link), b"folder/l");
        assert_eq!(listing.bytes(), 2 * (FIXED + ENCODED) + 2 * (7 + 7));
        assert_eq!(FIXED, size_of::<Entry>() as u64 + 40);
        assert_eq!((MAX_OBJECT, MAX_HOLES), (1_125_899_906_842_624, 1_048_576));
        let encoded = tree().encode();
        let measured = Manifest::measure(&encoded).expect("it is sound");
        assert_eq!(measured.bytes(), 6 * FIXED + 6 + 16 + 6);
    }
}
