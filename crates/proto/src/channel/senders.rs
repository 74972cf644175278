//! The senders of a multicast group, as one of its receivers sees them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Joined, Joiner};

/// Maximum number of senders of a group.
pub const MAX_SENDERS: u32 = 256;
/// Maximum bytes of incomplete messages and code groups (datagrams that share repairs), of all
/// senders together.
const HELD: usize = 64 << 20;

/// Reassembles each sender's messages from its datagrams. Returns each message at most once.
#[derive(Debug, Default)]
pub struct Senders {
    joiners: BTreeMap<u32, Joiner>,
    held: usize,
}

impl Senders {
    /// Takes an authentic datagram of `sender`; appends to `out` the messages that the datagram
    /// completes. If the incomplete messages and code groups of all senders take more than 64 MiB,
    /// drops those of the sender with the most bytes. Ignores a sender whose number is
    /// [`MAX_SENDERS`] or higher.
    pub fn take(&mut self, sender: u32, block: u64, payload: &[u8], out: &mut Vec<Joined>) {
        if sender >= MAX_SENDERS {
            return;
        }
        let joiner = self.joiners.entry(sender).or_default();
        let before = joiner.held();
        joiner.take(block, payload, out);
        self.held = self.held + joiner.held() - before;
        // The sender with the most bytes has at least the bytes that this datagram added, so it is
        // enough to clear this one sender.
        if self.held > HELD
            && let Some(most) = self.joiners.values_mut().max_by_key(|joiner| joiner.held())
        {
            self.held -= most.held();
            most.clear();
        }
    }

    /// Number of a sender's messages that have not arrived although a later one has.
    pub fn lost_of(&self, sender: u32) -> u64 {
        self.joiners.get(&sender).map_or(0, Joiner::lost)
    }

    /// The sum of [`Senders::lost_of`] over all senders.
    pub fn lost(&self) -> u64 {
        self.joiners.values().map(Joiner::lost).fold(0, u64::saturating_add)
    }

    /// Drops the parts of incomplete messages, and the datagrams kept to restore lost datagrams.
    pub fn clear(&mut self) {
        self.joiners.values_mut().for_each(Joiner::clear);
        self.held = 0;
    }

    /// Approximate bytes of memory of incomplete messages and groups.
    pub fn held(&self) -> usize {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::channel::{Code, Cutter};
    use crate::time::{Span, Time};

    fn cut(cutter: &mut Cutter, message: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut out = Vec::new();
        cutter.message(Time::ZERO, message, &mut out).unwrap();
        out.into_iter().map(|datagram| (datagram.block, datagram.payload)).collect()
    }

    fn cutter() -> Cutter {
        Cutter::new(1_400, Code::None, Span::from_millis(20))
    }

    #[test]
    fn datagrams_with_equal_numbers_from_several_senders_are_kept_apart() {
        let (mut senders, mut out) = (Senders::default(), Vec::new());
        for sender in [0, 7, MAX_SENDERS - 1, MAX_SENDERS] {
            let [(block, payload)] = &cut(&mut cutter(), b"hello")[..] else { panic!("one") };
            for _ in 0..2 {
                senders.take(sender, *block, payload, &mut out);
            }
        }
        assert_eq!(out.len(), 3);
        assert!(out.iter().all(|joined| joined.message == b"hello"));
    }

    #[test]
    fn losses_are_counted_for_each_sender() {
        let (mut senders, mut out) = (Senders::default(), Vec::new());
        let mut cutters = [cutter(), cutter()];
        for number in 0..10 {
            for (sender, cutter) in (0..).zip(&mut cutters) {
                let [(block, payload)] = &cut(cutter, b"x")[..] else { panic!("one") };
                if sender == 0 || number % 3 != 1 {
                    senders.take(sender, *block, payload, &mut out);
                }
            }
        }
        assert_eq!((senders.lost_of(0), senders.lost_of(1), senders.lost()), (0, 3, 3));
    }

    #[test]
    fn the_sender_whose_incomplete_messages_take_the_most_bytes_loses_them() {
        let (mut senders, mut out) = (Senders::default(), Vec::new());
        let mut incomplete = |senders: &mut Senders, sender, len: usize| {
            let mut all = cut(&mut cutter(), &vec![1; len]);
            let last = all.pop().unwrap();
            for (block, payload) in all {
                senders.take(sender, block, &payload, &mut out);
            }
            last
        };
        let (block, payload) = incomplete(&mut senders, 1, 1 << 20);
        for sender in 2..6 {
            incomplete(&mut senders, sender, 16 << 20);
            let sum: usize = senders.joiners.values().map(Joiner::held).sum();
            assert!(senders.held() == sum && sum <= HELD);
        }
        senders.take(1, block, &payload, &mut out);
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].message.len(), 1 << 20);
    }

    #[test]
    fn the_memory_of_all_senders_is_the_sum_of_their_incomplete_messages() {
        let (mut senders, mut out) = (Senders::default(), Vec::new());
        let part = |number: u64| [&number.to_be_bytes()[..], &[0, 0, 0, 2], b"x"].concat();
        let mut held = |sender, number| {
            senders.take(sender, 0, &part(number), &mut out);
            senders.held()
        };
        // A part takes 64 bytes more than its content.
        assert_eq!([held(1, 0), held(1, 1), held(2, 0), held(2, 0)], [65, 130, 195, 195]);
        senders.clear();
        assert_eq!(senders.held(), 0);
    }
}
