//! Folders that a copy has for itself while it runs. Two copies of a tree into one place would each
//! take files from the other, and neither would be whole: the second is refused, as it is for one
//! file.

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

/// How many folders beside each other are kept, of a copy of several: the same command twice meets
/// in the first.
const MOST: usize = 32;

/// A folder that is locked until this is dropped.
#[derive(Debug)]
pub(super) struct Alone {
    _handle: SharedFolder,
}

/// The folders that the sources of one command have together, until its end: another command's
/// would be in their way between two of them, too.
#[derive(Debug, Default)]
pub struct Together {
    locked: Mutex<BTreeMap<(u64, u64), Alone>>,
}

impl Together {
    /// Locks a folder for all sources, unless another of them has done so.
    fn lock(&self, folder: &dyn Folder) -> io::Result<()> {
        let identity = folder.attributes()?.identity;
        // Nothing panics while the lock is held.
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(entry) = locked.entry(identity) {
            entry.insert(Alone { _handle: folder.lock()? });
        }
        Ok(())
    }
}

impl Sink {
    /// Has the entry `number` for this copy alone, or for this command, if that is the folder that
    /// the copy is of. What goes right into a folder may come from several at once.
    ///
    /// # Errors
    /// Another copy has it.
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
            Ok(alone) => self.alone.extend(alone),
            Err(_) if self.watch.is_over() => {}
            Err(error) if partial::is_busy(&error) => {
                let path = self.place_of(number);
                let advice = "wait for its end, or copy into another folder";
                return Err(file_error("write", &path, &error).advise(advice));
            }
            // A folder that cannot be opened is told of where something is to go into it.
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
