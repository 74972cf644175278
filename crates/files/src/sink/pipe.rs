//! A file of unknown length, such as the output of a pipe. The content arrives in parts, each by a
//! separate transfer. The final message has the length and the digest of the whole content. Only
//! after this message does the file get its name. The content has more than one chunk: a client
//! copies shorter content as an ordinary file.
//!
//! A pipe cannot be resumed. So the file has no journal (list of written chunks), and dropping a
//! [`PipeFile`] before the end removes the partial file.

use std::io;
use std::sync::Arc;

use super::MOST_UNSYNCED;
use super::attributes::Keep;
use super::destination::Ground;
use super::{partial, space};
use crate::digest::{Digest, StreamRoot, stream_value};
use crate::error::{Error, FileErrorKind};
use crate::manifest::FileTime;
use crate::place::{Place, file_error};
use crate::store::{self, OpenFile, unless_refused};
use crate::{CHUNK, Kind, Listed, Manifest, Shape, names};

/// Number of chunks that may arrive, counted from the first missing chunk.
const AHEAD: u64 = 16 << 10;

/// A growing file under a temporary name.
#[derive(Debug)]
pub struct PipeFile {
    ground: Ground,
    file: OpenFile,
    root: StreamRoot,
    /// The end of the received content.
    end: u64,
    /// The lowest number of a received chunk with fewer than [`CHUNK`] bytes. Only the last chunk
    /// of the content may be so short.
    short: Option<u64>,
    unsynced: u64,
    /// Whether a write or sync failed, so the file must not get its name.
    has_failed: bool,
    is_named: bool,
}

impl PipeFile {
    /// Creates a file for `place`, where another file may exist.
    ///
    /// # Errors
    /// `place` is a folder or has no file name, another copy writes there, or the system refuses.
    pub fn create(place: &Place) -> Result<PipeFile, Error> {
        let shown = place.shown();
        if place.says_folder() || place.is_folder()? {
            let what = format!("{shown} is a folder; the content of a pipe needs a file name");
            return Err(Error::new(FileErrorKind::Request, what).advise("name a file in it"));
        }
        let mut ground = Ground::open(place, &manifest(place)?, false)?;
        let cannot = |error: &io::Error| {
            let failed = file_error("write", place.named(), error);
            match partial::is_busy(error) {
                true => failed.advise("wait for the end of the other copy, or choose another name"),
                false => failed,
            }
        };
        let file = (|| {
            let (folder, name) = ground.at(0)?;
            let file = partial::open(folder, &names::partial(&name), true)?;
            let file = file.ok_or_else(store::not_found)?;
            folder.remove(&names::journal(&name))?;
            file.set_len(0)?;
            Ok(file)
        })();
        let file = file.map_err(|error| cannot(&error))?;
        Ok(PipeFile {
            ground,
            file,
            root: StreamRoot::default(),
            end: 0,
            short: None,
            unsynced: 0,
            has_failed: false,
            is_named: false,
        })
    }

    /// Writes chunk `chunk`, counted from the start of the pipe: `content` is the complete chunk.
    /// Ignores a repeated chunk, because the digest covers the chunk as it first arrived.
    ///
    /// # Errors
    /// The chunk is empty, too long, or too far ahead of the received content (`Request`). The
    /// system refuses (`File`); the file then never gets its name.
    pub fn write(&mut self, chunk: u64, content: &[u8]) -> Result<(), Error> {
        let is_ahead = chunk.saturating_sub(self.root.chunks()) >= AHEAD;
        if is_ahead || content.is_empty() || content.len() as u64 > CHUNK {
            let what = "a part of the pipe is empty, too long or too far ahead";
            return Err(Error::new(FileErrorKind::Request, what));
        }
        if self.root.has(chunk) {
            return Ok(());
        }
        let end = chunk * CHUNK + content.len() as u64;
        if content.len() as u64 != CHUNK {
            self.short = Some(self.short.map_or(chunk, |short| short.min(chunk)));
        }
        let mut written = self.file.write_all_at(content, chunk * CHUNK);
        self.unsynced += content.len() as u64;
        if written.is_ok() && self.unsynced >= MOST_UNSYNCED {
            self.unsynced = 0;
            written = self.file.sync_data();
        }
        written.map_err(|error| self.failed(&error))?;
        self.end = self.end.max(end);
        self.root.give(chunk, stream_value(chunk, content));
        Ok(())
    }

    fn failed(&mut self, error: &io::Error) -> Error {
        self.has_failed = true;
        let failed = file_error("write", &self.ground.place, error);
        match space::is_full(error) {
            true => failed.advise("free space, and run the pipe again"),
            false => failed,
        }
    }

    /// Gives the file its name if it has `total` bytes and the digest `digest`, and no write or
    /// sync has failed; otherwise returns `false`.
    ///
    /// # Errors
    /// The system refuses, or a device, socket or pipe has this name (`File`). If only the last
    /// step, the sync of the folder, failed, the file has its name. Otherwise an existing file of
    /// this name is unchanged.
    pub fn finish(&mut self, total: u64, digest: &Digest) -> Result<bool, Error> {
        let chunks = self.root.chunks();
        let is_even = self.short.is_none_or(|short| short + 1 == chunks);
        let is_whole = self.end == total && chunks == total.div_ceil(CHUNK) && is_even;
        if !is_whole || self.root.root() != Some(*digest) || self.has_failed {
            return Ok(false);
        }
        self.name().map_err(|error| self.failed(&error))?;
        Ok(true)
    }

    fn name(&mut self) -> io::Result<()> {
        let manifest = self.ground.manifest.clone();
        let (folder, name) = self.ground.at(0)?;
        let found = folder.look_if_there(&name)?;
        if found.is_some_and(|found| found.kind.is_special()) {
            let what = "a device, socket or pipe is in its place";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        let keep = Keep { permissions: false, set_id: false, modified: None };
        let mode = keep.final_mode(folder, Some(&name[..]), &manifest.entries()[0])?;
        unless_refused(self.file.set_mode(mode))?;
        self.file.sync_all()?;
        let identity = self.file.attributes()?.identity;
        let is_it = |found: &store::Attributes| found.identity == identity;
        partial::rename(folder, &names::partial(&name), &name, Some(&*self.file), is_it)?;
        self.is_named = true;
        folder.sync()
    }
}

impl Drop for PipeFile {
    fn drop(&mut self) {
        if !self.is_named
            && let Ok((folder, name)) = self.ground.at(0)
        {
            // If the removal fails, the next copy into this place overwrites the file.
            let _ = folder.remove(&names::partial(&name));
        }
    }
}

fn manifest(place: &Place) -> Result<Arc<Manifest>, Error> {
    let unnamed = || {
        let what = format!("{} names no file", place.shown());
        Error::new(FileErrorKind::Request, what).advise("name the file for the pipe")
    };
    let listed = Listed {
        path: place.name().ok_or_else(unnamed)?.into(),
        kind: Kind::file(0),
        mode: 0o666,
        modified: FileTime::default(),
    };
    Ok(Arc::new(Manifest::new(Shape::File, vec![listed]).map_err(|_| unnamed())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const FULL: usize = CHUNK as usize;

    #[test]
    fn a_repeated_chunk_changes_neither_the_file_nor_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = PipeFile::create(&Place::Ambient(folder.path().join("x"))).unwrap();
        file.write(0, &[1; FULL]).unwrap();
        file.write(1, &[3; 10]).unwrap();
        file.write(0, &[2; FULL]).unwrap();
        let content = [&[1; FULL][..], &[3; 10]].concat();
        let digest = *blake3::hash(&content).as_bytes();
        assert!(file.finish(content.len() as u64, &digest).unwrap());
        assert!(fs::read(folder.path().join("x")).unwrap() == content);
    }

    #[test]
    fn a_short_chunk_is_the_last_or_the_file_gets_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = PipeFile::create(&Place::Ambient(folder.path().join("x"))).unwrap();
        let mut root = StreamRoot::default();
        for (chunk, len) in [(0, FULL / 2), (1, FULL)] {
            file.write(chunk, &vec![1; len]).unwrap();
            root.give(chunk, stream_value(chunk, &vec![1; len]));
        }
        assert!(!file.finish(2 * CHUNK, &root.root().unwrap()).unwrap());
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_part_of_a_pipe_is_a_chunk_at_most_and_not_too_far_ahead() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = PipeFile::create(&Place::Ambient(folder.path().join("x"))).unwrap();
        assert!(file.write(0, &[]).is_err() && file.write(0, &[1; FULL + 1]).is_err());
        assert!(file.write(AHEAD, &[1]).is_err() && file.write(u64::MAX, &[1]).is_err());
        file.write(AHEAD - 1, &[1]).unwrap();
        file.write(0, &[1; FULL]).unwrap();
        file.write(AHEAD, &[1]).unwrap();
        assert_eq!((file.end, file.short), (AHEAD * CHUNK + 1, Some(16_383)));
    }

    #[test]
    fn content_is_synced_after_48_mib() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = PipeFile::create(&Place::Ambient(folder.path().join("x"))).unwrap();
        file.unsynced = (47 << 20) - 1;
        file.write(0, &[1; FULL]).unwrap();
        assert_eq!(file.unsynced, (48 << 20) - 1);
        file.write(1, &[1]).unwrap();
        assert_eq!(file.unsynced, 0);
    }

    #[test]
    fn a_pipe_gets_its_name_only_with_the_right_length_and_digest() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = PipeFile::create(&Place::Ambient(folder.path().join("x"))).unwrap();
        let content = [&[1; FULL][..], &[3; 10]].concat();
        let digest = *blake3::hash(&content).as_bytes();
        let total = content.len() as u64;
        file.write(1, &content[FULL..]).unwrap();
        assert!(!file.finish(total, &digest).unwrap(), "a chunk is missing");
        file.write(0, &content[..FULL]).unwrap();
        assert_eq!(file.unsynced, total);
        assert!(
            !file.finish(total - 1, &digest).unwrap() && !file.finish(total + 1, &digest).unwrap()
        );
        assert!(!file.finish(total, &[0; 32]).unwrap());
        let full = io::ErrorKind::StorageFull.into();
        let reported = file.failed(&full).advice;
        assert!(reported.is_some_and(|advice| advice.to_string().starts_with("free space")));
        assert!(!file.finish(total, &digest).unwrap(), "a write has failed");
        assert!(!folder.path().join("x").exists());
        file.has_failed = false;
        assert!(file.finish(total, &digest).unwrap());
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_pipe_overwrites_no_folder_no_special_file_and_no_running_copy() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| Place::Ambient(folder.path().join(name));
        fs::create_dir(folder.path().join("d")).unwrap();
        for name in ["d", "d/", "new/"] {
            assert_eq!(PipeFile::create(&place(name)).unwrap_err().kind, FileErrorKind::Request);
        }
        let mut file = PipeFile::create(&place("x")).unwrap();
        let error = PipeFile::create(&place("x")).unwrap_err();
        assert!(error.to_string().contains("wait for the end of the other copy"), "{error}");
        let content = vec![1; FULL + 1];
        file.write(0, &content[..FULL]).unwrap();
        file.write(1, &content[FULL..]).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        let at = folder.path().join("x");
        rustix::fs::mknodat(rustix::fs::CWD, &at, fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        let error = file.finish(CHUNK + 1, blake3::hash(&content).as_bytes()).unwrap_err();
        assert!(error.what.contains("a device, socket or pipe is in its place"), "{error}");
    }
}
