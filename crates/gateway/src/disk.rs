//! Limits of disk accesses. Each client has a share of the permits, so a client whose files are on
//! a hanging disk does not block the others.

use std::net::IpAddr;

use longhaul_files::DiskPermits;

/// Maximum number of concurrent disk accesses.
pub(crate) const AT_DISK: usize = 16;
/// Maximum number of concurrent listings.
pub(crate) const LISTINGS: usize = 16;

/// A client, for the limits of disk accesses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// The user of a token.
    User(String),
    /// The address of a request without a token, or with a token without a name.
    Address(IpAddr),
}

pub(crate) struct Disk {
    pub(crate) accesses: DiskPermits<Client>,
    pub(crate) listings: DiskPermits<Client>,
}

impl Disk {
    pub(crate) fn new() -> Disk {
        Disk { accesses: DiskPermits::new(AT_DISK), listings: DiskPermits::new(LISTINGS) }
    }
}
