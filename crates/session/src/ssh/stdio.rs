//! This process's standard input and output as one byte stream.
//!
//! tokio's standard input reads on a thread that cannot be stopped. With it, this process (the
//! remote end of an ssh channel) could not exit until ssh closed its standard input. So this module
//! polls the descriptors.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::stdio::{dup2_stdin, dup2_stdout};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

#[derive(Debug)]
pub(super) struct Stdio {
    input: AsyncFd<OwnedFd>,
    /// `None` once this direction has ended.
    output: Option<AsyncFd<OwnedFd>>,
}

impl Stdio {
    /// Takes over standard input and output, which must be pipes or sockets. From now on, whatever
    /// else the process writes to standard output is discarded.
    pub(super) fn take() -> io::Result<Stdio> {
        let input = polled(std::io::stdin().as_fd().try_clone_to_owned()?, Interest::READABLE)?;
        let output = polled(std::io::stdout().as_fd().try_clone_to_owned()?, Interest::WRITABLE)?;
        let nowhere = File::options().read(true).write(true).open("/dev/null")?;
        dup2_stdin(&nowhere)?;
        dup2_stdout(&nowhere)?;
        Ok(Stdio { input, output: Some(output) })
    }
}

#[allow(unsafe_code, reason = "tokio asks for a promise that the descriptor stays the same")]
fn polled(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = fcntl_getfl(&descriptor)?;
    fcntl_setfl(&descriptor, flags.union(OFlags::NONBLOCK))?;
    // SAFETY: the descriptor is moved in, so it stays open and `as_raw_fd` always returns the same.
    unsafe { AsyncFd::register_with_interest(descriptor, interest) }.map_err(io::Error::from)
}

impl AsyncRead for Stdio {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.input.poll_read_ready(context))?;
            let room = into.initialize_unfilled();
            match ready.try_io(|input| Ok(rustix::io::read(input.get_ref(), &mut *room)?)) {
                Ok(count) => {
                    into.advance(count?);
                    return Poll::Ready(Ok(()));
                }
                Err(_not_ready) => {}
            }
        }
    }
}

impl AsyncWrite for Stdio {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Some(output) = &self.output else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        loop {
            let mut ready = ready!(output.poll_write_ready(context))?;
            match ready.try_io(|output| Ok(rustix::io::write(output.get_ref(), bytes)?)) {
                Ok(count) => return Poll::Ready(count),
                Err(_not_ready) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.output = None;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn a_shutdown_ends_the_output_and_keeps_the_input() {
        crate::tests::run(async {
            let (far, near) = std::os::unix::net::UnixStream::pair().expect("two ends");
            let (written, output) = std::io::pipe().expect("two ends");
            let mut stdio = Stdio {
                input: polled(near.into(), Interest::READABLE).expect("a socket"),
                output: Some(polled(output.into(), Interest::WRITABLE).expect("a pipe")),
            };
            stdio.write_all(b"last").await.expect("open");
            stdio.shutdown().await.expect("open");
            let error = stdio.write_all(b"more").await.expect_err("it has ended");
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
            assert_eq!(io::read_to_string(written).expect("it ends"), "last");
            io::Write::write_all(&mut &far, b"answer").expect("open");
            let mut answer = [0; 6];
            stdio.read_exact(&mut answer).await.expect("open");
            assert_eq!(&answer, b"answer");
        });
    }
}
