//! What a copy names: a local path, `[user@]host:path` over ssh, or `lh://host[:port]/path`.

use std::path::PathBuf;

/// The port of a server that names none: UDP for control and TCP as the way out; the next one is
/// UDP for the data.
pub const DEFAULT_PORT: u16 = 7717;

/// One end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A path on this host.
    Local(PathBuf),
    /// A path on a host that ssh reaches; relative paths start in the home folder.
    Ssh {
        /// What ssh is given: `host` or `user@host`, aliases of the user's ssh config included.
        destination: String,
        /// The path over there.
        path: PathBuf,
    },
    /// A path below the root of a running `longhaul serve`.
    Daemon {
        /// A name or an address; IPv6 without its brackets.
        host: String,
        /// The control port.
        port: u16,
        /// The path relative to the root.
        path: PathBuf,
    },
}
