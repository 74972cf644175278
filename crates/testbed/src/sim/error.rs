//! Why a scenario is not simulated, or a run is not worth anything.

use core::fmt;

use longhaul_proto::time::Time;

/// A simulation's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimError {
    /// The scenario asks for something that there is not; says what and what to do.
    Scenario(String),
    /// A promise was broken in the run: an error of a protocol, or of the simulator.
    Broken {
        /// When in the run.
        at: Time,
        /// The flow's name, or the link's.
        whose: String,
        /// What was promised, and what was found.
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
