//! Sends announcements to the server: sealed control datagrams from which the server learns the
//! receiver's address and the epoch (number) of the newest keys that the receiver has.

use std::sync::Arc;

use longhaul_net::clock::{Span, Time};
use longhaul_net::sealing::seal::{SEALED_OVERHEAD, Sealer};
use longhaul_net::socket::{Path, Socket};
use longhaul_proto::wire::header::Kind;

use crate::place::CONTENT;

/// Interval of the announcements, unless [`Announcer::hasten`] makes one due at once.
const INTERVAL: Span = Span::from_millis(250);

pub(crate) struct Announcer {
    sealer: Sealer,
    socket: Arc<Socket>,
    server: Path,
    due: Time,
}

impl Announcer {
    pub(crate) fn new(sealer: Sealer, socket: Arc<Socket>, server: Path) -> Announcer {
        Announcer { sealer, socket, server, due: Time::ZERO }
    }

    pub(crate) fn due(&self) -> Time {
        self.due
    }

    pub(crate) fn hasten(&mut self) {
        self.due = Time::ZERO;
    }

    /// Sends an announcement if one is due. `epoch` is the number of the newest known keys, or 0
    /// without keys.
    pub(crate) fn send_if_due(&mut self, now: Time, epoch: u64) {
        if now < self.due {
            return;
        }
        self.due = now + INTERVAL;
        let mut out = [0; CONTENT + SEALED_OVERHEAD];
        if let Ok(len) = self.sealer.seal(Kind::Control, 0, &epoch.to_be_bytes(), &mut out) {
            // A failed send is like a loss on the path.
            let _ = self.socket.send(self.server, &out[..len]);
        }
    }
}
