//! Numbers in the prose of a page, taken from the page's tables.
//!
//! A placeholder `{CASE | QUANTITY | COLUMN | DECIMALS}` is replaced by a cell's number. All parts
//! but the case are optional; the defaults are the case's first quantity, the column `simulated`,
//! and no decimals. `*` matches any text in a case. A placeholder with cells in square brackets is
//! arithmetic: `{100 * (1 - [SABUL] / [GTP]) | 1}`, `{most [FOBS, * | waste]}`, `{least [*]}`;
//! `off` is the largest absolute value. A dash replaces a value that was not measured.

use std::fmt;

use crate::table::{self, Cells};

/// A placeholder that the page cannot fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProseError {
    placeholder: String,
    why: String,
}

impl fmt::Display for ProseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the prose has {{{}}}: {}", self.placeholder, self.why)
    }
}

impl std::error::Error for ProseError {}

const COLUMNS: [&str; 6] =
    ["published", "model", "simulated", "difference", "emulated", "from simulated"];

const UNKNOWN: &str = "—";

/// Fills the placeholders of `text` from the tables of `page`.
pub(super) fn fill(text: &str, page: &str) -> Result<String, ProseError> {
    let rows = table::cells(page);
    let mut pieces = text.split('{');
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (placeholder, after) = piece.split_once('}').unwrap_or((piece, ""));
        let number = number(placeholder, &rows)
            .map_err(|why| ProseError { placeholder: placeholder.to_owned(), why })?;
        filled += &number;
        filled += after;
    }
    Ok(filled)
}

fn number(placeholder: &str, rows: &[Cells]) -> Result<String, String> {
    let last = placeholder.rsplit_once('|').map(|(rest, last)| (rest, last.trim().parse()));
    let (formula, decimals) = match last {
        Some((rest, Ok(decimals))) => (rest, decimals),
        _ => (placeholder, 0),
    };
    let value = if formula.contains('[') {
        let mut formula = Formula { rest: formula.trim(), rows };
        let value = formula.sum()?;
        if !formula.rest.is_empty() {
            return Err(format!("'{}' is left over", formula.rest));
        }
        value
    } else {
        only(&cells(formula, rows)?)?
    };
    match value {
        value if value.is_finite() => Ok(write(value, decimals)),
        value if value.is_nan() => Ok(UNKNOWN.into()),
        _ => Err("it divides by zero".into()),
    }
}

/// Formats a number with commas between thousands, without a sign if it rounds to zero.
fn write(value: f64, decimals: usize) -> String {
    let scale = (0..decimals).fold(1.0, |scale, _| scale * 10.0);
    let text = format!("{:.decimals$}", (value.abs() * scale + 1e-9).round() / scale);
    let whole = text.find('.').unwrap_or(text.len());
    let zero = text.bytes().all(|digit| matches!(digit, b'0' | b'.'));
    let mut written = if value < 0.0 && !zero { "-".to_owned() } else { String::new() };
    for (at, digit) in text.char_indices() {
        if at > 0 && at < whole && (whole - at) % 3 == 0 {
            written.push(',');
        }
        written.push(digit);
    }
    written
}

fn only(values: &[f64]) -> Result<f64, String> {
    match values {
        [value] => Ok(*value),
        several => Err(format!("it names {} cells, not one", several.len())),
    }
}

/// The numbers in the cells of `CASE | QUANTITY | COLUMN`; NaN for an empty cell.
fn cells(name: &str, rows: &[Cells]) -> Result<Vec<f64>, String> {
    let mut parts = name.split('|').map(str::trim);
    let case = parts.next().unwrap_or_default();
    let (mut quantity, mut column) = (None, "simulated");
    for part in parts {
        match COLUMNS.into_iter().find(|known| *known == part) {
            Some(known) => column = known,
            None => quantity = Some(part),
        }
    }
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for row in rows.iter().filter(|row| matches(case, row.get("case"))) {
        let what = row.get("what");
        let wanted = match quantity {
            Some(quantity) => {
                what == quantity || what.rsplit_once(", ").is_some_and(|(name, _)| name == quantity)
            }
            None => !seen.contains(&row.get("case")),
        };
        seen.push(row.get("case"));
        let text = row.get(column);
        if wanted {
            let digits = text.split(' ').find(|word| word.contains(|c: char| c.is_ascii_digit()));
            found.push(digits.and_then(|digits| digits.parse().ok()).unwrap_or(f64::NAN));
        }
    }
    if found.is_empty() { Err(format!("'{name}' names no row")) } else { Ok(found) }
}

fn matches(pattern: &str, case: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == case };
    let Some(case) = case.strip_prefix(start) else { return false };
    case.char_indices().map(|(at, _)| at).chain([case.len()]).any(|at| matches(rest, &case[at..]))
}

struct Formula<'t> {
    rest: &'t str,
    rows: &'t [Cells],
}

impl Formula<'_> {
    fn takes(&mut self, word: &str) -> bool {
        let rest = self.rest.strip_prefix(word).map(str::trim_start);
        rest.map(|rest| self.rest = rest).is_some()
    }

    fn sum(&mut self) -> Result<f64, String> {
        let mut sum = self.product()?;
        loop {
            match () {
                () if self.takes("+") => sum += self.product()?,
                () if self.takes("-") => sum -= self.product()?,
                () => return Ok(sum),
            }
        }
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut product = self.factor()?;
        loop {
            match () {
                () if self.takes("*") => product *= self.factor()?,
                () if self.takes("/") => product /= self.factor()?,
                () => return Ok(product),
            }
        }
    }

    fn factor(&mut self) -> Result<f64, String> {
        if self.takes("-") {
            return Ok(-self.factor()?);
        }
        if self.takes("(") {
            let sum = self.sum()?;
            return if self.takes(")") { Ok(sum) } else { Err("a bracket is not closed".into()) };
        }
        let off = |most: f64, cell: f64| most.max(cell.abs());
        let folds = [("least", f64::min as fn(f64, f64) -> f64), ("most", f64::max), ("off", off)];
        for (word, fold) in folds {
            if self.takes(word) {
                return Ok(self.cells()?.into_iter().fold(f64::NAN, fold));
            }
        }
        if self.rest.starts_with('[') {
            return only(&self.cells()?);
        }
        let end = self.rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest.trim_start();
        number.parse().map_err(|_| format!("'{number}{rest}' is not a number"))
    }

    fn cells(&mut self) -> Result<Vec<f64>, String> {
        let inside = self.rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (name, rest) = inside.ok_or_else(|| format!("'{}' names no cells", self.rest))?;
        self.rest = rest.trim_start();
        cells(name, self.rows)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{catalogue, results};

    const PAGE: &str = "\
        | case | what | published | simulated | difference |\n\
        | --- | --- | ---: | ---: | ---: |\n\
        | FOBS, loss 3 % | goodput, Mbit/s | ≈ 76 | 85.19 | +12.1 % |\n\
        | FOBS, loss 3 % | duplicates |  | 12345 |  |\n\
        | FOBS, loss 0 | goodput, Mbit/s | 90 | 80.00 | -11.1 % |\n";

    #[test]
    fn a_placeholder_becomes_the_rounded_number_of_a_cell_or_of_a_formula() {
        for (text, filled) in [
            ("{FOBS, loss 3 %} Mbit/s", "85 Mbit/s"),
            ("{[FOBS, loss 0] / 32}, {[FOBS, loss 0] / 64 | 2}", "3, 1.25"),
            ("{FOBS, loss 3 % | goodput, Mbit/s | simulated | 1}", "85.2"),
            ("{FOBS, * 3 % | duplicates}", "12,345"),
            ("{FOBS, loss 3 % | published} to {FOBS, loss 0 | difference | 1}", "76 to -11.1"),
            ("{100 * (1 - [FOBS, loss 0] / [FOBS, loss 3 %]) | 2} %", "6.09 %"),
            ("{least [*]}, {most [*]}, {off [* | difference] | 1}", "80, 85, 12.1"),
            ("{[FOBS, loss 0] - -2 * 3 - 86}", "0"),
            ("{FOBS, loss 0 | emulated | 2}, {off [* | emulated]}", "—, —"),
        ] {
            assert_eq!(fill(text, PAGE).as_deref(), Ok(filled), "{text}");
        }
    }

    #[test]
    fn a_placeholder_without_exactly_one_value_is_an_error() {
        for text in [
            "{RBUDP}",
            "{FOBS, *}",
            "{FOBS, loss 0 | waste}",
            "{[FOBS, loss 0] 7}",
            "{([FOBS, loss 0]}",
            "{[FOBS, loss 0] / 0}",
            "{[FOBS, loss 0}",
            "{}",
        ] {
            assert!(fill(text, PAGE).is_err(), "{text}");
        }
    }

    #[test]
    fn the_prose_of_committed_pages_agrees_with_their_tables() {
        let folder =
            results::find(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("in the repository");
        let mut wrong = Vec::new();
        for experiment in catalogue::all() {
            let page = results::read(&folder, &experiment.file()).unwrap().unwrap_or_default();
            for text in [experiment.differs, experiment.learned] {
                let dashes = |text: &str| text.matches(UNKNOWN).count();
                match fill(text, &page) {
                    Ok(filled) if page.contains(&filled) && dashes(&filled) == dashes(text) => {}
                    Ok(filled) => wrong.push(format!("{}: {filled}", experiment.id)),
                    Err(error) => wrong.push(format!("{}: {error}", experiment.id)),
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
