//! The options of a call, as error texts name them.

use std::fmt;

/// An option of a call. Error texts name it in backquotes by its library name: ``raise `memory` to
/// 700Mi``. A program may replace that name with its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallOption {
    /// Accept and remember every server seen for the first time.
    AcceptNew,
    /// The ids that a server admits.
    Allow,
    /// Follow redirects from https to http.
    AllowDowngrade,
    /// Let the clients of a server request unencrypted data.
    AllowPlain,
    /// The cipher.
    Cipher,
    /// The UDP payload of a datagram.
    Datagram,
    /// Report what would be copied, and copy nothing.
    DryRun,
    /// Where a server listens.
    Listen,
    /// The limit on the content of a read into memory, or of a write from a reader.
    MaxBytes,
    /// The limit on incomplete data in memory.
    Memory,
    /// The only server id to accept.
    Pin,
    /// The UDP and TCP ports that the remote side of ssh may open.
    Ports,
    /// How the receiver moves payloads.
    Receive,
    /// Copy folders with all their content.
    Recursive,
    /// The path of longhaul on the remote side of ssh.
    RemotePath,
    /// All sources hold the same object.
    Replicas,
    /// How long to keep retrying a lost connection.
    RetryFor,
    /// The folder that a server serves.
    Root,
    /// The size of a segment.
    Segment,
    /// The duration of a measurement.
    Time,
    /// The token for an HTTP server.
    Token,
}

impl CallOption {
    /// All options.
    pub const ALL: [CallOption; 21] = [
        CallOption::AcceptNew,
        CallOption::Allow,
        CallOption::AllowDowngrade,
        CallOption::AllowPlain,
        CallOption::Cipher,
        CallOption::Datagram,
        CallOption::DryRun,
        CallOption::Listen,
        CallOption::MaxBytes,
        CallOption::Memory,
        CallOption::Pin,
        CallOption::Ports,
        CallOption::Receive,
        CallOption::Recursive,
        CallOption::RemotePath,
        CallOption::Replicas,
        CallOption::RetryFor,
        CallOption::Root,
        CallOption::Segment,
        CallOption::Time,
        CallOption::Token,
    ];

    /// Returns the name in the library.
    pub fn name(self) -> &'static str {
        match self {
            CallOption::AcceptNew => "accept_new",
            CallOption::Allow => "allow",
            CallOption::AllowDowngrade => "allow_downgrade",
            CallOption::AllowPlain => "allow_plain",
            CallOption::Cipher => "cipher",
            CallOption::Datagram => "datagram",
            CallOption::DryRun => "dry_run",
            CallOption::Listen => "listen",
            CallOption::MaxBytes => "max_bytes",
            CallOption::Memory => "memory",
            CallOption::Pin => "pin",
            CallOption::Ports => "ports",
            CallOption::Receive => "receive",
            CallOption::Recursive => "recursive",
            CallOption::RemotePath => "remote_path",
            CallOption::Replicas => "replicas",
            CallOption::RetryFor => "retry_for",
            CallOption::Root => "root",
            CallOption::Segment => "segment",
            CallOption::Time => "time",
            CallOption::Token => "token",
        }
    }

    /// Returns the options that `text` names.
    pub fn named_in(text: &str) -> Vec<CallOption> {
        CallOption::ALL.into_iter().filter(|option| text.contains(&option.to_string())).collect()
    }
}

impl fmt::Display for CallOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_an_option_only_if_it_has_the_name_in_backquotes() {
        let text = format!("leave {} and {} out", CallOption::AllowPlain, CallOption::DryRun);
        assert_eq!(text, "leave `allow_plain` and `dry_run` out");
        let named = CallOption::named_in(&text);
        assert_eq!(named, [CallOption::AllowPlain, CallOption::DryRun]);
        assert_eq!(CallOption::named_in("the memory is full"), []);
    }
}
