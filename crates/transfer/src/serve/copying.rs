//! The service of copies: transfers (with their additional streams), probes and surveys. A survey
//! sends the hashes of an object to a client with several sources, before the client's request.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::dispatch::{first, turn_away};
use super::door::Access;
use super::events::{Moved, ServedClient, ServerEvent};
use super::live::Mode;
use super::{Server, surveying, transfer};
use crate::control::{self, Direction, Frame, Message, Probe, Request, Survey};
use crate::error::{Error, ErrorKind};
use crate::probe;
use crate::session::{Service, Session, allow};

/// How long a client may survey other sources before its request. After this time the client has to
/// survey this source again.
const OTHERS: Duration = Duration::from_secs(600);

/// The service of copies. A survey is a message of this service, not a separate service, because a
/// request may follow the survey on the same stream, with the same keys.
pub(super) struct Copying {
    server: Rc<Server>,
    ended: mpsc::UnboundedSender<Result<(), Error>>,
}

impl Service for Copying {
    fn name(&self) -> &'static str {
        control::SERVICE
    }

    fn version(&self) -> u32 {
        control::VERSION
    }

    fn right(&self) -> &'static str {
        allow::FILES
    }

    fn serve(self: Rc<Self>, stream: Session) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            let Some((session, frame)) = first::<Frame>(&self.server, stream).await else { return };
            if let Some(result) = self.answer(session, frame).await {
                // The server's main loop, which takes the result, may have ended.
                let _ = self.ended.send(result);
            }
        })
    }
}

impl Copying {
    /// Returns the service, which sends the result of each transfer to `ended`.
    pub(super) fn new(
        server: Rc<Server>,
        ended: mpsc::UnboundedSender<Result<(), Error>>,
    ) -> Copying {
        Copying { server, ended }
    }

    /// Answers the first message of a stream. Returns the result of a transfer, or the error of a
    /// survey. Returns `None` for a survey without a later request, for a part of a pipe, and for
    /// all other messages.
    async fn answer(&self, session: Session, frame: Frame) -> Option<Result<(), Error>> {
        match frame.message {
            Some(Message::Attach(attach)) => {
                self.server.register.attach(session.peer, attach.transfer, session);
                None
            }
            Some(Message::Probe(probe)) => {
                self.probed(session, &probe).await;
                None
            }
            Some(Message::Request(request)) => {
                let is_part = request.extent.is_some();
                let ended = self.requested(session, request).await;
                // A request with an extent sends one part of a pipe (content of unknown length).
                // The service of pipes reports one result for all parts.
                (!is_part).then_some(ended)
            }
            Some(Message::Survey(survey)) => self.surveyed(session, &survey).await,
            _ => {
                let error =
                    Error::new(ErrorKind::Unreachable, "the first message was not a request")
                        .advise("use the same release of longhaul on both sides");
                turn_away(&self.server, session, error).await;
                None
            }
        }
    }

    async fn probed(&self, session: Session, probe: &Probe) {
        let server = &self.server;
        let client = ServedClient::of_probe(&session).called(server.door.name(&session.peer));
        (server.tell)(ServerEvent::Asked(client.clone()));
        let ended = match server.begin(session.peer, None) {
            Ok(running) => {
                let stopped = running.stopped();
                probe::server::answer(&server.port, &server.probes, session, probe, stopped).await
            }
            Err(error) => {
                let _ = session.close(Some((&error).into())).await;
                Err(error)
            }
        };
        (server.tell)(client.ended(&ended, Moved::default()));
    }

    /// Answers a survey, and the request that may follow when the client has surveyed all sources.
    async fn surveyed(&self, mut session: Session, survey: &Survey) -> Option<Result<(), Error>> {
        let server = &self.server;
        let client = ServedClient::of_survey(&session, survey);
        let client = client.called(server.door.name(&session.peer));
        (server.tell)(ServerEvent::Asked(client.clone()));
        // A shutdown waits until `begun` is dropped, so keep it until the final message has been
        // sent.
        let begun = server.begin(session.peer, Some(Access::Read));
        let next = async {
            let running = begun.clone()?;
            let result = running.or(answer_survey(server, &mut session, survey)).await;
            (server.tell)(client.ended(&result, Moved::default()));
            result?;
            let next = async { Ok(timeout(OTHERS, session.read::<Frame>()).await) };
            running.or::<_, Error>(next).await
        };
        let frame = match next.await {
            Ok(next) => next.ok()?.ok()??,
            Err(error) => {
                let _ = session.close(Some((&error).into())).await;
                return Some(Err(error));
            }
        };
        let Some(Message::Request(request)) = frame.message else { return None };
        // The port expects early datagrams from an address only for a limited time. The client's
        // surveys of the other sources may have taken longer, so start this time again.
        server.port.expect(session.remote.ip());
        Some(self.requested(session, request).await)
    }

    async fn requested(&self, session: Session, request: Request) -> Result<(), Error> {
        let access = match request.direction() {
            Direction::Push => Access::Write,
            Direction::Pull => Access::Read,
        };
        let running = match self.server.begin(session.peer, Some(access)) {
            Ok(running) => running,
            Err(error) => {
                let _ = session.close(Some((&error).into())).await;
                return Err(error);
            }
        };
        let is_whole = request.extent.is_none();
        let name = self.server.door.name(&session.peer);
        let client = ServedClient::of_request(&session, &request).called(name);
        let client = is_whole.then_some(client);
        if let Some(client) = &client {
            (self.server.tell)(ServerEvent::Asked(client.clone()));
        }
        let shown = client.clone().unwrap_or_else(|| ServedClient::of_request(&session, &request));
        let fixed_rate = request.rate_bps > 0 || request.rate_limit_bps > 0;
        let receives = request.direction() == Direction::Push;
        let mode = Mode { receives, fixed_rate };
        let _entry = self.server.live.enter(shown, mode, running.clone());
        let result = transfer::answer(&self.server, session, request, running.clone()).await;
        if let Some(client) = client {
            (self.server.tell)(client.ended(&result, running.moved()));
        }
        result
    }
}

async fn answer_survey(
    server: &Server,
    session: &mut Session,
    survey: &Survey,
) -> Result<(), Error> {
    let places = transfer::places(server, &session.peer, &survey.paths)?;
    let memory = Box::new(server.memory.list_for(session.peer));
    surveying::answer(session, survey, places, &server.surveys, memory).await
}
