//! Why files cannot be read or written.

use std::fmt;
use std::path::PathBuf;

/// Who can do something about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileErrorKind {
    /// The caller: the request makes no sense.
    Request,
    /// The owner of this host's files and disks.
    File,
    /// The other side: it sent what nobody asked for.
    Peer,
    /// Nobody needs to: the copy was left off, and the same copy may succeed later.
    Unfinished,
}

/// What the caller may do about an [`Error`]. Its text names no flag; a caller that has flags for
/// the last two may name them instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// A sentence without a full stop.
    Words(String),
    /// Ask for a copy that takes folders and links, too.
    Recursive,
    /// Copy to the name of a file. Where only the speed matters, measure and write nothing.
    FileOrMeasure,
}

/// An error of the source, the destination or a list of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Who can do something about it.
    pub kind: FileErrorKind,
    /// What failed, on which path, and why: one sentence without a full stop.
    pub what: String,
    /// What to do about it, if something can be done.
    pub advice: Option<Advice>,
    /// The file or folder concerned, where it is one: as the caller named it, or relative to the
    /// top of the copy.
    pub path: Option<PathBuf>,
}

impl Error {
    /// Creates an error without advice.
    pub fn new(kind: FileErrorKind, what: impl Into<String>) -> Error {
        Error { kind, what: what.into(), advice: None, path: None }
    }

    /// Returns the same error with advice.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<Advice>) -> Error {
        self.advice = Some(advice.into());
        self
    }

    /// Returns the same error, which concerns the file or folder `path`.
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
