//! A subscriber of a channel: delivers messages, and keeps the connection.

use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_net::clock;
use longhaul_net::socket::Path;
use longhaul_proto::channel::{Code, MAX_MESSAGE, Message, Meter, Mode, Seen, Stats};
use longhaul_proto::share::{Key, Prefix};
use longhaul_proto::time::Span;
use longhaul_session::retry::{Retries, silence};
use longhaul_session::{Error, FrameWriter, Kind, when};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::interval;

use super::inbound::{Came, Counts, Inbound};
use super::messages::{
    ChannelAsk, ChannelAsked, ChannelTell, ChannelTold, SERVICE, Subscribe, version,
};
use super::parts::Parts;
use crate::announcer::Announcer;
use crate::link::{LeastRtt, Link};
use crate::send::ethernet;
use crate::terms::{keys, micros};

/// Interval of a subscriber's reports in the mode with a deadline.
const SEEN: Duration = Duration::from_secs(1);
/// Maximum number of items queued for the program.
const UNREAD: usize = 1_024;
/// Maximum unread content in KiB, queued or held as [`Received`].
const UNREAD_KIBIS: usize = 32 << 10;
/// Maximum number of senders whose repeated messages are detected.
const ORIGINS: usize = 1_024;

/// The request of a subscriber.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The name of the room.
    pub name: Key,
    /// Which messages to receive, and how they travel.
    pub mode: Mode,
    /// Receives only messages with this key or a key below it; empty: all messages.
    pub keys: Prefix,
    /// The code that computes repair datagrams.
    pub code: Code,
    /// UDP payload of a datagram in bytes; `None` for the largest that passes to the server, but
    /// at most what Ethernet carries.
    pub datagram: Option<u16>,
    /// Index of the interface to the multicast group; `None` for the interface that leads to the
    /// server.
    pub interface: Option<u32>,
}

/// An item that a subscriber delivers.
#[derive(Debug)]
pub enum Item {
    /// This client has entered the room. A second `Joined` means that the server has created the
    /// room anew; the number of lost messages is then unknown.
    Joined,
    /// A message.
    Message(Box<Received>),
    /// This many messages were lost.
    Lost(u64),
}

/// A received message. Until its drop, its content counts towards the 32 MiB of unread content.
#[derive(Debug)]
pub struct Received {
    /// The message.
    pub message: Message,
    /// Whether a lost datagram of the message was restored.
    pub restored: bool,
    _permit: OwnedSemaphorePermit,
}

/// The state of a subscriber.
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    /// Whether the connection is up.
    pub connected: bool,
    /// The round-trip time when the client last entered the room.
    pub rtt: Span,
    /// Messages with a restored datagram.
    pub restored: u64,
    /// Messages that were too old for delivery.
    pub late: u64,
    /// Measurements of the subscriber.
    pub stats: Stats,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) meter: Meter,
    pub(super) status: Status,
    pub(super) counts: Option<Arc<Counts>>,
    /// Lost messages of flows on earlier connections.
    missed: u64,
    /// Late messages of earlier connections, and late messages that the server dropped.
    late: u64,
}

/// A subscriber's state, for its connection and the program.
#[derive(Clone, Default)]
pub struct Board(Arc<Mutex<State>>);

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Board")
    }
}

impl Board {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn on_connected(&self, rtt: Span) {
        let mut state = self.state();
        (state.status.connected, state.status.rtt) = (true, rtt);
    }

    fn on_disconnected(&self) {
        let mut state = self.state();
        state.status.connected = false;
        if let Some(counts) = state.counts.take() {
            state.missed = state.missed.saturating_add(counts.missed());
            state.late = state.late.saturating_add(counts.late.load(Ordering::Relaxed));
        }
    }

    fn on_message(&self, message: &Message, restored: bool, overtaken: bool) {
        let mut state = self.state();
        state.meter.on_message(clock::now(), message);
        state.status.restored += u64::from(restored);
        if overtaken {
            state.meter.on_late();
        }
    }

    /// Returns the current state.
    pub fn status(&self) -> Status {
        let mut state = self.state();
        let of_flow = state.counts.as_deref().map_or(0, Counts::missed);
        let missed = state.missed.saturating_add(of_flow);
        state.meter.set_missing(missed);
        let stats = state.meter.stats(clock::now());
        let counts = state.counts.as_deref();
        let late = counts.map_or(0, |counts| counts.late.load(Ordering::Relaxed));
        let late = state.late.saturating_add(late);
        Status { stats, late, ..state.status }
    }
}

/// Keeps the connection; see [`Control::run`].
#[derive(Debug)]
pub struct Control {
    pub(super) wish: Wish,
    pub(super) items: mpsc::Sender<Item>,
    room: Arc<Semaphore>,
    pub(super) board: Board,
    /// The room's random number, and the position of the next message.
    place: (u64, u64),
    pub(super) seen: Seen,
}

/// Creates a subscriber. Returns its items, its [`Control`] and its state.
pub fn new(wish: Wish) -> (mpsc::Receiver<Item>, Control, Board) {
    let (items, reader) = mpsc::channel(UNREAD);
    let (board, room) = (Board::default(), Arc::new(Semaphore::new(UNREAD_KIBIS)));
    let seen = Seen::new(ORIGINS);
    (reader, Control { wish, items, room, board: board.clone(), place: (0, 0), seen }, board)
}

impl Control {
    /// Receives over the link `first` until the program drops the receiver or `ends` has ended.
    /// After the connection is lost, calls `connect` for up to `retry_for`.
    ///
    /// # Errors
    /// The server refuses the subscriber, sends an invalid message, or does not return in time; or
    /// this host's port for data cannot be used.
    pub async fn run(
        mut self,
        first: Link,
        connect: impl AsyncFn() -> Result<Link, Error>,
        retry_for: Duration,
        ends: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let items = self.items.clone();
        let mut ends = pin!(async move {
            tokio::select! {
                () = ends => {}
                () = items.closed() => {}
            }
        });
        if self.wish.mode == Mode::Multicast {
            return self.listen(first, connect, retry_for, ends).await;
        }
        let (mut next, mut retries) = (first, Retries::new(retry_for));
        loop {
            match self.work(next, ends.as_mut()).await {
                Err(error) if error.kind == Kind::Lost => {
                    self.board.on_disconnected();
                    tokio::select! {
                        link = retries.again(&connect) => next = link?,
                        () = ends.as_mut() => return Ok(()),
                    }
                }
                ended => return ended,
            }
        }
    }

    /// Returns a request with the fields that all modes use.
    pub(super) fn asked(&self) -> Subscribe {
        Subscribe {
            name: self.wish.name.as_str().to_owned(),
            keys: self.wish.keys.as_str().to_owned(),
            mode: match self.wish.mode {
                Mode::Reliable => 0,
                Mode::Latest => 1,
                Mode::Datagram => 2,
                Mode::Deadline(_) => 3,
                Mode::Multicast => 4,
            },
            ..Subscribe::default()
        }
    }

    async fn work(
        &mut self,
        link: Link,
        mut ends: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Error> {
        let suite = link.suite();
        let Link { mut session, port, contact, flow, datagram } = link;
        let deadline = self.wish.mode.deadline();
        session.ask_for(SERVICE, version(self.wish.mode));
        session.expect_much();
        let (exporter, rtt) = (session.exporter(), session.rtt());
        let (run, next) = self.place;
        let mut asked =
            Subscribe { deadline_micros: deadline.map_or(0, micros), run, next, ..self.asked() };
        let by_datagrams = self.wish.mode.is_datagrams();
        if by_datagrams {
            let size = self.wish.datagram.unwrap_or_else(|| ethernet(datagram));
            (asked.cipher, asked.flow) = (suite.name().to_owned(), flow.0);
            (asked.xor, asked.group, asked.repairs) = self.wish.code.numbers();
            // Messages in datagrams have no position.
            (asked.datagram, asked.run) = (size.into(), 0);
        }
        let silent = silence(rtt.clone());
        tokio::pin!(silent);
        let rtt = LeastRtt::new(rtt);
        let (mut writer, mut reader) = session.split();
        writer.write(&ChannelAsk { asked: Some(ChannelAsked::Subscribe(asked)) }).await?;
        let (mut parts, mut came) = (Parts::default(), None);
        let mut tick = interval(SEEN);
        loop {
            tokio::select! {
                _ = tick.tick(), if deadline.is_some() => self.say_seen(&mut writer, &rtt).await?,
                error = &mut silent => return Err(error),
                () = ends.as_mut() => break,
                came = when(came.as_mut().map(mpsc::Receiver::recv)) => {
                    // Without its flow the subscriber would wait for ever.
                    let closed = || Error::new(Kind::Lost, "the data port has closed");
                    self.came(came.ok_or_else(closed)?).await;
                }
                told = reader.read::<ChannelTell>() => {
                    let ended = || Error::new(Kind::Lost, "the server ended the session");
                    let told = told?.ok_or_else(ended)?.told;
                    let is_room = matches!(told, Some(ChannelTold::Room(_)));
                    if is_room && by_datagrams && came.is_none() {
                        // The server has created its end of the flow before it sends `Room`.
                        let ends = keys(&exporter, suite, 0, flow).receiving_end();
                        let (socket, contact) = (port.socket().clone(), Path::from(contact));
                        let announcer = Announcer::new(ends.reports, socket, contact);
                        let (inbound, opened, counts) =
                            Inbound::new(ends.data, None, Some(announcer), deadline);
                        counts.set_rtt(rtt.now());
                        port.register(flow, Box::new(inbound))
                            .map_err(|error| Error::new(Kind::Unreachable, error.what))?;
                        self.board.state().counts = Some(counts);
                        came = Some(opened);
                    }
                    self.on_message(told, &mut parts, &rtt).await?;
                }
            }
        }
        // A failed goodbye is no error.
        let _ = writer.leave(reader).await;
        Ok(())
    }

    async fn say_seen(&self, writer: &mut FrameWriter, rtt: &LeastRtt) -> Result<(), Error> {
        let hop = {
            let state = self.board.state();
            let Some(counts) = &state.counts else { return Ok(()) };
            counts.set_rtt(rtt.now());
            counts.hop()
        };
        let Some(hop) = hop else { return Ok(()) };
        writer.write(&ChannelAsk { asked: Some(ChannelAsked::Hop(hop)) }).await
    }

    async fn on_message(
        &mut self,
        told: Option<ChannelTold>,
        parts: &mut Parts,
        rtt: &LeastRtt,
    ) -> Result<(), Error> {
        match told {
            Some(ChannelTold::Room(room)) => {
                self.board.on_connected(rtt.now());
                if self.place.0 != room.run {
                    self.place = (room.run, room.next);
                    self.pass(Item::Joined).await;
                }
            }
            Some(ChannelTold::Lost(lost)) => {
                self.place.1 = lost.next;
                {
                    let mut state = self.board.state();
                    state.meter.on_lost(lost.count);
                    state.late = state.late.saturating_add(lost.late);
                }
                if lost.count > 0 {
                    self.pass(Item::Lost(lost.count)).await;
                }
            }
            Some(ChannelTold::Part(part)) => {
                self.board.state().meter.on_bytes(clock::now(), part.bytes.len());
                if let Some((message, next)) = parts.take(part)? {
                    self.place.1 = next;
                    self.message(message, false, false).await;
                }
            }
            Some(ChannelTold::Taken(_) | ChannelTold::Hop(_) | ChannelTold::Group(_)) | None => {}
        }
        Ok(())
    }

    async fn came(&mut self, came: Came) {
        let (message, restored) = (came.message.clone(), came.restored);
        let overtaken = came.overtaken;
        drop(came);
        if self.seen.is_new(message.origin, message.number) {
            self.board.state().meter.on_bytes(clock::now(), message.bytes.len());
            self.message(message, restored, overtaken).await;
        }
    }

    pub(super) async fn message(&self, message: Message, restored: bool, overtaken: bool) {
        self.board.on_message(&message, restored, overtaken);
        let kibis = (message.bytes.len().min(MAX_MESSAGE) >> 10) as u32 + 1;
        // Cannot fail: the semaphore is never closed.
        let Ok(permit) = self.room.clone().acquire_many_owned(kibis).await else { return };
        self.pass(Item::Message(Box::new(Received { message, restored, _permit: permit }))).await;
    }

    /// Delivers an item. Waits while the program's queue is full; messages that arrive meanwhile
    /// may be dropped.
    pub(super) async fn pass(&self, item: Item) {
        // Without a receiver, the connection's loop ends.
        let _ = self.items.send(item).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_counts_of_a_hostile_server_do_not_overflow() {
        let board = Board::default();
        let counts = Arc::new(Counts::default());
        counts.late.store(1, Ordering::Relaxed);
        {
            let mut state = board.state();
            (state.late, state.counts) = (u64::MAX, Some(counts));
        }
        assert_eq!(board.status().late, u64::MAX);
        board.on_disconnected();
        assert_eq!(board.status().late, u64::MAX);
    }
}
