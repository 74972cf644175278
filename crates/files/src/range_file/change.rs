//! Changes a regular file in place.

use std::io;

use super::{RangeFile, Stamp};
use crate::error::{Error, FileErrorKind};
use crate::names;
use crate::place::{Found, Place, file_error};
use crate::store::{self, Access, NameKind};

impl RangeFile {
    /// Opens the file at `place` for reads and changes in place, and creates it if it is missing.
    /// The file is locked until the value is dropped, if the file system has locks.
    ///
    /// # Errors
    /// An error of the kind `File`: `place` is not a regular file, the system refuses, another
    /// writer has locked the file, or the file must not be changed in place. Three kinds of files
    /// must not be changed: partial files of copies; files that run with the rights of their owner
    /// or group; and, within a root, files with several names, because other names may be outside
    /// the root.
    pub fn open_to_change(place: &Place) -> Result<RangeFile, Error> {
        let path = place.named();
        let wrong = |error: io::Error| file_error("change", path, &error);
        let refused = |what: &str| {
            let what = format!("cannot change {}: it {what}", path.display());
            Error::new(FileErrorKind::File, what).at(path)
        };
        let (parent, name, is_new) = match place.find_at_end().map_err(wrong)? {
            Found::Folder(_) => return Err(refused("is a folder")),
            _ if place.says_folder() => return Err(wrong(store::not_a_folder())),
            // Do not open a device: opening it may have effects.
            Found::Other { attributes, .. } if attributes.kind != NameKind::File => {
                return Err(refused("is not a regular file"));
            }
            Found::Other { parent, name, .. } => (parent, name, false),
            Found::Nothing { parent, name } => (parent, name, true),
        };
        if names::is_reserved(&name) {
            return Err(refused("has a name that is reserved for partial files"));
        }
        let file = match is_new {
            true => parent.create(&name, 0o666),
            false => parent.open(&name, Access::ReadWrite),
        };
        let file = file.map_err(wrong)?;
        file.lock().map_err(wrong)?;
        let attributes = file.attributes().map_err(wrong)?;
        if attributes.kind != NameKind::File {
            return Err(refused("is not a regular file"));
        }
        if attributes.mode & 0o6000 != 0 {
            return Err(refused("runs with the rights of its owner or group"));
        }
        if attributes.links > 1 && matches!(place, Place::Within { .. }) {
            return Err(refused("has several names, which may be outside the served folder"));
        }
        let (stamp, path) = (Stamp::of(&attributes), path.to_owned());
        let links = Some(attributes.links);
        // A writer that created the file earlier may not have synced its name.
        Ok(RangeFile { file, stamp, path, unsynced: Some(parent), links })
    }

    /// Writes `bytes` at `at`, reads them back and compares them. The file grows if the bytes end
    /// beyond its end. Later reads return the new version.
    ///
    /// # Errors
    /// The range ends beyond the largest offset (`Request`); another process changed or replaced
    /// the file (`Unfinished`); the system refuses, or the bytes read back differ (`File`). A part
    /// of the bytes may have been written.
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let end = at.saturating_add(bytes.len() as u64);
        self.check_len(end)?;
        self.check()?;
        let mut now = vec![0; bytes.len()];
        let written = self.file.write_all_at(bytes, at);
        let read = written.and_then(|()| self.file.read_exact_at(&mut now, at));
        read.map_err(|error| file_error("write", &self.path, &error))?;
        if now != bytes {
            let what = format!(
                "{}: the file does not return the bytes written at {at}",
                self.path.display()
            );
            let error = Error::new(FileErrorKind::File, what).at(&self.path);
            return Err(error.advise("check the disk, and whether another program writes the file"));
        }
        self.renew(end.max(self.stamp.size))
    }

    /// Truncates the file to `len` bytes, or extends it with zeros.
    ///
    /// # Errors
    /// As [`RangeFile::write`], but no bytes are read back.
    pub fn set_len(&mut self, len: u64) -> Result<(), Error> {
        self.check_len(len)?;
        self.check()?;
        self.file.set_len(len).map_err(|error| file_error("resize", &self.path, &error))?;
        self.renew(len)
    }

    /// Waits until the content and the name of the file are on the disk.
    ///
    /// # Errors
    /// The system's error (`File`), or another program changed or replaced the file (`Unfinished`).
    /// After an error, data written since the last sync may be lost.
    pub fn sync(&mut self) -> Result<(), Error> {
        let synced = self.file.sync_all();
        let named = synced.and_then(|()| self.unsynced.iter().try_for_each(|folder| folder.sync()));
        named.map_err(|error| file_error("sync", &self.path, &error))?;
        self.unsynced = None;
        // If another file has taken the name, closing this file loses the changes.
        self.check()?;
        Ok(())
    }

    fn check_len(&self, len: u64) -> Result<(), Error> {
        match i64::try_from(len) {
            Ok(_) => Ok(()),
            Err(_) => {
                let what = format!("{} cannot have {len} bytes", self.path.display());
                Err(Error::new(FileErrorKind::Request, what).at(&self.path))
            }
        }
    }

    /// Records the file's new version after a change; the file must have `size` bytes.
    fn renew(&mut self, size: u64) -> Result<(), Error> {
        let attributes = self.file.attributes();
        let now = attributes.map_err(|error| file_error("write", &self.path, &error))?;
        if self.has_lost_its_name(&now) || now.size != size {
            return Err(self.changed());
        }
        self.stamp = Stamp::of(&now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;
    use crate::store::buffers::Store;
    use crate::store::memory::Disk;
    use crate::{CHUNK, ChunkValues, Root};

    fn open(top: &Path, path: &str) -> Result<RangeFile, Error> {
        RangeFile::open_to_change(&Place::Within {
            root: Root::open(top).unwrap(),
            path: path.into(),
        })
    }

    #[test]
    fn writes_change_the_file_in_place_and_reads_return_them() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("data");
        fs::write(&path, b"0123456789").unwrap();
        let mut file = open(top.path(), "data").unwrap();
        file.write(8, b"abcd").unwrap();
        file.write(1, b"x").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"0x234567abcd");
        let mut buf = [0; 12];
        file.read(0, &mut buf).unwrap();
        assert_eq!(&buf, b"0x234567abcd");
        file.set_len(2).unwrap();
        file.set_len(4).unwrap();
        file.sync().unwrap();
        assert_eq!((fs::read(&path).unwrap(), file.stamp().size), (b"0x\0\0".to_vec(), 4));
        assert!(file.read(0, &mut buf).is_err(), "reads end at the new end");
        for (at, bytes) in [(u64::MAX, &b"xy"[..]), (i64::MAX as u64, b"x"), (u64::MAX - 1, b"x")] {
            let error = file.write(at, bytes).unwrap_err();
            assert_eq!(error.kind, FileErrorKind::Request, "{at}");
        }
        assert!(file.set_len(1 << 63).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"0x\0\0");
        open(top.path(), "new").unwrap().sync().unwrap();
        assert_eq!(fs::read(top.path().join("new")).unwrap(), b"");
    }

    #[test]
    fn a_sync_stores_the_name_of_a_file_that_an_earlier_writer_created_and_did_not_sync() {
        for seed in 0..20 {
            let disk = Disk::new(seed);
            let place = || Place::Stored { root: Store(disk.root()), path: "data".into() };
            drop(RangeFile::open_to_change(&place()).unwrap());
            let mut file = RangeFile::open_to_change(&place()).unwrap();
            file.write(0, b"x").unwrap();
            file.sync().unwrap();
            drop(file);
            disk.power_cut();
            let found = RangeFile::open(&place()).map(|file| file.stamp().size);
            assert_eq!(found, Ok(1), "seed {seed}");
        }
    }

    #[test]
    fn a_write_fails_if_the_file_was_replaced_and_leaves_the_new_file_unchanged() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("data");
        fs::write(&path, b"0123456789").unwrap();
        let mut file = open(top.path(), "data").unwrap();
        fs::write(top.path().join("next"), b"next").unwrap();
        fs::rename(top.path().join("next"), &path).unwrap();
        let error = file.write(0, b"x").unwrap_err();
        assert_eq!(error.what, "data changed while it was open");
        assert_eq!(fs::read(&path).unwrap(), b"next");
    }

    #[test]
    fn a_write_and_a_sync_fail_if_the_file_is_replaced_during_the_write() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("data");
        fs::write(&path, b"0123456789").unwrap();
        let mut file = open(top.path(), "data").unwrap();
        file.file.write_all_at(b"x", 0).unwrap();
        fs::write(top.path().join("next"), b"next").unwrap();
        fs::rename(top.path().join("next"), &path).unwrap();
        assert_eq!(file.renew(10).unwrap_err().what, "data changed while it was open");
        assert!(file.sync().is_err());
    }

    #[test]
    fn a_file_is_changed_by_one_writer_at_a_time() {
        let top = tempfile::tempdir().unwrap();
        let first = open(top.path(), "data").unwrap();
        let error = open(top.path(), "data").unwrap_err();
        assert!(error.what.contains("another copy is writing it"), "{error:?}");
        drop(first);
        open(top.path(), "data").unwrap();
    }

    #[test]
    fn links_out_of_the_root_and_partial_hard_linked_and_setuid_files_are_not_changed() {
        let (top, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (top, secret) = (top.path(), outside.path().join("secret"));
        fs::write(&secret, "s").unwrap();
        fs::create_dir(top.join("folder")).unwrap();
        for name in [".x.lh-part", "suid", "file", "one"] {
            fs::write(top.join(name), "f").unwrap();
        }
        fs::set_permissions(top.join("suid"), fs::Permissions::from_mode(0o4755)).unwrap();
        fs::hard_link(top.join("one"), top.join("two")).unwrap();
        symlink(&secret, top.join("out")).unwrap();
        symlink(outside.path().join("new"), top.join("out-new")).unwrap();
        symlink(".x.lh-part", top.join("part")).unwrap();
        symlink("loop", top.join("loop")).unwrap();
        let bad = "out out-new part loop .x.lh-part .y.lh-journal suid one two folder file/ new/ \
                   file/x none/x ../secret .. .";
        for path in bad.split_ascii_whitespace().chain([""]) {
            assert!(open(top, path).is_err(), "{path:?}");
        }
        assert_eq!(fs::read(&secret).unwrap(), b"s");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
        assert!(!top.join("new").exists() && !top.join(".y.lh-journal").exists());
        symlink("file", top.join("in")).unwrap();
        open(top, "in").unwrap().write(0, b"g").unwrap();
        assert_eq!(fs::read(top.join("file")).unwrap(), b"g");
    }

    #[test]
    fn no_chunk_value_is_cached_while_a_guard_of_the_file_exists() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("data"), vec![7; CHUNK as usize]).unwrap();
        let known = std::sync::Arc::new(ChunkValues::new(8));
        let mut buf = vec![0; CHUNK as usize];
        let mut file = open(top.path(), "data").unwrap();
        let old = file.read_chunk(0, &mut buf, &known).unwrap();
        known.put(*file.stamp(), 0, old);
        let guard = known.forget(file.stamp().identity);
        drop(known.forget(file.stamp().identity));
        file.write(5, b"x").unwrap();
        let new = file.read_chunk(0, &mut buf, &known).unwrap();
        known.put(*file.stamp(), 0, new);
        assert!(new != old && known.get(file.stamp(), 0).is_none());
        drop(guard);
        assert_eq!(file.read_chunk(0, &mut buf, &known).unwrap(), new);
        known.put(*file.stamp(), 0, new);
        assert_eq!(known.get(file.stamp(), 0), Some(new));
    }
}
