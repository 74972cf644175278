//! A UDP socket that sends each packet of the control stream twice, as long as packets are few.
//!
//! A repair costs at least a round trip. With independent losses, a copy of each packet turns a
//! loss ratio of 12 % into 1.4 %. QUIC drops the second of two equal packets (RFC 9000 section
//! 12.3). A token bucket (the budget) limits the copies.

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

/// Maximum bytes of copies in a burst: enough for the first packets of a few sessions.
const BURST: f64 = 16.0 * 1024.0;

/// The bit of the first byte that marks a long header (RFC 9000 section 17.2).
const HANDSHAKE: u8 = 0x80;

/// Which packets are sent twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    /// All packets, at a client.
    All,
    /// All packets except handshake packets: before a server has validated the client's address, it
    /// may send at most three times the received bytes (RFC 9000 section 8.1).
    Established,
}

pub(super) struct Twice {
    inner: Arc<dyn AsyncUdpSocket>,
    copies: Copies,
    budget: Mutex<Budget>,
}

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
            // A failed copy counts as lost.
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

    #[test]
    fn a_budget_is_spent_to_the_byte_and_filled_up_to_its_burst() {
        let start = Instant::now();
        let mut budget = Budget { bytes: BURST, at: start };
        let after = |millis| start + Duration::from_millis(millis);
        assert!(!budget.spend(start, 16_385) && budget.spend(start, 16_384));
        assert!(!budget.spend(start, 1) && budget.spend(start, 0));
        assert!(!budget.spend(after(125), 4_097) && budget.spend(after(125), 4_096));
        assert!(!budget.spend(after(9_000), 16_385) && budget.spend(after(9_000), 16_384));
    }

    /// Counts calls of `try_send`; the first `failing` calls fail.
    #[derive(Debug, Default)]
    struct Counting {
        sent: Mutex<usize>,
        failing: usize,
        fragments: bool,
    }

    impl AsyncUdpSocket for Counting {
        fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
            unreachable!("nothing waits")
        }

        fn try_send(&self, _: &Transmit<'_>) -> io::Result<()> {
            let mut sent = self.sent.lock().expect("one thread");
            *sent += 1;
            if *sent <= self.failing { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        }

        fn poll_recv(
            &self,
            _: &mut Context<'_>,
            _: &mut [IoSliceMut<'_>],
            _: &mut [RecvMeta],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(3))
        }

        fn local_addr(&self) -> io::Result<SocketAddr> {
            Ok(([192, 0, 2, 1], 7).into())
        }

        fn max_transmit_segments(&self) -> usize {
            5
        }

        fn max_receive_segments(&self) -> usize {
            6
        }

        fn may_fragment(&self) -> bool {
            self.fragments
        }
    }

    fn transmit(contents: &[u8]) -> Transmit<'_> {
        let destination = ([192, 0, 2, 2], 9).into();
        Transmit { destination, ecn: None, contents, segment_size: None, src_ip: None }
    }

    #[test]
    fn a_client_sends_every_packet_twice_and_a_server_all_but_handshake_packets() {
        for (copies, first, times) in [
            (Copies::All, HANDSHAKE, 2),
            (Copies::All, 0x40, 2),
            (Copies::Established, HANDSHAKE | 0x40, 1),
            (Copies::Established, 0x40, 2),
        ] {
            let inner = Arc::new(Counting::default());
            let twice = Twice::new(inner.clone(), copies);
            twice.try_send(&transmit(&[first, 1, 2])).expect("it is sent");
            assert_eq!(*inner.sent.lock().expect("one thread"), times, "{copies:?} {first:x}");
        }
    }

    #[test]
    fn a_packet_that_cannot_be_sent_has_no_copy_and_costs_nothing() {
        let inner = Arc::new(Counting { failing: 1, ..Counting::default() });
        let twice = Twice::new(inner.clone(), Copies::All);
        assert!(twice.try_send(&transmit(&[0; 1200])).is_err());
        assert_eq!(*inner.sent.lock().expect("one thread"), 1);
        assert_eq!(twice.budget.lock().expect("one thread").bytes, BURST);
    }

    #[test]
    fn calls_other_than_sending_return_the_result_of_the_inner_socket() {
        let twice = Twice::new(Arc::new(Counting::default()), Copies::All);
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(matches!(twice.poll_recv(&mut context, &mut [], &mut []), Poll::Ready(Ok(3))));
        assert_eq!(twice.local_addr().expect("it has one").port(), 7);
        assert_eq!((twice.max_transmit_segments(), twice.max_receive_segments()), (5, 6));
        for fragments in [false, true] {
            let inner = Counting { fragments, ..Counting::default() };
            assert_eq!(Twice::new(Arc::new(inner), Copies::All).may_fragment(), fragments);
        }
        assert!(format!("{twice:?}").starts_with("Twice(Counting "), "{twice:?}");
    }
}
