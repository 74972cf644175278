//! Copies from a source to a sink within the process, checked by reading both folders.
#![expect(clippy::single_range_in_vec_init, reason = "lists of one range are intended")]

mod copies;
mod deleted;
mod hostile;
mod meeting;
mod reports;
mod resume;
mod steps;
mod storage;
mod trouble;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use std::sync::Arc;

use super::*;
use crate::error::Error;

/// Each end may run on its own thread.
const _: fn() = || {
    fn moves<T: Send>() {}
    moves::<Source>();
    moves::<Sink>();
};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Thing {
    File { content: blake3::Hash, modified: (i64, i64), executable: bool },
    Folder,
    Link(PathBuf),
}

fn tree(root: &Path) -> BTreeMap<PathBuf, Thing> {
    let mut out = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(folder) = left.pop() {
        for found in std::fs::read_dir(&folder).unwrap() {
            let path = found.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let thing = if meta.is_dir() {
                left.push(path.clone());
                Thing::Folder
            } else if meta.is_symlink() {
                Thing::Link(path.read_link().unwrap())
            } else {
                Thing::File {
                    content: blake3::hash(&std::fs::read(&path).unwrap()),
                    modified: (meta.mtime(), meta.mtime_nsec()),
                    executable: meta.mode() & 0o100 != 0,
                }
            };
            out.insert(path.strip_prefix(root).unwrap().to_owned(), thing);
        }
    }
    out
}

/// Returns longhaul's own names below a folder, which a finished copy must not leave.
fn remains(root: &Path) -> Vec<PathBuf> {
    let ours = |path: &PathBuf| names::is_reserved(path.file_name().unwrap().as_bytes());
    tree(root).into_keys().filter(ours).collect()
}

fn content(len: u64, seed: u64) -> Vec<u8> {
    let mut out = vec![0; len as usize];
    blake3::Hasher::new_keyed(&[seed as u8; 32])
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut out);
    out
}

fn write(path: impl AsRef<Path>, content: &[u8]) {
    let path = path.as_ref();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
    // In the past, so that a copy that does not keep the modification time is detected.
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    std::fs::File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
}

fn bytes_path(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

fn ambient(path: impl AsRef<Path>) -> Place {
    Place::Ambient(path.as_ref().to_owned())
}

fn source(paths: &[&Path]) -> Source {
    let places: Vec<Place> = paths.iter().map(ambient).collect();
    Source::open(&places, &SourceOptions { recursive: true, ..Default::default() }).unwrap()
}

struct Ends {
    _folder: tempfile::TempDir,
    from: PathBuf,
    to: PathBuf,
}

fn ends() -> Ends {
    // The folders are in memory if possible, because the tests do not need a disk.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    std::fs::create_dir(&from).unwrap();
    std::fs::create_dir(&to).unwrap();
    Ends { _folder: folder, from, to }
}

struct Copy {
    source: Source,
    sink: Sink,
    plan: Plan,
    sent: u64,
}

impl Copy {
    fn open(source: Source, to: &Place, options: &SinkOptions) -> Result<Copy, Error> {
        let encoded = source.manifest().encode();
        let manifest = Arc::new(Manifest::decode(&encoded).unwrap());
        assert_eq!(&manifest, source.manifest(), "a manifest must survive its encoding");
        let (sink, plan) = Sink::open(to, &manifest, 0, options, &Watch::default())?;
        Ok(Copy { source, sink, plan, sent: 0 })
    }

    fn compare(&mut self) {
        for compare in std::mem::take(&mut self.plan.compare) {
            let matches = self.source.compare(compare.entry, &compare.values);
            self.sink.compare_result(compare.entry, &matches).unwrap();
        }
    }

    /// Sends chunk `chunk`; reports new failures first.
    fn step(&mut self, chunk: u64) -> Result<(), Error> {
        let mut buf = vec![0xEE; CHUNK as usize];
        let known = self.source.failures().len();
        let read = self.source.read_chunk(chunk, &mut buf).unwrap();
        for failure in &self.source.failures()[known..] {
            self.sink.fail_entry(failure.entry.unwrap(), &failure.reason);
        }
        self.sent += read.len as u64;
        let verdict = self.sink.write_chunk(chunk, &buf[..read.len], &read.value)?;
        assert_eq!(verdict, Verdict::Written);
        Ok(())
    }

    fn missing(&self) -> Vec<u64> {
        self.sink.missing().into_iter().flatten().collect()
    }

    fn run(mut self) -> Result<SinkOutcome, Error> {
        self.compare();
        for chunk in self.missing() {
            self.step(chunk)?;
        }
        assert!(self.sink.is_complete());
        self.sink.finish()
    }
}

fn copy_with(paths: &[&Path], to: &Path, options: &SinkOptions) -> Result<SinkOutcome, Error> {
    Copy::open(source(paths), &ambient(to), options)?.run()
}

fn copy(paths: &[&Path], to: &Path) -> SinkOutcome {
    copy_with(paths, to, &SinkOptions::default()).unwrap()
}

fn slash(path: &Path) -> PathBuf {
    path.join("")
}
