//! Objects of boundary sizes.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::rig::{Pair, bytes, remains, write};

#[test]
fn objects_around_the_size_of_a_block_go_both_ways() {
    let pair = Pair::new();
    // No block, one byte, and sizes around a block for MTUs of 1500 and 9000 bytes: the MTU less 60
    // bytes of headers and seal.
    for size in [0, 1, 1439, 1440, 1441, 8939, 8940, 8941] {
        let name = format!("{size}");
        write(&pair.here.join(&name), &bytes(size, 5));
        let summary = pair.cp(&[&name, &pair.at("")]).summary();
        assert_eq!(summary["bytes"], size);
        assert_eq!(summary["blake3"], blake3::hash(&bytes(size, 5)).to_string());
        assert!(fs::read(pair.there.join(&name)).unwrap() == bytes(size, 5), "push of {size}");
        let summary = pair.cp(&[&pair.at(&name), &format!("back {size}")]).summary();
        assert_eq!(summary["blake3"], blake3::hash(&bytes(size, 5)).to_string());
        let back = fs::read(pair.here.join(format!("back {size}"))).unwrap();
        assert!(back == bytes(size, 5), "pull of {size}");
    }
    assert!(remains(&pair.here).is_empty() && remains(&pair.there).is_empty());
}

#[test]
fn objects_around_the_block_size_of_a_given_datagram_arrive_in_the_fewest_blocks() {
    let pair = Pair::new();
    write(&pair.here.join("x"), b"x");
    let summary = pair.cp(&[&"--datagram=1472", &"x", &pair.at("")]).summary();
    let block = summary["payload_bytes"].as_u64().unwrap() as usize;
    for (size, blocks) in [(block - 1, 1), (block, 1), (block + 1, 2), (3 * block, 3)] {
        write(&pair.here.join("file"), &bytes(size, size as u64));
        let summary = pair.cp(&[&"--datagram=1472", &"file", &pair.at("")]).summary();
        assert_eq!(summary["blocks"], blocks, "{summary}");
        assert!(fs::read(pair.there.join("file")).unwrap() == bytes(size, size as u64));
    }
}

#[test]
fn five_sparse_gigabytes_are_copied_both_ways_and_stay_sparse() {
    const SIZE: u64 = 5_000_000_000;
    let pair = Pair::new();
    let file = File::create(pair.here.join("sparse")).unwrap();
    file.set_len(SIZE).unwrap();
    file.write_all_at(b"near the end", SIZE - 1_000_000).unwrap();
    file.write_all_at(b"in the middle", SIZE / 2).unwrap();
    drop(file);
    let push = pair.cp(&[&"sparse", &pair.at("")]).summary();
    let pull = pair.cp(&[&pair.at("sparse"), &"back"]).summary();
    assert_eq!((&push["bytes"], &pull["bytes"]), (&SIZE.into(), &SIZE.into()));
    assert_eq!(push["blake3"], pull["blake3"]);
    assert_eq!((&push["verified"], &pull["verified"]), (&true.into(), &true.into()));
    for path in [pair.there.join("sparse"), pair.here.join("back")] {
        let meta = fs::metadata(&path).unwrap();
        assert_eq!(meta.len(), SIZE);
        assert!(meta.blocks() * 512 < 8 << 20, "{} blocks", meta.blocks());
        let file = File::open(&path).unwrap();
        let at = |offset, len| {
            let mut part = vec![1; len];
            file.read_exact_at(&mut part, offset).unwrap();
            part
        };
        assert_eq!(at(SIZE - 1_000_000, 12), b"near the end");
        assert_eq!(at(SIZE / 2, 13), b"in the middle");
        assert_eq!(at(SIZE / 4, 4096), vec![0; 4096]);
    }
}
