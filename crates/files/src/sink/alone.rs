//! Locks on the top folders (folders without a parent in the copy) while a copy runs. Without these
//! locks, each of two copies of a tree into one place would lock files that the other copy needs,
//! and neither would be complete. So the second copy is refused.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::{Mutex, PoisonError};

use super::{Sink, partial};
use crate::Kind;
use crate::error::Error;
use crate::manifest::Shape;
use crate::place::file_error;
use crate::store::{Folder, SharedFolder};

/// Maximum number of top folders that one copy locks.
const MOST: usize = 32;

/// A locked folder. Dropping this unlocks the folder.
#[derive(Debug)]
pub(super) struct Alone {
    _handle: SharedFolder,
}

/// The top folders that one command has locked for the copies from all of its sources. They stay
/// locked until the command ends.
#[derive(Debug, Default)]
pub struct Together {
    locked: Mutex<BTreeMap<(u64, u64), Alone>>,
}

impl Together {
    fn lock(&self, folder: &dyn Folder) -> io::Result<()> {
        let identity = folder.attributes()?.identity;
        // No thread panics while it holds the mutex.
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(entry) = locked.entry(identity) {
            entry.insert(Alone { _handle: folder.lock()? });
        }
        Ok(())
    }
}

impl Sink {
    /// Locks the entry `number` if it is a top folder of the copy. The lock ends with the copy, or
    /// with the command if the command's sources share a [`Together`]. A copy of only a folder's
    /// content (`folder/`) locks no folder: several such copies may write into one destination.
    pub(super) fn have_alone(&mut self, number: u32) -> Result<(), Error> {
        if self.options.dry_run || self.alone.len() >= MOST || !self.is_top(number) {
            return Ok(());
        }
        let together = self.options.together.clone();
        let locked = self.once_free(number, |sink| {
            let folder = sink.ground.folder(number)?;
            match &together {
                Some(together) => together.lock(folder).map(|()| None),
                None => Ok(Some(Alone { _handle: folder.lock()? })),
            }
        });
        match locked {
            Ok(alone) => self.alone.push(alone),
            Err(_) if self.watch.is_over() => {}
            Err(error) if partial::is_busy(&error) => {
                let path = self.place_of(number);
                let advice = "wait for its end, or copy into another folder";
                return Err(file_error("write", &path, &error).advise(advice));
            }
            // Any other error is reported later, when an entry is created in the folder.
            Err(_) => {}
        }
        Ok(())
    }

    fn is_top(&self, number: u32) -> bool {
        let manifest = &self.ground.manifest;
        let entry = &manifest.entries()[number as usize];
        manifest.shape() != Shape::Contents
            && entry.kind == Kind::Folder
            && entry.parent().is_none()
    }
}
