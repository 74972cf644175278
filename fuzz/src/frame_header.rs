//! The length before each message of the control stream.

use longhaul_transfer::session::frame::{self, HEADER, Header, MAX_FRAME};

/// Checks that a length above the limit is refused.
pub fn run(bytes: &[u8]) {
    let Some(header) = bytes.first_chunk::<HEADER>() else { return };
    match frame::decode_header(*header) {
        Ok(Header::Message(length) | Header::Goodbye(length)) => assert!(length <= MAX_FRAME),
        Err(error) => assert!(error.what.contains("the limit is")),
    }
}
