//! The service of streams.

use std::pin::Pin;
use std::rc::Rc;

use longhaul_stream::messages::{self, Ask};
use longhaul_stream::server::Streams;

use super::Server;
use super::dispatch::first;
use super::events::{Moved, ServedClient, ServerEvent};
use crate::error::Error;
use crate::session::{self, Service, Session};

/// The service of streams.
pub(super) struct Streaming {
    server: Rc<Server>,
    streams: Rc<Streams>,
}

impl Service for Streaming {
    fn name(&self) -> &'static str {
        messages::SERVICE
    }

    fn version(&self) -> u32 {
        messages::VERSION
    }

    fn right(&self) -> &'static str {
        messages::SERVICE
    }

    fn serve(self: Rc<Self>, stream: Session) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            let Some((session, ask)) = first::<Ask>(&self.server, stream).await else { return };
            let client = ServedClient::of_stream(&session, &ask);
            let client = client.called(self.server.door.name(&session.peer));
            (self.server.tell)(ServerEvent::Asked(client.clone()));
            let ended = self.answer(session, ask).await;
            (self.server.tell)(client.ended(&ended, Moved::default()));
        })
    }
}

impl Streaming {
    pub(super) fn new(server: Rc<Server>, streams: Rc<Streams>) -> Streaming {
        Streaming { server, streams }
    }

    async fn answer(&self, session: Session, ask: Ask) -> Result<(), Error> {
        let begun = self.server.begin_below(session.peer, messages::SERVICE);
        let (running, right) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let _ = session.close(Some((&error).into())).await;
                return Err(error);
            }
        };
        let stopped = async { session::Error::from(&running.stopped().await) };
        Ok(self.streams.serve(session, ask, right, stopped).await?)
    }
}
