//! Names of our own beside a user's files: partial files, journals, marks of unfinished folders.
//!
//! They are reserved: no manifest may name them and no walk takes them along, so a peer can never
//! hand us a journal of its making.

/// The longest name of a file or folder, in bytes, on the file systems in use.
pub(crate) const NAME_MAX: usize = 255;

/// How the name of a file ends that is not whole.
pub const PARTIAL: &str = ".lh-part";
const JOURNAL: &str = ".lh-journal";
const RESTARTED: &str = ".lh-new";
const UNFINISHED: &str = ".lh-tree";

/// Where the file `name` is written until it is whole.
pub(crate) fn partial(name: &[u8]) -> Vec<u8> {
    beside(name, PARTIAL)
}

/// The journal of that partial file.
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
        && [PARTIAL, JOURNAL, RESTARTED, UNFINISHED]
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
            for ours in [partial(&name), journal(&name), restarted(&name), unfinished(&name)] {
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
    }
}
