//! The server for the one client whose ssh started this process.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use longhaul_net::port::Port;
use longhaul_net::socket::{RECEIVE_BUFFER, Socket};
use longhaul_rpc::Methods;
use longhaul_stream::channel::RoomLimits;
use tokio::sync::mpsc;

use super::door::Door;
use super::{Server, Tell, dispatch};
use crate::error::{Error, ErrorKind};
use crate::options::ServeOptions;
use crate::progress::Cancel;
use crate::progress::cancelled;
use crate::reactor;
use crate::session::ssh::{SshSide, accept_over_ssh, bind_udp};
use crate::session::{Connection, Services, Settings};
use crate::write::budget::Budget;

/// Serves the client at the other end of standard input and output; blocks until ssh ends or the
/// server is cancelled. The client can reach everything that the user of this process can reach.
/// Only the key and the memory limit in `options` apply. The server opens its ports within `ports`,
/// if given.
pub(crate) fn serve_over_ssh(
    options: ServeOptions,
    ports: Option<(u16, u16)>,
    cancel: Cancel,
) -> Result<(), Error> {
    reactor::block_on("the server", run(options, ports, cancel))
}

async fn run(
    options: ServeOptions,
    ports: Option<(u16, u16)>,
    cancel: Cancel,
) -> Result<(), Error> {
    let identity = options.key.identity()?;
    let udp = bind_udp(ports)?;
    let unusable = |error| {
        Error::new(ErrorKind::Unreachable, format!("cannot use a UDP port for data: {error}"))
    };
    let data = Port::open(Socket::new(udp, RECEIVE_BUFFER).map_err(unusable)?)?;
    let data_port = data.socket().local_addr().port();
    // Standard output belongs to ssh, and the client gets all errors itself.
    let tell: Tell = Arc::new(|_| {});
    let settings = Settings::default();
    let mut side = tokio::select! {
        side = accept_over_ssh(&identity, ports, data_port, &settings) => side?,
        () = cancel.wished() => return Err(cancelled()),
    };
    // The client's first data may arrive before its request; they are kept.
    let port = data.handle();
    side.listener.on_arrival(move |address| port.expect(address));
    let memory = Budget::new(options.memory)?;
    // The client is the user of this process, and may choose unsealed data.
    let allow_plain = true;
    let server = Server::new(Door::of_user(), data.handle(), memory, tell);
    let server = Rc::new(Server { allow_plain, ..server });
    let (ended_end, mut ended) = mpsc::unbounded_channel();
    let view = dispatch::view(&server, None, RoomLimits::default());
    let services = dispatch::services(&view, false, Methods::default(), ended_end);
    loop {
        let session = tokio::select! {
            session = side.accept() => session?,
            () = cancel.wished() => return Err(cancelled()),
        };
        let Some(session) = session else {
            // Wait briefly for the client's last message, which may be unread. This message says
            // that the client has the outcome of the copy. Only then does the server remove the
            // mark that makes a repeated copy write into the same folder.
            server.closing.close(Duration::ZERO).await;
            return Ok(());
        };
        if session.carrier != "ssh" {
            // The client gets the error itself.
            dispatch::begin(&server, &services, session);
            continue;
        }
        // The client's connection runs through ssh, so the server ends with this connection.
        let connection = session.connection();
        let served = async {
            dispatch::answer(&server, &services, session).await;
            if let Some(connection) = connection {
                serve_streams(&server, &services, &mut side, connection).await;
            }
        };
        tokio::select! {
            () = served => {}
            () = cancel.wished() => return Err(cancelled()),
        }
        return ended.try_recv().unwrap_or(Ok(()));
    }
}

/// Serves the further streams of the connection through ssh until the connection ends.
async fn serve_streams(
    server: &Rc<Server>,
    services: &Services,
    side: &mut SshSide,
    connection: Connection,
) {
    loop {
        tokio::select! {
            session = side.listener.accept() => dispatch::begin(server, services, session),
            () = connection.ended() => return,
        }
    }
}
