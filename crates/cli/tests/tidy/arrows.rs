//! Crates depend downwards only, and each dependency has its reason in ARCHITECTURE.md.

use std::fs;

use super::{files, none, root};

/// The level of each crate.
const LEVELS: [(&str, u8); 10] = [
    ("proto", 1),
    ("text", 1),
    ("files", 2),
    ("net", 2),
    ("testbed", 2),
    ("session", 3),
    ("transfer", 4),
    ("experiments", 5),
    ("longhaul", 5),
    ("cli", 6),
];

/// The crate of ours that a dependency names: the facade has the project's own name.
fn ours(dependency: &str) -> Option<&str> {
    match dependency {
        "longhaul" => Some(dependency),
        _ => dependency.strip_prefix("longhaul-"),
    }
}

fn level(name: &str) -> Option<u8> {
    LEVELS.iter().find(|(known, _)| *known == name).map(|(_, level)| *level)
}

/// Each crate of ours with the names in one of its tables of dependencies.
fn crates(table: &str) -> Vec<(String, Vec<String>)> {
    let manifests = files("crates", "toml").into_iter();
    let manifests = manifests.filter(|file| file.path.ends_with("/Cargo.toml"));
    manifests
        .map(|file| {
            let name = file.path.split('/').nth(1).expect("crates/NAME/Cargo.toml").to_owned();
            let manifest: toml::Table = file.text.parse().expect("a manifest is TOML");
            let names = manifest.get(table).and_then(toml::Value::as_table);
            (name, names.map(|names| names.keys().cloned().collect()).unwrap_or_default())
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
fn arrows_between_crates_point_downwards() {
    assert!(crates("dependencies").iter().any(|(name, _)| name == "proto"));
    none(upward("dependencies", |other, own| other < own), "a crate knows only those below it");
}

#[test]
fn tests_may_look_sideways_but_not_up() {
    none(upward("dev-dependencies", |other, own| other <= own), "tests know nothing above");
}

#[test]
fn every_dependency_has_its_reason() {
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
