//! The ssh process below a session.

use tokio::process::ChildStdin;

/// The ssh process that keeps the remote side running. Dropping the value ends the process.
#[derive(Debug)]
pub(super) struct Child {
    _ssh: tokio::process::Child,
    /// When this stream ends, the remote side knows that no session will follow.
    _stdin: Option<ChildStdin>,
}

impl Child {
    pub(super) fn new(ssh: tokio::process::Child, stdin: Option<ChildStdin>) -> Child {
        Child { _ssh: ssh, _stdin: stdin }
    }
}
