//! A server's listing of a folder.

use longhaul_files::manifest::MAX_PATH;
use longhaul_transfer::control::list::{Listed, ListedName};
use prost::Message as _;

pub(super) fn all() -> Vec<Vec<u8>> {
    let name = |name: &[u8], kind, mode, seconds, nanos| ListedName {
        name: name.to_vec(),
        kind,
        mode,
        size: 7,
        seconds,
        nanos,
        ..ListedName::default()
    };
    let fine = vec![name(b"file", 0, 0o644, 1_000_000_000, 5), name(b"sub", 1, 0o755, -1, 0)];
    let lies = vec![
        name(b"../x", 0, 0, 0, 0),
        name(b"nul\0", 2, 0, i64::MIN, 0),
        name(b"mode", 3, u32::MAX, 0, 0),
        name(b"time", 9, 0, i64::MAX, u32::MAX),
    ];
    let link = |kind, target: &[u8]| ListedName {
        target: target.to_vec(),
        ..name(b"link", kind, 0o777, 0, 0)
    };
    let long = vec![b'x'; MAX_PATH + 1];
    let links = vec![link(2, b"../sub/file"), link(2, b""), link(2, &long[1..])];
    let false_links = vec![link(2, b"nul\0"), link(2, &long), link(0, b"file"), link(9, b"file")];
    [(Vec::new(), false), (fine, true), (lies, false), (links, false), (false_links, true)]
        .map(|(names, done)| Listed { names, done }.encode_to_vec())
        .into()
}
