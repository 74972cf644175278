//! The sending end of a flow of datagrams: at a client that sends, and at a server for a
//! subscriber.

use std::sync::Arc;

use longhaul_net::batch::Batch;
use longhaul_net::clock::{self, Time};
use longhaul_net::sealing::seal::{SEALED_OVERHEAD, Sealer};
use longhaul_net::socket::{Path, SendOutcome, Socket};
use longhaul_proto::channel::{Code, Cutter, Datagram, Message, encode};
use longhaul_proto::time::Span;
use longhaul_proto::wire::header::Kind;

/// How long a group of the code may be incomplete.
const WAIT: Span = Span::from_millis(20);
/// Bytes of a datagram: the least is what each IPv6 path carries without headers.
pub(super) const DATAGRAMS: std::ops::RangeInclusive<u16> = 1_232..=8_900;

/// Cuts, seals and sends messages.
pub(super) struct Outbound {
    socket: Arc<Socket>,
    data: Sealer,
    cutter: Cutter,
    batch: Batch,
    cut: Vec<Datagram>,
}

impl Outbound {
    /// A flow of datagrams with `size` bytes of UDP payload.
    pub(super) fn new(socket: Arc<Socket>, data: Sealer, size: u16, code: Code) -> Outbound {
        let payload = usize::from(size).saturating_sub(SEALED_OVERHEAD);
        let (cutter, batch) = (Cutter::new(payload, code, WAIT), Batch::new(size));
        Outbound { socket, data, cutter, batch, cut: Vec::new() }
    }

    /// Sends a message; returns whether all of it has left this host.
    pub(super) fn send(&mut self, path: Path, message: &Message) -> bool {
        let cut = self.cutter.message(clock::now(), &encode(message), &mut self.cut);
        cut.is_ok() && self.flush_to(path)
    }

    /// Sends the repairs of a group that is incomplete for too long.
    pub(super) fn flush(&mut self, path: Path) {
        self.cutter.flush(clock::now(), &mut self.cut);
        // A repair that cannot be sent is lost, as it may be on the path.
        let _ = self.flush_to(path);
    }

    /// When [`Outbound::flush`] is due.
    pub(super) fn next_wakeup(&self) -> Option<Time> {
        self.cutter.next_wakeup()
    }

    fn flush_to(&mut self, path: Path) -> bool {
        let mut sent = true;
        for Datagram { block, payload } in self.cut.drain(..) {
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

/// Waits until `at`; forever without it.
pub(super) async fn until(at: Option<Time>) {
    match at {
        Some(at) => tokio::time::sleep(clock::duration(at.since(clock::now()))).await,
        None => std::future::pending().await,
    }
}
