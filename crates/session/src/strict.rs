//! Checks, like sshd's `StrictModes`, that no other user can change a file that security depends
//! on: the key, the list of clients, the known servers, or the shared tree.

use std::fs::{File, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::{Error, Kind};
use longhaul_text::{quoted, reason};

/// The mode bits that let other users write.
const WRITABLE: u32 = 0o022;
/// In a folder with this mode bit, other users cannot replace this user's files.
const STICKY: u32 = 0o1000;
const ROOT: u32 = 0;

/// Refuses `file`, opened at `path`, if another user (neither root nor this user) owns, or may
/// write to, the file or a folder above it. There are two exceptions: the owner of `/` may own the
/// folders above the file's folder, and a folder with the sticky bit may be writable. Symbolic
/// links are followed first. As in sshd, the check of a file below this user's home ends at the
/// home.
///
/// # Errors
/// [`Kind::LocalFile`] if the file is refused or cannot be checked.
pub fn check(path: &Path, file: &File) -> Result<(), Error> {
    let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
    check_up_to(home, path, file)
}

fn check_up_to(home: Option<PathBuf>, path: &Path, file: &File) -> Result<(), Error> {
    let unreadable = |error| {
        let what = format!("cannot check who may change {}: {}", path.display(), reason(&error));
        Error::new(Kind::LocalFile, what).at(path)
    };
    let user = rustix::process::geteuid().as_raw();
    let found = file.metadata().map_err(unreadable)?;
    judge(path, &found, false, &[ROOT, user])?;
    let place = match path.canonicalize() {
        Ok(place) => place,
        // A pipe or a deleted file has no path, and no folder.
        Err(_) if !found.is_file() || found.nlink() == 0 => return Ok(()),
        Err(error) => return Err(unreadable(error)),
    };
    // In a user namespace, root's folders may belong to the overflow user.
    let top = Path::new("/").metadata().map_err(unreadable)?.uid();
    for (above, folder) in place.ancestors().skip(1).enumerate() {
        let owners = owners(user, top, above);
        judge(folder, &folder.metadata().map_err(unreadable)?, true, &owners)?;
        if home.as_deref() == Some(folder) {
            break;
        }
    }
    Ok(())
}

/// Returns the users who may own the folder that is `above` folders above the file's folder. `top`
/// owns `/`.
fn owners(user: u32, top: u32, above: usize) -> [u32; 3] {
    [ROOT, user, if above == 0 { user } else { top }]
}

fn judge(path: &Path, found: &Metadata, is_folder: bool, owners: &[u32]) -> Result<(), Error> {
    let refuse = |why: String, command: &str| {
        let what = format!("{} {why}, so others could change its content", path.display());
        let advice = format!("run `{command} {}`", quoted(&path.display().to_string()));
        Err(Error::new(Kind::LocalFile, what).at(path).advise(advice))
    };
    if !owners.contains(&found.uid()) {
        let why = format!("belongs to user {}", found.uid());
        return refuse(why, &format!("chown {}", owners[1]));
    }
    let mode = found.permissions().mode();
    let is_safe = is_folder && mode & STICKY != 0;
    if mode & WRITABLE != 0 && !is_safe {
        let why = format!("can be written by others (mode {:03o})", mode & 0o777);
        return refuse(why, "chmod go-w");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::path::PathBuf;

    use longhaul_testbed::{need, skip};

    use super::*;

    fn file() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = folder.path().join("list");
        std::fs::write(&path, "x").expect("it is ours");
        set_mode(&path, 0o644);
        (folder, path)
    }

    fn set_mode(path: &Path, mode: u32) {
        set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    }

    fn checked(path: &Path) -> Result<(), Error> {
        check(path, &File::open(path).expect("it can be read"))
    }

    #[test]
    fn a_file_or_folder_writable_by_others_is_refused_with_the_chmod_to_run() {
        let (folder, path) = file();
        assert_eq!(checked(&path), Ok(()));
        for mode in [0o664, 0o646] {
            set_mode(&path, mode);
            let error = checked(&path).expect_err("others may write");
            assert!(error.what.contains(&format!("mode {mode:o}")), "{error}");
            assert!(error.to_string().contains("run `chmod go-w"), "{error}");
        }
        set_mode(&path, 0o600);
        for (mode, is_safe) in [(0o775, false), (0o757, false), (0o1777, true), (0o755, true)] {
            set_mode(folder.path(), mode);
            assert_eq!(checked(&path).is_ok(), is_safe, "{mode:o}");
        }
    }

    #[test]
    fn the_target_of_a_link_is_checked_and_not_the_folder_of_the_link() {
        let (folder, path) = file();
        let (elsewhere, _) = file();
        let link = elsewhere.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("the folder is ours");
        set_mode(elsewhere.path(), 0o777);
        assert_eq!(checked(&link), Ok(()));
        set_mode(folder.path(), 0o777);
        assert!(checked(&link).is_err());
    }

    #[test]
    fn every_folder_up_to_the_home_is_checked_and_none_above_it() {
        let top = tempfile::tempdir().expect("a folder for the test");
        let home = top.path().canonicalize().expect("it exists").join("home");
        let folder = home.join("config/longhaul");
        std::fs::create_dir_all(&folder).expect("it is ours");
        let path = folder.join("list");
        std::fs::write(&path, "x").expect("it is ours");
        let checked = || {
            let file = File::open(&path).expect("it can be read");
            check_up_to(Some(home.clone()), &path, &file)
        };
        for place in [&home.join("config"), &home] {
            set_mode(place, 0o777);
            let refused = checked().map_err(|error| error.what);
            let named = format!("{} can be written by others", place.display());
            assert!(refused.is_err_and(|what| what.starts_with(&named)), "{}", place.display());
            set_mode(place, 0o755);
        }
        set_mode(top.path(), 0o777);
        assert_eq!(checked(), Ok(()));
        let file = File::open(&path).expect("it can be read");
        assert!(check_up_to(None, &path, &file).is_err(), "without a home all folders are checked");
    }

    #[test]
    fn the_owner_of_the_root_folder_may_own_the_folders_above_the_files_folder() {
        assert_eq!([0, 1, 2].map(|above| owners(7, 9, above)), [[0, 7, 7], [0, 7, 9], [0, 7, 9]]);
    }

    #[test]
    fn a_file_or_a_folder_of_another_user_is_refused() {
        const OTHER: u32 = 54_321;
        let is_root = rustix::process::geteuid().is_root();
        need!(skip::unless(is_root, "only root can give a file to another user"));
        let (folder, path) = file();
        for owned in [path.as_path(), folder.path()] {
            std::os::unix::fs::chown(owned, Some(OTHER), None).expect("root may");
            let error = checked(&path).expect_err("another user's");
            assert!(error.what.contains("belongs to user 54321"), "{error}");
            std::os::unix::fs::chown(owned, Some(ROOT), None).expect("root may");
        }
        assert_eq!(checked(&path), Ok(()));
    }
}
