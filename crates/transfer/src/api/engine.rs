//! The engine: threads that run transfers and other calls outside the async runtime of the
//! embedding program.

use std::fmt;
use std::sync::Arc;
use std::thread;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::events::Event;
use super::queue::{Queue, Queued};
use super::trust::{NewServer, Trust};
use crate::error::public::{Error, ErrorKind};
use crate::progress::{Cancel, Notice, Observer, Progress};

/// Runs `work` on a thread called `name` and sends the result to the returned receiver.
pub(super) fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<oneshot::Receiver<T>, Error> {
    let (sender, receiver) = oneshot::channel();
    let started = thread::Builder::new().name(name.to_owned()).spawn(move || {
        // The caller may have dropped its handle.
        let _ = sender.send(work());
    });
    let failed = |error: std::io::Error| {
        let what = format!("cannot start the thread of {name}: {error}");
        Error::new(ErrorKind::Unfinished, what).caused_by(error)
    };
    started.map(|_| receiver).map_err(failed)
}

pub(super) fn vanished(name: &str) -> Error {
    Error::new(ErrorKind::Unfinished, format!("the thread of {name} ended early"))
}

/// The destination of events.
pub(super) enum Sink<E> {
    /// A queue; the engine never waits for its reader.
    Queue(Queue<E>),
    /// A function; the engine waits for it.
    Call(Arc<dyn Fn(E) + Send + Sync>),
}

impl<E> Clone for Sink<E> {
    fn clone(&self) -> Sink<E> {
        match self {
            Sink::Queue(queue) => Sink::Queue(queue.clone()),
            Sink::Call(see) => Sink::Call(see.clone()),
        }
    }
}

impl<E> fmt::Debug for Sink<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sink")
    }
}

impl<E: Queued> Sink<E> {
    pub(super) fn push(&self, event: E) {
        match self {
            Sink::Queue(queue) => queue.push(event),
            Sink::Call(see) => see(event),
        }
    }
}

/// Turns the engine's reports into events, and answers its questions about new servers.
pub(super) struct Reporter<E> {
    sink: Sink<E>,
    trust: Arc<Trust>,
    cancel: Cancel,
    /// The tokio runtime in which the call was started, if any.
    runtime: Option<Handle>,
}

impl<E> Reporter<E> {
    /// Decisions about servers run on the caller's tokio runtime, if there is one.
    pub(super) fn new(sink: Sink<E>, trust: Arc<Trust>, cancel: Cancel) -> Reporter<E> {
        Reporter { sink, trust, cancel, runtime: Handle::try_current().ok() }
    }
}

impl<E: Queued + From<Event> + Send> Observer for Reporter<E> {
    fn progress(&self, progress: &Progress) {
        self.sink.push(Event::Progress(progress.clone()).into());
    }

    fn notice(&self, notice: Notice) {
        self.sink.push(Event::from(notice).into());
    }

    fn trust_new_server(&self, server: &str, id: &str) -> bool {
        let server = NewServer { name: server.to_owned(), id: id.to_owned() };
        self.trust.decides(self.runtime.as_ref(), &self.cancel, server)
    }
}
