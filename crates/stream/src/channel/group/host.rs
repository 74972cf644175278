//! The server's side of the sessions with members of a room's multicast group.

use std::rc::Rc;

use longhaul_net::multicast::Group;
use longhaul_proto::channel::{Cursor, Mode};
use longhaul_proto::share::{Key, Prefix};
use longhaul_session::{Error, FrameReader, FrameWriter, Kind, PeerId};
use tokio::time::interval;

use super::author::Author;
use super::bridge::{Bridge, Running, Sender};
use crate::channel::messages::{ChannelAsk, ChannelAsked, ChannelTold, Taken};
use crate::channel::rooms::Seat;
use crate::channel::server::{About, COUNTED, Channels, flush, queue, send, senseless};

impl Channels {
    /// Joins the multicast group of the room `name`; `me` is this server's id. The returned future
    /// passes messages until the server ends.
    ///
    /// # Errors
    /// The group cannot be joined, the room already has a group, or a limit is reached.
    pub fn bridge(
        &self,
        me: PeerId,
        name: &Key,
        group: Group,
    ) -> Result<impl Future<Output = ()> + use<>, Error> {
        if self.bridges.borrow().contains_key(name) {
            let what = format!("the room '{name}' has two multicast groups");
            return Err(Error::new(Kind::Usage, what).advise("leave one of them out"));
        }
        let bridge = Rc::new(Bridge::new(group));
        let running = Running::new(bridge.clone(), self.rooms(), me, name)?;
        self.bridges.borrow_mut().insert(name.clone(), bridge);
        Ok(running.run())
    }

    pub(in crate::channel) fn group(&self, name: &Key) -> Result<Rc<Bridge>, Error> {
        self.bridges.borrow().get(name).cloned().ok_or_else(|| {
            let what = format!("the room '{name}' has no multicast group at this server");
            Error::new(Kind::Unreachable, what)
                .advise("use another mode, or start `longhaul reflect` with --multicast")
        })
    }
}

impl Bridge {
    /// Answers a client that sends to the group; `origin` identifies the client in the room.
    pub(in crate::channel) async fn sender(
        self: &Rc<Self>,
        about: &About,
        origin: u64,
        writer: &mut FrameWriter,
        reader: &mut FrameReader,
    ) -> Result<(), Error> {
        let mut epochs = self.epochs();
        let member = self.admit(Some(Sender::new(Author::of(&about.exporter), origin)))?;
        let mut tick = interval(COUNTED);
        send(writer, ChannelTold::Group(member.group())).await?;
        loop {
            tokio::select! {
                // Cannot fail: the bridge lives as long as its member.
                _ = epochs.changed() => send(writer, ChannelTold::Group(member.group())).await?,
                _ = tick.tick() => if let Some(sender) = &member.sender {
                    let (count, dropped) = (sender.taken.get(), sender.dropped());
                    send(writer, ChannelTold::Taken(Taken { count, dropped, late: 0 })).await?;
                },
                said = reader.read::<ChannelAsk>() => match said? {
                    None => {
                        member.leave();
                        return Ok(());
                    }
                    Some(ChannelAsk { asked: None }) => {}
                    Some(_) => return Err(senseless()),
                },
            }
        }
    }

    /// Answers a client that receives from the group.
    pub(in crate::channel) async fn subscriber(
        self: &Rc<Self>,
        seat: &Seat,
        keys: Prefix,
        writer: &mut FrameWriter,
        reader: &mut FrameReader,
    ) -> Result<(), Error> {
        let mut epochs = self.epochs();
        let member = self.admit(None)?;
        send(writer, ChannelTold::Group(member.group())).await?;
        // Send the last message of each key only once, because there may be many keys.
        let mut last = Some(keys);
        loop {
            tokio::select! {
                _ = epochs.changed() => send(writer, ChannelTold::Group(member.group())).await?,
                said = reader.read::<ChannelAsk>() => match (said?, last.take()) {
                    (None, _) => {
                        member.leave();
                        return Ok(());
                    }
                    (Some(ChannelAsk { asked: Some(ChannelAsked::LastOfKeys(_)) }),
                        Some(keys)) => last_of(seat, keys, writer).await?,
                    (Some(ChannelAsk { asked: None }), unasked) => last = unasked,
                    _ => return Err(senseless()),
                },
            }
        }
    }
}

async fn last_of(seat: &Seat, keys: Prefix, writer: &mut FrameWriter) -> Result<(), Error> {
    let mut cursor = seat.room.read(|log| Cursor::new(log, Mode::Reliable, keys, 0));
    let end = cursor.position();
    while cursor.position() == end
        && let Some(taken) = seat.room.read(|log| cursor.take(log))
    {
        queue(writer, &taken, cursor.position())?;
        flush(writer).await?;
    }
    Ok(())
}
