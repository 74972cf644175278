//! The counters that every endpoint reports: the columns of Oak Ridge National Laboratory's (ORNL)
//! comparison of UDP protocols, and some more.
//!
//! Tests check two identities: sent = first + retransmitted; received = distinct + duplicates.

use crate::units::LossRatio;

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderAccounting {
    /// Data datagrams sent.
    pub sent: u64,
    /// Blocks sent for the first time.
    pub first: u64,
    /// Blocks sent again, and coded symbols ([`crate::coded`]).
    pub retransmitted: u64,
    /// Number of coded symbols in `retransmitted`.
    pub coded: u64,
    /// Losses that the receiver reported; a loss reported twice counts twice (ORNL's column).
    pub reported_lost: u64,
    /// The highest number of rounds of a segment (part of the object; RBUDP), of rounds of a buffer
    /// (NETBLT), or of sends of a block (FOBS). Zero in the other protocols.
    pub rounds: u32,
    /// Control messages that were invalid for this flow.
    pub refused: u64,
}

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverAccounting {
    /// Valid data datagrams received.
    pub received: u64,
    /// Blocks received for the first time, and `recovered` blocks.
    pub distinct: u64,
    /// Blocks received again, and coded symbols that replaced no block.
    pub duplicates: u64,
    /// Missing blocks that coded symbols replaced, a part of `distinct`.
    pub recovered: u64,
    /// Blocks that were found missing at some time, each counted once.
    pub blocks_lost: u64,
    /// Losses that this receiver reported; a loss reported twice counts twice.
    pub reported_lost: u64,
    /// Highest packet number received, plus one: the number of datagrams known to have been sent.
    pub highest: u64,
    /// Control messages and datagrams that were invalid for this flow.
    pub refused: u64,
    /// Datagrams known to have been sent faster than requested, for a receiver that requests rates.
    pub too_fast: u64,
}

impl SenderAccounting {
    /// Data datagrams sent beyond the object's `blocks`, as a share of `blocks`.
    pub fn waste(&self, blocks: u64) -> f64 {
        if blocks == 0 { 0.0 } else { self.sent.saturating_sub(blocks) as f64 / blocks as f64 }
    }
}

impl ReceiverAccounting {
    /// Data datagrams that are known to have been sent and have not arrived.
    pub fn path_lost(&self) -> u64 {
        self.highest.saturating_sub(self.received)
    }

    /// `path_lost` as a share of the datagrams known to have been sent.
    pub fn loss_ratio(&self) -> LossRatio {
        LossRatio::of(self.path_lost(), self.highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waste_is_a_share_of_the_object_and_loss_a_share_of_the_datagrams_sent() {
        let sender = SenderAccounting { sent: 112, first: 100, ..Default::default() };
        assert!((sender.waste(100) - 0.12).abs() < 1e-12);
        assert_eq!(SenderAccounting::default().waste(0), 0.0);
        let receiver = ReceiverAccounting { highest: 112, received: 100, ..Default::default() };
        assert_eq!((receiver.path_lost(), receiver.loss_ratio()), (12, LossRatio::of(12, 112)));
    }
}
