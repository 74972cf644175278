//! Runs programs under strace, which delays system calls or lets them fail, as a slow or broken
//! disk does.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use super::skip::{self, Skipped};

/// Delay of each system call to a disk that hangs, in microseconds (60 s).
pub(crate) const HANGS: u32 = 60_000_000;

/// A delay longer than any test, in microseconds (an hour).
const FOREVER: u32 = 60 * HANGS;

/// Returns the words to put before a command line, so that each `call` of the program takes
/// `micros` microseconds longer.
pub(crate) fn slow_calls(call: &str, micros: u32) -> Result<Vec<String>, Skipped> {
    inject(call, &format!("delay_exit={micros}"))
}

/// Like [`slow_calls`], but in each thread of the program, call number `first` of `call` hangs
/// longer than any test. strace logs the calls to `log`, for [`has_hung`].
pub(crate) fn hanging_calls(call: &str, first: u32, log: &Path) -> Result<Vec<String>, Skipped> {
    slow_calls(call, 0)?;
    let inject = format!("inject={call}:delay_exit={FOREVER}:when={first}+");
    Ok([strace(call, &inject, log), vec!["-qq".to_owned()]].concat())
}

pub(crate) fn has_hung(log: &Path) -> bool {
    std::fs::read_to_string(log).is_ok_and(|calls| calls.contains("(DELAYED)"))
}

/// A running process whose calls hang until this value is dropped.
pub(crate) struct Hanging {
    strace: Child,
    /// Stays open, so that strace can report further threads.
    _said: BufReader<ChildStderr>,
}

impl Hanging {
    /// Lets each `call` of the process `id` hang from now on. strace logs the calls to `log`, for
    /// [`has_hung`].
    pub(crate) fn from_now(id: u32, call: &str, log: &Path) -> Result<Hanging, Skipped> {
        slow_calls(call, 0)?;
        let words = strace(call, &format!("inject={call}:delay_exit={FOREVER}"), log);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["-p", &id.to_string()]);
        let mut strace = command.stderr(Stdio::piped()).spawn().expect("it ran above");
        let mut said = BufReader::new(strace.stderr.take().expect("it is piped"));
        let mut lines = said.by_ref().lines().map_while(Result::ok);
        let attached = lines.any(|line| line.contains("attached"));
        let hanging = Hanging { strace, _said: said };
        if attached {
            Ok(hanging)
        } else {
            Err(skip::forbidden("this user may not trace a process"))
        }
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}

/// Like [`slow_calls`], but each of `calls` fails with EIO.
pub(crate) fn failing_calls(calls: &str) -> Result<Vec<String>, Skipped> {
    inject(calls, "error=EIO")
}

/// Like [`failing_calls`], but only the first of `calls` in each thread fails.
pub(crate) fn failing_first_calls(calls: &str) -> Result<Vec<String>, Skipped> {
    inject(calls, "error=EIO:when=1")
}

fn inject(calls: &str, fault: &str) -> Result<Vec<String>, Skipped> {
    let mut words = strace(calls, &format!("inject={calls}:{fault}"), Path::new("/dev/null"));
    words.push("-qq".to_owned());
    let tried = Command::new(&words[0]).args(&words[1..]).arg("true").output();
    if tried.is_ok_and(|output| output.status.success()) {
        return Ok(words);
    }
    Err(skip::uninstalled("strace, which makes a disk slow, cannot run here"))
}

/// Returns the strace command that logs `calls` to `log` and changes them by `inject`.
fn strace(calls: &str, inject: &str, log: &Path) -> Vec<String> {
    let (log, trace) = (log.display().to_string(), format!("trace={calls}"));
    ["strace", "-f", "-o", &log, "-e", &trace, "-e", inject].map(str::to_owned).to_vec()
}

pub(crate) fn as_words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// The id of the program that the process `strace` started.
pub(crate) fn traced(strace: u32) -> u32 {
    let children = format!("/proc/{strace}/task/{strace}/children");
    let children = std::fs::read_to_string(children).expect("it runs");
    let child = children.split_whitespace().next().and_then(|id| id.parse().ok());
    child.expect("strace has started it")
}
