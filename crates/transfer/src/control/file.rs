//! The messages of the service `file`: reads of ranges of one file. The client's first [`FileAsk`]
//! names the file. The server answers with [`FileData`]: first the opened file, then the bytes of
//! the ranges of each `FileAsk`, in the order of the requests.

use std::ops::Range;

use longhaul_files::CHUNK;

use crate::error::{Error, ErrorKind};

/// The name of the service.
pub const SERVICE: &str = "file";

/// The version of the service's messages. Each new field that a receiver must not skip raises it.
pub(crate) const VERSION: u32 = 1;

/// Maximum number of ranges in one message.
pub const MOST_RANGES: usize = 4096;

/// Maximum bytes of content in one message.
pub const PIECE: usize = 256 << 10;

/// The client's request for ranges.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FileAsk {
    /// The path, relative to the server's root; over ssh relative to the home folder, or absolute.
    /// In the first message only.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// The requested ranges, at most 4096.
    #[prost(message, repeated, tag = "2")]
    pub ranges: Vec<FileRange>,
}

/// Bytes of a file, at least one.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct FileRange {
    /// The first byte.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// The number of bytes.
    #[prost(uint64, tag = "2")]
    pub len: u64,
}

/// The file is open. All reads return this version.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct FileOpened {
    /// Bytes of content.
    #[prost(uint64, tag = "1")]
    pub size: u64,
    /// The modification time, in seconds since 1970 UTC.
    #[prost(sint64, tag = "2")]
    pub seconds: i64,
    /// Its nanoseconds.
    #[prost(uint32, tag = "3")]
    pub nanos: u32,
}

/// The opened file, in the first message; or the next bytes of a range, never from two chunks of 1
/// MiB. An empty message says that the server is still reading.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FileData {
    /// The bytes, at most 256 KiB.
    #[prost(bytes = "vec", tag = "1")]
    pub bytes: Vec<u8>,
    /// After the last bytes of a whole chunk: the value that the chunk had when this server first
    /// read it. It is the BLAKE3 chaining value for the chunk's place in the file, or the hash of
    /// the file if it has one chunk.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
    /// The file.
    #[prost(message, optional, tag = "3")]
    pub opened: Option<FileOpened>,
}

/// The part of a range that lies in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// The chunk, counted in the file.
    pub chunk: u64,
    /// The offset in the file of the first byte.
    pub start: u64,
    /// The number of bytes.
    pub len: usize,
    /// The portion is the whole chunk.
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
    /// A range is empty or extends beyond the file, or there are too many.
    pub fn check(&self, size: u64) -> Result<Vec<Range<u64>>, Error> {
        let wrong = |what: String| Error::new(ErrorKind::Usage, what);
        if self.ranges.len() > MOST_RANGES {
            let count = self.ranges.len();
            return Err(wrong(format!(
                "{count} ranges in one message; {MOST_RANGES} is the limit"
            )));
        }
        let within = |FileRange { offset, len }: &FileRange| {
            let end = offset.checked_add(*len).filter(|end| *len > 0 && *end <= size);
            end.map(|end| *offset..end).ok_or_else(|| {
                wrong(format!(
                    "no range of a file of {size} bytes begins at {offset} and has {len}"
                ))
            })
        };
        self.ranges.iter().map(within).collect()
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
    fn an_impossible_range_is_refused() {
        let ask = |ranges: &[(u64, u64)]| {
            let ranges = ranges.iter().map(|&(offset, len)| FileRange { offset, len }).collect();
            FileAsk { ranges, ..FileAsk::default() }.check(100)
        };
        assert_eq!(ask(&[(0, 100), (99, 1)]), Ok(vec![0..100, 99..100]));
        for bad in [(0, 0), (0, 101), (100, 1), (u64::MAX, 2), (1, u64::MAX)] {
            assert!(ask(&[bad]).is_err(), "{bad:?}");
        }
        assert!(ask(&[(0, 1); MOST_RANGES]).is_ok());
        assert!(ask(&[(0, 1); MOST_RANGES + 1]).is_err());
        let opened = |size, nanos| FileOpened { size, nanos, seconds: -1 }.check().is_ok();
        assert!(opened(i64::MAX as u64, 999_999_999));
        assert!(!opened(1 << 63, 0) && !opened(0, 1_000_000_000));
    }
}
