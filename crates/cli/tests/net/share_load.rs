//! The shared tree under load: each change reaches each watcher.
//!
//! `results/figures.sh sharing` runs this test with other servers and loads. `LONGHAUL_SHARE_LOAD`
//! has the load as `SERVER HOST PORT ID PID WATCHERS WRITERS DEPTH RATE SECONDS CHANGES`. `SERVER`
//! is `longhaul`, `redis` or `etcd`. If `RATE` is 0, each writer has `DEPTH` unanswered changes in
//! flight; otherwise it makes `RATE` changes a second. A writer ends after `SECONDS`. If `CHANGES`
//! is not 0, a writer makes at most this many changes, each with a new key.

mod etcd;
mod redis;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use longhaul_share::messages::{Ask, Asked, Begin, Put, SERVICE, Tell, Told, VERSION, Watch};
use longhaul_transfer::options::{ServerPin, Trust};
use longhaul_transfer::session::trust::ask_nobody;
use longhaul_transfer::session::{
    FrameReader, FrameWriter, Identity, Session, Settings, connect, random_u64,
};
use tokio::sync::Notify;
use tokio::task::{LocalSet, spawn_local};

use super::room_load::cpu;
use crate::rig::Pair;

/// Bytes of a value.
const SIZE: usize = 64;
/// Number of keys that a writer changes in turn if `CHANGES` is 0.
const KEYS: u64 = 1000;
/// Time limit for the arrival of the last changes.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Clone, Debug, Default)]
struct Load {
    server: String,
    host: String,
    port: u16,
    /// The id of a longhaul server.
    id: String,
    /// The server's process; 0 if it is not measured.
    process: u32,
    config: PathBuf,
    watchers: u64,
    writers: u64,
    depth: u64,
    rate: u64,
    seconds: u64,
    changes: u64,
}

#[derive(Default)]
struct Seen {
    /// The delay of each value that a watcher received, in microseconds.
    delays: RefCell<Vec<u32>>,
    /// Snapshots that the server sent instead of changes.
    snapshots: Cell<u64>,
    came: Notify,
    last: Cell<Option<Instant>>,
}

impl Seen {
    fn note(&self, base: Instant, value: &[u8]) {
        let at = value[..8].try_into().map_or(0, u64::from_be_bytes);
        let delay = (base.elapsed().as_micros() as u64).saturating_sub(at);
        self.delays.borrow_mut().push(u32::try_from(delay).unwrap_or(u32::MAX));
        self.last.set(Some(Instant::now()));
        self.came.notify_one();
    }

    fn count(&self) -> u64 {
        self.delays.borrow().len() as u64
    }
}

trait Writer {
    async fn put(&mut self, key: &str, value: &[u8]);
    async fn flush(&mut self);
    /// Waits for answers, and returns their number. Cancel-safe.
    async fn answers(&mut self) -> u64;
}

/// Makes changes, and returns how many were acknowledged.
async fn write(mut writer: impl Writer, number: u64, load: Load, base: Instant) -> u64 {
    let (start, length) = (Instant::now(), Duration::from_secs(load.seconds));
    let mut tick = tokio::time::interval(Duration::from_millis(2));
    let (mut sent, mut done) = (0, 0);
    loop {
        let is_over = start.elapsed() >= length || (load.changes > 0 && sent == load.changes);
        if is_over && done == sent {
            return done;
        }
        let due = match load.rate {
            _ if is_over => sent,
            0 => done + load.depth,
            rate => (start.elapsed().as_secs_f64() * rate as f64) as u64,
        };
        let due = if load.changes > 0 { due.min(load.changes) } else { due };
        while sent < due {
            let place = if load.changes > 0 { sent } else { sent % KEYS };
            let mut value = [0; SIZE];
            value[..8].copy_from_slice(&(base.elapsed().as_micros() as u64).to_be_bytes());
            writer.put(&format!("load/{number}/{place}"), &value).await;
            sent += 1;
        }
        writer.flush().await;
        tokio::select! {
            more = writer.answers() => done += more,
            _ = tick.tick(), if load.rate > 0 => {}
        }
    }
}

async fn open(load: &Load) -> Session {
    let identity = Identity::load_or_create(&load.config).expect("the client has one");
    let pins = vec![ServerPin { server: None, id: load.id.clone() }];
    let trust = Trust { config_dir: load.config.clone(), pins, accept_new: false };
    let settings = Settings::default();
    let session = connect(&load.host, load.port, &identity, &trust, &ask_nobody, &settings).await;
    let mut session = session.expect("it answers");
    session.ask_for(SERVICE, VERSION);
    session
}

fn ask(asked: Asked) -> Ask {
    Ask { asked: Some(asked) }
}

struct Ours {
    writer: FrameWriter,
    reader: FrameReader,
    sent: u64,
}

impl Ours {
    async fn connect(load: &Load) -> Ours {
        let (mut writer, mut reader) = open(load).await.split();
        let begin = Begin { instance: random_u64(), first: true, seen: None };
        writer.write(&ask(Asked::Begin(begin))).await.expect("it reads");
        let told = reader.read::<Tell>().await.expect("it answers").and_then(|tell| tell.told);
        assert!(matches!(told, Some(Told::Begun(_))), "{told:?}");
        Ours { writer, reader, sent: 0 }
    }
}

impl Writer for Ours {
    async fn put(&mut self, key: &str, value: &[u8]) {
        self.sent += 1;
        let (id, value) = (self.sent * 2 + 1, Some(value.to_vec()));
        let put = Put { id, key: key.to_owned(), value, ..Put::default() };
        self.writer.queue(&ask(Asked::Put(put))).expect("it is short");
    }

    async fn flush(&mut self) {
        self.writer.flush().await.expect("it reads");
    }

    async fn answers(&mut self) -> u64 {
        match self.reader.read::<Tell>().await.expect("it answers").and_then(|tell| tell.told) {
            Some(Told::Answer(answer)) if answer.result == 0 => 1,
            other => panic!("{other:?}"),
        }
    }
}

/// Starts a watch. Returns after the first snapshot, which is not counted.
async fn watch(load: &Load, base: Instant, seen: Rc<Seen>) {
    let mut session = open(load).await;
    let watch = Watch { prefix: "load".to_owned(), anew: true, ..Watch::default() };
    session.write(&ask(Asked::Watch(watch))).await.expect("it reads");
    while !snapshot_ends(&session.read::<Tell>().await.expect("it answers")) {}
    spawn_local(async move {
        while let Ok(Some(tell)) = session.read::<Tell>().await {
            match tell.told {
                Some(Told::Part(part)) if part.is_snapshot => {
                    seen.snapshots.set(seen.snapshots.get() + u64::from(part.is_first));
                }
                Some(Told::Part(part)) => {
                    part.items.iter().flat_map(|item| &item.value).for_each(|value| {
                        seen.note(base, value);
                    });
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

fn snapshot_ends(tell: &Option<Tell>) -> bool {
    match tell.as_ref().and_then(|tell| tell.told.as_ref()) {
        Some(Told::Part(part)) => part.is_snapshot && part.is_last,
        other => panic!("{other:?}"),
    }
}

/// Runs a load; returns the number of acknowledged changes, and the seconds that they took.
async fn run(load: &Load, base: Instant, seen: &Rc<Seen>) -> (u64, f64) {
    for _ in 0..load.watchers {
        match load.server.as_str() {
            "redis" => redis::watch(load, base, seen.clone()).await,
            "etcd" => etcd::watch(load, base, seen.clone()).await,
            _ => watch(load, base, seen.clone()).await,
        }
    }
    let start = Instant::now();
    let writing: Vec<_> = (0..load.writers)
        .map(|number| {
            let load = load.clone();
            spawn_local(async move {
                match load.server.as_str() {
                    "redis" => {
                        let writer = redis::Redis::connect(&load).await;
                        write(writer, number, load, base).await
                    }
                    "etcd" => {
                        let writer = etcd::Etcd::connect(&load).await;
                        write(writer, number, load, base).await
                    }
                    _ => write(Ours::connect(&load).await, number, load, base).await,
                }
            })
        })
        .collect();
    let mut made = 0;
    for writer in writing {
        made += writer.await.expect("it writes");
    }
    let seconds = start.elapsed().as_secs_f64();
    let all = async {
        while seen.count() < made * load.watchers {
            seen.came.notified().await;
        }
    };
    // The wait has a limit, because a server may have skipped changes.
    let _ = tokio::time::timeout(PATIENCE, all).await;
    (made, seconds)
}

/// Runs a load, and prints a row of results.
#[allow(clippy::print_stderr, reason = "the numbers are for results/")]
async fn measure(load: &Load) {
    let (base, seen) = (Instant::now(), Rc::new(Seen::default()));
    let used = || if load.process == 0 { 0.0 } else { cpu(load.process) };
    let before = used();
    let (made, seconds) = run(load, base, &seen).await;
    let (cpu, came) = (used() - before, seen.count());
    let late = seen.last.get().map_or(0.0, |last| (last - base).as_secs_f64());
    let mut delays = seen.delays.take();
    delays.sort_unstable();
    let at = |share: f64| {
        let place = ((delays.len() as f64 * share) as usize).min(delays.len().saturating_sub(1));
        f64::from(delays.get(place).copied().unwrap_or(0)) / 1e3
    };
    eprintln!(
        "| {} | {} | {} | {:.0} | {came} | {:.1} % | {:.1} | {:.1} | {:.1} | {:.1} | {cpu:.1} | \
         {seconds:.1} | {late:.1} |",
        load.server,
        load.watchers,
        load.writers,
        made as f64 / seconds,
        came as f64 * 100.0 / (made * load.watchers).max(1) as f64,
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0),
    );
}

fn block_on(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    LocalSet::new().block_on(&runtime.expect("a runtime for the test"), work);
}

/// Parses `LONGHAUL_SHARE_LOAD`. The identity is in `LONGHAUL_CONFIG_DIR`.
fn named(text: &str) -> Option<Load> {
    let mut words = text.split_whitespace().map(str::to_owned);
    let config = std::env::var_os("LONGHAUL_CONFIG_DIR")?;
    let (server, host) = (words.next()?, words.next()?);
    let port = words.next()?.parse().ok()?;
    let (id, process) = (words.next()?, words.next()?.parse().ok()?);
    let mut number = || words.next()?.parse().ok();
    Some(Load {
        server,
        host,
        port,
        id,
        process,
        config: Path::new(&config).to_owned(),
        watchers: number()?,
        writers: number()?,
        depth: number()?,
        rate: number()?,
        seconds: number()?,
        changes: number()?,
    })
}

#[test]
fn each_change_of_several_writers_reaches_each_watcher() {
    if let Ok(text) = std::env::var("LONGHAUL_SHARE_LOAD") {
        return block_on(measure(&named(&text).expect("eleven words, and LONGHAUL_CONFIG_DIR")));
    }
    let file = tempfile::tempdir().expect("a folder");
    let tree = format!("--share={}", file.path().join("tree").display());
    let pair = Pair::with_rights(",share=rw", &[&tree, "--quiet"]);
    let (host, port) = pair.server.address.rsplit_once(':').expect("a server's address");
    let load = Load {
        server: "longhaul".to_owned(),
        host: host.to_owned(),
        port: port.parse().expect("a port"),
        id: pair.server.id.clone(),
        config: pair.client.config.clone(),
        watchers: 10,
        writers: 2,
        depth: 32,
        seconds: 60,
        changes: 500,
        ..Load::default()
    };
    block_on(async {
        let seen = Rc::new(Seen::default());
        let (made, _) = run(&load, Instant::now(), &seen).await;
        assert_eq!((made, seen.count(), seen.snapshots.get()), (1000, 10_000, 0));
    });
}
