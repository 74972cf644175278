//! A sender that sends its messages for a room to the room's multicast group, also while it
//! reconnects to its server.

use std::time::Duration;

use longhaul_net::multicast::Group;
use longhaul_proto::channel::{Message, Mode};
use longhaul_session::retry::{Retries, silence};
use longhaul_session::{Error, Kind, when};
use tokio::net::UdpSocket;
use tokio::sync::{Notify, watch};

use super::author::Author;
use super::epoch::{Described, FlowKey};
use super::listen::{interface, join};
use super::voice::Voice;
use crate::channel::messages::{
    ChannelAsk, ChannelAsked, ChannelTell, ChannelTold, Publish, SERVICE, version,
};
use crate::channel::outbound::until;
use crate::channel::publish::{Control, Feed, Notes, Program, Status};
use crate::link::Link;
use crate::send::ethernet;

#[derive(Clone)]
struct Place {
    group: Group,
    key: FlowKey,
    author: Author,
    origin: u64,
    /// The number of the session. The keys of earlier sessions are no longer valid.
    session: u64,
}

impl Control {
    /// Sends to the group, and keeps a session with the server, which sends the group's keys.
    pub(in crate::channel) async fn speak(
        self,
        first: Link,
        connect: impl AsyncFn() -> Result<Link, Error>,
        retry_for: Duration,
    ) -> Result<Status, Error> {
        let (place, finished) = (watch::channel(None).0, Notify::new());
        let session = async {
            let (mut next, mut number, mut retries) = (first, 0, Retries::new(retry_for));
            loop {
                match self.attend(next, number, &place, &finished).await {
                    Err(error) if error.kind == Kind::Lost => {
                        self.status.send_modify(|status| status.connected = false);
                    }
                    ended => return ended,
                }
                tokio::select! {
                    link = retries.again(&connect) => (next, number) = (link?, number + 1),
                    () = finished.notified() => return Ok(()),
                }
            }
        };
        tokio::select! {
            ended = session => ended?,
            failed = self.send(place.subscribe(), &finished) => return Err(failed),
        }
        Ok(self.count())
    }

    /// Keeps a session until all messages are sent.
    async fn attend(
        &self,
        link: Link,
        number: u64,
        place: &watch::Sender<Option<Place>>,
        finished: &Notify,
    ) -> Result<(), Error> {
        let Link { mut session, contact, .. } = link;
        session.ask_for(SERVICE, version(Mode::Multicast));
        let (name, run) = (self.wish.name.as_str().to_owned(), self.run);
        let asked = Publish { name, run, multicast: true, ..Publish::default() };
        let author = Author::of(&session.exporter());
        let silent = silence(session.rtt());
        tokio::pin!(silent);
        let notes = Notes::new(&self.shared, &self.status, session.rtt());
        let (mut writer, mut reader) = session.split();
        writer.write(&ChannelAsk { asked: Some(ChannelAsked::Publish(asked)) }).await?;
        loop {
            let told = tokio::select! {
                error = &mut silent => return Err(error),
                () = finished.notified() => {
                    // If the close fails, this notification ends the retries or the next session.
                    finished.notify_one();
                    return writer.close(reader, None).await;
                }
                told = reader.read::<ChannelTell>() => told?,
            };
            let ended = || Error::new(Kind::Lost, "the server ended the session");
            let told = told.ok_or_else(ended)?.told;
            if let Some(ChannelTold::Group(group)) = &told {
                let described = Described::read(group)?;
                let interface = interface(self.wish.interface, contact)?;
                let key = described.of_sender();
                let (group, origin) = (described.through(interface), group.origin);
                let author = author.clone();
                place.send_replace(Some(Place { group, key, author, origin, session: number }));
            }
            notes.take(told.as_ref(), 0);
        }
    }

    /// Sends the program's messages, beginning when the server has described the group. Returns
    /// only with an error.
    async fn send(&self, mut places: watch::Receiver<Option<Place>>, finished: &Notify) -> Error {
        let mut feed = Program { shared: self.shared.clone(), number: 0 };
        let mut speaking: Option<(Place, UdpSocket, Voice)> = None;
        loop {
            if let Some((place, socket, voice)) = &mut speaking {
                while !places.has_changed().unwrap_or(false)
                    && let Some((message, _permit)) = feed.next()
                {
                    let message = Message { origin: place.origin, ..message };
                    let sent = voice.send(socket, &message).await;
                    self.status.send_modify(|status| status.count(sent));
                }
                feed.sent(voice.take_sent());
                if feed.is_finished() && voice.next_wakeup().is_none() {
                    finished.notify_one();
                    return std::future::pending().await;
                }
            }
            let due = speaking.as_ref().and_then(|(_, _, voice)| voice.next_wakeup());
            tokio::select! {
                Ok(()) = places.changed() => {
                    let Some(place) = places.borrow_and_update().clone() else { continue };
                    if let Err(error) = self.move_to(place, &mut speaking) {
                        return error;
                    }
                }
                () = feed.changed(), if speaking.is_some() => {}
                () = when(due.map(until)) => {
                    if let Some((_, socket, voice)) = &mut speaking {
                        voice.flush(socket).await;
                    }
                }
            }
        }
    }

    fn move_to(
        &self,
        place: Place,
        speaking: &mut Option<(Place, UdpSocket, Voice)>,
    ) -> Result<(), Error> {
        match speaking {
            // Same key, so keep the sealer: a second one would use the same nonces.
            Some((old, ..)) if old.key == place.key => {}
            Some((old, _, voice)) if old.group == place.group => {
                let at_once = old.session != place.session;
                voice.renew(place.key.sealer(), Some(place.author.clone()), at_once);
                *old = place;
            }
            _ => {
                let socket = join(&place.group)?;
                let (to, author) = (place.group.address.address(), Some(place.author.clone()));
                let size = self.wish.datagram.unwrap_or_else(|| ethernet(None));
                let voice = Voice::new(to, size, self.wish.code, place.key.sealer(), author);
                *speaking = Some((place, socket, voice));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_net::clock;
    use longhaul_net::multicast::GroupAddress;
    use longhaul_net::sealing::keys::Suite;
    use longhaul_proto::channel::Code;
    use longhaul_proto::share::Key;

    use super::super::ears::Ears;
    use super::super::epoch::Epoch;
    use super::*;
    use crate::channel::publish::{self, Wish};

    #[tokio::test]
    async fn the_key_of_a_new_session_is_used_at_once_even_if_the_session_had_an_earlier_key() {
        let (name, mode) = (Key::new("a").unwrap(), Mode::Multicast);
        let wish = Wish { name, mode, code: Code::None, datagram: None, interface: None };
        let (_source, control, _status) = publish::new(wish, 1);
        let address = "239.1.2.3:5000".parse().unwrap();
        let group =
            Group { address: GroupAddress::new(address).unwrap(), interface: None, hops: 1 };
        // Epoch 1 is the key of the earlier session. The new session's first key (epoch 2) was
        // overwritten by its second (epoch 3) before the sender read it.
        let [before, second] = [1, 3].map(|number| Epoch::new(number, Suite::Aes128Gcm));
        let place = |epoch: &Epoch, session| {
            let (key, author) = (epoch.of(1), Author::test(1));
            Place { group, key, author, origin: 9, session }
        };
        let voice = Voice::new(address, 1_452, Code::None, before.of(1).sealer(), None);
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut speaking = Some((place(&before, 0), socket, voice));
        control.move_to(place(&second, 1), &mut speaking).unwrap();
        let (_, _, voice) = speaking.as_mut().unwrap();
        let bytes = Arc::from([1; 20]);
        let message =
            Message { origin: 9, number: 1, at: 3, born: 0, hops: 0, via: 0, key: None, bytes };
        let (mut ears, mut received) = (Ears::new(second, None), Vec::new());
        for datagram in voice.datagrams(clock::now(), &message) {
            ears.take(clock::now(), &datagram, &mut received);
        }
        assert_eq!(received.len(), 1);
    }
}
