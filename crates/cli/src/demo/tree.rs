//! A realistic tree: many small files in folders, some large ones, and special cases.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::symlink;
use std::path::Path;

use longhaul::CancelHandle;
use longhaul_proto::units::Bytes;
use longhaul_testbed::random::Random;

/// Number of files in a folder of small files.
const SMALL_IN_FOLDER: u64 = 64;
/// Small files have fewer bytes than this.
const SMALL: u64 = 40_000;
/// Per cent of the tree's bytes in each large file; the rest is in small ones.
const BIG: [u64; 5] = [40, 25, 12, 6, 2];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files, {}", self.files, Bytes::new(self.bytes))
    }
}

/// Creates a tree of about `size` bytes, determined by the seed.
pub(super) fn make(root: &Path, size: Bytes, seed: u64, cancel: &CancelHandle) -> io::Result<Made> {
    let mut maker = Maker { made: Made::default(), noise: Random::new(seed), cancel };
    fs::create_dir(root)?;
    for (number, percent) in BIG.into_iter().enumerate() {
        // Odd sizes: the last chunk (1 MiB) and the last block (one datagram) are usually short.
        let len = size.get() / 100 * percent + 12_345 * number as u64 + 1;
        maker.file(&root.join(format!("big-{number}.bin")), len)?;
    }
    let mut folder = 0;
    while maker.made.bytes < size.get() {
        let path = root.join(format!("step-{:02}", folder / 8)).join(format!("part-{folder:03}"));
        fs::create_dir_all(&path)?;
        for file in 0..SMALL_IN_FOLDER {
            let len = maker.noise.below(SMALL);
            maker.file(&path.join(format!("sample-{file:02}.dat")), len)?;
        }
        folder += 1;
    }
    maker.file(&root.join("empty"), 0)?;
    maker.file(&root.join("größe und name.txt"), 1)?;
    fs::create_dir(root.join("empty-folder"))?;
    symlink("big-0.bin", root.join("latest"))?;
    Ok(maker.made)
}

struct Maker<'a> {
    made: Made,
    noise: Random,
    cancel: &'a CancelHandle,
}

impl Maker<'_> {
    fn file(&mut self, path: &Path, len: u64) -> io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let mut left = len;
        while left > 0 {
            let word = self.noise.bits().to_le_bytes();
            let take = left.min(8);
            file.write_all(&word[..take as usize])?;
            left -= take;
        }
        file.flush()?;
        self.made.files += 1;
        self.made.bytes += len;
        if self.cancel.is_cancelled() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::walk;

    #[test]
    fn the_same_seed_makes_the_same_tree() {
        let place = tempfile::tempdir().unwrap();
        let cancel = CancelHandle::default();
        let size = Bytes::new(3_000_000);
        let make = |name: &str, seed| make(&place.path().join(name), size, seed, &cancel).unwrap();
        let made = make("a", 1);
        assert_eq!(made, make("b", 1));
        make("c", 2);
        assert!(made.bytes >= size.get() && made.files > SMALL_IN_FOLDER);
        let compare = |name: &str| {
            walk::compare(&place.path().join("a"), &place.path().join(name), &cancel).unwrap()
        };
        let same = compare("b");
        assert_eq!((same.files, same.bytes), (made.files, made.bytes));
        assert!(same.differences.is_empty());
        assert!(!compare("c").differences.is_empty());
    }
}
