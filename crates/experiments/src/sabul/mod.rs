//! SABUL: rate control for long fat networks. Quoted sentences are from the paper.
//!
//! `tcp`: TCP (introduction, Table 3). `alone`: SABUL alone on a path (Figures 2 and 5, Table 1).
//! `shared`: SABUL with other SABUL flows and with TCP (Figures 3, 4, 6, 7). `disks`: SABUL between
//! disks (Table 2).

mod alone;
mod disks;
mod shared;
mod tcp;

use crate::experiment::Experiment;

pub(crate) const ALL: [&Experiment; 9] = [
    &tcp::TCP,
    &alone::FIG2,
    &alone::FIG5,
    &alone::ENDS_EXPERIMENT,
    &shared::FIG3,
    &shared::FIG4,
    &shared::FIG6,
    &shared::FIG7,
    &disks::TABLE2,
];
