//! One request, judged and answered.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::endpoint::FlowId;
use longhaul_proto::registry::{self, Row};
use longhaul_proto::settings::Settings;
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};
use tokio::sync::mpsc;

use super::Server;
use super::door::Access;
use super::register::{Question, Registered};
use crate::control::{Direction, Message, Ping, Request, Setting};
use crate::datapath::keys::Suite;
use crate::driver::board::Board;
use crate::driver::planned::named_messages;
use crate::driver::writer::Target;
use crate::end::receiving::ReceivingEnd;
use crate::end::sending::SendingEnd;
use crate::end::wire::{End, Wire};
use crate::end::{DEFAULT_SEGMENT, Hooks, Terms};
use crate::error::{Class, Error};
use crate::objects::{Manifest, Place, SinkOptions, Source, SourceOptions};
use crate::options::{Filter, Receive};
use crate::session::Session;

/// The last word is waited for so long after the outcome was told.
const FAREWELL: Duration = Duration::from_secs(3);
/// Datagrams outside these sizes are nobody's.
const DATAGRAMS: std::ops::RangeInclusive<u32> = 256..=65_000;

/// Answers a request to its end; an error is told to the client as well.
pub(super) async fn answer(
    server: &Rc<Server>,
    session: Session,
    request: Request,
) -> Result<(), Error> {
    let peer = session.peer;
    // Announced first: its data are on their way already.
    server.port.announce(FlowId(request.flow), session.remote.ip());
    let judged = judge(server, &session, &request);
    let (terms, work) = match judged {
        Ok(judged) => judged,
        Err(error) => {
            let _ = session.close(Some(&error)).await;
            return Err(error);
        }
    };
    let destination = matches!(work, Work::Receive { .. }).then(|| request.paths.concat());
    // Entered first: further streams of this transfer may come before the way is free.
    let registered = server.register.enter(peer, request.transfer, destination, request.streams);
    registered.make_way().await;
    let mut wire = Wire::new(session);
    let result = run(server, &mut wire, terms, &request, work, registered).await;
    match result {
        Ok(()) => {
            // The client hangs up first, so that nothing told to it is cut off.
            let _ = tokio::time::timeout(FAREWELL, hung_up(&mut wire)).await;
            wire.close(None).await;
            Ok(())
        }
        Err(End::Fatal(error)) => {
            wire.close(Some(&error)).await;
            Err(error)
        }
        Err(End::Lost(why)) => {
            Err(Error::new(Class::Unfinished, format!("{peer} was lost: {why}")))
        }
        Err(End::NoDatagrams) => {
            let error = Error::new(Class::Unfinished, "datagrams do not pass");
            wire.close(Some(&error)).await;
            Err(error)
        }
    }
}

async fn hung_up(wire: &mut Wire) {
    while wire.next().await.is_ok() {}
}

/// What is to be done.
enum Work {
    Receive { target: Target, receive: Receive },
    Send { places: Vec<Place>, options: SourceOptions },
}

/// Looks at a request before anything is done by its word.
fn judge(server: &Server, session: &Session, request: &Request) -> Result<(Terms, Work), Error> {
    let peer = session.peer;
    let usage = |what: String| Error::new(Class::Usage, what);
    let path = |bytes: &Vec<u8>| Path::new(OsStr::from_bytes(bytes)).to_owned();
    let work = match request.direction() {
        Direction::Push => {
            let [destination] = &request.paths[..] else {
                return Err(usage("a push names one destination".into()));
            };
            let place = server.door.place(&peer, &path(destination), Access::Write)?;
            let receive = receive(&request.receive)?;
            let options = SinkOptions {
                preserve: request.preserve,
                set_id: false,
                checksum: request.checksum,
                distrust: false,
                dry_run: request.dry_run,
                names: request.names,
            };
            let target = match receive {
                Receive::Fake => Target::Nowhere,
                _ => Target::Place { place, options, claim: None },
            };
            Work::Receive { target, receive }
        }
        Direction::Pull => {
            let places = request.paths.iter();
            let places = places.map(|p| server.door.place(&peer, &path(p), Access::Read));
            let filters = request.filters.iter().map(filter).collect();
            let options = SourceOptions { recursive: request.recursive, filters };
            Work::Send { places: places.collect::<Result<_, _>>()?, options }
        }
    };
    Ok((terms(server, session, request)?, work))
}

fn terms(server: &Server, session: &Session, request: &Request) -> Result<Terms, Error> {
    let suite = match request.cipher.as_str() {
        "aes-128-gcm" => Suite::Aes128Gcm,
        "chacha20-poly1305" => Suite::ChaCha20Poly1305,
        "none" if server.allow_plain => Suite::Plain,
        "none" => {
            let error = Error::new(Class::Unreachable, "this server allows no data in the clear");
            return Err(error.advise("start it with --allow-plain, or leave --cipher none out"));
        }
        other => {
            let error = Error::new(Class::Unreachable, format!("no cipher {other} is known here"));
            return Err(error.advise("use the same release of longhaul on both sides"));
        }
    };
    let protocol = match request.protocol.as_str() {
        "" => None,
        name => Some(registry::find(name).ok_or_else(|| {
            let error = Error::new(Class::Unreachable, format!("no protocol {name} is known here"));
            error.advise("use the same release of longhaul on both sides")
        })?),
    };
    let settings = settings(protocol, &request.settings)?;
    if !DATAGRAMS.contains(&request.datagram) {
        let what = format!("datagrams of {} bytes cannot be", request.datagram);
        return Err(Error::new(Class::Usage, what).advise("ask for 256 to 65000"));
    }
    let rate = |bps: u64| (bps > 0).then(|| Rate::from_bps(bps));
    Ok(Terms {
        transfer: request.transfer,
        suite,
        exporter: session.exporter(),
        peer: session.remote.ip(),
        protocol,
        settings,
        streams: request.streams,
        try_streams: request.try_streams,
        rate: rate(request.rate_bps),
        rate_limit: rate(request.rate_limit_bps),
        segment: request.segment.map_or(DEFAULT_SEGMENT, Bytes::new),
        datagram: request.datagram as u16,
        rtt: Span::from_nanos(request.rtt_nanos),
    })
}

/// The protocol's settings; those of a copy without one say nothing.
fn settings(protocol: Option<&'static Row>, asked: &[Setting]) -> Result<Settings, Error> {
    let Some(row) = protocol else { return Ok(Settings::default()) };
    asked.iter().try_fold(Settings::default(), |settings, Setting { name, value }| {
        settings.with(row, name, *value).map_err(|error| {
            let error = Error::new(Class::Usage, format!("the setting is refused: {error}"));
            error.advise("use the same release of longhaul on both sides")
        })
    })
}

fn receive(name: &str) -> Result<Receive, Error> {
    match name {
        "" | "naive" => Ok(Receive::Naive),
        "scatter" => Ok(Receive::Scatter),
        "fake" => Ok(Receive::Fake),
        other => {
            let what = format!("no receive strategy {other} is known here");
            Err(Error::new(Class::Usage, what).advise("choose naive, scatter or fake"))
        }
    }
}

pub(super) fn filter(pattern: &crate::control::Pattern) -> Filter {
    match pattern.include {
        true => Filter::Include(pattern.glob.clone()),
        false => Filter::Exclude(pattern.glob.clone()),
    }
}

async fn run(
    server: &Rc<Server>,
    wire: &mut Wire,
    terms: Terms,
    request: &Request,
    work: Work,
    mut registered: Registered<'_>,
) -> Result<(), End> {
    let board = Arc::new(Board::default());
    let (closed, none) = mpsc::unbounded_channel();
    drop(closed);
    let streams = registered.streams.take().unwrap_or(none);
    let questions = registered.questions.take().map(RefCell::new);
    let hooks = ServerHooks {
        questions,
        waiting: RefCell::default(),
        yielded: RefCell::default(),
        outbox: wire.outbox().clone(),
    };
    let port = server.port.clone();
    let hooks = &hooks;
    match work {
        Work::Receive { target, receive } => {
            let memory = Arc::new(server.memory.enter().await?);
            let end = ReceivingEnd {
                wire,
                terms,
                port,
                contact: None,
                board,
                streams,
                hooks,
                memory,
                receive,
                core: None,
                writer: None,
                target,
                decides: false,
            };
            end.run().await.map(drop)
        }
        Work::Send { places, options } => {
            let surveyed = request.surveyed;
            let source = open(places, options, surveyed).await?;
            let (path, decides, dry_run) = (None, false, request.dry_run);
            let end = SendingEnd {
                wire,
                terms,
                port,
                path,
                flow: FlowId(request.flow),
                board,
                streams,
                hooks,
                decides,
                dry_run,
                surveyed,
            };
            end.run(source).await.map(drop)
        }
    }
}

/// Walks the source, without holes where the client has surveyed it.
async fn open(places: Vec<Place>, options: SourceOptions, surveyed: bool) -> Result<Source, Error> {
    let opened = tokio::task::spawn_blocking(move || {
        let mut source = Source::open(&places, &options)?;
        if surveyed {
            source.fill_holes()?;
        }
        Ok(source)
    });
    let ended = |_| Error::new(Class::Unfinished, "the walk over the source ended early");
    opened.await.map_err(ended)?
}

/// The server's side of [`Hooks`].
struct ServerHooks {
    questions: Option<RefCell<mpsc::UnboundedReceiver<Question>>>,
    /// Who waits for a sign of life.
    waiting: RefCell<Vec<tokio::sync::oneshot::Sender<()>>>,
    /// Who waits for the destination; told by being dropped, with all else of the transfer.
    yielded: RefCell<Vec<tokio::sync::oneshot::Sender<()>>>,
    outbox: crate::driver::outbox::Outbox,
}

impl Hooks for ServerHooks {
    fn tick(&self) -> Result<(), End> {
        let Some(questions) = &self.questions else { return Ok(()) };
        while let Ok(question) = questions.borrow_mut().try_recv() {
            match question {
                Question::Alive(answer) => {
                    self.waiting.borrow_mut().push(answer);
                    self.outbox.tell(Message::Ping(Ping { answer: false }));
                }
                Question::Yield(answer) => {
                    self.yielded.borrow_mut().push(answer);
                    return Err(End::Lost("it has come back on a new connection".into()));
                }
            }
        }
        Ok(())
    }

    fn heard(&self) {
        for waiting in self.waiting.borrow_mut().drain(..) {
            let _ = waiting.send(());
        }
    }

    fn planned(&self, _manifest: &Manifest, _skipped: &[Range<u64>], _resumed_bytes: u64) {}

    fn named(&self, _manifest: &Manifest, entries: &[Range<u64>]) {
        for named in named_messages(entries) {
            self.outbox.tell(Message::Named(named));
        }
    }

    fn entry_failed(&self, _path: &[u8], _reason: &str, _at_source: bool) {}
}
