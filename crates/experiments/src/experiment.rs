//! An experiment: the cases to run, and the tables and figures that they give.

use longhaul_proto::time::Span;
use longhaul_testbed::scenario::Scenario;

use crate::outcome::Outcomes;
use crate::plot::Plot;
use crate::scenarios::Variant;
use crate::table::Table;

/// A table or figure of a paper, made again.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// What `reproduce` calls it; its page is `results/ID.md`.
    pub id: &'static str,
    /// What it shows, in a line.
    pub title: &'static str,
    /// The paper and the place in it.
    pub source: &'static str,
    /// What is run: path, hosts, settings, and what stands in for what the paper had.
    pub setup: &'static str,
    /// The cases.
    pub cases: fn() -> Vec<Case>,
    /// The tables that the outcomes give. Which rows there are must not depend on the outcomes:
    /// what was not run is a row without our value.
    pub tables: fn(&Outcomes) -> Vec<Table>,
    /// The figures of rates over time: drawn of what was simulated, and once more of what was
    /// emulated.
    pub courses: fn(&Outcomes) -> Vec<Figure>,
    /// The other figures; the tables have the emulated values.
    pub figures: fn(&Outcomes, &[Table]) -> Vec<Figure>,
    /// What differs from the paper, and why.
    pub differs: &'static str,
    /// What we learn.
    pub learned: &'static str,
    /// When it is run.
    pub set: Set,
}

/// When an experiment is run, by what all its simulations together take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// In every build: it takes less than some seconds in a debug build.
    Quick,
    /// Wherever all are run: it takes less than some seconds in a release build.
    Full,
    /// Only where it is named.
    Named,
}

/// A scenario to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its name within the experiment.
    pub name: String,
    /// Where the scenario comes from.
    pub variant: Variant,
    /// What is run.
    pub scenario: Scenario,
    /// Where it can be run.
    pub ways: Ways,
}

/// Where a case can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// By simulation only, and why.
    Simulated(&'static str),
    /// Also by emulation with real sockets.
    Both,
    /// By emulation only, and why.
    Emulated(&'static str),
}

/// A case that takes longer in virtual time is not run in real time.
pub const LONGEST: Span = Span::from_secs(360);

/// A figure of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What is added to the experiment's id to name its file; empty for the only one.
    pub name: &'static str,
    /// What is drawn.
    pub plot: Plot,
}

impl Experiment {
    /// Without figures.
    pub(crate) const NO_FIGURES: fn(&Outcomes, &[Table]) -> Vec<Figure> = |_, _| Vec::new();

    /// Without rates over time.
    pub(crate) const NO_COURSES: fn(&Outcomes) -> Vec<Figure> = |_| Vec::new();

    /// The name of its page in the folder of results.
    pub fn file(&self) -> String {
        format!("{}.md", self.id)
    }

    /// The scenarios that its cases are rows of, each once, in their order.
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
    /// A case that is only simulated, and why: a sentence without its end.
    ///
    /// # Panics
    /// If its file cannot give it: a test builds every case of every experiment.
    pub fn simulated(name: impl Into<String>, variant: Variant, why: &'static str) -> Case {
        Case::of(name.into(), variant, Ways::Simulated(why))
    }

    /// A case that can be run both ways.
    ///
    /// # Panics
    /// As [`Case::simulated`].
    pub fn both(name: impl Into<String>, variant: Variant) -> Case {
        Case::of(name.into(), variant, Ways::Both)
    }

    /// A case that is only emulated, and why: a sentence without its end.
    ///
    /// # Panics
    /// As [`Case::simulated`].
    pub fn emulated(name: impl Into<String>, variant: Variant, why: &'static str) -> Case {
        Case::of(name.into(), variant, Ways::Emulated(why))
    }

    /// Whether it can be simulated.
    pub(crate) fn is_simulated(&self) -> bool {
        !matches!(self.ways, Ways::Emulated(_))
    }

    /// Whether it can be emulated.
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
