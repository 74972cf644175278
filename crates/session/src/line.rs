//! The two halves of a stream of messages.

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
use crate::{Error, Kind};

/// How long the last message may take to arrive.
const FAREWELL: Duration = Duration::from_secs(3);
/// How long an end that leaves without waiting reads on, over TCP and ssh.
const PARTING: Duration = Duration::from_millis(5);

/// Read from the carrier at a time; what a length claims is never allocated before it is there.
const READ_AHEAD: usize = 16 << 10;

/// Completes when all that was written has arrived.
pub(super) type Delivered = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What both halves of a stream share: while one of them lives, so does the connection below.
pub(super) struct Line {
    pub(super) below: Arc<Below>,
    /// The other side has said its last word.
    peer_done: AtomicBool,
}

impl Line {
    pub(super) fn new(below: Arc<Below>) -> Line {
        Line { below, peer_done: AtomicBool::new(false) }
    }
}

/// The sending half of a control stream. The other side's end of it is told by
/// [`FrameWriter::close`]; dropping both halves abandons what was not delivered yet.
pub struct FrameWriter {
    out: Out,
    line: Arc<Line>,
    delivered: Option<Delivered>,
    /// What goes in front of the first message.
    hello: Option<Hello>,
    /// Encoded and not yet taken by the carrier.
    pending: Vec<u8>,
    taken: usize,
}

impl FrameWriter {
    /// Whatever is written first, `hello` goes in front of it.
    pub(super) fn new(
        out: Out,
        line: Arc<Line>,
        delivered: Option<Delivered>,
        hello: Hello,
    ) -> FrameWriter {
        FrameWriter { out, line, delivered, hello: Some(hello), pending: Vec::new(), taken: 0 }
    }

    /// Names the service that the stream is for; has no effect once something was written.
    pub(super) fn ask_for(&mut self, service: &str, needs: u32) {
        if let Some(hello) = &mut self.hello {
            hello.ask_for(service, needs);
        }
    }

    /// Encodes the hello, unless that was done.
    fn greet(&mut self) {
        if let Some(hello) = self.hello.take() {
            frame::encode(&hello, &mut self.pending).expect("a hello is far below the limit");
        }
    }

    /// Sends one message. When it is cancelled, the message goes out with the next one, whole.
    ///
    /// # Errors
    /// The message is longer than [`MAX_FRAME`](frame::MAX_FRAME), or the session is lost.
    pub async fn write(&mut self, message: &impl Message) -> Result<(), Error> {
        self.greet();
        frame::encode(message, &mut self.pending)?;
        self.flush().await
    }

    /// Says goodbye and ends this direction after what was written before; `why` is what the
    /// other side's next read gives as an error, nothing if all is well. Waits up to three
    /// seconds for the delivery, except where the other side has ended already. Over TCP and ssh
    /// the wait is for the other side's own end, for which `reader` is needed.
    ///
    /// # Errors
    /// The session is lost before all was delivered (over QUIC) or handed to the system.
    pub async fn close(self, reader: FrameReader, why: Option<Error>) -> Result<(), Error> {
        self.end(reader, why, true).await
    }

    /// Says goodbye like [`FrameWriter::close`], for the end that has heard all it wanted: what was
    /// written is handed to the system as far as the path takes it at once, and its delivery is not
    /// waited for.
    ///
    /// # Errors
    /// The session is lost before.
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
        if ended.is_ok() && !self.line.peer_done.load(Ordering::Relaxed) {
            match (self.delivered.take(), quic, reader.take()) {
                (Some(arrived), ..) if waits => {
                    ended = timeout(FAREWELL, arrived).await.map_err(|_| late());
                }
                (_, Some((keeper, before)), _) => keeper.sent_more_than(before).await,
                // All is with the kernel; the wait is so that nothing unread makes it reset the
                // connection.
                (_, None, Some(reader)) => {
                    let patience = if waits { FAREWELL } else { PARTING };
                    drop(timeout(patience, reader.drain()).await);
                }
                (_, None, None) => {}
            }
        }
        let below = line.below.clone();
        drop((reader, self, line));
        Below::release(below).await;
        ended
    }

    /// Says goodbye and ends this direction, without waiting.
    ///
    /// # Errors
    /// The session is lost.
    pub(super) async fn finish(&mut self) -> Result<(), Error> {
        self.greet();
        frame::encode_goodbye(None, &mut self.pending);
        self.flush().await?;
        self.out.shutdown().await.map_err(|error| self.line.below.lost(&error))
    }

    /// Ends nothing: gives the bytes' way back, after everything that was written.
    ///
    /// # Errors
    /// The session is lost.
    pub(super) async fn into_out(mut self) -> Result<Out, Error> {
        self.greet();
        self.flush().await?;
        Ok(self.out)
    }

    pub(super) fn line(&self) -> &Line {
        &self.line
    }

    /// Sends bytes as they are.
    #[cfg(test)]
    pub(super) async fn write_raw(&mut self, bytes: &[u8]) {
        self.greet();
        self.pending.extend_from_slice(bytes);
        self.flush().await.expect("an open session");
    }

    async fn flush(&mut self) -> Result<(), Error> {
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

/// The receiving half of a control stream.
pub struct FrameReader {
    input: In,
    line: Arc<Line>,
    ours: Hello,
    /// The other side's hello, once it was read, and the version that both speak.
    theirs: Option<(Hello, u32)>,
    /// Bytes that have come; those before `start` are used up.
    came: Vec<u8>,
    start: usize,
}

impl FrameReader {
    pub(super) fn new(input: In, line: Arc<Line>, ours: Hello) -> FrameReader {
        FrameReader { input, line, ours, theirs: None, came: Vec::new(), start: 0 }
    }

    /// Much is to come, or to go: the session makes room for as much as the path holds.
    pub fn expect_much(&self) {
        if let Some(keeper) = &self.line.below.quic {
            keeper.expect_much();
        }
    }

    /// The agreed protocol version; known once the other side's first message was read.
    pub fn version(&self) -> Option<u32> {
        self.theirs.as_ref().map(|(_, version)| *version)
    }

    /// What the other side said first; known once its first message was read.
    pub(super) fn theirs(&self) -> Option<&Hello> {
        self.theirs.as_ref().map(|(hello, _)| hello)
    }

    /// Reads the server's hello and its word that the client is let in; then as
    /// [`FrameReader::into_input`].
    ///
    /// # Errors
    /// The server's reason why the client is not let in, or the session is lost.
    pub(super) async fn welcomed(mut self) -> Result<In, Error> {
        match self.read::<()>().await? {
            Some(()) => Ok(self.into_input()),
            None => Err(self.line.below.lost(&io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Gives the bytes' way back, with what was read of it and not used.
    pub(super) fn into_input(self) -> In {
        let FrameReader { input, mut came, start, .. } = self;
        came.drain(..start);
        Box::new(io::Cursor::new(came).chain(input))
    }

    /// The next message; nothing when the other side has ended the session and all is well. May
    /// be cancelled without losing anything.
    ///
    /// # Errors
    /// The other side ended the session with an error (which is given), speaks no common version
    /// of the protocol, sent what is no message or too long a one, or the session is lost.
    pub async fn read<M: Message + Default>(&mut self) -> Result<Option<M>, Error> {
        self.greet().await?;
        let Some(frame) = self.frame().await? else { return Ok(None) };
        let message = M::decode(&self.came[frame]).map_err(|error| {
            let what = format!("{} sent what is no message: {error}", self.line.below.shown());
            Error::new(Kind::Unreachable, what).advise("see that both ends run the same release")
        })?;
        Ok(Some(message))
    }

    /// Reads the other side's hello, unless that was done.
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

    /// Where in `came` the next message lies.
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
                    // It stays where it is: the next read tells the same.
                    Header::Goodbye(length) if body.len() >= length => {
                        self.line.peer_done.store(true, Ordering::Relaxed);
                        let told = frame::decode_goodbye(&body[..length], &self.line.below.shown());
                        return told.map_or(Ok(None), Err);
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

    /// Reads up to the end, for a carrier that would destroy what it still delivers if input
    /// were left unread.
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

    /// A line whose bytes go into `out`; `delivered` says when they have arrived.
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
    fn an_end_that_leaves_does_not_wait_for_the_delivery_and_one_that_closes_does() {
        // With a runtime's clock: whoever waits in vain ends after three seconds, with an error.
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
    fn what_was_read_and_not_used_comes_before_what_follows() {
        let mut bytes = greeting();
        bytes.extend(b"of another kind");
        let mut reader = reader(bytes);
        block_on(reader.greet()).expect("it greets");
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
    fn what_a_length_claims_is_not_allocated_before_it_is_there() {
        let mut reader = reader((frame::MAX_FRAME as u32).to_be_bytes().to_vec());
        let error = block_on(reader.read::<String>()).expect_err("it ends there");
        assert_eq!(error.kind, Kind::Lost);
        assert!(reader.came.capacity() <= 4 * READ_AHEAD, "{}", reader.came.capacity());
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
