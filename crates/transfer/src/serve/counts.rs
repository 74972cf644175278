//! Counts of the requests or open files of each client.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::session::PeerId;

/// Clones share the counts.
#[derive(Clone, Default)]
pub(super) struct Counts(Rc<RefCell<HashMap<PeerId, usize>>>);

/// A request or open file in the counts. Dropping this value removes it from the counts.
pub(super) struct Counted {
    counts: Counts,
    peer: PeerId,
}

impl Counts {
    pub(super) fn of(&self, peer: &PeerId) -> usize {
        self.0.borrow().get(peer).copied().unwrap_or(0)
    }

    pub(super) fn sum(&self) -> usize {
        self.0.borrow().values().sum()
    }

    /// Counts one more request or open file of `peer`; `None` if `peer` has `most` already.
    pub(super) fn enter(&self, peer: PeerId, most: usize) -> Option<Counted> {
        if self.of(&peer) >= most {
            return None;
        }
        *self.0.borrow_mut().entry(peer).or_default() += 1;
        Some(Counted { counts: self.clone(), peer })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.counts.0.borrow_mut();
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
        }
        counts.retain(|_, count| *count > 0);
    }
}
