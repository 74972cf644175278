//! Disk images with holes.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use serde_json::Value;

use crate::rig::{Pair, bytes};

const TERABYTE: u64 = 1_000_000_000_000;
/// Offsets of the content: at the start, after a large hole, and at the end.
const PLACES: [u64; 3] = [0, 700_000_000_001, TERABYTE - PIECE as u64];
const PIECE: usize = 3_000_000;

fn make_image(path: &Path) {
    let image = File::create(path).expect("the folder is ours");
    image.set_len(TERABYTE).expect("the file system supports sparse files");
    for place in PLACES {
        image.write_all_at(&bytes(PIECE, place), place).unwrap();
    }
}

#[track_caller]
fn assert_image(path: &Path, summary: &Value) {
    let image = File::open(path).expect("it is there");
    let meta = image.metadata().unwrap();
    assert_eq!(meta.len(), TERABYTE);
    assert!(meta.blocks() * 512 < 20_000_000, "{} blocks", meta.blocks());
    for place in PLACES {
        let mut there = vec![0; PIECE];
        image.read_exact_at(&mut there, place).unwrap();
        assert!(there == bytes(PIECE, place), "{path:?} differs at {place}");
    }
    assert_eq!((&summary["verified"], &summary["bytes"]), (&true.into(), &TERABYTE.into()));
    assert_eq!(summary["blake3"], Value::Null);
}

/// One CPU needs minutes to hash a terabyte, so a copy that read the holes would exceed the rig's
/// `DEADLINE`.
#[test]
fn a_sparse_image_of_a_terabyte_is_pushed_and_pulled_without_reading_its_holes() {
    let pair = Pair::new();
    make_image(&pair.here.join("image"));
    for protocol in ["rbudp", "tcp"] {
        let flag = format!("--protocol={protocol}");
        let push = pair.cp(&[&flag, &"image", &pair.at(protocol)]).summary();
        assert_image(&pair.there.join(protocol), &push);
        let pull = pair.cp(&[&flag, &pair.at(protocol), &protocol]).summary();
        assert_image(&pair.here.join(protocol), &pull);
    }
}
