//! Why files cannot be read or written.

use std::fmt;
use std::path::PathBuf;

/// The party that can resolve an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileErrorKind {
    /// The caller: the request is invalid.
    Request,
    /// The owner of this host's files and disks.
    File,
    /// The peer, which sent unrequested data.
    Peer,
    /// Nobody: the copy was interrupted, and the same copy may succeed later.
    Unfinished,
    /// Nobody: other copies use the memory, and the same copy may succeed later.
    Busy,
}

/// The suggested action for an [`Error`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// A sentence without a full stop.
    Words(String),
    /// Request a recursive copy.
    Recursive,
    /// Copy to the name of a file; for a speed test, measure and write nothing.
    FileOrMeasure,
}

/// An error of the source, the destination or a list of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The party that can resolve the error.
    pub kind: FileErrorKind,
    /// What failed, on which path, and why: one sentence without a full stop.
    pub what: String,
    /// The suggested action, if there is one.
    pub advice: Option<Advice>,
    /// The file or folder concerned, if any: as the caller named it, or relative to the top of the
    /// copy.
    pub path: Option<PathBuf>,
    /// Whether the file or folder does not exist.
    pub is_missing: bool,
}

impl Error {
    /// Creates an error without advice.
    pub fn new(kind: FileErrorKind, what: impl Into<String>) -> Error {
        Error { kind, what: what.into(), advice: None, path: None, is_missing: false }
    }

    /// Returns the same error with advice.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<Advice>) -> Error {
        self.advice = Some(advice.into());
        self
    }

    /// Returns the same error about the file or folder `path`.
    #[must_use]
    pub fn at(mut self, path: impl Into<PathBuf>) -> Error {
        self.path = Some(path.into());
        self
    }
}

impl<T: Into<String>> From<T> for Advice {
    fn from(words: T) -> Advice {
        Advice::Words(words.into())
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Advice::Words(words) => words,
            Advice::Recursive => "ask for a recursive copy",
            Advice::FileOrMeasure => "copy to the name of a file",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_what_failed_and_the_advice() {
        let error = Error::new(FileErrorKind::File, "cannot read x");
        assert_eq!(error.to_string(), "cannot read x");
        for (advice, shown) in [
            ("check the disk".into(), "cannot read x; check the disk"),
            (Advice::Recursive, "cannot read x; ask for a recursive copy"),
            (Advice::FileOrMeasure, "cannot read x; copy to the name of a file"),
        ] {
            assert_eq!(error.clone().advise(advice).to_string(), shown);
        }
    }
}
