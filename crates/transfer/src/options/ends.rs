//! The ends of a copy that are no files: a reader of unknown length, and a writer that cannot go
//! back.

use std::fmt;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind};
use longhaul_files::CHUNK;
use longhaul_files::digest::{Digest, RootBuilder};
use longhaul_files::manifest::FileTime;
use longhaul_text::reason;

/// How often chunks may come wrong for one output.
const MOST_WRONG: u32 = 4;
/// A writer gets no more at once, so that its caller can end soon.
const PIECE: usize = 1 << 16;

/// What a copy reads in place of a file: content whose length nobody knows. Clones are the same
/// content, which is read once.
#[derive(Clone)]
pub struct Input(Arc<Mutex<Option<Box<dyn Read + Send>>>>);

impl Input {
    /// All that `reader` brings.
    pub fn new(reader: impl Read + Send + 'static) -> Input {
        Input(Arc::new(Mutex::new(Some(Box::new(reader)))))
    }

    /// The reader, unless it was taken.
    pub(crate) fn take(&self) -> Option<Box<dyn Read + Send>> {
        // Nothing panics while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Input")
    }
}

/// What a copy writes to in place of a file, from the first byte to the last. Clones are the same.
#[derive(Clone)]
pub struct Output(Arc<Shared>);

struct Shared {
    /// The writer is at work: whoever reads from it may be slow.
    waits: AtomicBool,
    state: Mutex<State>,
}

struct State {
    writer: Box<dyn Write + Send>,
    /// The version of the file that is written, once that has begun.
    version: Option<(u64, FileTime, u64)>,
    /// Chunks that were written.
    chunks: u64,
    /// Nothing where a hole has no digest.
    root: Option<RootBuilder>,
    wrong: u32,
}

impl Output {
    /// An output to `writer`.
    pub fn new(writer: impl Write + Send + 'static) -> Output {
        let (writer, root) = (Box::new(writer), None);
        let state = State { writer, version: None, chunks: 0, root, wrong: 0 };
        Output(Arc::new(Shared { waits: AtomicBool::new(false), state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A writer that panics takes its thread along, and the copy.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the writer has not come back yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.waits.load(Ordering::Relaxed)
    }

    /// Begins or goes on with a file of `size` bytes; how many chunks of it were written.
    ///
    /// # Errors
    /// [`ErrorKind::RemoteFile`]: chunks of another version were written.
    pub(crate) fn begin(&self, size: u64, version: (FileTime, u64)) -> Result<u64, Error> {
        let mut state = self.state();
        let version = (size, version.0, version.1);
        if state.chunks > 0 && state.version != Some(version) {
            let what = "the file changed on the other side while it was read";
            return Err(
                Error::new(ErrorKind::RemoteFile, what).advise("run the same command again")
            );
        }
        if state.chunks == 0 {
            (state.version, state.root) = (Some(version), Some(RootBuilder::new(size)));
        }
        Ok(state.chunks)
    }

    /// Writes the next chunk, whose value is verified.
    ///
    /// # Errors
    /// [`ErrorKind::LocalFile`]: the writer takes no more.
    pub(crate) fn write(&self, content: &[u8], value: Option<Digest>) -> Result<(), Error> {
        self.write_part(content)?;
        let mut state = self.state();
        let chunk = state.chunks;
        if let (Some(root), Some(value)) = (&mut state.root, value) {
            root.give(chunk, value);
        }
        state.chunks += 1;
        Ok(())
    }

    /// Writes a part of a chunk.
    ///
    /// # Errors
    /// As [`Output::write`].
    pub(crate) fn write_part(&self, content: &[u8]) -> Result<(), Error> {
        self.wait_for(|writer| content.chunks(PIECE).try_for_each(|piece| writer.write_all(piece)))
    }

    /// What was written has no digest: a hole was.
    pub(crate) fn no_digest(&self) {
        self.state().root = None;
    }

    /// All is written; the digest of it.
    ///
    /// # Errors
    /// As [`Output::write`].
    pub(crate) fn finish(&self, size: u64) -> Result<Option<Digest>, Error> {
        self.wait_for(|writer| writer.flush())?;
        let state = self.state();
        debug_assert_eq!(state.chunks, size.div_ceil(CHUNK));
        Ok(state.root.as_ref().and_then(RootBuilder::root))
    }

    fn wait_for(
        &self,
        work: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<(), Error> {
        self.0.waits.store(true, Ordering::Relaxed);
        let written = work(&mut *self.state().writer);
        self.0.waits.store(false, Ordering::Relaxed);
        written.map_err(|error| {
            Error::new(ErrorKind::LocalFile, format!("cannot write the output: {}", reason(&error)))
        })
    }

    /// A chunk came wrong.
    ///
    /// # Errors
    /// [`ErrorKind::Verification`]: that was too often.
    pub(crate) fn note_wrong(&self, chunk: u64) -> Result<(), Error> {
        let mut state = self.state();
        state.wrong += 1;
        if state.wrong <= MOST_WRONG {
            return Ok(());
        }
        let what = format!("chunks came wrong {} times, the last of them {chunk}", state.wrong);
        let error = Error::new(ErrorKind::Verification, what);
        Err(error.advise("suspect memory or disk of one of the hosts"))
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Output")
    }
}
