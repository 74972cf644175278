//! Errors of a simulation: an unusable scenario, or a run in which an invariant failed.

use core::fmt;

use longhaul_proto::time::Time;

/// A simulation's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimError {
    /// The scenario cannot be simulated; the text names the mistake.
    Scenario(String),
    /// An invariant failed in the run: a bug in a protocol or in the simulator.
    Broken {
        /// The time in the run.
        at: Time,
        /// The name of the flow or link, or the receiver.
        whose: String,
        /// The invariant and the violation.
        what: String,
    },
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimError::Scenario(what) => f.write_str(what),
            SimError::Broken { at, whose, what } => {
                write!(f, "{whose}, {} after the start: {what}", at.since(Time::ZERO))
            }
        }
    }
}

impl core::error::Error for SimError {}
