//! A server for the one client whose ssh started this process.

use longhaul_proto::units::Bytes;

use super::engine;
use super::identity::Identity;
use crate::error::public::Error;
use crate::options::{OwnKey, ServeOptions};
use crate::progress::Cancel;
use crate::serve::serve_over_ssh;

/// A server for the one client whose ssh started this process, over standard input and output. The
/// client can reach everything that the user of the process can reach.
#[derive(Debug)]
#[must_use = "a server runs once it is asked to serve"]
pub struct SshServer {
    options: ServeOptions,
    ports: Option<(u16, u16)>,
    cancel: Cancel,
}

impl SshServer {
    /// Returns the description of a server with this identity.
    pub fn new(identity: Identity) -> SshServer {
        let options = ServeOptions { key: OwnKey::Given(identity.0), ..ServeOptions::default() };
        SshServer { options, ports: None, cancel: Cancel::default() }
    }

    /// Limits the memory for incomplete data. By default 512 MiB.
    pub fn memory(mut self, memory: Bytes) -> SshServer {
        self.options.memory = memory;
        self
    }

    /// Sets the first and last UDP port that the server may open; `None` for any port.
    pub fn ports(self, ports: Option<(u16, u16)>) -> SshServer {
        SshServer { ports, ..self }
    }

    /// Ends the server when `handle` is cancelled.
    pub fn cancel_with(self, handle: &Cancel) -> SshServer {
        SshServer { cancel: handle.clone(), ..self }
    }

    /// Serves on the engine's thread until ssh ends. Dropping the future cancels the server.
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
