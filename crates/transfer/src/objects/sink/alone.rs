//! Folders that a copy has for itself while it runs. Two copies of a tree into one place would each
//! take files from the other, and neither would be whole: the second is refused, as it is for one
//! file.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, Mode, OFlags};

use super::{Sink, partial};
use crate::error::Error;
use crate::objects::manifest::Shape;
use crate::objects::place::file_error;
use crate::objects::{Kind, folders};

/// How many folders beside each other are kept, of a copy of several: the same command twice meets
/// in the first.
const MOST: usize = 32;

/// A folder that is locked until this is dropped.
#[derive(Debug)]
pub(super) struct Alone {
    _handle: File,
}

/// The folders that the sources of one command have together, until its end: another command's
/// would be in their way between two of them, too.
#[derive(Debug, Default)]
pub struct Together {
    locked: Mutex<BTreeMap<(u64, u64), Alone>>,
}

impl Together {
    /// Locks a folder for all sources, unless another of them has done so.
    fn lock(&self, folder: impl AsFd) -> io::Result<()> {
        let handle = open(folder)?;
        let identity = folders::look_at(&handle)?.identity;
        // Nothing panics while the lock is held.
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(entry) = locked.entry(identity) {
            entry.insert(lock(handle)?);
        }
        Ok(())
    }
}

/// A handle of its own, whoever has others: a lock goes with it.
fn open(folder: impl AsFd) -> io::Result<File> {
    let how = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(folder, ".", how, Mode::empty())?))
}

fn lock(handle: File) -> io::Result<Alone> {
    partial::lock(&handle, FlockOperation::NonBlockingLockExclusive)?;
    Ok(Alone { _handle: handle })
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
                None => lock(open(folder)?).map(Some),
            }
        });
        match locked {
            Ok(alone) => self.alone.extend(alone),
            Err(_) if self.watch.is_over() => {}
            Err(error) if partial::is_busy(&error) => {
                let path = self.shown(number);
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
            && entry.folder().is_empty()
    }
}
