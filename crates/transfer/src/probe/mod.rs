//! A probe measures the capacity of the path to another host that runs `longhaul serve`.
//!
//! Over one session the client requests one measurement after the other. `echo` measures round
//! trips. `blast` sends datagrams at a rate, and `count` receives them. `stream` measures a stream
//! at full speed. `reach` only checks which ports of a server can be reached. `client` and `server`
//! are the two sides. A server accepts probes only from allowed ids. In a session it runs one
//! measurement at a time, for ten seconds at most, and sends only to the address that the session
//! has validated.

mod blast;
mod client;
mod count;
mod echo;
mod reach;
pub(crate) mod server;
mod stream;
#[cfg(test)]
mod tests;

use std::time::Duration;

use longhaul_net::sealing::keys::{FlowKeys, Suite};
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::time::Span;
use longhaul_proto::units::{LossRatio, Rate};
use tokio::time::timeout;

use crate::control::{Frame, Message, ProbeCount};
use crate::error::{Error, ErrorKind};
use crate::options::HostOptions;
use crate::session::{Exporter, Session};

pub use client::probe;
pub use reach::{Ports, look_at_ports};

/// How long the other end may take in addition to the measurement.
const GRACE: Duration = Duration::from_secs(10);
/// Timeout of a probe's session, enforced by the server.
pub const LONGEST: Span = Span::from_secs(600);
/// How long closing the session may take.
const FAREWELL: Duration = Duration::from_secs(3);

/// The options of a probe.
#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// The other end.
    pub host: HostOptions,
    /// Measure datagrams that are received and dropped, as iperf does.
    pub udp: bool,
    /// Measure datagrams that are received and copied once, as an application does.
    pub app: bool,
    /// Measure TCP.
    pub tcp: bool,
    /// The rates of the datagrams, ascending; empty for a default series of rising rates, which
    /// ends when the path is full.
    pub rates: Vec<Rate>,
    /// How long each measurement sends.
    pub span: Span,
    /// The UDP payload of a datagram; `None` for the largest that passes.
    pub datagram: Option<u16>,
}

/// The transport of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// Datagrams, received and dropped.
    #[default]
    Udp,
    /// Datagrams, received and copied once.
    App,
    /// One TCP connection.
    Tcp,
}

impl Way {
    /// Returns the name in `--json`.
    pub fn name(self) -> &'static str {
        match self {
            Way::Udp => "udp",
            Way::App => "app",
            Way::Tcp => "tcp",
        }
    }
}

/// The properties of the path and its round trips, found before all measurements of throughput.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PathFound {
    /// The server's id.
    pub peer: String,
    /// The server's address.
    pub address: String,
    /// The carrier of the session: `quic` or `tls`.
    pub carrier: &'static str,
    /// The UDP payload of the datagrams of all measurements, in bytes.
    pub datagram: u16,
    /// The largest packet that passed, including the IP header; `None` without a search, or if no
    /// search packet was answered.
    pub mtu: Option<u16>,
    /// The cipher of the datagrams.
    pub cipher: &'static str,
    /// Round trips of small datagrams.
    pub trips: Trips,
}

/// Round trips of small datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Trips {
    /// Datagrams sent.
    pub asked: u32,
    /// Datagrams that were answered.
    pub answered: u32,
    /// The shortest round trip.
    pub min: Span,
    /// The mean round trip.
    pub mean: Span,
    /// The longest round trip.
    pub max: Span,
    /// The standard deviation of the round trips.
    pub deviation: Span,
}

/// One measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Measured {
    /// The transport.
    pub way: Way,
    /// True for the direction from here to the server.
    pub up: bool,
    /// The requested rate; `None` over TCP.
    pub asked: Option<Rate>,
    /// The rate that the sender achieved, in bits a second of UDP payload; `None` over TCP.
    pub sent_rate: Option<Rate>,
    /// The rate of arrivals, in bits a second of UDP payload, or of content over TCP.
    pub received_rate: Rate,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
    /// The fraction of datagrams that were lost.
    pub loss: LossRatio,
    /// Datagrams that the receiver's kernel dropped because a buffer was full.
    pub socket_lost: u64,
    /// Datagrams that arrived after a datagram that was sent later.
    pub reordered: u64,
}

/// A result of a running probe.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// The properties of the path.
    Path(PathFound),
    /// One measurement.
    Measured(Measured),
    /// A requested measurement failed, or only a part of it succeeded.
    Missing(Error),
}

fn flow_keys(exporter: &Exporter, suite: Suite, probe: u64, flow: FlowId) -> FlowKeys {
    let secret = exporter.export(b"longhaul probe", &probe.to_be_bytes());
    FlowKeys::new(&secret, suite, probe, flow)
}

/// Returns the other end's next count. Fails if none arrives within `span`, the length of the
/// running measurement, plus [`GRACE`].
async fn next_count(session: &mut Session, span: Duration) -> Result<ProbeCount, Error> {
    let work = async {
        loop {
            match session.read::<Frame>().await?.map(|frame| frame.message) {
                Some(Some(Message::ProbeCount(count))) => return Ok(count),
                Some(_) => {}
                None => return Err(Error::new(ErrorKind::Unfinished, "the other side hung up")),
            }
        }
    };
    timeout(span + GRACE, work).await.map_err(|_| {
        let what = format!("no count arrived within {} s", (span + GRACE).as_secs());
        Error::new(ErrorKind::Stalled, what)
    })?
}
