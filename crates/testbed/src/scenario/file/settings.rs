//! Overrides: values from outside the file (`--sweep`, an experiment's cases) that replace the
//! file's values.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::section::{FileError, list};

/// Sets `value` at `path` in `table`.
///
/// A path is keys separated by dots. It selects an entry of a list by the index from 0 or by the
/// name; a link is also named by its two ends, joined by a hyphen. `*` selects all entries.
/// Examples: `seed`, `topology.bottleneck.loss`, `link.0.rate`, `flow.*.size`.
pub(super) fn set(table: &mut DeTable<'_>, path: &str, value: &str) -> Result<(), FileError> {
    let words: Vec<&str> = path.split('.').collect();
    in_table(table, &words, value).map_err(|has| {
        let what = format!("the scenario has no '{path}' to set");
        let advice = (!has.is_empty())
            .then(|| format!("choose one of {}", list(has.iter().map(String::as_str))));
        FileError { line: None, what, advice }
    })
}

/// Tables that a path may create.
const MAY_BE_NEW: [&str; 4] = ["settings", "back", "all-hosts", "all-links"];

type Missing = Vec<String>;

fn in_table(table: &mut DeTable<'_>, words: &[&str], value: &str) -> Result<(), Missing> {
    let put = |table: &mut DeTable<'_>, key: &str, value| {
        let key = Spanned::new(0..0, Cow::Owned(key.to_owned()));
        table.insert(key, Spanned::new(0..0, value));
    };
    let keys = |table: &DeTable<'_>| table.keys().map(|key| key.get_ref().to_string()).collect();
    match words {
        [] => Err(keys(table)),
        [key] => {
            let new = DeValue::String(Cow::Owned(value.to_owned()));
            match table.get_mut(*key) {
                Some(place) => *place = Spanned::new(0..0, new),
                None => put(table, key, new),
            }
            Ok(())
        }
        [key, rest @ ..] => {
            if !table.contains_key(*key) && MAY_BE_NEW.contains(key) {
                put(table, key, DeValue::Table(DeTable::new()));
            }
            match table.get_mut(*key) {
                Some(place) => in_value(place.get_mut(), rest, value),
                None => Err(keys(table)),
            }
        }
    }
}

fn in_value(place: &mut DeValue<'_>, words: &[&str], value: &str) -> Result<(), Missing> {
    match place {
        DeValue::Table(table) => in_table(table, words, value),
        DeValue::Array(entries) => {
            let names: Missing = entries.iter().enumerate().map(named).collect();
            let Some((which, rest)) = words.split_first() else { return Err(names) };
            let mut found = Err(names);
            for (nth, entry) in entries.iter_mut().enumerate() {
                let entry = entry.get_mut();
                if *which == "*" || which.parse() == Ok(nth) || is_named(entry, which) {
                    in_value(entry, rest, value)?;
                    found = Ok(());
                }
            }
            found
        }
        _ => Err(Vec::new()),
    }
}

/// An entry's name, or else its index.
fn named((nth, entry): (usize, &Spanned<DeValue<'_>>)) -> String {
    let name = entry.get_ref().as_table().and_then(|table| table.get("name"));
    name.and_then(|name| name.get_ref().as_str()).map_or_else(|| nth.to_string(), str::to_owned)
}

/// Whether an entry is called `name`, or is a link between the two ends in `name`.
fn is_named(entry: &DeValue<'_>, name: &str) -> bool {
    let text = |key: &str| entry.as_table()?.get(key)?.get_ref().as_str();
    let ends = || {
        let ends = entry.as_table()?.get("between")?.get_ref().as_array()?;
        let ends = ends.iter().map(|end| end.get_ref().as_str());
        Some(ends.collect::<Option<Vec<_>>>()?.join("-"))
    };
    text("name") == Some(name) || ends().as_deref() == Some(name)
}
