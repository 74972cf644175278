//! A test that this host cannot run prints that it was skipped.

use super::{none, sources};

/// Numbers of the lines on which a test function returns without a value.
fn returns(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let is_test = |line: &str| line == "#[test]" || line.starts_with("#[tokio::test");
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate().filter(|(_, line)| is_test(line.trim())) {
        // rustfmt indents the closing brace of a function like its attribute.
        let closing = format!("{}}}", " ".repeat(line.len() - line.trim_start().len()));
        let body = lines.iter().enumerate().skip(start).take_while(|(_, line)| **line != closing);
        let returns =
            |line: &str| ["return;", "return }", "return,"].iter().any(|end| line.contains(end));
        found.extend(body.filter(|(_, line)| returns(line)).map(|(at, _)| at + 1));
    }
    found
}

#[test]
fn a_test_returns_early_only_through_the_need_macro_which_prints_the_reason() {
    let mut found = Vec::new();
    for file in sources() {
        found.extend(returns(&file.text).iter().map(|line| format!("{}:{line}", file.path)));
    }
    none(found, "a test returns silently; skip it with need! (crates/testbed/src/skip.rs)");
}

#[test]
fn only_the_module_for_skips_prints_that_a_test_is_skipped() {
    let word = ["SKIP", "PED"].concat();
    // The second file does not print the word, but looks for it in the output of a test.
    let allowed = ["crates/testbed/src/skip.rs", "crates/cli/tests/files/on_disk.rs"];
    let all = sources().into_iter().filter(|file| file.text.contains(&word));
    let found: Vec<String> = all.map(|file| file.path).collect();
    assert!(found.contains(&allowed[0].to_owned()), "nothing prints {word}");
    let others = found.into_iter().filter(|path| !allowed.contains(&path.as_str())).collect();
    none(others, "a test prints its own skip; use need! (crates/testbed/src/skip.rs)");
}

#[test]
fn a_return_is_found_in_tests_and_nowhere_else() {
    let text = "fn other() {\n    END;\n}\n\nTEST\nfn test() {\n    \
        let Some(a) = b else { END };\n    if c {\n        END;\n    }\n    need!(d);\n}\n\n\
        fn last() {\n    END;\n}\n";
    let text = text.replace("END", "return");
    assert_eq!(returns(&text.replace("TEST", "#[test]")), [7, 9]);
    assert_eq!(returns(&text), [0; 0]);
}
