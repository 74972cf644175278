//! The end of a stream or of a channel, with its handle.

use tokio::sync::oneshot;

use crate::progress::Cancel;

/// Cancels a stream when its future or handle is dropped.
#[derive(Debug)]
pub(super) struct Ending(pub(super) Option<Cancel>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl Ending {
    fn cancel(&self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }

    /// Cancels the stream, and waits until it has ended.
    pub(super) async fn wait<T>(self, done: Option<oneshot::Receiver<T>>) {
        self.cancel();
        if let Some(done) = done {
            // The reason of an earlier end was the last event.
            let _ = done.await;
        }
    }
}
