//! Notifies the service manager by the protocol of `sd_notify(3)`.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

use crate::console;

/// The server accepts clients, or has read its configuration again.
pub(crate) const READY: &str = "READY=1";
/// The server is stopping.
pub(crate) const STOPPING: &str = "STOPPING=1";

/// The state of a server that is reading its configuration again. [`READY`] follows.
pub(crate) fn reloading() -> String {
    let now = clock_gettime(ClockId::Monotonic);
    let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
    format!("RELOADING=1\nMONOTONIC_USEC={micros}")
}

/// Sends `state` to the service manager that started this process, if any.
pub(crate) fn notify(state: &str) {
    let socket = env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty());
    let Some(socket) = socket else { return };
    if let Err(error) = send(&socket, state) {
        console::warn(format_args!("cannot reach the service manager: {error}"));
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => without_file(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

/// The address of an abstract socket.
#[cfg(target_os = "linux")]
fn without_file(name: &[u8]) -> io::Result<SocketAddr> {
    <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn without_file(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no abstract sockets"))
}
