//! An experiment's page: Markdown with its tables, and its figures.

use std::collections::BTreeMap;

use crate::experiment::{Case, Experiment, Figure};
use crate::outcome::Outcomes;
use crate::plot::PlotError;
use crate::scenarios::Variant;
use crate::table::{self, Key, Row, Said, Table};

/// The line that says where emulated values come from begins so.
const EMULATED: &str = "Emulated values: ";

/// A page, made from outcomes.
#[derive(Clone, Debug)]
pub struct Page {
    experiment: &'static Experiment,
    tables: Vec<Table>,
    /// Date, machine and commit of the emulated values, if there are any.
    provenance: Option<String>,
}

/// A file of the folder of results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub text: String,
}

impl Page {
    /// The page that these simulations give. Emulated values stay as the committed page has them.
    pub fn new(
        experiment: &'static Experiment,
        simulated: &Outcomes,
        committed: Option<&str>,
    ) -> Page {
        let mut tables = (experiment.tables)(simulated);
        let said = committed.map(table::read).unwrap_or_default();
        let mut kept = false;
        for row in tables.iter_mut().flat_map(|table| &mut table.rows) {
            let value = said.get(&row.key()).and_then(|said| said.emulated.parse().ok());
            kept |= value.is_some();
            row.emulated = value;
        }
        let line = committed.unwrap_or_default().lines().find_map(|l| l.strip_prefix(EMULATED));
        let provenance = line.filter(|_| kept).map(str::to_owned);
        Page { experiment, tables, provenance }
    }

    /// Puts these emulated values in place of older ones; what was not run stays.
    pub fn emulated(&mut self, outcomes: &Outcomes, provenance: String) {
        let tables = (self.experiment.tables)(outcomes);
        let values: BTreeMap<Key, Option<f64>> = tables
            .iter()
            .flat_map(|table| &table.rows)
            .map(|row| (row.key(), row.simulated))
            .collect();
        for row in self.tables.iter_mut().flat_map(|table| &mut table.rows) {
            let value = values.get(&row.key()).copied().flatten();
            row.emulated = value.filter(|value| value.is_finite()).or(row.emulated);
        }
        self.provenance = Some(provenance);
    }

    /// All rows, in order.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.tables.iter().flat_map(|table| &table.rows)
    }

    /// The emulated value of a case.
    pub fn emulated_value(&self, case: &str, quantity: crate::quantity::Quantity) -> Option<f64> {
        let row = self.rows().find(|row| row.case == case && row.quantity == quantity)?;
        row.emulated
    }

    /// The page and its figures as files of the folder of results.
    ///
    /// # Errors
    /// [`PlotError`] where a figure cannot be drawn.
    pub fn files(&self, simulated: &Outcomes) -> Result<Vec<File>, PlotError> {
        let figures = (self.experiment.figures)(simulated, self);
        let mut files = vec![File { name: self.experiment.file(), text: self.text(&figures) }];
        for figure in &figures {
            files.push(File { name: self.figure_file(figure), text: figure.plot.svg()? });
        }
        Ok(files)
    }

    fn figure_file(&self, figure: &Figure) -> String {
        match figure.name {
            "" => format!("{}.svg", self.experiment.id),
            name => format!("{}-{name}.svg", self.experiment.id),
        }
    }

    fn text(&self, figures: &[Figure]) -> String {
        let Experiment { id, title, source, setup, differs, learned, .. } = self.experiment;
        let mut text = format!("# {title}\n\n{source}.\n\n`longhaul reproduce {id}` makes ");
        text += "this page: the simulated values are the same on every machine.\n\n";
        text += &format!("## What is run\n\n{setup}\n\n");
        text += &scenarios(&(self.experiment.cases)());
        text += "## Results\n\n";
        for table in &self.tables {
            if !table.title.is_empty() {
                text += &format!("### {}\n\n", table.title);
            }
            text += &format!("{}\n", table.markdown());
        }
        if let Some(provenance) = &self.provenance {
            text += &format!("{EMULATED}{provenance}\n\n");
        }
        for figure in figures {
            text += &format!("![{}]({})\n\n", figure.plot.title, self.figure_file(figure));
        }
        text += &format!("## What differs from the paper, and why\n\n{differs}\n\n");
        text += &format!("## What we learn\n\n{learned}\n");
        text
    }
}

/// The paragraph that says which scenarios the cases are, and what changes from row to row; nothing
/// for no case.
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
        text += " A row runs some of its flows.";
    }
    if !keys.is_empty() {
        let keys = keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        text += &format!(" From row to row change: {keys}.");
    }
    text + "\n\n"
}

/// How a page's simulated rows differ from a committed page's, a line each; other differences
/// (words, a row that is gone) too.
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
        found.push("the words around the tables differ".into());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Set;
    use crate::outcome::{FlowOutcome, Outcome};
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
                let ours = outcomes.first(case, FlowOutcome::goodput);
                Row::new(case, GOODPUT, ours).published(100.0)
            };
            vec![Table::new("all", vec![row("one"), row("two")])]
        },
        figures: |_, page| {
            let values = page.rows().filter_map(|row| row.simulated).enumerate();
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
            let flow = FlowOutcome { bytes, elapsed: Span::from_secs(1), ..Default::default() };
            outcomes.insert(*name, Outcome { flows: vec![flow] });
        }
        outcomes
    }

    fn text(page: &Page, simulated: &Outcomes) -> String {
        page.files(simulated).unwrap().swap_remove(0).text
    }

    #[test]
    fn emulated_values_and_their_origin_outlive_a_new_simulation() {
        let simulated = outcomes(&[("one", 90), ("two", 80)]);
        let mut page = Page::new(&EXAMPLE, &simulated, None);
        page.emulated(&outcomes(&[("one", 91)]), "a day, a machine, a commit.".into());
        let committed = text(&page, &simulated);
        assert!(committed.contains("Emulated values: a day"), "{committed}");
        let again = Page::new(&EXAMPLE, &simulated, Some(&committed));
        assert_eq!(again.emulated_value("one", GOODPUT), Some(91.0));
        assert_eq!(text(&again, &simulated), committed);
        assert!(differences(&text(&again, &simulated), &committed).is_empty());
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
        assert_eq!(differences(&committed, &reworded), ["the words around the tables differ"]);
    }

    #[test]
    fn the_page_names_its_scenarios_and_what_changes() {
        assert_eq!(scenarios(&[]), "");
        let case = |size| vary("quanta-fig7").set("flow.blast.size", size);
        let cases = ["1MB", "2MB"].map(|size| Case::simulated(size, case(size)));
        let expected = "Scenario: [quanta-fig7.toml](../scenarios/quanta-fig7.toml). From row to \
                        row change: `flow.blast.size`.\n\n";
        assert_eq!(scenarios(&cases), expected);
        let alone = Case::simulated("tcp", vary("gtp-table2").only(&["tcp"]));
        assert!(scenarios(&[alone]).ends_with("A row runs some of its flows.\n\n"));
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
