//! Checks and answers one request for a transfer.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use longhaul_net::access;
use longhaul_net::sealing::keys::Suite;
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::law::Weight;
use longhaul_proto::registry::Row;
use longhaul_proto::remembered::Remembered;
use longhaul_proto::settings::Settings;
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Server;
use super::door::Access;
use super::hooks::ServerHooks;
use super::pulls::Pull;
use super::register::{ASKED, Registered};
use super::running::Running;
use crate::control::{DeleteWire, Direction, Held, Message, Request, Setting, Wait};
use crate::counters::board::Board;
use crate::error::{Error, ErrorKind};
use crate::flow::shared_core::SharedCore;
use crate::options::{Filter, Receive};
use crate::roles::flight::FlightSecret;
use crate::roles::prepared::prepare;
use crate::roles::receiving::ReceivingRole;
use crate::roles::sending::{FirstPass, SendingRole};
use crate::roles::wire::{End, Wire};
use crate::roles::{DEFAULT_SEGMENT, Hooks, Terms};
use crate::session::{self, PeerId, Session};
use crate::write::budget::MemoryPart;
use crate::write::destination::Destination;
use crate::write::discard::Discard;
use crate::write::extent::ExtentOf;
use crate::write::files::Files;
use longhaul_files::place::show;
use longhaul_files::sink::Age;
use longhaul_files::{Asked, Mark, Place, SinkOptions, Source, SourceOptions, Watch};
use longhaul_text::CallOption;

/// How long to wait until the client disconnects, after the outcome was sent.
const FAREWELL: Duration = Duration::from_secs(3);
/// After this time, the client learns that another transfer may hold its destination.
const HELD_NOTICE: Duration = Duration::from_secs(3);
/// How long a copy may still run after its client's program has dropped the copy. Until the copy
/// ends, its client still answers that it is alive, as if the program wanted the copy.
const DROPPING: Duration = Duration::from_millis(500);
/// Interval of messages about the walk over the source.
const TICK: Duration = Duration::from_millis(100);
/// The allowed sizes of a datagram in bytes.
const DATAGRAMS: std::ops::RangeInclusive<u32> = 256..=65_000;

/// Answers a request completely; also sends an error to the client.
pub(super) async fn answer(
    server: &Rc<Server>,
    session: Session,
    request: Request,
    running: Running,
) -> Result<(), Error> {
    let peer = session.peer;
    // Announce the flow first, because its datagrams may be in flight already.
    server.port.announce(FlowId(request.flow), session.remote.ip());
    let judged = judge(server, &session, &request);
    let (terms, work) = match judged {
        Ok(judged) => judged,
        Err(error) => {
            let _ = session.close(Some((&error).into())).await;
            return Err(error);
        }
    };
    // Register first: additional streams of this transfer may arrive before the destination is
    // free.
    let Request { transfer, replaces, streams, .. } = request;
    let destination = work.destination(&request);
    let registered = server.register.enter(peer, transfer, replaces, destination, streams);
    let mut wire = Wire::new(session, server.memory.messages_for(peer));
    let result = run(server, &mut wire, terms, &request, work, registered, running).await;
    match result {
        Ok(mark) => {
            // Let the client hang up first. Otherwise the last message to the client could be cut
            // off.
            let ended = tokio::time::timeout(FAREWELL, hung_up(&mut wire, mark)).await;
            wire.close(None).await;
            ended.unwrap_or(Ok(()))
        }
        Err(End::Fatal(error)) => {
            wire.close(Some(&error)).await;
            Err(error)
        }
        Err(End::Lost(why) | End::Busy(why)) => {
            Err(Error::new(ErrorKind::Unfinished, format!("{peer} was lost: {why}")))
        }
        Err(End::NoDatagrams) => {
            let error = Error::new(ErrorKind::Unfinished, "datagrams do not pass");
            wire.close(Some(&error)).await;
            Err(error)
        }
    }
}

/// Waits until dead or resumed transfers of the same client have left the destination
/// ([`Registered::make_way`]), and there is memory for this receiving transfer. If the transfer
/// cannot start at once, tells the client, because data that arrive before the start may be lost.
async fn let_in(
    server: &Server,
    registered: &Registered<'_>,
    wire: &Wire,
    request: &Request,
    terms: &Terms,
    files: Option<&mut Files>,
) -> Result<Arc<MemoryPart>, Error> {
    let mut entering = pin!(enter(server, registered, wire, request, files));
    tokio::select! {
        biased;
        entered = &mut entering => return entered,
        () = std::future::ready(()) => {}
    }
    wire.outbox().send(Message::Wait(Wait { over: false }));
    let memory = entering.await?;
    // The client now starts another flow, or the flow of the request if that flow has not started
    // yet. The datagrams of the flow may arrive before the flow is registered here.
    server.port.expect(terms.peer);
    server.port.announce(FlowId(request.flow), terms.peer);
    wire.outbox().send(Message::Wait(Wait { over: true }));
    Ok(memory)
}

async fn enter(
    server: &Server,
    registered: &Registered<'_>,
    wire: &Wire,
    request: &Request,
    files: Option<&mut Files>,
) -> Result<Arc<MemoryPart>, Error> {
    let is_held = make_way(registered, wire, request).await;
    if let Some(files) = files {
        // Another copy may have locked the files. If the client of that copy is alive, wait only
        // as long as it may take to drop the copy. If the client is lost, the copy ends within the
        // idle timeout of its session.
        files.options.patience = if is_held { DROPPING } else { session::Settings::default().idle };
    }
    Ok(Arc::new(server.memory.enter_for(registered.peer).await?))
}

/// Waits as [`make_way`], and for the permits of a pull.
async fn enter_pull(
    server: &Server,
    registered: &Registered<'_>,
    wire: &Wire,
    request: &Request,
) -> Result<Pull, Error> {
    make_way(registered, wire, request).await;
    let list = server.memory.list_for(registered.peer);
    server.pulls.enter(registered.peer, list).await
}

/// Waits as [`Registered::make_way`], and tells the client if that takes long. Returns whether a
/// transfer with a living client holds the destination.
async fn make_way(registered: &Registered<'_>, wire: &Wire, request: &Request) -> bool {
    let yielding = registered.make_way();
    tokio::pin!(yielding);
    tokio::select! {
        is_held = &mut yielding => return is_held,
        () = tokio::time::sleep(HELD_NOTICE) => {}
    }
    let path = request.paths.first().map(|path| show(path)).unwrap_or_default();
    wire.outbox().send(Message::Held(Held::new(path, ASKED)));
    yielding.await
}

/// Waits until the client disconnects. `mark` is the mark of the folder that the copy has created:
/// while the mark exists, a repeated copy writes into the same folder. Removes the mark when the
/// client says that it has received the outcome. Without that message the mark stays, because the
/// client may repeat the copy.
async fn hung_up(wire: &mut Wire, mut mark: Option<Mark>) -> Result<(), Error> {
    while let Ok(message) = wire.next().await {
        if matches!(message, Message::Heard(_)) {
            mark.take().map_or(Ok(()), Mark::remove)?;
        }
    }
    Ok(())
}

enum Work {
    Receive { to: Goes, receive: Receive },
    Send { places: Vec<Place>, options: SourceOptions },
}

enum Goes {
    Files(Box<Files>),
    /// A part of the file of a pipe (content of unknown length, sent in parts).
    Pipe(ExtentOf),
    /// No destination: a measurement.
    Nowhere,
}

impl Goes {
    fn files(&mut self) -> Option<&mut Files> {
        match self {
            Goes::Files(files) => Some(files),
            Goes::Pipe(_) | Goes::Nowhere => None,
        }
    }

    fn into_destination(self) -> Box<dyn Destination> {
        match self {
            Goes::Files(files) => files.into_destination(),
            Goes::Pipe(part) => Box::new(part),
            Goes::Nowhere => Box::new(Discard),
        }
    }
}

impl Work {
    /// Returns the normalized destination path, if the request writes files; otherwise `None`, also
    /// for a part of a pipe: pipes have their own register.
    fn destination(&self, request: &Request) -> Option<PathBuf> {
        let Work::Receive { to: Goes::Files(files), .. } = self else { return None };
        let path = Path::new(OsStr::from_bytes(request.paths.first()?));
        let parts = path.components().filter(|part| *part != Component::CurDir);
        let below_root = parts.skip_while(|part| *part == Component::RootDir);
        (!files.options.dry_run).then(|| below_root.collect())
    }
}

/// Checks a request before anything acts on it. Returns the terms and the work of the transfer.
fn judge(server: &Server, session: &Session, request: &Request) -> Result<(Terms, Work), Error> {
    let peer = session.peer;
    let usage = |what: String| Error::new(ErrorKind::Usage, what);
    let path = |bytes: &Vec<u8>| Path::new(OsStr::from_bytes(bytes)).to_owned();
    let work = match (request.direction(), &request.extent) {
        (Direction::Push, Some(extent)) => {
            let receive = receive(&request.receive)?;
            if receive == Receive::Fake || request.dry_run {
                let what = "a part of a pipe can neither be discarded nor be a dry run";
                return Err(usage(what.into()));
            }
            Work::Receive { to: Goes::Pipe(server.pipes.part(peer, extent)?), receive }
        }
        (Direction::Pull, Some(_)) => return Err(usage("parts of a pipe are only pushed".into())),
        (Direction::Push, None) => {
            let [destination] = &request.paths[..] else {
                return Err(usage("a push must name exactly one destination".into()));
            };
            let place = server.door.place(&peer, &path(destination), Access::Write)?;
            let receive = receive(&request.receive)?;
            // The digests of existing content would confirm a guess of that content. So the client
            // needs the right to read.
            let may_read = server.door.may_read(&peer)?;
            if request.checksum && !may_read {
                let what = format!("{peer} may not read here, so it may not compare contents");
                let error = Error::new(ErrorKind::Unreachable, what);
                return Err(error.advise("copy without a comparison by content"));
            }
            let options = SinkOptions {
                preserve: request.preserve,
                set_id: false,
                modified: None,
                checksum: request.checksum,
                distrust: request.checksum,
                conceal: !may_read,
                dry_run: request.dry_run,
                make_path: request.make_path,
                delete: deletion(server, &peer, request)?,
                names: request.names,
                patience: Duration::ZERO,
                together: None,
                left: server.left.clone(),
            };
            let asked = Arc::new(Asked::push(request.recursive));
            let files = Files { place, asked, options, claim: None };
            let to = match receive {
                Receive::Fake => Goes::Nowhere,
                _ => Goes::Files(Box::new(files)),
            };
            Work::Receive { to, receive }
        }
        (Direction::Pull, None) => {
            let places = places(server, &peer, &request.paths)?;
            let filters = request.filters.iter().map(Filter::from).collect();
            let watch = Watch::default();
            let options = SourceOptions { recursive: request.recursive, filters, watch };
            Work::Send { places, options }
        }
    };
    Ok((terms(server, session, request)?, work))
}

/// Returns the deletion that a push requests. Refuses it to clients without the right to read,
/// because the report of a deletion names existing files.
fn deletion(
    server: &Server,
    peer: &PeerId,
    request: &Request,
) -> Result<Option<longhaul_files::Delete>, Error> {
    let Some(DeleteWire { most, age_nanos }) = request.delete else { return Ok(None) };
    places(server, peer, &request.paths)?;
    let filters = request.filters.iter().map(Filter::from).collect();
    let age = age_nanos.map(|nanos| Age::new(Duration::from_nanos(nanos)));
    Ok(Some(longhaul_files::Delete { filters, most, age }))
}

/// Resolves the paths that a client reads.
pub(super) fn places(
    server: &Server,
    peer: &PeerId,
    paths: &[Vec<u8>],
) -> Result<Vec<Place>, Error> {
    if paths.is_empty() {
        // Without this check an empty list of paths would pass every check of rights.
        let error = Error::new(ErrorKind::Usage, "the request names no path to read");
        return Err(error.advise("name at least one path"));
    }
    let place =
        |path: &Vec<u8>| server.door.place(peer, Path::new(OsStr::from_bytes(path)), Access::Read);
    paths.iter().map(place).collect()
}

fn terms(server: &Server, session: &Session, request: &Request) -> Result<Terms, Error> {
    let suite = match request.cipher.as_str() {
        "aes-128-gcm" => Suite::Aes128Gcm,
        "chacha20-poly1305" => Suite::ChaCha20Poly1305,
        "none" if server.allow_plain => Suite::Plain,
        "none" => {
            let error =
                Error::new(ErrorKind::Unreachable, "this server allows no data in the clear");
            let (allow, cipher) = (CallOption::AllowPlain, CallOption::Cipher);
            return Err(error.advise(format!("start it with {allow}, or omit {cipher} none")));
        }
        other => {
            let error = Error::new(ErrorKind::Unreachable, format!("unknown cipher {other}"));
            return Err(error.advise("use the same release of longhaul on both sides"));
        }
    };
    let protocol = match request.protocol.as_str() {
        "" => None,
        name => Some((server.protocols)(name).ok_or_else(|| {
            let error = Error::new(ErrorKind::Unreachable, format!("unknown protocol {name}"));
            error.advise("use the same release of longhaul on both sides")
        })?),
    };
    let settings = settings(protocol, &request.settings)?;
    if !DATAGRAMS.contains(&request.datagram) {
        let what = format!("datagrams of {} bytes are not possible", request.datagram);
        return Err(Error::new(ErrorKind::Usage, what).advise("ask for 256 to 65000"));
    }
    let refused = |share: u32| {
        let what = format!("a share of {share} flows is not allowed");
        Error::new(ErrorKind::Usage, what).advise("ask for 64 flows at most")
    };
    let weight = |share| Weight::new(share).ok_or_else(|| refused(share));
    let weight = request.share.map(weight).transpose()?.unwrap_or_default();
    let rate = |bps: u64| (bps > 0).then(|| Rate::from_bps(bps));
    let (peer, datagram) = (session.remote.ip(), request.datagram as u16);
    Ok(Terms {
        transfer: request.transfer,
        suite,
        exporter: session.exporter(),
        flight: flight(request, suite)?,
        peer,
        protocol,
        settings,
        streams: request.streams,
        try_streams: request.try_streams,
        rate: rate(request.rate_bps),
        rate_limit: rate(request.rate_limit_bps),
        remembered: rate(request.remembered_bps).map(|rate| Remembered {
            rate,
            rtt: Span::from_nanos(request.remembered_rtt_nanos),
            loss: LossRatio::of(request.remembered_loss_ppm.into(), 1_000_000),
        }),
        weight,
        segment: request.segment.map_or(DEFAULT_SEGMENT, Bytes::new),
        datagram,
        rtt: Span::from_nanos(request.rtt_nanos),
        card: protocol.and_then(|_| access::card_towards(peer, datagram)),
    })
}

/// Returns the secret of the pass that began before the session was open, if there is one.
fn flight(request: &Request, suite: Suite) -> Result<Option<FlightSecret>, Error> {
    if request.flight_secret.is_empty() {
        return Ok(None);
    }
    let is_possible = request.direction() == Direction::Push && suite != Suite::Plain;
    let told = FlightSecret::told(FlowId(request.flow), &request.flight_secret);
    let refused = || {
        let what = "only sealed pushes can begin before the session, with a secret of 32 bytes";
        Error::new(ErrorKind::Usage, what).advise("use the same release of longhaul on both sides")
    };
    told.filter(|_| is_possible).map(Some).ok_or_else(refused)
}

/// Returns the checked settings of `protocol`; none without a protocol.
fn settings(protocol: Option<&'static Row>, asked: &[Setting]) -> Result<Settings, Error> {
    let Some(row) = protocol else { return Ok(Settings::default()) };
    asked.iter().try_fold(Settings::default(), |settings, Setting { name, value }| {
        let refused = |what: String| {
            let error = Error::new(ErrorKind::Usage, format!("the setting is refused: {what}"));
            error.advise("use the same release of longhaul on both sides")
        };
        let value = value.ok_or_else(|| refused(format!("{name} has no value in base units")))?;
        settings.with(row, name, value).map_err(|error| refused(error.to_string()))
    })
}

fn receive(name: &str) -> Result<Receive, Error> {
    match name {
        "" | "naive" => Ok(Receive::Naive),
        "scatter" => Ok(Receive::Scatter),
        "fake" => Ok(Receive::Fake),
        other => {
            let what = format!("unknown receive strategy {other}");
            Err(Error::new(ErrorKind::Usage, what).advise("choose naive, scatter or fake"))
        }
    }
}

async fn run(
    server: &Rc<Server>,
    wire: &mut Wire,
    terms: Terms,
    request: &Request,
    work: Work,
    mut registered: Registered<'_>,
    running: Running,
) -> Result<Option<Mark>, End> {
    let board = running.board().clone();
    let (closed, none) = mpsc::unbounded_channel();
    drop(closed);
    let streams = registered.streams.take().unwrap_or(none);
    let hooks =
        &ServerHooks::new(registered.questions.take(), wire.outbox().clone()).of(running.clone());
    let port = server.port.clone();
    let counted = board.clone();
    let ended = match work {
        Work::Receive { mut to, receive } => {
            let entering = let_in(server, &registered, wire, request, &terms, to.files());
            let memory = running.or(entering).await?;
            let core = shared_core(server, &terms);
            let end = ReceivingRole {
                wire,
                terms,
                port,
                contact: None,
                board,
                streams,
                hooks,
                memory,
                receive,
                core,
                writer: None,
                decides: false,
            };
            let received = end.run(to.into_destination()).await;
            received.map(|received| (received.outcome, received.mark))
        }
        Work::Send { places, options } => {
            let pull = running.or(enter_pull(server, &registered, wire, request)).await?;
            // Waiting may have taken long, so announce the flow again.
            port.announce(FlowId(request.flow), terms.peer);
            let surveyed = request.surveyed;
            let options = SourceOptions { watch: board.watch().clone(), ..options };
            let source = open(places, options, pull, surveyed, wire, hooks, &board).await?;
            let (description, payloads) = prepare(source, surveyed, terms.is_in_the_clear())?;
            let (path, decides, dry_run) = (None, false, request.dry_run);
            let end = SendingRole {
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
            let sent = end.run(description, FirstPass::Payloads(payloads)).await;
            sent.map(|outcome| (outcome, None))
        }
    };
    running.note(hooks.moved(&counted, ended.as_ref().ok().map(|(outcome, _)| outcome)));
    ended.map(|(_, mark)| mark)
}

/// With GTP, the receiver manages the rates of all its senders (section 3.2 of the GTP paper), so
/// transfers with the same settings share one core (the protocol's state machine).
fn shared_core(server: &Server, terms: &Terms) -> Option<SharedCore> {
    terms.protocol.and_then(|row| server.cores.borrow_mut().of(row, &terms.settings))
}

/// Walks the source, and reports the progress to the client. If the client has surveyed the source
/// (requested the hashes of its chunks), holes count as zeros, as they did in the survey.
async fn open(
    places: Vec<Place>,
    options: SourceOptions,
    pull: Pull,
    surveyed: bool,
    wire: &mut Wire,
    hooks: &dyn Hooks,
    board: &Board,
) -> Result<Source, End> {
    let walk = tokio::task::spawn_blocking(move || {
        let Pull { memory, walking: _walking } = pull;
        let mut source = Source::open_within(&places, &options, Box::new(memory))?;
        if surveyed {
            source.fill_holes();
        }
        Ok(source)
    });
    let opened = report_walk(walk, wire, hooks, board).await;
    if opened.is_err() {
        board.watch().end();
    }
    opened
}

async fn report_walk(
    mut walk: JoinHandle<Result<Source, Error>>,
    wire: &mut Wire,
    hooks: &dyn Hooks,
    board: &Board,
) -> Result<Source, End> {
    let mut tick = tokio::time::interval(TICK);
    // Before the offer, a client sends only signs of life. If another message arrives, keep it for
    // later and read nothing more.
    let mut early = None;
    loop {
        tokio::select! {
            opened = &mut walk => {
                if let Some(message) = early {
                    wire.put_back(message);
                }
                let what = "the walk over the source ended early";
                let ended = |_| Error::new(ErrorKind::Unfinished, what);
                return Ok(opened.map_err(ended)??);
            }
            message = wire.next(), if early.is_none() => {
                let message = message?;
                hooks.on_message(&message);
                let is_sign = matches!(message, Message::Status(_) | Message::Ping(_));
                early = (!is_sign).then_some(message);
            }
            _ = tick.tick() => {
                hooks.tick()?;
                wire.outbox().send(Message::Status(board.status()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_proto::registry;

    use super::*;

    #[test]
    fn a_peers_setting_is_refused_if_it_is_unknown_or_has_no_value_in_its_range() {
        let row = Some(registry::of_many());
        let asked = |name: &str, value| [Setting { name: name.to_owned(), value }];
        let taken = settings(row, &asked("receive-rate", Some(957e6))).unwrap();
        assert_eq!(taken.iter().collect::<Vec<_>>(), [("receive-rate", 957e6)]);
        for (name, value, said) in [
            ("receive-rate", None, "no value in base units"),
            ("receive-rate", Some(2e12), "2Tbit/s is not between"),
            ("receive-rate", Some(f64::NAN), "not between"),
            ("patience", Some(1.5), "not a whole number"),
            ("own-loss", Some(0.5), "not between off and on"),
            ("gtp-variant", Some(2.0), "not between ours and paper"),
            ("no-such", Some(1.0), "no setting no-such"),
        ] {
            let refused = settings(row, &asked(name, value)).unwrap_err();
            assert!(refused.to_string().contains(said), "{refused}");
        }
    }

    #[test]
    fn a_first_flights_secret_needs_32_bytes_and_a_sealed_push() {
        let flow = |direction: Direction, len: usize, suite| {
            let flight_secret = vec![7; len];
            let request =
                Request { direction: direction.into(), flight_secret, ..Request::default() };
            flight(&request, suite).map(|flight| flight.is_some()).map_err(|error| error.kind)
        };
        let (push, aes) = (Direction::Push, Suite::Aes128Gcm);
        assert_eq!((flow(push, 0, aes), flow(push, 32, aes)), (Ok(false), Ok(true)));
        assert_eq!(
            (flow(push, 0, Suite::Plain), flow(Direction::Pull, 0, aes)),
            (Ok(false), Ok(false))
        );
        for (direction, len, suite) in
            [(push, 31, aes), (push, 33, aes), (push, 32, Suite::Plain), (Direction::Pull, 32, aes)]
        {
            assert_eq!(flow(direction, len, suite), Err(ErrorKind::Usage), "{len} bytes");
        }
    }
}
