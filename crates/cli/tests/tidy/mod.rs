//! Rules of the source, as tests.

mod api;
mod arrows;
mod docs;
mod flags;
mod lengths;
mod loops;
mod modules;
mod names;
mod purity;
mod registry;
mod skips;
mod wire;

use std::fs;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates/cli has a parent");
    crates.parent().expect("crates has a parent").to_path_buf()
}

struct Text {
    path: String,
    text: String,
}

/// All files below `folder` with this extension, sorted; without hidden names and `target`.
fn files(folder: &str, extension: &str) -> Vec<Text> {
    let root = root();
    let walk = WalkDir::new(root.join(folder)).sort_by_file_name();
    let hidden = |name: &str| name.starts_with('.') || name == "target";
    let entries = walk.into_iter().filter_entry(|entry| {
        entry.depth() == 0 || !entry.file_name().to_str().is_some_and(hidden)
    });
    let mut texts = Vec::new();
    for entry in entries {
        let entry = entry.expect("the source can be read");
        let path = entry.path();
        if entry.file_type().is_file() && path.extension().is_some_and(|e| e == extension) {
            let shown = path.strip_prefix(&root).expect("it was found below the root");
            let shown = shown.to_str().expect("names are UTF-8").to_owned();
            let text = fs::read_to_string(path).expect("the source can be read");
            texts.push(Text { path: shown, text });
        }
    }
    texts
}

/// All Rust sources below `crates` and `fuzz`, tests and benchmarks included.
fn sources() -> Vec<Text> {
    let mut sources = files("crates", "rs");
    sources.extend(files("fuzz", "rs"));
    assert!(sources.len() > 20, "the walk found only {} sources", sources.len());
    sources
}

impl Text {
    /// Whether the whole file is test code.
    fn is_test(&self) -> bool {
        let parts = ["/tests/", "/benches/"];
        self.path.starts_with("fuzz/")
            || self.path.ends_with("/tests.rs")
            || parts.iter().any(|part| self.path.contains(part))
    }

    /// The lines before the unit tests in this file; all lines if this file has none.
    fn code(&self) -> Vec<&str> {
        let lines: Vec<&str> = self.text.lines().collect();
        let test = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].contains("mod ");
        let with_body = |pair: &[&str]| test(pair) && pair[1].ends_with('{');
        let end = lines.windows(2).position(with_body).unwrap_or(lines.len());
        lines[..end].to_vec()
    }
}

/// Fails with all findings, not only the first.
fn none(found: Vec<String>, rule: &str) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}
