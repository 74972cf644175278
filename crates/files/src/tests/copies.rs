//! Whole copies, from a source to a sink on the same host.

use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;
use crate::filter::Filter;

fn file_sizes() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0u64..5_000,
        1 => CHUNK - 1..CHUNK + 2,
        1 => 1_000_000u64..3_000_000,
        1 => prop::sample::select(vec![LARGE - 1, LARGE, LARGE + 1]),
    ]
}

fn names() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_map(|b| if b == b'/' || b == 0 || b == b'.' { b'_' } else { b });
    prop::collection::vec(byte, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_tree_arrives_exactly(
        files in prop::collection::vec(
            (prop::collection::vec(0usize..3, 0..3), names(), file_sizes()), 0..10),
        prefixed in any::<bool>(),
    ) {
        let ends = ends();
        for (number, (folders, name, size)) in files.iter().enumerate() {
            let mut path = ends.from.clone();
            path.extend(folders.iter().map(|f| format!("folder {f}")));
            path.push(bytes_path(name));
            if !path.exists() {
                write(&path, &content(*size, number as u64));
            }
        }
        std::fs::create_dir(ends.from.join("empty folder")).unwrap();
        symlink("no/where", ends.from.join("a link")).unwrap();
        let mut source = source(&[&slash(&ends.from)]);
        let (encoded, mut prefix) = (source.manifest().encode(), 0);
        if prefixed {
            prefix = encoded.len() as u64;
            source.prefix_manifest(encoded.into());
        }
        let manifest = source.manifest().clone();
        let options = SinkOptions { preserve: true, ..Default::default() };
        let to = ambient(&ends.to);
        let (sink, plan) =
            Sink::open(&to, &manifest, prefix, &options, &Watch::default()).unwrap();
        prop_assert!(plan.compare.is_empty() && plan.skipped.is_empty());
        prop_assert_eq!(plan.bytes_due, manifest.bytes());
        let outcome = Copy { source, sink, plan, sent: 0 }.run().unwrap();
        prop_assert_eq!(tree(&ends.from), tree(&ends.to));
        prop_assert_eq!(outcome.files, manifest.files());
        prop_assert_eq!(outcome.bytes, manifest.bytes());
        prop_assert!(outcome.failures.is_empty() && outcome.digest.is_some());
    }
}

#[test]
fn a_file_s_digest_is_what_b3sum_prints() {
    for size in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE + 5] {
        let ends = ends();
        let from = ends.from.join("file");
        write(&from, &content(size, 1));
        let outcome = copy(&[&from], &ends.to);
        let expected = *blake3::hash(&content(size, 1)).as_bytes();
        assert_eq!(outcome.digest, Some(expected), "{size} bytes");
        assert_eq!(tree(&ends.from), tree(&ends.to));
    }
}

#[test]
fn a_tree_s_digest_depends_on_content_and_not_on_the_order_in_which_chunks_arrive() {
    let digest = |order: &dyn Fn(Vec<u64>) -> Vec<u64>, seed: u64| {
        let ends = ends();
        write(ends.from.join("a"), &content(CHUNK * 2 + 5, seed));
        write(ends.from.join("b"), &content(LARGE + 5, 2));
        write(ends.from.join("c"), &content(CHUNK + 7, 3));
        write(ends.from.join("d"), &content(LARGE + 9, 4));
        let from = source(&[&slash(&ends.from)]);
        let mut copy = Copy::open(from, &ambient(&ends.to), &SinkOptions::default()).unwrap();
        for chunk in order(copy.missing()) {
            copy.step(chunk).unwrap();
        }
        copy.sink.finish().unwrap().digest.unwrap()
    };
    let forth = digest(&|chunks| chunks, 1);
    assert_eq!(forth, digest(&|chunks| chunks.into_iter().rev().collect(), 1));
    assert_ne!(forth, digest(&|chunks| chunks, 9));
}

#[test]
fn a_folder_goes_into_an_existing_folder_or_takes_the_new_name() {
    let ends = ends();
    write(ends.from.join("x/y"), b"y");
    let x = ends.from.join("x");
    copy(&[&x], &ends.to);
    assert_eq!(std::fs::read(ends.to.join("x/y")).unwrap(), b"y");
    copy(&[&x], &ends.to.join("new"));
    assert_eq!(std::fs::read(ends.to.join("new/y")).unwrap(), b"y");
    copy(&[&slash(&x)], &ends.to.join("contents"));
    assert_eq!(std::fs::read(ends.to.join("contents/y")).unwrap(), b"y");
    copy(&[&slash(&x)], &ends.to);
    assert_eq!(std::fs::read(ends.to.join("y")).unwrap(), b"y");
    copy(&[&x.join("y")], &ends.to.join("z"));
    assert_eq!(std::fs::read(ends.to.join("z")).unwrap(), b"y");
    assert!(remains(&ends.to).is_empty());
}

#[test]
fn several_sources_go_into_one_folder() {
    let ends = ends();
    write(ends.from.join("a/one"), b"1");
    write(ends.from.join("b/two"), &content(LARGE, 2));
    write(ends.from.join("three"), b"3");
    let paths = [ends.from.join("a"), slash(&ends.from.join("b")), ends.from.join("three")];
    copy(&paths.iter().map(PathBuf::as_path).collect::<Vec<_>>(), &ends.to);
    let there: Vec<PathBuf> = tree(&ends.to).into_keys().collect();
    assert_eq!(there, ["a", "a/one", "three", "two"].map(PathBuf::from));
    let places = [ambient(ends.from.join("three")), ambient(ends.from.join("a/../three"))];
    let error = Source::open(&places, &SourceOptions::default()).unwrap_err();
    assert!(error.what.contains("two sources have three"), "{error}");
}

#[test]
fn sources_that_cannot_be_opened_fail_and_the_others_are_copied() {
    let ends = ends();
    write(ends.from.join("tree/one"), &content(LARGE, 1));
    write(ends.from.join("two"), b"2");
    let places = ["missing", "tree", "two/slash/", "two"].map(|name| ambient(ends.from.join(name)));
    let options = SourceOptions { recursive: true, ..Default::default() };
    let from = Source::open(&places, &options).unwrap();
    let failed: Vec<String> = from.failures().iter().map(Failure::shown).collect();
    assert_eq!(failed, [places[0].shown(), places[2].shown()]);
    assert_eq!(from.failures()[0].reason, "No such file or directory");
    Copy::open(from, &ambient(&ends.to), &SinkOptions::default()).unwrap().run().unwrap();
    let there: Vec<PathBuf> = tree(&ends.to).into_keys().collect();
    assert_eq!(there, ["tree", "tree/one", "two"].map(PathBuf::from));
    let error = Source::open(&[places[0].clone(), places[2].clone()], &options).unwrap_err();
    assert!(error.what.contains("missing: No such file") && error.is_missing, "{error}");
    let error = Source::open(&[places[2].clone(), places[0].clone()], &options).unwrap_err();
    assert!(error.what.contains("slash") && !error.is_missing, "{error}");
}

#[test]
fn existing_equal_files_are_skipped() {
    let ends = ends();
    write(ends.from.join("a"), &content(LARGE + 1, 1));
    write(ends.from.join("b"), b"b");
    write(ends.from.join("c"), b"");
    symlink("b", ends.from.join("l")).unwrap();
    copy(&[&slash(&ends.from)], &ends.to);
    let from = source(&[&slash(&ends.from)]);
    let copy = Copy::open(from, &ambient(&ends.to), &SinkOptions::default()).unwrap();
    assert_eq!(copy.plan.skipped, [0, 1, 2, 3]);
    assert_eq!(copy.plan.have, vec![0..copy.sink.object().chunks()]);
    assert_eq!(copy.plan.resumed_bytes, LARGE + 2);
    let outcome = copy.run().unwrap();
    assert_eq!((outcome.files, outcome.skipped, outcome.bytes), (0, 3, 0));
}

#[test]
fn checksum_sends_only_the_chunks_that_differ() {
    let ends = ends();
    let mut big = content(LARGE + 5, 1);
    write(ends.from.join("big"), &big);
    write(ends.from.join("small"), &content(3 * CHUNK, 2));
    write(ends.from.join("same"), b"same");
    copy(&[&slash(&ends.from)], &ends.to);
    // Same size and time, but different content: only a comparison of content detects the change.
    big[3 * CHUNK as usize] ^= 1;
    write(ends.to.join("big"), &big);
    write(ends.to.join("small"), &content(3 * CHUNK, 3));
    let options = SinkOptions { checksum: true, ..Default::default() };
    assert_eq!(copy(&[&slash(&ends.from)], &ends.to).bytes, 0);
    let from = source(&[&slash(&ends.from)]);
    let mut copy = Copy::open(from, &ambient(&ends.to), &options).unwrap();
    copy.compare();
    let (big, small) = (copy.sink.object().chunks_of(0), copy.sink.object().chunks_of(2));
    let mut expected = vec![big.start + 3];
    expected.extend(small);
    assert_eq!(copy.missing(), expected);
    let outcome = copy.run().unwrap();
    assert_eq!((outcome.files, outcome.skipped), (2, 1));
    assert_eq!(tree(&ends.from), tree(&ends.to));
    assert!(remains(&ends.to).is_empty());
}

#[test]
fn a_file_that_changes_during_the_comparison_counts_as_different() {
    for (len, dry_run) in [(3 * CHUNK, false), (LARGE, false), (3 * CHUNK, true)] {
        let ends = ends();
        write(ends.from.join("file"), &content(len, 1));
        write(ends.to.join("file"), &content(len, 1));
        let options = SinkOptions { checksum: true, dry_run, ..Default::default() };
        let from = source(&[&slash(&ends.from)]);
        let mut copy = Copy::open(from, &ambient(&ends.to), &options).unwrap();
        // The new content has the old size and time.
        write(ends.to.join("file"), &content(len, 2));
        copy.compare();
        if dry_run {
            assert_eq!(copy.sink.finish().unwrap().unfinished, 1);
            continue;
        }
        assert_eq!(copy.run().unwrap().files, 1, "{len}");
        assert_eq!(tree(&ends.from), tree(&ends.to), "{len}");
    }
}

#[test]
fn with_conceal_a_copy_compares_no_chunk_and_is_complete() {
    let ends = ends();
    write(ends.from.join("file"), &content(2 * LARGE, 1));
    write(ends.to.join(".file.lh-part"), &content(2 * LARGE, 1));
    // With `conceal` the copy does not ask the source about chunks of a partial file, because the
    // question would contain their digests.
    for (conceal, asked) in [(false, 1), (true, 0)] {
        let options = SinkOptions { conceal, ..Default::default() };
        let from = source(&[&slash(&ends.from)]);
        let copy = Copy::open(from, &ambient(&ends.to), &options).unwrap();
        assert_eq!(copy.plan.compare.len(), asked);
        if conceal {
            assert_eq!(copy.missing().len(), 16);
            assert_eq!(copy.run().unwrap().files, 1);
        }
    }
    assert_eq!(tree(&ends.from), tree(&ends.to));
}

#[test]
fn sparse_files_stay_sparse() {
    let ends = ends();
    let from = ends.from.join("sparse");
    write(&from, b"");
    let file = std::fs::File::options().write(true).open(&from).unwrap();
    file.set_len(64 * CHUNK + 3).unwrap();
    file.write_all_at(b"start", 0).unwrap();
    file.write_all_at(b"middle", 40 * CHUNK + 5000).unwrap();
    drop(file);
    write(ends.from.join("hole"), b"");
    std::fs::File::options()
        .write(true)
        .open(ends.from.join("hole"))
        .unwrap()
        .set_len(LARGE)
        .unwrap();
    let from_tree = source(&[&slash(&ends.from)]);
    assert_eq!(from_tree.manifest().entries()[1].holes(), [1..40, 41..65]);
    let copy = Copy::open(from_tree, &ambient(&ends.to), &SinkOptions::default()).unwrap();
    assert_eq!(copy.plan.bytes_due, 2 * CHUNK);
    let outcome = copy.run().unwrap();
    assert_eq!(outcome.bytes, 2 * CHUNK);
    assert_eq!(tree(&ends.from), tree(&ends.to));
    let blocks = std::fs::metadata(ends.to.join("sparse")).unwrap().blocks();
    assert!(blocks * 512 < CHUNK, "{blocks} blocks");
    // The digest of a file that is copied alone includes its holes.
    let outcome = super::copy(&[&from], &ends.to.join("alone"));
    let expected = blake3::hash(&std::fs::read(&from).unwrap());
    assert_eq!(outcome.digest, Some(*expected.as_bytes()));
}

fn write_sparse(path: &Path, size: u64, chunks: &[u64]) {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(size).unwrap();
    for chunk in chunks {
        file.write_all_at(&content(100, *chunk), chunk * CHUNK).unwrap();
    }
}

#[test]
fn a_file_with_holes_has_the_digest_that_b3sum_prints_at_every_size() {
    for (size, chunks) in [
        (CHUNK + 1, &[0][..]),
        (2 * CHUNK - 1, &[1]),
        (5 * CHUNK + 7, &[2]),
        (8 * CHUNK, &[]),
        (9 * CHUNK - 3, &[0, 8]),
        (33 * CHUNK + 1, &[1, 31]),
    ] {
        let ends = ends();
        let from = ends.from.join("file");
        write_sparse(&from, size, chunks);
        let manifest = source(&[&from]).manifest().clone();
        assert!(!manifest.entries()[0].holes().is_empty(), "{size} bytes");
        let outcome = copy(&[&from], &ends.to);
        let expected = blake3::hash(&std::fs::read(&from).unwrap());
        assert_eq!(outcome.digest, Some(*expected.as_bytes()), "{size} bytes");
    }
}

/// Copies a sparse file with one chunk of content, and calls `before_last` before writing this
/// chunk. Returns the outcome, and the number of steps that the destination took afterwards.
fn copy_sparse(chunks: u64, before_last: impl Fn(&Watch)) -> (SinkOutcome, u64) {
    let ends = ends();
    let from = ends.from.join("file");
    write_sparse(&from, chunks * CHUNK, &[3]);
    let source = source(&[&from]);
    let (manifest, watch) = (source.manifest().clone(), Watch::default());
    let to = ambient(&ends.to);
    let (sink, plan) = Sink::open(&to, &manifest, 0, &SinkOptions::default(), &watch).unwrap();
    let mut copy = Copy { source, sink, plan, sent: 0 };
    assert_eq!(copy.missing(), [3]);
    before_last(&watch);
    let before = watch.looked();
    copy.step(3).unwrap();
    let made = std::fs::File::open(ends.to.join("file")).unwrap();
    let mut there = vec![0; 100];
    made.read_exact_at(&mut there, 3 * CHUNK).unwrap();
    assert_eq!((there, made.metadata().unwrap().len()), (content(100, 3), chunks * CHUNK));
    let steps = watch.looked() - before;
    (copy.sink.finish_without_reply().map(|(outcome, _)| outcome).unwrap_or_default(), steps)
}

#[test]
fn a_sparse_file_of_a_tebibyte_is_complete_without_hashing_its_holes() {
    let (outcome, steps) = copy_sparse(1 << 20, |_| {});
    assert_eq!((outcome.files, outcome.digest), (1, None));
    assert!(steps < 10, "{steps} chunks were hashed");
}

#[test]
fn holes_are_hashed_unless_the_copy_is_cancelled_and_the_file_is_complete_either_way() {
    let (outcome, steps) = copy_sparse(1000, |_| {});
    assert!(outcome.digest.is_some() && steps >= 999, "{steps}: {outcome:?}");
    let (outcome, steps) = copy_sparse(1000, Watch::end);
    assert!(outcome.digest.is_none() && steps < 10, "{steps}: {outcome:?}");
}

#[test]
fn filters_exclude_and_include_files() {
    let ends = ends();
    for name in ["a.tmp", "keep.tmp", "b", "cache/x", "d/cache/y", "d/z"] {
        write(ends.from.join(name), b"x");
    }
    let exclude = |pattern: &str| Filter::Exclude(pattern.to_owned());
    let filters = vec![Filter::Include("keep.tmp".to_owned()), exclude("*.tmp"), exclude("cache/")];
    let options = SourceOptions { recursive: true, filters, ..Default::default() };
    let source = Source::open(&[ambient(slash(&ends.from))], &options).unwrap();
    let manifest = source.manifest();
    let all = 0..manifest.entries().len() as u32;
    let paths: Vec<String> = all.map(|number| manifest.shown(number)).collect();
    assert_eq!(paths, ["b", "d", "d/z", "keep.tmp"]);
}

#[test]
fn size_limits_exclude_files_but_no_folders() {
    let ends = ends();
    for (name, size) in [("d/a", 1), ("d/b", 2), ("d/c", 3), ("d/d", 4)] {
        write(ends.from.join(name), &content(size, 1));
    }
    let filters = vec![Filter::MinSize(2), Filter::MaxSize(3)];
    let options = SourceOptions { recursive: true, filters, ..Default::default() };
    let source = Source::open(&[ambient(slash(&ends.from))], &options).unwrap();
    let manifest = source.manifest();
    let all = 0..manifest.entries().len() as u32;
    let paths: Vec<String> = all.map(|number| manifest.shown(number)).collect();
    assert_eq!(paths, ["d", "d/b", "d/c"]);
}

#[test]
fn a_folder_given_without_a_trailing_slash_arrives_under_its_own_name() {
    let ends = ends();
    write(ends.from.join("a/b/c"), b"c");
    copy(&[&ends.from], &ends.to);
    assert_eq!(tree(&ends.to.join("from")), tree(&ends.from));
}

#[test]
fn preserve_keeps_permissions_and_times_but_only_set_id_keeps_the_set_id_bits() {
    let ends = ends();
    let mode = |path: PathBuf| std::fs::symlink_metadata(path).unwrap().mode() & 0o7777;
    write(ends.from.join("d/f"), b"f");
    write(ends.from.join("big"), &content(LARGE, 1));
    let set = |path: &str, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(ends.from.join(path), permissions).unwrap();
    };
    set("d/f", 0o6751);
    set("big", 0o640);
    set("d", 0o750);
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(77);
    std::fs::File::open(ends.from.join("d")).unwrap().set_modified(then).unwrap();
    let options = SinkOptions { preserve: true, ..Default::default() };
    copy_with(&[&slash(&ends.from)], &ends.to, &options).unwrap();
    assert_eq!(mode(ends.to.join("d/f")), 0o751);
    assert_eq!((mode(ends.to.join("d")), mode(ends.to.join("big"))), (0o750, 0o640));
    assert_eq!(ends.to.join("d").metadata().unwrap().mtime(), 77);
    let options = SinkOptions { preserve: true, set_id: true, ..Default::default() };
    copy_with(&[&slash(&ends.from)], &ends.to, &options).unwrap();
    assert_eq!(mode(ends.to.join("d/f")), 0o6751);
    copy(&[&slash(&ends.from)], &ends.to.join("plain"));
    let plain = mode(ends.to.join("plain/d/f"));
    assert_eq!(plain & 0o7100, 0o100, "{plain:o}");
    assert_ne!(ends.to.join("plain/d").metadata().unwrap().mtime(), 77);
}

#[test]
fn a_dry_run_touches_nothing() {
    let ends = ends();
    write(ends.from.join("d/f"), b"f");
    write(ends.from.join("big"), &content(LARGE, 1));
    let options = SinkOptions { dry_run: true, ..Default::default() };
    for to in [ends.to.clone(), ends.to.join("new")] {
        let from = source(&[&slash(&ends.from)]);
        let copy = Copy::open(from, &ambient(&to), &options).unwrap();
        assert_eq!(copy.plan.bytes_due, LARGE + 1);
        assert_eq!(copy.sink.finish().unwrap().failures, []);
    }
    assert!(tree(&ends.to).is_empty());
}

#[test]
fn a_recursive_copy_keeps_a_link_given_as_a_source_and_a_plain_copy_follows_it() {
    let ends = ends();
    write(ends.from.join("file"), b"f");
    let link = ends.from.join("link");
    symlink("file", &link).unwrap();
    copy(&[&link], &ends.to);
    assert_eq!(ends.to.join("link").read_link().unwrap(), Path::new("file"));
    let followed = Source::open(&[ambient(&link)], &SourceOptions::default()).unwrap();
    assert_eq!(followed.manifest().shape(), Shape::File);
    assert_eq!(followed.manifest().entries()[0].size(), Some(1));
    // The copy has the name of the link and the content of its target.
    let copied = ends.from.join("copied");
    std::fs::create_dir(&copied).unwrap();
    Copy::open(followed, &ambient(&copied), &SinkOptions::default()).unwrap().run().unwrap();
    assert_eq!(std::fs::read(copied.join("link")).unwrap(), b"f");
    assert!(!copied.join("link").is_symlink() && !copied.join("file").exists());
}

#[test]
fn a_new_folder_gets_the_source_s_mode_and_an_existing_folder_only_with_preserve() {
    let withheld = ambient("/").folder().unwrap().withheld();
    for (is_there, preserve, mode) in
        [(false, false, 0o755 & !withheld), (true, false, 0o711), (true, true, 0o755)]
    {
        let ends = ends();
        for (folder, mode) in [(&ends.from, 0o755), (&ends.to, 0o711)] {
            write(folder.join("d/f"), b"f");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.join("d"), mode).unwrap();
        }
        if !is_there {
            std::fs::remove_dir_all(ends.to.join("d")).unwrap();
        }
        let options = SinkOptions { preserve, ..Default::default() };
        copy_with(&[&slash(&ends.from)], &ends.to, &options).unwrap();
        assert_eq!(ends.to.join("d").metadata().unwrap().mode() & 0o777, mode, "{preserve}");
    }
}

#[test]
fn a_folder_made_for_a_source_s_contents_gets_the_source_s_mode_less_the_umask() {
    let ends = ends();
    write(ends.from.join("d/e/f"), b"f");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    std::fs::set_permissions(&ends.from, std::fs::Permissions::from_mode(0o510)).unwrap();
    assert_eq!(source(&[&slash(&ends.from)]).manifest().folder_mode(), Some(0o510));
    assert_eq!(source(&[&ends.from]).manifest().folder_mode(), None);
    let made = copy(&[&slash(&ends.from)], &ends.to.join("new"));
    assert_eq!((made.files, made.folders, made.bytes), (1, 2, 1));
    // The owner can always write, even if the source or the umask forbids it.
    assert_eq!(mode(&ends.to.join("new")) & 0o705, 0o700);
}

#[test]
fn reading_a_part_of_a_chunk_gives_the_same_bytes_as_reading_the_whole_chunk() {
    let ends = ends();
    write(ends.from.join("big"), &content(LARGE + 1234, 1));
    for number in 0..3 {
        write(ends.from.join(format!("small{number}")), &content(1000 + number, number));
    }
    let mut source = source(&[&slash(&ends.from)]);
    let last = source.object().chunks();
    for chunk in 0..last {
        let mut whole = vec![0; CHUNK as usize];
        let len = source.read_chunk(chunk, &mut whole).unwrap().len;
        whole[len..].fill(0);
        for (start, count) in [(0, 10), (900, 1500), (len.saturating_sub(5), 50), (len, 3)] {
            let count = count.min(whole.len() - start);
            let mut part = vec![0xEE; count];
            source.read_within(chunk, start, &mut part).unwrap();
            assert!(part == whole[start..start + count], "chunk {chunk} from {start}");
        }
    }
    assert_eq!(source.read_within(last, 0, &mut [0]).unwrap_err().kind, FileErrorKind::Request);
    // Files outside the range are not opened.
    for number in [0, 2] {
        std::fs::remove_file(ends.from.join(format!("small{number}"))).unwrap();
    }
    source.read_within(last - 1, 1000, &mut [0; 1001]).unwrap();
    assert!(source.failures().is_empty(), "{:?}", source.failures());
}
