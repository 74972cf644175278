//! What an observer is told of entries, and the errors of a copy that is ended from outside.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::progress::Notice;
use longhaul_files::{Entry, Kind, Manifest};

/// The error of a copy that its user ended.
pub(crate) fn interrupted() -> Error {
    Error::new(ErrorKind::Cancelled, "interrupted")
        .advise("the same command goes on where this one stopped")
}

/// The warning of a copy that was to remove names and has removed none.
pub(crate) fn kept_extra() -> Notice {
    Notice::Warning("nothing was deleted, since not all of the source was copied".to_owned())
}

/// The error of a copy in which nothing moves any more.
pub(crate) fn stalled(stall: Duration, planned: bool) -> Error {
    let seconds = stall.as_secs();
    let what = match planned {
        true => format!("nothing has come across for {seconds} s"),
        false => {
            format!("nothing has come across for {seconds} s, nor been looked at on the disks")
        }
    };
    Error::new(ErrorKind::Stalled, what).advise("the same command goes on where this one stopped")
}

/// Entries of a manifest; numbers beyond it name nothing.
pub(crate) fn entries_of<'a>(
    manifest: &'a Manifest,
    entries: &'a [Range<u64>],
) -> impl Iterator<Item = (u32, &'a Entry)> {
    let all = manifest.entries();
    let numbers = entries.iter().flat_map(|range| range.start..range.end.min(all.len() as u64));
    numbers.filter_map(|number| Some((number as u32, all.get(number as usize)?)))
}

/// What is to be told of entries that were made, or would be.
pub(crate) fn made<'a>(
    manifest: &'a Manifest,
    entries: &'a [Range<u64>],
) -> impl Iterator<Item = Notice> + 'a {
    entries_of(manifest, entries).map(|(made, _)| told(manifest, made, &manifest.path(made)))
}

/// What is to be told of entries that were there and equal. That a folder is there says nothing of
/// what is in it.
pub(crate) fn skipped(
    manifest: &Manifest,
    entries: impl Iterator<Item = u32>,
) -> impl Iterator<Item = Notice> {
    let told = entries.filter(|number| manifest.entries()[*number as usize].kind != Kind::Folder);
    told.map(|number| Notice::Skipped { path: shown(&manifest.path(number)) })
}

/// What is to be told of an entry that was made, or would be.
pub(crate) fn told(manifest: &Manifest, number: u32, path: &[u8]) -> Notice {
    let path = shown(path);
    match &manifest.entries()[number as usize].kind {
        Kind::File { .. } => Notice::File { path },
        Kind::Folder => Notice::Folder { path },
        Kind::Link { target } => Notice::Link { path, target: shown(target) },
    }
}

/// A path as notices have it.
pub(crate) fn shown(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}
