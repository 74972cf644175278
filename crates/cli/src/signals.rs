//! The first Ctrl-C or SIGTERM ends the program cleanly. A second one, after [`PRESS`], ends it
//! immediately. SIGHUP makes a server reload. The end of standard input ends a copy that another
//! host started.

use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

use longhaul::CancelHandle;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::{Error, ErrorKind};
use crate::{console, exit};

pub(crate) const ENDING: &str = "stopping; send the signal again to stop immediately";

/// How long further signals count as the first one: `timeout` signals its child and then the
/// process group, so one request to end arrives twice.
const PRESS: Duration = Duration::from_millis(200);

/// Cancels at the first signal, and prints `first` at Ctrl-C; exits at the second signal.
pub(crate) fn cancel_on_signal(cancel: CancelHandle, first: &'static str) -> Result<(), Error> {
    let mut ending = Ending::default();
    watch(Signals::new([SIGINT, SIGTERM]).map_err(unwatched)?, move |signal| {
        ending.on(signal, cancel.is_cancelled(), first);
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

/// Holds SIGHUP until [`direct_server`] handles it: SIGHUP must not end a server that is still
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
    let mut ending = Ending::default();
    held.add_signal(SIGINT).map_err(unwatched)?;
    held.add_signal(SIGTERM).map_err(unwatched)?;
    watch(held, move |signal| {
        if signal == SIGHUP && (!has_terminal || io::stdin().is_terminal()) {
            return reload();
        }
        ending.on(signal, false, ENDING);
        shut_down();
    })
}

/// The time of the first signal that ends the program.
#[derive(Default)]
struct Ending(Option<Instant>);

#[derive(Debug, PartialEq, Eq)]
enum Press {
    First,
    /// The first signal again.
    Same,
    Second,
}

impl Ending {
    /// Exits at the second signal, or already at the first one if the program `is_ending` for
    /// another reason. Prints `first` at the first Ctrl-C. The caller starts the shutdown after
    /// this call, so that the text is printed.
    fn on(&mut self, signal: i32, is_ending: bool, first: &str) {
        match self.press(Instant::now(), is_ending) {
            Press::First if signal == SIGINT => {
                console::note(format_args!("\nlonghaul: {first}"));
            }
            Press::First | Press::Same => {}
            Press::Second => std::process::exit(i32::from(exit::INTERRUPTED)),
        }
    }

    fn press(&mut self, now: Instant, is_ending: bool) -> Press {
        match self.0 {
            Some(first) if now.duration_since(first) < PRESS => Press::Same,
            None if !is_ending => {
                self.0 = Some(now);
                Press::First
            }
            _ => Press::Second,
        }
    }
}

/// Calls `act` with each of these signals, on a separate thread.
fn watch(mut signals: Signals, act: impl FnMut(i32) + Send + 'static) -> Result<(), Error> {
    let run = move || signals.forever().for_each(act);
    thread::Builder::new().name("signals".into()).spawn(run).map_err(unwatched)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_within_200_ms_count_once_and_a_later_signal_counts_as_the_second() {
        use Press::{First, Same, Second};
        let (start, mut ending) = (Instant::now(), Ending::default());
        let mut press = |millis| ending.press(start + Duration::from_millis(millis), millis > 0);
        let presses = [0, 0, 5, 199, 200, 1_000].map(&mut press);
        assert_eq!(presses, [First, Same, Same, Same, Second, Second]);
        assert_eq!(Ending::default().press(start, true), Second, "it was ending already");
    }
}
