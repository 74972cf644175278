//! The ssh process below a session.

use tokio::process::ChildStdin;

/// The ssh process that keeps the remote side running. Dropping the value ends the process.
#[derive(Debug)]
pub(super) struct Child {
    _ssh: tokio::process::Child,
    /// The input of ssh; `None` if the session runs through this input. The end of the input tells
    /// the remote side that no further session follows.
    _stdin: Option<ChildStdin>,
}

impl Child {
    pub(super) fn new(ssh: tokio::process::Child, stdin: Option<ChildStdin>) -> Child {
        Child { _ssh: ssh, _stdin: stdin }
    }
}
