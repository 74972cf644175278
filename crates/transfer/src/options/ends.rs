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
static ZEROS: [u8; PIECE] = [0; PIECE];

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
    /// The attempt that may write: an earlier one may still be at work.
    attempt: u64,
}

impl State {
    /// # Errors
    /// A later attempt than `attempt` has begun.
    fn check(&self, attempt: u64) -> Result<(), Error> {
        match self.attempt == attempt {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Unfinished, "another attempt writes the output")),
        }
    }
}

impl Output {
    /// An output to `writer`.
    pub fn new(writer: impl Write + Send + 'static) -> Output {
        let (writer, root) = (Box::new(writer), None);
        let state = State { writer, version: None, chunks: 0, root, wrong: 0, attempt: 0 };
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

    /// Begins or goes on with a file of `size` bytes; the number of this attempt, and how many
    /// chunks were written. From now on earlier attempts can write nothing.
    ///
    /// # Errors
    /// [`ErrorKind::RemoteFile`]: chunks of another version were written.
    pub(crate) fn begin(&self, size: u64, version: (FileTime, u64)) -> Result<(u64, u64), Error> {
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
        state.attempt += 1;
        Ok((state.attempt, state.chunks))
    }

    /// Writes the next chunk, whose value is verified.
    ///
    /// # Errors
    /// [`ErrorKind::LocalFile`]: the writer takes no more. [`ErrorKind::Unfinished`]: a later
    /// attempt than `attempt` has begun.
    pub(crate) fn write(&self, attempt: u64, content: &[u8], value: Digest) -> Result<(), Error> {
        self.wait_for(attempt, |state| {
            content.chunks(PIECE).try_for_each(|piece| state.writer.write_all(piece))?;
            if let Some(root) = &mut state.root {
                root.give(state.chunks, value);
            }
            state.chunks += 1;
            Ok(())
        })
    }

    /// Writes the next chunk, which is `len` zeros of a hole. What has one gets no digest.
    ///
    /// # Errors
    /// As [`Output::write`].
    pub(crate) fn write_hole(&self, attempt: u64, len: usize) -> Result<(), Error> {
        self.wait_for(attempt, |state| {
            for at in (0..len).step_by(PIECE) {
                state.writer.write_all(&ZEROS[..(len - at).min(PIECE)])?;
            }
            state.root = None;
            state.chunks += 1;
            Ok(())
        })
    }

    /// All is written; the digest of it.
    ///
    /// # Errors
    /// As [`Output::write`].
    pub(crate) fn finish(&self, attempt: u64, size: u64) -> Result<Option<Digest>, Error> {
        let mut all = (0, None);
        self.wait_for(attempt, |state| {
            all = (state.chunks, state.root.as_ref().and_then(RootBuilder::root));
            state.writer.flush()
        })?;
        let (chunks, root) = all;
        if chunks != size.div_ceil(CHUNK) {
            let what = format!("{chunks} chunks were written of a file of {size} bytes");
            return Err(Error::new(ErrorKind::Verification, what));
        }
        Ok(root)
    }

    /// Does `work`, if no later attempt has begun: all of it before another can begin.
    fn wait_for(
        &self,
        attempt: u64,
        work: impl FnOnce(&mut State) -> std::io::Result<()>,
    ) -> Result<(), Error> {
        self.0.waits.store(true, Ordering::Relaxed);
        let mut state = self.state();
        let written = state.check(attempt).map(|()| work(&mut state));
        self.0.waits.store(false, Ordering::Relaxed);
        drop(state);
        let written = written?;
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
