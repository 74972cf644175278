//! Each protocol of the registry has its page, its tests, and the experiments that it promises.

use std::fs;

use longhaul_proto::registry;

use super::{none, root};

/// The protocol of which `name` is, or is a variant.
fn protocol(name: &str) -> &str {
    name.split('-').next().unwrap_or(name)
}

/// The page on a protocol.
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
fn every_protocol_has_tests_beside_it() {
    let tests = |name: &str| root().join(format!("crates/proto/src/{}/tests.rs", protocol(name)));
    let rows = registry::all().iter();
    let lost = rows
        .filter(|row| !tests(row.name).is_file() && !tests(row.name).with_extension("").is_dir());
    none(lost.map(|row| row.name.to_owned()).collect(), "a protocol has tests");
}
