//! Printing: requested output goes to stdout, everything else to stderr. Colours follow `NO_COLOR`,
//! `CLICOLOR` and `CLICOLOR_FORCE`.

use std::env;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, StdoutLock, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use longhaul::CancelHandle;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind as Failure};
use crate::plain;

/// How often a wait looks for a cancellation.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

pub(crate) fn is_terminal() -> bool {
    io::stderr().is_terminal()
}

pub(crate) fn is_terminal_out() -> bool {
    io::stdout().is_terminal()
}

/// Waits until `pipe` is ready. Fails when `cancel` is cancelled.
pub(crate) fn wait(pipe: impl AsFd, ready: PollFlags, cancel: &CancelHandle) -> io::Result<()> {
    loop {
        if cancel.is_cancelled() {
            return Err(io::Error::other("interrupted"));
        }
        match poll(&mut [PollFd::new(&pipe, ready)], Some(&LOOK_EVERY)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Columns of the terminal on stderr, if known.
pub(crate) fn columns() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    Some(size.ws_col).filter(|columns| *columns > 0)
}

/// Whether a write to stdout failed, except because of a closed pipe.
static LOST: AtomicBool = AtomicBool::new(false);
/// Whether the reader of stdout has closed its pipe.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// Cancels a command that only writes to stdout.
static VIEW: OnceLock<CancelHandle> = OnceLock::new();

/// Prints a line to stdout. A closed pipe is not an error. Any other failure is reported once, and
/// [`has_lost`] returns true.
pub(crate) fn out(line: impl Display) {
    print(|stdout| writeln!(stdout, "{line}"));
}

/// Prints a text to stdout, like [`out`].
pub(crate) fn out_whole(text: &[u8]) {
    print(|stdout| stdout.write_all(text));
}

fn print(write: impl FnOnce(&mut StdoutLock<'_>) -> io::Result<()>) {
    let mut stdout = io::stdout().lock();
    // If a later write succeeded, a reader could not see that earlier output is missing.
    if has_lost() && VIEW.get().is_some() {
        return;
    }
    note_loss(write(&mut stdout).and_then(|()| stdout.flush()));
}

/// Whether output for stdout was lost, except by a closed pipe.
pub(crate) fn has_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// Cancels the command as soon as the reader of stdout closes its pipe, even if there is nothing to
/// write, or when a write to stdout fails. [`crate::exit::of_view`] returns the exit status.
pub(crate) fn cancel_with_stdout(cancel: &CancelHandle) -> Result<(), Error> {
    let _ = VIEW.set(cancel.clone());
    let wait = || {
        let stdout = io::stdout();
        // Without flags, `poll` returns only when the other end of the pipe is closed.
        let mut pipe = [PollFd::new(&stdout, PollFlags::empty())];
        while poll(&mut pipe, None) == Err(Errno::INTR) {}
        if pipe[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            note_loss(Err(ErrorKind::BrokenPipe.into()));
        }
    };
    let started = thread::Builder::new().name("stdout".into()).spawn(wait);
    let failed = |error| Error::new(Failure::LocalFile, format!("cannot watch stdout: {error}"));
    started.map(drop).map_err(failed)
}

/// Why a command of [`cancel_with_stdout`] was cancelled.
pub(crate) enum Cancelled {
    /// The reader of stdout has closed its pipe, or a write to stdout failed.
    Unread,
    Interrupted,
}

pub(crate) fn cancelled() -> Option<Cancelled> {
    VIEW.get().filter(|view| view.is_cancelled())?;
    let is_unread = has_lost() || CLOSED.load(Ordering::Relaxed);
    Some(if is_unread { Cancelled::Unread } else { Cancelled::Interrupted })
}

fn note_loss(written: io::Result<()>) {
    let Err(error) = written else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        CLOSED.store(true, Ordering::Relaxed);
    } else if !LOST.swap(true, Ordering::Relaxed) {
        warn(format_args!("stdout cannot be written: {error}; the output is lost"));
    }
    if let Some(view) = VIEW.get() {
        view.cancel();
    }
}

/// Prints a line with one write, so that the lines of two processes stay whole in one log.
pub(crate) fn note(line: impl Display) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

pub(crate) fn warn(line: impl Display) {
    note(format_args!("{} {line}", paint("longhaul:", "1;33", is_terminal())));
}

pub(crate) fn error(error: &Error) {
    // The text may come from a peer.
    let said = plain::text(&error.to_string());
    note(format_args!("{} {said}", paint("longhaul:", "1;31", is_terminal())));
}

/// Returns `text` in bold for stdout.
pub(crate) fn bold(text: &str) -> String {
    paint(text, "1", is_terminal_out())
}

/// Returns `text` in bold for stderr.
pub(crate) fn bold_note(text: &str) -> String {
    paint(text, "1", is_terminal())
}

fn paint(text: &str, code: &str, terminal: bool) -> String {
    let set = |name: &str| env::var(name).ok();
    if colour(terminal, set) { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

fn colour(terminal: bool, variable: impl Fn(&str) -> Option<String>) -> bool {
    let given = |name: &str| variable(name).filter(|value| !value.is_empty());
    if given("NO_COLOR").is_some() {
        return false;
    }
    if given("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
        return true;
    }
    let dumb = given("TERM").is_some_and(|value| value == "dumb");
    terminal && !dumb && given("CLICOLOR").is_none_or(|value| value != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(terminal: bool, set: &[(&str, &str)]) -> bool {
        colour(terminal, |name| {
            set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_decides_on_colours() {
        assert!(with(true, &[]));
        assert!(!with(false, &[]));
        assert!(!with(true, &[("NO_COLOR", "1")]));
        assert!(with(true, &[("NO_COLOR", "")]));
        assert!(!with(true, &[("CLICOLOR", "0")]));
        assert!(with(false, &[("CLICOLOR_FORCE", "1")]));
        assert!(!with(false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!with(false, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
        assert!(!with(true, &[("TERM", "dumb")]));
    }
}
