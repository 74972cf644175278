//! Names that a file system may take for one name. On a file system that ignores case, two names of
//! one folder that differ only in case name one file. Without this check the later of these files
//! would replace the earlier file, and both would count as copied.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::io;

use super::destination::Ground;
use crate::store::Folder;
use crate::{Manifest, names};

/// Entries whose name may be the name of an earlier entry.
#[derive(Debug)]
pub(super) struct Alike {
    /// Maps the number of each such entry to the numbers of earlier entries in the same folder: the
    /// first one with the same name by each rule of [`RULES`].
    earlier: BTreeMap<u32, Vec<u32>>,
    /// Folders that distinguish case, by the numbers of their entries (`None` is the base folder).
    distinguish: BTreeSet<Option<u32>>,
}

/// The ways in which file systems ignore case: only for ASCII letters; for each character whose
/// lower case is one character; for each whose upper case is one character; for all characters,
/// also if the other case is several characters (ß and SS).
const RULES: [fn(&str) -> String; 4] = [
    |name| name.to_ascii_lowercase(),
    |name| name.chars().map(|each| single(each, each.to_lowercase())).collect(),
    |name| {
        let upper = |each: char| single(each, each.to_uppercase()).to_ascii_lowercase();
        name.chars().map(upper).collect()
    },
    // The three steps make ẞ, ß and SS equal: ẞ → ß → SS → ss.
    |name| name.to_lowercase().to_uppercase().to_lowercase(),
];

/// Returns the only character of `forms`; `each` if there are several.
fn single(each: char, mut forms: impl Iterator<Item = char>) -> char {
    match (forms.next(), forms.next()) {
        (Some(only), None) => only,
        _ => each,
    }
}

impl Alike {
    pub(super) fn new(manifest: &Manifest) -> Alike {
        let random = RandomState::new();
        let count = manifest.entries().len() as u32;
        let mut earlier = BTreeMap::<u32, Vec<u32>>::new();
        // For ASCII names all rules are equal.
        let is_ascii = (0..count).all(|number| manifest.name(number).is_ascii());
        for rule in &RULES[..if is_ascii { 1 } else { RULES.len() }] {
            let hash = |number: u32| {
                let parent = manifest.entries()[number as usize].parent();
                (hash_of(&random, *rule, parent, manifest.name(number)), number)
            };
            let mut hashes: Vec<(u64, u32)> = (0..count).map(hash).collect();
            hashes.sort_unstable();
            for alike in hashes.chunk_by(|(one, _), (other, _)| one == other) {
                for (_, number) in &alike[1..] {
                    let firsts = earlier.entry(*number).or_default();
                    if !firsts.contains(&alike[0].1) {
                        firsts.push(alike[0].1);
                    }
                }
            }
        }
        Alike { earlier, distinguish: BTreeSet::new() }
    }

    /// Fails if the file system of the destination takes the name of entry `number` for the name of
    /// an earlier entry.
    pub(super) fn check(&mut self, ground: &mut Ground, number: u32) -> io::Result<()> {
        let Some(firsts) = self.earlier.get(&number) else { return Ok(()) };
        let manifest = ground.manifest.clone();
        let parent = manifest.entries()[number as usize].parent();
        for first in firsts {
            if self.distinguish.contains(&parent) {
                return Ok(());
            }
            let (first, name) = (manifest.name(*first), manifest.name(number));
            // In a folder that may not be written, no file can replace another.
            let Ok(is_one) = is_one_name(ground.at(number)?.0, first, name) else { return Ok(()) };
            if is_one {
                let what = "its name differs only in case from another name of this copy, and the \
                            destination ignores case";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
            }
            if first.eq_ignore_ascii_case(name) {
                self.distinguish.insert(parent);
            }
        }
        Ok(())
    }
}

/// Hashes a name so that names that are equal by `rule` have equal hashes.
fn hash_of(
    random: &RandomState,
    rule: fn(&str) -> String,
    parent: Option<u32>,
    name: &[u8],
) -> u64 {
    let mut hasher = random.build_hasher();
    parent.hash(&mut hasher);
    match str::from_utf8(name) {
        Ok(text) if !text.is_ascii() => {
            rule(text).bytes().for_each(|byte| hasher.write_u8(byte));
        }
        _ => name.iter().for_each(|byte| hasher.write_u8(byte.to_ascii_lowercase())),
    }
    hasher.finish()
}

/// Returns whether `first` and `second` are one name in `folder`: creates a file whose name
/// contains `first`, looks for it by `second`, and removes it.
fn is_one_name(folder: &dyn Folder, first: &[u8], second: &[u8]) -> io::Result<bool> {
    let random = names::random();
    let probe = names::probe(first, random);
    drop(folder.create(&probe, 0o600)?);
    let found = folder.look_if_there(&names::probe(second, random));
    folder.remove(&probe)?;
    Ok(found?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_finds_the_names_that_it_should_and_keeps_others_apart() {
        let equal = |one: &str, other: &str| RULES.map(|rule| rule(one) == rule(other));
        assert_eq!(equal("README", "readme"), [true; 4]);
        assert_eq!(equal("Ä", "ä"), [false, true, true, true]);
        assert_eq!(equal("\u{b5}", "\u{3bc}"), [false, false, true, true], "micro sign and mu");
        assert_eq!(equal("\u{212a}", "k"), [false, true, false, true], "Kelvin sign");
        assert_eq!(equal("ß", "SS"), [false, false, false, true]);
        assert_eq!(equal("a", "b"), [false; 4]);
    }
}
