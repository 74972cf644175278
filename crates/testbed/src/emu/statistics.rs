//! An emulation's statistics, and the verdict on its validity.

use core::fmt;

use longhaul_proto::time::{Span, Time};

use crate::link::LinkTally;

/// Lateness that is acceptable, however short the path's delay is.
pub(crate) const LATE_ALLOWANCE: Span = Span::from_micros(300);

/// The emulator's own drops up to this share of all packets do not invalidate a run.
const OWN_DROP_SHARE: f64 = 1e-4;

/// Queue drops in the emulator's own bursts, up to this share of all queue drops, do not invalidate
/// a run.
const BURST_SHARE: f64 = 0.1;

/// An emulation's statistics so far.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// Statistics of each link.
    pub links: Vec<LinkStatistics>,
    /// Statistics of each host.
    pub hosts: Vec<HostStatistics>,
    /// Packets in flight.
    pub in_flight: u64,
    /// Packets that the hosts sent: offered to a route's first link.
    pub offered: u64,
    /// Frames that carried the offered packets; a super-packet (many packets that the kernel passes
    /// as one) is one frame.
    pub frames: u64,
    /// Packets delivered to a host, duplicates included.
    pub delivered: u64,
    /// Packets that the emulator itself lost: a device queue or the memory was full, or a device
    /// refused a packet. Each frame dropped by a device queue counts as the mean number of packets
    /// per frame, rounded up.
    pub own_drops: u64,
    /// Packets without a route to their address.
    pub unrouted: u64,
    /// The lateness of delivered packets.
    pub late: Lateness,
    /// An upper bound of the wait before the emulator read a packet: the time since it last found
    /// the device empty. The emulated delay starts at the read.
    pub waited: Lateness,
    /// Packets that the path's queues dropped, and that the emulator may have read more than
    /// [`LATE_ALLOWANCE`] late. Packets that are read late reach the path in a burst.
    pub burst_drops: u64,
    /// Limitations of this machine; each is a sentence.
    pub notices: Vec<String>,
    /// Processor time of the forwarding thread.
    pub processor: Span,
    /// Processor time spent only to keep processors awake.
    pub awake: Span,
    /// Time since the start.
    pub elapsed: Span,
    /// The shortest delay of any link, for the verdict.
    pub shortest_delay: Span,
}

/// The statistics of one link.
#[derive(Clone, Debug)]
pub struct LinkStatistics {
    /// The sending node's name.
    pub from: String,
    /// The receiving node's name.
    pub to: String,
    /// The link's counters.
    pub tally: LinkTally,
}

/// The statistics of one host.
#[derive(Clone, Debug)]
pub struct HostStatistics {
    /// The host's name.
    pub host: String,
    /// UDP datagrams dropped because the program's socket was full. Coalesced ones count once.
    pub socket_drops: u64,
}

/// Whether a run is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The path was as specified.
    Valid,
    /// The emulator disturbed the path; the text says how.
    Invalid(String),
}

impl Statistics {
    /// Whether the emulator kept up with the specified path. All of these must hold:
    ///
    /// - The emulator itself lost at most 1 packet of 10,000.
    /// - The 99th percentiles of lateness, and of the wait before reads, are at most 0.3 ms, or 1 %
    ///   of the shortest delay if that is more.
    /// - The emulator's own bursts made the path's queues drop at most 1 packet of 10,000, or at
    ///   most a tenth of all queue drops.
    pub fn verdict(&self) -> Verdict {
        let allowance = LATE_ALLOWANCE.max(self.shortest_delay / 100);
        let (offered, sent) = (self.offered, self.offered + self.own_drops);
        if self.own_drops as f64 > sent as f64 * OWN_DROP_SHARE {
            return Verdict::Invalid(format!(
                "the emulator lost {} packets itself, of {offered} offered",
                self.own_drops
            ));
        }
        let late = self.late.percentile(0.99);
        if late > allowance {
            return Verdict::Invalid(format!(
                "1 % of the packets came more than {late} too late; the limit is {allowance}"
            ));
        }
        let waited = self.waited.percentile(0.99);
        if waited > allowance {
            return Verdict::Invalid(format!(
                "1 % of the packets may have waited more than {waited} before the emulator read \
                 them; the limit is {allowance}"
            ));
        }
        let dropped: u64 = self.links.iter().map(|link| link.tally.dropped_by_queue()).sum();
        let bursts = self.burst_drops;
        if bursts as f64 > sent as f64 * OWN_DROP_SHARE
            && bursts as f64 > dropped as f64 * BURST_SHARE
        {
            return Verdict::Invalid(format!(
                "of {dropped} packets that queues dropped, {bursts} came in bursts because the \
                 emulator saw them late"
            ));
        }
        Verdict::Valid
    }

    /// The counters of a link between two nodes.
    pub fn link(&self, from: &str, to: &str) -> Option<&LinkTally> {
        self.links.iter().find(|l| l.from == from && l.to == to).map(|l| &l.tally)
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for LinkStatistics { from, to, tally } in &self.links {
            let LinkTally {
                offered, offered_bytes, arrives, arrives_bytes, lost, queue_full, ..
            } = *tally;
            write!(
                f,
                "{from} > {to}: {offered} packets ({offered_bytes}) offered, {arrives} arrive \
                 ({arrives_bytes}), {lost} lost, {queue_full} dropped by the queue"
            )?;
            let counts = tally.counts().into_iter();
            for count in counts.filter(|count| count.value > 0 && !count.words.is_empty()) {
                write!(f, ", {} {}", count.value, count.words)?;
            }
            writeln!(f)?;
        }
        for HostStatistics { host, socket_drops } in &self.hosts {
            if *socket_drops > 0 {
                writeln!(
                    f,
                    "{host}: {socket_drops} datagrams that arrived were lost there, as a program's \
                     socket was full"
                )?;
            }
        }
        let share = self.processor.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9) * 100.0;
        if self.unrouted > 0 {
            writeln!(f, "{} packets had no route to their destination", self.unrouted)?;
        }
        write!(
            f,
            "emulator: {} own drops; late {} at the 99th percentile and {} at most; wait before \
             reading {} at the 99th percentile and {} at most; processor time {} ({share:.0} % of \
             one), and {} to keep idle processors awake; ",
            self.own_drops,
            self.late.percentile(0.99),
            self.late.worst(),
            self.waited.percentile(0.99),
            self.waited.worst(),
            self.processor,
            self.awake
        )?;
        match self.verdict() {
            Verdict::Valid => f.write_str("valid"),
            Verdict::Invalid(reason) => write!(f, "INVALID: {reason}"),
        }
    }
}

/// Buckets per power of two, for percentiles accurate to 1/16.
const PARTS: usize = 16;

/// A histogram of lateness, or of waits.
#[derive(Clone, Debug)]
pub struct Lateness {
    buckets: Vec<u64>,
    worst: Span,
}

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness { buckets: vec![0; 64 * PARTS], worst: Span::ZERO }
    }
}

impl Lateness {
    pub(super) fn count(&mut self, due: Time, now: Time, packets: u64) {
        let late = now.since(due);
        self.worst = self.worst.max(late);
        self.buckets[bucket(late.as_nanos())] += packets;
    }

    /// The lateness that a share `share` of the packets does not exceed, accurate to 1/16.
    pub fn percentile(&self, share: f64) -> Span {
        let all: u64 = self.buckets.iter().sum();
        let rank = (all as f64 * share).ceil() as u64;
        let mut seen = 0;
        let found = self.buckets.iter().position(|n| {
            seen += n;
            seen >= rank && seen > 0
        });
        found.map_or(Span::ZERO, |b| Span::from_nanos(upper_edge(b)).min(self.worst))
    }

    /// The largest lateness.
    pub fn worst(&self) -> Span {
        self.worst
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < PARTS as u64 {
        return nanos as usize;
    }
    let power = nanos.ilog2() as usize;
    let part = (nanos >> (power - 4)) as usize & (PARTS - 1);
    (power - 3) * PARTS + part
}

/// The largest number of nanoseconds in bucket `index`.
fn upper_edge(index: usize) -> u64 {
    let (power, part) = (index / PARTS, (index % PARTS) as u64);
    // The topmost bucket ends at 2⁶⁴ − 1: the shift leaves zero.
    if power == 0 { part } else { ((PARTS as u64 + part + 1) << (power - 1)).wrapping_sub(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_right_within_a_sixteenth() {
        let mut late = Lateness::default();
        assert_eq!(late.percentile(0.99), Span::ZERO);
        for micros in 1..=1_000 {
            late.count(Time::ZERO, Time::from_nanos(micros * 1_000), 1);
        }
        for (share, exact) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1_000.0)] {
            let found = late.percentile(share).as_nanos() as f64 / 1e3;
            assert!((exact..=exact * 17.0 / 16.0).contains(&found), "{share}: {found}");
        }
        assert_eq!(late.worst(), Span::from_millis(1));
    }

    #[test]
    fn every_number_lies_between_the_edges_of_its_bucket() {
        for n in (0..100_000u64).chain([u64::MAX / 2, u64::MAX]) {
            let b = bucket(n);
            assert!(n <= upper_edge(b) || upper_edge(b) == u64::MAX, "{n}");
            assert!(b == 0 || n > upper_edge(b - 1), "{n}");
        }
    }

    /// A run at the limit of own drops: 2 of 20,000.
    fn statistics() -> Statistics {
        let tally = LinkTally { offered: 20_000, ..LinkTally::default() };
        let link = LinkStatistics { from: "a".into(), to: "b".into(), tally };
        Statistics {
            links: vec![link],
            hosts: vec![HostStatistics { host: "b".into(), socket_drops: 0 }],
            in_flight: 0,
            offered: 20_000,
            frames: 20_000,
            delivered: 20_000,
            own_drops: 2,
            unrouted: 0,
            late: Lateness::default(),
            waited: Lateness::default(),
            burst_drops: 0,
            notices: Vec::new(),
            processor: Span::ZERO,
            awake: Span::ZERO,
            elapsed: Span::from_secs(1),
            shortest_delay: Span::from_millis(50),
        }
    }

    fn invalid(statistics: &Statistics) -> String {
        assert!(statistics.to_string().contains("INVALID"));
        match statistics.verdict() {
            Verdict::Invalid(reason) => reason,
            Verdict::Valid => panic!("{statistics} is not valid"),
        }
    }

    #[test]
    fn the_verdict_names_the_reason_of_an_invalid_run() {
        let mut statistics = statistics();
        assert_eq!(statistics.verdict(), Verdict::Valid);
        statistics.late.count(Time::ZERO, Time::from_nanos(400_000), 20_000);
        assert_eq!(statistics.verdict(), Verdict::Valid, "1 % of 50 ms is more");
        statistics.shortest_delay = Span::ZERO;
        assert!(invalid(&statistics).contains("too late"));
        statistics.own_drops = 3;
        assert!(invalid(&statistics).contains("itself, of"));
    }

    #[test]
    fn the_share_of_own_drops_counts_a_packet_once_however_many_links_it_crosses() {
        let mut statistics = statistics();
        statistics.links = vec![statistics.links[0].clone(); 10];
        statistics.own_drops = 3;
        assert!(invalid(&statistics).contains("3 packets itself, of 20000"));
    }

    #[test]
    fn a_run_is_invalid_if_1_percent_of_the_packets_waited_too_long_to_be_read() {
        let mut statistics = statistics();
        statistics.waited.count(Time::ZERO, Time::from_nanos(600_000), 100);
        statistics.waited.count(Time::ZERO, Time::from_nanos(50_000), 9_950);
        assert_eq!(statistics.verdict(), Verdict::Valid, "fewer than 1 %");
        statistics.waited.count(Time::ZERO, Time::from_nanos(600_000), 100);
        assert!(invalid(&statistics).contains("before the emulator read them"));
    }

    #[test]
    fn drops_in_bursts_of_the_emulator_invalidate_a_run_unless_the_queue_overflows_anyway() {
        let mut statistics = statistics();
        statistics.burst_drops = 3;
        statistics.links[0].tally.queue_full = 4;
        assert!(invalid(&statistics).contains("of 4 packets"));
        statistics.links[0].tally.queue_full = 40;
        assert_eq!(statistics.verdict(), Verdict::Valid);
    }

    #[test]
    fn the_printed_statistics_count_packets_without_a_route() {
        let mut statistics = statistics();
        assert!(!statistics.to_string().contains("no route"));
        statistics.unrouted = 50;
        assert!(statistics.to_string().contains("50 packets had no route"));
    }

    #[test]
    fn the_printed_statistics_count_datagrams_dropped_at_a_programs_full_socket() {
        let mut statistics = statistics();
        assert!(!statistics.to_string().contains("socket"));
        statistics.hosts[0].socket_drops = 1_066;
        let account = statistics.to_string();
        assert!(account.contains("b: 1066 datagrams that arrived were lost there"), "{account}");
        assert_eq!(statistics.verdict(), Verdict::Valid, "the path was as specified");
    }
}
