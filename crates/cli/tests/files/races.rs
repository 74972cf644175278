//! While a copy walks through a folder, a test swaps the folder for a link that leads out of the
//! tree. The copy must neither read nor write anything outside the tree.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::rig::{Pair, content, write};

const FILES: usize = 1500;
const INSIDE: &[u8] = b"inside";
const OUTSIDE: &[u8] = b"a secret";

/// Swaps `folder` for a link to `outside` and back until `over`; counts the swaps.
fn swap(folder: &Path, outside: &Path, over: &AtomicBool, swapped: &AtomicU64) {
    let away = folder.with_extension("away");
    while !over.load(Ordering::Relaxed) {
        // The copy may not have created the folder yet.
        if fs::rename(folder, &away).is_ok() {
            // If the copy has created the folder again, no link can be made.
            if symlink(outside, folder).is_ok() {
                thread::yield_now();
                let _ = fs::remove_file(folder);
                swapped.fetch_add(1, Ordering::Relaxed);
            }
            let _ = fs::remove_dir_all(folder);
            let _ = fs::rename(&away, folder);
        }
        thread::yield_now();
    }
}

/// Copies four times while `folder` is swapped; returns the number of swaps.
fn race(pair: &Pair, folder: &Path, copy: impl Fn()) -> u64 {
    let outside = pair.scratch.path().join("outside");
    let (over, swapped) = (AtomicBool::new(false), AtomicU64::new(0));
    let (stop, count) = (&over, &swapped);
    thread::scope(|scope| {
        scope.spawn(|| swap(folder, &outside, stop, count));
        for _ in 0..4 {
            copy();
        }
        over.store(true, Ordering::Relaxed);
    });
    swapped.load(Ordering::Relaxed)
}

fn outside(pair: &Pair) {
    for n in 0..FILES {
        write(&pair.scratch.path().join(format!("outside/f{n}")), OUTSIDE);
    }
}

#[test]
fn a_folder_replaced_by_a_link_during_a_copy_lets_nothing_be_written_outside() {
    let pair = Pair::new();
    outside(&pair);
    for n in 0..FILES {
        write(&pair.here.join(format!("tree/d/f{n}")), INSIDE);
    }
    let before = content(&pair.scratch.path().join("outside"));
    let folder = pair.there.join("tree/d");
    let swapped = race(&pair, &folder, || {
        let ended = pair.cp(&[&"-r", &"tree", &pair.at("")]);
        assert!(matches!(ended.status, Some(0 | 5 | 8)), "{ended}");
    });
    assert!(swapped > 0, "the folder was never a link");
    assert_eq!(content(&pair.scratch.path().join("outside")), before);
}

#[test]
fn a_folder_replaced_by_a_link_during_a_copy_lets_nothing_outside_be_read() {
    let pair = Pair::new();
    outside(&pair);
    for n in 0..FILES {
        write(&pair.there.join(format!("tree/d/f{n}")), INSIDE);
    }
    let folder = pair.there.join("tree/d");
    let swapped = race(&pair, &folder, || {
        let ended = pair.cp(&[&"-r", &pair.at("tree"), &"."]);
        assert!(matches!(ended.status, Some(0 | 5 | 8)), "{ended}");
        for n in 0..FILES {
            // If `d` was a link when the server walked the tree, the copy has a link, which is
            // harmless.
            let path = pair.here.join(format!("tree/d/f{n}"));
            let read =
                if pair.here.join("tree/d").is_symlink() { None } else { fs::read(path).ok() };
            assert!(read.is_none_or(|read| read == INSIDE), "f{n}: {ended}");
        }
        let _ = fs::remove_dir_all(pair.here.join("tree"));
    });
    assert!(swapped > 0, "the folder was never a link");
}
