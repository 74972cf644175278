//! The client's side of a remote file: it requests ranges before the bytes of earlier ranges have
//! arrived.
//!
//! The requested bytes that were not taken yet are limited ([`WINDOW`]). So the client always
//! reads the stream, and a slow reader blocks only its own file.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use crate::control::file::{
    self, FileAsk, FileData, FileOpened, FileRange, MOST_RANGES, PIECE, Portion, portions,
};
use crate::error::{Error, ErrorKind};
use crate::session::{Connection, FrameReader, FrameWriter, Session};
use longhaul_files::digest::{Digest, file_value};

/// Maximum bytes of a file that were requested and not yet taken: the data that a path of 1 Gbit/s
/// carries in 250 ms.
pub(crate) const WINDOW: usize = 32 << 20;
/// Reads of one file that may wait.
const WAITING: usize = 64;
/// Timeout for a server, which gives a sign of life every 5 s while it reads.
const SILENT: Duration = Duration::from_secs(30);

/// A file that is open at the server.
pub(crate) struct Opened {
    pub(crate) about: FileOpened,
    pub(crate) reads: mpsc::Sender<Read>,
}

/// Ranges to read, in order.
pub(crate) struct Read {
    pub(crate) ranges: VecDeque<Range<u64>>,
    pub(crate) tell: mpsc::UnboundedSender<Result<Bytes, Error>>,
}

/// The next bytes of a read. They count as taken when the permit is dropped.
pub(crate) struct Bytes {
    pub(crate) bytes: Vec<u8>,
    pub(crate) _credit: OwnedSemaphorePermit,
}

/// Opens the file at `path` on the `first` stream of the connection or a new one, sends the result
/// to `tell`, and serves reads until all handles are dropped.
pub(crate) async fn serve(
    connection: &Connection,
    first: Option<Session>,
    path: Vec<u8>,
    tell: oneshot::Sender<Result<Opened, Error>>,
) {
    let shown = longhaul_files::place::show(&path);
    let (about, session) = match open(connection, first, path).await {
        Ok(opened) => opened,
        Err(error) => {
            // The caller may have dropped its future.
            let _ = tell.send(Err(error));
            return;
        }
    };
    let (reads, mut wanted) = mpsc::channel(WAITING);
    let _ = tell.send(Ok(Opened { about, reads }));
    let (writer, reader) = session.split();
    let mut reading = Reading {
        size: about.size,
        shown,
        writer,
        reader,
        credit: Arc::new(Semaphore::new(WINDOW)),
        jobs: VecDeque::new(),
        asked: VecDeque::new(),
        part: Vec::new(),
    };
    let Err(error) = reading.run(&mut wanted).await else {
        let Reading { writer, reader, .. } = reading;
        let _ = writer.leave(reader).await;
        return;
    };
    let told = reading.asked.iter().map(|asked| &asked.tell);
    told.chain(reading.jobs.iter().map(|job| &job.tell)).for_each(|tell| {
        let _ = tell.send(Err(error.clone()));
    });
    drop(reading);
    while let Some(read) = wanted.recv().await {
        let _ = read.tell.send(Err(error.clone()));
    }
}

async fn open(
    connection: &Connection,
    first: Option<Session>,
    path: Vec<u8>,
) -> Result<(FileOpened, Session), Error> {
    let mut session = match first {
        Some(session) => session,
        None => connection.open(file::SERVICE, file::VERSION).await?,
    };
    session.ask_for(file::SERVICE, file::VERSION);
    session.write(&FileAsk { path, ranges: Vec::new() }).await?;
    let told = timeout(SILENT, session.read::<FileData>()).await.map_err(silent)??;
    let about = told.ok_or_else(early)?.opened.ok_or_else(wrong)?.check()?;
    Ok((about, session))
}

fn early() -> Error {
    Error::new(ErrorKind::Unfinished, "the server ended the read early")
}

fn silent<E>(_: E) -> Error {
    let what = format!("the server was silent for {} s", SILENT.as_secs());
    Error::new(ErrorKind::Unfinished, what)
}

/// A requested portion.
struct Asked {
    portion: Portion,
    credit: OwnedSemaphorePermit,
    tell: mpsc::UnboundedSender<Result<Bytes, Error>>,
}

struct Reading {
    size: u64,
    shown: String,
    writer: FrameWriter,
    reader: FrameReader,
    credit: Arc<Semaphore>,
    /// Reads whose ranges were not all requested yet.
    jobs: VecDeque<Read>,
    /// Requested portions, in order.
    asked: VecDeque<Asked>,
    /// The bytes so far of the first of them, if it is a whole chunk.
    part: Vec<u8>,
}

impl Reading {
    async fn run(&mut self, wanted: &mut mpsc::Receiver<Read>) -> Result<(), Error> {
        let mut is_wanted = true;
        loop {
            let next = self.next_portion();
            if !is_wanted && next.is_none() && self.asked.is_empty() {
                return Ok(());
            }
            // The limit lets both ends write before they read.
            let may_ask = next.is_some() && self.asked.len() < MOST_RANGES;
            let least = next.map_or(0, |portion| portion.len as u32);
            let credit = self.credit.clone();
            tokio::select! {
                read = wanted.recv(), if is_wanted && self.jobs.len() < WAITING => match read {
                    Some(read) => self.jobs.push_back(read),
                    None => is_wanted = false,
                },
                credit = credit.acquire_many_owned(least), if may_ask => {
                    self.ask(credit.map_err(|_| early())?).await?;
                }
                data = timeout(SILENT, self.reader.read::<FileData>()),
                    if !self.asked.is_empty() => {
                    self.take(data.map_err(silent)??.ok_or_else(early)?)?;
                }
            }
        }
    }

    /// Returns the next portion to request. Reads without a caller are dropped.
    fn next_portion(&mut self) -> Option<Portion> {
        loop {
            let job = self.jobs.front_mut()?;
            while job.ranges.front().is_some_and(Range::is_empty) {
                job.ranges.pop_front();
            }
            match job.ranges.front() {
                Some(range) if !job.tell.is_closed() => {
                    return portions(range.clone(), self.size).next();
                }
                _ => drop(self.jobs.pop_front()),
            }
        }
    }

    /// Requests the next portion, which has `credit`, and further portions as far as credit lasts.
    async fn ask(&mut self, credit: OwnedSemaphorePermit) -> Result<(), Error> {
        let (mut ranges, mut credit) = (Vec::<FileRange>::new(), Some(credit));
        while self.asked.len() < MOST_RANGES
            && let Some(portion) = self.next_portion()
        {
            let more = || self.credit.clone().try_acquire_many_owned(portion.len as u32).ok();
            let Some(credit) = credit.take().or_else(more) else { break };
            let job = &mut self.jobs[0];
            job.ranges[0].start = portion.end();
            let tell = job.tell.clone();
            self.asked.push_back(Asked { portion, credit, tell });
            let (offset, len) = (portion.start, portion.len as u64);
            match ranges.last_mut() {
                Some(last) if last.offset + last.len == offset => last.len += len,
                _ => ranges.push(FileRange { offset, len }),
            }
        }
        Ok(self.writer.write(&FileAsk { path: Vec::new(), ranges }).await?)
    }

    /// Takes the next bytes. Bytes of a whole chunk are passed on when it is complete and has the
    /// value that the server sent.
    fn take(&mut self, data: FileData) -> Result<(), Error> {
        let FileData { bytes, value, .. } = data;
        if bytes.is_empty() && value.is_empty() {
            return Ok(());
        }
        let asked = self.asked.front_mut().ok_or_else(wrong)?;
        let left = asked.portion.len - self.part.len();
        if bytes.is_empty() || bytes.len() > left.min(PIECE) {
            return Err(wrong());
        }
        let is_last = bytes.len() == left;
        let (bytes, len) = match (asked.portion.is_whole, is_last) {
            (false, _) => {
                asked.portion.len -= bytes.len();
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
                let chunk = asked.portion.chunk;
                let value: Digest = value.try_into().map_err(|_| wrong())?;
                if file_value(self.size, chunk, &whole) != value {
                    return Err(differs(&self.shown, asked.portion.start));
                }
                let len = whole.len();
                (whole, len)
            }
        };
        let _credit = asked.credit.split(len).ok_or_else(wrong)?;
        // The caller may have dropped its future.
        let _ = asked.tell.send(Ok(Bytes { bytes, _credit }));
        if is_last {
            self.asked.pop_front();
        }
        Ok(())
    }
}

fn wrong() -> Error {
    Error::new(ErrorKind::Unfinished, "the server sent unrequested data")
        .advise("use the same release of longhaul on both sides")
}

fn differs(shown: &str, at: u64) -> Error {
    let what = format!(
        "{shown}: the 1 MiB at byte {at} differ from the server's first read, although the file \
         has the same times"
    );
    Error::new(ErrorKind::Verification, what)
        .advise("check the server's disk; `touch` the file to accept its new content")
}
