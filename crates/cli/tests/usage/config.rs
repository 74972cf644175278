//! Defaults from a file.

use std::fs;

use tempfile::TempDir;

use super::{Run, longhaul_in};

fn with(text: &str, args: &[&str]) -> (Run, TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("config.toml"), text).expect("it can be written");
    (longhaul_in(folder.path(), args), folder)
}

#[test]
fn a_mistake_names_file_line_and_the_nearest_key() {
    let (run, _folder) = with("[cp]\n\nbwlimt = \"5M\"\n", &["cp", "a", "h:b"]);
    run.is_refused(&["config.toml:3: unknown key 'bwlimt'", "did you mean 'bwlimit'?"]);
    let (run, _folder) = with("[cp]\nbwlimit = 5\n", &["cp", "a", "h:b"]);
    run.is_refused(&["config.toml:2: ", "names no unit"]);
    let (run, _folder) = with("[cp\n", &["cp", "a", "h:b"]);
    run.is_refused(&["config.toml:1: "]);
}

#[test]
fn the_defaults_are_shown_with_their_lines() {
    let text = "[cp]\nrate = \"940M\"\nexclude = [\".git\"]\n";
    let (run, folder) = with(text, &["cp", "--show-config"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let file = folder.path().join("config.toml");
    let expected = format!("--exclude=.git  # {0}:3\n--rate=940M  # {0}:2\n", file.display());
    assert_eq!(run.stdout, expected);
}

#[test]
fn flags_win_over_the_file() {
    let text = "[cp]\nmemory = \"32Mi\"\n";
    let (run, _folder) = with(text, &["cp", "--memory=1Mi", "h:a", "b"]);
    run.is_refused(&["--memory 1.05 MB"]);
}

#[test]
fn help_needs_no_sound_file() {
    let (run, _folder) = with("[cp\n", &["cp", "--help"]);
    assert_eq!(run.status, 0);
}
