//! The service that reports the server's status.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use longhaul_share::Shared;
use longhaul_stream::channel::server::Channels;
use longhaul_stream::server::Streams;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Server;
use super::dispatch::first;
use super::events::{Moved, ServedClient, ServerEvent};
use crate::control::server_status::{self, StatusAsk, StatusReport};
use crate::error::{Error, ErrorKind};
use crate::server_status::{
    RoomStatus, ServerStatus, ServerTotals, SharedTreeStatus, StreamStatus,
};
use crate::session::{FrameReader, FrameWriter, Service, Session};

/// Minimum interval of status reports.
const SOONEST: Duration = Duration::from_millis(100);
/// Maximum interval of status reports.
const LATEST: Duration = Duration::from_secs(10);
/// Timeout for a client that does not read.
const UNREAD: Duration = Duration::from_secs(60);

/// The parts of a server that a status report covers.
pub(super) struct View {
    pub(super) server: Rc<Server>,
    pub(super) streams: Rc<Streams>,
    pub(super) channels: Rc<Channels>,
    pub(super) shared: Option<Rc<Shared>>,
}

impl View {
    /// Logs the number of suppressed refusals, and drops the rooms that were idle for too long.
    pub(super) fn tidy(&self) {
        self.server.refusals.flush();
        self.channels.expire();
    }

    pub(super) async fn now(&self) -> ServerStatus {
        let size = match &self.shared {
            Some(shared) => shared.size().await,
            None => None,
        };
        let shared_tree = size.map(|size| SharedTreeStatus {
            keys: size.keys,
            changes: size.changes,
            watches: size.watches,
        });
        let streams = self.streams.list().into_iter().map(|stream| StreamStatus {
            name: stream.name,
            sender: stream.sender.map(|id| id.to_string()),
            receivers: stream.receivers,
            frames: stream.frames,
            datagrams: stream.datagrams,
        });
        let streams = streams.collect();
        let rooms = self.channels.list().into_iter().map(|room| RoomStatus {
            name: room.name,
            senders: room.senders,
            subscribers: room.subscribers,
            messages: room.messages,
        });
        let rooms = rooms.collect();
        let (transfers, totals) = self.server.live.status();
        let totals = ServerTotals { room_messages: self.channels.messages(), ..totals };
        ServerStatus { transfers, streams, rooms, shared_tree, totals }
    }
}

pub(super) struct Watching {
    view: Rc<View>,
}

impl Watching {
    pub(super) fn new(view: Rc<View>) -> Watching {
        Watching { view }
    }

    async fn send_status(
        &self,
        ask: &StatusAsk,
        writer: &mut FrameWriter,
        reader: &mut FrameReader,
    ) -> Result<(), Error> {
        let every = Duration::from_millis(ask.interval_millis.into());
        let mut tick = interval(every.clamp(SOONEST, LATEST));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                said = reader.read::<StatusAsk>() => return match said? {
                    None => Ok(()),
                    Some(_) => Err(Error::new(ErrorKind::Usage, "the client sent two requests")),
                },
                _ = tick.tick() => {}
            }
            let status = StatusReport::from(self.view.now().await);
            let unread = |_| Error::new(ErrorKind::Unfinished, "the client does not read");
            timeout(UNREAD, writer.write(&status)).await.map_err(unread)??;
        }
    }
}

impl Service for Watching {
    fn name(&self) -> &'static str {
        server_status::SERVICE
    }

    fn version(&self) -> u32 {
        server_status::VERSION
    }

    fn right(&self) -> &'static str {
        server_status::SERVICE
    }

    fn serve(self: Rc<Self>, stream: Session) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            let server = &self.view.server;
            let Some((session, ask)) = first::<StatusAsk>(server, stream).await else { return };
            let client = ServedClient::of_status(&session);
            let client = client.called(server.door.name(&session.peer));
            (server.tell)(ServerEvent::Asked(client.clone()));
            let begun = server.begin_status(session.peer);
            let (mut writer, mut reader) = session.split();
            let ended = match &begun {
                Ok(running) => running.or(self.send_status(&ask, &mut writer, &mut reader)).await,
                Err(error) => Err(error.clone()),
            };
            let _ = writer.close(reader, ended.as_ref().err().map(Into::into)).await;
            (server.tell)(client.ended(&ended, Moved::default()));
        })
    }
}
