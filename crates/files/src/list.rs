//! Lists the names in a folder.

use std::io;

use super::error::Error;
use super::manifest::FileTime;
use super::place::{Found, Place, file_error};
use super::store::Attributes;

pub use super::store::NameKind;

/// A name with its attributes; for a link, the attributes of the link itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name, without a slash.
    pub name: Vec<u8>,
    /// The kind of the file.
    pub kind: NameKind,
    /// The 12 permission bits.
    pub mode: u32,
    /// Bytes of content.
    pub size: u64,
    /// The modification time.
    pub modified: FileTime,
    /// The target of a link, if it is known.
    pub target: Option<Vec<u8>>,
}

/// Calls `tell` with each name in the folder at `place`, in the system's order, until `tell`
/// returns `false`. If `place` is not a folder, calls `tell` once, with the name of `place`.
/// Follows a link at `place` only if it leads to a folder.
///
/// # Errors
/// [`FileErrorKind::File`](crate::FileErrorKind::File): `place` does not exist or leads out of the
/// root, or the system refuses.
pub fn list(place: &Place, tell: &mut dyn FnMut(Named) -> bool) -> Result<(), Error> {
    let wrong = |error: io::Error| file_error("list", place.named(), &error);
    match place.find().map_err(wrong)? {
        Found::Nothing { .. } => Err(wrong(io::ErrorKind::NotFound.into())),
        Found::Other { name, attributes, .. } => {
            tell(named(name, &attributes));
            Ok(())
        }
        Found::Folder(folder) => {
            let mut failed = None;
            let walked = folder.each_name(&mut |name| match folder.look(&name) {
                Ok(attributes) => {
                    let is_link = attributes.kind == NameKind::Link;
                    let target = if is_link { folder.read_link(&name).ok() } else { None };
                    tell(Named { target, ..named(name, &attributes) })
                }
                // The entry was removed after its name was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => true,
                Err(error) => {
                    failed = Some(error);
                    false
                }
            });
            walked.and(failed.map_or(Ok(()), Err)).map_err(wrong)
        }
    }
}

pub(crate) fn named(name: Vec<u8>, attributes: &Attributes) -> Named {
    let Attributes { kind, mode, size, modified, .. } = *attributes;
    Named { name, kind, mode, size, modified, target: None }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::Root;

    fn names(place: &Place) -> Result<Vec<(String, NameKind)>, Error> {
        let mut all = Vec::new();
        list(place, &mut |named| {
            all.push((String::from_utf8(named.name).expect("our own names"), named.kind));
            true
        })?;
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }

    #[test]
    fn a_listing_follows_links_within_the_root_and_refuses_links_out_of_it() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "x").unwrap();
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("folder")).unwrap();
        fs::write(top.path().join("folder/file"), "four").unwrap();
        symlink("folder", top.path().join("inside")).unwrap();
        symlink(outside.path(), top.path().join("out")).unwrap();
        symlink(outside.path().join("secret"), top.path().join("out-file")).unwrap();
        let root = Root::open(top.path()).unwrap();
        let at = |path: &str| Place::Within { root: root.clone(), path: path.into() };
        use NameKind::{File, Folder, Link};
        let all = [("folder", Folder), ("inside", Link), ("out", Link), ("out-file", Link)];
        let all = all.map(|(name, kind)| (name.to_owned(), kind));
        assert_eq!(names(&at("")).unwrap(), all);
        assert_eq!(names(&at(".")).unwrap(), all);
        let file = [("file".to_owned(), File)];
        for path in ["folder", "folder/", "inside", "folder/../folder", "folder/file"] {
            assert_eq!(names(&at(path)).unwrap(), file, "{path}");
        }
        for path in ["out", "out/", "out-file", "..", "folder/../..", "out/secret", "none/at/all"] {
            assert!(names(&at(path)).is_err(), "{path}");
        }
        // A link that leads out of the root is listed, but without attributes of its target.
        let mut found = Vec::new();
        list(&at(""), &mut |named: Named| {
            found.push(named);
            true
        })
        .unwrap();
        let link = found.into_iter().find(|named| named.name == b"out-file").unwrap();
        let target = outside.path().join("secret");
        assert_eq!((link.kind, link.size), (Link, target.as_os_str().len() as u64));
        assert_eq!(link.target.as_deref(), Some(target.as_os_str().as_encoded_bytes()));
    }

    #[test]
    fn a_name_that_is_removed_during_a_listing_is_left_out() {
        let folder = crate::MemoryFolder::new(10);
        for name in ["a", "b", "c"] {
            folder.put(name.as_ref(), Vec::new());
        }
        let place = Place::Stored { root: (&folder).into(), path: "".into() };
        let mut heard = Vec::new();
        list(&place, &mut |named| {
            folder.take("b".as_ref());
            heard.push(named.name);
            true
        })
        .unwrap();
        assert_eq!(heard, [b"a", b"c"]);
    }

    #[test]
    fn a_name_that_cannot_be_looked_up_ends_the_listing_with_an_error() {
        let disk = crate::store::memory::Disk::new(1);
        disk.root().create(b"a", 0o600).unwrap();
        let place = Place::Stored { root: crate::Store(disk.root()), path: "".into() };
        // The first call reads the names.
        disk.kill_after(1);
        let error = list(&place, &mut |_| true).unwrap_err();
        assert!(error.what.starts_with("cannot list .: "), "{error}");
    }

    #[test]
    fn the_caller_can_end_a_listing() {
        let top = tempfile::tempdir().unwrap();
        (0..10).for_each(|n| fs::write(top.path().join(format!("{n}")), "").unwrap());
        let mut heard = 0;
        let place = Place::Ambient(top.path().to_owned());
        list(&place, &mut |_| {
            heard += 1;
            heard < 3
        })
        .unwrap();
        assert_eq!(heard, 3);
    }
}
