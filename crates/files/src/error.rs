//! Why files cannot be read or written.

use std::fmt;

/// Who can do something about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The caller: the request makes no sense.
    Request,
    /// The owner of this host's files and disks.
    File,
    /// The other side: it sent what nobody asked for.
    Peer,
    /// Nobody needs to: the copy was left off, and the same copy may succeed later.
    Unfinished,
}

/// An error of the source, the destination or a list of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Who can do something about it.
    pub kind: ErrorKind,
    /// What failed, on which path, and why: one sentence without a full stop.
    pub what: String,
    /// What to do about it, if something can be done.
    pub advice: Option<String>,
}

impl Error {
    /// Creates an error without advice.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Error {
        Error { kind, what: what.into(), advice: None }
    }

    /// Returns the same error with advice.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Error {
        self.advice = Some(advice.into());
        self
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
