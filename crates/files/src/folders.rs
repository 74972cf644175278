//! The folders below a base, each opened by its parent's handle.

use std::io;

use super::store::{self, Folder, SharedFolder};

/// Maximum number of handles that one [`Folders`] keeps.
const KEPT: usize = 32;

/// Keeps the handles of the last path, because the next path is usually near it.
#[derive(Debug)]
pub(crate) struct Folders {
    base: SharedFolder,
    /// The handles with their paths, outermost first: each path starts with the previous one.
    open: Vec<(Vec<u8>, SharedFolder)>,
}

impl Folders {
    pub(crate) fn new(base: SharedFolder) -> Folders {
        Folders { base, open: Vec::new() }
    }

    pub(crate) fn base(&self) -> &SharedFolder {
        &self.base
    }

    /// Returns the folder at `path` (components joined by `/`; empty for the base).
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::Disk;

    #[test]
    fn a_folder_is_found_by_its_path_whichever_folder_was_found_before() {
        let disk = Disk::new(1);
        let root = disk.root();
        for path in [&["a", "b"][..], &["ab", "c"]] {
            let mut at = root.clone();
            for name in path {
                at.make_folder(name.as_bytes(), 0o755).expect("it is new");
                at = at.open_folder(name.as_bytes()).expect("it is there");
            }
            drop(at.create(path.concat().as_bytes(), 0o600).expect("it is new"));
        }
        let mut folders = Folders::new(root);
        let mut names = |path: &str| folders.at(path.as_bytes()).map(|folder| folder.names());
        let found = |names: io::Result<io::Result<Vec<Vec<u8>>>>| -> Vec<String> {
            let names = names.expect("it is there").expect("it can be read");
            names.into_iter().map(|name| String::from_utf8(name).expect("ours")).collect()
        };
        assert_eq!(found(names("a/b")), ["ab"]);
        // `ab` starts with the letter of the open folder `a`, but is not below it.
        assert_eq!(found(names("ab")), ["c"]);
        assert_eq!(found(names("ab/c")), ["abc"]);
        assert_eq!(found(names("a")), ["b"]);
        assert_eq!(found(names("")), ["a", "ab"]);
        assert!(names("a/c").is_err() && names("a/b/ab").is_err());
        assert_eq!(found(names("a/b")), ["ab"], "an error does not affect later paths");
    }

    #[test]
    fn a_deep_path_is_found_with_few_handles() {
        let disk = Disk::new(1);
        let mut at = disk.root();
        let mut path = String::new();
        for _ in 0..KEPT + 9 {
            at.make_folder(b"f", 0o755).expect("it is new");
            at = at.open_folder(b"f").expect("it is there");
            path += if path.is_empty() { "f" } else { "/f" };
        }
        let mut folders = Folders::new(disk.root());
        assert!(folders.at(path.as_bytes()).is_ok());
        assert!(folders.open.len() <= KEPT);
        assert_eq!(folders.open.last().expect("it is open").0, path.as_bytes());
    }
}
