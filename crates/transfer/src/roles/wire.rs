//! The messages of one session: this side receives them from the stream and from datagrams, and
//! sends them without waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::control::{ChunkPiece, Frame, Message, Ping};
use crate::error::{Error, ErrorKind};
use crate::flow::outbox::Outbox;
use crate::session::{FrameReader, FrameWriter, Session};
use crate::write::budget::MessageCharge;

/// Maximum number of pieces of chunks that wait for the stream.
pub(super) const BULK: usize = 4;
/// Maximum number of unread messages from datagrams.
pub(super) const INLET: usize = 1024;
/// A side that leaves the session waits at most this long until its queued messages are sent.
const LEAVING: Duration = Duration::from_secs(1);
/// How long to wait for the final message to be sent, if the other side does not read.
const CLOSING: Duration = Duration::from_secs(30);
/// How long to wait for the other side's final message after the writer has failed.
const LAST_WORD: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) enum End {
    /// The session is lost; the copy can continue over a new session.
    Lost(String),
    /// A side works, but cannot take the copy now; the copy can start later, in a new session.
    Busy(String),
    /// Datagrams do not pass, or no longer pass; the copy can continue over streams.
    NoDatagrams,
    Fatal(Error),
}

impl From<Error> for End {
    fn from(error: Error) -> End {
        End::Fatal(error)
    }
}

impl From<longhaul_files::Error> for End {
    fn from(error: longhaul_files::Error) -> End {
        End::Fatal(error.into())
    }
}

impl From<longhaul_session::Error> for End {
    fn from(error: longhaul_session::Error) -> End {
        End::Fatal(error.into())
    }
}

impl From<longhaul_net::Error> for End {
    fn from(error: longhaul_net::Error) -> End {
        End::Fatal(error.into())
    }
}

/// The task that writes to the session. Dropping a `Writer` ends the task and frees the messages to
/// a peer that does not read.
struct Writer(JoinHandle<Result<FrameWriter, String>>);

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) struct Wire {
    reader: FrameReader,
    outbox: Outbox,
    /// Whether the outbox contains an answer to a ping. One answer is enough, so a peer that does
    /// not read cannot fill the outbox with answers.
    answering: Arc<AtomicBool>,
    bulk: Sender<ChunkPiece>,
    writer: Writer,
    broken: Receiver<String>,
    /// The reason to give up the session, and when to give up; `None` while there is no reason.
    giving_up: Option<(String, Instant)>,
    inlet: Receiver<Message>,
    inlet_end: Sender<Message>,
    /// A message that was put back; [`Wire::next`] returns it first.
    again: Option<Message>,
}

impl Wire {
    /// Takes over `session`. Messages that the other side does not read are charged to `charge`.
    /// Must be called within a `LocalSet`.
    pub(crate) fn new(session: Session, charge: MessageCharge) -> Wire {
        let (mut writer, reader) = session.split();
        let (outbox, mut messages) = Outbox::new(charge);
        let (bulk, mut pieces) = channel(BULK);
        let (breaking, broken) = channel(1);
        let answering = Arc::new(AtomicBool::new(false));
        let answered = answering.clone();
        let writer = tokio::task::spawn_local(async move {
            loop {
                let message = tokio::select! {
                    biased;
                    message = messages.next() => message,
                    Some(piece) = pieces.recv() => Some(Message::ChunkPiece(piece)),
                };
                let Some(message) = message else { return Ok(writer) };
                let answer = matches!(message, Message::Ping(Ping { answer: true }));
                if let Err(error) = writer.write(&Frame::from(message)).await {
                    let _ = breaking.try_send(error.to_string());
                    return Err(error.to_string());
                }
                if answer {
                    answered.store(false, Ordering::Relaxed);
                }
            }
        });
        let (inlet_end, inlet) = channel(INLET);
        let writer = Writer(writer);
        let (giving_up, again) = (None, None);
        Wire { reader, outbox, answering, bulk, writer, broken, giving_up, inlet, inlet_end, again }
    }

    pub(crate) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Returns the bounded queue for pieces of chunks, which have a lower priority than messages.
    pub(crate) fn bulk(&self) -> Sender<ChunkPiece> {
        self.bulk.clone()
    }

    /// Declares that the stream will carry much data in one direction.
    pub(super) fn expect_much(&self) {
        self.reader.expect_much();
    }

    /// Returns the bounded queue for messages from datagrams. These messages also arrive over the
    /// stream, so a full queue may drop them.
    pub(crate) fn inlet(&self) -> Sender<Message> {
        self.inlet_end.clone()
    }

    /// Returns the next message, from the stream or a datagram. Answers pings. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Message, End> {
        if let Some(message) = self.again.take() {
            return Ok(message);
        }
        loop {
            let deadline = self.giving_up.as_ref().map(|(_, at)| *at);
            let message = tokio::select! {
                overflow = self.outbox.overflows() => return Err(End::Lost(overflow.to_string())),
                why = self.broken.recv(), if deadline.is_none() => {
                    let why = why.unwrap_or_else(|| "no message can be sent".into());
                    self.giving_up = Some((why, Instant::now() + LAST_WORD));
                    continue;
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    let why = self.giving_up.take().map(|(why, _)| why);
                    return Err(End::Lost(why.unwrap_or_default()));
                }
                Some(message) = self.inlet.recv() => message,
                frame = self.reader.read::<Frame>() => match frame {
                    Ok(Some(Frame { message: Some(message) })) => message,
                    // Ignore a message from a newer version.
                    Ok(Some(Frame { message: None })) => continue,
                    Ok(None) => return Err(End::Lost("the other side hung up".into())),
                    Err(error) => return Err(lost_or_fatal(error.into())),
                },
            };
            match message {
                Message::Ping(ping) if !ping.answer => {
                    if !self.answering.swap(true, Ordering::Relaxed) {
                        self.outbox.send(Message::Ping(Ping { answer: true }));
                    }
                }
                message => return Ok(message),
            }
        }
    }

    pub(crate) fn put_back(&mut self, message: Message) {
        self.again = Some(message);
    }

    /// Ends the session without an error. Waits up to [`LEAVING`] until the queued messages are
    /// sent.
    pub(crate) async fn leave(self) {
        self.outbox.end();
        if let Some(writer) = ended(self.writer, LEAVING).await {
            // The other side may be gone already.
            let _ = writer.leave(self.reader).await;
        }
    }

    /// Sends the queued messages, then ends the session and waits for the delivery. `why` is the
    /// error for the other side, if there is one.
    pub(crate) async fn close(self, why: Option<&Error>) {
        self.outbox.end();
        if let Some(writer) = ended(self.writer, CLOSING).await {
            // The other side may be gone already.
            let _ = writer.close(self.reader, why.map(Into::into)).await;
        }
    }
}

/// Waits until the writer has sent everything; `None` if the stream is broken or blocked.
async fn ended(mut writer: Writer, patience: Duration) -> Option<FrameWriter> {
    tokio::time::timeout(patience, &mut writer.0).await.ok()?.ok()?.ok()
}

/// Classifies an error: a broken or busy session can be resumed, a refused session cannot.
pub(crate) fn lost_or_fatal(error: Error) -> End {
    match error.kind {
        _ if error.is_busy => End::Busy(error.what),
        ErrorKind::Unfinished | ErrorKind::Stalled => End::Lost(error.what),
        _ => End::Fatal(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::{LOOPBACKS, pair, run};
    use crate::session::Carriers;
    use crate::write::budget::Budget;
    use longhaul_proto::units::Bytes;

    #[test]
    fn a_busy_side_is_not_a_lost_session_and_a_refusal_is_final() {
        let unfinished = Error::new(ErrorKind::Unfinished, "why");
        assert!(matches!(lost_or_fatal(unfinished.clone()), End::Lost(why) if why == "why"));
        assert!(matches!(lost_or_fatal(unfinished.busy()), End::Busy(why) if why == "why"));
        let refused = Error::new(ErrorKind::Unreachable, "why");
        assert!(matches!(lost_or_fatal(refused), End::Fatal(_)));
    }

    #[test]
    fn a_session_ends_when_the_other_side_reads_nothing() {
        run(async {
            let local = tokio::task::LocalSet::new();
            local
                .run_until(async {
                    let (near, far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
                    // The other side does not read, but does not close either.
                    let (_writer, reader) = far.split();
                    drop(reader);
                    let mut wire = Wire::new(near, MessageCharge::alone());
                    let outbox = wire.outbox().clone();
                    let teller = tokio::task::spawn_local(async move {
                        let mut tick = tokio::time::interval(Duration::from_millis(10));
                        loop {
                            tick.tick().await;
                            outbox.send(Message::Ping(Ping { answer: false }));
                        }
                    });
                    assert!(matches!(wire.next().await, Err(End::Lost(_))));
                    teller.abort();
                    wire.close(None).await;
                })
                .await;
        });
    }

    /// Queues more messages than the session takes while the other side does not read.
    fn unread(outbox: &Outbox) {
        for chunk in 0..128 {
            let piece = ChunkPiece { chunk, bytes: vec![7; 1 << 19], ..Default::default() };
            outbox.send(Message::ChunkPiece(piece));
        }
    }

    #[test]
    fn a_wire_that_is_dropped_frees_what_a_peer_did_not_read() {
        run(async {
            let local = tokio::task::LocalSet::new();
            local
                .run_until(async {
                    let (near, far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
                    let memory = Budget::new(Bytes::mebi(512)).unwrap();
                    let wire = Wire::new(near, memory.messages());
                    let outbox = wire.outbox().clone();
                    unread(&outbox);
                    tokio::task::yield_now().await;
                    assert!(!outbox.is_ended());
                    assert!(!memory.messages().set(490 << 20), "unread messages are charged");
                    drop(wire);
                    outbox.ended().await;
                    assert!(outbox.is_ended());
                    assert!(memory.messages().set(512 << 20));
                    drop(far);
                })
                .await;
        });
    }

    #[test]
    fn a_session_is_lost_immediately_when_unread_messages_exceed_the_memory() {
        run(async {
            let local = tokio::task::LocalSet::new();
            local
                .run_until(async {
                    let (near, far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
                    let memory = Budget::new(Bytes::mebi(32)).unwrap();
                    let mut wire = Wire::new(near, memory.messages());
                    let outbox = wire.outbox().clone();
                    tokio::task::spawn_local(async move { unread(&outbox) });
                    let Err(End::Lost(why)) = wire.next().await else { panic!("it is not lost") };
                    assert!(why.contains("`memory` has no room"), "{why}");
                    drop(far);
                })
                .await;
        });
    }

    #[test]
    fn pings_that_arrive_before_an_answer_is_sent_share_this_answer() {
        run(async {
            let local = tokio::task::LocalSet::new();
            local
                .run_until(async {
                    let (near, far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
                    let (_writer, mut reader) = far.split();
                    let mut wire = Wire::new(near, MessageCharge::alone());
                    let status = || Message::Status(crate::control::Status::default());
                    for _ in 0..2 {
                        // The task that sends the answers does not run before this task waits.
                        let ping = || Message::Ping(Ping { answer: false });
                        (0..50).for_each(|_| wire.inlet_end.try_send(ping()).unwrap());
                        wire.inlet_end.try_send(status()).unwrap();
                        assert!(matches!(wire.next().await, Ok(Message::Status(_))));
                        wire.outbox.send(status());
                        let mut answers = 0;
                        while reader.read::<Frame>().await.unwrap() != Some(status().into()) {
                            answers += 1;
                        }
                        assert!((1..=2).contains(&answers), "{answers} answers");
                    }
                })
                .await;
        });
    }
}
