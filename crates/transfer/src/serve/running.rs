//! The conditions for a request of any service to continue: the server is not shutting down, and
//! the client still has its right.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::share::Right as NamesRight;

use super::Server;
use super::closing::{Busy, Closing};
use super::counts::Counted;
use super::door::{Access, Right};
use super::events::{Moved, ServedClient, ServerEvent};
use crate::counters::board::Board;
use crate::error::{Error, ErrorKind};
use crate::session::{self, PeerId, Session};

/// Interval at which a waiting request checks the conditions.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Maximum number of one client's requests for files and probes, running or waiting.
const REQUESTS_OF_ONE: usize = 256;

/// A running request. Clones refer to the same request.
#[derive(Clone)]
pub(super) struct Running(Rc<Needs>);

struct Needs {
    closing: Closing,
    right: Right,
    moved: Cell<Moved>,
    /// The counters of the threads of the request's transfer, if it is a transfer.
    board: Arc<Board>,
    /// Bytes that the destination had before the request.
    there: Cell<u64>,
    _busy: Busy,
    _counted: Option<Counted>,
}

impl Server {
    /// Starts a request of `peer`. A request for files needs `access`; a probe (`None`) needs only
    /// an entry in the list of clients. [`Running::check`] checks the right. Fails if `peer` has
    /// too many requests for files and probes, or if the server is shutting down.
    pub(super) fn begin(&self, peer: PeerId, access: Option<Access>) -> Result<Running, Error> {
        let counted = self.requests.enter(peer, REQUESTS_OF_ONE).ok_or_else(|| {
            let what = format!("{peer} has {REQUESTS_OF_ONE} requests here, which is the limit");
            Error::new(ErrorKind::Unfinished, what).busy().advise("wait for a request to end")
        })?;
        self.run(self.door.right(peer, access), Some(counted))
    }

    /// Starts a request that needs `right`, which [`Running::check`] checks.
    pub(super) fn begin_by(&self, right: Right) -> Result<Running, Error> {
        self.run(right, None)
    }

    fn run(&self, right: Right, _counted: Option<Counted>) -> Result<Running, Error> {
        let _busy = self.closing.enter()?;
        let (closing, moved) = (self.closing.clone(), Cell::default());
        let (board, there) = (Arc::default(), Cell::default());
        Ok(Running(Rc::new(Needs { closing, right, moved, board, there, _busy, _counted })))
    }
}

impl Server {
    pub(super) fn begin_status(&self, peer: PeerId) -> Result<Running, Error> {
        self.begin_by(self.door.right_to_status(peer)?)
    }

    /// Begins a request of `peer` that needs a right to names below a prefix; `word` is the keyword
    /// of that right in the list of clients.
    pub(super) fn begin_below(
        &self,
        peer: PeerId,
        word: &'static str,
    ) -> Result<(Running, NamesRight), Error> {
        let (right, said) = self.door.right_to(peer, word)?;
        let parsed = NamesRight::parse(&said).ok_or_else(|| {
            let what = format!("the right {word}={said} is invalid");
            Error::new(ErrorKind::Unreachable, what).advise("ask the server's administrator")
        })?;
        Ok((self.begin_by(right)?, parsed))
    }
}

/// Runs `answer` for the request of a session. Reports the request and its end to the server's
/// observer, and sends the client the final message. `answer` must return when the request has to
/// end; see [`Running::or`].
pub(super) async fn attend(
    server: &Server,
    mut session: Session,
    client: ServedClient,
    access: Access,
    answer: impl AsyncFnOnce(&Running, &mut Session) -> Result<(), Error>,
) -> Result<(), Error> {
    let client = client.called(server.door.name(&session.peer));
    (server.tell)(ServerEvent::Asked(client.clone()));
    // Keep `begun` until the final message has been sent, because a shutdown waits until `begun`
    // is dropped.
    let begun = server.begin(session.peer, Some(access));
    let ended = match &begun {
        Ok(running) => answer(running, &mut session).await,
        Err(error) => Err(error.clone()),
    };
    let moved = begun.as_ref().map(Running::moved).unwrap_or_default();
    (server.tell)(client.ended(&ended, moved));
    let _ = session.close(ended.as_ref().err().map(Into::into)).await;
    ended
}

impl Running {
    pub(super) fn note(&self, moved: Moved) {
        self.0.moved.set(moved);
    }

    pub(super) fn moved(&self) -> Moved {
        self.0.moved.get()
    }

    pub(super) fn board(&self) -> &Arc<Board> {
        &self.0.board
    }

    /// Records the number of bytes that the destination already had.
    pub(super) fn note_there(&self, bytes: u64) {
        self.0.there.set(bytes);
    }

    pub(super) fn there(&self) -> u64 {
        self.0.there.get()
    }

    /// Checks that the request may continue. An error is the reason to send to the client.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.0.closing.reason().map_or(Ok(()), Err)?;
        self.0.right.check()
    }

    /// Waits until the request must end; returns the reason.
    pub(super) async fn stopped(&self) -> Error {
        let mut tick = tokio::time::interval(CHECK_EVERY);
        loop {
            tick.tick().await;
            if let Err(error) = self.check() {
                return error;
            }
        }
    }

    /// As [`Running::stopped`], for services that use the sessions' error type.
    pub(super) async fn ending(&self) -> session::Error {
        session::Error::from(&self.stopped().await)
    }

    /// Runs `work`, and drops it when the request must end.
    pub(super) async fn or<T, E: From<Error>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        tokio::select! {
            biased;
            done = work => done,
            why = self.stopped() => Err(why.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use longhaul_net::port::Port;

    use super::super::door::Door;
    use super::*;
    use crate::write::budget::Budget;

    #[tokio::test]
    async fn the_requests_of_one_id_are_limited_and_those_of_another_do_not_count() {
        let port = Port::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let memory = Budget::new(Budget::least_of(1)).unwrap();
        let server = Server::new(Door::of_user(), port.handle(), memory, Arc::new(|_| {}));
        let [one, other] = [1, 2].map(|id| PeerId([id; 32]));
        let begin = |_| server.begin(one, Some(Access::Read)).unwrap();
        let running: Vec<Running> = (0..REQUESTS_OF_ONE).map(begin).collect();
        let refused = server.begin(one, Some(Access::Read)).err().expect("it is one too many");
        assert!(refused.what.contains("has 256 requests here"), "{refused}");
        assert!(server.begin(other, Some(Access::Read)).is_ok());
        drop(running);
        assert!(server.begin(one, Some(Access::Read)).is_ok());
    }
}
