//! The events of a server: its clients, their requests, and the results.

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
use longhaul_stream::channel::messages::{ChannelAsk, ChannelAsked};
use longhaul_stream::messages::{Ask as StreamAsk, Asked as StreamAsked};

/// An event of a server. Names from clients may contain any characters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ServerEvent {
    /// A client was refused before it could make a request, or its network has to pause after too
    /// many refusals.
    Refused {
        /// The client's address.
        address: SocketAddr,
        /// The reason.
        error: Error,
    },
    /// More clients were refused, too many for an event each.
    RefusedMore {
        /// Number of these clients since the last event of this kind.
        count: u64,
    },
    /// A client makes a request.
    Asked(ServedClient),
    /// A request has ended, or was refused.
    Ended {
        /// The client.
        client: ServedClient,
        /// The duration.
        took: Duration,
        /// The amount of data.
        moved: Moved,
        /// Why the request was refused or not finished.
        error: Option<Error>,
    },
    /// A link to a room of another server failed: the other server refuses it, or a limit of this
    /// server is reached. This server tries the link again later.
    LinkFailed {
        /// The other server, and the room.
        to: String,
        /// The reason.
        error: Error,
    },
    /// The reader was too slow: this many events are missing at this point.
    Lagged(u64),
}

/// The data that a request has moved by its end, including parts of unfinished files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// Bytes of content, without those that existed before.
    pub bytes: u64,
    /// Files that were copied.
    pub files: u64,
    /// Files, folders and links that failed.
    pub failed: u64,
}

/// A client and its request.
#[derive(Clone, Debug)]
pub struct ServedClient {
    /// The client's address.
    pub address: SocketAddr,
    /// The client's id.
    pub id: String,
    /// The client's name in the list of clients.
    pub name: Option<String>,
    /// The request, in words, with its paths.
    pub wish: String,
    /// The first three paths or names of the request, and the number of further ones.
    pub path: String,
    pub(super) since: Instant,
}

/// Maximum number of paths shown for a request.
const NAMED: usize = 3;
/// Maximum number of bytes shown of a path.
const LONGEST: usize = 200;

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
    fn new(session: &Session, verb: &str, path: String) -> ServedClient {
        let (address, id) = (session.remote, session.peer.to_string());
        let wish = format!("{verb} {path}");
        ServedClient { address, id, name: None, wish, path, since: Instant::now() }
    }

    pub(super) fn of_probe(session: &Session) -> ServedClient {
        ServedClient { wish: "probes the path".to_owned(), ..Self::new(session, "", String::new()) }
    }

    pub(super) fn of_status(session: &Session) -> ServedClient {
        let wish = "watches the server".to_owned();
        ServedClient { wish, ..Self::new(session, "", String::new()) }
    }

    pub(super) fn of_share(session: &Session, ask: &Ask) -> ServedClient {
        let (verb, prefix) = match &ask.asked {
            Some(Asked::Watch(watch)) => ("watches the shared tree at", watch.prefix.as_bytes()),
            _ => ("uses the shared tree at", &b""[..]),
        };
        ServedClient::new(session, verb, named(&[prefix.to_vec()]))
    }

    pub(super) fn of_calls(session: &Session) -> ServedClient {
        let wish = "calls methods".to_owned();
        ServedClient { wish, ..Self::new(session, "", String::new()) }
    }

    pub(super) fn of_stream(session: &Session, ask: &StreamAsk) -> ServedClient {
        let (verb, name) = match &ask.asked {
            Some(StreamAsked::Send(send)) => ("sends the stream", send.name.as_bytes()),
            Some(StreamAsked::Receive(receive)) => ("receives the stream", receive.name.as_bytes()),
            _ => ("asks for the stream", &b""[..]),
        };
        ServedClient::new(session, verb, named(&[name.to_vec()]))
    }

    pub(super) fn of_channel(session: &Session, ask: &ChannelAsk) -> ServedClient {
        let (verb, name) = match &ask.asked {
            Some(ChannelAsked::Publish(publish)) => ("sends to the room", &*publish.name),
            Some(ChannelAsked::Subscribe(wanted)) => ("receives from the room", &*wanted.name),
            _ => ("asks for a room", ""),
        };
        ServedClient::new(session, verb, named(&[name.as_bytes().to_vec()]))
    }

    pub(super) fn called(self, name: Option<String>) -> ServedClient {
        ServedClient { name, ..self }
    }

    pub(super) fn of_survey(session: &Session, survey: &Survey) -> ServedClient {
        ServedClient::new(session, "compares", named(&survey.paths))
    }

    pub(super) fn of_list(session: &Session, list: &List) -> ServedClient {
        ServedClient::new(session, "lists", named(std::slice::from_ref(&list.path)))
    }

    pub(super) fn of_file(session: &Session, asked: &FileAsk) -> ServedClient {
        let verb = if asked.edit { "changes ranges of" } else { "reads ranges of" };
        ServedClient::new(session, verb, named(std::slice::from_ref(&asked.path)))
    }

    pub(super) fn of_pipe(session: &Session, pipe: &Pipe) -> ServedClient {
        ServedClient::new(session, "pipes to", named(std::slice::from_ref(&pipe.path)))
    }

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
