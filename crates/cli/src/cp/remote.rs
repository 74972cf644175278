//! A copy between two other hosts. This host starts the copy on one of them (the runner) by ssh,
//! shows the copy's events, and can end the copy. The data go directly between the two other hosts.

mod command;
mod parse;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use longhaul::{CancelHandle, Event, Summary};
use serde_json::Value;

pub(super) use command::{Plan, plan};

use crate::error::{Error, ErrorKind};
use crate::plain;
use crate::screen::Screen;

/// Poll interval for cancellation.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time for a cancelled copy to end on the runner. Then this host kills ssh.
const ENDING: Duration = Duration::from_secs(10);
/// Limit of a line in bytes; the rest of a longer line is dropped.
const MAX_LINE: u64 = 1 << 20;
/// Limit of queued lines.
const WAITING: usize = 64;
/// Approximate limit of [`Run::noise`], in characters.
const MAX_NOISE: usize = 500;

/// A line of ssh's output.
enum Line {
    Out(Vec<u8>),
    Err(Vec<u8>),
}

/// The copy on the runner.
struct Run<'a> {
    plan: &'a Plan,
    screen: &'a Screen,
    cancel: &'a CancelHandle,
    /// Whether the runner has reported an event.
    began: bool,
    /// Output of ssh and of the runner except events, for error messages.
    noise: String,
    /// The copy's result, once reported: the summary and its line for `--json`, or the error.
    last: Option<Result<(Summary, String), Error>>,
}

/// Runs the copy. Returns the copy's summary, and the summary as a line for `--json`.
pub(super) fn run(
    plan: &Plan,
    screen: &Arc<Screen>,
    cancel: &CancelHandle,
) -> Result<(Summary, String), Error> {
    let mut ssh = start(plan)?;
    let (sender, lines) = mpsc::sync_channel(WAITING);
    forward(ssh.stdout.take(), Line::Out, &sender)?;
    forward(ssh.stderr.take(), Line::Err, &sender)?;
    drop(sender);
    let stdin = ssh.stdin.take().map(|stdin| send_list(stdin, &plan.list));
    let mut run = Run { plan, screen, cancel, began: false, noise: String::new(), last: None };
    run.follow(&lines, stdin, &mut ssh);
    let status = ssh.wait().map_err(|error| local(format!("cannot wait for ssh: {error}")))?;
    run.last.take().unwrap_or_else(|| Err(run.without_end(status.code())))
}

fn local(what: String) -> Error {
    Error::new(ErrorKind::LocalFile, what)
}

fn start(plan: &Plan) -> Result<Child, Error> {
    let mut command = plan.command();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|error| {
        let what = format!("cannot start `{}`: {error}", command.get_program().display());
        Error::new(ErrorKind::Unreachable, what).advise("install ssh, or name a client with -e")
    })
}

/// Starts a thread that sends the lines of `from` to [`Run::follow`].
fn forward(
    from: Option<impl Read + Send + 'static>,
    line: fn(Vec<u8>) -> Line,
    sender: &SyncSender<Line>,
) -> Result<(), Error> {
    let Some(from) = from else { return Ok(()) };
    let sender = sender.clone();
    let reading = move || {
        let mut from = BufReader::new(from);
        while let Ok(Some(text)) = read_line(&mut from) {
            if sender.send(line(text)).is_err() {
                return;
            }
        }
    };
    let started = thread::Builder::new().name("remote copy".into()).spawn(reading);
    started.map(drop).map_err(|error| local(format!("cannot start a thread: {error}")))
}

/// Reads a line without its line end, truncated if it is too long.
fn read_line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    let read = from.by_ref().take(MAX_LINE).read_until(b'\n', &mut text)?;
    if text.last() == Some(&b'\n') {
        text.pop();
    } else if read as u64 == MAX_LINE {
        from.skip_until(b'\n')?;
    }
    Ok((read > 0).then_some(text))
}

/// Starts a thread that sends the list of `--files-from`. The thread then hands over the open pipe,
/// because closing the pipe cancels the copy.
fn send_list(mut stdin: ChildStdin, list: &[u8]) -> Receiver<ChildStdin> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let list = list.to_owned();
    thread::spawn(move || {
        // A failed write means that ssh has ended, which `run` reports.
        let _ = stdin.write_all(&list).and_then(|()| stdin.flush());
        let _ = sender.send(stdin);
    });
    receiver
}

impl Run<'_> {
    /// Shows events until the runner's output ends. When the user cancels, drops `stdin`, so that
    /// the runner ends the copy. If the output has not ended after [`ENDING`], kills ssh.
    fn follow(
        &mut self,
        lines: &Receiver<Line>,
        mut stdin: Option<Receiver<ChildStdin>>,
        ssh: &mut Child,
    ) {
        let mut ends_by = None;
        loop {
            if self.cancel.is_cancelled() && ends_by.is_none() {
                ends_by = Some(Instant::now() + ENDING);
                drop(stdin.take());
            }
            match lines.recv_timeout(LOOK_EVERY) {
                Ok(Line::Out(line)) => self.output(&line),
                Ok(Line::Err(line)) => self.complaint(&line),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if ends_by.is_some_and(|by| Instant::now() >= by) {
                // The process may already have ended.
                let _ = ssh.kill();
                return;
            }
        }
    }

    /// Handles an event, or output of the runner's shell.
    fn output(&mut self, line: &[u8]) {
        let value: Value = serde_json::from_slice(line).unwrap_or_default();
        let Some(name) = value["event"].as_str().map(str::to_owned) else {
            return self.keep(line);
        };
        self.began = true;
        match name.as_str() {
            "start" => {
                let protocol = plain::text(value["protocol"].as_str().unwrap_or_default());
                self.screen.started(&self.plan.sources, &self.plan.destination, &protocol);
            }
            "summary" => self.last = Some(Ok((parse::summary(&value), value.to_string()))),
            "error" => self.last = Some(Err(self.explain(parse::error(&value)))),
            "sample" => self.screen.relay_sample(&value.to_string()),
            _ => {
                if let Some(event) = parse::event(&value) {
                    self.screen.relay(event, || value.to_string());
                }
            }
        }
    }

    /// Handles a line of standard error, of the local ssh or of the runner.
    fn complaint(&mut self, line: &[u8]) {
        self.keep(line);
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end();
        if !text.is_empty() {
            self.screen.see(Event::Warning(format!("{}: {text}", self.plan.runner)));
        }
    }

    fn keep(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let room = MAX_NOISE.saturating_sub(self.noise.len());
        let gap = if self.noise.is_empty() { "" } else { "; " };
        self.noise.extend(gap.chars().chain(text.trim().chars()).take(room));
    }

    /// Rewrites the runner's error from this host's point of view.
    fn explain(&self, mut error: Error) -> Error {
        let runner = &self.plan.runner;
        if error.kind == ErrorKind::Usage && error.what.contains(command::WATCH) {
            let what = format!(
                "longhaul on {runner} is older than on this host, and cannot run a copy for it"
            );
            return Error::new(ErrorKind::Unreachable, what)
                .advise("install the same release there");
        }
        error.kind = match error.kind {
            // Source and destination are on other hosts.
            ErrorKind::LocalFile => ErrorKind::RemoteFile,
            ErrorKind::Cancelled if !self.cancel.is_cancelled() => ErrorKind::Unfinished,
            kind => kind,
        };
        if error.kind == ErrorKind::Unreachable && error.what.starts_with("ssh cannot reach") {
            error.advice = Some(format!(
                "see the message of ssh above; {runner} must reach the other host by ssh, with a \
                 key of {runner}, or with your agent's key (-e 'ssh -A')"
            ));
        }
        error.what = format!("on {runner}: {}", error.what);
        error
    }

    /// The error of a copy whose output ended without a `summary` or `error` event.
    fn without_end(&self, status: Option<i32>) -> Error {
        let runner = &self.plan.runner;
        let said = match self.noise.is_empty() {
            true => String::new(),
            false => format!(" (it said: {})", self.noise),
        };
        let unreachable = |what: String| Error::new(ErrorKind::Unreachable, what);
        match status {
            _ if self.cancel.is_cancelled() => Error::new(ErrorKind::Cancelled, "interrupted"),
            _ if self.began => {
                let what = format!("ssh to {runner} ended before the copy there{said}");
                Error::new(ErrorKind::Unfinished, what)
            }
            Some(255) => unreachable(format!("ssh cannot reach {runner}{said}"))
                .advise(format!("try `ssh {runner}` by itself")),
            status => {
                let status = status.map_or("a signal".to_owned(), |code| format!("status {code}"));
                let path = &self.plan.remote_path;
                unreachable(format!("`{path}` does not run on {runner}: {status}{said}")).advise(
                    "install longhaul there, or give its path with --remote-path".to_owned(),
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_beyond_the_limit_is_truncated_and_the_next_line_is_read_whole() {
        let long = vec![b'x'; 3 * MAX_LINE as usize];
        let mut from = io::Cursor::new([&long[..], b"\nnext\n\nlast"].concat());
        assert_eq!(read_line(&mut from).unwrap().unwrap().len() as u64, MAX_LINE);
        for expected in [&b"next"[..], b"", b"last"] {
            assert_eq!(read_line(&mut from).unwrap().unwrap(), expected);
        }
        assert_eq!(read_line(&mut from).unwrap(), None);
    }
}
