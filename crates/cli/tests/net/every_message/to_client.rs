//! A hostile server that sends wrong messages to the real client.

use std::collections::VecDeque;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use longhaul_proto::time::Span;
use longhaul_transfer::control::{ChunkPiece, Frame, Message, Pass, Ping, Plan, Request};
use longhaul_transfer::copy::copy;
use longhaul_transfer::error::Error;
use longhaul_transfer::location::Location;
use longhaul_transfer::options::{CopyOptions, HostOptions, Protocol, ReachOptions, Trust};
use longhaul_transfer::probe::{ProbeOptions, probe};
use longhaul_transfer::progress::Cancel;
use longhaul_transfer::session::{self, Identity, Kind, Listener, Session, Settings};
use longhaul_transfer::summary::Summary;

use super::{LEN, Lie, NAME, all_lies, content, control_lies, digests, manifest};
use crate::net::liar::{Nobody, offer};
use crate::rig::{DEADLINE, scratch};

/// The moment of a lie (a wrong message). The sender of a copy offers its list of files. The
/// receiver answers with a plan: the chunks that it has. A replica answers a survey with the hashes
/// of its chunks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// Instead of an offer.
    Pull,
    /// After the offer and the announcement of a pass, if datagrams carry the chunks.
    ByDatagrams,
    /// After the offer and the announcement of a pass, if streams carry the chunks; the rest of the
    /// copy is honest.
    Whole,
    /// Instead of a plan.
    Push,
    /// After the plan.
    Planned,
    /// Instead of the answer to `Survey`.
    Surveyed,
}

impl Moment {
    fn pulls(self) -> bool {
        !matches!(self, Moment::Push | Moment::Planned)
    }

    /// The messages of an honest server before this moment.
    fn before(self, request: &Request) -> Vec<Message> {
        let pass = |protocol: &str| {
            let (flow, protocol) = (request.flow, protocol.to_owned());
            Message::Pass(Pass { flow, block: super::BLOCK, protocol, ..Pass::default() })
        };
        let offer = || offer(manifest(), LEN as u64);
        match self {
            Moment::Pull | Moment::Push | Moment::Surveyed => Vec::new(),
            Moment::ByDatagrams => vec![offer(), pass("rbudp")],
            Moment::Whole => vec![offer(), pass("")],
            Moment::Planned => vec![Message::Plan(Plan::default())],
        }
    }

    /// The messages after the lie: for [`Moment::Whole`] the honest rest of the copy, otherwise
    /// none.
    fn after(self) -> Vec<Message> {
        if self != Moment::Whole {
            return Vec::new();
        }
        let bytes = content();
        let pieces = bytes.chunks(256 << 10);
        let last = pieces.len() - 1;
        let piece = |(at, bytes): (usize, &[u8])| {
            let offset = (at * (256 << 10)) as u32;
            let (bytes, last) = (bytes.to_vec(), at == last);
            Message::ChunkPiece(ChunkPiece { chunk: 0, offset, bytes, last })
        };
        let pieces = pieces.enumerate().map(piece);
        std::iter::once(Message::Digests(digests())).chain(pieces).collect()
    }

    /// Whether one session can take many lies, with a ping after each.
    fn takes_many(self) -> bool {
        !matches!(self, Moment::Whole | Moment::Surveyed)
    }
}

#[derive(Default)]
struct Script {
    lies: VecDeque<Lie>,
    last: String,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Script>>);

impl Shared {
    fn with<T>(&self, work: impl FnOnce(&mut Script) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn next(&self) -> Option<Message> {
        self.with(|script| {
            let lie = script.lies.pop_front()?;
            script.last = lie.named;
            Some(lie.message)
        })
    }
}

/// The reason that the server gives when it ends a session of lies.
const NO_MORE: &str = "no more lies";

/// Starts a server whose sessions send the lies of `shared`; returns its address and id.
fn hostile(moment: Moment, shared: Shared) -> (SocketAddr, String) {
    let (ready, is_ready) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime for the test");
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let identity = Identity::generate();
            let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
            let mut listener =
                Listener::bind(anywhere, &identity, &Settings::default()).expect("a free port");
            let _ = ready.send((listener.local_addr(), identity.id().to_string()));
            let shared = Rc::new(shared);
            loop {
                let (session, shared) = (listener.accept().await, shared.clone());
                tokio::task::spawn_local(async move { lie(session, moment, &shared).await });
            }
        });
    });
    is_ready.recv_timeout(DEADLINE).expect("it listens")
}

async fn lie(mut session: Session, moment: Moment, shared: &Shared) {
    let first = session.read::<Frame>().await;
    let Ok(Some(Frame { message: Some(first) })) = first else { return };
    let request = match first {
        Message::Request(request) => request,
        Message::Survey(_) => Request::default(),
        Message::Probe(_) => return count(session, shared).await,
        // The client's additional streams get no lies.
        _ => return while let Ok(Some(_)) = session.read::<Frame>().await {},
    };
    let mut say = moment.before(&request);
    while let Some(lie) = shared.next() {
        say.push(lie);
        say.append(&mut moment.after());
        if moment != Moment::Surveyed {
            say.push(Message::Ping(Ping { answer: false }));
        }
        for message in say.drain(..) {
            if session.write(&Frame::from(message)).await.is_err() {
                break;
            }
        }
        let goes_on = moment != Moment::Surveyed && is_answered(&mut session, moment).await;
        if !goes_on || !moment.takes_many() {
            break;
        }
    }
    let _ = session.close(Some(session::Error::new(Kind::Usage, NO_MORE))).await;
}

/// Answers a probe, and each of its measurements, with the same count.
async fn count(mut session: Session, shared: &Shared) {
    let lie = shared.with(|script| script.lies.front().map(|lie| lie.message.clone()));
    let Some(lie) = lie else { return };
    let mut asked = true;
    loop {
        if asked && session.write(&Frame::from(lie.clone())).await.is_err() {
            return;
        }
        let Ok(Some(Frame { message: Some(heard) })) = session.read().await else { return };
        asked = matches!(heard, Message::ProbeRun(_) | Message::ProbeCount(_));
    }
}

/// Whether the client answers the ping after a lie. At [`Moment::Whole`] the copy can succeed even
/// after an answer, so this function waits for the end and returns false.
async fn is_answered(session: &mut Session, moment: Moment) -> bool {
    let mut answered = false;
    loop {
        match session.read::<Frame>().await {
            Ok(Some(Frame { message: Some(Message::Ping(Ping { answer: true })) })) => {
                answered = true;
            }
            Ok(Some(Frame { message: Some(Message::Outcome(_) | Message::PassEnd(_)) })) => {
                return false;
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return false,
        }
        if answered && moment != Moment::Whole {
            return true;
        }
    }
}

/// Runs one copy by the real client.
fn run(options: CopyOptions, shared: &Shared) -> Result<Summary, Error> {
    let (ended, has_ended) = mpsc::channel();
    thread::Builder::new()
        .name("net::every_message".to_owned())
        .spawn(move || {
            let result = copy(options, Arc::new(Nobody), Cancel::default());
            let _ = ended.send(result);
        })
        .expect("a thread can be started");
    match has_ended.recv_timeout(DEADLINE) {
        Ok(result) => result,
        Err(error) => {
            panic!("{}: the client does not end: {error}", shared.with(|s| s.last.clone()))
        }
    }
}

fn options(moment: Moment, folder: &Path, (address, id): &(SocketAddr, String)) -> CopyOptions {
    let there = |path: &str| Location::Daemon {
        host: address.ip().to_string(),
        port: address.port(),
        path: path.into(),
    };
    let here = |path: &str| Location::Local(folder.join(path));
    let trust = Trust {
        config_dir: folder.join("config"),
        pins: vec![longhaul_transfer::options::ServerPin { server: None, id: id.clone() }],
        accept_new: false,
    };
    let replicas = moment == Moment::Surveyed;
    let (sources, destination) = match moment {
        Moment::Push | Moment::Planned => (vec![here("object")], there(NAME)),
        Moment::Surveyed => (vec![there(NAME), there(&format!("second/{NAME}"))], here("copies")),
        _ => (vec![there(NAME)], here("copies")),
    };
    let protocol = match moment {
        Moment::Whole => Protocol::Tcp { streams: 1 },
        _ => Protocol::Registry("rbudp"),
    };
    CopyOptions {
        protocol,
        replicas,
        datagram: Some(1200),
        retry_for: Duration::ZERO,
        stall: Duration::from_secs(20),
        ..CopyOptions::new(sources, destination, trust)
    }
}

/// Tells all lies. After each lie the client must continue or end with an error of limited length.
/// After a pull that ends without an error, the client must have exactly the server's file, or no
/// file and a report that the file failed.
fn tell_all(moment: Moment, lies: Vec<Lie>) {
    let scratch = scratch();
    let folder = scratch.path();
    fs::create_dir(folder.join("copies")).expect("the scratch folder is ours");
    fs::write(folder.join("object"), content()).expect("there is room");
    fs::write(folder.join("outside"), b"outside").expect("there is room");
    let shared = Shared(Arc::default());
    shared.with(|script| script.lies = lies.into());
    let server = hostile(moment, shared.clone());
    let (mut whole, mut refused) = (0, 0);
    while shared.with(|script| !script.lies.is_empty()) {
        let result = run(options(moment, folder, &server), &shared);
        let last = shared.with(|script| script.last.clone());
        let made = made(&folder.join("copies"));
        match result {
            Ok(summary) if moment.pulls() => {
                whole += 1;
                let is_whole = made == [(NAME.to_owned(), content())];
                let is_failed = made.is_empty() && summary.failed_files > 0;
                assert!(is_whole || is_failed, "{moment:?}, {last}: {summary:?}");
            }
            Ok(_) => whole += 1,
            Err(error) => {
                refused += 1;
                // The limit has room for a path of 4096 bytes, each shown as 3 bytes, and a reason.
                let bounded = !error.what.is_empty() && error.what.len() < 3 * 4096 + 3000;
                assert!(bounded, "{moment:?}, {last}: {} bytes", error.what.len());
                // A server may report a file as failed after it has sent the whole file.
                let is_honest = made.is_empty() || made == [(NAME.to_owned(), content())];
                assert!(is_honest, "{moment:?}, {last}: {error}, and {} files", made.len());
            }
        }
        clear(&folder.join("copies"));
    }
    assert!(refused + whole > 1, "{moment:?}");
    assert_eq!(fs::read(folder.join("outside")).expect("it exists"), b"outside");
    let mut beside: Vec<_> = listed(folder).into_iter().map(|(name, _)| name).collect();
    beside.sort();
    assert_eq!(beside, ["config", "copies", "object", "outside"], "{moment:?}");
}

fn listed(folder: &Path) -> Vec<(String, std::path::PathBuf)> {
    let entries = fs::read_dir(folder).expect("it is there");
    let entry = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.expect("it can be read");
        (entry.file_name().to_string_lossy().into_owned(), entry.path())
    };
    entries.map(entry).collect()
}

fn made(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let is_final = |name: &str| {
        ![".lh-part", ".lh-small", ".lh-link", ".lh-journal", ".lh-tree"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    let files = listed(folder).into_iter().filter(|(name, _)| is_final(name));
    files.map(|(name, path)| (name, fs::read(path).unwrap_or_default())).collect()
}

fn clear(folder: &Path) {
    fs::remove_dir_all(folder).expect("it is ours");
    fs::create_dir(folder).expect("it is ours");
}

#[test]
fn a_pulling_client_survives_every_false_message_instead_of_the_offer() {
    tell_all(Moment::Pull, all_lies());
}

#[test]
fn a_pulling_client_survives_every_false_message_after_the_offer() {
    tell_all(Moment::ByDatagrams, all_lies());
}

#[test]
fn a_copy_that_completes_despite_false_messages_equals_the_servers_file() {
    tell_all(Moment::Whole, control_lies());
}

#[test]
fn a_pushing_client_survives_every_false_message() {
    tell_all(Moment::Push, all_lies());
    tell_all(Moment::Planned, all_lies());
}

#[test]
fn a_client_that_copies_from_replicas_survives_every_false_answer_to_a_survey() {
    let surveyed = control_lies().into_iter().filter(|lie| {
        matches!(lie.message, Message::Surveyed(_) | Message::Offer(_) | Message::Survey(_))
    });
    tell_all(Moment::Surveyed, surveyed.collect());
}

fn probe_of(lie: Lie) -> Result<(), Error> {
    let scratch = scratch();
    let shared = Shared(Arc::default());
    shared.with(|script| script.lies.push_back(lie));
    let server = hostile(Moment::Pull, shared);
    let CopyOptions { trust, key, sources, .. } = options(Moment::Pull, scratch.path(), &server);
    let options = ProbeOptions {
        host: HostOptions {
            location: sources[0].clone(),
            trust,
            key,
            reach: ReachOptions::default(),
            path_memory: None,
        },
        udp: false,
        app: false,
        tcp: true,
        rates: Vec::new(),
        span: Span::from_millis(1),
        datagram: Some(1200),
    };
    probe(&options, Arc::new(Nobody), &mut |_| {}, Cancel::default())
}

#[test]
fn a_probe_survives_every_count_that_a_server_reports() {
    let counts = control_lies().into_iter();
    let counts = counts.filter(|lie| matches!(lie.message, Message::ProbeCount(_)));
    let probe = |lie: Lie| (lie.named.clone(), thread::spawn(move || probe_of(lie)));
    let probes: Vec<_> = counts.map(probe).collect();
    assert!(probes.len() > 20, "{} counts", probes.len());
    for (named, probe) in probes {
        let ended = probe.join().unwrap_or_else(|_| panic!("{named}: the probe panicked"));
        let why = ended.err().map(|error| error.what);
        assert!(why.as_ref().is_none_or(|why| !why.is_empty()), "{named}");
    }
}
