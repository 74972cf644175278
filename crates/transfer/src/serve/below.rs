//! Services whose clients have a right to names below a prefix: the shared tree, streams, channels
//! (see the module `channeling`) and remote procedure calls.

use std::pin::Pin;
use std::rc::Rc;

use longhaul_proto::share::Right;
use longhaul_rpc::messages::{self as calls, Say};
use longhaul_rpc::server::Calls;
use longhaul_share::Shared;
use longhaul_share::messages as share;
use longhaul_stream::messages as stream;
use longhaul_stream::server::Streams;
use prost::Message;

use super::Server;
use super::dispatch::first;
use super::events::{Moved, ServedClient, ServerEvent};
use super::running::Running;
use crate::error::Error;
use crate::session::{self, Service, Session};

pub(super) trait Below: 'static {
    /// The name of the service; also the keyword of its right in the list of clients.
    const NAME: &str;
    const VERSION: u32;
    /// The oldest version that is still answered.
    const OLDEST: u32 = 0;
    /// The first message that a client sends on a stream of the service.
    type Ask: Message + Default;

    fn client(session: &Session, ask: &Self::Ask) -> ServedClient;

    /// Answers a client that has sent `ask` and has `right`, and then closes the session.
    async fn answer(
        &self,
        server: &Server,
        session: Session,
        ask: Self::Ask,
        right: Right,
        running: &Running,
    ) -> Result<(), session::Error>;
}

pub(super) struct Names<B> {
    server: Rc<Server>,
    service: B,
}

impl<B: Below> Names<B> {
    pub(super) fn service(server: &Rc<Server>, service: B) -> Rc<dyn Service> {
        Rc::new(Names { server: server.clone(), service })
    }

    async fn attend(&self, session: Session, ask: B::Ask) {
        let server = &self.server;
        let client = B::client(&session, &ask).called(server.door.name(&session.peer));
        (server.tell)(ServerEvent::Asked(client.clone()));
        let ended = match server.begin_below(session.peer, B::NAME) {
            Ok((running, right)) => {
                let ended = self.service.answer(server, session, ask, right, &running).await;
                ended.map_err(Error::from)
            }
            Err(error) => {
                let _ = session.close(Some((&error).into())).await;
                Err(error)
            }
        };
        (server.tell)(client.ended(&ended, Moved::default()));
    }
}

impl<B: Below> Service for Names<B> {
    fn name(&self) -> &'static str {
        B::NAME
    }

    fn version(&self) -> u32 {
        B::VERSION
    }

    fn oldest(&self) -> u32 {
        B::OLDEST
    }

    fn right(&self) -> &'static str {
        B::NAME
    }

    fn serve(self: Rc<Self>, stream: Session) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            if let Some((session, ask)) = first(&self.server, stream).await {
                self.attend(session, ask).await;
            }
        })
    }
}

impl Below for Rc<Shared> {
    const NAME: &str = share::SERVICE;
    const VERSION: u32 = share::VERSION;
    type Ask = share::Ask;

    fn client(session: &Session, ask: &share::Ask) -> ServedClient {
        ServedClient::of_share(session, ask)
    }

    async fn answer(
        &self,
        _: &Server,
        session: Session,
        ask: share::Ask,
        right: Right,
        running: &Running,
    ) -> Result<(), session::Error> {
        self.serve(session, ask, right, running.ending()).await
    }
}

impl Below for Rc<Streams> {
    const NAME: &str = stream::SERVICE;
    const VERSION: u32 = stream::VERSION;
    // An older client would take a payload (several frames sent as one) for one frame.
    const OLDEST: u32 = stream::VERSION;
    type Ask = stream::Ask;

    fn client(session: &Session, ask: &stream::Ask) -> ServedClient {
        ServedClient::of_stream(session, ask)
    }

    async fn answer(
        &self,
        _: &Server,
        session: Session,
        ask: stream::Ask,
        right: Right,
        running: &Running,
    ) -> Result<(), session::Error> {
        self.serve(session, ask, right, running.ending()).await
    }
}

impl Below for Rc<Calls> {
    const NAME: &str = calls::SERVICE;
    const VERSION: u32 = calls::VERSION;
    type Ask = Say;

    fn client(session: &Session, _: &Say) -> ServedClient {
        ServedClient::of_calls(session)
    }

    async fn answer(
        &self,
        _: &Server,
        session: Session,
        say: Say,
        right: Right,
        running: &Running,
    ) -> Result<(), session::Error> {
        self.serve(session, say, right.prefix, running.ending()).await
    }
}
