//! GTP: group transport into one receiver. The sentences quoted are the paper's.
//!
//! `slow_start`: Figure 1. `tables`: Tables 2 to 5. `dynamics`: Figures 7 to 12, rates over time.

mod dynamics;
mod slow_start;
mod tables;

use longhaul_proto::units::{Bytes, Rate};
use longhaul_testbed::scenario::{Congestion, Tcp};

use crate::experiment::Experiment;
use crate::paths::payload_ceiling;

/// The experiments of this paper.
pub const ALL: [&Experiment; 11] = [
    &slow_start::FIG1,
    &dynamics::FIG7,
    &dynamics::FIG8,
    &dynamics::FIG9,
    &dynamics::FIG10,
    &dynamics::FIG11,
    &dynamics::FIG12,
    &tables::TABLE2,
    &tables::TABLE3,
    &tables::TABLE4,
    &tables::TABLE5,
];

const LINK: Rate = Rate::from_mbps(1_000);
/// A window that nobody tuned: the most without window scaling.
const UNTUNED: Bytes = Bytes::new(65_535);

/// TCP of the time: NewReno with selective acknowledgements.
fn reno(window: Option<Bytes>) -> Tcp {
    Tcp { congestion: Congestion::NewReno, window, ..Tcp::default() }
}

/// C_r, the receiver's capacity, as GTP's setting: the paper's receivers know their link.
fn capacity() -> (String, f64) {
    ("receive-rate".to_owned(), (payload_ceiling(LINK).as_bps() / 1_000_000) as f64)
}
