//! How an attempt to copy carries its data, and the pauses between attempts.

use std::time::Duration;

use crate::options::{CopyOptions, MOST_TRIED, Protocol};
use crate::session::Carriers;

/// The first pause before a reconnection. Each further pause is twice as long, up to
/// [`LONGEST_PAUSE`].
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause before a reconnection.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport<'a> {
    /// Datagrams, by a protocol of the registry.
    Datagrams(&'a str),
    /// This many separate TCP connections; with 0, the control stream carries the data.
    Streams(u16),
}

impl Transport<'_> {
    pub(crate) fn is_datagrams(self) -> bool {
        matches!(self, Transport::Datagrams(_))
    }

    /// Returns the carriers that the session may use; separate TCP connections need a session over
    /// TCP.
    pub(crate) fn carriers(self) -> Carriers {
        match self {
            Transport::Streams(1..) => Carriers::Tcp,
            Transport::Streams(0) | Transport::Datagrams(_) => Carriers::Both,
        }
    }
}

pub(crate) fn first_transport(options: &CopyOptions) -> Transport<'_> {
    match &options.protocol {
        // A dry run needs only the control stream.
        _ if options.dry_run => Transport::Streams(0),
        Protocol::Registry(name) => Transport::Datagrams(name),
        Protocol::Tcp { streams } => Transport::Streams(*streams),
        Protocol::TcpTried => Transport::Streams(MOST_TRIED),
    }
}
