//! A subscriber that receives the messages of a room from its multicast group. It stays in the
//! group while it reconnects to its server, so it still receives the other members' messages.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_net::clock;
use longhaul_net::multicast::{Group, interface_towards};
use longhaul_proto::channel::{Message, Mode, Seen};
use longhaul_session::retry::{Retries, silence};
use longhaul_session::{Error, Kind};
use tokio::net::UdpSocket;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::ears::{Ears, Received};
use super::epoch::{Described, Epoch};
use crate::channel::inbound::Counts;
use crate::channel::messages::{
    ChannelAsk, ChannelAsked, ChannelTell, ChannelTold, LastOfKeys, SERVICE, version,
};
use crate::channel::parts::Parts;
use crate::channel::stamp;
use crate::channel::subscribe::{Control, Item};
use crate::link::{LeastRtt, Link};

/// Pause after an error of the socket. The same error may come again at once.
pub(super) const PAUSE: Duration = Duration::from_millis(10);

type Place = (Group, Epoch);

struct Shared<'a> {
    control: &'a Control,
    seen: RefCell<Seen>,
    /// The room's random number.
    run: Cell<u64>,
    place: watch::Sender<Option<Place>>,
    /// Notifies that this end receives from the group.
    joined: Notify,
}

fn failed(error: longhaul_net::Error) -> Error {
    Error::new(Kind::Unreachable, error.what)
        .advise("use --interface to name the interface towards the group")
}

pub(super) fn join(group: &Group) -> Result<UdpSocket, Error> {
    let joined = group.join().map_err(failed)?;
    UdpSocket::from_std(joined).map_err(|error| Error::new(Kind::Unreachable, error.to_string()))
}

/// Returns the interface to the group: `own`, or the one that leads to the server.
pub(super) fn interface(own: Option<u32>, server: SocketAddr) -> Result<Option<u32>, Error> {
    if own.is_some() { Ok(own) } else { interface_towards(server).map_err(failed) }
}

impl Control {
    /// Receives from the group, and keeps a session with the server, which sends the group's keys.
    pub(in crate::channel) async fn listen(
        mut self,
        first: Link,
        connect: impl AsyncFn() -> Result<Link, Error>,
        retry_for: Duration,
        mut ends: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Error> {
        let seen = RefCell::new(std::mem::replace(&mut self.seen, Seen::new(1)));
        let (run, place, joined) = (Cell::new(0), watch::channel(None).0, Notify::new());
        let shared = Shared { control: &self, seen, run, place, joined };
        let session = async {
            let (mut next, mut retries) = (first, Retries::new(retry_for));
            loop {
                match shared.attend(next, ends.as_mut()).await {
                    Err(error) if error.kind == Kind::Lost => {
                        self.board.state().status.connected = false;
                    }
                    ended => return ended,
                }
                tokio::select! {
                    link = retries.again(&connect) => next = link?,
                    () = ends.as_mut() => return Ok(()),
                }
            }
        };
        tokio::select! {
            ended = session => ended,
            failed = shared.hear() => Err(failed),
        }
    }
}

impl Shared<'_> {
    /// Keeps a session until `ends` completes or the session fails.
    async fn attend(
        &self,
        link: Link,
        mut ends: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Error> {
        let Link { mut session, contact, .. } = link;
        session.ask_for(SERVICE, version(Mode::Multicast));
        session.expect_much();
        let silent = silence(session.rtt());
        tokio::pin!(silent);
        let rtt = LeastRtt::new(session.rtt());
        let (mut writer, mut reader) = session.split();
        let asked = ChannelAsked::Subscribe(self.control.asked());
        writer.write(&ChannelAsk { asked: Some(asked) }).await?;
        let (mut parts, mut wants_last) = (Parts::default(), true);
        loop {
            let told = tokio::select! {
                error = &mut silent => return Err(error),
                () = self.joined.notified(), if wants_last => {
                    wants_last = false;
                    let epoch = self.place.borrow().as_ref().map_or(0, |(_, epoch)| epoch.number);
                    let asked = Some(ChannelAsked::LastOfKeys(LastOfKeys { epoch }));
                    writer.write(&ChannelAsk { asked }).await?;
                    continue;
                }
                told = reader.read::<ChannelTell>() => told?,
                () = ends.as_mut() => break,
            };
            let ended = || Error::new(Kind::Lost, "the server ended the session");
            match told.ok_or_else(ended)?.told {
                Some(ChannelTold::Room(room)) => {
                    self.control.board.on_connected(rtt.now());
                    if self.run.replace(room.run) != room.run {
                        self.control.pass(Item::Joined).await;
                    }
                }
                Some(ChannelTold::Group(group)) => {
                    let described = Described::read(&group)?;
                    let interface = interface(self.control.wish.interface, contact)?;
                    let group = described.through(interface);
                    self.place.send_replace(Some((group, described.epoch)));
                }
                Some(ChannelTold::Part(part)) => {
                    if let Some((message, _)) = parts.take(part)? {
                        self.message(message, false, false).await;
                    }
                }
                _ => {}
            }
        }
        // A failed goodbye is no error.
        let _ = writer.leave(reader).await;
        Ok(())
    }

    /// Joins the group when the server has described the group, and receives its messages. Returns
    /// only if joining fails.
    async fn hear(&self) -> Error {
        let mut places = self.place.subscribe();
        let counts = Arc::<Counts>::default();
        self.control.board.state().counts = Some(counts.clone());
        let mut hearing: Option<(Group, UdpSocket, Ears)> = None;
        let (mut bytes, mut received) = (vec![0; u16::MAX.into()], Vec::new());
        loop {
            tokio::select! {
                Ok(()) = places.changed() => {
                    let Some((group, epoch)) = places.borrow_and_update().clone() else { continue };
                    match &mut hearing {
                        Some((same, _, ears)) if *same == group => {
                            ears.renew(clock::now(), epoch, &mut received);
                        }
                        _ => match join(&group) {
                            Ok(socket) => hearing = Some((group, socket, Ears::new(epoch, None))),
                            Err(error) => return error,
                        },
                    }
                    self.joined.notify_one();
                }
                len = receive(&hearing, &mut bytes) => {
                    let Some((_, _, ears)) = &mut hearing else { continue };
                    let now = clock::now();
                    ears.take(now, &bytes[..len], &mut received);
                    counts.lost.store(ears.lost(), Ordering::Relaxed);
                    if !received.is_empty() {
                        self.control.board.state().meter.on_bytes(now, len);
                    }
                }
            }
            let keys = &self.control.wish.keys;
            for Received { message, restored, overtaken, .. } in received.drain(..) {
                if message.is_below(keys) {
                    let message = Message { born: stamp() as i64, ..message };
                    self.message(message, restored, overtaken).await;
                }
            }
        }
    }

    async fn message(&self, message: Message, restored: bool, overtaken: bool) {
        let is_new = self.seen.borrow_mut().is_new(message.origin, message.number);
        if is_new {
            self.control.message(message, restored, overtaken).await;
        }
    }
}

/// Returns the next datagram's length; without a group, never completes.
pub(super) async fn receive(hearing: &Option<(Group, UdpSocket, Ears)>, bytes: &mut [u8]) -> usize {
    loop {
        let Some((_, socket, _)) = hearing else { return std::future::pending().await };
        // The next datagram may arrive without an error.
        if let Ok(len) = socket.recv(bytes).await {
            return len;
        }
        sleep(PAUSE).await;
    }
}
