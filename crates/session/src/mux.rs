//! Several streams over one byte stream, with the multiplexing protocol yamux.
//!
//! Each side first sends its hello, as on any byte stream. Then the server refuses the client with
//! an error, or admits it with an empty message. All later bytes belong to yamux.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_io::{AsyncRead as Reads, AsyncWrite as Writes};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufWriter, Join, ReadBuf};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::timeout;
use yamux::{Config, Mode};

use super::bytes::{In, Out};
use crate::Error;

/// Maximum number of open streams of a connection. Over QUIC up to an eighth more are possible: see
/// `ANNOUNCED` in `quic.rs`.
pub(super) const STREAMS: usize = 16;

/// Limit on unread bytes of a connection: 256 KiB for each stream, and the rest for streams that
/// are read fast.
const UNREAD: usize = 8 << 20;

/// Bytes of the write buffer, which joins the multiplexer's headers and data.
const TOGETHER: usize = 32 << 10;

const FAREWELL: Duration = Duration::from_secs(3);

pub(super) struct Stream(yamux::Stream);

/// Dropping this value ends the multiplexer.
pub(super) struct Mux {
    orders: mpsc::Sender<Order>,
    inbound: Mutex<mpsc::Receiver<Stream>>,
    refusal: Refusal,
}

type Refusal = Arc<OnceLock<Error>>;

enum Order {
    Open(oneshot::Sender<Result<Stream, yamux::ConnectionError>>),
    Close(oneshot::Sender<()>),
}

impl Mux {
    /// Returns a client's multiplexer, whose first bytes are `hello`. `welcomed` returns the input
    /// once the server has admitted the client.
    pub(super) async fn client(
        welcomed: impl Future<Output = Result<In, Error>> + Send + 'static,
        out: Out,
        hello: &[u8],
    ) -> io::Result<Mux> {
        let refusal = Refusal::default();
        let reason = refusal.clone();
        let welcomed = async move {
            welcomed.await.map_err(|error| {
                let shown = error.to_string();
                let _ = reason.set(error);
                io::Error::other(shown)
            })
        };
        let input = Welcomed::Reading(Box::pin(welcomed));
        let mut out = BufWriter::with_capacity(TOGETHER, out);
        // The hello is sent with the first message.
        out.write_all(hello).await?;
        Ok(Mux::new(Box::new(input), out, Mode::Client, refusal))
    }

    pub(super) fn server(input: In, out: Out) -> Mux {
        let out = BufWriter::with_capacity(TOGETHER, out);
        Mux::new(input, out, Mode::Server, Refusal::default())
    }

    fn new(input: In, out: BufWriter<Out>, mode: Mode, refusal: Refusal) -> Mux {
        let mut config = Config::default();
        config.set_max_num_streams(STREAMS);
        config.set_max_connection_receive_window(Some(UNREAD));
        let bytes = ForYamux(tokio::io::join(input, out));
        let connection = yamux::Connection::new(bytes, config, mode);
        let (orders, ordered) = mpsc::channel(STREAMS);
        let (came, inbound) = mpsc::channel(STREAMS);
        tokio::spawn(drive(connection, ordered, came));
        Mux { orders, inbound: Mutex::new(inbound), refusal }
    }

    pub(super) async fn open(&self) -> io::Result<Stream> {
        let (answer, opened) = oneshot::channel();
        let gone = || io::Error::from(io::ErrorKind::ConnectionAborted);
        self.orders.send(Order::Open(answer)).await.map_err(|_| gone())?;
        opened.await.map_err(|_| gone())?.map_err(io::Error::other)
    }

    pub(super) async fn accept(&self) -> Option<Stream> {
        self.inbound.lock().await.recv().await
    }

    pub(super) async fn ended(&self) {
        self.orders.closed().await;
    }

    pub(super) fn refusal(&self) -> Option<Error> {
        self.refusal.get().cloned()
    }

    /// Ends all streams after their written data. Waits at most 3 s.
    pub(super) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.orders.send(Order::Close(done)).await.is_ok() {
            let _ = closed.await;
        }
    }
}

enum Event {
    Came(Option<Result<yamux::Stream, yamux::ConnectionError>>),
    Ordered(Option<Order>),
}

/// Moves the bytes of all streams until the connection ends or [`Mux`] is closed or dropped.
async fn drive(
    mut connection: yamux::Connection<ForYamux>,
    mut orders: mpsc::Receiver<Order>,
    came: mpsc::Sender<Stream>,
) {
    loop {
        let event = std::future::poll_fn(|cx| {
            if let Poll::Ready(came) = connection.poll_next_inbound(cx) {
                return Poll::Ready(Event::Came(came));
            }
            orders.poll_recv(cx).map(Event::Ordered)
        });
        let done = match event.await {
            // A full queue drops the stream; the drop resets it.
            Event::Came(Some(Ok(stream))) => {
                let _ = came.try_send(Stream(stream));
                continue;
            }
            Event::Came(_) => return,
            Event::Ordered(Some(Order::Open(answer))) => {
                let opened = std::future::poll_fn(|cx| connection.poll_new_outbound(cx)).await;
                let _ = answer.send(opened.map(Stream));
                continue;
            }
            Event::Ordered(Some(Order::Close(done))) => Some(done),
            Event::Ordered(None) => None,
        };
        let _ = timeout(FAREWELL, std::future::poll_fn(|cx| connection.poll_close(cx))).await;
        return drop(done);
    }
}

enum Welcomed {
    Reading(Pin<Box<dyn Future<Output = io::Result<In>> + Send>>),
    Done(In),
}

impl AsyncRead for Welcomed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match &mut *self {
                Welcomed::Done(input) => return Pin::new(input).poll_read(cx, buffer),
                Welcomed::Reading(reading) => {
                    let input = match ready!(reading.as_mut().poll(cx)) {
                        Ok(input) => input,
                        Err(error) => {
                            *self = Welcomed::Done(Box::new(tokio::io::empty()));
                            return Poll::Ready(Err(error));
                        }
                    };
                    *self = Welcomed::Done(input);
                }
            }
        }
    }
}

struct ForYamux(Join<In, BufWriter<Out>>);

impl Reads for ForYamux {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }
}

impl Writes for ForYamux {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl Stream {
    /// Returns the stream's number, which is the same on both sides.
    pub(super) fn number(&self) -> String {
        self.0.id().to_string()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = ready!(Pin::new(&mut self.0).poll_read(cx, buffer.initialize_unfilled()))?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Lock;
    use std::task::Waker;

    use tokio::io::AsyncReadExt;

    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Seen {
        bytes: Vec<u8>,
        flushed: u32,
        shut: u32,
    }

    struct Recorded(Arc<Lock<Seen>>);

    impl Recorded {
        fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
            self.0.lock().expect("one thread")
        }
    }

    impl AsyncWrite for Recorded {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.seen().bytes.extend(bytes);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.seen().flushed += 1;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.seen().shut += 1;
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_flush_waits_for_the_multiplexer_and_a_shutdown_ends_a_stream_after_its_data() {
        crate::tests::run(async {
            let (near, far) = tokio::io::duplex(1 << 10);
            let (input, out) = tokio::io::split(near);
            let welcomed = async move { Ok(Box::new(input) as In) };
            let client = Mux::client(welcomed, Box::new(out), b"").await.expect("it is buffered");
            let (input, out) = tokio::io::split(far);
            let server = Mux::server(Box::new(input), Box::new(out));
            let mut stream = client.open().await.expect("the server is there");
            let mut context = Context::from_waker(Waker::noop());
            let mut writes = || Pin::new(&mut stream).poll_write(&mut context, b"x").is_ready();
            let sent = (0..1 << 20).take_while(|_| writes()).count();
            assert!(Pin::new(&mut stream).poll_flush(&mut context).is_pending());
            stream.flush().await.expect("it is open");
            stream.shutdown().await.expect("it is open");
            assert!(stream.write_all(b"more").await.is_err());
            let mut came = Vec::new();
            let mut other = server.accept().await.expect("a stream");
            other.read_to_end(&mut came).await.expect("it ends");
            assert_eq!(came, vec![b'x'; sent]);
        });
    }

    #[test]
    fn a_close_returns_after_the_writer_is_shut_down() {
        crate::tests::run(async {
            let seen = Arc::new(Lock::new(Seen::default()));
            let (input, _other_end) = tokio::io::duplex(64);
            let mux = Mux::server(Box::new(input), Box::new(Recorded(seen.clone())));
            mux.close().await;
            assert_eq!(seen.lock().expect("one thread").shut, 1);
        });
    }

    #[test]
    fn a_flush_sends_small_writes_together_and_a_close_shuts_the_writer_down() {
        let seen = Arc::new(Lock::new(Seen::default()));
        let out: Out = Box::new(Recorded(seen.clone()));
        let input: In = Box::new(io::Cursor::new(b"came".to_vec()));
        let mut bytes = ForYamux(tokio::io::join(input, BufWriter::with_capacity(TOGETHER, out)));
        let mut context = Context::from_waker(Waker::noop());
        for part in [&b"head"[..], b"er"] {
            let written = Pin::new(&mut bytes).poll_write(&mut context, part);
            assert!(matches!(written, Poll::Ready(Ok(len)) if len == part.len()));
        }
        assert_eq!(*seen.lock().expect("one thread"), Seen::default());
        assert!(Pin::new(&mut bytes).poll_flush(&mut context).is_ready());
        let flushed = Seen { bytes: b"header".to_vec(), flushed: 1, shut: 0 };
        assert_eq!(*seen.lock().expect("one thread"), flushed);
        assert!(Pin::new(&mut bytes).poll_close(&mut context).is_ready());
        assert_eq!(seen.lock().expect("one thread").shut, 1);
        let mut buffer = [0; 9];
        let read = Pin::new(&mut bytes).poll_read(&mut context, &mut buffer);
        assert!(matches!(read, Poll::Ready(Ok(4))) && buffer.starts_with(b"came\0"));
        assert_eq!((UNREAD, TOGETHER), (8_388_608, 32_768));
    }
}
