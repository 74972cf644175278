//! Sources and destinations that change, fail or fill up during a copy.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use longhaul_testbed::need;
use longhaul_testbed::skip::{self, Skipped};

use super::*;
use crate::watch::Held;

#[test]
fn the_copy_of_a_source_that_vanishes_shrinks_grows_or_changes_gets_no_final_name() {
    type Change<'a> = (&'a str, &'a dyn Fn(&Path));
    let changes: [Change<'_>; 5] = [
        ("No such file", &|path| std::fs::remove_file(path).unwrap()),
        ("shrank", &|path| write(path, b"")),
        ("changed", &|path| write(path, &content(LARGE + CHUNK, 1))),
        ("modified", &|path| std::fs::write(path, content(LARGE, 2)).unwrap()),
        ("symbolic link", &|path| {
            std::fs::remove_file(path).unwrap();
            symlink("/etc/passwd", path).unwrap();
        }),
    ];
    for (reason, change) in changes {
        let ends = ends();
        let from = ends.from.join("b");
        write(ends.from.join("a"), b"a");
        write(&from, &content(LARGE, 1));
        write(ends.from.join("c"), b"c");
        let mut copy =
            Copy::open(source(&[&slash(&ends.from)]), &ambient(&ends.to), &SinkOptions::default())
                .unwrap();
        // The second step opens a handle of `b`, which must not hide the change. An open handle can
        // read an unlinked file, so the two cases that remove `b` skip both steps.
        let missing = copy.missing();
        if !matches!(reason, "No such file" | "symbolic link") {
            copy.step(missing[0]).unwrap();
            copy.step(missing[1]).unwrap();
        }
        change(&from);
        for chunk in missing {
            copy.step(chunk).unwrap();
        }
        let outcome = copy.sink.finish().unwrap();
        assert_eq!(outcome.failures.len(), 1, "{reason}");
        assert_eq!(outcome.failures[0].shown(), "b");
        assert!(outcome.failures[0].reason.contains(reason), "{:?}", outcome.failures);
        assert_eq!((outcome.files, outcome.unfinished), (2, 0));
        assert!(!ends.to.join("b").exists() && ends.to.join("c").exists());
        // The zeros in place of the file's content are never trusted: the next run sends the
        // content.
        if from.exists() && !from.is_symlink() {
            super::copy(&[&slash(&ends.from)], &ends.to);
            assert_eq!(tree(&ends.from), tree(&ends.to), "{reason}");
        }
    }
}

#[test]
fn content_that_was_sent_as_zeros_is_sent_again_even_if_the_modification_time_is_the_same() {
    let ends = ends();
    let from = ends.from.join("b");
    write(&from, &content(LARGE, 1));
    let tree_of = slash(&ends.from);
    let open = || Copy::open(source(&[&tree_of]), &ambient(&ends.to), &SinkOptions::default());
    let mut copy = open().unwrap();
    std::fs::rename(&from, ends.from.join("away")).unwrap();
    for chunk in copy.missing() {
        copy.step(chunk).unwrap();
    }
    assert_eq!(copy.sink.finish().unwrap().failures.len(), 1);
    std::fs::rename(ends.from.join("away"), &from).unwrap();
    open().unwrap().run().unwrap();
    assert_eq!(tree(&ends.from), tree(&ends.to));
}

#[test]
fn a_small_file_that_fails_does_not_fail_the_files_that_share_its_chunks() {
    let ends = ends();
    for name in ["a", "b", "c"] {
        write(ends.from.join(name), &content(700_000, 1));
    }
    let mut copy =
        Copy::open(source(&[&slash(&ends.from)]), &ambient(&ends.to), &SinkOptions::default())
            .unwrap();
    copy.step(0).unwrap();
    std::fs::write(ends.from.join("b"), b"now").unwrap();
    copy.step(1).unwrap();
    copy.step(2).unwrap();
    let outcome = copy.sink.finish().unwrap();
    assert_eq!((outcome.files, outcome.failures.len()), (2, 1));
    let there: Vec<PathBuf> = tree(&ends.to).into_keys().collect();
    assert_eq!(there, ["a", "c"].map(PathBuf::from));
}

#[test]
fn fail_entry_returns_the_chunks_that_need_not_be_sent() {
    let ends = ends();
    write(ends.from.join("a"), b"a");
    write(ends.from.join("b"), &content(LARGE, 1));
    let mut copy =
        Copy::open(source(&[&slash(&ends.from)]), &ambient(&ends.to), &SinkOptions::default())
            .unwrap();
    assert_eq!(copy.sink.fail_entry(1, "unreadable"), vec![1..9]);
    assert_eq!(copy.sink.missing(), vec![0..1]);
    assert_eq!(copy.sink.fail_entry(1, "unreadable"), []);
    assert_eq!(copy.sink.failures().len(), 1);
}

#[test]
fn sockets_and_partial_files_in_a_source_are_left_out_with_a_warning() {
    let ends = ends();
    let _socket = UnixListener::bind(ends.from.join("socket")).unwrap();
    write(ends.from.join(".x.lh-part"), b"x");
    write(ends.from.join("file"), b"f");
    let source = source(&[&slash(&ends.from)]);
    assert_eq!(source.manifest().entries().len(), 1);
    assert_eq!(source.warnings().len(), 2);
    assert!(source.failures().is_empty());
}

#[test]
fn sources_that_cannot_be_copied_are_named() {
    let ends = ends();
    let _socket = UnixListener::bind(ends.from.join("socket")).unwrap();
    let refused = |name: &str, recursive| {
        let place = ambient(ends.from.join(name));
        let options = SourceOptions { recursive, ..Default::default() };
        let error = Source::open(&[place], &options).unwrap_err();
        assert!(error.what.contains(&ends.from.display().to_string()), "{error}");
        error
    };
    assert!(refused("missing", true).what.contains("No such file"));
    assert_eq!(refused(".", false).advice, Some(Advice::Recursive));
    assert!(refused("socket", false).what.contains("socket"));
}

#[test]
fn impossible_destinations_are_refused_with_advice() {
    let ends = ends();
    write(ends.from.join("x/y"), b"y");
    write(ends.to.join("file"), b"old");
    let refused = |from: &str, to: &str| {
        let paths = [ends.from.join(from)];
        let error = copy_with(&[&paths[0]], &ends.to.join(to), &SinkOptions::default());
        error.unwrap_err()
    };
    let error = refused("x/y", "no/where");
    assert!(error.advice.unwrap().to_string().starts_with("mkdir -p "));
    assert!(refused("x/y", "new/").advice.unwrap().to_string().starts_with("mkdir "));
    assert!(refused("x", "file").what.contains("exists and is not a folder"));
    assert!(refused("x/", "file").what.contains("exists and is not a folder"));
    assert!(refused("x/y", ".y.lh-part").what.contains("reserved"));
    let paths = [ends.from.join("x"), ends.from.join("x/y")];
    let several = [paths[0].as_path(), paths[1].as_path()];
    let error = copy_with(&several, &ends.to.join("new"), &SinkOptions::default()).unwrap_err();
    assert!(error.advice.unwrap().to_string().starts_with("mkdir "));
    assert_eq!(tree(&ends.to).len(), 1);
}

#[test]
fn an_entry_whose_place_is_occupied_fails_alone() {
    let ends = ends();
    for name in ["a", "d/x", "e", "l"] {
        write(ends.from.join(name), b"new");
    }
    std::fs::create_dir(ends.to.join("a")).unwrap();
    write(ends.to.join("d"), b"no folder");
    let _socket = UnixListener::bind(ends.to.join("l")).unwrap();
    let outcome = copy(&[&slash(&ends.from)], &ends.to);
    let failed: Vec<String> = outcome.failures.iter().map(Failure::shown).collect();
    assert_eq!(failed, ["a", "d", "d/x", "l"]);
    assert_eq!(outcome.files, 1);
    assert_eq!(std::fs::read(ends.to.join("e")).unwrap(), b"new");
}

#[test]
fn if_one_of_many_small_files_cannot_be_created_only_that_file_fails() {
    let ends = ends();
    for n in 0..400 {
        write(ends.from.join(format!("f{}/{n}", n / 150)), &content(100 + n, n));
    }
    let in_the_way = Path::new("f0").join(bytes_path(&names::small(b"7")));
    std::fs::create_dir_all(ends.to.join(&in_the_way)).unwrap();
    let outcome = copy(&[&slash(&ends.from)], &ends.to);
    let failed: Vec<&[u8]> = outcome.failures.iter().map(|failure| &failure.path[..]).collect();
    assert_eq!((failed, outcome.files), (vec![&b"f0/7"[..]], 399));
    let (mut from, mut to) = (tree(&ends.from), tree(&ends.to));
    from.remove(Path::new("f0/7"));
    to.remove(&in_the_way);
    assert_eq!(from, to);
}

#[test]
fn a_second_copy_into_a_file_is_refused_until_the_first_ends() {
    let ends = ends();
    let from = ends.from.join("file");
    write(&from, &content(LARGE, 1));
    let open = || Copy::open(source(&[&from]), &ambient(&ends.to), &SinkOptions::default());
    let first = open().unwrap();
    let error = open().map(|_| ()).unwrap_err();
    assert!(error.what.contains("another copy is writing it"), "{error}");
    first.run().unwrap();
    assert_eq!(tree(&ends.from), tree(&ends.to));
}

#[test]
fn a_copy_waits_for_a_file_that_another_copy_has_locked() {
    let ends = ends();
    let from = ends.from.join("file");
    write(&from, &content(LARGE, 1));
    let open = |patience: Duration| {
        let options = SinkOptions { patience, ..SinkOptions::default() };
        Copy::open(source(&[&from]), &ambient(&ends.to), &options)
    };
    let first = open(Duration::ZERO).unwrap();
    let error = open(Duration::from_millis(120)).map(|_| ()).unwrap_err();
    assert!(error.what.contains("another copy is writing it"), "{error}");
    // The wait is reported with the path of the file, although the destination is its folder.
    let (watch, source) = (Watch::default(), source(&[&from]));
    let patience = Duration::from_millis(20);
    let options = SinkOptions { patience, ..SinkOptions::default() };
    let waited = Sink::open(&ambient(&ends.to), &source.manifest().clone(), 0, &options, &watch);
    assert!(waited.is_err());
    let path = ends.to.join("file").display().to_string();
    assert_eq!(watch.take_held(), Some(Held { path, patience }));
    let second = std::thread::scope(|scope| {
        let second = scope.spawn(|| open(Duration::from_secs(60)));
        drop(first);
        second.join().unwrap()
    });
    second.unwrap().run().unwrap();
    assert_eq!(tree(&ends.from), tree(&ends.to));
}

#[test]
fn the_watch_counts_each_chunk_that_is_read_and_can_cancel_the_work() {
    let ends = ends();
    let from = ends.from.join("file");
    write(&from, &content(LARGE, 1));
    let source = source(&[&from]);
    let (manifest, to) = (source.manifest().clone(), ambient(&ends.to));
    // The data of an earlier run, without a journal: each chunk is read.
    write(ends.to.join(".file.lh-part"), &content(LARGE, 1));
    let watch = Watch::default();
    let open = || Sink::open(&to, &manifest, 0, &SinkOptions::default(), &watch);
    drop(open().unwrap());
    assert!(watch.looked() >= LARGE / CHUNK, "{}", watch.looked());
    watch.end();
    let error = open().map(|_| ()).unwrap_err();
    assert_eq!(error.kind, FileErrorKind::Unfinished);
}

#[test]
fn two_commands_cannot_write_one_tree_at_the_same_time_but_sources_of_one_command_can() {
    let ends = ends();
    write(ends.from.join("tree/file"), b"f");
    let (tree_of, contents) = (ends.from.join("tree"), slash(&ends.from));
    let open = |from: &Path, to: &Path, together: Option<&Arc<Together>>| {
        let options = SinkOptions { together: together.cloned(), ..SinkOptions::default() };
        Copy::open(source(&[from]), &ambient(to), &options)
    };
    // The destination is an existing folder, or a new name.
    let new = ends.to.join("new");
    for (from, to) in [(&tree_of, &ends.to), (&tree_of, &new)] {
        let (one, other) = (Arc::default(), Arc::default());
        let refused = |together| {
            let error = open(from, to, together).map(|_| ()).unwrap_err();
            assert!(error.what.contains("another copy is writing it"), "{error}");
        };
        let first = open(from, to, None).unwrap();
        [None, Some(&one)].into_iter().for_each(refused);
        first.run().unwrap();
        let sources = [open(from, to, Some(&one)).unwrap(), open(from, to, Some(&one)).unwrap()];
        [None, Some(&other)].into_iter().for_each(refused);
        // The command `one` keeps the lock until it ends: another of its sources may start later.
        drop(sources);
        refused(Some(&other));
        drop(one);
        drop(open(from, to, Some(&other)).unwrap());
    }
    // Several copies may write directly into one folder.
    let (_first, second) =
        (open(&contents, &ends.to, None).unwrap(), open(&contents, &ends.to, None));
    assert!(second.is_ok());
    // Copies into different folders do not conflict.
    let other = ends.from.join("other");
    write(other.join("file"), b"f");
    let (_tree, _other) =
        (open(&tree_of, &ends.to, None).unwrap(), open(&other, &ends.to, None).unwrap());
}

#[test]
fn two_concurrent_copies_of_several_files_into_one_folder_never_mix_a_file() {
    let ends = ends();
    let (big, small) = (ends.from.join("big"), ends.from.join("small"));
    write(&big, &content(LARGE, 1));
    write(&small, &content(1000, 1));
    let open = || Copy::open(source(&[&big, &small]), &ambient(&ends.to), &SinkOptions::default());
    let (mut first, mut second) = (open().unwrap(), open().unwrap());
    for chunk in first.missing() {
        first.step(chunk).unwrap();
        second.step(chunk).unwrap();
    }
    let (first, second) = (first.sink.finish().unwrap(), second.sink.finish().unwrap());
    assert_eq!(
        first.files + second.files + (first.failures.len() + second.failures.len()) as u64,
        4
    );
    assert!(
        first.failures.iter().chain(&second.failures).all(|f| f.reason.contains("another copy"))
    );
    assert_eq!(tree(&ends.from), tree(&ends.to));
}

#[test]
fn more_large_files_can_be_in_progress_than_are_kept_open() {
    let ends = ends();
    for number in 0..70 {
        // Holes keep the test fast; each file has two chunks of content.
        let path = ends.from.join(format!("{number:02}"));
        let file = std::fs::File::create(path).unwrap();
        file.set_len(LARGE).unwrap();
        file.write_all_at(&content(10, number), 0).unwrap();
        file.write_all_at(&content(10, number + 100), LARGE - 10).unwrap();
    }
    let from = source(&[&slash(&ends.from)]);
    let mut copy = Copy::open(from, &ambient(&ends.to), &SinkOptions::default()).unwrap();
    let (first, last): (Vec<u64>, Vec<u64>) = copy.missing().iter().partition(|c| *c % 8 == 0);
    assert_eq!((first.len(), last.len()), (70, 70));
    for chunk in first.into_iter().chain(last) {
        copy.step(chunk).unwrap();
    }
    let outcome = copy.sink.finish().unwrap();
    assert_eq!((outcome.files, outcome.failures.len()), (70, 0));
    assert_eq!(tree(&ends.from), tree(&ends.to));
}

/// Replaces a file with another one that has the same length and modification time.
fn swap(path: &Path) {
    let meta = std::fs::metadata(path).unwrap();
    let other = path.with_extension("other");
    std::fs::write(&other, content(meta.len(), 999)).unwrap();
    let file = std::fs::File::options().write(true).open(&other).unwrap();
    file.set_modified(meta.modified().unwrap()).unwrap();
    std::fs::rename(other, path).unwrap();
}

#[test]
fn a_file_that_took_the_place_of_a_small_partial_file_gets_no_name() {
    // Two files are synced one by one; twenty files by one sync.
    for files in [2, 20] {
        let ends = ends();
        for number in 0..files {
            write(ends.from.join(format!("{number:02}")), &content(1000, number));
        }
        let from = source(&[&slash(&ends.from)]);
        let mut copy = Copy::open(from, &ambient(&ends.to), &SinkOptions::default()).unwrap();
        copy.missing().into_iter().for_each(|chunk| copy.step(chunk).unwrap());
        swap(&ends.to.join(".00.lh-small"));
        let outcome = copy.sink.finish().unwrap();
        let failed: Vec<String> = outcome.failures.iter().map(Failure::shown).collect();
        assert_eq!((failed, outcome.files), (vec!["00".to_owned()], files - 1));
        assert!(outcome.failures[0].reason.contains("another copy"), "{outcome:?}");
        assert!(!ends.to.join("00").exists());
    }
}

#[test]
fn a_file_that_took_the_place_of_a_closed_partial_file_is_not_written_and_gets_no_name() {
    const FILES: u64 = 70;
    let ends = ends();
    for number in 0..FILES {
        let file = std::fs::File::create(ends.from.join(format!("{number:02}"))).unwrap();
        file.set_len(LARGE).unwrap();
        file.write_all_at(&content(10, number), 0).unwrap();
        file.write_all_at(&content(10, number + 100), LARGE - 10).unwrap();
    }
    let from = source(&[&slash(&ends.from)]);
    let mut copy = Copy::open(from, &ambient(&ends.to), &SinkOptions::default()).unwrap();
    let (first, last): (Vec<u64>, Vec<u64>) = copy.missing().iter().partition(|c| *c % 8 == 0);
    first.into_iter().for_each(|chunk| copy.step(chunk).unwrap());
    // More files have begun than are kept open, so the first one is closed by now.
    let partial = ends.to.join(".00.lh-part");
    swap(&partial);
    last.into_iter().for_each(|chunk| copy.step(chunk).unwrap());
    let outcome = copy.sink.finish().unwrap();
    let failed: Vec<String> = outcome.failures.iter().map(Failure::shown).collect();
    assert_eq!((failed, outcome.files), (vec!["00".to_owned()], FILES - 1));
    assert!(!ends.to.join("00").exists());
    assert_eq!(std::fs::read(&partial).unwrap(), content(LARGE, 999));
}

#[test]
fn files_without_permission_are_named_and_the_rest_is_copied() {
    let is_root = rustix::process::geteuid().is_root();
    need!(skip::unless(!is_root, "root may read and write everything"));
    let ends = ends();
    let lock = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for name in ["a", "d/x", "e/y", "z"] {
        write(ends.from.join(name), name.as_bytes());
    }
    write(ends.from.join("big"), &content(LARGE, 1));
    std::fs::create_dir(ends.to.join("e")).unwrap();
    lock(&ends.from.join("a"), 0);
    lock(&ends.from.join("big"), 0);
    lock(&ends.from.join("d"), 0);
    lock(&ends.to.join("e"), 0o500);
    let from = source(&[&slash(&ends.from)]);
    let mut unread: Vec<String> = from.failures().iter().map(Failure::shown).collect();
    unread.sort();
    assert_eq!(unread, ["a", "big", "d"]);
    let outcome =
        Copy::open(from, &ambient(&ends.to), &SinkOptions::default()).unwrap().run().unwrap();
    let failed: Vec<String> = outcome.failures.iter().map(Failure::shown).collect();
    assert_eq!((failed, outcome.files), (vec!["e/y".to_owned()], 1));
    lock(&ends.from.join("d"), 0o700);
    let single = Source::open(&[ambient(ends.from.join("big"))], &SourceOptions::default());
    assert!(single.unwrap_err().what.contains("Permission denied"));
}

struct Tiny(tempfile::TempDir);

impl Tiny {
    fn mount(bytes: u64) -> Result<Tiny, Skipped> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(folder.path())
            .status();
        let mounted = mounted.is_ok_and(|status| status.success());
        skip::unless(mounted, "a full disk needs the right to mount a tmpfs")?;
        Ok(Tiny(folder))
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_detected_before_the_start_and_during_the_copy() {
    let tiny = need!(Tiny::mount(12 << 20));
    let ends = ends();
    let (from, to) = (ends.from.join("file"), tiny.0.path());
    write(&from, &content(2 * LARGE, 1));
    let open = || Copy::open(source(&[&from]), &ambient(to), &SinkOptions::default());
    let error = open().map(|_| ()).unwrap_err();
    assert!(error.what.contains("not enough space") && error.what.contains("missing"), "{error}");
    write(&from, &content(LARGE, 1));
    let mut copy = open().unwrap();
    copy.step(0).unwrap();
    write(to.join("other"), &content(9 << 20, 2));
    let mut error = None;
    for chunk in 1..8 {
        error = error.or(copy.step(chunk).err());
    }
    let error = error.unwrap();
    assert!(error.what.contains("file (8.39 MB)"), "{error}");
    drop(copy);
    std::fs::remove_file(to.join("other")).unwrap();
    let mut copy = open().unwrap();
    copy.compare();
    assert!(copy.missing().len() < 8);
    copy.run().unwrap();
    assert_eq!(tree(&ends.from), tree(to));
}

#[test]
fn an_equal_file_is_skipped_even_if_another_copy_has_locked_it() {
    let ends = ends();
    let from = ends.from.join("file");
    write(&from, &content(LARGE, 1));
    let _first = Copy::open(source(&[&from]), &ambient(&ends.to), &SinkOptions::default()).unwrap();
    write(ends.to.join("file"), &content(LARGE, 1));
    let outcome = copy(&[&from], &ends.to);
    assert_eq!((outcome.files, outcome.failures.len()), (0, 0));
}

#[test]
fn a_copy_may_write_to_a_regular_file_or_an_unused_name_also_through_a_link() {
    let ends = ends();
    write(ends.to.join("file"), b"f");
    for (link, to) in [("to_file", "file"), ("to_nothing", "gone"), ("circle", "circle")] {
        symlink(to, ends.to.join(link)).unwrap();
    }
    let may = |name: &str| ambient(ends.to.join(name)).may_be_replaced().map_err(|_| ());
    assert_eq!(["file", "to_file", "to_nothing", "gone"].map(may), [Ok(true); 4]);
    assert_eq!([may("."), may("circle")], [Ok(false), Err(())]);
}

#[test]
fn a_failed_lookup_does_not_count_as_a_missing_name() {
    let ends = ends();
    let folder = ambient(&ends.to).folder().unwrap();
    assert!(folder.look_if_there(b"gone").unwrap().is_none());
    assert!(folder.look_if_there(&[b'n'; 300]).is_err(), "it is too long for a name");
}

#[test]
fn names_that_differ_only_in_case_never_share_one_file() {
    for folds in [true, false] {
        let disk = crate::store::memory::Disk::new(1);
        if folds {
            disk.fold_names();
        }
        let to = Place::Stored { root: crate::store::buffers::Store(disk.root()), path: "".into() };
        let ends = ends();
        // The last two names are equal by all rules for case. SSss equals them only by some rules.
        let sharp = ["sub/SSss", "sub/ßSS", "sub/ßss"];
        let all = ["B/x", "README", "b/x", "b/y", "readme", "sub/A", "sub/a", "sub/other"];
        let all = || all.into_iter().chain(sharp);
        for name in all() {
            write(ends.from.join(name), name.as_bytes());
        }
        // The second run finds what the first one copied.
        for _ in 0..2 {
            let from = source(&[&slash(&ends.from)]);
            let copy = Copy::open(from, &to, &SinkOptions::default()).unwrap();
            let outcome = copy.run().unwrap();
            let failed: BTreeSet<Vec<u8>> =
                outcome.failures.iter().map(|failure| failure.path.clone()).collect();
            let files = disk.tree(false);
            for name in all() {
                let is_failed = failed.contains(name.as_bytes());
                let clash = ["b/x", "b/y", "readme", "sub/a", "sub/ßss"].contains(&name);
                assert_eq!(is_failed, folds && clash, "{name}");
                assert!(is_failed || files.contains_key(name.as_bytes()), "{name}: {files:?}");
            }
            let other = |failure: &Failure| !failure.reason.contains("the folder that holds it");
            let mut reasons = outcome.failures.iter().filter(|failure| other(failure));
            assert!(reasons.all(|failure| failure.reason.contains("differs only in case")));
        }
    }
}
