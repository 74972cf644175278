//! The partial files that earlier attempts of this process left behind.
//!
//! A later run must compare the chunks of a partial file with its journal, because the file may
//! have changed. After a lost connection the same process resumes without reading unchanged files
//! again.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::manifest::FileTime;
use crate::store::Attributes;

/// Maximum number of files to remember; others are read again.
const MOST: usize = 4096;

/// The partial files that attempts of one client or server left. The data of each file are on disk,
/// and its journal lists them.
#[derive(Debug, Default)]
pub struct Left(Mutex<BTreeMap<(u64, u64), FileTime>>);

impl Left {
    pub(super) fn leave(&self, identity: (u64, u64), modified: FileTime) {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if left.len() < MOST || left.contains_key(&identity) {
            left.insert(identity, modified);
        }
    }

    /// Returns whether `found` has a record and has not changed since the record was made. Removes
    /// the record.
    pub(super) fn take(&self, found: &Attributes) -> bool {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        left.remove(&found.identity) == Some(found.modified)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::store::Folder;
    use crate::store::buffers::MemoryFolder;

    #[test]
    fn a_record_applies_once_and_only_if_its_file_is_unchanged() {
        let folder = MemoryFolder::new(10);
        folder.put(OsStr::new("x"), Vec::new());
        let found = folder.look(b"x").expect("it is there");
        let left = Left::default();
        assert!(!left.take(&found));
        left.leave(found.identity, found.modified);
        assert!(left.take(&found) && !left.take(&found));
        left.leave(found.identity, FileTime { seconds: 1, nanos: 0 });
        assert!(!left.take(&found));
    }

    #[test]
    fn the_number_of_remembered_files_is_limited() {
        let left = Left::default();
        let at = |seconds| FileTime { seconds, nanos: 0 };
        for number in 0..=MOST as u64 {
            left.leave((0, number), at(0));
        }
        left.leave((0, 7), at(9));
        let remembered = left.0.lock().expect("one thread");
        assert_eq!((remembered.len(), remembered.get(&(0, 7))), (MOST, Some(&at(9))));
        assert!(!remembered.contains_key(&(0, MOST as u64)));
    }
}
