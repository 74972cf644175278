//! The service of the shared tree.

use std::pin::Pin;
use std::rc::Rc;

use longhaul_share::Shared;
use longhaul_share::messages::{self, Ask};

use super::Server;
use super::dispatch::first;
use super::events::ServedClient;
use super::running::{Running, attend_below};
use crate::session::{Service, Session};

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
            let answer = async |session, right, running: &Running| {
                self.shared.serve(session, ask, right, running.ending()).await
            };
            attend_below(&self.server, session, client, messages::SERVICE, answer).await;
        })
    }
}

impl Sharing {
    pub(super) fn new(server: Rc<Server>, shared: Rc<Shared>) -> Sharing {
        Sharing { server, shared }
    }
}
