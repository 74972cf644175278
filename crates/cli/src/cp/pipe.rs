//! A pipe as one end of a copy: `-` is standard input or standard output.
//!
//! What is sent may have any length. What comes is in memory, up to `--memory`, and verified before
//! the next program of the pipeline sees any of it.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use longhaul::units::Bytes;
use longhaul::{CancelHandle, CopyRequest, Location, MemoryFolder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::{Error, ErrorKind};

/// How soon a wish to end is noticed while nothing comes.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Which end of a copy is a pipe.
#[derive(Clone, Debug)]
pub(super) enum Pipe {
    /// Standard input is the source, under this name.
    In(OsString),
    /// Standard output is the destination.
    Out(Content),
}

/// The content of a pipe, until it is written out.
#[derive(Clone, Debug)]
pub(super) struct Content {
    folder: MemoryFolder,
    name: OsString,
}

/// Whether it is a pipe by the habits of other tools.
pub(super) fn is_pipe(location: &Location) -> bool {
    matches!(location, Location::Local(path) if path.as_os_str() == "-")
}

/// The pipe of a copy, if one of its ends is one.
///
/// # Errors
/// More than one file on the other end, or none that has a name.
pub(super) fn of(
    sources: &[Location],
    destination: &Location,
    limit: Bytes,
) -> Result<Option<Pipe>, Error> {
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
        return Err(usage("a pipe has no name", "name the file on the other host"));
    };
    let (folder, name) = (MemoryFolder::new(limit.get()), name.to_owned());
    Ok(Some(if is_out { Pipe::Out(Content { folder, name }) } else { Pipe::In(name) }))
}

fn usage(what: &str, advice: &str) -> Error {
    Error::new(ErrorKind::Usage, what).advise(advice)
}

impl Pipe {
    /// The sources and the destination, with a name in the place of the pipe.
    pub(super) fn ends(
        &self,
        sources: &[Location],
        destination: &Location,
    ) -> (Vec<Location>, Location) {
        let local = |name: &OsString| Location::Local(name.clone().into());
        match self {
            Pipe::In(name) => (vec![local(name)], destination.clone()),
            Pipe::Out(content) => (sources.to_vec(), local(&content.name)),
        }
    }

    /// The copy with the pipe as one of its ends. It ends with `cancel`.
    pub(super) fn join(&self, copy: CopyRequest, cancel: &CancelHandle) -> CopyRequest {
        match self {
            Pipe::In(_) => copy.input(Input { input: io::stdin(), cancel: cancel.clone() }),
            Pipe::Out(content) => copy.local_files(&content.folder),
        }
    }

    /// Writes what has come to standard output, if that is the destination. After a dry run, or a
    /// measurement, nothing is there.
    ///
    /// # Errors
    /// Nobody reads it to its end.
    pub(super) fn drain(&self) -> Result<(), Error> {
        let Pipe::Out(content) = self else { return Ok(()) };
        let Some(bytes) = content.folder.take(&content.name) else { return Ok(()) };
        let mut out = io::stdout().lock();
        out.write_all(&bytes).and_then(|()| out.flush()).map_err(|error| {
            Error::new(ErrorKind::LocalFile, format!("cannot write to standard output: {error}"))
        })
    }

    /// Says what a pipe cannot do, where the library's advice is to go on with the same call.
    pub(super) fn explain(&self, error: Error) -> Error {
        let again = "a pipe cannot resume: run the whole command again";
        let is_short = error.what.contains("not enough room") || error.what.contains("No space");
        match (error.kind, self) {
            (ErrorKind::LocalFile, Pipe::Out(Content { name, .. })) if is_short => {
                let what = format!("{} does not fit --memory", name.display());
                Error::new(ErrorKind::LocalFile, format!("{what}: {}", error.what))
                    .advise("raise --memory, or copy into a file")
            }
            (ErrorKind::Unfinished | ErrorKind::Cancelled | ErrorKind::Stalled, _) => {
                error.advise(again)
            }
            _ => error,
        }
    }
}

/// What is read, until `cancel` is cancelled.
struct Input<R> {
    input: R,
    cancel: CancelHandle,
}

impl<R: AsFd> Read for Input<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.cancel.is_cancelled() {
                return Err(io::Error::other("interrupted"));
            }
            let mut ready = [PollFd::new(&self.input, PollFlags::IN)];
            match poll(&mut ready, Some(&LOOK_EVERY)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                // Without a buffer in between, which poll does not see.
                Ok(_) => return Ok(rustix::io::read(&self.input, buf)?),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sources: &[&str], destination: &str) -> Result<Option<Pipe>, Error> {
        let sources: Vec<Location> = sources.iter().map(|text| text.parse().unwrap()).collect();
        of(&sources, &destination.parse().unwrap(), Bytes::mebi(1))
    }

    #[test]
    fn a_pipe_has_the_name_of_its_other_end() {
        let name = |sources: &[&str], destination: &str| match check(sources, destination)
            .unwrap()
            .unwrap()
        {
            Pipe::In(name) | Pipe::Out(Content { name, .. }) => name,
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
    fn what_is_read_ends_with_the_wish() {
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
