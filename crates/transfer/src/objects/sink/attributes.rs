//! Permissions and times of what was copied.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Mode, Timespec, Timestamps, UTIME_OMIT};

use crate::objects::Entry;
use crate::objects::folders::{self, FileKind};
use crate::objects::manifest::FileTime;

/// What of the source's attributes is kept. Modification times of files always are: a later run
/// compares by them. Where permissions are not kept, a file that is replaced keeps its own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Keep {
    pub(super) permissions: bool,
    pub(super) set_id: bool,
}

impl Keep {
    /// The permissions of the file that is about to be replaced, unless the source's are kept.
    /// Other content has no claim to run as another user.
    pub(super) fn own_mode(self, folder: impl AsFd, name: &[u8]) -> io::Result<Option<u32>> {
        if self.permissions {
            return Ok(None);
        }
        let found = folders::look_if_there(folder, name)?;
        let file = found.filter(|found| found.kind == FileKind::File);
        Ok(file.map(|file| file.mode & 0o777))
    }

    /// The mode of a file while it is written; the system takes the umask off. Where permissions
    /// are kept, nobody else sees it before it has them, and where it replaces a file of mode
    /// `own`, nobody who could not see that; else it can be run if its source can.
    pub(super) fn mode_at_first(self, entry: &Entry, own: Option<u32>) -> u32 {
        match own {
            _ if self.permissions => 0o600,
            Some(own) => 0o600 | (own & 0o666),
            None => 0o666 | (entry.mode & 0o111),
        }
    }

    /// The permissions to be set at the end, if they are kept.
    pub(super) fn mode(self, entry: &Entry) -> Option<Mode> {
        let mask = if self.set_id { 0o7777 } else { 0o777 };
        self.permissions.then(|| Mode::from_bits_truncate(entry.mode & mask))
    }

    /// Gives a file that is whole its permissions and its time; `own` are those of the file that it
    /// replaces.
    pub(super) fn apply(self, file: &File, entry: &Entry, own: Option<u32>) -> io::Result<()> {
        if let Some(mode) = self.mode(entry).or(own.map(Mode::from_bits_truncate)) {
            rustix::fs::fchmod(file, mode)?;
        }
        set_time(file, entry.modified)
    }
}

fn times(modified: FileTime) -> Timestamps {
    let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let last_modification = Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanos.into() };
    Timestamps { last_access, last_modification }
}

/// Sets when an open file or folder was last modified.
pub(super) fn set_time(file: impl AsFd, modified: FileTime) -> io::Result<()> {
    Ok(rustix::fs::futimens(file, &times(modified))?)
}

/// Sets when a link was last modified, not what it points to.
pub(super) fn set_link_time(folder: impl AsFd, name: &[u8], modified: FileTime) -> io::Result<()> {
    Ok(rustix::fs::utimensat(folder, name, &times(modified), AtFlags::SYMLINK_NOFOLLOW)?)
}
