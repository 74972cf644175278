//! Channels: several clients send messages to several others through a room of a server.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use longhaul_net::multicast::interface;
use longhaul_proto::channel::{Code, Mode, Stats};
use longhaul_proto::share::{Key, KeyError, Prefix};
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};
use longhaul_stream::channel::publish::{self, Refused, Source};
use longhaul_stream::channel::subscribe::{self, Board, Item};
use longhaul_stream::terms::check_deadline;
use tokio::sync::{mpsc, oneshot, watch};

use super::client::{Client, IntoLocation};
use super::ending::Ending;
use super::engine;
use super::stream::{Target, ended, reached};
use crate::channel::{receive_channel, send_channel};
use crate::error::Error as Inner;
use crate::error::public::{Error, ErrorKind};
use crate::options::ReachOptions;
use crate::progress::Cancel;

/// How messages travel between a client and the server of its room. For large frames with a
/// deadline, use [`Client::send_stream`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelMode {
    /// Every message, in order. By default the room keeps up to 4,096 messages and 32 MiB. A
    /// subscriber that falls further behind loses the oldest messages and learns how many.
    #[default]
    Reliable,
    /// The newest message of each key. A newer message replaces an older message that was not sent
    /// yet.
    Latest,
    /// Every message in sealed UDP datagrams, without retransmission, in any order.
    Datagram,
    /// As `Datagram`, with a deadline of 1 ms to 60 s after the program offers a message. A
    /// message that would arrive later is dropped and counted. The measured losses determine the
    /// repairs, so no code can be set. A new subscriber gets no earlier messages.
    Deadline(Span),
    /// Every message in datagrams to the room's multicast group, without retransmission, in any
    /// order. The server must be a member of the group in this network; it passes the group's
    /// messages on to the room. Members receive each other's messages directly, even while the
    /// connection to the server is lost.
    Multicast,
}

/// The code that repairs lost datagrams of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelCode {
    /// No repairs.
    #[default]
    None,
    /// One repair datagram, the XOR of the group, for each group of 1 to 64 datagrams.
    Xor(u8),
    /// Reed–Solomon: groups of 1 to 64 datagrams, with 1 to 32 repair datagrams each.
    ReedSolomon(u8, u8),
}

/// The settings of a sender or a subscriber of a channel.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ChannelSettings {
    /// How messages travel between this client and the server.
    pub mode: ChannelMode,
    /// A subscriber gets only messages with this key or a key below it; empty for all messages.
    pub keys: String,
    /// The code, for the mode `Datagram`, and for a sender in the mode `Multicast`.
    pub code: ChannelCode,
    /// UDP payload of a datagram in bytes. `None` uses the largest size that passes on the path to
    /// the server, up to the Ethernet size (the largest size that fits every Ethernet path). The
    /// mode `Multicast` then always uses the Ethernet size.
    pub datagram: Option<u16>,
    /// Name of the interface of this host that leads to the group, in the mode `Multicast`. `None`
    /// uses the interface that leads to the server.
    pub interface: Option<String>,
}

impl ChannelSettings {
    /// Returns settings for a mode, without repairs.
    pub fn new(mode: ChannelMode) -> ChannelSettings {
        ChannelSettings { mode, ..ChannelSettings::default() }
    }

    fn checked(&self) -> Result<(Mode, Code, Option<u32>), Error> {
        let (is_xor, group, repairs) = match self.code {
            ChannelCode::None => (false, 0, 0),
            ChannelCode::Xor(group) => (true, group.into(), 1),
            ChannelCode::ReedSolomon(group, repairs) => (false, group.into(), repairs.into()),
        };
        let usage = |what: String| Error::new(ErrorKind::Usage, what);
        let code = Code::new(is_xor, group, repairs).map_err(|error| usage(error.to_string()))?;
        let mode = match self.mode {
            ChannelMode::Reliable => Mode::Reliable,
            ChannelMode::Latest => Mode::Latest,
            ChannelMode::Datagram => Mode::Datagram,
            ChannelMode::Deadline(deadline) => Mode::Deadline(check_deadline(deadline)?),
            ChannelMode::Multicast => Mode::Multicast,
        };
        if code != Code::None && !matches!(mode, Mode::Datagram | Mode::Multicast) {
            return Err(usage("only the modes datagram and multicast take a code".to_owned()));
        }
        let number = |name: &String| interface(name).map_err(|error| usage(error.what));
        Ok((mode, code, self.interface.as_ref().map(number).transpose()?))
    }
}

fn no_key(error: KeyError) -> Error {
    Error::new(ErrorKind::Usage, format!("the key is invalid: {error}"))
}

impl Client {
    /// Describes a sender to the room `to`: `lh://host[:port]/room`. Await the request.
    pub fn send_channel(
        &self,
        to: impl IntoLocation,
        settings: ChannelSettings,
    ) -> SendChannelRequest {
        SendChannelRequest { target: Target::new(self, to.into_location()), settings }
    }

    /// Describes a subscriber of the room `from`: `lh://host[:port]/room`. Await the request.
    pub fn receive_channel(
        &self,
        from: impl IntoLocation,
        settings: ChannelSettings,
    ) -> ReceiveChannelRequest {
        ReceiveChannelRequest { target: Target::new(self, from.into_location()), settings }
    }
}

/// A request to send to a room: await it.
#[derive(Clone, Debug)]
#[must_use = "a channel is opened when its request is awaited"]
pub struct SendChannelRequest {
    target: Target,
    settings: ChannelSettings,
}

/// A request to receive from a room: await it.
#[derive(Clone, Debug)]
#[must_use = "a channel is opened when its request is awaited"]
pub struct ReceiveChannelRequest {
    target: Target,
    settings: ChannelSettings,
}

reached!(SendChannelRequest);
reached!(ReceiveChannelRequest);

impl IntoFuture for SendChannelRequest {
    type Output = Result<ChannelSender, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// Completes when the server has accepted the sender.
    ///
    /// # Errors
    /// The host cannot be reached or is not trusted, it refuses the sender, or a setting is out of
    /// its limits.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (mode, code, interface) = self.settings.checked()?;
            let (connector, name, cancel) = self.target.connector()?;
            let datagram = self.settings.datagram;
            let wish = publish::Wish { name, mode, code, datagram, interface };
            let (tell, ready) = oneshot::channel();
            let mut ending = Ending(Some(cancel));
            let done = engine::start(NAME, move || send_channel(&connector, wish, tell))?;
            let (source, mut status) = ready.await.map_err(|_| engine::vanished(NAME))??;
            if status.wait_for(|status| status.connected).await.is_err() {
                return Err(ended(done.await).err().unwrap_or_else(|| engine::vanished(NAME)));
            }
            let cancel = ending.0.take();
            Ok(ChannelSender { source, status, done, _ending: Ending(cancel) })
        })
    }
}

const NAME: &str = "longhaul channel";

/// A sender to a room. Dropping it discards messages that the server has not received.
#[derive(Debug)]
pub struct ChannelSender {
    source: Source,
    status: watch::Receiver<publish::Status>,
    done: oneshot::Receiver<Result<publish::Status, Inner>>,
    _ending: Ending,
}

/// The input for messages. Clones feed the same channel.
#[derive(Clone, Debug)]
pub struct ChannelInput {
    source: Source,
}

impl ChannelInput {
    /// Sends a message of up to 16 MiB, with a key (words joined by slashes) or without one. In the
    /// mode `Latest` the call never waits, and the message replaces a waiting message with the same
    /// key. In the other modes the call waits while about 64 MiB of messages wait for the server.
    ///
    /// # Errors
    /// The key is invalid, the message is too long; or the channel has ended, and
    /// [`ChannelSender::finish`] returns the reason.
    pub async fn send(
        &self,
        key: Option<&str>,
        message: impl Into<Arc<[u8]>>,
    ) -> Result<(), Error> {
        let key = key.map(Key::new).transpose().map_err(no_key)?;
        self.source.offer(key, message.into()).await.map_err(|refused| match refused {
            Refused::Long => Error::new(ErrorKind::Usage, "a message has at most 16 MiB"),
            Refused::Ended => Error::new(ErrorKind::Unfinished, "the channel has ended"),
        })
    }
}

impl ChannelSender {
    /// Returns the input for messages.
    pub fn input(&self) -> ChannelInput {
        ChannelInput { source: self.source.clone() }
    }

    /// Returns the state and the counters of the channel.
    pub fn status(&self) -> ChannelSent {
        ChannelSent::of(&self.status.borrow(), self.source.stats())
    }

    /// Returns whether the channel has ended; [`ChannelSender::finish`] then returns the reason.
    pub fn is_over(&self) -> bool {
        self.status.has_changed().is_err()
    }

    /// Sends the remaining messages, and waits until the server has received them. In the modes
    /// with datagrams, waits only until the messages are sent.
    ///
    /// # Errors
    /// The reason why the channel ended earlier.
    pub async fn finish(self) -> Result<ChannelSent, Error> {
        self.source.finish();
        ended(self.done.await).map(|status| ChannelSent::of(&status, self.source.stats()))
    }
}

/// The state of a channel at its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelSent {
    /// Whether the connection is up.
    pub connected: bool,
    /// Messages taken from the program.
    pub messages: u64,
    /// Messages that the server has received; in the modes `Datagram`, `Deadline` and `Multicast`,
    /// messages that were sent.
    pub taken: u64,
    /// Messages that were not sent, because a newer message with the same key replaced them, or
    /// because more than 4,096 keys or 64 MiB waited.
    pub replaced: u64,
    /// Messages that could not be sent, did not reach the server, or were dropped there for lack of
    /// memory.
    pub dropped: u64,
    /// Messages that were too old to be sent, or too old on arrival at the server.
    pub late: u64,
    unsent: u64,
    failed: u64,
    /// Content of the messages that have left the queue, including those that could not be sent or
    /// were too old.
    pub bytes: Bytes,
    /// Rate of this content, over the last one to two seconds.
    pub goodput: Rate,
    /// Rate of all bytes sent, including headers, keys and repairs, over the last one to two
    /// seconds.
    pub throughput: Rate,
    /// The lowest round-trip time to the server on the current connection.
    pub rtt: Span,
}

impl ChannelSent {
    fn of(status: &publish::Status, stats: Stats) -> ChannelSent {
        let Stats { bytes, goodput, throughput, .. } = stats;
        let publish::Status { connected, messages, taken, replaced, unsent, failed, rtt, .. } =
            *status;
        let (dropped, late) = (status.dropped.max(failed), unsent + status.late);
        ChannelSent {
            connected,
            messages,
            taken,
            replaced,
            dropped,
            late,
            unsent,
            failed,
            bytes,
            goodput,
            throughput,
            rtt,
        }
    }

    /// Returns the dropped fraction of the messages that were not replaced, from 0 to 1.
    pub fn loss(&self) -> f64 {
        let all = self.messages.saturating_sub(self.replaced);
        if all == 0 { 0.0 } else { (self.dropped as f64 / all as f64).min(1.0) }
    }

    /// Returns the number of messages that wait for the server.
    pub fn queue(&self) -> u64 {
        self.messages.saturating_sub(self.taken + self.replaced + self.unsent + self.failed)
    }
}

impl IntoFuture for ReceiveChannelRequest {
    type Output = Result<ChannelReceiver, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// # Errors
    /// The host cannot be reached or is not trusted, or a setting is out of its limits.
    /// If the host does not let this client receive, [`ChannelReceiver::next`] returns the error.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (mode, code, interface) = self.settings.checked()?;
            let keys = Prefix::new(&self.settings.keys).map_err(no_key)?;
            let (connector, name, cancel) = self.target.connector()?;
            let datagram = self.settings.datagram;
            let wish = subscribe::Wish { name, mode, keys, code, datagram, interface };
            let (tell, ready) = oneshot::channel();
            let ending = Ending(Some(cancel));
            let done = engine::start(NAME, move || receive_channel(&connector, wish, tell))?;
            let (items, board) = ready.await.map_err(|_| engine::vanished(NAME))??;
            Ok(ChannelReceiver { items, board, done: Some(done), ending })
        })
    }
}

/// A subscriber of a room. Dropping it ends the reception.
pub struct ChannelReceiver {
    items: mpsc::Receiver<Item>,
    board: Board,
    done: Option<oneshot::Receiver<Result<(), Inner>>>,
    ending: Ending,
}

impl fmt::Debug for ChannelReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChannelReceiver")
    }
}

/// An event of a channel.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ChannelEvent {
    /// This client has entered the room. The event is repeated when the server has created the room
    /// anew; the number of messages lost before a repeated event is unknown.
    Joined,
    /// A message.
    Message(ChannelMessage),
    /// This many messages were lost, because this client was too slow or disconnected. Messages
    /// lost on the path, in the modes with datagrams, count only in [`ChannelReceived::lost`].
    Lost(u64),
}

/// A message of a channel.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChannelMessage {
    /// The key, if the message has one.
    pub key: Option<String>,
    /// The content.
    pub bytes: Arc<[u8]>,
    /// The number that identifies the sender.
    pub origin: u64,
    /// The number of the message, from 1 for each sender.
    pub number: u64,
    /// When the sender took the message, in microseconds of the sender's clock.
    pub at_micros: u64,
    /// Whether at least one datagram of the message was lost and restored.
    pub restored: bool,
}

/// The state of a channel at a subscriber.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChannelReceived {
    /// Whether the connection is up.
    pub connected: bool,
    /// Messages that have arrived, including those that wait for the program.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: Bytes,
    /// Messages that were lost: on the path, or because this client was too slow or disconnected.
    pub lost: u64,
    /// The fraction of messages that were lost, from 0 to 1.
    pub loss: f64,
    /// Messages that were not delivered because they were too old, in the mode `Deadline`.
    pub late: u64,
    /// Messages with at least one datagram that was lost and restored.
    pub restored: u64,
    /// Messages that arrived after a message that was sent later.
    pub reordered: u64,
    /// Events that wait for the program.
    pub queue: u64,
    /// Rate of the content of arrived messages, over the last one to two seconds.
    pub goodput: Rate,
    /// Rate of received content, over the last one to two seconds. In the modes `Reliable` and
    /// `Latest` the content of incomplete messages counts too. In the mode `Multicast`: rate of the
    /// datagrams that completed a message.
    pub throughput: Rate,
    /// The round-trip time to the server when this client last entered the room.
    pub rtt: Span,
    /// The smoothed difference between the delays of successive messages (RFC 3550).
    pub jitter: Span,
}

impl ChannelReceiver {
    /// Returns the next event. An error is the last item. A client that does not read loses
    /// messages of this channel only, and delays no other client.
    pub async fn next(&mut self) -> Option<Result<ChannelEvent, Error>> {
        let item = loop {
            let Some(done) = &mut self.done else { break self.items.recv().await };
            tokio::select! {
                biased;
                item = self.items.recv(), if !self.items.is_closed() || !self.items.is_empty() => {
                    if item.is_some() {
                        break item;
                    }
                    self.items.close();
                }
                done = done => {
                    self.done = None;
                    if let Err(error) = ended(done) {
                        return Some(Err(error));
                    }
                }
            }
        };
        Some(Ok(match item? {
            Item::Joined => ChannelEvent::Joined,
            Item::Lost(count) => ChannelEvent::Lost(count),
            Item::Message(received) => {
                let message = &received.message;
                ChannelEvent::Message(ChannelMessage {
                    key: message.key.as_ref().map(|key| key.as_str().to_owned()),
                    bytes: message.bytes.clone(),
                    origin: message.origin,
                    number: message.number,
                    at_micros: message.at,
                    restored: received.restored,
                })
            }
        }))
    }

    /// Ends the reception, and waits until the server has been told, at most a few seconds. If a
    /// program exits without this call, the server may learn only by a timeout that this client has
    /// left.
    pub async fn close(self) {
        self.ending.wait(self.done).await;
    }

    /// Returns the state and the counters of the channel.
    pub fn status(&self) -> ChannelReceived {
        let subscribe::Status { connected, rtt, restored, late, stats } = self.board.status();
        let Stats { messages, bytes, lost, reordered, goodput, throughput, jitter } = stats;
        ChannelReceived {
            connected,
            messages,
            bytes,
            lost,
            loss: stats.loss(),
            late,
            restored,
            reordered,
            queue: self.items.len() as u64,
            goodput,
            throughput,
            rtt,
            jitter,
        }
    }
}
