//! Names of longhaul's own files next to a user's files: partial files, their journals, small files
//! and new links before their rename, and marks of unfinished folders.
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

/// Returns a temporary name with a random number, which no other copy knows.
pub(crate) fn unique(name: &[u8]) -> Vec<u8> {
    probe(name, random())
}

/// Returns a temporary name made from `name` and `random`, to test how a file system compares
/// names.
pub(crate) fn probe(name: &[u8], random: u64) -> Vec<u8> {
    hidden_name(name, &format!(".{random:016x}{SMALL}"))
}

/// Returns whether [`unique`] may have made `found` for `name`.
pub(crate) fn is_unique(found: &[u8], name: &[u8]) -> bool {
    let start = found.len().saturating_sub(17 + SMALL.len());
    let Ok(suffix) = str::from_utf8(&found[start..]) else { return false };
    let number = suffix.strip_prefix('.').and_then(|rest| rest.strip_suffix(SMALL));
    number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_hexdigit()))
        && found == hidden_name(name, suffix)
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

/// Returns whether a file system may take `name` for one of our names. Some file systems ignore the
/// case of letters, and some also ignore invisible characters.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    if !matches!(name.first(), Some(b'.' | 0x80..)) {
        return false;
    }
    // Both steps are needed: only upper case maps the letter ſ to S, and only lower case maps the
    // Kelvin sign to k.
    let mut folded = String::from_utf8_lossy(name).to_uppercase().to_lowercase();
    folded.retain(|letter| letter.is_ascii());
    let ours = [PARTIAL, SMALL, LINK, JOURNAL, RESTARTED, UNFINISHED];
    folded.starts_with('.') && ours.iter().any(|suffix| folded.ends_with(suffix))
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
    fn names_that_some_file_systems_take_for_ours_are_reserved() {
        let long_s = ".a.lh-\u{17f}mall";
        let kelvin = ".a.lh-lin\u{212a}";
        let invisible = ".a.lh-jour\u{200c}nal";
        let at_start = "\u{200c}.a.lh-new";
        for name in [".A.LH-JOURNAL", ".\u{e4}.Lh-Part", long_s, kelvin, invisible, at_start] {
            assert!(is_reserved(name.as_bytes()), "{name}");
        }
        assert!(!is_reserved(".a.lh-b\u{e4}rt".as_bytes()));
    }

    #[test]
    fn long_names_do_not_share_a_partial_file() {
        let (mut one, other) = (vec![b'x'; 255], vec![b'x'; 255]);
        one[254] = b'y';
        assert_ne!(partial(&one), partial(&other));
        assert_ne!(small(&one), small(&other));
    }

    #[test]
    fn two_unique_names_for_one_file_differ() {
        assert_ne!(unique(b"a"), unique(b"a"));
    }

    #[test]
    fn a_unique_name_is_recognised_with_the_name_of_its_file_at_any_length() {
        for len in [1, 8, 228, 229, 230, 255] {
            let name = vec![b'x'; len];
            let ours = unique(&name);
            assert!(is_unique(&ours, &name), "{len}");
            assert!(!is_unique(&ours, b"y") && !is_unique(&ours[1..], &name), "{len}");
        }
        for other in [&b""[..], b".a.lh-small", b".a.0123456789abcdeg.lh-small", b".a.\xff"] {
            assert!(!is_unique(other, b"a"));
        }
        assert!(is_unique(b".a.0123456789abcdef.lh-small", b"a"));
    }
}
