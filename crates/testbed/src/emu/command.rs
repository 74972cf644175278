//! Programs on an emulated host.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use super::host::Host;
use super::keeper::Keeper;
use super::sys;

/// A program to run on an emulated host, built like [`std::process::Command`].
///
/// The program sees the host's network, the hosts by name, the emulation's processes and the
/// machine's file system. Its hostname is the host's name. The emulation's end kills the program
/// and all processes that the program started; the program's exit status is then lost.
pub struct HostCommand<'e> {
    host: &'e Host,
    keeper: &'e Keeper,
    command: Command,
}

impl<'e> HostCommand<'e> {
    pub(super) fn new(host: &'e Host, keeper: &'e Keeper, program: &OsStr) -> HostCommand<'e> {
        let mut command = Command::new(program);
        // The keeper (the thread that starts all programs of the emulation) starts the program, and
        // may have another working directory than the caller.
        if let Ok(here) = std::env::current_dir() {
            command.current_dir(here);
        }
        HostCommand { host, keeper, command }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Removes an environment variable.
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Sets the working directory; the default is the caller's.
    pub fn current_dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Sets the standard input.
    pub fn stdin(mut self, from: impl Into<Stdio>) -> Self {
        self.command.stdin(from);
        self
    }

    /// Sets the standard output.
    pub fn stdout(mut self, to: impl Into<Stdio>) -> Self {
        self.command.stdout(to);
        self
    }

    /// Sets the standard error.
    pub fn stderr(mut self, to: impl Into<Stdio>) -> Self {
        self.command.stderr(to);
        self
    }

    /// Starts the program; streams that were not set are inherited.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(mut self) -> io::Result<Child> {
        // The host's descriptor stays open during the spawn.
        let namespace = self.host.namespace.as_raw_fd();
        sys::enter_on_spawn(&mut self.command, namespace, &self.host.name);
        self.keeper.spawn(self.command)
    }

    /// Runs the program to its end; streams that were not set are inherited.
    ///
    /// # Errors
    /// If the program cannot be started or waited for.
    pub fn status(self) -> io::Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// Runs the program with empty input to its end, and returns its output.
    ///
    /// # Errors
    /// If the program cannot be started or waited for.
    pub fn output(self) -> io::Result<Output> {
        let quiet = self.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        quiet.spawn()?.wait_with_output()
    }
}
