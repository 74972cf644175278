//! The folders below a base, each opened by its parent's handle.

use std::io;

use super::store::{self, Folder, SharedFolder};

/// How many handles of folders one [`Folders`] keeps.
const KEPT: usize = 32;

/// The folders below a base; keeps the handles of where it was last, since a walk stays near.
#[derive(Debug)]
pub(crate) struct Folders {
    base: SharedFolder,
    /// Where the handles lead, outermost first: each path begins with the one before.
    open: Vec<(Vec<u8>, SharedFolder)>,
}

impl Folders {
    pub(crate) fn new(base: SharedFolder) -> Folders {
        Folders { base, open: Vec::new() }
    }

    pub(crate) fn base(&self) -> &SharedFolder {
        &self.base
    }

    /// The folder at `path` (components joined by `/`; empty for the base).
    ///
    /// # Errors
    /// What the system says of the first component that is no folder or cannot be opened.
    pub(crate) fn at(&mut self, path: &[u8]) -> io::Result<&dyn Folder> {
        let leads = |open: &[u8]| {
            path.strip_prefix(open).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        while self.open.last().is_some_and(|(open, _)| !leads(open)) {
            self.open.pop();
        }
        let mut end = self.open.last().map_or(0, |(open, _)| open.len());
        while end < path.len() {
            let start = if end == 0 { 0 } else { end + 1 };
            let len = path[start..].iter().position(|b| *b == b'/');
            end = len.map_or(path.len(), |len| start + len);
            let parent = self.open.last().map_or(&self.base, |(_, open)| open);
            let folder = parent.open_folder(&path[start..end])?;
            while self.open.len() >= store::kept(KEPT) {
                self.open.remove(0);
            }
            self.open.push((path[..end].to_vec(), folder));
        }
        Ok(&**self.open.last().map_or(&self.base, |(_, open)| open))
    }
}
