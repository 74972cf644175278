//! The demo's child processes: a server, and copies to it. Each runs this binary.

use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};
use longhaul::CancelHandle;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::Value;

use super::interrupted;
use crate::exit;

/// The environment variable with a child's configuration folder, which holds the child's identity.
pub(super) const CONFIG_DIR: &str = "LONGHAUL_CONFIG_DIR";
/// Poll interval for cancellation.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const READY_WITHIN: Duration = Duration::from_secs(20);
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// A copy's progress, from one of its reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Half {
    pub(super) bytes: u64,
    pub(super) total_bytes: u64,
}

impl Half {
    /// `None` if the line is no progress report.
    fn of(line: &str) -> Option<Half> {
        let event: Value = serde_json::from_str(line).ok()?;
        let number = |name: &str| event[name].as_u64().unwrap_or_default();
        let half = Half { bytes: number("bytes"), total_bytes: number("total_bytes") };
        (event["event"] == "progress").then_some(half)
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Finished {
    /// Bytes of the tree.
    pub(super) bytes: u64,
    /// Bytes that the first run had copied.
    pub(super) resumed_bytes: u64,
    /// Whether everything was hashed and compared.
    pub(super) verified: bool,
    /// Files that the first run had completed, and that the second run skipped without reading.
    pub(super) unread_files: u64,
    pub(super) cipher: String,
    /// Blocks sent again, and coded symbols.
    pub(super) retransmitted: u64,
    /// Time from start to end of the command.
    pub(super) seconds: f64,
}

pub(super) trait Stage {
    /// `config` is the configuration folder. Stdout is piped.
    fn spawn(&self, config: &Path, words: &[String]) -> io::Result<Child>;
}

/// This host, without an emulated network.
pub(super) struct Here;

impl Stage for Here {
    fn spawn(&self, config: &Path, words: &[String]) -> io::Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(words).env(CONFIG_DIR, config);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
    }
}

/// A child that is killed when dropped.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) struct Server {
    child: Kept,
    lines: Receiver<String>,
    pub(super) address: String,
    pub(super) id: String,
}

/// A copy that can be run several times.
pub(super) struct Copy<'a> {
    /// Host of the client.
    pub(super) stage: &'a dyn Stage,
    /// Configuration folder of the client.
    pub(super) config: &'a Path,
    /// The command as the user would type it after `longhaul`.
    pub(super) words: Vec<String>,
}

/// Creates an identity in the folder `config`, and returns its id.
pub(super) fn id(config: &Path) -> Result<String, Error> {
    let spawned = Here.spawn(config, &["id".to_owned()]);
    let output = spawned.and_then(Child::wait_with_output);
    let output = output.map_err(|error| failed("id", &error.to_string()))?;
    if !output.status.success() {
        return Err(failed("id", &output.status.to_string()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Server {
    /// Serves `root` to `client` at the address `listen`, and waits until the server is ready.
    pub(super) fn start(
        stage: &dyn Stage,
        listen: &str,
        config: &Path,
        root: &Path,
        client: &str,
        cancel: &CancelHandle,
    ) -> Result<Server, Error> {
        let root = root.display().to_string();
        let words = ["serve", "--json", "--listen", listen, "--allow", client, "--root", &root];
        let (child, lines) = spawn(stage, config, &words.map(str::to_owned))?;
        let deadline = Instant::now() + READY_WITHIN;
        let line = next(&lines, cancel, Some(deadline))?;
        let ready: Value = line.and_then(|l| serde_json::from_str(&l).ok()).unwrap_or_default();
        match (ready["address"].as_str(), ready["id"].as_str()) {
            (Some(address), Some(id)) => {
                Ok(Server { child, lines, address: address.into(), id: id.into() })
            }
            _ => Err(failed("serve", "it did not report that it was ready")),
        }
    }

    /// Asks the server to end. Kills the server when it has closed its stdout, or at the deadline.
    pub(super) fn end(self) {
        let pid = i32::try_from(self.child.0.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + ENDS_WITHIN;
        while let Ok(Some(_)) = next(&self.lines, &CancelHandle::default(), Some(deadline)) {}
    }
}

impl Copy<'_> {
    pub(super) fn kill_half_way(&self, cancel: &CancelHandle) -> Result<Half, Error> {
        let (mut child, lines) = self.spawn()?;
        while let Some(line) = next(&lines, cancel, None)? {
            if let Some(half) = Half::of(&line)
                && half.total_bytes > 0
                && half.bytes >= half.total_bytes / 2
            {
                child.0.kill().map_err(|error| failed("cp", &error.to_string()))?;
                return Ok(half);
            }
        }
        Err(ended(&mut child, "it ended before it could be killed"))
    }

    /// Calls `report` with the copied bytes of each progress report.
    pub(super) fn to_the_end(
        &self,
        cancel: &CancelHandle,
        mut report: impl FnMut(u64),
    ) -> Result<Finished, Error> {
        let (mut child, lines) = self.spawn()?;
        let mut last = None;
        while let Some(line) = next(&lines, cancel, None)? {
            if let Some(half) = Half::of(&line) {
                report(half.bytes);
            }
            last = Some(line);
        }
        let summary = last.and_then(|line| serde_json::from_str(&line).ok());
        match (child.0.wait(), summary) {
            (Ok(status), Some(summary)) if status.success() => Ok(summary),
            _ => Err(ended(&mut child, "it did not finish")),
        }
    }

    fn spawn(&self) -> Result<(Kept, Receiver<String>), Error> {
        let words = [self.words.as_slice(), &["--json".to_owned()]].concat();
        spawn(self.stage, self.config, &words)
    }
}

fn spawn(
    stage: &dyn Stage,
    config: &Path,
    words: &[String],
) -> Result<(Kept, Receiver<String>), Error> {
    let spawned = stage.spawn(config, words);
    let mut child = Kept(spawned.map_err(|error| failed(&words[0], &error.to_string()))?);
    let stdout = child.0.stdout.take().expect("every stage pipes stdout");
    Ok((child, lines(stdout)))
}

fn lines(stdout: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        for line in lines {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// `None` when the child closes its stdout, or at the deadline.
fn next(
    lines: &Receiver<String>,
    cancel: &CancelHandle,
    deadline: Option<Instant>,
) -> Result<Option<String>, Error> {
    loop {
        match lines.recv_timeout(LOOK_EVERY) {
            Ok(line) => return Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) if cancel.is_cancelled() => return Err(interrupted()),
            Err(RecvTimeoutError::Timeout) => {
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Ok(None);
                }
            }
        }
    }
}

/// Finds a port P such that P and P+1 are free for UDP, and P for TCP.
pub(super) fn free_port() -> Result<u16, Error> {
    const TRIES: usize = 100;
    let host = Ipv4Addr::LOCALHOST;
    for _ in 0..TRIES {
        let bound = UdpSocket::bind((host, 0)).and_then(|socket| {
            let port = socket.local_addr()?.port();
            let _next = UdpSocket::bind((host, port.saturating_add(1)))?;
            let _tcp = TcpListener::bind((host, port))?;
            Ok(port)
        });
        if let Ok(port) = bound {
            return Ok(port);
        }
    }
    Err(Error::new(ErrorKind::Unreachable, "no two free UDP ports in a row on 127.0.0.1"))
}

fn ended(child: &mut Kept, what: &str) -> Error {
    match child.0.wait() {
        // Ctrl-C reaches the children too, perhaps before this process.
        Ok(status) if status.code() == Some(i32::from(exit::INTERRUPTED)) => interrupted(),
        Ok(status) => failed("cp", &format!("{what} ({status})")),
        Err(error) => failed("cp", &format!("{what} ({error})")),
    }
}

fn failed(name: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unfinished, format!("the demo's own 'longhaul {name}' failed: {why}"))
        .advise("see its output above")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Printed;

    impl Stage for Printed {
        fn spawn(&self, _: &Path, words: &[String]) -> io::Result<Child> {
            Command::new("printf").args(["%s", &words[0]]).stdout(Stdio::piped()).spawn()
        }
    }

    #[test]
    fn only_progress_events_are_reported_during_a_copy() {
        let finished = r#""resumed_bytes":0,"unread_files":0,"retransmitted":0,"seconds":1.0"#;
        let output = [
            r#"{"event":"start"}"#,
            r#"{"event":"progress","bytes":5,"total_bytes":9}"#,
            r#"{"event":"warning","text":"x"}"#,
            r#"{"event":"progress","bytes":7,"total_bytes":9}"#,
            &format!(r#"{{"bytes":9,"verified":true,"cipher":"none",{finished}}}"#),
        ]
        .join("\n");
        let copy = Copy { stage: &Printed, config: Path::new("."), words: vec![output] };
        let mut reported = Vec::new();
        let ended = copy.to_the_end(&CancelHandle::default(), |bytes| reported.push(bytes));
        assert_eq!(ended.unwrap().bytes, 9);
        assert_eq!(reported, [5, 7]);
    }
}
