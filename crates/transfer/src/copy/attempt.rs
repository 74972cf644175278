//! One attempt of a copy, over one session.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path as FsPath;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use longhaul_net::access;
use longhaul_net::clock;
use longhaul_net::port::PortHandle;
use longhaul_net::sealing::keys::{Cipher, Suite};
use longhaul_net::socket::Path;
use longhaul_net::zone;
use longhaul_proto::endpoint::{FlowId, ReceiveCapacity};
use longhaul_proto::registry;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at};

use super::first_flight::{LEAD, Opening};
use super::hooks::{ClientHooks, State};
use super::question::TimedQuestion;
use super::remembered::UsedPath;
use super::udp_watchdog::{Knock, UdpWatchdog};
use crate::control::pipe::Extent;
use crate::control::{
    self, Attach, DeleteWire, Direction, FilterWire, Frame, Message, Outcome, Request, Setting,
};
use crate::error::{Error, ErrorKind};
use crate::many::part::{CopyPart, To};
use crate::notices::interrupted;
use crate::options::{CopyOptions, Names, PartOfPipe, Protocol, Receive};
use crate::progress::{Cancel, Notice, Observer};
use crate::reach::route::{Host, Route};
use crate::reach::transport::Transport;
use crate::reach::{Reach, Reached, SizeSearch, reach, usual_datagram};
use crate::roles::flight::FlightSecret;
use crate::roles::prepared::{Description, prepare};
use crate::roles::receiving::{Received, ReceivingRole};
use crate::roles::sending::{FirstPass, SendingRole};
use crate::roles::wire::{End, Wire, lost_or_fatal};
use crate::roles::{DEFAULT_SEGMENT, Hooks, Terms};
use crate::session::trust::ask_nobody;
use crate::session::{self, Identity, Session, Settings, random_u64};
use longhaul_files::sink::Age;
use longhaul_files::{Asked, Mark, Place, Source, SourceOptions};
use longhaul_text::CallOption;

/// Interval of progress reports, and of checks whether the copy was cancelled, during the walk over
/// the source.
const TICK: Duration = Duration::from_millis(100);
const THROUGH_SSH: &str = "the ssh channel";

/// The attempts of a copy, one after the other.
pub(super) struct Attempt<'a> {
    pub(super) options: &'a CopyOptions,
    pub(super) route: &'a Route,
    /// The entries (files, folders, links) that a pull (a copy to this host) may contain.
    asked: Option<Arc<Asked>>,
    identity: Identity,
    pub(super) hooks: ClientHooks,
    pub(super) started: Time,
    age: Age,
    pub(super) part: CopyPart,
    refused: Cell<bool>,
    /// Whether an earlier attempt has opened a session.
    again: bool,
    /// The id of the last attempt's transfer; zero before the first attempt.
    transfer: Cell<u64>,
    carrier: Cell<&'static str>,
    /// Whether the last attempt's first data left before its session was open.
    pub(super) first_flight: Cell<bool>,
    /// The path of the last attempt; `None` if that attempt does not search for a rate.
    pub(super) path: Cell<Option<UsedPath>>,
}

pub(super) struct Finished {
    pub(super) outcome: Outcome,
    /// When this end knew the outcome.
    pub(super) outcome_at: Time,
    pub(super) protocol: String,
    pub(super) cipher: String,
    pub(super) block: u32,
    pub(super) fixed_rate: bool,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(
        options: &'a CopyOptions,
        route: &'a Route,
        observer: Arc<dyn Observer>,
        cancel: Cancel,
        part: CopyPart,
    ) -> Result<Attempt<'a>, Error> {
        let sends = matches!(route, Route::Push { .. });
        let mut state = State::new();
        let is_kept = options.receive != Receive::Fake && options.output.is_none();
        if !is_kept || matches!(part.to, To::Replicas(_)) {
            // If a source file changes during the copy, do not start again with its new version: a
            // measurement writes no file, bytes written to an output cannot be taken back, and
            // replicas agreed on the earlier version.
            state.rereads = 0;
        }
        Ok(Attempt {
            options,
            route,
            asked: route.asked(options)?.map(Arc::new),
            identity: options.key.identity()?,
            hooks: ClientHooks {
                observer,
                cancel,
                board: Arc::default(),
                udp_cut: Rc::default(),
                sends,
                stall: options.stall,
                names: options.names,
                output: options.output.clone(),
                state: RefCell::new(state),
            },
            started: clock::now(),
            age: Age::new(Duration::ZERO),
            part,
            refused: Cell::new(false),
            again: false,
            transfer: Cell::new(0),
            carrier: Cell::new("quic"),
            first_flight: Cell::new(false),
            path: Cell::new(None),
        })
    }

    pub(super) fn progress(&self) -> u64 {
        self.hooks.counters().written.bytes
    }

    /// Returns the capacity of this host, if a core (protocol state machine) divides it.
    pub(super) fn capacity(&self) -> Option<ReceiveCapacity> {
        self.part.shared.core.as_ref()?.capacity()
    }

    /// Returns whether an attempt reached the other side and then failed for good.
    pub(super) fn was_refused(&self) -> bool {
        self.refused.get()
    }

    pub(super) fn fallback_notice(&self, streams: u16) -> Notice {
        let port = match self.route.host() {
            Host::Daemon { port, .. } => {
                format!("UDP {} on the path", self.reach(&*self.hooks.observer).data_port(*port))
            }
            Host::Ssh { .. } => match self.options.reach.ports {
                Some((first, last)) => format!("UDP {first}-{last} on the path"),
                None => {
                    let ports = CallOption::Ports;
                    format!("a range of UDP ports on the path, and name it with {ports}")
                }
            },
        };
        let carrier = match self.carrier.get() {
            "ssh" => THROUGH_SSH.to_owned(),
            _ if streams == 0 => "the control stream".to_owned(),
            _ => format!("{streams} TCP streams"),
        };
        Notice::Fallback { carrier, advice: format!("for full speed open {port}") }
    }

    fn reach<'b>(&'b self, observer: &'b dyn Observer) -> Reach<'b> {
        reach(self.options, self.route, &self.identity, observer)
    }

    /// Moves the start of the copy by the time that the user took to decide whether to trust the
    /// server.
    fn begin_after(&mut self, waited: Duration) {
        let nanos = waited.as_nanos() as u64;
        self.started = Time::from_nanos(self.started.as_nanos().saturating_add(nanos));
        self.hooks.state.borrow_mut().started += waited;
    }

    /// Returns how to search for the datagram size. After the first session, further attempts wait
    /// for the result: the path may have changed, and the earlier size may be too large.
    fn size_search(&self, transport: Transport<'_>) -> SizeSearch {
        match transport {
            _ if self.options.datagram.is_some() => SizeSearch::No,
            Transport::Datagrams(_) if self.again => SizeSearch::Whole,
            Transport::Datagrams(_) => SizeSearch::DuringHandshake,
            Transport::Streams(_) => SizeSearch::No,
        }
    }

    pub(super) async fn run(&mut self, transport: Transport<'_>) -> Result<Finished, End> {
        self.hooks.begin_attempt();
        // Walk the source first. An error in the source must not be mistaken for an error of the
        // network.
        let clear = transport.is_datagrams() && self.options.cipher == Cipher::None;
        let prepared = self.source().await?.map(|source| prepare(source, false, clear));
        let (description, payloads) = prepared.transpose()?.unzip();
        let opening = description.as_ref().zip(payloads).map(|(d, p)| Opening::new(d, p));
        let cancel = self.hooks.cancel.clone();
        let observer = self.hooks.observer.clone();
        let question = TimedQuestion::new(&*observer);
        let (reach, settings) = (self.reach(&question), self.settings(transport));
        let ready = self.part.reached.take();
        let mut reached = match ready {
            Some(reached) => reached,
            None => {
                tokio::select! {
                    reached = self.open(&reach, transport, &settings, opening.as_ref()) => reached?,
                    () = cancel.wished() => return Err(End::Fatal(interrupted())),
                }
            }
        };
        let first = opening.and_then(Opening::into_first);
        self.begin_after(question.waited());
        let needed = match self.options {
            CopyOptions { delete: Some(_), .. } if self.hooks.sends => Some(control::DELETES),
            CopyOptions { make_path: true, .. } => Some(control::MAKES_PATHS),
            CopyOptions { part: Some(_), .. } => Some(control::TAKES_PARTS),
            _ => None,
        };
        if let Some(version) = needed {
            reached.session.ask_for(control::SERVICE, version);
        }
        let session = &reached.session;
        self.carrier.set(session.carrier);
        self.hooks.observer.notice(Notice::Connected {
            peer: session.peer.to_string(),
            address: session.remote.to_string(),
            carrier: session.carrier,
        });
        if let Some(advice) = session.advice.clone().filter(|_| !self.again) {
            let carrier = THROUGH_SSH.to_owned();
            self.hooks.observer.notice(Notice::Fallback { carrier, advice });
        }
        let age = self.again.then_some(self.age);
        self.again = true;
        self.transfer(transport, reached, description.zip(first), age).await
    }

    /// Opens the session. Meanwhile, the first flight (data sent before the session is open) may
    /// leave.
    async fn open(
        &self,
        reach: &Reach<'_>,
        transport: Transport<'_>,
        settings: &Settings,
        opening: Option<&Opening<'_>>,
    ) -> Result<Reached, Error> {
        let ports = self.part.shared.ports.as_ref();
        let search = self.size_search(transport);
        let begun = reach.begin(ports, settings, search).await;
        let target = begun.as_ref().map(|begun| (begun.data.handle(), begun.contact));
        let mut flight = opening.zip(target);
        let mut reached = pin!(reach.open_begun(begun, ports, settings, search));
        let mut lead = pin!(tokio::time::sleep(LEAD));
        loop {
            tokio::select! {
                reached = &mut reached => return reached,
                () = &mut lead, if flight.is_some() => {
                    if let Some((opening, target)) = flight.take() {
                        self.take_off(transport, opening, target)?;
                    }
                }
            }
        }
    }

    /// Walks the source on a separate thread. Cancellation and the stall limit then work even if
    /// the disk hangs.
    async fn source(&self) -> Result<Option<Source>, End> {
        let Route::Push { sources, .. } = self.route else { return Ok(None) };
        let places: Vec<Place> =
            sources.iter().map(|path| self.options.place(path.clone())).collect();
        let filters = self.options.filters.clone();
        let watch = self.hooks.board.watch().clone();
        let recursive = self.options.recursive;
        let options = SourceOptions { recursive, filters, watch: watch.clone() };
        let memory = Box::new(self.part.shared.memory.list());
        let open = move || Source::open_within(&places, &options, memory);
        let mut walk = tokio::task::spawn_blocking(open);
        let mut tick = interval_at(Instant::now() + TICK, TICK);
        let opened = loop {
            tokio::select! {
                opened = &mut walk => break opened,
                _ = tick.tick() => self.hooks.tick().inspect_err(|_| watch.end())?,
            }
        };
        let ended = |_| Error::new(ErrorKind::Unfinished, "the walk over the source ended early");
        let source = opened.map_err(ended)??;
        for warning in source.warnings() {
            self.hooks.observer.notice(Notice::Warning(warning.clone()));
        }
        self.hooks.board.set_totals(source.manifest().bytes(), source.manifest().files());
        Ok(Some(source))
    }

    fn settings(&self, transport: Transport<'_>) -> Settings {
        Settings { carriers: transport.carriers(), ..Settings::default() }
    }

    async fn transfer(
        &mut self,
        transport: Transport<'_>,
        reached: Reached,
        source: Option<(Description, FirstPass)>,
        age: Option<Age>,
    ) -> Result<Finished, End> {
        let Reached { session, data, contact, datagram } = reached;
        let mut terms = self.terms(transport, &session, self.options.datagram.or(datagram))?;
        let (source, flow) = self.land(source, &mut terms).await?;
        let (stream_ends, streams) = mpsc::unbounded_channel();
        if session.carrier != "ssh" {
            self.open_streams(&terms, &session, stream_ends);
        }
        let _watch = terms.protocol.and_then(|_| self.watch_udp(&session));
        let mut wire = Wire::new(session, self.part.shared.memory.messages());
        wire.outbox().send(Message::Request(self.request(&terms, flow.0, age)));
        let block = terms.block(terms.datagram);
        let (suite, protocol, tries) = (terms.suite, terms.protocol, terms.try_streams);
        let result = match source {
            Some(source) => {
                let path = protocol.map(|_| Path::from(contact));
                self.send(&mut wire, terms, (data.handle(), path), flow, streams, source).await
            }
            None => self.receive(&mut wire, terms, &data.handle(), contact, streams, age).await,
        };
        let outcome_at = clock::now();
        match &result {
            Ok(_) | Err(End::NoDatagrams) => wire.leave().await,
            Err(End::Fatal(error)) => {
                self.refused.set(true);
                wire.close(Some(error)).await;
            }
            Err(End::Lost(_) | End::Busy(_)) => {}
        }
        let outcome = result?;
        self.hooks.ended(&outcome);
        if tries {
            self.hooks.tried_streams();
        }
        // A dry run reports the protocol of the real copy.
        let protocol = match &self.options.protocol {
            Protocol::Registry(name) if self.options.dry_run => Some(*name),
            _ => protocol.map(|row| row.name),
        };
        Ok(Finished {
            outcome,
            outcome_at,
            protocol: protocol.unwrap_or("tcp").to_owned(),
            cipher: protocol.map_or("tls", |_| suite.name()).to_owned(),
            block,
            fixed_rate: self.options.rate.is_some() || self.options.rate_limit.is_some(),
        })
    }

    async fn send(
        &self,
        wire: &mut Wire,
        terms: Terms,
        (port, path): (PortHandle, Option<Path>),
        flow: FlowId,
        streams: mpsc::UnboundedReceiver<Session>,
        (description, first): (Description, FirstPass),
    ) -> Result<Outcome, End> {
        let end = SendingRole {
            wire,
            terms,
            port,
            path,
            flow,
            board: self.hooks.board.clone(),
            streams,
            hooks: &self.hooks,
            decides: true,
            dry_run: self.options.dry_run,
            surveyed: false,
        };
        end.run(description, first).await
    }

    async fn receive(
        &self,
        wire: &mut Wire,
        terms: Terms,
        data: &PortHandle,
        contact: SocketAddr,
        streams: mpsc::UnboundedReceiver<Session>,
        age: Option<Age>,
    ) -> Result<Outcome, End> {
        let (Route::Pull { destination, .. }, Some(asked)) = (self.route, &self.asked) else {
            return Err(End::Fatal(Error::new(ErrorKind::Usage, "no destination")));
        };
        let options = self.options;
        let part = &self.part;
        let to = part.destination(destination, asked, options, age);
        let end = ReceivingRole {
            wire,
            terms,
            port: data.clone(),
            contact: Some(contact),
            board: self.hooks.board.clone(),
            streams,
            hooks: &self.hooks,
            memory: Arc::new(part.shared.memory.enter().await.map_err(lost_or_fatal)?),
            receive: options.receive,
            core: self.part.shared.core.clone(),
            writer: self.part.shared.writer_of(self.part.number).cloned(),
            decides: true,
        };
        let Received { outcome, mark } = end.run(to).await?;
        mark.map_or(Ok(()), Mark::remove)?;
        Ok(outcome)
    }

    fn terms(
        &self,
        transport: Transport<'_>,
        session: &Session,
        datagram: Option<u16>,
    ) -> Result<Terms, Error> {
        let options = self.options;
        let (protocol, streams) = match transport {
            Transport::Datagrams(_) if session.carrier == "ssh" => (None, 0),
            Transport::Datagrams(name) => {
                let unknown = || {
                    let names: Vec<_> = registry::all().iter().map(|row| row.name).collect();
                    let what = format!("there is no protocol {name}");
                    Error::new(ErrorKind::Usage, what)
                        .advise(format!("choose {}", names.join(", ")))
                };
                (Some(registry::find(name).ok_or_else(unknown)?), 0)
            }
            Transport::Streams(_) if session.carrier == "ssh" => (None, 0),
            Transport::Streams(streams) => (None, u32::from(streams)),
        };
        let measured = session.rtt.unwrap_or(Duration::from_millis(100));
        let peer = session.remote.ip();
        let datagram = datagram.unwrap_or_else(|| usual_datagram(peer));
        let rtt = Span::from_nanos(measured.as_nanos() as u64);
        let finds_rate = options.rate.is_none() && protocol.is_some();
        let receives = matches!(self.route, Route::Pull { .. });
        let memory = options.path_memory.as_ref();
        let path = finds_rate.then(|| UsedPath::find(memory, peer, receives, rtt));
        let terms = Terms {
            transfer: random_u64(),
            suite: Suite::choose(options.cipher, session.both_fast_aes),
            exporter: session.exporter(),
            flight: None,
            peer,
            protocol,
            settings: options.settings.clone(),
            streams,
            try_streams: streams > 0 && options.protocol == Protocol::TcpTried,
            rate: options.rate,
            rate_limit: options.rate_limit.map(|limit| self.part.shared.limit(limit, protocol)),
            remembered: path.and_then(|path| path.remembered),
            weight: options.weight,
            segment: options.segment.unwrap_or(DEFAULT_SEGMENT),
            datagram,
            rtt,
            card: protocol.and_then(|_| access::card_towards(peer, datagram)),
        };
        // The size is for the first flight of a later copy. If the session does not use the cipher
        // of first flights, the server could not use that flight.
        let size = (terms.suite == self.flight_suite()).then(|| (datagram, terms.block(datagram)));
        self.path.set(path.map(|path| path.with_size(size)));
        Ok(terms)
    }

    fn request(&self, terms: &Terms, flow: u32, age: Option<Age>) -> Request {
        let options = self.options;
        let bytes = |path: &FsPath| path.as_os_str().as_bytes().to_vec();
        let (direction, paths) = match self.route {
            Route::Push { destination, .. } => (Direction::Push, vec![bytes(destination)]),
            Route::Pull { sources, .. } => {
                (Direction::Pull, sources.iter().map(|path| bytes(path)).collect())
            }
        };
        Request {
            direction: direction.into(),
            paths,
            transfer: terms.transfer,
            flow,
            recursive: options.recursive,
            preserve: options.preserve,
            checksum: options.checksum,
            dry_run: options.dry_run,
            filters: options.filters.iter().map(FilterWire::from).collect(),
            protocol: terms.protocol.map_or("", |row| row.name).to_owned(),
            cipher: terms.suite.name().to_owned(),
            receive: receive_name(options.receive).to_owned(),
            rate_bps: options.rate.map_or(0, |rate| rate.as_bps()),
            rate_limit_bps: terms.rate_limit.map_or(0, |rate| rate.as_bps()),
            segment: options.segment.map(Bytes::get),
            datagram: u32::from(terms.datagram),
            rtt_nanos: terms.rtt.as_nanos(),
            streams: terms.streams,
            try_streams: terms.try_streams,
            names: options.names >= Names::Done,
            settings: terms.settings.iter().map(setting).collect(),
            surveyed: matches!(self.part.to, To::Replicas(_)),
            replaces: self.transfer.replace(terms.transfer),
            make_path: options.make_path,
            remembered_bps: terms.remembered.map_or(0, |path| path.rate.as_bps()),
            remembered_rtt_nanos: terms.remembered.map_or(0, |path| path.rtt.as_nanos()),
            remembered_loss_ppm: terms.remembered.map_or(0, |path| path.loss.ppm()),
            delete: options
                .delete
                .filter(|_| direction == Direction::Push)
                .map(|delete| DeleteWire { most: delete.most, age_nanos: age.map(nanos) }),
            share: Some(options.weight.flows()),
            flight_secret: terms.flight.as_ref().map(FlightSecret::tell).unwrap_or_default(),
            extent: options.part.map(|PartOfPipe { pipe, offset }| Extent { pipe, offset }),
        }
    }

    fn watch_udp(&self, session: &Session) -> Option<UdpWatchdog> {
        let knock = Knock { identity: self.identity.clone(), trust: self.options.trust.clone() };
        UdpWatchdog::begin(session, self.hooks.board.clone(), knock, self.hooks.udp_cut.clone())
    }

    /// Opens further sessions as data streams. Each must reach the same server id as `session`.
    fn open_streams(&self, terms: &Terms, session: &Session, ends: mpsc::UnboundedSender<Session>) {
        let trust = self.options.trust.only(session.peer.to_string());
        for _ in 0..terms.streams {
            let (identity, trust, ends) = (self.identity.clone(), trust.clone(), ends.clone());
            let settings = self.settings(Transport::Streams(1));
            let (host, port) = (zone::host(session.remote), session.remote.port());
            let transfer = terms.transfer;
            tokio::task::spawn_local(async move {
                let opened =
                    session::connect(&host, port, &identity, &trust, &ask_nobody, &settings).await;
                // If this session cannot be opened, the other sessions carry its share.
                let Ok(mut session) = opened else { return };
                let attach = Frame::from(Message::Attach(Attach { transfer }));
                if session.write(&attach).await.is_ok() {
                    let _ = ends.send(session);
                }
            });
        }
    }
}

fn nanos(age: Age) -> u64 {
    age.get().as_nanos().try_into().unwrap_or(u64::MAX)
}

fn setting((name, value): (&'static str, f64)) -> Setting {
    Setting { name: name.to_owned(), value: Some(value) }
}

fn receive_name(receive: Receive) -> &'static str {
    match receive {
        Receive::Naive => "naive",
        Receive::Scatter => "scatter",
        Receive::Fake => "fake",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Trust;
    use crate::progress::Nobody;
    use crate::write::budget::Budget;

    #[test]
    fn the_advice_for_blocked_udp_names_the_given_ports() {
        let config = tempfile::tempdir().unwrap();
        let config_dir = config.path().to_owned();
        let trust = Trust { config_dir, pins: Vec::new(), accept_new: false };
        let (from, to) = ("far:x".parse().unwrap(), "y".parse().unwrap());
        let mut options = CopyOptions::new(vec![from], to, trust);
        let mut advice = |ports| {
            options.reach.ports = ports;
            let routes = Route::all(&options).unwrap();
            let part = CopyPart::alone(Budget::new(options.memory).unwrap(), None);
            let (observer, cancel) = (Arc::new(Nobody), Cancel::default());
            let attempt = Attempt::new(&options, &routes[0], observer, cancel, part).unwrap();
            let Notice::Fallback { advice, .. } = attempt.fallback_notice(8) else {
                panic!("it is another notice")
            };
            advice
        };
        assert_eq!(advice(Some((4000, 4010))), "for full speed open UDP 4000-4010 on the path");
        assert!(advice(None).ends_with("and name it with `ports`"));
    }
}
