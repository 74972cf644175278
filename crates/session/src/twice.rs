//! A UDP socket that sends each packet of the control stream twice, as long as there are few.
//!
//! Control is little beside the data, and waiting for a repair costs a round trip at best and a
//! time-out of three at the beginning. A copy turns a loss ratio of 12 % into 1.5 %. QUIC drops
//! the second of two equal packets (RFC 9000 section 12.3). The copies have a budget; beyond it
//! packets go once, and repair is QUIC's own.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

/// Bytes of copies a second.
const RATE: f64 = 32.0 * 1024.0;

/// Bytes of copies at once: a few first flights.
const BURST: f64 = 16.0 * 1024.0;

/// The bit of the first byte that marks the packets of a handshake (RFC 9000 section 17.2).
const HANDSHAKE: u8 = 0x80;

/// Which packets go twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    /// All: a client's.
    All,
    /// None of a handshake: a server has not yet seen that the client is where it says, and must
    /// not send it more than three times what came from there (RFC 9000 section 8.1).
    Established,
}

/// Sends twice through another socket.
pub(super) struct Twice {
    inner: Arc<dyn AsyncUdpSocket>,
    copies: Copies,
    budget: Mutex<Budget>,
}

/// A token bucket.
struct Budget {
    bytes: f64,
    at: Instant,
}

impl Budget {
    fn spend(&mut self, now: Instant, bytes: usize) -> bool {
        let refill = now.saturating_duration_since(self.at).as_secs_f64() * RATE;
        self.bytes = (self.bytes + refill).min(BURST);
        self.at = now;
        let enough = self.bytes >= bytes as f64;
        if enough {
            self.bytes -= bytes as f64;
        }
        enough
    }
}

impl fmt::Debug for Twice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Twice({:?})", self.inner)
    }
}

impl Twice {
    pub(super) fn new(inner: Arc<dyn AsyncUdpSocket>, copies: Copies) -> Arc<Twice> {
        let budget = Mutex::new(Budget { bytes: BURST, at: Instant::now() });
        Arc::new(Twice { inner, copies, budget })
    }

    fn copied(&self, contents: &[u8]) -> bool {
        let handshake = contents.first().is_some_and(|byte| byte & HANDSHAKE != 0);
        (self.copies == Copies::All || !handshake)
            && self
                .budget
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .spend(Instant::now(), contents.len())
    }
}

impl AsyncUdpSocket for Twice {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.inner.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)?;
        if self.copied(transmit.contents) {
            // A copy that cannot be sent is a copy lost.
            let _ = self.inner.try_send(transmit);
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_recv(context, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn copies_never_exceed_their_burst_and_rate() {
        let start = Instant::now();
        let mut budget = Budget { bytes: BURST, at: start };
        let mut spent = 0;
        for ms in 0..3000 {
            while budget.spend(start + Duration::from_millis(ms), 1200) {
                spent += 1200;
            }
        }
        let most = (BURST + 3.0 * RATE) as usize;
        assert!(spent <= most && spent > most - 2400, "{spent} of {most}");
    }
}
