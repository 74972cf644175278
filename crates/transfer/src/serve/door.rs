//! What an id may reach.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use crate::error::{Class, Error};
use crate::options::{Allow, ServeOptions};
use crate::session::{self, PeerId, allow};
use longhaul_files::place::show;
use longhaul_files::{Place, Root};
use longhaul_text::reason;

/// A served folder and who may use it.
pub(super) struct Door {
    reach: Reach,
    allow: Shared,
    read_only: bool,
}

/// The list of clients as it is now.
type Shared = Arc<RwLock<Arc<[Allow]>>>;

/// A poisoned lock means that a reader panicked; the list is whole.
fn now(list: &Shared) -> Arc<[Allow]> {
    list.read().unwrap_or_else(PoisonError::into_inner).clone()
}

enum Reach {
    /// Only what lies below this folder.
    Root(Root),
    /// All that the user of this process may reach: he came through his own ssh.
    User,
}

/// One side of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

impl Door {
    /// Opens the served folder.
    ///
    /// # Errors
    /// [`Class::LocalFile`] if it, or the subfolder of an id, is no folder that can be opened.
    pub(super) fn open(options: &ServeOptions) -> Result<Door, Error> {
        let root = Root::open(&options.root).map_err(|error| {
            let what = format!("cannot serve {}: {error}", options.root.display());
            Error::new(Class::LocalFile, what).advise("name a folder that exists with --root")
        })?;
        let reach = Reach::Root(root);
        let door = Door { reach, allow: Shared::default(), read_only: options.read_only };
        door.allow(options.allow.clone())?;
        Ok(door)
    }

    /// Replaces the list of clients.
    ///
    /// # Errors
    /// [`Class::LocalFile`] if the subfolder of an id cannot be opened: the old list stays.
    pub(super) fn allow(&self, list: Vec<Allow>) -> Result<(), Error> {
        for entry in &list {
            let (Some(folder), Reach::Root(root)) = (&entry.subfolder, &self.reach) else {
                continue;
            };
            root.below(folder).map_err(|error| missing(&entry.id, folder, &error))?;
        }
        *self.allow.write().unwrap_or_else(PoisonError::into_inner) = list.into();
        Ok(())
    }

    /// For the one client that started this process through ssh.
    pub(super) fn of_user() -> Door {
        Door { reach: Reach::User, allow: Shared::default(), read_only: false }
    }

    /// Admits the ids that are allowed anything here at all; [`Class::Unreachable`] for all others.
    pub(super) fn admission(
        &self,
    ) -> impl Fn(&PeerId) -> Result<(), session::Error> + Send + Sync + 'static {
        let allow = self.allow.clone();
        move |peer| allowed(&now(&allow), peer).map(drop).map_err(|error| (&error).into())
    }

    /// Where `path` is for `peer`, if he may go there.
    ///
    /// # Errors
    /// [`Class::Unreachable`] if he may not.
    pub(super) fn place(&self, peer: &PeerId, path: &Path, access: Access) -> Result<Place, Error> {
        let root = match &self.reach {
            Reach::User => return Ok(Place::Ambient(at_home(path, std::env::var_os("HOME")))),
            Reach::Root(root) => root,
        };
        let list = now(&self.allow);
        let allowed = allowed(&list, peer)?;
        let refuse = |what: &str| {
            let what = format!("{peer} may not {what} here");
            Err(Error::new(Class::Unreachable, what).advise("ask who runs the server"))
        };
        match access {
            Access::Read if !allowed.read => return refuse("read"),
            Access::Write if self.read_only || !allowed.write => return refuse("write"),
            Access::Read | Access::Write => {}
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
        let error = Error::new(Class::Unreachable, format!("{peer} is not allowed here"));
        error.advise("start the server with --allow and this id")
    })
}

fn missing(id: &str, folder: &Path, error: &std::io::Error) -> Error {
    let what = format!(
        "cannot open the folder for {id}, {}: {}",
        show(folder.as_os_str().as_bytes()),
        reason(error)
    );
    Error::new(Class::LocalFile, what).advise("make it below the root on the server")
}

/// `~` and what is below it, as the shell behind scp has it; nobody else's home.
fn at_home(path: &Path, home: Option<OsString>) -> PathBuf {
    let below = path.as_os_str().as_bytes().strip_prefix(b"~");
    match (below, home) {
        // What the path ends with says whether a folder or its contents are meant.
        (Some(below), Some(mut home)) if below.is_empty() || below[0] == b'/' => {
            home.push(OsStr::from_bytes(below));
            home.into()
        }
        _ => path.to_owned(),
    }
}

/// `lh://host//x` and `lh://host/x` name the same.
fn relative(path: &Path) -> PathBuf {
    path.strip_prefix("/").unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_is_the_users_own_home_and_nobody_elses() {
        let at = |path: &str| at_home(Path::new(path), Some("/home/u".into())).into_os_string();
        assert_eq!(at("~/x/"), "/home/u/x/");
        assert_eq!(at("~"), "/home/u");
        for plain in ["~u/x", "./~/x", "x/~", "/~", ""] {
            assert_eq!(at(plain), plain);
        }
        assert_eq!(at_home(Path::new("~/x"), None), Path::new("~/x"));
        let home = std::env::var_os("HOME").map_or("~".into(), PathBuf::from);
        let peer = crate::session::Identity::ephemeral().id();
        let place = Door::of_user().place(&peer, Path::new("~/x"), Access::Write).unwrap();
        assert_eq!(place.path(), home.join("x"));
    }
}
