//! The automatic mode judged: every law by which a copy finds its rate, on every kind of path,
//! alone and beside others.

mod cells;
mod page;

use crate::experiment::Experiment;

/// The experiments of this folder.
pub(crate) const ALL: [&Experiment; 2] = [&page::GRID, &page::SHORT];
