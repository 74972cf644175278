//! Names of longhaul's own files next to a user's files: partial files, their journals, new links
//! before their rename, and marks of unfinished folders.
//!
//! These names are reserved: no manifest may contain them, and every walk skips them. So a peer
//! cannot send a forged journal.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Maximum length of a name in bytes, on common file systems.
pub(crate) const NAME_MAX: usize = 255;

/// Suffix of the name of a partial file that a later copy resumes.
pub const PARTIAL: &str = ".lh-part";
const JOURNAL: &str = ".lh-journal";
const SMALL: &str = ".lh-small";
const LINK: &str = ".lh-link";
const RESTARTED: &str = ".lh-new";
const UNFINISHED: &str = ".lh-tree";

pub(crate) fn partial(name: &[u8]) -> Vec<u8> {
    hidden_name(name, PARTIAL)
}

/// Returns the temporary name of a small file, which no later copy resumes.
pub(crate) fn small(name: &[u8]) -> Vec<u8> {
    hidden_name(name, SMALL)
}

pub(crate) fn unique(name: &[u8]) -> Vec<u8> {
    hidden_name(name, &format!(".{:016x}{SMALL}", random()))
}

pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

pub(crate) fn link(name: &[u8]) -> Vec<u8> {
    hidden_name(name, LINK)
}

pub(crate) fn journal(name: &[u8]) -> Vec<u8> {
    hidden_name(name, JOURNAL)
}

/// Returns the name of the second partial file of `name`, which a copy writes after a failed sync.
pub(crate) fn restarted(name: &[u8]) -> Vec<u8> {
    hidden_name(name, RESTARTED)
}

/// Returns the name of the mark of a folder `name` that an unfinished copy has created.
pub(crate) fn unfinished(name: &[u8]) -> Vec<u8> {
    hidden_name(name, UNFINISHED)
}

pub(crate) fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(b".")
        && [PARTIAL, SMALL, LINK, JOURNAL, RESTARTED, UNFINISHED]
            .iter()
            .any(|suffix| name.ends_with(suffix.as_bytes()))
}

/// Returns `.NAME` and the suffix. If the result would be too long, a hash of the name replaces
/// NAME.
fn hidden_name(name: &[u8], suffix: &str) -> Vec<u8> {
    let mut out = vec![b'.'];
    if 1 + name.len() + suffix.len() <= NAME_MAX {
        out.extend_from_slice(name);
    } else {
        out.extend_from_slice(&blake3::hash(name).to_hex().as_bytes()[..32]);
    }
    out.extend_from_slice(suffix.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_names_are_reserved_and_fit_at_any_length() {
        for len in [1, 8, 200, 243, 244, 246, 247, 255] {
            let name = vec![b'x'; len];
            let made = [partial, small, link, unique, journal, restarted, unfinished];
            for ours in made.map(|make| make(&name)) {
                assert!(ours.len() <= NAME_MAX && is_reserved(&ours), "{len}");
            }
        }
        assert_eq!(partial(b"a"), b".a.lh-part");
        let longest = [b'x'; NAME_MAX - 9];
        assert_eq!(partial(&longest), [b".", &longest[..], b".lh-part"].concat());
        assert!(!is_reserved(b"a.lh-part") && !is_reserved(b".a.lh-parts"));
    }

    #[test]
    fn long_names_do_not_share_a_partial_file() {
        let (mut one, other) = (vec![b'x'; 255], vec![b'x'; 255]);
        one[254] = b'y';
        assert_ne!(partial(&one), partial(&other));
        assert_ne!(small(&one), small(&other));
    }

    #[test]
    fn a_unique_name_never_repeats() {
        assert_ne!(unique(b"a"), unique(b"a"));
    }
}
