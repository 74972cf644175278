//! Power failures of the disk in memory.

use std::collections::BTreeSet;

use super::{Disk, PAGE, Page, ROOT, State};

impl Disk {
    /// Drops a random part of the data and of the changes to folders that no sync has stored, and
    /// restarts the process that uses the disk.
    pub(crate) fn power_cut(&self) {
        self.restart();
        let state = &mut *self.state();
        let mut changes = std::mem::take(&mut state.changes);
        if state.rng.coin() {
            changes.truncate(state.rng.below(changes.len() as u64 + 1) as usize);
        } else {
            changes.retain(|_| state.rng.coin());
        }
        changes.into_iter().for_each(|change| state.store_change(change));
        state.cut_pages();
        let reachable: BTreeSet<u64> = state.tree(true).into_values().chain([ROOT]).collect();
        state.inodes.retain(|number, _| reachable.contains(number));
    }
}

impl State {
    fn cut_pages(&mut self) {
        let mut rng = self.rng.clone();
        for inode in self.inodes.values_mut() {
            for page in inode.dirty_pages() {
                if rng.coin() {
                    inode.store(page);
                }
            }
            if rng.coin() {
                inode.stored = inode.cached;
            }
            inode.cached = inode.stored;
            inode.device.resize(inode.stored.len as usize, 0);
            inode.cache = inode.device.clone();
            inode.pages.resize(inode.cache.len().div_ceil(PAGE), Page::default());
            for page in &mut inode.pages {
                *page = Page { cached: page.stored, stored: page.stored, ..Page::default() };
            }
            (inode.unreported, inode.handles) = (false, 0);
            inode.entries = inode.stored_entries.clone();
        }
        self.rng = rng;
    }
}
