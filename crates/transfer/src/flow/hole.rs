//! Detects an MTU hole: the receiver's messages arrive here, but this end's datagrams do not reach
//! the receiver, because a link drops large datagrams.
//!
//! A path that carries nothing in this direction for a while looks the same. A search for the
//! largest size that passes ([`longhaul_net::port::mtu`]) tells the two apart.

use std::sync::mpsc::{Receiver, TryRecvError, channel};

use longhaul_net::port::PortHandle;
use longhaul_net::port::mtu::{self, Found, HoleWatch};
use longhaul_net::socket::Path;
use longhaul_proto::time::{Span, Time};

/// How long a search may take, or [`PATIENCE_RTTS`] round trips if they take longer.
const PATIENCE: Span = Span::from_secs(2);
const PATIENCE_RTTS: u64 = 8;
/// After this many searches without an arrival of data, a hole is assumed even if no search found
/// one: the path may treat probes and data differently.
const SEARCHES: u32 = 3;

pub(super) struct Hole {
    port: PortHandle,
    datagram: u16,
    /// `None` before the first datagram.
    watch: Option<HoleWatch>,
    search: Option<Receiver<Option<Found>>>,
    /// Number of searches since the last arrival.
    searches: u32,
    arrived: u64,
}

impl Hole {
    pub(super) fn new(port: PortHandle, datagram: u16) -> Hole {
        Hole { port, datagram, watch: None, search: None, searches: 0, arrived: 0 }
    }

    /// Starts to watch; returns false if it already watches.
    pub(super) fn begin(&mut self, now: Time) -> bool {
        let is_new = self.watch.is_none();
        self.watch.get_or_insert_with(|| HoleWatch::new(now));
        is_new
    }

    /// Handles a report: of `sent` datagrams, `arrived` have arrived. Returns whether there is a
    /// hole.
    pub(super) fn on_report(
        &mut self,
        now: Time,
        path: Path,
        [sent, arrived]: [u64; 2],
        rtt: Span,
    ) -> bool {
        let Some(watch) = &mut self.watch else { return false };
        if arrived != self.arrived {
            (self.arrived, self.searches) = (arrived, 0);
        }
        match self.search.as_ref().map(Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => false,
            Some(found) => {
                self.search = None;
                *watch = HoleWatch::new(now);
                self.searches += 1;
                let most = mtu::LARGEST - mtu::packet_overhead(path.remote.ip());
                let is_too_large = |found: Found| found.size < self.datagram.min(most);
                found.ok().flatten().is_some_and(is_too_large) || self.searches >= SEARCHES
            }
            None => {
                if watch.on_report(now, sent, arrived, rtt) {
                    self.start_search(path, PATIENCE.max(rtt * PATIENCE_RTTS));
                }
                false
            }
        }
    }

    fn start_search(&mut self, path: Path, patience: Span) {
        let (ended, search) = channel();
        let done = move |found| {
            // Nobody waits if the flow has ended.
            let _ = ended.send(found);
        };
        // If the port is closed, the flow ends for that reason.
        if mtu::search(&self.port, path, self.datagram, patience, done).is_ok() {
            self.search = Some(search);
        }
    }
}
