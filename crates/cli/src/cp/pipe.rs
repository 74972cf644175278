//! A pipe as one end of a copy: `-` is standard input or standard output.
//!
//! The content is in memory, up to `--memory`: what is sent has its length then, and what comes is
//! verified before the next program of the pipeline sees any of it.

use std::ffi::OsString;
use std::io::{self, Read, Write};

use longhaul::units::Bytes;
use longhaul::{CancelHandle, Location, MemoryFolder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::{Error, ErrorKind};

/// How soon a wish to end is noticed while nothing comes.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How much is read at once.
const PIECE: usize = 1 << 16;

/// Which end of a copy is a pipe.
#[derive(Clone, Debug)]
pub(super) enum Pipe {
    /// Standard input is the source.
    In(Content),
    /// Standard output is the destination.
    Out(Content),
}

/// The content of a pipe.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) folder: MemoryFolder,
    name: OsString,
    limit: Bytes,
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
    let folder = MemoryFolder::new(limit.get());
    let content = Content { folder, name: name.to_owned(), limit };
    Ok(Some(if is_out { Pipe::Out(content) } else { Pipe::In(content) }))
}

fn usage(what: &str, advice: &str) -> Error {
    Error::new(ErrorKind::Usage, what).advise(advice)
}

impl Pipe {
    /// Where the content is while it is copied.
    pub(super) fn content(&self) -> &Content {
        let (Pipe::In(content) | Pipe::Out(content)) = self;
        content
    }

    /// The sources and the destination, with the content in memory in the place of the pipe.
    pub(super) fn ends(
        &self,
        sources: &[Location],
        destination: &Location,
    ) -> (Vec<Location>, Location) {
        let memory = Location::Local(self.content().name.clone().into());
        match self {
            Pipe::In(_) => (vec![memory], destination.clone()),
            Pipe::Out(_) => (sources.to_vec(), memory),
        }
    }

    /// Reads standard input to its end, if that is the source.
    ///
    /// # Errors
    /// It brings more than the limit, cannot be read, or `cancel` is cancelled first.
    pub(super) fn fill(&self, cancel: &CancelHandle) -> Result<(), Error> {
        let Pipe::In(content) = self else { return Ok(()) };
        let bytes = read(io::stdin().lock(), content.limit, cancel)?;
        content.folder.put(&content.name, bytes);
        Ok(())
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
        match error.kind {
            ErrorKind::LocalFile if is_short => {
                let what = format!("{} does not fit --memory", self.content().name.display());
                Error::new(ErrorKind::LocalFile, format!("{what}: {}", error.what))
                    .advise("raise --memory, or copy into a file")
            }
            ErrorKind::Unfinished | ErrorKind::Cancelled | ErrorKind::Stalled => {
                error.advise(again)
            }
            _ => error,
        }
    }
}

/// All that `input` brings.
fn read(
    mut input: impl Read + std::os::fd::AsFd,
    limit: Bytes,
    cancel: &CancelHandle,
) -> Result<Vec<u8>, Error> {
    let unread = |error: io::Error| {
        Error::new(ErrorKind::LocalFile, format!("cannot read standard input: {error}"))
    };
    let (mut bytes, mut piece) = (Vec::new(), vec![0; PIECE]);
    loop {
        if cancel.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "interrupted"));
        }
        let mut ready = [PollFd::new(&input, PollFlags::IN)];
        match poll(&mut ready, Some(&LOOK_EVERY)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(unread(error.into())),
        }
        let read = match input.read(&mut piece) {
            Ok(0) => return Ok(bytes),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(unread(error)),
        };
        bytes.extend_from_slice(&piece[..read]);
        if bytes.len() as u64 > limit.get() {
            let what = format!("standard input brings more than --memory {limit}");
            return Err(Error::new(ErrorKind::Usage, what).advise("raise --memory, or copy a file"));
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
        let name = |sources: &[&str], destination: &str| {
            let pipe = check(sources, destination).unwrap().unwrap();
            pipe.content().name.clone()
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
    fn what_is_read_ends_at_the_limit_and_with_the_wish() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(&[7; 1000]).unwrap();
        drop(writer);
        let copy = reader.try_clone().unwrap();
        let cancel = CancelHandle::default();
        let error = read(reader, Bytes::new(999), &cancel).unwrap_err();
        assert!(error.what.contains("more than --memory"), "{error}");
        assert_eq!(read(copy, Bytes::new(1), &cancel).unwrap(), b"");
        let (reader, _writer) = io::pipe().unwrap();
        cancel.cancel();
        assert_eq!(read(reader, Bytes::new(1), &cancel).unwrap_err().kind, ErrorKind::Cancelled);
    }
}
