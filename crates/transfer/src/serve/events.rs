//! The events of a server: which clients came, what they asked for, how each ended.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::control::file::FileAsk;
use crate::control::list::List;
use crate::control::pipe::Pipe;
use crate::control::{Direction, Request, Survey};
use crate::error;
use crate::error::public::Error;
use crate::session::Session;
use longhaul_files::place::show;
use longhaul_share::messages::{Ask, Asked};
use longhaul_stream::messages::{Ask as StreamAsk, Asked as StreamAsked};

/// Something that happened at a server. What clients name may have any characters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ServerEvent {
    /// A client was turned away before it could ask for anything.
    Refused {
        /// Where it came from.
        address: SocketAddr,
        /// Why.
        error: Error,
    },
    /// Further clients were turned away, too many for an event each.
    RefusedMore {
        /// How many since the last event of this kind.
        count: u64,
    },
    /// A client asks for something.
    Asked(ServedClient),
    /// The server has answered a client to the end, or refused it.
    Ended {
        /// The client.
        client: ServedClient,
        /// How long it took.
        took: Duration,
        /// What it moved.
        moved: Moved,
        /// Why it was refused or not finished.
        error: Option<Error>,
    },
    /// The reader was too slow: this many events were dropped here.
    Lagged(u64),
}

/// What a request has moved by its end, parts of files that it did not finish included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// Bytes of content, without what was there before.
    pub bytes: u64,
    /// Files that it brought.
    pub files: u64,
    /// Files, folders and links that failed; the others were copied.
    pub failed: u64,
}

/// A client and what it asks for.
#[derive(Clone, Debug)]
pub struct ServedClient {
    /// Where it is.
    pub address: SocketAddr,
    /// Its id.
    pub id: String,
    /// What the list of clients calls it.
    pub name: Option<String>,
    /// What is to be done, and with which paths.
    pub wish: String,
    /// The paths: the first few of many.
    pub path: String,
    since: Instant,
}

/// So many paths of a request are named, and so much of each.
const NAMED: usize = 3;
const LONGEST: usize = 200;

/// Paths for people, in short.
fn named(paths: &[Vec<u8>]) -> String {
    let name = |path: &Vec<u8>| format!("/{}", show(&path[..path.len().min(LONGEST)]));
    let names: Vec<String> = paths.iter().take(NAMED).map(name).collect();
    let more = match paths.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.join(", ") + &more
}

impl ServedClient {
    /// The client of `session`, and what it wants to do with `path`.
    fn new(session: &Session, verb: &str, path: String) -> ServedClient {
        let (address, id) = (session.remote, session.peer.to_string());
        let wish = format!("{verb} {path}");
        ServedClient { address, id, name: None, wish, path, since: Instant::now() }
    }

    /// One that measures the way.
    pub(super) fn of_probe(session: &Session) -> ServedClient {
        ServedClient { wish: "probes the way".to_owned(), ..Self::new(session, "", String::new()) }
    }

    /// One that watches the server.
    pub(super) fn of_status(session: &Session) -> ServedClient {
        let wish = "watches the server".to_owned();
        ServedClient { wish, ..Self::new(session, "", String::new()) }
    }

    /// One that uses the shared tree.
    pub(super) fn of_share(session: &Session, ask: &Ask) -> ServedClient {
        let (verb, prefix) = match &ask.asked {
            Some(Asked::Watch(watch)) => ("watches the shared tree at", watch.prefix.as_bytes()),
            _ => ("uses the shared tree at", &b""[..]),
        };
        ServedClient::new(session, verb, named(&[prefix.to_vec()]))
    }

    /// One that sends or receives a stream.
    pub(super) fn of_stream(session: &Session, ask: &StreamAsk) -> ServedClient {
        let (verb, name) = match &ask.asked {
            Some(StreamAsked::Send(send)) => ("sends the stream", send.name.as_bytes()),
            Some(StreamAsked::Receive(receive)) => ("receives the stream", receive.name.as_bytes()),
            _ => ("asks for the stream", &b""[..]),
        };
        ServedClient::new(session, verb, named(&[name.to_vec()]))
    }

    /// The same as the list of clients calls it.
    pub(super) fn called(self, name: Option<String>) -> ServedClient {
        ServedClient { name, ..self }
    }

    /// One that asks what chunks hash to.
    pub(super) fn of_survey(session: &Session, survey: &Survey) -> ServedClient {
        ServedClient::new(session, "compares", named(&survey.paths))
    }

    /// One that asks for a listing.
    pub(super) fn of_list(session: &Session, list: &List) -> ServedClient {
        ServedClient::new(session, "lists", named(std::slice::from_ref(&list.path)))
    }

    /// One that reads ranges of a file.
    pub(super) fn of_file(session: &Session, asked: &FileAsk) -> ServedClient {
        ServedClient::new(session, "reads ranges of", named(std::slice::from_ref(&asked.path)))
    }

    /// One that writes a file whose length it does not know.
    pub(super) fn of_pipe(session: &Session, pipe: &Pipe) -> ServedClient {
        ServedClient::new(session, "pipes to", named(std::slice::from_ref(&pipe.path)))
    }

    /// One that asks for a transfer.
    pub(super) fn of_request(session: &Session, request: &Request) -> ServedClient {
        let verb = match request.direction() {
            Direction::Push => "writes to",
            Direction::Pull => "reads",
        };
        let dry = if request.dry_run { ", a dry run" } else { "" };
        let client = ServedClient::new(session, verb, named(&request.paths));
        ServedClient { wish: client.wish + dry, ..client }
    }

    pub(super) fn ended(self, result: &Result<(), error::Error>, moved: Moved) -> ServerEvent {
        let error = result.as_ref().err().cloned().map(Error::from);
        let took = self.since.elapsed();
        ServerEvent::Ended { client: self, took, moved, error }
    }
}
