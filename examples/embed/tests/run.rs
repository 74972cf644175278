//! Runs each example.

use std::fs;
use std::process::Command;

#[test]
fn embed_copies_a_tree_to_its_own_server() {
    let (tree, served) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let from = tree.path().join("tree");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("file"), "content").unwrap();
    let mut embed = Command::new(env!("CARGO_BIN_EXE_embed"));
    assert!(embed.args([&from, served.path()]).status().unwrap().success());
    assert_eq!(fs::read(served.path().join("tree/file")).unwrap(), b"content");
}

#[test]
fn clients_synchronise_their_poses() {
    assert!(Command::new(env!("CARGO_BIN_EXE_poses")).status().unwrap().success());
}

#[test]
fn a_detector_sends_frames_to_an_analysis_program() {
    assert!(Command::new(env!("CARGO_BIN_EXE_detector")).status().unwrap().success());
}
