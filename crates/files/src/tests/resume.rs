//! Copies that are interrupted at any moment and run again. A journal lists the written chunks of a
//! partial file.

use proptest::prelude::*;

use super::*;

fn kill(copy: Copy) {
    copy.sink.kill();
}

fn open(ends: &Ends, what: &Path) -> Copy {
    Copy::open(source(&[what]), &ambient(&ends.to), &SinkOptions::default()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn a_kill_at_any_chunk_costs_no_written_chunk_of_a_large_file(
        cuts in prop::collection::vec(0usize..32, 1..4),
        reverse in any::<bool>(),
        clean in any::<bool>(),
        sync_after in 0usize..32,
    ) {
        let ends = ends();
        write(ends.from.join("a"), &content(LARGE + 1, 1));
        write(ends.from.join("b/c"), &content(3 * CHUNK, 2));
        write(ends.from.join("b/d"), &content(LARGE, 3));
        write(ends.from.join("e"), b"e");
        let mut large_sent = 0;
        for cut in cuts {
            let mut copy = open(&ends, &slash(&ends.from));
            copy.compare();
            let mut chunks = copy.missing();
            if reverse {
                chunks.reverse();
            }
            chunks.truncate(cut);
            for (number, chunk) in chunks.into_iter().enumerate() {
                if number == sync_after {
                    copy.sink.tick(std::time::Instant::now() + Duration::from_secs(2)).unwrap();
                }
                if matches!(copy.sink.object().chunk_kind(chunk), Some(ChunkKind::Large { .. })) {
                    large_sent += copy.sink.object().chunk_content(chunk) as u64;
                }
                copy.step(chunk).unwrap();
            }
            if clean { drop(copy) } else { kill(copy) }
        }
        let mut copy = open(&ends, &slash(&ends.from));
        copy.compare();
        for chunk in copy.missing() {
            if matches!(copy.sink.object().chunk_kind(chunk), Some(ChunkKind::Large { .. })) {
                large_sent += copy.sink.object().chunk_content(chunk) as u64;
            }
        }
        prop_assert_eq!(large_sent, 2 * LARGE + 1, "no byte of a large file is sent twice");
        copy.run().unwrap();
        prop_assert_eq!(tree(&ends.from), tree(&ends.to));
    }
}

/// Sends the first half of a large file, with or without a journal, then kills the copy.
fn half(ends: &Ends, journalled: bool) -> PathBuf {
    let from = ends.from.join("file");
    write(&from, &content(LARGE * 2, 1));
    let mut copy = open(ends, &from);
    for chunk in 0..8 {
        copy.step(chunk).unwrap();
    }
    if journalled {
        copy.sink.tick(std::time::Instant::now() + Duration::from_secs(2)).unwrap();
    }
    kill(copy);
    assert_eq!(ends.to.join(".file.lh-journal").exists(), journalled);
    assert!(!ends.to.join("file").exists());
    from
}

#[test]
fn the_next_copy_of_a_file_removes_the_journal_that_a_kill_after_the_rename_left() {
    for checksum in [false, true] {
        let ends = ends();
        let from = half(&ends, true);
        let journal = ends.to.join(".file.lh-journal");
        let left = std::fs::read(&journal).unwrap();
        open(&ends, &from).run().unwrap();
        std::fs::write(&journal, left).unwrap();
        let options = SinkOptions { checksum, ..Default::default() };
        copy_with(&[&from], &ends.to, &options).unwrap();
        assert!(remains(&ends.to).is_empty(), "{checksum}");
    }
}

#[test]
fn chunks_that_the_journal_lists_need_no_comparison() {
    let ends = ends();
    let from = half(&ends, true);
    let copy = open(&ends, &from);
    assert_eq!((copy.plan.have.as_slice(), copy.plan.compare.len()), (&[0..8][..], 0));
    assert_eq!(copy.plan.resumed_bytes, LARGE);
    assert_eq!(copy.plan.bytes_due, LARGE);
    let outcome = copy.run().unwrap();
    assert_eq!(outcome.bytes, LARGE);
    assert_eq!(outcome.digest, Some(*blake3::hash(&content(LARGE * 2, 1)).as_bytes()));
    assert_eq!(tree(&ends.from), tree(&ends.to));
}

#[test]
fn a_lost_torn_or_damaged_journal_is_rebuilt_from_existing_data() {
    let damage: [&dyn Fn(&Path); 5] = [
        &|journal| std::fs::remove_file(journal).unwrap(),
        &|journal| std::fs::write(journal, b"rubbish").unwrap(),
        &|journal| {
            let file = std::fs::File::options().write(true).open(journal).unwrap();
            file.set_len(file.metadata().unwrap().len() - 50).unwrap();
        },
        &|journal| {
            let mut bytes = std::fs::read(journal).unwrap();
            bytes[100] ^= 1;
            std::fs::write(journal, bytes).unwrap();
        },
        &|journal| {
            std::fs::remove_file(journal).unwrap();
            std::os::unix::fs::symlink("/etc/passwd", journal).unwrap();
        },
    ];
    for (number, damage) in damage.into_iter().enumerate() {
        let ends = ends();
        let from = half(&ends, true);
        damage(&ends.to.join(".file.lh-journal"));
        let mut copy = open(&ends, &from);
        assert!(!copy.plan.compare.is_empty(), "case {number}");
        copy.compare();
        assert_eq!(copy.missing(), (8..16).collect::<Vec<_>>(), "case {number}");
        // The journal is valid again: another kill loses no written chunk.
        copy.step(8).unwrap();
        copy.sink.tick(std::time::Instant::now() + Duration::from_secs(2)).unwrap();
        kill(copy);
        let copy = open(&ends, &from);
        assert_eq!(copy.plan.have, [0..9], "case {number}");
        copy.run().unwrap();
        assert_eq!(tree(&ends.from), tree(&ends.to));
    }
}

#[test]
fn a_damaged_chunk_of_a_partial_file_is_detected_without_a_journal() {
    let ends = ends();
    let from = half(&ends, false);
    let partial = ends.to.join(".file.lh-part");
    let file = std::fs::File::options().write(true).open(&partial).unwrap();
    file.write_all_at(b"rot", 2 * CHUNK).unwrap();
    drop(file);
    let mut copy = open(&ends, &from);
    copy.compare();
    assert_eq!(copy.missing()[0], 2);
    assert_eq!(copy.missing().len(), 9);
    copy.run().unwrap();
    assert_eq!(tree(&ends.from), tree(&ends.to));
}

#[test]
fn only_the_changed_parts_of_a_source_are_sent_again() {
    let old = content(LARGE * 2, 1);
    let mut touched = old.clone();
    touched[2 * CHUNK as usize] ^= 1;
    let grown = [old.clone(), content(CHUNK + 5, 2)].concat();
    let shrunk = old[..(5 * CHUNK - 3) as usize].to_vec();
    let tiny = old[..1000].to_vec();
    let all = |from: u64, to: u64| (from..to).collect::<Vec<_>>();
    let cases = [
        ("touched", touched, [vec![2], all(8, 16)].concat()),
        ("grown", grown, all(8, 18)),
        ("shrunk", shrunk, vec![4]),
        ("tiny", tiny, vec![0]),
        ("same content, other time", old, all(8, 16)),
    ];
    for (name, new, expected) in cases {
        for journalled in [true, false] {
            let ends = ends();
            let from = half(&ends, journalled);
            write(&from, &new);
            let file = std::fs::File::options().write(true).open(&from).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(5)).unwrap();
            let mut copy = open(&ends, &from);
            assert!(copy.plan.have.is_empty(), "{name}");
            copy.compare();
            // The partial file may already have the right bytes of a chunk in `expected`.
            let missing = copy.missing();
            assert!(missing.iter().all(|chunk| expected.contains(chunk)), "{name}: {missing:?}");
            let outcome = copy.run().unwrap();
            assert_eq!(outcome.digest, Some(*blake3::hash(&new).as_bytes()), "{name}");
            assert_eq!(tree(&ends.from), tree(&ends.to), "{name}");
        }
    }
}

#[test]
fn a_chunk_that_a_killed_copy_of_a_newer_version_overwrote_is_sent_again() {
    let ends = ends();
    let from = half(&ends, true);
    let mut new = content(LARGE * 2, 1);
    new[0] ^= 1;
    write(&from, &new);
    let touch = |seconds| {
        let file = std::fs::File::options().write(true).open(&from).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::new(seconds, 123_456_789)).unwrap();
    };
    touch(5);
    let mut copy = open(&ends, &from);
    copy.step(0).unwrap();
    kill(copy);
    // Restore the first version of the source, including its time.
    write(&from, &content(LARGE * 2, 1));
    let mut copy = open(&ends, &from);
    copy.compare();
    assert!(copy.missing().contains(&0));
    copy.run().unwrap();
    assert_eq!(tree(&ends.from), tree(&ends.to));
}

#[test]
fn a_repeated_copy_uses_the_folder_that_the_killed_copy_created() {
    let ends = ends();
    write(ends.from.join("x/big"), &content(LARGE, 1));
    write(ends.from.join("x/small"), b"s");
    let (x, to) = (ends.from.join("x"), ends.to.join("new"));
    let start = || Copy::open(source(&[&x]), &ambient(&to), &SinkOptions::default()).unwrap();
    let mut copy = start();
    copy.step(0).unwrap();
    kill(copy);
    start().run().unwrap();
    assert_eq!(tree(&ends.from.join("x")), tree(&to));
    assert!(remains(&ends.to).is_empty());
    // The copy is finished. The same copy now goes into the folder, as with cp.
    start().run().unwrap();
    assert!(to.join("x/big").exists());
}

#[test]
fn a_resumed_copy_of_a_sparse_file_clears_old_data_where_the_source_has_new_holes() {
    let ends = ends();
    let from = half(&ends, true);
    let file = std::fs::File::create(&from).unwrap();
    file.set_len(LARGE * 2).unwrap();
    file.write_all_at(&content(CHUNK, 9), CHUNK).unwrap();
    file.write_all_at(b"x", 6 * CHUNK).unwrap();
    drop(file);
    let copy = open(&ends, &from);
    copy.run().unwrap();
    assert_eq!(tree(&ends.from), tree(&ends.to));
}

#[test]
fn small_files_that_already_have_their_final_names_are_not_sent_again() {
    let ends = ends();
    for number in 0..40 {
        write(ends.from.join(format!("{number:02}")), &content(100_000, number));
    }
    let mut copy = open(&ends, &slash(&ends.from));
    copy.step(0).unwrap();
    copy.step(1).unwrap();
    copy.sink.tick(std::time::Instant::now() + Duration::from_secs(2)).unwrap();
    assert_eq!(copy.sink.files_done(), 20);
    kill(copy);
    let copy = open(&ends, &slash(&ends.from));
    assert_eq!(copy.plan.skipped.len(), 20);
    assert_eq!(copy.plan.have, [0..1]);
    copy.run().unwrap();
    assert_eq!(tree(&ends.from), tree(&ends.to));
}

#[test]
fn a_repeat_of_a_copy_whose_client_missed_the_end_goes_to_the_same_place() {
    let ends = ends();
    write(ends.from.join("x/y"), b"y");
    let (x, new) = (ends.from.join("x"), ends.to.join("new"));
    let again = || Copy::open(source(&[&x]), &ambient(&new), &SinkOptions::default()).unwrap();
    let finish = |mut copy: Copy| {
        for chunk in copy.sink.missing().into_iter().flatten() {
            copy.step(chunk).unwrap();
        }
        copy.sink.finish_without_reply().unwrap()
    };
    let (outcome, unheard) = finish(again());
    assert_eq!((outcome.files, unheard.is_some()), (1, true));
    drop(unheard);
    let (outcome, heard) = finish(again());
    assert_eq!((outcome.files, outcome.skipped), (0, 1));
    assert!(!new.join("x").exists());
    heard.unwrap().remove().unwrap();
    assert!(remains(&ends.to).is_empty());
    // From now on the folder counts as an existing folder.
    let (_, mark) = finish(again());
    assert!(mark.is_none() && new.join("x/y").exists());
}

#[test]
fn a_copy_whose_source_could_not_be_read_goes_to_the_same_place_when_repeated() {
    let ends = ends();
    write(ends.from.join("x/y"), b"y");
    let (x, new) = (ends.from.join("x"), ends.to.join("new"));
    let start = || Copy::open(source(&[&x]), &ambient(&new), &SinkOptions::default()).unwrap();
    let mut copy = start();
    copy.sink.source_is_incomplete();
    assert_eq!(copy.run().unwrap().files, 1);
    start().run().unwrap();
    assert_eq!(tree(&x), tree(&new));
    assert!(remains(&ends.to).is_empty());
}

#[test]
fn an_early_end_reports_the_number_of_unfinished_files() {
    let ends = ends();
    write(ends.from.join("big"), &content(LARGE, 1));
    write(ends.from.join("z"), b"z");
    let mut copy = open(&ends, &slash(&ends.from));
    copy.step(0).unwrap();
    let outcome = copy.sink.finish().unwrap();
    assert_eq!((outcome.files, outcome.unfinished, outcome.digest), (0, 2, None));
    assert_eq!(open(&ends, &slash(&ends.from)).plan.have, [0..1]);
}

#[test]
fn a_corrupt_chunk_is_sent_again_although_the_journal_lists_it() {
    let ends = ends();
    let from = half(&ends, true);
    let partial = ends.to.join(".file.lh-part");
    let then = std::fs::metadata(&partial).unwrap().modified().unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&partial).unwrap();
    let at = 3 * CHUNK + 17;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    // A disk that flips a bit does not change the time.
    file.set_modified(then).unwrap();
    let mut copy = open(&ends, &from);
    copy.compare();
    let missing = copy.missing();
    assert!(missing.contains(&3) && !missing.contains(&2) && !missing.contains(&4));
    copy.run().unwrap();
    assert!(std::fs::read(ends.to.join("file")).unwrap() == std::fs::read(&from).unwrap());
}

#[test]
fn the_written_chunks_of_a_dropped_copy_need_no_comparison() {
    let ends = ends();
    let from = ends.from.join("file");
    write(&from, &content(LARGE * 2, 1));
    let mut copy = open(&ends, &from);
    (0..8).for_each(|chunk| copy.step(chunk).unwrap());
    drop(copy);
    let copy = open(&ends, &from);
    assert!(copy.missing().iter().all(|chunk| *chunk >= 8));
    copy.run().unwrap();
}

fn missing_with(ends: &Ends, from: &Path, options: &SinkOptions) -> Vec<u64> {
    let mut copy = Copy::open(source(&[from]), &ambient(&ends.to), options).unwrap();
    copy.compare();
    let missing = copy.missing();
    copy.run().unwrap();
    missing
}

#[test]
fn with_the_option_distrust_journalled_chunks_are_compared_with_the_source() {
    let ends = ends();
    let from = half(&ends, true);
    let then = std::fs::metadata(&from).unwrap().modified().unwrap();
    let mut new = content(LARGE * 2, 1);
    new[2 * CHUNK as usize] ^= 1;
    write(&from, &new);
    std::fs::File::options().write(true).open(&from).unwrap().set_modified(then).unwrap();
    let options = SinkOptions { distrust: true, ..SinkOptions::default() };
    let expected = std::iter::once(2).chain(8..16).collect::<Vec<_>>();
    assert_eq!(missing_with(&ends, &from, &options), expected);
    assert!(std::fs::read(ends.to.join("file")).unwrap() == new);
}

#[test]
fn corruption_is_found_if_the_journal_is_of_another_version_or_distrusted() {
    for distrust in [false, true] {
        let ends = ends();
        let from = half(&ends, true);
        let partial = ends.to.join(".file.lh-part");
        let file = std::fs::File::options().write(true).open(&partial).unwrap();
        file.write_all_at(b"rot", 3 * CHUNK).unwrap();
        let options = SinkOptions { distrust, ..SinkOptions::default() };
        if !distrust {
            let file = std::fs::File::options().write(true).open(&from).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(5)).unwrap();
        }
        let expected = std::iter::once(3).chain(8..16).collect::<Vec<_>>();
        assert_eq!(missing_with(&ends, &from, &options), expected, "{distrust}");
        assert_eq!(tree(&ends.from), tree(&ends.to), "{distrust}");
    }
}

#[test]
fn a_copy_goes_into_the_folder_that_a_killed_copy_of_another_folder_created() {
    let ends = ends();
    write(ends.from.join("a/f"), b"f");
    write(ends.from.join("b/g"), b"g");
    let new = ends.to.join("new");
    kill(Copy::open(source(&[&ends.from.join("a")]), &ambient(&new), &Default::default()).unwrap());
    copy(&[&ends.from.join("b")], &new);
    assert!(new.join("b/g").exists() && !new.join("g").exists());
}
