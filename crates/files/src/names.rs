//! Names of our own beside a user's files: partial files, journals, marks of unfinished folders.
//!
//! They are reserved: no manifest may name them and no walk takes them along, so a peer can never
//! hand us a journal of its making.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The longest name of a file or folder, in bytes, on the file systems in use.
pub(crate) const NAME_MAX: usize = 255;

/// End of the name of a partial file that a later copy resumes.
pub const PARTIAL: &str = ".lh-part";
const JOURNAL: &str = ".lh-journal";
const SMALL: &str = ".lh-small";
const LINK: &str = ".lh-link";
const RESTARTED: &str = ".lh-new";
const UNFINISHED: &str = ".lh-tree";

/// Where the file `name` is written until it is whole. A copy locks this file while it is open.
pub(crate) fn partial(name: &[u8]) -> Vec<u8> {
    beside(name, PARTIAL)
}

/// Where a small file is written, which no later copy resumes. No copy writes to a file under this
/// name that another copy has made.
pub(crate) fn small(name: &[u8]) -> Vec<u8> {
    beside(name, SMALL)
}

/// A name that no other copy uses.
pub(crate) fn unique(name: &[u8]) -> Vec<u8> {
    beside(name, &format!(".{:016x}{SMALL}", random()))
}

/// A number that no other copy draws.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Where the link `name` is made before it replaces what is there.
pub(crate) fn link(name: &[u8]) -> Vec<u8> {
    beside(name, LINK)
}

/// The journal of the partial file of `name`.
pub(crate) fn journal(name: &[u8]) -> Vec<u8> {
    beside(name, JOURNAL)
}

/// Where a partial file is made anew after a failed sync, until it takes the old one's name.
pub(crate) fn restarted(name: &[u8]) -> Vec<u8> {
    beside(name, RESTARTED)
}

/// The mark that the folder `name` was named by a copy that has not finished.
pub(crate) fn unfinished(name: &[u8]) -> Vec<u8> {
    beside(name, UNFINISHED)
}

/// Whether `name` is one of ours.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(b".")
        && [PARTIAL, SMALL, LINK, JOURNAL, RESTARTED, UNFINISHED]
            .iter()
            .any(|suffix| name.ends_with(suffix.as_bytes()))
}

/// `.NAME.suffix`, with a hash of the name where that would be too long.
fn beside(name: &[u8], suffix: &str) -> Vec<u8> {
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
    fn a_unique_name_never_comes_twice() {
        assert_ne!(unique(b"a"), unique(b"a"));
    }
}
