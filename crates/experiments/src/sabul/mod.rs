//! SABUL: rate control for long fat networks. The sentences quoted are the paper's.
//!
//! `tcp`: the introduction's TCP. `alone`: how much of a path SABUL uses by itself (Figures 2 and
//! 5, Table 1). `shared`: with others of its kind and with TCP (Figures 3, 4, 6, 7).

mod alone;
mod shared;
mod tcp;

use longhaul_proto::registry;
use longhaul_proto::units::Rate;
use longhaul_testbed::scenario::{Amount, Flow, Traffic, Transfer};

use crate::experiment::Experiment;
use crate::paths::flow;

/// The experiments of this paper.
pub const ALL: [&Experiment; 7] = [
    &tcp::TCP,
    &alone::FIG2,
    &alone::FIG5,
    &shared::FIG3,
    &shared::FIG4,
    &shared::FIG6,
    &shared::FIG7,
];

const LINK: Rate = Rate::from_mbps(1_000);

/// A SABUL flow that begins at `mbps`; nothing where the registry does not have it.
fn sabul(amount: Amount, mbps: f64) -> Option<Flow> {
    registry::find("sabul")?;
    let settings = [("initial-rate".to_owned(), mbps)].into_iter().collect();
    let transfer = Transfer { protocol: "sabul".into(), settings, ..Transfer::default() };
    Some(flow(amount, Traffic::Protocol(transfer)))
}
