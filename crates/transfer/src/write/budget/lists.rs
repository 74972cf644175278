//! Memory for the lists of files of a copy. It is charged in addition to each transfer's part,
//! which is for incomplete chunks.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, MutexGuard, PoisonError};

use longhaul_files::{CHUNK, FileErrorKind, ListMemory};
use longhaul_text::CallOption;
use tokio::sync::OwnedSemaphorePermit;

use super::{Budget, Inner, LEAST, MemoryPart, full};
use crate::error::Error;
use crate::session::PeerId;

/// Memory charged for a list of files, in addition to the transfers' parts; returned on drop.
/// Fractions of a MiB are not charged, so a list below 1 MiB costs nothing.
pub(crate) struct ListCharge {
    inner: Arc<Inner>,
    owner: Option<PeerId>,
    held: Option<OwnedSemaphorePermit>,
}

impl Budget {
    pub(crate) fn list(&self) -> ListCharge {
        ListCharge::new(&self.0, None)
    }

    /// One list may take all the memory for lists; several lists of one owner (a client's id)
    /// together take at most half of it.
    pub(crate) fn list_for(&self, owner: PeerId) -> ListCharge {
        ListCharge::new(&self.0, Some(owner))
    }
}

impl MemoryPart {
    pub(crate) fn list(&self) -> ListCharge {
        ListCharge::new(&self.place.0, self.share.as_ref().map(|share| share.owner))
    }
}

impl ListCharge {
    fn new(inner: &Arc<Inner>, owner: Option<PeerId>) -> ListCharge {
        ListCharge { inner: inner.clone(), owner, held: None }
    }
}

impl ListMemory for ListCharge {
    fn hold(&mut self, bytes: u64) -> Result<(), longhaul_files::Error> {
        let has = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) as u64;
        let wanted = bytes / CHUNK;
        if wanted <= has {
            return Ok(());
        }
        let (free, reserve) = (&self.inner.free, self.inner.reserve());
        let spare = free.available_permits().saturating_sub(reserve as usize) as u64;
        let fitting = u32::try_from(wanted - has).ok().filter(|more| u64::from(*more) <= spare);
        let count = fitting.unwrap_or_default();
        if let Some(owner) = self.owner
            && let others = self.inner.lists_of(owner).saturating_sub(has as u32)
            && others > 0
            && u64::from(others) + wanted > u64::from(self.inner.total - reserve) / 2
        {
            let what =
                format!("the lists of files of {owner} need more memory than one id may use");
            let Error { what, advice, .. } = full(&what);
            let advice = advice.map(Into::into);
            return Err(longhaul_files::Error {
                advice,
                ..longhaul_files::Error::new(FileErrorKind::Busy, what)
            });
        }
        let more = fitting.and_then(|more| free.clone().try_acquire_many_owned(more).ok());
        let Some(more) = more else { return Err(self.inner.no_room_for_list(wanted, has + spare)) };
        if let Some(owner) = self.owner {
            *self.inner.lists().entry(owner).or_default() += count;
        }
        match &mut self.held {
            Some(held) => held.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}

impl Drop for ListCharge {
    fn drop(&mut self) {
        let has = self.held.take().map_or(0, |held| held.num_permits() as u32);
        let mut lists = self.inner.lists();
        if let Some(owner) = self.owner
            && let Some(all) = lists.get_mut(&owner)
        {
            *all -= has;
            if *all == 0 {
                lists.remove(&owner);
            }
        }
        drop(lists);
        self.inner.returned.notify_waiters();
    }
}

impl fmt::Debug for ListCharge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListCharge").field("held", &self.held).finish_non_exhaustive()
    }
}

impl Inner {
    fn lists(&self) -> MutexGuard<'_, HashMap<PeerId, u32>> {
        // No thread panics while it holds the lock.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lists_of(&self, owner: PeerId) -> u32 {
        self.lists().get(&owner).copied().unwrap_or(0)
    }

    /// Returns the error for a list that needs `wanted` MiB if `spare` MiB are left.
    fn no_room_for_list(&self, wanted: u64, spare: u64) -> longhaul_files::Error {
        let what = format!(
            "the list of files needs at least {wanted} MiB of memory, and {} {}Mi leaves {spare} \
             MiB for it",
            CallOption::Memory,
            self.total
        );
        // With this much memory, the list, one transfer and the reserve fit. The reserve is a
        // quarter of the memory, but at least one transfer's minimum.
        let least = u64::from(LEAST);
        let enough = (wanted + least).saturating_mul(4).div_ceil(3).max(wanted + 2 * least);
        let memory = CallOption::Memory;
        if enough <= u64::from(self.total) {
            // Other transfers use the memory at the moment.
            let advice = format!("raise {memory} on that host, or wait for a copy to end");
            return longhaul_files::Error::new(FileErrorKind::Busy, what).advise(advice);
        }
        longhaul_files::Error::new(FileErrorKind::Request, what).advise(format!(
            "raise {memory} to {enough}Mi or more on the host that reports this, or copy the \
             folders one by one"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::enter;
    use super::*;
    use longhaul_proto::units::Bytes;

    #[test]
    fn lists_are_charged_in_addition_to_parts_and_leave_memory_for_the_next_transfer() {
        let budget = Budget::new(Bytes::mebi(512)).unwrap();
        let part = enter(&budget).unwrap();
        let mut list = part.list();
        assert_eq!(list.hold(CHUNK - 1), Ok(()));
        assert_eq!(budget.0.free.available_permits(), 480);
        // Of 512 MiB, 32 are the part's, and a quarter (128) is reserved for new transfers.
        assert_eq!(list.hold(352 * CHUNK + 7), Ok(()));
        assert_eq!(budget.0.free.available_permits(), 128);
        assert_eq!(list.hold(20 * CHUNK), Ok(()), "the list already holds more");
        let refused = list.hold(353 * CHUNK).unwrap_err();
        assert!(refused.what.contains("353 MiB") && refused.what.contains("352 MiB"), "{refused}");
        assert_eq!(refused.kind, FileErrorKind::Request);
        assert!(refused.to_string().contains("514Mi"));
        // Another list finds no memory beside this list, but the same command may succeed later.
        let refused = budget.list().hold(10 * CHUNK).unwrap_err();
        assert_eq!(refused.kind, FileErrorKind::Busy);
        assert!(budget.list().hold(u64::MAX).is_err());
        drop(list);
        assert_eq!(budget.list().hold(10 * CHUNK), Ok(()));
        assert_eq!(budget.0.free.available_permits(), 480);
    }

    #[test]
    fn a_list_that_was_refused_fits_in_the_advised_memory() {
        let small = Budget::new(Bytes::mebi(48)).unwrap();
        let _part = enter(&small).unwrap();
        let refused = small.list().hold(20 * CHUNK).unwrap_err();
        assert!(refused.to_string().contains("84Mi"), "{refused}");
        let enough = Budget::new(Bytes::mebi(84)).unwrap();
        let _part = enter(&enough).unwrap();
        assert_eq!(enough.list().hold(20 * CHUNK), Ok(()));
    }

    #[test]
    fn several_lists_of_one_owner_together_hold_at_most_half_of_the_memory_for_lists() {
        let budget = Budget::new(Bytes::mebi(512)).unwrap();
        let (one, other) = (PeerId([1; 32]), PeerId([2; 32]));
        // A quarter is reserved for new transfers, so lists get at most 384 MiB, and several lists
        // of one owner half of that. A chunk has 1 MiB.
        let mut first = budget.list_for(one);
        assert_eq!(first.hold(150 * CHUNK), Ok(()));
        let mut second = budget.list_for(one);
        assert_eq!(second.hold(42 * CHUNK), Ok(()), "half of 384 together");
        let refused = second.hold(43 * CHUNK).unwrap_err();
        assert_eq!(refused.kind, FileErrorKind::Busy);
        assert!(first.hold(151 * CHUNK).is_err());
        assert_eq!(budget.list_for(other).hold(192 * CHUNK), Ok(()));
        drop(second);
        assert_eq!(first.hold(384 * CHUNK), Ok(()), "the only list of its owner may hold all");
        drop(first);
        assert!(budget.0.lists().is_empty());
    }
}
