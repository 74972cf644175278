//! A probe: what the way to another host carries, measured against its `longhaul serve`.
//!
//! Over one session the client asks for one measurement after the other: round trips (`echo`),
//! datagrams at a rate (`blast` sends, `count` receives), a stream as fast as it goes (`stream`).
//! `client` and `server` are the two sides. Datagrams are sealed as a copy's are, under keys of
//! the probe's own; a server measures only with ids that it allows, one thing after the other, each
//! for ten seconds at most, and sends only to the address that the session has proven.

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

/// How long the other end may take beside the measurement itself.
const GRACE: Duration = Duration::from_secs(10);
/// The longest that one session of a probe may take: a server ends it then.
pub const LONGEST: Span = Span::from_secs(600);
/// How long a goodbye may take.
const FAREWELL: Duration = Duration::from_secs(3);

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// The other end.
    pub host: HostOptions,
    /// Datagrams that are received and dropped, as iperf does.
    pub udp: bool,
    /// Datagrams that are received and copied once, as an application does (app_perf).
    pub app: bool,
    /// TCP beside it.
    pub tcp: bool,
    /// The rates of the datagrams, ascending; empty for a ladder that ends where the way is full.
    pub rates: Vec<Rate>,
    /// How long each measurement sends.
    pub span: Span,
    /// The UDP payload of a datagram; nothing to take what the path takes.
    pub datagram: Option<u16>,
}

/// What carried a measurement.
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
    /// The name in `--json`.
    pub fn name(self) -> &'static str {
        match self {
            Way::Udp => "udp",
            Way::App => "app",
            Way::Tcp => "tcp",
        }
    }
}

/// The way as it is found before anything is measured on it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PathFound {
    /// The server's id.
    pub peer: String,
    /// Its address.
    pub address: String,
    /// What carries the session: `quic` or `tls`.
    pub carrier: &'static str,
    /// The UDP payload of the datagrams that follow.
    pub datagram: u16,
    /// The largest packet that passed, IP's header included; nothing where no search was answered.
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
    /// How many were asked for.
    pub asked: u32,
    /// How many came back.
    pub answered: u32,
    /// The shortest.
    pub min: Span,
    /// The mean.
    pub mean: Span,
    /// The longest.
    pub max: Span,
    /// The standard deviation.
    pub deviation: Span,
}

/// One measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Measured {
    /// What carried it.
    pub way: Way,
    /// From here to the server.
    pub up: bool,
    /// The rate that was asked for; nothing over TCP.
    pub asked: Option<Rate>,
    /// What the sender achieved, in bits a second of UDP payload; nothing over TCP.
    pub sent_rate: Option<Rate>,
    /// What came, in bits a second of UDP payload, or of content over TCP.
    pub received_rate: Rate,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
    /// Share of those sent that did not come.
    pub loss: LossRatio,
    /// Datagrams that the receiver's kernel dropped for want of buffer.
    pub socket_lost: u64,
    /// Datagrams that came after one that was sent later.
    pub reordered: u64,
}

/// What a probe tells as it goes.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// The way itself.
    Path(PathFound),
    /// One measurement.
    Measured(Measured),
    /// Something that was asked for and could not be measured, or not all of it.
    Missing(Error),
}

/// The keys of a flow of a probe.
fn flow_keys(exporter: &Exporter, suite: Suite, probe: u64, flow: FlowId) -> FlowKeys {
    let secret = exporter.export(b"longhaul probe", &probe.to_be_bytes());
    FlowKeys::new(&secret, suite, probe, flow)
}

/// The other end's next count, which comes after a measurement of `span`.
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
        let what = format!("no count came within {} s", (span + GRACE).as_secs());
        Error::new(ErrorKind::Stalled, what)
    })?
}
