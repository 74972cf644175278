//! A child whose standard input and error are a terminal.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{self, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::DEADLINE;
use super::child::undo_ignored_signals;

/// A running child on a terminal; killed when dropped.
pub(crate) struct Terminal {
    child: process::Child,
    keys: File,
    shown: Receiver<Vec<u8>>,
    text: String,
}

impl Terminal {
    /// Starts `command` on an xterm, and discards its stdout.
    pub(crate) fn start(command: Command) -> Terminal {
        Terminal::start_on("xterm", command)
    }

    pub(crate) fn start_within(columns: u16, command: Command) -> Terminal {
        Terminal::start_with("xterm", Some(columns), command)
    }

    pub(crate) fn start_on(name: &str, command: Command) -> Terminal {
        Terminal::start_with(name, None, command)
    }

    fn start_with(name: &str, columns: Option<u16>, mut command: Command) -> Terminal {
        let (near, far) = pair();
        if let Some(ws_col) = columns {
            let size = Winsize { ws_row: 24, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
            tcsetwinsize(&far, size).expect("it is ours");
        }
        let copy = |end: &OwnedFd| end.try_clone().expect("a descriptor is free");
        command.env("TERM", name).stdin(copy(&far)).stderr(copy(&far)).stdout(Stdio::null());
        undo_ignored_signals();
        let child = command.spawn().expect("the program can be started");
        // The command holds copies of the far end (the child's end), which would keep the terminal
        // open after the child has exited.
        drop((command, far));
        let (sender, shown) = mpsc::channel();
        let mut screen = File::from(copy(&near));
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            loop {
                match screen.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(read) if sender.send(buffer[..read].to_vec()).is_err() => return,
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // All programs have closed the far end.
                    Err(_) => return,
                }
            }
        });
        Terminal { child, keys: File::from(near), shown, text: String::new() }
    }

    #[track_caller]
    pub(crate) fn shows(&mut self, text: &str) {
        let deadline = Instant::now() + DEADLINE;
        while !self.text.contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.shown.recv_timeout(left) {
                Ok(bytes) => self.text.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => panic!("no {text:?} ({error}) in:\n{}", self.text),
            }
        }
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a child has a number"), signal).expect("it may be signalled");
    }

    /// Waits for the end; returns the exit status and all that was shown.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.shown.recv_timeout(left) {
                Ok(bytes) => self.text.push_str(&String::from_utf8_lossy(&bytes)),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it did not end:\n{}", self.text),
            }
        }
        let status = self.child.wait().expect("a child can be waited for").code();
        (status, std::mem::take(&mut self.text))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A terminal's two ends: the near one for the simulated user, the far one for the child.
fn pair() -> (OwnedFd, OwnedFd) {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("the system has terminals");
    grantpt(&near).and_then(|()| unlockpt(&near)).expect("it is ours");
    let name = ptsname(&near, Vec::new()).expect("it has a name");
    let name = name.to_str().expect("its name is plain").to_owned();
    let far = File::options().read(true).write(true).open(name).expect("it is ours");
    (near, far.into())
}
