//! Links of a server's rooms to rooms of other servers, and to multicast groups.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use longhaul_net::multicast::Group;
use longhaul_proto::share::Key;
use longhaul_stream::channel::link;
use longhaul_stream::channel::server::Channels;
use tokio::time::sleep;

use super::Server;
use super::events::ServerEvent;
use crate::error::Error;
use crate::options::HostOptions;
use crate::progress::Observer;
use crate::reach::{self, SizeSearch};
use crate::session::{self, PeerId, Session};

/// How long to wait after a link has ended before it is retried.
const PAUSE: Duration = Duration::from_secs(10);

/// A room of another server to which a room of this server is linked.
#[derive(Clone)]
pub(crate) struct LinkTo {
    pub(crate) options: HostOptions,
    /// The name of the room, here and at the other server.
    pub(crate) room: Key,
    /// Decides whether to trust a new server.
    pub(crate) observer: Arc<dyn Observer>,
}

impl std::fmt::Debug for LinkTo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkTo").field("room", &self.room).finish_non_exhaustive()
    }
}

impl LinkTo {
    /// Runs the link until it fails.
    async fn run(&self, channels: &Channels) -> Result<(), Error> {
        let me = self.options.key.identity()?.id();
        Ok(link::run(channels, me, &self.room, async || self.connect().await).await?)
    }

    async fn connect(&self) -> Result<Session, session::Error> {
        let reached = reach::open_rooms(&self.options, &*self.observer, SizeSearch::No).await;
        let session = reached.map(|reached| reached.session);
        session.map_err(|error| session::Error::from(&error))
    }
}

/// Joins rooms to multicast groups as long as the server runs. `me` is the id of this server.
pub(super) fn bridge(
    channels: &Channels,
    me: PeerId,
    groups: &[(Key, Group)],
) -> Result<(), Error> {
    for (room, group) in groups {
        tokio::task::spawn_local(channels.bridge(me, room, *group)?);
    }
    Ok(())
}

pub(super) fn begin(server: &Rc<Server>, channels: &Rc<Channels>, links: Vec<LinkTo>) {
    for link in links {
        tokio::task::spawn_local(keep(server.clone(), channels.clone(), link));
    }
}

async fn keep(server: Rc<Server>, channels: Rc<Channels>, link: LinkTo) {
    loop {
        if let Err(error) = link.run(&channels).await {
            let to = link.options.location.to_string();
            (server.tell)(ServerEvent::LinkFailed { to, error: error.into() });
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use longhaul_net::port::Port;
    use longhaul_stream::channel::RoomLimits;
    use tokio::sync::mpsc;

    use super::super::channeling::rooms;
    use super::super::door::Door;
    use super::*;
    use crate::options::{OwnKey, ReachOptions, Trust};
    use crate::progress::Nobody;
    use crate::write::budget::Budget;

    #[test]
    fn a_link_whose_key_cannot_be_read_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "no folder").unwrap();
        let config_dir = folder.path().to_owned();
        let options = HostOptions {
            location: "lh://127.0.0.1/room".parse().unwrap(),
            trust: Trust { config_dir, pins: Vec::new(), accept_new: false },
            key: OwnKey::In(file),
            reach: ReachOptions::default(),
            path_memory: None,
        };
        let link = LinkTo { options, room: Key::new("room").unwrap(), observer: Arc::new(Nobody) };
        let port = Port::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let (tell, mut events) = mpsc::unbounded_channel();
        let tell = Arc::new(move |event| tell.send(event).unwrap());
        let memory = Budget::new(longhaul_proto::units::Bytes::mebi(64)).unwrap();
        let server = Rc::new(Server::new(Door::of_user(), port.handle(), memory, tell));
        let channels = rooms(&server, RoomLimits::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let event = runtime.unwrap().block_on(async {
            tokio::select! {
                () = keep(server, channels, link) => panic!("the loop of retries ended"),
                event = events.recv() => event,
            }
        });
        let Some(ServerEvent::LinkFailed { to, error }) = event else { panic!("{event:?}") };
        assert!(to.contains("127.0.0.1") && error.to_string().contains("file"), "{to}: {error}");
    }
}
