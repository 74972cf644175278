//! The service of channels.

use std::pin::Pin;
use std::rc::Rc;

use longhaul_stream::channel::messages::{self, ChannelAsk};
use longhaul_stream::channel::server::Channels;
use longhaul_stream::channel::{Charge, RoomLimits};

use super::Server;
use super::dispatch::first;
use super::events::{Moved, ServedClient, ServerEvent};
use crate::error::Error;
use crate::session::{self, Service, Session};
use crate::write::budget::MessageCharge;

/// The service of channels.
pub(super) struct Channeling {
    server: Rc<Server>,
    channels: Rc<Channels>,
}

impl Charge for MessageCharge {
    fn set(&mut self, bytes: usize) -> bool {
        MessageCharge::set(self, bytes)
    }
}

/// The rooms of `server`, whose messages are charged to its memory.
pub(super) fn rooms(server: &Rc<Server>, limits: RoomLimits) -> Rc<Channels> {
    let memory = server.memory.clone();
    let charges = Rc::new(move |id| Box::new(memory.messages_for(id)) as Box<dyn Charge>);
    Channels::new(server.port.clone(), limits, charges)
}

impl Service for Channeling {
    fn name(&self) -> &'static str {
        messages::SERVICE
    }

    fn version(&self) -> u32 {
        messages::VERSION
    }

    fn right(&self) -> &'static str {
        messages::SERVICE
    }

    fn serve(self: Rc<Self>, stream: Session) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            let Some((session, ask)) = first::<ChannelAsk>(&self.server, stream).await else {
                return;
            };
            let client = ServedClient::of_channel(&session, &ask);
            let client = client.called(self.server.door.name(&session.peer));
            (self.server.tell)(ServerEvent::Asked(client.clone()));
            let ended = self.answer(session, ask).await;
            (self.server.tell)(client.ended(&ended, Moved::default()));
        })
    }
}

impl Channeling {
    pub(super) fn new(server: Rc<Server>, channels: Rc<Channels>) -> Channeling {
        Channeling { server, channels }
    }

    async fn answer(&self, session: Session, ask: ChannelAsk) -> Result<(), Error> {
        let begun = self.server.begin_below(session.peer, messages::SERVICE);
        let (running, right) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let _ = session.close(Some((&error).into())).await;
                return Err(error);
            }
        };
        let link = self.server.begin_below(session.peer, messages::LINK).ok();
        let link = link.map(|(_, right)| right);
        let stopped = async { session::Error::from(&running.stopped().await) };
        Ok(self.channels.serve(session, ask, (right, link), stopped).await?)
    }
}
