//! Limits of disk accesses. Each access needs a permit. Each client has a share of the permits, so
//! a client whose files are on a hanging disk does not block the other clients.

use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_files::DiskPermits;
use longhaul_net::network::Network;

/// Maximum number of concurrent disk accesses.
pub(crate) const AT_DISK: usize = 16;
/// Maximum number of concurrent listings.
pub(crate) const LISTINGS: usize = 16;

/// A client, for the limits of disk accesses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// The user of a token.
    User(String),
    /// The network that sent a request without a token, or with a token without a name.
    Network(Network),
    /// One request from this host, without a token or with a token without a name. A proxy on this
    /// host may send the requests of many clients.
    Request(u64),
}

pub(crate) struct Disk {
    pub(crate) accesses: DiskPermits<Client>,
    pub(crate) listings: DiskPermits<Client>,
    requests: AtomicU64,
}

impl Disk {
    pub(crate) fn new() -> Disk {
        let (accesses, listings) = (DiskPermits::new(AT_DISK), DiskPermits::new(LISTINGS));
        Disk { accesses, listings, requests: AtomicU64::new(0) }
    }

    pub(crate) fn one_request(&self) -> Client {
        Client::Request(self.requests.fetch_add(1, Ordering::Relaxed))
    }
}
