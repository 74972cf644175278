//! Failures to write to stdout.

use std::fs::File;
use std::process::{Command, Stdio};

/// Commands that print; together they use `console::out` and `console::out_whole`.
const PRINTING: [&[&str]; 3] = [&["reproduce", "list"], &["completions", "bash"], &["man", "sim"]];

fn printing_to(args: &[&str], stdout: impl Into<Stdio>) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.env("LONGHAUL_CONFIG_DIR", "/nonexistent/longhaul").env("NO_COLOR", "1");
    let output = command.args(args).stdout(stdout).output().expect("the binary runs");
    (output.status.code(), String::from_utf8(output.stderr).expect("output is UTF-8"))
}

#[test]
fn output_to_a_full_disk_is_an_error() {
    for args in PRINTING {
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let (status, stderr) = printing_to(args, full);
        assert_eq!(status, Some(4), "{args:?}: {stderr}");
        assert!(stderr.contains("stdout cannot be written: No space left"), "{stderr}");
        assert_eq!(stderr.matches("stdout").count(), 1, "said once: {stderr}");
    }
}

#[test]
fn a_pipe_that_its_reader_closed_is_no_error() {
    for args in PRINTING {
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        drop(reader);
        let (status, stderr) = printing_to(args, writer);
        assert_eq!((status, stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}
