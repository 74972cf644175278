//! A connection that counts its bytes, and fails when its client does not read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use longhaul_net::socket::tcp_acknowledged;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use crate::traffic::Traffic;

/// A stream that counts the bytes that the client has received.
pub(crate) trait Delivers {
    fn delivered(&self) -> u64;

    /// Makes the close discard unsent bytes.
    fn discard(&self) {}
}

impl Delivers for TcpStream {
    fn delivered(&self) -> u64 {
        // Without a count, only completed writes are progress.
        tcp_acknowledged(self).unwrap_or(0)
    }

    fn discard(&self) {
        // Without this option, the kernel would hold megabytes for this client after the close. If
        // the option fails, the kernel holds these bytes for its own time limit.
        let _ = rustix::net::sockopt::set_socket_linger(self, Some(Duration::ZERO));
    }
}

/// A stream whose writes fail when the client receives nothing for a while.
///
/// A slow client may take longer than the limit to make room in a full socket buffer. So at the
/// limit, the stream fails only if no byte has been delivered meanwhile.
#[derive(Debug)]
pub(crate) struct Patient<S> {
    stream: S,
    traffic: Arc<Traffic>,
    limit: Duration,
    work: Weak<()>,
    /// Exists while a write waits for the client.
    waits: Option<Wait>,
}

#[derive(Debug)]
struct Wait {
    timer: Pin<Box<Sleep>>,
    /// Number of bytes delivered until the timer was started.
    delivered: u64,
    /// Marks the connection as busy, so that a new connection does not close it.
    _work: Option<Arc<()>>,
}

impl<S: AsyncWrite + Delivers + Unpin> Patient<S> {
    /// Returns a stream that keeps a clone of `work` while a write waits for the client. The clone
    /// marks the connection as busy.
    pub(crate) fn new(
        stream: S,
        limit: Duration,
        traffic: Arc<Traffic>,
        work: Weak<()>,
    ) -> Patient<S> {
        Patient { stream, traffic, limit, work, waits: None }
    }

    fn limited(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = written {
            self.waits = None;
            self.traffic.sent(*written.as_ref().unwrap_or(&0));
            return Poll::Ready(written);
        }
        let (stream, limit, work) = (&self.stream, self.limit, &self.work);
        let waits = self.waits.get_or_insert_with(|| Wait {
            timer: Box::pin(sleep(limit)),
            delivered: stream.delivered(),
            _work: work.upgrade(),
        });
        loop {
            ready!(waits.timer.as_mut().poll(cx));
            let delivered = stream.delivered();
            if delivered == waits.delivered {
                stream.discard();
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            waits.delivered = delivered;
            waits.timer.as_mut().reset(Instant::now() + limit);
        }
    }
}

impl<S: AsyncWrite + Delivers + Unpin> AsyncWrite for Patient<S> {
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
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.traffic.received(buffer.filled().len() - before);
        read
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::net::TcpListener;
    use tokio::runtime::Builder;
    use tokio::time::timeout;

    use super::*;

    impl Delivers for DuplexStream {
        fn delivered(&self) -> u64 {
            0
        }
    }

    /// A full buffer whose bytes arrive one by one, until `left` is 0.
    struct Full {
        left: Cell<u64>,
    }

    impl Delivers for Full {
        fn delivered(&self) -> u64 {
            self.left.set(self.left.get().saturating_sub(1));
            self.left.get()
        }
    }

    impl AsyncWrite for Full {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Pending
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_write_fails_when_the_client_receives_nothing_until_the_limit() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (near, mut far) = duplex(8);
            let mut near =
                Patient::new(near, Duration::from_millis(1), Arc::default(), Weak::new());
            let error = near.write_all(&[7; 9]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            // A completed write ends the wait.
            let hour = Duration::from_secs(3600);
            let mut near = Patient::new(near.stream, hour, Arc::default(), Weak::new());
            assert!(timeout(Duration::ZERO, near.write(&[8])).await.is_err());
            assert!(near.waits.is_some());
            far.read_exact(&mut [0; 8]).await.unwrap();
            near.write_all(&[8]).await.unwrap();
            assert!(near.waits.is_none());
        });
    }

    #[test]
    fn a_write_into_a_full_buffer_waits_as_long_as_bytes_reach_the_client() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let full = Full { left: Cell::new(5) };
            let mut near =
                Patient::new(full, Duration::from_millis(1), Arc::default(), Weak::new());
            let error = near.write_all(&[7]).await.unwrap_err();
            assert_eq!((error.kind(), near.stream.left.get()), (io::ErrorKind::TimedOut, 0));
        });
    }

    #[test]
    fn a_connection_counts_the_bytes_that_the_client_has_received() {
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut far, _) = listener.accept().await.unwrap();
            let before = near.delivered();
            near.write_all(&[7; 1000]).await.unwrap();
            far.read_exact(&mut [0; 1000]).await.unwrap();
            // The answer acknowledges the bytes.
            far.write_all(&[8]).await.unwrap();
            near.read_exact(&mut [0]).await.unwrap();
            assert_eq!(near.delivered() - before, 1000);
        });
    }
}
