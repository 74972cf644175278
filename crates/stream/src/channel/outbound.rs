//! The sending end of a flow of datagrams. With an erasure code, repairs (datagrams that replace
//! lost ones) follow each group of datagrams.

use std::os::fd::AsFd;
use std::sync::Arc;

use longhaul_net::batch::Batch;
use longhaul_net::clock::{self, Time};
use longhaul_net::sealing::seal::{SEALED_OVERHEAD, Sealer};
use longhaul_net::socket::{Path, SEND_PATIENCE, SendOutcome, Socket};
use longhaul_proto::channel::{
    Code, Cover, Cutter, Datagram, Departure, Message, cover, encode_head,
};
use longhaul_proto::fec::Losses;
use longhaul_proto::stream;
use longhaul_proto::time::Span;
use longhaul_proto::wire::header::Kind;
use tokio::time::timeout;

use super::rooms::Charge;

/// For channels without a deadline: how long an incomplete group of datagrams may wait before its
/// repairs are sent.
pub(super) const WAIT: Span = Span::from_millis(20);
/// Limits of a datagram's UDP payload in bytes. The minimum fits into the smallest IPv6 MTU, 1280.
pub(super) const DATAGRAMS: std::ops::RangeInclusive<u16> = 1_232..=8_900;
/// Number of datagrams after which other tasks of the thread have their turns.
const TURN: usize = 64;

/// The outcome of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// The whole message has left this host.
    Left,
    /// The message, or a part, could not be sent.
    Failed,
    /// Not sent: it would have arrived after its deadline.
    Late,
}

/// The deadline and the path's measurements, which decide the code.
pub(super) struct Hop {
    deadline: Span,
    path: stream::Path,
    /// Number of datagrams sent, and the time, at the last choice of a code.
    before: (u64, Time),
}

impl Hop {
    /// Returns the values for a path of which only the round-trip time is known.
    pub(super) fn new(deadline: Span, rtt: Span) -> Hop {
        let losses = stream::Meter::new(Span::from_secs(1)).losses();
        let path = stream::Path { rtt, jitter: Span::ZERO, losses, symbol: *DATAGRAMS.start() };
        Hop { deadline, path, before: (0, clock::now()) }
    }

    /// Chooses the code for the rate of datagrams since the last choice; `count` datagrams were
    /// sent so far. `None` if the deadline leaves no time for a code.
    fn cover(&mut self, count: u64) -> Option<Cover> {
        let now = clock::now();
        let (before, since) = std::mem::replace(&mut self.before, (count, now));
        let seconds = now.since(since).as_secs_f64().max(0.001);
        cover(self.deadline, (count - before) as f64 / seconds, &self.path)
    }
}

pub(super) struct Outbound {
    socket: Arc<Socket>,
    data: Sealer,
    cutter: Cutter,
    batch: Batch,
    cut: Vec<Datagram>,
    hop: Option<Hop>,
    /// The memory account of the message that is being sent; `None` without a limit on memory.
    charge: Option<Box<dyn Charge>>,
    sent: usize,
    /// Number of datagrams sent since the other tasks had their turns.
    turn: usize,
}

impl Outbound {
    pub(super) fn new(socket: Arc<Socket>, data: Sealer, size: u16, code: Code) -> Outbound {
        let payload = usize::from(size).saturating_sub(SEALED_OVERHEAD);
        let (cutter, batch) = (Cutter::new(payload, code, WAIT), Batch::new(size));
        let (cut, hop, charge) = Default::default();
        Outbound { socket, data, cutter, batch, cut, hop, charge, sent: 0, turn: 0 }
    }

    /// Adds the memory account of the message that is being sent.
    pub(super) fn with_charge(self, charge: Box<dyn Charge>) -> Outbound {
        Outbound { charge: Some(charge), ..self }
    }

    /// Adds a deadline. From now on the path's measurements decide the code.
    pub(super) fn with_deadline(mut self, mut hop: Hop) -> Outbound {
        if let Some(Cover { code, wait }) = hop.cover(0) {
            self.cutter.follow(code, wait);
        }
        Outbound { hop: Some(hop), ..self }
    }

    pub(super) fn follow(&mut self, losses: Losses, jitter: Span, rtt: Span) {
        if let Some(hop) = &mut self.hop {
            (hop.path.losses, hop.path.jitter, hop.path.rtt) = (losses, jitter, rtt);
            if let Some(Cover { code, wait }) = hop.cover(self.cutter.count()) {
                self.cutter.follow(code, wait);
            }
        }
    }

    /// Sends a message. Gives other tasks of the thread their turns meanwhile.
    pub(super) async fn send(&mut self, path: Path, message: &Message) -> Sending {
        let (now, mut head) = (clock::now(), encode_head(message));
        if let Some(hop) = &self.hop {
            let departure = Departure::new(now, message.born);
            if departure.age() + hop.path.rtt / 2 > hop.deadline {
                return Sending::Late;
            }
            head.splice(0..0, departure.encode());
        }
        // While the message is sent, the room may drop it and the room's charge for it. The memory
        // is then still in use.
        if !self.charge(message.cost()) {
            return Sending::Failed;
        }
        let sent = self.send_parts(path, now, [&head, &message.bytes]).await;
        self.charge(0);
        if sent { Sending::Left } else { Sending::Failed }
    }

    fn charge(&mut self, bytes: usize) -> bool {
        self.charge.as_mut().is_none_or(|charge| charge.set(bytes))
    }

    async fn send_parts(&mut self, path: Path, now: Time, message: [&[u8]; 2]) -> bool {
        let Ok(mut cutting) = self.cutter.begin(message) else { return false };
        while self.cutter.next(now, &mut cutting, &mut self.cut) {
            if !self.push(path).await {
                return false;
            }
        }
        self.send_batch(path).await
    }

    /// Sends the repairs of an overdue group.
    pub(super) async fn flush(&mut self, path: Path) {
        self.cutter.flush(clock::now(), &mut self.cut);
        // A failed send is like a loss on the path.
        let _ = self.push(path).await && self.send_batch(path).await;
    }

    /// Returns the bytes of UDP payload since the last call, including datagrams whose send failed.
    pub(super) fn take_sent(&mut self) -> usize {
        std::mem::take(&mut self.sent)
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        self.cutter.next_wakeup()
    }

    /// Moves the cut datagrams into the batch, and sends full batches.
    async fn push(&mut self, path: Path) -> bool {
        for Datagram { block, payload } in std::mem::take(&mut self.cut) {
            self.sent += payload.len() + SEALED_OVERHEAD;
            let pushed = self.batch.push(&mut self.data, Kind::Data, block, &payload);
            if pushed.is_err() || self.batch.room() == 0 && !self.send_batch(path).await {
                return false;
            }
        }
        true
    }

    /// Sends the batch and empties it, even after an error. Waits while the send buffer is full;
    /// gives up after [`SEND_PATIENCE`] without progress. Returns whether the whole batch was sent.
    async fn send_batch(&mut self, path: Path) -> bool {
        let ((mut rest, size), mut waited) = (self.batch.train(), false);
        let sent = loop {
            let before = rest.len();
            match self.socket.try_send_train(path, &mut rest, size) {
                Ok(SendOutcome::Sent) if rest.is_empty() => break true,
                Ok(SendOutcome::Sent) if !waited || rest.len() < before => {}
                _ => break false,
            }
            waited = !has_room(&self.socket).await;
        };
        self.turn += self.batch.len();
        self.batch.clear();
        if self.turn >= TURN {
            self.turn = 0;
            tokio::task::yield_now().await;
        }
        sent
    }
}

/// Waits until the socket's send buffer has room. Returns whether there was room within
/// [`SEND_PATIENCE`].
async fn has_room(socket: &Socket) -> bool {
    // A runtime accepts each descriptor only once, and other flows wait for room in the same
    // socket. So each wait registers a duplicate of the descriptor.
    let own = socket.as_fd().try_clone_to_owned().map(std::net::UdpSocket::from);
    let Ok(own) = own.and_then(tokio::net::UdpSocket::from_std) else { return false };
    timeout(SEND_PATIENCE, own.writable()).await.is_ok_and(|ready| ready.is_ok())
}

pub(super) fn until(at: Time) -> tokio::time::Sleep {
    tokio::time::sleep(clock::duration(at.since(clock::now())))
}

#[cfg(test)]
mod tests {
    use longhaul_net::sealing::keys::{FlowKeys, Suite};
    use longhaul_proto::endpoint::FlowId;

    use super::super::rooms::NoMemory;
    use super::*;

    fn outbound(code: Code) -> (Outbound, Path, std::net::UdpSocket) {
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let far = std::net::UdpSocket::bind(any).expect("loopback");
        let socket = Arc::new(Socket::bind(any).expect("loopback"));
        let keys = FlowKeys::new(&[7; 32], Suite::Aes128Gcm, 1, FlowId(1));
        let out = Outbound::new(socket, keys.sending_end().data, 1_400, code);
        (out, far.local_addr().expect("it is bound").into(), far)
    }

    fn message(len: usize) -> Message {
        let bytes = Arc::from(vec![0; len]);
        Message { origin: 1, number: 1, at: 0, born: 0, hops: 0, via: 0, key: None, bytes }
    }

    #[tokio::test]
    async fn a_long_message_leaves_other_tasks_their_turns() {
        for code in [Code::None, Code::new(false, 32, 32).unwrap()] {
            let ((mut out, path, _far), mut turns) = (outbound(code), 0);
            let others = async {
                loop {
                    turns += 1;
                    tokio::task::yield_now().await;
                }
            };
            let message = message(1 << 20);
            tokio::select! {
                biased;
                sent = out.send(path, &message) => assert_eq!(sent, Sending::Left),
                () = others => {}
            }
            // A turn ends with the batch that brings it to 64 datagrams. A batch has at most 44, so
            // a turn has less than 64 + 44 = 108.
            let datagrams = out.take_sent() / 1_400;
            assert!(datagrams > 700 && turns >= datagrams / 108, "{turns} for {datagrams}");
        }
    }

    #[tokio::test]
    async fn a_message_for_which_there_is_no_memory_is_not_sent() {
        let (out, path, _far) = outbound(Code::None);
        let mut out = out.with_charge(Box::new(NoMemory));
        assert_eq!(out.send(path, &message(9)).await, Sending::Failed);
        assert_eq!(out.take_sent(), 0);
    }
}
