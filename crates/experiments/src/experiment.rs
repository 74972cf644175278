//! An experiment: its cases, and its tables and figures.

use longhaul_proto::time::Span;
use longhaul_testbed::scenario::Scenario;

use crate::outcome::Outcomes;
use crate::plot::Plot;
use crate::scenarios::Variant;
use crate::table::Table;

/// A reproduced table or figure of a paper, or a measurement of our own.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The experiment's name (ID) for `reproduce`; the page is `results/ID.md`.
    pub id: &'static str,
    /// The subject of the experiment, in one line.
    pub title: &'static str,
    /// The paper and the place in it, or a note that no paper has this experiment.
    pub source: &'static str,
    /// Path, hosts, settings, and substitutes for the paper's equipment.
    pub setup: &'static str,
    /// The cases.
    pub cases: fn() -> Vec<Case>,
    /// Builds the tables. The set of rows must not depend on the outcomes: a case that was not run
    /// has a row without our value.
    pub tables: fn(&Outcomes) -> Vec<Table>,
    /// Figures of rates over time: drawn from the simulation, and again from the emulation.
    pub courses: fn(&Outcomes) -> Vec<Figure>,
    /// Other figures, from the outcomes and from the tables with the emulated values.
    pub figures: fn(&Outcomes, &[Table]) -> Vec<Figure>,
    /// Differences from the paper, with their causes.
    pub differs: &'static str,
    /// The lessons.
    pub learned: &'static str,
    /// When the experiment is run.
    pub set: Set,
}

/// When an experiment is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// In every test run: takes at most some seconds in a debug build.
    Quick,
    /// In full runs: takes at most some seconds in a release build.
    Full,
    /// Only if requested by name.
    Named,
}

/// A scenario to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The case's name within the experiment.
    pub name: String,
    /// The scenario file and its changes.
    pub variant: Variant,
    /// The scenario.
    pub scenario: Scenario,
    /// How the case can be run.
    pub ways: Ways,
}

/// How a case can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// By simulation only, with the reason.
    Simulated(&'static str),
    /// Also by emulation with real sockets.
    Both,
    /// By emulation only, with the reason.
    Emulated(&'static str),
}

/// Cases longer than this (in virtual time) are not emulated.
pub const LONGEST: Span = Span::from_secs(360);

/// A figure of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Suffix to the experiment's id in the file name; empty for the main figure.
    pub name: &'static str,
    /// The plot.
    pub plot: Plot,
}

impl Experiment {
    pub(crate) const NO_FIGURES: fn(&Outcomes, &[Table]) -> Vec<Figure> = |_, _| Vec::new();

    pub(crate) const NO_COURSES: fn(&Outcomes) -> Vec<Figure> = |_| Vec::new();

    /// The file name of the experiment's page.
    pub fn file(&self) -> String {
        format!("{}.md", self.id)
    }

    /// The scenario files of the experiment's cases, each once, in order.
    pub fn files(&self) -> Vec<&'static str> {
        let mut files = Vec::new();
        for case in (self.cases)() {
            if !files.contains(&case.variant.file) {
                files.push(case.variant.file);
            }
        }
        files
    }
}

impl Case {
    /// A case that is only simulated, with the reason: a sentence without its full stop.
    ///
    /// # Panics
    /// If the scenario cannot be built. A test builds every case of every experiment.
    pub fn simulated(name: impl Into<String>, variant: Variant, why: &'static str) -> Case {
        Case::of(name.into(), variant, Ways::Simulated(why))
    }

    /// A case that can be simulated and emulated.
    ///
    /// # Panics
    /// As [`Case::simulated`].
    pub fn both(name: impl Into<String>, variant: Variant) -> Case {
        Case::of(name.into(), variant, Ways::Both)
    }

    /// A case that is only emulated, with the reason: a sentence without its full stop.
    ///
    /// # Panics
    /// As [`Case::simulated`].
    pub fn emulated(name: impl Into<String>, variant: Variant, why: &'static str) -> Case {
        Case::of(name.into(), variant, Ways::Emulated(why))
    }

    pub(crate) fn is_simulated(&self) -> bool {
        !matches!(self.ways, Ways::Emulated(_))
    }

    /// Whether the case can be emulated.
    pub fn is_emulated(&self) -> bool {
        !matches!(self.ways, Ways::Simulated(_))
    }

    fn of(name: String, variant: Variant, ways: Ways) -> Case {
        let scenario = match variant.scenario() {
            Ok(scenario) => Scenario { name: name.clone(), ..scenario },
            Err(error) => panic!("{name} of {}: {error}", variant.file),
        };
        Case { name, variant, scenario, ways }
    }
}
