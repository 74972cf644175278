//! The library's texts name options of its calls, not flags: programs that embed the library have
//! no flags.

use super::{files, none};

const CRATES: [&str; 6] = ["text", "net", "files", "session", "transfer", "longhaul"];

/// Parts of the command that the client sends to the shell of an ssh host. No user reads them.
const COMMAND: [&str; 3] =
    ["\" serve --ssh\"", "\" --ports {first}-{last}\"", "[\"--rooms\".to_owned()"];

/// Whether a line has a flag in a literal. This need not look for quotes, because code outside of
/// literals and comments has no `--` before a letter.
fn names_a_flag(line: &str) -> bool {
    let code = line.trim_start();
    if code.starts_with("//") || COMMAND.iter().any(|command| code.contains(command)) {
        return false;
    }
    let code = code.split(" // ").next().unwrap_or_default();
    code.match_indices("--").any(|(at, _)| {
        let after = code[at + 2..].chars().next();
        let before = code[..at].chars().next_back();
        after.is_some_and(|c| c.is_ascii_lowercase()) && before.is_none_or(|c| c != '-')
    })
}

#[test]
fn no_text_of_the_library_names_a_flag() {
    let mut found = Vec::new();
    for name in CRATES {
        for file in files(&format!("crates/{name}/src"), "rs") {
            if file.is_test() {
                continue;
            }
            let lines = file.code().into_iter().enumerate();
            let flags = lines.filter(|(_, line)| names_a_flag(line));
            found.extend(flags.map(|(at, _)| format!("{}:{}", file.path, at + 1)));
        }
    }
    none(found, "the library names its options by CallOption");
}

#[test]
fn a_flag_is_found_in_a_literal_and_not_in_a_comment() {
    assert!(names_a_flag("    advise(\"give --memory more\")"));
    assert!(names_a_flag("--memory: nothing is written then\","));
    assert!(!names_a_flag("/// As `--memory`."));
    assert!(!names_a_flag("let a = b - -c; // --memory"));
    assert!(!names_a_flag("command.push_str(\" serve --ssh\");"));
    assert!(!names_a_flag("a line ---- of dashes"));
}
