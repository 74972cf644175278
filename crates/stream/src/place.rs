//! The address of a receiver, learned from its sealed control datagrams.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_net::clock::{Span, Time};
use longhaul_net::port::{Datagram, Datagrams, FlowSink};
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
    /// Number of frames that were not forwarded completely to this receiver.
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
    said: Opener,
    /// The session's validated address; datagrams go nowhere else.
    peer: IpAddr,
    place: Arc<Place>,
    /// The number of the newest control datagram, plus one.
    next: u64,
}

impl Listener {
    pub(crate) fn new(said: Opener, peer: IpAddr, place: Arc<Place>) -> Listener {
        Listener { said, peer, place, next: 0 }
    }

    fn take(&mut self, now: Time, datagram: &Datagram<'_>) {
        let mut content = [0; CONTENT];
        let number = datagram.header.number.0;
        // The replay window accepts late datagrams, whose address and epoch may be old.
        if datagram.path.remote.ip().to_canonical() != self.peer
            || number < self.next
            || self.said.open(now, &datagram.header, datagram.bytes, &mut content).is_err()
        {
            return;
        }
        self.next = number + 1;
        let before = self.place.last_received().replace((datagram.path, datagram.at));
        let epoch = u64::from_be_bytes(content);
        if self.place.epoch.swap(epoch, Ordering::Relaxed) != epoch || before.is_none() {
            self.place.changed.notify_one();
        }
    }
}

impl FlowSink for Listener {
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>) {
        datagrams.for_each(|datagram| self.take(now, &datagram));
    }

    fn on_wake(&mut self, _: Time) {}

    fn next_wakeup(&self) -> Option<Time> {
        None
    }

    fn on_port_closed(&mut self, _: &str) {}
}

#[cfg(test)]
mod tests {
    use longhaul_net::sealing::keys::{FlowKeys, Suite};
    use longhaul_net::sealing::seal::SEALED_OVERHEAD;
    use longhaul_proto::endpoint::FlowId;
    use longhaul_proto::wire::header::{Header, Kind};

    use super::*;

    #[test]
    fn a_late_control_datagram_changes_neither_the_address_nor_the_epoch() {
        let keys = || FlowKeys::new(&[1; 32], Suite::Aes128Gcm, 0, FlowId(1));
        let mut sealer = keys().receiving_end().reports;
        let place = Arc::<Place>::default();
        let said = keys().sending_end().reports;
        let mut listener = Listener::new(said, [127, 0, 0, 1].into(), place.clone());
        let at = Time::from_nanos(1);
        let [first, second, third] = [1_u64, 2, 3].map(|epoch| {
            let mut out = vec![0; CONTENT + SEALED_OVERHEAD];
            sealer.seal(Kind::Control, 0, &epoch.to_be_bytes(), &mut out).unwrap();
            (epoch, out)
        });
        for ((epoch, bytes), newest) in [(&second, 2), (&first, 2), (&third, 3)] {
            let path = |port| Path::from(std::net::SocketAddr::from(([127, 0, 0, 1], port)));
            let header = Header::decode(bytes).unwrap();
            listener.take(at, &Datagram { header, path: path(*epoch as u16), bytes, at });
            assert_eq!((place.epoch(), place.path(at)), (newest, Some(path(newest as u16))));
        }
    }
}
