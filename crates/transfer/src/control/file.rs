//! The messages of the service `file`: reads of ranges of one file. The client's first [`FileAsk`]
//! names the file; the server answers with [`FileData`]: what was opened, then the bytes of the
//! ranges of each `FileAsk`, in the order in which they were asked for.

use std::ops::Range;

use longhaul_files::CHUNK;

use crate::error::{Error, ErrorKind};

/// The name of the service.
pub const SERVICE: &str = "file";

/// The version of its messages. It rises with each field that must not be skipped.
pub(crate) const VERSION: u32 = 1;

/// Ranges of one message, at most.
pub const MOST_RANGES: usize = 4096;

/// Bytes of content in one message, at most.
pub const PIECE: usize = 256 << 10;

/// The client's wish for ranges.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FileAsk {
    /// The path, relative to the server's root; over ssh relative to the home folder, or absolute.
    /// In the first message only.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// The ranges that are to come, at most 4096.
    #[prost(message, repeated, tag = "2")]
    pub ranges: Vec<FileRange>,
}

/// Bytes of a file, at least one.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct FileRange {
    /// The first byte.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// So many.
    #[prost(uint64, tag = "2")]
    pub len: u64,
}

/// The file is open, and this version of it is read from now on.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct FileOpened {
    /// Bytes of content.
    #[prost(uint64, tag = "1")]
    pub size: u64,
    /// When the content changed last, in seconds since 1970 UTC.
    #[prost(sint64, tag = "2")]
    pub seconds: i64,
    /// Nanoseconds more.
    #[prost(uint32, tag = "3")]
    pub nanos: u32,
}

/// What was opened, in the first message; or the next bytes of a range, none of two chunks of
/// 1 MiB. One with nothing says that the server still reads.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FileData {
    /// The bytes, at most 256 KiB.
    #[prost(bytes = "vec", tag = "1")]
    pub bytes: Vec<u8>,
    /// Behind the last bytes of a whole chunk: what the chunk hashed to when this server first read
    /// it. The BLAKE3 chaining value of the chunk's place in the file, the hash of a file of one
    /// chunk.
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
    /// The first byte, counted in the file.
    pub start: u64,
    /// So many bytes.
    pub len: usize,
    /// It is all that the chunk has.
    pub is_whole: bool,
}

impl Portion {
    /// The byte behind the last one.
    pub fn end(&self) -> u64 {
        self.start + self.len as u64
    }
}

/// The portions of `range`, which lies within a file of `size` bytes.
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
    /// The ranges, each within a file of `size` bytes.
    ///
    /// # Errors
    /// A range is empty or leaves the file, or there are too many.
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
    /// Checks what a server says of a file.
    ///
    /// # Errors
    /// No file is like that.
    pub fn check(self) -> Result<FileOpened, Error> {
        match self.nanos < 1_000_000_000 && i64::try_from(self.size).is_ok() {
            true => Ok(self),
            false => Err(Error::new(ErrorKind::Unfinished, "the server opened what is no file")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_where_chunks_end_and_knows_which_it_has_whole() {
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
    fn a_range_that_no_file_has_is_refused() {
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
