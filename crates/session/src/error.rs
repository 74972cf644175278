//! The errors that prevent a session or end it.

use std::fmt;
use std::path::PathBuf;

/// The kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The session was lost; a new session can resume.
    Lost,
    /// The caller's request is invalid.
    Usage,
    /// The other side cannot be reached, has an unexpected id, or refuses; or this host cannot
    /// listen.
    Unreachable,
    /// An error with files on this host.
    LocalFile,
    /// An error with files on the other host.
    RemoteFile,
    /// A kind that a service defines, by its number (above 5).
    Service(u32),
}

impl Kind {
    /// Returns the number on the wire.
    pub fn code(self) -> u32 {
        match self {
            Kind::Lost => 1,
            Kind::Usage => 2,
            Kind::Unreachable => 3,
            Kind::LocalFile => 4,
            Kind::RemoteFile => 5,
            Kind::Service(code) => code,
        }
    }

    /// Returns the kind of a number on the wire.
    pub fn of_code(code: u32) -> Kind {
        let own = [Kind::Lost, Kind::Usage, Kind::Unreachable, Kind::LocalFile, Kind::RemoteFile];
        let found = own.into_iter().find(|kind| kind.code() == code);
        found.unwrap_or(if code == 0 { Kind::Lost } else { Kind::Service(code) })
    }
}

/// An error of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The kind of failure.
    pub kind: Kind,
    /// What failed, with whom, and why: one sentence without a full stop.
    pub what: String,
    /// The suggested action, if there is one.
    pub advice: Option<String>,
    /// Whether the peer did not answer. A retry may succeed.
    pub is_silence: bool,
    /// The file or folder of this host that the error concerns, if any.
    pub path: Option<PathBuf>,
    /// Whether the file or folder that the error concerns does not exist.
    pub is_missing: bool,
    /// Whether the other side works, but cannot take the request now. A retry may succeed.
    pub is_busy: bool,
}

impl Error {
    /// Creates an error without advice.
    pub fn new(kind: Kind, what: impl Into<String>) -> Error {
        let (what, is_silence, is_missing, is_busy) = (what.into(), false, false, false);
        Error { kind, what, advice: None, is_silence, path: None, is_missing, is_busy }
    }

    /// Returns the same error with advice.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Error {
        self.advice = Some(advice.into());
        self
    }

    #[must_use]
    pub(crate) fn at(mut self, path: impl Into<PathBuf>) -> Error {
        self.path = Some(path.into());
        self
    }

    #[must_use]
    pub(crate) fn silence(mut self) -> Error {
        self.is_silence = true;
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

impl From<longhaul_net::Error> for Error {
    fn from(error: longhaul_net::Error) -> Error {
        Error { advice: error.advice, ..Error::new(Kind::Unreachable, error.what) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_number_and_numbers_above_5_belong_to_a_service() {
        let own = [Kind::Lost, Kind::Usage, Kind::Unreachable, Kind::LocalFile, Kind::RemoteFile];
        for (kind, code) in own.into_iter().zip(1..) {
            assert_eq!((kind.code(), Kind::of_code(code)), (code, kind));
        }
        assert_eq!((Kind::Service(6).code(), Kind::of_code(6)), (6, Kind::Service(6)));
        assert_eq!(Kind::of_code(0), Kind::Lost, "0 is no kind's number");
    }

    #[test]
    fn an_error_shows_what_failed_and_the_advice() {
        let error = Error::new(Kind::Usage, "no such host");
        assert_eq!(error.to_string(), "no such host");
        let advised = error.advise("check the name");
        assert_eq!(advised.to_string(), "no such host; check the name");
        let net = longhaul_net::Error { what: "no zone".to_owned(), advice: advised.advice };
        let error = Error::from(net);
        assert_eq!(error.kind, Kind::Unreachable);
        assert_eq!(error.to_string(), "no zone; check the name");
    }
}
