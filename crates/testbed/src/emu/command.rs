//! Programs on an emulated host.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use super::host::Host;
use super::keeper::Keeper;
use super::sys;

/// A program to run on an emulated host: as [`std::process::Command`].
///
/// It sees the host's network only, the emulated hosts by name, the host's name as its own, and the
/// processes of the emulation; the file system is the machine's. It is killed, with everything that
/// it has started, when the emulation ends. Wait for a child before that: afterwards its status is
/// lost.
pub struct HostCommand<'e> {
    host: &'e Host,
    keeper: &'e Keeper,
    command: Command,
}

impl<'e> HostCommand<'e> {
    pub(super) fn new(host: &'e Host, keeper: &'e Keeper, program: &OsStr) -> HostCommand<'e> {
        let mut command = Command::new(program);
        // The keeper's own working directory is where this process was when it started.
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

    /// Sets a variable of its environment.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Takes a variable out of its environment.
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Sets its working directory; otherwise the caller's.
    pub fn current_dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Where its standard input comes from.
    pub fn stdin(mut self, from: impl Into<Stdio>) -> Self {
        self.command.stdin(from);
        self
    }

    /// Where its standard output goes.
    pub fn stdout(mut self, to: impl Into<Stdio>) -> Self {
        self.command.stdout(to);
        self
    }

    /// Where its standard error goes.
    pub fn stderr(mut self, to: impl Into<Stdio>) -> Self {
        self.command.stderr(to);
        self
    }

    /// Starts it; input and outputs are inherited where nothing else was said.
    ///
    /// # Errors
    /// Where the program cannot be started.
    pub fn spawn(mut self) -> io::Result<Child> {
        // The host, and with it the descriptor, outlives the spawn, for which this waits.
        let namespace = self.host.namespace.as_raw_fd();
        sys::enter_on_spawn(&mut self.command, namespace, &self.host.name);
        self.keeper.spawn(self.command)
    }

    /// Runs it to its end; input and outputs are inherited where nothing else was said.
    ///
    /// # Errors
    /// Where the program cannot be started or waited for.
    pub fn status(self) -> io::Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// Runs it to its end and gives what it wrote; it has no input.
    ///
    /// # Errors
    /// Where the program cannot be started or waited for.
    pub fn output(self) -> io::Result<Output> {
        let quiet = self.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        quiet.spawn()?.wait_with_output()
    }
}
