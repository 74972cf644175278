//! Many senders into one receiver, in one process: what grows with them, and what does not.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use longhaul_proto::registry::{self, Row};
use longhaul_proto::units::Bytes;

use crate::copy::copy;
use crate::location::Location;
use crate::options::{Allow, CopyOptions, Protocol, ServeOptions, Trust};
use crate::progress::{Cancel, Nobody};
use crate::serve::serve_by;
use crate::session::Identity;

/// Senders, each with an address of its own on loopback.
const SENDERS: u8 = 64;

fn content(number: u8) -> Vec<u8> {
    (0..200_000u32).map(|at| (at as u8).wrapping_mul(number)).collect()
}

/// A server of `root` on all addresses of this host, by these protocols; its control port.
pub(super) fn server(
    protocols: fn(&str) -> Option<&'static Row>,
    root: &Path,
    config: &Path,
    client: String,
    cancel: Cancel,
) -> u16 {
    let allow = Allow { id: client, read: true, write: false, subfolder: None };
    let options = ServeOptions {
        listen: "0.0.0.0:0".parse().unwrap(),
        data_port: None,
        root: root.to_owned(),
        read_only: true,
        allow: vec![allow],
        config_dir: config.to_owned(),
        once: false,
        allow_plain: false,
        memory: Bytes::mebi(64),
    };
    let (told, ready) = mpsc::channel();
    thread::spawn(move || {
        let ready = move |ready: crate::serve::Ready| told.send(ready.address.port()).unwrap();
        let _ = serve_by(protocols, options, ready, Arc::new(|_| {}), cancel);
    });
    ready.recv().unwrap()
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

/// How many threads of this process have each name, without numbers.
fn threads() -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let name = name.split_whitespace().next().unwrap_or_default().to_owned();
        *counts.entry(name).or_default() += 1;
    }
    counts
}

#[test]
fn sixty_four_senders_are_received_by_one_thread_and_written_by_four() {
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
    let cancel = Cancel::default();
    let port = server(registry::find, &root, &folder("server"), id, cancel.clone());
    // Tests beside this one have such threads too: only those that this one adds are counted.
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
            let mut most: BTreeMap<String, usize> = BTreeMap::new();
            while !over.load(Ordering::Relaxed) {
                for (name, count) in threads() {
                    let most = most.entry(name).or_default();
                    *most = (*most).max(count);
                }
                thread::sleep(Duration::from_millis(5));
            }
            most
        })
    };
    let summary = copy(options, Arc::new(Nobody), Cancel::default()).unwrap();
    over.store(true, Ordering::Relaxed);
    let most = watch.join().unwrap();
    cancel.cancel();
    assert_eq!((summary.files, summary.failed_sources), (u64::from(SENDERS), 0));
    for number in 1..=SENDERS {
        assert!(fs::read(here.join(format!("part{number}"))).unwrap() == content(number));
    }
    // The server's port, the client's, and whatever other tests are at: far from one a sender, but
    // for those with which the server sends.
    let others = most.iter().filter(|(name, _)| *name != "send");
    assert!(others.clone().all(|(_, count)| *count < usize::from(SENDERS)), "{most:?}");
    assert!(["receive", "write"].iter().all(|name| most.contains_key(*name)), "{most:?}");
}
