//! The service of remote procedure calls.

use std::pin::Pin;
use std::rc::Rc;

use longhaul_rpc::Methods;
use longhaul_rpc::messages::{self, Say};
use longhaul_rpc::server::Calls;

use super::Server;
use super::dispatch::first;
use super::events::ServedClient;
use super::running::{Running, attend_below};
use crate::session::{Service, Session};

/// The service of remote procedure calls.
pub(super) struct Calling {
    server: Rc<Server>,
    calls: Rc<Calls>,
}

impl Service for Calling {
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
            let Some((session, say)) = first::<Say>(&self.server, stream).await else { return };
            let client = ServedClient::of_calls(&session);
            let answer = async |session, right: longhaul_proto::share::Right, running: &Running| {
                self.calls.serve(session, say, right.prefix, running.ending()).await
            };
            attend_below(&self.server, session, client, messages::SERVICE, answer).await;
        })
    }
}

impl Calling {
    pub(super) fn new(server: Rc<Server>, methods: Methods) -> Calling {
        Calling { server, calls: Calls::new(methods) }
    }
}
