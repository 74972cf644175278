//! Additional streams of a connection, each independent of the others.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::below::Below;
use super::hello::Hello;
use super::mux;
use super::{Facts, Session, Stream, quic};
use crate::{Error, Kind};

/// How long to wait until the other side allows another stream.
const OPENING: Duration = Duration::from_secs(10);

/// A connection of up to 16 streams at a time (18 over QUIC). The connection stays open while a
/// handle to it, or one of its streams, exists.
#[derive(Clone)]
pub struct Connection {
    below: Arc<Below>,
    facts: Facts,
    versions: RangeInclusive<u32>,
}

impl Connection {
    pub(super) fn of(session: &Session) -> Option<Connection> {
        let below = &session.writer.line().below;
        let carries = below.mux.is_some() || below.quic.as_ref().is_some_and(|q| q.has_many());
        carries.then(|| Connection {
            below: below.clone(),
            facts: session.facts.clone(),
            versions: session.versions.clone(),
        })
    }

    pub(super) fn over(
        below: Arc<Below>,
        facts: Facts,
        versions: RangeInclusive<u32>,
    ) -> Connection {
        Connection { below, facts, versions }
    }

    /// Opens a stream to `service` in version `needs` or later. Sends nothing yet. Waits up to 10 s
    /// while too many streams are open.
    ///
    /// # Errors
    /// [`Kind::Lost`], or the other side's reason for a refusal.
    pub async fn open(&self, service: &str, needs: u32) -> Result<Session, Error> {
        let opened = timeout(OPENING, async {
            match (&self.below.quic, &self.below.mux) {
                (Some(keeper), _) => Ok(quic::opened(keeper.open().await?)),
                (_, Some(mux)) => Ok(muxed(mux.open().await?)),
                (None, None) => Err(std::io::Error::from(std::io::ErrorKind::Unsupported)),
            }
        });
        let late = |_| Error::new(Kind::Lost, "the other side allows no more streams");
        let (stream, number) =
            opened.await.map_err(late)?.map_err(|error| self.below.lost(&error))?;
        let mut session = self.session(stream, &number);
        session.ask_for(service, needs);
        Ok(session)
    }

    /// Returns the other side's next stream; `None` once the connection has ended. Cancel-safe.
    pub async fn accept(&self) -> Option<Session> {
        let (stream, number) = match (&self.below.quic, &self.below.mux) {
            (Some(keeper), _) => quic::opened(keeper.accept().await?),
            (_, Some(mux)) => muxed(mux.accept().await?),
            (None, None) => return None,
        };
        Some(self.session(stream, &number))
    }

    /// Drops this handle. To be sure that all sent data arrive, first close each stream with
    /// [`Session::close`].
    pub async fn close(self) {
        Below::release(self.below).await;
    }

    /// Completes when either side has ended the connection.
    pub async fn ended(&self) {
        match (&self.below.quic, &self.below.mux) {
            (Some(keeper), _) => keeper.ended().await,
            (_, Some(mux)) => mux.ended().await,
            (None, None) => {}
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.below) == 1
    }

    fn session(&self, stream: Stream, number: &str) -> Session {
        let hello = Hello::new(&self.versions);
        Session::new(self.facts.of_stream(number), self.below.clone(), stream, hello)
    }
}

fn muxed(stream: mux::Stream) -> (Stream, String) {
    let number = stream.number();
    let (input, out) = tokio::io::split(stream);
    (Stream { out: Box::new(out), input: Box::new(input), delivered: None }, number)
}

#[derive(Default)]
pub(super) struct Idle(u32);

impl Idle {
    /// Records a check. Returns whether the last two checks found the connection idle.
    pub(super) fn is_over(&mut self, is_idle: bool) -> bool {
        self.0 = if is_idle { self.0 + 1 } else { 0 };
        self.0 >= 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_ends_when_two_checks_in_a_row_find_it_idle() {
        let mut idle = Idle::default();
        let ends = [true, false, false, true, true];
        assert_eq!(ends.map(|is_idle| idle.is_over(is_idle)), [false, false, false, false, true]);
    }
}
