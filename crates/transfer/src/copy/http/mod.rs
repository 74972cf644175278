//! A copy of one file from an HTTP server: parallel ranges, with the same partial file and journal
//! (the list of written chunks) as any other copy.
//!
//! `readers` are the threads that read ranges. If the server published a digest, `checksum`
//! computes the same digest of the arrived content. The last chunk is written only if both digests
//! are equal, so a wrong file never gets its name. The journal belongs to one version, identified
//! by a strong ETag or a modification time; without either, an interrupted copy starts over.

mod checksum;
mod readers;

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_fetch::{self as fetch, Client, Kind, Remote, Url};
use longhaul_files::manifest::FileTime;
use longhaul_files::{Failure, Manifest, Plan, Sink, SinkOptions, digest};

use self::checksum::Checksum;
use self::readers::{ReaderEvent, Readers};
use super::take_up;
use super::to_files::{By, ToFiles};
use crate::error::{Error, ErrorKind};
use crate::location::Location;
use crate::many::part::sink_options;
use crate::notices::{self, interrupted, stalled};
use crate::options::{CopyOptions, Names, Protocol, Receive, TCP_STREAMS};
use crate::progress::{Cancel, Notice, Observer};
use crate::reach::transport::{FIRST_PAUSE, LONGEST_PAUSE};
use crate::summary::Summary;

/// Maximum number of versions to try, if the file changes during the copy.
const MOST_VERSIONS: u32 = 4;
/// Maximum number of successive passes without a lost connection. A pass reads all missing chunks.
/// Chunks that cannot be synced need another pass.
const MOST_PASSES: u32 = 4;
/// A connection that delivers no data for this long is retried; the stall limit applies instead if
/// it is shorter.
const SILENCE: Duration = Duration::from_secs(15);
/// How often a waiting copy checks for cancellation.
const TICK: Duration = Duration::from_millis(50);

/// Returns whether a source or the destination of the copy is an HTTP address.
pub(super) fn is_asked(options: &CopyOptions) -> bool {
    let mut ends = options.sources.iter().chain([&options.destination]);
    ends.any(|end| matches!(end, Location::Http { .. }))
}

pub(super) fn copy(
    options: CopyOptions,
    observer: Arc<dyn Observer>,
    cancel: &Cancel,
) -> Result<Summary, Error> {
    let url = &check(&options)?;
    if options.rate.is_some() || options.rate_limit.is_some() {
        let what = "a rate limit has no effect on a copy over HTTP";
        observer.notice(Notice::Warning(what.to_owned()));
    }
    let connections = match options.protocol {
        Protocol::Tcp { streams } => streams.max(1),
        _ => TCP_STREAMS,
    };
    let client = Client::new(
        url,
        &fetch::Options {
            token: options.token.clone(),
            allow_downgrade: options.allow_downgrade,
            silence: options.stall.min(SILENCE),
            connections: connections.into(),
        },
    )
    .map_err(error)?;
    // `None`: no stall limit for the whole copy. Each pass applies the limit, so the time between
    // two attempts does not count.
    ToFiles::run(options, observer, cancel, None, move |files| {
        Fetching { files, client, connections, lost_since: None, pause: FIRST_PAUSE }.run()
    })
}

fn check(options: &CopyOptions) -> Result<Url, Error> {
    let usage = |what: &str, advice: &str| Err(Error::new(ErrorKind::Usage, what).advise(advice));
    if matches!(options.destination, Location::Http { .. }) {
        let what = format!("a copy cannot write to {}", options.destination);
        return usage(&what, "use curl -T, or a server lh://host");
    }
    let [Location::Http { url, path }] = &options.sources[..] else {
        return usage("a copy over HTTP has one source", "copy one file at a time");
    };
    let is_plain = !options.replicas
        && options.input.is_none()
        && options.output.is_none()
        && options.delete.is_none()
        && options.receive != Receive::Fake;
    if !is_plain {
        return usage("a copy over HTTP copies one file to a file", "use a server of longhaul");
    }
    if !options.destination.is_local() {
        let what = "HTTP copies a file only to this host";
        return usage(what, "copy it to this host, then to the other one");
    }
    let to = options.destination.path();
    if path.as_os_str().is_empty()
        && (to.is_dir() || to.as_os_str().as_encoded_bytes().ends_with(b"/"))
    {
        return usage("the address ends without a file name", "name the file at the destination");
    }
    Url::parse(url).map_err(error)
}

struct Fetching<'a> {
    files: &'a ToFiles,
    client: Client,
    connections: u16,
    lost_since: Option<Instant>,
    pause: Duration,
}

enum Ended {
    Done(Box<Summary>),
    /// The server may have another version now.
    Changed,
}

impl Fetching<'_> {
    fn run(&mut self) -> Result<Summary, Error> {
        let mut remote = self.client.open().map_err(error)?;
        self.files.observer.notice(Notice::Connected {
            peer: self.client.url().host().to_owned(),
            address: remote.host().to_owned(),
            carrier: if remote.is_https() { "https" } else { "http" },
        });
        for left in (0..MOST_VERSIONS).rev() {
            match self.version(&mut remote)? {
                Ended::Done(summary) => return Ok(*summary),
                Ended::Changed if left == 0 => {}
                Ended::Changed => {
                    let why = match remote.version(&self.client) {
                        Some(_) => "has changed",
                        None => "has no ETag and no time, so it may have changed",
                    };
                    let what = format!("{} {why}; the copy starts again", self.client.url());
                    self.files.observer.notice(Notice::Warning(what));
                    remote = self.reopen()?;
                }
            }
        }
        let url = self.client.url();
        if remote.version(&self.client).is_none() {
            let what = format!("cannot resume {url}, which has no ETag and no time");
            return Err(Error::new(ErrorKind::RemoteFile, what).advise("try again"));
        }
        let what = format!("{url} changes all the time");
        Err(Error::new(ErrorKind::RemoteFile, what).advise("try again when no program writes it"))
    }

    fn version(&mut self, remote: &mut Remote) -> Result<Ended, Error> {
        let manifest = Arc::new(self.manifest(remote)?);
        let options = &self.files.options;
        let to = options.place(options.destination.path().to_owned());
        let with = SinkOptions {
            conceal: !options.checksum,
            modified: remote.modified().is_none().then(|| file_time(SystemTime::now())),
            ..sink_options(options)
        };
        let (mut sink, plan) = Sink::open(&to, &manifest, 0, &with, &self.files.watch)?;
        let resumed = self.planned(&mut sink, &manifest, plan)?;
        if options.dry_run {
            return self.dry_run(remote, &sink, &manifest, resumed);
        }
        let was_there = sink.is_skipped(0);
        let mut checksum = Checksum::new(remote.digest());
        let named = remote.version(&self.client);
        let mut passes = 0;
        while !sink.is_complete() {
            passes += 1;
            let result = self.pass(remote, &mut sink, &mut checksum, resumed);
            let lost = match result {
                // A sync failed, so chunks are missing again.
                Ok(()) if passes < MOST_PASSES => continue,
                Ok(()) => break,
                Err(Pass::Failed(error)) => return Err(error),
                Err(Pass::Changed) => return Ok(Ended::Changed),
                Err(Pass::Lost(reason)) => reason,
            };
            passes = 0;
            self.retry(&lost)?;
            *remote = self.reopen()?;
            // Without a strong ETag or a time, nothing shows that the file is still the same.
            if named.is_none() || remote.version(&self.client) != named {
                return Ok(Ended::Changed);
            }
        }
        // No chunk of an empty file arrives, so no pass has checked its digest.
        let is_due = !was_there || self.files.options.checksum;
        if remote.size() == 0 && is_due && !checksum.is_right(&mut sink, 0)? {
            return Err(self.differs(remote, &mut sink));
        }
        let is_verified = checksum.was_right();
        let walked: Vec<Failure> = Vec::new();
        let outcome = sink.finish()?;
        if outcome.unfinished > 0 {
            let what = format!("{} could not be synced to the disk", options.destination);
            return Err(Error::new(ErrorKind::LocalFile, what)
                .advise("run the same command again to resume"));
        }
        if !is_verified && !was_there {
            let what = match remote.digest() {
                None => "the server publishes no digest, so only the length was verified",
                Some(_) => "an earlier run has verified the file",
            };
            self.files.observer.notice(Notice::Warning(what.to_owned()));
        }
        self.files.made(&manifest, &outcome.named);
        let by = self.by(remote, is_verified);
        let summary = self.files.summary(by, &manifest, outcome, walked, resumed)?;
        Ok(Ended::Done(Box::new(summary)))
    }

    fn dry_run(
        &mut self,
        remote: &Remote,
        sink: &Sink,
        manifest: &Arc<Manifest>,
        resumed: u64,
    ) -> Result<Ended, Error> {
        let is_due = !sink.is_skipped(0);
        let mut outcome = longhaul_files::SinkOutcome::default();
        (outcome.files, outcome.skipped) = (u64::from(is_due), u64::from(!is_due));
        self.files.made(manifest, if is_due { &[0] } else { &[] });
        let by = self.by(remote, false);
        let summary = self.files.summary(by, manifest, outcome, Vec::new(), resumed)?;
        Ok(Ended::Done(Box::new(summary)))
    }

    fn by(&self, remote: &Remote, is_verified: bool) -> By {
        let cipher = if remote.is_https() { "tls" } else { "none" };
        By { protocol: "http", cipher, is_verified }
    }

    /// Without a time from the server, the manifest has a constant time, so that an interrupted
    /// copy can resume.
    fn manifest(&self, remote: &Remote) -> Result<Manifest, Error> {
        let url = self.client.url();
        let name = url.name().unwrap_or_else(|| b"download".to_vec());
        let stamp = |version: &str| {
            let hash = blake3::hash(version.as_bytes());
            u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("a hash is longer"))
        };
        let version = match remote.version(&self.client) {
            Some(version) => stamp(&version),
            None => crate::session::random_u64(),
        };
        let modified = remote.modified().map_or(FileTime::default(), file_time);
        Manifest::of_file(&name, remote.size(), modified, version).map_err(|error| {
            let what = format!("{url} cannot be a file here: {error}");
            Error::new(ErrorKind::RemoteFile, what)
        })
    }

    /// Returns the bytes that need not be copied. Content that would have to be compared with the
    /// source counts as different, because the server sends no hashes of chunks.
    fn planned(&self, sink: &mut Sink, manifest: &Manifest, plan: Plan) -> Result<u64, Error> {
        for compare in &plan.compare {
            sink.compare_result(compare.entry, &vec![false; compare.values.len()])?;
        }
        let observer = &self.files.observer;
        if self.files.options.names == Names::All {
            let skipped = notices::skipped(manifest, plan.skipped.into_iter());
            skipped.for_each(|notice| observer.notice(notice));
        }
        if plan.resumed_bytes > 0 {
            observer.notice(Notice::Resumed { bytes: plan.resumed_bytes });
        }
        self.files.planned(manifest, plan.resumed_bytes);
        Ok(plan.resumed_bytes)
    }

    fn pass(
        &mut self,
        remote: &Remote,
        sink: &mut Sink,
        checksum: &mut Checksum,
        resumed: u64,
    ) -> Result<(), Pass> {
        let (size, missing) = (remote.size(), sink.missing());
        let readers = Readers::start(&self.client, remote, &missing, self.connections)?;
        let stall = self.files.options.stall;
        let (mut seen, mut since, mut lost) = (0, Instant::now(), None);
        loop {
            let event = readers.next(TICK);
            if self.files.watch.is_over() {
                return Err(Pass::Failed(interrupted()));
            }
            match event {
                Ok(ReaderEvent::Chunk(chunk, content)) => {
                    self.lost_since = None;
                    self.pause = FIRST_PAUSE;
                    let is_last = sink.missing_chunks() == 1 && sink.needs(chunk);
                    checksum.take(sink, chunk, &content)?;
                    if is_last && !checksum.is_right(sink, size)? {
                        return Err(Pass::Failed(self.differs(remote, sink)));
                    }
                    let value = digest::file_value(size, chunk, &content);
                    sink.write_chunk(chunk, &content, &value)?;
                    self.files.wrote(sink, resumed);
                    readers.give_back(content);
                }
                Ok(ReaderEvent::Failed(error)) if error.kind == Kind::Lost => {
                    lost = Some(error.to_string())
                }
                Ok(ReaderEvent::Failed(error)) if error.kind == Kind::Changed => {
                    return Err(Pass::Changed);
                }
                // The target of a redirect may have expired, so request the first address again.
                Ok(ReaderEvent::Failed(error)) if remote.is_redirected() => {
                    lost = Some(error.to_string())
                }
                Ok(ReaderEvent::Failed(error)) => return Err(Pass::Failed(self::error(error))),
                Err(RecvTimeoutError::Timeout) => sink.tick(Instant::now())?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let come = readers.bytes();
            if come != seen {
                (seen, since) = (come, Instant::now());
            } else if since.elapsed() >= stall {
                return Err(Pass::Failed(stalled(stall, true)));
            }
        }
        // Chunks that cannot be synced count as missing again.
        sink.sync()?;
        match lost {
            Some(reason) if !sink.is_complete() => Err(Pass::Lost(reason)),
            _ => Ok(()),
        }
    }

    fn differs(&self, remote: &Remote, sink: &mut Sink) -> Error {
        let name = remote.digest().map_or("", |digest| digest.name());
        let what =
            format!("the content of {} does not have its published {name}", self.client.url());
        sink.fail_entry(0, &what);
        Error::new(ErrorKind::Verification, what).advise("run the same command again")
    }

    fn retry(&mut self, reason: &str) -> Result<(), Error> {
        take_up(&mut self.lost_since, &self.files.options, reason)?;
        self.files.observer.notice(Notice::Reconnecting { reason: reason.to_owned() });
        let until = Instant::now() + self.pause;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if self.files.watch.is_over() {
                return Err(interrupted());
            }
            thread::sleep(left.min(TICK));
        }
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    /// Opens the file at the server again; retries until the time for retries is over.
    fn reopen(&mut self) -> Result<Remote, Error> {
        loop {
            let failed = match self.client.open() {
                Ok(remote) => return Ok(remote),
                Err(failed) => failed,
            };
            match failed.kind {
                Kind::Lost | Kind::Unreachable => self.retry(&failed.to_string())?,
                _ => return Err(error(failed)),
            }
        }
    }
}

enum Pass {
    Failed(Error),
    Lost(String),
    Changed,
}

impl<E: Into<Error>> From<E> for Pass {
    fn from(error: E) -> Pass {
        Pass::Failed(error.into())
    }
}

fn error(error: fetch::Error) -> Error {
    let kind = match error.kind {
        Kind::Usage => ErrorKind::Usage,
        Kind::Unreachable | Kind::Lost => ErrorKind::Unreachable,
        Kind::File | Kind::Changed => ErrorKind::RemoteFile,
    };
    Error { advice: error.advice, ..Error::new(kind, error.what) }
}

fn file_time(time: SystemTime) -> FileTime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    FileTime { seconds: i64::try_from(since.as_secs()).unwrap_or(0), nanos: since.subsec_nanos() }
}
