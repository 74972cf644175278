//! The handle of a running transfer.

use std::fmt;

use super::events::{Event, Events};
use super::running::Running;
use crate::error::public::Error;
use crate::progress::Cancel;
use crate::summary::Summary;

/// A running transfer. Dropping the handle cancels the transfer without waiting for its end; a
/// later call with the same arguments resumes it.
#[must_use = "dropping a transfer cancels it"]
pub struct Transfer(pub(super) Running<Event, Summary>);

impl Transfer {
    /// Returns the transfer's events, from the first unread one; a second call ends the first
    /// stream.
    pub fn events(&self) -> Events {
        Events::over(self.0.queue.reader())
    }

    /// Waits until the transfer ends; a second call returns the same result.
    ///
    /// # Errors
    /// The reason why the transfer ended early. Failed files of a tree are not an error; the
    /// summary counts them.
    pub async fn finish(&mut self) -> Result<Summary, Error> {
        self.0.finish().await
    }

    /// Returns a handle that cancels the transfer.
    pub fn cancel_handle(&self) -> Cancel {
        self.0.cancel.clone()
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").field("result", &self.0.result).finish_non_exhaustive()
    }
}
