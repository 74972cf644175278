//! Compares two trees by names, types, permissions, link targets and every byte.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use longhaul::CancelHandle;

const BUFFER: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Number of compared regular files.
    pub(super) files: u64,
    /// Size of these files together, in bytes.
    pub(super) bytes: u64,
    pub(super) differences: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Folder { mode: u32 },
    File { len: u64, mode: u32 },
    Link { target: PathBuf },
    Other,
}

pub(super) fn compare(ours: &Path, theirs: &Path, cancel: &CancelHandle) -> io::Result<Verdict> {
    let (left, mut right) = (walk(ours)?, walk(theirs)?);
    let mut verdict = Verdict::default();
    for (path, entry) in left {
        let name = path.display();
        match right.remove(&path) {
            None => verdict.differences.push(format!("{name} is missing")),
            Some(other) if other != entry => {
                verdict.differences.push(format!("{name} is {other:?}, should be {entry:?}"));
            }
            Some(_) => {
                if let Entry::File { len, .. } = entry {
                    if !same_bytes(&ours.join(&path), &theirs.join(&path), cancel)? {
                        verdict.differences.push(format!("{name} has other bytes"));
                    }
                    verdict.files += 1;
                    verdict.bytes += len;
                }
            }
        }
    }
    let extra = right.into_keys().map(|path| format!("{} should not be there", path.display()));
    verdict.differences.extend(extra);
    Ok(verdict)
}

/// All entries below `root`, by relative path.
fn walk(root: &Path) -> io::Result<BTreeMap<PathBuf, Entry>> {
    let mut entries = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for item in fs::read_dir(root.join(&folder))? {
            let item = item?;
            let path = folder.join(item.file_name());
            let meta = fs::symlink_metadata(item.path())?;
            let mode = meta.permissions().mode();
            let entry = if meta.is_dir() {
                folders.push(path.clone());
                Entry::Folder { mode }
            } else if meta.is_symlink() {
                Entry::Link { target: fs::read_link(item.path())? }
            } else if meta.is_file() {
                Entry::File { len: meta.len(), mode }
            } else {
                Entry::Other
            };
            entries.insert(path, entry);
        }
    }
    Ok(entries)
}

/// Returns whether two files have the same content.
pub(super) fn same_bytes(ours: &Path, theirs: &Path, cancel: &CancelHandle) -> io::Result<bool> {
    let (mut ours, mut theirs) = (File::open(ours)?, File::open(theirs)?);
    let (mut left, mut right) = (vec![0; BUFFER], vec![0; BUFFER]);
    loop {
        if cancel.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let (a, b) = (fill(&mut ours, &mut left)?, fill(&mut theirs, &mut right)?);
        if left[..a] != right[..b] {
            return Ok(false);
        }
        if a == 0 {
            return Ok(true);
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..])? {
            0 => break,
            read => len += read,
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree(root: &Path) {
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/file"), b"same").unwrap();
        symlink("file", root.join("a/link")).unwrap();
    }

    #[test]
    fn different_contents_lengths_names_and_link_targets_are_found() {
        let place = tempfile::tempdir().unwrap();
        let (left, right) = (place.path().join("l"), place.path().join("r"));
        let found = || compare(&left, &right, &CancelHandle::default()).unwrap().differences;
        tree(&left);
        tree(&right);
        assert_eq!(found(), Vec::<String>::new());
        fs::write(right.join("a/file"), b"Same").unwrap();
        assert_eq!(found(), ["a/file has other bytes"]);
        fs::write(right.join("a/file"), b"longer").unwrap();
        assert!(found()[0].contains("should be File"));
        fs::write(right.join("a/file"), b"same").unwrap();
        fs::write(right.join("x"), b"").unwrap();
        assert_eq!(found(), ["x should not be there"]);
        fs::remove_file(right.join("x")).unwrap();
        fs::remove_file(right.join("a/link")).unwrap();
        assert_eq!(found(), ["a/link is missing"]);
        symlink("other", right.join("a/link")).unwrap();
        assert_eq!(found().len(), 1);
    }

    #[test]
    fn files_are_compared_by_every_byte() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let same = || same_bytes(&a, &b, &CancelHandle::default()).unwrap();
        fs::write(&a, vec![7; 3_000_000]).unwrap();
        fs::write(&b, vec![7; 3_000_000]).unwrap();
        assert!(same());
        let mut other = vec![7; 3_000_000];
        other[2_999_999] = 8;
        fs::write(&b, other).unwrap();
        assert!(!same());
        fs::write(&b, vec![7; 2_999_999]).unwrap();
        assert!(!same());
    }
}
