//! Where a copy goes, as `cp` and `scp` have it: into a folder that exists, else the destination
//! names the new file or folder.
//!
//! A folder that a copy names itself would exist when the copy is run again after a kill, and the
//! second run would go into it, one level deeper. So until it is finished, and who asked for the
//! copy has heard so, a mark beside it says that it is this copy's own top.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use crate::error::{Class, Error};
use crate::objects::folders::{self, FileKind, Folders};
use crate::objects::manifest::{self, Kind, Manifest, Shape};
use crate::objects::names;
use crate::objects::place::{Found, Place, file_error, mkdir};

/// The folder that everything goes below.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) manifest: Arc<Manifest>,
    folders: Folders,
    /// What stands for the first component of every path.
    top: Option<Vec<u8>>,
    /// The mark to be removed at the end, in the base folder.
    mark: Option<Vec<u8>>,
    /// The base is to be made and was not, since nothing is to be done.
    pub(super) is_missing: bool,
    /// The destination, for people.
    pub(super) shown: String,
}

impl Ground {
    /// Finds the destination and, unless `dry`, makes its folder where it is to be made.
    pub(super) fn open(
        place: &Place,
        manifest: &Arc<Manifest>,
        dry: bool,
    ) -> Result<Ground, Error> {
        let shown = place.shown();
        let shape = manifest.shape();
        let found = place.find().map_err(|error| unreachable_place(place, &error))?;
        let top_is_folder = manifest.entries().first().is_some_and(|top| top.kind == Kind::Folder);
        let (mut is_missing, mut top, mut mark) = (false, None, None);
        let base = match (found, shape) {
            (Found::Folder(_), Shape::Named) if let Some(mine) = own_top(place, manifest) => {
                let (base, name) = mine;
                mark = Some(names::unfinished(&name));
                top = Some(name);
                base
            }
            (Found::Folder(base), _) => base,
            (Found::Nothing { .. }, Shape::Several) => {
                let what = format!("{shown} is no folder, and several sources go into one");
                return Err(Error::new(Class::LocalFile, what).advise(mkdir(place.path())));
            }
            (Found::Nothing { .. }, Shape::File) if place.says_folder() => {
                let what = format!("the folder {shown} is missing");
                return Err(Error::new(Class::LocalFile, what).advise(mkdir(place.path())));
            }
            (Found::Nothing { parent, .. }, Shape::Contents) if dry => {
                folders::may_write(&parent)
                    .map_err(|error| file_error("make the folder", &shown, &error))?;
                is_missing = true;
                parent
            }
            (Found::Nothing { parent, name }, Shape::Contents) => make_folder(&parent, &name)
                .map_err(|error| file_error("make the folder", &shown, &error))?,
            (Found::Nothing { parent, name }, _) => {
                check_name(&name, &shown)?;
                if dry {
                    folders::may_write(&parent)
                        .map_err(|error| file_error("write", &shown, &error))?;
                } else if top_is_folder {
                    let name = names::unfinished(&name);
                    leave_mark(&parent, &name, manifest)
                        .map_err(|error| file_error("write", &shown, &error))?;
                    mark = Some(name);
                }
                top = Some(name);
                parent
            }
            (Found::Other { parent, name, attributes }, _)
                if !top_is_folder
                    && matches!(shape, Shape::File | Shape::Named)
                    && !place.says_folder()
                    && attributes.kind != FileKind::Other =>
            {
                check_name(&name, &shown)?;
                check_target(place, &shown)?;
                top = Some(name);
                parent
            }
            (Found::Other { attributes, .. }, _) if attributes.kind == FileKind::Other => {
                return Err(no_file("is", &shown));
            }
            (Found::Other { .. }, _) => return Err(no_folder(&shown)),
        };
        let folders = Folders::new(base);
        Ok(Ground { manifest: manifest.clone(), folders, top, mark, is_missing, shown })
    }

    /// The same with handles of its own.
    pub(super) fn another(&self) -> io::Result<Ground> {
        Ok(Ground {
            manifest: self.manifest.clone(),
            folders: Folders::new(self.base().try_clone_to_owned()?),
            top: self.top.clone(),
            mark: None,
            is_missing: self.is_missing,
            shown: self.shown.clone(),
        })
    }

    /// A path of the manifest as it is below the base.
    pub(super) fn path<'a>(&self, path: &'a [u8]) -> Cow<'a, [u8]> {
        match (&self.top, path.iter().position(|b| *b == b'/')) {
            (None, _) => Cow::Borrowed(path),
            (Some(top), None) => Cow::Owned(top.clone()),
            (Some(top), Some(slash)) => Cow::Owned([top, &path[slash..]].concat()),
        }
    }

    pub(super) fn base(&self) -> BorrowedFd<'_> {
        self.folders.base()
    }

    /// The folder that holds an entry, and the entry's name in it.
    pub(super) fn at(&mut self, entry: u32) -> io::Result<(BorrowedFd<'_>, Vec<u8>)> {
        let manifest = self.manifest.clone();
        let path = self.path(&manifest.entries()[entry as usize].path);
        let (folder, name) = manifest::split(&path);
        Ok((self.folders.at(folder)?, name.to_vec()))
    }

    /// The folder that an entry is.
    pub(super) fn folder(&mut self, entry: u32) -> io::Result<BorrowedFd<'_>> {
        let manifest = self.manifest.clone();
        let path = self.path(&manifest.entries()[entry as usize].path);
        self.folders.at(&path)
    }

    /// The mark of a copy that is finished, if it has named its folder.
    pub(super) fn take_mark(&mut self) -> io::Result<Option<Mark>> {
        let Some(name) = self.mark.take() else { return Ok(None) };
        let folder = self.base().try_clone_to_owned()?;
        Ok(Some(Mark { folder, name, shown: self.shown.clone() }))
    }
}

/// What says that a folder is a copy's own, though it is there: as long as that stands, the same
/// copy goes into the same place.
#[derive(Debug)]
pub struct Mark {
    folder: OwnedFd,
    name: Vec<u8>,
    shown: String,
}

impl Mark {
    /// Who asked for the copy knows that it is finished: asked for again, it is another one.
    ///
    /// # Errors
    /// It cannot be removed (`LocalFile`).
    pub fn remove(self) -> Result<(), Error> {
        folders::remove_if_there(&self.folder, &self.name)
            .map_err(|error| file_error("finish", &self.shown, &error))
    }
}

fn unreachable_place(place: &Place, error: &io::Error) -> Error {
    let shown = place.shown();
    if error.kind() == io::ErrorKind::NotFound {
        let parent = place.parent().shown();
        let what = format!("the folder {parent} for {shown} is missing");
        return Error::new(Class::LocalFile, what).advise(mkdir(place.parent().path()));
    }
    file_error("use", &shown, error)
}

/// A destination's name comes from the other side, too.
fn check_name(name: &[u8], shown: &str) -> Result<(), Error> {
    if names::is_reserved(name) {
        let what = format!("the name {shown} is reserved for unfinished copies");
        return Err(Error::new(Class::Usage, what).advise("choose another name"));
    }
    if name.len() > names::NAME_MAX {
        let what = format!("the name {shown} is longer than {} bytes", names::NAME_MAX);
        return Err(Error::new(Class::Usage, what).advise("choose a shorter name"));
    }
    Ok(())
}

/// A link gives way to the copy only where it stands for a file: one to a device or a pipe is how
/// the system names that, and others would miss it.
fn check_target(place: &Place, shown: &str) -> Result<(), Error> {
    if place.is_of_the_system() {
        let what = format!("{shown} is the system's own name of what is open");
        return Err(Error::new(Class::LocalFile, what).advise("copy to the name of a file"));
    }
    let may = place.may_be_replaced().map_err(|error| file_error("replace", shown, &error))?;
    if may { Ok(()) } else { Err(no_file("leads to", shown)) }
}

fn no_folder(shown: &str) -> Error {
    let what = format!("{shown} is there and is no folder");
    Error::new(Class::LocalFile, what).advise("remove it or copy elsewhere")
}

/// The refusal of a destination that `is`, or leads to, what no copy takes the place of.
fn no_file(is: &str, shown: &str) -> Error {
    let what = format!("{shown} {is} a device, socket or pipe, and a copy becomes a file");
    Error::new(Class::LocalFile, what)
        .advise("copy to the name of a file, or measure with --receive fake")
}

fn make_folder(parent: &OwnedFd, name: &[u8]) -> io::Result<OwnedFd> {
    rustix::fs::mkdirat(parent, name, Mode::from_bits_truncate(0o777))?;
    folders::open_folder(parent, name)
}

/// What a mark says: the name of the folder that was copied.
fn mark_of(manifest: &Manifest) -> &[u8] {
    manifest.entries().first().map_or(&[], |top| &top.path)
}

fn leave_mark(parent: &OwnedFd, name: &[u8], manifest: &Manifest) -> io::Result<()> {
    folders::remove_if_there(parent, name)?;
    folders::create(parent, name, 0o600)?.write_all(mark_of(manifest))
}

/// The folder that holds `place` and its name there, if an unfinished copy of the same folder has
/// named it.
fn own_top(place: &Place, manifest: &Manifest) -> Option<(OwnedFd, Vec<u8>)> {
    let name = place.name()?;
    let parent = place.parent().folder().ok()?;
    let mark = names::unfinished(&name);
    let mark: File = folders::open(&parent, &mark, OFlags::RDONLY).ok()?;
    let mut says = Vec::new();
    mark.take(manifest::MAX_PATH as u64).read_to_end(&mut says).ok()?;
    (says == mark_of(manifest)).then_some((parent, name))
}
