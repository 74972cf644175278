//! Folders by handle: every component below a base is opened from its parent's handle and never
//! followed when it is a symbolic link, so no race between a check and a use leads outside.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, Access, AtFlags, FileType, Mode, OFlags, Stat};

use super::manifest::FileTime;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    File,
    Folder,
    Link,
    Other,
}

/// What the file system tells of a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    pub(crate) kind: FileKind,
    pub(crate) size: u64,
    /// The 12 permission bits.
    pub(crate) mode: u32,
    pub(crate) modified: FileTime,
    /// Device and inode: whether two handles are one file.
    pub(crate) identity: (u64, u64),
    pub(crate) links: u64,
    pub(crate) owner: u32,
    /// Bytes that the file takes on the disk.
    pub(crate) allocated: u64,
}

#[allow(clippy::unnecessary_cast, reason = "the field types differ between systems")]
fn attributes(stat: &Stat) -> Attributes {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Folder,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
    };
    Attributes {
        kind,
        size: stat.st_size as u64,
        mode: stat.st_mode as u32 & 0o7777,
        modified: FileTime { seconds: stat.st_mtime as i64, nanos: stat.st_mtime_nsec as u32 },
        identity: (stat.st_dev as u64, stat.st_ino as u64),
        links: stat.st_nlink as u64,
        owner: stat.st_uid as u32,
        allocated: stat.st_blocks as u64 * 512,
    }
}

/// What an open file or folder is.
pub(crate) fn look_at(handle: impl AsFd) -> io::Result<Attributes> {
    Ok(attributes(&fs::fstat(handle)?))
}

/// What `name` in `folder` is; a link is a link.
pub(crate) fn look(folder: impl AsFd, name: &[u8]) -> io::Result<Attributes> {
    Ok(attributes(&fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?))
}

/// The same, with nothing for what is not there.
pub(crate) fn look_if_there(folder: impl AsFd, name: &[u8]) -> io::Result<Option<Attributes>> {
    match look(folder, name) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the file `name` in `folder`, never through a link, and never waiting for a pipe's other
/// end.
pub(crate) fn open(folder: impl AsFd, name: &[u8], how: OFlags) -> io::Result<File> {
    let how = how | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(File::from(fs::openat(folder, name, how, Mode::empty())?))
}

/// Makes the file `name` in `folder`, which must not exist.
pub(crate) fn create(folder: impl AsFd, name: &[u8], mode: u32) -> io::Result<File> {
    let how = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(fs::openat(folder, name, how, Mode::from_bits_truncate(mode))?))
}

/// Opens the folder `name` in `folder`, unless it is a link.
pub(crate) fn open_folder(folder: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    let how = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat(folder, name, how, Mode::empty())?)
}

/// Whether entries of `folder` may be made and renamed.
pub(crate) fn may_write(folder: impl AsFd) -> io::Result<()> {
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    Ok(fs::accessat(folder, ".", wanted, AtFlags::EACCESS)?)
}

/// Removes the file or link `name` in `folder` if it is there.
pub(crate) fn remove_if_there(folder: impl AsFd, name: &[u8]) -> io::Result<()> {
    match fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The names in a folder, without `.` and `..`.
pub(crate) fn names_in(folder: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for found in fs::Dir::read_from(folder)? {
        let name = found?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// How many handles of folders one [`Folders`] keeps.
const KEPT: usize = 32;

/// The folders below a base; keeps the handles of where it was last, since a walk stays near.
#[derive(Debug)]
pub(crate) struct Folders {
    base: OwnedFd,
    /// Where the handles lead, outermost first: each path begins with the one before.
    open: Vec<(Vec<u8>, OwnedFd)>,
}

impl Folders {
    pub(crate) fn new(base: OwnedFd) -> Folders {
        Folders { base, open: Vec::new() }
    }

    pub(crate) fn base(&self) -> BorrowedFd<'_> {
        self.base.as_fd()
    }

    /// The folder at `path` (components joined by `/`; empty for the base).
    ///
    /// # Errors
    /// What the system says of the first component that is no folder or cannot be opened.
    pub(crate) fn at(&mut self, path: &[u8]) -> io::Result<BorrowedFd<'_>> {
        let leads = |open: &[u8]| {
            path.strip_prefix(open).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        while self.open.last().is_some_and(|(open, _)| !leads(open)) {
            self.open.pop();
        }
        let mut end = self.open.last().map_or(0, |(open, _)| open.len());
        while end < path.len() {
            let start = if end == 0 { 0 } else { end + 1 };
            let len = path[start..].iter().position(|b| *b == b'/');
            end = len.map_or(path.len(), |len| start + len);
            let parent = self.open.last().map_or(self.base.as_fd(), |(_, open)| open.as_fd());
            let folder = open_folder(parent, &path[start..end])?;
            if self.open.len() == KEPT {
                self.open.remove(0);
            }
            self.open.push((path[..end].to_vec(), folder));
        }
        Ok(self.open.last().map_or(self.base.as_fd(), |(_, open)| open.as_fd()))
    }
}
