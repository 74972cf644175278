//! Compares the Markdown pages with files, flags, subcommands and tests, and the manual with the
//! help.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use longhaul_proto::registry;

use super::{Text, files, none, root, sources};
use crate::usage::longhaul;

/// Flags that the pages name and that belong to other programs.
const OTHERS: [&str; 11] = [
    "--bin",
    "--config",
    "--example",
    "--fail-with-body",
    "--lib",
    "--path",
    "--release",
    "--test",
    "--webdav-bearer-token",
    "--webdav-url",
    "--workspace",
];

fn pages() -> Vec<Text> {
    let pages = files("", "md");
    for page in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        assert!(pages.iter().any(|file| file.path == page), "{page} is missing");
    }
    pages
}

fn flags(text: &str) -> BTreeSet<String> {
    let parts = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let flags = parts.filter(|part| {
        part.strip_prefix("--")
            .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
    });
    flags.map(|flag| flag.trim_end_matches('-').to_owned()).collect()
}

fn listed(command: &[String]) -> Vec<Vec<String>> {
    let help = help(command);
    let list = help.split("Commands:\n").nth(1).unwrap_or_default();
    let lines = list.lines().take_while(|line| !line.is_empty());
    // Lines with more indentation continue a description.
    let names = lines.filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(|name| [command, &[name.to_owned()]].concat())
        .collect()
}

fn subcommands() -> Vec<Vec<String>> {
    let mut all = listed(&[]);
    assert!(all.len() > 5, "the help lists the subcommands: {all:?}");
    let nested: Vec<_> = all.iter().flat_map(|command| listed(command)).collect();
    all.extend(nested);
    all
}

fn help(command: &[String]) -> String {
    let mut words: Vec<&str> = command.iter().map(String::as_str).collect();
    words.push("--help");
    longhaul(&words).stdout
}

fn known_flags() -> BTreeSet<String> {
    let mut known = flags(&help(&[]));
    for command in subcommands() {
        known.extend(flags(&help(&command)));
    }
    known.extend(setting_flags());
    assert!(known.contains("--bwlimit") && known.contains("--frame"), "{known:?}");
    known
}

/// The flags that are protocols' settings, from `longhaul help cp PROTOCOL`.
fn setting_flags() -> BTreeSet<String> {
    let pages = registry::all().iter().map(|row| longhaul(&["help", "cp", row.name]).stdout);
    pages.flat_map(|page| flags(&page)).collect()
}

#[test]
fn every_flag_that_a_page_names_exists() {
    let known = known_flags();
    let mut found = Vec::new();
    // Results may name flags of the measured programs.
    for page in pages().into_iter().filter(|page| !page.path.starts_with("results/")) {
        let unknown = flags(&page.text).into_iter();
        let unknown = unknown.filter(|flag| !known.contains(flag) && !OTHERS.contains(&&**flag));
        found.extend(unknown.map(|flag| format!("{}: {flag}", page.path)));
    }
    none(found, "a page names only flags that exist");
}

#[test]
fn every_flag_is_in_the_manual() {
    let mut found = Vec::new();
    for command in subcommands() {
        let words: Vec<&str> = ["man"].into_iter().chain(command.iter().map(|w| &**w)).collect();
        let manual = longhaul(&words).stdout.replace("\\-", "-");
        let unknown = flags(&help(&command)).into_iter();
        let unknown = unknown.filter(|flag| !manual.contains(flag.as_str()));
        found.extend(unknown.map(|flag| format!("{} {flag}", command.join(" "))));
    }
    let manual = longhaul(&["man", "cp"]).stdout.replace("\\-", "-");
    let lost = setting_flags().into_iter().filter(|flag| !manual.contains(flag.as_str()));
    found.extend(lost.map(|flag| format!("cp {flag}")));
    none(found, "the manual has every flag");
}

#[test]
fn the_readme_has_every_subcommand() {
    let readme = fs::read_to_string(root().join("README.md")).expect("there is a README.md");
    let lost = listed(&[]).into_iter().map(|command| command.join(" "));
    let lost = lost.filter(|name| !readme.contains(&format!("longhaul {name}")));
    none(lost.collect(), "README.md must name every subcommand");
}

fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    local.filter_map(|target| target.split('#').next().map(str::to_owned)).collect()
}

#[test]
fn every_link_has_a_target() {
    let mut found = Vec::new();
    for page in pages() {
        let folder = root().join(Path::new(&page.path).parent().unwrap_or(Path::new("")));
        let dead = links(&page.text).into_iter().filter(|target| !folder.join(target).exists());
        found.extend(dead.map(|target| format!("{}: {target}", page.path)));
    }
    none(found, "a link leads to a file");
}

#[test]
fn every_page_of_the_docs_is_linked() {
    let pages = pages();
    let mut linked = BTreeSet::new();
    for page in &pages {
        let folder = root().join(Path::new(&page.path).parent().unwrap_or(Path::new("")));
        linked.extend(links(&page.text).iter().filter_map(|t| folder.join(t).canonicalize().ok()));
    }
    let docs = pages.iter().filter(|page| page.path.starts_with("docs/"));
    let lost = docs.filter(|page| {
        root().join(&page.path).canonicalize().is_ok_and(|path| !linked.contains(&path))
    });
    none(lost.map(|page| page.path.clone()).collect(), "a page links to each page in docs");
}

#[test]
fn the_readme_has_the_exit_statuses_of_the_help() {
    let readme = fs::read_to_string(root().join("README.md")).expect("there is a README.md");
    let help = help(&[]);
    let table = help.split("Exit status:\n").nth(1).expect("the help has the exit statuses");
    let lines = table.lines().filter_map(|line| line.trim().split_once(' '));
    let rows = lines.map(|(status, what)| format!("| {status} | {} |", what.trim()));
    none(rows.filter(|row| !readme.contains(row)).collect(), "README.md has each exit status");
}

#[test]
fn every_path_in_the_architecture_page_exists() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page is there");
    let quoted = map.split('`').skip(1).step_by(2);
    let inside = |path: &&str| path.contains("/src/") || path.contains("/tests/");
    let paths: Vec<&str> = quoted.filter(inside).filter(|path| !path.contains("NAME")).collect();
    assert!(paths.len() > 20, "ARCHITECTURE.md names only {paths:?}");
    let lost = paths.into_iter().filter(|path| !root().join("crates").join(path).exists());
    none(lost.map(str::to_owned).collect(), "ARCHITECTURE.md names only paths that exist");
}

/// Names of tests and test modules: words in backticks with two or more underscores, or with `::`.
fn tests_named_in(page: &str) -> Vec<&str> {
    let code = page.split('`').skip(1).step_by(2);
    code.filter(|word| {
        let is_path = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c);
        word.chars().all(is_path) && (word.matches('_').count() > 1 || word.contains("::"))
    })
    .collect()
}

fn is_test(text: &str, name: &str) -> bool {
    let function = format!("fn {name}(");
    text.match_indices(&function).any(|(at, _)| {
        let attributes = text[..at].lines().rev().take_while(|line| {
            let line = line.trim();
            line.starts_with("#[") || line.is_empty() || line == "async"
        });
        attributes.into_iter().any(|line| line.trim().contains("test]"))
    })
}

#[test]
fn a_function_counts_as_a_test_only_with_a_test_attribute() {
    let text = "fn a() {}\n#[test]\nfn b() {}\n#[test]\n#[cfg(unix)]\nfn c() {}\n";
    assert!(!is_test(text, "a") && is_test(text, "b") && is_test(text, "c"));
}

#[test]
fn each_promise_of_the_security_page_names_tests_that_exist() {
    let page = fs::read_to_string(root().join("docs/security.md")).expect("the page is there");
    let sources = sources();
    let exists = |path: &&str| {
        let name = path.rsplit("::").next().unwrap_or(path);
        let module = format!("mod {name};");
        sources.iter().any(|file| is_test(&file.text, name) || file.text.contains(&module))
    };
    let named = tests_named_in(&page);
    assert!(named.len() > 40, "only {} tests are named", named.len());
    none(
        named.iter().filter(|name| !exists(name)).map(|n| (*n).to_owned()).collect(),
        "no such test",
    );
    let promises = page.lines().filter(|line| line.starts_with("- "));
    let bare = promises.filter(|line| tests_named_in(line).is_empty());
    none(bare.map(str::to_owned).collect(), "each promise names its test");
}
