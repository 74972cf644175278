//! Errors of a simulation.

use core::fmt;

use longhaul_proto::time::Time;

/// A simulation's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimError {
    /// The scenario cannot be simulated; the text names the mistake.
    Scenario(String),
    /// An invariant failed: a bug in a protocol or the simulator.
    Broken {
        /// The time in the run.
        at: Time,
        /// The flow, link or receiver.
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
