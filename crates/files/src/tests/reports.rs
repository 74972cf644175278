//! Tests of the reports of sources and sinks about entries, of manifests' contents, and of new
//! names on the disk after a copy.

use super::*;
use crate::store::buffers::Store;
use crate::store::memory::Disk;

fn stored(disk: &Disk, path: &str) -> Place {
    Place::Stored { root: Store(disk.root()), path: path.into() }
}

fn recursive(place: Place) -> Source {
    let options = SourceOptions { recursive: true, ..Default::default() };
    Source::open(&[place], &options).unwrap()
}

#[test]
fn a_named_entry_is_reported_once_and_only_on_request() {
    let ends = ends();
    write(ends.from.join("a"), b"a");
    for names in [true, false] {
        let options = SinkOptions { names, ..Default::default() };
        let to = ambient(ends.to.join(names.to_string()));
        let mut copy = Copy::open(source(&[&ends.from]), &to, &options).unwrap();
        let reported = copy.sink.take_named();
        assert_eq!(reported.len(), usize::from(names), "{reported:?}");
        assert!(copy.sink.take_named().is_empty(), "{names}");
        copy.run().unwrap();
    }
}

#[test]
fn equal_trees_have_equal_manifest_contents_and_a_change_makes_them_differ() {
    let ends = ends();
    for folder in [&ends.from, &ends.to] {
        write(folder.join("a"), b"a");
    }
    let list = |folder: &Path| source(&[&slash(folder)]).manifest().clone();
    let (one, other) = (list(&ends.from), list(&ends.to));
    assert_eq!(one.encode_content(), other.encode_content());
    assert_ne!(one.encode(), other.encode(), "the stamps differ");
    write(ends.to.join("a"), b"bb");
    assert_ne!(one.encode_content(), list(&ends.to).encode_content());
}

#[test]
fn a_name_that_is_too_long_fails_alone_with_the_reason() {
    let disk = Disk::new(1);
    disk.root().make_folder(b"t", 0o755).unwrap();
    let folder = disk.root().open_folder(b"t").unwrap();
    for len in [255, 256] {
        drop(folder.create(&vec![b'n'; len], 0o600).unwrap());
    }
    let source = recursive(stored(&disk, "t"));
    let reported: Vec<_> =
        source.failures().iter().map(|it| (it.path.len(), &*it.reason)).collect();
    assert_eq!(reported, [(2 + 256, "its name is longer than 255 bytes")]);
}

#[test]
fn a_path_of_4097_bytes_fails_alone_with_the_reason() {
    let disk = Disk::new(1);
    let mut folder = disk.root();
    for name in std::iter::once("t".to_owned()).chain(vec!["n".repeat(255); 15]) {
        folder.make_folder(name.as_bytes(), 0o755).unwrap();
        folder = folder.open_folder(name.as_bytes()).unwrap();
    }
    // `t`, 15 names of 255 bytes and 16 slashes take 3,842 bytes: 254 of the 4,096 bytes are left.
    for len in [254, 255] {
        drop(folder.create(&vec![b'n'; len], 0o600).unwrap());
    }
    let source = recursive(stored(&disk, "t"));
    let reported: Vec<_> =
        source.failures().iter().map(|it| (it.path.len(), &*it.reason)).collect();
    assert_eq!(reported, [(4097, "its path is longer than 4096 bytes")]);
    assert_eq!(source.manifest().entries().len(), 17);
}

#[test]
fn a_new_name_is_on_the_disk_at_the_end_of_a_copy() {
    let (ends, to) = (ends(), Disk::new(2));
    write(ends.from.join("empty"), b"");
    let from = source(&[&ends.from.join("empty")]);
    Copy::open(from, &stored(&to, "copy"), &SinkOptions::default()).unwrap().run().unwrap();
    assert!(to.tree(true).contains_key(&b"copy"[..]), "{:?}", to.tree(true));
}

#[test]
fn a_new_folder_is_on_the_disk_at_the_end_of_a_copy() {
    let (from, to) = (Disk::new(1), Disk::new(2));
    from.root().make_folder(b"t", 0o755).unwrap();
    let copy = Copy::open(recursive(stored(&from, "t")), &stored(&to, ""), &SinkOptions::default());
    copy.unwrap().run().unwrap();
    assert!(to.tree(true).contains_key(&b"t"[..]), "{:?}", to.tree(true));
}

#[test]
fn a_new_destination_without_content_is_on_the_disk_at_the_end_of_the_copy() {
    let (ends, to) = (ends(), Disk::new(2));
    let from = source(&[&slash(&ends.from)]);
    Copy::open(from, &stored(&to, "new"), &SinkOptions::default()).unwrap().run().unwrap();
    assert!(to.tree(true).contains_key(&b"new"[..]));
}
