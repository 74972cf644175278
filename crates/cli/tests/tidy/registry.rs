//! Each protocol of the registry has its tests, and a page that names its flags and experiments.
//! `transfer` and `cli` read a protocol's properties from its row, and do not test its name.

use std::fs;

use longhaul_proto::registry;

use super::{none, root, sources};

/// The protocol that a line names, as a string or by its folder in `longhaul_proto`.
fn named(line: &str) -> Option<&'static str> {
    let code = line.split("//").next().unwrap_or_default();
    let is_string = |name: &str| code.contains(&format!("\"{name}\""));
    let is_folder = |name: &str| {
        ["::", ";"].iter().any(|end| code.contains(&format!("longhaul_proto::{name}{end}")))
    };
    let mut names = registry::all().iter().map(|row| row.name);
    names.find(|name| is_string(name) || is_folder(protocol(name)))
}

/// The protocol of a name: `fobs` for `fobs` and for its variant `fobs-table`.
fn protocol(name: &str) -> &str {
    name.split('-').next().unwrap_or(name)
}

fn page(name: &str) -> String {
    format!("docs/protocols/{}.md", protocol(name))
}

#[test]
fn every_protocol_has_a_page_with_its_name_flags_and_experiments() {
    let mut found = Vec::new();
    for row in registry::all() {
        let page = page(row.name);
        let text = fs::read_to_string(root().join(&page)).unwrap_or_default();
        let flags = row.options.iter().map(|option| format!("`{}`", option.name));
        let experiments = row.experiments.iter().map(|name| format!("`{name}`"));
        let words = [row.title.to_owned()].into_iter().chain(flags).chain(experiments);
        found.extend(words.filter(|w| !text.contains(w)).map(|w| format!("{page} lacks {w}")));
    }
    none(found, "a protocol is documented");
}

#[test]
fn every_protocol_has_its_own_tests() {
    let tests = |name: &str| root().join(format!("crates/proto/src/{}/tests.rs", protocol(name)));
    let rows = registry::all().iter();
    let lost = rows
        .filter(|row| !tests(row.name).is_file() && !tests(row.name).with_extension("").is_dir());
    none(lost.map(|row| row.name.to_owned()).collect(), "a protocol has tests");
}

#[test]
fn transfer_and_cli_do_not_branch_on_a_protocols_name() {
    let crates = ["crates/transfer/src/", "crates/cli/src/"];
    let of_them = |path: &str| crates.iter().any(|of| path.starts_with(of));
    let code = sources().into_iter().filter(|file| of_them(&file.path) && !file.is_test());
    let code: Vec<_> = code.collect();
    assert!(code.len() > 100, "the walk found only {} sources", code.len());
    let mut found = Vec::new();
    for file in &code {
        for (number, line) in file.code().into_iter().enumerate() {
            found.extend(named(line).map(|name| format!("{}:{}: {name}", file.path, number + 1)));
        }
    }
    none(found, "code reads a protocol's properties from its row, and does not test its name");
}

#[test]
fn a_protocol_is_found_by_string_and_by_folder() {
    assert_eq!(named("if row.name == \"netblt\" {"), Some("netblt"));
    assert_eq!(named("use longhaul_proto::tsunami::ROW;"), Some("tsunami"));
    assert_eq!(named("let row = find(name); // never \"gtp\""), None);
    assert_eq!(named("\"rbudp's\""), None);
}
