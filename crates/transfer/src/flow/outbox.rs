//! Ways out for messages: the control stream, and a copy ahead by datagram.
//!
//! A lost packet holds up everything behind it on a stream for more than a round trip. So what a
//! protocol waits for goes twice: on the stream, which is sure, and in a sealed datagram of its
//! own, which is quick. Every such message is idempotent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use longhaul_net::sealing::seal::{SEALED_OVERHEAD, Sealer};
use longhaul_net::socket::{Path, Socket};
use prost::Message as _;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::control::{Frame, Message};
use longhaul_proto::wire::header::Kind;

/// The largest datagram that carries a message: what every path takes (RFC 8200 section 5, less
/// the headers of IPv6 and UDP).
const MAX_DATAGRAM: usize = 1280 - 40 - 8;

/// Bytes of messages that wait for a stream at most: ten times what the plan of a terabyte takes.
/// Who does not read as much in the time that a transfer has got along without it is gone.
const MOST_WAITING: usize = 256 << 20;

/// The way to the control stream's writer. Clones lead to the same stream.
#[derive(Clone)]
pub(crate) struct Outbox {
    sender: UnboundedSender<Option<Message>>,
    level: Arc<Level>,
}

/// Where the messages of an outbox come out.
pub(crate) struct Outflow {
    receiver: UnboundedReceiver<Option<Message>>,
    level: Arc<Level>,
}

/// How full an outbox is.
#[derive(Default)]
struct Level {
    bytes: AtomicUsize,
    overflown: AtomicBool,
}

impl Outbox {
    /// An outbox and where its messages come out.
    pub(crate) fn new() -> (Outbox, Outflow) {
        let (sender, receiver) = unbounded_channel();
        let level = Arc::new(Level::default());
        (Outbox { sender, level: level.clone() }, Outflow { receiver, level })
    }

    /// Sends `message` on the stream. A stream that has ended takes nothing more; its reader
    /// tells the end's task. One that is not read overflows, and is at its end.
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

    /// Whether so much waits that the other side cannot be reading.
    pub(crate) fn is_overflown(&self) -> bool {
        self.level.overflown.load(Ordering::Relaxed)
    }

    /// Whether nobody takes messages any more.
    #[cfg(test)]
    pub(crate) fn is_ended(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits until nobody takes messages any more.
    #[cfg(test)]
    pub(crate) async fn ended(&self) {
        self.sender.closed().await;
    }

    /// Nothing more will be told.
    pub(crate) fn end(&self) {
        let _ = self.sender.send(None);
    }
}

impl Outflow {
    /// The next message; nothing at the end. Safe to drop half-way.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        let message = self.receiver.recv().await.flatten()?;
        self.level.bytes.fetch_sub(size(&message), Ordering::Relaxed);
        Some(message)
    }
}

/// What a message takes, about.
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
    /// Seals with `sealer`, sends by `socket`; nothing goes before there is a path.
    pub(crate) fn new(sealer: Sealer, socket: Arc<Socket>, path: Option<Path>) -> Shadow {
        let datagram = vec![0; MAX_DATAGRAM].into_boxed_slice();
        Shadow { sealer, socket, path, frame: Vec::with_capacity(MAX_DATAGRAM), datagram }
    }

    /// Where datagrams go from now on.
    pub(crate) fn set_path(&mut self, path: Path) {
        self.path = Some(path);
    }

    /// Sends `message` both ways.
    pub(crate) fn tell(&mut self, outbox: &Outbox, message: Message) {
        self.send(&message);
        outbox.tell(message);
    }

    /// Sends `message` by datagram alone, if it fits one; it may be lost.
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

    /// Sends `content` as a datagram of `kind` to `path`, once.
    pub(crate) fn send_to(&mut self, path: Path, kind: Kind, content: &[u8]) {
        // All that can fail here passes as loss does.
        if let Ok(len) = self.sealer.seal(kind, 0, content, &mut self.datagram) {
            let _ = self.socket.send(path, &self.datagram[..len]);
        }
    }

    /// Sends a datagram that says nothing but where it comes from.
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
        // What is read makes room.
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
