//! The error of the library. Its text names options of the call, not flags of the command line.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_text::CallOption;

use super as error;

pub use super::ErrorKind;

/// The side on which a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Side {
    /// This host, or the call.
    Local,
    /// The other host.
    Remote,
    /// The network between the hosts, or an unknown side.
    Between,
}

/// Why a call failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Error {
    /// The kind of failure.
    pub kind: ErrorKind,
    /// The side that failed.
    pub side: Side,
    /// The file or folder concerned, if any: as the call named it, or as events name files.
    pub path: Option<PathBuf>,
    /// Whether the same call resumes the transfer where this one stopped.
    pub is_resumable: bool,
    /// Whether the file or folder concerned does not exist.
    pub is_missing: bool,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    inner: error::Error,
}

impl Error {
    /// Returns an error, for programs that wrap this library.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Error {
        error::Error::new(kind, what).into()
    }

    /// Sets the path.
    #[must_use]
    pub fn at(self, path: impl Into<PathBuf>) -> Error {
        Error { path: Some(path.into()), ..self }
    }

    /// Sets the cause.
    #[must_use]
    pub fn caused_by(self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error { source: Some(Arc::new(source)), ..self }
    }

    /// Returns what failed and why, without the advice.
    pub fn what(&self) -> &str {
        &self.inner.what
    }

    /// Returns one action that may help, if there is one.
    pub fn advice(&self) -> Option<&str> {
        self.inner.advice.as_deref()
    }

    /// Returns the call's options that the error's text and advice name. The text names an option
    /// in backquotes, for example `` `memory` ``, so a program can put the name of its own option
    /// there.
    pub fn options(&self) -> Vec<CallOption> {
        CallOption::named_in(&self.to_string())
    }
}

impl From<longhaul_session::Error> for Error {
    fn from(inner: longhaul_session::Error) -> Error {
        error::Error::from(inner).into()
    }
}

impl From<error::Error> for Error {
    fn from(inner: error::Error) -> Error {
        let kind = inner.kind;
        let side = match kind {
            ErrorKind::Usage | ErrorKind::LocalFile | ErrorKind::Cancelled => Side::Local,
            ErrorKind::RemoteFile => Side::Remote,
            ErrorKind::Unfinished
            | ErrorKind::Unreachable
            | ErrorKind::Verification
            | ErrorKind::Stalled
            | ErrorKind::SomeFiles => Side::Between,
        };
        let is_resumable =
            matches!(kind, ErrorKind::Unfinished | ErrorKind::Stalled | ErrorKind::Cancelled);
        let (path, is_missing) = (inner.path.as_deref().map(Path::to_owned), inner.is_missing);
        Error { kind, side, path, is_resumable, is_missing, source: None, inner }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_path_and_its_cause() {
        let cause = std::io::Error::other("no medium");
        let error = Error::new(ErrorKind::LocalFile, "cannot read a").at("a").caused_by(cause);
        assert_eq!((error.side, error.path.as_deref()), (Side::Local, Some("a".as_ref())));
        let source = std::error::Error::source(&error).expect("it has a cause");
        assert_eq!(source.to_string(), "no medium");
    }
}
