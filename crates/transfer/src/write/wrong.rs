//! A limit on how often one chunk may come wrong.
//!
//! An honest sender has a limit of its own and reports it first. A hostile one would send a wrong
//! chunk again without an end, in each pass or many times within one.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind};

/// How often one chunk may differ from its digest. An honest sender gives up before the fifth time.
const MOST: u32 = 4;

/// The chunks that have come wrong and have not come right since.
#[derive(Debug, Default)]
pub(super) struct WrongChunks(BTreeMap<u64, u32>);

impl WrongChunks {
    /// Counts a chunk that differs from its digest.
    ///
    /// # Errors
    /// [`ErrorKind::Verification`]: this chunk has come wrong too often.
    pub(super) fn note(&mut self, chunk: u64) -> Result<(), Error> {
        let times = self.0.entry(chunk).or_default();
        *times += 1;
        if *times <= MOST {
            return Ok(());
        }
        let what = format!(
            "chunk {chunk} came wrong {times} times: what arrives is not what its digest says"
        );
        let error = Error::new(ErrorKind::Verification, what);
        Err(error.advise("suspect memory or disk of one of the hosts"))
    }

    /// Forgets a chunk that came right, or that is no longer needed.
    pub(super) fn forget(&mut self, chunk: u64) {
        self.0.remove(&chunk);
    }
}
