//! Many senders to one receiver, in one process. The number of the receiver's threads must not grow
//! with the number of senders.

mod lies;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use longhaul_proto::registry;
use longhaul_proto::units::Bytes;
use longhaul_testbed::alone;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{Sources, StartOne};
use crate::copy::copy;
use crate::location::Location;
use crate::options::{Allow, CopyOptions, OwnKey, Protocol, ServeOptions, SharedMemory, Trust};
use crate::progress::{Cancel, Nobody, Notice, Observer, Progress};
use crate::reach::route::Route;
use crate::serve::{Order, Protocols, serve};
use crate::session::Identity;
use crate::write::budget::Budget;

/// Number of senders. Each sender has its own address on loopback.
const SENDERS: u8 = 64;

fn content(number: u8) -> Vec<u8> {
    (0..200_000u32).map(|at| (at as u8).wrapping_mul(number)).collect()
}

/// Starts a server that allows only `client`. Returns the server's control port, and the guard that
/// keeps the server alive.
pub(super) fn server(
    protocols: Protocols,
    root: &Path,
    config: &Path,
    client: String,
) -> (u16, UnboundedSender<Order>) {
    let others = Vec::new();
    let allow = Allow { id: client, read: true, write: false, subfolder: None, others, name: None };
    let options = ServeOptions {
        listen: "0.0.0.0:0".parse().unwrap(),
        data_port: None,
        root: root.to_owned(),
        read_only: true,
        allow: vec![allow],
        key: OwnKey::In(config.to_owned()),
        once: false,
        allow_plain: false,
        memory: Bytes::mebi(64),
        ..ServeOptions::default()
    };
    let (told, ready) = mpsc::channel();
    let (handle, orders) = unbounded_channel();
    thread::spawn(move || {
        let ready = move |ready: crate::serve::Ready| told.send(ready.address.port()).unwrap();
        let _ = serve(protocols, options, Vec::new(), ready, Arc::new(|_| {}), orders);
    });
    (ready.recv().unwrap(), handle)
}

pub(super) fn options(config: &Path, sources: Vec<Location>, destination: &Path) -> CopyOptions {
    let trust = Trust { config_dir: config.to_owned(), pins: Vec::new(), accept_new: true };
    CopyOptions {
        protocol: Protocol::Registry(registry::of_many().name),
        memory: Bytes::mebi(64),
        datagram: Some(1400),
        ..CopyOptions::new(sources, Location::Local(destination.to_owned()), trust)
    }
}

#[derive(Default)]
struct Warnings(Mutex<Vec<String>>);

impl Observer for Warnings {
    fn progress(&self, _: &Progress) {}
    fn notice(&self, notice: Notice) {
        if let Notice::Warning(text) = notice {
            self.0.lock().unwrap().push(text);
        }
    }
    fn trust_new_server(&self, _: &str, _: &str) -> bool {
        true
    }
}

#[test]
fn a_memory_limit_too_small_for_all_sources_gives_a_warning_and_a_shared_limit_gives_an_error() {
    let there = |host: &str| Location::Daemon { host: host.into(), port: 9, path: "x".into() };
    let warnings = |shared_memory: Option<SharedMemory>| {
        let is_shared = shared_memory.is_some();
        let options = CopyOptions {
            memory: Bytes::mebi(32),
            shared_memory,
            ..options(Path::new("/"), vec![there("a"), there("b")], Path::new("x"))
        };
        let seen = Arc::new(Warnings::default());
        let observer: Arc<dyn Observer> = seen.clone();
        let routes = Route::all(&options).unwrap();
        let start: StartOne = |_, _, _, _, _| unreachable!("no source is started");
        let sources = Sources::new(&options, &routes, &observer, &Cancel::default(), start);
        let advice = sources.err().and_then(|error| error.advice);
        let needed = is_shared.then(|| "give it at least 64Mi, or copy from fewer".to_owned());
        assert_eq!(advice, needed);
        let seen = seen.0.lock().unwrap();
        seen.len()
    };
    let shared = SharedMemory::new(Budget::new(Bytes::mebi(32)).unwrap());
    assert_eq!([None, Some(shared)].map(warnings), [1, 0]);
}

fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    // A thread that has just ended has no name.
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(name).map(|name| name.trim().to_owned()).collect()
}

#[derive(Debug, Default)]
struct Threads {
    names: BTreeSet<String>,
    /// The maximum number of threads at a time, by the first word of their names.
    most: BTreeMap<String, usize>,
}

impl Threads {
    fn look(&mut self) {
        let mut counts = BTreeMap::<String, usize>::new();
        for name in threads() {
            let first = name.split_whitespace().next().unwrap_or_default();
            *counts.entry(first.to_owned()).or_default() += 1;
            self.names.insert(name);
        }
        for (first, count) in counts {
            let most = self.most.entry(first).or_default();
            *most = (*most).max(count);
        }
    }

    fn most(&self, first: &str) -> usize {
        self.most.get(first).copied().unwrap_or_default()
    }
}

/// The environment variable that is set in a process which runs only the test below.
const ALONE: &str = "LONGHAUL_TEST_ALONE";

#[test]
fn one_thread_receives_from_sixty_four_senders_and_four_threads_write() {
    if std::env::var_os(ALONE).is_some() {
        return receive_from_all();
    }
    // Runs in a separate process, because parallel tests have threads of the same names.
    let name = "many::tests::one_thread_receives_from_sixty_four_senders_and_four_threads_write";
    alone::assert_passed(&alone::command(name).env(ALONE, "1").output().unwrap());
}

fn receive_from_all() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = |name: &str| {
        let path = scratch.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let (root, here) = (folder("root"), folder("here"));
    let client = folder("client");
    let id = Identity::load_or_create(&client).unwrap().id().to_string();
    for number in 1..=SENDERS {
        fs::write(root.join(format!("part{number}")), content(number)).unwrap();
    }
    let (port, handle) = server(registry::find, &root, &folder("server"), id);
    let sources = (1..=SENDERS).map(|number| Location::Daemon {
        host: format!("127.0.0.{number}"),
        port,
        path: format!("part{number}").into(),
    });
    let options = options(&client, sources.collect(), &here);
    let over = Arc::new(AtomicBool::new(false));
    let watch = {
        let over = over.clone();
        thread::spawn(move || {
            let mut during = Threads::default();
            while !over.load(Ordering::Relaxed) {
                during.look();
                thread::sleep(Duration::from_millis(5));
            }
            during
        })
    };
    let summary = copy(options, Arc::new(Nobody), Cancel::default()).unwrap();
    over.store(true, Ordering::Relaxed);
    let during = watch.join().unwrap();
    drop(handle);
    assert_eq!((summary.files, summary.failed_sources), (u64::from(SENDERS), 0));
    for number in 1..=SENDERS {
        assert!(fs::read(here.join(format!("part{number}"))).unwrap() == content(number));
    }
    // One thread receives for the server, the other for the copy.
    assert_eq!((during.most("receive"), during.most("write")), (2, 4), "{during:?}");
    // Apart from the server's sending threads there are fewer threads than senders: fewer distinct
    // names, and fewer threads at a time with the same first word in their names.
    let is_other = |name: &&String| !name.starts_with("send");
    let others = during.names.iter().filter(is_other).count();
    assert!(others < usize::from(SENDERS), "{during:?}");
    let mut counts = during.most.iter().filter(|(first, _)| is_other(first));
    assert!(counts.all(|(_, count)| *count < usize::from(SENDERS)), "{during:?}");
}
