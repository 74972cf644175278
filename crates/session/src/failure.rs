//! Why one attempt at one address led to no session.

use super::id::PeerId;

/// Why one attempt brought no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Somebody else than expected answered.
    Stranger(PeerId),
    /// Nothing listens there.
    Refused,
    /// Nothing came back.
    Silent(&'static str),
    /// Anything else.
    Other(String),
}

impl Failure {
    pub(super) fn silent(what: &'static str) -> Failure {
        Failure::Silent(what)
    }

    pub(super) fn other(what: impl Into<String>) -> Failure {
        Failure::Other(what.into())
    }

    pub(super) fn text(&self) -> String {
        match self {
            Failure::Stranger(id) => format!("{id} answered"),
            Failure::Refused => "connection refused".to_owned(),
            Failure::Silent(what) => (*what).to_owned(),
            Failure::Other(what) => what.clone(),
        }
    }
}
