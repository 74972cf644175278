//! Permissions and times of copied entries.

use std::io;

use crate::Entry;
use crate::manifest::FileTime;
use crate::store::{Attributes, File, Folder, unless_refused};

pub(super) const PARTIAL_FILE: u32 = 0o600;

/// Mode of a folder under construction. Other programs have no reason to set it, because the sticky
/// bit has no effect on a folder that only its owner may enter. A resumed copy recognises such a
/// folder by this mode.
pub(super) const UNFINISHED_FOLDER: u32 = 0o1700;

const SET_GROUP_ID: u32 = 0o2000;

pub(super) fn is_unfinished(found: &Attributes) -> bool {
    found.mode & !SET_GROUP_ID == UNFINISHED_FOLDER && found.is_own()
}

/// The source's attributes that a copy keeps. Without `permissions`, a file or folder that replaces
/// nothing gets the source's mode minus the umask.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keep {
    pub(super) permissions: bool,
    pub(super) set_id: bool,
    /// The modification time of the copied files; `None` for the source's times.
    pub(super) modified: Option<FileTime>,
}

impl Keep {
    /// Returns the final mode of a new file in `folder`. If a file with the name `replaced` exists,
    /// the new file replaces it. Without `permissions`, the new file then gets the mode of the
    /// existing file without set-id bits, because new content must not run as another user.
    pub(super) fn final_mode(
        self,
        folder: &dyn Folder,
        replaced: Option<&[u8]>,
        entry: &Entry,
    ) -> io::Result<u32> {
        if let Some(mode) = self.mode(entry) {
            return Ok(mode);
        }
        let kept = replaced.map_or(Ok(None), |name| folder.permissions(name))?;
        Ok(kept.unwrap_or_else(|| new_mode(folder, entry)))
    }

    pub(super) fn mode(self, entry: &Entry) -> Option<u32> {
        let mask = if self.set_id { 0o7777 } else { 0o777 };
        self.permissions.then_some(entry.mode & mask)
    }

    pub(super) fn apply(self, file: &dyn File, entry: &Entry, mode: u32) -> io::Result<()> {
        match self.permissions {
            true => file.set_mode(mode)?,
            false => unless_refused(file.set_mode(mode))?,
        }
        file.set_modified(self.modified.unwrap_or(entry.modified))
    }

    pub(super) fn repair(self, file: &dyn File, entry: &Entry) -> io::Result<()> {
        if let Some(mode) = self.mode(entry) {
            file.set_mode(mode)?;
        }
        file.set_modified(self.modified.unwrap_or(entry.modified))
    }

    /// Gives a folder its permissions, and also its time if `permissions` are kept.
    pub(super) fn apply_to_folder(self, folder: &dyn Folder, entry: &Entry) -> io::Result<()> {
        if let Some(mode) = self.mode(entry) {
            folder.set_mode(mode)?;
            return folder.set_modified(entry.modified);
        }
        let inherited = folder.attributes()?.mode & SET_GROUP_ID;
        // An owner without the right to read cannot list the source folder. The owner of the copy
        // needs all rights, so that a repeated copy can complete it.
        let owner = if entry.mode & 0o400 == 0 { 0o700 } else { 0 };
        unless_refused(folder.set_mode(new_mode(folder, entry) | owner | inherited))
    }
}

/// Returns the mode of a new entry in `folder`. `folder` may be the new entry itself, because a new
/// folder inherits the default access control list that limits the mode.
fn new_mode(folder: &dyn Folder, entry: &Entry) -> u32 {
    entry.mode & 0o777 & !folder.withheld()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;
    use crate::Place;

    #[test]
    fn a_folder_under_construction_is_recognised_also_with_an_inherited_set_group_id_bit() {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir(base.path().join("d")).unwrap();
        let folder = Place::Ambient(base.path().to_owned()).folder().unwrap();
        let is = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(base.path().join(Path::new("d")), permissions).unwrap();
            is_unfinished(&folder.look(b"d").unwrap())
        };
        assert!(is(0o1700) && is(0o3700));
        assert!(!is(0o700) && !is(0o1701) && !is(0o2700) && !is(0o5700));
    }

    fn entry(mode: u32) -> Entry {
        let kind = crate::Kind::file(1);
        Entry::new(kind, mode, crate::manifest::FileTime { seconds: 5, nanos: 6 })
    }

    #[test]
    fn the_owner_of_a_copied_folder_may_use_it_even_if_nobody_may_read_the_source() {
        let base = tempfile::tempdir().unwrap();
        let folder = Place::Ambient(base.path().to_owned()).folder().unwrap();
        let keep = |permissions| Keep { permissions, set_id: false, modified: None };
        for (source, copy) in [(0, 0o700), (0o055, 0o755), (0o555, 0o555)] {
            keep(false).apply_to_folder(&*folder, &entry(source)).unwrap();
            let mode = folder.attributes().unwrap().mode & 0o777;
            assert_eq!(mode, copy & (!folder.withheld() | 0o700), "{source:o}");
        }
        keep(true).apply_to_folder(&*folder, &entry(0o500)).unwrap();
        assert_eq!(folder.attributes().unwrap().mode & 0o777, 0o500);
    }

    #[test]
    fn the_flag_permissions_keeps_the_mode_and_set_id_also_keeps_set_id_bits() {
        let keep =
            |permissions, set_id| Keep { permissions, set_id, modified: None }.mode(&entry(0o4751));
        assert_eq!(keep(true, true), Some(0o4751));
        assert_eq!(keep(true, false), Some(0o751));
        assert_eq!((keep(false, true), keep(false, false)), (None, None));
    }

    #[test]
    fn a_new_file_has_the_sources_mode_less_the_umask_or_the_mode_of_the_file_it_replaces() {
        let base = tempfile::tempdir().unwrap();
        let folder = Place::Ambient(base.path().to_owned()).folder().unwrap();
        let old = folder.create(b"old", 0o600).unwrap();
        old.set_mode(0o6750).unwrap();
        folder.make_folder(b"folder", 0o700).unwrap();
        let mode = |permissions, name: Option<&[u8]>| {
            let keep = Keep { permissions, set_id: true, modified: None };
            keep.final_mode(&*folder, name, &entry(0o4777)).unwrap()
        };
        let new = 0o777 & !folder.withheld();
        assert_eq!(mode(false, None), new);
        assert_eq!(mode(false, Some(&b"none"[..])), new);
        assert_eq!(mode(false, Some(b"folder")), new);
        assert_eq!(mode(false, Some(b"old")), 0o750, "without its set-id bits");
        assert_eq!(mode(true, Some(b"old")), 0o4777);
    }

    #[test]
    fn a_finished_folder_keeps_the_set_group_id_bit_unless_it_gets_the_source_permissions() {
        let base = tempfile::tempdir().unwrap();
        let folder = Place::Ambient(base.path().to_owned()).folder().unwrap();
        let finished = |permissions, before| {
            folder.set_mode(before).unwrap();
            let keep = Keep { permissions, set_id: true, modified: None };
            keep.apply_to_folder(&*folder, &entry(0o1775)).unwrap();
            let found = folder.attributes().unwrap();
            (found.mode, found.modified == entry(0).modified)
        };
        let new = 0o775 & !folder.withheld();
        assert_eq!(finished(false, 0o1700), (new, false));
        assert_eq!(finished(false, 0o3700), (0o2000 | new, false));
        assert_eq!(finished(true, 0o3700), (0o1775, true));
    }

    #[test]
    fn a_given_modification_time_replaces_the_time_of_the_entry() {
        let base = tempfile::tempdir().unwrap();
        let folder = Place::Ambient(base.path().to_owned()).folder().unwrap();
        let file = folder.create(b"file", 0o600).unwrap();
        let time = FileTime { seconds: 70, nanos: 80 };
        let keep = |modified| Keep { permissions: false, set_id: false, modified };
        for (modified, expected) in [(Some(time), time), (None, entry(0).modified)] {
            keep(modified).apply(&*file, &entry(0), 0o600).unwrap();
            assert_eq!(file.attributes().unwrap().modified, expected);
            file.set_modified(FileTime::default()).unwrap();
            keep(modified).repair(&*file, &entry(0)).unwrap();
            assert_eq!(file.attributes().unwrap().modified, expected);
        }
    }
}
