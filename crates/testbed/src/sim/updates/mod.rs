//! State updates over one link in virtual time: small messages at regular intervals, by TCP or by
//! datagrams.

mod datagrams;
mod tcp;

use longhaul_proto::channel::Code;
use longhaul_proto::stream::Meter;
use longhaul_proto::time::{Span, Time};

use crate::link::LinkSpec;

/// How updates travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// One TCP connection without Nagle's algorithm; see [`run`].
    Tcp,
    /// Datagrams with a code.
    Datagrams(Code),
    /// Datagrams with the code that this deadline needs on the measured path. Updates beyond the
    /// deadline are not delivered.
    Deadline(Span),
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct UpdatesRun {
    /// The link to the receiver. The return path has the same delay and no loss.
    pub link: LinkSpec,
    /// How updates travel.
    pub carrier: Carrier,
    /// Bytes of an update: at least 8.
    pub size: usize,
    /// Time from one update to the next.
    pub interval: Span,
    /// Number of updates.
    pub count: u32,
    /// The seed of the link's randomness.
    pub seed: u64,
}

/// The outcome of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdatesOutcome {
    /// The delay of each delivered update, shortest first.
    pub delays: Vec<Span>,
    /// Updates not delivered by the end.
    pub lost: u32,
    /// The jitter at the end of the run (RFC 3550, section 6.4.1).
    pub jitter: Span,
    /// IP packets sent to the receiver.
    pub packets: u64,
    /// Bytes of IP packets to the receiver.
    pub bytes: u64,
}

impl UpdatesOutcome {
    /// The share of updates delivered within `deadline`.
    pub fn within(&self, deadline: Span) -> f64 {
        let on_time = self.delays.partition_point(|delay| *delay <= deadline);
        on_time as f64 / (self.delays.len() as f64 + f64::from(self.lost)).max(1.0)
    }

    /// The delay that `share` of all updates did not exceed, if so many were delivered.
    pub fn delay_of_all(&self, share: f64) -> Option<Span> {
        let all = self.delays.len() as f64 + f64::from(self.lost);
        let count = (all * share).ceil() as usize;
        self.delays.get(count.checked_sub(1)?).copied()
    }

    /// The delay that `share` of the delivered updates did not exceed.
    pub fn delay(&self, share: f64) -> Span {
        let last = self.delays.len().saturating_sub(1);
        let place = (self.delays.len() as f64 * share) as usize;
        self.delays.get(place.min(last)).copied().unwrap_or(Span::ZERO)
    }
}

/// Runs updates to their end.
///
/// The model of TCP: Reno's window starts with ten segments. Updates that wait for the window share
/// segments of 1,448 bytes. The first loss in a round trip halves the window. A segment counts as
/// lost if:
/// - a segment sent at least three transmissions later is acknowledged;
/// - a segment sent later is acknowledged, and 5/4 of a round trip has passed (RACK);
/// - two round trips have passed (the tail loss probe).
///
/// Both times count from the sending of the lost segment.
pub fn run(run: &UpdatesRun) -> UpdatesOutcome {
    let mut tally = Tally::new(run);
    match run.carrier {
        Carrier::Tcp => tcp::run(run, &mut tally),
        Carrier::Datagrams(code) => datagrams::run(run, code, None, &mut tally),
        Carrier::Deadline(deadline) => {
            datagrams::run(run, Code::None, Some(deadline), &mut tally);
        }
    }
    tally.end(run)
}

struct Tally {
    interval: Span,
    meter: Meter,
    outcome: UpdatesOutcome,
}

impl Tally {
    fn new(run: &UpdatesRun) -> Tally {
        let (interval, meter) = (run.interval, Meter::new(run.interval));
        Tally { interval, meter, outcome: UpdatesOutcome::default() }
    }

    /// When the sender gets update `number`.
    fn at(&self, number: u32) -> Time {
        Time::ZERO + self.interval * u64::from(number)
    }

    fn delivered(&mut self, now: Time, number: u32) {
        let delay = now.since(self.at(number));
        self.outcome.delays.push(delay);
        self.meter.on_frame((delay.as_nanos() / 1_000) as i64);
    }

    fn sent(&mut self, packet: u32) {
        self.outcome.packets += 1;
        self.outcome.bytes += u64::from(packet);
    }

    fn end(mut self, run: &UpdatesRun) -> UpdatesOutcome {
        self.outcome.lost = run.count - self.outcome.delays.len() as u32;
        self.outcome.jitter = self.meter.jitter();
        self.outcome.delays.sort_unstable();
        self.outcome
    }
}

#[cfg(test)]
mod tests {
    use longhaul_proto::units::{LossRatio, Rate};

    use super::*;
    use crate::link::Loss;

    const RTT: Span = Span::from_millis(100);

    fn outcome(carrier: Carrier, loss: f64, interval: u64) -> UpdatesOutcome {
        let link = LinkSpec::path(Rate::from_mbps(100), RTT)
            .with_loss(Loss::Independent(LossRatio::new(loss).unwrap()));
        let interval = Span::from_millis(interval);
        run(&UpdatesRun { link, carrier, size: 100, interval, count: 2_000, seed: 1 })
    }

    #[test]
    fn without_loss_every_carrier_delivers_after_the_paths_delay_alone() {
        let codes =
            [Code::None, Code::Xor { group: 3 }, Code::ReedSolomon { group: 8, repairs: 2 }];
        let others = [Carrier::Tcp, Carrier::Deadline(RTT)];
        let all = codes.map(Carrier::Datagrams).into_iter().chain(others);
        for carrier in all {
            let outcome = outcome(carrier, 0.0, 10);
            assert_eq!((outcome.delays.len(), outcome.lost), (2_000, 0), "{carrier:?}");
            let last = outcome.delays[1_999];
            assert!(last >= RTT / 2 && last < Span::from_millis(51), "{carrier:?}: {last}");
            assert_eq!(outcome.within(last), 1.0);
        }
    }

    #[test]
    fn a_lost_tcp_segment_arrives_more_than_a_round_trip_late_and_delays_later_segments() {
        let outcome = outcome(Carrier::Tcp, 0.01, 10);
        assert_eq!(outcome.lost, 0);
        assert!(outcome.delay(0.5) < Span::from_millis(51));
        // A lost segment takes 175 ms: 125 ms (5/4 of a round trip) until it counts as lost, and 50
        // ms for its retransmission.
        let late = outcome.delays.last().copied().unwrap_or_default();
        assert!(late >= Span::from_millis(170), "{late}");
        let on_time = outcome.within(Span::from_millis(60));
        assert!((0.7..0.95).contains(&on_time), "{on_time}");
    }

    #[test]
    fn repairs_restore_most_of_the_updates_that_plain_datagrams_lose() {
        let plain = outcome(Carrier::Datagrams(Code::None), 0.03, 10);
        assert!((30..100).contains(&plain.lost), "{}", plain.lost);
        let coded = outcome(Carrier::Datagrams(Code::Xor { group: 2 }), 0.03, 10);
        assert!(coded.lost < plain.lost / 5, "{} {}", coded.lost, plain.lost);
        // The adaptive code has so many repairs that at most one group in 10,000 is incomplete.
        let follows = outcome(Carrier::Deadline(RTT), 0.03, 10);
        assert!(follows.lost <= 4, "{}", follows.lost);
        assert!(follows.delays.iter().all(|delay| *delay <= RTT));
        assert!(coded.bytes > plain.bytes * 3 / 2 - plain.bytes / 10);
        // The path takes 50 ms, and a repair leaves at most 20 ms (`datagrams::WAIT`) after its
        // group's first update.
        assert!(coded.delays.last().is_some_and(|last| *last < Span::from_millis(71)));
    }
}
