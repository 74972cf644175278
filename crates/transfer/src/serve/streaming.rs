//! The service of streams.

use std::pin::Pin;
use std::rc::Rc;

use longhaul_stream::messages::{self, Ask};
use longhaul_stream::server::Streams;

use super::Server;
use super::dispatch::first;
use super::events::ServedClient;
use super::running::{Running, attend_below};
use crate::session::{Service, Session};

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
            let answer = async |session, right, running: &Running| {
                self.streams.serve(session, ask, right, running.ending()).await
            };
            attend_below(&self.server, session, client, messages::SERVICE, answer).await;
        })
    }
}

impl Streaming {
    pub(super) fn new(server: Rc<Server>, streams: Rc<Streams>) -> Streaming {
        Streaming { server, streams }
    }
}
