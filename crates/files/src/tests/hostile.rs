//! Hostile manifests, places (paths below a served root) and destinations.

use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::filter::Filter;
use super::manifest::FileTime;
use super::*;

fn entry(path: &[u8], kind: Kind) -> Listed {
    Listed { path: path.into(), kind, mode: 0o644, modified: FileTime::default() }
}

fn file(path: &[u8]) -> Listed {
    entry(path, Kind::file(5))
}

fn link(path: &[u8], target: &[u8]) -> Listed {
    entry(path, Kind::Link { target: target.into() })
}

fn folder(path: &[u8]) -> Listed {
    entry(path, Kind::Folder)
}

#[test]
fn a_harmful_manifest_is_refused_and_the_entry_named() {
    let long = [b'n'; 300];
    let deep = [&b"d/"[..]; 2100].concat();
    let cases: Vec<(&str, Vec<Listed>)> = vec![
        ("leads elsewhere", vec![folder(b".."), file(b"../x")]),
        ("leads elsewhere", vec![file(b"..")]),
        ("leads elsewhere", vec![file(b".")]),
        ("absolute", vec![file(b"/etc/x")]),
        ("empty name", vec![file(b"")]),
        ("empty name", vec![folder(b"a"), file(b"a/")]),
        ("empty name", vec![folder(b"a"), file(b"a//b")]),
        ("255", vec![file(&long)]),
        ("4096", vec![file(&deep)]),
        ("zero byte", vec![file(b"a\0b")]),
        ("twice", vec![file(b"a"), file(b"a")]),
        ("twice", vec![folder(b"a"), link(b"a", b"/etc")]),
        ("its folder is not in the manifest", vec![link(b"a", b"/etc"), file(b"a/passwd")]),
        ("its folder is not in the manifest", vec![file(b"a"), file(b"a/b")]),
        ("its folder is not in the manifest", vec![file(b"a/b")]),
        ("reserved", vec![file(b".a.lh-part")]),
        ("reserved", vec![file(b".a.lh-journal")]),
        ("reserved", vec![folder(b".a.lh-tree"), file(b".a.lh-tree/b")]),
        ("link target", vec![link(b"a", b"")]),
        ("mode or time", vec![Listed { mode: 0o10_000, ..file(b"a") }]),
    ];
    for (reason, entries) in cases {
        let error = Manifest::new(Shape::Contents, entries.clone()).unwrap_err();
        assert!(error.reason.contains(reason), "{error} instead of {reason}");
        assert!(error.entry.is_some(), "{error} names nothing");
        let forged = manifest::encode_unchecked(Shape::Contents, &entries);
        assert!(Manifest::decode(&forged).is_err(), "{reason}");
    }
}

#[test]
fn impossible_sizes_holes_counts_orders_and_shapes_are_refused() {
    let sized = |size, holes: Vec<std::ops::Range<u64>>| {
        entry(b"a", Kind::File { size, sparse: true, holes: holes.into() })
    };
    let refused = |shape, entries: Vec<Listed>| {
        let forged = manifest::encode_unchecked(shape, &entries);
        Manifest::decode(&forged).unwrap_err();
    };
    refused(Shape::Contents, vec![sized(u64::MAX, vec![])]);
    refused(Shape::Contents, vec![sized(5, vec![0..1])]);
    refused(Shape::Contents, vec![sized(LARGE, vec![7..9])]);
    refused(Shape::Contents, vec![sized(LARGE, vec![2..3, 1..2])]);
    refused(Shape::Contents, vec![sized(LARGE, vec![2..2])]);
    refused(Shape::Contents, vec![file(b"b"), file(b"a")]);
    refused(Shape::File, vec![file(b"a"), file(b"b")]);
    refused(Shape::File, vec![folder(b"a")]);
    refused(Shape::Named, vec![folder(b"a"), folder(b"b")]);
    refused(Shape::Named, vec![]);
    // A header that announces ten million entries, followed by none; a header that announces more.
    assert!(Manifest::decode(&[7, 8, 3, 16, 0x80, 0xad, 0xe2, 0x04]).is_err());
    assert!(Manifest::decode(&[7, 8, 3, 16, 0xff, 0xff, 0xff, 0x7f, 0]).is_err());
}

#[test]
fn a_million_entries_can_be_read() {
    let mut entries: Vec<Listed> =
        (0..1000).map(|f| folder(format!("{f:03}").as_bytes())).collect();
    for number in 0..999_000 {
        entries.push(file(format!("{:03}/{number}", number % 1000).as_bytes()));
    }
    let manifest = Manifest::new(Shape::Contents, entries).unwrap();
    let encoded = manifest.encode();
    assert!(encoded.len() < 40_000_000);
    assert_eq!(Manifest::decode(&encoded).unwrap(), manifest);
}

#[derive(Debug)]
struct Limit(u64);

impl ListMemory for Limit {
    fn hold(&mut self, bytes: u64) -> Result<(), Error> {
        let refused = || Error::new(FileErrorKind::Request, format!("{bytes} are too many"));
        (bytes <= self.0).then_some(()).ok_or_else(refused)
    }
}

#[test]
fn a_hundred_thousand_files_with_paths_of_four_kilobytes_take_less_than_16_mb() {
    let mut listing = manifest::Listing::default();
    let entry = |kind| manifest::Entry::new(kind, 0o644, FileTime::default());
    let deepest = (0..16)
        .fold(None, |folder, _| Some(listing.add(folder, &[b'd'; 250], entry(Kind::Folder))));
    for number in 0..100_000 {
        listing.add(deepest, format!("{number}").as_bytes(), entry(file(b"x").kind));
    }
    let (manifest, _) = listing.into_manifest(Shape::Contents).unwrap();
    let encoded = manifest.encode();
    let measured = Manifest::measure(&encoded).unwrap();
    assert!(measured.bytes() < 16_000_000, "{} bytes", measured.bytes());
    let manifest = measured.read().unwrap();
    assert_eq!(manifest.path(70_000).len(), 4015 + 6);
}

#[test]
fn a_list_takes_at_most_the_measured_memory() {
    let kind = |holes: u64| {
        let holes = (0..holes).map(|n| 2 * n..2 * n + 1).collect();
        Kind::File { size: 1 << 40, sparse: true, holes }
    };
    let entries = vec![
        folder(b"a"),
        entry(b"a/b", kind(1000)),
        entry(b"a/c", kind(0)),
        link(b"d", &[b'x'; 4000]),
    ];
    let encoded = Manifest::new(Shape::Contents, entries).unwrap().encode();
    let measured = Manifest::measure(&encoded).unwrap().bytes();
    // Four entries, 1,000 holes of 16 bytes, a target of 4,000 bytes, and names of one byte.
    let bytes = 4 * size_of::<Entry>() as u64 + 16_000 + 4000 + 4;
    assert!((bytes..bytes + 200).contains(&measured), "{measured} for {bytes}");
}

#[test]
fn more_holes_than_a_file_may_have_are_refused_before_they_are_read() {
    // 3 Mi numbers, two for each hole. Each number takes one byte encoded, and eight bytes decoded.
    let holes = vec![1u8; 3 << 20];
    let mut entry = vec![18, 1, b'a', 50];
    prost::encode_length_delimiter(holes.len(), &mut entry).unwrap();
    entry.extend(holes);
    let mut encoded = vec![4, 8, 3, 16, 1];
    prost::encode_length_delimiter(entry.len(), &mut encoded).unwrap();
    encoded.extend(entry);
    let error = Manifest::decode(&encoded).unwrap_err();
    assert!(error.reason.contains("holes"), "{error}");
}

#[test]
fn a_walk_that_exceeds_the_memory_ends() {
    let ends = ends();
    for number in 0..50 {
        write(ends.from.join(format!("{number}")), b"x");
    }
    let options = SourceOptions { recursive: true, ..Default::default() };
    let open = |bytes| {
        Source::open_within(&[ambient(slash(&ends.from))], &options, Box::new(Limit(bytes)))
    };
    assert!(open(50 * 400).is_ok());
    let error = open(20 * 100).unwrap_err();
    assert!(error.what.contains("too many"), "{error}");
}

#[test]
fn names_of_listed_paths_that_are_missing_are_charged_to_the_memory() {
    let ends = ends();
    write(ends.from.join("there"), b"x");
    let only = |number: u64| Filter::Only(format!("{number:0200}").into_bytes());
    let filters = (0..50).map(only).collect();
    let options = SourceOptions { recursive: true, filters, ..Default::default() };
    let open = |bytes| {
        Source::open_within(&[ambient(slash(&ends.from))], &options, Box::new(Limit(bytes)))
    };
    assert_eq!(open(50 * 400).unwrap().failures().len(), 50);
    let error = open(50 * 200).unwrap_err();
    assert!(error.what.contains("too many"), "{error}");
}

#[test]
fn names_of_files_that_fail_during_reads_are_charged_to_the_memory() {
    let ends = ends();
    let path = |number: u64| ends.from.join(format!("{number:0200}"));
    let read = |bytes| {
        (0..50).for_each(|number| write(path(number), b"x"));
        let options = SourceOptions { recursive: true, ..Default::default() };
        let memory = Box::new(Limit(bytes));
        let mut source =
            Source::open_within(&[ambient(slash(&ends.from))], &options, memory).unwrap();
        (0..50).for_each(|number| std::fs::remove_file(path(number)).unwrap());
        let mut buf = vec![0; CHUNK as usize];
        let read = source.read_chunk(0, &mut buf).map(|_| ());
        let within = source.read_within(0, 0, &mut buf);
        assert_eq!(read.is_ok(), within.is_ok(), "a refused read stays refused");
        (read, source.failures().len())
    };
    let (whole, failures) = read(1 << 20);
    assert_eq!((whole.map_err(|error| error.what), failures), (Ok(()), 50));
    let (refused, failures) = read(50 * 700);
    assert!(refused.unwrap_err().what.contains("too many"));
    assert!((1..50).contains(&failures), "{failures}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn a_list_does_not_depend_on_the_order_of_discovery(
        names in prop::collection::vec(("[ab!.-]{1,3}", any::<prop::sample::Index>()), 1..40),
        seed in any::<u64>(),
    ) {
        let is_plain = |name: &str| name != "." && name != "..";
        let mut paths: Vec<Vec<u8>> = vec![Vec::new()];
        for (name, folder) in names.iter().filter(|(name, _)| is_plain(name)) {
            let folder = paths[folder.index(paths.len())].clone();
            let path = match &folder[..] {
                b"" => name.as_bytes().to_vec(),
                folder => [folder, b"/", name.as_bytes()].concat(),
            };
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        let listed = paths[1..].iter().map(|path| folder(path)).collect();
        let expected = Manifest::new(Shape::Contents, listed).unwrap();
        // List siblings in another order than their names, but folders before their content.
        let mut found: Vec<(usize, u64, &Vec<u8>)> = paths[1..]
            .iter()
            .zip(1..)
            .map(|(path, n): (_, u64)| {
                let depth = path.iter().filter(|byte| **byte == b'/').count();
                (depth, seed.wrapping_mul(n) % 97, path)
            })
            .collect();
        found.sort();
        let mut listing = manifest::Listing::default();
        let mut numbers = std::collections::BTreeMap::new();
        for (_, _, path) in &found {
            let (folder, name) = manifest::split(path);
            let parent = numbers.get(folder).copied();
            let entry = manifest::Entry::new(Kind::Folder, 0o644, FileTime::default());
            let number = listing.add(parent, name, entry);
            prop_assert_eq!(&listing.path(number), *path);
            numbers.insert(path.to_vec(), number);
        }
        let (sorted, order) = listing.into_manifest(Shape::Contents).unwrap();
        prop_assert_eq!(&sorted, &expected);
        for (at, number) in order.iter().enumerate() {
            let path = sorted.path(at as u32);
            prop_assert_eq!(numbers[&path], *number);
        }
        prop_assert_eq!(&Manifest::decode(&sorted.encode()).unwrap(), &sorted);
    }

    #[test]
    fn arbitrary_bytes_decode_to_a_valid_manifest_or_are_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        if let Ok(manifest) = Manifest::decode(&bytes) {
            VirtualObject::new(&Arc::new(manifest), 0).implied();
        }
    }

    #[test]
    fn a_truncated_manifest_is_refused_and_one_with_a_flipped_bit_is_refused_or_valid(
        at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<prop::sample::Index>(),
    ) {
        let entries = vec![folder(b"a"), file(b"a/b"), file(b"a/c"), link(b"d", b"e")];
        let mut bytes = Manifest::new(Shape::Contents, entries).unwrap().encode();
        prop_assert!(Manifest::decode(&bytes[..cut.index(bytes.len())]).is_err());
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(manifest) = Manifest::decode(&bytes) {
            VirtualObject::new(&Arc::new(manifest), 0).implied();
        }
    }
}

#[test]
fn links_planted_in_the_destination_are_not_followed() {
    let ends = ends();
    let outside = ends.from.parent().unwrap().join("outside");
    std::fs::create_dir(&outside).unwrap();
    write(outside.join("victim"), b"victim");
    write(ends.from.join("d/e/small"), b"s");
    write(ends.from.join("d/big"), &content(LARGE, 1));
    write(ends.from.join("victim"), b"new");
    write(ends.from.join("big"), &content(LARGE, 2));
    symlink(&outside, ends.to.join("d")).unwrap();
    symlink(outside.join("victim"), ends.to.join("victim")).unwrap();
    symlink(outside.join("victim"), ends.to.join(".victim.lh-small")).unwrap();
    symlink(outside.join("victim"), ends.to.join(".big.lh-part")).unwrap();
    symlink(outside.join("victim"), ends.to.join(".big.lh-journal")).unwrap();
    let outcome = copy(&[&slash(&ends.from)], &ends.to);
    let failed: Vec<String> = outcome.failures.iter().map(Failure::shown).collect();
    assert_eq!(failed, ["d", "d/big", "d/e", "d/e/small"]);
    assert!(outcome.failures[0].reason.contains("a link is in its place"));
    assert_eq!(outcome.files, 2);
    assert_eq!(tree(&outside).len(), 1);
    assert_eq!(std::fs::read(outside.join("victim")).unwrap(), b"victim");
    assert_eq!(std::fs::read(ends.to.join("victim")).unwrap(), b"new");
    assert!(ends.to.join("victim").symlink_metadata().unwrap().is_file());
    assert_eq!(std::fs::read(ends.to.join("big")).unwrap(), content(LARGE, 2));
}

#[test]
fn a_hard_link_planted_as_a_partial_file_is_not_written_through() {
    let ends = ends();
    write(ends.from.join("big"), &content(LARGE, 1));
    write(ends.to.join("victim"), b"victim");
    std::fs::hard_link(ends.to.join("victim"), ends.to.join(".big.lh-part")).unwrap();
    copy(&[&ends.from.join("big")], &ends.to);
    assert_eq!(std::fs::read(ends.to.join("victim")).unwrap(), b"victim");
    assert_eq!(std::fs::read(ends.to.join("big")).unwrap(), content(LARGE, 1));
}

#[test]
fn a_served_root_cannot_be_left() {
    let ends = ends();
    write(ends.from.join("in/x"), b"x");
    write(ends.from.parent().unwrap().join("secret"), b"s");
    symlink("..", ends.from.join("up")).unwrap();
    symlink("/etc", ends.from.join("etc")).unwrap();
    symlink("in", ends.from.join("fine")).unwrap();
    let root = Root::open(&ends.from).unwrap();
    let place = |path: &str| Place::Within { root: root.clone(), path: path.into() };
    let options = SourceOptions { recursive: true, ..Default::default() };
    for path in ["../secret", "/etc/passwd", "up/secret", "etc/passwd", "in/../../secret", "up/"] {
        let error = Source::open(&[place(path)], &options).unwrap_err();
        assert!(error.what.contains(path), "{error}");
        let manifest = Arc::new(Manifest::new(Shape::File, vec![file(b"x")]).unwrap());
        let sink =
            Sink::open(&place(path), &manifest, 0, &SinkOptions::default(), &Watch::default());
        assert!(sink.is_err(), "{path}");
    }
    for path in ["in", "fine/", "in/../in/x", ""] {
        Source::open(&[place(path)], &options).unwrap();
    }
    let from = source(&[&slash(&ends.from.join("in"))]);
    Copy::open(from, &place("fine"), &SinkOptions::default()).unwrap().run().unwrap();
    assert!(!ends.from.parent().unwrap().join("x").exists());
}

#[test]
fn a_chunk_that_differs_from_its_hash_is_not_written() {
    let ends = ends();
    let from = ends.from.join("file");
    write(&from, &content(CHUNK + 5, 1));
    let mut copy =
        Copy::open(source(&[&from]), &ambient(&ends.to), &SinkOptions::default()).unwrap();
    let mut buf = vec![0; CHUNK as usize];
    let read = copy.source.read_chunk(0, &mut buf).unwrap();
    buf[7] ^= 1;
    let sink = &mut copy.sink;
    assert_eq!(sink.write_chunk(0, &buf, &read.value).unwrap(), Verdict::Mismatch);
    assert_eq!(sink.write_chunk(0, &buf[..9], &read.value).unwrap(), Verdict::Mismatch);
    assert!(sink.write_chunk(2, &buf, &read.value).is_err());
    let partial = std::fs::read(ends.to.join(".file.lh-part")).unwrap();
    assert!(partial.iter().all(|byte| *byte == 0));
    assert_eq!(sink.missing(), vec![0..2]);
    copy.run().unwrap();
    assert_eq!(tree(&ends.from), tree(&ends.to));
}

#[test]
fn unrequested_answers_are_refused_and_unknown_entries_and_chunks_match_nothing() {
    let ends = ends();
    let from = ends.from.join("file");
    write(&from, &content(LARGE, 1));
    let mut copy =
        Copy::open(source(&[&from]), &ambient(&ends.to), &SinkOptions::default()).unwrap();
    assert!(copy.sink.compare_result(0, &[true]).is_err());
    assert!(copy.sink.compare_result(9, &[]).is_err());
    assert_eq!(copy.sink.fail_entry(9, "no such entry"), []);
    assert_eq!(copy.source.compare(7, &[(0, [0; 32])]), [false]);
    assert_eq!(copy.source.compare(0, &[(u64::MAX, [0; 32]), (8, [0; 32])]), [false, false]);
}
