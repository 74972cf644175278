//! Names that the source lacks, and which of them a copy removes.

use std::os::unix::fs::symlink;

use super::*;
use crate::filter::Filter;
use crate::sink::{Age, Delete};

fn deleting(filters: &[&str], most: Option<u64>) -> SinkOptions {
    let filters = filters.iter().map(|glob| Filter::Exclude((*glob).to_owned())).collect();
    let delete = Some(Delete { filters, most, age: None });
    SinkOptions { delete, names: true, ..Default::default() }
}

/// Copies the content of `from` with filters, and deletes the names that the source lacks.
fn mirror(ends: &Ends, filters: &[&str], options: &SinkOptions) -> Result<SinkOutcome, Error> {
    let filters = filters.iter().map(|glob| Filter::Exclude((*glob).to_owned())).collect();
    let options_of_source = SourceOptions { recursive: true, filters, ..Default::default() };
    let source = Source::open(&[ambient(slash(&ends.from))], &options_of_source)?;
    Copy::open(source, &ambient(&ends.to), options)?.run()
}

fn names_of(root: &Path) -> Vec<String> {
    tree(root).into_keys().map(|path| path.display().to_string()).collect()
}

#[test]
fn extra_names_are_deleted_and_nothing_behind_a_link() {
    let ends = ends();
    let outside = ends.from.parent().unwrap().join("outside");
    write(outside.join("precious"), b"p");
    for path in ["a", "d/b", "d.x/c", "z"] {
        write(ends.from.join(path), b"new");
    }
    for path in ["a", "a0", "d/extra", "d/deep/er/x", "d-y/c", "e/f", "zz"] {
        write(ends.to.join(path), b"older");
    }
    symlink(&outside, ends.to.join("link")).unwrap();
    symlink(&outside, ends.to.join("e/link")).unwrap();
    let outcome = mirror(&ends, &[], &deleting(&[], None)).unwrap();
    assert_eq!(tree(&ends.from), tree(&ends.to));
    assert!(outside.join("precious").exists());
    assert_eq!(outcome.deleted, 12, "{:?}", outcome.deleted_names);
    assert!(outcome.deleted_names.contains(&b"d/deep/".to_vec()));
    assert_eq!(mirror(&ends, &[], &deleting(&[], None)).unwrap().deleted, 0);
}

#[test]
fn a_dry_run_creates_no_file_to_read_the_time_of_the_disk() {
    let ends = ends();
    let folder = std::fs::File::open(&ends.to).unwrap();
    folder.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let options = SinkOptions { dry_run: true, ..deleting(&[], None) };
    Copy::open(source(&[&slash(&ends.from)]), &ambient(&ends.to), &options).unwrap();
    assert_eq!(folder.metadata().unwrap().modified().unwrap(), SystemTime::UNIX_EPOCH);
}

#[test]
fn excluded_files_and_partial_files_of_other_copies_are_kept_with_their_folders() {
    let ends = ends();
    write(ends.from.join("a"), b"a");
    write(ends.from.join("b.tmp"), b"not copied");
    for path in ["x.tmp", "old/y.tmp", "old/z", "part/.q.lh-part", "gone/g"] {
        write(ends.to.join(path), b"old");
    }
    let outcome = mirror(&ends, &["*.tmp"], &deleting(&["*.tmp"], None)).unwrap();
    assert_eq!(outcome.failures, []);
    let left = ["a", "old", "old/y.tmp", "part", "part/.q.lh-part", "x.tmp"];
    assert_eq!(names_of(&ends.to), left);
}

#[test]
fn a_source_without_files_and_too_many_names_to_delete_are_refused_before_any_change() {
    let ends = ends();
    std::fs::create_dir(ends.from.join("empty")).unwrap();
    write(ends.to.join("x"), b"x");
    write(ends.to.join("y"), b"y");
    let before = tree(&ends.to);
    let refused = mirror(&ends, &[], &deleting(&[], None)).unwrap_err();
    assert!(refused.what.contains("the source has no files"), "{refused}");
    write(ends.from.join("new"), b"n");
    let refused = mirror(&ends, &[], &deleting(&[], Some(1))).unwrap_err();
    assert!(refused.what.contains("2 names"), "{refused}");
    assert_eq!(tree(&ends.to), before);
    assert_eq!(mirror(&ends, &[], &deleting(&[], Some(2))).unwrap().deleted, 2);
}

#[test]
fn a_copy_that_is_not_whole_deletes_nothing() {
    let ends = ends();
    write(ends.from.join("a"), b"a");
    write(ends.from.join("b"), b"b");
    write(ends.to.join("x"), b"x");
    let open =
        || Copy::open(source(&[&slash(&ends.from)]), &ambient(&ends.to), &deleting(&[], None));
    let mut copy = open().unwrap();
    copy.sink.fail_entry(1, "it cannot be read");
    let outcome = copy.run().unwrap();
    assert!(outcome.kept_extra && outcome.deleted == 0);
    // If the source cannot read a folder, its list lacks the folder's content. The destination must
    // keep this content.
    let mut copy = open().unwrap();
    copy.sink.source_is_incomplete();
    assert!(copy.run().unwrap().kept_extra);
    drop(open().unwrap());
    assert!(ends.to.join("x").exists());
    assert_eq!(open().unwrap().run().unwrap().deleted, 1);
}

#[test]
fn files_that_another_copy_finishes_meanwhile_are_not_deleted() {
    let ends = ends();
    write(ends.from.join("a"), b"a");
    for path in ["old", "replaced", "shared/old", "gone/old"] {
        write(ends.to.join(path), b"old");
    }
    let open =
        || Copy::open(source(&[&slash(&ends.from)]), &ambient(&ends.to), &deleting(&[], None));
    let copy = open().unwrap();
    // Imitates the end of another copy: writes each file under another name and renames it.
    for path in ["new", "replaced", "shared/new", "fresh/new"] {
        let other = ends.from.join("other");
        write(&other, b"new");
        std::fs::create_dir_all(ends.to.join(path).parent().unwrap()).unwrap();
        std::fs::rename(&other, ends.to.join(path)).unwrap();
    }
    let outcome = copy.run().unwrap();
    // A folder that another copy uses stays with its content.
    let left = ["a", "fresh", "fresh/new", "new", "replaced", "shared", "shared/new", "shared/old"];
    assert_eq!(names_of(&ends.to), left, "{:?}", outcome.deleted_names);
    assert_eq!(outcome.deleted, 3);
    // The next copy begins after the other copy's files are complete, so it deletes them too.
    open().unwrap().run().unwrap();
    assert_eq!(names_of(&ends.to), ["a"]);
}

#[test]
fn a_second_attempt_deletes_nothing_that_another_copy_finished_since_the_first_one() {
    let ends = ends();
    write(ends.from.join("a"), b"a");
    let open = |options: &SinkOptions| {
        Copy::open(source(&[&slash(&ends.from)]), &ambient(&ends.to), options).unwrap()
    };
    let mut again = deleting(&[], None);
    again.delete.as_mut().unwrap().age = Some(Age::new(Duration::ZERO));
    drop(open(&deleting(&[], None)));
    write(ends.to.join("new"), b"n");
    assert_eq!(open(&again).run().unwrap().deleted, 0);
    assert_eq!(names_of(&ends.to), ["a", "new"]);
    assert_eq!(open(&deleting(&[], None)).run().unwrap().deleted, 1);
}

#[test]
fn a_dry_run_into_a_missing_folder_deletes_nothing_beside_it() {
    let ends = ends();
    write(ends.from.join("a"), b"a");
    write(ends.to.join("other"), b"o");
    let options = SinkOptions { dry_run: true, ..deleting(&[], None) };
    let to = ambient(slash(&ends.to.join("new")));
    let mut copy = Copy::open(source(&[&slash(&ends.from)]), &to, &options).unwrap();
    let names = copy.sink.would_delete().unwrap().names;
    assert_eq!((names, copy.sink.finish().unwrap().deleted), (vec![], 0));
}

#[test]
fn nothing_is_deleted_where_the_disk_stores_names_in_another_form() {
    let disk = crate::store::memory::Disk::new(1);
    disk.fold_names();
    let to = Place::Stored {
        root: crate::store::buffers::Store(disk.root()),
        path: std::path::PathBuf::new(),
    };
    let ends = ends();
    write(ends.from.join("ReadMe"), b"a");
    let run = |delete: bool| {
        let options = if delete { deleting(&[], None) } else { SinkOptions::default() };
        Copy::open(source(&[&slash(&ends.from)]), &to, &options).unwrap().run().unwrap()
    };
    run(false);
    std::fs::rename(ends.from.join("ReadMe"), ends.from.join("readme")).unwrap();
    // The disk finds the file by either name, but lists only `ReadMe`.
    let outcome = run(true);
    assert_eq!(outcome.deleted, 0);
    let [failure] = &outcome.failures[..] else { panic!("{:?}", outcome.failures) };
    assert!(failure.reason.contains("under another name"), "{failure:?}");
    assert_eq!(disk.tree(false).into_keys().collect::<Vec<_>>(), [b"ReadMe"]);
}

#[test]
fn a_destination_that_is_a_link_and_a_source_that_is_not_the_contents_of_a_folder_are_refused() {
    let ends = ends();
    write(ends.from.join("a"), b"a");
    write(ends.to.join("x"), b"x");
    let link = ends.to.with_file_name("link");
    symlink(&ends.to, &link).unwrap();
    let from_contents = source(&[&slash(&ends.from)]);
    let refused = Copy::open(from_contents, &ambient(&link), &deleting(&[], None)).err().unwrap();
    assert!(refused.what.contains("is a link"), "{refused}");
    let named = source(&[&ends.from]);
    let refused = Copy::open(named, &ambient(&ends.to), &deleting(&[], None)).err().unwrap();
    assert!(refused.what.contains("contents of one folder"), "{refused}");
    assert!(ends.to.join("x").exists());
}
