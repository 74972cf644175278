//! A sender of a channel: takes messages from the program, and keeps the connection to the server.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_net::clock;
use longhaul_net::socket::Path;
use longhaul_proto::channel::{Code, MAX_MESSAGE, Message, Meter, Mode, Stats};
use longhaul_proto::share::Key;
use longhaul_proto::time::Span;
use longhaul_session::retry::{Retries, silence};
use longhaul_session::{Error, FrameReader, FrameWriter, Kind, RttWatch, when};
use prost::Message as _;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::messages::{
    ChannelAsk, ChannelAsked, ChannelTell, ChannelTold, Publish, SERVICE, version,
};
use super::outbound::{Hop, Outbound, Sending, until};
use super::parts::cut;
use super::stamp;
use crate::link::{LeastRtt, Link};
use crate::send::ethernet;
use crate::terms::{self, keys, micros};

/// Maximum content that waits for the server, in KiB. In the mode `latest`, unsent messages and
/// unacknowledged ones have this limit each. A message counts as its whole KiB plus one.
const ROOM: usize = 64 << 10;
/// Limit on unacknowledged messages.
const WINDOW: usize = 8_192;
/// Maximum number of keys whose newest value waits (mode `latest`).
const KEYS: usize = 4_096;
/// A write takes messages until it has this many bytes.
const TOGETHER: usize = 64 << 10;

/// The request of a sender.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The name of the room.
    pub name: Key,
    /// How messages travel to the server.
    pub mode: Mode,
    /// The code for datagrams.
    pub code: Code,
    /// UDP payload of a datagram in bytes; `None` for the largest that passes to the server and
    /// fits in an Ethernet frame.
    pub datagram: Option<u16>,
    /// The interface to the multicast group; `None` for the one that leads to the server.
    pub interface: Option<u32>,
}

/// The state of a sender.
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    /// Whether the server has accepted the sender on the current connection.
    pub connected: bool,
    /// Messages that the program has offered.
    pub messages: u64,
    /// Messages that the server has received; with datagrams, messages that were sent.
    pub taken: u64,
    /// Messages that a newer one replaced before they were sent, or that were dropped because more
    /// than 4,096 keys or 64 MiB waited.
    pub replaced: u64,
    /// Messages that the server has dropped or not received.
    pub dropped: u64,
    /// Messages that could not be sent.
    pub failed: u64,
    /// Messages not sent: they would have missed their deadline.
    pub unsent: u64,
    /// Messages that missed their deadline at the server.
    pub late: u64,
    /// The lowest round-trip time on the current connection.
    pub rtt: Span,
}

impl Status {
    pub(super) fn count(&mut self, sent: Sending) {
        *match sent {
            Sending::Left => &mut self.taken,
            Sending::Failed => &mut self.failed,
            Sending::Late => &mut self.unsent,
        } += 1;
    }
}

struct Item {
    key: Option<Key>,
    bytes: Arc<[u8]>,
    at: u64,
    /// `None` in the mode `latest`.
    permit: Option<OwnedSemaphorePermit>,
}

fn kibis(bytes: &[u8]) -> u32 {
    (bytes.len() >> 10) as u32 + 1
}

#[derive(Default)]
struct Waiting {
    items: VecDeque<Item>,
    messages: u64,
    replaced: u64,
    is_finished: bool,
}

impl Waiting {
    /// Takes a message in the mode `latest`: replaces the waiting message of the same key, then
    /// drops the oldest messages of other keys beyond the limits.
    fn replace(&mut self, item: Item) {
        let key = item.key.clone();
        match self.items.iter_mut().find(|waiting| waiting.key == key) {
            Some(waiting) => {
                *waiting = item;
                self.replaced += 1;
            }
            None => self.items.push_back(item),
        }
        let mut kept: usize = self.items.iter().map(|item| kibis(&item.bytes) as usize).sum();
        while self.items.len() > KEYS || kept > ROOM {
            let oldest = usize::from(self.items.front().is_some_and(|item| item.key == key));
            let Some(item) = self.items.remove(oldest) else { return };
            kept -= kibis(&item.bytes) as usize;
            self.replaced += 1;
        }
    }
}

pub(super) struct Shared {
    waiting: Mutex<Waiting>,
    changed: Notify,
    room: Arc<Semaphore>,
    /// Measures the messages that left the queue, and the sent bytes.
    meter: Mutex<Meter>,
}

impl Shared {
    fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes messages from the program; shared by clones.
#[derive(Clone)]
pub struct Source {
    shared: Arc<Shared>,
    mode: Mode,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The message is longer than 16 MiB.
    Long,
    /// The channel has ended.
    Ended,
}

impl Source {
    /// Takes a message. In the mode `latest`, the message replaces a waiting message with the same
    /// key. In other modes, the call waits while the queue is full.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn offer(&self, key: Option<Key>, bytes: Arc<[u8]>) -> Result<(), Refused> {
        if bytes.len() > MAX_MESSAGE {
            return Err(Refused::Long);
        }
        let permit = match self.mode {
            Mode::Latest => None,
            _ => {
                let room = self.shared.room.clone();
                let permit = room.acquire_many_owned(kibis(&bytes)).await;
                Some(permit.map_err(|_| Refused::Ended)?)
            }
        };
        if self.shared.room.is_closed() {
            return Err(Refused::Ended);
        }
        let waiting = &mut *self.shared.waiting();
        waiting.messages += 1;
        let item = Item { key, bytes, at: stamp(), permit };
        match item.permit {
            None => waiting.replace(item),
            Some(_) => waiting.items.push_back(item),
        }
        self.shared.changed.notify_one();
        Ok(())
    }

    /// Returns the statistics of the messages that left the queue.
    pub fn stats(&self) -> Stats {
        self.shared.meter().stats(clock::now())
    }

    /// Declares that no more messages follow.
    pub fn finish(&self) {
        self.shared.waiting().is_finished = true;
        self.shared.changed.notify_one();
    }
}

/// Keeps the connection; see [`Control::run`].
pub struct Control {
    pub(super) wish: Wish,
    pub(super) run: u64,
    pub(super) shared: Arc<Shared>,
    pub(super) status: watch::Sender<Status>,
    number: u64,
    untaken: VecDeque<Untaken>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("wish", &self.wish).finish_non_exhaustive()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Ends the waits of callers of `offer`.
        self.shared.room.close();
    }
}

/// Creates a sender; a server recognises it by the random number `run` after a reconnection.
pub fn new(wish: Wish, run: u64) -> (Source, Control, watch::Receiver<Status>) {
    let (waiting, meter) = Default::default();
    let (changed, room) = (Notify::new(), Arc::new(Semaphore::new(ROOM)));
    let shared = Arc::new(Shared { waiting, changed, room, meter });
    let source = Source { shared: shared.clone(), mode: wish.mode };
    let (status, watched) = watch::channel(Status::default());
    let untaken = VecDeque::new();
    (source, Control { wish, run, shared, status, number: 0, untaken }, watched)
}

impl Control {
    /// Sends over the link `first` until the source is finished and all messages are received (with
    /// datagrams: sent). After the loss of a link, calls `connect` for up to `retry_for`.
    ///
    /// # Errors
    /// The server refuses the sender, or does not return in time.
    pub async fn run(
        mut self,
        first: Link,
        connect: impl AsyncFn() -> Result<Link, Error>,
        retry_for: Duration,
    ) -> Result<Status, Error> {
        if self.wish.mode == Mode::Multicast {
            return self.speak(first, connect, retry_for).await;
        }
        let (mut next, mut retries) = (first, Retries::new(retry_for));
        loop {
            match self.work(next).await {
                Ok(()) => return Ok(self.count()),
                Err(error) if error.kind == Kind::Lost => {
                    self.status.send_modify(|status| status.connected = false);
                    next = retries.again(&connect).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn count(&self) -> Status {
        let (messages, replaced) = {
            let waiting = self.shared.waiting();
            (waiting.messages, waiting.replaced)
        };
        self.status.send_modify(|status| (status.messages, status.replaced) = (messages, replaced));
        *self.status.borrow()
    }

    async fn work(&mut self, link: Link) -> Result<(), Error> {
        let suite = link.suite();
        let Link { mut session, port, contact, flow, datagram } = link;
        let deadline = self.wish.mode.deadline();
        session.ask_for(SERVICE, version(self.wish.mode));
        session.expect_bulk();
        let rtt = session.rtt();
        let mut asked = Publish {
            name: self.wish.name.as_str().to_owned(),
            run: self.run,
            ..Publish::default()
        };
        let mut out = None;
        if self.wish.mode.is_datagrams() {
            (asked.cipher, asked.flow) = (suite.name().to_owned(), flow.0);
            let data = keys(&session.exporter(), suite, 0, flow).sending_end().data;
            let size = self.wish.datagram.unwrap_or_else(|| ethernet(datagram));
            let mut out_of = Outbound::new(port.socket().clone(), data, size, self.wish.code);
            if let Some(deadline) = deadline {
                asked.deadline_micros = micros(deadline);
                out_of = out_of.with_deadline(Hop::new(deadline, LeastRtt::new(rtt.clone()).now()));
            }
            out = Some((Path::from(contact), out_of));
        }
        let (mut writer, reader) = session.split();
        writer.write(&ChannelAsk { asked: Some(ChannelAsked::Publish(asked)) }).await?;
        match out {
            Some((path, out)) => self.datagrams(path, out, writer, reader, rtt).await,
            None => self.stream(writer, reader, rtt).await,
        }
    }

    async fn stream(
        &mut self,
        writer: FrameWriter,
        reader: FrameReader,
        rtt: RttWatch,
    ) -> Result<(), Error> {
        let mut feed = Program { shared: self.shared.clone(), number: self.number };
        let notes = Notes::new(&self.shared, &self.status, rtt.clone());
        let on_message = |told: &ChannelTold, count| notes.take(Some(told), count);
        let ended = carry(&mut feed, &mut self.untaken, writer, reader, rtt, on_message).await;
        self.number = feed.number;
        ended
    }

    async fn datagrams(
        &mut self,
        path: Path,
        mut out: Outbound,
        writer: FrameWriter,
        mut reader: FrameReader,
        rtt: RttWatch,
    ) -> Result<(), Error> {
        let mut feed = Program { shared: self.shared.clone(), number: self.number };
        let silent = silence(rtt.clone());
        tokio::pin!(silent);
        let notes = Notes::new(&self.shared, &self.status, rtt);
        let on_message = |told: Option<ChannelTell>, out: &mut Outbound| {
            let ended = || Error::new(Kind::Lost, "the server ended the session");
            let told = told.ok_or_else(ended)?.told;
            if let Some(ChannelTold::Hop(seen)) = &told {
                let losses = terms::losses(seen.loss_ppm, seen.burst_milli);
                out.follow(losses, terms::span(seen.jitter_micros), notes.rtt.now());
            }
            notes.take(told.as_ref(), 0);
            Ok::<_, Error>(())
        };
        // Wait for the server's first message: the server opens the flow before it sends one.
        on_message(reader.read().await?, &mut out)?;
        loop {
            while let Some((message, _permit)) = feed.next() {
                self.number = feed.number;
                let sent = out.send(path, &message).await;
                self.status.send_modify(|status| status.count(sent));
            }
            feed.sent(out.take_sent());
            let due = out.next_wakeup();
            if feed.is_finished() && due.is_none() {
                return writer.close(reader, None).await;
            }
            tokio::select! {
                error = &mut silent => return Err(error),
                told = reader.read::<ChannelTell>() => on_message(told?, &mut out)?,
                () = feed.changed() => {}
                () = when(due.map(until)) => out.flush(path).await,
            }
        }
    }
}

pub(super) struct Notes<'a> {
    shared: &'a Shared,
    status: &'a watch::Sender<Status>,
    pub(super) rtt: LeastRtt,
    /// The status when the connection began.
    before: Status,
}

impl<'a> Notes<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        status: &'a watch::Sender<Status>,
        rtt: RttWatch,
    ) -> Notes<'a> {
        Notes { shared, status, rtt: LeastRtt::new(rtt), before: *status.borrow() }
    }

    /// Takes a server's message, which acknowledges `count` messages.
    pub(super) fn take(&self, told: Option<&ChannelTold>, count: usize) {
        let (messages, replaced) = {
            let waiting = self.shared.waiting();
            (waiting.messages, waiting.replaced)
        };
        self.status.send_modify(|status| {
            (status.messages, status.replaced) = (messages, replaced);
            (status.connected, status.rtt) = (true, self.rtt.now());
            status.taken += count as u64;
            if let Some(ChannelTold::Taken(taken)) = told {
                // The server counts anew on each connection.
                status.dropped = self.before.dropped.saturating_add(taken.dropped);
                status.late = self.before.late.saturating_add(taken.late);
            }
        });
    }
}

/// An unacknowledged message, and its memory permit.
pub(super) type Untaken = (Message, Option<OwnedSemaphorePermit>);

pub(super) trait Feed {
    /// Returns the next message; `None` if there is none, or no memory for it.
    fn next(&mut self) -> Option<Untaken>;

    /// Completes when there may be a message, or when no more messages follow.
    async fn changed(&mut self);

    fn is_finished(&self) -> bool;

    fn sent(&mut self, _bytes: usize) {}
}

pub(super) struct Program {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u64,
}

impl Feed for Program {
    fn next(&mut self) -> Option<Untaken> {
        let mut waiting = self.shared.waiting();
        let first = waiting.items.front_mut()?;
        let permit = first.permit.take().or_else(|| {
            let room = self.shared.room.clone();
            room.try_acquire_many_owned(kibis(&first.bytes)).ok()
        })?;
        let Item { key, bytes, at, .. } = waiting.items.pop_front()?;
        drop(waiting);
        self.number += 1;
        let number = self.number;
        let born = at as i64;
        let message = Message { origin: 0, number, at, born, hops: 0, via: 0, key, bytes };
        self.shared.meter().on_message(clock::now(), &message);
        Some((message, Some(permit)))
    }

    fn sent(&mut self, bytes: usize) {
        self.shared.meter().on_bytes(clock::now(), bytes);
    }

    async fn changed(&mut self) {
        self.shared.changed.notified().await;
    }

    fn is_finished(&self) -> bool {
        let waiting = self.shared.waiting();
        waiting.is_finished && waiting.items.is_empty()
    }
}

/// Sends the `untaken` messages of an earlier connection, then those of `feed`, until the server
/// has received all. Calls `on_message` with each of the server's messages and the number of
/// messages that it acknowledges.
pub(super) async fn carry(
    feed: &mut impl Feed,
    untaken: &mut VecDeque<Untaken>,
    mut writer: FrameWriter,
    mut reader: FrameReader,
    rtt: RttWatch,
    mut on_message: impl FnMut(&ChannelTold, usize),
) -> Result<(), Error> {
    let silent = silence(rtt);
    tokio::pin!(silent);
    // `sent`: messages at the front of `untaken` that were sent on this connection. `taken`:
    // messages acknowledged on this connection.
    let (mut sent, mut taken) = (0, 0);
    loop {
        while writer.queued() < TOGETHER {
            if sent == untaken.len() {
                let next = if untaken.len() < WINDOW { feed.next() } else { None };
                let Some(next) = next else { break };
                untaken.push_back(next);
            }
            for part in cut(&untaken[sent].0, 0) {
                feed.sent(part.encoded_len());
                writer.queue(&ChannelAsk { asked: Some(ChannelAsked::Part(part)) })?;
            }
            sent += 1;
        }
        if untaken.is_empty() && writer.queued() == 0 && feed.is_finished() {
            return writer.close(reader, None).await;
        }
        let is_waiting = writer.queued() == 0 && untaken.len() < WINDOW;
        tokio::select! {
            error = &mut silent => return Err(error),
            told = reader.read::<ChannelTell>() => {
                let ended = || Error::new(Kind::Lost, "the server ended the session");
                let Some(told) = told?.ok_or_else(ended)?.told else { continue };
                let mut count = 0;
                if let ChannelTold::Taken(word) = &told {
                    // Ignore acknowledgements beyond the sent messages.
                    count = word.count.saturating_sub(taken).min(sent as u64) as usize;
                    taken += count as u64;
                    sent -= count;
                    untaken.drain(..count);
                }
                on_message(&told, count);
            }
            flushed = writer.flush(), if writer.queued() > 0 => flushed?,
            () = feed.changed(), if is_waiting => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::Taken;
    use super::*;

    fn wish(mode: Mode) -> Wish {
        let name = Key::new("a").unwrap();
        Wish { name, mode, code: Code::None, datagram: None, interface: None }
    }

    #[test]
    fn the_newest_messages_of_many_keys_take_a_bounded_memory() {
        let (source, control, _status) = new(wish(Mode::Latest), 1);
        let bytes: Arc<[u8]> = vec![0; MAX_MESSAGE].into();
        let offer = |key: &str| {
            let offered = std::pin::pin!(source.offer(Key::new(key).ok(), bytes.clone()));
            let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
            assert_eq!(offered.poll(context), std::task::Poll::Ready(Ok(())));
        };
        ["a", "b", "c", "d", "e", "c"].into_iter().for_each(offer);
        let mut feed = Program { shared: control.shared.clone(), number: 0 };
        let sent: Vec<Untaken> = std::iter::from_fn(|| feed.next()).collect();
        let keys = |sent: &[Untaken]| {
            let key = |untaken: &Untaken| untaken.0.key.clone().unwrap().as_str().to_owned();
            sent.iter().map(key).collect::<String>()
        };
        assert_eq!((keys(&sent).as_str(), control.count().replaced), ("cde", 3));
        // While the server acknowledges nothing, later messages wait here and are replaced.
        ["f", "g", "f"].into_iter().for_each(offer);
        assert!(feed.next().is_none() && control.count().replaced == 4);
        drop(sent);
        let sent: Vec<Untaken> = std::iter::from_fn(|| feed.next()).collect();
        assert_eq!(keys(&sent), "fg");
    }

    #[test]
    fn dropped_and_late_messages_of_earlier_connections_stay_counted() {
        let (_source, control, status) = new(wish(Mode::Reliable), 1);
        for of_connection in [[0, 2, 3], [0, 0, 4]] {
            let notes = Notes::new(&control.shared, &control.status, RttWatch::once(None));
            for dropped in of_connection {
                let taken = Taken { count: 0, dropped, late: 10 * dropped };
                notes.take(Some(&ChannelTold::Taken(taken)), 0);
            }
        }
        assert_eq!((status.borrow().dropped, status.borrow().late), (7, 70));
    }
}
