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
            // The result is ignored: only `next` reports why a stream or channel ended by itself.
            let _ = done.await;
        }
    }
}
