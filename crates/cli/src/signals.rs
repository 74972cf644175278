//! Ctrl-C and SIGTERM: the first ends cleanly, the second at once. SIGHUP: a server reloads.

use std::io::{self, IsTerminal};
use std::thread;

use longhaul_transfer::progress::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{console, exit};

/// Cancels `cancel` at the first signal, and at Ctrl-C says `first`; exits at the second.
///
/// # Errors
/// The signals cannot be watched.
pub(crate) fn cancel_on_signal(cancel: Cancel, first: &'static str) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if cancel.is_cancelled() {
                std::process::exit(i32::from(exit::INTERRUPTED));
            }
            // Who pressed Ctrl-C is there to read; once it is cancelled the program may be gone.
            if signal == SIGINT {
                console::note(format_args!("\nlonghaul: {first}"));
            }
            cancel.cancel();
        }
    })?;
    Ok(())
}

/// Directs a server by signals: SIGHUP calls `reload`, the first SIGINT or SIGTERM calls `end`, the
/// second exits. A terminal that is closed ends a server that runs in it.
///
/// # Errors
/// The signals cannot be watched.
pub(crate) fn direct_server(
    reload: impl Fn() + Send + 'static,
    end: impl Fn() + Send + 'static,
) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let has_terminal = io::stdin().is_terminal();
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut is_ending = false;
        for signal in signals.forever() {
            let is_terminal_gone = has_terminal && !io::stdin().is_terminal();
            if signal == SIGHUP && !is_terminal_gone {
                reload();
                continue;
            }
            if is_ending {
                std::process::exit(i32::from(exit::INTERRUPTED));
            }
            if signal == SIGINT {
                console::note(format_args!("\nlonghaul: ending; once more ends at once"));
            }
            is_ending = true;
            end();
        }
    })?;
    Ok(())
}
