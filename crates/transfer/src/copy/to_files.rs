//! A copy to files of this host from a source that needs no session.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_files::place::{as_path, show};
use longhaul_files::{Failure, Manifest, Sink, SinkOutcome, Watch};
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};

use crate::counters::process_time;
use crate::counters::recent::{Recent, over};
use crate::error::{Error, ErrorKind};
use crate::notices::{self, created, interrupted, shown, stalled};
use crate::options::CopyOptions;
use crate::progress::{Cancel, Notice, Observer, Progress};
use crate::summary::{Summary, hex};

/// Interval of progress reports, and of checks whether the copy was cancelled.
const TICK: Duration = Duration::from_millis(100);
/// How long a cancelled copy may take to write its journals (the lists of written chunks).
const GRACE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
pub(super) struct By {
    pub(super) protocol: &'static str,
    pub(super) cipher: &'static str,
    /// Whether the written content was compared with the source's digests.
    pub(super) is_verified: bool,
}

pub(super) struct ToFiles {
    pub(super) options: CopyOptions,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) watch: Watch,
    pub(super) started: Instant,
    pub(super) progress: Mutex<Progress>,
    /// Bytes at the destination.
    pub(super) bytes: AtomicU64,
    /// Files with their final name.
    pub(super) files: AtomicU64,
}

impl ToFiles {
    pub(super) fn new(options: CopyOptions, observer: Arc<dyn Observer>) -> ToFiles {
        ToFiles {
            options,
            observer,
            watch: Watch::default(),
            started: Instant::now(),
            progress: Mutex::default(),
            bytes: AtomicU64::new(0),
            files: AtomicU64::new(0),
        }
    }

    /// Runs `copy` on a separate thread, and reports the progress meanwhile. A call to a hanging
    /// disk may never return. So this function also returns if `copy` does not end soon after a
    /// cancellation, or makes no progress for the time `stall`.
    pub(super) fn run(
        options: CopyOptions,
        observer: Arc<dyn Observer>,
        cancel: &Cancel,
        stall: Option<Duration>,
        copy: impl FnOnce(&ToFiles) -> Result<Summary, Error> + Send + 'static,
    ) -> Result<Summary, Error> {
        let files = Arc::new(ToFiles::new(options, observer));
        let (send, ended) = mpsc::channel();
        let worker = files.clone();
        let begun = thread::Builder::new().name("copy".to_owned()).spawn(move || {
            let _ = send.send(copy(&worker));
        });
        begun.map_err(|error| Error::new(ErrorKind::Unfinished, error.to_string()))?;
        files.follow(&ended, cancel, stall)
    }

    fn follow(
        &self,
        ended: &mpsc::Receiver<Result<Summary, Error>>,
        cancel: &Cancel,
        stall: Option<Duration>,
    ) -> Result<Summary, Error> {
        let mut recent = Recent::default();
        let (mut last, mut moved) = (0, Instant::now());
        let mut cancelled: Option<Instant> = None;
        loop {
            match ended.recv_timeout(TICK) {
                Ok(Err(_)) if self.watch.is_over() => return Err(interrupted()),
                Ok(copied) => return copied,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new(ErrorKind::Unfinished, "the copy ended early"));
                }
            }
            if cancel.is_cancelled() {
                self.watch.end();
                if cancelled.get_or_insert_with(Instant::now).elapsed() >= GRACE {
                    return Err(interrupted());
                }
            }
            notices::of_files(&self.watch).for_each(|notice| self.observer.notice(notice));
            let count = self.watch.looked().saturating_add(self.bytes.load(Ordering::Relaxed));
            if count != last {
                (last, moved) = (count, Instant::now());
            }
            if let Some(stall) = stall.filter(|stall| moved.elapsed() >= *stall) {
                self.watch.end();
                return Err(stalled(stall, false));
            }
            self.observer.progress(&self.progress(&mut recent));
        }
    }

    /// Records the plan; `resumed` bytes exist already.
    pub(super) fn planned(&self, manifest: &Manifest, resumed: u64) {
        let mut progress = self.progress.lock().unwrap_or_else(|error| error.into_inner());
        (progress.total_bytes, progress.total_files) = (manifest.bytes(), manifest.files());
        progress.resumed_bytes = resumed;
        self.bytes.store(resumed, Ordering::Relaxed);
    }

    pub(super) fn wrote(&self, sink: &mut Sink, resumed: u64) {
        self.bytes.store(resumed.saturating_add(sink.bytes_written()), Ordering::Relaxed);
        self.files.store(sink.files_done(), Ordering::Relaxed);
        let named = sink.take_named();
        self.made(sink.object().manifest(), &named);
    }

    pub(super) fn made(&self, manifest: &Manifest, named: &[u32]) {
        for number in named {
            self.observer.notice(created(manifest, *number, &manifest.path(*number)));
        }
    }

    fn progress(&self, recent: &mut Recent) -> Progress {
        let known = self.progress.lock().unwrap_or_else(|error| error.into_inner()).clone();
        let bytes = self.bytes.load(Ordering::Relaxed).min(known.total_bytes);
        recent.note(Instant::now(), bytes);
        let rate_now = recent.rate();
        let left = Bytes::new(known.total_bytes - bytes);
        let moved = bytes.saturating_sub(known.resumed_bytes);
        Progress {
            bytes,
            files: self.files.load(Ordering::Relaxed),
            rate_now,
            rate_average: over(moved, self.started.elapsed()),
            setup: Some(Span::ZERO),
            left: (rate_now > Rate::ZERO && known.total_bytes > 0).then(|| left / rate_now),
            ..known
        }
    }

    pub(super) fn deleted(&self, names: &[Vec<u8>]) {
        for path in names {
            self.observer.notice(Notice::Deleted { path: shown(path) });
        }
    }

    /// Reports failures and returns the summary. Fails if the only file of the copy failed.
    pub(super) fn summary(
        &self,
        by: By,
        manifest: &Manifest,
        outcome: SinkOutcome,
        walked: Vec<Failure>,
        resumed: u64,
    ) -> Result<Summary, Error> {
        if outcome.kept_extra {
            self.observer.notice(notices::kept_extra());
        }
        let failures: Vec<Failure> = walked.into_iter().chain(outcome.failures).collect();
        if let (true, Some(failure)) = (manifest.is_single(), failures.first()) {
            let what = format!("cannot copy {}: {}", show(&failure.path), failure.reason);
            let error = Error::new(ErrorKind::LocalFile, what).at(as_path(&failure.path));
            return Err(error.advise("run the same command again"));
        }
        for Failure { path, reason, .. } in &failures {
            let (path, reason) = (shown(path), reason.clone());
            self.observer.notice(Notice::FileFailed { path, reason });
        }
        let elapsed = Span::from_nanos(self.started.elapsed().as_nanos() as u64);
        let failed_files = failures.len() as u64;
        let unread_files = if self.options.checksum { 0 } else { outcome.skipped };
        let settled = resumed.saturating_add(outcome.failed_bytes);
        let copied_bytes = manifest.bytes().saturating_sub(settled);
        Ok(Summary {
            bytes: manifest.bytes(),
            files: manifest.files(),
            copied_files: outcome.files,
            copied_bytes,
            links: outcome.links,
            folders: outcome.folders,
            deleted: outcome.deleted,
            elapsed,
            goodput: Bytes::new(copied_bytes) / elapsed,
            protocol: by.protocol.to_owned(),
            resumed_bytes: resumed,
            skipped_files: outcome.skipped,
            unread_files,
            failed_files,
            cipher: by.cipher.to_owned(),
            blake3: outcome.digest.and_then(|digest| hex(&digest)),
            verified: by.is_verified
                && !self.options.dry_run
                && failed_files == 0
                && unread_files == 0,
            cpu: process_time(),
            ..Summary::default()
        })
    }
}
