//! Asks the user whether to trust a new server.

use std::io::{self, BufRead, IsTerminal, Write};

use longhaul::CancelHandle;
use rustix::event::PollFlags;

use crate::console;

/// Whether the user agrees. False without a terminal, or if `cancel` is cancelled before the
/// answer.
pub(crate) fn ask(server: &str, id: &str, cancel: &CancelHandle) -> bool {
    if !io::stdin().is_terminal() || !console::is_terminal() {
        return false;
    }
    console::note(format_args!("The server {server} is not known on this host. Its id is"));
    console::note(format_args!("  {}", console::bold_note(id)));
    console::note("(`longhaul id` prints it on the server). Trust and remember it? [y/N]");
    let _ = io::stderr().flush();
    let stdin = io::stdin();
    if console::wait(&stdin, PollFlags::IN, cancel).is_err() {
        return false;
    }
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}
