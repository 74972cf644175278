//! Support for tests of whole copies. If a wait for a child takes longer than [`DEADLINE`], the
//! child is killed, and the test fails with the child's whole output.

mod child;
mod pair;
mod scratch;
pub(crate) mod slow;
mod terminal;
mod tree;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

pub(crate) use child::{Child, Ended, send_signal};
pub(crate) use longhaul_testbed::need;
pub(crate) use longhaul_testbed::skip::{self, Skipped};
pub(crate) use pair::{Pair, Server};
pub(crate) use scratch::scratch;
pub(crate) use terminal::Terminal;
pub(crate) use tree::{
    assert_same, assert_same_attributes, content, remains, wait_until, write, write_private,
};

/// Time limit of a wait. It is generous, for a machine under load.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// Ends a copy 5 s after its peer was killed, instead of after the session's idle limit of 30 s.
pub(crate) const IMPATIENT: &str = "--stall=5s";

/// Runs `test` for all cases in parallel, for tests that mostly wait.
pub(crate) fn side_by_side<T: Send>(cases: impl IntoIterator<Item = T>, test: impl Fn(T) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || test(case));
        }
    });
}

/// The program under test. A user who cannot enter the build folder sets `LONGHAUL_BINARY` to a
/// copy of the program.
pub(crate) fn binary() -> OsString {
    std::env::var_os("LONGHAUL_BINARY").unwrap_or(env!("CARGO_BIN_EXE_longhaul").into())
}

/// A host with an identity: a separate configuration folder.
pub(crate) struct Host {
    /// `LONGHAUL_CONFIG_DIR`.
    pub(crate) config: PathBuf,
    /// As `longhaul id` prints it.
    pub(crate) id: String,
}

impl Host {
    pub(crate) fn new(config: &Path) -> Host {
        let mut host = Host { config: config.to_owned(), id: String::new() };
        let ended = host.run(["id"]);
        ended.is(0, &[]);
        host.id = ended.stdout[0].clone();
        host
    }

    /// `longhaul ARGS` as this host, not started yet.
    pub(crate) fn command(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(binary());
        self.dress(&mut command).args(args);
        command
    }

    /// `WRAPPER longhaul ARGS`, not started yet.
    pub(crate) fn wrapped(
        &self,
        wrapper: &[&str],
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Command {
        let mut command = Command::new(wrapper[0]);
        self.dress(&mut command).args(&wrapper[1..]);
        command.arg(binary()).args(args);
        command
    }

    pub(crate) fn run(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ended {
        Child::spawn(&mut self.command(args)).end()
    }

    fn dress<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let command = command.env("LONGHAUL_CONFIG_DIR", &self.config).env("NO_COLOR", "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())
    }
}

/// The words of a command line, which may be of different types.
pub(crate) fn words(words: &[&dyn AsRef<OsStr>]) -> Vec<OsString> {
    words.iter().map(|word| AsRef::<OsStr>::as_ref(*word).to_owned()).collect()
}

/// Pseudo-random bytes from a seed; they cannot be compressed.
pub(crate) fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

/// Peak memory of a running process, in bytes.
pub(crate) fn peak(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.expect("the kernel reports the peak") * 1024
}
