//! Exit statuses, and printing of errors.

use crate::console::{self, Cancelled};
use crate::error::{Error, ErrorKind};

pub(crate) const DONE: u8 = 0;
pub(crate) const INTERRUPTED: u8 = 130;

/// Shown by `--help` and the man page.
pub(crate) const TABLE: &str = "\
Exit status:
  0    done; the copied data are verified, unless the summary says NOT verified
  1    not finished; run the same command again to resume
  2    invalid command line
  3    the other side cannot be reached, refused access, or sent an invalid message
  4    file error on this host
  5    file error on the other host
  6    content failed verification
  7    stalled: no progress for --stall
  8    some files, or some of several sources, failed; the others are complete
  130  interrupted; run the same command again to resume";

pub(crate) fn status(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Usage => 2,
        ErrorKind::Unreachable => 3,
        ErrorKind::LocalFile => 4,
        ErrorKind::RemoteFile => 5,
        ErrorKind::Verification => 6,
        ErrorKind::Stalled => 7,
        ErrorKind::SomeFiles => 8,
        ErrorKind::Cancelled => INTERRUPTED,
        // A newer library may add kinds.
        _ => 1,
    }
}

/// The name of an error in `--json`.
pub(crate) fn kind_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Usage => "usage",
        ErrorKind::Unreachable => "unreachable",
        ErrorKind::LocalFile => "local-file",
        ErrorKind::RemoteFile => "remote-file",
        ErrorKind::Verification => "verification",
        ErrorKind::Stalled => "stalled",
        ErrorKind::SomeFiles => "some-files",
        ErrorKind::Cancelled => "interrupted",
        _ => "unfinished",
    }
}

/// The result of a command that only writes to stdout. If the command was cancelled because nobody
/// reads stdout, or because a write to stdout failed, the result is [`DONE`]. After a failed write
/// `main` replaces this status by that of a file error.
pub(crate) fn of_view(done: Result<u8, Error>) -> Result<u8, Error> {
    match (done, console::cancelled()) {
        (Err(error), Some(Cancelled::Unread)) if is_cancel(error.kind) => Ok(DONE),
        // One text for all calls, because the library's text depends on the interrupted call.
        (Err(_), Some(Cancelled::Interrupted)) => {
            Err(Error::new(ErrorKind::Cancelled, "interrupted"))
        }
        (done, _) => done,
    }
}

/// Whether a cancelled call may end with this error.
fn is_cancel(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Cancelled | ErrorKind::Unfinished)
}

pub(crate) fn fail(error: &Error) -> u8 {
    console::error(error);
    status(error.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_has_a_unique_status_and_name() {
        let all = ErrorKind::ALL.iter().copied();
        let mut statuses: Vec<u8> = all.clone().map(status).collect();
        let mut names: Vec<&str> = all.map(kind_name).collect();
        statuses.sort_unstable();
        statuses.dedup();
        names.sort_unstable();
        names.dedup();
        assert_eq!((statuses.len(), names.len()), (ErrorKind::ALL.len(), ErrorKind::ALL.len()));
        assert!(!statuses.contains(&DONE));
    }

    #[test]
    fn the_table_lists_every_status() {
        for kind in ErrorKind::ALL {
            let status = format!("\n  {} ", status(*kind));
            assert!(TABLE.contains(&status), "{kind:?}");
        }
    }
}
