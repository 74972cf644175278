//! The folders and services that an id may use.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use crate::control::server_status::SERVICE as STATUS;
use crate::error::{Error, ErrorKind};
use crate::options::{Allow, ServeOptions};
use crate::session::{self, PeerId, allow};
use longhaul_files::place::show;
use longhaul_files::{Place, Root};
use longhaul_text::CallOption;
use longhaul_text::reason;

pub(super) struct Door {
    reach: Reach,
    allow: Shared,
    read_only: bool,
}

type Shared = Arc<RwLock<Arc<[Allow]>>>;

/// A poisoned lock does not matter: the list is replaced as a whole.
fn now(list: &Shared) -> Arc<[Allow]> {
    list.read().unwrap_or_else(PoisonError::into_inner).clone()
}

enum Reach {
    /// Only paths below this folder.
    Root(Root),
    /// No path: the server has no files.
    Nothing,
    /// Everything that the user of this process can reach: the client logged in through ssh as this
    /// user.
    User,
}

pub(super) struct Right {
    list: Shared,
    /// The list when the request was admitted.
    seen: Arc<[Allow]>,
    peer: PeerId,
    /// The needed access to files; `None` if the request is not for files.
    access: Option<Access>,
    /// The keyword of a service other than files. The client's right to this service must stay the
    /// same. If `word` and `access` are `None`, the client needs only an entry whose folder stays
    /// the same.
    word: Option<&'static str>,
}

impl Right {
    /// Fails if the client was removed or has lost this right, or if the right's folder or value
    /// has changed since the request was admitted.
    pub(super) fn check(&self) -> Result<(), Error> {
        let list = now(&self.list);
        if Arc::ptr_eq(&list, &self.seen) {
            return Ok(());
        }
        let before = allow::find(&self.seen, &self.peer).map(|entry| &entry.subfolder);
        let holds = allow::find(&list, &self.peer).is_some_and(|entry| {
            self.access.is_none_or(|access| access.is_in(entry)) && before == Some(&entry.subfolder)
        });
        let said =
            |list: &[Allow], word| allow::find(list, &self.peer)?.right(word).map(str::to_owned);
        let holds = match self.word {
            Some(word) => {
                said(&list, word).is_some() && said(&list, word) == said(&self.seen, word)
            }
            None => holds,
        };
        if holds {
            return Ok(());
        }
        let what = format!("{} is no longer allowed to do this here", self.peer);
        Err(Error::new(ErrorKind::Unreachable, what).advise("ask the server's administrator"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    /// Read and write the same file.
    Change,
}

impl Access {
    fn is_in(self, entry: &Allow) -> bool {
        match self {
            Access::Read => entry.read,
            Access::Write => entry.write,
            Access::Change => entry.read && entry.write,
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::Change => "change files",
        }
    }
}

impl Door {
    pub(super) fn open(options: &ServeOptions) -> Result<Door, Error> {
        if options.rooms_only {
            let reach = Reach::Nothing;
            let door = Door { reach, allow: Shared::default(), read_only: true };
            door.allow(options.allow.clone())?;
            return Ok(door);
        }
        let root = Root::open(&options.root).map_err(|error| {
            let what = format!("cannot serve {}: {error}", options.root.display());
            Error::new(ErrorKind::LocalFile, what)
                .at(&options.root)
                .advise(format!("give an existing folder as {}", CallOption::Root))
        })?;
        let reach = Reach::Root(root);
        let door = Door { reach, allow: Shared::default(), read_only: options.read_only };
        door.allow(options.allow.clone())?;
        Ok(door)
    }

    /// Replaces the list of clients. After an error the old list stays.
    pub(super) fn allow(&self, list: Vec<Allow>) -> Result<(), Error> {
        let mut ids = BTreeSet::new();
        if let Some(entry) = list.iter().find(|entry| !ids.insert(&entry.id)) {
            let what = format!("the list of clients contains {} twice", entry.id);
            return Err(Error::new(ErrorKind::Usage, what).advise("remove one of the entries"));
        }
        for entry in &list {
            let (Some(folder), Reach::Root(root)) = (&entry.subfolder, &self.reach) else {
                continue;
            };
            root.below(folder).map_err(|error| missing(&entry.id, folder, &error))?;
        }
        *self.allow.write().unwrap_or_else(PoisonError::into_inner) = list.into();
        Ok(())
    }

    /// Returns the door for the one client that started this process through ssh.
    pub(super) fn of_user() -> Door {
        Door { reach: Reach::User, allow: Shared::default(), read_only: false }
    }

    /// Returns a check that admits the ids in the current list, and returns
    /// [`ErrorKind::Unreachable`] for all other ids.
    pub(super) fn admission(
        &self,
    ) -> impl Fn(&PeerId) -> Result<(), session::Error> + Send + Sync + 'static {
        let allow = self.allow.clone();
        move |peer| allowed(&now(&allow), peer).map(drop).map_err(|error| (&error).into())
    }

    /// Returns the right to `access`, without a check whether the current list grants it.
    pub(super) fn right(&self, peer: PeerId, access: Option<Access>) -> Right {
        Right { list: self.allow.clone(), seen: now(&self.allow), peer, access, word: None }
    }

    /// Returns the right of `peer` to the service `word`, and the text after `word=` in the list of
    /// clients.
    pub(super) fn right_to(
        &self,
        peer: PeerId,
        word: &'static str,
    ) -> Result<(Right, String), Error> {
        let seen = now(&self.allow);
        let said = allowed(&seen, &peer)?.right(word);
        let said = said.ok_or_else(|| no_right(&peer, word))?.to_owned();
        let list = self.allow.clone();
        Ok((Right { list, seen, peer, access: None, word: Some(word) }, said))
    }

    pub(super) fn right_to_status(&self, peer: PeerId) -> Result<Right, Error> {
        match self.reach {
            Reach::User => Ok(self.right(peer, None)),
            Reach::Root(_) | Reach::Nothing => Ok(self.right_to(peer, STATUS)?.0),
        }
    }

    pub(super) fn may_read(&self, peer: &PeerId) -> Result<bool, Error> {
        if matches!(self.reach, Reach::User) {
            return Ok(true);
        }
        Ok(Access::Read.is_in(allowed(&now(&self.allow), peer)?))
    }

    pub(super) fn name(&self, peer: &PeerId) -> Option<String> {
        allow::find(&now(&self.allow), peer)?.name.clone()
    }

    pub(super) fn may_use(&self, peer: &PeerId, word: &str) -> Result<(), Error> {
        if matches!(self.reach, Reach::User) {
            return Ok(());
        }
        match allowed(&now(&self.allow), peer)?.has(word) {
            true => Ok(()),
            false => Err(no_right(peer, word)),
        }
    }

    pub(super) fn place(&self, peer: &PeerId, path: &Path, access: Access) -> Result<Place, Error> {
        let root = match &self.reach {
            Reach::User => return Ok(Place::Ambient(at_home(path, std::env::var_os("HOME")))),
            Reach::Nothing => {
                return Err(Error::new(ErrorKind::Unreachable, "this server has no files"));
            }
            Reach::Root(root) => root,
        };
        let list = now(&self.allow);
        let allowed = allowed(&list, peer)?;
        if !access.is_in(allowed) || self.read_only && access != Access::Read {
            let what = format!("{peer} may not {} here", access.verb());
            return Err(
                Error::new(ErrorKind::Unreachable, what).advise("ask the server's administrator")
            );
        }
        let root = match &allowed.subfolder {
            None => root.clone(),
            Some(folder) => {
                root.below(folder).map_err(|error| missing(&allowed.id, folder, &error))?
            }
        };
        Ok(Place::Within { root, path: relative(path) })
    }
}

fn allowed<'a>(list: &'a [Allow], peer: &PeerId) -> Result<&'a Allow, Error> {
    allow::find(list, peer).ok_or_else(|| {
        let error = Error::new(ErrorKind::Unreachable, format!("{peer} is not allowed here"));
        error.advise(format!("start the server with {} and this id", CallOption::Allow))
    })
}

fn no_right(peer: &PeerId, word: &str) -> Error {
    let error = Error::new(ErrorKind::Unreachable, format!("{peer} has no right to {word}"));
    error.advise("ask the server's administrator")
}

fn missing(id: &str, folder: &Path, error: &std::io::Error) -> Error {
    let what = format!(
        "cannot open the folder for {id}, {}: {}",
        show(folder.as_os_str().as_bytes()),
        reason(error)
    );
    let is_missing = error.kind() == std::io::ErrorKind::NotFound;
    Error { is_missing, ..Error::new(ErrorKind::LocalFile, what) }
        .at(folder)
        .advise("create this folder below the root on the server, without a link in its path")
}

/// Resolves `~` and paths below it, as the shell behind scp does. Homes of other users (`~name`)
/// are not resolved.
fn at_home(path: &Path, home: Option<OsString>) -> PathBuf {
    let below = path.as_os_str().as_bytes().strip_prefix(b"~");
    match (below, home) {
        // A trailing slash selects the contents of a folder, so it must be kept.
        (Some(below), Some(mut home)) if below.is_empty() || below[0] == b'/' => {
            home.push(OsStr::from_bytes(below));
            home.into()
        }
        _ => path.to_owned(),
    }
}

/// Makes a path relative: `lh://host//x` and `lh://host/x` name the same file. Keeps a trailing
/// slash, which selects the contents of a folder.
fn relative(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let slashes = bytes.iter().take_while(|byte| **byte == b'/').count();
    OsStr::from_bytes(&bytes[slashes..]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_ends_if_its_entry_is_removed_loses_the_access_or_changes_its_folder() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("sub")).unwrap();
        let peer = crate::session::Identity::generate().id();
        let entry = |rights: &str| allow::parse(&format!("{peer}{rights}")).unwrap();
        let options = ServeOptions {
            root: root.path().to_owned(),
            allow: vec![entry("")],
            ..ServeOptions::default()
        };
        let door = Door::open(&options).unwrap();
        let right = |access| door.right(peer, Some(access));
        let rights = [Access::Read, Access::Write, Access::Change].map(right);
        let holds = |list: Vec<Allow>| {
            door.allow(list).unwrap();
            rights.each_ref().map(|right| right.check().is_ok())
        };
        assert_eq!(holds(vec![entry("")]), [true, true, true]);
        assert_eq!(holds(vec![entry(":ro")]), [true, false, false]);
        assert_eq!(holds(vec![entry(":wo")]), [false, true, false]);
        assert_eq!(holds(vec![entry(":rw:sub")]), [false, false, false]);
        assert_eq!(holds(Vec::new()), [false, false, false]);
    }

    #[test]
    fn a_list_with_an_id_twice_is_refused_and_the_old_list_stays() {
        let root = tempfile::tempdir().unwrap();
        let peer = crate::session::Identity::generate().id();
        let entry = |rights: &str| allow::parse(&format!("{peer}{rights}")).unwrap();
        let options = ServeOptions {
            root: root.path().to_owned(),
            allow: vec![entry(":ro")],
            ..ServeOptions::default()
        };
        let door = Door::open(&options).unwrap();
        let error = door.allow(vec![entry(":ro"), entry(":rw")]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage);
        assert!(error.what.contains("twice") && error.what.contains(&peer.to_string()));
        assert!(!Access::Write.is_in(allowed(&now(&door.allow), &peer).unwrap()));
        assert!(door.may_read(&peer).unwrap());
        door.allow(vec![entry(":wo")]).unwrap();
        assert!(!door.may_read(&peer).unwrap());
    }

    #[test]
    fn a_link_that_replaces_the_folder_of_a_right_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["proj/y", "secret"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let peer = crate::session::Identity::generate().id();
        let allow = vec![allow::parse(&format!("{peer}:rw:proj/y")).unwrap()];
        let root = root.path().to_owned();
        let options =
            ServeOptions { root: root.clone(), allow: allow.clone(), ..ServeOptions::default() };
        let door = Door::open(&options).unwrap();
        let place = || door.place(&peer, Path::new("x"), Access::Write);
        assert!(place().is_ok());
        std::fs::remove_dir(root.join("proj/y")).unwrap();
        std::os::unix::fs::symlink("../secret", root.join("proj/y")).unwrap();
        let error = place().unwrap_err();
        assert!(error.advice.is_some_and(|advice| advice.contains("without a link")));
        assert!(door.allow(allow).is_err() && Door::open(&options).is_err());
    }

    #[test]
    fn an_absolute_path_selects_the_same_as_the_relative_one() {
        let shown = |path: &str| relative(Path::new(path)).into_os_string();
        for (path, below) in [("/x/", "x/"), ("//x", "x"), ("x/", "x/"), ("/", ""), ("/a/b", "a/b")]
        {
            assert_eq!(shown(path), below);
        }
    }

    #[test]
    fn a_client_without_the_right_to_a_service_gets_advice() {
        let peer = crate::session::Identity::generate().id();
        let allow = vec![allow::parse(&format!("{peer},rpc=/x")).unwrap()];
        let options = ServeOptions { rooms_only: true, allow, ..ServeOptions::default() };
        let door = Door::open(&options).unwrap();
        let refused = [door.right_to(peer, "share").err(), door.may_use(&peer, "share").err()];
        for error in refused {
            assert_eq!(error.unwrap().advice.as_deref(), Some("ask the server's administrator"));
        }
    }

    #[test]
    fn a_tilde_is_the_users_own_home_only() {
        let at = |path: &str| at_home(Path::new(path), Some("/home/u".into())).into_os_string();
        assert_eq!(at("~/x/"), "/home/u/x/");
        assert_eq!(at("~"), "/home/u");
        for plain in ["~u/x", "./~/x", "x/~", "/~", ""] {
            assert_eq!(at(plain), plain);
        }
        assert_eq!(at_home(Path::new("~/x"), None), Path::new("~/x"));
        let home = std::env::var_os("HOME").map_or("~".into(), PathBuf::from);
        let peer = crate::session::Identity::generate().id();
        let place = Door::of_user().place(&peer, Path::new("~/x"), Access::Write).unwrap();
        assert_eq!(place.path(), home.join("x"));
    }
}
