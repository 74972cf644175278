//! Why a socket, a port or an address cannot be used.

use std::fmt;

/// An error of the data plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What failed, on which address, and why: one sentence without a full stop.
    pub what: String,
    /// Advice, if there is any.
    pub advice: Option<String>,
}

impl Error {
    /// Creates an error without advice.
    pub fn new(what: impl Into<String>) -> Error {
        Error { what: what.into(), advice: None }
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
