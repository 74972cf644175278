//! What a sending end says first: what it has.

use crate::control::Offer;
use longhaul_files::Source;

/// Encoded manifests up to this size travel on the control stream, larger ones as the object's
/// beginning.
const INLINE_MANIFEST: usize = 16 << 10;

/// The offer of what `source` has to an end that has surveyed it.
pub(super) fn surveyed(source: &Source) -> Offer {
    let manifest_digest = blake3::hash(&source.manifest().encode()).as_bytes().to_vec();
    let object_len = source.object().len();
    Offer { manifest_digest, object_len, ..Offer::default() }
}

/// The offer of what `source` has, and its manifest where that is to follow on the stream: one that
/// is long would else go with the data, which may be in the clear.
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
