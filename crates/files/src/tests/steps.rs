//! Single steps of a copy, each with its exact outcome.

use std::os::unix::fs::symlink;

use super::*;
use crate::store::buffers::Store;
use crate::store::memory::{Disk, Faults};

fn open(ends: &Ends, options: &SinkOptions) -> Copy {
    Copy::open(source(&[&slash(&ends.from)]), &ambient(&ends.to), options).unwrap()
}

fn place(disk: &Disk, path: &str) -> Place {
    Place::Stored { root: Store(disk.root()), path: path.into() }
}

/// A file's content may arrive before the sender says whether the existing file is equal.
#[test]
fn content_that_arrives_before_the_answer_replaces_only_a_different_file() {
    let options = SinkOptions { checksum: true, ..Default::default() };
    let cases = [(content(1000, 1), 0), (content(1000, 2), 1), (vec![0; 1000], 1)];
    // A file that is copied alone is handled like a large file.
    for ((there, written), is_alone) in
        cases.into_iter().flat_map(|it| [(it.clone(), false), (it, true)])
    {
        let ends = ends();
        write(ends.from.join("file"), &content(1000, 1));
        write(ends.to.join("file"), &there);
        let from = if is_alone { ends.from.join("file") } else { slash(&ends.from) };
        let mut copy = Copy::open(source(&[&from]), &ambient(&ends.to), &options).unwrap();
        assert_eq!(copy.plan.compare.len(), 1);
        copy.missing().into_iter().for_each(|chunk| copy.step(chunk).unwrap());
        let outcome = copy.sink.finish().unwrap();
        assert_eq!((outcome.files, outcome.skipped), (written, 1 - written));
        assert_eq!(std::fs::read(ends.to.join("file")).unwrap(), content(1000, 1));
    }
}

#[test]
fn content_that_arrives_before_the_answer_replaces_a_longer_file_with_the_same_start() {
    let options = SinkOptions { checksum: true, ..Default::default() };
    // A file whose length differs is compared only if it is handled like a large file.
    for (is_alone, compared) in [(true, 1), (false, 0)] {
        let ends = ends();
        write(ends.from.join("file"), &content(1000, 1));
        write(ends.to.join("file"), &[&content(1000, 1)[..], b"more"].concat());
        let from = if is_alone { ends.from.join("file") } else { slash(&ends.from) };
        let mut copy = Copy::open(source(&[&from]), &ambient(&ends.to), &options).unwrap();
        assert_eq!(copy.plan.compare.len(), compared);
        copy.missing().into_iter().for_each(|chunk| copy.step(chunk).unwrap());
        assert_eq!(copy.sink.finish().unwrap().files, 1);
        assert_eq!(std::fs::read(ends.to.join("file")).unwrap(), content(1000, 1));
    }
}

#[test]
fn an_equal_empty_file_is_kept_without_a_comparison() {
    let ends = ends();
    for folder in [&ends.from, &ends.to] {
        write(folder.join("file"), b"");
    }
    let copy = open(&ends, &SinkOptions { checksum: true, ..Default::default() });
    assert_eq!((copy.plan.compare.len(), copy.plan.skipped.len()), (0, 1));
    assert_eq!(copy.sink.finish().unwrap().skipped, 1);
}

#[test]
fn a_large_file_fails_if_a_folder_has_the_name_of_a_small_files_partial_file() {
    let ends = ends();
    write(ends.from.join("file"), &content(LARGE, 1));
    std::fs::create_dir(ends.to.join(bytes_path(&names::small(b"file")))).unwrap();
    let copy = open(&ends, &SinkOptions::default());
    assert_eq!(copy.sink.failures().len(), 1);
}

#[test]
fn zeros_that_arrive_before_the_answer_replace_a_file_that_has_shrunk_since_it_was_hashed() {
    let options = SinkOptions { checksum: true, ..Default::default() };
    let ends = ends();
    write(ends.from.join("file"), &[0; 1000]);
    write(ends.to.join("file"), &[0; 1000]);
    let mut copy = open(&ends, &options);
    assert_eq!(copy.plan.compare.len(), 1);
    write(ends.to.join("file"), &[0; 999]);
    copy.missing().into_iter().for_each(|chunk| copy.step(chunk).unwrap());
    assert_eq!(copy.sink.finish().unwrap().files, 1);
    assert_eq!(std::fs::read(ends.to.join("file")).unwrap(), [0; 1000]);
}

#[test]
fn a_chunk_that_changes_after_it_was_hashed_is_requested_by_its_number_in_the_object() {
    let ends = ends();
    for path in [ends.from.join("a"), ends.from.join("b"), ends.to.join("b")] {
        write(path, &content(LARGE, 1));
    }
    let mut copy = open(&ends, &SinkOptions { checksum: true, ..Default::default() });
    let there = std::fs::File::options().write(true).open(ends.to.join("b")).unwrap();
    there.write_all_at(b"changed", 3 * CHUNK).unwrap();
    copy.compare();
    assert_eq!(copy.sink.take_changed(), [LARGE / CHUNK + 3]);
}

#[test]
fn equal_chunks_of_an_existing_file_are_requested_if_a_sync_fails_while_they_are_copied() {
    let (ends, disk) = (ends(), Disk::new(1));
    write(ends.from.join("a"), b"1");
    write(ends.from.join("b"), &content(LARGE, 1));
    let there = disk.root().create(b"b", 0o600).unwrap();
    there.write_all_at(&content(LARGE, 1), 0).unwrap();
    there.write_all_at(b"changed", 0).unwrap();
    let options = SinkOptions { checksum: true, ..Default::default() };
    let from = source(&[&slash(&ends.from)]);
    let mut copy = Copy::open(from, &place(&disk, ""), &options).unwrap();
    copy.sink.sync_every(CHUNK);
    copy.step(1).unwrap();
    disk.fail_next_sync();
    copy.compare();
    // Chunk 1, the first of `b`, arrived before the sync that failed.
    let mut changed = copy.sink.take_changed();
    changed.sort();
    assert_eq!(changed, (2..=LARGE / CHUNK).collect::<Vec<_>>());
}

#[test]
fn an_answer_that_a_file_is_equal_removes_the_partial_file_begun_before() {
    let ends = ends();
    for folder in [&ends.from, &ends.to] {
        write(folder.join("file"), &content(LARGE, 1));
    }
    let mut copy = open(&ends, &SinkOptions { checksum: true, ..Default::default() });
    copy.step(0).unwrap();
    assert!(!remains(&ends.to).is_empty());
    copy.compare();
    assert_eq!(copy.sink.finish().unwrap().skipped, 1);
    assert_eq!(remains(&ends.to), [] as [PathBuf; 0]);
}

#[test]
fn only_a_copy_by_checksum_asks_whether_a_file_with_another_time_is_equal() {
    for checksum in [false, true] {
        let ends = ends();
        write(ends.from.join("file"), &content(1000, 1));
        std::fs::write(ends.to.join("file"), content(1000, 1)).unwrap();
        let copy = open(&ends, &SinkOptions { checksum, ..Default::default() });
        assert_eq!(copy.plan.compare.len(), usize::from(checksum));
        assert_eq!(copy.missing(), [0]);
    }
}

#[test]
fn failed_bytes_counts_only_the_bytes_of_failed_files() {
    let ends = ends();
    for (name, size) in [("a", 100), ("b", 20), ("c", 3)] {
        write(ends.from.join(name), &content(size, size));
    }
    write(ends.to.join("a"), &content(100, 100));
    std::fs::create_dir(ends.to.join("b")).unwrap();
    let outcome = open(&ends, &SinkOptions::default()).run().unwrap();
    assert_eq!((outcome.skipped, outcome.files, outcome.failures.len()), (1, 1, 1));
    assert_eq!(outcome.failed_bytes, 20);
}

/// A file that is copied alone is handled like a large file: its folder is synced directly after
/// the rename. An empty file is handled like a small file.
#[test]
fn finish_syncs_the_file_system_only_if_a_name_is_not_on_disk_yet() {
    for (size, is_synced) in [(1000, false), (0, true)] {
        let (from, to) = (Disk::new(1), Disk::new(2));
        let file = from.root().create(b"file", 0o644).unwrap();
        file.write_all_at(&content(size, 1), 0).unwrap();
        let source = Source::open(&[place(&from, "file")], &SourceOptions::default()).unwrap();
        let options = SinkOptions::default();
        let mut copy = Copy::open(source, &place(&to, "copy"), &options).unwrap();
        copy.missing().into_iter().for_each(|chunk| copy.step(chunk).unwrap());
        to.set_faults(Faults { sync: 10_000, ..Faults::default() });
        let is_done = copy.sink.finish().is_ok_and(|outcome| outcome.files == 1);
        assert_eq!((is_done, to.struck().0.sync > 0), (!is_synced, is_synced), "{size}");
    }
}

#[test]
fn an_outcome_names_each_entry_once() {
    let ends = ends();
    write(ends.from.join("folder/file"), b"x");
    symlink("file", ends.from.join("folder/link")).unwrap();
    // `there` sorts after `folder`, so it is the last entry.
    write(ends.from.join("there"), b"x");
    write(ends.to.join("there"), b"x");
    let mut named =
        open(&ends, &SinkOptions { names: true, ..Default::default() }).run().unwrap().named;
    named.sort_unstable();
    assert_eq!(named, [0, 1, 2]);
    let again = open(&ends, &SinkOptions { names: true, ..Default::default() });
    assert_eq!(
        [0, 1, 2, 3, 4].map(|entry| again.sink.is_skipped(entry)),
        [false, true, true, true, false]
    );
    assert!(again.run().unwrap().named.is_empty());
}

#[test]
fn a_new_file_takes_the_mode_of_the_file_that_it_replaces() {
    for (is_there, mode) in
        [(true, 0o640), (false, 0o604 & !ambient("/").folder().unwrap().withheld())]
    {
        let ends = ends();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        write(ends.from.join("file"), b"new");
        set(&ends.from.join("file"), 0o604);
        if is_there {
            write(ends.to.join("file"), b"older");
            set(&ends.to.join("file"), 0o640);
        }
        assert_eq!(open(&ends, &SinkOptions::default()).run().unwrap().files, 1);
        let found = ends.to.join("file").metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{found:o}");
    }
}

#[test]
fn a_dry_run_needs_no_lock_and_a_copy_runs_where_the_file_system_cannot_lock() {
    let ends = ends();
    std::fs::create_dir(ends.from.join("tree")).unwrap();
    let copy = |to: &Place, dry_run| {
        let options = SinkOptions { dry_run, ..Default::default() };
        Copy::open(source(&[&ends.from.join("tree")]), to, &options)
    };
    let _first = copy(&ambient(&ends.to), false).unwrap();
    assert!(copy(&ambient(&ends.to), false).is_err());
    assert!(copy(&ambient(&ends.to), true).is_ok());
    let disk = Disk::new(1);
    disk.fail_locks();
    assert_eq!(copy(&place(&disk, ""), false).unwrap().run().unwrap().folders, 1);
}

#[test]
fn a_dry_run_names_the_entries_that_could_not_be_created() {
    let (ends, disk) = (ends(), Disk::new(1));
    for name in ["d/equal", "d/new/x", "d/old/x", "d/other", "e/y"] {
        write(ends.from.join(name), b"1234");
    }
    disk.root().make_folder(b"d", 0o700).unwrap();
    let d = disk.root().open_folder(b"d").unwrap();
    d.make_folder(b"old", 0o700).unwrap();
    for (name, seconds) in [(b"equal", 1_000_000_000), (b"other", 5)] {
        let file = d.create(name, 0o600).unwrap();
        file.write_all_at(b"1234", 0).unwrap();
        file.set_modified(manifest::FileTime { seconds, nanos: 123_456_789 }).unwrap();
    }
    d.set_mode(0o500).unwrap();
    disk.obey_modes();
    // Until the sender answers, a compared file may prove equal, so it is not refused.
    for (checksum, refused) in [(true, vec![]), (false, vec!["d/other"])] {
        let options = SinkOptions { dry_run: true, checksum, ..Default::default() };
        let from = source(&[&slash(&ends.from)]);
        let copy = Copy::open(from, &place(&disk, ""), &options).unwrap();
        let outcome = copy.sink.finish().unwrap();
        let failed: Vec<_> = outcome.failures.iter().map(Failure::shown).collect();
        assert_eq!(failed, [&["d/new", "d/new/x"][..], &refused].concat());
    }
}

#[test]
fn a_dry_run_unlike_a_copy_corrects_no_mode_or_time_and_removes_no_partial_file() {
    let ends = ends();
    for (name, size) in [("large", LARGE), ("small", 9), ("empty", 0), ("other", 9)] {
        write(ends.from.join(name), &content(size, 1));
        write(ends.to.join(name), &content(size, 1));
    }
    let executable = std::fs::Permissions::from_mode(0o744);
    std::fs::set_permissions(ends.from.join("small"), executable).unwrap();
    for changed in ["empty", "other"] {
        std::fs::File::open(ends.to.join(changed))
            .unwrap()
            .set_modified(SystemTime::now())
            .unwrap();
    }
    for partial in [".large.lh-part", ".other.lh-part"] {
        write(ends.to.join(partial), b"x");
    }
    let before = tree(&ends.to);
    for checksum in [false, true] {
        let options = SinkOptions { dry_run: true, preserve: true, checksum, ..Default::default() };
        open(&ends, &options).sink.finish().unwrap();
        assert_eq!(tree(&ends.to), before, "{checksum}");
    }
    open(&ends, &SinkOptions { preserve: true, ..Default::default() }).run().unwrap();
    assert_eq!(tree(&ends.to), tree(&ends.from));
}

#[test]
fn a_copy_of_one_equal_file_leaves_no_temporary_file() {
    let ends = ends();
    let from = ends.from.join("file");
    for path in [&from, &ends.to.join("file")] {
        write(path, &content(LARGE, 1));
    }
    let outcome = copy(&[&from], &ends.to);
    assert_eq!((outcome.files, outcome.skipped), (0, 1));
    assert_eq!(tree(&ends.to), tree(&ends.from));
}

#[test]
fn a_copy_whose_last_sync_fails_makes_no_link_and_is_unfinished() {
    let (ends, to) = (ends(), Disk::new(2));
    write(ends.from.join("file"), b"x");
    symlink("file", ends.from.join("link")).unwrap();
    let from = source(&[&slash(&ends.from)]);
    let mut copy = Copy::open(from, &place(&to, ""), &SinkOptions::default()).unwrap();
    copy.step(0).unwrap();
    to.fail_next_sync();
    let outcome = copy.sink.finish().unwrap();
    assert_eq!((outcome.files, outcome.unfinished, outcome.links), (0, 1, 0));
    assert!(outcome.failures.is_empty() && !to.tree(false).contains_key(&b"link"[..]));
}

#[test]
fn a_dropped_copy_gives_complete_files_their_final_names_unless_their_sync_fails() {
    for (sync, named) in [(10_000, 0), (0, 9)] {
        let (ends, to) = (ends(), Disk::new(2));
        (0..9).for_each(|number| write(ends.from.join(number.to_string()), b"x"));
        let from = source(&[&slash(&ends.from)]);
        let mut copy = Copy::open(from, &place(&to, ""), &SinkOptions::default()).unwrap();
        copy.step(0).unwrap();
        to.set_faults(Faults { sync, ..Faults::default() });
        drop(copy);
        let names = to.tree(false);
        let is_final = |name: &&Vec<u8>| name.first().is_some_and(u8::is_ascii_digit);
        assert_eq!(names.keys().filter(is_final).count(), named, "{names:?}");
    }
}

#[test]
fn a_folder_is_made_with_its_missing_parents() {
    let ends = ends();
    make_folders(&ambient(ends.to.join("a/b/c"))).unwrap();
    assert!(ends.to.join("a/b/c").is_dir());
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error() {
    let disk = Disk::new(1);
    disk.set_faults(Faults { room: 10_000, ..Faults::default() });
    let error = make_folders(&place(&disk, "new")).unwrap_err();
    assert!(error.what.starts_with("cannot make the folder new: "), "{error}");
}

#[test]
fn a_source_has_a_name_of_at_most_255_bytes() {
    let disk = Disk::new(1);
    for (length, is_copied) in [(255, true), (256, false)] {
        let name = "n".repeat(length);
        disk.root().create(name.as_bytes(), 0o600).unwrap();
        let opened = Source::open(&[place(&disk, &name)], &SourceOptions::default());
        assert_eq!(opened.is_ok(), is_copied, "{length}");
    }
}

#[test]
fn a_file_with_a_trailing_slash_is_refused() {
    let disk = Disk::new(1);
    disk.root().create(b"file", 0o600).unwrap();
    let open = |path| Source::open(&[place(&disk, path)], &SourceOptions::default()).map(drop);
    assert!(open("file").is_ok());
    assert!(open("file/").unwrap_err().what.contains("Not a directory"), "{:?}", open("file/"));
}

#[test]
fn an_unlinked_open_file_is_read_to_its_end() {
    let ends = ends();
    let path = ends.from.join("file");
    write(&path, &content(LARGE, 1));
    let mut source = source(&[&path]);
    let mut read = |chunk: u64| {
        let mut buffer = vec![0; CHUNK as usize];
        source.read_chunk(chunk, &mut buffer).unwrap();
        (buffer, source.failures().len())
    };
    read(0);
    // Wait until another file gets a later change time, so that the removal sets a later one too.
    let changed = |path: &Path| path.metadata().map(|it| (it.ctime(), it.ctime_nsec())).unwrap();
    let other = ends.from.join("other");
    while std::fs::write(&other, b"x").is_ok() && changed(&other) <= changed(&path) {}
    std::fs::remove_file(&path).unwrap();
    for chunk in 1..8 {
        let start = (chunk * CHUNK) as usize;
        assert!(read(chunk) == (content(LARGE, 1)[start..][..CHUNK as usize].to_vec(), 0));
    }
}

#[test]
fn missing_folders_of_a_destination_are_made_for_a_file() {
    let ends = ends();
    write(ends.from.join("file"), b"x");
    let options = SinkOptions { make_path: true, ..Default::default() };
    for (to, file) in [("a/b", "a/b"), ("c/d/", "c/d/file")] {
        copy_with(&[&ends.from.join("file")], &ends.to.join(to), &options).unwrap();
        assert_eq!(std::fs::read(ends.to.join(file)).unwrap(), b"x");
    }
}

#[test]
fn a_link_to_a_device_or_to_an_open_file_is_not_replaced() {
    let ends = ends();
    write(ends.from.join("file"), b"x");
    for (target, why) in [
        ("/dev/null", "leads to a device, socket or pipe"),
        ("/proc/self/fd/1", "is the system's name for an open file"),
    ] {
        let link = ends.to.join(why);
        symlink(target, &link).unwrap();
        let copied = copy_with(&[&ends.from.join("file")], &link, &SinkOptions::default());
        let error = copied.unwrap_err();
        assert!(error.what.contains(&format!("/{why} {why}")), "{error}");
        assert_eq!(std::fs::read_link(&link).unwrap(), Path::new(target));
    }
}

#[test]
fn a_link_replaces_a_file() {
    let ends = ends();
    symlink("x", ends.from.join("link")).unwrap();
    write(ends.to.join("link"), b"older");
    assert_eq!(open(&ends, &SinkOptions::default()).run().unwrap().links, 1);
    assert_eq!(tree(&ends.to), tree(&ends.from));
}

#[test]
fn a_link_does_not_replace_a_folder() {
    let ends = ends();
    symlink("x", ends.from.join("link")).unwrap();
    std::fs::create_dir(ends.to.join("link")).unwrap();
    let outcome = open(&ends, &SinkOptions::default()).run().unwrap();
    let [failure] = &outcome.failures[..] else { panic!("{:?}", outcome.failures) };
    assert!(failure.reason.ends_with("a folder is in its place"), "{failure:?}");
}

/// Each chunk but the last holds the end of a file and the start of the next one. The even chunks
/// alone hold a part of every file, and there are more files than may be open.
#[test]
fn incomplete_small_files_are_closed_and_reopened_and_fail_if_their_partial_file_is_removed() {
    for removes in [false, true] {
        let ends = ends();
        write(ends.from.join("00"), &content(CHUNK / 2, 0));
        for number in 1..42 {
            write(ends.from.join(format!("{number:02}")), &content(CHUNK, number));
        }
        let mut copy = open(&ends, &SinkOptions::default());
        let (even, odd): (Vec<u64>, Vec<u64>) =
            copy.missing().into_iter().partition(|chunk| chunk % 2 == 0);
        even.into_iter().for_each(|chunk| copy.step(chunk).unwrap());
        if removes {
            std::fs::remove_file(ends.to.join(".40.lh-small")).unwrap();
        }
        odd.into_iter().for_each(|chunk| copy.step(chunk).unwrap());
        let outcome = copy.sink.finish().unwrap();
        let failed =
            outcome.failures.iter().map(|failure| (&failure.path[..], &failure.reason[..]));
        let failed: Vec<_> = failed.collect();
        match removes {
            false => assert_eq!((&failed[..], tree(&ends.to)), (&[][..], tree(&ends.from))),
            true => {
                assert!(failed.len() == 1 && failed[0].1.contains("another copy"), "{failed:?}")
            }
        }
    }
}

/// A process trusts the chunks that it has written itself, so it does not detect the bad sector.
/// Another process reads every chunk.
#[test]
fn a_later_attempt_of_the_same_process_does_not_read_chunks_of_an_earlier_attempt() {
    let (from, to) = (Disk::new(1), Disk::new(2));
    let file = from.root().create(b"file", 0o600).unwrap();
    file.write_all_at(&content(LARGE, 1), 0).unwrap();
    let open = |left: &Arc<sink::Left>| {
        let options = SinkOptions { left: left.clone(), ..Default::default() };
        let source = Source::open(&[place(&from, "file")], &SourceOptions::default()).unwrap();
        Copy::open(source, &place(&to, "copy"), &options).unwrap()
    };
    let left = Arc::default();
    let mut copy = open(&left);
    (0..4).for_each(|chunk| copy.step(chunk).unwrap());
    copy.sink.sync().unwrap();
    drop(copy);
    to.spoil(to.tree(false)[&b".copy.lh-part"[..]], CHUNK);
    assert_eq!(open(&left).plan.have, [0..4]);
    assert_eq!(open(&Arc::default()).plan.have, [0..1, 2..4]);
}
