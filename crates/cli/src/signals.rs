//! Ctrl-C and SIGTERM: the first ends cleanly, the second at once. SIGHUP: a server reloads. The
//! end of standard input ends a copy that another host has started.

use std::io::{self, IsTerminal};
use std::thread;

use longhaul::CancelHandle;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{console, exit};

/// What a server says at Ctrl-C.
pub(crate) const ENDING: &str = "ending; once more ends at once";

/// Cancels `cancel` at the first signal, and at Ctrl-C says `first`; exits at the second.
///
/// # Errors
/// The signals cannot be watched.
pub(crate) fn cancel_on_signal(cancel: CancelHandle, first: &'static str) -> io::Result<()> {
    watch(Signals::new([SIGINT, SIGTERM])?, move |signal| {
        end(signal, cancel.is_cancelled(), first);
        cancel.cancel();
    })
}

/// Cancels `cancel` when standard input ends.
///
/// # Errors
/// There is no thread for it.
pub(crate) fn cancel_with_stdin(cancel: CancelHandle) -> io::Result<()> {
    let wait = move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        cancel.cancel();
    };
    thread::Builder::new().name("stdin".into()).spawn(wait)?;
    Ok(())
}

/// Holds SIGHUP back until [`direct_server`] hears it; without this a server that is still starting
/// would end by it.
///
/// # Errors
/// The signal cannot be watched.
pub(crate) fn hold_reload() -> io::Result<Signals> {
    Signals::new([SIGHUP])
}

/// Directs a server by signals, those of `held` first: SIGHUP calls `reload`, the first SIGINT or
/// SIGTERM calls `shut_down`, the second exits. A terminal that is closed ends a server that runs
/// in it.
///
/// # Errors
/// The signals cannot be watched.
pub(crate) fn direct_server(
    held: Signals,
    reload: impl Fn() + Send + 'static,
    shut_down: impl Fn() + Send + 'static,
) -> io::Result<()> {
    let has_terminal = io::stdin().is_terminal();
    let mut is_ending = false;
    held.add_signal(SIGINT)?;
    held.add_signal(SIGTERM)?;
    watch(held, move |signal| {
        if signal == SIGHUP && (!has_terminal || io::stdin().is_terminal()) {
            return reload();
        }
        end(signal, is_ending, ENDING);
        is_ending = true;
        shut_down();
    })
}

/// Exits if the program ends already; else at Ctrl-C says `first`: whoever pressed it is there to
/// read, and once the end has begun the program may be gone.
fn end(signal: i32, is_ending: bool, first: &str) {
    if is_ending {
        std::process::exit(i32::from(exit::INTERRUPTED));
    }
    if signal == SIGINT {
        console::note(format_args!("\nlonghaul: {first}"));
    }
}

/// Calls `act` with each of these signals, on a thread of its own.
fn watch(mut signals: Signals, act: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("signals".into()).spawn(move || signals.forever().for_each(act))?;
    Ok(())
}
