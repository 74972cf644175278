//! Values from outside that go before those of the file: `--seed`, `--sweep`.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::section::FileError;

/// Puts `value` at `path` in `table`.
///
/// A path is keys with dots between. A list's entry is its place, from 0, or its name (a link's:
/// its ends with a hyphen), or `*` for all: `seed`, `topology.bottleneck.loss`, `link.0.rate`,
/// `flow.*.size`.
pub(super) fn set(table: &mut DeTable<'_>, path: &str, value: &str) -> Result<(), FileError> {
    let words: Vec<&str> = path.split('.').collect();
    match in_table(table, &words, value) {
        true => Ok(()),
        false => {
            let what = format!("the scenario has no '{path}' to set");
            Err(FileError { line: None, what, advice: None })
        }
    }
}

fn in_table(table: &mut DeTable<'_>, words: &[&str], value: &str) -> bool {
    let new = || Spanned::new(0..0, DeValue::String(Cow::Owned(value.to_owned())));
    match words {
        [] => false,
        [key] => {
            match table.get_mut(*key) {
                Some(place) => *place = new(),
                None => {
                    let key = Spanned::new(0..0, Cow::Owned((*key).to_owned()));
                    table.insert(key, new());
                }
            }
            true
        }
        [key, rest @ ..] => {
            table.get_mut(*key).is_some_and(|place| in_value(place.get_mut(), rest, value))
        }
    }
}

fn in_value(place: &mut DeValue<'_>, words: &[&str], value: &str) -> bool {
    match place {
        DeValue::Table(table) => in_table(table, words, value),
        DeValue::Array(list) => {
            let Some((which, rest)) = words.split_first() else { return false };
            let mut found = false;
            for (nth, entry) in list.iter_mut().enumerate() {
                let entry = entry.get_mut();
                if *which == "*" || which.parse() == Ok(nth) || is_named(entry, which) {
                    found |= in_value(entry, rest, value);
                }
            }
            found
        }
        _ => false,
    }
}

/// Whether an entry's name is `name`, or its ends are, with a hyphen between.
fn is_named(entry: &DeValue<'_>, name: &str) -> bool {
    let text = |key: &str| entry.as_table()?.get(key)?.get_ref().as_str();
    let ends = || {
        let ends = entry.as_table()?.get("between")?.get_ref().as_array()?;
        let ends = ends.iter().map(|end| end.get_ref().as_str());
        Some(ends.collect::<Option<Vec<_>>>()?.join("-"))
    };
    text("name") == Some(name) || ends().as_deref() == Some(name)
}
