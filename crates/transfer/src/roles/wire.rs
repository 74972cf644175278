//! One session as an end uses it: messages in from the stream and from datagrams alike, messages
//! out without waiting.

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

/// Pieces of chunks that wait for the stream.
pub(super) const BULK: usize = 4;
/// Messages by datagram that wait to be read: a peer cannot fill the memory with them.
const INLET: usize = 1024;
/// An end that leaves does not wait longer for what it had still to tell: it matters to nobody.
const LEAVING: Duration = Duration::from_secs(1);
/// The last word is not waited for longer: the other side does not read it.
const CLOSING: Duration = Duration::from_secs(30);
/// Once nothing can be told any more, the other side's last word is waited for so long.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Why an end ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The session is gone; the copy can go on over a new one.
    Lost(String),
    /// Datagrams do not pass (any more); the copy can go on by stream.
    NoDatagrams,
    /// For good.
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

/// The task that writes to the session. Dropping it ends the task and frees the messages that wait
/// for a peer that reads nothing.
struct Writer(JoinHandle<Result<FrameWriter, String>>);

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A session's messages.
pub(crate) struct Wire {
    reader: FrameReader,
    outbox: Outbox,
    /// An answer to a ping is in the outbox: one is enough, and a peer that does not read cannot
    /// fill it.
    answering: Arc<AtomicBool>,
    bulk: Sender<ChunkPiece>,
    writer: Writer,
    /// Why the writer ended before its time.
    broken: Receiver<String>,
    /// The same once it is known, and when the session is given up for it.
    giving_up: Option<(String, Instant)>,
    inlet: Receiver<Message>,
    inlet_end: Sender<Message>,
    /// Read before it could be taken.
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

    /// The way out.
    pub(crate) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// The way out for pieces of chunks, behind everything else; it waits when it is full.
    pub(crate) fn bulk(&self) -> Sender<ChunkPiece> {
        self.bulk.clone()
    }

    /// The stream itself is to carry much, one way or the other.
    pub(super) fn expect_much(&self) {
        self.reader.expect_much();
    }

    /// Where messages that come by datagram are put in, if there is room: all of them come by the
    /// stream too.
    pub(crate) fn inlet(&self) -> Sender<Message> {
        self.inlet_end.clone()
    }

    /// The next message, by stream or by datagram. Pings are answered.
    /// Safe to drop half-way: nothing is lost.
    pub(crate) async fn next(&mut self) -> Result<Message, End> {
        if let Some(message) = self.again.take() {
            return Ok(message);
        }
        loop {
            let deadline = self.giving_up.as_ref().map(|(_, at)| *at);
            let message = tokio::select! {
                overflow = self.outbox.overflows() => return Err(End::Lost(overflow.to_string())),
                why = self.broken.recv(), if deadline.is_none() => {
                    let why = why.unwrap_or_else(|| "nothing more can be told".into());
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
                    // Of a newer version: to be ignored.
                    Ok(Some(Frame { message: None })) => continue,
                    Ok(None) => return Err(End::Lost("the other side hung up".into())),
                    Err(error) => return Err(lost_or_fatal(error.into())),
                },
            };
            match message {
                Message::Ping(ping) if !ping.answer => {
                    if !self.answering.swap(true, Ordering::Relaxed) {
                        self.outbox.tell(Message::Ping(Ping { answer: true }));
                    }
                }
                message => return Ok(message),
            }
        }
    }

    /// Has the next read give `message`, for which it was too early.
    pub(crate) fn put_back(&mut self, message: Message) {
        self.again = Some(message);
    }

    /// Ends the session without waiting: this end has heard all it wanted.
    pub(crate) async fn leave(self) {
        self.outbox.end();
        if let Some(writer) = ended(self.writer, LEAVING).await {
            // The other side may be gone already.
            let _ = writer.leave(self.reader).await;
        }
    }

    /// Delivers what was told, then ends the session and says why.
    pub(crate) async fn close(self, why: Option<&Error>) {
        self.outbox.end();
        if let Some(writer) = ended(self.writer, CLOSING).await {
            // The other side may be gone already.
            let _ = writer.close(self.reader, why.map(Into::into)).await;
        }
    }
}

/// The writer once it has said all; nothing where the stream is broken, or takes nothing more.
async fn ended(mut writer: Writer, patience: Duration) -> Option<FrameWriter> {
    tokio::time::timeout(patience, &mut writer.0).await.ok()?.ok()?.ok()
}

/// A session that breaks can be taken up again; one that is refused cannot.
pub(crate) fn lost_or_fatal(error: Error) -> End {
    match error.kind {
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
    fn an_end_that_can_tell_nothing_any_more_ends() {
        run(async {
            let local = tokio::task::LocalSet::new();
            local
                .run_until(async {
                    let (near, far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
                    // The other side hears no more, but does not hang up.
                    let (_writer, reader) = far.split();
                    drop(reader);
                    let mut wire = Wire::new(near, MessageCharge::alone());
                    let outbox = wire.outbox().clone();
                    let teller = tokio::task::spawn_local(async move {
                        let mut tick = tokio::time::interval(Duration::from_millis(10));
                        loop {
                            tick.tick().await;
                            outbox.tell(Message::Ping(Ping { answer: false }));
                        }
                    });
                    assert!(matches!(wire.next().await, Err(End::Lost(_))));
                    teller.abort();
                    wire.close(None).await;
                })
                .await;
        });
    }

    /// Messages that are more than the session takes while the other side reads nothing.
    fn unread(outbox: &Outbox) {
        for chunk in 0..128 {
            let piece = ChunkPiece { chunk, bytes: vec![7; 1 << 19], ..Default::default() };
            outbox.tell(Message::ChunkPiece(piece));
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
    fn a_peer_whose_unread_messages_find_no_memory_is_lost_at_once_though_it_says_nothing() {
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
    fn pings_that_come_faster_than_answers_leave_share_one() {
        run(async {
            let local = tokio::task::LocalSet::new();
            local
                .run_until(async {
                    let (near, far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
                    let (_writer, mut reader) = far.split();
                    let mut wire = Wire::new(near, MessageCharge::alone());
                    let status = || Message::Status(crate::control::Status::default());
                    for _ in 0..2 {
                        // The writer has no turn before the end waits.
                        let ping = || Message::Ping(Ping { answer: false });
                        (0..50).for_each(|_| wire.inlet_end.try_send(ping()).unwrap());
                        wire.inlet_end.try_send(status()).unwrap();
                        assert!(matches!(wire.next().await, Ok(Message::Status(_))));
                        wire.outbox.tell(status());
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
