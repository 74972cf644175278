//! A pipe as the source or destination of a copy: `-` is standard input or output. Each received
//! chunk is verified before it is written.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use longhaul::{CancelHandle, CopyRequest, Location, MemoryFolder};
use rustix::event::PollFlags;

use crate::console::wait;
use crate::error::{Error, ErrorKind};

/// A writable pipe accepts this many bytes without blocking (pipe(7)).
const PIPE_BUF: usize = 4096;

#[derive(Clone, Debug)]
pub(super) enum Pipe {
    /// Standard input is the source, under this name.
    In(OsString),
    /// Standard output is the destination, under this name.
    Out(OsString),
}

pub(super) fn is_pipe(location: &Location) -> bool {
    matches!(location, Location::Local(path) if path.as_os_str() == "-")
}

pub(super) fn of(sources: &[Location], destination: &Location) -> Result<Option<Pipe>, Error> {
    let is_out = is_pipe(destination);
    if !is_out && !sources.iter().any(is_pipe) {
        return Ok(None);
    }
    let [source] = sources else {
        return Err(usage("a pipe carries one file", "name one source"));
    };
    let other = if is_out { source } else { destination };
    let path = other.path();
    let says_folder = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    let Some(name) = path.file_name().filter(|_| !says_folder) else {
        let what = "the other end of a pipe must be a file with a name";
        return Err(usage(what, "name the file on the other host"));
    };
    let name = name.to_owned();
    Ok(Some(if is_out { Pipe::Out(name) } else { Pipe::In(name) }))
}

fn usage(what: &str, advice: &str) -> Error {
    Error::new(ErrorKind::Usage, what).advise(advice)
}

impl Pipe {
    /// The sources and the destination, with a name instead of the pipe.
    pub(super) fn ends(
        &self,
        sources: &[Location],
        destination: &Location,
    ) -> (Vec<Location>, Location) {
        let local = |name: &OsString| Location::Local(name.clone().into());
        match self {
            Pipe::In(name) => (vec![local(name)], destination.clone()),
            Pipe::Out(name) => (sources.to_vec(), local(name)),
        }
    }

    /// Connects the copy to the pipe. Cancelling `cancel` ends any wait for the pipe.
    pub(super) fn join(&self, copy: CopyRequest, cancel: &CancelHandle) -> CopyRequest {
        match self {
            Pipe::In(_) => copy.input(Input { input: io::stdin(), cancel: cancel.clone() }),
            // A dry run looks for an existing destination file, and finds none in this empty
            // folder.
            Pipe::Out(_) => copy
                .local_files(&MemoryFolder::new(u64::MAX))
                .output(Output { output: io::stdout(), cancel: cancel.clone() }),
        }
    }

    /// Replaces the library's advice to run the same call again, because a pipe cannot resume.
    pub(super) fn explain(error: Error, cancel: &CancelHandle) -> Error {
        let error = match error.kind {
            // The pipe may report the cancellation before the copy does.
            ErrorKind::LocalFile if cancel.is_cancelled() => {
                Error::new(ErrorKind::Cancelled, "interrupted")
            }
            _ => error,
        };
        match error.kind {
            ErrorKind::Unfinished | ErrorKind::Cancelled | ErrorKind::Stalled => {
                error.advise("a pipe cannot resume: run the whole command again")
            }
            _ => error,
        }
    }
}

/// A writer to the pipe. Its writes fail after `cancel` is cancelled.
struct Output<W> {
    output: W,
    cancel: CancelHandle,
}

impl<W: AsFd> Write for Output<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        wait(&self.output, PollFlags::OUT, &self.cancel)?;
        // A larger write could block, even after poll has reported the pipe as writable.
        Ok(rustix::io::write(&self.output, &buf[..buf.len().min(PIPE_BUF)])?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A reader of the pipe. Its reads fail after `cancel` is cancelled.
struct Input<R> {
    input: R,
    cancel: CancelHandle,
}

impl<R: AsFd> Read for Input<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        wait(&self.input, PollFlags::IN, &self.cancel)?;
        // Read without std's buffer, because `poll` does not see data in that buffer.
        Ok(rustix::io::read(&self.input, buf)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sources: &[&str], destination: &str) -> Result<Option<Pipe>, Error> {
        let sources: Vec<Location> = sources.iter().map(|text| text.parse().unwrap()).collect();
        of(&sources, &destination.parse().unwrap())
    }

    #[test]
    fn a_pipe_gets_the_name_of_the_file_at_the_other_location() {
        let name = |sources: &[&str], destination: &str| match check(sources, destination)
            .unwrap()
            .unwrap()
        {
            Pipe::In(name) | Pipe::Out(name) => name,
        };
        assert_eq!(name(&["-"], "lh://h/a/d.tar"), "d.tar");
        assert_eq!(name(&["h:a/x"], "-"), "x");
        assert!(check(&["./-"], "h:x").unwrap().is_none());
        for (sources, destination) in [
            (&["-", "b"][..], "h:x"),
            (&["-"], "h:folder/"),
            (&["-"], "lh://h"),
            (&["lh://h"], "-"),
        ] {
            let error = check(sources, destination).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Usage, "{sources:?} {destination}");
        }
    }

    #[test]
    fn reading_ends_when_the_copy_is_cancelled() {
        let (input, mut writer) = io::pipe().unwrap();
        writer.write_all(&[7; 1000]).unwrap();
        let cancel = CancelHandle::default();
        let mut input = Input { input, cancel: cancel.clone() };
        let mut buf = [0; 2000];
        assert_eq!(input.read(&mut buf).unwrap(), 1000);
        cancel.cancel();
        assert_eq!(input.read(&mut buf).unwrap_err().to_string(), "interrupted");
    }
}
