//! A server for the one client whose ssh started this process.

use longhaul_proto::units::Bytes;

use super::engine;
use super::identity::Identity;
use crate::error::public::Error;
use crate::options::{OwnKey, ServeOptions};
use crate::progress::Cancel;
use crate::serve::serve_over_ssh;

/// A server for the one client whose ssh started this process, over standard input and output. The
/// client may reach what the user of the process may reach.
#[derive(Debug)]
#[must_use = "a server runs once it is asked to serve"]
pub struct SshServer {
    options: ServeOptions,
    ports: Option<(u16, u16)>,
    cancel: Cancel,
}

impl SshServer {
    /// A server with this identity, to be described.
    pub fn new(identity: Identity) -> SshServer {
        let options = ServeOptions { key: OwnKey::Given(identity.0), ..ServeOptions::default() };
        SshServer { options, ports: None, cancel: Cancel::default() }
    }

    /// How much incomplete data may wait in memory (512 MiB).
    pub fn memory(mut self, memory: Bytes) -> SshServer {
        self.options.memory = memory;
        self
    }

    /// The first and last UDP port that the server may open; nothing for any port.
    pub fn ports(self, ports: Option<(u16, u16)>) -> SshServer {
        SshServer { ports, ..self }
    }

    /// Ends the server when `handle` is cancelled.
    pub fn cancel_with(self, handle: &Cancel) -> SshServer {
        SshServer { cancel: handle.clone(), ..self }
    }

    /// Serves on a thread of the engine's own until ssh is gone. Dropping the future cancels it.
    ///
    /// # Errors
    /// ssh did not start this process, no port is free, the transfer failed, or it was cancelled.
    pub async fn serve(self) -> Result<(), Error> {
        let (options, ports) = (self.options, self.ports);
        let wish = CancelOnDrop(self.cancel.child());
        let cancel = wish.0.clone();
        let done = engine::start("longhaul ssh server", move || {
            serve_over_ssh(options, ports, cancel).map_err(Error::from)
        })?;
        done.await.unwrap_or_else(|_| Err(engine::vanished("a server")))
    }
}

struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
