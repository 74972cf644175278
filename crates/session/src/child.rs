//! The ssh below a session.

use tokio::process::ChildStdin;

/// The ssh that keeps the far side running; ended and reaped when dropped.
#[derive(Debug)]
pub(super) struct Child {
    _ssh: tokio::process::Child,
    /// Closed, it tells the far side that no session will come any more.
    _stdin: Option<ChildStdin>,
}

impl Child {
    pub(super) fn new(ssh: tokio::process::Child, stdin: Option<ChildStdin>) -> Child {
        Child { _ssh: ssh, _stdin: stdin }
    }
}
