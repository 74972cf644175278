//! Vague words in the names of files, modules, types and traits, and `get_` in functions.

use super::{none, sources};

/// Vague words, each with what a name should say instead.
const EMPTY: [(&str, &str); 9] = [
    ("util", "what it does"),
    ("utils", "what it does"),
    ("helper", "what it does"),
    ("helpers", "what it does"),
    ("manager", "what it decides"),
    ("common", "what is shared"),
    ("misc", "a file for each thing"),
    ("process", "the verb that is meant"),
    ("bandwidth", "capacity or rate"),
];

fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if letter == '_' || letter == '-' || letter.is_uppercase() {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words.last_mut().expect("one was pushed").extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The name that a line declares as a module, a type or a trait.
fn declared(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    while let Some(after) =
        ["pub ", "pub(crate) ", "pub(super) "].iter().find_map(|p| rest.strip_prefix(p))
    {
        rest = after;
    }
    let kinds = ["mod ", "struct ", "enum ", "trait ", "type "];
    let name = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    Some(&name[..end])
}

#[test]
fn no_file_module_or_type_has_a_vague_name() {
    let mut found = Vec::new();
    for file in sources() {
        let stem = file.path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs"));
        for name in stem.into_iter().chain(file.text.lines().filter_map(declared)) {
            for (word, better) in
                EMPTY.iter().filter(|(word, _)| words(name).contains(&(*word).into()))
            {
                found.push(format!("{}: '{name}': for '{word}' write {better}", file.path));
            }
        }
    }
    none(found, "a name says what the thing is");
}

#[test]
fn no_function_has_the_prefix_get() {
    let mut found = Vec::new();
    for file in sources() {
        let lines = file.text.lines().enumerate();
        let calls = lines.filter(|(_, line)| line.trim_start().contains("fn get_"));
        found.extend(calls.map(|(number, _)| format!("{}:{}", file.path, number + 1)));
    }
    found.retain(|place| !place.contains("tests/tidy/names.rs"));
    none(found, "a function is named after the value that it returns, without get_");
}

#[test]
fn names_are_found_and_split_into_words() {
    assert_eq!(words("LossManager"), ["loss", "manager"]);
    assert_eq!(words("net_utils"), ["net", "utils"]);
    assert_eq!(declared("    pub(crate) struct Meter<'a> {"), Some("Meter"));
    assert_eq!(declared("let mode = 1;"), None);
}
