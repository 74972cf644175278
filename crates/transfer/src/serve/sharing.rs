//! The service of the shared tree.

use std::pin::Pin;
use std::rc::Rc;

use longhaul_share::messages::{self, Ask};
use longhaul_share::{Right, Shared};

use super::Server;
use super::dispatch::first;
use super::events::{Moved, ServedClient, ServerEvent};
use crate::error::{Error, ErrorKind};
use crate::session::{self, Service, Session};

/// The shared tree.
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
        let senseless = |said: &str| {
            let what = format!("the right share={said} makes no sense here");
            Error::new(ErrorKind::Unreachable, what).advise("ask who runs the server")
        };
        let begun =
            self.server.door.right_to(session.peer, messages::SERVICE).and_then(|(right, said)| {
                let parsed = Right::parse(&said).ok_or_else(|| senseless(&said))?;
                Ok((self.server.begin_by(right)?, parsed))
            });
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
