//! The command line through the real binary.

mod config;
mod refusals;
#[cfg(target_os = "linux")]
mod stdout;

use std::path::Path;
use std::process::Command;

pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `longhaul` with no configuration but the defaults.
pub(crate) fn longhaul(args: &[&str]) -> Run {
    // These runs read and write nothing in the folder.
    longhaul_in(Path::new("/nonexistent/longhaul"), args)
}

pub(crate) fn longhaul_in(folder: &Path, args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.env("LONGHAUL_CONFIG_DIR", folder).env("NO_COLOR", "1").args(args);
    let output = command.output().expect("the binary runs");
    Run {
        status: output.status.code().expect("it exits by itself"),
        stdout: String::from_utf8(output.stdout).expect("output is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("output is UTF-8"),
    }
}

impl Run {
    /// Asserts a usage error, with all of `words` on stderr.
    fn is_refused(&self, words: &[&str]) {
        assert_eq!(self.status, 2, "{}", self.stderr);
        assert_eq!(self.stdout, "", "a refusal belongs on stderr");
        for word in words {
            assert!(self.stderr.contains(word), "no '{word}' in: {}", self.stderr);
        }
    }
}
