//! A candidate: a protocol of the registry, or TCP with a number of connections.

use std::fmt;

use longhaul::Protocol;
use longhaul::protocol::TCP_STREAMS;
use longhaul_proto::registry::{self, Row};

use crate::cp::MOST_STREAMS;

/// This candidate tries several numbers of TCP connections.
const TRIED: &str = "tcp:auto";

#[derive(Clone, Copy, Debug)]
pub(crate) enum Candidate {
    Registry(&'static Row),
    Tcp {
        streams: u16,
    },
    /// TCP with the number of connections that the copy finds best, as PSockets does.
    TcpTried,
}

/// Every protocol of the registry, and TCP with one connection and with a copy's default number of
/// connections.
pub(super) fn all() -> Vec<Candidate> {
    let rows = registry::all().iter().map(Candidate::Registry);
    rows.chain([1, TCP_STREAMS].map(|streams| Candidate::Tcp { streams })).collect()
}

impl Candidate {
    /// Parses `rbudp`, `tcp`, `tcp:4` or `tcp:auto`.
    pub(super) fn parse(text: &str) -> Result<Candidate, String> {
        if let Some(row) = registry::find(text) {
            return Ok(Candidate::Registry(row));
        }
        if text == TRIED {
            return Ok(Candidate::TcpTried);
        }
        let streams = match text.strip_prefix("tcp") {
            Some("") => Some(TCP_STREAMS),
            Some(rest) => rest.strip_prefix(':').and_then(|count| count.parse().ok()),
            None => None,
        };
        let streams = streams.filter(|count| (1..=MOST_STREAMS).contains(count));
        streams.map(|streams| Candidate::Tcp { streams }).ok_or_else(|| {
            let names: Vec<&str> = registry::all().iter().map(|row| row.name).collect();
            let names = names.join(", ");
            format!("expected {names}, tcp, {TRIED}, or tcp:1 to tcp:{MOST_STREAMS}")
        })
    }

    pub(super) fn protocol(self) -> Protocol {
        match self {
            Candidate::Registry(row) => Protocol::Registry(row.name),
            Candidate::Tcp { streams } => Protocol::Tcp { streams },
            Candidate::TcpTried => Protocol::TcpTried,
        }
    }

    pub(super) fn is_tcp(self) -> bool {
        !matches!(self, Candidate::Registry(_))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.protocol() == other.protocol()
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Candidate::Registry(row) => f.pad(row.name),
            Candidate::Tcp { streams } => f.pad(&format!("tcp:{streams}")),
            Candidate::TcpTried => f.pad(TRIED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_every_candidate_parses_to_the_candidate() {
        for one in all().into_iter().chain([Candidate::TcpTried]) {
            assert_eq!(Candidate::parse(&one.to_string()), Ok(one));
        }
        assert_eq!(Candidate::parse("tcp"), Ok(Candidate::Tcp { streams: TCP_STREAMS }));
    }

    #[test]
    fn an_unknown_candidate_is_refused_with_the_list_of_valid_ones() {
        for text in ["", "ftp", "tcp:0", "tcp:65", "tcp8", "tcp:x"] {
            let refused = Candidate::parse(text).unwrap_err();
            assert!(refused.contains("rbudp") && refused.contains("tcp:64"), "{text}: {refused}");
        }
    }
}
