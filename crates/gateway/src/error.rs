//! Reasons why a gateway cannot start.

use std::fmt;

/// An error of the settings or of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Whether the settings are invalid. If not, a file or an address of this host failed.
    pub is_usage: bool,
    /// What failed, on which object, and the reason, in one sentence without a full stop.
    pub what: String,
    /// The suggested action.
    pub advice: String,
}

impl Error {
    pub(crate) fn usage(what: impl Into<String>, advice: &str) -> Error {
        Error { is_usage: true, what: what.into(), advice: advice.to_owned() }
    }

    pub(crate) fn host(what: impl Into<String>, advice: &str) -> Error {
        Error { is_usage: false, ..Error::usage(what, advice) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.advice)
    }
}

impl std::error::Error for Error {}
