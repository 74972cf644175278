//! The TCP of this host's kernel.

use std::fs;

/// Returns the congestion control of new TCP connections, if the kernel names it.
pub(crate) fn congestion() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").ok()?;
    Some(name.trim().to_owned())
}
