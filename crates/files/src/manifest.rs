//! What an object consists of: its files, folders and links, in an order both ends share.
//!
//! A manifest that exists is sound, whoever wrote it: names are plain names, each entry's folder
//! is an entry before it, nothing is there twice, and sizes add up. Paths are bytes, since names
//! need not be UTF-8. The order is that of a walk: a folder, then all that is in it.
//!
//! An entry keeps its own name and the number of its folder. Paths are computed where they are
//! needed, so the memory does not grow with the depth of a tree.

mod check;
mod listing;
mod wire;

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

use super::LARGE;
use crate::error::Error;

pub(crate) use self::check::TWICE;
pub(crate) use self::listing::Listing;
pub use self::wire::Measured;
#[cfg(test)]
pub(crate) use self::wire::encode_unchecked;

/// The most entries that a manifest may have.
pub(crate) const MAX_ENTRIES: u64 = 10_000_000;

/// The most bytes that an object may have, padding included: what is kept of each chunk of it has
/// to fit into memory, whoever says how large it is.
pub const MAX_OBJECT: u64 = 1 << 50;

/// The longest path and the longest link target, in bytes.
pub const MAX_PATH: usize = 4096;

/// The most holes of one file. A source sends the zeros of further holes.
pub(crate) const MAX_HOLES: usize = 1 << 20;

/// Bytes that an entry takes beside its name, its holes and its link target: its own, and what the
/// layout of the object and a destination keep of it (two places of 16 bytes, a state, bits).
const FIXED: u64 = size_of::<Entry>() as u64 + 40;

/// The most bytes of an entry's encoding beside its name, its holes and its link target.
const ENCODED: u64 = 56;

/// The number of the folder that an entry at the top is in.
const TOP: u32 = u32::MAX;

/// What lists of files are charged to. Dropping it gives the memory back.
pub trait ListMemory: fmt::Debug + Send {
    /// Holds at least `bytes` in all from now on.
    ///
    /// # Errors
    /// There is not so much memory; says how much was needed.
    fn hold(&mut self, bytes: u64) -> Result<(), Error>;
}

/// Memory without a limit.
impl ListMemory for () {
    fn hold(&mut self, _bytes: u64) -> Result<(), Error> {
        Ok(())
    }
}

/// What the manifest was made from, which decides how its paths relate to the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One plain file: its name, or the destination's.
    File,
    /// One folder (or link) with all that is in it: its name, or the destination's.
    Named,
    /// What is in a folder (`folder/`), to go right into the destination.
    Contents,
    /// Several sources, to go into a folder that exists.
    Several,
}

/// A time as file systems keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds, below 10⁹.
    pub nanos: u32,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File {
        /// Its length in bytes.
        size: u64,
        /// It has holes, of any size: zero pages need not be written.
        sparse: bool,
        /// The chunks (counted in the file) that are holes and never sent; ascending, apart.
        holes: Box<[Range<u64>]>,
    },
    /// A folder.
    Folder,
    /// A symbolic link.
    Link {
        /// What it points to, as it stands.
        target: Box<[u8]>,
    },
}

/// A file, folder or link. Its [name](Manifest::name) and [path](Manifest::path) are the
/// manifest's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The folder that holds it, by number; [`TOP`] for none.
    parent: u32,
    /// Where its name begins among all names.
    name: u32,
    name_len: u8,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, with set-uid, set-gid and sticky: 12 bits.
    pub mode: u32,
    /// When it was last modified.
    pub modified: FileTime,
    /// A stamp of a file's version at the source, which means nothing elsewhere; zero for none.
    pub version: u64,
}

impl Entry {
    /// An entry without a place and without a stamp.
    pub(crate) fn new(kind: Kind, mode: u32, modified: FileTime) -> Entry {
        Entry { parent: TOP, name: 0, name_len: 0, kind, mode, modified, version: 0 }
    }

    /// The same in a folder, with a name of `name_len` bytes from `name` on.
    fn at(mut self, parent: Option<u32>, name: usize, name_len: usize) -> Entry {
        self.parent = parent.unwrap_or(TOP);
        // Ten million names of 255 bytes are fewer than 2^32 bytes.
        (self.name, self.name_len) = (name as u32, name_len as u8);
        self
    }

    /// The folder that holds it, by number; nothing at the top.
    pub fn parent(&self) -> Option<u32> {
        (self.parent != TOP).then_some(self.parent)
    }

    /// The length of a regular file.
    pub fn size(&self) -> Option<u64> {
        match self.kind {
            Kind::File { size, .. } => Some(size),
            _ => None,
        }
    }

    /// The holes of a regular file, as chunks counted in the file.
    pub fn holes(&self) -> &[Range<u64>] {
        match &self.kind {
            Kind::File { holes, .. } => holes,
            _ => &[],
        }
    }

    fn name<'a>(&self, names: &'a [u8]) -> &'a [u8] {
        &names[self.name as usize..][..usize::from(self.name_len)]
    }

    /// Bytes of memory outside the entry, without its name.
    fn extra(&self) -> u64 {
        match &self.kind {
            Kind::File { holes, .. } => size_of_val(&**holes) as u64,
            Kind::Link { target } => target.len() as u64,
            Kind::Folder => 0,
        }
    }
}

/// The path of entry `number` of a list in which each folder comes before what is in it.
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

/// An entry with its whole path, to make a manifest of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Components joined by `/`, relative.
    pub path: Box<[u8]>,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, with set-uid, set-gid and sticky: 12 bits.
    pub mode: u32,
    /// When it was last modified.
    pub modified: FileTime,
}

impl Listed {
    fn entry(&self) -> Entry {
        Entry::new(self.kind.clone(), self.mode, self.modified)
    }
}

/// Splits a path into its folder and its last component.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

/// The order of a walk: component by component, so that what is in a folder follows it at once.
pub(crate) fn walk_order(a: &[u8], b: &[u8]) -> Ordering {
    let at = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    // A separator sorts before any byte that a name may have.
    let key = |path: &[u8]| path.get(at).map(|b| if *b == b'/' { 0 } else { *b });
    key(a).cmp(&key(b))
}

/// Why bytes or entries are no manifest; names the entry where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestError {
    /// The path of the entry at fault, for people.
    pub entry: Option<String>,
    /// What is wrong with it.
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

/// A sound list of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    shape: Shape,
    folder_mode: Option<u32>,
    entries: Vec<Entry>,
    /// The names of all entries, one after the other.
    names: Vec<u8>,
}

impl Manifest {
    /// Puts `entries` into the order of a walk and checks them.
    ///
    /// # Errors
    /// The first thing that makes it unsound.
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

    /// Sets the permission bits of the folder whose contents these are.
    pub(crate) fn with_folder_mode(self, mode: Option<u32>) -> Manifest {
        Manifest { folder_mode: mode.filter(|_| self.shape == Shape::Contents), ..self }
    }

    /// The permission bits of the folder whose contents these are, where its source has said so.
    pub(crate) fn folder_mode(&self) -> Option<u32> {
        self.folder_mode
    }

    /// The same files without holes.
    pub(crate) fn without_holes(&self) -> Manifest {
        let mut filled = self.clone();
        for entry in &mut filled.entries {
            if let Kind::File { sparse, holes, .. } = &mut entry.kind {
                (*sparse, *holes) = (false, Box::default());
            }
        }
        filled
    }

    /// The last component of the path of entry `number`.
    pub fn name(&self, number: u32) -> &[u8] {
        self.entries[number as usize].name(&self.names)
    }

    /// The path of entry `number`: components joined by `/`, relative.
    pub fn path(&self, number: u32) -> Vec<u8> {
        path(&self.entries, &self.names, number)
    }

    /// The path of entry `number` for people: bytes that are no UTF-8 are replaced.
    pub fn shown(&self, number: u32) -> String {
        String::from_utf8_lossy(&self.path(number)).into_owned()
    }

    /// How the paths relate to the destination.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Whether it is one plain file, not a tree.
    pub fn is_single(&self) -> bool {
        self.shape == Shape::File
    }

    /// The entries, in the order of a walk.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How many regular files there are.
    pub fn files(&self) -> u64 {
        self.entries.iter().filter(|e| e.size().is_some()).count() as u64
    }

    /// The bytes of all regular files, holes included.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().filter_map(Entry::size).sum()
    }

    /// Whether entry `entry` lies on a chunk boundary of its own and has a journal: a file of
    /// [`LARGE`] bytes or more, or the one file of a single-file object unless it is empty.
    pub fn is_large(&self, entry: u32) -> bool {
        let size = self.entries.get(entry as usize).and_then(Entry::size);
        size.is_some_and(|size| size >= self.large_from())
    }

    fn large_from(&self) -> u64 {
        large_from(self.shape)
    }
}

/// The size from which on files of such a manifest are large.
pub(crate) fn large_from(shape: Shape) -> u64 {
    if shape == Shape::File { 1 } else { LARGE }
}

fn whole(reason: &'static str) -> ManifestError {
    ManifestError { entry: None, reason }
}

fn at_path(path: &[u8], reason: &'static str) -> ManifestError {
    // Enough of it to be found, whatever its length.
    let shown = String::from_utf8_lossy(path).chars().take(300).collect();
    ManifestError { entry: Some(shown), reason }
}
