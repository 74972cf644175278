//! A bound address and the thread that answers its connections.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;

use longhaul_text::reason;
use tokio::sync::oneshot;

use crate::accept::{self, Serving};
use crate::error::Error;

/// Dropping this value stops the listener and ends pending requests.
pub(crate) struct Listening {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    /// Answers the connections to `listen` on a separate thread with the given name.
    pub(crate) fn start(
        thread: &str,
        listen: SocketAddr,
        serving: Serving,
    ) -> Result<Listening, Error> {
        let unusable = |error: io::Error| {
            let what = format!("cannot listen on {listen}: {}", reason(&error));
            Error::host(what, "name another address or port")
        };
        let listener = TcpListener::bind(listen).map_err(unusable)?;
        listener.set_nonblocking(true).map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let (stop, stopped) = oneshot::channel();
        let run = move || accept::run(listener, serving, stopped);
        let thread = std::thread::Builder::new().name(thread.to_owned()).spawn(run);
        let thread = Some(thread.map_err(unusable)?);
        Ok(Listening { address, stop: Some(stop), thread })
    }

    /// Returns the address, with the port that the system chose.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the panic was already printed.
            let _ = thread.join();
        }
    }
}
