//! The messages of the service `file`: reads of ranges of one file, and changes in place. The
//! client's first [`FileAsk`] names the file. The server answers with [`FileData`]: first the
//! opened file. Then, for each `FileAsk` in order, it notes that the change is complete, if there
//! is one, and sends the bytes of the ranges.

use std::ops::Range;

use longhaul_files::CHUNK;
use longhaul_files::digest::Digest;
use longhaul_proto::remembered::Remembered;
use longhaul_proto::time::Span;
use longhaul_proto::units::{LossRatio, Rate};

use crate::error::{Error, ErrorKind};

/// The name of the service.
pub const SERVICE: &str = "file";

/// The version of the service's messages. Each new field that a receiver must not skip raises the
/// version.
pub(crate) const VERSION: u32 = 3;

/// The lowest version that knows reads.
pub(crate) const READS: u32 = 1;

/// The lowest version that knows changes: [`FileAsk::edit`] and [`FileAsk::change`].
pub(crate) const CHANGES: u32 = 2;

/// The lowest version that knows [`FileAsk::clip`].
pub(crate) const CLIPS: u32 = 3;

/// Maximum number of ranges in one message.
pub const MOST_RANGES: usize = 4096;

/// Maximum bytes of content in one message.
pub const PIECE: usize = 256 << 10;

/// A request of the client: a change, and the ranges to read after it. Each may be missing.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FileAsk {
    /// The path, relative to the server's root; over ssh relative to the home folder, or absolute.
    /// In the first message only.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// The requested ranges, at most 4096.
    #[prost(message, repeated, tag = "2")]
    pub ranges: Vec<FileRange>,
    /// Open the file for changes as well, and create it if it is missing. In the first message
    /// only.
    #[prost(bool, tag = "3")]
    pub edit: bool,
    /// A change, made before the ranges are read.
    #[prost(message, optional, tag = "4")]
    pub change: Option<FileChange>,
    /// Leave out the parts of the ranges beyond the end of the file, because the client does not
    /// know the file's size yet.
    #[prost(bool, tag = "5")]
    pub clip: bool,
    /// The rate that an earlier copy found on this path, in bits a second; zero: none. In the first
    /// message only.
    #[prost(uint64, tag = "6")]
    pub remembered_bps: u64,
    /// The round-trip time of the copy that found `remembered_bps`, in nanoseconds.
    #[prost(uint64, tag = "7")]
    pub remembered_rtt_nanos: u64,
}

/// A change of the open file: exactly one of `bytes`, `length` and `sync`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FileChange {
    /// The offset of `bytes`.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// The bytes to write, at most 256 KiB.
    #[prost(bytes = "vec", tag = "2")]
    pub bytes: Vec<u8>,
    /// The BLAKE3 hash of `bytes`.
    #[prost(bytes = "vec", tag = "3")]
    pub digest: Vec<u8>,
    /// The new length of the file.
    #[prost(uint64, optional, tag = "4")]
    pub length: Option<u64>,
    /// Put all changes on the disk.
    #[prost(bool, tag = "5")]
    pub sync: bool,
}

/// A valid [`FileChange`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Write the bytes at the offset.
    Write(u64, Vec<u8>),
    /// Set the length.
    SetLen(u64),
    /// Put all changes on the disk.
    Sync,
}

impl From<Change> for FileChange {
    fn from(change: Change) -> FileChange {
        let none = FileChange::default();
        match change {
            Change::Write(offset, bytes) => {
                let digest = blake3::hash(&bytes).as_bytes().to_vec();
                FileChange { offset, bytes, digest, ..none }
            }
            Change::SetLen(len) => FileChange { length: Some(len), ..none },
            Change::Sync => FileChange { sync: true, ..none },
        }
    }
}

impl FileChange {
    /// Checks the change, and compares its bytes with their digest.
    ///
    /// # Errors
    /// The message is not exactly one change, a limit is exceeded, or the bytes are damaged.
    pub fn check(self) -> Result<Change, Error> {
        let wrong = |what: &str| Error::new(ErrorKind::Unfinished, what);
        let FileChange { offset, bytes, digest, length: len, sync } = self;
        match (bytes.is_empty(), len, sync) {
            (false, None, false) => {
                let beyond = offset.checked_add(bytes.len() as u64);
                if bytes.len() > PIECE || beyond.is_none_or(|end| i64::try_from(end).is_err()) {
                    return Err(wrong(
                        "a write is longer than 256 KiB or ends beyond 2^63 - 1 bytes",
                    ));
                }
                let digest: Digest =
                    digest.try_into().map_err(|_| wrong("a write has no digest"))?;
                match *blake3::hash(&bytes).as_bytes() == digest {
                    true => Ok(Change::Write(offset, bytes)),
                    false => Err(Error::new(
                        ErrorKind::Verification,
                        "the bytes of a write differ from their digest",
                    )),
                }
            }
            (true, Some(len), false) if i64::try_from(len).is_ok() => Ok(Change::SetLen(len)),
            (true, Some(_), false) => Err(wrong("the new length exceeds 2^63 - 1 bytes")),
            (true, None, true) => Ok(Change::Sync),
            _ => Err(wrong("a change must have one of bytes, length and sync")),
        }
    }
}

/// Bytes of a file, at least one.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct FileRange {
    /// The offset of the first byte.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// The number of bytes.
    #[prost(uint64, tag = "2")]
    pub len: u64,
}

/// The opened file. All reads return this version, or the version after the client's last change.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct FileOpened {
    /// Bytes of content.
    #[prost(uint64, tag = "1")]
    pub size: u64,
    /// The modification time, in seconds since 1970 UTC.
    #[prost(sint64, tag = "2")]
    pub seconds: i64,
    /// Nanoseconds of the modification time.
    #[prost(uint32, tag = "3")]
    pub nanos: u32,
}

/// The first message that is not empty has the opened file. Each later message has the next bytes
/// of a range, or says that a change is complete. The bytes never cross the boundary of a chunk
/// (1 MiB). An empty message says that the server still waits for its disk.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FileData {
    /// The bytes, at most 256 KiB.
    #[prost(bytes = "vec", tag = "1")]
    pub bytes: Vec<u8>,
    /// With the last bytes of a whole chunk: the chunk's value. This is the BLAKE3 chaining value
    /// for the chunk's place in the file, or the hash of the file if the file has one chunk. The
    /// server takes the value from its cache if an earlier read of this version stored it there;
    /// otherwise the server hashes the bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
    /// The opened file, in the first message that is not empty.
    #[prost(message, optional, tag = "3")]
    pub opened: Option<FileOpened>,
    /// Whether the oldest unanswered change is complete.
    #[prost(bool, tag = "4")]
    pub changed: bool,
}

/// The part of a range that lies in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// The number of the chunk in the file, from 0.
    pub chunk: u64,
    /// The offset in the file of the first byte.
    pub start: u64,
    /// The number of bytes.
    pub len: usize,
    /// Whether the portion is the whole chunk.
    pub is_whole: bool,
}

impl Portion {
    /// Returns the offset after the last byte.
    pub fn end(&self) -> u64 {
        self.start + self.len as u64
    }
}

/// Returns the portions of `range`, which lies within a file of `size` bytes.
pub fn portions(range: Range<u64>, size: u64) -> impl Iterator<Item = Portion> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        let chunk = start / CHUNK;
        let chunk_end = (chunk + 1).saturating_mul(CHUNK);
        let end = chunk_end.min(range.end);
        let first = start;
        (first < end).then(|| {
            start = end;
            let is_whole = first == chunk * CHUNK && end == chunk_end.min(size);
            Portion { chunk, start: first, len: (end - first) as usize, is_whole }
        })
    })
}

impl FileAsk {
    /// Returns the ranges, each within a file of `size` bytes.
    ///
    /// # Errors
    /// A range is empty, or extends beyond the file although `clip` is not set, or there are too
    /// many ranges.
    pub fn check(&self, size: u64) -> Result<Vec<Range<u64>>, Error> {
        let wrong = |what: String| Error::new(ErrorKind::Usage, what);
        if self.ranges.len() > MOST_RANGES {
            let count = self.ranges.len();
            return Err(wrong(format!(
                "{count} ranges in one message; {MOST_RANGES} is the limit"
            )));
        }
        let within = |FileRange { offset, len }: &FileRange| {
            let end =
                offset.checked_add(*len).filter(|end| *len > 0 && (self.clip || *end <= size));
            let range = end.map(|end| *offset..end.min(size));
            range.ok_or_else(|| {
                wrong(format!(
                    "the range of {len} bytes at offset {offset} is empty or ends beyond the file \
                     of {size} bytes"
                ))
            })
        };
        let ranges: Result<Vec<_>, _> = self.ranges.iter().map(within).collect();
        ranges.map(|ranges| ranges.into_iter().filter(|range| !range.is_empty()).collect())
    }

    /// Sets the rate and the round-trip time that an earlier copy found.
    pub(crate) fn remember(&mut self, path: Remembered) {
        self.remembered_bps = path.rate.as_bps();
        self.remembered_rtt_nanos = path.rtt.as_nanos();
    }

    /// Returns the number of bytes that may be in flight at the start of the answer; `None` if no
    /// copy found a rate, or if `rtt` does not fit that copy's path.
    pub(crate) fn flight(&self, rtt: Span) -> Option<u64> {
        let (rate, was) = (self.remembered_bps, self.remembered_rtt_nanos);
        let path = Remembered {
            rate: Rate::from_bps(rate),
            rtt: Span::from_nanos(was),
            loss: LossRatio::NONE,
        };
        (rate > 0 && path.fits(rtt)).then(|| path.flight(rtt).get())
    }
}

impl FileOpened {
    /// Checks the server's description of a file.
    ///
    /// # Errors
    /// No file can have these attributes.
    pub fn check(self) -> Result<FileOpened, Error> {
        match self.nanos < 1_000_000_000 && i64::try_from(self.size).is_ok() {
            true => Ok(self),
            false => Err(Error::new(
                ErrorKind::Unfinished,
                "the server opened a file with impossible attributes",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_split_at_chunk_ends_and_marks_whole_chunks() {
        let size = 3 * CHUNK + 10;
        let cut = |range| -> Vec<(u64, u64, usize, bool)> {
            let portions = portions(range, size);
            portions.map(|p| (p.chunk, p.start, p.len, p.is_whole)).collect()
        };
        assert_eq!(cut(0..5), [(0, 0, 5, false)]);
        assert_eq!(cut(5..5), []);
        let mega = CHUNK as usize;
        let all = [
            (0, 1, mega - 1, false),
            (1, CHUNK, mega, true),
            (2, 2 * CHUNK, mega, true),
            (3, 3 * CHUNK, 10, true),
        ];
        assert_eq!(cut(1..size), all);
        assert_eq!(cut(3 * CHUNK..size - 1), [(3, 3 * CHUNK, 9, false)]);
    }

    #[test]
    fn a_change_is_either_a_write_or_a_length_or_a_sync_and_written_bytes_have_their_digest() {
        let write = |at| FileChange::from(Change::Write(at, vec![1, 2]));
        for change in [Change::Write(7, vec![1, 2]), Change::SetLen(0), Change::Sync] {
            assert_eq!(FileChange::from(change.clone()).check(), Ok(change));
        }
        let last = i64::MAX as u64 - 2;
        assert!(
            write(last).check().is_ok() && FileChange::from(Change::SetLen(last)).check().is_ok()
        );
        let long = FileChange::from(Change::Write(0, vec![0; PIECE + 1]));
        let damaged = FileChange { bytes: vec![1, 3], ..write(0) };
        for bad in [
            FileChange::default(),
            FileChange { sync: true, ..write(0) },
            FileChange { length: Some(5), ..write(0) },
            FileChange { sync: true, ..FileChange::from(Change::SetLen(0)) },
            FileChange { digest: Vec::new(), ..write(0) },
            FileChange::from(Change::SetLen(1 << 63)),
            write(last + 1),
            write(u64::MAX),
            long,
            damaged,
        ] {
            assert!(bad.clone().check().is_err(), "{:?}", (bad.offset, bad.length, bad.sync));
        }
    }

    #[test]
    fn a_remembered_rate_allows_bytes_in_flight_only_if_the_round_trip_fits() {
        let millis = Span::from_millis;
        let mut ask = FileAsk::default();
        assert_eq!(ask.flight(millis(100)), None);
        let (rate, loss) = (Rate::from_mbps(800), LossRatio::NONE);
        ask.remember(Remembered { rate, rtt: millis(100), loss });
        // 800 Mbit/s carry 10 MB in 100 ms, and half of that may be in flight. A path with less
        // than half of the remembered round-trip time counts as another path.
        assert_eq!(ask.flight(millis(100)), Some(5_000_000));
        assert_eq!(ask.flight(millis(49)), None);
        (ask.remembered_bps, ask.remembered_rtt_nanos) = (u64::MAX, u64::MAX);
        assert_eq!(ask.flight(millis(100)), None);
    }

    #[test]
    fn impossible_ranges_and_attributes_are_refused_and_clip_shortens_ranges() {
        let ask = |ranges: &[(u64, u64)]| {
            let ranges = ranges.iter().map(|&(offset, len)| FileRange { offset, len }).collect();
            FileAsk { ranges, ..FileAsk::default() }.check(100)
        };
        assert_eq!(ask(&[(0, 100), (99, 1)]), Ok(vec![0..100, 99..100]));
        for bad in [(0, 0), (0, 101), (100, 1), (u64::MAX, 2), (1, u64::MAX)] {
            assert!(ask(&[bad]).is_err(), "{bad:?}");
        }
        assert!(ask(&[(0, 1); MOST_RANGES]).is_ok());
        let clipped = |offset, len| {
            let ranges = vec![FileRange { offset, len }];
            let asked = FileAsk { ranges, clip: true, ..FileAsk::default() }.check(100).ok()?;
            Some(asked.first().map(|range| (range.start, range.end)))
        };
        assert_eq!(clipped(90, 20), Some(Some((90, 100))));
        assert_eq!(clipped(1, u64::MAX - 1), Some(Some((1, 100))));
        assert_eq!(clipped(200, 1), Some(None));
        assert_eq!((clipped(0, 0), clipped(2, u64::MAX)), (None, None));
        assert!(ask(&[(0, 1); MOST_RANGES + 1]).is_err());
        let opened = |size, nanos| FileOpened { size, nanos, seconds: -1 }.check().is_ok();
        assert!(opened(i64::MAX as u64, 999_999_999));
        assert!(!opened(1 << 63, 0) && !opened(0, 1_000_000_000));
    }
}
