//! Ends a stream or a channel when its handle is dropped.

use tokio::sync::oneshot;

use crate::progress::Cancel;

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

    pub(super) async fn wait<T>(self, done: Option<oneshot::Receiver<T>>) {
        self.cancel();
        if let Some(done) = done {
            // If the stream ended earlier, its last event was the reason.
            let _ = done.await;
        }
    }
}
