//! The server's side of channels.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aws_lc_rs::digest;
use longhaul_net::port::{FlowSink, PortHandle};
use longhaul_proto::channel::{Code, Cursor, Message, Mode, Taken as FromLog};
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::share::{Key, Prefix, Right};
use longhaul_proto::time::Span;
use longhaul_session::{
    Error, Exporter, FrameReader, FrameWriter, Kind, PeerId, RttWatch, Session, random_u64, when,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::group::bridge::Bridge;
use super::inbound::{Came, Counts, Inbound};
use super::messages::{
    ChannelAsk, ChannelAsked, ChannelTell, ChannelTold, Lost, Part, Publish, Room, Subscribe, Taken,
};
use super::outbound::{DATAGRAMS, Hop, Outbound, Sending, until};
use super::parts::{Parts, cut};
use super::rooms::{Charges, Published, Role, RoomLimits, RoomListed, Rooms, Seat};
use crate::link::LeastRtt;
use crate::place::{Listener, Place};
use crate::server::{Flow, forbidden};
use crate::terms::{self, keys, micros};

/// Timeout for a client that does not read.
const UNREAD: Duration = Duration::from_secs(60);
/// Delay of an acknowledgement, to combine several.
const TAKEN: Duration = Duration::from_millis(10);
/// In one turn, a subscriber gets messages until they have this many bytes together.
const TOGETHER: usize = 64 << 10;

/// The rooms of a server.
pub struct Channels {
    rooms: Rc<Rooms>,
    port: PortHandle,
    pub(super) bridges: RefCell<BTreeMap<Key, Rc<Bridge>>>,
}

pub(super) struct About {
    peer: PeerId,
    ip: std::net::IpAddr,
    pub(super) exporter: Exporter,
    rtt: RttWatch,
    right: Right,
    link: Option<Right>,
}

fn wrong(what: impl Into<String>) -> Error {
    Error::new(Kind::Usage, what)
}

impl About {
    /// Checks that the client may use the room.
    fn may(&self, verb: &str, name: &Key, writes: bool, link: u64) -> Result<(), Error> {
        let grants = |right: &Right| {
            let mode = if writes { right.write } else { right.read };
            mode && right.prefix.contains(name.as_str())
        };
        if !grants(&self.right) {
            return Err(forbidden(verb, name, &self.right));
        }
        if link != 0 && !self.link.as_ref().is_some_and(grants) {
            let what = format!("this client may not link the room '{name}'");
            return Err(Error::new(Kind::Unreachable, what)
                .advise("add link=rw to its entry in the server's list of clients"));
        }
        Ok(())
    }
}

impl Channels {
    /// Creates rooms whose datagrams use `port`.
    pub fn new(port: PortHandle, limits: RoomLimits, charges: Charges) -> Rc<Channels> {
        let (rooms, bridges) = (Rooms::new(limits, charges, random_u64), RefCell::default());
        Rc::new(Channels { rooms, port, bridges })
    }

    /// Returns all rooms, sorted by name.
    pub fn list(&self) -> Vec<RoomListed> {
        self.rooms.list()
    }

    /// Returns the number of messages in all rooms since the start.
    pub fn messages(&self) -> u64 {
        self.rooms.messages()
    }

    /// Drops the rooms that have had no client for 10 minutes. Call this now and then.
    pub fn expire(&self) {
        self.rooms.expire(std::time::Instant::now());
    }

    pub(super) fn rooms(&self) -> &Rc<Rooms> {
        &self.rooms
    }

    /// Answers a client until the stream ends, and says goodbye. `first` is the client's first
    /// message, `link` the client's right to links. Ends early with the reason from `stopped`.
    ///
    /// # Errors
    /// The stream ended for any reason other than the client's goodbye.
    pub async fn serve(
        &self,
        session: Session,
        first: ChannelAsk,
        (right, link): (Right, Option<Right>),
        stopped: impl Future<Output = Error>,
    ) -> Result<(), Error> {
        let (peer, ip, exporter) = (session.peer, session.remote.ip(), session.exporter());
        let about = About { peer, ip, exporter, rtt: session.rtt(), right, link };
        session.expect_much();
        let (mut writer, mut reader) = session.split();
        let work = async {
            match first.asked {
                Some(ChannelAsked::Publish(publish)) => {
                    self.publisher(&about, publish, &mut writer, &mut reader).await
                }
                Some(ChannelAsked::Subscribe(subscribe)) => {
                    self.subscriber(&about, subscribe, &mut writer, &mut reader).await
                }
                _ => Err(wrong("the first message of a channel must name a room")),
            }
        };
        let ended = tokio::select! {
            ended = work => ended,
            why = stopped => Err(why),
        };
        let _ = writer.close(reader, ended.as_ref().err().cloned()).await;
        ended
    }

    async fn publisher(
        &self,
        about: &About,
        publish: Publish,
        writer: &mut FrameWriter,
        reader: &mut FrameReader,
    ) -> Result<(), Error> {
        let name = terms::name(&publish.name)?;
        about.may("send to", &name, true, publish.link)?;
        let seat = self.rooms.enter(&name, about.peer, Role::Sender)?;
        let room = Room { run: seat.room.run, next: seat.room.read(|log| log.next()) };
        if publish.multicast {
            if publish.link != 0 {
                return Err(senseless());
            }
            let bridge = self.group(&name)?;
            send(writer, ChannelTold::Room(room)).await?;
            let origin = origin(about.peer, publish.run);
            return bridge.sender(about, origin, writer, reader).await;
        }
        let (mut inflow, mut flow_counts) = (None, Arc::<Counts>::default());
        if !publish.cipher.is_empty() {
            let suite = terms::suite(&publish.cipher)?;
            let flow = FlowId(publish.flow);
            let data = keys(&about.exporter, suite, 0, flow).receiving_end().data;
            let deadline = deadline(publish.deadline_micros)?;
            let (inbound, came, counts) = Inbound::new(data, Some(about.ip), None, deadline);
            inflow = Some((self.register(flow, Box::new(inbound))?, came));
            flow_counts = counts;
        }
        send(writer, ChannelTold::Room(room)).await?;
        let taking = Taking {
            origin: origin(about.peer, publish.run),
            link: publish.link,
            charge: self.rooms.charge(about.peer),
            parts: Parts::default(),
            seat,
            rtt: LeastRtt::new(about.rtt.clone()),
            flow: flow_counts,
            refused: 0,
            count: 0,
        };
        match inflow {
            Some((flow, came)) => taking.datagrams(&flow, came, writer, reader).await,
            None => taking.stream(writer, reader).await,
        }
    }

    async fn subscriber(
        &self,
        about: &About,
        subscribe: Subscribe,
        writer: &mut FrameWriter,
        reader: &mut FrameReader,
    ) -> Result<(), Error> {
        let name = terms::name(&subscribe.name)?;
        about.may("receive from", &name, false, subscribe.link)?;
        let wrong_keys = |error| wrong(format!("the key is invalid: {error}"));
        let filter = Prefix::new(&subscribe.keys).map_err(wrong_keys)?;
        let mode = match subscribe.mode {
            0 => Mode::Reliable,
            1 => Mode::Latest,
            2 => Mode::Datagram,
            3 => deadline(subscribe.deadline_micros)?
                .map(Mode::Deadline)
                .ok_or_else(|| wrong("the deadline is missing"))?,
            4 => Mode::Multicast,
            mode => return Err(wrong(format!("a channel has no mode {mode}"))),
        };
        let seat = self.rooms.enter(&name, about.peer, Role::Subscriber)?;
        let run = seat.room.run;
        if mode == Mode::Multicast {
            let bridge = self.group(&name)?;
            let next = seat.room.read(|log| log.next());
            send(writer, ChannelTold::Room(Room { run, next })).await?;
            return bridge.subscriber(&seat, filter, writer, reader).await;
        }
        let (cursor, next) = seat.room.read(|log| {
            let link = subscribe.link;
            let resumed = (subscribe.run == run)
                .then(|| Cursor::resume(log, subscribe.next, mode, filter.clone(), link))
                .flatten();
            let cursor = resumed.unwrap_or_else(|| Cursor::new(log, mode, filter, link));
            let next = cursor.position();
            (cursor, next)
        });
        let out = match mode.is_datagrams() {
            true => Some(self.outbound(about, &subscribe, mode)?),
            false => None,
        };
        send(writer, ChannelTold::Room(Room { run, next })).await?;
        match out {
            Some((_flow, place, out)) => {
                let rtt = LeastRtt::new(about.rtt.clone());
                bring_datagrams(&seat, cursor, (&place, out, rtt), writer, reader).await
            }
            None => bring(&seat, cursor, writer, reader).await,
        }
    }

    fn outbound(
        &self,
        about: &About,
        subscribe: &Subscribe,
        mode: Mode,
    ) -> Result<(Flow<'_>, Arc<Place>, Outbound), Error> {
        let suite = terms::suite(&subscribe.cipher)?;
        let code = Code::new(subscribe.xor, subscribe.group, subscribe.repairs);
        let code = code.map_err(|error| wrong(error.to_string()))?;
        if subscribe.repairs > subscribe.group {
            return Err(wrong("a group has more repairs than datagrams"));
        }
        let size = u16::try_from(subscribe.datagram).ok().filter(|size| DATAGRAMS.contains(size));
        let size = size.ok_or_else(|| {
            let what = format!("datagrams of {} bytes are outside the limits", subscribe.datagram);
            wrong(what)
        })?;
        let (flow, place) = (FlowId(subscribe.flow), Arc::<Place>::default());
        let ends = keys(&about.exporter, suite, 0, flow).sending_end();
        let (data, said) = (ends.data, ends.reports);
        let listener = Listener::new(said, about.ip, place.clone());
        let flow = self.register(flow, Box::new(listener))?;
        let out = Outbound::new(self.port.socket().clone(), data, size, code)
            .with_charge(self.rooms.charge(about.peer));
        let rtt = LeastRtt::new(about.rtt.clone()).now();
        let out = match mode.deadline() {
            Some(deadline) => out.with_deadline(Hop::new(deadline, rtt)),
            None => out,
        };
        Ok((flow, place, out))
    }

    fn register(&self, flow: FlowId, sink: Box<dyn FlowSink>) -> Result<Flow<'_>, Error> {
        let taken = |error: longhaul_net::Error| Error::new(Kind::Unreachable, error.what);
        self.port.register(flow, sink).map_err(taken)?;
        Ok(Flow(&self.port, flow))
    }
}

struct Taking {
    origin: u64,
    link: u64,
    charge: Box<dyn super::rooms::Charge>,
    parts: Parts,
    seat: Seat,
    rtt: LeastRtt,
    /// Counts of the sender's datagrams.
    flow: Arc<Counts>,
    /// Messages that the room refused because it is full.
    refused: u64,
    /// All messages of the sender, including refused ones.
    count: u64,
}

impl Taking {
    fn publish(&mut self, message: Message) {
        self.count += 1;
        let message = match self.link {
            // Only a link, which needs its own right, can send in another client's name.
            0 => Message { origin: self.origin, hops: 0, via: 0, ..message },
            via => Message { hops: message.hops + 1, via, ..message },
        };
        if self.seat.room.publish(message) == Published::Full {
            self.refused += 1;
        }
    }

    /// Takes a part; returns whether it ends a message.
    fn part(&mut self, part: Part) -> Result<bool, Error> {
        let message = self.parts.take(part)?;
        if !self.charge.set(self.parts.held()) {
            let what = "the server has no memory for the message";
            return Err(Error::new(Kind::Lost, what).advise("send shorter messages, or fewer"));
        }
        match message {
            Some((message, _)) => {
                // Add the path's minimum one-way delay to the message's age.
                let born = message.born.saturating_sub_unsigned(micros(self.rtt.now() / 2));
                self.publish(Message { born, ..message });
                Ok(true)
            }
            None => Ok(false),
        }
    }

    async fn stream(
        mut self,
        writer: &mut FrameWriter,
        reader: &mut FrameReader,
    ) -> Result<(), Error> {
        let mut due = None;
        loop {
            let said = tokio::select! {
                biased;
                said = reader.read::<ChannelAsk>() => said?,
                () = when(due.map(sleep_until)) => {
                    due = None;
                    self.say(writer).await?;
                    continue;
                }
            };
            match said.map(|ask| ask.asked) {
                None => return Ok(()),
                Some(Some(ChannelAsked::Part(part))) => {
                    if self.part(part)? {
                        due = due.or_else(|| Some(Instant::now() + TAKEN));
                    }
                }
                Some(None) => {}
                Some(Some(_)) => return Err(senseless()),
            }
            // Many queued messages must not delay the acknowledgement.
            if due.is_some_and(|due| due <= Instant::now()) {
                due = None;
                self.say(writer).await?;
            }
        }
    }

    async fn say(&self, writer: &mut FrameWriter) -> Result<(), Error> {
        send(writer, ChannelTold::Taken(self.taken())).await
    }

    fn taken(&self) -> Taken {
        let dropped = self.flow.missed().saturating_add(self.refused);
        Taken { count: self.count, dropped, late: self.flow.late.load(Ordering::Relaxed) }
    }

    /// Charges the incomplete and queued messages of the sender's `flow`. Without memory, drops the
    /// incomplete ones, like a loss on the path.
    fn charge(&mut self, flow: &Flow<'_>) {
        if !self.charge.set(self.flow.held()) {
            self.flow.clear();
            flow.0.wake(flow.1);
        }
    }

    async fn datagrams(
        mut self,
        flow: &Flow<'_>,
        mut came: mpsc::Receiver<Came>,
        writer: &mut FrameWriter,
        reader: &mut FrameReader,
    ) -> Result<(), Error> {
        let mut tick = interval(COUNTED);
        self.flow.set_rtt(self.rtt.now());
        loop {
            self.charge(flow);
            tokio::select! {
                () = self.flow.changed.notified() => {}
                Some(came) = came.recv() => self.publish(came.message.clone()),
                _ = tick.tick() => {
                    self.flow.set_rtt(self.rtt.now());
                    self.say(writer).await?;
                    if let Some(hop) = self.flow.hop() {
                        send(writer, ChannelTold::Hop(hop)).await?;
                    }
                }
                said = reader.read::<ChannelAsk>() => match said? {
                    None => break,
                    Some(ChannelAsk { asked: None }) => {}
                    Some(_) => return Err(senseless()),
                },
            }
        }
        // The last datagrams may arrive after the end of the stream.
        let last = Instant::now() + LAST;
        while let Ok(Some(came)) = tokio::time::timeout_at(last, came.recv()).await {
            self.publish(came.message.clone());
        }
        Ok(())
    }
}

/// How often a sender of datagrams gets the number of lost messages, and a subscriber with a
/// deadline the number of late ones.
pub(super) const COUNTED: Duration = Duration::from_secs(1);
/// How long to wait for datagrams after a sender's end. Also how often the server checks whether a
/// silent subscriber can be reached again.
const LAST: Duration = Duration::from_millis(300);

async fn bring(
    seat: &Seat,
    mut cursor: Cursor,
    writer: &mut FrameWriter,
    reader: &mut FrameReader,
) -> Result<(), Error> {
    let mut changes = seat.room.changes();
    loop {
        changes.mark_unchanged();
        let mut size = 0;
        while size < TOGETHER
            && let Some(taken) = seat.room.read(|log| cursor.take(log))
        {
            size += queue(writer, &taken, cursor.position())?;
        }
        if size > 0 {
            tokio::select! {
                written = flush(writer) => written?,
                ended = goodbye(reader) => return ended,
            }
            continue;
        }
        tokio::select! {
            // Cannot fail: the room lives as long as the seat.
            _ = changes.changed() => {}
            ended = goodbye(reader) => return ended,
        }
    }
}

/// Encodes the next item; returns its approximate size.
pub(super) fn queue(writer: &mut FrameWriter, taken: &FromLog, next: u64) -> Result<usize, Error> {
    let mut told = |told| writer.queue(&ChannelTell { told: Some(told) });
    match taken {
        FromLog::Lost(count) => {
            told(ChannelTold::Lost(Lost { count: *count, next, late: 0 }))?;
            Ok(1)
        }
        FromLog::Message(message) => {
            for part in cut(message, next) {
                told(ChannelTold::Part(part))?;
            }
            Ok(message.cost())
        }
    }
}

async fn bring_datagrams(
    seat: &Seat,
    mut cursor: Cursor,
    (place, mut out, rtt): (&Place, Outbound, LeastRtt),
    writer: &mut FrameWriter,
    reader: &mut FrameReader,
) -> Result<(), Error> {
    let mut changes = seat.room.changes();
    let (mut late, mut tick) = (0, interval(COUNTED));
    // The interval is polled only while messages are late.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // Send nothing to a silent or unknown subscriber.
        let path = place.path(longhaul_net::clock::now());
        changes.mark_unchanged();
        let (mut lost, mut size) = (0, 0);
        while size < TOGETHER
            && let Some(path) = path
            && let Some(taken) = seat.room.read(|log| cursor.take(log))
        {
            match taken {
                FromLog::Lost(count) => lost += count,
                FromLog::Message(message) => {
                    size += message.cost();
                    match out.send(path, &message).await {
                        Sending::Left => {}
                        Sending::Failed => lost += 1,
                        Sending::Late => late += 1,
                    }
                }
            }
        }
        if lost > 0 {
            let next = cursor.position();
            let lost = Lost { count: lost, next, late: std::mem::take(&mut late) };
            send(writer, ChannelTold::Lost(lost)).await?;
        }
        tokio::select! {
            _ = tick.tick(), if late > 0 => {
                let (late, next) = (std::mem::take(&mut late), cursor.position());
                send(writer, ChannelTold::Lost(Lost { count: 0, next, late })).await?;
            }
            () = tokio::task::yield_now(), if size >= TOGETHER => {}
            _ = changes.changed(), if path.is_some() => {}
            () = place.changed() => {}
            () = tokio::time::sleep(LAST), if path.is_none() => {}
            () = when(out.next_wakeup().map(until)) => {
                if let Some(path) = path {
                    out.flush(path).await;
                }
            }
            said = reader.read::<ChannelAsk>() => match said? {
                None => return Ok(()),
                Some(ChannelAsk { asked: Some(ChannelAsked::Hop(seen)) }) => {
                    let losses = terms::losses(seen.loss_ppm, seen.burst_milli);
                    out.follow(losses, terms::span(seen.jitter_micros), rtt.now());
                }
                Some(ChannelAsk { asked: None }) => {}
                Some(_) => return Err(senseless()),
            },
        }
    }
}

async fn goodbye(reader: &mut FrameReader) -> Result<(), Error> {
    loop {
        match reader.read::<ChannelAsk>().await? {
            None => return Ok(()),
            Some(ChannelAsk { asked: None }) => {}
            Some(_) => return Err(senseless()),
        }
    }
}

/// Returns the deadline in a request, if any.
fn deadline(micros: u64) -> Result<Option<Span>, Error> {
    let deadline = (micros > 0).then(|| Span::from_micros(micros));
    deadline.map(terms::check_deadline).transpose()
}

pub(super) fn senseless() -> Error {
    wrong("this message is not allowed on this channel")
}

fn unread() -> Error {
    Error::new(Kind::Lost, "the client does not read its messages")
}

pub(super) async fn send(writer: &mut FrameWriter, told: ChannelTold) -> Result<(), Error> {
    let told = ChannelTell { told: Some(told) };
    timeout(UNREAD, writer.write(&told)).await.map_err(|_| unread())?
}

pub(super) async fn flush(writer: &mut FrameWriter) -> Result<(), Error> {
    timeout(UNREAD, writer.flush()).await.map_err(|_| unread())?
}

/// Returns the number that identifies a sender at all servers. No client can choose another
/// client's number.
fn origin(peer: PeerId, run: u64) -> u64 {
    let input = [&peer.0[..], &run.to_be_bytes()].concat();
    let digest = digest::digest(&digest::SHA256, &input);
    let first = digest.as_ref().first_chunk::<8>();
    u64::from_be_bytes(*first.expect("a digest is longer"))
}

#[cfg(test)]
mod tests {
    use longhaul_net::port::Port;
    use longhaul_net::sealing::keys::{FlowKeys, Suite};
    use longhaul_net::sealing::seal::SEALED_OVERHEAD;
    use longhaul_net::socket::Socket;
    use longhaul_proto::wire::header as wire;

    use super::super::rooms::NoMemory;
    use super::*;

    fn taking(flow: Arc<Counts>) -> Taking {
        let rooms = Rooms::new(RoomLimits::default(), Rc::new(|_| Box::new(NoMemory)), || 5);
        let peer = PeerId([1; 32]);
        Taking {
            origin: 1,
            link: 0,
            charge: rooms.charge(peer),
            parts: Parts::default(),
            seat: rooms.enter(&Key::new("a").unwrap(), peer, Role::Sender).unwrap(),
            rtt: LeastRtt::new(RttWatch::once(None)),
            flow,
            refused: 0,
            count: 0,
        }
    }

    #[tokio::test]
    async fn incomplete_messages_in_datagrams_are_dropped_if_there_is_no_memory() {
        const MIB: usize = 1 << 20;
        let port = Port::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let id = FlowId(1);
        let keys = || FlowKeys::new(&[7; 32], Suite::Aes128Gcm, 1, id);
        let (inbound, _came, counts) = Inbound::new(keys().receiving_end().data, None, None, None);
        port.register(id, Box::new(inbound.without_expiry())).unwrap();
        let (handle, mut sealer) = (port.handle(), keys().sending_end().data);
        let socket = Socket::bind(([127, 0, 0, 1], 0).into()).unwrap();
        // The socket may drop datagrams, so this loop sends parts of messages until 1 MiB arrives.
        let parts = async {
            for number in 0_u64.. {
                for part in 0..100_u16 {
                    let head = [part.to_be_bytes(), 200_u16.to_be_bytes()].concat();
                    let payload = [&number.to_be_bytes()[..], &head, &[7; 8_000]].concat();
                    let mut out = vec![0; payload.len() + SEALED_OVERHEAD];
                    sealer.seal(wire::Kind::Data, 0, &payload, &mut out).unwrap();
                    socket.send(port.socket().local_addr().into(), &out).unwrap();
                    tokio::task::yield_now().await;
                }
            }
        };
        tokio::select! {
            biased;
            () = counts.changed.notified() => {}
            () = parts => {}
        }
        assert!(counts.held() >= MIB);
        let (mut taking, flow) = (taking(counts.clone()), Flow(&handle, id));
        // More of the datagrams may still arrive.
        let dropped = async {
            while counts.held() >= MIB {
                taking.charge(&flow);
                counts.changed.notified().await;
            }
        };
        timeout(UNREAD, dropped).await.expect("the flow drops its incomplete messages");
    }

    #[test]
    fn refused_and_lost_messages_of_one_sender_add_up() {
        let flow = Arc::<Counts>::default();
        let mut taking = taking(flow.clone());
        let bytes: Arc<[u8]> = Arc::from([0; 9]);
        let message = |number| Message {
            origin: 1,
            number,
            at: 0,
            born: 0,
            hops: 0,
            via: 0,
            key: None,
            bytes: bytes.clone(),
        };
        taking.publish(message(1));
        flow.lost.store(10, Ordering::Relaxed);
        flow.dropped.store(100, Ordering::Relaxed);
        flow.late.store(7, Ordering::Relaxed);
        taking.publish(message(2));
        assert_eq!(taking.taken(), Taken { count: 2, dropped: 112, late: 7 });
        flow.lost.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(taking.taken().dropped, u64::MAX);
    }
}
