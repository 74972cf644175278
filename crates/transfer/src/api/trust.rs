//! The servers that a client trusts, and its decision about a new server.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;

use super::blocking;
use crate::options;
use crate::progress::Cancel;
use crate::session::trust::ServerPin;

/// How often a transfer that waits for a decision checks whether it was cancelled.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// A server that this client does not know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewServer {
    /// The server, as `host:port`.
    pub name: String,
    /// The id that the server shows, as `lh1:…`.
    pub id: String,
}

type Decision = Pin<Box<dyn Future<Output = bool> + Send>>;
type Decide = dyn Fn(NewServer) -> Decision + Send + Sync;

/// The servers that a client trusts. A server whose id has changed is always refused.
#[derive(Clone, Default)]
pub struct Trust {
    folder: PathBuf,
    pins: Vec<ServerPin>,
    decide: Option<Arc<Decide>>,
    /// The accepted servers, if no folder stores them.
    accepted: Arc<Mutex<BTreeMap<String, String>>>,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").field("folder", &self.folder).field("pins", &self.pins).finish()
    }
}

impl Trust {
    /// Trusts only servers that are pinned; see [`Trust::pin`].
    pub fn nobody() -> Trust {
        Trust::default()
    }

    /// Trusts every server that shows this id, as `lh1:…`.
    pub fn only(id: impl Into<String>) -> Trust {
        let pin = ServerPin { server: None, id: id.into() };
        Trust { pins: vec![pin], ..Trust::default() }
    }

    /// Trusts the servers in the file `known_servers` of `folder`, and adds accepted servers to it.
    pub fn known_servers(folder: impl Into<PathBuf>) -> Trust {
        Trust { folder: folder.into(), ..Trust::default() }
    }

    /// Calls `decide` for each new server, and waits for the answer of its future. The future runs
    /// on the tokio runtime in which the transfer was started; without such a runtime it runs on
    /// its own thread.
    ///
    /// An accepted server is remembered for the lifetime of the client. To store it in a file, call
    /// [`Trust::or_ask`] on [`Trust::known_servers`] instead.
    pub fn ask<F, D>(decide: F) -> Trust
    where
        F: Fn(NewServer) -> D + Send + Sync + 'static,
        D: Future<Output = bool> + Send + 'static,
    {
        Trust::default().or_ask(decide)
    }

    /// Also asks about each server that is not known yet; see [`Trust::ask`].
    #[must_use]
    pub fn or_ask<F, D>(self, decide: F) -> Trust
    where
        F: Fn(NewServer) -> D + Send + Sync + 'static,
        D: Future<Output = bool> + Send + 'static,
    {
        Trust { decide: Some(Arc::new(move |server| Box::pin(decide(server)))), ..self }
    }

    /// Also accepts and remembers every new server.
    #[must_use]
    pub fn or_accept_new(self) -> Trust {
        self.or_ask(async |_| true)
    }

    /// Also pins the server `host` or `host:port` to `id`.
    #[must_use]
    pub fn pin(mut self, server: impl Into<String>, id: impl Into<String>) -> Trust {
        self.pins.push(ServerPin { server: Some(server.into()), id: id.into() });
        self
    }

    /// Also adds `pins`; a pin without a server applies to servers without their own pin.
    #[must_use]
    pub fn pins(mut self, pins: impl IntoIterator<Item = ServerPin>) -> Trust {
        self.pins.extend(pins);
        self
    }

    pub(super) fn options(&self) -> options::Trust {
        let config_dir = self.folder.clone();
        options::Trust { config_dir, pins: self.pins.clone(), accept_new: false }
    }

    pub(super) fn decides(
        &self,
        runtime: Option<&Handle>,
        cancel: &Cancel,
        server: NewServer,
    ) -> bool {
        let Some(decide) = &self.decide else { return false };
        let accepted = || self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = accepted().get(&server.name) {
            return *id == server.id;
        }
        let (name, id) = (server.name.clone(), server.id.clone());
        let is_trusted = answer(runtime, decide(server), cancel);
        if is_trusted && self.folder.as_os_str().is_empty() {
            accepted().insert(name, id);
        }
        is_trusted
    }
}

fn answer(runtime: Option<&Handle>, decision: Decision, cancel: &Cancel) -> bool {
    let (sender, receiver) = channel();
    let ask = async move {
        let _ = sender.send(decision.await);
    };
    match runtime {
        Some(runtime) => drop(runtime.spawn(ask)),
        None => {
            let asking = thread::Builder::new().name("longhaul trust".into());
            if asking.spawn(move || blocking::wait(ask)).is_err() {
                return false;
            }
        }
    }
    wait(&receiver, cancel)
}

fn wait(receiver: &Receiver<bool>, cancel: &Cancel) -> bool {
    loop {
        match receiver.recv_timeout(CHECK_EVERY) {
            Ok(is_trusted) => return is_trusted,
            Err(RecvTimeoutError::Timeout) if !cancel.is_cancelled() => {}
            Err(_) => return false,
        }
    }
}
