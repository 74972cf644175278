//! A manifest from an untrusted peer, and the object that it describes.

use std::sync::Arc;

use longhaul_files::{CHUNK, Manifest, VirtualObject};

/// Maximum number of chunks that are checked at the start of an object, and again at its end.
const LOOKED_AT: u64 = 64;

/// Checks that a parsed manifest names nothing outside the destination and can be encoded and
/// parsed again, and that files do not overlap within a chunk.
pub fn run(bytes: &[u8]) {
    let manifest = match Manifest::decode(bytes) {
        Ok(manifest) => manifest,
        Err(error) => return assert!(error.to_string().len() < 3000),
    };
    assert!(manifest.entries().len() <= bytes.len());
    for number in 0..manifest.entries().len() as u32 {
        let shown = manifest.shown(number);
        for name in manifest.path(number).split(|byte| *byte == b'/') {
            assert!((1..=255).contains(&name.len()), "{shown}");
            assert!(name != b"." && name != b".." && !name.contains(&0), "{shown}");
        }
    }
    assert_eq!(Manifest::decode(&manifest.encode()).as_ref(), Ok(&manifest));
    let manifest = Arc::new(manifest);
    for prefix in [0, bytes.len() as u64] {
        look_at(&manifest, &VirtualObject::new(&manifest, prefix));
    }
}

fn look_at(manifest: &Manifest, object: &VirtualObject) {
    let chunks = object.chunks();
    let first = 0..chunks.min(LOOKED_AT);
    for chunk in first.chain(chunks.saturating_sub(LOOKED_AT)..chunks) {
        let mut end = 0;
        for extent in object.extents(chunk) {
            assert!(extent.len > 0 && extent.chunk_offset >= end);
            end = extent.chunk_offset + extent.len;
            let size = manifest.entries()[extent.entry as usize].size();
            assert!(size.is_some_and(|size| extent.file_offset + extent.len as u64 <= size));
        }
        assert!(end as u64 <= CHUNK && object.chunk_content(chunk) as u64 <= CHUNK);
        assert!(object.chunk_kind(chunk).is_some());
    }
    assert_eq!(object.chunk_kind(chunks), None);
    let mut end = 0;
    for implied in object.implied() {
        assert!(end <= implied.start && implied.start < implied.end);
        end = implied.end;
    }
    assert!(end <= object.len());
    let mut end = 0;
    for hole in object.hole_chunks() {
        assert!(end <= hole.start && hole.start < hole.end);
        end = hole.end;
    }
    assert!(end <= chunks);
}
