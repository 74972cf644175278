//! What an object consists of: its files, folders and links, in an order both ends share.
//!
//! A manifest that exists is sound, whoever wrote it: names are plain names, each entry's folder
//! is an entry before it, nothing is there twice, and sizes add up. Paths are bytes, since names
//! need not be UTF-8. The order is that of a walk: a folder, then all that is in it.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

use prost::Message;

use super::{CHUNK, LARGE, names};

/// The most entries that a manifest may have.
pub const MAX_ENTRIES: u64 = 10_000_000;

/// The most bytes that an object may have, padding included: what is kept of each chunk of it has
/// to fit into memory, whoever says how large it is.
pub const MAX_OBJECT: u64 = 1 << 50;

/// The longest path and the longest link target, in bytes.
pub const MAX_PATH: usize = 4096;

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
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

/// A file, folder or link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Components joined by `/`, relative.
    pub path: Box<[u8]>,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, with set-uid, set-gid and sticky: 12 bits.
    pub mode: u32,
    /// When it was last modified.
    pub modified: FileTime,
}

impl Entry {
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

    /// The last component of the path.
    pub fn name(&self) -> &[u8] {
        split(&self.path).1
    }

    /// The path of the folder that holds it; empty at the top.
    pub fn folder(&self) -> &[u8] {
        split(&self.path).0
    }

    /// The path for people: bytes that are no UTF-8 are replaced.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
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
    entries: Vec<Entry>,
}

impl Manifest {
    /// Puts `entries` into the order of a walk and checks them.
    ///
    /// # Errors
    /// The first thing that makes it unsound.
    pub fn new(shape: Shape, mut entries: Vec<Entry>) -> Result<Manifest, ManifestError> {
        entries.sort_unstable_by(|a, b| walk_order(&a.path, &b.path));
        let mut check = Check::new(shape);
        let mut before: &[u8] = &[];
        for (at, entry) in entries.iter().enumerate() {
            check.entry(&entries[..at], before, entry).map_err(|reason| at_entry(entry, reason))?;
            before = &entry.path;
        }
        check.end(&entries)?;
        Ok(Manifest { shape, entries })
    }

    /// What a peer might claim.
    #[cfg(test)]
    pub(crate) fn unchecked(shape: Shape, entries: Vec<Entry>) -> Manifest {
        Manifest { shape, entries }
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

    /// The bytes that [`decode`](Manifest::decode) takes.
    pub fn encode(&self) -> Vec<u8> {
        let head = HeadWire { shape: self.shape.number(), count: self.entries.len() as u64 };
        let mut out = head.encode_length_delimited_to_vec();
        let mut before: &[u8] = &[];
        for entry in &self.entries {
            let shared = before.iter().zip(&*entry.path).take_while(|(a, b)| a == b).count();
            let written = EntryWire::from_entry(entry, shared).encode_length_delimited(&mut out);
            written.expect("a vector grows as needed");
            before = &entry.path;
        }
        out
    }

    /// Reads and checks a manifest; `bytes` may come from anybody.
    ///
    /// # Errors
    /// The first thing that makes it unsound.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let mut rest = bytes;
        let head = HeadWire::decode(message(&mut rest)?).map_err(|_| whole(TORN))?;
        let shape = Shape::of_number(head.shape).ok_or(whole("unknown shape"))?;
        if head.count > MAX_ENTRIES {
            return Err(whole("more than ten million entries"));
        }
        // An entry takes at least three bytes: a count cannot make us allocate more than was sent.
        let mut entries = Vec::with_capacity((head.count as usize).min(rest.len() / 3));
        let (mut check, mut wire) = (Check::new(shape), EntryWire::default());
        for _ in 0..head.count {
            wire.clear();
            wire.merge(message(&mut rest)?).map_err(|_| whole(TORN))?;
            let before: &[u8] = entries.last().map_or(&[], |e: &Entry| &e.path);
            let entry = wire.to_entry(before).map_err(whole)?;
            check.entry(&entries, before, &entry).map_err(|reason| at_entry(&entry, reason))?;
            entries.push(entry);
        }
        if !rest.is_empty() {
            return Err(whole("bytes behind the last entry"));
        }
        check.end(&entries)?;
        Ok(Manifest { shape, entries })
    }
}

const TORN: &str = "torn or no manifest at all";

/// The size from which on files of such a manifest are large.
pub(crate) fn large_from(shape: Shape) -> u64 {
    if shape == Shape::File { 1 } else { LARGE }
}

fn whole(reason: &'static str) -> ManifestError {
    ManifestError { entry: None, reason }
}

fn at_entry(entry: &Entry, reason: &'static str) -> ManifestError {
    // Enough of it to be found, whatever its length.
    let shown = entry.shown().chars().take(300).collect();
    ManifestError { entry: Some(shown), reason }
}

/// Takes the next length-delimited message off `rest`.
fn message<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], ManifestError> {
    let len = prost::decode_length_delimiter(&mut *rest).map_err(|_| whole(TORN))?;
    let (message, behind) = rest.split_at_checked(len).ok_or(whole(TORN))?;
    *rest = behind;
    Ok(message)
}

/// What has been seen of a manifest while its entries are checked in order.
struct Check {
    shape: Shape,
    /// The folders that hold the entry before, outermost first.
    open: Vec<usize>,
    bytes: u64,
}

impl Check {
    fn new(shape: Shape) -> Check {
        Check { shape, open: Vec::new(), bytes: 0 }
    }

    /// Checks `entry`, which follows `seen`, whose last path is `before`.
    fn entry(&mut self, seen: &[Entry], before: &[u8], entry: &Entry) -> Result<(), &'static str> {
        if seen.len() as u64 >= MAX_ENTRIES {
            return Err("more than ten million entries");
        }
        check_path(&entry.path)?;
        match walk_order(before, &entry.path) {
            Ordering::Less => {}
            Ordering::Equal => return Err("is there twice"),
            Ordering::Greater => return Err("out of order"),
        }
        let folder = entry.folder();
        while self.open.last().is_some_and(|at| !is_within(folder, &seen[*at].path)) {
            self.open.pop();
        }
        if self.open.last().map_or(&[][..], |at| &*seen[*at].path) != folder {
            return Err("its folder is no folder of the manifest");
        }
        if entry.mode > 0o7777 || entry.modified.nanos >= 1_000_000_000 {
            return Err("mode or time out of range");
        }
        match &entry.kind {
            Kind::Folder => self.open.push(seen.len()),
            Kind::Link { target } => {
                if target.is_empty() || target.len() > MAX_PATH || target.contains(&0) {
                    return Err("link target empty, too long, or with a zero byte");
                }
            }
            Kind::File { size, holes, .. } => {
                check_holes(self.shape, *size, holes)?;
                // Each file may cost up to a chunk of padding on both sides.
                let room = size.checked_add(2 * CHUNK);
                let bytes = room.and_then(|room| self.bytes.checked_add(room));
                self.bytes = bytes
                    .filter(|bytes| *bytes <= MAX_OBJECT)
                    .ok_or("the files make more than a pebibyte")?;
            }
        }
        Ok(())
    }

    /// Checks what only the end can tell.
    fn end(&self, entries: &[Entry]) -> Result<(), ManifestError> {
        let top = |path: &[u8]| path.split(|b| *b == b'/').next().map(<[u8]>::to_vec);
        match (self.shape, entries) {
            (Shape::File, [only]) if only.size().is_some() && only.folder().is_empty() => Ok(()),
            (Shape::File, _) => Err(whole("is to be one file and is not")),
            (Shape::Named, [first, .., last]) if top(&first.path) != top(&last.path) => {
                Err(whole("is to have one top and has several"))
            }
            (Shape::Named, []) => Err(whole("is to have one top and has none")),
            _ => Ok(()),
        }
    }
}

/// Whether `path` is `folder` or lies below it.
fn is_within(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

fn check_path(path: &[u8]) -> Result<(), &'static str> {
    if path.len() > MAX_PATH {
        return Err("path longer than 4096 bytes");
    }
    path.split(|b| *b == b'/').try_for_each(check_name)
}

fn check_name(name: &[u8]) -> Result<(), &'static str> {
    match name {
        b"" => Err("empty name or absolute path"),
        b"." | b".." => Err("a name that leads elsewhere"),
        name if name.len() > names::NAME_MAX => Err("name longer than 255 bytes"),
        name if name.contains(&0) => Err("name with a zero byte"),
        name if names::is_reserved(name) => Err("name reserved for unfinished copies"),
        _ => Ok(()),
    }
}

fn check_holes(shape: Shape, size: u64, holes: &[Range<u64>]) -> Result<(), &'static str> {
    if !holes.is_empty() && size < large_from(shape) {
        return Err("holes in a small file");
    }
    let mut end = None;
    for hole in holes {
        if hole.start >= hole.end || end.is_some_and(|end| hole.start <= end) {
            return Err("holes out of order");
        }
        end = Some(hole.end);
    }
    match end {
        Some(end) if end > size.div_ceil(CHUNK) => Err("a hole behind the end of the file"),
        _ => Ok(()),
    }
}

impl Shape {
    fn number(self) -> u32 {
        match self {
            Shape::File => 1,
            Shape::Named => 2,
            Shape::Contents => 3,
            Shape::Several => 4,
        }
    }

    fn of_number(number: u32) -> Option<Shape> {
        [Shape::File, Shape::Named, Shape::Contents, Shape::Several]
            .into_iter()
            .find(|shape| shape.number() == number)
    }
}

/// The first message.
#[derive(Clone, PartialEq, Message)]
struct HeadWire {
    #[prost(uint32, tag = "1")]
    shape: u32,
    #[prost(uint64, tag = "2")]
    count: u64,
}

/// One entry. Its path is told as what it does not share with the entry before.
#[derive(Clone, PartialEq, Message)]
struct EntryWire {
    #[prost(uint32, tag = "1")]
    shared: u32,
    #[prost(bytes = "vec", tag = "2")]
    rest: Vec<u8>,
    /// 0 file, 1 folder, 2 link.
    #[prost(uint32, tag = "3")]
    kind: u32,
    #[prost(uint64, tag = "4")]
    size: u64,
    #[prost(bool, tag = "5")]
    sparse: bool,
    /// Start and end of each hole in turn.
    #[prost(uint64, repeated, tag = "6")]
    holes: Vec<u64>,
    #[prost(bytes = "vec", tag = "7")]
    target: Vec<u8>,
    #[prost(uint32, tag = "8")]
    mode: u32,
    #[prost(sint64, tag = "9")]
    seconds: i64,
    #[prost(uint32, tag = "10")]
    nanos: u32,
}

impl EntryWire {
    fn from_entry(entry: &Entry, shared: usize) -> EntryWire {
        let mut wire = EntryWire {
            shared: shared as u32,
            rest: entry.path[shared..].to_vec(),
            mode: entry.mode,
            seconds: entry.modified.seconds,
            nanos: entry.modified.nanos,
            ..EntryWire::default()
        };
        match &entry.kind {
            Kind::File { size, sparse, holes } => {
                (wire.size, wire.sparse) = (*size, *sparse);
                wire.holes = holes.iter().flat_map(|hole| [hole.start, hole.end]).collect();
            }
            Kind::Folder => wire.kind = 1,
            Kind::Link { target } => {
                wire.kind = 2;
                wire.target = target.to_vec();
            }
        }
        wire
    }

    fn to_entry(&self, before: &[u8]) -> Result<Entry, &'static str> {
        let shared = before.get(..self.shared as usize).ok_or(TORN)?;
        if shared.len() + self.rest.len() > MAX_PATH {
            return Err("path longer than 4096 bytes");
        }
        let kind = match self.kind {
            0 => {
                let (pairs, odd) = self.holes.as_chunks::<2>();
                if !odd.is_empty() {
                    return Err(TORN);
                }
                let holes = pairs.iter().map(|[start, end]| *start..*end).collect();
                Kind::File { size: self.size, sparse: self.sparse, holes }
            }
            1 => Kind::Folder,
            2 => Kind::Link { target: self.target.as_slice().into() },
            _ => return Err("unknown kind of entry"),
        };
        let path = [shared, &self.rest].concat().into_boxed_slice();
        let modified = FileTime { seconds: self.seconds, nanos: self.nanos };
        Ok(Entry { path, kind, mode: self.mode, modified })
    }
}
