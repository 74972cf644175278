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

/// A room of another server that a room here is linked to.
#[derive(Clone)]
pub(crate) struct LinkTo {
    pub(crate) options: HostOptions,
    /// The room, here and at the other server.
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
    let Ok(me) = link.options.key.identity().map(|identity| identity.id()) else { return };
    loop {
        let ended = link::run(&channels, me, &link.room, async || link.connect().await).await;
        if let Err(error) = ended {
            let to = link.options.location.to_string();
            (server.tell)(ServerEvent::LinkFailed { to, error: Error::from(error).into() });
        }
        sleep(PAUSE).await;
    }
}
