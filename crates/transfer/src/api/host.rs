//! Opens a connection to a host, and starts the thread that executes the calls (orders) of the
//! connection's handles.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::client::{Client, IntoLocation};
use super::engine::{self, Reporter, Sink};
use super::events::Event;
use super::queue::Queue;
use crate::calls::Calls;
use crate::error::public::Error;
use crate::options::{HostOptions, ReachOptions};
use crate::progress::Cancel;

#[derive(Clone, Debug)]
pub(super) struct HostRequest {
    client: Client,
    options: Result<HostOptions, Error>,
    cancel: Cancel,
}

impl HostRequest {
    pub(super) fn new(client: &Client, host: impl IntoLocation) -> HostRequest {
        let options = host.into_location().map(|location| client.host(location));
        HostRequest { client: client.clone(), options, cancel: Cancel::default() }
    }

    pub(super) fn reach(mut self, reach: ReachOptions) -> HostRequest {
        if let Ok(options) = &mut self.options {
            options.reach = reach;
        }
        self
    }

    pub(super) fn cancel_with(self, handle: &Cancel) -> HostRequest {
        HostRequest { cancel: handle.clone(), ..self }
    }

    /// Completes when `serve` has reached the host. `waiting` is the maximum number of queued
    /// orders. Dropping the future ends the attempt.
    pub(super) async fn open<R: Send + 'static, O: Send + 'static>(
        self,
        name: &'static str,
        waiting: usize,
        serve: impl FnOnce(Calls<R, O>) + Send + 'static,
    ) -> Result<(R, mpsc::Sender<O>, Serving), Error> {
        let options = self.options?;
        let cancel = self.cancel.child();
        // A connection has no events, so nothing reads this queue.
        let unread: Sink<Event> = Sink::Queue(Queue::new(1));
        let observer = Arc::new(Reporter::new(unread, self.client.trust.clone(), cancel.clone()));
        let (ready, told) = oneshot::channel();
        let (order, orders) = mpsc::channel(waiting);
        let mut attempt = Attempt(Some(cancel.clone()));
        let (serving, ends) = mpsc::channel(1);
        engine::start(name, move || {
            serve(Calls { options, observer, cancel, ready, orders });
            drop(ends);
        })?;
        let reached = told.await.map_err(|_| engine::vanished(name))??;
        attempt.0 = None;
        Ok((reached, order, Serving(serving)))
    }
}

/// The thread that serves the orders.
#[derive(Clone)]
pub(super) struct Serving(mpsc::Sender<Infallible>);

impl Serving {
    pub(super) async fn ended(&self) {
        self.0.closed().await;
    }
}

/// Cancels the attempt to reach the host when this value is dropped before the host is reached.
struct Attempt(Option<Cancel>);

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }
}
