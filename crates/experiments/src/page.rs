//! An experiment's page: Markdown with its tables, and its figures.
//!
//! The committed page keeps emulated values, each with its run, and the reasons why emulations
//! failed.

mod absence;
mod prose;

use std::collections::BTreeMap;
use std::fmt;

use crate::experiment::{Case, Experiment, Figure};
use crate::outcome::Outcomes;
use crate::plot::{Origin, PlotError};
use crate::scenarios::Variant;
use crate::table::{self, Key, Row, Said, Table};
use absence::Tried;
use prose::ProseError;

/// Begins the lines that describe the runs of emulated values.
const EMULATED: &str = "Emulated values";
/// Last part of a figure's name if the figure shows emulated values.
const REAL: &str = "emulated";

/// A page, built from outcomes.
#[derive(Clone, Debug)]
pub struct Page {
    experiment: &'static Experiment,
    tables: Vec<Table>,
    /// Date, machine and commit of each run with emulated values, numbered from 1.
    runs: Vec<String>,
    /// Cases whose emulation failed.
    tried: Tried,
    /// Figures of emulated rates that this run has drawn.
    courses: Vec<Figure>,
    /// File names and titles of the committed page's figures of emulated rates.
    committed_courses: Vec<(String, String)>,
    simulated: Outcomes,
}

/// Why a page cannot be built.
#[derive(Debug)]
pub enum PageError {
    /// A figure cannot be drawn.
    Plot(PlotError),
    /// A placeholder of the page's prose cannot be filled.
    Prose(ProseError),
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PageError::Plot(error) => error.fmt(f),
            PageError::Prose(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PageError {}

impl From<PlotError> for PageError {
    fn from(error: PlotError) -> PageError {
        PageError::Plot(error)
    }
}

impl From<ProseError> for PageError {
    fn from(error: ProseError) -> PageError {
        PageError::Prose(error)
    }
}

/// A file of the results folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The file's name.
    pub name: String,
    /// The file's content.
    pub text: String,
}

impl Page {
    /// Builds the page from simulations, and keeps emulated values of the committed page.
    pub fn new(
        experiment: &'static Experiment,
        simulated: &Outcomes,
        committed: Option<&str>,
    ) -> Page {
        let committed = committed.unwrap_or_default();
        let mut tables = (experiment.tables)(simulated);
        let (said, runs) = (table::read(committed), runs(committed));
        for row in tables.iter_mut().flat_map(|table| &mut table.rows) {
            let Some(said) = said.get(&row.key()) else { continue };
            row.emulated = said.emulated.parse().ok();
            row.run = row.emulated.and(said.run.parse().ok().or(Some(1)));
        }
        let mut page = Page {
            experiment,
            tables,
            runs,
            tried: Tried::read(committed),
            courses: Vec::new(),
            committed_courses: courses(experiment, committed),
            simulated: simulated.clone(),
        };
        page.forget_runs();
        page
    }

    /// Replaces older emulated values, and records why each case in `failed` has failed. Cases
    /// without an outcome keep their values.
    pub fn emulated(
        &mut self,
        outcomes: &Outcomes,
        failed: &[(String, String)],
        provenance: String,
    ) {
        let tables = (self.experiment.tables)(outcomes);
        let values: BTreeMap<Key, Option<f64>> = tables
            .iter()
            .flat_map(|table| &table.rows)
            .map(|row| (row.key(), row.simulated))
            .collect();
        let known = self.runs.iter().position(|run| *run == provenance);
        let run = known.unwrap_or(self.runs.len()) + 1;
        for row in self.tables.iter_mut().flat_map(|table| &mut table.rows) {
            let value = values.get(&row.key()).copied().flatten();
            if let Some(value) = value.filter(|value| value.is_finite()) {
                (row.emulated, row.run) = (Some(value), Some(run));
            }
        }
        self.tried.note(outcomes, failed, &provenance);
        if known.is_none() {
            self.runs.push(provenance);
        }
        self.forget_runs();
        let drawn = (self.experiment.courses)(outcomes);
        self.courses = drawn.into_iter().filter_map(real_course).collect();
    }

    /// Removes runs without remaining values.
    fn forget_runs(&mut self) {
        let mut places = vec![None; self.runs.len()];
        let mut kept = Vec::new();
        for row in self.tables.iter_mut().flat_map(|table| &mut table.rows) {
            let Some(place) = row.run.and_then(|run| places.get_mut(run.checked_sub(1)?)) else {
                row.run = None;
                continue;
            };
            row.run = Some(*place.get_or_insert_with(|| {
                kept.push(0);
                kept.len()
            }));
        }
        for (old, new) in places.iter().enumerate() {
            if let Some(new) = new {
                kept[new - 1] = old;
            }
        }
        self.runs = kept.iter().map(|old| self.runs[*old].clone()).collect();
    }

    /// All rows, in order.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.tables.iter().flat_map(|table| &table.rows)
    }

    /// The page and its figures as files. An emulated figure is included only if this run has drawn
    /// it.
    ///
    /// # Errors
    /// [`PageError`] if a figure cannot be drawn, or a placeholder of the prose cannot be filled.
    pub fn files(&self, simulated: &Outcomes) -> Result<Vec<File>, PageError> {
        let mut figures = (self.experiment.courses)(simulated);
        figures.extend((self.experiment.figures)(simulated, &self.tables));
        let mut shown: Vec<(String, String)> = Vec::new();
        let mut files = Vec::new();
        let real = self.courses.iter().map(|figure| (figure, true));
        for (figure, real) in figures.iter().map(|figure| (figure, false)).chain(real) {
            let name = figure_file(self.experiment, figure.name, real);
            shown.push((name.clone(), figure.plot.title.clone()));
            files.push(File { name, text: figure.plot.svg()? });
        }
        let older = self.committed_courses.iter();
        let older = older.filter(|(name, _)| !shown.iter().any(|(other, _)| other == name));
        let older: Vec<(String, String)> = older.cloned().collect();
        shown.extend(older);
        files.insert(0, File { name: self.experiment.file(), text: self.text(&shown)? });
        Ok(files)
    }

    fn text(&self, figures: &[(String, String)]) -> Result<String, ProseError> {
        let Experiment { id, title, source, setup, differs, learned, .. } = self.experiment;
        let cases = (self.experiment.cases)();
        let mut text = format!("# {title}\n\n{source}.\n\n`longhaul reproduce {id} --update` ");
        text += "writes this page. The simulated values are the same on every machine.\n\n";
        text += &format!("## Set-up\n\n{setup}\n\n");
        text += &scenarios(&cases);
        text += "## Results\n\n";
        let several = self.runs.len() > 1;
        for table in &self.tables {
            if !table.title.is_empty() {
                text += &format!("### {}\n\n", table.title);
            }
            text += &format!("{}\n", table.markdown(several));
        }
        for (place, run) in self.runs.iter().enumerate() {
            text += &match several {
                true => format!("{EMULATED}, run {}: {run}\n\n", place + 1),
                false => format!("{EMULATED}: {run}\n\n"),
            };
        }
        text += &absence::text(self, &cases);
        for (file, title) in figures {
            text += &format!("![{title}]({file})\n\n");
        }
        let (differs, learned) = (prose::fill(differs, &text)?, prose::fill(learned, &text)?);
        text += &format!("## Differences from the paper\n\n{differs}\n\n");
        text += &format!("## Lessons\n\n{learned}\n");
        Ok(text)
    }
}

fn figure_file(experiment: &Experiment, name: &str, real: bool) -> String {
    let parts = [experiment.id, name, if real { REAL } else { "" }];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{}.svg", parts.join("-"))
}

/// The emulated version of a figure of rates; `None` if it has no points.
fn real_course(mut figure: Figure) -> Option<Figure> {
    figure.plot.title += ", over real sockets";
    for series in &mut figure.plot.series {
        series.origin = Origin::Emulated;
        series.label = series.label.replace("simulated", "emulated");
    }
    figure.plot.series.iter().any(|series| !series.points.is_empty()).then_some(figure)
}

/// The emulated figures on a page: their files and titles.
fn courses(experiment: &Experiment, page: &str) -> Vec<(String, String)> {
    let end = format!("-{REAL}.svg)");
    let shown = page.lines().filter_map(|line| {
        let (title, file) = line.strip_prefix("![")?.split_once("](")?;
        let ours = file.starts_with(experiment.id) && file.ends_with(&end);
        ours.then(|| (file.trim_end_matches(')').to_owned(), title.to_owned()))
    });
    shown.collect()
}

fn runs(page: &str) -> Vec<String> {
    let reported = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(EMULATED)?;
        let rest = match rest.strip_prefix(", run ") {
            Some(numbered) => numbered.trim_start_matches(|c: char| c.is_ascii_digit()),
            None => rest,
        };
        rest.strip_prefix(": ").map(str::to_owned)
    });
    reported.collect()
}

/// The paragraph with the cases' scenarios and the keys that change from row to row.
fn scenarios(cases: &[Case]) -> String {
    let (mut files, mut keys) = (Vec::new(), Vec::new());
    for Variant { file, settings, .. } in cases.iter().map(|case| &case.variant) {
        if !files.contains(file) {
            files.push(file);
        }
        for (key, _) in settings {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
    }
    if files.is_empty() {
        return String::new();
    }
    let links = files.iter().map(|file| format!("[{file}.toml](../scenarios/{file}.toml)"));
    let mut text = format!("Scenario: {}.", links.collect::<Vec<_>>().join(", "));
    if cases.iter().any(|case| !case.variant.only.is_empty()) {
        text += " A case may leave out some of the scenario's flows.";
    }
    if !keys.is_empty() {
        let keys = keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        text += &format!(" The cases differ in these settings: {keys}.");
    }
    text + "\n\n"
}

/// The differences between simulated rows of two pages, one line each. If only other parts differ,
/// one line says so.
pub fn differences(made: &str, committed: &str) -> Vec<String> {
    let (ours, theirs) = (table::read(made), table::read(committed));
    let name = |(case, what): &Key| format!("{case}, {what}");
    let mut found = Vec::new();
    for (key, Said { simulated, .. }) in &ours {
        match theirs.get(key) {
            None => found.push(format!("{}: {simulated}, not on the page", name(key))),
            Some(said) if said.simulated != *simulated => {
                found.push(format!("{}: {simulated}, the page has {}", name(key), said.simulated));
            }
            Some(_) => {}
        }
    }
    let gone = theirs.keys().filter(|key| !ours.contains_key(*key));
    found.extend(gone.map(|key| format!("{}: on the page, but no longer a row", name(key))));
    if found.is_empty() && made != committed {
        found.push("parts without simulated values differ".into());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Set;
    use crate::outcome::{CaseFlow, CaseOutcome};
    use crate::plot::{Axis, Origin, Plot, Series};
    use crate::quantity::GOODPUT;
    use crate::scenarios::vary;
    use longhaul_proto::time::Span;
    use longhaul_proto::units::Bytes;

    static EXAMPLE: Experiment = Experiment {
        id: "example",
        title: "An example",
        source: "Nobody, Nowhere, Fig. 1",
        setup: "A path.",
        cases: Vec::new,
        tables: |outcomes| {
            let row = |case: &str| {
                let ours = outcomes.first(case, CaseFlow::goodput);
                Row::new(case, GOODPUT, ours).published(100.0)
            };
            vec![Table::new("all", vec![row("one"), row("two")])]
        },
        courses: Experiment::NO_COURSES,
        figures: |_, tables| {
            let rows = tables.iter().flat_map(|table| &table.rows);
            let values = rows.filter_map(|row| row.simulated).enumerate();
            let points = values.map(|(x, y)| (x as f64, y));
            let series = vec![Series::new("ours", Origin::Simulated, points)];
            let (x, y) = (Axis::linear("case"), Axis::linear("goodput, Mbit/s"));
            vec![Figure { name: "", plot: Plot { title: "All".into(), x, y, series } }]
        },
        differs: "Nothing.",
        learned: "Nothing.",
        set: Set::Quick,
    };

    fn outcomes(cases: &[(&str, u64)]) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for (name, mbps) in cases {
            let bytes = Bytes::new(mbps * 125_000);
            let flow = CaseFlow { bytes, elapsed: Span::from_secs(1), ..Default::default() };
            outcomes.insert(*name, CaseOutcome { flows: vec![flow] });
        }
        outcomes
    }

    fn text(page: &Page, simulated: &Outcomes) -> String {
        page.files(simulated).unwrap().swap_remove(0).text
    }

    #[test]
    fn emulated_values_and_their_run_survive_a_new_simulation() {
        let simulated = outcomes(&[("one", 90), ("two", 80)]);
        let mut page = Page::new(&EXAMPLE, &simulated, None);
        page.emulated(&outcomes(&[("one", 91)]), &[], "a day, a machine, a commit.".into());
        let committed = text(&page, &simulated);
        assert!(committed.contains("Emulated values: a day"), "{committed}");
        assert!(!committed.contains("| run |"), "{committed}");
        let again = Page::new(&EXAMPLE, &simulated, Some(&committed));
        assert_eq!(table::emulated_value(&again.tables, "one", GOODPUT), Some(91.0));
        assert_eq!(text(&again, &simulated), committed);
        assert!(differences(&text(&again, &simulated), &committed).is_empty());
    }

    #[test]
    fn prose_that_names_a_missing_row_is_an_error() {
        static BROKEN: Experiment = Experiment { learned: "{one} and {three}", ..EXAMPLE };
        let simulated = outcomes(&[("one", 90), ("two", 80)]);
        let error = Page::new(&BROKEN, &simulated, None).files(&simulated).unwrap_err();
        assert!(error.to_string().contains("{three}"), "{error}");
    }

    #[test]
    fn each_emulated_value_keeps_its_run() {
        let simulated = outcomes(&[("one", 90), ("two", 80)]);
        let mut page = Page::new(&EXAMPLE, &simulated, None);
        page.emulated(&outcomes(&[("one", 91), ("two", 81)]), &[], "Monday.".into());
        let committed = text(&page, &simulated);
        let mut page = Page::new(&EXAMPLE, &simulated, Some(&committed));
        page.emulated(&outcomes(&[("two", 82)]), &[], "Tuesday.".into());
        let committed = text(&page, &simulated);
        for line in ["Emulated values, run 1: Monday.", "Emulated values, run 2: Tuesday."] {
            assert!(committed.contains(line), "{committed}");
        }
        let mut page = Page::new(&EXAMPLE, &simulated, Some(&committed));
        assert_eq!(text(&page, &simulated), committed);
        assert_eq!(page.rows().map(|row| row.run).collect::<Vec<_>>(), [Some(1), Some(2)]);
        // The new value replaces the last value of Monday's run.
        page.emulated(&outcomes(&[("one", 92)]), &[], "Tuesday.".into());
        let committed = text(&page, &simulated);
        assert!(committed.contains("Emulated values: Tuesday."), "{committed}");
        assert!(!committed.contains("Monday"), "{committed}");
    }

    #[test]
    fn an_emulated_curve_stays_on_the_page_until_it_is_redrawn() {
        static COURSES: Experiment = Experiment {
            courses: |outcomes| {
                let rate = outcomes.first("one", CaseFlow::goodput);
                let points = rate.map(|rate| (1.0, rate));
                let series = vec![Series::new("simulated: one", Origin::Simulated, points)];
                let (x, y) = (Axis::linear("time, s"), Axis::linear("goodput, Mbit/s"));
                vec![Figure { name: "rate", plot: Plot { title: "Rate".into(), x, y, series } }]
            },
            figures: Experiment::NO_FIGURES,
            ..EXAMPLE
        };
        let simulated = outcomes(&[("one", 90), ("two", 80)]);
        let mut page = Page::new(&COURSES, &simulated, None);
        page.emulated(&outcomes(&[("one", 91)]), &[], "Monday.".into());
        let files = page.files(&simulated).unwrap();
        let names: Vec<&str> = files.iter().map(|file| &*file.name).collect();
        assert_eq!(names, ["example.md", "example-rate.svg", "example-rate-emulated.svg"]);
        assert!(files[2].text.contains("emulated: one"));
        let again = Page::new(&COURSES, &simulated, Some(&files[0].text)).files(&simulated);
        let again = again.unwrap();
        assert_eq!((again.len(), &again[0], &again[1]), (2, &files[0], &files[1]));
    }

    #[test]
    fn a_row_that_differs_is_named() {
        let before = outcomes(&[("one", 90), ("two", 80)]);
        let committed = text(&Page::new(&EXAMPLE, &before, None), &before);
        let now = outcomes(&[("one", 90), ("two", 70)]);
        let made = text(&Page::new(&EXAMPLE, &now, Some(&committed)), &now);
        let found = differences(&made, &committed);
        assert_eq!(found, ["two, goodput, Mbit/s: 70.00, the page has 80.00"]);
        let renamed = committed.replace("| two |", "| three |");
        assert_eq!(differences(&committed, &renamed).len(), 2);
        let reworded = committed.replace("A path.", "Another path.");
        assert_eq!(differences(&committed, &reworded), ["parts without simulated values differ"]);
    }

    #[test]
    fn the_page_names_its_scenarios_and_the_settings_that_differ_between_cases() {
        assert_eq!(scenarios(&[]), "");
        let case = |size| vary("quanta-fig7").set("flow.blast.size", size);
        let cases = ["1MB", "2MB"].map(|size| Case::both(size, case(size)));
        let expected = "Scenario: [quanta-fig7.toml](../scenarios/quanta-fig7.toml). The cases \
                        differ in these settings: `flow.blast.size`.\n\n";
        assert_eq!(scenarios(&cases), expected);
        let alone = Case::both("tcp", vary("gtp-table2").only(&["tcp"]));
        assert!(
            scenarios(&[alone]).ends_with("A case may leave out some of the scenario's flows.\n\n")
        );
    }

    #[test]
    fn the_page_shows_its_figure() {
        let simulated = outcomes(&[("one", 90), ("two", 80)]);
        let files = Page::new(&EXAMPLE, &simulated, None).files(&simulated).unwrap();
        let names: Vec<&str> = files.iter().map(|file| &*file.name).collect();
        assert_eq!(names, ["example.md", "example.svg"]);
        assert!(files[0].text.contains("![All](example.svg)"));
    }
}
