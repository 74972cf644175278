//! The two channels for outgoing messages: the control stream, and datagrams that overtake the
//! stream.
//!
//! On a stream, a lost packet delays all later data for more than a round trip. So messages that a
//! protocol waits for are sent twice: in a separate sealed datagram, and reliably on the stream.
//! A message of this kind that arrives twice has the same effect as one that arrives once.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use longhaul_net::sealing::seal::{SEALED_OVERHEAD, Sealer};
use longhaul_net::socket::{Path, Socket};
use prost::Message as _;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::control::{Frame, Message};
use crate::write::budget::MessageCharge;
use longhaul_proto::wire::header::Kind;
use longhaul_text::CallOption;

/// The largest datagram for a message. Every IPv6 path carries packets of 1280 bytes (RFC 8200,
/// section 5); the headers of IPv6 and UDP are subtracted.
const MAX_DATAGRAM: usize = 1280 - 40 - 8;

/// Limit of waiting messages in bytes. A peer that leaves more unread is treated as gone.
const MOST_WAITING: usize = 256 << 20;
/// Bytes of waiting messages that are not charged to the memory limit, because every transfer may
/// need them.
const FREE: usize = 1 << 20;

/// The writing end of the queue for the control stream.
#[derive(Clone)]
pub(crate) struct Outbox {
    sender: UnboundedSender<Option<Message>>,
    level: Arc<Level>,
}

pub(crate) struct Outflow {
    receiver: UnboundedReceiver<Option<Message>>,
    level: Arc<Level>,
}

struct Level {
    bytes: AtomicUsize,
    /// The memory charge for bytes beyond [`FREE`]; `None` after the reading end is dropped.
    charge: Mutex<Option<MessageCharge>>,
    overflown: OnceLock<Overflow>,
    overflows: Notify,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Overflow {
    /// More than [`MOST_WAITING`] bytes wait.
    Unread,
    /// This many bytes wait, and the memory has no room for them.
    Memory(usize),
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Overflow::Unread => {
                let most = MOST_WAITING >> 20;
                write!(f, "the other side leaves {most} MiB of messages unread")
            }
            Overflow::Memory(bytes) => {
                let (memory, mebi) = (CallOption::Memory, bytes.div_ceil(1 << 20));
                write!(
                    f,
                    "{memory} has no room for {mebi} MiB of messages that the other side has not \
                     read yet; raise it on the host that reports this, or wait for other copies \
                     to end"
                )
            }
        }
    }
}

impl Outbox {
    /// Waiting bytes beyond [`FREE`] are charged to `charge`.
    pub(crate) fn new(charge: MessageCharge) -> (Outbox, Outflow) {
        let (sender, receiver) = unbounded_channel();
        let level = Arc::new(Level {
            bytes: AtomicUsize::new(0),
            charge: Mutex::new(Some(charge)),
            overflown: OnceLock::new(),
            overflows: Notify::new(),
        });
        (Outbox { sender, level: level.clone() }, Outflow { receiver, level })
    }

    /// Queues `message` for the stream. Messages after the end of the stream are dropped; the task
    /// that reads the stream reports the end. If the peer does not read, the outbox overflows, and
    /// the transfer ends.
    pub(crate) fn send(&self, message: Message) {
        let len = size(&message);
        let now = self.level.bytes.fetch_add(len, Ordering::Relaxed) + len;
        if now > MOST_WAITING {
            self.level.overflow(Overflow::Unread);
        } else if now > FREE && !self.level.settle() {
            self.level.overflow(Overflow::Memory(now));
        }
        if self.overflown().is_none() {
            let _ = self.sender.send(Some(message));
        }
    }

    pub(crate) fn overflown(&self) -> Option<Overflow> {
        self.level.overflown()
    }

    /// Waits for an overflow. Cancel-safe.
    pub(crate) async fn overflows(&self) -> Overflow {
        self.level.overflows().await
    }

    #[cfg(test)]
    pub(crate) fn is_ended(&self) -> bool {
        self.sender.is_closed()
    }

    #[cfg(test)]
    pub(crate) async fn ended(&self) {
        self.sender.closed().await;
    }

    pub(crate) fn end(&self) {
        let _ = self.sender.send(None);
    }
}

impl Level {
    /// Adjusts the charge to the waiting bytes; returns whether the memory had room.
    fn settle(&self) -> bool {
        // No code panics while it holds the lock.
        let mut charge = self.charge.lock().unwrap_or_else(PoisonError::into_inner);
        let beyond = self.bytes.load(Ordering::Relaxed).saturating_sub(FREE);
        charge.as_mut().is_none_or(|charge| charge.set(beyond))
    }

    fn overflow(&self, why: Overflow) {
        let _ = self.overflown.set(why);
        self.overflows.notify_waiters();
    }

    fn overflown(&self) -> Option<Overflow> {
        self.overflown.get().copied()
    }

    async fn overflows(&self) -> Overflow {
        loop {
            let overflows = self.overflows.notified();
            if let Some(overflow) = self.overflown() {
                return overflow;
            }
            overflows.await;
        }
    }
}

impl Outflow {
    /// Returns the next message; `None` at the end. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        let message = self.receiver.recv().await.flatten()?;
        let before = self.level.bytes.fetch_sub(size(&message), Ordering::Relaxed);
        if before > FREE {
            self.level.settle();
        }
        Some(message)
    }

    /// As [`Outbox::overflown`].
    pub(crate) fn overflown(&self) -> Option<Overflow> {
        self.level.overflown()
    }

    /// Passes all messages on to `other`. If this queue overflows, `other` overflows too, because
    /// messages were dropped.
    pub(crate) async fn forward(mut self, other: Outbox) {
        let level = self.level.clone();
        loop {
            tokio::select! {
                biased;
                overflow = level.overflows() => return other.level.overflow(overflow),
                message = self.next() => match message {
                    Some(message) => other.send(message),
                    None => return,
                },
            }
        }
    }

    /// Makes the queue overflow.
    #[cfg(test)]
    pub(crate) fn lose_messages(&self) {
        self.level.overflow(Overflow::Unread);
    }
}

/// Clones of the outbox may outlive the session. The session's messages, and the memory charged for
/// them, must not.
impl Drop for Outflow {
    fn drop(&mut self) {
        self.receiver.close();
        while self.receiver.try_recv().is_ok() {}
        *self.level.charge.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn size(message: &Message) -> usize {
    size_of::<Message>() + message.encoded_len()
}

/// Seals messages into datagrams of one flow and direction.
pub(crate) struct Shadow {
    sealer: Sealer,
    socket: Arc<Socket>,
    path: Option<Path>,
    frame: Vec<u8>,
    datagram: Box<[u8]>,
}

impl Shadow {
    /// Without a path, [`Shadow::send`] and [`Shadow::send_empty`] send nothing.
    pub(crate) fn new(sealer: Sealer, socket: Arc<Socket>, path: Option<Path>) -> Shadow {
        let datagram = vec![0; MAX_DATAGRAM].into_boxed_slice();
        Shadow { sealer, socket, path, frame: Vec::with_capacity(MAX_DATAGRAM), datagram }
    }

    pub(crate) fn set_path(&mut self, path: Path) {
        self.path = Some(path);
    }

    pub(crate) fn send_both(&mut self, outbox: &Outbox, message: Message) {
        self.send(&message);
        outbox.send(message);
    }

    /// Sends `message` only as a datagram, which may be lost. Sends nothing if `message` does not
    /// fit into one datagram.
    pub(crate) fn send(&mut self, message: &Message) {
        let Some(path) = self.path else { return };
        self.frame.clear();
        let frame = Frame::from(message.clone());
        if frame.encoded_len() + SEALED_OVERHEAD > MAX_DATAGRAM {
            return;
        }
        frame.encode(&mut self.frame).expect("a vector grows as needed");
        let frame = std::mem::take(&mut self.frame);
        self.send_to(path, Kind::Control, &frame);
        self.frame = frame;
    }

    pub(crate) fn send_to(&mut self, path: Path, kind: Kind, content: &[u8]) {
        // Every failure here is equivalent to a loss.
        if let Ok(len) = self.sealer.seal(kind, 0, content, &mut self.datagram) {
            let _ = self.socket.send(path, &self.datagram[..len]);
        }
    }

    /// Sends an empty datagram, which shows this end's address to the other end.
    pub(crate) fn send_empty(&mut self) {
        if let Some(path) = self.path {
            self.send_to(path, Kind::Control, &[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ChunkPiece;
    use crate::write::budget::Budget;
    use longhaul_proto::units::Bytes;

    fn piece(len: usize) -> Message {
        Message::ChunkPiece(ChunkPiece { bytes: vec![7; len], ..ChunkPiece::default() })
    }

    fn next(outflow: &mut Outflow) -> Option<Message> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(outflow.next())
    }

    #[test]
    fn an_outbox_that_is_not_read_overflows_and_takes_no_more() {
        let budget = Budget::new(Bytes::mebi(512)).unwrap();
        let (outbox, mut outflow) = Outbox::new(budget.messages());
        // Reading frees memory.
        for _ in 0..3 {
            outbox.send(piece(MOST_WAITING / 2));
            assert!(next(&mut outflow).is_some());
        }
        assert_eq!(outbox.overflown(), None);
        outbox.send(piece(MOST_WAITING / 2));
        outbox.send(piece(MOST_WAITING / 2));
        assert_eq!(outbox.overflown(), Some(Overflow::Unread));
        outbox.send(piece(1));
        outbox.end();
        assert!(next(&mut outflow).is_some());
        assert_eq!(next(&mut outflow), None);
    }

    #[test]
    fn forwarded_messages_reach_the_other_queue_and_so_does_an_overflow_without_a_further_message()
    {
        let budget = Budget::new(Bytes::mebi(64)).unwrap();
        let forwarded = |len| {
            let ((own, outflow), (other, mut read)) =
                (Outbox::new(budget.messages()), Outbox::new(budget.messages()));
            own.send(piece(len));
            let overflown = own.overflown();
            // An overflow ends the wait although the sender is still there.
            let held = overflown.map(|_| own);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(outflow.forward(other.clone()));
            assert_eq!(other.overflown(), overflown);
            drop((held, other));
            next(&mut read).is_some()
        };
        assert!(forwarded(1) && !forwarded(80 << 20));
    }

    #[test]
    fn unread_messages_are_charged_to_the_memory_and_overflow_if_the_memory_is_full() {
        let budget = Budget::new(Bytes::mebi(64)).unwrap();
        let is_free = |mebi: usize| budget.messages().set(mebi << 20);
        let (outbox, mut outflow) = Outbox::new(budget.messages());
        outbox.send(piece(FREE / 2));
        assert!(is_free(64), "bytes up to `FREE` are not charged");
        (0..20).for_each(|_| outbox.send(piece(1 << 20)));
        // 20.5 MiB wait. The 19.5 MiB beyond `FREE` are charged as 19 MiB, rounded down.
        assert!(is_free(45) && !is_free(46));
        (0..15).for_each(|_| assert!(next(&mut outflow).is_some()));
        assert!(is_free(59) && !is_free(60), "read messages release their memory");
        (0..60).for_each(|_| outbox.send(piece(1 << 20)));
        assert!(matches!(outbox.overflown(), Some(Overflow::Memory(_))));
        drop(outflow);
        assert!(is_free(64));
        outbox.send(piece(8 << 20));
        assert!(is_free(64));
    }
}
