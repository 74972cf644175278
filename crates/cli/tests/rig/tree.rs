//! Writes files and compares trees.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::DEADLINE;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Thing {
    kind: Kind,
    /// Permission bits and modification time. `None` for links, and in the result of [`content`].
    attributes: Option<(u32, i64, i64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    File { len: u64, hash: blake3::Hash },
    Folder,
    Link(PathBuf),
    Other,
}

/// Everything below `root`, with permissions and times.
fn tree(root: &Path) -> BTreeMap<PathBuf, Thing> {
    let mut things = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for found in fs::read_dir(&folder).expect("the folder can be read") {
            let path = found.expect("the folder can be read").path();
            let meta = path.symlink_metadata().expect("it is there");
            let attributes = (meta.mode() & 0o7777, meta.mtime(), meta.mtime_nsec());
            let (kind, attributes) = if meta.is_dir() {
                folders.push(path.clone());
                (Kind::Folder, Some(attributes))
            } else if meta.is_symlink() {
                (Kind::Link(path.read_link().expect("it is a link")), None)
            } else if meta.is_file() {
                let mut hasher = blake3::Hasher::new();
                let file = fs::File::open(&path).expect("the file can be read");
                hasher.update_reader(file).expect("the file can be read");
                (Kind::File { len: meta.len(), hash: hasher.finalize() }, Some(attributes))
            } else {
                (Kind::Other, Some(attributes))
            };
            let below = path.strip_prefix(root).expect("it lies below").to_owned();
            things.insert(below, Thing { kind, attributes });
        }
    }
    things
}

/// Everything below `root`, without permissions and times.
pub(crate) fn content(root: &Path) -> BTreeMap<PathBuf, Thing> {
    let plain = |(path, thing): (PathBuf, Thing)| (path, Thing { attributes: None, ..thing });
    tree(root).into_iter().map(plain).collect()
}

/// Asserts that both trees have the same names, kinds, contents and targets of links.
#[track_caller]
pub(crate) fn assert_same(left: &Path, right: &Path) {
    compare(&content(left), &content(right));
}

/// Like [`assert_same`], also with permissions and times of files and folders.
#[track_caller]
pub(crate) fn assert_same_attributes(left: &Path, right: &Path) {
    compare(&tree(left), &tree(right));
}

#[track_caller]
fn compare(left: &BTreeMap<PathBuf, Thing>, right: &BTreeMap<PathBuf, Thing>) {
    let names = left.keys().chain(right.keys());
    let differing = names.filter(|name| left.get(*name) != right.get(*name));
    let differing: BTreeMap<_, _> =
        differing.map(|name| (name, (left.get(name), right.get(name)))).collect();
    assert!(differing.is_empty(), "the trees differ: {differing:#?}");
}

/// Files that longhaul made for itself: partial files, journals, marks of unfinished trees. Waits
/// for the removal of marks: a server removes a mark only when the client has acknowledged the end
/// of the copy.
pub(crate) fn remains(root: &Path) -> Vec<PathBuf> {
    let ours = |path: &PathBuf| {
        let name = path.file_name().expect("an entry has a name").as_bytes();
        name.starts_with(b".") && name.windows(4).any(|part| part == b".lh-")
    };
    let is_mark = |path: &PathBuf| path.as_os_str().as_bytes().ends_with(b".lh-tree");
    let began = Instant::now();
    loop {
        let found: Vec<_> = tree(root).into_keys().filter(ours).collect();
        if !found.iter().any(is_mark) || began.elapsed() > DEADLINE {
            return found;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until `holds` is true; `what` describes the condition.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < DEADLINE, "not in time: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn write_private(path: &Path, text: &str) {
    fs::write(path, text).expect("the scratch folder is ours");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("the file is ours");
}

pub(crate) fn write(path: &Path, content: &[u8]) {
    let folder = path.parent().expect("a file lies in a folder");
    fs::create_dir_all(folder).expect("the scratch folder is ours");
    fs::write(path, content).expect("there is room for a file");
}
