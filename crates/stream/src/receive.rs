//! A receiver of a stream: delivers frames, and keeps the connection.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul_net::socket::Path;
use longhaul_proto::fec::Losses;
use longhaul_proto::share::Key;
use longhaul_proto::stream::{Delays, Head};
use longhaul_proto::time::Span;
use longhaul_session::retry::{Retries, silence};
use longhaul_session::{Error, FrameReader, FrameWriter, Kind};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};

pub use crate::item::{Item, Received};

use crate::announcer::Announcer;
use crate::gather::{Gather, Gathering, Shared, lock};
use crate::link::{LeastRtt, Link, answers};
use crate::messages::{Again, Ask, Asked, Receive, Report, SERVICE, Tell, Told, VERSION};
use crate::restore::{self, Tally};
use crate::terms::{Phase, keys, micros, phase, written};

/// Interval of reports to the server.
const REPORT: Duration = Duration::from_secs(1);
/// Maximum number of requests for lost symbols (parts of a frame or repairs, one in each datagram)
/// that are not yet sent to the server.
const REQUESTS: usize = 64;
/// A stream fails if the server has forwarded frames for this long and no datagram has arrived.
const NO_DATAGRAMS: Duration = Duration::from_secs(5);

/// The state of a receiver.
#[derive(Clone, Debug)]
pub struct Status {
    /// Whether the connection is up.
    pub connected: bool,
    /// Frames delivered within their deadline.
    pub on_time: u64,
    /// Frames delivered after their deadline.
    pub late: u64,
    /// Frames that were not complete within their deadline.
    pub missed: u64,
    /// Missed frames whose datagrams arrived too late.
    pub overdue: u64,
    /// Frames dropped because the reader was too slow.
    pub unread: u64,
    /// Frames not completely forwarded: this end was silent, or the server could not send.
    pub withheld: u64,
    /// Datagrams that were lost and restored.
    pub restored: u64,
    /// Datagrams that arrived.
    pub datagrams: u64,
    /// The estimated losses between server and receiver.
    pub losses: Losses,
    /// Spread of recent delays above the delay of the fastest datagram.
    pub spread: Span,
    /// RTP's jitter (RFC 3550).
    pub jitter: Span,
    /// Delays of delivered frames.
    pub delays: Delays,
}

/// A receiver's state, for its connection and the program.
#[derive(Clone)]
pub struct Board {
    shared: Shared,
    tally: Arc<Mutex<Tally>>,
    /// Whether the server has answered on this connection, and the number of withheld frames.
    line: Arc<watch::Sender<(bool, u64)>>,
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Board")
    }
}

impl Board {
    /// Returns the current state.
    pub fn status(&self) -> Status {
        let Tally { on_time, late, missed, unread, restored, delays } =
            restore::lock(&self.tally).clone();
        let (connected, withheld) = self.line();
        let gathering = lock(&self.shared);
        let (losses, spread, jitter) = gathering.seen();
        let (datagrams, overdue) = (gathering.datagrams(), gathering.overdue());
        Status {
            connected,
            on_time,
            late,
            missed,
            overdue,
            unread,
            withheld,
            restored,
            datagrams,
            losses,
            spread,
            jitter,
            delays,
        }
    }

    /// Waits until the server has admitted this receiver.
    pub async fn admitted(&self) {
        let _ = self.line.subscribe().wait_for(|(connected, _)| *connected).await;
    }

    fn line(&self) -> (bool, u64) {
        *self.line.borrow()
    }

    fn set_line(&self, connected: bool, withheld: u64) {
        self.line.send_replace((connected, withheld));
    }
}

/// Keeps the connection; see [`Control::run`].
#[derive(Debug)]
pub struct Control {
    name: Key,
    board: Board,
    /// Frames withheld on earlier connections.
    withheld: u64,
    /// Whether the server's port for data has answered over any link.
    was_reached: Cell<bool>,
}

/// Creates a receiver of the stream `name`. Returns its items, its [`Control`] and its state.
///
/// # Errors
/// The system has no thread left.
pub fn new(name: Key) -> Result<(mpsc::Receiver<Item>, Control, Board), Error> {
    let tally = Arc::<Mutex<Tally>>::default();
    let (out, items) = restore::start(tally.clone()).map_err(|error| {
        Error::new(Kind::Lost, format!("cannot start a thread for the stream: {error}"))
    })?;
    let board = Board { shared: Gathering::new(out), tally, line: Arc::default() };
    Ok((
        items,
        Control { name, board: board.clone(), withheld: 0, was_reached: Cell::new(false) },
        board,
    ))
}

impl Control {
    /// Receives over the link `first` until the stream or `ends` has ended. If the connection is
    /// lost, calls `connect` for up to `retry_for`.
    ///
    /// # Errors
    /// The server refuses the receiver, no datagram arrives, or the server does not return in time.
    pub async fn run(
        mut self,
        first: Link,
        connect: impl AsyncFn() -> Result<Link, Error>,
        retry_for: Duration,
        ends: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let (mut next, mut retries) = (first, Retries::new(retry_for));
        let mut ends = pin!(ends);
        loop {
            match self.work(next, ends.as_mut()).await {
                Err(error) if error.kind == Kind::Lost => {
                    self.withheld = self.board.line().1;
                    self.board.set_line(false, self.withheld);
                    tokio::select! {
                        link = retries.again(&connect) => next = link?,
                        () = ends.as_mut() => return Ok(()),
                    }
                }
                ended => return ended,
            }
        }
    }

    async fn work(
        &mut self,
        link: Link,
        ends: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Error> {
        let suite = link.suite();
        let Link { mut session, port, contact, flow, datagram } = link;
        session.ask_for(SERVICE, VERSION);
        let (exporter, rtt) = (session.exporter(), session.rtt());
        let sealer = keys(&exporter, suite, 0, flow).receiving_end().reports;
        let announcer = Announcer::new(sealer, port.socket().clone(), Path::from(contact));
        let (states_mailbox, states) = port.mailbox(flow);
        let (requests, mut requested) = mpsc::channel(REQUESTS);
        let gather = Gather {
            shared: self.board.shared.clone(),
            exporter,
            suite,
            flow,
            announcer,
            states,
            data: None,
            scratch: vec![0; usize::from(u16::MAX) + Head::LEN],
            requests,
        };
        let (mut writer, mut reader) = session.split();
        let (name, cipher) = (self.name.as_str().to_owned(), suite.name().to_owned());
        let receive = Receive { name, flow: flow.0, cipher };
        writer.write(&Ask { asked: Some(Asked::Receive(receive)) }).await?;
        // The request creates the server's flow, so it must precede the flow's control datagrams.
        port.register(flow, Box::new(gather))
            .map_err(|error| Error::new(Kind::Unreachable, error.what))?;
        let silent = silence(rtt.clone());
        let post = |told| {
            states_mailbox.post(told);
        };
        let attends =
            self.attend((&mut writer, &mut reader), &mut requested, LeastRtt::new(rtt), post);
        let was_reached = &self.was_reached;
        let answered = answers(&port, contact, datagram.is_some(), was_reached.get());
        let unreachable = async {
            match answered.await {
                Ok(()) => {
                    was_reached.set(true);
                    std::future::pending().await
                }
                Err(error) => error,
            }
        };
        tokio::select! {
            ended = attends => ended?,
            error = silent => return Err(error),
            error = unreachable => return Err(error),
            () = ends => {}
        }
        // A failed goodbye is no error.
        let _ = writer.leave(reader).await;
        Ok(())
    }

    /// Sends reports and requests for lost symbols, and reads the server's messages, until the
    /// stream's end.
    async fn attend(
        &self,
        (writer, reader): (&mut FrameWriter, &mut FrameReader),
        requested: &mut mpsc::Receiver<Again>,
        own: LeastRtt,
        post: impl Fn((Phase, Span)),
    ) -> Result<(), Error> {
        let mut tick = interval(REPORT);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut passing = Passing::default();
        while !lock(&self.board.shared).is_over() {
            tokio::select! {
                _ = tick.tick() => {
                    own.now();
                    writer.write(&Ask { asked: Some(Asked::Report(self.report())) }).await?;
                }
                Some(again) = requested.recv() => {
                    writer.write(&Ask { asked: Some(Asked::Again(again)) }).await?;
                }
                told = reader.read::<Tell>() => {
                    let ended = || Error::new(Kind::Lost, "the server ended the session");
                    let Some(Told::State(state)) = told?.ok_or_else(ended)?.told else { continue };
                    self.board.set_line(true, self.withheld.saturating_add(state.withheld));
                    let phase = phase(&state)?;
                    passing.look(&phase, lock(&self.board.shared).datagrams())?;
                    post((phase, own.now()));
                }
            }
        }
        Ok(())
    }

    fn report(&self) -> Report {
        let (losses, spread, _) = lock(&self.board.shared).seen();
        let (loss_ppm, burst_milli) = written(losses);
        let tally = restore::lock(&self.board.tally);
        Report {
            loss_ppm,
            burst_milli,
            jitter_micros: micros(spread),
            on_time: tally.on_time,
            missed: tally.missed + tally.late + tally.unread,
        }
    }
}

#[derive(Default)]
struct Passing(Option<(Instant, u32, u64)>);

impl Passing {
    /// Fails if frames were forwarded for some seconds and no datagram has arrived.
    fn look(&mut self, phase: &Phase, datagrams: u64) -> Result<(), Error> {
        let Phase::Live { frame, .. } = *phase else {
            self.0 = None;
            return Ok(());
        };
        let begin = || (Instant::now(), frame, datagrams);
        let (since, first, before) = *self.0.get_or_insert_with(begin);
        if datagrams != before {
            self.0 = None;
        } else if frame > first.saturating_add(1)
            && since.elapsed() > NO_DATAGRAMS
            && datagrams == 0
        {
            let what = "the stream is being sent, but none of its datagrams arrives here";
            return Err(Error::new(Kind::Unreachable, what)
                .advise("allow UDP from the server's data port, or send smaller datagrams"));
        }
        Ok(())
    }
}
