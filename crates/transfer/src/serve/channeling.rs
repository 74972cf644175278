//! The service of channels: rooms through which clients send messages to each other.

use std::rc::Rc;

use longhaul_proto::share::Right;
use longhaul_stream::channel::messages::{self, ChannelAsk};
use longhaul_stream::channel::server::Channels;
use longhaul_stream::channel::{Charge, RoomLimits};

use super::Server;
use super::below::Below;
use super::events::ServedClient;
use super::running::Running;
use crate::session::{self, Session};
use crate::write::budget::MessageCharge;

impl Charge for MessageCharge {
    fn set(&mut self, bytes: usize) -> bool {
        MessageCharge::set(self, bytes)
    }
}

/// Messages in the rooms are charged to the server's memory.
pub(super) fn rooms(server: &Rc<Server>, limits: RoomLimits) -> Rc<Channels> {
    let memory = server.memory.clone();
    let charges = Rc::new(move |id| Box::new(memory.messages_for(id)) as Box<dyn Charge>);
    Channels::new(server.port.clone(), limits, charges)
}

impl Below for Rc<Channels> {
    const NAME: &str = messages::SERVICE;
    const VERSION: u32 = messages::VERSION;
    type Ask = ChannelAsk;

    fn client(session: &Session, ask: &ChannelAsk) -> ServedClient {
        ServedClient::of_channel(session, ask)
    }

    async fn answer(
        &self,
        server: &Server,
        session: Session,
        ask: ChannelAsk,
        right: Right,
        running: &Running,
    ) -> Result<(), session::Error> {
        let (linking, link) = match ask.link() {
            0 => None,
            _ => server.begin_below(session.peer, messages::LINK).ok(),
        }
        .unzip();
        // A link (a connection to a room of another server) needs the right to channels and the
        // right to links. The link ends when its client loses either right.
        let stopped = async {
            let Some(linking) = &linking else { return running.ending().await };
            tokio::select! {
                why = running.ending() => why,
                why = linking.ending() => why,
            }
        };
        self.serve(session, ask, (right, link), stopped).await
    }
}
