//! Why a copy or a server ended, and what to do about it. [`public`] is the same for programs that
//! embed the library.

pub mod public;

use std::fmt;

use longhaul_files::{Advice, ErrorKind};
use longhaul_session::Kind;
use longhaul_text::CallOption;

/// What kind of end it was; the command line maps each to an exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Not finished; the same command goes on where this one stopped.
    Unfinished,
    /// The command itself makes no sense.
    Usage,
    /// The other side cannot be reached, is not who it should be, or does not allow it.
    Unreachable,
    /// Trouble with files on this host.
    LocalFile,
    /// Trouble with files on the other host.
    RemoteFile,
    /// What arrived is not what was sent, again and again.
    Verification,
    /// No progress for too long.
    Stalled,
    /// Some files of a tree failed.
    SomeFiles,
    /// Interrupted by the user.
    Interrupted,
}

/// An end that is no success: who, what, how much, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What kind of end.
    pub class: Class,
    /// Who and what and how much, in one sentence without a full stop.
    pub what: String,
    /// What to do about it, if there is something.
    pub advice: Option<String>,
    /// Nobody answered: it may be otherwise in a moment.
    pub is_silence: bool,
}

impl Error {
    /// An error without advice.
    pub fn new(class: Class, what: impl Into<String>) -> Error {
        Error { class, what: what.into(), advice: None, is_silence: false }
    }

    /// The same error with advice.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Error {
        self.advice = Some(advice.into());
        self
    }

    /// The same error, which says that nobody answered.
    #[must_use]
    pub fn silence(mut self) -> Error {
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
        Error { advice: error.advice, ..Error::new(Class::Unreachable, error.what) }
    }
}

impl From<longhaul_files::Error> for Error {
    fn from(error: longhaul_files::Error) -> Error {
        let class = match error.kind {
            ErrorKind::Request => Class::Usage,
            ErrorKind::File => Class::LocalFile,
            ErrorKind::Peer => Class::Unreachable,
            ErrorKind::Unfinished => Class::Unfinished,
        };
        let advice = error.advice.map(|advice| match advice {
            Advice::Words(words) => words,
            Advice::Recursive => format!("add {}", CallOption::Recursive),
            Advice::FileOrMeasure => {
                format!("{advice}, or measure with {} fake", CallOption::Receive)
            }
        });
        Error { advice, ..Error::new(class, error.what) }
    }
}

/// The classes that only transfers have, by their numbers on the wire.
const OWN: [(u32, Class); 4] =
    [(6, Class::Verification), (7, Class::Stalled), (8, Class::SomeFiles), (9, Class::Interrupted)];

impl From<longhaul_session::Error> for Error {
    fn from(error: longhaul_session::Error) -> Error {
        let class = match error.kind {
            Kind::Lost => Class::Unfinished,
            Kind::Usage => Class::Usage,
            Kind::Unreachable => Class::Unreachable,
            Kind::LocalFile => Class::LocalFile,
            Kind::RemoteFile => Class::RemoteFile,
            Kind::Service(code) => OWN
                .iter()
                .find(|(number, _)| *number == code)
                .map_or(Class::Unfinished, |(_, class)| *class),
        };
        Error { class, what: error.what, advice: error.advice, is_silence: error.is_silence }
    }
}

impl From<&Error> for longhaul_session::Error {
    fn from(error: &Error) -> longhaul_session::Error {
        let kind = match error.class {
            Class::Unfinished => Kind::Lost,
            Class::Usage => Kind::Usage,
            Class::Unreachable => Kind::Unreachable,
            Class::LocalFile => Kind::LocalFile,
            Class::RemoteFile => Kind::RemoteFile,
            own => OWN
                .iter()
                .find(|(_, class)| *class == own)
                .map_or(Kind::Lost, |(number, _)| Kind::Service(*number)),
        };
        let ended = longhaul_session::Error::new(kind, error.what.clone());
        longhaul_session::Error { advice: error.advice.clone(), ..ended }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_survives_the_session_and_has_its_own_number() {
        let classes = [
            Class::Unfinished,
            Class::Usage,
            Class::Unreachable,
            Class::LocalFile,
            Class::RemoteFile,
            Class::Verification,
            Class::Stalled,
            Class::SomeFiles,
            Class::Interrupted,
        ];
        for (at, class) in classes.into_iter().enumerate() {
            let error = Error::new(class, "x").advise("y");
            let ended = longhaul_session::Error::from(&error);
            assert_eq!(ended.kind.code(), at as u32 + 1);
            assert_eq!(Kind::of_code(ended.kind.code()), ended.kind);
            assert_eq!(Error::from(ended), error);
        }
    }
}
