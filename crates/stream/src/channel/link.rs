//! Links between servers: messages in a room here are also sent to the room of the same name at
//! another server, and vice versa. A message keeps its origin and number, so a room drops the copy
//! that comes around a ring of servers.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use longhaul_proto::channel::{Cursor, Message, Mode, Taken};
use longhaul_proto::share::{Key, Prefix};
use longhaul_session::retry::{Retries, silence};
use longhaul_session::{Error, Kind, PeerId, Session, random_u64};
use tokio::sync::watch;

use super::messages::{
    ChannelAsk, ChannelAsked, ChannelTell, ChannelTold, Publish, SERVICE, Subscribe, version,
};
use super::parts::Parts;
use super::publish::{Feed, Untaken, carry};
use super::rooms::{Role, Room, Seat};
use super::server::Channels;
use crate::link::LeastRtt;
use crate::terms::micros;

/// A link retries as long as its server runs.
const RETRY: Duration = Duration::from_secs(u32::MAX as u64);

/// Links the room `name` to the same room at another server. `connect` opens each session. `me` is
/// this server's id.
///
/// # Errors
/// A limit is reached here, `connect` fails for good, or the other server refuses the link. Returns
/// only with an error.
pub async fn run(
    channels: &Channels,
    me: PeerId,
    name: &Key,
    connect: impl AsyncFn() -> Result<Session, Error>,
) -> Result<(), Error> {
    let link = random_u64().max(1);
    let from = channels.rooms().enter(name, me, Role::Subscriber)?;
    let to = channels.rooms().enter(name, me, Role::Sender)?;
    let (from, to) = (outgoing(&from, name, link, &connect), incoming(&to, name, link, &connect));
    tokio::try_join!(from, to).map(drop)
}

struct FromRoom {
    room: Rc<Room>,
    cursor: Cursor,
    changes: watch::Receiver<()>,
}

impl Feed for FromRoom {
    fn next(&mut self) -> Option<Untaken> {
        self.changes.mark_unchanged();
        loop {
            match self.room.read(|log| self.cursor.take(log))? {
                Taken::Message(message) => return Some(((*message).clone(), None)),
                // The link was too slow: the other server does not get these messages.
                Taken::Lost(_) => {}
            }
        }
    }

    async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            std::future::pending().await
        }
    }

    fn is_finished(&self) -> bool {
        false
    }
}

async fn outgoing(
    seat: &Seat,
    name: &Key,
    link: u64,
    connect: &impl AsyncFn() -> Result<Session, Error>,
) -> Result<(), Error> {
    let room = seat.room.clone();
    let cursor = room.read(|log| Cursor::new(log, Mode::Reliable, Prefix::ALL, link));
    let changes = room.changes();
    let mut feed = FromRoom { room, cursor, changes };
    let mut untaken = VecDeque::new();
    let mut retries = Retries::new(RETRY);
    loop {
        let mut session = retries.again(connect).await?;
        session.ask_for(SERVICE, version(Mode::Reliable));
        session.expect_bulk();
        let rtt = session.rtt();
        let (mut writer, reader) = session.split();
        let name = name.as_str().to_owned();
        let publish = Publish { name, run: link, link, ..Publish::default() };
        let asked = ChannelAsk { asked: Some(ChannelAsked::Publish(publish)) };
        let ended = match writer.write(&asked).await {
            Ok(()) => carry(&mut feed, &mut untaken, writer, reader, rtt, |_, _| {}).await,
            Err(error) => Err(error),
        };
        lost(ended)?;
    }
}

async fn incoming(
    seat: &Seat,
    name: &Key,
    link: u64,
    connect: &impl AsyncFn() -> Result<Session, Error>,
) -> Result<(), Error> {
    // The run (a random number) of the remote room, and the position of the next message.
    let mut place = (0, 0);
    let mut retries = Retries::new(RETRY);
    loop {
        let session = retries.again(connect).await?;
        lost(bring(session, seat, name, link, &mut place).await)?;
    }
}

fn lost(ended: Result<(), Error>) -> Result<(), Error> {
    ended.or_else(|error| if error.kind == Kind::Lost { Ok(()) } else { Err(error) })
}

async fn bring(
    mut session: Session,
    seat: &Seat,
    name: &Key,
    link: u64,
    place: &mut (u64, u64),
) -> Result<(), Error> {
    session.ask_for(SERVICE, version(Mode::Reliable));
    session.expect_much();
    let rtt = LeastRtt::new(session.rtt());
    let silent = silence(session.rtt());
    tokio::pin!(silent);
    let (name, (run, next)) = (name.as_str().to_owned(), *place);
    let subscribe = Subscribe { name, run, next, link, ..Subscribe::default() };
    session.write(&ChannelAsk { asked: Some(ChannelAsked::Subscribe(subscribe)) }).await?;
    let mut parts = Parts::default();
    loop {
        let told = tokio::select! {
            error = &mut silent => return Err(error),
            told = session.read::<ChannelTell>() => told?,
        };
        let ended = || Error::new(Kind::Lost, "the server ended the link");
        match told.ok_or_else(ended)?.told {
            Some(ChannelTold::Room(room)) if place.0 != room.run => *place = (room.run, room.next),
            Some(ChannelTold::Lost(lost)) => place.1 = lost.next,
            Some(ChannelTold::Part(part)) => {
                if let Some((message, next)) = parts.take(part)? {
                    place.1 = next;
                    let hops = message.hops + 1;
                    let born = message.born.saturating_sub_unsigned(micros(rtt.now() / 2));
                    let message = Message { born, hops, via: link, ..message };
                    // If this server has no memory for the message, the message is lost.
                    let _ = seat.room.publish(message);
                }
            }
            _ => {}
        }
    }
}
