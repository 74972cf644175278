//! The kinds of failure.

/// The kind of failure that ended a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The transfer did not finish; the same call resumes it.
    Unfinished,
    /// The call itself is invalid.
    Usage,
    /// The peer cannot be reached, has the wrong id, does not allow the request, or sent an invalid
    /// message.
    Unreachable,
    /// A failure with files on this host.
    LocalFile,
    /// A failure with files on the other host.
    RemoteFile,
    /// Content failed verification.
    Verification,
    /// No progress for longer than the stall limit.
    Stalled,
    /// Some files of a tree failed.
    SomeFiles,
    /// The transfer was cancelled.
    Cancelled,
}

impl ErrorKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: &[ErrorKind] = &[
        ErrorKind::Unfinished,
        ErrorKind::Usage,
        ErrorKind::Unreachable,
        ErrorKind::LocalFile,
        ErrorKind::RemoteFile,
        ErrorKind::Verification,
        ErrorKind::Stalled,
        ErrorKind::SomeFiles,
        ErrorKind::Cancelled,
    ];

    /// Returns the number of the kind, the same as on the wire; numbers never change.
    pub fn code(self) -> u16 {
        // A new kind gets the next number, and a place in `ALL`.
        match self {
            ErrorKind::Unfinished => 1,
            ErrorKind::Usage => 2,
            ErrorKind::Unreachable => 3,
            ErrorKind::LocalFile => 4,
            ErrorKind::RemoteFile => 5,
            ErrorKind::Verification => 6,
            ErrorKind::Stalled => 7,
            ErrorKind::SomeFiles => 8,
            ErrorKind::Cancelled => 9,
        }
    }

    /// Returns the kind of a number on the wire; an unknown number is [`ErrorKind::Unfinished`].
    pub(super) fn of_code(code: u32) -> ErrorKind {
        let known = ErrorKind::ALL.iter().find(|kind| u32::from(kind.code()) == code);
        known.copied().unwrap_or(ErrorKind::Unfinished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_kinds_have_their_numbers_on_the_wire() {
        for (at, kind) in ErrorKind::ALL.iter().enumerate() {
            assert_eq!(usize::from(kind.code()), at + 1, "{kind:?}");
            assert_eq!(ErrorKind::of_code(u32::from(kind.code())), *kind);
        }
        assert_eq!(ErrorKind::ALL.len(), 9);
        assert_eq!(ErrorKind::of_code(10), ErrorKind::Unfinished);
    }
}
