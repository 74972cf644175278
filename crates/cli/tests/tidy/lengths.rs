//! Limits on the length of files, functions and lines.

use super::{Text, none, sources};

const FILE: usize = 600;
const FUNCTION: usize = 70;
const COLUMNS: usize = 100;

/// Accepted exceptions: `path` or `path:function`, with the exact number of lines.
const EXCEPTIONS: [(&str, usize); 0] = [];

/// Returns each function with its number of lines. Relies on rustfmt's layout.
fn functions(lines: &[&str]) -> Vec<(String, usize)> {
    let mut functions = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let Some(name) = function_name(line.trim_start()) else { continue };
        let closing = format!("{}}}", " ".repeat(indent));
        let rest = lines[start..].iter();
        // A signature without a body ends in a semicolon before any brace closes.
        let end = rest.clone().position(|line| {
            *line == closing || (line.ends_with(';') && indent_of(line) == indent)
        });
        let one_line = line.ends_with('}');
        let length = if one_line { 1 } else { end.map_or(rest.len(), |end| end + 1) };
        functions.push((name.to_owned(), length));
    }
    functions
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn function_name(line: &str) -> Option<&str> {
    let before = line.split("fn ").next()?;
    let qualifiers = ["pub", "const", "async", "unsafe", "extern", "\"C\""];
    let plain = before
        .split_whitespace()
        .all(|word| qualifiers.contains(&word) || word.starts_with("pub("));
    let after = line.strip_prefix(before)?.strip_prefix("fn ")?;
    let end = after.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (plain && end > 0).then_some(&after[..end])
}

fn long(sources: &[Text]) -> Vec<(String, usize)> {
    let mut long = Vec::new();
    for file in sources.iter().filter(|file| !file.is_test()) {
        let code = file.code();
        if code.len() > FILE {
            long.push((file.path.clone(), code.len()));
        }
        let functions = functions(&code).into_iter().filter(|(_, length)| *length > FUNCTION);
        long.extend(functions.map(|(name, length)| (format!("{}:{name}", file.path), length)));
    }
    long
}

#[test]
fn files_and_functions_stay_short() {
    let long = long(&sources());
    let unknown = long.iter().filter(|(path, length)| !EXCEPTIONS.contains(&(path, *length)));
    let mut found: Vec<String> =
        unknown.map(|(path, length)| format!("{path} has {length} lines")).collect();
    let stale = EXCEPTIONS.iter().filter(|(path, n)| !long.contains(&((*path).to_owned(), *n)));
    found.extend(stale.map(|(path, n)| format!("{path} no longer has {n} lines: fix EXCEPTIONS")));
    none(found, "at most 600 lines of code without tests in a file, and 70 in a function");
}

#[test]
fn no_line_is_longer_than_100_columns() {
    let mut found = Vec::new();
    for file in sources() {
        let lines = file.text.lines().enumerate();
        let wide = lines.filter(|(_, line)| line.chars().count() > COLUMNS);
        found.extend(wide.map(|(number, _)| format!("{}:{}", file.path, number + 1)));
    }
    none(found, "at most 100 columns a line");
}

#[test]
fn lengths_of_files_and_functions_are_measured() {
    let lines = [
        "impl A {",
        "    pub(crate) fn long(",
        "        a: u8,",
        "    ) -> u8 {",
        "        a",
        "    }",
        "",
        "    fn none(&self);",
        "    fn one() {}",
        "}",
        "const fn top() {",
        "    // x",
        "}",
    ];
    let expected = [("long", 5), ("none", 1), ("one", 1), ("top", 3)];
    let expected = expected.map(|(name, length)| (name.to_owned(), length));
    assert_eq!(functions(&lines), expected);
    let fake = vec![Text { path: "x.rs".into(), text: "\n".repeat(FILE + 1) }];
    assert_eq!(long(&fake), [("x.rs".to_owned(), FILE + 1)]);
}
