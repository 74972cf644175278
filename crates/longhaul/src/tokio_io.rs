//! Adapts tokio's readers to this library (feature `tokio`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::AsyncRead;
use tokio::io::ReadBuf;

/// Wraps a tokio reader for [`Client::write`](crate::Client::write).
#[derive(Debug)]
pub struct FromTokio<R>(pub R);

impl<R: tokio::io::AsyncRead + Unpin> AsyncRead for FromTokio<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut filled = ReadBuf::new(buf);
        ready!(Pin::new(&mut self.0).poll_read(context, &mut filled))?;
        Poll::Ready(Ok(filled.filled().len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[test]
    fn a_tokio_reader_returns_its_bytes_and_then_the_end() {
        let mut reader = FromTokio(&b"seven b"[..]);
        let mut read = |buf: &mut [u8]| {
            let read = poll_fn(|context| Pin::new(&mut reader).poll_read(context, buf));
            crate::blocking::wait(read).unwrap()
        };
        let mut buf = [0; 5];
        assert_eq!((read(&mut buf), read(&mut buf), read(&mut buf)), (5, 2, 0));
    }
}
