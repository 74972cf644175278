//! The encoding of a manifest: a head, then the entries, each with the part of its path that
//! differs from the path before.
//!
//! Decoding takes two passes over the bytes. The first pass checks everything and measures the
//! memory that the manifest needs; the second pass builds the manifest. So the caller can reserve
//! the memory before it is allocated.

use prost::Message;

use super::check::{Check, Placed};
use super::{
    Entry, FIXED, FileTime, Kind, MAX_ENTRIES, MAX_HOLES, MAX_PATH, Manifest, ManifestError, Shape,
    at_path, whole,
};

const TORN: &str = "truncated or not a manifest";
const HOLES: &str = "an entry with more than a million holes";

/// Maximum count of numbers in an entry. The bytes of a path and of a target count too, because the
/// check cannot distinguish them from numbers.
const MAX_NUMBERS: usize = 2 * MAX_HOLES + 4 * MAX_PATH;
/// Maximum bytes of an encoded entry. Nearly all of its numbers are starts and ends of holes; these
/// are chunk numbers of at most five bytes.
const MAX_MESSAGE: usize = 5 * MAX_NUMBERS;

/// A checked encoding of a manifest that is not built yet.
#[derive(Debug)]
pub struct Measured<'a> {
    encoded: &'a [u8],
    shape: Shape,
    folder_mode: Option<u32>,
    entries: usize,
    names: usize,
    bytes: u64,
}

impl Measured<'_> {
    /// Returns the memory that the manifest needs, in bytes, including the memory that a
    /// destination needs for each entry.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Builds the manifest.
    ///
    /// # Errors
    /// None, because [`Manifest::measure`] has checked everything.
    pub fn read(&self) -> Result<Manifest, ManifestError> {
        let mut entries = Vec::with_capacity(self.entries);
        let mut names = Vec::with_capacity(self.names);
        read(self.encoded, |entry, placed, path| {
            let name = &path[placed.name_at..];
            entries.push(entry.at(placed.parent, names.len(), name.len()));
            names.extend_from_slice(name);
        })?;
        let (shape, folder_mode) = (self.shape, self.folder_mode);
        Ok(Manifest { shape, folder_mode, entries, names })
    }
}

impl Manifest {
    /// Checks an encoded manifest, which may come from anybody, and measures it. The check itself
    /// uses bounded memory: one path, and the holes of one file.
    ///
    /// # Errors
    /// The first fault.
    pub fn measure(encoded: &[u8]) -> Result<Measured<'_>, ManifestError> {
        let (mut entries, mut names, mut extra) = (0, 0, 0);
        let (shape, folder_mode) = read(encoded, |entry, placed, path| {
            entries += 1;
            names += path.len() - placed.name_at;
            extra += entry.extra();
        })?;
        let bytes = entries as u64 * FIXED + names as u64 + extra;
        Ok(Measured { encoded, shape, folder_mode, entries, names, bytes })
    }

    /// Decodes and checks a manifest; `bytes` may come from anybody.
    ///
    /// # Errors
    /// The first fault.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        Manifest::measure(bytes)?.read()
    }

    /// Returns the encoding that [`decode`](Manifest::decode) reads.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_as(|entry| entry.version)
    }

    /// Returns the encoding without version stamps: equal for equal trees on any host.
    pub(crate) fn encode_content(&self) -> Vec<u8> {
        self.encode_as(|_| 0)
    }

    fn encode_as(&self, version: impl Fn(&Entry) -> u64) -> Vec<u8> {
        let mut out = head(self.shape, self.folder_mode, self.entries.len() as u64);
        let mut wire = EntryWire::default();
        let mut path: Vec<u8> = Vec::new();
        // Open folders, each with the length of its path: the folders that hold the previous
        // entry, and the previous entry itself if it is a folder.
        let mut open: Vec<(u32, usize)> = Vec::new();
        for (number, entry) in self.entries.iter().enumerate() {
            while open.last().is_some_and(|(folder, _)| Some(*folder) != entry.parent()) {
                open.pop();
            }
            let folder = open.last().map_or(0, |(_, end)| *end);
            wire.fill(entry);
            wire.version = version(entry);
            wire.rest.extend(entry.parent().map(|_| b'/'));
            wire.rest.extend_from_slice(entry.name(&self.names));
            let same = path[folder..].iter().zip(&wire.rest).take_while(|(a, b)| a == b).count();
            path.truncate(folder + same);
            path.extend_from_slice(&wire.rest[same..]);
            wire.rest.drain(..same);
            wire.shared = (folder + same) as u32;
            wire.encode_length_delimited(&mut out).expect("a vector grows as needed");
            if entry.kind == Kind::Folder {
                open.push((number as u32, path.len()));
            }
        }
        out
    }
}

/// Decodes and checks a manifest, and passes each entry with its place and its path to `each`.
fn read(
    bytes: &[u8],
    mut each: impl FnMut(Entry, Placed, &[u8]),
) -> Result<(Shape, Option<u32>), ManifestError> {
    let mut rest = bytes;
    let head = HeadWire::decode(message(&mut rest)?).map_err(|_| whole(TORN))?;
    let shape = Shape::of_number(head.shape).ok_or(whole("unknown shape"))?;
    if head.folder_mode.is_some_and(|mode| mode > 0o7777) {
        return Err(whole("a folder with a mode of more than 12 bits"));
    }
    if head.count > MAX_ENTRIES {
        return Err(whole("more than ten million entries"));
    }
    let (mut check, mut wire) = (Check::new(shape), EntryWire::default());
    for _ in 0..head.count {
        let message = message(&mut rest)?;
        if message.len() > MAX_MESSAGE
            || (message.len() > MAX_NUMBERS && has_too_many_numbers(message))
        {
            return Err(whole(HOLES));
        }
        wire.clear();
        wire.merge(message).map_err(|_| whole(TORN))?;
        let shared = wire.shared as usize;
        if shared > check.path().len() {
            return Err(whole(TORN));
        }
        let entry = wire.entry().map_err(whole)?;
        let placed = check.next(shared, &wire.rest);
        let taken = placed.and_then(|placed| check.take(&entry, placed).map(|()| placed));
        let placed = taken.map_err(|reason| at_path(check.path(), reason))?;
        each(entry, placed, check.path());
    }
    if !rest.is_empty() {
        return Err(whole("bytes after the last entry"));
    }
    check.end().map_err(whole)?;
    Ok((shape, head.folder_mode))
}

/// Returns whether a message may have more numbers than an entry can have. Counts the bytes below
/// 128, because each encoded number ends with such a byte. The limit is needed because a decoded
/// number takes eight bytes, even if its encoding takes one.
fn has_too_many_numbers(message: &[u8]) -> bool {
    message.iter().filter(|byte| **byte < 0x80).count() > MAX_NUMBERS
}

/// Takes the next length-delimited message off `rest`.
fn message<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], ManifestError> {
    let len = prost::decode_length_delimiter(&mut *rest).map_err(|_| whole(TORN))?;
    let (message, behind) = rest.split_at_checked(len).ok_or(whole(TORN))?;
    *rest = behind;
    Ok(message)
}

fn head(shape: Shape, folder_mode: Option<u32>, count: u64) -> Vec<u8> {
    HeadWire { shape: shape.number(), count, folder_mode }.encode_length_delimited_to_vec()
}

/// Encodes entries without checks, as a hostile peer might.
#[cfg(test)]
pub(crate) fn encode_unchecked(shape: Shape, entries: &[super::Listed]) -> Vec<u8> {
    let mut out = head(shape, None, entries.len() as u64);
    let mut before: &[u8] = &[];
    for entry in entries {
        let shared = before.iter().zip(&*entry.path).take_while(|(a, b)| a == b).count();
        let mut wire = EntryWire::default();
        wire.fill(&entry.entry());
        (wire.shared, wire.rest) = (shared as u32, entry.path[shared..].to_vec());
        wire.encode_length_delimited(&mut out).expect("a vector grows as needed");
        before = &entry.path;
    }
    out
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

/// The head of the manifest: its first message.
#[derive(Clone, PartialEq, Message)]
struct HeadWire {
    /// 1: a file. 2: a folder with its content, or a link. 3: the content of a folder. 4: several
    /// sources.
    #[prost(uint32, tag = "1")]
    shape: u32,
    /// The number of entries, which follow as one `EntryWire` each.
    #[prost(uint64, tag = "2")]
    count: u64,
    /// For the content of a folder: the permission bits of that folder.
    #[prost(uint32, optional, tag = "3")]
    folder_mode: Option<u32>,
}

/// One entry. The path is encoded as the part that differs from the path of the entry before.
#[derive(Clone, PartialEq, Message)]
struct EntryWire {
    /// The number of bytes at the start of the path that are equal in the path of the entry before.
    #[prost(uint32, tag = "1")]
    shared: u32,
    /// The other bytes of the path.
    #[prost(bytes = "vec", tag = "2")]
    rest: Vec<u8>,
    /// 0 file, 1 folder, 2 link.
    #[prost(uint32, tag = "3")]
    kind: u32,
    /// The length of a file in bytes.
    #[prost(uint64, tag = "4")]
    size: u64,
    /// Whether a file has holes of any size.
    #[prost(bool, tag = "5")]
    sparse: bool,
    /// Start and end of each hole in turn, as numbers of chunks within the file.
    #[prost(uint64, repeated, tag = "6")]
    holes: Vec<u64>,
    /// The target of a link.
    #[prost(bytes = "vec", tag = "7")]
    target: Vec<u8>,
    /// The 12 permission bits.
    #[prost(uint32, tag = "8")]
    mode: u32,
    /// The modification time, in seconds since 1970 UTC.
    #[prost(sint64, tag = "9")]
    seconds: i64,
    /// Nanoseconds of the modification time.
    #[prost(uint32, tag = "10")]
    nanos: u32,
    /// A stamp of the file's version, which only the host of the file can make.
    #[prost(fixed64, tag = "11")]
    version: u64,
}

impl EntryWire {
    /// Clears all fields, then sets those of `entry`; the path stays empty.
    fn fill(&mut self, entry: &Entry) {
        self.clear();
        (self.mode, self.version) = (entry.mode, entry.version);
        (self.seconds, self.nanos) = (entry.modified.seconds, entry.modified.nanos);
        match &entry.kind {
            Kind::File { size, sparse, holes } => {
                (self.size, self.sparse) = (*size, *sparse);
                self.holes.extend(holes.iter().flat_map(|hole| [hole.start, hole.end]));
            }
            Kind::Folder => self.kind = 1,
            Kind::Link { target } => {
                self.kind = 2;
                self.target.extend_from_slice(target);
            }
        }
    }

    /// Returns the entry, without its folder and its name.
    fn entry(&self) -> Result<Entry, &'static str> {
        let kind = match self.kind {
            0 => {
                let (pairs, odd) = self.holes.as_chunks::<2>();
                if !odd.is_empty() {
                    return Err(TORN);
                }
                if pairs.len() > MAX_HOLES {
                    return Err(HOLES);
                }
                let holes = pairs.iter().map(|[start, end]| *start..*end).collect();
                Kind::File { size: self.size, sparse: self.sparse, holes }
            }
            1 => Kind::Folder,
            2 => Kind::Link { target: self.target.as_slice().into() },
            _ => return Err("unknown kind of entry"),
        };
        let modified = FileTime { seconds: self.seconds, nanos: self.nanos };
        Ok(Entry { version: self.version, ..Entry::new(kind, self.mode, modified) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_below_128_ends_a_number() {
        for (extra, too_many) in [(0, false), (1, true), (2, true)] {
            let mut message = vec![0x7F; MAX_NUMBERS + extra];
            message.extend([0x80; 5]);
            assert_eq!(has_too_many_numbers(&message), too_many, "{extra}");
        }
        assert_eq!((MAX_NUMBERS, MAX_MESSAGE), (2_113_536, 10_567_680));
    }

    #[test]
    fn each_shape_has_its_number_and_other_numbers_are_refused() {
        let shapes = [Shape::File, Shape::Named, Shape::Contents, Shape::Several];
        for (shape, number) in shapes.into_iter().zip(1..) {
            assert_eq!((shape.number(), Shape::of_number(number)), (number, Some(shape)));
        }
        assert_eq!((Shape::of_number(0), Shape::of_number(5)), (None, None));
    }

    #[test]
    fn a_head_with_more_than_12_mode_bits_or_a_wrong_count_of_entries_is_refused() {
        let read = |mode, count, tail: &[u8]| {
            let encoded = [&head(Shape::Contents, mode, count)[..], tail].concat();
            Manifest::decode(&encoded).map(|found| found.folder_mode()).map_err(|why| why.reason)
        };
        assert_eq!(read(Some(0o7777), 0, &[]), Ok(Some(0o7777)));
        assert_eq!(read(None, 0, &[]), Ok(None));
        assert_eq!(read(None, MAX_ENTRIES, &[]), Err(TORN));
        assert_eq!(read(None, MAX_ENTRIES + 1, &[]), Err("more than ten million entries"));
        assert_eq!(read(None, 0, &[0]), Err("bytes after the last entry"));
        assert!(read(Some(0o10000), 0, &[]).is_err());
    }

    #[test]
    fn an_entry_with_too_many_bytes_or_too_many_numbers_is_refused_before_it_is_decoded() {
        let why = |byte: u8, len: usize| {
            let mut encoded = head(Shape::Contents, None, 1);
            prost::encode_length_delimiter(len, &mut encoded).expect("a vector grows");
            encoded.resize(encoded.len() + len, byte);
            Manifest::decode(&encoded).expect_err("it is no entry").reason
        };
        // A byte of 128 or more does not end a number, so only the limit of bytes applies. Each
        // zero is a number, so the limit of numbers applies.
        assert_eq!([why(0x80, MAX_MESSAGE), why(0x80, MAX_MESSAGE + 1)], [TORN, HOLES]);
        assert_eq!([why(0, MAX_NUMBERS), why(0, MAX_NUMBERS + 1)], [TORN, HOLES]);
    }

    #[test]
    fn a_file_has_at_most_a_million_holes() {
        let entry = |holes| EntryWire { holes: vec![0; 2 * holes], ..EntryWire::default() }.entry();
        assert!(entry(MAX_HOLES).is_ok());
        assert_eq!(entry(MAX_HOLES + 1).err(), Some(HOLES));
    }

    #[test]
    fn an_entry_cannot_share_more_bytes_than_the_path_before_has() {
        let read = |shared| {
            let mut encoded = head(Shape::Contents, None, 2);
            for wire in [
                EntryWire { rest: b"a".to_vec(), size: 1, ..EntryWire::default() },
                EntryWire { shared, rest: b"b".to_vec(), size: 1, ..EntryWire::default() },
            ] {
                wire.encode_length_delimited(&mut encoded).expect("a vector grows");
            }
            Manifest::decode(&encoded).map(|found| found.shown(1)).map_err(|why| why.reason)
        };
        assert_eq!(read(0), Ok("b".to_owned()));
        assert_eq!(read(1), Ok("ab".to_owned()));
        assert_eq!(read(2), Err(TORN));
    }
}
