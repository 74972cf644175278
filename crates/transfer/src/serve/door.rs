//! What an id may reach.

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
            Reach::User => return Ok(Place::Ambient(path.to_owned())),
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

/// `lh://host//x` and `lh://host/x` name the same.
fn relative(path: &Path) -> PathBuf {
    path.strip_prefix("/").unwrap_or(path).to_owned()
}
