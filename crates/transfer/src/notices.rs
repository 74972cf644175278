//! Notices (messages for the program that started a copy): entries of the file list, and warnings.
//! Also the errors of a copy that ends early, which are not notices.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::progress::Notice;
use longhaul_files::watch::Held;
use longhaul_files::{Entry, Kind, Manifest, Watch};

pub(crate) fn interrupted() -> Error {
    Error::new(ErrorKind::Cancelled, "interrupted").advise("run the same command again to resume")
}

pub(crate) fn kept_extra() -> Notice {
    Notice::Warning("nothing was deleted, because the source was not copied completely".to_owned())
}

/// `planned`: the missing data are known, so neither end is still walking or hashing files.
pub(crate) fn stalled(stall: Duration, planned: bool) -> Error {
    let seconds = stall.as_secs();
    let what = match planned {
        true => format!("no data arrived for {seconds} s"),
        false => {
            format!("no data arrived for {seconds} s, and neither disk made progress")
        }
    };
    Error::new(ErrorKind::Stalled, what).advise("run the same command again to resume")
}

pub(crate) fn held(held: &Held, side: &str) -> Notice {
    let Held { path, patience } = held;
    let seconds = patience.as_secs_f64();
    let what =
        format!("another copy is writing {path}{side}; waiting up to {seconds} s for its end");
    Notice::Warning(what)
}

/// Takes the pending notices of the work on this host's files.
pub(crate) fn of_files(watch: &Watch) -> impl Iterator<Item = Notice> {
    let held = watch.take_held().map(|it| held(&it, ""));
    held.into_iter().chain(watch.take_warning().map(Notice::Warning))
}

/// Indexes beyond `manifest` are ignored.
pub(crate) fn entries_of<'a>(
    manifest: &'a Manifest,
    entries: &'a [Range<u64>],
) -> impl Iterator<Item = (u32, &'a Entry)> {
    let all = manifest.entries();
    let numbers = entries.iter().flat_map(|range| range.start..range.end.min(all.len() as u64));
    numbers.filter_map(|number| Some((number as u32, all.get(number as usize)?)))
}

pub(crate) fn made<'a>(
    manifest: &'a Manifest,
    entries: &'a [Range<u64>],
) -> impl Iterator<Item = Notice> + 'a {
    entries_of(manifest, entries).map(|(made, _)| created(manifest, made, &manifest.path(made)))
}

/// Folders are left out, because their existence says nothing about their content.
pub(crate) fn skipped(
    manifest: &Manifest,
    entries: impl Iterator<Item = u32>,
) -> impl Iterator<Item = Notice> {
    let files = entries.filter(|number| manifest.entries()[*number as usize].kind != Kind::Folder);
    files.map(|number| Notice::Skipped { path: shown(&manifest.path(number)) })
}

pub(crate) fn created(manifest: &Manifest, number: u32, path: &[u8]) -> Notice {
    let path = shown(path);
    match &manifest.entries()[number as usize].kind {
        Kind::File { .. } => Notice::File { path },
        Kind::Folder => Notice::Folder { path },
        Kind::Link { target } => Notice::Link { path, target: shown(target) },
    }
}

pub(crate) fn shown(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_another_copy_is_named_in_seconds_also_after_a_message() {
        for (millis, named) in [(500, "up to 0.5 s"), (30_000, "up to 30 s")] {
            let patience = Duration::from_millis(millis);
            let sent = crate::control::Held::new("x".to_owned(), patience);
            let patience = sent.patience();
            let Notice::Warning(what) = held(&Held { path: sent.path, patience }, "") else {
                panic!("it is no warning")
            };
            assert!(what.contains(named), "{what}");
        }
        let longest = Duration::from_secs(u64::MAX);
        let sent = crate::control::Held::new(String::new(), longest);
        assert_eq!(sent.patience(), Duration::from_secs(u32::MAX.into()));
        // No message makes the sum overflow.
        let hostile = crate::control::Held { nanos: u32::MAX, ..sent };
        assert_eq!(hostile.patience().as_secs(), u64::from(u32::MAX) + 4);
    }
}
