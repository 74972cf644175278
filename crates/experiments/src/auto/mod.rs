//! Evaluation of the automatic mode, in which a copy finds its rate by a rate law.

mod cells;
mod page;

use crate::experiment::Experiment;

pub(crate) const ALL: [&Experiment; 2] = [&page::GRID, &page::SHORT];
