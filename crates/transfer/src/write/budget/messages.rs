//! Memory for messages. Messages of a transfer wait for the other end, which has not read them yet,
//! or for the writing thread of this end. A server also keeps the messages of rooms, and incomplete
//! messages to rooms.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use longhaul_files::CHUNK;
use tokio::sync::OwnedSemaphorePermit;

use super::{Budget, Inner, MemoryPart};
use crate::session::PeerId;

/// The memory charge for the messages of one transfer or room, or for the incomplete messages of
/// one sender to a room; released on drop. Messages may also use the memory that is reserved for
/// new transfers (a quarter of all). An owner (a client's id) gets more only if at least as much
/// memory stays free as its messages then hold.
pub(crate) struct MessageCharge {
    inner: Arc<Inner>,
    owner: Option<PeerId>,
    held: Option<OwnedSemaphorePermit>,
}

impl Budget {
    pub(crate) fn messages(&self) -> MessageCharge {
        MessageCharge { inner: self.0.clone(), owner: None, held: None }
    }

    pub(crate) fn messages_for(&self, owner: PeerId) -> MessageCharge {
        MessageCharge { inner: self.0.clone(), owner: Some(owner), held: None }
    }
}

impl MessageCharge {
    #[cfg(test)]
    pub(crate) fn alone() -> MessageCharge {
        Budget::new(longhaul_proto::units::Bytes::mebi(512)).expect("that is enough").messages()
    }

    /// Changes the charge to `bytes`, in full MiB rounded down. Returns whether there was room; if
    /// not, the charge is unchanged.
    pub(crate) fn set(&mut self, bytes: usize) -> bool {
        let wanted = bytes / CHUNK as usize;
        let has = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if wanted == has {
            return true;
        }
        let mut messages = self.inner.messages();
        let own = self.owner.map_or(0, |owner| messages.get(&owner).copied().unwrap_or(0));
        if wanted > has {
            let more = wanted - has;
            let free = self.inner.free.available_permits();
            if self.owner.is_some() && own as usize + more > free.saturating_sub(more) {
                return false;
            }
            let Ok(count) = u32::try_from(more) else { return false };
            let Ok(more) = self.inner.free.clone().try_acquire_many_owned(count) else {
                return false;
            };
            match &mut self.held {
                Some(held) => held.merge(more),
                none => *none = Some(more),
            }
        } else if let Some(held) = &mut self.held {
            drop(held.split(has - wanted));
            self.inner.returned.notify_waiters();
        }
        if let Some(owner) = self.owner {
            match (own as usize + wanted).saturating_sub(has) {
                0 => drop(messages.remove(&owner)),
                // The cast loses nothing: the memory has at most 2^28 chunks.
                now => drop(messages.insert(owner, now as u32)),
            }
        }
        true
    }
}

impl Drop for MessageCharge {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl MemoryPart {
    pub(crate) fn messages(&self) -> MessageCharge {
        let owner = self.share.as_ref().map(|share| share.owner);
        MessageCharge { inner: self.place.0.clone(), owner, held: None }
    }
}

impl Inner {
    fn messages(&self) -> MutexGuard<'_, HashMap<PeerId, u32>> {
        // No code panics while it holds the lock.
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{enter, enter_for};
    use super::*;
    use longhaul_proto::units::Bytes;

    #[test]
    fn one_owners_messages_take_at_most_half_of_the_free_memory_and_free_it_on_drop() {
        let budget = Budget::new(Bytes::mebi(512)).unwrap();
        let part = enter(&budget).unwrap();
        // The transfer takes all but a quarter, which is reserved for new transfers.
        part.room(part.room(Bytes::ZERO));
        let free = || budget.0.free.available_permits();
        assert_eq!(free(), 128);
        let mebi = |n: usize| n << 20;
        let (one, other) = (PeerId([1; 32]), PeerId([2; 32]));
        let (mut first, mut second) = (budget.messages_for(one), budget.messages_for(one));
        assert!(first.set(mebi(1) - 1));
        assert_eq!(free(), 128);
        assert!(first.set(mebi(60)) && second.set(mebi(4)));
        assert_eq!(free(), 64);
        assert!(!second.set(mebi(5)), "both belong to one owner");
        assert_eq!(free(), 64);
        // The next owner still gets a part.
        assert!(enter_for(&budget, 3).is_some());
        let mut third = budget.messages_for(other);
        assert!(third.set(mebi(32)) && !third.set(mebi(33)));
        assert!(first.set(mebi(10)));
        assert_eq!(free(), 82);
        drop((first, second, third));
        assert_eq!(free(), 128);
        assert!(budget.0.messages().is_empty());
        // At a client, transfers have no owner.
        assert!(budget.messages().set(mebi(128)) && !budget.messages().set(mebi(129)));
    }
}
