//! Folders that a copy has for itself while it runs. Two copies of a tree into one place would each
//! take files from the other, and neither would be whole: the second is refused, as it is for one
//! file.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FlockOperation, Mode, OFlags};

use super::{Sink, partial};
use crate::error::Error;
use crate::objects::Kind;
use crate::objects::manifest::Shape;
use crate::objects::place::file_error;

/// How many folders beside each other are kept, of a copy of several: the same command twice meets
/// in the first.
const MOST: usize = 32;

/// A folder that is locked until this is dropped.
#[derive(Debug)]
pub(super) struct Alone {
    _handle: OwnedFd,
}

/// Locks a folder: for this copy alone, or with others that have it `shared`.
fn lock(folder: impl AsFd, shared: bool) -> std::io::Result<Alone> {
    // The lock goes with a handle of its own, whoever has others.
    let how = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(folder, ".", how, Mode::empty())?;
    let lock = match shared {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    partial::lock(&handle, lock)?;
    Ok(Alone { _handle: handle })
}

impl Sink {
    /// Has the entry `number` for this copy alone, if that is the folder that the copy is of. What
    /// goes right into a folder may come from several at once.
    ///
    /// # Errors
    /// Another copy has it.
    pub(super) fn have_alone(&mut self, number: u32) -> Result<(), Error> {
        if self.options.dry_run || self.alone.len() >= MOST || !self.is_top(number) {
            return Ok(());
        }
        let shared = self.options.shared;
        let locked = self.once_free(number, |sink| lock(sink.ground.folder(number)?, shared));
        match locked {
            Ok(alone) => self.alone.push(alone),
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
