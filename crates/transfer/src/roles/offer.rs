//! The offer, with which the sending end describes its object. The offer has the manifest (the list
//! of files), or says where the manifest follows. If the receiver has the manifest already, the
//! offer has only the manifest's digest and the object's length.

use crate::control::Offer;
use longhaul_files::Source;

/// Maximum size in bytes of an encoded manifest within the offer. A longer manifest follows later;
/// see [`whole`].
const INLINE_MANIFEST: usize = 16 << 10;

/// Returns the offer of `source` to a receiver that has received the manifest before the copy.
pub(super) fn surveyed(source: &Source) -> Offer {
    let manifest_digest = blake3::hash(&source.manifest().encode()).as_bytes().to_vec();
    let object_len = source.object().len();
    Offer { manifest_digest, object_len, ..Offer::default() }
}

/// Returns the offer of `source`. A manifest of at most [`INLINE_MANIFEST`] bytes is in the offer.
///
/// A longer manifest becomes the start of the object and is sent with the data. If the data are
/// sent `in_the_clear`, this function returns the manifest instead, and the caller has to send it
/// on the control stream, which is always encrypted.
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
