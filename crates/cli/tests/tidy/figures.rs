//! The figures of the advice are those of the pages that it rests on.

use std::fs;

use super::root;

/// The numbers of a text, with how many decimals each is written; thousands may have commas.
fn numbers(text: &str) -> Vec<(f64, usize)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let inside = rest[..start].chars().next_back().is_some_and(|c| c.is_alphanumeric());
        let tail = &rest[start..];
        let end = tail.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
        let written = tail[..end.unwrap_or(tail.len())].trim_end_matches(['.', ',']);
        rest = &tail[written.len()..];
        let plain = written.replace(',', "");
        // `a1`, and `1.2.3`, are names.
        if !inside && let Ok(value) = plain.parse() {
            let decimals = plain.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            found.push((value, decimals));
        }
    }
    found
}

/// Whether one of `known`, rounded as `number` is, is that number.
fn is_among(known: &[(f64, usize)], (value, decimals): (f64, usize)) -> bool {
    let half = 0.5 / 10f64.powi(decimals as i32);
    known.iter().any(|(known, _)| (known.abs() - value).abs() <= half * 1.000_001)
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
                .flat_map(|page| numbers(&page))
                .collect();
            for number in numbers(text) {
                checked += 1;
                if !is_among(&known, number) {
                    wrong.push(format!("{} is not on {page}: {text}", number.0));
                }
            }
        }
    }
    assert!(checked > 40, "the advice has only {checked} figures");
    assert!(wrong.is_empty(), "docs/choosing.md:\n{}", wrong.join("\n"));
}
