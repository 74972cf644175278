//! Tables with published, modelled, simulated and emulated values; written as Markdown and read
//! back.

use std::collections::BTreeMap;

use crate::quantity::Quantity;

/// A table of an experiment's page.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The heading above the table.
    pub title: String,
    /// The rows. No two rows of a page have the same case and the same quantity.
    pub rows: Vec<Row>,
}

impl Table {
    /// Marks rows as fitted: those with a published value that `which` selects. A row is fitted if
    /// an input of its run was derived from the published value.
    pub(crate) fn fitted(mut self, which: impl Fn(&Row) -> bool) -> Table {
        let rows = self.rows.iter_mut().filter(|row| row.published.is_some() && which(row));
        rows.for_each(|row| row.fitted = true);
        self
    }
}

/// A row: one quantity of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The case: protocol, path, settings.
    pub case: String,
    /// The measured quantity.
    pub quantity: Quantity,
    /// The paper's value, if it gives one.
    pub published: Option<Published>,
    /// Whether an input of the run was derived from the published value.
    pub fitted: bool,
    /// An equation's prediction for this case.
    pub model: Option<f64>,
    /// The aim for our values, if the experiment sets one.
    pub aim: Option<Aim>,
    /// Our simulated value; `None` if the case was not simulated.
    pub simulated: Option<f64>,
    /// Our value over real sockets, if measured.
    pub emulated: Option<f64>,
    /// The number of the run that measured `emulated`, from 1.
    pub run: Option<usize>,
}

pub(crate) fn emulated_value(tables: &[Table], case: &str, quantity: Quantity) -> Option<f64> {
    let mut rows = tables.iter().flat_map(|table| &table.rows);
    rows.find(|row| row.case == case && row.quantity == quantity)?.emulated
}

/// A published value, with the paper's precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Published {
    /// A number.
    Exact(f64),
    /// An approximate number, or a number for the words "almost" or "the same as".
    About(f64),
    /// From the first number to the second.
    Between(f64, f64),
    /// Less than a number.
    Below(f64),
}

impl Published {
    fn write(self, quantity: Quantity) -> String {
        // Without trailing zeros, because the paper does not always print them.
        let plain = |value: f64| {
            let text = quantity.unit.write(value);
            match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
                false => text,
            }
        };
        match self {
            Published::Exact(value) => plain(value),
            Published::About(value) => format!("≈ {}", plain(value)),
            Published::Between(low, high) => format!("{} to {}", plain(low), plain(high)),
            Published::Below(value) => format!("< {}", plain(value)),
        }
    }

    fn difference(self, value: f64, quantity: Quantity) -> String {
        let from = |reference: f64| quantity.unit.difference(value, reference);
        match self {
            Published::Exact(reference) | Published::About(reference) => from(reference),
            Published::Between(low, high) if value < low => from(low.min(high)),
            Published::Between(_, high) if value > high => from(high),
            Published::Below(bound) if value >= bound => from(bound),
            Published::Between(..) | Published::Below(_) => "within".into(),
        }
    }
}

/// An aim for our value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aim {
    /// At least this value.
    AtLeast(f64),
    /// At most this value.
    AtMost(f64),
}

impl Aim {
    fn write(self, unit: crate::quantity::Unit) -> String {
        match self {
            Aim::AtLeast(bound) => format!("≥ {}", unit.write(bound)),
            Aim::AtMost(bound) => format!("≤ {}", unit.write(bound)),
        }
    }

    pub(crate) fn is_met(self, value: f64) -> bool {
        match self {
            Aim::AtLeast(bound) => value >= bound,
            Aim::AtMost(bound) => value <= bound,
        }
    }
}

pub(crate) type Key = (String, String);

impl Row {
    /// A row without a published value.
    pub fn new(case: impl Into<String>, quantity: Quantity, ours: Option<f64>) -> Row {
        Row {
            case: case.into(),
            quantity,
            published: None,
            fitted: false,
            model: None,
            aim: None,
            simulated: ours,
            emulated: None,
            run: None,
        }
    }

    /// Adds a published number.
    pub fn published(self, value: f64) -> Row {
        Row { published: Some(Published::Exact(value)), ..self }
    }

    /// Adds a published value.
    pub fn says(self, published: Published) -> Row {
        Row { published: Some(published), ..self }
    }

    pub(crate) fn fitted(self) -> Row {
        Row { fitted: true, ..self }
    }

    /// Adds an equation's prediction.
    pub fn model(self, value: f64) -> Row {
        Row { model: Some(value), ..self }
    }

    /// Adds an aim.
    pub fn aim(self, aim: Aim) -> Row {
        Row { aim: Some(aim), ..self }
    }

    fn met(&self) -> String {
        let Some(aim) = self.aim else { return String::new() };
        let say = |value: Option<f64>, of: &str| {
            let word = if aim.is_met(value?) { "met" } else { "missed" };
            Some(format!("{word}{of}"))
        };
        // From the rounded value, so that a page read back gives the same result.
        let emulated = self.emulated.map(|value| rounded(self.quantity.unit, value));
        let all = [say(self.simulated, ""), say(emulated, ", emulated")];
        all.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// The row's identity.
    pub fn key(&self) -> Key {
        (self.case.clone(), self.quantity.heading())
    }

    fn cell(&self, column: Column) -> String {
        let unit = self.quantity.unit;
        let write = |value: Option<f64>| value.map(|value| unit.write(value)).unwrap_or_default();
        match column {
            Column::Case => self.case.clone(),
            Column::What => self.quantity.heading(),
            Column::Published => {
                let note = if self.fitted { " (fitted)" } else { "" };
                let write = |published: Published| published.write(self.quantity) + note;
                self.published.map(write).unwrap_or_default()
            }
            Column::Model => write(self.model),
            Column::Aim => self.aim.map(|aim| aim.write(unit)).unwrap_or_default(),
            Column::Met => self.met(),
            Column::Simulated => write(self.simulated),
            Column::Difference => match (self.published, self.model, self.simulated) {
                (Some(published), _, Some(ours)) => published.difference(ours, self.quantity),
                (None, Some(model), Some(ours)) => unit.difference(ours, model),
                _ => String::new(),
            },
            Column::Emulated => write(self.emulated),
            Column::FromSimulated => match (self.emulated, self.simulated) {
                (Some(real), Some(ours)) => unit.difference(rounded(unit, real), ours),
                _ => String::new(),
            },
            Column::Run => self.run.map(|run| run.to_string()).unwrap_or_default(),
        }
    }
}

fn rounded(unit: crate::quantity::Unit, value: f64) -> f64 {
    unit.write(value).parse().unwrap_or(value)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Case,
    What,
    Published,
    Model,
    Aim,
    Simulated,
    Difference,
    Emulated,
    FromSimulated,
    Run,
    Met,
}

const COLUMNS: [Column; 11] = [
    Column::Case,
    Column::What,
    Column::Published,
    Column::Model,
    Column::Aim,
    Column::Simulated,
    Column::Difference,
    Column::Emulated,
    Column::FromSimulated,
    Column::Run,
    Column::Met,
];

impl Column {
    fn heading(self) -> &'static str {
        match self {
            Column::Case => "case",
            Column::What => "what",
            Column::Published => "published",
            Column::Model => "model",
            Column::Aim => "aim",
            Column::Met => "aim met",
            Column::Simulated => "simulated",
            Column::Difference => "difference",
            Column::Emulated => "emulated",
            Column::FromSimulated => "from simulated",
            Column::Run => "run",
        }
    }
}

impl Table {
    /// Creates a table from rows.
    pub fn new(title: impl Into<String>, rows: Vec<Row>) -> Table {
        Table { title: title.into(), rows }
    }

    /// The table as Markdown. Empty columns are omitted, except `simulated`. The column of runs
    /// appears only with `several` runs.
    pub(crate) fn markdown(&self, several: bool) -> String {
        let filled = |column: &Column| match column {
            Column::Case | Column::What | Column::Simulated => true,
            Column::Run if !several => false,
            column => self.rows.iter().any(|row| !row.cell(*column).is_empty()),
        };
        let columns: Vec<Column> = COLUMNS.into_iter().filter(filled).collect();
        let mut text = line(columns.iter().map(|column| column.heading().to_owned()));
        text += &line(columns.iter().map(|column| match column {
            Column::Case | Column::What | Column::Met => "---".into(),
            _ => "---:".into(),
        }));
        for row in &self.rows {
            text += &line(columns.iter().map(|column| row.cell(*column)));
        }
        text
    }
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.collect();
    format!("| {} |\n", cells.join(" | "))
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub simulated: String,
    pub emulated: String,
    pub run: String,
}

/// A row of a page: its cells, each with its column's heading.
pub(crate) struct Cells(Vec<(String, String)>);

impl Cells {
    pub(crate) fn get(&self, heading: &str) -> &str {
        self.0.iter().find(|(name, _)| name == heading).map_or("", |(_, cell)| cell)
    }
}

pub(crate) fn cells(page: &str) -> Vec<Cells> {
    let mut rows = Vec::new();
    let mut headings: Vec<&str> = Vec::new();
    for line in page.lines() {
        let Some(inner) = line.strip_prefix("| ").and_then(|rest| rest.strip_suffix(" |")) else {
            headings.clear();
            continue;
        };
        let cells: Vec<&str> = inner.split(" | ").map(str::trim).collect();
        if headings.is_empty() {
            headings = cells;
        } else if !cells.iter().all(|cell| cell.trim_matches(':') == "---") {
            let named = headings.iter().zip(cells);
            rows.push(Cells(named.map(|(name, cell)| ((*name).into(), cell.into())).collect()));
        }
    }
    rows
}

pub(crate) fn read(page: &str) -> BTreeMap<Key, Said> {
    let said = |row: Cells| {
        let cell = |column: Column| row.get(column.heading()).to_owned();
        let (simulated, emulated) = (cell(Column::Simulated), cell(Column::Emulated));
        let said = Said { simulated, emulated, run: cell(Column::Run) };
        ((cell(Column::Case), cell(Column::What)), said)
    };
    cells(page).into_iter().map(said).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::{DUPLICATES, GOODPUT, LOSS};

    fn example() -> Table {
        let rows = vec![
            Row::new("RBUDP, 600 Mbit/s", GOODPUT, Some(588.123)).published(590.0),
            Row {
                emulated: Some(580.06),
                run: Some(2),
                ..Row::new("RBUDP, 600 Mbit/s", LOSS, Some(1.5))
            }
            .says(Published::Below(2.0)),
            Row::new("FOBS", DUPLICATES, None).published(142.0),
        ];
        Table::new("memory", rows)
    }

    #[test]
    fn the_simulated_and_emulated_values_and_runs_of_a_written_table_are_read_back() {
        let text = example().markdown(true);
        let said = read(&text);
        assert_eq!(said.len(), 3, "{text}");
        for row in example().rows {
            let write = |v: Option<f64>| v.map(|v| row.quantity.unit.write(v)).unwrap_or_default();
            let expected = Said {
                simulated: write(row.simulated),
                emulated: write(row.emulated),
                run: row.run.map(|run| run.to_string()).unwrap_or_default(),
            };
            assert_eq!(said.get(&row.key()), Some(&expected), "{text}");
        }
    }

    #[test]
    fn empty_columns_are_left_out() {
        let text = example().markdown(false);
        assert!(
            !text.contains("| run |") && !text.contains("model") && text.contains("from simulated"),
            "{text}"
        );
        let bare = Table::new("", vec![Row::new("a", GOODPUT, None)]).markdown(false);
        assert_eq!(bare.lines().next(), Some("| case | what | simulated |"));
    }

    #[test]
    fn an_aim_is_met_or_missed_by_each_value() {
        let row = |simulated, emulated| Row { emulated, ..Row::new("a", GOODPUT, simulated) };
        let met = |row: Row| row.aim(Aim::AtLeast(90.0)).cell(Column::Met);
        assert_eq!(met(row(None, None)), "");
        assert_eq!(met(row(Some(90.0), None)), "met");
        assert_eq!(met(row(Some(95.0), Some(80.0))), "met; missed, emulated");
        let text = Table::new("", vec![row(Some(3.0), None).aim(Aim::AtMost(2.5))]).markdown(false);
        assert!(text.contains("| ≤ 2.50 | 3.00 | missed |"), "{text}");
    }

    #[test]
    fn a_difference_is_relative_to_the_paper_or_else_to_the_model() {
        let row = |published| Row::new("a", LOSS, Some(30.0)).says(published);
        let difference = |row: Row| row.cell(Column::Difference);
        assert_eq!(difference(row(Published::Between(27.0, 38.0))), "within");
        assert_eq!(difference(row(Published::Between(31.0, 38.0))), "-1.00 points");
        assert_eq!(difference(row(Published::Below(2.0))), "+28.00 points");
        assert_eq!(difference(row(Published::About(29.0))), "+1.00 points");
        let row = Row::new("a", GOODPUT, Some(90.0)).model(100.0);
        assert_eq!(difference(row.clone()), "-10.0 %");
        assert_eq!(difference(row.published(80.0)), "+12.5 %");
    }
}
