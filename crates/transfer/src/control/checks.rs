//! Checks of single messages, made before anything acts on them. The manifest is the list of files;
//! an entry is a file, folder or link of this list.

use super::{Compare, Digests, Offer};
use crate::error::{Error, ErrorKind};
use longhaul_files::digest::Digest;
use longhaul_files::manifest::MAX_OBJECT;

/// Maximum length of a manifest in bytes: enough for ten million entries of a hundred bytes.
pub(crate) const MAX_MANIFEST: u64 = 1 << 30;

impl Offer {
    /// Returns the length of the encoded manifest. Only one of the three lengths should be
    /// positive; the longest counts.
    pub(crate) fn list_len(&self) -> u64 {
        (self.manifest.len() as u64).max(self.manifest_len).max(self.streamed_len)
    }

    /// Checks an offer.
    ///
    /// # Errors
    /// The digest is malformed, or a length is impossible.
    pub fn check(&self) -> Result<(), Error> {
        if self.manifest_digest.len() != 32 {
            return Err(refuse("the other side's offer has no digest of its manifest".into()));
        }
        if self.manifest_len > self.object_len {
            return Err(refuse(format!(
                "the other side offers a manifest of {} bytes in an object of {} bytes",
                self.manifest_len, self.object_len
            )));
        }
        let manifest = self.list_len();
        if manifest > MAX_MANIFEST {
            return Err(refuse(format!(
                "the other side offers a manifest of {manifest} bytes; {MAX_MANIFEST} is the limit"
            )));
        }
        if self.object_len > MAX_OBJECT {
            return Err(refuse(format!(
                "the other side offers an object of {} bytes; {MAX_OBJECT} is the limit",
                self.object_len
            )));
        }
        Ok(())
    }
}

impl Digests {
    /// Returns the chunks, each with its digest.
    ///
    /// # Errors
    /// The list does not have 32 bytes of digest for each chunk.
    pub fn pairs(&self) -> Result<impl Iterator<Item = (u64, Digest)>, Error> {
        pairs(&self.chunks, &self.values)
            .ok_or_else(|| refuse("the other side's list of digests is malformed".into()))
    }
}

impl Compare {
    /// Returns the entry, and chunks of its file, each with its digest at the destination.
    ///
    /// # Errors
    /// The entry cannot exist in a manifest, or the message does not have 32 bytes of digest for
    /// each chunk.
    pub fn question(&self) -> Result<(u32, Vec<(u64, Digest)>), Error> {
        let entry = u32::try_from(self.entry).ok();
        entry.zip(pairs(&self.chunks, &self.values).map(Iterator::collect)).ok_or_else(|| {
            refuse(format!("the other side's comparison of entry {} is malformed", self.entry))
        })
    }
}

fn pairs(chunks: &[u64], values: &[u8]) -> Option<impl Iterator<Item = (u64, Digest)>> {
    let (values, rest) = values.as_chunks::<32>();
    let fits = rest.is_empty() && values.len() == chunks.len();
    fits.then(|| chunks.iter().copied().zip(values.iter().copied()))
}

fn refuse(what: String) -> Error {
    Error::new(ErrorKind::Unfinished, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_with_an_impossible_length_or_a_malformed_digest_is_refused() {
        let offer = Offer {
            manifest: Vec::new(),
            manifest_len: 1 << 20,
            manifest_digest: vec![0; 32],
            object_len: MAX_OBJECT,
            ..Offer::default()
        };
        assert_eq!(offer.check(), Ok(()));
        let object_len = MAX_OBJECT + 1;
        assert!(Offer { object_len, ..offer.clone() }.check().is_err());
        assert!(Offer { object_len: (1 << 20) - 1, ..offer.clone() }.check().is_err());
        assert!(Offer { manifest_len: MAX_MANIFEST + 1, ..offer.clone() }.check().is_err());
        // Memory is reserved for the longest of the lengths, so the limit applies to each length.
        let streamed = Offer { streamed_len: MAX_MANIFEST, ..offer.clone() };
        assert_eq!((streamed.check(), streamed.list_len()), (Ok(()), MAX_MANIFEST));
        let longer = Offer { manifest_len: MAX_MANIFEST + 1, ..streamed.clone() };
        assert!(longer.check().is_err() && longer.list_len() > MAX_MANIFEST);
        assert!(Offer { streamed_len: MAX_MANIFEST + 1, ..streamed }.check().is_err());
        assert!(Offer { manifest_digest: vec![0; 31], ..offer }.check().is_err());
    }

    #[test]
    fn each_chunk_has_one_digest() {
        let digests =
            |chunks: usize, bytes| Digests { chunks: vec![3; chunks], values: vec![7; bytes] };
        assert_eq!(digests(2, 64).pairs().unwrap().last(), Some((3, [7; 32])));
        for (chunks, bytes) in [(1, 64), (2, 32), (2, 63), (0, 32), (1, 0)] {
            assert!(digests(chunks, bytes).pairs().is_err(), "{chunks} chunks, {bytes} bytes");
        }
    }
}
