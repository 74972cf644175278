//! A Tsunami receiver's report: the error rate, and a request for a restart, if needed.

use super::WireError;
use crate::wire::header::Header;
use crate::wire::messages;

/// The error rate of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRate {
    /// Number of the report. The sender ignores a report whose number it has already received.
    pub sequence: u64,
    /// Smoothed error rate, in thousandths of a percent.
    pub rate: u32,
    /// The receiver lacks too many blocks to list them: the sender must resend all blocks from this
    /// number on. `None` without a restart.
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
