//! Messages with a deadline: the age of each one, and the erasure code that the path needs.
//!
//! The age of a message is the time since the application gave the message to its sender. A message
//! travels in hops, for example from the sender to a server and from the server to a subscriber. On
//! each hop the sending end states the message's age at departure ([`Departure`]). The receiving
//! end adds half of the round-trip time, and the additional delay compared with the fastest message
//! of the last 30 to 60 s ([`Judge`]). The clocks therefore need not agree.

use super::cutter::{Code, MAX_GROUP, MAX_REPAIRS};
use crate::stream::{Clock, EPSILON, Needs, Path, Way, plan};
use crate::time::{Span, Time};
use crate::units::Bytes;

/// The age of a message when it leaves for a hop, and the time by the sending end's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The message's age, in microseconds.
    pub age: u32,
    /// The time of departure, in microseconds of the sending end's clock, modulo 2³².
    pub stamp: u32,
}

impl Departure {
    /// Bytes of a departure in front of the message.
    pub const LEN: usize = 8;

    /// The departure at `now` of a message that its sender got at `born`, in microseconds of
    /// the local clock.
    pub fn new(now: Time, born: i64) -> Departure {
        let now = micros(now);
        let age = u32::try_from(now.saturating_sub(born).max(0)).unwrap_or(u32::MAX);
        Departure { age, stamp: now as u32 }
    }

    /// Encodes the departure, big-endian.
    pub fn encode(self) -> [u8; Departure::LEN] {
        let mut out = [0; Departure::LEN];
        out[..4].copy_from_slice(&self.age.to_be_bytes());
        out[4..].copy_from_slice(&self.stamp.to_be_bytes());
        out
    }

    /// Splits `bytes` into the departure at the start and the rest; `None` if there are too few
    /// bytes.
    pub fn decode(bytes: &[u8]) -> Option<(Departure, &[u8])> {
        let (age, rest) = bytes.split_first_chunk()?;
        let (stamp, rest) = rest.split_first_chunk()?;
        let (age, stamp) = (u32::from_be_bytes(*age), u32::from_be_bytes(*stamp));
        Some((Departure { age, stamp }, rest))
    }

    /// The age.
    pub fn age(self) -> Span {
        Span::from_micros(self.age.into())
    }
}

fn micros(time: Time) -> i64 {
    (time.as_nanos() / 1_000) as i64
}

/// Computes the ages of messages at the receiving end of a hop.
#[derive(Debug)]
pub struct Judge {
    clock: Clock,
    deadline: Span,
}

impl Judge {
    /// A judge of messages that must not be older than `deadline`.
    pub fn new(deadline: Span) -> Judge {
        Judge { clock: Clock::new(), deadline }
    }

    /// The time when the sender got a message that arrived at `now`, in microseconds of the local
    /// clock. The hop takes at least `path`. `None` if the message is older than the deadline.
    pub fn born(&mut self, now: Time, departure: Departure, path: Span) -> Option<i64> {
        let stamp = self.clock.stamp(departure.stamp);
        self.clock.on_arrival(now, stamp);
        let beyond = now.since(self.clock.due(now, stamp, Span::ZERO));
        let age = departure.age() + path + beyond;
        (age <= self.deadline).then(|| micros(now) - micros(Time::ZERO + age))
    }
}

/// A code, and how long a group (the datagrams that share repairs) may stay incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cover {
    /// The code.
    pub code: Code,
    /// The longest time from the first datagram of a group to its repairs.
    pub wait: Span,
}

/// Returns a code for `per_second` datagrams a second over a hop; `None` if no time remains. The
/// time that remains is the deadline minus half a round trip minus the jitter; the jitter counts as
/// at most a quarter of the deadline. A group collects datagrams for half of the time that remains.
/// The group has as many repairs as [`plan`] gives a stream's frame of the same length, or one for
/// each datagram if no number is enough; at most 32.
pub fn cover(deadline: Span, per_second: f64, path: &Path) -> Option<Cover> {
    let wait = path.calmed(deadline).leaves(deadline) / 2;
    if wait == Span::ZERO {
        return None;
    }
    let group = (per_second * wait.as_secs_f64()).clamp(1.0, MAX_GROUP.into()) as u8;
    let frame = Bytes::new(u64::from(group) * u64::from(path.symbol));
    let per_second = 1.0 / wait.as_secs_f64();
    let needs = Needs { frame, per_second, deadline, epsilon: EPSILON, receivers: 1 };
    let repairs = plan(&needs, path, 0, Some(Way::Code)).map_or(group.into(), |plan| plan.repairs);
    let code = match repairs.min(MAX_REPAIRS.into()) as u8 {
        0 => Code::None,
        1 => Code::Xor { group },
        repairs => Code::ReedSolomon { group, repairs },
    };
    Some(Cover { code, wait })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fec::Losses;
    use crate::units::LossRatio;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn path(loss: f64, burst: f64) -> Path {
        let losses = Losses::bursty(LossRatio::new(loss).expect("a share"), burst);
        Path { rtt: Span::from_millis(100), jitter: Span::ZERO, losses, symbol: 1_000 }
    }

    #[test]
    fn the_age_of_a_message_includes_its_wait_and_its_hop() {
        let path = Span::from_millis(50);
        let mut judge = Judge::new(Span::from_millis(100));
        // The clocks differ by about 1,000 s; the message waited 20 ms before it left.
        let departure = Departure::new(at(1_000_030), 1_000_010_000);
        assert_eq!(departure.age(), Span::from_millis(20));
        let bytes = [&departure.encode()[..], b"rest"].concat();
        assert_eq!(Departure::decode(&bytes), Some((departure, &b"rest"[..])));
        assert_eq!(Departure::decode(&bytes[..7]), None);
        assert_eq!(judge.born(at(500), departure, path), Some(430_000));
        // The hop takes 30 ms longer than the first, so the age is exactly the deadline. The last
        // two messages are 1 ms older.
        let mut next = |waited: i64, arrived| {
            let departure = Departure::new(at(1_000_130), 1_000_130_000 - waited);
            judge.born(at(arrived), departure, path)
        };
        assert_eq!(next(20_000, 630), Some(530_000));
        assert_eq!(next(21_000, 630), None);
        assert_eq!(next(0, 651), None);
    }

    #[test]
    fn a_code_fits_the_losses_and_the_time_that_the_deadline_leaves() {
        let millis = Span::from_millis;
        let cover = |deadline, per_second, path: &Path| cover(millis(deadline), per_second, path);
        assert_eq!(cover(50, 100.0, &path(0.01, 1.0)), None);
        // A deadline of 100 ms leaves 50 ms after half of the round trip, and a group collects
        // datagrams for half of these 50 ms.
        let code = |group, repairs| Code::ReedSolomon { group, repairs };
        let of = |code, wait| Some(Cover { code, wait: millis(wait) });
        assert_eq!(cover(100, 10.0, &path(0.005, 1.0)), of(Code::Xor { group: 1 }, 25));
        assert_eq!(cover(100, 10.0, &path(0.03, 1.0)), of(code(1, 2), 25));
        assert_eq!(cover(150, 200.0, &path(0.01, 1.0)), of(code(10, 3), 50));
        assert_eq!(cover(150, 1e9, &path(0.0, 1.0)), of(Code::None, 50));
        // Bursts need more repairs.
        let Some(Cover { code: Code::ReedSolomon { repairs, .. }, .. }) =
            cover(150, 200.0, &path(0.01, 3.0))
        else {
            panic!("a code")
        };
        assert!(repairs > 3, "{repairs}");
        // The jitter counts as at most a quarter of the deadline.
        let shaky = Path { jitter: Span::from_secs(1), ..path(0.01, 1.0) };
        assert_eq!(
            cover(250, 1.0, &shaky).map(|cover| cover.wait),
            Some(Span::from_micros(68_750))
        );
    }
}
