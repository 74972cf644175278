//! A selective acknowledgement: which blocks have come. It covers as much of the object as there
//! is news of, in as many messages as that needs; each is useful alone, and the loss of any is
//! harmless, for what has not changed is told again from time to time.

use super::{Report, WireError};
use crate::wire::header::Header;
use crate::wire::messages;

/// One message of a selective acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selective {
    /// Counts the acknowledgements; the messages of one have the same.
    pub sequence: u64,
    /// What of a slice is missing: the rest of the slice has come. Its round is 0.
    pub report: Report,
    /// In an acknowledgement's last message: what holds for all of it.
    pub closing: Option<Closing>,
}

/// What ends an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// One more than the highest packet number that had come: a block that was sent under a lower
    /// one, and is not told to have come by now, is lost.
    pub highest: u64,
    /// Blocks that have newly come since the acknowledgement before.
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
        // A block comes in a datagram, so there are no more of them.
        if wire.highest.is_some_and(|highest| highest > Header::NUMBERS)
            || fresh > wire.highest.unwrap_or(0)
        {
            return Err(WireError::Range);
        }
        let closing = wire.highest.map(|highest| Closing { highest, fresh });
        Ok(Selective { sequence: wire.sequence, report, closing })
    }
}
