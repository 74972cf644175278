//! The client's side of a remote file. It requests ranges before the bytes of earlier ranges have
//! arrived, and sends changes before the server has made earlier changes.
//!
//! A limit ([`WINDOW`]) applies to requested bytes until the program takes them. So the client can
//! always read the stream, and a slow program blocks only its own file. A change is sent only after
//! all requested bytes have arrived. Otherwise the client and the server could wait for each other
//! to read.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use crate::control::file::{
    self, Change, FileAsk, FileData, FileOpened, FileRange, MOST_RANGES, PIECE, Portion, portions,
};
use crate::error::{Error, ErrorKind};
use crate::progress::{Cancel, or_cancelled};
use crate::session::{Connection, FrameReader, FrameWriter, Session};
use longhaul_files::digest::{Digest, file_value};
use longhaul_proto::remembered::Remembered;

/// Maximum number of requested bytes of a file that the program has not taken yet: about as much as
/// a path of 1 Gbit/s carries in 270 ms.
pub(crate) const WINDOW: usize = 32 << 20;
/// Capacity of each of the two queues for a file's reads and changes: the channel to the task, and
/// the task's own queue. Also the maximum number of unanswered changes.
const WAITING: usize = 64;
/// Timeout for a server, which gives a sign of life every 5 s while it waits for its disk.
const SILENT: Duration = Duration::from_secs(30);
/// How long the server may leave a request unread.
const UNREAD: Duration = Duration::from_secs(60);

pub(crate) struct Opening {
    pub(crate) path: Vec<u8>,
    /// Whether to open the file for changes as well.
    pub(crate) edit: bool,
    /// Ranges to request in the same message. They may extend beyond the end of the file.
    pub(crate) early: Option<Read>,
}

pub(crate) struct Opened {
    pub(crate) about: FileOpened,
    /// The size after the last change that the server has made.
    pub(crate) len: Arc<AtomicU64>,
    pub(crate) jobs: mpsc::Sender<Job>,
}

pub(crate) enum Job {
    Read(Read),
    Change(Change, Made),
}

pub(crate) type Made = oneshot::Sender<Result<(), Error>>;

impl Job {
    fn fail(self, error: &Error) {
        // The caller may have dropped its future.
        match self {
            Job::Read(read) => drop(read.tell.send(Err(error.clone()))),
            Job::Change(_, made) => drop(made.send(Err(error.clone()))),
        }
    }
}

pub(crate) struct Read {
    pub(crate) ranges: VecDeque<Range<u64>>,
    pub(crate) tell: mpsc::UnboundedSender<Result<Bytes, Error>>,
}

/// The next bytes of a read. They count as taken when `_credit` is dropped.
pub(crate) struct Bytes {
    pub(crate) bytes: Vec<u8>,
    pub(crate) _credit: OwnedSemaphorePermit,
}

/// Opens a file on the `first` stream of the connection, or on a new stream. Sends the result to
/// `tell`, and serves calls until all handles are dropped or the work is cancelled.
pub(crate) async fn serve(
    connection: &Connection,
    first: Option<Session>,
    what: (Opening, Option<Remembered>),
    tell: oneshot::Sender<Result<Opened, Error>>,
    cancel: &Cancel,
) {
    let path = what.0.path.clone();
    let opened = or_cancelled(open(connection, first, what), cancel).await;
    let (about, mut reading) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let _ = tell.send(Err(advised(error, &path)));
            return;
        }
    };
    let (jobs, mut wanted) = mpsc::channel(WAITING);
    let _ = tell.send(Ok(Opened { about, len: reading.len.clone(), jobs }));
    let ended = tokio::select! {
        ended = reading.run(&mut wanted) => ended,
        () = cancel.wished() => Ok(()),
    };
    let Err(error) = ended else {
        let Reading { writer, reader, .. } = reading;
        let _ = writer.leave(reader).await;
        return;
    };
    let error = advised(error, &path);
    let Reading { requested, changes, jobs, .. } = reading;
    for requested in requested {
        let _ = requested.tell.send(Err(error.clone()));
    }
    for (made, _) in changes {
        let _ = made.send(Err(error.clone()));
    }
    jobs.into_iter().for_each(|job| job.fail(&error));
    while let Some(job) = wanted.recv().await {
        job.fail(&error);
    }
}

async fn open(
    connection: &Connection,
    first: Option<Session>,
    (Opening { path, edit, early }, remembered): (Opening, Option<Remembered>),
) -> Result<(FileOpened, Reading), Error> {
    let needs = match (edit, &early) {
        (_, Some(_)) => file::CLIPS,
        (true, None) => file::CHANGES,
        (false, None) => file::READS,
    };
    let mut session = match first {
        Some(session) => session,
        None => connection.open(file::SERVICE, needs).await?,
    };
    session.ask_for(file::SERVICE, needs);
    if edit {
        session.expect_bulk();
    }
    let clip = early.is_some();
    let mut reading = Reading::new(longhaul_files::place::show(&path), session, early);
    let ranges = reading.request(None);
    let mut ask = FileAsk { path, edit, ranges, clip, ..FileAsk::default() };
    if let Some(path) = remembered {
        ask.remember(path);
    }
    reading.ask(&ask).await?;
    let opened = loop {
        let told = timeout(SILENT, reading.reader.read::<FileData>()).await.map_err(silent)??;
        let told = told.ok_or_else(ended_early)?;
        if told != FileData::default() {
            break told.opened.ok_or_else(wrong)?;
        }
    };
    let about = opened.check()?;
    reading.has_size(about.size);
    Ok((about, reading))
}

fn ended_early() -> Error {
    Error::new(ErrorKind::Unfinished, "the server closed the file early")
}

fn silent<E>(_: E) -> Error {
    let what = format!("the server was silent for {} s", SILENT.as_secs());
    Error::new(ErrorKind::Unfinished, what)
}

/// Adds the path. If another attempt may succeed, adds advice to an error that has none.
fn advised(error: Error, path: &[u8]) -> Error {
    let error = error.at_requested(path);
    match (error.kind, &error.advice) {
        (ErrorKind::Unfinished, None) => {
            error.advise("check the server and the network, and open the file again")
        }
        _ => error,
    }
}

struct Requested {
    portion: Portion,
    /// The size of the file when the portion was requested.
    size: u64,
    credit: OwnedSemaphorePermit,
    tell: mpsc::UnboundedSender<Result<Bytes, Error>>,
}

struct Reading {
    /// The size after the changes that were sent.
    size: u64,
    /// The size after the changes that were made.
    len: Arc<AtomicU64>,
    shown: String,
    writer: FrameWriter,
    reader: FrameReader,
    credit: Arc<Semaphore>,
    /// Reads whose ranges were not all requested yet, and changes that were not sent.
    jobs: VecDeque<Job>,
    requested: VecDeque<Requested>,
    /// Changes that were sent and not made yet, in order, and the size after each.
    changes: VecDeque<(Made, u64)>,
    /// The bytes that have arrived of the first portion in `requested`, if it is a whole chunk.
    part: Vec<u8>,
}

impl Reading {
    /// Returns the state of a file that is not open yet, and whose size is unknown.
    fn new(shown: String, session: Session, early: Option<Read>) -> Reading {
        let (writer, reader) = session.split();
        Reading {
            size: u64::MAX,
            len: Arc::default(),
            shown,
            writer,
            reader,
            credit: Arc::new(Semaphore::new(WINDOW)),
            jobs: early.into_iter().map(Job::Read).collect(),
            requested: VecDeque::new(),
            changes: VecDeque::new(),
            part: Vec::new(),
        }
    }

    /// Leaves out all that was requested beyond the end of the file, as the server does.
    fn has_size(&mut self, size: u64) {
        self.size = size;
        self.len.store(size, Ordering::Relaxed);
        self.requested.retain_mut(|requested| {
            let Portion { start, .. } = requested.portion;
            let cut = portions(start..requested.portion.end().min(size), size).next();
            let Some(portion) = cut else { return false };
            // Give back the credit for the bytes that are left out.
            drop(requested.credit.split(requested.portion.len - portion.len));
            (requested.portion, requested.size) = (portion, size);
            true
        });
        for job in &mut self.jobs {
            let Job::Read(read) = job else { continue };
            for range in &mut read.ranges {
                *range = range.start.min(size)..range.end.min(size);
            }
        }
    }

    async fn run(&mut self, wanted: &mut mpsc::Receiver<Job>) -> Result<(), Error> {
        let mut is_wanted = true;
        loop {
            let next = self.next_portion();
            let may_change =
                next.is_none() && self.requested.is_empty() && self.changes.len() < WAITING;
            if may_change && let Some(Job::Change(change, made)) = self.jobs.pop_front() {
                self.send(change, made).await?;
                continue;
            }
            let is_idle = self.requested.is_empty() && self.changes.is_empty();
            if !is_wanted && is_idle && self.jobs.is_empty() {
                return Ok(());
            }
            // `MOST_RANGES` keeps unread requests short enough for the stream's buffers. So writing
            // a request does not block while the server writes data and reads no requests.
            let may_ask = next.is_some() && self.requested.len() < MOST_RANGES;
            let least = next.map_or(0, |portion| portion.len as u32);
            let credit = self.credit.clone();
            tokio::select! {
                job = wanted.recv(), if is_wanted && self.jobs.len() < WAITING => match job {
                    Some(job) => self.jobs.push_back(job),
                    None => is_wanted = false,
                },
                credit = credit.acquire_many_owned(least), if may_ask => {
                    let ranges = self.request(Some(credit.map_err(|_| ended_early())?));
                    self.ask(&FileAsk { ranges, ..FileAsk::default() }).await?;
                }
                data = timeout(SILENT, self.reader.read::<FileData>()),
                    if !is_idle => {
                    self.take(data.map_err(silent)??.ok_or_else(ended_early)?)?;
                }
            }
        }
    }

    /// Sends a change, unless the caller has dropped the future of the change.
    async fn send(&mut self, change: Change, made: Made) -> Result<(), Error> {
        if made.is_closed() {
            return Ok(());
        }
        match &change {
            Change::Write(at, bytes) => self.size = self.size.max(at + bytes.len() as u64),
            Change::SetLen(len) => self.size = *len,
            Change::Sync => {}
        }
        self.changes.push_back((made, self.size));
        self.ask(&FileAsk { change: Some(change.into()), ..FileAsk::default() }).await
    }

    /// Sends a request. If the stream has ended, the error is the server's reason, if there is one.
    async fn ask(&mut self, ask: &FileAsk) -> Result<(), Error> {
        let unread = |_| {
            let what = format!("the server read nothing for {} s", UNREAD.as_secs());
            Error::new(ErrorKind::Unfinished, what)
        };
        let sent = timeout(UNREAD, self.writer.write(ask)).await.map_err(unread)?;
        match sent {
            Ok(()) => Ok(()),
            Err(error) => Err(self.reason(error.into()).await),
        }
    }

    /// Returns the server's reason to end the stream, which comes after the results of earlier
    /// changes; `lost` if there is none.
    async fn reason(&mut self, lost: Error) -> Error {
        while let Ok(told) = timeout(SILENT, self.reader.read::<FileData>()).await {
            match told {
                Ok(Some(data)) => {
                    if let Err(error) = self.take(data) {
                        return error;
                    }
                }
                Ok(None) => break,
                Err(error) => return error.into(),
            }
        }
        lost
    }

    /// Returns the next portion to request, unless a change is next. Reads without a caller are
    /// dropped.
    fn next_portion(&mut self) -> Option<Portion> {
        loop {
            let Job::Read(job) = self.jobs.front_mut()? else { return None };
            while job.ranges.front().is_some_and(Range::is_empty) {
                job.ranges.pop_front();
            }
            match job.ranges.front() {
                Some(range) if range.end > self.size => {
                    let what = format!("{} was shortened before it was read", self.shown);
                    let _ = job.tell.send(Err(Error::new(ErrorKind::Unfinished, what)));
                }
                Some(range) if !job.tell.is_closed() => {
                    return portions(range.clone(), self.size).next();
                }
                _ => {}
            }
            self.jobs.pop_front();
        }
    }

    /// Returns the ranges to request: the next portion, for which the caller may already have the
    /// `credit`, and further portions as long as there is credit.
    fn request(&mut self, mut credit: Option<OwnedSemaphorePermit>) -> Vec<FileRange> {
        let mut ranges = Vec::<FileRange>::new();
        while self.requested.len() < MOST_RANGES
            && let Some(portion) = self.next_portion()
        {
            let more = || self.credit.clone().try_acquire_many_owned(portion.len as u32).ok();
            let Some(credit) = credit.take().or_else(more) else { break };
            let Some(Job::Read(job)) = self.jobs.front_mut() else { break };
            job.ranges[0].start = portion.end();
            let tell = job.tell.clone();
            self.requested.push_back(Requested { portion, size: self.size, credit, tell });
            let (offset, len) = (portion.start, portion.len as u64);
            match ranges.last_mut() {
                Some(last) if last.offset + last.len == offset => last.len += len,
                _ => ranges.push(FileRange { offset, len }),
            }
        }
        ranges
    }

    /// Takes the server's next data. Bytes of a whole chunk are passed on when the chunk is
    /// complete and its digest is the value that the server sent.
    fn take(&mut self, data: FileData) -> Result<(), Error> {
        let FileData { bytes, value, changed, .. } = data;
        if changed {
            let (made, size) = self.changes.pop_front().ok_or_else(wrong)?;
            self.len.store(size, Ordering::Relaxed);
            let _ = made.send(Ok(()));
        }
        if bytes.is_empty() && value.is_empty() {
            return Ok(());
        }
        let requested = self.requested.front_mut().ok_or_else(wrong)?;
        let left = requested.portion.len - self.part.len();
        if bytes.is_empty() || bytes.len() > left.min(PIECE) {
            return Err(wrong());
        }
        let is_last = bytes.len() == left;
        let (bytes, len) = match (requested.portion.is_whole, is_last) {
            (false, _) => {
                requested.portion.len -= bytes.len();
                let len = bytes.len();
                (bytes, len)
            }
            (true, false) => {
                self.part.extend(bytes);
                return Ok(());
            }
            (true, true) => {
                let mut whole = std::mem::take(&mut self.part);
                whole.extend(bytes);
                let chunk = requested.portion.chunk;
                let value: Digest = value.try_into().map_err(|_| wrong())?;
                if file_value(requested.size, chunk, &whole) != value {
                    return Err(differs(&self.shown, requested.portion.start));
                }
                let len = whole.len();
                (whole, len)
            }
        };
        let _credit = requested.credit.split(len).ok_or_else(wrong)?;
        let _ = requested.tell.send(Ok(Bytes { bytes, _credit }));
        if is_last {
            self.requested.pop_front();
        }
        Ok(())
    }
}

fn wrong() -> Error {
    Error::new(ErrorKind::Unfinished, "the server sent malformed or unrequested data")
        .advise("use the same release of longhaul on both sides")
}

fn differs(shown: &str, at: u64) -> Error {
    let what = format!(
        "{shown}: the bytes of the chunk at byte {at} differ from the server's first read, \
         although the file has the same times"
    );
    Error::new(ErrorKind::Verification, what)
        .advise("check the server's disk; `touch` the file to accept its new content")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::PeerId;
    use longhaul_files::CHUNK;

    fn reading(ranges: &[Range<u64>]) -> Reading {
        let (near, _) = tokio::io::duplex(1);
        let (input, out) = tokio::io::split(near);
        let (tell, _told) = mpsc::unbounded_channel();
        let early = Read { ranges: ranges.iter().cloned().collect(), tell };
        // A dropped receiver would end the read.
        std::mem::forget(_told);
        Reading::new("x".to_owned(), Session::over(PeerId([1; 32]), input, out), Some(early))
    }

    #[tokio::test]
    async fn a_request_that_cannot_be_written_fails_with_the_servers_reason() {
        let (near, far) = tokio::io::duplex(10_000);
        let session = |end| {
            let (input, out) = tokio::io::split(end);
            Session::over(PeerId([1; 32]), input, out)
        };
        let (tell, _told) = mpsc::unbounded_channel();
        let read = Read { ranges: std::iter::once(0..9).collect(), tell };
        let mut reading = Reading::new("x".to_owned(), session(near), Some(read));
        reading.has_size(9);
        let (writer, reader) = session(far).split();
        let why =
            longhaul_session::Error::new(longhaul_session::Kind::RemoteFile, "the disk broke");
        let (_jobs, mut wanted) = mpsc::channel(1);
        tokio::select! {
            biased;
            _ = writer.close(reader, Some(why)) => panic!("close waits for the client"),
            // The server has written its reason, and closes both directions.
            () = std::future::ready(()) => {}
        }
        let error = reading.run(&mut wanted).await.unwrap_err();
        assert!(error.what.contains("the disk broke"), "{error}");
    }

    fn requested(reading: &Reading) -> Vec<(u64, usize, bool)> {
        let portions = reading.requested.iter().map(|requested| requested.portion);
        portions.map(|portion| (portion.start, portion.len, portion.is_whole)).collect()
    }

    #[test]
    fn early_ranges_are_cut_at_the_end_of_the_file_when_its_size_arrives() {
        let mut reading = reading(&[5..9, 0..u64::MAX, 7 * CHUNK..8 * CHUNK]);
        let ranges = reading.request(None);
        // The second range is requested by whole chunks, until no further chunk fits into the
        // window.
        let wanted = [(5, 4), (0, WINDOW as u64 - CHUNK)];
        assert_eq!(
            ranges.iter().map(|range| (range.offset, range.len)).collect::<Vec<_>>(),
            wanted
        );
        assert_eq!(reading.credit.available_permits() as u64, CHUNK - 4);
        reading.has_size(2 * CHUNK + 10);
        let (mega, start) = (CHUNK as usize, 2 * CHUNK);
        let all = [(5, 4, false), (0, mega, true), (CHUNK, mega, true), (start, 10, true)];
        assert_eq!(requested(&reading), all);
        assert_eq!(reading.credit.available_permits(), WINDOW - 2 * mega - 14);
        assert!(reading.next_portion().is_none(), "nothing else is in the file");
        let empty = {
            reading.has_size(0);
            requested(&reading)
        };
        assert!(empty.is_empty() && reading.credit.available_permits() == WINDOW);
    }
}
