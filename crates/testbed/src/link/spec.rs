//! A link's configuration.

use core::fmt;

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

use super::{CoDel, Loss, Policer};

/// Ethernet's framing of an IP packet: 14 bytes of header, 4 of check sequence, 8 of preamble and a
/// gap of 12.
pub const ETHERNET_FRAMING: u32 = 38;

/// The headers of UDP and IPv4 in a packet: 8 and 20 bytes.
pub(crate) const UDP_IP: u32 = 28;

/// One direction of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// Bits a second on the wire, framing included; `None`: unlimited.
    pub rate: Option<Rate>,
    /// Propagation delay, one way.
    pub delay: Span,
    /// Random addition to the delay.
    pub jitter: Jitter,
    /// Capacity of the queue in bytes on the wire, including the packet being sent.
    pub queue: Bytes,
    /// A token bucket before the queue.
    pub policer: Option<Policer>,
    /// Active queue management.
    pub control: QueueControl,
    /// Which packets are lost after they were sent.
    pub loss: Loss,
    /// The share of packets that arrive twice, from 0 to 1.
    pub duplicate: f64,
    /// Packets that arrive after later packets.
    pub reorder: Reorder,
    /// The share of packets with a flipped bit, from 0 to 1.
    pub corrupt: f64,
    /// Bytes on the wire beyond the IP packet.
    pub framing: u32,
    /// IP packets with more bytes than this vanish without an ICMP error: a black hole in path MTU
    /// discovery.
    pub swallow_above: Option<u32>,
    /// Whether the link works; otherwise it drops everything.
    pub up: bool,
    /// Later changes, in the order of their times.
    pub schedule: Vec<Step>,
}

/// Drops by a queue that still has room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueControl {
    /// A queue with room drops nothing.
    #[default]
    DropTail,
    /// Drops that CoDel decides.
    CoDel(CoDel),
}

/// Random delay, uniformly between zero and `spread`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jitter {
    /// The largest addition.
    pub spread: Span,
    /// Whether a packet may overtake earlier packets.
    pub overtakes: bool,
}

/// Packets held back for reordering.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reorder {
    /// The share of packets held back, from 0 to 1.
    pub share: f64,
    /// The extra delay.
    pub by: Span,
}

/// A scheduled change.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The time, on the caller's clock. A new rate also applies to packets in the queue; other
    /// changes apply to packets that enter later.
    pub at: Time,
    /// The change.
    pub change: Change,
}

/// The parameter that a [`Step`] changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A new rate.
    Rate(Option<Rate>),
    /// A new delay.
    Delay(Span),
    /// A linear change of the rate.
    RateRamp {
        /// The final rate.
        to: Rate,
        /// The duration.
        over: Span,
    },
    /// A linear change of the delay.
    DelayRamp {
        /// The final delay.
        to: Span,
        /// The duration.
        over: Span,
    },
    /// A new loss model.
    Loss(Loss),
    /// `false` begins an outage, `true` ends it.
    Up(bool),
}

/// Why a [`LinkSpec`] is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(String);

impl SpecError {
    pub(super) fn new(what: String) -> SpecError {
        SpecError(what)
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for SpecError {}

impl Default for LinkSpec {
    /// An ideal wire: no rate limit, no delay, no loss.
    fn default() -> LinkSpec {
        LinkSpec {
            rate: None,
            delay: Span::ZERO,
            jitter: Jitter::default(),
            queue: Bytes::MAX,
            policer: None,
            control: QueueControl::DropTail,
            loss: Loss::None,
            duplicate: 0.0,
            reorder: Reorder::default(),
            corrupt: 0.0,
            framing: ETHERNET_FRAMING,
            swallow_above: None,
            up: true,
            schedule: Vec::new(),
        }
    }
}

impl LinkSpec {
    /// One direction of a path of `rate` and round-trip time `rtt`, with half of `rtt` as delay.
    /// The queue holds one bandwidth-delay product, at least 100 full Ethernet frames.
    pub fn path(rate: Rate, rtt: Span) -> LinkSpec {
        let queue = rate.over(rtt).max(Bytes::new(100 * 1_538));
        LinkSpec { rate: Some(rate), delay: rtt / 2, queue, ..LinkSpec::default() }
    }

    /// The highest rate that the link ever has; `None` if it is ever unlimited.
    pub fn fastest(&self) -> Option<Rate> {
        self.rates().reduce(|most, rate| Some(most?.max(rate?))).flatten()
    }

    /// The first rate and those of the schedule; `None` for an unlimited one.
    fn rates(&self) -> impl Iterator<Item = Option<Rate>> {
        let later = self.schedule.iter().filter_map(|step| match step.change {
            Change::Rate(rate) => Some(rate),
            Change::RateRamp { to, .. } => Some(Some(to)),
            _ => None,
        });
        std::iter::once(self.rate).chain(later)
    }

    /// The same link with `loss`.
    pub fn with_loss(self, loss: Loss) -> LinkSpec {
        LinkSpec { loss, ..self }
    }

    /// Checks the configuration for IP packets of up to `mtu` bytes.
    ///
    /// # Errors
    /// A share outside 0 to 1, a rate of zero, a queue or burst below a full packet, an invalid
    /// loss model, or a schedule out of order.
    pub fn validate(&self, mtu: u32) -> Result<(), SpecError> {
        let error = |what: String| Err(SpecError(what));
        let shares = [
            ("duplicate", self.duplicate),
            ("reorder", self.reorder.share),
            ("corrupt", self.corrupt),
        ];
        for (what, share) in shares {
            if !(0.0..=1.0).contains(&share) {
                return error(format!("{what} {share} is not between 0 and 1"));
            }
        }
        let frame = Bytes::new(u64::from(mtu) + u64::from(self.framing));
        if self.rates().any(|rate| rate.is_some()) && self.queue < frame {
            return error(format!("a queue of {} is smaller than a packet of {frame}", self.queue));
        }
        if self.policer.is_some_and(|policer| policer.rate == Rate::ZERO || policer.burst < frame) {
            return error(format!(
                "a policer needs a rate above zero and a burst of at least a packet ({frame})"
            ));
        }
        if !self.schedule.is_sorted_by_key(|step| step.at) {
            return error("the schedule's times are not in order".into());
        }
        if self.rates().any(|rate| rate == Some(Rate::ZERO)) {
            return error("a rate of zero moves nothing; an outage is `up = false`".into());
        }
        self.loss.validate()?;
        self.schedule.iter().try_for_each(|step| match &step.change {
            Change::Loss(loss) => loss.validate(),
            _ => Ok(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_link_is_refused_with_the_reason() {
        let path = || LinkSpec::path(Rate::from_mbps(10), Span::from_millis(20));
        let step = |at, change| Step { at: Time::from_nanos(at), change };
        assert_eq!(path().validate(1500), Ok(()));
        let wrong = [
            (LinkSpec { queue: Bytes::new(1_500), ..path() }, "smaller than a packet"),
            (
                LinkSpec {
                    rate: None,
                    queue: Bytes::new(1_500),
                    schedule: vec![step(1, Change::Rate(Some(Rate::from_mbps(1))))],
                    ..path()
                },
                "smaller than a packet",
            ),
            (LinkSpec { corrupt: -0.1, ..path() }, "corrupt -0.1"),
            (LinkSpec { rate: Some(Rate::ZERO), ..path() }, "rate of zero"),
            (
                LinkSpec {
                    policer: Some(Policer { rate: Rate::from_mbps(1), burst: Bytes::new(1_500) }),
                    ..path()
                },
                "at least a packet",
            ),
            (path().with_loss(Loss::BitErrors(f64::NAN)), "bit error ratio"),
            (path().with_loss(Loss::Pattern([].into())), "empty"),
            (
                LinkSpec {
                    schedule: vec![step(2, Change::Up(false)), step(1, Change::Up(true))],
                    ..path()
                },
                "not in order",
            ),
            (
                LinkSpec { schedule: vec![step(1, Change::Rate(Some(Rate::ZERO)))], ..path() },
                "rate of zero",
            ),
        ];
        for (spec, reason) in wrong {
            let error = spec.validate(1500).expect_err(reason).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
