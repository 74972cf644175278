//! The service of channels.

use std::pin::Pin;
use std::rc::Rc;

use longhaul_stream::channel::messages::{self, ChannelAsk};
use longhaul_stream::channel::server::Channels;
use longhaul_stream::channel::{Charge, RoomLimits};

use super::Server;
use super::dispatch::first;
use super::events::ServedClient;
use super::running::{Running, attend_below};
use crate::session::{Service, Session};
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
            let answer = async |session: Session, right, running: &Running| {
                let (linking, link) = match ask.link() {
                    0 => None,
                    _ => self.server.begin_below(session.peer, messages::LINK).ok(),
                }
                .unzip();
                // A link ends with either of its two rights.
                let stopped = async {
                    let Some(linking) = &linking else { return running.ending().await };
                    tokio::select! {
                        why = running.ending() => why,
                        why = linking.ending() => why,
                    }
                };
                self.channels.serve(session, ask, (right, link), stopped).await
            };
            attend_below(&self.server, session, client, messages::SERVICE, answer).await;
        })
    }
}

impl Channeling {
    pub(super) fn new(server: Rc<Server>, channels: Rc<Channels>) -> Channeling {
        Channeling { server, channels }
    }
}
