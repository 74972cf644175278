//! The methods that this side offers for remote procedure calls, and the thread that runs them.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use longhaul_proto::rpc::{Answer, RpcCode, RpcError};
use longhaul_proto::share::Key;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::handle::{Items, Order, Rpc, RpcMessage, decode, encode};

type Running = Pin<Box<dyn Future<Output = Answer> + Send>>;
type Method = Arc<dyn Fn(&[u8], RpcCall) -> Running + Send + Sync>;

/// The methods that a client or server offers. A clone starts with the same methods.
#[derive(Clone, Default)]
pub struct Methods {
    table: BTreeMap<Key, Method>,
    worker: Option<Arc<Worker>>,
}

impl fmt::Debug for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.table.keys()).finish()
    }
}

impl Methods {
    /// Adds a method, or replaces the method of this name. All methods run concurrently on one
    /// thread, so run long computations on other threads.
    ///
    /// # Errors
    /// A text with the reason: the name is invalid, or the thread of the methods cannot start.
    pub fn add<Q: RpcMessage, A: RpcMessage, F>(
        &mut self,
        name: &str,
        method: impl Fn(Q, RpcCall) -> F + Send + Sync + 'static,
    ) -> Result<(), String>
    where
        F: Future<Output = Result<A, RpcError>> + Send + 'static,
    {
        let name = Key::new(name).map_err(|error| format!("`{name}` is invalid: {error}"))?;
        if self.worker.is_none() {
            let started = Worker::start();
            self.worker = Some(started.map_err(|why| format!("cannot start methods: {why}"))?);
        }
        let run = move |body: &[u8], call| -> Running {
            match decode(body) {
                Ok(request) => {
                    let running = method(request, call);
                    Box::pin(async move { encode(&running.await?) })
                }
                Err(error) => Box::pin(async { Err(error) }),
            }
        };
        self.table.insert(name, Arc::new(run));
        Ok(())
    }

    /// Returns whether there are no methods.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }

    /// Starts a method. When the method has ended or was stopped, `rpc` gets [`Order::Done`] with
    /// `run`, the number of this run. Dropping the returned value stops the method. `None` if there
    /// is no such method.
    pub(crate) fn run(
        &self,
        call: longhaul_proto::rpc::Call,
        run: u64,
        peer: &str,
        rpc: &Rpc,
        items: Option<Items>,
    ) -> Option<Task> {
        let (method, worker) = (self.table.get(&*call.method)?.clone(), self.worker.as_ref()?);
        let within = (call.within > 0).then(|| Duration::from_millis(call.within));
        let (rpc, peer) = (rpc.clone(), peer.to_owned());
        let report = Report { call: (call.id, run), orders: rpc.orders(), answer: None };
        let work = async move {
            let mut report = report;
            let called = RpcCall { peer, rpc, within, items };
            let running = async { method(&call.body, called).await };
            let answer = match within {
                None => running.await,
                Some(within) => match tokio::time::timeout(within, running).await {
                    Ok(answer) => answer,
                    Err(_) => Err(RpcError::new(RpcCode::Deadline, "the deadline has passed")),
                },
            };
            report.answer = Some(answer);
            drop(report);
        };
        Some(Task(worker.runtime.spawn(work).abort_handle()))
    }
}

/// A running method. Dropping this value stops the method.
#[derive(Debug)]
pub(crate) struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reports the end of a method, even if it panics.
struct Report {
    /// The number of the call, and of the run.
    call: (u64, u64),
    orders: mpsc::UnboundedSender<Order>,
    answer: Option<Answer>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let ended = || Err(RpcError::new(RpcCode::Failed, "the method ended without an answer"));
        let answer = self.answer.take().unwrap_or_else(ended);
        let _ = self.orders.send(Order::Done(self.call.0, self.call.1, answer));
    }
}

/// The thread of the methods. The thread ends when the last clone of its [`Methods`] is dropped.
struct Worker {
    runtime: Handle,
    _ends: oneshot::Sender<()>,
}

impl Worker {
    fn start() -> std::io::Result<Arc<Worker>> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (ends, ended) = oneshot::channel::<()>();
        let run = move || {
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        };
        thread::Builder::new().name("longhaul methods".to_owned()).spawn(run)?;
        Ok(Arc::new(Worker { runtime: handle, _ends: ends }))
    }
}

/// A call that a method answers.
#[derive(Debug)]
pub struct RpcCall {
    peer: String,
    rpc: Rpc,
    within: Option<Duration>,
    items: Option<Items>,
}

impl RpcCall {
    /// Returns the authenticated id of the caller, as `lh1:…`.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Returns the handle for calls to the caller's own methods. On a server, a lost connection
    /// ends the pending calls of this handle.
    pub fn caller(&self) -> &Rpc {
        &self.rpc
    }

    /// Returns the time limit of the caller, counted from the start of the method; `None` for no
    /// limit.
    pub fn within(&self) -> Option<Duration> {
        self.within
    }

    /// Sends an item to the caller. Waits until the caller has read enough of the earlier items: at
    /// most 8 are unread.
    ///
    /// # Errors
    /// The item is too long, the caller takes no items, the call has ended, or the connection is
    /// lost.
    pub async fn send(&self, item: &impl RpcMessage) -> Result<(), RpcError> {
        let none = || RpcError::new(RpcCode::Failed, "the caller takes no items");
        self.items.as_ref().ok_or_else(none)?.send(item).await
    }

    /// Returns the next item of the caller; `None` if no more follow.
    pub async fn next<T: RpcMessage>(&mut self) -> Option<Result<T, RpcError>> {
        self.items.as_mut()?.next().await
    }
}
