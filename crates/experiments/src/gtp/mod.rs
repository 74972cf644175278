//! GTP: group transport into one receiver. Quoted sentences are from the paper.
//!
//! `slow_start`: Figure 1. `tables`: Tables 2 to 5. `dynamics`: Figures 7 to 12, rates over time.
//! `neighbours`: other traffic, and control by delay. `scale`: up to a thousand senders.

mod dynamics;
mod neighbours;
mod scale;
mod slow_start;
mod tables;

use crate::experiment::Experiment;

pub(crate) const ALL: [&Experiment; 14] = [
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
    &neighbours::BESIDE,
    &neighbours::DELAY_CONTROL,
    &scale::SCALE,
];

/// Maximum TCP window without window scaling, in bytes.
const UNTUNED: u32 = 65_535;
