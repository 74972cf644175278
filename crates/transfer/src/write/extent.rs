//! A part of a pipe (an extent) as the destination. A pipe is a file of unknown length that a
//! client sends as several parts, each by its own transfer. This module writes a part to its place
//! in that file.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::destination::{Open, Opened, Reporter};
use super::writing::{Store, Writing};
use crate::control::pipe::MAX_EXTENT;
use crate::error::{Error, ErrorKind};
use longhaul_files::digest::{self, Digest};
use longhaul_files::{ChunkKind, Mark, PipeFile, Place, Plan, SinkOutcome, Verdict, VirtualObject};

/// The file of a pipe, shared by the parts of the pipe; `None` before the file is created and after
/// the pipe has ended.
#[derive(Default)]
pub(crate) struct PipedFile(Mutex<Option<PipeFile>>);

impl PipedFile {
    pub(crate) fn begin(&self, place: &Place) -> Result<(), Error> {
        let file = PipeFile::create(place)?;
        *self.file() = Some(file);
        Ok(())
    }

    /// Gives the file its name. Fails if parts are missing, the digest differs, a write failed, or
    /// the pipe has ended.
    pub(crate) fn finish(&self, total: u64, digest: &Digest) -> Result<(), Error> {
        let file = self.file().take();
        let finished = file.map_or(Ok(false), |mut file| file.finish(total, digest))?;
        if finished {
            return Ok(());
        }
        let what = "the content of the pipe failed verification";
        Err(Error::new(ErrorKind::Verification, what).advise("run the pipe again"))
    }

    /// Ends the pipe: removes the file; parts in progress fail.
    pub(crate) fn end(&self) {
        drop(self.file().take());
    }

    /// No thread panics while it holds the lock.
    fn file(&self) -> MutexGuard<'_, Option<PipeFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, chunk: u64, content: &[u8]) -> Result<(), Error> {
        let over = || Error::new(ErrorKind::Unfinished, "the pipe of this part has ended");
        Ok(self.file().as_mut().ok_or_else(over)?.write(chunk, content)?)
    }
}

/// A part of a pipe.
pub(crate) struct ExtentOf {
    pub(crate) file: Arc<PipedFile>,
    /// The position of the part's first chunk in the pipe, in chunks.
    pub(crate) first: u64,
}

struct Extent {
    to: ExtentOf,
    object: VirtualObject,
    size: u64,
    missing: BTreeSet<u64>,
    written: u64,
}

impl Open for ExtentOf {
    fn open(
        self: Box<Self>,
        object: VirtualObject,
        _prefix: u64,
        reporter: Reporter,
    ) -> Result<Box<dyn Opened>, Error> {
        let manifest = object.manifest();
        let file = manifest.entries().first().filter(|file| file.holes().is_empty());
        let size = file.and_then(|file| file.size()).unwrap_or(0);
        if !manifest.is_single() || !(1..=MAX_EXTENT).contains(&size) {
            let what =
                format!("a part of a pipe is a file of 1 to {MAX_EXTENT} bytes without holes");
            return Err(Error::new(ErrorKind::Usage, what));
        }
        let missing = object.manifest_chunks()..object.chunks();
        let store = Extent {
            to: *self,
            object: object.clone(),
            size,
            missing: missing.collect(),
            written: 0,
        };
        Ok(Box::new(Writing::begin(object, store, Plan::default(), reporter)))
    }
}

impl Store for Extent {
    fn needs(&self, chunk: u64) -> bool {
        self.missing.contains(&chunk)
    }

    fn missing_chunks(&self) -> u64 {
        self.missing.len() as u64
    }

    fn bytes_written(&self) -> u64 {
        self.written
    }

    fn files_done(&self) -> u64 {
        0
    }

    fn write_chunk(
        &mut self,
        chunk: u64,
        content: &[u8],
        expected: &Digest,
    ) -> Result<Verdict, Error> {
        let Some(ChunkKind::Large { chunk: own, .. }) = self.object.chunk_kind(chunk) else {
            return Ok(Verdict::Mismatch);
        };
        let is_whole = content.len() == self.object.chunk_content(chunk);
        if !is_whole || digest::file_value(self.size, own, content) != *expected {
            return Ok(Verdict::Mismatch);
        }
        if self.missing.contains(&chunk) {
            self.to.file.write(self.to.first + own, content)?;
            self.missing.remove(&chunk);
            self.written += content.len() as u64;
        }
        Ok(Verdict::Written)
    }

    fn finish(self) -> Result<(SinkOutcome, Option<Mark>), Error> {
        Ok((SinkOutcome { files: 1, bytes: self.written, ..SinkOutcome::default() }, None))
    }
}
