//! Copies: runtimes, events, cancelling, resuming, trust, errors.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longhaul::units::Rate;
use longhaul::{Access, Client, ErrorKind, Event, Identity, Names, Trust, blocking};

use crate::rig::{Rig, noise, read_tree, until_bytes, url, write_tree};

/// A copy of this many bytes takes 2 s at [`SLOW`], long enough to interrupt it half-way.
const LARGE: usize = 48 << 20;
const SLOW: Rate = Rate::from_bps(200_000_000);

/// The journal of the file `x`: the list of the chunks that are on disk.
const JOURNAL: &str = ".x.lh-journal";
/// Bytes of a journal that lists some chunks.
const SOME_CHUNKS: u64 = 300;

async fn there_and_back() {
    let rig = Rig::new();
    write_tree(&rig.here("run"), 20, 3 << 20);
    let mut server = rig.server().start().await.expect("it listens");
    let client = rig.client();
    let push = client.copy([rig.here("run")], url(&server, "")).recursive(true);
    let mut push = push.names(Names::Done).start().expect("a valid address");
    let mut events = push.events();
    let (mut files, mut latest) = (0, None);
    while let Some(event) = events.next().await {
        match event {
            Event::FileDone { .. } => files += 1,
            Event::Progress(progress) => latest = Some(progress),
            _ => {}
        }
    }
    let summary = push.finish().await.expect("it is copied");
    assert_eq!((files, summary.copied_files, summary.verified), (21, 21, true));
    assert_eq!(latest.map(|progress| progress.total_bytes), Some(summary.bytes));
    assert_eq!(push.finish().await.expect("the same again").bytes, summary.bytes);
    let pull = client.copy([url(&server, "run")], rig.here("back")).recursive(true);
    pull.start().expect("a valid address").finish().await.expect("it is copied");
    assert_eq!(read_tree(&rig.here("back")), read_tree(&rig.here("run")));
    server.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_tree_is_copied_inside_a_runtime_of_one_thread() {
    there_and_back().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_copied_inside_a_runtime_of_many_threads() {
    tokio::spawn(there_and_back()).await.expect("the futures are Send");
}

#[test]
fn a_tree_is_copied_without_a_runtime() {
    blocking::wait(there_and_back());
}

async fn dropped_then_resumed(rig: &Rig, pull: bool) {
    let server = rig.server().start().await.expect("it listens");
    let client = rig.client();
    let (near, far) = (rig.here("x"), url(&server, "x"));
    fs::write(if pull { rig.there("x") } else { near.clone() }, noise(LARGE)).expect("a new file");
    let copy = || match pull {
        true => client.copy([&*far], near.display().to_string()),
        false => client.copy([near.display().to_string()], &*far),
    };
    let first = copy().rate_limit(Some(SLOW)).start().expect("a valid address");
    // Only chunks in the journal survive. Wait for the journal, because the disk may be slow.
    let journal = if pull { rig.here(JOURNAL) } else { rig.there(JOURNAL) };
    let mut events = first.events();
    while !fs::metadata(&journal).is_ok_and(|file| file.len() >= SOME_CHUNKS) {
        events.next().await.expect("the copy goes on");
    }
    drop(first);
    let summary = copy().start().expect("a valid address").finish().await.expect("it goes on");
    assert!(summary.resumed_bytes > 0, "{summary:?}");
    assert_eq!(fs::read(rig.here("x")).ok(), fs::read(rig.there("x")).ok());
}

#[tokio::test]
async fn a_dropped_pull_is_resumed_by_the_same_call() {
    dropped_then_resumed(&Rig::new(), true).await;
}

#[tokio::test]
async fn a_dropped_push_is_resumed_by_the_same_call() {
    dropped_then_resumed(&Rig::new(), false).await;
}

#[tokio::test]
async fn a_cancelled_copy_ends_with_an_error_that_is_resumable() {
    let rig = Rig::new();
    fs::write(rig.here("x"), noise(LARGE)).expect("a new file");
    let server = rig.server().start().await.expect("it listens");
    let copy = rig.client().copy([rig.here("x")], url(&server, "x")).rate_limit(Some(SLOW));
    let mut copy = copy.start().expect("a valid address");
    until_bytes(&mut copy.events(), 1).await;
    copy.cancel_handle().cancel();
    let error = copy.finish().await.expect_err("it was cancelled");
    assert_eq!((error.kind, error.is_resumable), (ErrorKind::Cancelled, true), "{error}");
}

#[tokio::test]
async fn a_slow_reader_of_events_loses_names_but_no_failure_and_does_not_block_the_copy() {
    const FAIL: usize = 40;
    let rig = Rig::new();
    write_tree(&rig.here("run"), 400, 1 << 20);
    // These files fail, because the destination has a non-empty folder of the same name.
    for number in 0..FAIL {
        fs::create_dir_all(rig.there(&format!("run/f{number}/full"))).expect("a new folder");
    }
    let server = rig.server().start().await.expect("it listens");
    let copy = rig.client().copy([rig.here("run")], url(&server, "")).recursive(true);
    let copy = copy.names(Names::Done).event_capacity(8).start();
    let mut copy = copy.expect("a valid address");
    let summary = copy.finish().await.expect("the other files are copied");
    assert_eq!(summary.failed_files, FAIL as u64);
    let (mut failed, mut lagged) = (0, 0);
    let mut events = copy.events();
    while let Some(event) = events.next().await {
        match event {
            Event::FileFailed { .. } => failed += 1,
            Event::Lagged(count) => lagged += count,
            _ => {}
        }
    }
    assert_eq!(failed, FAIL);
    assert!(lagged >= 300, "{lagged} events were dropped");
}

#[tokio::test]
async fn the_caller_decides_once_in_its_own_runtime_whether_to_trust_a_new_server() {
    let rig = Rig::new();
    fs::write(rig.here("x"), "x").expect("a new file");
    let server = rig.server().start().await.expect("it listens");
    let asked = Arc::new(AtomicUsize::new(0));
    let (count, expected) = (asked.clone(), server.id().to_owned());
    let client = rig.client_that(Trust::ask(move |new| {
        count.fetch_add(1, Ordering::Relaxed);
        let expected = expected.clone();
        async move {
            // Only a task of tokio may call this.
            tokio::time::sleep(Duration::from_millis(1)).await;
            new.id == expected
        }
    }));
    for name in ["a", "b"] {
        let copy = client.copy([rig.here("x")], url(&server, name));
        copy.start().expect("a valid address").finish().await.expect("it is trusted");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[test]
fn a_server_that_is_not_trusted_gets_nothing() {
    let rig = Rig::new();
    fs::write(rig.here("x"), "x").expect("a new file");
    let server = blocking::wait(rig.server().start()).expect("it listens");
    for trust in [Trust::nobody(), Trust::ask(async |_| false)] {
        let copy = rig.client_that(trust).copy([rig.here("x")], url(&server, "x"));
        let error = blocking::wait(copy.start().expect("a valid address").finish());
        assert_eq!(error.expect_err("nobody is trusted").kind, ErrorKind::Unreachable);
    }
    assert!(!rig.there("x").exists());
}

#[test]
fn an_invalid_call_is_refused_at_the_start() {
    let rig = Rig::new();
    let error = rig.client().copy(["lh://host:0/x"], ".").start().expect_err("no port");
    assert_eq!((error.kind, error.is_resumable), (ErrorKind::Usage, false));
    assert!(longhaul::Client::builder().build().is_err(), "a client needs an identity");
}

fn error_of(client: &Client, from: &str, to: &str) -> longhaul::Error {
    let ended = blocking::wait(async {
        let mut copy = client.copy([from], to).start()?;
        copy.finish().await
    });
    ended.expect_err("it cannot be copied")
}

fn end_of(client: &Client, from: &str, to: &str) -> (ErrorKind, Option<PathBuf>) {
    let error = error_of(client, from, to);
    (error.kind, error.path)
}

#[test]
fn an_error_names_the_file_that_failed() {
    let rig = Rig::new();
    let server = blocking::wait(rig.server().start()).expect("it listens");
    let client = rig.client();
    let here = |path: &str| rig.here(path).display().to_string();
    fs::write(rig.there("x"), noise(1000)).expect("a new file");
    fs::create_dir(rig.here("folder")).expect("a new folder");

    let missing = end_of(&client, &here("missing"), &url(&server, "y"));
    assert_eq!(missing, (ErrorKind::LocalFile, Some(rig.here("missing"))));
    let folder = end_of(&client, &here("folder"), &url(&server, "y"));
    assert_eq!(folder, (ErrorKind::Usage, Some(rig.here("folder"))));
    let nowhere = end_of(&client, &url(&server, "x"), &here("no/such/x"));
    assert_eq!(nowhere, (ErrorKind::LocalFile, Some(rig.here("no/such/x"))));
    // The message of a copy names the remote file; `path` is set only for files of this host.
    let there = end_of(&client, &url(&server, "missing"), &here("z"));
    assert_eq!(there, (ErrorKind::RemoteFile, None));
}

#[test]
fn an_error_of_a_call_about_one_remote_file_has_the_path_of_the_call() {
    let rig = Rig::new();
    blocking::wait(async {
        let server = rig.server().start().await.expect("it listens");
        let connection = rig.client().connect(url(&server, "")).await.expect("it connects");
        let opened = connection.open_file("no/such").await.expect_err("nothing is there");
        let mut names = connection.list("no/folder").await.expect("it is asked");
        let listed = names.next().await.expect("an error").expect_err("nothing is there");
        let found = [opened, listed].map(|error| (error.kind, error.path, error.is_missing));
        let expected = ["no/such", "no/folder"].map(|path| Some(PathBuf::from(path)));
        assert_eq!(found, expected.map(|path| (ErrorKind::RemoteFile, path, true)));
    });
}

#[test]
fn an_error_about_a_missing_source_or_a_missing_folder_of_a_client_says_so() {
    let rig = Rig::new();
    let start = || {
        let limited = Access::read_only().below("public");
        let server = rig.closed_server().allow(rig.client.id().to_string(), limited);
        blocking::wait(server.start())
    };
    let error = start().expect_err("the folder is missing");
    assert_eq!((error.kind, error.is_missing), (ErrorKind::LocalFile, true), "{error}");
    fs::create_dir(rig.there("public")).expect("a new folder");
    let mut server = start().expect("it listens");
    let (client, z) = (rig.client(), rig.here("z").display().to_string());
    let from_missing = |from: &str| {
        let error = error_of(&client, from, &z);
        (error.kind, error.is_missing)
    };
    let here = rig.here("missing").display().to_string();
    assert_eq!(from_missing(&here), (ErrorKind::LocalFile, true));
    assert_eq!(from_missing(&url(&server, "x")), (ErrorKind::RemoteFile, true), "no file");
    fs::create_dir(rig.there("public/folder")).expect("a new folder");
    let folder = from_missing(&url(&server, "folder"));
    assert_eq!(folder, (ErrorKind::Usage, false), "it is there");
    fs::remove_dir_all(rig.there("public")).expect("it is there");
    assert_eq!(from_missing(&url(&server, "x")), (ErrorKind::RemoteFile, true), "no folder");
    blocking::wait(server.shutdown(Duration::ZERO));
}

#[test]
fn an_error_names_the_key_that_cannot_be_used() {
    let rig = Rig::new();
    fs::write(rig.here("id"), "no key").expect("a new file");
    let error = Identity::load_or_create(rig.here("id")).expect_err("a file is no folder");
    assert_eq!(error.kind, ErrorKind::LocalFile);
    assert!(error.path.is_some_and(|path| path.starts_with(rig.here("id"))));
}
