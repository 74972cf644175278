//! Errors of the emulator.

use core::fmt;
use std::io;

use crate::link::SpecError;

/// Why an emulation, or a program in it, failed.
#[derive(Debug)]
pub enum EmulationError {
    /// A namespace or a TUN device could not be created.
    Forbidden(String),
    /// The specification is invalid.
    Spec(String),
    /// A link's specification is invalid.
    Link {
        /// The sending node.
        from: String,
        /// The receiving node.
        to: String,
        /// The reason.
        error: SpecError,
    },
    /// No host has this name.
    NoSuchHost(String),
    /// Another system error: the operation, and the reason.
    System(&'static str, io::Error),
    /// A flow's program could not be prepared.
    Program(String),
    /// The emulation has ended.
    Ended,
}

impl EmulationError {
    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> EmulationError {
        move |error| EmulationError::System(what, error)
    }
}

impl fmt::Display for EmulationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmulationError::Forbidden(reason) => {
                write!(f, "emulation is not possible here: {reason}")
            }
            EmulationError::Spec(what) => write!(f, "emulation: {what}"),
            EmulationError::Link { from, to, error } => write!(f, "link {from} to {to}: {error}"),
            EmulationError::NoSuchHost(name) => write!(f, "no emulated host is named {name}"),
            EmulationError::System(what, error) => write!(f, "emulation: {what}: {error}"),
            EmulationError::Program(what) => write!(f, "emulation: {what}"),
            EmulationError::Ended => f.write_str("the emulation has ended"),
        }
    }
}

impl core::error::Error for EmulationError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            EmulationError::Link { error, .. } => Some(error),
            EmulationError::System(_, error) => Some(error),
            _ => None,
        }
    }
}
