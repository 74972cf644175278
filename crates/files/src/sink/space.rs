//! Checks the free space on the disk before the start of a copy, and reports a full disk.

use std::io;
use std::path::Path;

use longhaul_proto::units::Bytes;

use crate::error::{Error, FileErrorKind};
use crate::store::{Folder, Room};

pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

pub(super) fn full(path: &Path, size: u64, error: &io::Error) -> Error {
    let why = longhaul_text::reason(error);
    let what = format!("cannot write {} ({}): {why}", path.display(), Bytes::new(size));
    Error::new(FileErrorKind::File, what)
        .at(path)
        .advise("free space and run the same command again to resume")
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Need {
    pub(super) bytes: u64,
    pub(super) files: u64,
}

pub(super) fn check(folder: &dyn Folder, path: &Path, need: Need) -> Result<(), Error> {
    // If the file system does not report its free space, the copy fails only when the disk is full.
    folder.room().map_or(Ok(()), |room| check_room(room, path, need))
}

fn check_room(room: Room, path: &Path, need: Need) -> Result<(), Error> {
    let free = room.free;
    // Add half a block per file: on average, half of a file's last block is empty.
    let bytes = need.bytes.saturating_add(need.files.saturating_mul(room.block / 2));
    if bytes > free {
        let missing = bytes - free;
        let what = format!(
            "not enough space at {}: {} needed, {} free, {} missing",
            path.display(),
            Bytes::new(bytes),
            Bytes::new(free),
            Bytes::new(missing)
        );
        let error = Error::new(FileErrorKind::File, what).at(path);
        return Err(error.advise("free space or copy elsewhere"));
    }
    if let Some(left) = room.free_files.filter(|left| need.files > *left) {
        let (shown, files) = (path.display(), need.files);
        let what = format!("not enough inodes at {shown}: {files} are needed, {left} are free");
        return Err(Error::new(FileErrorKind::File, what).at(path).advise("copy elsewhere"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::store::buffers::MemoryFolder;

    fn why(free: u64, bytes: u64) -> Option<String> {
        let folder = MemoryFolder::new(free);
        let need = Need { bytes, files: 3 };
        check(&folder, Path::new("there"), need).err().map(|error| error.what)
    }

    #[test]
    fn a_copy_may_need_all_of_the_free_space_and_one_byte_more_is_refused() {
        assert_eq!(why(1_000_000, 1_000_000), None);
        let reported = why(1_000_000, 3_000_000).expect("there is too little");
        let expected = "not enough space at there: 3.00 MB needed, 1.00 MB free, 2.00 MB missing";
        assert_eq!(reported, expected);
        assert!(why(1_000_000, 1_000_001).is_some());
    }

    #[test]
    fn a_full_disk_and_an_exceeded_quota_count_as_full_and_other_errors_do_not() {
        assert!(is_full(&Errno::NOSPC.into()) && is_full(&Errno::DQUOT.into()));
        assert!(!is_full(&Errno::IO.into()) && !is_full(&Errno::FBIG.into()));
    }

    #[test]
    fn each_file_needs_half_a_block_and_an_inode() {
        let why = |free, free_files| {
            let room = Room { free, block: 4096, free_files };
            let need = Need { bytes: 1000, files: 3 };
            check_room(room, Path::new("there"), need).err().map(|error| error.what)
        };
        assert_eq!((why(1000 + 3 * 2048, None), why(1000 + 3 * 2048, Some(3))), (None, None));
        assert!(why(1000 + 3 * 2048 - 1, None).is_some_and(|why| why.contains("not enough space")));
        let inodes = "not enough inodes at there: 3 are needed, 2 are free";
        assert_eq!(why(u64::MAX, Some(2)).as_deref(), Some(inodes));
    }
}
