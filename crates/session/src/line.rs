//! The two halves of a stream of messages.

use std::any::Any;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::below::Below;
use super::bytes::{In, Out};
use super::frame::{self, HEADER, Header};
use super::hello::{self, Hello};
use super::keeper::NO_ERROR;
use crate::{Error, Kind};

/// Longest wait for the writing of the last message; then, as long again for its arrival.
const FAREWELL: Duration = Duration::from_secs(3);
/// Over TCP and ssh: how long [`FrameWriter::leave`] continues to read.
const PARTING: Duration = Duration::from_millis(5);

/// Bytes per read from the carrier. Memory for a message is allocated only as its bytes arrive.
const READ_AHEAD: usize = 16 << 10;

/// Completes when all written data have arrived.
pub(super) type Delivered = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The shared part of a stream's halves; it keeps the connection open.
pub(super) struct Line {
    pub(super) below: Arc<Below>,
    /// Whether the other side has ended.
    peer_done: AtomicBool,
    /// Whether the stream sends much data: files, or messages of a channel.
    is_bulk: AtomicBool,
}

impl Line {
    pub(super) fn new(below: Arc<Below>) -> Line {
        Line { below, peer_done: AtomicBool::new(false), is_bulk: AtomicBool::new(false) }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(keeper) = &self.below.quic
            && *self.is_bulk.get_mut()
        {
            keeper.end_bulk();
        }
    }
}

/// The sending half of a control stream. [`FrameWriter::close`] ends it.
pub struct FrameWriter {
    out: Out,
    line: Arc<Line>,
    delivered: Option<Delivered>,
    /// Sent before the first message.
    hello: Option<Hello>,
    pending: Vec<u8>,
    taken: usize,
}

impl FrameWriter {
    pub(super) fn new(
        out: Out,
        line: Arc<Line>,
        delivered: Option<Delivered>,
        hello: Hello,
    ) -> FrameWriter {
        FrameWriter { out, line, delivered, hello: Some(hello), pending: Vec::new(), taken: 0 }
    }

    pub(super) fn ask_for(&mut self, service: &str, needs: u32) {
        if let Some(hello) = &mut self.hello {
            hello.ask_for(service, needs);
        }
    }

    fn greet(&mut self) {
        if let Some(hello) = self.hello.take() {
            frame::encode(&hello, &mut self.pending).expect("a hello is far below the limit");
        }
    }

    /// Encodes a message for the next [`FrameWriter::flush`] or [`FrameWriter::write`].
    ///
    /// # Errors
    /// The message is longer than [`MAX_FRAME`](frame::MAX_FRAME).
    pub fn queue(&mut self, message: &impl Message) -> Result<(), Error> {
        self.greet();
        frame::encode(message, &mut self.pending)
    }

    /// Returns the number of queued bytes.
    pub fn queued(&self) -> usize {
        self.pending.len() - self.taken
    }

    /// Sends one message. After a cancelled call, the next [`FrameWriter::write`] or
    /// [`FrameWriter::flush`] sends the rest first.
    ///
    /// # Errors
    /// The message is longer than [`MAX_FRAME`](frame::MAX_FRAME), or the session is lost.
    pub async fn write(&mut self, message: &impl Message) -> Result<(), Error> {
        self.queue(message)?;
        self.flush().await
    }

    /// Sends a goodbye with the error `why`, if any, and ends this direction. Waits up to 3 s for
    /// the earlier writes, and up to 3 s for the delivery. Over TCP and ssh the call reads `reader`
    /// until the other side ends, because TCP and ssh do not report the delivery.
    ///
    /// # Errors
    /// The session is lost, or a wait times out. Over TCP and ssh, a timeout of the wait for the
    /// delivery is no error.
    pub async fn close(self, reader: FrameReader, why: Option<Error>) -> Result<(), Error> {
        self.end(reader, why, true).await
    }

    /// Like [`FrameWriter::close`] without an error, but does not wait for the delivery.
    ///
    /// # Errors
    /// The session is lost, or 3 s pass before the carrier has taken the data.
    pub async fn leave(self, reader: FrameReader) -> Result<(), Error> {
        self.end(reader, None, false).await
    }

    async fn end(
        mut self,
        reader: FrameReader,
        why: Option<Error>,
        waits: bool,
    ) -> Result<(), Error> {
        self.greet();
        frame::encode_goodbye(why.as_ref(), &mut self.pending);
        let line = self.line.clone();
        let mut reader = Some(reader);
        let quic = line.below.quic.as_ref().map(|keeper| (keeper, keeper.frames_sent()));
        let late = || line.below.lost(&io::ErrorKind::TimedOut.into());
        let farewell = async {
            self.flush().await?;
            self.out.shutdown().await.map_err(|error| self.line.below.lost(&error))
        };
        let mut ended = timeout(FAREWELL, farewell).await.unwrap_or_else(|_| Err(late()));
        let peer_done = self.line.peer_done.load(Ordering::Relaxed);
        // After its goodbye the other side needs no more data. A bulk stream waits nevertheless,
        // because its undelivered data use memory: a server counts the stream towards its limit of
        // bulk streams only until this function returns.
        let discards = peer_done && self.line.is_bulk.load(Ordering::Relaxed);
        match (self.delivered.take(), quic, reader.take()) {
            _ if ended.is_err() => {}
            (Some(arrived), ..) if waits && (discards || !peer_done) => {
                ended = timeout(FAREWELL, arrived).await.map_err(|_| late());
            }
            (_, Some((keeper, before)), _) if !peer_done => keeper.sent_more_than(before).await,
            // Read on, because unread input would make the kernel reset the connection.
            (_, None, Some(reader)) if !peer_done => {
                let patience = if waits { FAREWELL } else { PARTING };
                drop(timeout(patience, reader.drain()).await);
            }
            _ => {}
        }
        if discards && ended.is_err() {
            discard(&mut self.out);
        }
        let below = line.below.clone();
        drop((reader, self, line));
        Below::release(below).await;
        ended
    }

    /// Sends a goodbye and ends this direction; does not wait for the delivery.
    pub(super) async fn finish(&mut self) -> Result<(), Error> {
        self.greet();
        frame::encode_goodbye(None, &mut self.pending);
        self.flush().await?;
        self.out.shutdown().await.map_err(|error| self.line.below.lost(&error))
    }

    /// Returns the underlying writer after all earlier writes.
    pub(super) async fn into_out(mut self) -> Result<Out, Error> {
        self.greet();
        self.flush().await?;
        Ok(self.out)
    }

    pub(super) fn line(&self) -> &Line {
        &self.line
    }

    #[cfg(test)]
    pub(super) async fn write_raw(&mut self, bytes: &[u8]) {
        self.greet();
        self.pending.extend_from_slice(bytes);
        self.flush().await.expect("an open session");
    }

    /// Sends the queued messages. Cancel-safe.
    ///
    /// # Errors
    /// The session is lost.
    pub async fn flush(&mut self) -> Result<(), Error> {
        while self.taken < self.pending.len() {
            let written = self.out.write(&self.pending[self.taken..]).await;
            match written {
                Ok(0) => return Err(self.line.below.lost(&io::ErrorKind::WriteZero.into())),
                Ok(count) => self.taken += count,
                Err(error) => return Err(self.line.below.lost(&error)),
            }
        }
        self.pending.clear();
        self.taken = 0;
        self.out.flush().await.map_err(|error| self.line.below.lost(&error))?;
        if let Some(keeper) = &self.line.below.quic {
            keeper.wrote();
        }
        Ok(())
    }
}

/// Over QUIC, discards undelivered data, which would stay in memory.
fn discard(out: &mut Out) {
    let out: &mut dyn Any = &mut **out;
    if let Some(stream) = out.downcast_mut::<quinn::SendStream>() {
        let _ = stream.reset(NO_ERROR);
    }
}

/// The receiving half of a control stream.
pub struct FrameReader {
    input: In,
    line: Arc<Line>,
    ours: Hello,
    /// The other side's hello, once read, and the common version.
    theirs: Option<(Hello, u32)>,
    /// Received bytes; those before `start` are consumed.
    came: Vec<u8>,
    start: usize,
}

impl FrameReader {
    pub(super) fn new(input: In, line: Arc<Line>, ours: Hello) -> FrameReader {
        FrameReader { input, line, ours, theirs: None, came: Vec::new(), start: 0 }
    }

    /// Prepares for much data: over QUIC, allows 4 MiB unacknowledged, and 4 MiB unread if the
    /// connection carries only this stream.
    pub fn expect_much(&self) {
        if let Some(keeper) = &self.line.below.quic {
            keeper.expect_much();
        }
    }

    /// Prepares to send files or messages of a channel: over QUIC, allows 32 MiB unacknowledged
    /// until the stream ends.
    pub fn expect_bulk(&self) {
        if let Some(keeper) = &self.line.below.quic
            && !self.line.is_bulk.swap(true, Ordering::Relaxed)
        {
            keeper.begin_bulk();
        }
    }

    /// Returns the agreed version; known after the other side's first message.
    pub fn version(&self) -> Option<u32> {
        self.theirs.as_ref().map(|(_, version)| *version)
    }

    pub(super) fn theirs(&self) -> Option<&Hello> {
        self.theirs.as_ref().map(|(hello, _)| hello)
    }

    /// Reads the server's hello and its admission (an empty message); returns the underlying
    /// reader.
    pub(super) async fn welcomed(mut self) -> Result<In, Error> {
        match self.read::<()>().await? {
            Some(()) => Ok(self.into_input()),
            None => Err(self.line.below.lost(&io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Returns the underlying reader with the unused bytes.
    pub(super) fn into_input(self) -> In {
        let FrameReader { input, mut came, start, .. } = self;
        came.drain(..start);
        Box::new(io::Cursor::new(came).chain(input))
    }

    /// Reads the next message; `None` at the session's end without an error. Cancel-safe.
    ///
    /// # Errors
    /// The other side's error at the session's end; or a message is invalid or too long, there is
    /// no common version, or the session is lost.
    pub async fn read<M: Message + Default>(&mut self) -> Result<Option<M>, Error> {
        self.greet().await?;
        let Some(frame) = self.frame().await? else { return Ok(None) };
        let message = M::decode(&self.came[frame]).map_err(|error| {
            let what = format!("{} sent an invalid message: {error}", self.line.below.shown());
            Error::new(Kind::Unreachable, what).advise("check that both sides run the same release")
        })?;
        Ok(Some(message))
    }

    pub(super) async fn greet(&mut self) -> Result<(), Error> {
        if self.theirs.is_some() {
            return Ok(());
        }
        let Some(frame) = self.frame().await? else {
            let what = format!("{} ended the session before it began", self.line.below.shown());
            return Err(Error::new(Kind::Lost, what));
        };
        let theirs = hello::decode(&self.came[frame])?;
        let version = self.ours.agree(&theirs)?;
        self.theirs = Some((theirs, version));
        Ok(())
    }

    /// Returns the position of the next message in `came`; `None` after a goodbye without an error.
    async fn frame(&mut self) -> Result<Option<std::ops::Range<usize>>, Error> {
        loop {
            let rest = &self.came[self.start..];
            if let Some((header, body)) = rest.split_first_chunk::<HEADER>() {
                let begin = self.start + HEADER;
                match frame::decode_header(*header)? {
                    Header::Message(length) if body.len() >= length => {
                        self.start = begin + length;
                        return Ok(Some(begin..self.start));
                    }
                    // The goodbye stays in the buffer, so the next read returns it again.
                    Header::Goodbye(length) if body.len() >= length => {
                        self.line.peer_done.store(true, Ordering::Relaxed);
                        let reason =
                            frame::decode_goodbye(&body[..length], &self.line.below.shown());
                        return reason.map_or(Ok(None), Err);
                    }
                    _ => {}
                }
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), Error> {
        self.came.drain(..self.start);
        self.start = 0;
        self.came.reserve(READ_AHEAD);
        match self.input.read_buf(&mut self.came).await {
            Ok(0) => Err(self.line.below.lost(&io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(()),
            Err(error) => Err(self.line.below.lost(&error)),
        }
    }

    /// Reads the input to its end: some carriers otherwise discard undelivered data.
    async fn drain(mut self) {
        loop {
            self.came.clear();
            self.start = 0;
            if self.fill().await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;
    use crate::below::Streams;
    use crate::id::PeerId;

    fn reader(bytes: Vec<u8>) -> FrameReader {
        let below = Below::new(PeerId([1; 32]), Streams::One);
        let line = Arc::new(Line::new(Arc::new(below)));
        FrameReader::new(Box::new(Cursor::new(bytes)), line, Hello::new(&hello::VERSIONS))
    }

    fn writer(out: Vec<u8>, delivered: Option<Delivered>) -> FrameWriter {
        let below = Below::new(PeerId([1; 32]), Streams::One);
        let line = Arc::new(Line::new(Arc::new(below)));
        FrameWriter::new(Box::new(Cursor::new(out)), line, delivered, Hello::new(&hello::VERSIONS))
    }

    fn greeting() -> Vec<u8> {
        let mut bytes = Vec::new();
        frame::encode(&Hello::new(&hello::VERSIONS), &mut bytes).expect("short");
        bytes
    }

    #[test]
    fn leave_does_not_wait_for_the_delivery_and_close_does() {
        // Waiting for this delivery would fail after three seconds.
        let never: Delivered = Box::pin(std::future::pending());
        let left = writer(Vec::new(), Some(never)).leave(reader(greeting()));
        assert_eq!(block_on_time(left), Ok(()));
        let heard = Arc::new(AtomicBool::new(false));
        let hears = heard.clone();
        let arrives: Delivered = Box::pin(async move { hears.store(true, Ordering::Relaxed) });
        let closed = writer(Vec::new(), Some(arrives)).close(reader(greeting()), None);
        assert_eq!(block_on_time(closed), Ok(()));
        assert!(heard.load(Ordering::Relaxed));
    }

    #[test]
    fn queued_counts_the_bytes_that_the_carrier_has_not_yet_taken() {
        let (out, _far) = tokio::io::duplex(3);
        let mut writer = writer(Vec::new(), None);
        writer.out = Box::new(out);
        assert_eq!(writer.queued(), 0);
        writer.queue(&7u32).expect("short");
        // The hello, then a message: its length, and two bytes for the number and its tag.
        let all = greeting().len() + HEADER + 2;
        assert_eq!(writer.queued(), all);
        block_on_time(async {
            assert!(timeout(Duration::ZERO, writer.flush()).await.is_err(), "it takes 3 bytes");
        });
        assert_eq!(writer.queued(), all - 3);
    }

    #[test]
    fn a_fill_takes_what_came_and_fails_at_the_end() {
        let mut reader = reader(greeting());
        block_on_time(async {
            assert_eq!(reader.fill().await, Ok(()));
            assert_eq!(reader.came, greeting());
            assert_eq!(reader.fill().await.expect_err("it ended").kind, Kind::Lost);
        });
    }

    /// Polls `close` once while the other side is silent. Returns whether it waits.
    fn waits(is_broken: bool, peer_done: bool) -> bool {
        let (input, _silent) = tokio::io::duplex(8);
        let (out, far) = tokio::io::duplex(1 << 10);
        if is_broken {
            drop(far);
        }
        let mut writer = writer(Vec::new(), None);
        writer.out = Box::new(out);
        writer.line.peer_done.store(peer_done, Ordering::Relaxed);
        let mut reader = reader(Vec::new());
        reader.input = Box::new(input);
        block_on_time(async {
            let end = std::pin::pin!(writer.close(reader, None));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            end.poll(&mut context).is_pending()
        })
    }

    #[test]
    fn close_waits_unless_the_other_side_has_ended_or_cannot_be_reached() {
        let cases = [(false, false), (false, true), (true, false), (true, true)];
        assert_eq!(cases.map(|(broken, done)| waits(broken, done)), [true, false, false, false]);
    }

    #[test]
    fn close_reads_what_the_other_side_still_sends() {
        let (input, mut far) = tokio::io::duplex(8);
        let mut reader = reader(Vec::new());
        reader.input = Box::new(input);
        let sends = async {
            let sent = far.write_all(&[0; 100]).await;
            drop(far);
            sent.is_ok()
        };
        let closes = writer(Vec::new(), None).close(reader, None);
        assert_eq!(block_on_time(async { tokio::join!(closes, sends) }), (Ok(()), true));
    }

    #[test]
    fn a_message_and_a_goodbye_that_come_in_parts_are_read_whole() {
        let mut bytes = greeting();
        frame::encode(&"a word".to_owned(), &mut bytes).expect("short");
        let why = Error::new(Kind::Usage, "a reason");
        frame::encode_goodbye(Some(&why), &mut bytes);
        for cut in 1..bytes.len() {
            let mut reader = reader(Vec::new());
            let (first, rest) = bytes.split_at(cut);
            reader.input = Box::new(Cursor::new(first.to_vec()).chain(Cursor::new(rest.to_vec())));
            assert_eq!(block_on(reader.read::<String>()), Ok(Some("a word".to_owned())), "{cut}");
            for _ in 0..2 {
                let error = block_on(reader.read::<String>()).expect_err("it is the reason");
                assert!(error.what.contains("a reason"), "{cut}: {error}");
            }
            assert!(reader.line.peer_done.load(Ordering::Relaxed));
        }
    }

    #[test]
    fn bytes_that_were_read_and_not_used_come_first_from_the_underlying_reader() {
        let mut bytes = greeting();
        bytes.extend(b"of another kind");
        let mut reader = reader(bytes);
        assert_eq!(reader.version(), None);
        block_on(reader.greet()).expect("it greets");
        assert_eq!(reader.version(), Some(2));
        let mut rest = Vec::new();
        block_on(reader.into_input().read_to_end(&mut rest)).expect("it is in memory");
        assert_eq!(rest, b"of another kind");
    }

    fn block_on_time<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(work)
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(work)
    }

    #[test]
    fn a_claimed_length_is_not_allocated_before_the_bytes_arrive() {
        let mut reader = reader((frame::MAX_FRAME as u32).to_be_bytes().to_vec());
        let error = block_on(reader.read::<String>()).expect_err("it ends there");
        assert_eq!(error.kind, Kind::Lost);
        assert!(reader.came.capacity() <= 4 * READ_AHEAD, "{}", reader.came.capacity());
        assert_eq!(READ_AHEAD, 16_384);
    }

    proptest! {
        #[test]
        fn any_bytes_are_messages_or_an_error(tail: Vec<u8>, greets: bool) {
            let mut bytes = if greets { greeting() } else { Vec::new() };
            bytes.extend(tail);
            let messages = bytes.len() / HEADER;
            let mut reader = reader(bytes);
            let mut read = 0;
            while let Ok(Some(_)) = block_on(reader.read::<String>()) {
                read += 1;
                prop_assert!(read <= messages);
            }
        }
    }
}
