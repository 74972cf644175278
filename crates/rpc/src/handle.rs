//! The program's side of its remote procedure calls. Items are messages that the caller and the
//! method may exchange before the answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longhaul_proto::rpc::{Answer, Request, RpcCode, RpcError};
use longhaul_proto::time::Span;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// A request, an item or an answer: any message of the crate `prost`, also `String`, `Vec<u8>`,
/// `bool`, `f64`, `u64` and `()`.
pub trait RpcMessage: prost::Message + Default + 'static {}

impl<T: prost::Message + Default + 'static> RpcMessage for T {}

/// Options of a call.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RpcOptions {
    /// Time limit for the answer, by default 60 s; `None` for no limit.
    pub within: Option<Duration>,
}

impl Default for RpcOptions {
    fn default() -> RpcOptions {
        RpcOptions::within(Duration::from_secs(60))
    }
}

impl RpcOptions {
    /// Returns options with a deadline.
    pub fn within(time: Duration) -> RpcOptions {
        RpcOptions { within: Some(time) }
    }
}

/// An order to [`Ends`](crate::ends::Ends), from a handle of the program or from a method that the
/// program runs.
#[derive(Debug)]
pub(crate) enum Order {
    Call(Beginning),
    /// The answer is no longer needed.
    Cancel(u64),
    Item(Whose, Vec<u8>),
    /// Declares that no more items of a call follow.
    Finish(u64),
    /// An item was read.
    Read(Whose),
    /// A method has ended: the number of its call, the number of this run, and the answer.
    Done(u64, u64, Answer),
    /// The program has dropped all its handles and calls.
    Released,
}

#[derive(Debug)]
pub(crate) struct Beginning {
    /// The number of the call in this program.
    pub(crate) ticket: u64,
    pub(crate) request: Request,
    pub(crate) sender: oneshot::Sender<Answer>,
    pub(crate) items: Option<Passing>,
}

/// The call that an item belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose {
    /// A call of this program, by its ticket.
    Ours(u64),
    /// A call of the other side, by its number.
    Theirs(u64),
}

/// Passes received items to their reader, and grants permits to send items.
#[derive(Debug)]
pub(crate) struct Passing {
    items: Option<mpsc::UnboundedSender<Vec<u8>>>,
    permits: Arc<Semaphore>,
}

impl Passing {
    /// Passes an item. The channel needs no limit, because `longhaul_proto::rpc` limits the number
    /// of waiting items.
    pub(crate) fn pass(&mut self, item: Vec<u8>) {
        // If the reader is gone, the item is dropped.
        let _ = self.items.as_ref().map(|items| items.send(item));
    }

    pub(crate) fn allow(&mut self, more: u32) {
        self.permits.add_permits(more as usize);
    }

    /// Declares that no more items follow: the reader gets `None` after the last passed item.
    pub(crate) fn finish(&mut self) {
        self.items = None;
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.permits.close();
    }
}

#[derive(Debug)]
pub(crate) struct Items {
    whose: Whose,
    orders: mpsc::UnboundedSender<Order>,
    came: mpsc::UnboundedReceiver<Vec<u8>>,
    permits: Arc<Semaphore>,
}

impl Items {
    /// Returns the program's end of a call's items, and the [`Passing`] that feeds it.
    pub(crate) fn new(
        whose: Whose,
        orders: mpsc::UnboundedSender<Order>,
        permits: u32,
    ) -> (Items, Passing) {
        let (items, came) = mpsc::unbounded_channel();
        let permits = Arc::new(Semaphore::new(permits as usize));
        (
            Items { whose, orders, came, permits: permits.clone() },
            Passing { items: Some(items), permits },
        )
    }

    pub(crate) async fn send(&self, item: &impl RpcMessage) -> Result<(), RpcError> {
        let ended =
            |_| RpcError::new(RpcCode::Cancelled, "the call has ended and takes no more items");
        let body = encode(item)?;
        self.permits.acquire().await.map_err(ended)?.forget();
        let _ = self.orders.send(Order::Item(self.whose, body));
        Ok(())
    }

    pub(crate) async fn next<T: RpcMessage>(&mut self) -> Option<Result<T, RpcError>> {
        let body = self.came.recv().await?;
        let _ = self.orders.send(Order::Read(self.whose));
        Some(decode(&body))
    }
}

/// The other side of a connection, to call its methods. Clones use the same connection.
#[derive(Clone)]
pub struct Rpc {
    orders: mpsc::UnboundedSender<Order>,
    tickets: Arc<AtomicU64>,
    /// Ends the connection when the program has dropped all its handles and calls.
    _held: Option<Arc<Held>>,
}

struct Held(mpsc::UnboundedSender<Order>);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.send(Order::Released);
    }
}

impl fmt::Debug for Rpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rpc")
    }
}

impl Rpc {
    /// Returns the handle that methods get. It does not keep the connection open.
    pub(crate) fn new(orders: mpsc::UnboundedSender<Order>) -> Rpc {
        Rpc { orders, tickets: Arc::default(), _held: None }
    }

    pub(crate) fn orders(&self) -> mpsc::UnboundedSender<Order> {
        self.orders.clone()
    }

    /// Returns a handle that keeps the connection open.
    pub(crate) fn holding(&self) -> Rpc {
        let held = Arc::new(Held(self.orders.clone()));
        Rpc { _held: Some(held), ..self.clone() }
    }

    /// Calls `method` and waits for its answer. Dropping the future cancels the call. After a lost
    /// connection a client sends the request again, but the method runs at most once.
    ///
    /// # Errors
    /// The error of the method, or a code that says why there is no valid answer. The method may
    /// have run if the answer is too long or malformed, or if the code is [`RpcCode::Deadline`],
    /// [`RpcCode::Unknown`] or [`RpcCode::Lost`]. [`RpcCode::Denied`] has two causes: this program
    /// lacks the right, and the method has not run; or the other side has ended the connection, and
    /// the method may have run.
    pub async fn call<A: RpcMessage>(
        &self,
        method: &str,
        request: &impl RpcMessage,
        options: RpcOptions,
    ) -> Result<A, RpcError> {
        self.begin(method, request, options, None)?.answer().await
    }

    /// Calls `method` once for each request, without waiting in between: up to 256 calls take one
    /// round trip together. Returns the answers in the order of the requests.
    pub async fn batch<A: RpcMessage>(
        &self,
        method: &str,
        requests: &[impl RpcMessage],
        options: RpcOptions,
    ) -> Vec<Result<A, RpcError>> {
        let begin = |request| self.begin(method, request, options, None);
        let begun: Vec<_> = requests.iter().map(begin).collect();
        let mut answers = Vec::with_capacity(begun.len());
        for call in begun {
            answers.push(match call {
                Ok(call) => call.answer().await,
                Err(error) => Err(error),
            });
        }
        answers
    }

    /// Calls `method` with items both ways. A lost connection ends the call with [`RpcCode::Lost`].
    ///
    /// # Errors
    /// The request is too long, or the connection has ended.
    pub fn open(
        &self,
        method: &str,
        request: &impl RpcMessage,
        options: RpcOptions,
    ) -> Result<RpcStream, RpcError> {
        let ticket = self.ticket();
        let whose = Whose::Ours(ticket);
        let (items, passing) = Items::new(whose, self.orders.clone(), longhaul_proto::rpc::CREDIT);
        let begun = self.begin_as(ticket, method, request, options, Some(passing))?;
        Ok(RpcStream { begun, items })
    }

    /// Drops this handle and waits until the connection is closed. The connection is closed when
    /// all handles and calls of this program are dropped. If a program exits without this call, the
    /// server may learn of the end only by a timeout.
    pub async fn close(self) {
        let orders = self.orders.clone();
        drop(self);
        orders.closed().await;
    }

    fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    fn begin(
        &self,
        method: &str,
        request: &impl RpcMessage,
        options: RpcOptions,
        items: Option<Passing>,
    ) -> Result<Begun, RpcError> {
        self.begin_as(self.ticket(), method, request, options, items)
    }

    fn begin_as(
        &self,
        ticket: u64,
        method: &str,
        request: &impl RpcMessage,
        options: RpcOptions,
        items: Option<Passing>,
    ) -> Result<Begun, RpcError> {
        let (sender, receiver) = oneshot::channel();
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let within = options.within.map(|time| Span::from_nanos(nanos(time)));
        let (method, body) = (method.to_owned(), encode(request)?);
        let request = Request { method, body, within, items: items.is_some() };
        let order = Order::Call(Beginning { ticket, request, sender, items });
        self.orders.send(order).map_err(|_| connection_ended())?;
        let orders = self.orders.clone();
        Ok(Begun { ticket, receiver, orders, is_over: false, _held: self._held.clone() })
    }
}

/// A call in progress. Dropping this value cancels the call.
#[derive(Debug)]
struct Begun {
    ticket: u64,
    receiver: oneshot::Receiver<Answer>,
    orders: mpsc::UnboundedSender<Order>,
    is_over: bool,
    _held: Option<Arc<Held>>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

impl Begun {
    async fn answer<A: RpcMessage>(mut self) -> Result<A, RpcError> {
        let answer = (&mut self.receiver).await;
        self.is_over = true;
        decode(&answer.map_err(|_| connection_ended())??)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.orders.send(Order::Cancel(self.ticket));
        }
    }
}

/// A call with items both ways. Dropping this value cancels the call.
#[derive(Debug)]
pub struct RpcStream {
    begun: Begun,
    items: Items,
}

impl RpcStream {
    /// Sends an item to the method. Waits until the method has read enough of the earlier items: at
    /// most 8 are unread.
    ///
    /// # Errors
    /// The item is too long; or the call has ended, and [`RpcStream::answer`] returns why.
    pub async fn send(&self, item: &impl RpcMessage) -> Result<(), RpcError> {
        self.items.send(item).await
    }

    /// Tells the method that no more items follow.
    pub fn finish(&self) {
        let _ = self.begun.orders.send(Order::Finish(self.begun.ticket));
    }

    /// Returns the next item of the method; `None` after its last item, or once the call has ended.
    pub async fn next<T: RpcMessage>(&mut self) -> Option<Result<T, RpcError>> {
        self.items.next().await
    }

    /// Tells the method that no more items follow, and waits for its answer. Items that were not
    /// read are dropped.
    ///
    /// # Errors
    /// As [`Rpc::call`].
    pub async fn answer<A: RpcMessage>(mut self) -> Result<A, RpcError> {
        self.finish();
        let mut answer = std::pin::pin!(self.begun.answer());
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                // The method may wait until its items have been read.
                Some(_) = self.items.next::<()>() => {}
            }
        }
    }
}

fn connection_ended() -> RpcError {
    RpcError::new(RpcCode::Lost, "the connection for calls has ended")
}

pub(crate) fn encode(message: &impl RpcMessage) -> Result<Vec<u8>, RpcError> {
    let (length, limit) = (message.encoded_len(), longhaul_proto::rpc::MAX_BODY);
    match length <= limit {
        true => Ok(message.encode_to_vec()),
        false => Err(RpcError::new(
            RpcCode::TooLong,
            format!("{length} bytes exceed the limit of {limit}"),
        )),
    }
}

pub(crate) fn decode<T: RpcMessage>(body: &[u8]) -> Result<T, RpcError> {
    let wrong =
        |error| RpcError::new(RpcCode::Malformed, format!("the message has another type: {error}"));
    T::decode(body).map_err(wrong)
}
