//! The accounting every endpoint reports, in the ORNL study's columns.
//!
//! Three losses, never mixed (`path_lost`, `blocks_lost`, `reported_lost`); identities that tests
//! hold: sent = first + retransmitted; received = distinct + duplicates.

use crate::units::LossRatio;

/// What a sender counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderAccounting {
    /// Data datagrams sent.
    pub sent: u64,
    /// Blocks sent for the first time.
    pub first: u64,
    /// Blocks sent again.
    pub retransmitted: u64,
    /// Losses as reported, the same one perhaps several times: ORNL's column.
    pub reported_lost: u64,
    /// Rounds begun over the segment that needed most.
    pub rounds: u32,
    /// Control messages that made no sense for this flow.
    pub refused: u64,
}

/// What a receiver counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverAccounting {
    /// Data datagrams received.
    pub received: u64,
    /// Blocks that came for the first time.
    pub distinct: u64,
    /// Blocks that were there already.
    pub duplicates: u64,
    /// Blocks found missing, once each.
    pub blocks_lost: u64,
    /// Losses as reported, the same one perhaps several times.
    pub reported_lost: u64,
    /// One more than the highest packet number that came: what the sender is known to have sent.
    pub highest: u64,
    /// Control messages and datagrams that made no sense for this flow.
    pub refused: u64,
    /// Datagrams known to have been sent faster than they were asked for, where the receiver asks.
    pub too_fast: u64,
}

impl SenderAccounting {
    /// What was sent beyond the object's `blocks`, as a share of them.
    pub fn waste(&self, blocks: u64) -> f64 {
        if blocks == 0 { 0.0 } else { self.sent.saturating_sub(blocks) as f64 / blocks as f64 }
    }
}

impl ReceiverAccounting {
    /// Data datagrams that are known to have been sent and have not come.
    pub fn path_lost(&self) -> u64 {
        self.highest.saturating_sub(self.received)
    }

    /// The share of the datagrams known to have been sent that has not come.
    pub fn loss_ratio(&self) -> LossRatio {
        LossRatio::of(self.path_lost(), self.highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waste_and_loss_are_shares_of_what_was_needed_and_of_what_was_sent() {
        let sender = SenderAccounting { sent: 112, first: 100, ..Default::default() };
        assert!((sender.waste(100) - 0.12).abs() < 1e-12);
        assert_eq!(SenderAccounting::default().waste(0), 0.0);
        let receiver = ReceiverAccounting { highest: 112, received: 100, ..Default::default() };
        assert_eq!((receiver.path_lost(), receiver.loss_ratio()), (12, LossRatio::of(12, 112)));
    }
}
