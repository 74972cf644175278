//! The server's side of streams: answers senders and receivers.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use longhaul_net::clock;
use longhaul_net::port::PortHandle;
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::share::{Key, Right};
use longhaul_proto::time::Span;
use longhaul_session::{Error, FrameReader, FrameWriter, Kind, Session};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{interval, sleep, timeout};

use crate::ingress::{Came, Ingress};
use crate::link::LeastRtt;
use crate::messages::{Again, Ask, Asked, Receive, Send, Tell, Told};
use crate::place::{Listener, Place};
use crate::relay;
use crate::rooms::{Listed, Live, Member, Rooms};
use crate::terms::{self, keys};

/// Timeout for a client that does not read.
const UNREAD: Duration = Duration::from_secs(60);
/// Maximum length of a sender's queue of requests for lost symbols.
const REQUESTS: usize = 256;
/// Interval of the reports to senders and receivers.
const REPORT: Duration = Duration::from_millis(500);
/// Maximum time that the server still forwards after a sender's end.
const LAST: Span = Span::from_secs(2);

/// The streams of a server.
pub struct Streams {
    rooms: Rooms,
    port: PortHandle,
}

/// A flow that is registered at the port; unregistered on drop.
pub(crate) struct Flow<'a>(pub(crate) &'a PortHandle, pub(crate) FlowId);

impl Drop for Flow<'_> {
    fn drop(&mut self) {
        self.0.unregister(self.1);
    }
}

struct Seat<'a, F: Fn(&Rooms, &Key, u64)> {
    rooms: &'a Rooms,
    name: Key,
    number: u64,
    leave: F,
}

impl<F: Fn(&Rooms, &Key, u64)> Drop for Seat<'_, F> {
    fn drop(&mut self) {
        (self.leave)(self.rooms, &self.name, self.number);
    }
}

impl Streams {
    /// Creates streams whose datagrams use `port`.
    pub fn new(port: PortHandle) -> Rc<Streams> {
        Rc::new(Streams { rooms: Rooms::default(), port })
    }

    /// Returns the current streams, sorted by name.
    pub fn list(&self) -> Vec<Listed> {
        self.rooms.list()
    }

    /// Answers a client until its stream ends, and sends a goodbye; `first` is the client's first
    /// message. Ends early with the reason from `stopped`.
    ///
    /// # Errors
    /// The request was refused, `stopped` completed, or the client sent an invalid message, stopped
    /// reading, or left without a goodbye.
    pub async fn serve(
        &self,
        session: Session,
        first: Ask,
        right: Right,
        stopped: impl Future<Output = Error>,
    ) -> Result<(), Error> {
        let about = About::of(&session);
        let (mut writer, mut reader) = session.split();
        let work = async {
            match first.asked {
                Some(Asked::Send(send)) => {
                    self.sender(&about, send, &right, &mut writer, &mut reader).await
                }
                Some(Asked::Receive(receive)) => {
                    self.receiver(&about, receive, &right, &mut writer, &mut reader).await
                }
                _ => {
                    Err(Error::new(Kind::Usage, "the first message must send or receive a stream"))
                }
            }
        };
        let ended = tokio::select! {
            ended = work => ended,
            why = stopped => Err(why),
        };
        let _ = writer.close(reader, ended.as_ref().err().cloned()).await;
        ended
    }

    async fn sender(
        &self,
        about: &About,
        send: Send,
        right: &Right,
        writer: &mut FrameWriter,
        reader: &mut FrameReader,
    ) -> Result<(), Error> {
        let name = terms::name(&send.name)?;
        if !right.write || !right.prefix.contains(name.as_str()) {
            return Err(forbidden("send", &name, right));
        }
        let suite = terms::suite(&send.cipher)?;
        let Send { symbol, frame, per_second_milli, deadline_micros, run, group, .. } = send;
        let terms = terms::terms(symbol, frame, per_second_milli, deadline_micros, group)?;
        self.rooms.may_begin(&name, about.peer)?;
        let started = relay::start(self.port.socket().clone(), terms.datagram());
        let (relay, spare) = started.map_err(|error| {
            Error::new(Kind::Unreachable, format!("the server cannot start a thread: {error}"))
        })?;
        let (came, flow) = (Arc::new(Came::new(&terms)), FlowId(send.flow));
        let data = keys(&about.exporter, suite, 0, flow).receiving_end().data;
        let ingress = Ingress::new(data, terms, came.clone(), spare, relay.clone());
        self.register(flow, Box::new(ingress))?;
        let _flow = Flow(&self.port, flow);
        let (replaced, is_replaced) = oneshot::channel();
        let (peer, rtt) = (about.peer, LeastRtt::new(about.rtt.clone()));
        let (requests, requested) = mpsc::channel(REQUESTS);
        let live = Live { peer, run, terms, relay, came, rtt, requests, replaced };
        let (number, changed) = self.rooms.begin(&name, live);
        let leave = |rooms: &Rooms, name: &Key, number| rooms.remove_sender(name, number);
        let seat = Seat { rooms: &self.rooms, name, number, leave };
        let news = (changed, requested);
        let frames = tokio::select! {
            frames = self.attend(&seat.name, number, news, writer, reader) => frames?,
            // Completes only when another process replaces the sender: until then, the room keeps
            // the other half of the channel.
            _ = is_replaced => {
                let what = "another process of this client now sends the stream";
                return Err(Error::new(Kind::Unreachable, what));
            }
        };
        if let Some(frames) = frames {
            self.rooms.finish(&seat.name, number, frames);
            sleep(clock::duration(terms.deadline.min(LAST))).await;
        }
        Ok(())
    }

    /// Sends reports and requests to a sender until its stream ends. Returns the frame count in
    /// the sender's `End`; `None` if the stream ended without an `End`.
    async fn attend(
        &self,
        name: &Key,
        number: u64,
        (mut changed, mut requested): (watch::Receiver<()>, mpsc::Receiver<Again>),
        writer: &mut FrameWriter,
        reader: &mut FrameReader,
    ) -> Result<Option<u32>, Error> {
        let mut tick = interval(REPORT);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                // Cannot fail: the room lives as long as its sender.
                _ = changed.changed() => {}
                Some(again) = requested.recv() => {
                    send(writer, Told::Again(again)).await?;
                    continue;
                }
                said = reader.read::<Ask>() => match said? {
                    None => return Ok(None),
                    Some(Ask { asked: Some(Asked::End(end)) }) => return Ok(Some(end.frames)),
                    Some(Ask { asked: None }) => continue,
                    Some(_) => return Err(senseless()),
                },
            }
            send(writer, Told::Way(self.rooms.way(name, number))).await?;
        }
    }

    async fn receiver(
        &self,
        about: &About,
        receive: Receive,
        right: &Right,
        writer: &mut FrameWriter,
        reader: &mut FrameReader,
    ) -> Result<(), Error> {
        let name = terms::name(&receive.name)?;
        if !right.read || !right.prefix.contains(name.as_str()) {
            return Err(forbidden("receive", &name, right));
        }
        let suite = terms::suite(&receive.cipher)?;
        let (flow, place) = (FlowId(receive.flow), Arc::<Place>::default());
        let said = keys(&about.exporter, suite, 0, flow).sending_end().reports;
        let listener = Listener::new(said, about.ip, place.clone());
        self.register(flow, Box::new(listener))?;
        let _flow = Flow(&self.port, flow);
        let rtt = LeastRtt::new(about.rtt.clone());
        let known = place.clone();
        let member = Member::new(about.peer, place, (about.exporter.clone(), suite, flow), rtt);
        let (number, mut changed) = self.rooms.join(&name, member)?;
        let leave = |rooms: &Rooms, name: &Key, number| rooms.leave(name, number);
        let seat = Seat { rooms: &self.rooms, name, number, leave };
        let mut tick = interval(REPORT);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                // `notify` wakes the room's sender and receivers, this one included.
                () = known.changed() => {
                    self.rooms.notify(&seat.name);
                    continue;
                }
                // Cannot fail: the room lives as long as its members.
                _ = changed.changed() => {}
                said = reader.read::<Ask>() => match said? {
                    None => return Ok(()),
                    Some(Ask { asked: Some(Asked::Report(report)) }) => {
                        self.rooms.report(&seat.name, number, terms::seen(&report));
                        continue;
                    }
                    Some(Ask { asked: Some(Asked::Again(again)) }) => {
                        terms::request(&again)?;
                        self.rooms.request(&seat.name, number, again);
                        continue;
                    }
                    Some(Ask { asked: None }) => continue,
                    Some(_) => return Err(senseless()),
                },
            }
            send(writer, Told::State(self.rooms.state(&seat.name, number))).await?;
        }
    }

    fn register(
        &self,
        flow: FlowId,
        sink: Box<dyn longhaul_net::port::FlowSink>,
    ) -> Result<(), Error> {
        self.port.register(flow, sink).map_err(|error| Error::new(Kind::Unreachable, error.what))
    }
}

struct About {
    peer: longhaul_session::PeerId,
    ip: std::net::IpAddr,
    exporter: longhaul_session::Exporter,
    rtt: longhaul_session::RttWatch,
}

impl About {
    fn of(session: &Session) -> About {
        let ip = session.remote.ip();
        About { peer: session.peer, ip, exporter: session.exporter(), rtt: session.rtt() }
    }
}

fn senseless() -> Error {
    Error::new(Kind::Usage, "this message is not allowed on this stream")
}

pub(crate) fn forbidden(verb: &str, name: &Key, right: &Right) -> Error {
    Error::new(Kind::Unreachable, right.refuses(verb, name))
        .advise("ask the server's administrator")
}

async fn send(writer: &mut FrameWriter, told: Told) -> Result<(), Error> {
    let unread = |_| Error::new(Kind::Lost, "the client does not read the data that it requested");
    timeout(UNREAD, writer.write(&Tell { told: Some(told) })).await.map_err(unread)?
}
