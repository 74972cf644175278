//! The journal of a partial file, which may be torn, corrupted or of another file.
//!
//! If the first byte is even, the other bytes are the journal. Otherwise they choose the content of
//! a journal with correct checksums, which reaches the code after the check of the checksums.

use longhaul_files::CHUNK;
use longhaul_files::journal::{Header, Journal};
use longhaul_files::manifest::FileTime;

use super::input::Input;

/// Checks that the parsed header and records, encoded again, equal the start of the journal.
pub fn run(bytes: &[u8]) {
    parsed(bytes);
}

pub fn parsed(bytes: &[u8]) -> Option<Journal> {
    let (mode, bytes) = bytes.split_first()?;
    if mode & 1 == 0 { check(bytes) } else { check(&written(bytes)) }
}

fn check(bytes: &[u8]) -> Option<Journal> {
    let journal = Journal::decode(bytes)?;
    let mut again = journal.header.encode();
    for (chunk, value) in &journal.values {
        assert!(*chunk < journal.header.size.div_ceil(CHUNK));
        again.extend(journal.header.encode_record(*chunk, value));
    }
    assert_eq!(journal.sound, again.len() as u64);
    assert_eq!(bytes[..again.len()], again[..]);
    Some(journal)
}

/// Returns an arbitrary journal, perhaps with records of another journal and arbitrary bytes.
fn written(bytes: &[u8]) -> Vec<u8> {
    let mut input = Input::new(bytes);
    let modified = FileTime { seconds: input.any() as i64, nanos: input.any_u32() };
    let header = Header { size: input.any(), modified, version: input.any() };
    let mut journal = header.encode();
    while !input.is_empty() {
        match input.byte() {
            0 => journal.extend_from_slice(input.slice()),
            1 => {
                let other = Header { size: input.any(), ..header };
                journal.extend(other.encode_record(input.any(), &[input.byte(); 32]));
            }
            _ => journal.extend(header.encode_record(input.any(), &[input.byte(); 32])),
        }
    }
    journal
}
