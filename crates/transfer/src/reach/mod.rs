//! Connects to another host: a session, a port for the data, and a search for the datagram size.
//!
//! [`route`] gives the direction of a copy and the other host; [`transport`] says whether the data
//! travel as datagrams or over streams.

pub(crate) mod route;
pub(crate) mod transport;

use std::cell::OnceCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use longhaul_net::port::Port;
use longhaul_net::port::mtu;
use longhaul_net::socket::Path;
use longhaul_net::zone;
use longhaul_proto::time::Span;
use tokio::sync::oneshot;
use tokio::time::timeout;

use self::route::{Host, Route};
use crate::error::{Error, ErrorKind};
use crate::location::Location;
use crate::options::{CopyOptions, HostOptions, ReachOptions, Trust};
use crate::progress::Observer;
use crate::session::connect::resolve;
use crate::session::known::{KnownServers, server_name};
use crate::session::ssh::{SshTarget, connect_ssh};
use crate::session::{self, Identity, Session, Settings};

/// The largest UDP payload of the search: the payload of a jumbo frame over IPv4.
const CEILING: u16 = 9000 - 20 - 8;
/// How long a search may continue after the handshake. [`SizeSearch::Whole`] adds [`SEARCH_ROUNDS`]
/// round trips.
const SEARCH_EXTRA: Duration = Duration::from_millis(5);
/// Round trips that a whole search may take: one until the first answer, the others for probes of
/// larger sizes.
const SEARCH_ROUNDS: u32 = 5;
/// Maximum duration of any search.
const SEARCH: Span = Span::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SizeSearch {
    No,
    /// Search during the handshake, and at most [`SEARCH_EXTRA`] longer.
    DuringHandshake,
    /// Search until the size is known, for at most [`SEARCH_ROUNDS`] more round trips.
    Whole,
}

pub(crate) struct Reach<'a> {
    pub(crate) host: &'a Host,
    pub(crate) identity: &'a Identity,
    pub(crate) trust: &'a Trust,
    pub(crate) observer: &'a dyn Observer,
    pub(crate) options: &'a ReachOptions,
    /// Additional arguments of the command that ssh starts.
    pub(crate) arguments: &'a [String],
}

pub(crate) struct Reached {
    pub(crate) session: Session,
    /// This side's data port.
    pub(crate) data: Rc<Port>,
    /// The address of the other side's data port.
    pub(crate) contact: SocketAddr,
    /// The largest UDP payload in bytes that is known to pass, if any.
    pub(crate) datagram: Option<u16>,
}

/// This side's data ports, shared by several sessions: one per address family.
#[derive(Default)]
pub(crate) struct DataPorts {
    v4: OnceCell<Rc<Port>>,
    v6: OnceCell<Rc<Port>>,
}

/// The source of a session's data port: a new or a shared port.
#[derive(Clone, Copy)]
struct PortSource<'a>(Option<&'a DataPorts>);

impl PortSource<'_> {
    /// Returns the shared port of this address family, or opens a new port. The system chooses the
    /// number of a new port.
    fn open(self, address: IpAddr) -> Result<Rc<Port>, Error> {
        let Some(shared) = self.0 else { return Ok(Rc::new(open_port(address)?)) };
        let cell = if address.to_canonical().is_ipv4() { &shared.v4 } else { &shared.v6 };
        match cell.get() {
            Some(port) if !port.is_closed() => Ok(port.clone()),
            Some(_) => Ok(Rc::new(open_port(address)?)),
            None => {
                let port = Rc::new(open_port(address)?);
                Ok(cell.get_or_init(|| port).clone())
            }
        }
    }
}

/// Opens a session with the one host of `options`.
pub(crate) async fn open(
    options: &HostOptions,
    observer: &dyn Observer,
    settings: &Settings,
    how: SizeSearch,
) -> Result<Reached, Error> {
    open_for(options, observer, settings, how, false).await
}

/// Like [`open`], for rooms and streams. A room passes messages between its clients, so over ssh
/// all clients of a user connect to one server of that user.
pub(crate) async fn open_rooms(
    options: &HostOptions,
    observer: &dyn Observer,
    how: SizeSearch,
) -> Result<Reached, Error> {
    let settings = Settings { lanes: options.reach.lanes, ..Settings::default() };
    open_for(options, observer, &settings, how, true).await
}

async fn open_for(
    options: &HostOptions,
    observer: &dyn Observer,
    settings: &Settings,
    how: SizeSearch,
    rooms: bool,
) -> Result<Reached, Error> {
    let HostOptions { location, trust, key, reach, .. } = options;
    let here = || {
        let what = match location {
            Location::Http { .. } => format!("{location} can only be the source of a copy"),
            _ => format!("{location} is on this host"),
        };
        Error::new(ErrorKind::Usage, what)
            .advise("name a server as lh://host[:port], or an ssh host as host:")
    };
    let host = Host::of(location).ok_or_else(here)?;
    let identity = key.identity()?;
    let (host, identity) = (&host, &identity);
    // The remote command gets the client's id, so the server admits this id before the command
    // prints the server's ports.
    let words = ["--rooms".to_owned(), identity.id().to_string()];
    let arguments = if rooms { &words[..] } else { &[] };
    let reach = Reach { host, identity, trust, observer, options: reach, arguments };
    reach.open(settings, how).await
}

pub(crate) fn reach<'a>(
    options: &'a CopyOptions,
    route: &'a Route,
    identity: &'a Identity,
    observer: &'a dyn Observer,
) -> Reach<'a> {
    let (host, trust) = (route.host(), &options.trust);
    Reach { host, identity, trust, observer, options: &options.reach, arguments: &[] }
}

impl Reach<'_> {
    /// Opens a session; in parallel, searches for the datagram size of the data path.
    pub(crate) async fn open(
        &self,
        settings: &Settings,
        how: SizeSearch,
    ) -> Result<Reached, Error> {
        self.open_on(None, settings, how).await
    }

    /// Opens a session with data ports that other sessions also use.
    pub(crate) async fn open_on(
        &self,
        ports: Option<&DataPorts>,
        settings: &Settings,
        how: SizeSearch,
    ) -> Result<Reached, Error> {
        let begun = self.begin(ports, settings, how).await;
        self.open_begun(begun, ports, settings, how).await
    }

    /// Opens the data port towards a server whose id is known, and starts the search for the
    /// datagram size. Returns `None` if that is not possible before the session.
    pub(crate) async fn begin(
        &self,
        ports: Option<&DataPorts>,
        settings: &Settings,
        how: SizeSearch,
    ) -> Option<Begun> {
        let Host::Daemon { host, port } = self.host else { return None };
        let addresses = resolve(host, self.data_port(*port), settings).await.ok()?;
        let data = addresses.first().copied()?;
        // On first use, send only the handshake before the user accepts the server's id.
        if self.is_known(host, *port) { begin(data, PortSource(ports), how) } else { None }
    }

    /// Opens a session after [`Reach::begin`].
    pub(crate) async fn open_begun(
        &self,
        begun: Option<Begun>,
        ports: Option<&DataPorts>,
        settings: &Settings,
        how: SizeSearch,
    ) -> Result<Reached, Error> {
        let source = PortSource(ports);
        match self.host {
            Host::Daemon { host, port } => {
                self.open_directly(host, *port, begun, source, settings, how).await
            }
            Host::Ssh { destination } => self.open_by_ssh(destination, source, settings, how).await,
        }
    }

    pub(crate) fn data_port(&self, control: u16) -> u16 {
        self.options.data_port.unwrap_or(control.wrapping_add(1))
    }

    /// Returns whether the server's id is known: the user has pinned it, or an earlier run has
    /// stored it.
    fn is_known(&self, host: &str, port: u16) -> bool {
        let known = || KnownServers::new(&self.trust.config_dir).find(&server_name(host, port));
        self.trust.pin(host, port).is_some() || matches!(known(), Ok(Some(_)))
    }

    async fn open_directly(
        &self,
        host: &str,
        port: u16,
        begun: Option<Begun>,
        source: PortSource<'_>,
        settings: &Settings,
        how: SizeSearch,
    ) -> Result<Reached, Error> {
        let data_port = self.data_port(port);
        let (identity, trust) = (self.identity, self.trust);
        let ask = |server: &str, id: &str| self.observer.trust_new_server(server, id);
        let session = session::connect(host, port, identity, trust, &ask, settings).await?;
        let contact = zone::at_port(session.remote, data_port);
        finish(session, contact, begun, source, how).await
    }

    async fn open_by_ssh(
        &self,
        destination: &str,
        source: PortSource<'_>,
        settings: &Settings,
        how: SizeSearch,
    ) -> Result<Reached, Error> {
        let target = SshTarget {
            command: &self.options.ssh_command,
            destination,
            remote_path: &self.options.remote_path,
            ports: self.options.ports,
            arguments: self.arguments,
        };
        let mut begun = None;
        let offered = |contact| begun = begin(contact, source, how);
        let session = connect_ssh(&target, self.identity, settings, offered).await?;
        let data_port = session.data_port.unwrap_or_else(|| self.data_port(session.remote.port()));
        let contact = zone::at_port(session.remote, data_port);
        finish(session, contact, begun, source, how).await
    }
}

/// What was begun before the session.
pub(crate) struct Begun {
    /// The address of the other side's data port.
    pub(crate) contact: SocketAddr,
    /// This side's data port.
    pub(crate) data: Rc<Port>,
    search: Option<oneshot::Receiver<Option<u16>>>,
}

/// Opens a port towards `contact` and starts the search. A failure is ignored: `finish` opens a
/// port again, and reports a failure of that attempt.
fn begin(contact: SocketAddr, source: PortSource<'_>, how: SizeSearch) -> Option<Begun> {
    let data = source.open(contact.ip()).ok()?;
    let search = match how {
        SizeSearch::No => None,
        SizeSearch::DuringHandshake | SizeSearch::Whole => Some(search(&data, contact).ok()?),
    };
    Some(Begun { contact, data, search })
}

/// Completes the connection; uses `begun` if the session led to the same address.
async fn finish(
    session: Session,
    contact: SocketAddr,
    begun: Option<Begun>,
    source: PortSource<'_>,
    how: SizeSearch,
) -> Result<Reached, Error> {
    let same = |begun: &Begun| begun.contact.ip().to_canonical() == contact.ip();
    let (data, searching) = match begun.filter(same) {
        Some(begun) => (begun.data, begun.search),
        None => {
            let data = source.open(contact.ip())?;
            let is_late = how == SizeSearch::Whole && session.carrier != "ssh";
            let searching = if is_late { Some(search(&data, contact)?) } else { None };
            (data, searching)
        }
    };
    let rounds = if how == SizeSearch::Whole { SEARCH_ROUNDS } else { 0 };
    let datagram = wait_for(searching, &session, rounds).await;
    Ok(Reached { session, data, contact, datagram })
}

/// Waits for the result of a search, at most [`SEARCH_EXTRA`] plus `rounds` round trips.
async fn wait_for(
    search: Option<oneshot::Receiver<Option<u16>>>,
    session: &Session,
    rounds: u32,
) -> Option<u16> {
    let patience = SEARCH_EXTRA + session.rtt.unwrap_or_default() * rounds;
    timeout(patience, search?).await.ok().and_then(Result::ok).flatten()
}

fn open_port(address: IpAddr) -> Result<Port, Error> {
    let any: IpAddr = match address.to_canonical() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    Ok(Port::bind(SocketAddr::new(any, 0))?)
}

fn search(data: &Port, address: SocketAddr) -> Result<oneshot::Receiver<Option<u16>>, Error> {
    let (tell, found) = oneshot::channel();
    mtu::search(data, Path::from(address), CEILING, SEARCH, move |found| {
        let _ = tell.send(found.map(|found| found.size));
    })?;
    Ok(found)
}

/// Returns the largest packet that the data port at `address` answers, including the IP header;
/// `None` if the port is silent.
pub(crate) async fn data_size(address: SocketAddr) -> Result<Option<u16>, Error> {
    let data = open_port(address.ip())?;
    let found = search(&data, address)?.await.ok().flatten();
    Ok(found.map(|size| size + mtu::packet_overhead(address.ip())))
}

/// Returns the UDP payload, in bytes, of a full Ethernet packet (1500 bytes).
pub(crate) fn usual_datagram(address: IpAddr) -> u16 {
    1500 - mtu::packet_overhead(address)
}
