//! Names that differ only in case. On a file system that ignores case, such names of one folder
//! name one file. Without this check the last of these files would replace the others, and all of
//! them would count as copied.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::io;

use super::bits::Bits;
use super::destination::Ground;
use crate::store::Folder;
use crate::{Manifest, names};

#[derive(Debug)]
pub(super) struct Alike {
    /// Entries with an earlier entry in their folder whose name differs only in case.
    entries: Bits,
    /// Whether a folder ignores case, by the number of the folder's entry.
    known: BTreeMap<Option<u32>, bool>,
}

impl Alike {
    pub(super) fn new(manifest: &Manifest) -> Alike {
        let random = RandomState::new();
        let count = manifest.entries().len();
        let hash = |number: usize| {
            let parent = manifest.entries()[number].parent();
            hash_of(&random, parent, manifest.name(number as u32))
        };
        let mut hashes: Vec<u64> = (0..count).map(hash).collect();
        hashes.sort_unstable();
        let alike = hashes.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        let alike: HashSet<u64> = alike.collect();
        let mut entries = Bits::new(count as u64);
        if !alike.is_empty() {
            let mut seen = HashSet::new();
            for number in 0..count {
                let hash = hash(number);
                if alike.contains(&hash) && !seen.insert(hash) {
                    entries.insert(number as u64);
                }
            }
        }
        Alike { entries, known: BTreeMap::new() }
    }

    /// Fails for an entry that has the place of an earlier entry of its folder.
    pub(super) fn check(&mut self, ground: &mut Ground, number: u32) -> io::Result<()> {
        if !self.entries.has(number.into()) {
            return Ok(());
        }
        let parent = ground.manifest.entries()[number as usize].parent();
        let ignores = match self.known.get(&parent) {
            Some(ignores) => *ignores,
            None => {
                let ignores = ignores_case(ground.at(number)?.0)?;
                self.known.insert(parent, ignores);
                ignores
            }
        };
        if ignores {
            let what = "its name differs only in case from another name of this copy, and the \
                        destination ignores case";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        Ok(())
    }
}

fn hash_of(random: &RandomState, parent: Option<u32>, name: &[u8]) -> u64 {
    let mut hasher = random.build_hasher();
    parent.hash(&mut hasher);
    if name.is_ascii() {
        name.iter().for_each(|byte| hasher.write_u8(byte.to_ascii_lowercase()));
    } else {
        names::folded(name).bytes().for_each(|byte| hasher.write_u8(byte));
    }
    hasher.finish()
}

/// Creates a file in `folder`, looks for it in upper case, and removes it.
fn ignores_case(folder: &dyn Folder) -> io::Result<bool> {
    let name = names::unique(b"case");
    drop(folder.create(&name, 0o600)?);
    let found = folder.look_if_there(&name.to_ascii_uppercase());
    folder.remove(&name)?;
    Ok(found?.is_some())
}
