//! A limit on digests that arrive before their chunks.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind};
use longhaul_files::digest::Digest;

/// The limit, as a number of digests: those of 128 GiB of chunks.
const MOST: usize = 1 << 17;

/// Keeps `digests` below the limit: at the limit, drops the digests of chunks that are not needed.
///
/// # Errors
/// [`ErrorKind::Verification`]: the digests of needed chunks alone reach the limit.
pub(super) fn bound(
    digests: &mut BTreeMap<u64, Digest>,
    needs: impl Fn(u64) -> bool,
) -> Result<(), Error> {
    if digests.len() < MOST {
        return Ok(());
    }
    digests.retain(|chunk, _| needs(*chunk));
    if digests.len() < MOST {
        return Ok(());
    }
    let what =
        format!("the other side sent the digests of {} chunks without the chunks", digests.len());
    Err(Error::new(ErrorKind::Verification, what)
        .advise("use the same release of longhaul on both sides"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(count: u64) -> BTreeMap<u64, Digest> {
        (0..count).map(|chunk| (chunk, [7; 32])).collect()
    }

    #[test]
    fn unneeded_digests_are_dropped_and_too_many_are_refused() {
        let most = MOST as u64;
        let mut few = digests(most - 1);
        assert_eq!(bound(&mut few, |_| false), Ok(()));
        assert_eq!(few.len(), MOST - 1);
        let mut many = digests(most);
        assert_eq!(bound(&mut many, |chunk| chunk % 2 == 0), Ok(()));
        assert_eq!(many.len(), MOST / 2);
        let refused = bound(&mut digests(most), |_| true).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Verification);
        assert!(refused.what.contains("131072"), "{refused}");
    }
}
