//! A connection that fails when its client does not read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Timeout for a client that does not read.
pub(crate) const UNREAD: Duration = Duration::from_secs(60);

/// A stream whose writes fail if the other side takes nothing for `limit`. Without this limit, a
/// client that reads nothing would occupy one of the connections for ever.
#[derive(Debug)]
pub(crate) struct Patient<S> {
    stream: S,
    limit: Duration,
    /// Runs while a write waits for the client.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> Patient<S> {
    pub(crate) fn new(stream: S, limit: Duration) -> Patient<S> {
        Patient { stream, limit, waits: None }
    }

    /// Passes on the result of a write, or fails at the limit.
    fn limited(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let limit = self.limit;
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(waits.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.limited(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.limited(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::runtime::Builder;
    use tokio::time::timeout;

    use super::*;

    #[test]
    fn a_write_fails_when_the_other_side_takes_nothing_until_the_limit() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (near, mut far) = duplex(8);
            let mut near = Patient::new(near, Duration::from_millis(1));
            let error = near.write_all(&[7; 9]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            // Each byte that the other side takes starts a new wait.
            let hour = Duration::from_secs(3600);
            let mut near = Patient::new(near.stream, hour);
            assert!(timeout(Duration::ZERO, near.write(&[8])).await.is_err());
            assert!(near.waits.is_some());
            far.read_exact(&mut [0; 8]).await.unwrap();
            near.write_all(&[8]).await.unwrap();
            assert!(near.waits.is_none());
        });
    }
}
