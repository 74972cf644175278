//! Where `longhaul stream send` gets its frames.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use longhaul::units::Bytes;
use longhaul::{CancelHandle, StreamInput, blocking};

use super::pattern;
use crate::error::{Error, ErrorKind};

/// Poll interval for cancellation.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) enum Source {
    /// Generated frames.
    Pattern,
    /// Consecutive frames from a program that sets the pace.
    Pipe,
    /// Consecutive frames of a file.
    File(File, PathBuf),
    /// Each file is one frame, in the order of names.
    Folder(std::vec::IntoIter<PathBuf>),
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let what = format!("cannot read {}: {error}", path.display());
    Error::new(ErrorKind::LocalFile, what)
}

impl Source {
    /// Opens `-`, a file or a folder. Refuses a folder with a file of more than `frame` bytes, and
    /// skips empty files in a folder.
    pub(super) fn open(source: &OsStr, frame: Bytes) -> Result<Source, Error> {
        if source == "-" {
            return Ok(Source::Pipe);
        }
        let path = PathBuf::from(source);
        if !path.is_dir() {
            let file = File::open(&path).map_err(|error| failed(&path, &error))?;
            return Ok(Source::File(file, path));
        }
        let mut files = Vec::new();
        for entry in fs::read_dir(&path).map_err(|error| failed(&path, &error))? {
            let entry = entry.map_err(|error| failed(&path, &error))?.path();
            let size = fs::metadata(&entry).map_err(|error| failed(&entry, &error))?;
            if size.is_file() && size.len() > frame.get() {
                let what =
                    format!("{} has {} bytes, more than a frame", entry.display(), size.len());
                let error = Error::new(ErrorKind::Usage, what);
                return Err(error.advise("name the size of the largest frame with --frame"));
            }
            if size.is_file() && size.len() > 0 {
                files.push(entry);
            }
        }
        files.sort();
        Ok(Source::Folder(files.into_iter()))
    }

    /// The next frame; the last frame of a file or pipe may be shorter.
    fn next(&mut self, number: u64, frame: usize) -> Result<Option<Vec<u8>>, Error> {
        let (read, path) = match self {
            Source::Pattern => return Ok(Some(pattern::frame(number, frame))),
            Source::Pipe => (read(&mut io::stdin().lock(), frame), Path::new("stdin")),
            Source::File(file, path) => (read(file, frame), &**path),
            Source::Folder(files) => {
                let Some(path) = files.next() else { return Ok(None) };
                return fs::read(&path).map(Some).map_err(|error| failed(&path, &error));
            }
        };
        let bytes = read.map_err(|error| failed(path, &error))?;
        Ok((!bytes.is_empty()).then_some(bytes))
    }
}

fn read(from: &mut impl Read, frame: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(frame);
    from.take(frame as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Sends at most `most` frames. `stop` ends the sending of any source except a pipe. If the stream
/// ends early, this function returns no error; the call that finishes the stream does.
pub(super) fn feed(
    mut source: Source,
    frame: Bytes,
    fps: f64,
    most: u64,
    input: &StreamInput,
    stop: &CancelHandle,
) -> Result<(), Error> {
    let frame = usize::try_from(frame.get()).unwrap_or(usize::MAX);
    let interval = Duration::try_from_secs_f64(1.0 / fps).unwrap_or(Duration::MAX);
    let mut due = Instant::now();
    for number in 0..most {
        if !matches!(source, Source::Pipe) && !reached(due, stop) {
            return Ok(());
        }
        let Some(bytes) = source.next(number, frame)? else { return Ok(()) };
        if bytes.len() > frame {
            let what = format!("a file grew to {} bytes, more than a frame", bytes.len());
            return Err(Error::new(ErrorKind::LocalFile, what));
        }
        if blocking::wait(input.send(bytes)).is_err() {
            return Ok(());
        }
        // A source that is late by more than one frame interval does not catch up.
        let next = due.checked_add(interval).unwrap_or(due);
        due = if next.elapsed() > interval { Instant::now() } else { next };
    }
    Ok(())
}

/// Waits until `due`; false if `stop` is cancelled.
fn reached(due: Instant, stop: &CancelHandle) -> bool {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if stop.is_cancelled() {
            return false;
        }
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK));
    }
}
