//! A selective acknowledgement: which blocks have arrived. It covers the changed parts of the
//! object in as many messages as needed. Each message is useful alone. The loss of a message is
//! harmless, because parts that have not changed since their last report are also reported again
//! from time to time.

use super::{Report, WireError};
use crate::wire::header::Header;
use crate::wire::messages;

/// One message of a selective acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selective {
    /// Number of the acknowledgement, the same in all its messages.
    pub sequence: u64,
    /// Missing blocks of a slice; the rest of the slice has arrived. The report's round is 0.
    pub report: Report,
    /// Set in the last message of an acknowledgement: information about the whole acknowledgement.
    pub closing: Option<Closing>,
}

/// The end of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// Highest arrived packet number plus one. A block sent under a lower number and not
    /// acknowledged is lost.
    pub highest: u64,
    /// Number of blocks that arrived for the first time since the previous acknowledgement.
    pub fresh: u64,
}

impl Selective {
    pub(super) fn to_wire(&self) -> messages::Selective {
        messages::Selective {
            sequence: self.sequence,
            report: Some(self.report.to_wire()),
            highest: self.closing.map(|closing| closing.highest),
            fresh: self.closing.map_or(0, |closing| closing.fresh),
        }
    }

    pub(super) fn from_wire(wire: messages::Selective) -> Result<Selective, WireError> {
        let report = Report::from_wire(wire.report.ok_or(WireError::Range)?)?;
        let fresh = wire.fresh;
        // A block needs a datagram, so there are no more blocks than datagrams.
        if wire.highest.is_some_and(|highest| highest > Header::NUMBERS)
            || fresh > wire.highest.unwrap_or(0)
        {
            return Err(WireError::Range);
        }
        let closing = wire.highest.map(|highest| Closing { highest, fresh });
        Ok(Selective { sequence: wire.sequence, report, closing })
    }
}
