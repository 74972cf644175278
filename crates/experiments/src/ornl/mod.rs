//! The ORNL study: FOBS, RBUDP, SABUL, Tsunami, TCP and UDP side by side. The sentences quoted are
//! the study's.
//!
//! `emulated`: the NISTNET runs of its section 4.3. `internet`: its sections 4.1 and 4.2.
//! `reordering`: what its section 6 asks for.

mod emulated;
mod internet;
mod reordering;

use longhaul_proto::registry;
use longhaul_proto::units::{Bytes, Rate};
use longhaul_testbed::scenario::{Amount, Congestion, Flow, Tcp, Traffic, Udp};

use crate::experiment::Experiment;
use crate::outcome::{FlowOutcome, Outcomes};
use crate::paths::{flow, tcp, transfer, with_overhead};
use crate::quantity::{DUPLICATES, GOODPUT, LOST, Quantity, RETRANSMITTED, SENT};
use crate::table::{Published, Row};

/// The experiments of this study.
pub const ALL: [&Experiment; 4] =
    [&emulated::MEMORY, &emulated::FILE, &internet::INTERNET, &reordering::REORDERING];

/// "200 MByte Memory-to-memory tests".
const MEMORY_SIZE: Bytes = Bytes::new(200_000_000);

/// What moves the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    /// A protocol of the registry.
    Protocol {
        /// There.
        name: &'static str,
        /// Whether it is told the rate, as its user did or its table of the cards' speeds;
        /// otherwise it finds its own.
        told: bool,
    },
    /// Parallel connections.
    Tcp {
        /// How many.
        streams: u32,
        /// The window of each, if congestion is not the only limit.
        window: Option<Bytes>,
    },
    /// Constant, repaired by nobody: iperf's, which sent for a time or a size of its own.
    Udp(Bytes),
}

const RBUDP: Carrier = Carrier::Protocol { name: "rbudp", told: true };
const FOBS: Carrier = Carrier::Protocol { name: "fobs-table", told: true };
const SABUL: Carrier = Carrier::Protocol { name: "sabul-ornl", told: false };
const TSUNAMI: Carrier = Carrier::Protocol { name: "tsunami", told: true };

impl Carrier {
    /// Its flow of `size` at `rate` (those that are told one); nothing where the registry does
    /// not have it.
    fn flow(self, size: Bytes, rate: Rate) -> Option<Flow> {
        match self {
            Carrier::Protocol { name, told } => {
                registry::find(name)?;
                Some(transfer(name, size, told.then(|| with_overhead(rate))))
            }
            Carrier::Tcp { streams, window } => {
                let congestion = Congestion::NewReno;
                let kind = Tcp { streams, congestion, window, ..Tcp::default() };
                Some(tcp(Amount::Size(size), kind))
            }
            Carrier::Udp(size) => {
                // iperf's datagrams carry 1470 bytes.
                let udp = Udp { rate, datagram: Some(1_470), bursts: None, random: false };
                Some(flow(Amount::Lasts(size / rate), Traffic::Udp(udp)))
            }
        }
    }
}

/// The study's columns of one run: the rate in Mbit/s, then counts of datagrams; what it does not
/// give is missing.
#[derive(Clone, Copy, Debug, Default)]
struct Columns {
    rate: Option<f64>,
    lost: Option<f64>,
    retransmitted: Option<f64>,
    sent: Option<f64>,
    received: Option<f64>,
    duplicates: Option<f64>,
}

/// Rate, lost, retransmitted, sent, duplicates.
const fn columns(values: [f64; 5]) -> Columns {
    let [rate, lost, retransmitted, sent, duplicates] = values;
    Columns {
        rate: Some(rate),
        lost: Some(lost),
        retransmitted: Some(retransmitted),
        sent: Some(sent),
        received: None,
        duplicates: Some(duplicates),
    }
}

/// A quantity, the study's value and ours.
type Column = (Quantity, Option<f64>, fn(&FlowOutcome) -> f64);

/// The rows of a run, in the study's order.
fn rows(case: &str, published: &Columns, outcomes: &Outcomes) -> Vec<Row> {
    let columns: [Column; 6] = [
        (GOODPUT, published.rate, FlowOutcome::goodput),
        (LOST, published.lost, |flow| flow.reported_lost as f64),
        (RETRANSMITTED, published.retransmitted, |flow| flow.retransmitted as f64),
        (SENT, published.sent, |flow| flow.sent as f64),
        (crate::quantity::RECEIVED, published.received, |flow| flow.received as f64),
        (DUPLICATES, published.duplicates, |flow| flow.duplicates as f64),
    ];
    let told = columns.into_iter().filter(|(_, published, _)| published.is_some());
    told.map(|(quantity, published, ours)| Row {
        published: published.map(Published::Exact),
        ..Row::new(case, quantity, outcomes.first(case, ours))
    })
    .collect()
}
