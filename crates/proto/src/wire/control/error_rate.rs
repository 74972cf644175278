//! A Tsunami receiver's report: the error rate, and a restart.

use super::WireError;
use crate::wire::header::Header;
use crate::wire::messages;

/// The error rate of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRate {
    /// Number of the report: a repeated report counts once.
    pub sequence: u64,
    /// Smoothed error rate, in thousandths of a percent.
    pub rate: u32,
    /// Requests that the sender sends everything from this block on again, because too much is
    /// missing for a list.
    pub restart: Option<u64>,
}

impl ErrorRate {
    /// 100 %, in thousandths of a percent.
    pub const ALL: u32 = 100_000;

    pub(super) fn to_wire(self) -> messages::ErrorRate {
        let ErrorRate { sequence, rate, restart } = self;
        messages::ErrorRate { sequence, rate, restart }
    }

    pub(super) fn from_wire(wire: &messages::ErrorRate) -> Result<ErrorRate, WireError> {
        let messages::ErrorRate { sequence, rate, restart } = *wire;
        if rate > ErrorRate::ALL || restart.is_some_and(|block| block >= Header::BLOCKS) {
            return Err(WireError::Range);
        }
        Ok(ErrorRate { sequence, rate, restart })
    }
}
