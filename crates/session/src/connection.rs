//! Further streams of a connection, each independent of the others.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::below::Below;
use super::hello::Hello;
use super::mux;
use super::{Facts, Session, Stream, quic};
use crate::{Error, Kind};

/// How long to wait until the other side takes a further stream.
const OPENING: Duration = Duration::from_secs(10);

/// A connection that carries several streams, at most 16 at a time. It stays open as long as this
/// handle or one of its streams. Clones are the same connection.
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

    /// Opens a stream to `service`, which needs this version of it at least. Nothing is sent before
    /// the first message, and that waits for no answer.
    ///
    /// # Errors
    /// [`Kind::Lost`]: the connection is gone, or the other side lets no further stream come.
    pub async fn open(&self, service: &str, needs: u32) -> Result<Session, Error> {
        let opened = timeout(OPENING, async {
            match (&self.below.quic, &self.below.mux) {
                (Some(keeper), _) => Ok(quic::opened(keeper.open().await?)),
                (_, Some(mux)) => Ok(muxed(mux.open().await?)),
                (None, None) => Err(std::io::Error::from(std::io::ErrorKind::Unsupported)),
            }
        });
        let late = |_| Error::new(Kind::Lost, "the other side takes no further stream");
        let (stream, number) =
            opened.await.map_err(late)?.map_err(|error| self.below.lost(&error))?;
        let mut session = self.session(stream, &number);
        session.ask_for(service, needs);
        Ok(session)
    }

    /// The next stream that the other side opens, before anything of it was read. Nothing once the
    /// connection has ended. May be cancelled without losing one.
    pub async fn accept(&self) -> Option<Session> {
        let (stream, number) = match (&self.below.quic, &self.below.mux) {
            (Some(keeper), _) => quic::opened(keeper.accept().await?),
            (_, Some(mux)) => muxed(mux.accept().await?),
            (None, None) => return None,
        };
        Some(self.session(stream, &number))
    }

    /// Gives this handle up; the last user of the connection ends it by that, after all that was
    /// written.
    pub async fn close(self) {
        Below::release(self.below).await;
    }

    /// Completes when the connection has ended, whoever ended it.
    pub async fn ended(&self) {
        match (&self.below.quic, &self.below.mux) {
            (Some(keeper), _) => keeper.ended().await,
            (_, Some(mux)) => mux.ended().await,
            (None, None) => {}
        }
    }

    /// Whether nothing but this handle uses the connection.
    pub(super) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.below) == 1
    }

    fn session(&self, stream: Stream, number: &str) -> Session {
        let hello = Hello::new(&self.versions);
        Session::new(self.facts.of_stream(number), self.below.clone(), stream, hello)
    }
}

/// A stream and its number.
fn muxed(stream: mux::Stream) -> (Stream, String) {
    let number = stream.number();
    let (input, out) = tokio::io::split(stream);
    (Stream { out: Box::new(out), input: Box::new(input), delivered: None }, number)
}
