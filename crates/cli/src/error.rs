//! Why a command ended, and what its user can do about it.

use std::fmt;

pub(crate) use longhaul::ErrorKind;

/// An end that is no success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    /// What kind of end; each has an exit status.
    pub(crate) kind: ErrorKind,
    /// What failed, on which object, and why, in one sentence without a full stop.
    pub(crate) what: String,
    /// One action that may help.
    pub(crate) advice: Option<String>,
}

impl Error {
    /// An error without advice.
    pub(crate) fn new(kind: ErrorKind, what: impl Into<String>) -> Error {
        Error { kind, what: what.into(), advice: None }
    }

    /// The same error with advice.
    #[must_use]
    pub(crate) fn advise(self, advice: impl Into<String>) -> Error {
        Error { advice: Some(advice.into()), ..self }
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

/// The same value with other fields: literals of other crates' growing types are not allowed.
#[cfg(test)]
macro_rules! but {
    ($base:expr, $($field:ident: $value:expr),* $(,)?) => {{
        let mut value = $base;
        $(value.$field = $value;)*
        value
    }};
}
#[cfg(test)]
pub(crate) use but;

impl From<longhaul::Error> for Error {
    fn from(error: longhaul::Error) -> Error {
        let (what, advice) = (error.what().to_owned(), error.advice().map(str::to_owned));
        Error { kind: error.kind, what, advice }
    }
}
