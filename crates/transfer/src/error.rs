//! The reason why a copy or a server ended, with advice. [`public`] has the error type for programs
//! that embed the library.

mod kind;
pub mod public;

use std::fmt;
use std::path::{Path, PathBuf};

use longhaul_files::{Advice, FileErrorKind};
use longhaul_session::Kind;
use longhaul_text::CallOption;

pub use kind::ErrorKind;

/// The reason for a failure, with advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The kind of failure.
    pub kind: ErrorKind,
    /// What failed, on which object, and why: one sentence without a full stop.
    pub what: String,
    /// The suggested action, if there is one.
    pub advice: Option<String>,
    /// Whether nobody answered. A retry may then succeed.
    pub is_silence: bool,
    /// The file or folder concerned, if any.
    pub path: Option<Box<Path>>,
    /// Whether the file or folder concerned does not exist.
    pub is_missing: bool,
    /// Whether a side works, but cannot take the request now. A retry may then succeed.
    pub is_busy: bool,
}

impl Error {
    /// Returns an error without advice.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Error {
        let (what, is_silence, is_missing, is_busy) = (what.into(), false, false, false);
        Error { kind, what, advice: None, is_silence, path: None, is_missing, is_busy }
    }

    /// Adds advice.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Error {
        self.advice = Some(advice.into());
        self
    }

    /// Marks that nobody answered.
    #[must_use]
    pub fn silence(mut self) -> Error {
        self.is_silence = true;
        self
    }

    /// Marks that a side works, but cannot take the request now.
    #[must_use]
    pub(crate) fn busy(self) -> Error {
        Error { is_busy: true, ..self }
    }

    /// Sets the file or folder concerned.
    #[must_use]
    pub fn at(self, path: impl Into<PathBuf>) -> Error {
        Error { path: Some(path.into().into_boxed_path()), ..self }
    }

    /// Sets the path that the call requested, if the error concerns a file of the other host. No
    /// path comes from the wire.
    #[must_use]
    pub(crate) fn at_requested(self, path: &[u8]) -> Error {
        match (self.kind, &self.path) {
            (ErrorKind::RemoteFile, None) => self.at(longhaul_files::place::as_path(path)),
            _ => self,
        }
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

impl From<longhaul_net::Error> for Error {
    fn from(error: longhaul_net::Error) -> Error {
        Error { advice: error.advice, ..Error::new(ErrorKind::Unreachable, error.what) }
    }
}

impl From<longhaul_files::Error> for Error {
    fn from(error: longhaul_files::Error) -> Error {
        let kind = match error.kind {
            FileErrorKind::Request => ErrorKind::Usage,
            FileErrorKind::File => ErrorKind::LocalFile,
            FileErrorKind::Peer => ErrorKind::Unreachable,
            FileErrorKind::Unfinished | FileErrorKind::Busy => ErrorKind::Unfinished,
        };
        let is_busy = error.kind == FileErrorKind::Busy;
        let advice = error.advice.map(|advice| match advice {
            Advice::Words(words) => words,
            Advice::Recursive => format!("add {}", CallOption::Recursive),
            Advice::FileOrMeasure => {
                format!("{advice}, or measure with {} fake", CallOption::Receive)
            }
        });
        let path = error.path.map(PathBuf::into_boxed_path);
        let is_missing = error.is_missing;
        Error { advice, path, is_missing, is_busy, ..Error::new(kind, error.what) }
    }
}

impl From<longhaul_session::Error> for Error {
    fn from(error: longhaul_session::Error) -> Error {
        let kind = ErrorKind::of_code(error.kind.code());
        let path = error.path.map(PathBuf::into_boxed_path);
        let longhaul_session::Error { what, advice, is_silence, is_missing, is_busy, .. } = error;
        Error { kind, what, advice, is_silence, path, is_missing, is_busy }
    }
}

impl From<&Error> for longhaul_session::Error {
    fn from(error: &Error) -> longhaul_session::Error {
        let kind = Kind::of_code(error.kind.code().into());
        let ended = longhaul_session::Error::new(kind, error.what.clone());
        let Error { advice, path, is_silence, is_missing, is_busy, .. } = error.clone();
        let path = path.map(PathBuf::from);
        longhaul_session::Error { advice, path, is_silence, is_missing, is_busy, ..ended }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_of_the_other_hosts_files_gets_the_requested_path() {
        for kind in ErrorKind::ALL {
            let error = Error::new(*kind, "x").at_requested(b"a/b");
            let expected = (*kind == ErrorKind::RemoteFile).then_some(Path::new("a/b"));
            assert_eq!(error.path.as_deref(), expected, "{kind:?}");
        }
        let known = Error::new(ErrorKind::RemoteFile, "x").at("y").at_requested(b"a/b");
        assert_eq!(known.path.as_deref(), Some(Path::new("y")));
    }

    #[test]
    fn each_error_kind_survives_the_session_under_its_own_number() {
        for kind in ErrorKind::ALL {
            let error = Error::new(*kind, "x").advise("y").at("z").busy();
            let error = Error { is_missing: true, ..error };
            let ended = longhaul_session::Error::from(&error);
            assert_eq!(ended.kind.code(), u32::from(kind.code()));
            assert_eq!(Error::from(ended), error);
        }
        let named = [
            (ErrorKind::Unfinished, Kind::Lost),
            (ErrorKind::Usage, Kind::Usage),
            (ErrorKind::Unreachable, Kind::Unreachable),
            (ErrorKind::LocalFile, Kind::LocalFile),
            (ErrorKind::RemoteFile, Kind::RemoteFile),
        ];
        for (kind, of_session) in named {
            let ended = longhaul_session::Error::from(&Error::new(kind, "x"));
            assert_eq!(ended.kind, of_session);
        }
    }
}
