//! Reads ranges of one version of a regular file, and caches the values (BLAKE3 hashes or chaining
//! values) of its chunks.

mod change;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::CHUNK;
use super::digest::{Digest, file_value};
use super::error::{Error, FileErrorKind};
use super::manifest::FileTime;
use super::place::{Found, Place, file_error};
use super::store::{self, Access, Attributes, NameKind, OpenFile, SharedFolder};

/// Identifies one version of a file. A change gives the file another stamp, unless the size stays
/// the same and the file system's clock still shows the time of the previous change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Device and inode.
    pub identity: (u64, u64),
    /// Bytes of content.
    pub size: u64,
    /// The modification time, which programs can set.
    pub modified: FileTime,
    /// The change time of content or attributes, which only the system sets.
    pub changed: FileTime,
}

/// Once a file's last change is older than this, a further change gets another change time, even on
/// a file system that stores whole seconds.
const SETTLED: Duration = Duration::from_secs(1);

impl Stamp {
    /// Returns whether a change after `now` gives the file another stamp.
    fn is_settled(&self, now: SystemTime) -> bool {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let FileTime { seconds, nanos } = self.changed;
        // Before 1970: the clock was never set, so its time says nothing.
        let changed = u64::try_from(seconds).map(|seconds| Duration::new(seconds, nanos));
        changed.is_ok_and(|changed| since.checked_sub(changed).is_some_and(|age| age > SETTLED))
    }

    fn of(attributes: &Attributes) -> Stamp {
        let Attributes { identity, size, modified, changed, .. } = *attributes;
        Stamp { identity, size, modified, changed }
    }
}

/// A regular file that is open for reading, or for changes in place. Every successful read returns
/// the version that was opened, or the version after the last change through this `RangeFile`.
#[derive(Debug)]
pub struct RangeFile {
    file: OpenFile,
    stamp: Stamp,
    path: PathBuf,
    /// The folder of a file that is open for changes, until the folder is synced.
    unsynced: Option<SharedFolder>,
    /// The number of hard links of a file that is open for changes.
    links: Option<u64>,
}

impl RangeFile {
    /// Opens the file at `place`; follows links as far as the place allows.
    ///
    /// # Errors
    /// The file does not exist or is not a regular one, or the system refuses (`File`).
    pub fn open(place: &Place) -> Result<RangeFile, Error> {
        RangeFile::try_open(place).map_err(|error| file_error("read", place.named(), &error))
    }

    /// Opens the file as [`RangeFile::open`] does.
    ///
    /// # Errors
    /// The system's error. A folder is `IsADirectory`.
    pub fn try_open(place: &Place) -> io::Result<RangeFile> {
        match place.find_at_end()? {
            Found::Folder(_) => Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder")),
            Found::Nothing { .. } => Err(store::not_found()),
            Found::Other { .. } if place.says_folder() => Err(store::not_a_folder()),
            Found::Other { parent, name, .. } => {
                // The call does not block, even if a pipe has replaced the file.
                let file = parent.open(&name, Access::Read)?;
                let attributes = file.attributes()?;
                if attributes.kind != NameKind::File {
                    return Err(io::Error::other("it is not a regular file"));
                }
                let (stamp, path) = (Stamp::of(&attributes), place.named().to_owned());
                Ok(RangeFile { file, stamp, path, unsynced: None, links: None })
            }
        }
    }

    /// Returns the stamp of the version that reads return.
    pub fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    /// Returns the path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills `buf` from the bytes at `at`, then compares the file with [`stamp`](RangeFile::stamp).
    ///
    /// # Errors
    /// The range is not within the file (`Request`); somebody else changed the file since it was
    /// opened (`Unfinished`), or the system refuses (`File`).
    pub fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Error> {
        let wrong = |error: io::Error| file_error("read", &self.path, &error);
        if at.checked_add(buf.len() as u64).is_none_or(|end| end > self.stamp.size) {
            let (path, size) = (self.path.display(), self.stamp.size);
            let what = format!("{path} has {size} bytes, and a range beyond them was requested");
            return Err(Error::new(FileErrorKind::Request, what).at(&self.path));
        }
        let read = self.file.read_exact_at(buf, at);
        // If the read failed because the file shrank, the error must name the change.
        self.check()?;
        read.map_err(wrong)
    }

    /// Compares the file with [`stamp`](RangeFile::stamp).
    ///
    /// # Errors
    /// Somebody else changed the file (`Unfinished`), or the system refuses (`File`).
    pub fn check(&self) -> Result<(), Error> {
        let attributes = self.file.attributes();
        let now = attributes.map_err(|error| file_error("read", &self.path, &error))?;
        match Stamp::of(&now) == self.stamp && !self.has_lost_its_name(&now) {
            true => Ok(()),
            false => Err(self.changed()),
        }
    }

    fn has_lost_its_name(&self, now: &Attributes) -> bool {
        self.links.is_some_and(|links| now.links != links)
    }

    fn changed(&self) -> Error {
        let what = format!("{} changed while it was open", self.path.display());
        let error = Error::new(FileErrorKind::Unfinished, what).at(&self.path);
        error.advise("open it again to read its new version")
    }

    /// Fills `buf` with the complete chunk `chunk` and returns the chunk's value, from the cache
    /// `known` if it is there. The value is not cached if the file changed within the last second.
    ///
    /// # Errors
    /// As [`RangeFile::read`].
    pub fn read_chunk(
        &self,
        chunk: u64,
        buf: &mut [u8],
        known: &ChunkValues,
    ) -> Result<Digest, Error> {
        // A change during a long read can leave the stamp as it was, unless the file was settled
        // before the read.
        let is_settled = self.stamp.is_settled(SystemTime::now());
        self.read(chunk.saturating_mul(CHUNK), buf)?;
        Ok(known.get(&self.stamp, chunk).unwrap_or_else(|| {
            let value = file_value(self.stamp.size, chunk, buf);
            if is_settled {
                known.put(self.stamp, chunk, value);
            }
            value
        }))
    }
}

/// A cache of chunk values by file version, limited to the most recent values.
#[derive(Debug)]
pub struct ChunkValues {
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    values: HashMap<(Stamp, u64), Digest>,
    /// The keys of `values`, the oldest first.
    order: VecDeque<(Stamp, u64)>,
    /// Files whose values must not be cached, by device and inode, with the number of [`Uncached`]s
    /// of each file.
    uncached: HashMap<(u64, u64), usize>,
}

/// As long as an `Uncached` exists, no chunk value of its file is cached.
#[derive(Debug)]
pub struct Uncached {
    values: Arc<ChunkValues>,
    identity: (u64, u64),
}

impl Drop for Uncached {
    fn drop(&mut self) {
        let mut kept = self.values.kept();
        let count = kept.uncached.get_mut(&self.identity).expect("this `Uncached` is counted");
        *count -= 1;
        if *count == 0 {
            kept.uncached.remove(&self.identity);
        }
    }
}

impl ChunkValues {
    /// Returns an empty cache for up to `most` values, 0.2 KiB each.
    pub fn new(most: usize) -> ChunkValues {
        ChunkValues { most, kept: Mutex::default() }
    }

    /// Forgets the values of the file with this device and inode. Until the result is dropped, no
    /// values of the file are cached.
    pub fn forget(self: &Arc<Self>, identity: (u64, u64)) -> Uncached {
        let mut kept = self.kept();
        kept.values.retain(|(stamp, _), _| stamp.identity != identity);
        kept.order.retain(|(stamp, _)| stamp.identity != identity);
        *kept.uncached.entry(identity).or_default() += 1;
        drop(kept);
        Uncached { values: self.clone(), identity }
    }

    fn get(&self, stamp: &Stamp, chunk: u64) -> Option<Digest> {
        self.kept().values.get(&(*stamp, chunk)).copied()
    }

    fn put(&self, stamp: Stamp, chunk: u64, value: Digest) {
        let mut kept = self.kept();
        if kept.uncached.contains_key(&stamp.identity) {
            return;
        }
        if kept.values.insert((stamp, chunk), value).is_none() {
            kept.order.push_back((stamp, chunk));
        }
        if kept.order.len() > self.most
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.values.remove(&oldest);
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileExt, symlink};

    use super::*;
    use crate::Root;

    fn within(top: &Path, path: &str) -> Place {
        Place::Within { root: Root::open(top).unwrap(), path: path.into() }
    }

    #[test]
    fn a_read_returns_the_opened_version_or_an_error_that_names_the_file() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("data");
        fs::write(&path, b"0123456789").unwrap();
        let file = RangeFile::open(&within(top.path(), "data")).unwrap();
        let mut buf = [0; 4];
        file.read(3, &mut buf).unwrap();
        assert_eq!(&buf, b"3456");
        let beyond = file.read(7, &mut buf).unwrap_err();
        assert_eq!(beyond.kind, FileErrorKind::Request);
        assert!(file.read(u64::MAX, &mut buf).is_err());
        fs::write(&path, b"01").unwrap();
        for at in [0, 3] {
            let error = file.read(at, &mut buf).unwrap_err();
            assert_eq!(error.what, "data changed while it was open");
            assert_eq!(error.kind, FileErrorKind::Unfinished);
        }
    }

    #[test]
    fn only_regular_files_within_the_root_are_opened() {
        let (top, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("secret"), "s").unwrap();
        fs::create_dir(top.path().join("folder")).unwrap();
        fs::write(top.path().join("folder/file"), "f").unwrap();
        symlink(outside.path().join("secret"), top.path().join("out")).unwrap();
        symlink("folder/file", top.path().join("in")).unwrap();
        symlink("loop", top.path().join("loop")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            top.path().join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let open = |path: &str| RangeFile::open(&within(top.path(), path));
        assert_eq!(open("in").unwrap().stamp().size, 1);
        for path in [
            "out",
            "folder",
            "",
            ".",
            "..",
            "../secret",
            "none",
            "pipe",
            "loop",
            "in/",
            "folder/file/",
        ] {
            assert!(open(path).is_err(), "{path}");
        }
        assert!(open("folder").unwrap_err().what.contains("it is a folder"));
    }

    #[test]
    fn a_cached_chunk_value_is_used_until_the_file_changes() {
        let top = tempfile::tempdir().unwrap();
        let content = vec![7; CHUNK as usize + 10];
        fs::write(top.path().join("data"), &content).unwrap();
        let open = || RangeFile::open(&within(top.path(), "data")).unwrap();
        let known = ChunkValues::new(8);
        let mut buf = vec![0; 10];
        let value = open().read_chunk(1, &mut buf, &known).unwrap();
        assert_eq!(value, file_value(CHUNK + 10, 1, &content[..10]));
        // A value that is not the hash of the content shows that the read returns the cached value.
        let stamp = *open().stamp();
        known.put(stamp, 1, [9; 32]);
        assert_eq!(open().read_chunk(1, &mut buf, &known).unwrap(), [9; 32]);
        let file = fs::File::options().write(true).open(top.path().join("data")).unwrap();
        file.write_all_at(b"x", CHUNK).unwrap();
        file.set_len(CHUNK + 11).unwrap();
        let (now, mut buf) = (open(), vec![0; 11]);
        let found = now.read_chunk(1, &mut buf, &known).unwrap();
        assert_eq!(found, file_value(CHUNK + 11, 1, &buf));
    }

    #[test]
    fn the_value_of_a_file_that_has_just_changed_is_not_cached() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("data"), [7; 10]).unwrap();
        let file = RangeFile::open(&within(top.path(), "data")).unwrap();
        let known = ChunkValues::new(8);
        file.read_chunk(0, &mut [0; 10], &known).unwrap();
        assert_eq!(known.get(file.stamp(), 0), None);
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let stamp = |seconds| Stamp { changed: FileTime { seconds, nanos: 5 }, ..*file.stamp() };
        assert!(stamp(100).is_settled(at(102)));
        assert!(!stamp(100).is_settled(at(101)), "less than a second");
        let whole = Stamp { changed: FileTime { seconds: 100, nanos: 0 }, ..stamp(100) };
        assert!(!whole.is_settled(at(101)), "exactly a second");
        assert!(!stamp(100).is_settled(at(90)), "the clock of the file system is ahead");
        assert!(!stamp(-100).is_settled(at(90)));
    }

    #[test]
    fn the_oldest_values_make_room_for_new_ones() {
        let stamp = |n| Stamp {
            identity: (1, n),
            size: 1,
            modified: FileTime { seconds: 0, nanos: 0 },
            changed: FileTime { seconds: 0, nanos: 0 },
        };
        let known = ChunkValues::new(2);
        (0..3).for_each(|n| known.put(stamp(n), 0, [n as u8; 32]));
        known.put(stamp(2), 0, [2; 32]);
        assert_eq!(known.get(&stamp(0), 0), None);
        assert_eq!(known.get(&stamp(1), 0), Some([1; 32]));
        assert_eq!(known.get(&stamp(2), 0), Some([2; 32]));
        let known = Arc::new(known);
        drop(known.forget((1, 1)));
        (3..5).for_each(|n| known.put(stamp(n), 0, [n as u8; 32]));
        let kept = (0..5).filter(|n| known.get(&stamp(*n), 0).is_some());
        assert_eq!(kept.collect::<Vec<_>>(), [3, 4]);
    }
}
