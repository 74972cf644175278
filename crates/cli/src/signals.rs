//! Ctrl-C and SIGTERM: the first ends cleanly, the second at once.

use std::io;
use std::thread;

use longhaul_transfer::progress::Cancel;
use signal_hook::consts::{SIGINT, SIGTERM};
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
