//! Checks whether sources hold the same object. Finds the majority, and how the other sources
//! differ.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use longhaul_files::digest::Digest;
use longhaul_files::place::show;
use longhaul_files::{CHUNK, Entry, Kind, Manifest, Shape};

use super::survey::Found;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Agreement {
    /// Sources with the same object, by index.
    pub(super) same: Vec<usize>,
    /// The other sources, and how each differs.
    pub(super) others: Vec<(usize, String)>,
}

/// Returns the size of the largest group of sources with the same object.
pub(super) fn votes(found: &[(usize, String, Found)]) -> usize {
    most(found).map_or(0, |(votes, _)| votes)
}

/// Returns the size of the largest group, and the first source in it.
fn most(found: &[(usize, String, Found)]) -> Option<(usize, &Found)> {
    let mut count: BTreeMap<&Digest, (usize, &Found)> = BTreeMap::new();
    for (_, _, found) in found {
        count.entry(&found.identity).or_insert((0, found)).0 += 1;
    }
    count.into_values().max_by_key(|(votes, _)| *votes)
}

/// Returns the majority of the surveyed sources. `found` has each source's index, name and survey.
/// Fails if at most half of them have the same object.
pub(super) fn agree(found: &[(usize, String, Found)]) -> Result<Agreement, Error> {
    let Some((votes, first)) = most(found) else {
        return Err(Error::new(ErrorKind::Unreachable, "no source could be surveyed"));
    };
    if 2 * votes <= found.len() {
        return Err(no_majority(found));
    }
    let (mut same, mut others) = (Vec::new(), Vec::new());
    for (number, _, found) in found {
        match first.differs(found) {
            None => same.push(*number),
            Some(how) => others.push((*number, how)),
        }
    }
    Ok(Agreement { same, others })
}

impl Found {
    pub(super) fn new(manifest: Arc<Manifest>, digest: Digest, values: Vec<Digest>) -> Found {
        let identity = identity(&manifest, &values);
        Found { manifest, digest, values: Arc::new(values), identity, _memory: Box::new(()) }
    }

    /// Returns how `other` differs from this, as a predicate ("has ..."); `None` if they are equal.
    pub(super) fn differs(&self, other: &Found) -> Option<String> {
        (self.identity != other.identity).then(|| difference(self, other))
    }
}

fn no_majority(found: &[(usize, String, Found)]) -> Error {
    let (_, first_name, first) = &found[0];
    let how = found.iter().find_map(|(_, name, found)| {
        let how = first.differs(found)?;
        Some(format!("; {first_name} and {name}: the second {how}"))
    });
    let what = format!("no majority of the sources has the same object{}", how.unwrap_or_default());
    let advice = "find out which source is right, and name only sources with the same object";
    Error::new(ErrorKind::RemoteFile, what).advise(advice)
}

/// Returns a digest of the properties that sources of one object share: names, kinds, sizes, the
/// targets of links, and content. Times, permissions and the name of the top entry may differ.
fn identity(manifest: &Manifest, values: &[Digest]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for (entry, number) in manifest.entries().iter().zip(0..) {
        let (parent, name) = inner(manifest, number);
        hasher.update(&parent.unwrap_or(u32::MAX).to_le_bytes());
        hasher.update(&(name.len() as u64).to_le_bytes()).update(name);
        match &entry.kind {
            Kind::File { size, .. } => hasher.update(b"f").update(&size.to_le_bytes()),
            Kind::Folder => hasher.update(b"d"),
            Kind::Link { target } => {
                hasher.update(b"l").update(&(target.len() as u64).to_le_bytes()).update(target)
            }
        };
    }
    hasher.update(b"v");
    for value in values {
        hasher.update(value);
    }
    *hasher.finalize().as_bytes()
}

/// Returns the folder of an entry (a file, folder or link), and the entry's name in that folder.
/// The name of the top entry is empty, because sources may name it differently.
fn inner(manifest: &Manifest, number: u32) -> (Option<u32>, &[u8]) {
    match (manifest.shape(), manifest.entries()[number as usize].parent()) {
        (Shape::File | Shape::Named, None) => (None, &[]),
        (_, parent) => (parent, manifest.name(number)),
    }
}

fn difference(first: &Found, other: &Found) -> String {
    let (a, b) = (first.manifest.entries(), other.manifest.entries());
    let (one, two) = (&first.manifest, &other.manifest);
    let has_same_name = |number| inner(one, number) == inner(two, number);
    let size = |all: &[Entry], number: u32| all[number as usize].size();
    let differs = |number: &u32| !has_same_name(*number) || size(a, *number) != size(b, *number);
    if let Some(at) = (0..a.len().min(b.len()) as u32).find(differs) {
        let (ours, theirs) = (show(&one.path(at)), show(&two.path(at)));
        return match (size(a, at), size(b, at)) {
            (Some(one), Some(two)) if has_same_name(at) => {
                format!("has {two} bytes instead of {one} in {theirs}")
            }
            _ => format!("has {theirs} instead of {ours}"),
        };
    }
    if a.len() != b.len() {
        return format!("has {} entries instead of {}", b.len(), a.len());
    }
    let chunks = first.values.iter().zip(&*other.values);
    let wrong: Vec<usize> =
        chunks.enumerate().filter(|(_, (a, b))| a != b).map(|(chunk, _)| chunk).collect();
    match wrong.first() {
        Some(chunk) => format!(
            "differs in {} of {} MiB, first in the MiB that begins at byte {}",
            wrong.len(),
            first.values.len(),
            *chunk as u64 * CHUNK
        ),
        None => "differs in its links or kinds of files".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_files::Listed;
    use longhaul_files::manifest::FileTime;

    /// Returns the survey of a source with one file. All bytes of every chunk's digest are `value`;
    /// the file was modified at `seconds`.
    fn found(name: &str, size: u64, value: u8, seconds: i64) -> Found {
        let kind = Kind::file(size);
        let modified = FileTime { seconds, nanos: 0 };
        let entry = Listed { path: name.as_bytes().into(), kind, mode: 0o644, modified };
        let manifest = Arc::new(Manifest::new(Shape::File, vec![entry]).unwrap());
        let chunks = size.div_ceil(CHUNK) as usize;
        Found::new(manifest, [seconds as u8; 32], vec![[value; 32]; chunks])
    }

    fn named(all: Vec<Found>) -> Vec<(usize, String, Found)> {
        let named = all.into_iter().enumerate().map(|(n, found)| (n, format!("h{n}:/x"), found));
        named.collect()
    }

    fn judge(all: Vec<Found>) -> Result<Agreement, Error> {
        agree(&named(all))
    }

    #[test]
    fn votes_counts_the_sources_in_the_largest_group() {
        assert_eq!(votes(&[]), 0);
        let all = vec![found("x", 9, 1, 5), found("x", 9, 2, 5), found("y", 9, 2, 6)];
        assert_eq!(votes(&named(all)), 2);
    }

    #[test]
    fn a_source_with_another_name_or_time_agrees_and_one_with_other_content_does_not() {
        let all = vec![found("x", 9, 1, 5), found("y", 9, 1, 6), found("x", 9, 2, 5)];
        let agreement = judge(all).unwrap();
        assert_eq!(agreement.same, [0, 1]);
        let [(2, how)] = &agreement.others[..] else { panic!("{agreement:?}") };
        assert!(how.contains("differs in 1 of 1 MiB"), "{how}");
    }

    #[test]
    fn two_different_sources_have_no_majority_and_the_error_names_both() {
        for other in [found("x", 9, 2, 5), found("x", 10, 1, 5)] {
            let error = judge(vec![found("x", 9, 1, 5), other]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::RemoteFile);
            assert!(error.what.contains("h0:/x") && error.what.contains("h1:/x"), "{error}");
        }
        let half = vec![
            found("x", 9, 1, 5),
            found("x", 9, 1, 5),
            found("x", 9, 2, 5),
            found("x", 9, 2, 5),
        ];
        assert!(judge(half).is_err());
    }

    #[test]
    fn a_different_size_is_reported_with_both_sizes() {
        let all = vec![found("x", 9, 1, 5), found("x", 9, 1, 5), found("x", 10, 1, 5)];
        let (_, how) = judge(all).unwrap().others.remove(0);
        assert_eq!(how, "has 10 bytes instead of 9 in x");
    }
}
