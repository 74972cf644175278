//! The way to another host: a session, a port for the data, and how large its datagrams may be.
//!
//! [`route`] says which way an object goes, [`way`] what carries its data.

pub(crate) mod route;
pub(crate) mod way;

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
use crate::options::{CopyOptions, HostOptions, ReachOptions, Trust};
use crate::progress::Observer;
use crate::session::connect::resolve;
use crate::session::known::{KnownServers, server_name};
use crate::session::ssh::{SshTarget, connect_ssh};
use crate::session::{self, Identity, Session, Settings};

/// The largest UDP payload that is looked for: a jumbo frame's over IPv4.
const CEILING: u16 = 9000 - 20 - 8;
/// A search may outlast the handshake by this much.
const SEARCH_EXTRA: Duration = Duration::from_millis(5);
/// A whole search takes this many round trips: a first answer, and three tries of the next size.
const SEARCH_ROUNDS: u32 = 5;
/// The longest that a search is waited for in all.
const SEARCH: Span = Span::from_secs(3);

/// How the size of datagrams is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Not at all.
    No,
    /// As long as the handshake takes.
    Beside,
    /// Until it is known, some round trips more.
    Whole,
}

/// What another host is reached by.
pub(crate) struct Reach<'a> {
    pub(crate) host: &'a Host,
    pub(crate) identity: &'a Identity,
    pub(crate) trust: &'a Trust,
    pub(crate) observer: &'a dyn Observer,
    pub(crate) options: &'a ReachOptions,
}

/// The way.
pub(crate) struct Reached {
    pub(crate) session: Session,
    /// This side's port for data.
    pub(crate) data: Rc<Port>,
    /// The other side's.
    pub(crate) contact: SocketAddr,
    /// The UDP payload that is known to pass.
    pub(crate) datagram: Option<u16>,
}

/// This side's ports for data, of sessions that share them: one for each family of addresses.
#[derive(Default)]
pub(crate) struct DataPorts {
    v4: OnceCell<Rc<Port>>,
    v6: OnceCell<Rc<Port>>,
}

/// What a session's data come in by: a port of its own, or one that is shared.
#[derive(Clone, Copy)]
struct Doors<'a>(Option<&'a DataPorts>);

impl Doors<'_> {
    /// A port of the family of `address`; a new one is of the system's choice.
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
///
/// # Errors
/// [`ErrorKind::Usage`] for a location on this host; the key cannot be loaded; the host cannot be
/// reached or trusted.
pub(crate) async fn open(
    options: &HostOptions,
    observer: &dyn Observer,
    settings: &Settings,
    look: Look,
) -> Result<Reached, Error> {
    let HostOptions { location, trust, key, reach } = options;
    let here = || {
        Error::new(ErrorKind::Usage, format!("{location} is on this host"))
            .advise("name a server as lh://host[:port], or a host of ssh as host:")
    };
    let host = Host::of(location).ok_or_else(here)?;
    let identity = key.identity()?;
    let reach = Reach { host: &host, identity: &identity, trust, observer, options: reach };
    reach.open(settings, look).await
}

/// How the other host of `route` is reached.
pub(crate) fn reach<'a>(
    options: &'a CopyOptions,
    route: &'a Route,
    identity: &'a Identity,
    observer: &'a dyn Observer,
) -> Reach<'a> {
    Reach { host: route.host(), identity, trust: &options.trust, observer, options: &options.reach }
}

impl Reach<'_> {
    /// Opens a session; beside it, searches for the datagram size that the data path takes.
    pub(crate) async fn open(&self, settings: &Settings, look: Look) -> Result<Reached, Error> {
        self.open_on(None, settings, look).await
    }

    /// The same with ports that other sessions use too.
    pub(crate) async fn open_on(
        &self,
        ports: Option<&DataPorts>,
        settings: &Settings,
        look: Look,
    ) -> Result<Reached, Error> {
        let doors = Doors(ports);
        match self.host {
            Host::Daemon { host, port } => {
                self.open_directly(host, *port, doors, settings, look).await
            }
            Host::Ssh { destination } => self.open_by_ssh(destination, doors, settings, look).await,
        }
    }

    /// The UDP port of the data of the server at the port `control`.
    pub(crate) fn data_port(&self, control: u16) -> u16 {
        self.options.data_port.unwrap_or(control.wrapping_add(1))
    }

    /// Whether the user has said before this run who the server is.
    fn is_known(&self, host: &str, port: u16) -> bool {
        let known = || KnownServers::new(&self.trust.config_dir).find(&server_name(host, port));
        self.trust.pin(host, port).is_some() || matches!(known(), Ok(Some(_)))
    }

    async fn open_directly(
        &self,
        host: &str,
        port: u16,
        doors: Doors<'_>,
        settings: &Settings,
        look: Look,
    ) -> Result<Reached, Error> {
        let data_port = self.data_port(port);
        let first = resolve(host, data_port, settings).await;
        let data = first.ok().and_then(|all| all.first().copied());
        // On first use nothing but the handshake leaves before the other side's id is accepted: a
        // copy makes do with what Ethernet takes then.
        let data = data.filter(|_| self.is_known(host, port));
        let begun = data.and_then(|data| begin(data, doors, look));
        let (identity, trust) = (self.identity, self.trust);
        let ask = |server: &str, id: &str| self.observer.trust_new_server(server, id);
        let session = session::connect(host, port, identity, trust, &ask, settings).await?;
        let contact = zone::at_port(session.remote, data_port);
        finish(session, contact, begun, doors, look).await
    }

    async fn open_by_ssh(
        &self,
        destination: &str,
        doors: Doors<'_>,
        settings: &Settings,
        look: Look,
    ) -> Result<Reached, Error> {
        let target = SshTarget {
            command: &self.options.ssh_command,
            destination,
            remote_path: &self.options.remote_path,
            ports: self.options.ports,
            arguments: &[],
        };
        let mut begun = None;
        let offered = |contact| begun = begin(contact, doors, look);
        let session = connect_ssh(&target, self.identity, settings, offered).await?;
        let data_port = session.data_port.unwrap_or_else(|| self.data_port(session.remote.port()));
        let contact = zone::at_port(session.remote, data_port);
        finish(session, contact, begun, doors, look).await
    }
}

/// A port for data, and what is being searched on the way from it, beside the handshake.
struct Begun {
    contact: SocketAddr,
    data: Rc<Port>,
    search: Option<oneshot::Receiver<Option<u16>>>,
}

/// Opens a port towards `contact` and begins to search. What fails here is tried again when the
/// session stands, and told then.
fn begin(contact: SocketAddr, doors: Doors<'_>, look: Look) -> Option<Begun> {
    let data = doors.open(contact.ip()).ok()?;
    let search = match look {
        Look::No => None,
        Look::Beside | Look::Whole => Some(search(&data, contact).ok()?),
    };
    Some(Begun { contact, data, search })
}

/// The way once the session stands, with what was `begun` where it led to the same address.
async fn finish(
    session: Session,
    contact: SocketAddr,
    begun: Option<Begun>,
    doors: Doors<'_>,
    look: Look,
) -> Result<Reached, Error> {
    let same = |begun: &Begun| begun.contact.ip().to_canonical() == contact.ip();
    let (data, searching) = match begun.filter(same) {
        Some(begun) => (begun.data, begun.search),
        None => {
            let data = doors.open(contact.ip())?;
            let is_late = look == Look::Whole && session.carrier != "ssh";
            let searching = if is_late { Some(search(&data, contact)?) } else { None };
            (data, searching)
        }
    };
    let rounds = if look == Look::Whole { SEARCH_ROUNDS } else { 0 };
    let datagram = wait_for(searching, &session, rounds).await;
    Ok(Reached { session, data, contact, datagram })
}

/// What a search has found, so many round trips later at the latest.
async fn wait_for(
    search: Option<oneshot::Receiver<Option<u16>>>,
    session: &Session,
    rounds: u32,
) -> Option<u16> {
    let patience = SEARCH_EXTRA + session.rtt.unwrap_or_default() * rounds;
    timeout(patience, search?).await.ok().and_then(Result::ok).flatten()
}

/// A socket of the family of `address`, on a port of the system's choice.
fn open_port(address: IpAddr) -> Result<Port, Error> {
    let any: IpAddr = match address.to_canonical() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    Ok(Port::bind(SocketAddr::new(any, 0))?)
}

/// Starts the search for what the way to `address` takes.
fn search(data: &Port, address: SocketAddr) -> Result<oneshot::Receiver<Option<u16>>, Error> {
    let (tell, found) = oneshot::channel();
    mtu::search(data, Path::from(address), CEILING, SEARCH, move |found| {
        let _ = tell.send(found.map(|found| found.size));
    })?;
    Ok(found)
}

/// The largest packet that the data port at `address` answers, IP's header included; nothing
/// where it is silent.
pub(crate) async fn data_size(address: SocketAddr) -> Result<Option<u16>, Error> {
    let data = open_port(address.ip())?;
    let found = search(&data, address)?.await.ok().flatten();
    Ok(found.map(|size| size + mtu::packet_overhead(address.ip())))
}

/// What Ethernet takes; where less passes, the first pass notices.
pub(crate) fn usual_datagram(address: IpAddr) -> u16 {
    1500 - mtu::packet_overhead(address)
}
