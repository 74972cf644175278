//! Text about cases without an emulated or a simulated value.

use std::collections::BTreeSet;

use super::Page;
use crate::experiment::{Case, LONGEST, Ways};
use crate::outcome::{CaseOutcome, Outcomes};
use crate::table::{Key, Row};

/// Starts each line about a failed case.
const TRIED: &str = "Emulation failed: ";
/// Maximum number of cases that are listed by name.
const NAMED: usize = 4;
const TOO_LONG: &str = "cases of more than six minutes of virtual time are not run in real time";

/// Cases whose emulation failed, with the reason and the run.
#[derive(Clone, Debug, Default)]
pub(super) struct Tried(Vec<(String, String)>);

impl Tried {
    pub(super) fn read(page: &str) -> Tried {
        let reported = page.lines().filter_map(|line| line.strip_prefix(TRIED)?.split_once(": "));
        Tried(reported.map(|(case, why)| (case.to_owned(), why.to_owned())).collect())
    }

    /// Removes the cases that have outcomes, and adds the failed cases with their reasons.
    pub(super) fn note(
        &mut self,
        outcomes: &Outcomes,
        failed: &[(String, String)],
        provenance: &str,
    ) {
        let again = |case: &String| {
            outcomes.case(case).is_some() || failed.iter().any(|(other, _)| other == case)
        };
        self.0.retain(|(case, _)| !again(case));
        let one_line = |why: &str| why.split_whitespace().collect::<Vec<_>>().join(" ");
        self.0.extend(failed.iter().map(|(case, why)| {
            (case.clone(), format!("{} ({})", one_line(why), provenance.trim_end_matches('.')))
        }));
    }
}

pub(super) fn text(page: &Page, cases: &[Case]) -> String {
    let mut text = String::new();
    for (why, names) in grouped(cases.iter().filter_map(|case| reason(page, case))) {
        text += &format!("Not emulated: {}. Reason: {why}.\n\n", which(&names, cases));
    }
    let only = cases.iter().filter_map(|case| match case.ways {
        Ways::Emulated(why) => Some((why, case.name.clone())),
        Ways::Simulated(_) | Ways::Both => None,
    });
    for (why, names) in grouped(only) {
        text += &format!("Not simulated: {}. Reason: {why}.\n\n", which(&names, cases));
    }
    let can = |case: &Case| case.is_emulated() && too_long(page, case).is_none();
    // A failed case is left out if an earlier run gave it a value.
    let tried = page.tried.0.iter().filter(|(name, _)| !has_value(page, cases, name));
    let tried: Vec<String> = tried.map(|(case, why)| format!("{TRIED}{case}: {why}\n\n")).collect();
    let in_vain = |case: &Case| page.tried.0.iter().any(|(name, _)| *name == case.name);
    let left = |case: &&Case| can(case) && !has_value(page, cases, &case.name) && !in_vain(case);
    let left: Vec<String> = cases.iter().filter(left).map(|case| case.name.clone()).collect();
    if !left.is_empty() {
        let how = format!("`longhaul reproduce {} --how emulate --update`", page.experiment.id);
        text += &match page.runs.is_empty() && tried.is_empty() {
            true => format!("No emulated values yet. To measure them, run {how}.\n\n"),
            false => format!(
                "Not emulated yet: {}. To measure them, run {how}.\n\n",
                which(&left, cases)
            ),
        };
    }
    text + &tried.concat()
}

/// Why a case is not emulated, and its name.
fn reason(page: &Page, case: &Case) -> Option<(&'static str, String)> {
    match (case.ways, too_long(page, case)) {
        (Ways::Simulated(why), _) => Some((why, case.name.clone())),
        (Ways::Both, Some(seconds)) => Some((TOO_LONG, format!("{} ({seconds:.0} s)", case.name))),
        (Ways::Both | Ways::Emulated(_), _) => None,
    }
}

fn grouped(each: impl Iterator<Item = (&'static str, String)>) -> Vec<(&'static str, Vec<String>)> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for (why, name) in each {
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    reasons
}

/// Lists the names of cases. Of more than [`NAMED`] names, gives only the number and the first.
fn which(names: &[String], cases: &[Case]) -> String {
    match names {
        all if all.len() == cases.len() => "all cases of this page".to_owned(),
        few if few.len() <= NAMED => few.join("; "),
        [first, ..] => {
            format!("{} of {} cases (the first is \"{first}\")", names.len(), cases.len())
        }
        [] => String::new(),
    }
}

/// The virtual duration in seconds of a case that takes too long.
fn too_long(page: &Page, case: &Case) -> Option<f64> {
    let span = page.simulated.case(&case.name).map(CaseOutcome::span)?;
    (span > LONGEST).then(|| span.as_secs_f64())
}

/// The longest case name that the row's name starts with.
fn named_after<'c>(row: &str, cases: &'c [Case]) -> Option<&'c str> {
    let fits = |case: &&str| {
        let rest = row.strip_prefix(case);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([',', ':']))
    };
    cases.iter().map(|case| &*case.name).filter(fits).max_by_key(|name| name.len())
}

/// Whether a row of a case has an emulated value. A row's name may differ from the name of its
/// case. So the tables are built again without the case's outcome: rows that then lack a simulated
/// value belong to the case.
fn has_value(page: &Page, cases: &[Case], case: &str) -> bool {
    let named_so = |row: &str| named_after(row, cases) == Some(case);
    let others = (page.experiment.tables)(&page.simulated.without(case));
    let others = others.iter().flat_map(|table| &table.rows);
    let others: BTreeSet<Key> =
        others.filter(|row| row.simulated.is_some()).map(Row::key).collect();
    page.rows()
        .filter(|row| row.emulated.is_some())
        .any(|row| named_so(&row.case) || (row.simulated.is_some() && !others.contains(&row.key())))
}

#[cfg(test)]
mod tests {
    use longhaul_proto::time::Span;

    use super::*;
    use crate::experiment::{Experiment, Set};
    use crate::outcome::CaseFlow;
    use crate::quantity::GOODPUT;
    use crate::scenarios::vary;
    use crate::table::Table;

    const WHY: &str = "its host has a slow disk";

    static EXAMPLE: Experiment = Experiment {
        id: "example",
        title: "An example",
        source: "Nobody, Nowhere, Fig. 1",
        setup: "A path.",
        cases: || {
            let copy = || vary("quanta-streaming");
            vec![
                Case::simulated("disk", copy(), WHY),
                Case::both("long", copy()),
                Case::both("short", copy()),
                Case::emulated("kernel", copy(), "nobody has a model of it"),
                Case::both("pair", copy()),
            ]
        },
        tables: |outcomes| {
            let row = |case| Row::new(case, GOODPUT, outcomes.first(case, CaseFlow::goodput));
            let mut rows = ["disk", "long", "short", "kernel"].map(row).to_vec();
            let near = outcomes.first("pair", CaseFlow::goodput);
            rows.push(Row::new("the near one", GOODPUT, near));
            vec![Table::new("", rows)]
        },
        courses: Experiment::NO_COURSES,
        figures: Experiment::NO_FIGURES,
        differs: "Nothing.",
        learned: "Nothing.",
        set: Set::Quick,
    };

    fn outcomes(cases: &[(&str, u64)]) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for (name, seconds) in cases {
            let elapsed = Span::from_secs(*seconds);
            let flow = CaseFlow { elapsed, ..CaseFlow::default() };
            outcomes.insert(*name, CaseOutcome { flows: vec![flow] });
        }
        outcomes
    }

    fn page_text(page: &Page) -> String {
        text(page, &(EXAMPLE.cases)())
    }

    #[test]
    fn the_page_says_why_a_case_has_no_emulated_value() {
        let simulated = outcomes(&[("disk", 1), ("long", 885), ("short", 7)]);
        let page = Page::new(&EXAMPLE, &simulated, None);
        let text = page_text(&page);
        for expected in [
            "Not emulated: disk. Reason: its host has a slow disk.",
            "Not emulated: long (885 s). Reason: cases of more than six",
            "Not simulated: kernel. Reason: nobody has a model of it.",
            "To measure them, run `longhaul reproduce example --how emulate --update`",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let alone = absence_of(&[Case::simulated("disk", vary("quanta-streaming"), WHY)], &page);
        assert_eq!(alone, format!("Not emulated: all cases of this page. Reason: {WHY}.\n\n"));
    }

    fn absence_of(cases: &[Case], page: &Page) -> String {
        text(page, cases)
    }

    #[test]
    fn cases_that_were_not_emulated_yet_are_named() {
        let simulated = outcomes(&[("disk", 1), ("long", 885), ("short", 7), ("pair", 2)]);
        let mut page = Page::new(&EXAMPLE, &simulated, None);
        let mut emulated = |case, day: &str| {
            page.emulated(&outcomes(&[(case, 3)]), &[], day.into());
            page_text(&page)
        };
        let yet = |cases| {
            format!(
                "Not emulated yet: {cases}. To measure them, run `longhaul reproduce example --how \
                 emulate --update`"
            )
        };
        let text = emulated("kernel", "Monday.");
        assert!(text.contains(&yet("short; pair")), "{text}");
        let text = emulated("pair", "Tuesday.");
        assert!(text.contains(&yet("short")), "{text}");
        let text = emulated("short", "Wednesday.");
        assert!(!text.contains("yet"), "{text}");
    }

    #[test]
    fn a_row_belongs_to_the_longest_case_name_that_it_begins_with() {
        let cases = ["x", "x, y", "other"].map(|name| Case::both(name, vary("quanta-streaming")));
        for (row, case) in [
            ("x", Some("x")),
            ("x, slowest", Some("x")),
            ("x: mean", Some("x")),
            ("x, y", Some("x, y")),
            ("x, y, slowest", Some("x, y")),
            ("xy", None),
        ] {
            assert_eq!(named_after(row, &cases), case, "{row}");
        }
    }

    #[test]
    fn a_value_belongs_to_the_case_with_the_longest_matching_name() {
        static PREFIXED: Experiment = Experiment {
            cases: || ["x", "x, y"].map(|name| Case::both(name, vary("quanta-streaming"))).into(),
            tables: |outcomes| {
                let value = |case| outcomes.first(case, CaseFlow::goodput);
                let row = |case| Row::new(case, GOODPUT, value(case));
                vec![Table::new("", ["x", "x, y"].map(row).into())]
            },
            ..EXAMPLE
        };
        let cases = (PREFIXED.cases)();
        let simulated = outcomes(&[("x", 7), ("x, y", 7)]);
        let mut page = Page::new(&PREFIXED, &simulated, None);
        page.emulated(&outcomes(&[("x, y", 7)]), &[], "Monday.".into());
        assert!(text(&page, &cases).contains("Not emulated yet: x. "), "{}", text(&page, &cases));
        let failed = [("x".to_owned(), "late".to_owned())];
        page.emulated(&Outcomes::default(), &failed, "Tuesday.".into());
        assert!(
            text(&page, &cases).contains("Emulation failed: x: late"),
            "{}",
            text(&page, &cases)
        );
    }

    #[test]
    fn a_page_reports_a_failed_emulation_until_a_run_gives_the_value() {
        let simulated = outcomes(&[("disk", 1), ("long", 885), ("short", 7)]);
        let mut page = Page::new(&EXAMPLE, &simulated, None);
        let failed = [("short".to_owned(), "not valid: it was\nlate".to_owned())];
        page.emulated(&outcomes(&[("kernel", 3)]), &failed, "Monday, a machine.".into());
        let line = "Emulation failed: short: not valid: it was late (Monday, a machine)\n";
        let committed = page.files(&simulated).unwrap().swap_remove(0).text;
        assert!(committed.contains(line), "{committed}");
        let mut page = Page::new(&EXAMPLE, &simulated, Some(&committed));
        assert!(page_text(&page).contains(line) && !page_text(&page).contains("No emulated"));
        page.emulated(&outcomes(&[("short", 7)]), &[], "Tuesday.".into());
        assert!(!page_text(&page).contains("Emulation failed"));
        // A value is kept if a later attempt fails.
        page.emulated(&Outcomes::default(), &failed, "Wednesday.".into());
        assert!(!page_text(&page).contains("Emulation failed"));
    }
}
