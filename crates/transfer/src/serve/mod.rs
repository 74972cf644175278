//! A server accepts streams, checks each stream, and dispatches it to a service.
//!
//! - `dispatch` passes a stream to the service that the stream requests. `running` ends the
//!   requests of all services when the server ends or their client loses its right. `counts` and
//!   `pulls` limit the requests of each client.
//! - `copying` is the service of copies. `register` lists the running transfers, so that a resumed
//!   copy can take over the destination of the interrupted transfer, and an additional stream can
//!   find its transfer. `transfer` handles one request, with `hooks` for the callbacks of the
//!   sending and the receiving role. `surveying` handles the survey of a source (the hashes of its
//!   chunks), which may precede a request.
//! - other services: `listing` (listings), `pipe` (files of unknown length), `reading` (ranges of
//!   files), `below` (the shared tree, streams of frames and remote procedure calls), `channeling`
//!   (channels; `links` connects their rooms to rooms of other servers), and `status` (reports the
//!   running transfers from `live`).
//! - `door` checks rights; `closing` shuts a server down; `over_ssh` serves the one client whose
//!   ssh started the process.
//! - `events` are the server's reports; `refusals` limits the reports about refused clients.
//! - `rehearsal` is a session without a network, for the fuzzer.

mod below;
mod channeling;
mod closing;
mod copying;
mod counts;
mod dispatch;
mod door;
mod events;
mod hooks;
mod links;
mod listing;
mod live;
mod over_ssh;
mod pipe;
mod pulls;
mod reading;
mod refusals;
mod register;
mod rehearsal;
mod running;
mod status;
mod surveying;
mod transfer;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use longhaul_net::port::{Port, PortHandle};
use longhaul_net::zone;
use longhaul_proto::registry::{self, Row};
use tokio::sync::{mpsc, oneshot};

use crate::error::{Error, ErrorKind};
use crate::flow::shared_core::SharedCores;
use crate::options::{Allow, ServeOptions};
use crate::probe;
use crate::reactor;
use crate::server_status::ServerStatus;
use crate::session::{Identity, Listener, Services, Settings};
use crate::write::budget::Budget;
use closing::Closing;
use counts::Counts;
use door::Door;
use live::Live;
use longhaul_files::sink::Left;
use longhaul_share::Shared;
use pipe::Pipes;
use pulls::Pulls;
use refusals::Refusals;
use register::Register;

pub use events::{Moved, ServedClient, ServerEvent};
pub(crate) use links::LinkTo;
pub(crate) use over_ssh::serve_over_ssh;
#[doc(hidden)]
pub use rehearsal::rehearse;

/// Interval at which the server reports the number of refusals beyond the limit on reports, and
/// removes expired rooms.
const TIDYING: Duration = Duration::from_secs(60);

/// The address and id of a started server.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The address of the control port.
    pub address: SocketAddr,
    /// The UDP port for data.
    pub data_port: u16,
    /// The server's id.
    pub id: String,
}

struct Server {
    door: Door,
    port: PortHandle,
    memory: Budget,
    /// The receiving cores (protocol state machines) that divide this host's capacity.
    cores: RefCell<SharedCores>,
    allow_plain: bool,
    register: Register,
    /// Counts each client's requests for files, and its probes.
    requests: Counts,
    pulls: Pulls,
    pipes: Pipes,
    protocols: Protocols,
    /// Partial files left by transfers.
    left: Arc<Left>,
    /// Limits the surveys that read at the same time.
    surveys: surveying::Permits,
    probes: probe::server::Permits,
    tell: Tell,
    refusals: Arc<Refusals>,
    live: Live,
    closing: Closing,
}

impl Server {
    /// Returns a server that knows all protocols and refuses unencrypted data.
    fn new(door: Door, port: PortHandle, memory: Budget, tell: Tell) -> Server {
        let live = Live::default();
        let tell = live.counting(tell);
        Server {
            door,
            port,
            memory,
            cores: RefCell::default(),
            allow_plain: false,
            register: Register::default(),
            requests: Counts::default(),
            pulls: Pulls::default(),
            pipes: Pipes::default(),
            protocols: registry::find,
            left: Arc::default(),
            surveys: surveying::Permits::default(),
            probes: probe::server::Permits::default(),
            refusals: Arc::new(Refusals::new(tell.clone())),
            tell,
            live,
            closing: Closing::default(),
        }
    }
}

pub(crate) type Protocols = fn(&str) -> Option<&'static Row>;

/// Receives the events of a server; called from the server's threads.
pub type Tell = Arc<dyn Fn(ServerEvent) + Send + Sync>;

pub(crate) enum Order {
    Status(oneshot::Sender<ServerStatus>),
    /// Replace the list of clients, and return the result.
    Allow(Vec<Allow>, oneshot::Sender<Result<(), Error>>),
    /// Shut down: let running requests continue for at most this long, then close their sessions.
    Shutdown(Duration),
}

/// Serves; `links` are links to rooms of other servers. Ends after [`Order::Shutdown`], when the
/// sender of `orders` is dropped, or, with `once`, after one transfer whose client was not lost.
/// Blocks. Calls `ready` when clients can connect, and `tell` with the events after that.
pub(crate) fn serve(
    protocols: Protocols,
    options: ServeOptions,
    links: Vec<LinkTo>,
    ready: impl FnOnce(Ready),
    tell: Tell,
    orders: mpsc::UnboundedReceiver<Order>,
) -> Result<(), Error> {
    reactor::block_on("the server", run(protocols, options, links, ready, tell, orders))
}

async fn run(
    protocols: Protocols,
    options: ServeOptions,
    links: Vec<LinkTo>,
    ready: impl FnOnce(Ready),
    tell: Tell,
    mut orders: mpsc::UnboundedReceiver<Order>,
) -> Result<(), Error> {
    let identity = options.key.identity()?;
    let door = Door::open(&options)?;
    let shared = options.share.as_deref().map(Shared::open).transpose()?;
    let (mut listener, data) = bind(&options, &identity)?;
    listener.admit_by(door.admission());
    // The port keeps early datagrams (before their flow is registered) of clients that connect.
    let port = data.handle();
    listener.on_arrival(move |address| port.expect(address));
    let memory = Budget::new(options.memory)?;
    let server = Server {
        protocols,
        allow_plain: options.allow_plain,
        ..Server::new(door, data.handle(), memory, tell)
    };
    let refusals = server.refusals.clone();
    listener.on_refusal(move |address, error| refusals.report(address, &error.clone().into()));
    let server = Rc::new(server);
    let view = dispatch::view(&server, shared, options.rooms);
    links::bridge(&view.channels, identity.id(), &options.groups)?;
    ready(Ready {
        address: listener.local_addr(),
        data_port: data.socket().local_addr().port(),
        id: identity.id().to_string(),
    });
    let (ended_end, mut ended) = mpsc::unbounded_channel();
    links::begin(&server, &view.channels, links);
    let services = dispatch::services(&view, options.rooms_only, options.methods, ended_end);
    let mut tidying = tokio::time::interval(TIDYING);
    let ended = loop {
        tokio::select! {
            session = listener.accept() => {
                dispatch::begin(&server, &services, session);
            }
            Some(result) = ended.recv() => {
                // A lost client may reconnect: its loss does not end a server with `once`.
                let lost = matches!(&result, Err(error) if error.kind == ErrorKind::Unfinished);
                if options.once && !lost {
                    break result;
                }
            }
            _ = tidying.tick() => view.tidy(),
            order = orders.recv() => match order {
                Some(Order::Allow(list, tell)) => {
                    // The caller may be gone.
                    let _ = tell.send(server.door.allow(list));
                }
                Some(Order::Status(tell)) => {
                    let view = view.clone();
                    tokio::task::spawn_local(async move { tell.send(view.now().await) });
                }
                Some(Order::Shutdown(grace)) => {
                    break close(&server, &services, &mut listener, grace).await;
                }
                None => {
                    break close(&server, &services, &mut listener, Duration::ZERO).await;
                }
            },
        }
    };
    server.refusals.flush();
    ended
}

/// Shuts the server down; refuses new clients meanwhile.
async fn close(
    server: &Rc<Server>,
    services: &Services,
    listener: &mut Listener,
    grace: Duration,
) -> Result<(), Error> {
    let refuse = async {
        loop {
            let session = listener.accept().await;
            dispatch::begin(server, services, session);
        }
    };
    let ended = tokio::select! {
        () = server.closing.close(grace) => Ok(()),
        never = refuse => never,
    };
    // Sessions without a running request learn of the shutdown here.
    listener.shut_down().await;
    ended
}

/// Opens the control and the data port. Without a data port in `options`, the data port is the port
/// after the control port; if the control port is 0, both are then free neighbouring ports.
fn bind(options: &ServeOptions, identity: &Identity) -> Result<(Listener, Port), Error> {
    const TRIES: usize = 16;
    let settings = Settings::default();
    let mut last = None;
    for _ in 0..TRIES {
        let listener = Listener::bind(options.listen, identity, &settings)?;
        let control = listener.local_addr();
        // Port 65535 has no next port; port 0 would mean any port.
        let next = control.port().checked_add(1);
        let Some(data_port) = options.data_port.or(next) else { continue };
        match Port::bind(zone::at_port(control, data_port)) {
            Ok(port) => return Ok((listener, port)),
            Err(error) if options.listen.port() != 0 => return Err(error.into()),
            Err(error) => last = Some(error.into()),
        }
    }
    Err(last.unwrap_or_else(|| {
        let what = match options.listen.port() {
            0 => "no two neighbouring ports are free",
            _ => "no data port follows port 65535",
        };
        Error::new(ErrorKind::Unreachable, what)
    }))
}
