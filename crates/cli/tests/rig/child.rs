//! A child process whose output lines are read as they arrive.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT};

use super::DEADLINE;

/// A running child; killed when dropped.
pub(crate) struct Child {
    child: process::Child,
    /// Whether the child leads a process group, which is killed with it.
    leads: bool,
    lines: Lines,
    errors: Lines,
    seen: Vec<String>,
    complaints: Vec<String>,
}

/// The lock only makes a child `Sync`; it is never contended.
struct Lines(Mutex<Receiver<String>>);

impl Lines {
    fn get(&mut self) -> &Receiver<String> {
        self.0.get_mut().expect("no holder panics")
    }
}

#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit status; `None` if a signal ended the child.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: Vec<String>,
    pub(crate) stderr: String,
}

impl Child {
    /// Starts `command`, whose stdout and stderr must be piped.
    pub(crate) fn spawn(command: &mut Command) -> Child {
        undo_ignored_signals();
        let child = command.process_group(0).spawn().expect("the program can be started");
        let mut child = Child::adopt(child);
        child.leads = true;
        child
    }

    pub(crate) fn adopt(mut child: process::Child) -> Child {
        let lines = lines(child.stdout.take().expect("stdout is piped"));
        let errors = lines_of_errors(&mut child);
        Child { child, leads: false, lines, errors, seen: Vec::new(), complaints: Vec::new() }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line of stdout; `None` when the child has closed it.
    pub(crate) fn line(&mut self) -> Option<String> {
        match self.lines.get().recv_timeout(DEADLINE) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => self.give_up("no line came"),
        }
    }

    pub(crate) fn event(&mut self, is: impl Fn(&Value) -> bool) -> Value {
        while let Some(line) = self.line() {
            let event = serde_json::from_str(&line).unwrap_or_default();
            if is(&event) {
                return event;
            }
        }
        self.give_up("it ended before the expected event")
    }

    /// Waits until a copy reports at least `bytes` copied bytes, but not all.
    pub(crate) fn progressed(&mut self, bytes: u64) -> Value {
        self.event(|event| {
            let told = event["bytes"].as_u64().unwrap_or_default();
            event["event"] == "progress" && told >= bytes && event["total_bytes"] != told
        })
    }

    pub(crate) fn complaint(&mut self, text: &str) -> String {
        loop {
            match self.errors.get().recv_timeout(DEADLINE) {
                Ok(line) => {
                    self.complaints.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(error) => self.give_up(&format!("no {text:?} on stderr ({error})")),
            }
        }
    }

    pub(crate) fn say(&mut self, text: &str) {
        let stdin = self.child.stdin.as_mut().expect("stdin is piped");
        stdin.write_all(text.as_bytes()).expect("the child reads");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send_signal(self.id(), signal);
    }

    /// Sends SIGKILL to the process group, like a shell's `kill -9 %1`.
    pub(crate) fn kill_group(&self) {
        assert!(self.leads, "this child has no group; the signal would end the tests");
        kill_process_group(pid(self.id()), Signal::KILL).expect("it may be killed");
    }

    pub(crate) fn kill(mut self) -> Ended {
        self.child.kill().expect("it may be killed");
        self.end()
    }

    /// Waits for the child's end; returns all of its output.
    pub(crate) fn end(mut self) -> Ended {
        self.ended()
    }

    /// Like [`Child::end`], for a borrowed child.
    pub(crate) fn ended(&mut self) -> Ended {
        while self.line().is_some() {}
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.errors.get().recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(line) => self.complaints.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => self.give_up("it did not end"),
            }
        }
        let status = self.reap().code();
        let stdout = std::mem::take(&mut self.seen);
        Ended { status, stdout, stderr: self.complaints.join("\n") }
    }

    /// Waits for the child's end, kills the rest of its process group, and only then reaps the
    /// child: the kernel may give the id of a reaped child to a group of other processes.
    fn reap(&mut self) -> ExitStatus {
        if std::mem::take(&mut self.leads) {
            let (child, options) = (pid(self.id()), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            let ended = retry_on_intr(|| waitid(WaitId::Pid(child), options));
            ended.expect("a child can be waited for");
            let _ = kill_process_group(child, Signal::KILL);
        }
        self.child.wait().expect("a child can be waited for")
    }

    fn give_up(&mut self, why: &str) -> ! {
        let _ = self.child.kill();
        self.reap();
        while let Ok(line) = self.errors.get().recv_timeout(Duration::from_secs(1)) {
            self.complaints.push(line);
        }
        let (seen, complaints) = (self.seen.join("\n"), self.complaints.join("\n"));
        panic!("{why}\nstdout:\n{seen}\nstderr:\n{complaints}");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.child.kill();
        self.reap();
    }
}

impl Ended {
    /// Asserts the exit status, and that stderr has all of `words`.
    #[track_caller]
    pub(crate) fn is(&self, status: i32, words: &[&str]) -> &Ended {
        assert_eq!(self.status, Some(status), "{self}");
        for word in words {
            assert!(self.stderr.contains(word), "no {word:?} in {self}");
        }
        self
    }

    #[track_caller]
    pub(crate) fn last(&self) -> Value {
        let line = self.stdout.last().unwrap_or_else(|| panic!("nothing on stdout: {self}"));
        serde_json::from_str(line).unwrap_or_else(|_| panic!("the last line is no JSON: {self}"))
    }

    /// The summary of a completed copy.
    #[track_caller]
    pub(crate) fn summary(&self) -> Value {
        let last = self.is(0, &[]).last();
        assert_eq!(last["event"], "summary", "{self}");
        last
    }

    /// Bytes that the last attempt found already copied.
    pub(crate) fn taken_up(&self) -> u64 {
        let last = self.events("resumed").pop();
        last.and_then(|event| event["bytes"].as_u64()).unwrap_or(0)
    }

    pub(crate) fn events(&self, name: &str) -> Vec<Value> {
        let all = self.stdout.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        all.filter(|event| event["event"] == name).collect()
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stdout = self.stdout.join("\n");
        write!(f, "status {:?}\nstdout:\n{stdout}\nstderr:\n{}", self.status, self.stderr)
    }
}

/// Lets SIGINT and SIGHUP end children, even if this test run ignores these signals, as under
/// `nohup`. Children inherit ignored signals, but a signal with a handler here has the default
/// action in a child.
pub(super) fn undo_ignored_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        for signal in [SIGINT, SIGHUP].into_iter().filter(|signal| mask & 1 << (signal - 1) != 0) {
            signal_hook::flag::register(signal, Arc::default()).expect("it may be caught");
        }
    });
}

pub(crate) fn send_signal(id: u32, signal: Signal) {
    kill_process(pid(id), signal).expect("it may be signalled");
}

fn pid(id: u32) -> Pid {
    i32::try_from(id).ok().and_then(Pid::from_raw).expect("a child has a number")
}

fn lines(from: impl Read + Send + 'static) -> Lines {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line);
            if sender.send(text.trim_end_matches('\n').to_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    Lines(Mutex::new(receiver))
}

fn lines_of_errors(child: &mut process::Child) -> Lines {
    lines(child.stderr.take().expect("stderr is piped"))
}
