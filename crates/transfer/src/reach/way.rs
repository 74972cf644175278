//! The carrier of an attempt's data, and the pauses between attempts.

use std::time::Duration;

use crate::options::{CopyOptions, MOST_TRIED, Protocol};
use crate::session::Carriers;

/// The first pause before a reconnection. Each further pause is twice as long, up to
/// [`LONGEST_PAUSE`].
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause before a reconnection.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The carrier of an attempt's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way<'a> {
    /// Datagrams, by a protocol of the registry.
    Datagrams(&'a str),
    /// This many streams in addition to the control stream; zero: only the control stream.
    Streams(u16),
}

impl Way<'_> {
    /// Returns the carriers that a session may use for these data.
    pub(crate) fn carriers(self) -> Carriers {
        match self {
            Way::Streams(1..) => Carriers::Tcp,
            Way::Streams(0) | Way::Datagrams(_) => Carriers::Both,
        }
    }
}

/// Returns the carrier of the first attempt's data.
pub(crate) fn first_way(options: &CopyOptions) -> Way<'_> {
    match &options.protocol {
        // A dry run needs only the control stream.
        _ if options.dry_run => Way::Streams(0),
        Protocol::Registry(name) => Way::Datagrams(name),
        Protocol::Tcp { streams } => Way::Streams(*streams),
        Protocol::TcpTried => Way::Streams(MOST_TRIED),
    }
}
