//! The figures of the advice are those of the pages that it rests on.

use std::fs;
use std::ops::Range;

use super::prose::{quantities, said};
use super::root;

/// A number of a text.
pub(super) struct Written {
    pub(super) value: f64,
    /// With how many decimals it is written.
    pub(super) decimals: usize,
    /// Where it stands.
    pub(super) at: Range<usize>,
}

/// The numbers of a text; thousands may have commas.
pub(super) fn written(text: &str) -> Vec<Written> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(start) = text[from..].find(|c: char| c.is_ascii_digit()).map(|at| from + at) {
        let inside = text[..start].chars().next_back().is_some_and(|c| c.is_alphanumeric());
        let tail = &text[start..];
        let end = tail.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
        let number = tail[..end.unwrap_or(tail.len())].trim_end_matches(['.', ',']);
        from = start + number.len();
        let plain = number.replace(',', "");
        // `a1`, and `1.2.3`, are names.
        if !inside && let Ok(value) = plain.parse() {
            let decimals = plain.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            found.push(Written { value, decimals, at: start..from });
        }
    }
    found
}

/// The same, as values with how many decimals each is written.
pub(super) fn numbers(text: &str) -> Vec<(f64, usize)> {
    written(text).iter().map(|number| (number.value, number.decimals)).collect()
}

/// Whether `known`, rounded as `value` is, is that number.
pub(super) fn is_rounded(known: f64, (value, decimals): (f64, usize)) -> bool {
    let half = 0.5 / 10f64.powi(decimals as i32);
    (known.abs() - value).abs() <= half * 1.000_001
}

/// Whether one of `known`, rounded as `number` is, is that number.
fn is_among(known: &[(f64, usize)], number: (f64, usize)) -> bool {
    known.iter().any(|(known, _)| is_rounded(*known, number))
}

/// The entries of the lists of a page, each on one line, in order.
fn entries(page: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    for line in page.lines() {
        match line.strip_prefix("- ") {
            Some(entry) => entries.push(entry.to_owned()),
            None if line.starts_with("  ") => {
                if let Some(entry) = entries.last_mut() {
                    entry.push_str(line);
                }
            }
            None => {}
        }
    }
    entries
}

/// What a sentence says, and the page that it names for that.
fn claims(entry: &str) -> Vec<(&str, &str)> {
    let mut claims = Vec::new();
    let mut from = 0;
    while let Some(at) = entry[from..].find("](").map(|at| from + at) {
        let end = entry[at..].find(')').map_or(entry.len(), |end| at + end);
        let open = entry[..at].rfind('[').unwrap_or(at);
        claims.push((&entry[from.min(open)..open], &entry[at + 2..end]));
        from = end;
    }
    claims
}

/// The sentences of a text; a number's point ends none, nor one within brackets.
fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut from = 0;
    for (at, _) in text.match_indices(". ") {
        let open = text[from..at].matches('(').count() > text[from..at].matches(')').count();
        if !open {
            found.push(&text[from..at]);
            from = at + 2;
        }
    }
    found.push(&text[from..]);
    found
}

/// Whether a page has the number, with this unit where the page tells units.
fn says(page: &str, number: (f64, usize), unit: &str) -> bool {
    match said(page).filter(|_| !unit.is_empty()) {
        Some(said) => said.iter().any(|(value, own)| own == unit && is_rounded(*value, number)),
        None => is_among(&numbers(page), number),
    }
}

#[test]
fn numbers_are_told_from_names_and_sentences() {
    assert_eq!(
        numbers("h1: 12,034 of 0.41, then 7. (x2) 3 %"),
        [(12034.0, 0), (0.41, 2), (7.0, 0), (3.0, 0)]
    );
    assert!(is_among(&[(84.96, 2)], (85.0, 0)) && is_among(&[(84.96, 2)], (85.0, 1)));
    assert!(!is_among(&[(84.96, 2)], (84.9, 1)));
}

#[test]
fn each_figure_of_the_advice_is_on_the_page_that_it_names() {
    let docs = root().join("docs");
    let advice = fs::read_to_string(docs.join("choosing.md")).expect("the advice can be read");
    let mut wrong = Vec::new();
    let mut checked = 0;
    for entry in entries(&advice) {
        let claims = claims(&entry);
        for (at, (text, page)) in claims.iter().enumerate() {
            // Several links in a row stand for one sentence.
            let same = claims[at..].iter().skip(1).take_while(|(text, _)| text.len() < 8);
            let pages = std::iter::once(page).chain(same.map(|(_, page)| page));
            let known: Vec<_> = pages
                .filter_map(|page| page.split('#').next())
                .filter_map(|page| fs::read_to_string(docs.join(page)).ok())
                .collect();
            for (number, around, unit) in quantities(text) {
                checked += 1;
                if !known.iter().any(|page| says(page, number, unit)) {
                    wrong.push(format!("{around} is not on {page}: {text}"));
                }
            }
        }
    }
    assert!(checked > 40, "the advice has only {checked} figures");
    assert!(wrong.is_empty(), "docs/choosing.md:\n{}", wrong.join("\n"));
}

#[test]
fn each_sentence_of_the_advice_names_the_page_that_it_rests_on() {
    let advice = fs::read_to_string(root().join("docs/choosing.md")).expect("it can be read");
    let begins = advice.find("\n## ").expect("the advice has parts");
    let ends = advice.find("\n## For scripts").expect("the last part is no advice");
    let lines = advice[begins..ends].lines().filter(|line| !line.is_empty());
    let all: Vec<&str> = lines.filter(|line| !line.starts_with('#')).flat_map(sentences).collect();
    let of_results = "](../results/";
    let bare: Vec<&&str> = all.iter().filter(|sentence| !sentence.contains(of_results)).collect();
    assert!(all.len() > 30, "the advice has only {} sentences", all.len());
    assert!(bare.is_empty(), "docs/choosing.md: these name no page of results:\n{bare:#?}");
}

#[test]
fn sentences_end_at_a_point_outside_of_brackets() {
    assert_eq!(
        sentences("It takes 2.5 s (e. g. here, 3.1). Not so. And more"),
        ["It takes 2.5 s (e. g. here, 3.1)", "Not so", "And more"]
    );
}

/// What a simulated value may be off real sockets, in per cent.
const MOST_OFF: f64 = 3.0;

#[test]
fn the_simulator_agrees_with_real_sockets_over_the_whole_grid() {
    let page = fs::read_to_string(root().join("results/sim-vs-emulator.md")).expect("it is there");
    let rows = page.lines().filter(|line| line.contains("goodput, Mbit/s"));
    let off: Vec<Option<f64>> = rows
        .map(|row| row.split('|').find_map(|cell| cell.trim().strip_suffix(" %")?.parse().ok()))
        .collect();
    assert_eq!(off.len(), 16, "rates, round trips and losses");
    assert!(off.iter().all(|off| off.is_some_and(|off| off.abs() <= MOST_OFF)), "{off:?}");
}
