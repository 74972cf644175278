//! What carries the data of an attempt, and how long lost attempts pause.

use std::time::Duration;

use crate::options::{CopyOptions, MOST_TRIED, Protocol};
use crate::session::Carriers;

/// The first pause before a lost connection is taken up again; doubles up to the longest.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest of these pauses.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What carries the data of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way<'a> {
    /// Datagrams, by a protocol of the registry.
    Datagrams(&'a str),
    /// So many streams beside the control stream; with none, that alone.
    Streams(u16),
}

impl Way<'_> {
    /// The carriers of a session for it.
    pub(crate) fn carriers(self) -> Carriers {
        match self {
            Way::Streams(1..) => Carriers::Tcp,
            Way::Streams(0) | Way::Datagrams(_) => Carriers::Both,
        }
    }
}

/// What carries the data of the first try.
pub(crate) fn first_way(options: &CopyOptions) -> Way<'_> {
    match &options.protocol {
        // A plan is all that is wanted: the control stream carries that.
        _ if options.dry_run => Way::Streams(0),
        Protocol::Registry(name) => Way::Datagrams(name),
        Protocol::Tcp { streams } => Way::Streams(*streams),
        Protocol::TcpTried => Way::Streams(MOST_TRIED),
    }
}
