//! The public items of the crate `longhaul`, listed in `docs/api.txt`, so that a review sees each
//! change of the API.
//!
//! `LONGHAUL_WRITE_API=1 cargo test -p longhaul-cli --test main tidy::api` writes the list. The
//! test relies on rustfmt's layout. The list has no items that macros generate, except those of
//! `stream!`.

mod items;
mod paths;

use std::collections::BTreeMap;
use std::fs;

use super::root;
use items::{Item, public_items};
use paths::{Module, Use};

const LIST: &str = "docs/api.txt";
const WRITE: &str = "LONGHAUL_WRITE_API";

/// Items that a program can name, by their paths.
fn listed() -> BTreeMap<String, Item> {
    let mut found = BTreeMap::new();
    collect("longhaul", &Module::root("longhaul"), &mut found);
    found
}

fn collect(prefix: &str, module: &Module, found: &mut BTreeMap<String, Item>) {
    for item in public_items(module) {
        found.insert(format!("{prefix}::{}", item.name), item);
    }
    for (at, import) in module.uses() {
        let prefix = if at.is_empty() { prefix.to_owned() } else { format!("{prefix}::{at}") };
        match import {
            Use::Glob(path) => {
                collect(&prefix, &module.find(&path).expect("a module of ours"), found);
            }
            Use::Name { path, alias } => {
                let (home, name) = module.definition(&path);
                let items = public_items(&home);
                let item = items.into_iter().find(|item| item.name == name);
                let item = item.unwrap_or_else(|| panic!("{} has no {name}", home.path));
                found.insert(format!("{prefix}::{alias}"), item);
            }
        }
    }
    for name in module.public_modules() {
        let child = module.child(&name).expect("a public module has a file");
        collect(&format!("{prefix}::{name}"), &child, found);
    }
}

fn written() -> String {
    let mut text = String::from(
        "The public items of the crate longhaul. A test compares this list with the source; this\n\
         command writes it:\n\
         LONGHAUL_WRITE_API=1 cargo test -p longhaul-cli --test main tidy::api\n",
    );
    for (path, item) in listed() {
        text.push_str(&format!("\n{path}\n"));
        for line in &item.lines {
            text.push_str(&format!("    {line}\n"));
        }
    }
    text
}

#[test]
fn the_list_of_the_api_agrees_with_the_source() {
    let (path, now) = (root().join(LIST), written());
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, &now).expect("the list can be written");
    }
    let then = fs::read_to_string(&path).unwrap_or_default();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (then, now) = (lines(&then), lines(&now));
    let gone = then.iter().filter(|line| !now.contains(line)).map(|line| format!("- {line}"));
    let new = now.iter().filter(|line| !then.contains(line)).map(|line| format!("+ {line}"));
    let changed: Vec<String> = gone.chain(new).collect();
    assert!(
        then == now,
        "the API changed; if this is intended, describe it in CHANGELOG.md and run\n\
         {WRITE}=1 cargo test -p longhaul-cli --test main tidy::api\n{}",
        changed.join("\n")
    );
}

#[test]
fn the_list_has_public_items_with_their_signatures_but_no_private_fields() {
    let items = listed();
    let has = |path: &str, line: &str| {
        let item = items.get(path).unwrap_or_else(|| panic!("{path} is not listed"));
        assert!(item.lines.iter().any(|known| known.contains(line)), "{path}: {:?}", item.lines);
    };
    has("longhaul::Client", "pub fn builder() -> ClientBuilder");
    has("longhaul::Event", "Progress(Progress)");
    has("longhaul::Event", "#[non_exhaustive]");
    has("longhaul::Events", "pub async fn next(&mut self) -> Option<Event>");
    has("longhaul::CancelHandle", "pub fn cancel(&self)");
    has("longhaul::IntoLocation", "fn into_location(self) -> Result<Location, Error>");
    has("longhaul::Summary", "pub verified: bool");
    has("longhaul::blocking::wait", "pub fn wait<T>(future: impl Future<Output = T>) -> T");
    has("longhaul::units::Rate", "pub const fn from_bps(");
    has("longhaul::DEFAULT_PORT", "pub const DEFAULT_PORT: u16");
    let private = items.values().flat_map(|item| &item.lines).any(|line| line.contains("inner:"));
    assert!(!private, "the list has private fields");
}
