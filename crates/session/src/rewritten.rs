//! A small file that several processes of one user replace. A reader sees a whole file, old or new.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::identity::{temporary_sibling, write_new};

/// The lock that a process takes before it changes files of a folder; held until drop.
#[derive(Debug)]
pub struct Rewriting(File);

impl Rewriting {
    /// Takes the lock of `folder`; waits while another process has it.
    ///
    /// # Errors
    /// The folder cannot be opened, or its file system has no locks.
    pub fn wait(folder: &Path) -> io::Result<Rewriting> {
        let folder = File::open(folder)?;
        flock(&folder, FlockOperation::LockExclusive)?;
        Ok(Rewriting(folder))
    }

    /// Takes the lock of `folder`; returns `None` if another process has the lock.
    ///
    /// # Errors
    /// As [`Rewriting::wait`].
    pub fn begin(folder: &Path) -> io::Result<Option<Rewriting>> {
        let folder = File::open(folder)?;
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(None),
            locked => locked.map(|()| Some(Rewriting(folder))).map_err(Into::into),
        }
    }

    /// Replaces the file at `path` in the locked folder, and syncs the file and the folder.
    ///
    /// # Errors
    /// The file or folder cannot be written or synced.
    pub fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let temporary = temporary_sibling(path);
        let written =
            write_new(&temporary, content).and_then(|()| std::fs::rename(&temporary, path));
        if written.is_err() {
            // A leftover temporary file is harmless.
            let _ = std::fs::remove_file(&temporary);
        }
        written.and_then(|()| self.0.sync_all())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_a_failure_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let rewriting = Rewriting::wait(folder.path()).unwrap();
        assert!(Rewriting::begin(folder.path()).unwrap().is_none(), "one at a time");
        rewriting.replace(&path, b"one").unwrap();
        rewriting.replace(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        drop(rewriting);
        let rewriting = Rewriting::begin(folder.path()).unwrap().expect("it is free");
        let taken = folder.path().join("a folder");
        std::fs::create_dir(&taken).unwrap();
        assert!(rewriting.replace(&taken, b"x").is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
