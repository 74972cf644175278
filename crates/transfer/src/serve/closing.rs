//! The shutdown of a server: first it refuses new requests, then it ends the running requests.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::error::{Error, ErrorKind};

/// How long the server waits for its sessions to tell their clients about the shutdown.
const LAST_WORD: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// Running requests continue.
    Refusing,
    /// Running requests end.
    Ending,
}

#[derive(Clone, Default)]
pub(super) struct Closing(Rc<State>);

#[derive(Default)]
struct State {
    stage: Cell<Stage>,
    busy: Cell<usize>,
    idle: Notify,
}

/// A running request. Dropping this counts the request as ended.
#[must_use]
pub(super) struct Busy(Closing);

impl Closing {
    /// Counts a request until the result is dropped. Fails if the server is shutting down.
    pub(super) fn enter(&self) -> Result<Busy, Error> {
        if self.0.stage.get() != Stage::Open {
            return Err(shutting_down());
        }
        self.0.busy.set(self.0.busy.get() + 1);
        Ok(Busy(self.clone()))
    }

    /// Returns the error for running requests once they have to end; `None` before.
    pub(super) fn reason(&self) -> Option<Error> {
        (self.0.stage.get() == Stage::Ending).then(shutting_down)
    }

    /// Refuses new requests, and waits at most `grace` for the running requests. Then ends those
    /// that still run, and waits briefly for their final messages.
    pub(super) async fn close(&self, grace: Duration) {
        self.0.stage.set(Stage::Refusing);
        let _ = timeout(grace, self.idle()).await;
        self.0.stage.set(Stage::Ending);
        let _ = timeout(LAST_WORD, self.idle()).await;
    }

    async fn idle(&self) {
        while self.0.busy.get() > 0 {
            self.0.idle.notified().await;
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let state = &self.0.0;
        state.busy.set(state.busy.get() - 1);
        state.idle.notify_one();
    }
}

/// Clients retry after this error.
fn shutting_down() -> Error {
    Error::new(ErrorKind::Unfinished, "the server is shutting down")
}
