//! The conditions for a request of any service to continue: the server is not shutting down, and
//! the client still has its right.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::share::Right as NamesRight;

use super::Server;
use super::closing::{Busy, Closing};
use super::door::{Access, Right};
use super::events::{Moved, ServedClient, ServerEvent};
use crate::counters::board::Board;
use crate::error::{Error, ErrorKind};
use crate::session::{self, PeerId, Session};

/// Interval at which a waiting request checks the conditions.
const CHECK_EVERY: Duration = Duration::from_millis(100);

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
}

impl Server {
    /// Starts a request of `peer` that needs `access`; `None` needs only an entry in the list of
    /// clients. [`Running::check`] checks the right.
    pub(super) fn begin(&self, peer: PeerId, access: Option<Access>) -> Result<Running, Error> {
        self.begin_by(self.door.right(peer, access))
    }

    /// Starts a request that needs `right`, which [`Running::check`] checks.
    pub(super) fn begin_by(&self, right: Right) -> Result<Running, Error> {
        let _busy = self.closing.enter()?;
        let (closing, moved) = (self.closing.clone(), Cell::default());
        let (board, there) = (Arc::default(), Cell::default());
        Ok(Running(Rc::new(Needs { closing, right, moved, board, there, _busy })))
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
    // Keep `begun` until the final message has been sent, because a shutdown waits until it is
    // dropped.
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

    /// Checks that the request may continue. An error is the reason for the client.
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
