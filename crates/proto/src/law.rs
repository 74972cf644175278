//! Rate control laws for protocols that do not define one, and the results of a law.

use crate::time::Span;
use crate::units::Rate;

/// A rate control law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Law {
    /// Measures the path with packet trains: datagrams sent back to back
    /// ([`crate::rate::train::Trains`]).
    Trains,
    /// Like `Trains`, but on a path with other traffic the rate follows a window like CUBIC's
    /// ([`crate::rate::shadow::Shadow`]).
    #[default]
    Shadow,
}

impl Law {
    /// Every law, with its name in a scenario.
    pub const ALL: [(&'static str, Law); 2] = [("trains", Law::Trains), ("shadow", Law::Shadow)];
}

/// The state of the search for a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// No rate was found yet.
    Start,
    /// The rate follows the capacity of the path.
    Alone,
    /// Other traffic keeps a queue on the path, and the copy takes its fair share.
    Shared,
}

impl Phase {
    /// Every phase.
    pub const ALL: [Phase; 3] = [Phase::Start, Phase::Alone, Phase::Shared];

    /// The phase's name in `--json`.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Start => "start",
            Phase::Alone => "alone",
            Phase::Shared => "shared",
        }
    }
}

/// A law's findings about its path so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The rate found for the path; zero before the first result.
    pub rate: Rate,
    /// Time from the first datagram to the first result.
    pub after: Span,
    /// The loss ratio of the path itself, in millionths.
    pub loss_ppm: u32,
    /// Total time in which the law treated the path as shared; `None` if the law does not detect
    /// other traffic.
    pub shared: Option<Span>,
    /// The state of the search; `None` from a law that does not search.
    pub phase: Option<Phase>,
}

/// The share of a shared path that a copy takes, counted in TCP CUBIC flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight(u32);

impl Weight {
    /// Almost nothing: a scavenger that yields to all other traffic.
    pub const LOW: Weight = Weight(0);
    /// The share of one flow.
    pub const EQUAL: Weight = Weight(1);
    /// Maximum number of flows that a copy counts as.
    pub const MOST: u32 = 64;

    /// Returns the weight of `flows` flows; 0 is [`Weight::LOW`]. `None` above [`Weight::MOST`].
    pub const fn new(flows: u32) -> Option<Weight> {
        if flows <= Weight::MOST { Some(Weight(flows)) } else { None }
    }

    /// The number of flows, 0 for [`Weight::LOW`].
    pub const fn flows(self) -> u32 {
        self.0
    }

    /// Number of TCP windows that [`crate::rate::shadow`] models; at least one.
    pub(crate) fn windows(self) -> u32 {
        self.0.max(1)
    }
}

impl core::fmt::Display for Weight {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Weight::LOW => f.write_str("low"),
            Weight::EQUAL => f.write_str("equal"),
            Weight(flows) => write!(f, "{flows}"),
        }
    }
}

impl core::str::FromStr for Weight {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Weight, Self::Err> {
        let flows = match text {
            "low" => return Ok(Weight::LOW),
            "equal" => return Ok(Weight::EQUAL),
            flows => flows.parse().ok().filter(|flows| *flows > 0),
        };
        flows.and_then(Weight::new).ok_or("write low, equal or a number of flows from 1 to 64")
    }
}

impl Default for Weight {
    fn default() -> Weight {
        Weight::EQUAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_weight_is_low_equal_or_1_to_64_flows() {
        let flows = |text: &str| text.parse::<Weight>().map(Weight::flows).ok();
        let read = ["low", "equal", "1", "4", "64"].map(flows);
        assert_eq!(read, [0, 1, 1, 4, 64].map(Some));
        assert_eq!(["0", "65", "-1", "1.5", "", "high"].map(flows), [None; 6]);
        for text in ["low", "equal", "4"] {
            assert_eq!(text.parse::<Weight>().unwrap().to_string(), text);
        }
        assert_eq!(Weight::default(), Weight::EQUAL);
    }

    #[test]
    fn each_phase_has_its_name() {
        assert_eq!(Phase::ALL.map(Phase::name), ["start", "alone", "shared"]);
    }
}
