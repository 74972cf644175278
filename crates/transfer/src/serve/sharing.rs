//! The service of the shared tree.

use std::pin::Pin;
use std::rc::Rc;

use longhaul_share::Shared;
use longhaul_share::messages::{self, Ask};

use super::Server;
use super::dispatch::first;
use super::events::{Moved, ServedClient, ServerEvent};
use crate::error::Error;
use crate::session::{self, Service, Session};

/// The service of the shared tree.
pub(super) struct Sharing {
    server: Rc<Server>,
    shared: Rc<Shared>,
}

impl Service for Sharing {
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
            let client = ServedClient::of_share(&session, &ask);
            let client = client.called(self.server.door.name(&session.peer));
            (self.server.tell)(ServerEvent::Asked(client.clone()));
            let ended = self.answer(session, ask).await;
            (self.server.tell)(client.ended(&ended, Moved::default()));
        })
    }
}

impl Sharing {
    pub(super) fn new(server: Rc<Server>, shared: Rc<Shared>) -> Sharing {
        Sharing { server, shared }
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
        Ok(self.shared.serve(session, ask, right, stopped).await?)
    }
}
