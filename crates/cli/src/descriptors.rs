//! Limit of open files and sockets.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard limit. The low soft limit protects programs that use `select`;
/// longhaul does not use `select`.
pub(crate) fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, the soft limit stays low, and opens may wait for a free descriptor.
    let _ = setrlimit(Resource::Nofile, limit);
}
