//! The end of a server: no new requests, then no more transfers.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::error::{Error, ErrorKind};

/// How long sessions have to tell their clients that the server ends.
const LAST_WORD: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// Transfers under way go on.
    Refusing,
    /// Transfers under way end.
    Ending,
}

/// How far the end of a server is. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Closing(Rc<State>);

#[derive(Default)]
struct State {
    stage: Cell<Stage>,
    busy: Cell<usize>,
    idle: Notify,
}

/// A request that is being answered.
#[must_use]
pub(super) struct Busy(Closing);

impl Closing {
    /// Counts a request as long as the result lives.
    ///
    /// # Errors
    /// The server is shutting down.
    pub(super) fn enter(&self) -> Result<Busy, Error> {
        if self.0.stage.get() != Stage::Open {
            return Err(shutting_down());
        }
        self.0.busy.set(self.0.busy.get() + 1);
        Ok(Busy(self.clone()))
    }

    /// Returns why a transfer under way must end, if it must.
    pub(super) fn reason(&self) -> Option<Error> {
        (self.0.stage.get() == Stage::Ending).then(shutting_down)
    }

    /// Refuses new requests; after `grace` ends the transfers under way, and waits a little for
    /// their last words.
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

/// A client that hears this tries again.
fn shutting_down() -> Error {
    Error::new(ErrorKind::Unfinished, "the server is shutting down")
}
