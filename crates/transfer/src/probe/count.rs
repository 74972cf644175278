//! The receiving end of a measurement: opens each datagram, counts it, and keeps nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_net::port::{Datagrams, FlowSink, PortHandle, PortStatistics};
use longhaul_net::sealing::open::Opener;
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;
use longhaul_proto::wire::header::Kind;

use crate::control::ProbeCount;
use crate::error::Error;

/// Interval at which a receiver checks whether everything has arrived.
const CHECK_EVERY: Duration = Duration::from_millis(10);
/// No more datagrams are expected after a silence of this constant plus two round trips.
const SILENCE: Duration = Duration::from_millis(200);
/// Longest wait for the last datagrams.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of the application memory to which payloads are copied: more than most CPU caches hold.
const APPLICATION: usize = 32 << 20;

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    received: u64,
    /// Bytes of UDP payload.
    bytes: u64,
    /// The time of the first batch (one call of `on_batch`), and its bytes.
    first: Option<(Time, u64)>,
    /// The time of the last batch.
    last: Time,
    highest: Option<u64>,
    /// Number of datagrams that arrived after a datagram with a higher packet number.
    reordered: u64,
}

/// "An extra memory copy that most applications must perform" (Quanta section 4: app_perf).
struct Application {
    memory: Box<[u8]>,
    at: usize,
}

impl Application {
    fn new() -> Application {
        // Writing makes the system allocate the pages before the measurement.
        Application { memory: vec![1; APPLICATION].into_boxed_slice(), at: 0 }
    }

    fn take(&mut self, payload: &[u8]) {
        if self.at + payload.len() > self.memory.len() {
            self.at = 0;
        }
        self.memory[self.at..][..payload.len()].copy_from_slice(payload);
        self.at += payload.len();
    }
}

struct Counting {
    data: Opener,
    scratch: Box<[u8]>,
    application: Option<Application>,
    counted: Arc<Mutex<Counted>>,
}

impl FlowSink for Counting {
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>) {
        let (mut received, mut bytes, mut reordered) = (0, 0, 0);
        let mut highest = lock(&self.counted).highest;
        for datagram in datagrams.filter(|datagram| datagram.header.kind == Kind::Data) {
            let header = &datagram.header;
            let opened = self.data.open(now, header, datagram.bytes, &mut self.scratch);
            let Ok(len) = opened else { continue };
            if let Some(application) = &mut self.application {
                application.take(&self.scratch[..len]);
            }
            received += 1;
            bytes += datagram.bytes.len() as u64;
            reordered += u64::from(highest.is_some_and(|highest| header.number.0 < highest));
            highest = highest.max(Some(header.number.0));
        }
        if received > 0 {
            let mut counted = lock(&self.counted);
            counted.received += received;
            counted.bytes += bytes;
            counted.reordered += reordered;
            counted.highest = highest;
            counted.first.get_or_insert((now, bytes));
            counted.last = now;
        }
    }

    fn on_wake(&mut self, _: Time) {}

    fn next_wakeup(&self) -> Option<Time> {
        None
    }

    fn on_port_closed(&mut self, _: &str) {}
}

/// No thread panics while it holds the lock.
fn lock(counted: &Mutex<Counted>) -> MutexGuard<'_, Counted> {
    counted.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct Counter {
    port: PortHandle,
    flow: FlowId,
    counted: Arc<Mutex<Counted>>,
    before: PortStatistics,
}

impl Counter {
    /// With `copies` each payload is copied once, as an application would do.
    pub(super) async fn start(
        port: &PortHandle,
        flow: FlowId,
        data: Opener,
        copies: bool,
    ) -> Result<Counter, Error> {
        let counted = Arc::<Mutex<Counted>>::default();
        let application = match copies {
            // Do not block this thread, which serves other connections.
            true => tokio::task::spawn_blocking(Application::new).await.ok(),
            false => None,
        };
        let counting = Counting {
            data,
            scratch: vec![0; 1 << 16].into_boxed_slice(),
            application,
            counted: counted.clone(),
        };
        port.register(flow, Box::new(counting))?;
        let before = port.statistics();
        Ok(Counter { port: port.clone(), flow, counted, before })
    }

    /// Waits until all `sent` datagrams have arrived, or no more are expected, and returns the
    /// counts. `span` is the time that the sending took.
    pub(super) async fn finish(self, sent: u64, span: Span, rtt: Duration) -> ProbeCount {
        let began = tokio::time::Instant::now();
        let (mut before, mut changed) = (self.counted().received, began);
        let mut tick = tokio::time::interval(CHECK_EVERY);
        while before < sent && changed.elapsed() < SILENCE + rtt * 2 && began.elapsed() < PATIENCE {
            tick.tick().await;
            let now = self.counted().received;
            if now != before {
                (before, changed) = (now, tokio::time::Instant::now());
            }
        }
        let counted = self.counted();
        ProbeCount {
            sent,
            received: counted.received,
            bytes: counted.bytes,
            rate_bps: counted.rate_bps(span),
            reordered: counted.reordered,
            socket_lost: self.port.statistics().dropped_since(&self.before).round() as u64,
            too_large: false,
        }
    }

    fn counted(&self) -> Counted {
        *lock(&self.counted)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.port.unregister(self.flow);
    }
}

impl Counted {
    /// Returns the rate of arrivals in bits a second. The bytes of the first batch do not count,
    /// because it is unknown how long that batch took to arrive. If all bytes arrived in one batch,
    /// they are divided by `span`, the time of sending.
    fn rate_bps(&self, span: Span) -> u64 {
        let (begin, at_once) = self.first.unwrap_or_default();
        let (bytes, span) = match self.bytes - at_once {
            0 => (self.bytes, span),
            later => (later, self.last.since(begin)),
        };
        if span == Span::ZERO { 0 } else { (Bytes::new(bytes) / span).as_bps() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_leaves_out_the_first_batch_unless_all_bytes_arrived_in_it() {
        let at = |millis: u64| Time::ZERO + Span::from_millis(millis);
        let counted = Counted {
            received: 11,
            bytes: 11_000,
            first: Some((at(5), 1_000)),
            last: at(15),
            ..Counted::default()
        };
        // 10,000 bytes after the first batch, in 10 ms.
        assert_eq!(counted.rate_bps(Span::from_secs(1)), 8_000_000);
        let at_once = Counted { bytes: 1_000, last: at(5), ..counted };
        assert_eq!(at_once.rate_bps(Span::from_millis(1)), 8_000_000);
        assert_eq!(Counted::default().rate_bps(Span::from_secs(1)), 0);
    }

    #[test]
    fn a_payload_that_does_not_fit_behind_the_previous_one_is_copied_to_the_start() {
        let mut application = Application { memory: vec![0; 10].into_boxed_slice(), at: 0 };
        for payload in [&b"abcdef"[..], b"ghij", b"", b"klmnopqrst", b"u"] {
            application.take(payload);
        }
        assert_eq!(&application.memory[..], b"ulmnopqrst");
    }
}
