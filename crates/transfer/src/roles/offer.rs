//! The offer, the first message of a sending end.

use crate::control::Offer;
use longhaul_files::Source;

/// Encoded manifests up to this size travel on the control stream, larger manifests as the start of
/// the object.
const INLINE_MANIFEST: usize = 16 << 10;

/// Returns the offer of `source` to an end that has surveyed it.
pub(super) fn surveyed(source: &Source) -> Offer {
    let manifest_digest = blake3::hash(&source.manifest().encode()).as_bytes().to_vec();
    let object_len = source.object().len();
    Offer { manifest_digest, object_len, ..Offer::default() }
}

/// Returns the offer of `source`. With `in_the_clear`, also returns a long manifest, which has to
/// follow on the stream. Otherwise a long manifest travels with the data, which are then sealed.
pub(super) fn whole(source: &mut Source, in_the_clear: bool) -> (Offer, Option<Vec<u8>>) {
    let encoded = source.manifest().encode();
    let mut offer = surveyed(source);
    let len = encoded.len() as u64;
    if encoded.len() <= INLINE_MANIFEST {
        offer.manifest = encoded;
    } else if in_the_clear {
        offer.streamed_len = len;
        return (offer, Some(encoded));
    } else {
        source.prefix_manifest(encoded.into());
        (offer.manifest_len, offer.object_len) = (len, source.object().len());
    }
    (offer, None)
}
