//! A limit on how often one chunk may fail verification. Without this limit, a hostile sender could
//! repeat a wrong chunk forever.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind};

/// Maximum number of failures of one chunk. An honest sender gives up before the fifth.
const MOST: u32 = 4;

/// The chunks that have failed verification and have not passed since.
#[derive(Debug, Default)]
pub(super) struct WrongChunks(BTreeMap<u64, u32>);

impl WrongChunks {
    /// Counts a chunk that differs from its digest.
    ///
    /// # Errors
    /// [`ErrorKind::Verification`]: this chunk has failed too often.
    pub(super) fn note(&mut self, chunk: u64) -> Result<(), Error> {
        let times = self.0.entry(chunk).or_default();
        *times += 1;
        if *times <= MOST {
            return Ok(());
        }
        let what =
            format!("chunk {chunk} failed verification {times} times: its digest does not match");
        let error = Error::new(ErrorKind::Verification, what);
        Err(error.advise("check the memory and the disk of both hosts"))
    }

    /// Removes a chunk that passed verification, or that is no longer needed.
    pub(super) fn forget(&mut self, chunk: u64) {
        self.0.remove(&chunk);
    }
}
