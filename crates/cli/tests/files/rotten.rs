//! A partial file that is corrupted between two runs.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::rig::{Pair, bytes, remains, write};

const LEN: usize = 40_000_000;

#[test]
fn corruption_in_a_partial_file_is_found_despite_the_journal() {
    let pair = Pair::new();
    write(&pair.here.join("file"), &bytes(LEN, 1));
    let mut copy = pair.copy(&["--rate=100M"], "file", pair.at(""));
    copy.progressed(25_000_000);
    copy.kill();
    let (partial, journal) =
        (pair.there.join(".file.lh-part"), pair.there.join(".file.lh-journal"));
    // The journal has at least four chunks: its header has 40 bytes, a chunk 48.
    assert!(fs::metadata(&journal).expect("the journal is kept").len() > 200);
    let rotten = File::options().write(true).open(&partial).expect("the partial file is kept");
    let then = fs::metadata(&partial).unwrap().modified().unwrap();
    rotten.write_all_at(&[!bytes(LEN, 1)[2_000_000]], 2_000_000).unwrap();
    rotten.set_modified(then).unwrap();
    // A new server process starts, because a process may trust the files that it wrote itself.
    let mut pair = pair;
    pair.server.child().signal(rustix::process::Signal::KILL);
    pair.restart(&[]);
    let ended = pair.cp(&[&"file", &pair.at("")]);
    let summary = ended.summary();
    // Less than the copied 25 MB is resumed: chunks that were not yet in the journal are sent
    // again.
    assert!(summary["resumed_bytes"].as_u64() >= Some(8 << 20), "{ended}");
    assert!(fs::read(pair.there.join("file")).unwrap() == bytes(LEN, 1), "{ended}");
    assert!(remains(&pair.there).is_empty());
}
