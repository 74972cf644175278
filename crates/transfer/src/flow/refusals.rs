//! One flow's view of the datagrams that its port lost: the kernel dropped them because a buffer
//! was full, or the port or the flow refused them.
//!
//! A port counts the kernel's drops and its own refusals for all of its flows together. Each flow
//! reports all refusals of its port. The kernel's drops are divided among the flows in proportion
//! to arrivals, because a full buffer drops the datagrams of all flows alike.

use longhaul_net::port::PortStatistics;
use longhaul_net::sealing::open::OpenCounts;

#[derive(Debug)]
pub(super) struct Refusals {
    /// The port's counts when the flow began.
    first: PortStatistics,
    /// The port's counts when the kernel's drops were last divided among the flows.
    last: PortStatistics,
    /// Datagrams that this flow had received when the drops were last divided.
    mine: u64,
    /// The flow's part of the kernel's drops so far.
    dropped: f64,
}

impl Refusals {
    pub(super) fn new(port: PortStatistics) -> Refusals {
        Refusals { first: port, last: port, mine: 0, dropped: 0.0 }
    }

    /// Returns the flow's part of the kernel's drops since it began. `port` are the port's counts,
    /// `mine` the datagrams that the flow has received.
    pub(super) fn dropped(&mut self, port: PortStatistics, mine: u64) -> u64 {
        let all = port.received.saturating_sub(self.last.received);
        if all > 0 {
            let share = mine.saturating_sub(self.mine).min(all) as f64 / all as f64;
            self.dropped += port.dropped_since(&self.last) * share;
            (self.last, self.mine) = (port, mine);
        }
        self.dropped.round() as u64
    }

    /// Returns the datagrams refused since the flow began: by the port (`port` are its counts), and
    /// by the flow's two openers, which decrypt data and control datagrams.
    pub(super) fn refused(&self, port: PortStatistics, openers: [OpenCounts; 2]) -> u64 {
        let at_port = |port: PortStatistics| port.foreign + port.dropped;
        let by_flow = openers.map(|seen| seen.replayed + seen.stale + seen.failed + seen.refused);
        at_port(port).saturating_sub(at_port(self.first)) + by_flow.iter().sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(received: u64, kernel_drops: u64) -> PortStatistics {
        PortStatistics { received, trains: received, kernel_drops, ..PortStatistics::default() }
    }

    #[test]
    fn a_single_flow_has_all_drops_even_when_the_counter_wraps() {
        // From 0xffff_fffe to 7 the 32-bit counter has counted nine drops.
        let mut refusals = Refusals::new(port(50, 0xffff_fffe));
        assert_eq!(refusals.dropped(port(150, 7), 100), 9);
        // Nothing has arrived since, so it is unknown whose datagram was dropped.
        assert_eq!(refusals.dropped(port(150, 10), 100), 9);
        assert_eq!(refusals.dropped(port(151, 10), 101), 12);
    }

    #[test]
    fn flows_of_one_port_share_its_drops_in_proportion_to_their_arrivals() {
        let (mut first, mut second) = (Refusals::new(port(0, 0)), Refusals::new(port(0, 0)));
        // The port has received 1,000 datagrams, a quarter of them for the first flow, and the
        // kernel has dropped 100.
        let now = port(1_000, 100);
        assert_eq!((first.dropped(now, 250), second.dropped(now, 750)), (25, 75));
        // Now only the second flow receives.
        let now = port(2_000, 200);
        assert_eq!((first.dropped(now, 250), second.dropped(now, 1_750)), (25, 175));
    }

    /// A train here is a group of datagrams that the kernel has merged. The kernel drops a train as
    /// a whole.
    #[test]
    fn a_dropped_train_counts_as_many_datagrams_as_an_average_arrived_train() {
        let after = PortStatistics { trains: 50, ..port(1_000, 7) };
        assert_eq!(Refusals::new(port(0, 0)).dropped(after, 1_000), 140);
    }

    #[test]
    fn refused_adds_the_ports_refusals_since_the_flow_began_to_those_of_its_openers() {
        let before = PortStatistics { foreign: 5, dropped: 2, ..port(0, 0) };
        let now = PortStatistics { foreign: 11, dropped: 3, ..port(0, 0) };
        let data = OpenCounts { opened: 9, replayed: 1, stale: 2, failed: 4, refused: 8 };
        let refusals = Refusals::new(before);
        assert_eq!(refusals.refused(now, [data, OpenCounts::default()]), 7 + 15);
    }
}
