//! Permissions and times of what was copied.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Mode, Timespec, Timestamps, UTIME_OMIT};

use crate::objects::Entry;
use crate::objects::manifest::FileTime;

/// What of the source's attributes is kept. Modification times of files always are: a later run
/// compares by them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Keep {
    pub(super) permissions: bool,
    pub(super) set_id: bool,
}

impl Keep {
    /// The mode of a file while it is written; the system takes the umask off. Where permissions
    /// are kept, nobody else sees it before it has them; else it can be run if its source can.
    pub(super) fn mode_at_first(self, entry: &Entry) -> u32 {
        if self.permissions { 0o600 } else { 0o666 | (entry.mode & 0o111) }
    }

    /// The permissions to be set at the end, if they are kept.
    pub(super) fn mode(self, entry: &Entry) -> Option<Mode> {
        let mask = if self.set_id { 0o7777 } else { 0o777 };
        self.permissions.then(|| Mode::from_bits_truncate(entry.mode & mask))
    }

    /// Gives a file that is whole its permissions and its time.
    pub(super) fn apply(self, file: &File, entry: &Entry) -> io::Result<()> {
        if let Some(mode) = self.mode(entry) {
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
