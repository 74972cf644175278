//! Authentication codes that prove the author of a message to the server.
//!
//! A subscriber has the encryption keys of all senders, so it could forge their messages. So each
//! message ends with a code under a key that only its sender and the server have.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use longhaul_session::Exporter;

/// Length of the code in bytes.
pub(super) const CODE: usize = 16;

/// A sender's key for its codes, derived from its session.
#[derive(Clone)]
pub(super) struct Author(Key);

impl Author {
    pub(super) fn of(exporter: &Exporter) -> Author {
        Author(Key::new(HMAC_SHA256, &exporter.export(b"longhaul group author", &[])))
    }

    #[cfg(test)]
    pub(super) fn test(secret: u8) -> Author {
        Author(Key::new(HMAC_SHA256, &[secret; 32]))
    }

    pub(super) fn code(&self, message: &[u8]) -> [u8; CODE] {
        let signed = sign(&self.0, message);
        let code = signed.as_ref().first_chunk();
        *code.expect("SHA-256 is longer")
    }

    pub(super) fn made(&self, message: &[u8], code: &[u8; CODE]) -> bool {
        verify_slices_are_equal(&self.code(message), code).is_ok()
    }
}
