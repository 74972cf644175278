//! Flows: senders, receivers, amounts and times.

use std::collections::BTreeMap;

use longhaul_proto::law::{Law, Weight};
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, LossRatio, Rate};

/// Traffic from one host to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The name in results, unique in the scenario.
    pub name: String,
    /// The sending host in [`super::Scenario::hosts`]; a command runs there.
    pub from: usize,
    /// The receiving host; for a command, the host at the other end.
    pub to: usize,
    /// When the flow starts.
    pub start: Time,
    /// The amount; for short connections ([`Mice`]), the amount of each.
    pub amount: Amount,
    /// The protocol or program that carries the data.
    pub traffic: Traffic,
}

impl Flow {
    /// The carrier's name: a protocol, `tcp cubic`, `udp`, …
    pub fn carrier(&self) -> String {
        match &self.traffic {
            Traffic::Protocol(copy) => copy.protocol.clone(),
            Traffic::Tcp(tcp) => format!("tcp {}", tcp.congestion.name()),
            Traffic::Udp(_) => "udp".into(),
            Traffic::Mice(mice) => format!("mice, tcp {}", mice.tcp.congestion.name()),
            Traffic::Command(command) => command.clone(),
        }
    }

    /// The bytes to deliver in all; `None` without a given size.
    pub fn object(&self) -> Option<Bytes> {
        let Amount::Size(size) = self.amount else { return None };
        match &self.traffic {
            Traffic::Mice(mice) => Some(Bytes::new(size.get().saturating_mul(mice.count.into()))),
            _ => Some(size),
        }
    }
}

/// How much a flow sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// An object of this many bytes.
    Size(Bytes),
    /// As much as can be sent in this time.
    Lasts(Span),
    /// As much as can be sent until the run ends. Such a flow does not extend the run.
    Endless,
}

/// The protocol or program that carries a flow's data.
#[derive(Clone, Debug, PartialEq)]
pub enum Traffic {
    /// A protocol of the registry.
    Protocol(Transfer),
    /// TCP: the kernel's in the emulator, a model in the simulator.
    Tcp(Tcp),
    /// UDP without retransmission: at a constant rate, or on and off.
    Udp(Udp),
    /// Short TCP connections; [`Mice::arrivals`] chooses when each starts.
    Mice(Mice),
    /// A shell command on the sending host (emulator only).
    Command(String),
}

/// A transfer by one of longhaul's protocols. In the simulator, flows of one protocol to one host
/// share one receiver.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transfer {
    /// The protocol's name in the registry, checked when the flow runs or its file is read.
    pub protocol: String,
    /// The rate in bits of UDP payload a second, as `--rate`; by default the protocol's choice.
    pub rate: Option<Rate>,
    /// The rate law in the simulator; the emulator uses the default.
    pub law: Law,
    /// The weight on a shared path, as `--share` ([`Law::Shadow`] only).
    pub share: Option<Weight>,
    /// In the simulator: the rate that an earlier copy found on this path, if any.
    pub remembered: Option<Rate>,
    /// The path's loss ratio that the earlier copy found together with `remembered`.
    pub remembered_loss: LossRatio,
    /// Bytes of a segment; by default the protocol's. The whole object may be one segment.
    pub segment: Option<Bytes>,
    /// Bytes of the object in a datagram; by default as many as fit the MTU.
    pub block: Option<u32>,
    /// How the receiving program stores payloads (emulator): `cp --receive`.
    pub receive: Option<Strategy>,
    /// In the simulator: all control messages use the ordered stream, as over TCP.
    pub ordered_control: bool,
    /// In the simulator, for a program that reads in order: the size of the buffer for datagrams
    /// that wait for earlier ones. Without it each datagram is stored as it arrives.
    pub reorder_buffer: Option<Bytes>,
    /// In the simulator: whether a disk is read.
    pub reads_disk: bool,
    /// In the simulator: whether a disk is written.
    pub writes_disk: bool,
    /// 2 or more: adds coded symbols to the last rounds or, where chunks cannot be coded, sends
    /// each block of a small last round up to this many times. By default the protocol's value.
    pub tail_copies: Option<u32>,
    /// The protocol's settings in base units: bit/s, bytes, seconds, shares of 1.
    pub settings: BTreeMap<String, f64>,
}

/// How a receiving program stores payloads (Quanta, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Into a buffer, then to the final place.
    Naive,
    /// Reads directly to the expected place.
    Scatter,
    /// Only counts the datagrams, and stores nothing.
    Fake,
}

impl Strategy {
    /// Its name in scenarios and flags.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Naive => "naive",
            Strategy::Scatter => "scatter",
            Strategy::Fake => "fake",
        }
    }
}

/// A TCP transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tcp {
    /// Parallel connections that share the amount evenly.
    pub streams: u32,
    /// How the window grows.
    pub congestion: Congestion,
    /// Each connection's window limit, if any.
    pub window: Option<Bytes>,
    /// The first window, in segments.
    pub initial_window: u32,
}

/// How TCP's window grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 6582 with selective acknowledgements.
    NewReno,
    /// RFC 9438.
    #[default]
    Cubic,
    /// Version 1, as in Linux.
    Bbr,
}

impl Congestion {
    /// Its name in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Congestion::NewReno => "newreno",
            Congestion::Cubic => "cubic",
            Congestion::Bbr => "bbr",
        }
    }
}

/// UDP at a configured rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Udp {
    /// Bits of UDP payload a second, while the flow sends.
    pub rate: Rate,
    /// UDP payload bytes in a datagram; by default as many as fit the MTU.
    pub datagram: Option<u32>,
    /// The lengths of alternating sending and silent phases, if any.
    pub bursts: Option<(Span, Span)>,
    /// Whether the phases' lengths are exponentially distributed, with `bursts` as means.
    pub random: bool,
}

/// Short connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mice {
    /// The number of connections.
    pub count: u32,
    /// When the connections start.
    pub arrivals: Arrivals,
    /// The TCP settings of each connection.
    pub tcp: Tcp,
}

/// When short connections start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal intervals of this length.
    Regular(Span),
    /// At random times (a Poisson process), with this mean interval.
    Poisson(Span),
    /// Each connection starts when the previous one has ended.
    InTurn,
}

/// A run's records besides its totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The interval of the time series, if recorded.
    pub interval: Option<Span>,
}

impl Tcp {
    /// The initial window of RFC 6928.
    pub(crate) const DEFAULT_INITIAL_WINDOW: u32 = 10;
}

impl Default for Tcp {
    fn default() -> Tcp {
        Tcp {
            streams: 1,
            congestion: Congestion::default(),
            window: None,
            initial_window: Tcp::DEFAULT_INITIAL_WINDOW,
        }
    }
}
