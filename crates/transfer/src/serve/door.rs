//! What an id may reach.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use crate::error::{Class, Error};
use crate::objects::Place;
use crate::options::{Allow, ServeOptions};
use crate::session::{PeerId, allow};

/// A served folder and who may use it.
pub(super) struct Door {
    reach: Reach,
    allow: Vec<Allow>,
    read_only: bool,
}

enum Reach {
    /// Only what lies below this folder.
    Root(Arc<Dir>),
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
    /// [`Class::LocalFile`] if it is no folder that can be opened.
    pub(super) fn open(options: &ServeOptions) -> Result<Door, Error> {
        let root = Dir::open_ambient_dir(&options.root, ambient_authority()).map_err(|error| {
            let what = format!("cannot serve {}: {error}", options.root.display());
            Error::new(Class::LocalFile, what).advise("name a folder that exists with --root")
        })?;
        Ok(Door {
            reach: Reach::Root(Arc::new(root)),
            allow: options.allow.clone(),
            read_only: options.read_only,
        })
    }

    /// For the one client that started this process through ssh.
    pub(super) fn of_user() -> Door {
        Door { reach: Reach::User, allow: Vec::new(), read_only: false }
    }

    /// Lets in whoever is allowed anything here at all.
    ///
    /// # Errors
    /// [`Class::Unreachable`] for all others.
    pub(super) fn admit(&self, peer: &PeerId) -> Result<(), Error> {
        match &self.reach {
            Reach::User => Ok(()),
            Reach::Root(_) => self.allowed(peer).map(drop),
        }
    }

    fn allowed(&self, peer: &PeerId) -> Result<&Allow, Error> {
        allow::find(&self.allow, peer).ok_or_else(|| {
            let error = Error::new(Class::Unreachable, format!("{peer} is not allowed here"));
            error.advise("start the server with --allow and this id")
        })
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
        let allowed = self.allowed(peer)?;
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
            Some(folder) => Arc::new(root.open_dir(folder).map_err(|error| {
                let what = format!("the folder for {peer}, {}: {error}", folder.display());
                Error::new(Class::LocalFile, what).advise("make it on the server")
            })?),
        };
        Ok(Place::Within { root, path: relative(path) })
    }
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
