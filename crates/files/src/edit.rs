//! Creates, replaces, renames and removes single files and folders below a root. Each change is
//! atomic for readers, with two exceptions: the removal of a folder with content, and a replacement
//! in which the old or the new entry is a folder. A name that is reserved for partial files is
//! refused with `PermissionDenied`, a path without a name with `InvalidInput`.

use std::io;
use std::path::Path;

use super::list::{self, NameKind, Named};
use super::names;
use super::place::{Found, Place, as_path, show};
use super::store::{self, Folder, OpenFile, SharedFolder, unless_refused};

/// Returns the attributes of `place`; follows links as far as the place allows.
///
/// # Errors
/// `NotFound`; `NotADirectory` if the path has the form of a folder (such as `a/`) but no folder is
/// there; or the system's error.
pub fn look(place: &Place) -> io::Result<Named> {
    let name = || place.name().unwrap_or_default();
    match place.find_at_end()? {
        Found::Folder(folder) => Ok(list::named(name(), &folder.attributes()?)),
        Found::Other { .. } if place.says_folder() => Err(store::not_a_folder()),
        Found::Other { attributes, .. } => Ok(list::named(name(), &attributes)),
        Found::Nothing { .. } => Err(store::not_found()),
    }
}

fn parent_and_name(place: &Place) -> io::Result<(SharedFolder, Vec<u8>)> {
    let name = place.name().ok_or(io::ErrorKind::InvalidInput)?;
    if names::is_reserved(&name) {
        let what = "the name is reserved for partial files";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok((place.parent().folder()?, name))
}

/// A file that is written under a temporary name until it is complete. Until then, only its owner
/// can read it. Dropping this value earlier removes the file.
#[derive(Debug)]
pub struct NewFile {
    folder: SharedFolder,
    name: Vec<u8>,
    partial: Option<Vec<u8>>,
    file: OpenFile,
    written: u64,
}

impl NewFile {
    /// Creates a file that will be at `place`, in an existing folder.
    ///
    /// # Errors
    /// `IsADirectory` if `place` is a folder; else the system's error.
    pub fn begin(place: &Place) -> io::Result<NewFile> {
        let (folder, name) = parent_and_name(place)?;
        if folder.look_if_there(&name)?.is_some_and(|there| there.kind == NameKind::Folder) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let partial = names::unique(&name);
        let file = folder.create(&partial, 0o600)?;
        Ok(NewFile { folder, name, partial: Some(partial), file, written: 0 })
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.written)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Gives the file its final mode, syncs it and gives it its name. Calls `judge` directly before
    /// the rename, and removes the file if `judge` returns `None`. Keeps the value of `judge`, such
    /// as a lock, until the file has its name. Returns whether the file has its name.
    ///
    /// # Errors
    /// `AlreadyExists` if the name exists and `replaces` is false; the error of `judge`, or the
    /// system's error. An existing file stays unchanged, with one exception: if only the sync of
    /// the folder fails, the new file has already replaced it.
    pub fn finish_if<T>(
        mut self,
        replaces: bool,
        judge: impl FnOnce() -> io::Result<Option<T>>,
    ) -> io::Result<bool> {
        let mode = self.folder.permissions(&self.name)?;
        let mode = mode.unwrap_or_else(|| 0o666 & !self.folder.withheld());
        unless_refused(self.file.set_mode(mode))?;
        self.file.sync_all()?;
        let partial = self.partial.as_deref().ok_or_else(store::not_found)?;
        let Some(kept) = judge()? else { return Ok(false) };
        match replaces {
            true => self.folder.rename(partial, &self.name)?,
            false => self.folder.rename_new(partial, &self.name)?,
        }
        drop(kept);
        self.partial = None;
        self.folder.sync().map(|()| true)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // If the removal fails, copies skip the file, because its name is reserved.
            let _ = self.folder.remove(partial);
        }
    }
}

/// Creates the folder at `place`.
///
/// # Errors
/// `AlreadyExists`, `NotFound` if the parent folder is missing, or the system's error.
pub fn make_folder(place: &Place) -> io::Result<()> {
    let (folder, name) = parent_and_name(place)?;
    folder.make_folder(&name, 0o777)?;
    folder.sync()
}

/// Removes a file, a link, or a folder with its content. Follows links on the way to `place`, but
/// not a link at `place`.
///
/// # Errors
/// `NotFound`, or the system's error. Part of a folder may have been removed before the error.
pub fn remove(place: &Place) -> io::Result<()> {
    let (folder, name) = parent_and_name(place)?;
    remove_in(&folder, &name, place)
}

/// `place` is the path of the entry.
fn remove_in(folder: &SharedFolder, name: &[u8], place: &Place) -> io::Result<()> {
    match folder.look(name)?.kind {
        NameKind::Folder => match place {
            Place::Within { root, path } => root.remove_tree(path)?,
            _ => return Err(io::ErrorKind::Unsupported.into()),
        },
        _ => folder.remove(name)?,
    }
    folder.sync()
}

/// Renames `from` to `to` below the same root, replacing an existing file.
///
/// # Errors
/// The system's error: a folder at `to` must be empty, and a folder cannot move into itself.
pub fn rename(from: &Place, to: &Place) -> io::Result<()> {
    sync(&rename_unsynced(from, to, true)?)
}

/// As [`rename`], but replaces nothing.
///
/// # Errors
/// `AlreadyExists` if something has the name of `to`, even a link to nothing; or the system's
/// error.
pub fn rename_new(from: &Place, to: &Place) -> io::Result<()> {
    sync(&rename_unsynced(from, to, false)?)
}

fn sync(folders: &[SharedFolder]) -> io::Result<()> {
    folders.iter().try_for_each(|folder| folder.sync())
}

/// Returns the folders whose entries have changed.
fn rename_unsynced(from: &Place, to: &Place, replaces: bool) -> io::Result<[SharedFolder; 2]> {
    let (source, name) = parent_and_name(from)?;
    source.look(&name)?;
    let (folder, name) = parent_and_name(to)?;
    let (Place::Within { root, path: old }, Place::Within { path, .. }) = (from, to) else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    // The new path has no trailing slash, which would require a folder.
    let new = path.parent().unwrap_or(Path::new("")).join(as_path(&name));
    match replaces {
        true => root.rename_below(old, &new)?,
        false => root.rename_new_below(old, &new)?,
    }
    Ok([folder, source])
}

/// Replaced content that could not be removed.
#[derive(Debug)]
pub struct Remains {
    /// The hidden name of the content, next to the destination.
    pub name: String,
    /// Why it could not be removed.
    pub error: io::Error,
}

/// A replacement that failed.
#[derive(Debug)]
pub struct ReplaceError {
    /// Why it failed.
    pub error: io::Error,
    /// Whether the new content has its name, and only a sync failed: a power failure may bring the
    /// earlier content back.
    pub is_replaced: bool,
    /// The hidden name of the earlier content, next to the destination. `None` if it has no such
    /// name.
    pub hidden: Option<String>,
}

impl From<io::Error> for ReplaceError {
    fn from(error: io::Error) -> ReplaceError {
        ReplaceError { error, is_replaced: false, hidden: None }
    }
}

/// Renames `from` to `to` below the same root, replacing a file, or a folder and its content.
/// If the replaced content cannot be removed, the call still succeeds and returns its hidden name.
///
/// # Errors
/// The system's error. Everything at `to` is unchanged, unless the error's `is_replaced` is true or
/// its `hidden` names the earlier content.
pub fn replace(from: &Place, to: &Place) -> Result<Option<Remains>, ReplaceError> {
    let (folder, name) = parent_and_name(to)?;
    // rename(2) cannot replace a file by a folder, a folder by a file, or a folder that has
    // content. So the old content gets a hidden name first. Nothing is lost if `from` is in the
    // old content, or if the rename fails for another reason.
    let is_folder = |place: &Place| io::Result::Ok(look(place)?.kind == NameKind::Folder);
    if !is_folder(from)? && folder.look(&name)?.kind != NameKind::Folder {
        sync_replaced(&rename_unsynced(from, to, true)?, None)?;
        return Ok(None);
    }
    let old = names::unique(&name);
    folder.rename(&name, &old)?;
    put_in_place(&*folder, &name, &old, || rename_unsynced(from, to, false))?;
    let remains = |error| Remains { name: show(&old), error };
    Ok(remove_in(&folder, &old, &to.parent().join(&old)).map_err(remains).err())
}

/// Syncs `folders` after a replacement. `hidden` is the hidden name of the earlier content.
fn sync_replaced(folders: &[SharedFolder], hidden: Option<String>) -> Result<(), ReplaceError> {
    sync(folders).map_err(|error| ReplaceError { error, is_replaced: true, hidden })
}

/// Calls `put`, which gives new content the name `name`, and syncs the folders that `put` returns.
/// The earlier content has the hidden name `old`; it gets its name back if `put` fails.
fn put_in_place(
    folder: &dyn Folder,
    name: &[u8],
    old: &[u8],
    put: impl FnOnce() -> io::Result<[SharedFolder; 2]>,
) -> Result<(), ReplaceError> {
    let hidden = Some(show(old));
    match put() {
        Ok(folders) => sync_replaced(&folders, hidden),
        Err(error) => {
            let hidden = hidden.filter(|_| folder.rename_new(old, name).is_err());
            Err(ReplaceError { error, is_replaced: false, hidden })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use longhaul_testbed::need;
    use longhaul_testbed::skip;

    use super::*;
    use crate::Root;

    fn at(top: &Path, path: &str) -> Place {
        Place::Within { root: Root::open(top).unwrap(), path: path.into() }
    }

    fn names(top: &Path) -> Vec<String> {
        let names = fs::read_dir(top).unwrap();
        let mut names: Vec<String> =
            names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_file_gets_its_name_when_complete_and_a_dropped_one_is_removed() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        fs::write(top.join("file"), "old").unwrap();
        fs::set_permissions(top.join("file"), fs::Permissions::from_mode(0o640)).unwrap();
        let mut new = NewFile::begin(&at(top, "file")).unwrap();
        new.write(b"ne").unwrap();
        assert_eq!(fs::read(top.join("file")).unwrap(), b"old");
        new.write(b"w").unwrap();
        assert!(new.finish_if(true, || Ok(Some(()))).unwrap());
        assert_eq!(fs::read(top.join("file")).unwrap(), b"new");
        assert_eq!(fs::metadata(top.join("file")).unwrap().permissions().mode() & 0o777, 0o640);
        let mut left = NewFile::begin(&at(top, "other")).unwrap();
        left.write(b"half").unwrap();
        assert_eq!(names(top).len(), 2);
        drop(left);
        assert_eq!(names(top), ["file"]);
    }

    #[test]
    fn no_change_reaches_outside_the_root_or_touches_a_reserved_name() {
        let (top, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("kept"), "k").unwrap();
        let top = top.path();
        symlink(outside.path(), top.join("out")).unwrap();
        fs::create_dir(top.join("folder")).unwrap();
        symlink(outside.path(), top.join("folder/out")).unwrap();
        fs::write(top.join("file"), "f").unwrap();
        for path in ["out/new", "../new", "", "..", "out/../../new", ".x.lh-part", "none/new"] {
            assert!(NewFile::begin(&at(top, path)).is_err(), "{path}");
            assert!(make_folder(&at(top, path)).is_err(), "{path}");
            assert!(remove(&at(top, path)).is_err(), "{path}");
            assert!(rename(&at(top, "file"), &at(top, path)).is_err(), "{path}");
        }
        assert!(rename(&at(top, "out/kept"), &at(top, "kept")).is_err());
        assert!(NewFile::begin(&at(top, "folder")).is_err());
        assert!(rename(&at(top, "folder"), &at(top, "folder/in")).is_err());
        remove(&at(top, "folder")).unwrap();
        remove(&at(top, "out")).unwrap();
        assert_eq!(names(outside.path()), ["kept"]);
        assert_eq!(names(top), ["file"]);
    }

    #[test]
    fn a_new_file_is_private_until_it_is_complete() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        fs::write(top.join("old"), "old").unwrap();
        fs::set_permissions(top.join("old"), fs::Permissions::from_mode(0o4644)).unwrap();
        symlink("nowhere", top.join("link")).unwrap();
        fs::write(top.join("plain"), "").unwrap();
        let mode = |name: &str| fs::metadata(top.join(name)).unwrap().permissions().mode() & 0o7777;
        for (name, last) in [("old", 0o644), ("new", mode("plain")), ("link", mode("plain"))] {
            let mut new = NewFile::begin(&at(top, name)).unwrap();
            new.write(b"secret").unwrap();
            assert_eq!(new.file.attributes().unwrap().mode, 0o600, "{name}");
            assert!(new.finish_if(true, || Ok(Some(()))).unwrap());
            assert_eq!(mode(name), last, "{name}");
        }
    }

    #[test]
    fn replacing_a_folder_removes_its_content_and_a_failed_replacement_keeps_it() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        let fill = |path: &str, text: &str| {
            let path = top.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        fill("old/deep/file", "old");
        fill("new/file", "new");
        replace(&at(top, "new"), &at(top, "old/")).unwrap();
        assert_eq!(names(&top.join("old")), ["file"]);
        assert_eq!(names(top), ["old"]);
        fill("plain", "p");
        replace(&at(top, "plain"), &at(top, "old")).unwrap();
        assert_eq!(fs::read(top.join("old")).unwrap(), b"p");
        fill("newer/file", "newer");
        replace(&at(top, "newer"), &at(top, "old")).unwrap();
        assert_eq!(names(&top.join("old")), ["file"]);
        // `link/file` is a file in `folder`, so the source is inside the destination.
        fill("folder/file", "kept");
        symlink("folder", top.join("link")).unwrap();
        assert!(replace(&at(top, "link/file"), &at(top, "folder")).is_err());
        assert!(replace(&at(top, "none"), &at(top, "folder")).is_err());
        assert_eq!(fs::read(top.join("folder/file")).unwrap(), b"kept");
        assert_eq!(names(top), ["folder", "link", "old"]);
    }

    #[test]
    fn replaced_content_that_cannot_be_removed_is_reported_by_name_and_the_move_succeeds() {
        let is_root = rustix::process::geteuid().is_root();
        need!(skip::unless(!is_root, "root may remove everything"));
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        fs::create_dir_all(top.join("old/locked")).unwrap();
        fs::write(top.join("old/locked/file"), "old").unwrap();
        fs::write(top.join("new"), "new").unwrap();
        let lock = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        lock(&top.join("old/locked"), 0o500);
        let remains = replace(&at(top, "new"), &at(top, "old")).unwrap().unwrap();
        assert_eq!(remains.error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(fs::read(top.join("old")).unwrap(), b"new");
        assert_eq!(names(top), [remains.name.as_str(), "old"]);
        lock(&top.join(&remains.name).join("locked"), 0o700);
    }

    #[test]
    fn a_failed_replacement_restores_the_earlier_content_or_tells_its_hidden_name() {
        use crate::store::memory::{Disk, Faults};
        for (sync_fails, is_taken, hidden) in
            [(false, false, false), (false, true, true), (true, true, true)]
        {
            let disk = Disk::new(1);
            let root = disk.root();
            root.create(b"old", 0o600).unwrap();
            let put = || {
                if is_taken {
                    root.create(b"name", 0o600).unwrap();
                }
                if sync_fails {
                    disk.set_faults(Faults { folder_sync: 10_000, ..Faults::default() });
                    return Ok([root.clone(), root.clone()]);
                }
                Err(io::ErrorKind::PermissionDenied.into())
            };
            let failed = put_in_place(&*root, b"name", b"old", put).unwrap_err();
            assert_eq!(failed.hidden.as_deref(), hidden.then_some("old"));
            assert_eq!(failed.is_replaced, sync_fails);
            assert_eq!(root.look_if_there(b"old").unwrap().is_some(), hidden);
            assert!(root.look_if_there(b"name").unwrap().is_some());
        }
    }

    #[test]
    fn an_error_of_a_replacement_says_whether_the_file_is_replaced() {
        use crate::store::memory::{Disk, Faults};
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("old"), "old").unwrap();
        let unchanged = replace(&at(top.path(), "none"), &at(top.path(), "old")).unwrap_err();
        assert!(!unchanged.is_replaced && unchanged.hidden.is_none());
        let disk = Disk::new(1);
        disk.set_faults(Faults { folder_sync: 10_000, ..Faults::default() });
        let unsynced = sync_replaced(&[disk.root()], None).unwrap_err();
        assert!(unsynced.is_replaced && unsynced.hidden.is_none());
    }

    #[test]
    fn an_existing_name_is_kept_if_the_call_may_not_replace_it() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        for path in ["file", "kept"] {
            fs::write(top.join(path), path).unwrap();
        }
        fs::create_dir(top.join("folder")).unwrap();
        symlink("none", top.join("link")).unwrap();
        for to in ["kept", "folder", "link"] {
            let error = rename_new(&at(top, "file"), &at(top, to)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{to}");
            let new = NewFile::begin(&at(top, "new")).unwrap();
            fs::rename(top.join(to), top.join("new")).unwrap();
            let error = new.finish_if(false, || Ok(Some(()))).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{to}");
            fs::rename(top.join("new"), top.join(to)).unwrap();
        }
        assert!(
            !NewFile::begin(&at(top, "kept")).unwrap().finish_if(true, || Ok(None::<()>)).unwrap()
        );
        assert_eq!(fs::read(top.join("kept")).unwrap(), b"kept");
        rename_new(&at(top, "file"), &at(top, "folder/file")).unwrap();
        rename_new(&at(top, "folder"), &at(top, "new/")).unwrap();
        assert!(rename_new(&at(top, "new"), &at(top, "new/in")).is_err());
        assert_eq!(names(top), ["kept", "link", "new"]);
    }

    #[test]
    fn files_and_folders_are_created_looked_up_renamed_and_removed() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        make_folder(&at(top, "a")).unwrap();
        assert_eq!(make_folder(&at(top, "a")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(make_folder(&at(top, "x/y")).unwrap_err().kind(), io::ErrorKind::NotFound);
        let new = NewFile::begin(&at(top, "a/f")).unwrap();
        assert!(new.finish_if(true, || Ok(Some(()))).unwrap());
        symlink("a/f", top.join("link")).unwrap();
        assert_eq!(look(&at(top, "link")).unwrap().kind, NameKind::File);
        assert_eq!(look(&at(top, "a/")).unwrap().kind, NameKind::Folder);
        assert_eq!(look(&at(top, "")).unwrap().kind, NameKind::Folder);
        assert!(look(&at(top, "link/")).is_err());
        rename(&at(top, "a/f"), &at(top, "g")).unwrap();
        assert_eq!(look(&at(top, "a/f")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(look(&at(top, "g/")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        rename(&at(top, "a"), &at(top, "b/")).unwrap();
        assert_eq!(names(top), ["b", "g", "link"]);
        remove(&at(top, "b")).unwrap();
        assert_eq!(names(top), ["g", "link"]);
    }
}
