//! A file of another host, read by ranges.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tokio::sync::mpsc;

use crate::control::file::FileOpened;
use crate::error::public::{Error, ErrorKind};
use crate::file::{Bytes, Opened, Read};
use crate::list::FileTime;

/// A file of another host, open for reading. Every read is of the version that was opened: if the
/// file changes, reads fail with an error that names it.
///
/// The connection's encryption authenticates each byte. Chunks of 1 MiB (counted from the start of
/// the file) that a read has whole are also compared with the BLAKE3 value of what the server read
/// there first, before they are handed out: so they are the same bytes for all clients. Parts of a
/// chunk are not hashed.
///
/// Reads of a file are answered in the order in which they begin. Up to 32 MiB are on their way or
/// wait to be taken; a read that is not taken holds up those behind it. Clones are the same open
/// file. It is closed when they and their reads are dropped.
#[derive(Clone)]
pub struct RemoteFile {
    about: FileOpened,
    reads: mpsc::Sender<Read>,
}

impl fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteFile({} bytes)", self.about.size)
    }
}

impl RemoteFile {
    pub(super) fn new(opened: Opened) -> RemoteFile {
        RemoteFile { about: opened.about, reads: opened.reads }
    }

    /// Bytes of content.
    #[allow(clippy::len_without_is_empty, reason = "a file is no collection")]
    pub fn len(&self) -> u64 {
        self.about.size
    }

    /// When the content changed last.
    pub fn modified(&self) -> FileTime {
        FileTime { seconds: self.about.seconds, nanos: self.about.nanos }
    }

    /// Reads `len` bytes at `offset` into memory; fewer where the file ends before.
    ///
    /// # Errors
    /// As [`RangeReads::next`].
    pub async fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let end = offset.saturating_add(len as u64);
        let mut read = self.read_ranges(std::iter::once(offset..end)).await?;
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

    /// Reads ranges, in the order given: all are asked for ahead, without a round trip each. What
    /// lies behind the end of the file is left out. Ranges that follow each other without a gap
    /// are read as one.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`]: a range ends before it begins.
    pub async fn read_ranges(
        &self,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<RangeReads, Error> {
        let size = self.about.size;
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
        // Whether the file is still open is told by the first piece.
        let _ = self.reads.send(Read { ranges: spans, tell }).await;
        Ok(RangeReads { pieces, wanted, rest: None, failed: false })
    }
}

/// Bytes of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangePiece {
    /// Of which of the ranges that were asked for, counted from 0.
    pub range: usize,
    /// Where in the file they begin.
    pub offset: u64,
    /// The bytes: at least one, at most 1 MiB.
    pub bytes: Vec<u8>,
}

/// The bytes of ranges, in the order in which these were asked for. Dropping it ends the read.
pub struct RangeReads {
    pieces: mpsc::UnboundedReceiver<Result<Bytes, crate::error::Error>>,
    /// What is still to come, by the number of its range.
    wanted: VecDeque<(usize, Range<u64>)>,
    /// A piece that several ranges have, and how many of its bytes were handed out.
    rest: Option<(Bytes, usize)>,
    failed: bool,
}

impl fmt::Debug for RangeReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RangeReads({} to come)", self.wanted.len())
    }
}

impl RangeReads {
    /// The next bytes; nothing at the end. An error is the last that comes: the file changed, the
    /// right to it ended, or the connection was lost.
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
                let ended = || Error::new(ErrorKind::Unfinished, "the remote file was closed");
                let error = failed.and_then(Result::err).map_or_else(ended, Error::from);
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
