//! Messages between clients and servers of a remote file.

use longhaul_files::CHUNK;
use longhaul_transfer::control::file::{Change, FileAsk, FileOpened, PIECE, portions};
use prost::Message as _;

use super::input::Input;

/// Maximum number of portions of a range to check.
const SEEN: usize = 100;

/// Checks that accepted ranges are within the file, that each portion of a range lies in one chunk,
/// and that no accepted change makes a file longer than 2^63 - 1 bytes.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let Ok(opened) = FileOpened::decode(input.slice()) else { return };
    let Ok(FileOpened { size, .. }) = opened.check() else { return };
    while !input.is_empty() {
        let Ok(ask) = FileAsk::decode(input.slice()) else { continue };
        if let Some(Ok(change)) = ask.change.clone().map(|change| change.check()) {
            let end = match change {
                Change::Write(at, bytes) => {
                    assert!(!bytes.is_empty() && bytes.len() <= PIECE);
                    at + bytes.len() as u64
                }
                Change::SetLen(len) => len,
                Change::Sync => 0,
            };
            assert!(i64::try_from(end).is_ok());
        }
        let Ok(ranges) = ask.check(size) else { continue };
        for range in ranges {
            assert!(range.start < range.end && range.end <= size);
            let mut next = range.start;
            for portion in portions(range.clone(), size).take(SEEN) {
                assert_eq!((portion.start, portion.chunk), (next, next / CHUNK));
                assert!(portion.len > 0 && portion.len as u64 <= CHUNK);
                next = portion.end();
                assert!(next <= range.end && (next == range.end || next.is_multiple_of(CHUNK)));
                assert!(!portion.is_whole || portion.start.is_multiple_of(CHUNK));
            }
        }
    }
}
