//! The address of a receiver, learned from its sealed control datagrams.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_net::clock::{Span, Time};
use longhaul_net::port::{Datagrams, FlowSink};
use longhaul_net::sealing::open::Opener;
use longhaul_net::socket::Path;
use tokio::sync::Notify;

/// A receiver that is silent for this long gets no datagrams.
const SILENCE: Span = Span::from_secs(4);
/// Bytes of a control datagram's content: the epoch of the receiver's data keys.
pub(crate) const CONTENT: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Place {
    last_received: Mutex<Option<(Path, Time)>>,
    withheld: AtomicU64,
    epoch: AtomicU64,
    changed: Notify,
}

impl Place {
    fn last_received(&self) -> MutexGuard<'_, Option<(Path, Time)>> {
        self.last_received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_known(&self) -> bool {
        self.last_received().is_some()
    }

    /// Returns the epoch of the receiver's data keys; 0 without keys.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Completes at the first control datagram, and when the data keys change.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(crate) fn path(&self, now: Time) -> Option<Path> {
        let last_received = *self.last_received();
        last_received.filter(|(_, at)| now.since(*at) <= SILENCE).map(|(path, _)| path)
    }

    pub(crate) fn withhold(&self) {
        self.withheld.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn withheld(&self) -> u64 {
        self.withheld.load(Ordering::Relaxed)
    }
}

pub(crate) struct Listener {
    pub(crate) said: Opener,
    /// The session's validated address; datagrams go nowhere else.
    pub(crate) peer: IpAddr,
    pub(crate) place: Arc<Place>,
}

impl FlowSink for Listener {
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>) {
        for datagram in datagrams {
            if datagram.path.remote.ip().to_canonical() != self.peer {
                continue;
            }
            let mut content = [0; CONTENT];
            if self.said.open(now, &datagram.header, datagram.bytes, &mut content).is_ok() {
                let before = self.place.last_received().replace((datagram.path, datagram.at));
                let epoch = u64::from_be_bytes(content);
                if self.place.epoch.swap(epoch, Ordering::Relaxed) != epoch || before.is_none() {
                    self.place.changed.notify_one();
                }
            }
        }
    }

    fn on_wake(&mut self, _: Time) {}

    fn next_wakeup(&self) -> Option<Time> {
        None
    }

    fn on_port_closed(&mut self, _: &str) {}
}
