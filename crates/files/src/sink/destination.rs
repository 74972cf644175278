//! The location of a copy. As with `cp` and `scp`, a copy goes into an existing folder; otherwise
//! the destination is the name of the new file or folder.
//!
//! A killed copy may have created the named folder. The next run would find an existing folder and
//! copy into it, one level deeper. So a mark (a small file next to the folder) shows that an
//! unfinished copy created the folder. The mark is removed when the copy is finished and its client
//! knows that.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Advice, Error, FileErrorKind};
use crate::folders::Folders;
use crate::manifest::{self, Kind, Manifest, Shape};
use crate::names;
use crate::place::{Found, Place, as_path, file_error};
use crate::store::{Access, Folder, NameKind, SharedFolder};
use longhaul_text::mkdir;

use super::SinkOptions;

/// The base folder of a copy: all entries go below it.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) manifest: Arc<Manifest>,
    folders: Folders,
    /// The base's device number; set when it is first needed.
    device: Option<u64>,
    /// A folder on each other file system that is mounted below the base, by device number.
    mounts: BTreeMap<u64, SharedFolder>,
    /// The name that replaces the first component of every path.
    top: Option<Vec<u8>>,
    /// The mark to remove at the end of the copy, in the base folder.
    mark: Option<Vec<u8>>,
    /// Whether the base is missing and was not created, because of a dry run.
    pub(super) is_missing: bool,
    /// Whether the name of the base may be missing on disk: this copy has created the base, or the
    /// base's parent folder could not be synced.
    pub(super) has_new_base: bool,
    /// Why a sync of names failed, if one did: later syncs do not prove that these names are on
    /// disk.
    pub(super) names_lost: Option<String>,
    pub(super) place: PathBuf,
}

impl Ground {
    /// Finds the destination as [`Ground::open`] does. With `make_path`, first creates the missing
    /// parents of the destination. For several sources, and for one file if
    /// [`Place::says_folder`] is true, it also creates the destination, as a folder.
    pub(super) fn open_or_make(
        place: &Place,
        manifest: &Arc<Manifest>,
        options: &SinkOptions,
    ) -> Result<Ground, Error> {
        if options.make_path {
            let (goes_inside, top) = match manifest.shape() {
                Shape::Several => (true, None),
                Shape::File if place.says_folder() => (true, None),
                Shape::File | Shape::Named => (false, place.name()),
                Shape::Contents => (false, None),
            };
            let last = if goes_inside { place.clone() } else { place.parent() };
            if let Some(base) = make_path(&last, options.dry_run)? {
                let ground = Ground::below(base, place, manifest);
                return Ok(Ground { top, is_missing: true, ..ground });
            }
        }
        Ground::open(place, manifest, options.dry_run)
    }

    /// Finds the destination. If the destination is missing and `dry` is false, creates the folder
    /// for the contents of a source folder, or the mark of a folder that the copy creates later.
    pub(super) fn open(
        place: &Place,
        manifest: &Arc<Manifest>,
        dry: bool,
    ) -> Result<Ground, Error> {
        match place.find().map_err(|error| unreachable_place(place, &error))? {
            Found::Folder(base) => Ok(Ground::in_folder(place, manifest, dry, base)),
            Found::Nothing { parent, name } => Ground::anew(place, manifest, dry, parent, name),
            Found::Other { parent, name, attributes } => {
                Ground::instead(place, manifest, parent, name, attributes.kind)
            }
        }
    }

    fn below(base: SharedFolder, place: &Place, manifest: &Arc<Manifest>) -> Ground {
        Ground {
            manifest: manifest.clone(),
            folders: Folders::new(base),
            device: None,
            mounts: BTreeMap::new(),
            top: None,
            mark: None,
            is_missing: false,
            has_new_base: false,
            names_lost: None,
            place: place.named().to_owned(),
        }
    }

    /// Returns the ground of a copy whose destination is a folder. If an unfinished copy of the
    /// same source has created the folder, this copy continues the unfinished one. Otherwise it
    /// goes into the folder.
    fn in_folder(place: &Place, manifest: &Arc<Manifest>, dry: bool, base: SharedFolder) -> Ground {
        if manifest.shape() == Shape::Named
            && let Some((parent, name)) = own_top(place, manifest)
        {
            let mark = Some(names::unfinished(&name));
            return Ground { top: Some(name), mark, ..Ground::below(parent, place, manifest) };
        }
        // A killed run may have created the base without a sync. Sync its name now: a power failure
        // would otherwise remove the base with all its entries.
        let has_new_base = !dry
            && manifest.shape() == Shape::Contents
            && place.parent().folder().and_then(|parent| parent.sync()).is_err();
        let mut ground = Ground { has_new_base, ..Ground::below(base, place, manifest) };
        if manifest.is_single() {
            ground.place = place.path().join(as_path(&manifest.path(0)));
        }
        ground
    }

    /// Returns the ground of a copy whose destination does not exist: `name` is the name of the new
    /// file or folder.
    fn anew(
        place: &Place,
        manifest: &Arc<Manifest>,
        dry: bool,
        parent: SharedFolder,
        name: Vec<u8>,
    ) -> Result<Ground, Error> {
        let shown = place.shown();
        let refuse = |what| {
            let error = Error::new(FileErrorKind::File, what).at(place.named());
            Err(error.advise(mkdir(place.path())))
        };
        let cannot = |verb| move |error| file_error(verb, place.named(), &error);
        match manifest.shape() {
            Shape::Several => {
                return refuse(format!(
                    "{shown} is not a folder, but several sources need one as destination"
                ));
            }
            Shape::File if place.says_folder() => {
                return refuse(format!("the folder {shown} is missing"));
            }
            Shape::Contents if dry => {
                parent.may_write().map_err(cannot("make the folder"))?;
                return Ok(Ground { is_missing: true, ..Ground::below(parent, place, manifest) });
            }
            Shape::Contents => {
                let base = make_folder(&*parent, &name, manifest);
                let base = base.map_err(cannot("make the folder"))?;
                return Ok(Ground { has_new_base: true, ..Ground::below(base, place, manifest) });
            }
            Shape::File | Shape::Named => check_name(&name, place)?,
        }
        let mut mark = None;
        if dry {
            parent.may_write().map_err(cannot("write"))?;
        } else if is_top_a_folder(manifest) {
            let name = names::unfinished(&name);
            leave_mark(&*parent, &name, manifest).map_err(cannot("write"))?;
            mark = Some(name);
        }
        Ok(Ground { top: Some(name), mark, ..Ground::below(parent, place, manifest) })
    }

    /// Returns the ground of a copy whose destination exists and is not a folder. A copy of one
    /// file or link may replace a file or link; all other combinations are errors.
    fn instead(
        place: &Place,
        manifest: &Arc<Manifest>,
        parent: SharedFolder,
        name: Vec<u8>,
        kind: NameKind,
    ) -> Result<Ground, Error> {
        if kind.is_special() {
            return Err(no_file("is", place));
        }
        let is_one = matches!(manifest.shape(), Shape::File | Shape::Named);
        if !is_one || is_top_a_folder(manifest) || place.says_folder() {
            return Err(no_folder(place));
        }
        check_name(&name, place)?;
        check_target(place)?;
        Ok(Ground { top: Some(name), ..Ground::below(parent, place, manifest) })
    }

    /// Returns a ground with separate handles and without the mark.
    pub(super) fn another(&self) -> Ground {
        Ground {
            manifest: self.manifest.clone(),
            folders: Folders::new(self.base().clone()),
            device: None,
            mounts: BTreeMap::new(),
            top: self.top.clone(),
            mark: None,
            is_missing: self.is_missing,
            has_new_base: false,
            names_lost: None,
            place: self.place.clone(),
        }
    }

    pub(super) fn path<'a>(&self, path: &'a [u8]) -> Cow<'a, [u8]> {
        match (&self.top, path.iter().position(|b| *b == b'/')) {
            (None, _) => Cow::Borrowed(path),
            (Some(top), None) => Cow::Owned(top.clone()),
            (Some(top), Some(slash)) => Cow::Owned([top, &path[slash..]].concat()),
        }
    }

    pub(super) fn base(&self) -> &SharedFolder {
        self.folders.base()
    }

    pub(super) fn at(&mut self, entry: u32) -> io::Result<(&dyn Folder, Vec<u8>)> {
        let manifest = self.manifest.clone();
        let path = manifest.path(entry);
        let path = self.path(&path);
        let (folder, name) = manifest::split(&path);
        Ok((self.folders.at(folder)?, name.to_vec()))
    }

    pub(super) fn folder(&mut self, entry: u32) -> io::Result<&dyn Folder> {
        let manifest = self.manifest.clone();
        let path = manifest.path(entry);
        let path = self.path(&path);
        self.folders.at(&path)
    }

    /// Records the file system of an existing folder, for [`Ground::sync_file_systems`].
    pub(super) fn note_device(&mut self, entry: u32, device: u64) -> io::Result<()> {
        let base = match self.device {
            Some(base) => base,
            None => *self.device.insert(self.base().attributes()?.identity.0),
        };
        if device != base && !self.mounts.contains_key(&device) {
            let (folder, name) = self.at(entry)?;
            let mounted = folder.open_folder(&name)?;
            self.mounts.insert(device, mounted);
        }
        Ok(())
    }

    /// Syncs the base's file system, and those that are mounted below the base.
    pub(super) fn sync_file_systems(&self) -> io::Result<()> {
        let folders = std::iter::once(self.base()).chain(self.mounts.values());
        folders.map(|folder| folder.sync_file_system()).fold(Ok(()), io::Result::and)
    }

    /// Records a failed sync of names.
    pub(super) fn lose_names(&mut self, error: &io::Error) {
        self.names_lost.get_or_insert_with(|| longhaul_text::reason(error));
    }

    pub(super) fn take_mark(&mut self) -> Option<Mark> {
        let name = self.mark.take()?;
        Some(Mark { folder: self.base().clone(), name, place: self.place.clone() })
    }
}

/// The mark of a folder that a copy has created. While the mark exists, a repeated copy writes into
/// the same folder.
#[derive(Debug)]
pub struct Mark {
    folder: SharedFolder,
    name: Vec<u8>,
    place: PathBuf,
}

impl Mark {
    /// Removes the mark. Call this after the client knows that the copy is finished: after the
    /// removal, the next request is a new copy.
    ///
    /// # Errors
    /// The mark cannot be removed (`File`).
    pub fn remove(self) -> Result<(), Error> {
        self.folder.remove(&self.name).map_err(|error| file_error("finish", &self.place, &error))
    }
}

/// Creates the folder `place` and its missing parents.
///
/// # Errors
/// A folder cannot be created or synced (`File`). The path is too long, or a missing folder's name
/// is reserved or too long (`Request`).
pub fn make_folders(place: &Place) -> Result<(), Error> {
    make_path(place, false).map(drop)
}

/// Creates the folder `place` and its missing parents. With `dry`, creates nothing and, if a folder
/// is missing, returns the innermost existing folder.
fn make_path(place: &Place, dry: bool) -> Result<Option<SharedFolder>, Error> {
    let cannot = |place: &Place, error| file_error("make the folder", place.named(), &error);
    if place.path().as_os_str().len() > manifest::MAX_PATH {
        let what = "a destination longer than 4096 bytes";
        return Err(Error::new(FileErrorKind::Request, what).advise("choose a shorter path"));
    }
    let mut missing = vec![place.clone()];
    let (mut found, mut at) = (place.find(), place.clone());
    while matches!(&found, Err(error) if error.kind() == io::ErrorKind::NotFound)
        && !at.path().as_os_str().is_empty()
    {
        at = at.parent();
        found = at.find();
        missing.push(at.clone());
    }
    for place in missing.into_iter().rev() {
        let (parent, name) = match place.find().map_err(|e| cannot(&place, e))? {
            Found::Nothing { parent, name } => (parent, name),
            // A killed run may have created the folder without a sync.
            Found::Folder(folder) if !dry => {
                let synced = place.parent().folder().and_then(|parent| parent.sync());
                let synced = synced.or_else(|_| folder.sync_file_system());
                synced.map_err(|error| cannot(&place, error))?;
                continue;
            }
            Found::Folder(_) | Found::Other { .. } => continue,
        };
        check_name(&name, &place)?;
        if dry {
            parent.may_write().map_err(|error| cannot(&place, error))?;
            return Ok(Some(parent));
        }
        // Another copy may create the folder first.
        if let Err(error) = parent.make_folder(&name, 0o777)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(cannot(&place, error));
        }
        // A power failure must not remove the folder with its entries.
        parent.sync().map_err(|error| cannot(&place, error))?;
    }
    Ok(None)
}

fn unreachable_place(place: &Place, error: &io::Error) -> Error {
    let shown = place.shown();
    if error.kind() == io::ErrorKind::NotFound {
        let parent = place.parent().shown();
        let what = format!("the folder {parent} for {shown} is missing");
        let error = Error::new(FileErrorKind::File, what).at(place.named());
        return error.advise(mkdir(place.parent().path()));
    }
    file_error("use", place.named(), error)
}

fn check_name(name: &[u8], place: &Place) -> Result<(), Error> {
    let shown = place.shown();
    let refuse = |what| Error::new(FileErrorKind::Request, what).at(place.named());
    if names::is_reserved(name) {
        let what = format!("the name {shown} is reserved for unfinished copies");
        return Err(refuse(what).advise("choose another name"));
    }
    if name.len() > names::NAME_MAX {
        let what = format!("the name {shown} is longer than {} bytes", names::NAME_MAX);
        return Err(refuse(what).advise("choose a shorter name"));
    }
    Ok(())
}

/// Checks that a link leads to a file or to nothing; only such a link may be replaced.
fn check_target(place: &Place) -> Result<(), Error> {
    if place.is_of_the_system() {
        let what = format!("{} is the system's name for an open file", place.shown());
        let error = Error::new(FileErrorKind::File, what).at(place.named());
        return Err(error.advise("copy to the name of a file"));
    }
    let may = place.may_be_replaced();
    let may = may.map_err(|error| file_error("replace", place.named(), &error))?;
    if may { Ok(()) } else { Err(no_file("leads to", place)) }
}

fn no_folder(place: &Place) -> Error {
    let what = format!("{} exists and is not a folder", place.shown());
    Error::new(FileErrorKind::File, what).at(place.named()).advise("remove it or copy elsewhere")
}

/// Returns the error for a device, socket or pipe. `is` is the verb of the text.
fn no_file(is: &str, place: &Place) -> Error {
    let shown = place.shown();
    let what = format!("{shown} {is} a device, socket or pipe, and a copy creates a file");
    Error::new(FileErrorKind::File, what).at(place.named()).advise(Advice::FileOrMeasure)
}

fn is_top_a_folder(manifest: &Manifest) -> bool {
    manifest.entries().first().is_some_and(|top| top.kind == Kind::Folder)
}

/// Creates the folder for the content of the source folder. The new folder has the source's mode
/// minus the umask, but its owner can always write.
fn make_folder(parent: &dyn Folder, name: &[u8], manifest: &Manifest) -> io::Result<SharedFolder> {
    let mode = manifest.folder_mode().unwrap_or(0o777) & 0o777;
    parent.make_folder(name, mode | 0o700)?;
    parent.open_folder(name)
}

/// Returns the content of a mark: the name of the copied folder.
fn mark_of(manifest: &Manifest) -> &[u8] {
    manifest.entries().first().map_or(&[], |_| manifest.name(0))
}

fn leave_mark(parent: &dyn Folder, name: &[u8], manifest: &Manifest) -> io::Result<()> {
    parent.remove(name)?;
    let mark = parent.create(name, 0o600)?;
    mark.write_all_at(mark_of(manifest), 0)?;
    // A power failure must not leave the folder without its mark.
    mark.sync_all()?;
    parent.sync()
}

/// Returns the parent folder of `place`, and the last name of its path, if an unfinished copy of
/// the same folder has created `place`.
fn own_top(place: &Place, manifest: &Manifest) -> Option<(SharedFolder, Vec<u8>)> {
    let name = place.name()?;
    let parent = place.parent().folder().ok()?;
    let mark = names::unfinished(&name);
    let mark = parent.open(&mark, Access::Read).ok()?;
    let says = mark.read_start(manifest::MAX_PATH as u64).ok()?;
    (says == mark_of(manifest)).then_some((parent, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::FileTime;
    use crate::store::buffers::Store;
    use crate::store::memory::{Disk, Faults};

    #[test]
    fn an_existing_folder_for_contents_counts_as_new_if_its_name_cannot_be_synced() {
        let disk = Disk::new(1);
        disk.root().make_folder(b"t", 0o755).unwrap();
        let place = Place::Stored { root: Store(disk.root()), path: "t".into() };
        for (shape, dry, folder_sync, is_new) in [
            (Shape::Contents, false, 10_000, true),
            (Shape::Contents, false, 0, false),
            (Shape::Contents, true, 10_000, false),
            (Shape::Several, false, 10_000, false),
        ] {
            disk.set_faults(Faults { folder_sync, ..Faults::default() });
            let manifest = Arc::new(Manifest::new(shape, Vec::new()).unwrap());
            let ground = Ground::open(&place, &manifest, dry).unwrap();
            assert_eq!(ground.has_new_base, is_new, "{shape:?} {dry} {folder_sync}");
        }
    }

    #[test]
    fn making_a_path_syncs_the_name_of_an_existing_folder_except_in_a_dry_run() {
        let disk = Disk::new(1);
        disk.root().make_folder(b"t", 0o755).unwrap();
        let place = Place::Stored { root: Store(disk.root()), path: "t".into() };
        make_path(&place, true).unwrap();
        assert!(!disk.tree(true).contains_key(&b"t"[..]), "a dry run syncs nothing");
        make_path(&place, false).unwrap();
        assert!(disk.tree(true).contains_key(&b"t"[..]));
    }

    #[test]
    fn a_name_of_255_bytes_and_a_path_of_4096_are_the_longest() {
        let place = Place::Ambient("x".into());
        assert!(check_name(&[b'x'; 255], &place).is_ok());
        for name in [&[b'x'; 256][..], b".x.lh-part"] {
            assert_eq!(check_name(name, &place).unwrap_err().kind, FileErrorKind::Request);
        }
        let made = |len| make_folders(&Place::Ambient("x".repeat(len).into())).unwrap_err().kind;
        // The system refuses the path of 4096 bytes, the check refuses the longer path.
        assert_eq!((made(4096), made(4097)), (FileErrorKind::File, FileErrorKind::Request));
    }

    #[test]
    fn the_name_of_the_destination_replaces_the_first_component() {
        let top = tempfile::tempdir().unwrap();
        let manifest = Arc::new(Manifest::of_file(b"x", 1, FileTime::default(), 0).unwrap());
        let place = Place::Ambient(top.path().join("new"));
        let mut ground = Ground::open(&place, &manifest, true).unwrap();
        let path = |ground: &Ground, path: &str| ground.path(path.as_bytes()).into_owned();
        assert_eq!(
            (path(&ground, "a"), path(&ground, "a/b/c")),
            (b"new".to_vec(), b"new/b/c".to_vec())
        );
        ground.top = None;
        assert_eq!(path(&ground, "a/b/c"), b"a/b/c");
    }

    #[test]
    fn the_folder_for_contents_has_the_mode_of_the_source_and_its_owner_may_write() {
        let top = tempfile::tempdir().unwrap();
        let parent = Place::Ambient(top.path().to_owned()).folder().unwrap();
        for (name, mode, made) in
            [(b"a", Some(0o2055), 0o755), (b"b", Some(0o755), 0o755), (b"c", None, 0o777)]
        {
            let manifest = Manifest::new(Shape::Contents, Vec::new()).unwrap();
            make_folder(&*parent, name, &manifest.with_folder_mode(mode)).unwrap();
            assert_eq!(parent.look(name).unwrap().mode, made & !parent.withheld(), "{mode:?}");
        }
    }
}
