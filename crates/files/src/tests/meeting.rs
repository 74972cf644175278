//! Several copies that write the same name in the same folder at the same time.
//!
//! In a tree, a file of at least [`LARGE`] bytes is large: a later copy resumes its partial file.
//! No copy resumes the partial file of a small file.

use super::*;
use crate::digest::StreamRoot;
use crate::store::buffers::Store;
use crate::store::memory::Disk;

const SMALL: u64 = 3 * CHUNK;

fn tree_of(ends: &Ends, folder: &str, size: u64, seed: u64) -> Copy {
    let from = ends.from.join(folder);
    write(from.join("x"), &content(size, seed));
    let from = source(&[&slash(&from)]);
    Copy::open(from, &ambient(&ends.to), &SinkOptions::default()).unwrap()
}

fn there(ends: &Ends) -> Vec<u8> {
    std::fs::read(ends.to.join("x")).unwrap()
}

#[test]
fn a_large_and_a_small_file_of_one_name_each_arrive_whole() {
    for small_first in [false, true] {
        let ends = ends();
        let mut large = tree_of(&ends, "large", LARGE, 1);
        let mut small = tree_of(&ends, "small", SMALL, 2);
        let (large_chunks, small_chunks) = (large.missing(), small.missing());
        let mut begin: [(&mut Copy, &[u64]); 2] =
            [(&mut large, &large_chunks[..7]), (&mut small, &small_chunks[..2])];
        if small_first {
            begin.reverse();
        }
        for (copy, chunks) in begin {
            chunks.iter().for_each(|chunk| copy.step(*chunk).unwrap());
        }
        large.step(7).unwrap();
        assert!(there(&ends) == content(LARGE, 1), "small first: {small_first}");
        assert_eq!(large.sink.finish().unwrap().files, 1);
        small.step(2).unwrap();
        assert_eq!(small.sink.finish().unwrap().files, 1);
        assert!(there(&ends) == content(SMALL, 2), "small first: {small_first}");
        assert_eq!(remains(&ends.to), [] as [PathBuf; 0]);
    }
}

#[test]
fn a_copy_of_a_large_file_does_not_remove_the_locked_partial_file_of_a_small_file() {
    let (ends, to) = (ends(), Disk::new(1));
    write(ends.from.join("x"), &content(LARGE, 1));
    let other = to.root().create(b".x.lh-small", 0o600).unwrap();
    assert!(other.lock().unwrap());
    let place = Place::Stored { root: Store(to.root()), path: "".into() };
    let from = source(&[&slash(&ends.from)]);
    let outcome = Copy::open(from, &place, &SinkOptions::default()).unwrap().run().unwrap();
    assert_eq!((outcome.files, outcome.failures.len()), (1, 0));
    assert!(to.tree(false).contains_key(&b".x.lh-small"[..]));
}

#[test]
fn a_pipe_and_a_small_file_of_one_name_each_arrive_whole() {
    let ends = ends();
    let piped = content(CHUNK + 10, 3);
    let mut pipe = PipeFile::create(&ambient(ends.to.join("x"))).unwrap();
    pipe.write(0, &piped[..CHUNK as usize]).unwrap();
    let mut small = tree_of(&ends, "small", SMALL, 2);
    small.step(0).unwrap();
    pipe.write(1, &piped[CHUNK as usize..]).unwrap();
    let mut root = StreamRoot::default();
    for (chunk, content) in piped.chunks(CHUNK as usize).enumerate() {
        root.give(chunk as u64, digest::stream_value(chunk as u64, content));
    }
    assert!(pipe.finish(piped.len() as u64, &root.root().unwrap()).unwrap());
    assert!(there(&ends) == piped);
    [1, 2].into_iter().for_each(|chunk| small.step(chunk).unwrap());
    assert_eq!(small.sink.finish().unwrap().files, 1);
    assert!(there(&ends) == content(SMALL, 2));
}

#[test]
fn of_two_small_files_of_one_name_one_arrives_whole_and_the_other_copy_fails() {
    let ends = ends();
    let mut one = tree_of(&ends, "one", SMALL, 1);
    let mut other = tree_of(&ends, "other", SMALL, 2);
    [0, 1].into_iter().for_each(|chunk| one.step(chunk).unwrap());
    other.step(0).unwrap();
    one.step(2).unwrap();
    let failed = one.sink.finish().unwrap();
    assert!(failed.failures[0].reason.contains("another copy"), "{failed:?}");
    assert!(!ends.to.join("x").exists());
    [1, 2].into_iter().for_each(|chunk| other.step(chunk).unwrap());
    assert_eq!(other.sink.finish().unwrap().files, 1);
    assert!(there(&ends) == content(SMALL, 2));
}

/// Imitates another copy that replaces a closed partial file by a file of the same inode number and
/// length.
#[test]
fn a_partial_file_of_the_same_inode_but_another_modification_time_is_not_renamed() {
    const FILES: u64 = 20;
    let ends = ends();
    for number in 0..FILES {
        write(ends.from.join(format!("{number:02}")), &content(1000, number));
    }
    let from = source(&[&slash(&ends.from)]);
    let mut copy = Copy::open(from, &ambient(&ends.to), &SinkOptions::default()).unwrap();
    copy.missing().into_iter().for_each(|chunk| copy.step(chunk).unwrap());
    std::fs::write(ends.to.join(".00.lh-small"), content(1000, 999)).unwrap();
    let outcome = copy.sink.finish().unwrap();
    assert_eq!((outcome.failures.len() as u64, outcome.files), (1, FILES - 1));
    assert!(outcome.failures[0].reason.contains("another copy"), "{outcome:?}");
    assert!(!ends.to.join("00").exists());
}

fn without_locks() -> (Disk, Place) {
    let disk = Disk::new(1);
    disk.lose_locks();
    let to = Place::Stored { root: Store(disk.root()), path: "copy".into() };
    (disk, to)
}

fn large_of(ends: &Ends, to: &Place, size: u64, seed: u64) -> Copy {
    let from = ends.from.join(format!("{seed}"));
    if !from.exists() {
        write(&from, &content(size, seed));
    }
    Copy::open(source(&[&from]), to, &SinkOptions::default()).unwrap()
}

#[test]
fn two_large_files_of_one_name_never_mix_where_there_are_no_locks() {
    // The second copy starts before or after the first copy has written a journal.
    for (synced, sizes) in [(false, [LARGE; 2]), (true, [LARGE; 2]), (true, [LARGE, LARGE + CHUNK])]
    {
        let ends = ends();
        let (disk, to) = without_locks();
        let mut one = large_of(&ends, &to, sizes[0], 1);
        let chunks = one.missing();
        chunks[..4].iter().for_each(|chunk| one.step(*chunk).unwrap());
        if synced {
            one.sink.sync().unwrap();
        }
        let mut other = large_of(&ends, &to, sizes[1], 2);
        let all = other.missing();
        let (last, most) = all.split_last().unwrap();
        most.iter().for_each(|chunk| other.step(*chunk).unwrap());
        // The first copy still writes into its own file, but cannot give the file its final name.
        let ended = chunks[4..].iter().try_for_each(|chunk| one.step(*chunk));
        assert!(ended.is_err() || !one.sink.finish().unwrap().failures.is_empty());
        other.step(*last).unwrap();
        assert_eq!(other.sink.finish().unwrap().files, 1);
        let tree = disk.tree(false);
        assert!(disk.cached(tree[&b"copy"[..]]) == content(sizes[1], 2), "synced: {synced}");
    }
}

#[test]
fn two_copies_of_one_source_continue_separately_without_locks() {
    let ends = ends();
    let (disk, to) = without_locks();
    let mut one = large_of(&ends, &to, LARGE, 1);
    (0..4).for_each(|chunk| one.step(chunk).unwrap());
    one.sink.sync().unwrap();
    let mut other = large_of(&ends, &to, LARGE, 1);
    assert_eq!(other.missing(), [4, 5, 6, 7], "journalled chunks need not be sent again");
    let tree = disk.tree(false);
    let named = tree[&b".copy.lh-part"[..]];
    one.step(4).unwrap();
    assert_eq!(disk.cached(named)[4 * CHUNK as usize], 0, "the partial file belongs to `other`");
    (4..8).for_each(|chunk| other.step(chunk).unwrap());
    assert_eq!(other.sink.finish().unwrap().files, 1);
    assert!(disk.cached(disk.tree(false)[&b"copy"[..]]) == content(LARGE, 1));
}

/// Copies a large file into a folder that other users may change. Kills the copy after `calls` disk
/// calls, counted from the arrival of the last chunk.
fn killed_while_it_names_a_file(from: &Path, calls: u64) -> (Disk, Place) {
    let disk = Disk::new(1);
    disk.root().set_mode(0o777).unwrap();
    let to = Place::Stored { root: Store(disk.root()), path: "".into() };
    let mut copy = Copy::open(source(&[from]), &to, &SinkOptions::default()).unwrap();
    let chunks = copy.missing();
    let (last, most) = chunks.split_last().unwrap();
    most.iter().for_each(|chunk| copy.step(*chunk).unwrap());
    copy.sink.sync().unwrap();
    disk.kill_after(calls);
    let _ = copy.step(*last);
    copy.sink.kill();
    assert!(disk.is_killed(), "{calls}");
    disk.restart();
    (disk, to)
}

/// If other users may change the folder, a copy renames the partial file first to a unique name,
/// then to the final name.
#[test]
fn a_large_file_of_a_copy_killed_between_two_renames_is_found_and_not_sent_again() {
    let ends = ends();
    write(ends.from.join("x"), &content(LARGE, 1));
    let from = slash(&ends.from);
    let is_between = |disk: &Disk| disk.tree(false).keys().any(|name| names::is_unique(name, b"x"));
    let mut killed = (0..).map(|calls| killed_while_it_names_a_file(&from, calls));
    let (disk, to) = killed.find(|(disk, _)| is_between(disk)).unwrap();
    let own = disk.tree(false).into_keys().find(|name| names::is_unique(name, b"x")).unwrap();
    let open = || Copy::open(source(&[&from]), &to, &SinkOptions::default()).unwrap();
    let held = disk.root().open(&own, store::Access::Read).unwrap();
    assert!(held.lock().unwrap());
    drop(open());
    assert!(is_between(&disk), "a living copy keeps its file");
    drop(held);
    let mut copy = open();
    copy.compare();
    assert_eq!(copy.missing(), [] as [u64; 0]);
    assert_eq!(copy.run().unwrap().files, 1);
    let tree = disk.tree(false);
    assert_eq!(tree.keys().collect::<Vec<_>>(), [b"x"]);
    assert!(disk.cached(tree[&b"x"[..]]) == content(LARGE, 1));
}

#[test]
fn copies_neither_replace_nor_rename_a_partial_file_that_another_copy_has_locked() {
    let ends = ends();
    let mut one = tree_of(&ends, "one", SMALL, 1);
    let mut other = tree_of(&ends, "other", SMALL, 2);
    one.step(0).unwrap();
    let held = std::fs::File::open(ends.to.join(".x.lh-small")).unwrap();
    held.lock().unwrap();
    other.step(0).unwrap();
    assert!(other.sink.failures()[0].reason.contains("another copy"));
    [1, 2].into_iter().for_each(|chunk| one.step(chunk).unwrap());
    let outcome = one.sink.finish().unwrap();
    assert!(outcome.failures[0].reason.contains("another copy"), "{outcome:?}");
    assert!(!ends.to.join("x").exists());
}

#[test]
fn a_copied_link_removes_no_partial_file_of_its_name() {
    let ends = ends();
    let mut large = tree_of(&ends, "large", LARGE, 1);
    let mut small = tree_of(&ends, "small", SMALL, 2);
    (0..7).for_each(|chunk| large.step(chunk).unwrap());
    small.step(0).unwrap();
    let links = ends.from.join("links");
    std::fs::create_dir(&links).unwrap();
    std::os::unix::fs::symlink("target", links.join("x")).unwrap();
    assert_eq!(copy(&[&slash(&links)], &ends.to).links, 1);
    large.step(7).unwrap();
    assert_eq!(large.sink.finish().unwrap().files, 1);
    assert!(there(&ends) == content(LARGE, 1));
    [1, 2].into_iter().for_each(|chunk| small.step(chunk).unwrap());
    assert_eq!(small.sink.finish().unwrap().files, 1);
}

#[test]
fn leftovers_of_a_killed_copy_are_removed_even_if_the_file_became_small_or_large() {
    for (first, second) in [(LARGE, SMALL), (SMALL, LARGE)] {
        let ends = ends();
        let mut killed = tree_of(&ends, "tree", first, 1);
        killed.step(0).unwrap();
        killed.sink.kill();
        assert_eq!(remains(&ends.to).len(), 1);
        tree_of(&ends, "tree", second, 2).run().unwrap();
        assert!(there(&ends) == content(second, 2));
        assert_eq!(remains(&ends.to), [] as [PathBuf; 0], "{first}");
    }
}
