//! A source and a destination that are not files: a reader of unknown length, and a writer that
//! cannot seek.

use std::fmt;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind};
use longhaul_files::CHUNK;
use longhaul_files::digest::{Digest, RootBuilder};
use longhaul_files::manifest::FileTime;
use longhaul_text::reason;

/// Maximum number of failed verifications that one output survives, of all its chunks together.
const MOST_WRONG: u32 = 4;
/// Maximum bytes per call of a writer.
const PIECE: usize = 1 << 16;
static ZEROS: [u8; PIECE] = [0; PIECE];

/// Content of unknown length that replaces a source file. Clones refer to the same content, which
/// is read once.
#[derive(Clone)]
pub struct Input(Arc<Mutex<Option<Box<dyn Read + Send>>>>);

impl Input {
    /// Returns an input that reads from `reader`.
    pub fn new(reader: impl Read + Send + 'static) -> Input {
        Input(Arc::new(Mutex::new(Some(Box::new(reader)))))
    }

    pub(crate) fn take(&self) -> Option<Box<dyn Read + Send>> {
        // No thread panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Input")
    }
}

/// A writer that gets the content in order, instead of a destination file. Clones refer to the same
/// writer.
#[derive(Clone)]
pub struct Output(Arc<Shared>);

struct Shared {
    /// Whether a call of the writer is running. The call may last long, because the reader of the
    /// output may be slow.
    waits: AtomicBool,
    state: Mutex<State>,
}

struct State {
    writer: Box<dyn Write + Send>,
    /// The version of the file, once its writing has begun.
    version: Option<(u64, FileTime, u64)>,
    /// Number of chunks written.
    chunks: u64,
    /// Computes the digest of the file; `None` before the file begins, and after a hole, because a
    /// hole has no digest.
    root: Option<RootBuilder>,
    wrong: u32,
    /// The attempt that may write; an earlier attempt may still be running.
    attempt: u64,
}

impl State {
    /// Fails if a later attempt has started.
    fn check(&self, attempt: u64) -> Result<(), Error> {
        match self.attempt == attempt {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Unfinished, "another attempt writes the output")),
        }
    }
}

impl Output {
    /// Returns an output to `writer`.
    pub fn new(writer: impl Write + Send + 'static) -> Output {
        let (writer, root) = (Box::new(writer), None);
        let state = State { writer, version: None, chunks: 0, root, wrong: 0, attempt: 0 };
        Output(Arc::new(Shared { waits: AtomicBool::new(false), state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Only a panic of the writer poisons the lock, and such a panic ends the copy.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the writer is in a call.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.waits.load(Ordering::Relaxed)
    }

    /// Starts or resumes a file of `size` bytes. Returns the number of this attempt, and how many
    /// chunks were written. From now on earlier attempts cannot write.
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

    /// Writes the next chunk, which was verified before.
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

    /// Writes the next chunk, a hole of `len` zeros. A file with a hole gets no digest.
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

    /// Ends the file; returns its digest, or `None` if it has a hole.
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

    /// Runs `work` to its end, unless a later attempt has started. No attempt can start meanwhile.
    fn wait_for(
        &self,
        attempt: u64,
        work: impl FnOnce(&mut State) -> std::io::Result<()>,
    ) -> Result<(), Error> {
        let mut state = self.state();
        let written = state.check(attempt).map(|()| {
            // Set under the lock, so that another attempt does not clear the flag meanwhile.
            self.0.waits.store(true, Ordering::Relaxed);
            let written = work(&mut state);
            self.0.waits.store(false, Ordering::Relaxed);
            written
        });
        drop(state);
        let written = written?;
        written.map_err(|error| {
            Error::new(ErrorKind::LocalFile, format!("cannot write the output: {}", reason(&error)))
        })
    }

    /// Records a chunk that failed verification; fails after too many of them.
    pub(crate) fn note_wrong(&self, chunk: u64) -> Result<(), Error> {
        let mut state = self.state();
        state.wrong += 1;
        if state.wrong <= MOST_WRONG {
            return Ok(());
        }
        let what = format!("chunks failed verification {} times, chunk {chunk} last", state.wrong);
        let error = Error::new(ErrorKind::Verification, what);
        Err(error.advise("check the memory and the disk of both hosts"))
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Output")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::thread;

    use super::*;

    /// Reports each call, and returns from the call when the test allows it.
    struct Slow(SyncSender<()>, Receiver<()>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.send(()).expect("the test waits");
            self.1.recv().expect("the test allows it");
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_earlier_attempt_does_not_hide_that_the_writer_is_in_a_call() {
        for _ in 0..50 {
            let (called, calls) = sync_channel(0);
            let (allow, allowed) = sync_channel(0);
            let output = Output::new(Slow(called, allowed));
            let begin = || output.begin(1, (FileTime::default(), 0)).expect("nothing is written");
            let [(earlier, _), (attempt, _)] = [begin(), begin()];
            thread::scope(|scope| {
                let lock = output.state();
                let write = |attempt| output.write(attempt, b"x", Digest::default());
                let refused = scope.spawn(move || write(earlier));
                let written = scope.spawn(move || write(attempt));
                thread::yield_now();
                drop(lock);
                calls.recv().expect("the writer is called");
                let is_waiting = output.is_waiting();
                allow.send(()).expect("the writer waits");
                assert!(is_waiting);
                written.join().expect("no panic").expect("it is written");
                refused.join().expect("no panic").expect_err("a later attempt has started");
            });
            assert!(!output.is_waiting());
        }
    }
}
