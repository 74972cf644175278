//! Dispatches each stream to the service that it names.

use std::rc::Rc;
use std::time::Duration;

use prost::Message;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Server;
use super::below::Names;
use super::channeling;
use super::copying::Copying;
use super::listing::Listing;
use super::pipe::Piping;
use super::reading::Reading;
use super::status::{View, Watching};
use crate::error::{Error, ErrorKind};
use crate::session::{Service, Services, Session};
use longhaul_rpc::Methods;
use longhaul_rpc::server::Calls;
use longhaul_share::Shared;
use longhaul_stream::channel::RoomLimits;
use longhaul_stream::server::Streams;

/// Timeout for a stream's first message.
const REQUEST: Duration = Duration::from_secs(15);

/// Creates the services that a status report covers.
pub(super) fn view(
    server: &Rc<Server>,
    shared: Option<Rc<Shared>>,
    limits: RoomLimits,
) -> Rc<View> {
    let streams = Streams::new(server.port.clone());
    let channels = channeling::rooms(server, limits);
    Rc::new(View { server: server.clone(), streams, channels, shared })
}

/// Returns the server's services; with `rooms_only` without those for files and the shared tree.
/// `ended` gets the result of each transfer and each pipe.
pub(super) fn services(
    view: &Rc<View>,
    rooms_only: bool,
    methods: Methods,
    ended: mpsc::UnboundedSender<Result<(), Error>>,
) -> Services {
    let server = &view.server;
    let copying: Rc<dyn Service> = Rc::new(Copying::new(server.clone(), ended.clone()));
    let listing: Rc<dyn Service> = Rc::new(Listing::new(server.clone()));
    let piping: Rc<dyn Service> = Rc::new(Piping::new(server.clone(), ended));
    let reading: Rc<dyn Service> = Rc::new(Reading::new(server.clone()));
    let sharing = view.shared.clone().map(|shared| Names::service(server, shared));
    let streaming = Names::service(server, view.streams.clone());
    let channeling = Names::service(server, view.channels.clone());
    let status: Rc<dyn Service> = Rc::new(Watching::new(view.clone()));
    let calling = (!methods.is_empty()).then(|| Names::service(server, Calls::new(methods)));
    if rooms_only {
        return Services::new([channeling, streaming, status].into_iter().chain(calling));
    }
    let all = [copying, listing, piping, reading, streaming, channeling, status];
    Services::new(all.into_iter().chain(sharing).chain(calling))
}

pub(super) fn begin(server: &Rc<Server>, services: &Services, session: Session) {
    let (server, services) = (server.clone(), services.clone());
    tokio::task::spawn_local(async move { answer(&server, &services, session).await });
}

pub(super) async fn answer(server: &Server, services: &Services, session: Session) {
    // From now on, keep early datagrams from the client's address.
    server.port.expect(session.remote.ip());
    let (name, needs) = session.asked();
    let found = services.find(name, needs).map_err(Error::from).and_then(|service| {
        server.door.may_use(&session.peer, service.right())?;
        Ok(service)
    });
    match found {
        Ok(service) => service.serve(session).await,
        Err(error) => turn_away(server, session, error).await,
    }
}

/// Returns the first message of a stream, with the session. Returns `None` if the client sends no
/// message within [`REQUEST`], or the stream ends or fails. A timeout is reported to the client.
pub(super) async fn first<M: Message + Default>(
    server: &Server,
    mut session: Session,
) -> Option<(Session, M)> {
    match timeout(REQUEST, session.first()).await {
        Ok(Ok(Some(message))) => Some((session, message)),
        Ok(Ok(None)) => {
            // The client only checked whether it is admitted.
            let _ = session.close(None).await;
            None
        }
        Ok(Err(_)) => None,
        Err(_) => {
            let error = Error::new(ErrorKind::Unreachable, "no request followed the handshake");
            turn_away(server, session, error).await;
            None
        }
    }
}

/// Tells a client and the server's observer why the client is refused.
pub(super) async fn turn_away(server: &Server, session: Session, error: Error) {
    server.refusals.report(session.remote, &error);
    let _ = session.close(Some((&error).into())).await;
}
