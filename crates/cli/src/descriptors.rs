//! How many files and sockets this process may have open.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard one: the soft one is small for programs that use `select`,
/// which this one does not.
pub(crate) fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Without it there are fewer, and whoever needs one more waits for it.
    let _ = setrlimit(Resource::Nofile, limit);
}
