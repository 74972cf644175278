//! Crates depend only on crates of lower levels, ARCHITECTURE.md names each external dependency,
//! and the command line uses only listed workspace crates.

use std::fs;

use super::{files, none, root};

const LEVELS: [(&str, u8); 16] = [
    ("proto", 1),
    ("text", 1),
    ("fetch", 2),
    ("files", 2),
    ("net", 2),
    ("testbed", 2),
    ("session", 3),
    ("rpc", 4),
    ("share", 4),
    ("stream", 4),
    ("transfer", 5),
    ("experiments", 6),
    ("gateway", 6),
    ("longhaul", 6),
    ("mount", 6),
    ("cli", 7),
];

/// The workspace crate that a dependency names, without the prefix `longhaul-`.
fn ours(dependency: &str) -> Option<&str> {
    match dependency {
        "longhaul" => Some(dependency),
        _ => dependency.strip_prefix("longhaul-"),
    }
}

fn level(name: &str) -> Option<u8> {
    LEVELS.iter().find(|(known, _)| *known == name).map(|(_, level)| *level)
}

/// Each workspace crate, with the names of its dependencies in Cargo.toml: the keys of the table
/// `table`, and of the tables of this name for certain targets (`[target.….dependencies]`).
fn crates(table: &str) -> Vec<(String, Vec<String>)> {
    let manifests = files("crates", "toml").into_iter();
    let manifests = manifests.filter(|file| file.path.ends_with("/Cargo.toml"));
    manifests
        .map(|file| {
            let name = file.path.split('/').nth(1).expect("crates/NAME/Cargo.toml").to_owned();
            let manifest: toml::Table = file.text.parse().expect("a manifest is TOML");
            let targets = manifest.get("target").and_then(toml::Value::as_table);
            let targets = targets.into_iter().flat_map(toml::Table::values);
            let tables = targets.filter_map(toml::Value::as_table).chain([&manifest]);
            let tables = tables.filter_map(|all| all.get(table)?.as_table());
            (name, tables.flat_map(toml::Table::keys).cloned().collect())
        })
        .collect()
}

fn upward(table: &str, allowed: fn(u8, u8) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (name, dependencies) in crates(table) {
        let Some(own) = level(&name) else {
            found.push(format!("crate {name} has no level; add it to LEVELS"));
            continue;
        };
        for other in dependencies.iter().filter_map(|d| ours(d)) {
            if !level(other).is_some_and(|level| allowed(level, own)) {
                found.push(format!("{name} must not depend on {other}"));
            }
        }
    }
    found
}

#[test]
fn crates_depend_only_on_crates_of_lower_levels() {
    assert!(crates("dependencies").iter().any(|(name, _)| name == "proto"));
    none(upward("dependencies", |other, own| other < own), "a crate uses only crates below it");
}

#[test]
fn tests_use_no_crate_of_a_higher_level() {
    none(upward("dev-dependencies", |other, own| other <= own), "tests use no higher crate");
}

#[test]
fn architecture_md_names_every_external_dependency() {
    let text =
        fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md is there");
    let mut found = Vec::new();
    for table in ["dependencies", "dev-dependencies"] {
        for (name, dependencies) in crates(table) {
            let foreign = dependencies.iter().filter(|d| ours(d).is_none());
            for dependency in foreign.filter(|d| !text.contains(&format!("`{d}`"))) {
                found.push(format!("{dependency} of {name}"));
            }
        }
    }
    none(found, "ARCHITECTURE.md names each dependency with its reason");
}

/// The workspace crates that every file of the command line may use.
const CLI_IMPORTS: [&str; 7] = [
    "longhaul",
    "longhaul_experiments",
    "longhaul_gateway",
    "longhaul_mount",
    "longhaul_proto",
    "longhaul_testbed",
    "longhaul_text",
];

/// The folder of `longhaul doctor`, and the crate that its files may also use.
const CLI_HOST: (&str, &str) = ("crates/cli/src/doctor/", "longhaul_net");

/// The workspace crates that `text` names at the start of a Rust path, as `longhaul_net` in
/// `longhaul_net::zone`.
fn named_crates(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("longhaul").filter_map(|(at, _)| {
        let before = text[..at].chars().next_back();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let end = text[at..].find(|c| !is_word(c)).map_or(text.len(), |len| at + len);
        let begins = !before.is_some_and(|c| is_word(c) || c == ':' || c == '"');
        (begins && text[end..].starts_with("::")).then(|| &text[at..end])
    })
}

#[test]
fn the_command_line_uses_only_listed_workspace_crates() {
    let mut found = Vec::new();
    let mut facade = 0;
    for file in files("crates/cli/src", "rs") {
        let is_host = file.path.starts_with(CLI_HOST.0);
        for name in named_crates(&file.text) {
            facade += usize::from(name == "longhaul");
            if !(CLI_IMPORTS.contains(&name) || is_host && name == CLI_HOST.1) {
                found.push(format!("{} imports {name}", file.path));
            }
        }
    }
    assert!(facade > 20, "the command line names the library {facade} times only");
    let (_, dependencies) = crates("dependencies")
        .into_iter()
        .find(|(name, _)| name == "cli")
        .expect("the command line is a crate");
    for name in dependencies.iter().filter_map(|d| ours(d)) {
        let module = if name == "longhaul" { name.to_owned() } else { format!("longhaul_{name}") };
        if !CLI_IMPORTS.contains(&&*module) && module != CLI_HOST.1 {
            found.push(format!("cli depends on {module}"));
        }
    }
    none(found, "the command line uses only the workspace crates in CLI_IMPORTS and CLI_HOST");
}

#[test]
fn a_crate_named_in_a_path_is_found_and_a_word_of_a_sentence_is_not() {
    let text = "use longhaul_net::zone; // longhaul cp\n\
                x(\"longhaul::y\"); longhaul::Error; a::longhaul::b";
    assert_eq!(named_crates(text).collect::<Vec<_>>(), ["longhaul_net", "longhaul"]);
}
