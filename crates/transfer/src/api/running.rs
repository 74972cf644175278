//! The common part of the handles of transfers and probes.

use tokio::sync::oneshot;

use super::engine;
use super::queue::{Queue, Queued};
use crate::error::public::Error;
use crate::progress::Cancel;

pub(super) struct Running<E, T> {
    name: &'static str,
    pub(super) queue: Queue<E>,
    pub(super) cancel: Cancel,
    done: oneshot::Receiver<Result<T, Error>>,
    pub(super) result: Option<Result<T, Error>>,
}

impl<E: Queued + Send + 'static, T: Clone + Send + 'static> Running<E, T> {
    /// Starts `work` on a thread. The queue closes when the thread ends, even by a panic.
    pub(super) fn start(
        name: &'static str,
        queue: Queue<E>,
        cancel: Cancel,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<Running<E, T>, Error> {
        let closing = Closing(queue.clone());
        let done = engine::start(name, move || {
            let _closing = closing;
            work()
        })?;
        Ok(Running { name, queue, cancel, done, result: None })
    }

    pub(super) async fn finish(&mut self) -> Result<T, Error> {
        if let Some(result) = &self.result {
            return result.clone();
        }
        let ended = (&mut self.done).await;
        let result = ended.unwrap_or_else(|_| Err(engine::vanished(self.name)));
        self.result.insert(result).clone()
    }
}

impl<E, T> Drop for Running<E, T> {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

struct Closing<E: Queued>(Queue<E>);

impl<E: Queued> Drop for Closing<E> {
    fn drop(&mut self) {
        self.0.close();
    }
}
