//! Messages of protocols that number blocks from the start of the object: the receiver's progress,
//! and missing blocks. Block numbers are those of
//! [`Layout::number`](crate::layout::Layout::number).

use alloc::vec::Vec;
use core::ops::Range;

use super::{WireError, runs};
use crate::wire::header::Header;
use crate::wire::messages;

/// The receiver's progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Number of the acknowledgement. Senders do not need it: a late acknowledgement has a lower
    /// `next` and changes nothing.
    pub sequence: u64,
    /// The first block that has not arrived.
    pub next: u64,
    /// Number of arrived blocks.
    pub received: u64,
}

/// Blocks that the receiver requests again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    sequence: u64,
    lost: Vec<Range<u64>>,
}

impl Ack {
    pub(super) fn to_wire(self) -> messages::Ack {
        messages::Ack { sequence: self.sequence, next: self.next, received: self.received }
    }

    pub(super) fn from_wire(wire: &messages::Ack) -> Result<Ack, WireError> {
        // All blocks below `next` have arrived.
        if wire.next > wire.received || wire.received > Header::BLOCKS {
            return Err(WireError::Range);
        }
        Ok(Ack { sequence: wire.sequence, next: wire.next, received: wire.received })
    }
}

impl Loss {
    /// Takes as many runs of `lost` as one message holds; the other runs stay in the iterator. The
    /// runs of `lost` must be in order and disjoint.
    pub fn fill(
        sequence: u64,
        lost: &mut core::iter::Peekable<impl Iterator<Item = Range<u64>>>,
    ) -> Loss {
        Loss { sequence, lost: runs::take(lost) }
    }

    /// The serial number of this message.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The blocks, in order, in disjoint runs.
    pub fn lost(&self) -> &[Range<u64>] {
        &self.lost
    }

    /// Number of listed blocks.
    pub fn count(&self) -> u64 {
        self.lost.iter().map(|run| run.end - run.start).sum()
    }

    pub(super) fn to_wire(&self) -> messages::Loss {
        let lost = runs::write(0, self.lost.iter().cloned());
        messages::Loss { sequence: self.sequence, lost }
    }

    pub(super) fn from_wire(wire: &messages::Loss) -> Result<Loss, WireError> {
        let lost = runs::read(&wire.lost, 0..Header::BLOCKS)?;
        if lost.is_empty() {
            return Err(WireError::Range);
        }
        Ok(Loss { sequence: wire.sequence, lost })
    }
}
