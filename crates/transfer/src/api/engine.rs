//! The engine's own threads: an embedder's runtime never drives a transfer and never joins one.

use std::sync::Arc;
use std::thread;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::error::{Error, ErrorKind};
use super::events::Event;
use super::queue::Queue;
use super::trust::{NewServer, Trust};
use crate::progress::{Cancel, Notice, Observer, Progress};

/// Runs `work` on a thread called `name`; its result arrives at the receiver.
pub(super) fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<oneshot::Receiver<T>, Error> {
    let (tell, told) = oneshot::channel();
    let started = thread::Builder::new().name(name.to_owned()).spawn(move || {
        // A caller that dropped its handle wants no result.
        let _ = tell.send(work());
    });
    let failed = |error: std::io::Error| {
        let what = format!("cannot start the thread of {name}: {error}");
        Error::new(ErrorKind::Unfinished, what).caused_by(error)
    };
    started.map(|_| told).map_err(failed)
}

/// The error of a thread that ended without a result.
pub(super) fn vanished(name: &str) -> Error {
    Error::new(ErrorKind::Unfinished, format!("the thread of {name} ended early"))
}

/// Turns what the engine reports into events and decisions.
pub(super) struct Reporter {
    pub(super) queue: Queue<Event>,
    pub(super) trust: Arc<Trust>,
    pub(super) cancel: Cancel,
    /// The runtime in which the transfer was started.
    pub(super) runtime: Option<Handle>,
}

impl Observer for Reporter {
    fn progress(&self, progress: &Progress) {
        self.queue.push(Event::Progress(progress.clone()));
    }

    fn notice(&self, notice: Notice) {
        self.queue.push(notice.into());
    }

    fn trust_new_server(&self, server: &str, id: &str) -> bool {
        let server = NewServer { name: server.to_owned(), id: id.to_owned() };
        self.trust.decides(self.runtime.as_ref(), &self.cancel, server)
    }
}
