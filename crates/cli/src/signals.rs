//! The first Ctrl-C or SIGTERM ends the program cleanly, the second immediately. SIGHUP makes a
//! server reload. The end of standard input ends a copy that another host started.

use std::io::{self, IsTerminal};
use std::thread;

use longhaul::CancelHandle;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::{Error, ErrorKind};
use crate::{console, exit};

pub(crate) const ENDING: &str = "stopping; send the signal again to stop immediately";

/// Cancels at the first signal, and prints `first` at Ctrl-C; exits at the second signal.
pub(crate) fn cancel_on_signal(cancel: CancelHandle, first: &'static str) -> Result<(), Error> {
    watch(Signals::new([SIGINT, SIGTERM]).map_err(unwatched)?, move |signal| {
        end(signal, cancel.is_cancelled(), first);
        cancel.cancel();
    })
}

pub(crate) fn cancel_with_stdin(cancel: CancelHandle) -> Result<(), Error> {
    let wait = move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        cancel.cancel();
    };
    thread::Builder::new().name("stdin".into()).spawn(wait).map_err(unwatched)?;
    Ok(())
}

/// Holds SIGHUP until [`direct_server`] handles it: it must not end a server that is still
/// starting.
pub(crate) fn hold_reload() -> Result<Signals, Error> {
    Signals::new([SIGHUP]).map_err(unwatched)
}

fn unwatched(error: io::Error) -> Error {
    Error::new(ErrorKind::LocalFile, format!("cannot watch signals: {error}"))
}

/// Handles the signals of a server, pending ones in `held` first. If the server's terminal was
/// closed, SIGHUP shuts the server down.
pub(crate) fn direct_server(
    held: Signals,
    reload: impl Fn() + Send + 'static,
    shut_down: impl Fn() + Send + 'static,
) -> Result<(), Error> {
    let has_terminal = io::stdin().is_terminal();
    let mut is_ending = false;
    held.add_signal(SIGINT).map_err(unwatched)?;
    held.add_signal(SIGTERM).map_err(unwatched)?;
    watch(held, move |signal| {
        if signal == SIGHUP && (!has_terminal || io::stdin().is_terminal()) {
            return reload();
        }
        end(signal, is_ending, ENDING);
        is_ending = true;
        shut_down();
    })
}

/// Exits if the program is already ending; otherwise prints `first` after Ctrl-C. The caller starts
/// the shutdown after this call, so that the text is printed.
fn end(signal: i32, is_ending: bool, first: &str) {
    if is_ending {
        std::process::exit(i32::from(exit::INTERRUPTED));
    }
    if signal == SIGINT {
        console::note(format_args!("\nlonghaul: {first}"));
    }
}

/// Calls `act` with each of these signals, on a separate thread.
fn watch(mut signals: Signals, act: impl FnMut(i32) + Send + 'static) -> Result<(), Error> {
    let run = move || signals.forever().for_each(act);
    thread::Builder::new().name("signals".into()).spawn(run).map_err(unwatched)?;
    Ok(())
}
