//! A partial file is the file that a copy writes until the file is complete. The copy locks a
//! partial file, and never opens it through a link.
//!
//! On a file system without locks, a copy writes only to files that it has created, and copies the
//! chunks of an existing partial file into a new file (see the module `large`).
//!
//! Somebody else may replace the partial file at any time in three cases: without locks, if other
//! users can change the folder, or if the file's mode does not let its owner read it (another copy
//! then cannot see the lock). In these cases the copy first renames a complete file to a name that
//! no other copy knows, then checks it, then gives it its final name.

use std::io;
use std::ops::Range;

use super::attributes::PARTIAL_FILE;
use super::bits::Bits;
use crate::store::{self, Access, Attributes, File, Folder, NameKind, OpenFile, unless_refused};
use crate::walk::holes_of;
use crate::{CHUNK, LARGE, names};

const TRIES: usize = 10;

/// Opens the partial file `name` and locks it. Resets the permissions, so that only the owner can
/// read and write the file. If the file is missing, creates it if `create` is true, and otherwise
/// returns `None`. On a file system without locks, `create` always creates a new file.
///
/// # Errors
/// `ResourceBusy` if another copy has locked the file, or if the file changes during each of
/// [`TRIES`] tries.
pub(super) fn open(folder: &dyn Folder, name: &[u8], create: bool) -> io::Result<Option<OpenFile>> {
    for _ in 0..TRIES {
        let mut is_new = false;
        let (file, may_write) = match folder.open(name, Access::ReadWrite) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match create {
                false => return Ok(None),
                true => match folder.create(name, PARTIAL_FILE) {
                    Ok(file) => {
                        is_new = true;
                        (file, true)
                    }
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                    Err(error) => return Err(error),
                },
            },
            Err(error) if store::is_link(&error) => {
                folder.remove(name)?;
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // An earlier run may have been interrupted after the file had got its final mode.
                // If even reading is denied, the copy of this file restarts.
                match folder.open(name, Access::Read) {
                    Ok(file) => (file, false),
                    Err(_) => match folder.look_if_there(name)? {
                        // The owner's copy may have locked the file, and this user cannot check.
                        Some(found) if !found.is_own() => return Err(store::foreign(found.owner)),
                        Some(_) => {
                            folder.remove(name)?;
                            continue;
                        }
                        None => continue,
                    },
                }
            }
            Err(error) => return Err(error),
        };
        let found = file.attributes()?;
        // Lock the file even if another user owns it: a copy of that user may be running.
        let is_locked = file.lock()?;
        if !is_own(&found) || (create && !is_locked && !is_new) {
            remove_free(folder, name, Some(found.identity))?;
            continue;
        }
        // Another copy may have given the file its final name between the open and the lock.
        let named = folder.look_if_there(name)?;
        if named.is_some_and(|named| named.identity == found.identity) {
            if found.mode != PARTIAL_FILE {
                unless_refused(file.set_mode(PARTIAL_FILE))?;
            }
            if may_write {
                return Ok(Some(file));
            }
        }
    }
    Err(store::busy())
}

/// Removes the partial file `name`; with `identity`, only if the file has this identity. Locks the
/// file first if possible, so a file that another copy is about to rename stays.
pub(super) fn remove_free(
    folder: &dyn Folder,
    name: &[u8],
    identity: Option<(u64, u64)>,
) -> io::Result<()> {
    let Some(named) = folder.look_if_there(name)? else { return Ok(()) };
    if identity.is_some_and(|identity| identity != named.identity) {
        return Ok(());
    }
    // This process may be unable to open and lock the file. The removal is safe even then: a copy
    // that completes such a file first gives it a unique name (see `rename`).
    let file = if is_own(&named) { folder.open(name, Access::Read).ok() } else { None };
    if let Some(file) = &file {
        file.lock()?;
        // Another copy may have renamed the file before it was locked here.
        let found = folder.look_if_there(name)?.map(|found| found.identity);
        if found != Some(file.attributes()?.identity) || found != Some(named.identity) {
            return Ok(());
        }
    }
    folder.remove(name)
}

/// Gives the partial file `partial` its final name `name`, if `is_it` recognises the file;
/// otherwise fails with `ResourceBusy`. While `file` is locked, no other copy that can open the
/// partial file removes it. Before the lock, another copy may replace the partial file, so the
/// check comes after the lock.
pub(super) fn rename(
    folder: &dyn Folder,
    partial: &[u8],
    name: &[u8],
    file: Option<&dyn File>,
    is_it: impl Fn(&Attributes) -> bool,
) -> io::Result<()> {
    let check = |at: &[u8]| match folder.look_if_there(at)? {
        Some(found) if is_it(&found) => Ok(found),
        _ => Err(store::busy()),
    };
    let is_locked = file.map_or(Ok(false), |file| file.lock())?;
    let found = check(partial)?;
    if is_locked && is_lockable(found.mode) && is_closed_to_others(&folder.attributes()?) {
        return folder.rename(partial, name);
    }
    // Another copy may replace the file at any moment, so the file first gets a unique name.
    let own = names::unique(name);
    folder.rename(partial, &own)?;
    let renamed = check(&own).and_then(|_| folder.rename(&own, name));
    if renamed.is_err() {
        let _ = folder.rename(&own, partial);
    }
    renamed
}

/// Gives the partial file of the large file `name` its name back, if a kill between the two renames
/// of [`rename`] left it under its unique name. Returns whether there was such a file.
///
/// Looks only if there is a journal: a copy removes the journal after the second rename. Ignores
/// files below [`LARGE`]: the partial file of another, small file may have such a name
/// ([`names::small`]).
pub(super) fn take_back(folder: &dyn Folder, name: &[u8]) -> io::Result<bool> {
    if folder.look_if_there(&names::journal(name))?.is_none() {
        return Ok(false);
    }
    let mut left = Vec::new();
    folder.each_name(&mut |found| {
        if names::is_unique(&found, name) {
            left.push(found);
        }
        true
    })?;
    for own in left {
        let found = folder.look_if_there(&own)?;
        if !found.is_some_and(|found| is_own(&found) && found.size >= LARGE) {
            continue;
        }
        // A running copy that renames the file has locked it. If this process cannot lock the file,
        // that copy may still be running.
        let Ok(file) = folder.open(&own, Access::Read) else { continue };
        if file.lock().unwrap_or(false) && folder.rename_new(&own, &names::partial(name)).is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether no other user but root can remove or rename files of this process's user in
/// `folder`. A lock does not stop other users: they can rename a file that they cannot open.
fn is_closed_to_others(folder: &Attributes) -> bool {
    [store::user(), 0].contains(&folder.owner)
        && (folder.mode & 0o022 == 0 || folder.mode & 0o1000 != 0)
}

/// Returns whether this mode lets the owner read the file. Another copy opens only a file that it
/// can read, and then respects the file's lock.
fn is_lockable(mode: u32) -> bool {
    mode & 0o400 != 0
}

/// Returns whether this is a regular file of this user without another hard link.
pub(super) fn is_own(found: &Attributes) -> bool {
    found.kind == NameKind::File && found.links <= 1 && found.is_own()
}

pub(super) fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

const PAGE: usize = 4096;
static ZEROS: [u8; PAGE] = [0; PAGE];

#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    /// Whether zero pages may be left as holes.
    pub(super) sparse: bool,
    /// Whether the file is new, so that unwritten parts read as zeros.
    pub(super) fresh: bool,
}

/// Writes `content` at `offset`. If `how` is sparse, zero pages become or stay holes where the file
/// system supports holes.
pub(super) fn write(file: &dyn File, how: Writing, offset: u64, content: &[u8]) -> io::Result<()> {
    if !how.sparse {
        return file.write_all_at(content, offset);
    }
    if !how.fresh {
        clear(file, offset..offset + content.len() as u64)?;
    }
    let is_zero = |page: &[u8]| *page == ZEROS[..page.len()];
    let mut start = 0;
    for run in content.chunks(PAGE).collect::<Vec<_>>().chunk_by(|a, b| is_zero(a) == is_zero(b)) {
        let len: usize = run.iter().map(|page| page.len()).sum();
        if !is_zero(run[0]) {
            file.write_all_at(&content[start..start + len], offset + start as u64)?;
        }
        start += len;
    }
    Ok(())
}

/// Makes a range read as zeros, as a hole if the file system supports holes.
pub(super) fn clear(file: &dyn File, range: Range<u64>) -> io::Result<()> {
    if file.punch(range.clone()).is_ok() {
        return Ok(());
    }
    for at in range.clone().step_by(PAGE) {
        file.write_all_at(&ZEROS[..(range.end - at).min(PAGE as u64) as usize], at)?;
    }
    Ok(())
}

/// Returns the runs of chunks that are not entirely holes, in a file of `size` bytes.
pub(super) fn chunks_with_content(file: &dyn File, size: u64) -> Vec<Range<u64>> {
    let chunks = size.div_ceil(CHUNK);
    let mut content = Bits::new(chunks);
    content.insert_run(0..chunks);
    let holes = holes_of(size, |at| file.next_data(at), |at| file.next_hole(at));
    holes.into_iter().for_each(|hole| content.remove_run(hole));
    content.runs(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;

    #[test]
    fn a_folder_that_other_users_may_change_is_not_closed_to_them() {
        let base = tempfile::tempdir().unwrap();
        let folder = Place::Ambient(base.path().to_owned()).folder().unwrap();
        let with = |mode, owner| Attributes { mode, owner, ..folder.attributes().unwrap() };
        let own = folder.attributes().unwrap().owner;
        for (mode, is_closed) in
            [(0o755, true), (0o1777, true), (0o777, false), (0o775, false), (0o757, false)]
        {
            assert_eq!(is_closed_to_others(&with(mode, own)), is_closed, "{mode:o}");
            assert_eq!(is_closed_to_others(&with(mode, 0)), is_closed, "{mode:o}");
            assert!(
                !is_closed_to_others(&with(mode, own + 1)),
                "the owner of the folder may change it"
            );
        }
    }

    #[test]
    fn a_partial_file_that_its_owner_may_not_write_or_read_is_opened_or_replaced() {
        for (mode, is_kept) in [(0o600, true), (0o400, true), (0o000, false)] {
            let disk = crate::store::memory::Disk::new(1);
            disk.obey_modes();
            let folder = disk.root();
            let made = folder.create(b"part", mode).unwrap().attributes().unwrap();
            let file = open(&*folder, b"part", true).unwrap().expect("it is created");
            file.write_all_at(b"x", 0).unwrap();
            let found = file.attributes().unwrap();
            assert_eq!((found.mode, found.identity == made.identity), (0o600, is_kept), "{mode:o}");
        }
    }

    #[test]
    fn a_folder_in_place_of_a_partial_file_is_an_error_and_stays() {
        let folder = crate::store::memory::Disk::new(1).root();
        folder.make_folder(b"part", 0o700).unwrap();
        let error = open(&*folder, b"part", true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        assert_eq!(folder.look(b"part").unwrap().kind, NameKind::Folder);
    }

    #[test]
    fn a_partial_file_that_cannot_be_created_is_an_error() {
        let disk = crate::store::memory::Disk::new(1);
        disk.set_faults(crate::store::memory::Faults { room: 10_000, ..Default::default() });
        let error = open(&*disk.root(), b"part", true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn in_a_folder_open_to_others_a_replacement_of_the_partial_file_gets_no_final_name() {
        let base = tempfile::tempdir().unwrap();
        let folder = Place::Ambient(base.path().to_owned()).folder().unwrap();
        let file = folder.create(b".x.lh-part", 0o600).unwrap();
        let identity = file.attributes().unwrap().identity;
        let looks = std::cell::Cell::new(0);
        let is_it = |found: &Attributes| {
            looks.set(looks.get() + 1);
            let is_it = found.identity == identity;
            if looks.get() == 1 {
                folder.remove(b".x.lh-part").unwrap();
                folder.create(b".x.lh-part", 0o600).unwrap().write_all_at(b"theirs", 0).unwrap();
            }
            is_it
        };
        std::fs::set_permissions(base.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .unwrap();
        let named = rename(&*folder, b".x.lh-part", b"x", Some(&*file), is_it);
        assert!(is_busy(&named.unwrap_err()));
        assert!(!base.path().join("x").exists());
        assert_eq!(std::fs::read(base.path().join(".x.lh-part")).unwrap(), b"theirs");
    }

    /// Imitates another copy that replaces the partial file as soon as this copy has checked it.
    /// Returns the result of the rename, and the inode number of `x` minus that of our file.
    fn renamed_while_another_copy_replaces(mode: u32) -> (io::Result<()>, Option<u64>) {
        let disk = crate::store::memory::Disk::new(1);
        disk.obey_modes();
        let folder = disk.root();
        let file = folder.create(b".x.lh-small", mode).unwrap();
        let identity = file.attributes().unwrap().identity;
        let looks = std::cell::Cell::new(0);
        let is_it = |found: &Attributes| {
            looks.set(looks.get() + 1);
            let is_it = found.identity == identity;
            if looks.get() == 1 && remove_free(&*folder, b".x.lh-small", None).is_ok() {
                folder.create(b".x.lh-small", 0o600).unwrap();
            }
            is_it
        };
        let named = rename(&*folder, b".x.lh-small", b"x", Some(&*file), is_it);
        (named, disk.tree(false).get(&b"x"[..]).map(|number| number - identity.1))
    }

    #[test]
    fn no_other_copy_replaces_a_partial_file_between_its_check_and_its_rename() {
        let (named, x) = renamed_while_another_copy_replaces(0o600);
        assert!(named.is_ok());
        assert_eq!(x, Some(0), "the file of this copy");
    }

    #[test]
    fn the_lock_of_an_unreadable_partial_file_does_not_count_because_no_other_copy_sees_it() {
        let (named, x) = renamed_while_another_copy_replaces(0o200);
        assert!(is_busy(&named.unwrap_err()));
        assert_eq!(x, None);
    }

    #[test]
    fn neighbouring_chunks_with_content_are_one_run_and_holes_belong_to_no_run() {
        let base = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let folder = Place::Ambient(base.path().to_owned()).folder().unwrap();
        let file = folder.create(b"f", 0o600).unwrap();
        let size = CHUNK * 6;
        file.set_len(size).unwrap();
        assert_eq!(chunks_with_content(&*file, 0), []);
        for at in [0, CHUNK / 2, CHUNK, CHUNK * 4 + CHUNK / 2] {
            file.write_all_at(b"x", at).unwrap();
        }
        let found = chunks_with_content(&*file, size);
        // A file system without holes has content everywhere.
        let everywhere = 0..6;
        assert!(found == [0..2, 4..5] || found == [everywhere], "{found:?}");
        // The source is shorter than the file: content after the source's end does not count.
        for chunks in [3, 4] {
            let found = chunks_with_content(&*file, chunks * CHUNK);
            let (content, everywhere) = (0..2, 0..chunks);
            assert!(found == [content] || found == [everywhere], "{found:?}");
        }
    }

    #[test]
    fn a_sparse_write_skips_zero_pages_in_a_new_file_and_clears_them_in_an_old_file() {
        let zero = [0; PAGE];
        let content = [&[1; PAGE][..], &zero, &zero, &[2; PAGE], &[0; 9]].concat();
        let written = |how: Writing| {
            let folder = crate::MemoryFolder::new(1 << 20);
            folder.put("x".as_ref(), vec![7; 6 * PAGE]);
            let file = folder.open(b"x", Access::ReadWrite).unwrap();
            write(&*file, how, 5, &content).unwrap();
            folder.take("x".as_ref()).unwrap()
        };
        let around = |middle: &[u8]| {
            let mut all = vec![7; 6 * PAGE];
            all[5..5 + middle.len()].copy_from_slice(middle);
            all
        };
        assert!(written(Writing { sparse: false, fresh: true }) == around(&content));
        assert!(written(Writing { sparse: true, fresh: false }) == around(&content));
        let sevens = [7; 2 * PAGE];
        let left = [&[1; PAGE][..], &sevens, &[2; PAGE], &[7; 9]].concat();
        assert!(written(Writing { sparse: true, fresh: true }) == around(&left));
    }

    #[test]
    fn a_file_of_this_user_with_one_name_is_own_and_a_file_its_owner_may_read_is_lockable() {
        let folder = crate::MemoryFolder::new(10);
        folder.put("x".as_ref(), Vec::new());
        let found = folder.look(b"x").unwrap();
        assert!(is_own(&found) && is_own(&Attributes { links: 0, ..found }));
        assert!(!is_own(&Attributes { links: 2, ..found }));
        assert!(!is_own(&Attributes { owner: found.owner + 1, ..found }));
        assert!(!is_own(&Attributes { kind: NameKind::Link, ..found }));
        assert!(is_lockable(0o400) && is_lockable(0o644) && !is_lockable(0o377));
        assert!(is_busy(&store::busy()) && !is_busy(&store::not_found()));
    }
}
