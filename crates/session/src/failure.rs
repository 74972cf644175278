//! Why one attempt at one address did not lead to a session.

use super::id::PeerId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// A server with another id answered.
    Stranger(PeerId),
    /// No program listens on the port.
    Refused,
    /// No answer, with the text for the user.
    Silent(&'static str),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_says_what_answered_or_what_went_wrong() {
        let id = PeerId([3; 32]);
        assert_eq!(Failure::Stranger(id).text(), format!("{id} answered"));
        assert_eq!(Failure::Refused.text(), "connection refused");
        assert_eq!(Failure::silent("no answer").text(), "no answer");
        assert_eq!(Failure::other("no route").text(), "no route");
    }
}
