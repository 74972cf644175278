//! Evaluation of the automatic mode, in which a copy finds its rate: every rate law (a rule for the
//! search), on paths of many kinds, alone and with other traffic.

mod cells;
mod page;

use crate::experiment::Experiment;

/// The experiments of this folder.
pub(crate) const ALL: [&Experiment; 2] = [&page::GRID, &page::SHORT];
