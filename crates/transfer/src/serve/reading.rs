//! The service of remote files: reads of ranges of one file, and changes in place.

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Server;
use super::counts::{Counted, Counts};
use super::dispatch::first;
use super::door::Access;
use super::events::{Moved, ServedClient};
use super::running::{Running, attend};
use crate::control::file::{
    self, Change, FileAsk, FileChange, FileData, FileOpened, PIECE, Portion, portions,
};
use crate::error::{Error, ErrorKind};
use crate::session::{PeerId, Service, Session, allow};
use longhaul_files::digest::Digest;
use longhaul_files::{ChunkValues, DiskPermits, RangeFile, Uncached};
use longhaul_proto::time::Span;

/// Maximum number of open files of all clients together.
const MOST: usize = 256;
/// Maximum number of open files of one client.
const MOST_OF_ONE: usize = 64;
/// Maximum number of streams whose connection gets a full send window (32 MiB), enough for a long
/// path. Other connections get an eighth of it.
const BULK: usize = 8;
/// Maximum number of cached chunk hashes, enough for 64 GiB of files.
const VALUES: usize = 64 << 10;
/// Maximum number of concurrent disk accesses.
const AT_DISK: usize = 16;
/// Interval of signs of life while the disk is slow.
const SIGN: Duration = Duration::from_secs(5);
/// Timeout for a client that does not read.
pub(super) const UNREAD: Duration = Duration::from_secs(60);

pub(super) struct Reading {
    server: Rc<Server>,
    open: Counts,
    disk: DiskPermits<PeerId>,
    bulk: Arc<Semaphore>,
    values: Arc<ChunkValues>,
}

/// The bytes of a portion (a piece of a range within one chunk), and the hash of its chunk if the
/// portion is a whole chunk.
struct Read {
    bytes: Vec<u8>,
    value: Option<Digest>,
}

impl Service for Reading {
    fn name(&self) -> &'static str {
        file::SERVICE
    }

    fn version(&self) -> u32 {
        file::VERSION
    }

    fn right(&self) -> &'static str {
        allow::FILES
    }

    fn serve(self: Rc<Self>, stream: Session) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            let Some((session, asked)) = first::<FileAsk>(&self.server, stream).await else {
                return;
            };
            let server = &self.server;
            let client = ServedClient::of_file(&session, &asked);
            let access = access_of(&asked);
            // Hold the permit for a full window until the stream is closed, because the client may
            // leave a full window of data unacknowledged until then.
            let bulk = Cell::new(None);
            let answer = async |running: &Running, session: &mut Session| {
                running.or(self.answer(running, session, asked, &bulk)).await
            };
            // The client and the server's observer have the result already.
            let _ = attend(server, session, client, access, answer).await;
        })
    }
}

impl Reading {
    pub(super) fn new(server: Rc<Server>) -> Reading {
        Reading {
            server,
            open: Counts::default(),
            disk: DiskPermits::new(AT_DISK),
            bulk: Arc::new(Semaphore::new(BULK)),
            values: Arc::new(ChunkValues::new(VALUES)),
        }
    }

    fn count_open(&self, peer: PeerId) -> Result<Counted, Error> {
        let full = |who: String, most: usize| {
            let what = format!("{who} {most} remote files open, which is the limit");
            Error::new(ErrorKind::Unfinished, what).advise("close some, or try again later")
        };
        if self.open.sum() >= MOST {
            return Err(full("the clients of this server have".to_owned(), MOST));
        }
        let counted = self.open.enter(peer, MOST_OF_ONE);
        counted.ok_or_else(|| full(format!("{peer} has"), MOST_OF_ONE))
    }

    async fn answer(
        &self,
        running: &Running,
        session: &mut Session,
        asked: FileAsk,
        bulk: &Cell<Option<OwnedSemaphorePermit>>,
    ) -> Result<(), Error> {
        let (access, path) = (access_of(&asked), Path::new(OsStr::from_bytes(&asked.path)));
        let place = self.server.door.place(&session.peer, path, access)?;
        let _open = self.count_open(session.peer)?;
        let rtt = session.rtt().now().map(|rtt| Span::from_nanos(rtt.as_nanos() as u64));
        // `resume` lets the congestion window jump to half of what the path carried before. Two
        // jumps at the same time would fill the path, so this happens only while the client has no
        // other file open.
        let is_only = self.open.of(&session.peer) == 1;
        if let Some(flight) = rtt.filter(|_| is_only).and_then(|rtt| asked.flight(rtt)) {
            session.resume(flight);
        }
        let disk = with_signs(session, self.disk.take(session.peer)).await?;
        let opening = tokio::task::spawn_blocking(move || {
            let _disk = disk;
            match access {
                Access::Change => RangeFile::open_to_change(&place),
                _ => RangeFile::open(&place),
            }
        });
        let mut opened = Arc::new(with_signs(session, opening).await?.map_err(ended)??);
        let stamp = *opened.stamp();
        let may_change = access == Access::Change;
        let uncached = may_change.then(|| Arc::new(self.values.forget(stamp.identity)));
        let (seconds, nanos) = (stamp.modified.seconds, stamp.modified.nanos);
        let about = FileOpened { size: stamp.size, seconds, nanos };
        send(session, FileData { opened: Some(about), ..FileData::default() }).await?;
        let permit = self.bulk.clone().try_acquire_owned().ok();
        if permit.is_none() || may_change {
            session.expect_much();
        }
        if permit.is_some() {
            session.expect_bulk();
        }
        bulk.set(permit);
        let (mut bytes, mut next) = (0, Some(asked));
        while let Some(mut asked) = next {
            if let Some(change) = asked.change.take() {
                let Some(uncached) = &uncached else {
                    let what = "the client requested a change of a file that it opened for reading";
                    return Err(Error::new(ErrorKind::Unfinished, what));
                };
                let changed = change.bytes.len() as u64;
                opened = self.change(session, opened, change, uncached.clone()).await?;
                self.server.live.count_bytes(true, changed);
                bytes += changed;
            }
            let size = opened.stamp().size;
            for range in asked.check(size)? {
                let sent = self.send(session, &opened, portions(range, size)).await?;
                self.server.live.count_bytes(false, sent);
                bytes += sent;
            }
            running.note(Moved { bytes, files: 1, failed: 0 });
            next = session.read::<FileAsk>().await?;
        }
        Ok(())
    }

    async fn change(
        &self,
        session: &mut Session,
        file: Arc<RangeFile>,
        change: FileChange,
        uncached: Arc<Uncached>,
    ) -> Result<Arc<RangeFile>, Error> {
        let disk = with_signs(session, self.disk.take(session.peer)).await?;
        let making = tokio::task::spawn_blocking(move || {
            // Until the disk answers, keep the permit, and keep the hashes of this file out of the
            // cache. This holds even if the client disconnects earlier.
            let _kept = (disk, uncached);
            let change = change.check()?;
            // All reads of the file are complete, so nothing else refers to it.
            let mut file = Arc::into_inner(file).ok_or_else(|| ended(()))?;
            match change {
                Change::Write(at, bytes) => file.write(at, &bytes)?,
                Change::SetLen(len) => file.set_len(len)?,
                Change::Sync => file.sync()?,
            }
            Ok::<_, Error>(Arc::new(file))
        });
        let file = with_signs(session, making).await?.map_err(ended)??;
        send(session, FileData { changed: true, ..FileData::default() }).await?;
        Ok(file)
    }

    /// Sends the bytes of `portions`, and reads the next portion meanwhile.
    async fn send(
        &self,
        session: &mut Session,
        file: &Arc<RangeFile>,
        mut portions: impl Iterator<Item = Portion>,
    ) -> Result<u64, Error> {
        let (mut sent, peer) = (0, session.peer);
        let mut ahead = with_signs(session, self.read(file, portions.next(), peer)).await?;
        while let Some(reading) = ahead {
            let read = with_signs(session, reading).await?.map_err(ended)??;
            ahead = with_signs(session, self.read(file, portions.next(), peer)).await?;
            let pieces = read.bytes.chunks(PIECE);
            let last = pieces.len() - 1;
            for (at, piece) in pieces.enumerate() {
                let value = read.value.filter(|_| at == last);
                let value = value.map_or_else(Vec::new, |value| value.to_vec());
                let bytes = piece.to_vec();
                send(session, FileData { bytes, value, ..FileData::default() }).await?;
            }
            sent += read.bytes.len() as u64;
        }
        Ok(sent)
    }

    async fn read(
        &self,
        file: &Arc<RangeFile>,
        portion: Option<Portion>,
        peer: PeerId,
    ) -> Option<JoinHandle<Result<Read, longhaul_files::Error>>> {
        let portion = portion?;
        let disk = self.disk.take(peer).await;
        let (file, values) = (file.clone(), self.values.clone());
        Some(tokio::task::spawn_blocking(move || {
            // Keep the permit until the disk answers, even if the client disconnects earlier.
            let _disk = disk;
            let mut bytes = vec![0; portion.len];
            let value = match portion.is_whole {
                true => Some(file.read_chunk(portion.chunk, &mut bytes, &values)?),
                false => file.read(portion.start, &mut bytes).map(|()| None)?,
            };
            Ok(Read { bytes, value })
        }))
    }
}

fn access_of(asked: &FileAsk) -> Access {
    if asked.edit { Access::Change } else { Access::Read }
}

fn ended<E>(_: E) -> Error {
    Error::new(ErrorKind::Unfinished, "the disk thread ended early")
}

/// Waits for `work`, which is a disk access or the wait for its permit. Sends the client signs of
/// life meanwhile.
async fn with_signs<T>(session: &mut Session, work: impl Future<Output = T>) -> Result<T, Error> {
    signing::<FileData, T>(session, SIGN, work).await
}

/// Waits for `work`. Sends the client an empty message as a sign of life after each `every`.
pub(super) async fn signing<M: Message + Default, T>(
    session: &mut Session,
    every: Duration,
    work: impl Future<Output = T>,
) -> Result<T, Error> {
    let mut work = pin!(work);
    loop {
        match timeout(every, &mut work).await {
            Ok(done) => return Ok(done),
            Err(_) => send(session, M::default()).await?,
        }
    }
}

pub(super) async fn send(session: &mut Session, message: impl Message) -> Result<(), Error> {
    send_within(UNREAD, session, message).await
}

/// Sends `message`. Fails if this takes longer than `patience`, because the client does not read.
pub(super) async fn send_within(
    patience: Duration,
    session: &mut Session,
    message: impl Message,
) -> Result<(), Error> {
    let unread = |_| Error::new(ErrorKind::Unfinished, "the client does not read the answer");
    Ok(timeout(patience, session.write(&message)).await.map_err(unread)??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_signs_of_life_while_it_waits() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let (near, far) = tokio::io::duplex(1 << 10);
            let over = |end| {
                let (input, out) = tokio::io::split(end);
                Session::over(PeerId([1; 32]), input, out)
            };
            let (mut near, mut far) = (over(near), over(far));
            let (send, told) = tokio::sync::oneshot::channel();
            let reads = async {
                for _ in 0..2 {
                    let sign = far.read::<FileData>().await;
                    assert_eq!(sign, Ok(Some(FileData::default())));
                }
                send.send(7).expect("it waits");
            };
            let waits = signing::<FileData, _>(&mut near, Duration::from_millis(1), told);
            let (waited, ()) = tokio::join!(waits, reads);
            assert_eq!(waited, Ok(Ok(7)));
        });
    }
}
