//! The journal of a partial file: its verified chunks and their values (hashes).
//!
//! A record is appended after its chunk's data are on disk. Records after the first torn or damaged
//! record do not count. A later copy uses a chunk without a record only if the source confirms the
//! chunk. If the journal belongs to another version of the source or to an older release, this
//! applies to every chunk.

use super::CHUNK;
use super::digest::Digest;
use super::manifest::FileTime;

const MAGIC: &[u8; 4] = b"lhj2";
const CHECK: usize = 8;
const HEADER: usize = 4 + 8 + 8 + 4 + 8 + CHECK;
const RECORD: usize = 8 + 32 + CHECK;

type Check = [u8; CHECK];

/// The version of the source file that the journal belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The source file's length in bytes.
    pub size: u64,
    /// When the source file was last modified.
    pub modified: FileTime,
    /// The stamp of the source file's version.
    pub version: u64,
}

impl Header {
    /// Returns the first bytes of a journal.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.size.to_be_bytes());
        out.extend_from_slice(&self.modified.seconds.to_be_bytes());
        out.extend_from_slice(&self.modified.nanos.to_be_bytes());
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&check(&[], &out));
        out
    }

    /// Returns the bytes of one record for a journal with this header.
    pub fn encode_record(&self, chunk: u64, value: &Digest) -> Vec<u8> {
        let mut out = Vec::with_capacity(RECORD);
        out.extend_from_slice(&chunk.to_be_bytes());
        out.extend_from_slice(value);
        out.extend_from_slice(&check(&self.check(), &out));
        out
    }

    fn check(&self) -> Check {
        let encoded = self.encode();
        encoded[HEADER - CHECK..].try_into().expect("a header ends with its check")
    }

    /// Returns the maximum length in bytes of a journal for a file of `size` bytes: two records for
    /// each chunk.
    pub fn longest(size: u64) -> u64 {
        (HEADER as u64).saturating_add(size.div_ceil(CHUNK).saturating_mul(2 * RECORD as u64))
    }
}

/// A decoded journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// The version of the source file.
    pub header: Header,
    /// Numbers of chunks within the file, and their values, in the order of writing.
    pub values: Vec<(u64, Digest)>,
    /// The number of valid bytes, which is the offset of the next record.
    pub sound: u64,
}

impl Journal {
    /// Decodes the valid part of a journal; `bytes` may be anything. Returns `None` if the header
    /// is invalid.
    pub fn decode(bytes: &[u8]) -> Option<Journal> {
        let (head, mut rest) = bytes.split_at_checked(HEADER)?;
        let (fields, sum) = head.split_at(HEADER - CHECK);
        if fields[..4] != MAGIC[..] || check(&[], fields) != *sum {
            return None;
        }
        let size = u64::from_be_bytes(fields[4..12].try_into().ok()?);
        let seconds = i64::from_be_bytes(fields[12..20].try_into().ok()?);
        let nanos = u32::from_be_bytes(fields[20..24].try_into().ok()?);
        let version = u64::from_be_bytes(fields[24..32].try_into().ok()?);
        let header = Header { size, modified: FileTime { seconds, nanos }, version };
        let (head_check, chunks) = (header.check(), size.div_ceil(CHUNK));
        let mut values = Vec::with_capacity(rest.len() / RECORD);
        while let Some((record, behind)) = rest.split_at_checked(RECORD) {
            let (fields, sum) = record.split_at(RECORD - CHECK);
            let chunk = u64::from_be_bytes(fields[..8].try_into().ok()?);
            if check(&head_check, fields) != *sum || chunk >= chunks {
                break;
            }
            values.push((chunk, fields[8..].try_into().ok()?));
            rest = behind;
        }
        let sound = (HEADER + values.len() * RECORD) as u64;
        Some(Journal { header, values, sound })
    }
}

/// Returns the checksum of a header or record, which detects torn and damaged bytes, but no
/// forgery.
fn check(head: &[u8], fields: &[u8]) -> Check {
    let mut hasher = blake3::Hasher::new();
    hasher.update(head).update(fields);
    let hash = hasher.finalize();
    hash.as_bytes()[..CHECK].try_into().expect("a hash is longer than a check")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn journal(records: u64) -> (Header, Vec<u8>) {
        let modified = FileTime { seconds: -5, nanos: 7 };
        let header = Header { size: 100 * CHUNK - 1, modified, version: 9 };
        let mut bytes = header.encode();
        for chunk in 0..records {
            bytes.extend(header.encode_record(chunk, &[chunk as u8; 32]));
        }
        (header, bytes)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn a_torn_tail_costs_its_own_record_only(records in 0u64..20, torn in 0usize..RECORD) {
            let (header, bytes) = journal(records + 1);
            let journal = Journal::decode(&bytes[..bytes.len() - RECORD + torn]).unwrap();
            prop_assert_eq!(journal.header, header);
            prop_assert_eq!(journal.values.len() as u64, records);
            prop_assert_eq!(journal.sound as usize, bytes.len() - RECORD);
        }

        #[test]
        fn a_flipped_bit_is_never_believed(at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let (header, mut bytes) = journal(10);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            match Journal::decode(&bytes) {
                None => prop_assert!(at < HEADER),
                Some(journal) => {
                    prop_assert!(at >= HEADER);
                    prop_assert_eq!(journal.header, header);
                    prop_assert_eq!(journal.values.len(), (at - HEADER) / RECORD);
                }
            }
        }

        #[test]
        fn random_bytes_are_not_a_journal(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(Journal::decode(&bytes), None);
        }
    }

    #[test]
    fn a_journal_of_an_older_release_is_not_decoded() {
        let (_, mut bytes) = journal(3);
        bytes[..4].copy_from_slice(b"lhj1");
        assert_eq!(Journal::decode(&bytes), None);
    }

    #[test]
    fn a_record_of_a_journal_with_another_header_is_not_believed() {
        let (header, bytes) = journal(0);
        for (version, records) in [(9, 1), (8, 0)] {
            let record = Header { version, ..header }.encode_record(0, &[0; 32]);
            let journal = Journal::decode(&[&bytes[..], &record].concat()).unwrap();
            assert_eq!(journal.values.len(), records, "{version}");
        }
    }

    #[test]
    fn a_record_of_a_chunk_beyond_the_end_of_the_file_does_not_count() {
        let (header, mut bytes) = journal(3);
        bytes.extend(header.encode_record(100, &[0; 32]));
        assert_eq!(Journal::decode(&bytes).unwrap().values.len(), 3);
    }

    #[test]
    fn the_longest_journal_has_a_header_and_each_chunk_twice() {
        let of = |chunks: u64| (HEADER as u64) + chunks * 2 * RECORD as u64;
        for (size, chunks) in [(0, 0), (1, 1), (CHUNK, 1), (CHUNK + 1, 2)] {
            assert_eq!(Header::longest(size), of(chunks), "{size}");
        }
        assert_eq!((HEADER, RECORD), (40, 48));
    }
}
