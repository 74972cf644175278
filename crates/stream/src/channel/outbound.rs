//! The sending end of a flow of datagrams. With a code, repairs follow each group of datagrams.

use std::sync::Arc;

use longhaul_net::batch::Batch;
use longhaul_net::clock::{self, Time};
use longhaul_net::sealing::seal::{SEALED_OVERHEAD, Sealer};
use longhaul_net::socket::{Path, SendOutcome, Socket};
use longhaul_proto::channel::{Code, Cover, Cutter, Datagram, Departure, Message, cover, encode};
use longhaul_proto::fec::Losses;
use longhaul_proto::stream;
use longhaul_proto::time::Span;
use longhaul_proto::wire::header::Kind;

/// For channels without a deadline: how long an incomplete group of datagrams may wait before its
/// repairs are sent.
pub(super) const WAIT: Span = Span::from_millis(20);
/// Limits of a datagram's UDP payload in bytes. The minimum fits into the smallest IPv6 MTU, 1280.
pub(super) const DATAGRAMS: std::ops::RangeInclusive<u16> = 1_232..=8_900;

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

    /// Chooses the code from the rate since the last choice; `count` datagrams were sent so far.
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
    sent: usize,
}

impl Outbound {
    pub(super) fn new(socket: Arc<Socket>, data: Sealer, size: u16, code: Code) -> Outbound {
        let payload = usize::from(size).saturating_sub(SEALED_OVERHEAD);
        let (cutter, batch) = (Cutter::new(payload, code, WAIT), Batch::new(size));
        Outbound { socket, data, cutter, batch, cut: Vec::new(), hop: None, sent: 0 }
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

    pub(super) fn send(&mut self, path: Path, message: &Message) -> Sending {
        let (now, mut blob) = (clock::now(), encode(message));
        if let Some(hop) = &self.hop {
            let departure = Departure::new(now, message.born);
            if departure.age() + hop.path.rtt / 2 > hop.deadline {
                return Sending::Late;
            }
            blob.splice(0..0, departure.encode());
        }
        let cut = self.cutter.message(now, &blob, &mut self.cut);
        if cut.is_ok() && self.flush_to(path) { Sending::Left } else { Sending::Failed }
    }

    /// Sends the repairs of an overdue group.
    pub(super) fn flush(&mut self, path: Path) {
        self.cutter.flush(clock::now(), &mut self.cut);
        // A failed send is like a loss on the path.
        let _ = self.flush_to(path);
    }

    /// Returns the bytes of UDP payload since the last call, including datagrams whose send failed.
    pub(super) fn take_sent(&mut self) -> usize {
        std::mem::take(&mut self.sent)
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        self.cutter.next_wakeup()
    }

    fn flush_to(&mut self, path: Path) -> bool {
        let mut sent = true;
        for Datagram { block, payload } in self.cut.drain(..) {
            self.sent += payload.len() + SEALED_OVERHEAD;
            let pushed = self.batch.push(&mut self.data, Kind::Data, block, &payload);
            sent &= pushed.is_ok();
            if self.batch.room() == 0 {
                sent &= matches!(self.batch.send(&self.socket, path), Ok(SendOutcome::Sent));
            }
        }
        if !self.batch.is_empty() {
            sent &= matches!(self.batch.send(&self.socket, path), Ok(SendOutcome::Sent));
        }
        sent
    }
}

pub(super) fn until(at: Time) -> tokio::time::Sleep {
    tokio::time::sleep(clock::duration(at.since(clock::now())))
}
