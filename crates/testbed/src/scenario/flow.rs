//! Who sends what to whom, and when.

use std::collections::BTreeMap;

use longhaul_proto::law::{Law, Weight};
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

/// Something that one host sends to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// What it is called in results; no two flows have the same name.
    pub name: String,
    /// The place of the sending host in [`super::Scenario::hosts`]; a command runs there.
    pub from: usize,
    /// The place of the receiving host; for a command, whom it speaks to.
    pub to: usize,
    /// When it starts.
    pub start: Time,
    /// How much; for [`Traffic::Mice`], the size of each.
    pub amount: Amount,
    /// By what.
    pub traffic: Traffic,
}

impl Flow {
    /// What carries it, in a word or two: a protocol's name, `tcp cubic`, `udp`, …
    pub fn carrier(&self) -> String {
        match &self.traffic {
            Traffic::Protocol(copy) => copy.protocol.clone(),
            Traffic::Tcp(tcp) => format!("tcp {}", tcp.congestion.name()),
            Traffic::Udp(_) => "udp".into(),
            Traffic::Mice(mice) => format!("mice, tcp {}", mice.tcp.congestion.name()),
            Traffic::Command(command) => command.clone(),
        }
    }

    /// What it is to deliver, of mice all together; nothing where there is no end.
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
    /// This many bytes of object.
    Size(Bytes),
    /// As much as goes for this long.
    Lasts(Span),
    /// As much as goes until the run ends. It does not keep a run from ending: once every flow
    /// that can end has, so has the run.
    Endless,
}

/// What carries a flow.
#[derive(Clone, Debug, PartialEq)]
pub enum Traffic {
    /// A protocol of the registry.
    Protocol(Transfer),
    /// TCP: the kernel's in the emulator, a model in the simulator.
    Tcp(Tcp),
    /// UDP that nobody repairs: constant, or on and off.
    Udp(Udp),
    /// Short TCP connections that come one after the other.
    Mice(Mice),
    /// A shell command on the sending host (in the emulator only).
    Command(String),
}

/// A transfer by one of longhaul's protocols. Flows of one protocol to one host have one receiver
/// there, as those of one `serve` have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transfer {
    /// The protocol's name in the registry. Whether there is one is asked when it runs; of a file,
    /// when it is read.
    pub protocol: String,
    /// Bits of UDP payload a second, as `--rate`; without it the protocol finds its own.
    pub rate: Option<Rate>,
    /// How it finds its rate, in the simulator; the emulator runs the default.
    pub law: Law,
    /// The part of a shared path that it takes: `--share`. The law is then the one that shares.
    pub share: Option<Weight>,
    /// The rate that the path is remembered for, in the simulator; without it the path is new.
    pub remembered: Option<Rate>,
    /// Bytes of a segment; without it the protocol's default. At least the object's size: one.
    pub segment: Option<Bytes>,
    /// Bytes of object in a datagram; without it what the MTU leaves room for.
    pub block: Option<u32>,
    /// How the receiving program moves payloads, in the emulator: `cp --receive`.
    pub receive: Option<Strategy>,
    /// Whether control messages travel on the ordered stream alone, in the simulator, as over TCP.
    pub ordered_control: bool,
    /// Where datagrams wait for earlier ones, in the simulator, before the program gets the bytes
    /// in order; without it each datagram goes to its place as it comes.
    pub reorder_buffer: Option<Bytes>,
    /// Whether the object comes from the sending host's disk.
    pub reads_disk: bool,
    /// Whether the object goes to the receiving host's disk.
    pub writes_disk: bool,
    /// Times that a repair block of a small last round is sent at most; without it the default.
    pub tail_copies: Option<u32>,
    /// Settings of the protocol's own, by name, in base units: bit/s, bytes, seconds, shares
    /// of 1.
    pub settings: BTreeMap<String, f64>,
}

/// How a receiving program moves payloads (Quanta, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Into its buffer, and from there to their place.
    Naive,
    /// To where they are expected.
    Scatter,
    /// Nowhere: they are only counted.
    Fake,
}

impl Strategy {
    /// Its name in a scenario, and as a flag.
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
    /// Connections that share the amount evenly and run side by side.
    pub streams: u32,
    /// How the window grows.
    pub congestion: Congestion,
    /// The most that may be on its way, each connection (64 kB: a host that nobody tuned);
    /// without it, the window has no limit but congestion.
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
    /// Its name in a scenario.
    pub fn name(self) -> &'static str {
        match self {
            Congestion::NewReno => "newreno",
            Congestion::Cubic => "cubic",
            Congestion::Bbr => "bbr",
        }
    }
}

/// UDP at a given rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Udp {
    /// Bits of UDP payload a second, while it sends.
    pub rate: Rate,
    /// Bytes of UDP payload in a datagram; without it what the MTU leaves room for.
    pub datagram: Option<u32>,
    /// For how long it sends, and is silent, by turns; without it, it always sends.
    pub bursts: Option<(Span, Span)>,
    /// Whether these are the means of exponential times rather than the times themselves.
    pub random: bool,
}

/// Short connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mice {
    /// How many.
    pub count: u32,
    /// When they start.
    pub arrivals: Arrivals,
    /// What each of them is.
    pub tcp: Tcp,
}

/// When short connections start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// One each span.
    Regular(Span),
    /// At random, independent of each other, this span apart on average.
    Poisson(Span),
    /// Each when the one before has ended.
    InTurn,
}

/// What a run writes down beside its totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// How far apart the points of the time series are; without it, there is none.
    pub interval: Option<Span>,
}

impl Tcp {
    /// The first window of RFC 6928.
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
