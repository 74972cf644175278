//! The two channels for outgoing messages: the control stream, and a copy ahead of it in a
//! datagram.
//!
//! A lost packet delays everything behind it on a stream for more than a round trip. So messages
//! that a protocol waits for go twice: reliably on the stream, and fast in a separate sealed
//! datagram. Every such message is idempotent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use longhaul_net::sealing::seal::{SEALED_OVERHEAD, Sealer};
use longhaul_net::socket::{Path, Socket};
use prost::Message as _;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::control::{Frame, Message};
use longhaul_proto::wire::header::Kind;

/// The largest datagram for a message, which every path carries (RFC 8200 section 5, minus the
/// headers of IPv6 and UDP).
const MAX_DATAGRAM: usize = 1280 - 40 - 8;

/// Maximum bytes of messages that wait for a stream: ten times the plan of a terabyte. A peer that
/// leaves this much unread is treated as gone.
const MOST_WAITING: usize = 256 << 20;

/// The sending end of the queue for the control stream. Clones use the same queue.
#[derive(Clone)]
pub(crate) struct Outbox {
    sender: UnboundedSender<Option<Message>>,
    level: Arc<Level>,
}

/// The receiving end of an outbox.
pub(crate) struct Outflow {
    receiver: UnboundedReceiver<Option<Message>>,
    level: Arc<Level>,
}

/// The fill level of an outbox.
#[derive(Default)]
struct Level {
    bytes: AtomicUsize,
    overflown: AtomicBool,
}

impl Outbox {
    /// Returns both ends of a new outbox.
    pub(crate) fn new() -> (Outbox, Outflow) {
        let (sender, receiver) = unbounded_channel();
        let level = Arc::new(Level::default());
        (Outbox { sender, level: level.clone() }, Outflow { receiver, level })
    }

    /// Queues `message` for the stream. A stream that has ended drops it; the stream's reader
    /// reports the end. If the peer does not read, the outbox overflows and ends.
    pub(crate) fn tell(&self, message: Message) {
        let len = size(&message);
        let before = self.level.bytes.fetch_add(len, Ordering::Relaxed);
        if before + len > MOST_WAITING {
            self.level.overflown.store(true, Ordering::Relaxed);
        }
        if !self.is_overflown() {
            let _ = self.sender.send(Some(message));
        }
    }

    /// Returns whether so much waits that the peer cannot be reading.
    pub(crate) fn is_overflown(&self) -> bool {
        self.level.overflown.load(Ordering::Relaxed)
    }

    /// Returns whether the receiving end is gone.
    #[cfg(test)]
    pub(crate) fn is_ended(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits until the receiving end is gone.
    #[cfg(test)]
    pub(crate) async fn ended(&self) {
        self.sender.closed().await;
    }

    /// Closes the outbox for further messages.
    pub(crate) fn end(&self) {
        let _ = self.sender.send(None);
    }
}

impl Outflow {
    /// Returns the next message; `None` at the end. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        let message = self.receiver.recv().await.flatten()?;
        self.level.bytes.fetch_sub(size(&message), Ordering::Relaxed);
        Some(message)
    }
}

/// Returns the approximate size of a message in memory.
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
    /// Returns a shadow that seals with `sealer` and sends through `socket`, once it has a path.
    pub(crate) fn new(sealer: Sealer, socket: Arc<Socket>, path: Option<Path>) -> Shadow {
        let datagram = vec![0; MAX_DATAGRAM].into_boxed_slice();
        Shadow { sealer, socket, path, frame: Vec::with_capacity(MAX_DATAGRAM), datagram }
    }

    /// Sets where datagrams go.
    pub(crate) fn set_path(&mut self, path: Path) {
        self.path = Some(path);
    }

    /// Sends `message` on the stream and by datagram.
    pub(crate) fn tell(&mut self, outbox: &Outbox, message: Message) {
        self.send(&message);
        outbox.tell(message);
    }

    /// Sends `message` by datagram only, if it fits one; it may be lost.
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

    /// Sends `content` once as a datagram of `kind` to `path`.
    pub(crate) fn send_to(&mut self, path: Path, kind: Kind, content: &[u8]) {
        // Every failure here is equivalent to a loss.
        if let Ok(len) = self.sealer.seal(kind, 0, content, &mut self.datagram) {
            let _ = self.socket.send(path, &self.datagram[..len]);
        }
    }

    /// Sends an empty datagram, which shows the sender's address.
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

    #[test]
    fn an_outbox_that_is_not_read_overflows_and_takes_no_more() {
        let (outbox, mut outflow) = Outbox::new();
        let piece = |len: usize| {
            Message::ChunkPiece(ChunkPiece { bytes: vec![7; len], ..ChunkPiece::default() })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        // Reading makes room.
        for _ in 0..3 {
            outbox.tell(piece(MOST_WAITING / 2));
            assert!(runtime.block_on(outflow.next()).is_some());
        }
        assert!(!outbox.is_overflown());
        outbox.tell(piece(MOST_WAITING / 2));
        outbox.tell(piece(MOST_WAITING / 2));
        assert!(outbox.is_overflown());
        outbox.tell(piece(1));
        outbox.end();
        assert!(runtime.block_on(outflow.next()).is_some());
        assert_eq!(runtime.block_on(outflow.next()), None);
    }
}
