//! A remote file, read and changed by ranges.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tokio::sync::{mpsc, oneshot};

use crate::control::file::{Change, FileOpened, PIECE};
use crate::error::public::{Error, ErrorKind};
use crate::file::{Bytes, Job, Opened, Read};
use crate::list::FileTime;

/// A remote file. If it was opened for reads only, every read returns the version that was opened:
/// if the file changes, reads fail with an error that names the file.
///
/// The connection's encryption authenticates each byte. If a read covers a whole chunk (1 MiB,
/// counted from the start of the file), the client also checks the chunk's BLAKE3 value before it
/// returns the bytes. The server sends this value. Partial chunks are not hashed.
///
/// The server answers the reads of a file in the order in which they start. Up to 32 MiB are in
/// flight or wait for the caller; a read whose data are not taken blocks the reads after it. The
/// file is closed when all clones and their reads are dropped.
///
/// A file that was opened with [`open_file_to_write`](super::Connection::open_file_to_write) can
/// also be changed in place. Its reads and changes take effect in the order in which they start.
/// A read is cut at the size that [`RemoteFile::len`] returns when the read starts, so wait for a
/// write that extends the file before you read the new bytes.
#[derive(Clone)]
pub struct RemoteFile {
    about: FileOpened,
    /// The size after the last change that the server has made.
    size: Arc<AtomicU64>,
    may_write: bool,
    jobs: mpsc::Sender<Job>,
}

impl fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteFile({} bytes)", self.len())
    }
}

impl RemoteFile {
    pub(super) fn new(Opened { about, len, jobs }: Opened, may_write: bool) -> RemoteFile {
        RemoteFile { about, size: len, may_write, jobs }
    }

    /// Returns the size in bytes, with all completed changes through this value and its clones.
    #[allow(clippy::len_without_is_empty, reason = "a file is not a collection")]
    pub fn len(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Returns the modification time that the file had when it was opened.
    pub fn modified(&self) -> FileTime {
        FileTime { seconds: self.about.seconds, nanos: self.about.nanos }
    }

    /// Reads `len` bytes at `offset` into memory, or fewer at the end of the file.
    ///
    /// # Errors
    /// As [`RangeReads::next`].
    pub async fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let end = offset.saturating_add(len as u64);
        let mut read = self.read_ranges([Range { start: offset, end }]).await?;
        let mut all = Vec::new();
        while let Some(piece) = read.next().await {
            let mut bytes = piece?.bytes;
            match all.is_empty() {
                true => all = bytes,
                false => all.append(&mut bytes),
            }
        }
        Ok(all)
    }

    /// Reads ranges in the given order. All ranges are requested in advance, without a round trip
    /// for each range. Parts beyond [`RemoteFile::len`] are left out. The length includes only
    /// completed changes: a read that starts after an unfinished write is cut at the old size.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`]: a range ends before it begins.
    pub async fn read_ranges(
        &self,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<RangeReads, Error> {
        let (reads, read) = requested(ranges, self.len())?;
        // If the file is closed, the first piece reports it.
        let _ = self.jobs.send(Job::Read(read)).await;
        Ok(reads)
    }

    /// Writes `bytes` at `offset`. The file grows if the bytes end beyond its end; a gap reads as
    /// zeros.
    ///
    /// The bytes travel in pieces of 256 KiB, each with its BLAKE3 hash. The server compares the
    /// hash, writes the piece, reads it back and compares again. When the call returns, every new
    /// reader gets the bytes. They are on the disk after [`RemoteFile::sync`]. A write is not
    /// atomic: after an error, or if the future is dropped, a part may have been written.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`]: the file was opened for reads only, or the range ends beyond 2^63 − 1.
    /// All other errors close the file, so all later calls on it fail; open the file again.
    pub async fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let end = offset.saturating_add(bytes.len() as u64);
        self.may_have(end)?;
        let starts = (offset..).step_by(PIECE);
        let pieces = starts.zip(bytes.chunks(PIECE));
        let mut sent = Vec::new();
        for (at, piece) in pieces {
            sent.push(self.change(Change::Write(at, piece.to_vec())).await?);
        }
        for made in sent {
            done(made).await?;
        }
        Ok(())
    }

    /// Truncates the file to `len` bytes, or extends it by zeros that take no room on the disk.
    ///
    /// # Errors
    /// As [`RemoteFile::write_at`].
    pub async fn set_len(&self, len: u64) -> Result<(), Error> {
        self.may_have(len)?;
        done(self.change(Change::SetLen(len)).await?).await
    }

    /// Waits until all changes that are complete, and the name of a new file, are on the server's
    /// disk.
    ///
    /// # Errors
    /// As [`RemoteFile::write_at`].
    pub async fn sync(&self) -> Result<(), Error> {
        self.may_have(0)?;
        done(self.change(Change::Sync).await?).await
    }

    fn may_have(&self, len: u64) -> Result<(), Error> {
        let what = match (self.may_write, i64::try_from(len)) {
            (false, _) => "the remote file was opened for reads only".to_owned(),
            (true, Err(_)) => format!("no file can have {len} bytes"),
            (true, Ok(_)) => return Ok(()),
        };
        Err(Error::new(ErrorKind::Usage, what))
    }

    async fn change(&self, change: Change) -> Result<Sent, Error> {
        let (tell, made) = oneshot::channel();
        self.jobs.send(Job::Change(change, tell)).await.map_err(|_| closed())?;
        Ok(made)
    }
}

type Sent = oneshot::Receiver<Result<(), crate::error::Error>>;

async fn done(made: Sent) -> Result<(), Error> {
    Ok(made.await.map_err(|_| closed())??)
}

fn closed() -> Error {
    Error::new(ErrorKind::Unfinished, "the remote file was closed")
}

/// Bytes of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangePiece {
    /// Index of the requested range, from 0.
    pub range: usize,
    /// Offset of the bytes in the file.
    pub offset: u64,
    /// The bytes: at least one, at most 1 MiB.
    pub bytes: Vec<u8>,
}

pub(super) fn requested(
    ranges: impl IntoIterator<Item = Range<u64>>,
    size: u64,
) -> Result<(RangeReads, Read), Error> {
    let (mut wanted, mut spans) = (VecDeque::new(), VecDeque::<Range<u64>>::new());
    for (number, range) in ranges.into_iter().enumerate() {
        if range.start > range.end {
            let what = format!("the range {}-{} ends before it begins", range.start, range.end);
            return Err(Error::new(ErrorKind::Usage, what));
        }
        let range = range.start.min(size)..range.end.min(size);
        if range.is_empty() {
            continue;
        }
        match spans.back_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => spans.push_back(range.clone()),
        }
        wanted.push_back((number, range));
    }
    let (tell, pieces) = mpsc::unbounded_channel();
    let reads = RangeReads { pieces, wanted, rest: None, failed: false };
    Ok((reads, Read { ranges: spans, tell }))
}

/// The bytes of the requested ranges, in the order of the request. Dropping the value ends the
/// read.
pub struct RangeReads {
    pieces: mpsc::UnboundedReceiver<Result<Bytes, crate::error::Error>>,
    /// The bytes still missing, with the index of their range.
    wanted: VecDeque<(usize, Range<u64>)>,
    /// A piece that belongs to several ranges, and how many of its bytes were returned.
    rest: Option<(Bytes, usize)>,
    failed: bool,
}

impl fmt::Debug for RangeReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RangeReads({} to come)", self.wanted.len())
    }
}

impl RangeReads {
    /// Leaves out the parts beyond the end of a file of `size` bytes.
    pub(super) fn end_at(&mut self, size: u64) {
        for (_, range) in &mut self.wanted {
            *range = range.start.min(size)..range.end.min(size);
        }
        self.wanted.retain(|(_, range)| !range.is_empty());
    }

    /// Returns the next bytes; `None` after the last. An error is the last item: the file changed
    /// or cannot be read, its bytes failed verification, the client lost its right, or the
    /// connection was lost.
    pub async fn next(&mut self) -> Option<Result<RangePiece, Error>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for RangeReads {
    type Item = Result<RangePiece, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some((number, range)) = this.wanted.front_mut().filter(|_| !this.failed) else {
            return Poll::Ready(None);
        };
        let came = match this.rest.take() {
            Some(rest) => Some(Ok(rest)),
            None => ready!(this.pieces.poll_recv(cx)).map(|came| came.map(|piece| (piece, 0))),
        };
        let (piece, from) = match came {
            Some(Ok(piece)) => piece,
            failed => {
                this.failed = true;
                let error = failed.and_then(Result::err).map_or_else(closed, Error::from);
                return Poll::Ready(Some(Err(error)));
            }
        };
        let (range_number, offset) = (*number, range.start);
        let to = (piece.bytes.len() as u64).min(from as u64 + (range.end - range.start)) as usize;
        let bytes = match (from, to == piece.bytes.len()) {
            (0, true) => piece.bytes,
            (_, true) => piece.bytes[from..].to_vec(),
            (_, false) => {
                let bytes = piece.bytes[from..to].to_vec();
                this.rest = Some((piece, to));
                bytes
            }
        };
        range.start += bytes.len() as u64;
        if range.is_empty() {
            this.wanted.pop_front();
        }
        Poll::Ready(Some(Ok(RangePiece { range: range_number, offset, bytes })))
    }
}
