//! Paths that a user of this host gives, paths below a served root that a peer gives, and paths in
//! a store that is not a file system of this host.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::store::buffers::Store;
use super::store::{Attributes, NameKind, SharedFolder, real};
use crate::error::{Error, FileErrorKind};
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use longhaul_text::reason;

/// A path, and the folder or store that it cannot leave, if there is one.
#[derive(Clone, Debug)]
pub enum Place {
    /// A path of this host, with the rights of this process.
    Ambient(PathBuf),
    /// A path that cannot leave a folder through `..`, an absolute name or a link, even if a name
    /// changes between a check and a use.
    Within {
        /// The folder.
        root: Root,
        /// The path relative to the folder; empty for the folder itself.
        path: PathBuf,
    },
    /// A path of at most one component below the top of a store that is not a file system of this
    /// host; see [`MemoryFolder`](crate::MemoryFolder).
    Stored {
        /// The top.
        root: Store,
        /// The path relative to the top; empty or with a trailing slash for a folder.
        path: PathBuf,
    },
}

/// A folder that paths below it cannot leave. Clones refer to the same folder.
#[derive(Clone, Debug)]
pub struct Root(Arc<Dir>);

impl Root {
    /// Opens a folder of this host.
    ///
    /// # Errors
    /// `path` is not a folder, or the system refuses.
    pub fn open(path: &Path) -> io::Result<Root> {
        Dir::open_ambient_dir(path, ambient_authority()).map(|root| Root(Arc::new(root)))
    }

    /// Opens a folder below this one. Follows no link: a client that may write to a part of `path`
    /// may have put the link there.
    ///
    /// # Errors
    /// As [`Root::open`]; or the path is absolute, or has a link or `..`.
    pub fn below(&self, path: &Path) -> io::Result<Root> {
        let mut root = self.0.try_clone()?;
        for part in path.components() {
            root = match part {
                Component::CurDir => continue,
                Component::Normal(name) => real::open_below(&root, name)?,
                _ => return Err(io::ErrorKind::InvalidInput.into()),
            };
        }
        Ok(Root(Arc::new(root)))
    }

    /// Removes the folder at `path` with its content; links in it are removed, not followed.
    pub(crate) fn remove_tree(&self, path: &Path) -> io::Result<()> {
        self.0.remove_dir_all(path)
    }

    pub(crate) fn rename_below(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, &self.0, to)
    }

    /// As `rename_below`, but fails with `AlreadyExists` if `to` exists.
    pub(crate) fn rename_new_below(&self, from: &Path, to: &Path) -> io::Result<()> {
        let folder = |path: &Path| match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => self.0.open_dir(parent),
            _ => self.0.try_clone(),
        };
        let name = |path: &Path| path.file_name().map(OsStr::to_owned);
        let (Some(old), Some(new)) = (name(from), name(to)) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        real::rename_new(folder(from)?, old.as_bytes(), folder(to)?, new.as_bytes())
    }
}

pub(crate) enum Found {
    /// A folder, possibly through a link.
    Folder(SharedFolder),
    /// Anything that is not a folder, in an existing folder; also a link that does not lead to a
    /// folder.
    Other { parent: SharedFolder, name: Vec<u8>, attributes: Attributes },
    /// Nothing, in an existing folder.
    Nothing { parent: SharedFolder, name: Vec<u8> },
}

impl Place {
    /// Returns the path as it was given.
    pub fn path(&self) -> &Path {
        match self {
            Place::Ambient(path) | Place::Within { path, .. } => path,
            Place::Stored { path, .. } => path,
        }
    }

    /// Returns the path for errors: `.` if it is empty.
    pub fn named(&self) -> &Path {
        match self.path().as_os_str().is_empty() {
            true => Path::new("."),
            false => self.path(),
        }
    }

    /// Returns the path as text.
    pub fn shown(&self) -> String {
        self.named().display().to_string()
    }

    /// Returns whether the path names a folder by its form: it is empty, ends with a slash, or its
    /// last component is `.` or `..`.
    pub fn says_folder(&self) -> bool {
        let path = self.path().as_os_str().as_bytes();
        path.is_empty()
            || [&b"/"[..], b"/.", b"/.."].iter().any(|end| path.ends_with(end))
            || path == b"."
            || path == b".."
    }

    /// Returns the name at the end of the path; `None` for an empty path, `/`, `.`, and a path
    /// whose last component is `..`.
    pub fn name(&self) -> Option<Vec<u8>> {
        self.path().file_name().map(|name| name.as_bytes().to_vec())
    }

    pub(crate) fn folder(&self) -> io::Result<SharedFolder> {
        let here = |path: &Path| match path.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => path.to_owned(),
        };
        match self {
            Place::Ambient(path) => real::open_path(&here(path)),
            Place::Within { root, path } => real::open_again(root.0.open_dir(here(path))?),
            Place::Stored { root, path } => match path.file_name() {
                Some(name) => root.0.open_folder(name.as_bytes()),
                None => Ok(root.0.clone()),
            },
        }
    }

    /// Returns whether this is a folder, following links. Returns `false` if nothing exists at the
    /// place and its parent folder exists.
    ///
    /// # Errors
    /// [`FileErrorKind::File`]: the parent folder is missing, or the system refuses.
    pub fn is_folder(&self) -> Result<bool, Error> {
        match self.find() {
            Ok(found) => Ok(matches!(found, Found::Folder(_))),
            Err(error) => Err(file_error("use", self.named(), &error)),
        }
    }

    /// Looks up this place, following links to folders. `NotFound` if the parent folder is missing.
    pub(crate) fn find(&self) -> io::Result<Found> {
        let error = match self.folder() {
            Ok(folder) => return Ok(Found::Folder(folder)),
            Err(error) => error,
        };
        if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            return Err(error);
        }
        let Some(name) = self.name() else {
            return Err(error);
        };
        let parent = self.parent().folder()?;
        Ok(match parent.look_if_there(&name)? {
            Some(attributes) => Found::Other { parent, name, attributes },
            None => Found::Nothing { parent, name },
        })
    }

    /// Returns whether a copy may replace this place: it is a regular file, or nothing is there.
    /// Follows links. Always true in a store.
    pub(crate) fn may_be_replaced(&self) -> io::Result<bool> {
        let is_file = match self {
            Place::Ambient(path) => path.metadata().map(|found| found.is_file()),
            Place::Within { root, path } => root.0.metadata(path).map(|found| found.is_file()),
            Place::Stored { .. } => Ok(true),
        };
        match is_file {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            known => known,
        }
    }

    /// Returns whether this is a link in `/dev`, in `/proc` or to a path below `/proc`, such as
    /// `/dev/stdout`.
    pub(crate) fn is_of_the_system(&self) -> bool {
        let Place::Ambient(path) = self else { return false };
        let is_of_proc = |path: &Path| path.starts_with("/proc");
        let Ok(target) = path.read_link() else { return false };
        let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
        is_of_proc(&target)
            || parent.is_some_and(|parent| is_of_proc(&parent) || parent == Path::new("/dev"))
    }

    /// As [`Place::find`], but follows all links: the result is never a link.
    pub(crate) fn find_at_end(&self) -> io::Result<Found> {
        match self.find()? {
            Found::Other { attributes, .. } if attributes.kind == NameKind::Link => {
                let path = self.path();
                match self {
                    Place::Ambient(_) => Place::Ambient(path.canonicalize()?),
                    Place::Within { root, .. } => {
                        Place::Within { root: root.clone(), path: root.0.canonicalize(path)? }
                    }
                    Place::Stored { .. } => return Err(super::store::not_found()),
                }
                .find()
            }
            found => Ok(found),
        }
    }

    /// Returns the place of `name`, a single component, in this folder.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Place {
        let path = self.path().join(as_path(name));
        match self {
            Place::Ambient(_) => Place::Ambient(path),
            Place::Within { root, .. } => Place::Within { root: root.clone(), path },
            Place::Stored { root, .. } => Place::Stored { root: root.clone(), path },
        }
    }

    pub(crate) fn parent(&self) -> Place {
        let path = self.path().parent().unwrap_or(Path::new("")).to_owned();
        match self {
            Place::Ambient(_) => Place::Ambient(path),
            Place::Within { root, .. } => Place::Within { root: root.clone(), path },
            Place::Stored { root, .. } => Place::Stored { root: root.clone(), path },
        }
    }
}

/// Returns a path as text.
pub fn show(path: &[u8]) -> String {
    as_path(path).display().to_string()
}

/// Returns bytes as a path.
pub fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

pub(crate) fn file_error(verb: &str, path: &Path, error: &io::Error) -> Error {
    let what = format!("cannot {verb} {}: {}", path.display(), reason(error));
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    Error { is_missing, ..Error::new(FileErrorKind::File, what).at(path) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::MemoryFolder;

    fn ambient(path: impl Into<PathBuf>) -> Place {
        Place::Ambient(path.into())
    }

    #[test]
    fn only_a_not_found_error_says_that_the_file_is_missing() {
        let kinds = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
        let missing = kinds.map(|kind| file_error("use", Path::new("x"), &kind.into()).is_missing);
        assert_eq!(missing, [true, false]);
    }

    #[test]
    fn a_path_names_a_folder_if_it_is_empty_or_ends_with_a_slash_or_a_dot_component() {
        for (path, says, name) in [
            ("", true, None),
            ("a", false, Some("a")),
            ("a/", true, Some("a")),
            ("a/.", true, Some("a")),
            ("a/..", true, None),
            (".", true, None),
            ("..", true, None),
            (".a", false, Some(".a")),
            ("a..", false, Some("a..")),
            ("a/b.", false, Some("b.")),
        ] {
            let place = ambient(path);
            assert_eq!(place.says_folder(), says, "{path}");
            assert_eq!(place.name(), name.map(|name| name.as_bytes().to_vec()), "{path}");
        }
        assert_eq!(
            (ambient("").shown(), ambient("a/b").shown()),
            (".".to_owned(), "a/b".to_owned())
        );
        assert_eq!(ambient("").path(), Path::new(""));
        assert_eq!(show(b"a\xff"), "a\u{fffd}");
    }

    #[test]
    fn places_within_a_root_or_a_store_have_parents_and_children() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("a/b")).unwrap();
        let root = Root::open(top.path()).unwrap();
        let within = Place::Within { root: root.clone(), path: "a".into() };
        let child = within.join(b"b");
        assert_eq!((child.path(), child.parent().path()), (Path::new("a/b"), Path::new("a")));
        assert!(child.is_folder().unwrap() && !child.join(b"c").is_folder().unwrap());
        assert!(child.join(b"c").join(b"d").is_folder().is_err(), "its parent is missing");
        let below = root.below(Path::new("a")).unwrap();
        assert!(Place::Within { root: below, path: "b".into() }.is_folder().unwrap());
        let memory = MemoryFolder::new(10);
        memory.put(OsStr::new("x"), b"1".to_vec());
        let store = Place::Stored { root: Store::from(&memory), path: "".into() };
        let file = store.join(b"x");
        assert!(store.is_folder().unwrap() && !file.is_folder().unwrap());
        assert_eq!((file.path(), file.parent().path()), (Path::new("x"), Path::new("")));
        assert!(file.may_be_replaced().unwrap());
    }

    #[test]
    fn no_link_on_the_way_to_a_folder_below_a_root_is_followed() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("proj/y")).unwrap();
        fs::create_dir_all(top.path().join("secret/y")).unwrap();
        fs::write(top.path().join("file"), "").unwrap();
        symlink("../secret", top.path().join("proj/last")).unwrap();
        symlink("secret", top.path().join("first")).unwrap();
        let root = Root::open(top.path()).unwrap();
        for path in ["", ".", "proj", "proj/y/", "./proj/./y"] {
            assert!(root.below(Path::new(path)).is_ok(), "{path}");
        }
        for path in ["proj/last", "proj/last/", "first/y", "..", "proj/..", "/", "file", "none"] {
            assert!(root.below(Path::new(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn only_files_and_missing_names_may_be_replaced_and_links_of_the_system_are_recognised() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::write(at("file"), "").unwrap();
        fs::create_dir(at("folder")).unwrap();
        symlink("file", at("link")).unwrap();
        symlink("none", at("dangling")).unwrap();
        symlink("/proc/self/fd/1", at("open")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let root = Root::open(top.path()).unwrap();
        for (name, may) in
            [("file", true), ("folder", false), ("link", true), ("dangling", true), ("none", true)]
        {
            assert_eq!(ambient(at(name)).may_be_replaced().unwrap(), may, "{name}");
            let within = Place::Within { root: root.clone(), path: name.into() };
            assert_eq!(within.may_be_replaced().unwrap(), may, "{name}");
            assert!(!ambient(at(name)).is_of_the_system() && !within.is_of_the_system(), "{name}");
        }
        assert!(ambient(at("loop")).may_be_replaced().is_err());
        assert!(ambient(at("open")).is_of_the_system());
        assert!(ambient("/proc/self/fd/1").is_of_the_system());
        // `/dev/stdout` is a link only on some systems.
        let is_link = fs::read_link("/dev/stdout").is_ok();
        assert_eq!(ambient("/dev/stdout").is_of_the_system(), is_link);
    }
}
