//! Asks the user whether to trust a new server.

use std::io::{self, BufRead, IsTerminal, Write};

use longhaul::CancelHandle;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::console;

/// Poll interval for cancellation.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Whether the user agrees. False without a terminal, or if `cancel` is cancelled before the
/// answer.
pub(crate) fn ask(server: &str, id: &str, cancel: &CancelHandle) -> bool {
    if !io::stdin().is_terminal() || !console::is_terminal() {
        return false;
    }
    console::note(format_args!("The server {server} is not known on this host. Its id is"));
    console::note(format_args!("  {}", console::bold(id)));
    console::note("(`longhaul id` prints it on the server). Trust and remember it? [y/N]");
    let _ = io::stderr().flush();
    let stdin = io::stdin();
    loop {
        if cancel.is_cancelled() {
            return false;
        }
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut ready, Some(&LOOK_EVERY)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => break,
            Err(_) => return false,
        }
    }
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}
