//! A sender of a stream: takes frames, and keeps the connection.

use std::pin::Pin;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul_net::clock;
use longhaul_net::port::mtu::packet_overhead;
use longhaul_net::socket::Path as UdpPath;
use longhaul_proto::fec::Losses;
use longhaul_proto::share::Key;
use longhaul_proto::stream::{Ceiling, EPSILON, Needs, Overflow, Path, Plan, Way, choose, plan};
use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;
use longhaul_session::retry::{Retries, silence};
use longhaul_session::{Error, FrameReader, FrameWriter, Kind};
use tokio::sync::{Semaphore, oneshot, watch};

use crate::link::{Link, answers};
use crate::messages::{Ask, Asked, End, SERVICE, Send, Tell, Told, VERSION};
use crate::sending::{Counts, Order, Outgoing, lock, room, start};
use crate::terms::{self, Course, OVERHEAD, Terms, keys, micros};

/// Packet size that fits every Ethernet path. The server forwards each datagram in one datagram of
/// the same size, which must fit every receiver's path.
const PACKET: u16 = 1500;
/// A stream fails if none of the datagrams sent over a link reaches the server within this time.
const NO_DATAGRAMS: Duration = Duration::from_secs(5);
/// Share by which losses, jitter or round-trip time must change for a new plan.
const CHANGE: f64 = 0.1;

/// The request of a sender.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The stream's name.
    pub name: Key,
    /// Maximum bytes of a frame.
    pub frame: u32,
    /// Frames a second.
    pub per_second: f64,
    /// Maximum time from the sender to the delivery.
    pub deadline: Span,
    /// What to do with frames that are offered too fast.
    pub overflow: Overflow,
    /// Number of receivers to wait for at the start.
    pub receivers: u32,
    /// UDP payload of a datagram in bytes; `None` for the largest that reaches the server and fits
    /// every Ethernet path.
    pub datagram: Option<u16>,
    /// How to meet the deadline; `None` chooses by the measured path.
    pub way: Option<Way>,
}

/// The state of a sender.
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    /// Whether the server has accepted the stream, and there were enough receivers.
    pub begun: bool,
    /// Whether the connection is up.
    pub connected: bool,
    /// The measurements of the path, once known.
    pub course: Option<Course>,
    /// The rate and the code of the stream.
    pub plan: Option<Plan>,
    /// Highest number of repairs of a frame in any plan so far.
    pub most_repairs: u16,
    /// Frames taken from the source.
    pub frames: u64,
    /// Frames not sent completely: they came too fast, time ran out, or there was no connection.
    pub skipped: u64,
    /// Frames not sent, because there was no receiver.
    pub unwatched: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// UDP payload of the sent datagrams, in bytes.
    pub bytes: u64,
    /// Datagrams sent again, because receivers requested them.
    pub resent: u64,
}

/// Takes frames from the program.
#[derive(Debug)]
pub struct Source {
    orders: Sender<Order>,
    room: Arc<Semaphore>,
    frame: u32,
}

/// The stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended;

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Order")
    }
}

impl Source {
    /// Returns the maximum bytes of a frame.
    pub fn most(&self) -> u32 {
        self.frame
    }

    /// Takes a frame. Waits while the queue is full. The queue holds the unsent frames. If the
    /// stream drops frames that come too fast, the queue holds only the frames that the sending
    /// thread has not read yet.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn offer(&self, frame: Vec<u8>) -> Result<(), Ended> {
        let permit = self.room.clone().acquire_owned().await.map_err(|_| Ended)?;
        self.orders.send(Order::Frame(frame, permit)).map_err(|_| Ended)
    }

    /// Waits until all frames are sent or skipped. Returns the number of frames that had a
    /// receiver, or of payloads if a payload may hold several frames.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn finish(&self) -> Result<u32, Ended> {
        let (tell, told) = oneshot::channel();
        self.orders.send(Order::Finish(tell)).map_err(|_| Ended)?;
        told.await.map_err(|_| Ended)
    }
}

/// Keeps the connection; see [`Control::run`].
#[derive(Debug)]
pub struct Control {
    wish: Wish,
    terms: Terms,
    run: u64,
    orders: Sender<Order>,
    room: Arc<Semaphore>,
    counts: Arc<Mutex<Counts>>,
    status: watch::Sender<Status>,
    /// The losses, jitter, round-trip time and receivers of the current plan.
    followed: Option<(Losses, Span, Span, u32)>,
    ceiling: Ceiling,
    reach: Reach,
    /// Whether the server's port for data has answered over any link.
    was_reached: bool,
}

/// Whether the datagrams of the current link reach the server.
#[derive(Debug, Default)]
struct Reach {
    /// Datagrams sent over earlier links.
    before: u64,
    /// Time of the first check that found datagrams sent but none arrived.
    since: Option<Instant>,
}

impl Reach {
    /// Returns whether no datagram of the current link has reached the server within the limit.
    /// `sent` counts the datagrams sent over all links, `came` the arrivals over this link.
    fn is_lost(&mut self, now: Instant, sent: u64, came: u64) -> bool {
        if sent == self.before || came > 0 {
            self.since = None;
            return false;
        }
        now.duration_since(*self.since.get_or_insert(now)) >= NO_DATAGRAMS
    }
}

/// Returns the UDP payload that fits every Ethernet path, at most `passes`.
pub(crate) fn ethernet(passes: Option<u16>) -> u16 {
    let ethernet = PACKET - packet_overhead(std::net::Ipv6Addr::LOCALHOST.into());
    passes.unwrap_or(ethernet).min(ethernet)
}

/// Creates a sender; a server recognises it by the random number `run` after a reconnection.
///
/// # Errors
/// A value is out of range, or the system has no thread left.
pub fn new(
    wish: Wish,
    run: u64,
    first: &Link,
) -> Result<(Source, Control, watch::Receiver<Status>), Error> {
    let datagram = wish.datagram.unwrap_or_else(|| ethernet(first.datagram));
    let symbol = datagram.saturating_sub(OVERHEAD) & !1;
    let Wish { frame, per_second, deadline, way, .. } = wish;
    let single = Terms { symbol, frame, per_second, deadline, group: 1 }.check()?;
    let terms = if way == Some(Way::Payloads) { single.in_payloads().check()? } else { single };
    let counts = Arc::<Mutex<Counts>>::default();
    let orders = start(terms, wish.overflow, counts.clone()).map_err(|error| {
        Error::new(Kind::Lost, format!("cannot start a sending thread: {error}"))
    })?;
    let room = Arc::new(Semaphore::new(room(&terms)));
    let source = Source { orders: orders.clone(), room: room.clone(), frame };
    let (status, watched) = watch::channel(Status::default());
    let (followed, reach, ceiling) = (None, Reach::default(), Ceiling::new(terms.interval()));
    let control = Control {
        wish,
        terms,
        run,
        orders,
        room,
        counts,
        status,
        followed,
        ceiling,
        reach,
        was_reached: false,
    };
    Ok((source, control, watched))
}

impl Drop for Control {
    fn drop(&mut self) {
        // Ends the wait of a caller of `offer`.
        self.room.close();
    }
}

impl Control {
    /// Sends over the link `first` until `finished` returns the number of frames, tells this number
    /// to the server, and returns. The last frames may arrive later. If the connection is lost,
    /// calls `connect` for up to `retry_for`. When `cancelled` returns a reason, tells it to the
    /// server.
    ///
    /// # Errors
    /// The reason from `cancelled`; or the server refuses the stream, the deadline cannot be met,
    /// the datagrams do not fit the path, no datagram arrives, or the server does not return in
    /// time.
    pub async fn run(
        mut self,
        first: Link,
        connect: impl AsyncFn() -> Result<Link, Error>,
        retry_for: Duration,
        finished: impl Future<Output = u32>,
        cancelled: impl Future<Output = Error>,
    ) -> Result<Status, Error> {
        tokio::pin!(finished, cancelled);
        let (mut next, mut retries) = (first, Retries::new(retry_for));
        // The connection may be lost after `finished` has returned. A future must not be polled
        // again after it has returned, so its result is kept for the next connection.
        let mut frames = None;
        loop {
            let known = async {
                match frames {
                    Some(frames) => frames,
                    None => *frames.insert((&mut finished).await),
                }
            };
            match self.work(next, std::pin::pin!(known), cancelled.as_mut()).await {
                Ok(()) => return Ok(self.status()),
                Err(error) if error.kind == Kind::Lost => {
                    let _ = self.orders.send(Order::Link(None));
                    self.status.send_modify(|status| status.connected = false);
                    tokio::select! {
                        link = retries.again(&connect) => next = link?,
                        error = cancelled.as_mut() => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn status(&self) -> Status {
        let counts = *lock(&self.counts);
        let Counts { frames, skipped, unwatched, datagrams, bytes, resent, .. } = counts;
        let status = *self.status.borrow();
        Status { frames, skipped, unwatched, datagrams, bytes, resent, ..status }
    }

    async fn work(
        &mut self,
        link: Link,
        mut finished: Pin<&mut impl Future<Output = u32>>,
        mut cancelled: Pin<&mut impl Future<Output = Error>>,
    ) -> Result<(), Error> {
        // Datagrams of an earlier link say nothing about this one.
        self.reach = Reach { before: lock(&self.counts).datagrams, since: None };
        let suite = link.suite();
        let Link { mut session, port, contact, flow, datagram } = link;
        session.ask_for(SERVICE, VERSION);
        let Terms { symbol, frame, per_second, deadline, group } = self.terms;
        let asked = Send {
            name: self.wish.name.as_str().to_owned(),
            flow: flow.0,
            cipher: suite.name().to_owned(),
            run: self.run,
            symbol: symbol.into(),
            frame,
            per_second_milli: (per_second * 1_000.0).round() as u64,
            deadline_micros: micros(deadline),
            group,
        };
        let data = keys(&session.exporter(), suite, 0, flow).sending_end().data;
        let (socket, path) = (port.socket().clone(), UdpPath::from(contact));
        let mut out = Some(Outgoing { socket, path, data });
        let answered = answers(&port, contact, datagram.is_some(), self.was_reached);
        let silent = silence(session.rtt());
        tokio::pin!(silent, answered);
        let mut is_reached = false;
        let (mut writer, mut reader) = session.split();
        writer.write(&Ask { asked: Some(Asked::Send(asked)) }).await?;
        loop {
            tokio::select! {
                error = &mut silent => return Err(error),
                error = &mut cancelled => {
                    // A failed goodbye is no error.
                    let _ = writer.close(reader, Some(error.clone())).await;
                    return Err(error);
                }
                reached = &mut answered, if !is_reached => {
                    reached?;
                    (is_reached, self.was_reached) = (true, true);
                }
                told = reader.read::<Tell>() => {
                    let ended = || Error::new(Kind::Lost, "the server ended the session");
                    let way = match told?.ok_or_else(ended)?.told {
                        Some(Told::Way(way)) => way,
                        Some(Told::Again(again)) => {
                            let request = terms::request(&again)?;
                            let _ = self.orders.send(Order::Again(request, again.receiver));
                            continue;
                        }
                        _ => continue,
                    };
                    // Set the link first: the program offers a frame as soon as the stream has
                    // begun.
                    if let Some(out) = out.take() {
                        let _ = self.orders.send(Order::Link(Some(out)));
                    }
                    self.follow(&terms::course(&way))?;
                }
                // Without receivers no frame is sent, so only the probe shows that frames would
                // arrive.
                frames = &mut finished, if is_reached => return end(writer, reader, frames).await,
            }
        }
    }

    fn follow(&mut self, course: &Course) -> Result<(), Error> {
        let Course { losses, jitter, farthest, nearest, receivers, .. } = *course;
        self.check(course)?;
        let limit = self.ceiling.limit();
        self.ceiling.measure(clock::now(), course.carried, farthest);
        let differs = |old: f64, new: f64| (old - new).abs() > CHANGE * old.max(new);
        let is_new = self.followed.is_none_or(|(old, old_jitter, old_trip, old_receivers)| {
            differs(old.ratio().get(), losses.ratio().get())
                || differs(old.burst(), losses.burst())
                || differs(old_jitter.as_secs_f64(), jitter.as_secs_f64())
                || differs(old_trip.as_secs_f64(), farthest.as_secs_f64())
                || old_receivers != receivers
                || self.ceiling.limit() != limit
        });
        if is_new {
            self.followed = Some((losses, jitter, farthest, receivers));
            let (mut plan, path) = (self.plan(course)?, nearest / 2);
            plan.rate = self.ceiling.cap(plan.rate);
            self.status.send_modify(|status| {
                status.most_repairs = status.most_repairs.max(plan.repairs);
                status.plan = Some(plan);
            });
            let (Plan { rate, losses, .. }, keeps) = (plan, plan.way != Way::Code);
            let _ = self.orders.send(Order::Follow { path, losses, rate, keeps, receivers });
        }
        let counted = self.status();
        let wanted = self.wish.receivers;
        self.status.send_modify(|status| {
            let begun = status.begun || receivers >= wanted;
            *status = Status { begun, connected: true, course: Some(*course), ..counted };
        });
        Ok(())
    }

    /// Returns the plan for all receivers. If the deadline is too short for the farthest receiver,
    /// plans for the nearest, without jitter. If the deadline is too short for that plan too,
    /// returns the previous plan, or an error if there is none.
    fn plan(&self, course: &Course) -> Result<Plan, Error> {
        let Course { losses, jitter, farthest, nearest, receivers, .. } = *course;
        let (Terms { symbol, frame, per_second, deadline, group }, way) =
            (self.terms, self.wish.way);
        let frame = Bytes::new(frame.into());
        let needs = Needs { frame, per_second, deadline, epsilon: EPSILON, receivers };
        let frame = Bytes::new(self.wish.frame.into());
        let single = Needs { frame, per_second: self.wish.per_second, ..needs };
        let of = |rtt, jitter| {
            let path = Path { rtt, jitter, losses, symbol };
            let plan = plan(&needs, &path, OVERHEAD, way)?;
            // `choice` has the rates for single frames, not for payloads.
            Some(if group > 1 { Plan { choice: choose(&single, &path), ..plan } } else { plan })
        };
        let possible = of(farthest, jitter).or_else(|| of(nearest, Span::ZERO));
        possible.or(self.status.borrow().plan).ok_or_else(|| {
            let by = way.map_or(String::new(), |way| format!(" by {}", way.name()));
            let what = format!(
                "no stream{by} meets a deadline of {deadline} here: the path to the nearest \
                 receiver takes {}",
                nearest / 2
            );
            let advice = if by.is_empty() { "" } else { ", or leave the method open" };
            Error::new(Kind::Usage, what).advise(format!("request a longer deadline{advice}"))
        })
    }

    fn check(&mut self, course: &Course) -> Result<(), Error> {
        let counts = *lock(&self.counts);
        if counts.too_large {
            let what = format!("datagrams of {} bytes do not fit the path", self.terms.datagram());
            return Err(Error::new(Kind::Unreachable, what).advise("request smaller datagrams"));
        }
        if !self.reach.is_lost(Instant::now(), counts.datagrams, course.came) {
            return Ok(());
        }
        let what = "none of the stream's datagrams arrives at the server";
        Err(Error::new(Kind::Unreachable, what).advise("request smaller datagrams"))
    }
}

async fn end(mut writer: FrameWriter, reader: FrameReader, frames: u32) -> Result<(), Error> {
    writer.write(&Ask { asked: Some(Asked::End(End { frames })) }).await?;
    writer.close(reader, None).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_lost_if_none_of_its_datagrams_arrives_within_5_s() {
        let (start, mut reach) = (Instant::now(), Reach { before: 7, since: None });
        let later = |millis| start + Duration::from_millis(millis);
        assert!(!reach.is_lost(start, 7, 0) && !reach.is_lost(later(9_000), 7, 0));
        assert!(!reach.is_lost(later(9_001), 8, 0) && !reach.is_lost(later(14_000), 8, 0));
        assert!(reach.is_lost(later(14_001), 8, 0));
        assert!(!reach.is_lost(later(14_002), 8, 1), "one arrived");
        assert!(!reach.is_lost(later(19_001), 9, 0) && !reach.is_lost(later(24_000), 9, 0));
    }
}
