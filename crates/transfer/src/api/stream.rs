//! Streams of frames with a deadline, from one client of a server to other clients.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::share::Key;
use longhaul_proto::stream::{Delays, Overflow, Way};
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use longhaul_stream::receive::{Board, Item};
use longhaul_stream::send::{Source, Status, Wish};
use tokio::sync::{mpsc, oneshot, watch};

use super::client::{Client, IntoLocation};
use super::ending::Ending;
use super::engine::{self, Reporter, Sink};
use super::events::Event;
use super::queue::Queue;
use crate::error::Error as Inner;
use crate::error::public::{Error, ErrorKind};
use crate::options::{HostOptions, ReachOptions};
use crate::progress::Cancel;
use crate::serve::LinkTo;
use crate::stream::{Connector, receive_stream, send_stream};

const NAME: &str = "longhaul stream";

/// What to do with frames that arrive faster than they can be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenBehind {
    /// The source waits.
    #[default]
    Block,
    /// The new frame is dropped.
    Skip,
    /// The oldest waiting frame is dropped.
    Thin,
}

/// How a stream meets its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamWay {
    /// [`StreamWay::Repair`] or [`StreamWay::Code`], whichever sends less on the measured path.
    #[default]
    Auto,
    /// Frames are collected for as long as the deadline, and form one payload of at most 16 MiB.
    /// Datagrams of the payload that are lost are sent again. The deadline counts from the
    /// payload's last frame.
    Payloads,
    /// Lost datagrams are sent again while they can be in time.
    Repair,
    /// Each frame is sent with repair datagrams of a Reed–Solomon code.
    Code,
}

/// The properties of a stream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamSettings {
    /// Maximum bytes of a frame; at most 16 MiB.
    pub frame: Bytes,
    /// Frames per second.
    pub per_second: f64,
    /// Maximum time from when the sender takes a frame until its delivery at the farthest receiver.
    pub deadline: Span,
    /// What to do with frames that arrive too fast.
    pub when_behind: WhenBehind,
    /// How many receivers must be present before the first frame is taken. By default none.
    pub receivers: u32,
    /// UDP payload of a datagram in bytes. `None` uses the largest size that passes on the path to
    /// the server, limited to the size that fits every Ethernet path.
    pub datagram: Option<u16>,
    /// How the stream meets its deadline.
    pub way: StreamWay,
}

impl StreamSettings {
    /// Returns settings for a stream that starts immediately, and whose source waits when it is too
    /// fast.
    pub fn new(frame: Bytes, per_second: f64, deadline: Span) -> StreamSettings {
        let (when_behind, receivers, datagram, way) = (WhenBehind::Block, 0, None, StreamWay::Auto);
        StreamSettings { frame, per_second, deadline, when_behind, receivers, datagram, way }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Target {
    client: Client,
    pub(super) options: Result<(HostOptions, Key), Error>,
    pub(super) cancel: Cancel,
    pub(super) retry_for: Duration,
}

impl Target {
    pub(super) fn new(
        client: &Client,
        location: Result<crate::location::Location, Error>,
    ) -> Target {
        let options = location.and_then(|location| {
            let name = location.path().to_str().unwrap_or_default().trim_matches('/').to_owned();
            let key = Key::new(&name).map_err(|error| {
                Error::new(ErrorKind::Usage, format!("{location} names no stream or room: {error}"))
            })?;
            Ok((client.host(location), key))
        });
        let retry_for = Duration::from_secs(300);
        Target { client: client.clone(), options, cancel: Cancel::default(), retry_for }
    }

    pub(super) fn link(self) -> Result<LinkTo, Error> {
        let (Connector { options, observer, .. }, room, _) = self.connector()?;
        Ok(LinkTo { options, room, observer })
    }

    pub(super) fn connector(self) -> Result<(Connector, Key, Cancel), Error> {
        let (options, name) = self.options?;
        let cancel = self.cancel.child();
        // A stream has its own events, so nothing reads this queue.
        let unread: Sink<Event> = Sink::Queue(Queue::new(1));
        let reporter = Reporter::new(unread, self.client.trust.clone(), cancel.clone());
        let (observer, retry_for) = (Arc::new(reporter), self.retry_for);
        Ok((Connector { options, observer, cancel: cancel.clone(), retry_for }, name, cancel))
    }
}

/// Defines the methods that all requests for streams and channels share.
macro_rules! reached {
    ($request:ident) => {
        impl $request {
            /// Sets how the host is reached.
            pub fn reach(mut self, reach: ReachOptions) -> $request {
                if let Ok((options, _)) = &mut self.target.options {
                    options.reach = reach;
                }
                self
            }

            /// Sets how long to keep retrying a lost connection. By default 5 minutes.
            pub fn retry_for(mut self, time: Duration) -> $request {
                self.target.retry_for = time;
                self
            }

            /// Ends the connection attempt, or the stream or channel, when `handle` is cancelled.
            pub fn cancel_with(mut self, handle: &Cancel) -> $request {
                self.target.cancel = handle.clone();
                self
            }
        }
    };
}
pub(super) use reached;
reached!(SendStreamRequest);
reached!(ReceiveStreamRequest);

impl Client {
    /// Describes a stream to send as `to`: `lh://host[:port]/name`. Await the request. The server
    /// forwards the stream to all receivers of that name.
    pub fn send_stream(
        &self,
        to: impl IntoLocation,
        settings: StreamSettings,
    ) -> SendStreamRequest {
        SendStreamRequest { target: Target::new(self, to.into_location()), settings }
    }

    /// Describes the reception of the stream `from`, `lh://host[:port]/name`, which may start
    /// later. Await the request.
    pub fn receive_stream(&self, from: impl IntoLocation) -> ReceiveStreamRequest {
        ReceiveStreamRequest { target: Target::new(self, from.into_location()) }
    }
}

/// A request to send a stream: await it.
#[derive(Clone, Debug)]
#[must_use = "a stream begins when its request is awaited"]
pub struct SendStreamRequest {
    target: Target,
    settings: StreamSettings,
}

impl SendStreamRequest {
    async fn open(self) -> Result<StreamSender, Error> {
        let StreamSettings { frame, per_second, deadline, receivers, datagram, .. } = self.settings;
        let way = match self.settings.way {
            StreamWay::Auto => None,
            StreamWay::Payloads => Some(Way::Payloads),
            StreamWay::Repair => Some(Way::Repair),
            StreamWay::Code => Some(Way::Code),
        };
        let (connector, name, cancel) = self.target.connector()?;
        let overflow = match self.settings.when_behind {
            WhenBehind::Block => Overflow::Block,
            WhenBehind::Skip => Overflow::Skip,
            WhenBehind::Thin => Overflow::Thin,
        };
        let frame = u32::try_from(frame.get()).unwrap_or(u32::MAX);
        let wish = Wish { name, frame, per_second, deadline, overflow, receivers, datagram, way };
        let (tell, ready) = oneshot::channel();
        let (finish, finished) = oneshot::channel();
        let finished = async move {
            match finished.await {
                Ok(frames) => frames,
                // No count comes if the [`StreamSender`] was dropped, which cancels the stream, or
                // if the stream has already ended.
                Err(_) => std::future::pending().await,
            }
        };
        let done = engine::start(NAME, move || {
            let finished = std::pin::pin!(finished);
            send_stream(&connector, wish, tell, finished)
        })?;
        let mut ending = Ending(Some(cancel));
        let (source, mut status) = ready.await.map_err(|_| engine::vanished(NAME))??;
        // If the status channel closes first, the stream has ended before it began.
        if status.wait_for(|status| status.begun).await.is_err() {
            return Err(ended(done.await).err().unwrap_or_else(|| engine::vanished(NAME)));
        }
        let cancel = ending.0.take();
        let input = StreamInput { source: Arc::new(source) };
        Ok(StreamSender { input, status, finish, done, _ending: Ending(cancel) })
    }
}

pub(super) fn ended<T>(
    done: Result<Result<T, Inner>, oneshot::error::RecvError>,
) -> Result<T, Error> {
    Ok(done.map_err(|_| engine::vanished(NAME))??)
}

impl IntoFuture for SendStreamRequest {
    type Output = Result<StreamSender, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// Completes when the server has accepted the stream and the requested number of receivers is
    /// present.
    ///
    /// # Errors
    /// The host cannot be reached or is not trusted, it refuses the stream, a setting is out of its
    /// limits, or the deadline is too short for the path.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}

/// A stream that is being sent. Dropping it cuts the stream off: receivers wait for another sender.
#[derive(Debug)]
pub struct StreamSender {
    input: StreamInput,
    status: watch::Receiver<Status>,
    finish: oneshot::Sender<u32>,
    done: oneshot::Receiver<Result<Status, Inner>>,
    _ending: Ending,
}

/// The input for frames of a stream. Clones feed the same stream.
#[derive(Clone, Debug)]
pub struct StreamInput {
    source: Arc<Source>,
}

impl StreamInput {
    /// Sends a frame. With [`WhenBehind::Block`] the call waits until there is room.
    ///
    /// # Errors
    /// The frame is empty or longer than the settings allow; or the stream has ended, and
    /// [`StreamSender::finish`] returns the reason.
    pub async fn send(&self, frame: impl Into<Vec<u8>>) -> Result<(), Error> {
        let frame = frame.into();
        if frame.is_empty() || frame.len() > self.source.most() as usize {
            let most = self.source.most();
            let what = format!("a frame has {} bytes; 1 to {most} are allowed", frame.len());
            return Err(Error::new(ErrorKind::Usage, what));
        }
        let gone = |_| Error::new(ErrorKind::Unfinished, "the stream has ended");
        self.source.offer(frame).await.map_err(gone)
    }
}

impl StreamSender {
    /// Returns the input for frames.
    pub fn input(&self) -> StreamInput {
        self.input.clone()
    }

    /// Returns the state and the counters of the stream.
    pub fn status(&self) -> StreamSent {
        StreamSent::of(&self.status.borrow())
    }

    /// Returns whether the stream has ended; [`StreamSender::finish`] then returns the reason.
    pub fn is_over(&self) -> bool {
        self.status.has_changed().is_err()
    }

    /// Sends the remaining frames and tells the receivers that no more follow.
    ///
    /// # Errors
    /// The reason why the stream ended earlier, or that the server did not confirm the last frames.
    pub async fn finish(self) -> Result<StreamSent, Error> {
        // The source is closed if the stream has ended.
        if let Ok(frames) = self.input.source.finish().await {
            let _ = self.finish.send(frames);
        }
        ended(self.done.await).map(|status| StreamSent::of(&status))
    }
}

/// The state of a stream at its sender.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StreamSent {
    /// Whether the connection is up.
    pub connected: bool,
    /// The number of receivers.
    pub receivers: u32,
    /// The way in use ([`StreamWay`]), its rate, and the rates of the other ways, in one sentence.
    pub way: String,
    /// Rate of UDP payload while a frame is being sent.
    pub rate: Rate,
    /// Current number of repair datagrams for a frame of maximum length.
    pub repairs: u16,
    /// The highest value of [`StreamSent::repairs`] so far.
    pub most_repairs: u16,
    /// The round-trip time to the farthest receiver.
    pub rtt: Span,
    /// The loss that the repairs are sized for, on the path to the worst receiver.
    pub loss: LossRatio,
    /// Average number of datagrams lost in a row.
    pub burst: f64,
    /// Delay of datagrams in excess of the fastest datagram's delay, at the receiver with the
    /// highest value.
    pub jitter: Span,
    /// Frames taken from the source.
    pub frames: u64,
    /// Frames that were not sent completely: they came too fast (see [`WhenBehind`]), time ran out,
    /// or the connection was down.
    pub skipped: u64,
    /// Frames that were not sent because the stream had no receiver.
    pub unwatched: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// UDP payload of the datagrams sent.
    pub bytes: Bytes,
    /// Datagrams that were sent again because a receiver lost them.
    pub resent: u64,
    /// Frames delivered by the deadline, summed over all receivers.
    pub on_time: u64,
    /// Frames missed, summed over all receivers.
    pub missed: u64,
}

impl StreamSent {
    fn of(status: &Status) -> StreamSent {
        let mut sent = StreamSent {
            connected: status.connected,
            most_repairs: status.most_repairs,
            frames: status.frames,
            skipped: status.skipped,
            unwatched: status.unwatched,
            datagrams: status.datagrams,
            bytes: Bytes::new(status.bytes),
            resent: status.resent,
            ..StreamSent::default()
        };
        if let Some(course) = status.course {
            sent.receivers = course.receivers;
            sent.rtt = course.farthest;
            sent.jitter = course.jitter;
            (sent.on_time, sent.missed) = (course.on_time, course.missed);
        }
        if let Some(plan) = status.plan {
            (sent.rate, sent.repairs) = (plan.rate, plan.repairs);
            (sent.loss, sent.burst) = (plan.losses.ratio(), plan.losses.burst());
            let means = match plan.way {
                Way::Code => format!("{} repairs a frame", plan.repairs),
                Way::Repair | Way::Payloads => "lost datagrams are sent again".to_owned(),
            };
            let (choice, loss) = (plan.choice.by(plan.way), sent.loss);
            sent.way =
                format!("{choice}; {means}, for a loss of {loss}, {:.1} in a row", sent.burst);
        }
        sent
    }
}

/// A request to receive a stream: await it.
#[derive(Clone, Debug)]
#[must_use = "a stream is received when its request is awaited"]
pub struct ReceiveStreamRequest {
    target: Target,
}

impl IntoFuture for ReceiveStreamRequest {
    type Output = Result<StreamReceiver, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// Completes when the server has accepted this client as a receiver.
    ///
    /// # Errors
    /// The host cannot be reached or is not trusted, or it does not let this client receive.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (connector, name, cancel) = self.target.connector()?;
            let (tell, ready) = oneshot::channel();
            let ending = Ending(Some(cancel));
            let mut done = engine::start(NAME, move || receive_stream(&connector, name, tell))?;
            let (items, board) = ready.await.map_err(|_| engine::vanished(NAME))??;
            let done = tokio::select! {
                biased;
                // If the stream has already ended, the reader still gets its events.
                early = &mut done => ended(early).map(|()| None)?,
                () = board.admitted() => Some(done),
            };
            let is_over = false;
            Ok(StreamReceiver { items, board, done, is_over, ending })
        })
    }
}

/// A stream that is being received. Dropping it ends the reception.
pub struct StreamReceiver {
    items: mpsc::Receiver<Item>,
    board: Board,
    done: Option<oneshot::Receiver<Result<(), Inner>>>,
    is_over: bool,
    ending: Ending,
}

impl fmt::Debug for StreamReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamReceiver")
    }
}

/// An event of a stream, in the order of frames.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StreamEvent {
    /// A sender starts, or another sender takes over. The numbers of frames start at 0 again.
    Begun {
        /// Frames per second.
        per_second: f64,
        /// The maximum time from when the sender takes a frame until its delivery.
        deadline: Span,
    },
    /// A frame.
    Frame(StreamFrame),
    /// Frames that will not arrive.
    Missed {
        /// Number of the first missed frame.
        first: u32,
        /// Number of the last missed frame.
        last: u32,
        /// How many of them arrived but were dropped because the reader of the events was too slow.
        unread: u32,
    },
}

/// A frame.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StreamFrame {
    /// The frame's number.
    pub number: u32,
    /// The frame's bytes.
    pub bytes: Vec<u8>,
    /// Estimated delay from the sender to this host: half the sum of both round-trip times (sender
    /// to server, server to this host), plus the frame's delay in excess of the fastest recent
    /// datagram's delay.
    pub delay: Span,
    /// Whether [`StreamFrame::delay`] exceeds the deadline.
    pub is_late: bool,
    /// Datagrams of the frame that were lost and restored. With [`StreamWay::Payloads`], the first
    /// frame of a payload has the number for the whole payload, and the other frames have 0.
    pub restored: u16,
}

/// The state of a stream at its receiver.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamReceived {
    /// Whether the connection is up.
    pub connected: bool,
    /// Frames delivered by their deadline.
    pub on_time: u64,
    /// Frames delivered after the deadline because this host was too slow.
    pub late: u64,
    /// Frames that were incomplete at the deadline.
    pub missed: u64,
    /// Missed frames whose datagrams arrived too late: a busy host or a queue delayed them. The
    /// other missed frames lack datagrams.
    pub overdue: u64,
    /// Frames that arrived but were dropped because the reader was too slow.
    pub unread: u64,
    /// Frames that the server did not forward completely: this client was silent, or the server
    /// could not send.
    pub withheld: u64,
    /// Datagrams received.
    pub datagrams: u64,
    /// Datagrams that were lost and restored.
    pub restored: u64,
    /// The loss between server and client that the repairs are sized for.
    pub loss: LossRatio,
    /// Recent delay of datagrams in excess of the fastest datagram's delay.
    pub spread: Span,
    /// RTP's jitter (RFC 3550).
    pub jitter: Span,
    delays: Delays,
}

impl StreamReceived {
    /// Returns the quantile `share` (0 to 1) of the delays of delivered frames, accurate to 1.6 %.
    pub fn delay(&self, share: f64) -> Span {
        self.delays.at(share)
    }
}

impl StreamReceiver {
    /// Returns the next event; `None` when the sender has ended the stream. An error is the last
    /// item.
    pub async fn next(&mut self) -> Option<Result<StreamEvent, Error>> {
        if self.is_over {
            return None;
        }
        let item = loop {
            let Some(done) = &mut self.done else { break self.items.recv().await };
            tokio::select! {
                biased;
                item = self.items.recv() => break item,
                done = done => {
                    self.done = None;
                    // If the stream ended without an error, read the remaining events.
                    if let Err(error) = ended(done) {
                        self.is_over = true;
                        return Some(Err(error));
                    }
                }
            }
        };
        match item {
            Some(Item::Begun(terms)) => {
                let (per_second, deadline) = (terms.frames_per_second(), terms.deadline);
                return Some(Ok(StreamEvent::Begun { per_second, deadline }));
            }
            Some(Item::Frame(frame)) => {
                let longhaul_stream::receive::Received { number, bytes, delay, is_late, restored } =
                    frame;
                let frame = StreamFrame { number, bytes, delay, is_late, restored };
                return Some(Ok(StreamEvent::Frame(frame)));
            }
            Some(Item::Missed { first, last, unread }) => {
                return Some(Ok(StreamEvent::Missed { first, last, unread }));
            }
            Some(Item::Ended) | None => {}
        }
        self.is_over = true;
        None
    }

    /// Ends the reception, and waits until the server has been told, at most a few seconds. If a
    /// program exits without this call, the server may learn only by a timeout that this client has
    /// left.
    pub async fn close(self) {
        self.ending.wait(self.done).await;
    }

    /// Returns the state and the counters of the stream.
    pub fn status(&self) -> StreamReceived {
        let status = self.board.status();
        StreamReceived {
            connected: status.connected,
            on_time: status.on_time,
            late: status.late,
            missed: status.missed,
            overdue: status.overdue,
            unread: status.unread,
            withheld: status.withheld,
            datagrams: status.datagrams,
            restored: status.restored,
            loss: status.losses.ratio(),
            spread: status.spread,
            jitter: status.jitter,
            delays: status.delays,
        }
    }
}
