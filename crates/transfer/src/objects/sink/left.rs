//! Partial files as this process itself left them.
//!
//! A journal vouches for what was on the disk when it was written. What has become of it since, a
//! later run must look at; but a connection that is lost for a moment is taken up by the same
//! process, and what that left untouched need not be read again.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::objects::folders::Attributes;
use crate::objects::manifest::FileTime;

/// Files that are remembered at most; those beyond them are read.
const MOST: usize = 4096;

/// Device and inode, and when it had been modified last.
static LEFT: Mutex<BTreeMap<(u64, u64), FileTime>> = Mutex::new(BTreeMap::new());

/// The file `identity` is left as it is, modified at `modified`.
pub(super) fn leave(identity: (u64, u64), modified: FileTime) {
    let mut left = LEFT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if left.len() < MOST || left.contains_key(&identity) {
        left.insert(identity, modified);
    }
}

/// Whether `found` is as this process left it; it is not left any more.
pub(super) fn take(found: &Attributes) -> bool {
    let mut left = LEFT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    left.remove(&found.identity) == Some(found.modified)
}
