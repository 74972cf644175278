//! Copies between memory and a server.

use std::fs;
use std::future::{Future, IntoFuture, poll_fn};
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_io::AsyncRead;
use longhaul::units::{Bytes, Rate};
use longhaul::{CallOption, Client, ErrorKind, Event, MemoryFolder, ServerEvent, Trust, blocking};

use crate::rig::{Rig, noise, url};

/// A reader of unknown length, which is pending before every piece.
struct Slow {
    content: Vec<u8>,
    at: usize,
    is_ready: bool,
}

impl Slow {
    fn new(content: Vec<u8>) -> Slow {
        Slow { content, at: 0, is_ready: false }
    }
}

impl AsyncRead for Slow {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.is_ready = !self.is_ready;
        if self.is_ready {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let left = &self.content[self.at..];
        let len = left.len().min(buf.len()).min(7_001);
        buf[..len].copy_from_slice(&left[..len]);
        self.at += len;
        Poll::Ready(Ok(len))
    }
}

#[test]
fn written_bytes_are_read_back() {
    blocking::wait(async {
        let rig = Rig::new();
        let mut server = rig.server().start().await.expect("it listens");
        let client = rig.client();
        // An empty file, files shorter than a chunk (1 MiB), and a file of several chunks.
        for size in [0, 1, 70_000, (9 << 20) + 5] {
            let content = noise(size);
            let there = url(&server, "x");
            let summary = client.write(&content[..], &there).await.expect("it is written");
            assert!(summary.verified && summary.copied_files == 1, "{size} bytes: {summary:?}");
            assert_eq!(fs::read(rig.there("x")).expect("it is there"), content, "{size} bytes");
            assert!(client.read(&there).await.expect("it is read") == content, "{size} bytes");
            fs::remove_file(rig.there("x")).expect("it is there");
        }
        server.shutdown(Duration::ZERO).await;
    });
}

#[test]
fn a_reader_is_written_to_its_end() {
    blocking::wait(async {
        let rig = Rig::new();
        let server = rig.server().start().await.expect("it listens");
        let content = noise(300_000);
        let reader = Slow::new(content.clone());
        rig.client().write(reader, url(&server, "x")).await.expect("it is written");
        assert_eq!(fs::read(rig.there("x")).expect("it is there"), content);
    });
}

/// A reader that delivers some bytes and is then pending forever. Dropping it waits up to 1 s for
/// the file `there`, so that a transfer that wrongly continues without its reader has the time to
/// write the file.
struct Stuck {
    content: Option<Vec<u8>>,
    is_stuck: Arc<AtomicBool>,
    there: PathBuf,
}

impl AsyncRead for Stuck {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Some(content) = self.content.take() else {
            self.is_stuck.store(true, Ordering::Relaxed);
            return Poll::Pending;
        };
        buf[..content.len()].copy_from_slice(&content);
        Poll::Ready(Ok(content.len()))
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        let begun = Instant::now();
        while !self.there.exists() && begun.elapsed() < Duration::from_secs(1) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_write_dropped_before_the_end_of_its_reader_leaves_no_file() {
    blocking::wait(async {
        let rig = Rig::new();
        let mut server = rig.server().start().await.expect("it listens");
        let (there, is_stuck) = (rig.there("x"), Arc::<AtomicBool>::default());
        let reader = Stuck { content: Some(noise(100)), is_stuck: is_stuck.clone(), there };
        let mut write = rig.client().write(reader, url(&server, "x")).into_future();
        poll_fn(|context| {
            assert!(write.as_mut().poll(context).is_pending());
            context.waker().wake_by_ref();
            if is_stuck.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        drop(write);
        server.shutdown(Duration::from_secs(10)).await;
        assert!(!rig.there("x").exists());
    });
}

#[test]
fn a_reader_beyond_the_limit_writes_no_file() {
    blocking::wait(async {
        let rig = Rig::new();
        let server = rig.server().start().await.expect("it listens");
        let reader = Slow::new(noise(100_001));
        let write = rig.client().write(reader, url(&server, "x")).max_bytes(100_000);
        let error = write.await.expect_err("too much");
        assert_eq!((error.kind, error.options()), (ErrorKind::Usage, vec![CallOption::MaxBytes]));
        assert!(!rig.there("x").exists());
    });
}

#[test]
fn a_file_larger_than_the_limit_is_refused_and_a_file_of_the_limits_size_is_read() {
    blocking::wait(async {
        let rig = Rig::new();
        let server = rig.server().start().await.expect("it listens");
        let (client, there) = (rig.client(), url(&server, "x"));
        let content = noise(9 << 20);
        fs::write(rig.there("x"), &content).expect("a new file");
        let most = content.len() as u64;
        let error = client.read(&there).max_bytes(most - 1).await.expect_err("it is larger");
        assert_eq!(error.kind, ErrorKind::LocalFile, "{error}");
        assert!(error.what().contains("into 9437183 bytes of memory"), "{error}");
        assert_eq!(error.advice(), Some("raise `max_bytes`"), "{error}");
        let sparse = fs::File::create(rig.there("sparse")).expect("a new file");
        sparse.set_len(300 << 20).expect("it has a hole");
        let error = client.read(url(&server, "sparse")).await.expect_err("it is larger");
        assert_eq!(error.options(), [CallOption::MaxBytes], "{error}");
        assert!(client.read(&there).max_bytes(most).await.expect("it fits") == content);
    });
}

#[test]
fn several_files_are_pulled_into_a_memory_folder_by_the_destination_dot() {
    blocking::wait(async {
        let rig = Rig::new();
        let server = rig.server().start().await.expect("it listens");
        fs::write(rig.there("a"), "one").expect("a new file");
        fs::write(rig.there("b"), "two").expect("a new file");
        let folder = MemoryFolder::new(1 << 20);
        let copy = rig.client().copy([url(&server, "a"), url(&server, "b")], ".");
        let mut copy = copy.local_files(&folder).start().expect("it starts");
        copy.finish().await.expect("it is copied");
        let taken = ["a", "b"].map(|name| folder.take(name.as_ref()));
        assert_eq!(taken, [Some(b"one".to_vec()), Some(b"two".to_vec())]);
    });
}

#[test]
fn folders_and_missing_files_cannot_be_read() {
    blocking::wait(async {
        let rig = Rig::new();
        let server = rig.server().start().await.expect("it listens");
        fs::create_dir(rig.there("folder")).expect("a new folder");
        for path in ["folder", "nothing"] {
            let error = rig.client().read(url(&server, path)).await.expect_err(path);
            assert!(error.what().contains(path), "{error}");
        }
    });
}

#[test]
fn a_future_that_is_dropped_cancels_its_transfer() {
    blocking::wait(async {
        let rig = Rig::new();
        let server = rig.server().start().await.expect("it listens");
        fs::write(rig.there("x"), noise(48 << 20)).expect("a new file");
        let (sender, receiver) = std::sync::mpsc::channel();
        let read = rig.client().read(url(&server, "x")).with(move |copy| {
            let slow = copy.rate(Some(Rate::from_bps(100_000_000)));
            slow.on_event(move |event| {
                if matches!(event, Event::Progress(progress) if progress.bytes > 0) {
                    // The test listens only for the first event.
                    let _ = sender.send(());
                }
            })
        });
        let mut read = Box::pin(read.into_future());
        let mut server_events = server.events();
        std::future::poll_fn(|context| match read.as_mut().poll(context) {
            Poll::Pending if receiver.try_recv().is_ok() => Poll::Ready(()),
            Poll::Pending => {
                // Ask for another poll at once: events of the transfer do not wake this future.
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(ended) => panic!("it ended too early: {:?}", ended.map(|b| b.len())),
        })
        .await;
        drop(read);
        loop {
            match server_events.next().await.expect("the server runs") {
                ServerEvent::Ended { error, .. } => return assert!(error.is_some()),
                _ => continue,
            }
        }
    });
}

#[test]
fn copies_of_a_client_share_its_memory() {
    let rig = Rig::new();
    let trust = || Trust::only(rig.server.id().to_string());
    let builder = || Client::builder().identity(rig.client.clone()).trust(trust());
    let error = builder().memory(Bytes::mebi(1)).build().expect_err("too little for a copy");
    assert_eq!(error.kind, ErrorKind::Usage);
    blocking::wait(async {
        let server = rig.server().start().await.expect("it listens");
        // A copy needs at least 32 MiB. 43 MiB are too little for two copies, so the second copy
        // waits for the first.
        let client = builder().memory(Bytes::mebi(43)).build().expect("enough for one copy");
        for name in ["x", "y"] {
            fs::write(rig.there(name), noise(9 << 20)).expect("a new file");
        }
        let copy = |name: &str| client.copy([url(&server, name)], rig.here(name)).start();
        let (mut x, mut y) = (copy("x").expect("it starts"), copy("y").expect("it starts"));
        x.finish().await.expect("it is copied");
        y.finish().await.expect("it is copied after the other");
        assert_eq!(fs::read(rig.here("y")).expect("it is there"), noise(9 << 20));
    });
}
