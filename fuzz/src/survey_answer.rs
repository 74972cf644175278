//! A server's answer about its files, before the server becomes one of several sources of a copy.

use longhaul_files::{Manifest, VirtualObject};
use longhaul_transfer::control::Surveyed;
use longhaul_transfer::copy::SurveyAnswer;
use prost::Message as _;

/// Maximum number of checked pieces of an answer. The first invalid piece ends the check.
const PIECES: u32 = 200;

/// Checks an accepted answer, however it is split into pieces. Its list of files and its values
/// (hashes of chunks) are those of the pieces, no chunk lies in a hole of a file, and there is at
/// most one value for each chunk.
pub fn run(bytes: &[u8]) {
    let (mut answer, mut rest) = (SurveyAnswer::default(), bytes);
    let (mut encoded, mut values) = (Vec::new(), Vec::new());
    for _ in 0..PIECES {
        let Ok(piece) = Surveyed::decode_length_delimited(&mut rest) else { return };
        encoded.extend_from_slice(&piece.manifest);
        values.extend_from_slice(&piece.values);
        match answer.take(piece) {
            Ok(false) => {}
            Ok(true) => break,
            Err(error) => return assert!(error.what.len() < 3000),
        }
        if rest.is_empty() {
            return;
        }
    }
    let Ok(found) = answer.end() else { return };
    assert_eq!(Manifest::decode(&encoded).as_ref(), Ok(&*found.manifest));
    let object = VirtualObject::new(&found.manifest, 0);
    assert!(found.values.len() as u64 <= object.chunks());
    assert_eq!(found.values.as_flattened(), values);
    assert_eq!(object.hole_chunks().next(), None);
}
