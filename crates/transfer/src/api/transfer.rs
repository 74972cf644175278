//! The handle of a running transfer.

use std::fmt;

use tokio::sync::oneshot;

use super::engine;
use super::error::Error;
use super::events::{Event, Events};
use super::queue::Queue;
use crate::progress::Cancel;
use crate::summary::Summary;

/// A running transfer. Dropping the handle cancels the transfer without waiting for its end; the
/// same call resumes it.
#[must_use = "dropping a transfer cancels it"]
pub struct Transfer {
    queue: Queue<Event>,
    cancel: Cancel,
    done: oneshot::Receiver<Result<Summary, Error>>,
    result: Option<Result<Summary, Error>>,
}

impl Transfer {
    pub(super) fn new(
        queue: Queue<Event>,
        cancel: Cancel,
        done: oneshot::Receiver<Result<Summary, Error>>,
    ) -> Transfer {
        Transfer { queue, cancel, done, result: None }
    }

    /// The transfer's events, from the first unread one. One reader has them: a second call ends
    /// the first stream. Nobody has to read.
    pub fn events(&self) -> Events {
        Events::of(&self.queue)
    }

    /// Waits for the end. The future may be dropped and asked for again; a second call returns the
    /// same result.
    ///
    /// # Errors
    /// Why the transfer ended. Failed files of a tree are no error: the summary counts them, and
    /// each was an event.
    pub async fn finish(&mut self) -> Result<Summary, Error> {
        if let Some(result) = &self.result {
            return result.clone();
        }
        let ended = (&mut self.done).await;
        let result = ended.unwrap_or_else(|_| Err(engine::vanished("a copy")));
        self.result.insert(result).clone()
    }

    /// What cancels the transfer from elsewhere.
    pub fn cancel_handle(&self) -> Cancel {
        self.cancel.clone()
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").field("result", &self.result).finish_non_exhaustive()
    }
}
