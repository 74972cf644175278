//! The accounting every endpoint reports, in the ORNL study's columns.
//!
//! Three losses, never mixed (`path_lost`, `blocks_lost`, `reported_lost`); identities that tests
//! hold: sent = first + retransmitted; received = distinct + duplicates.

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
}
