//! Runs programs under strace, which delays system calls or lets them fail, as a slow, hanging or
//! broken disk does.

use std::process::Command;

use super::skip::{self, Skipped};

/// Delay of a call that counts as a hanging disk, in microseconds (60 s).
pub(crate) const HANGS: u32 = 60_000_000;

/// Returns the words to put before a command line, so that each `call` of the program takes
/// `micros` microseconds longer. Skips the test if strace cannot run.
pub(crate) fn slow_calls(call: &str, micros: u32) -> Result<Vec<String>, Skipped> {
    inject(call, &format!("delay_exit={micros}"))
}

/// Like [`slow_calls`], but each of `calls` fails with EIO.
pub(crate) fn failing_calls(calls: &str) -> Result<Vec<String>, Skipped> {
    inject(calls, "error=EIO")
}

fn inject(calls: &str, fault: &str) -> Result<Vec<String>, Skipped> {
    let (inject, trace) = (format!("inject={calls}:{fault}"), format!("trace={calls}"));
    let words = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    let words: Vec<String> = words.map(str::to_owned).to_vec();
    let tried = Command::new(&words[0]).args(&words[1..]).arg("true").output();
    if tried.is_ok_and(|output| output.status.success()) {
        return Ok(words);
    }
    Err(skip::uninstalled("strace, which makes a disk slow, cannot run here"))
}

pub(crate) fn as_words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// The process that strace started.
pub(crate) fn traced(strace: u32) -> u32 {
    let children = format!("/proc/{strace}/task/{strace}/children");
    let children = std::fs::read_to_string(children).expect("it runs");
    let child = children.split_whitespace().next().and_then(|id| id.parse().ok());
    child.expect("strace has started it")
}
