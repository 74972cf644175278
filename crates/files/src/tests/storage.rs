//! Whole copies over a disk in memory with seeded faults, kills and power cuts.
//!
//! A run copies one file or a tree repeatedly until the copy is complete. The seed chooses where an
//! attempt ends. After each attempt the run checks that
//! - a file with a final name has the source's content on the device, not only in the cache;
//! - each record of a journal describes content that is on the device;
//! - for large files, the next attempt repeats at most the data that may wait for a sync, and the
//!   data hit by faults.

#![allow(clippy::print_stderr, reason = "a repeated seed prints its events")]

use std::collections::BTreeSet;

use super::*;
use crate::journal::Journal;
use crate::store::buffers::Store;
use crate::store::memory::{Disk, Faults, Rng, Tree};

/// Bytes that may wait for a sync.
const UNSYNCED: u64 = 2 * CHUNK;

/// Chunks of the largest file of a run.
const MOST_CHUNKS: u64 = LARGE.div_ceil(CHUNK) + 1;

/// Number of attempts with faults; later attempts have none, so that each run ends.
const FAULTY: u64 = 12;

/// One run. Its seed decides the files, the faults and the kills.
#[derive(Debug)]
struct Run {
    rng: Rng,
    from: Disk,
    to: Disk,
    files: BTreeMap<Vec<u8>, Vec<u8>>,
    is_single: bool,
    left: Arc<sink::Left>,
    /// Chunks that were written and not requested again since.
    written: BTreeSet<u64>,
    attempts: u64,
    /// The number of repeated chunks of large files, without those that may have waited for a sync.
    excess: u64,
    prints: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Finished,
    Failed,
    Killed,
    PowerCut,
}

fn place(disk: &Disk, path: &str) -> Place {
    Place::Stored { root: Store(disk.root()), path: PathBuf::from(path) }
}

impl Run {
    fn new(seed: u64, prints: bool) -> Run {
        let mut rng = Rng::new(seed);
        let (from, to) = (Disk::new(rng.next()), Disk::new(rng.next()));
        let is_single = rng.below(10) < 7;
        let mut sizes = Vec::new();
        if is_single {
            // About half of these files end within a chunk.
            let short = if rng.coin() { rng.below(CHUNK) } else { 0 };
            sizes.push((1 + rng.below(6)) * CHUNK + short);
        } else {
            if rng.below(4) == 0 {
                sizes.push(LARGE + rng.below(CHUNK));
            }
            for _ in 0..rng.below(14) {
                sizes.push(rng.below(20_000));
            }
            for _ in 0..rng.below(2) {
                sizes.push(rng.below(2 * CHUNK));
            }
            sizes.push(0);
        }
        let mut files = BTreeMap::new();
        for (number, size) in sizes.into_iter().enumerate() {
            let mut content = vec![0; size as usize];
            // One number per page is enough to distinguish pages.
            for page in content.chunks_mut(4096) {
                page.fill(rng.next() as u8 | 1);
                let mark = rng.next().to_le_bytes();
                let len = page.len().min(mark.len());
                page[..len].copy_from_slice(&mark[..len]);
            }
            let name = format!("file{number:02}").into_bytes();
            let file = from.root().create(&name, 0o644).unwrap();
            file.write_all_at(&content, 0).unwrap();
            files.insert(name, content);
        }
        Run {
            rng,
            from,
            to,
            files,
            is_single,
            left: Arc::default(),
            written: BTreeSet::new(),
            attempts: 0,
            excess: 0,
            prints,
        }
    }

    fn finish(mut self) -> u64 {
        loop {
            self.attempts += 1;
            assert!(self.attempts < FAULTY + 5, "the copy never ends");
            let is_faulty = self.attempts <= FAULTY;
            let faults = if is_faulty { self.faults() } else { Faults::default() };
            self.to.set_faults(faults);
            if is_faulty && self.rng.below(3) > 0 {
                let calls = if self.rng.coin() { 60 } else { 400 };
                self.to.kill_after(self.rng.below(calls));
            }
            let result = self.attempt();
            let cuts = self.rng.below(3) == 0;
            let failed = result.as_ref().map(|o| o.failures.len()).map_err(ToString::to_string);
            let end = match result {
                _ if self.to.is_killed() && cuts => End::PowerCut,
                _ if self.to.is_killed() => End::Killed,
                Ok(outcome) if outcome.failures.is_empty() && outcome.unfinished == 0 => {
                    End::Finished
                }
                _ if cuts => End::PowerCut,
                _ => End::Failed,
            };
            if self.prints {
                let faults = self.to.struck();
                eprintln!("attempt {}: {end:?} {failed:?}, faults: {faults:?}", self.attempts);
            }
            self.check();
            match end {
                End::PowerCut => {
                    self.to.power_cut();
                    self.left = Arc::default();
                }
                _ => self.to.restart(),
            }
            if end == End::Finished {
                self.to.power_cut();
                self.check();
                let tree = self.to.tree(true);
                for name in self.files.keys() {
                    let path = self.final_path(name);
                    assert!(tree.contains_key(&path), "{} is gone", show(&path));
                }
                return self.attempts;
            }
            if matches!(end, End::Killed | End::PowerCut) {
                self.left = Arc::default();
            }
            self.check();
        }
    }

    fn faults(&mut self) -> Faults {
        let mut rate = |most| if self.rng.below(3) == 0 { self.rng.below(most) as u32 } else { 0 };
        Faults {
            access: rate(300),
            short: rate(2000),
            room: rate(200),
            sync: rate(4000),
            folder_sync: rate(4000),
            rename: rate(500),
            write_back: rate(500),
            eviction: rate(2000),
        }
    }

    fn final_path(&self, name: &[u8]) -> Vec<u8> {
        match self.is_single {
            true => b"copy".to_vec(),
            false => [b"copy/", name].concat(),
        }
    }

    fn attempt(&mut self) -> Result<SinkOutcome, Error> {
        let path = if self.is_single { "file00" } else { "" };
        let options = SourceOptions { recursive: !self.is_single, ..Default::default() };
        let mut source = Source::open(&[place(&self.from, path)], &options)?;
        let manifest = source.manifest().clone();
        let options = SinkOptions { left: self.left.clone(), ..SinkOptions::default() };
        let to = if self.is_single { "copy" } else { "copy/" };
        let (mut sink, plan) =
            Sink::open(&place(&self.to, to), &manifest, 0, &options, &Watch::default())?;
        sink.sync_every(UNSYNCED);
        for ask in &plan.compare {
            let same = source.compare(ask.entry, &ask.values);
            sink.compare_result(ask.entry, &same)?;
        }
        sink.take_changed();
        self.count_again(&sink, true);
        let mut buf = vec![0; CHUNK as usize];
        let in_order = self.rng.below(4) > 0;
        while !sink.is_complete() {
            let missing: Vec<u64> = sink.missing().into_iter().flatten().collect();
            let at = if in_order { 0 } else { self.rng.below(missing.len() as u64) as usize };
            let chunk = missing[at];
            let read = source.read_chunk(chunk, &mut buf)?;
            let verdict = sink.write_chunk(chunk, &buf[..read.len], &read.value)?;
            assert_eq!(verdict, Verdict::Written);
            if self.to.is_killed() {
                break;
            }
            // Chunks of a failed file are not written.
            let has_failed = |entry| sink.failures().iter().any(|f| f.entry == Some(entry));
            if !matches!(sink.object().chunk_kind(chunk),
                Some(ChunkKind::Large { entry, .. }) if has_failed(entry))
            {
                self.written.insert(chunk);
            }
            if self.rng.below(6) == 0 || sink.is_complete() {
                sink.sync()?;
            }
            // A failed sync may lose the data that waited for it.
            if !sink.take_changed().is_empty() {
                self.count_again(&sink, false);
            }
        }
        sink.finish()
    }

    /// Counts written chunks of large files that must be sent again, and checks that the faults
    /// explain their number.
    fn count_again(&mut self, sink: &Sink, is_resume: bool) {
        // Every read of a killed process fails, so its sink requests chunks that exist.
        if self.to.is_killed() {
            return;
        }
        let again: Vec<u64> = self.written.iter().copied().filter(|c| sink.needs(*c)).collect();
        for chunk in &again {
            self.written.remove(chunk);
        }
        let is_large = |chunk: &&u64| {
            matches!(sink.object().chunk_kind(**chunk), Some(ChunkKind::Large { .. }))
        };
        let again = again.iter().filter(is_large).count() as u64;
        // The next attempt may repeat the data that waited for a sync, and the chunk at which the
        // previous attempt ended. A device may fail to write cached data long before a sync reports
        // it: each failure may cost as many chunks as may wait for a sync. A failed sync of a
        // folder also loses chunks, if the power fails before the next sync. A journal that lost a
        // page proves nothing: all chunks of its file are sent again. A failed read loses one
        // chunk; a failed read of a journal loses all chunks of its file.
        let waited = UNSYNCED / CHUNK + 1;
        let (faults, (lost, lost_journals)) = self.to.struck();
        let (unread, unread_journals) = self.to.unread();
        let most = (lost + u64::from(faults.folder_sync)) * waited
            + (lost_journals + unread_journals) * MOST_CHUNKS
            + unread;
        self.excess += again.saturating_sub(waited);
        if self.prints {
            eprintln!("{again} chunks come again, resume: {is_resume}");
        }
        let excess = self.excess;
        assert!(excess <= most, "{excess} chunks too many came again, {most} are explained");
    }

    fn check(&self) {
        for (names, content) in [(false, false), (false, true), (true, true)] {
            let tree = self.to.tree(names);
            for (name, source) in &self.files {
                let path = self.final_path(name);
                if let Some(number) = tree.get(&path) {
                    let stored = self.to.stored(*number);
                    assert!(stored == *source, "{} is not on the device", show(&path));
                }
                self.check_journal(&tree, &path, content);
            }
        }
    }

    /// Checks that an existing journal describes content that is on the device. The journal's own
    /// content is read from the cache or from the device.
    fn check_journal(&self, tree: &Tree, path: &[u8], of_device: bool) {
        let (folder, name) = manifest::split(path);
        let beside = |ours: Vec<u8>| match folder {
            b"" => ours,
            folder => [folder, b"/", &ours].concat(),
        };
        let journal = tree.get(&beside(names::journal(name)));
        let partial = tree.get(&beside(names::partial(name)));
        let (Some(journal), Some(partial)) = (journal, partial) else { return };
        let bytes = if of_device { self.to.stored(*journal) } else { self.to.cached(*journal) };
        let Some(journal) = Journal::decode(&bytes) else { return };
        let stored = self.to.stored(*partial);
        let size = journal.header.size;
        for (chunk, value) in journal.values {
            let start = (chunk * CHUNK) as usize;
            let end = ((chunk + 1) * CHUNK).min(size) as usize;
            let is_there = stored
                .get(start..end)
                .is_some_and(|content| digest::file_value(size, chunk, content) == value);
            assert!(is_there, "the journal of {} lies about chunk {chunk}", show(path));
        }
    }
}

fn show(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn number_from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

#[test]
#[expect(clippy::print_stderr, reason = "a failed run names its seed")]
fn copies_survive_faults_kills_and_power_cuts() {
    let (runs, first) = (
        number_from_env("LONGHAUL_STORAGE_RUNS", 1000),
        number_from_env("LONGHAUL_STORAGE_SEED", 1),
    );
    let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let attempts = std::thread::scope(|scope| {
        let work = |worker| {
            move || {
                let mut attempts = 0;
                for seed in (first..first + runs).filter(|seed| seed % workers == worker) {
                    let run = std::panic::catch_unwind(|| Run::new(seed, runs == 1).finish());
                    attempts += run.unwrap_or_else(|panic| {
                        eprintln!(
                            "seed {seed} failed; run it alone: LONGHAUL_STORAGE_RUNS=1 \
                             LONGHAUL_STORAGE_SEED={seed} cargo test -p longhaul-files --lib \
                             storage::copies"
                        );
                        std::panic::resume_unwind(panic)
                    });
                }
                attempts
            }
        };
        let started: Vec<_> = (0..workers).map(|worker| scope.spawn(work(worker))).collect();
        started.into_iter().map(|worker| worker.join().unwrap()).sum::<u64>()
    });
    eprintln!("{runs} copies from seed {first} on, {attempts} attempts");
}

fn bring(sink: &mut Sink, source: &mut Source, wanted: impl Fn(&ChunkKind) -> bool) {
    let mut buf = vec![0; CHUNK as usize];
    for chunk in sink.missing().into_iter().flatten() {
        if sink.object().chunk_kind(chunk).is_some_and(|kind| wanted(&kind)) {
            let read = source.read_chunk(chunk, &mut buf).unwrap();
            sink.write_chunk(chunk, &buf[..read.len], &read.value).unwrap();
        }
    }
}

#[test]
fn a_large_file_whose_sync_fails_twice_is_the_only_failed_file_of_its_tree() {
    let (from, to) = (Disk::new(1), Disk::new(2));
    for (name, size) in [(&b"large"[..], LARGE), (b"small", 100)] {
        let file = from.root().create(name, 0o644).unwrap();
        file.write_all_at(&vec![5; size as usize], 0).unwrap();
    }
    // If `copy` were a new folder, its name would count as lost too.
    to.root().make_folder(b"copy", 0o755).unwrap();
    let options = SourceOptions { recursive: true, ..Default::default() };
    let mut source = Source::open(&[place(&from, "")], &options).unwrap();
    let manifest = source.manifest().clone();
    let options = SinkOptions::default();
    let (mut sink, _) =
        Sink::open(&place(&to, "copy/"), &manifest, 0, &options, &Watch::default()).unwrap();
    let is_large = |kind: &ChunkKind| matches!(kind, ChunkKind::Large { .. });
    // The last chunk would complete the file.
    let last = |kind: &ChunkKind| matches!(kind, ChunkKind::Large { chunk: 7.., .. });
    for attempt in 1..=2 {
        bring(&mut sink, &mut source, |kind| is_large(kind) && !last(kind));
        to.set_faults(Faults { sync: 10_000, ..Faults::default() });
        sink.sync().unwrap();
        to.set_faults(Faults::default());
        let again = if attempt == 1 { 7 } else { 0 };
        assert_eq!(sink.take_changed().len(), again);
    }
    bring(&mut sink, &mut source, |kind| !is_large(kind));
    let outcome = sink.finish().unwrap();
    assert_eq!((outcome.files, outcome.failures.len()), (1, 1));
    assert_eq!(outcome.failures[0].path, b"large");
    assert!(outcome.failures[0].reason.contains("cannot be synced to a disk in memory"));
}

#[test]
fn a_journal_whose_removal_was_not_synced_is_gone_from_the_disk_before_the_file_is_touched() {
    let (from, to) = (Disk::new(1), Disk::new(2));
    let file = from.root().create(b"file00", 0o644).unwrap();
    file.write_all_at(&vec![5; LARGE as usize], 0).unwrap();
    let mut source = Source::open(&[place(&from, "file00")], &SourceOptions::default()).unwrap();
    let manifest = source.manifest().clone();
    let open = || {
        let options = SinkOptions::default();
        Sink::open(&place(&to, "copy"), &manifest, 0, &options, &Watch::default()).unwrap().0
    };
    let mut sink = open();
    bring(&mut sink, &mut source, |kind| matches!(kind, ChunkKind::Large { chunk: ..4, .. }));
    sink.sync().unwrap();
    drop(sink);
    let journal = &b".copy.lh-journal"[..];
    to.root().sync().unwrap();
    to.root().remove(journal).unwrap();
    assert!(to.tree(true).contains_key(journal));
    drop(open());
    assert!(!to.tree(true).contains_key(journal));
}

/// Returns a source of one large file, and a function that opens the file's copy on the disk `to`.
fn one_large(to: &Disk) -> (Source, impl Fn() -> (Sink, Plan)) {
    large_of(to, 0)
}

/// As [`one_large`], for the version of the file that was modified `seconds` after 1970.
fn large_of(to: &Disk, seconds: i64) -> (Source, impl Fn() -> (Sink, Plan)) {
    let from = Disk::new(1);
    let file = from.root().create(b"file00", 0o644).unwrap();
    file.write_all_at(&content(LARGE, 5), 0).unwrap();
    file.set_modified(manifest::FileTime { seconds, nanos: 0 }).unwrap();
    let source = Source::open(&[place(&from, "file00")], &SourceOptions::default()).unwrap();
    let (manifest, to) = (source.manifest().clone(), to.clone());
    let open = move || {
        let options = SinkOptions::default();
        Sink::open(&place(&to, "copy"), &manifest, 0, &options, &Watch::default()).unwrap()
    };
    (source, open)
}

fn finish(mut sink: Sink, source: &mut Source, to: &Disk) {
    bring(&mut sink, source, |_| true);
    assert_eq!(sink.finish().unwrap().files, 1);
    let name = *to.tree(true).get(&b"copy"[..]).expect("the name is there");
    assert!(to.stored(name) == content(LARGE, 5));
}

const PARTIAL: &[u8] = b".copy.lh-part";
const JOURNAL: &[u8] = b".copy.lh-journal";

#[test]
fn an_unreadable_chunk_without_a_journal_record_is_requested_again() {
    let to = Disk::new(2);
    let (mut source, open) = one_large(&to);
    let (mut sink, _) = open();
    bring(&mut sink, &mut source, |kind| matches!(kind, ChunkKind::Large { chunk: ..4, .. }));
    drop(sink);
    to.root().remove(JOURNAL).unwrap();
    to.spoil(to.tree(false)[PARTIAL], CHUNK);
    let (mut sink, plan) = open();
    let values = &plan.compare[0].values;
    assert_eq!(values.iter().map(|(chunk, _)| *chunk).collect::<Vec<_>>(), [0, 2, 3]);
    let same = source.compare(0, values);
    sink.compare_result(0, &same).unwrap();
    assert_eq!(sink.missing(), [1..2, 4..8]);
    finish(sink, &mut source, &to);
}

#[test]
fn a_chunk_that_cannot_be_read_after_the_comparison_is_requested_again() {
    let to = Disk::new(2);
    let (mut source, open) = one_large(&to);
    let (mut sink, _) = open();
    bring(&mut sink, &mut source, |kind| matches!(kind, ChunkKind::Large { chunk: ..4, .. }));
    drop(sink);
    to.root().remove(JOURNAL).unwrap();
    let (mut sink, plan) = open();
    to.spoil(to.tree(false)[PARTIAL], 2 * CHUNK);
    let same = source.compare(0, &plan.compare[0].values);
    sink.compare_result(0, &same).unwrap();
    assert_eq!(sink.take_changed(), [2]);
    assert_eq!(sink.missing(), [2..3, 4..8]);
    finish(sink, &mut source, &to);
}

/// The journal of another version shows that the chunk is on the disk. So the sink need not read
/// the chunk again.
#[test]
fn a_chunk_that_the_journal_of_another_version_lists_is_not_read_after_the_comparison() {
    let to = Disk::new(2);
    let (mut source, open) = large_of(&to, 1);
    let (mut sink, _) = open();
    bring(&mut sink, &mut source, |kind| matches!(kind, ChunkKind::Large { chunk: ..4, .. }));
    sink.sync().unwrap();
    drop(sink);
    let (mut source, open) = large_of(&to, 2);
    let (mut sink, plan) = open();
    to.spoil(to.tree(false)[PARTIAL], 2 * CHUNK);
    let same = source.compare(0, &plan.compare[0].values);
    assert_eq!(same, [true; 4]);
    sink.compare_result(0, &same).unwrap();
    assert_eq!((sink.take_changed(), sink.missing()), (vec![], vec![4..8]));
}

#[test]
fn a_journalled_chunk_that_cannot_be_read_after_a_failed_sync_is_requested_again() {
    let to = Disk::new(2);
    let (mut source, open) = one_large(&to);
    let (mut sink, _) = open();
    bring(&mut sink, &mut source, |kind| matches!(kind, ChunkKind::Large { chunk: ..4, .. }));
    sink.sync().unwrap();
    bring(&mut sink, &mut source, |kind| matches!(kind, ChunkKind::Large { chunk: 4, .. }));
    to.spoil(to.tree(false)[PARTIAL], 0);
    // The device fails at one sync; the sync of the new partial file succeeds.
    to.fail_next_sync();
    sink.sync().unwrap();
    assert_eq!(sink.take_changed(), [0, 4]);
    finish(sink, &mut source, &to);
}

#[test]
fn a_journal_that_cannot_be_read_counts_as_missing() {
    let to = Disk::new(2);
    let (mut source, open) = one_large(&to);
    let (mut sink, _) = open();
    bring(&mut sink, &mut source, |kind| matches!(kind, ChunkKind::Large { chunk: ..4, .. }));
    sink.sync().unwrap();
    drop(sink);
    to.spoil(to.tree(false)[JOURNAL], 0);
    let (mut sink, plan) = open();
    let values = &plan.compare[0].values;
    assert_eq!(values.len(), 4);
    let same = source.compare(0, values);
    sink.compare_result(0, &same).unwrap();
    assert_eq!(sink.missing(), [4..8]);
    finish(sink, &mut source, &to);
}

#[test]
fn a_chunk_that_cannot_be_read_when_its_file_is_compared_counts_as_different() {
    let to = Disk::new(2);
    let (mut source, open) = one_large(&to);
    finish(open().0, &mut source, &to);
    to.spoil(to.tree(true)[&b"copy"[..]], 3 * CHUNK);
    let options = SinkOptions { checksum: true, ..SinkOptions::default() };
    let manifest = source.manifest().clone();
    let (mut sink, plan) =
        Sink::open(&place(&to, "copy"), &manifest, 0, &options, &Watch::default()).unwrap();
    let same = source.compare(0, &plan.compare[0].values);
    sink.compare_result(0, &same).unwrap();
    assert_eq!(sink.missing(), [3..4]);
    finish(sink, &mut source, &to);
}

#[test]
fn a_failed_sync_of_a_name_loses_neither_the_new_content_nor_the_old_content_on_disk() {
    let (from, to) = (Disk::new(1), Disk::new(2));
    let write = |disk: &Disk, name: &[u8], content: &[u8]| {
        let file = disk.root().create(name, 0o644).unwrap();
        file.write_all_at(content, 0).unwrap();
        file.sync_all().unwrap();
        disk.root().sync().unwrap();
    };
    let (old, new) = (vec![3; 100], vec![5; LARGE as usize]);
    write(&from, b"file00", &new);
    write(&to, b"copy", &old);
    let copy = |at_the_name: Faults, at_the_end: &dyn Fn()| {
        let options = SourceOptions::default();
        let mut source = Source::open(&[place(&from, "file00")], &options).unwrap();
        let manifest = source.manifest().clone();
        let (mut sink, _) = Sink::open(
            &place(&to, "copy"),
            &manifest,
            0,
            &SinkOptions::default(),
            &Watch::default(),
        )
        .unwrap();
        let last = |kind: &ChunkKind| matches!(kind, ChunkKind::Large { chunk: 7.., .. });
        bring(&mut sink, &mut source, |kind| !last(kind));
        sink.sync().unwrap();
        to.set_faults(at_the_name);
        bring(&mut sink, &mut source, last);
        at_the_end();
        let outcome = sink.finish();
        to.set_faults(Faults::default());
        outcome
    };
    let content = |on_disk| {
        let tree = to.tree(on_disk);
        to.stored(*tree.get(&b"copy"[..]).expect("the name is there"))
    };
    let fine = Faults::default();
    let folder_fails = Faults { folder_sync: 10_000, ..fine };
    let heal = || to.set_faults(fine);
    // When the file gets its name, its folder is synced. This sync fails here, but the sync of the
    // file system at the end stores the name.
    assert_eq!(copy(folder_fails, &heal).unwrap().files, 1);
    assert!(content(false) == new && content(true) == new);

    // The error of the file system is reported once, so a second sync would succeed.
    let fail_once = || {
        heal();
        to.fail_next_file_system_sync();
    };
    for fail in [&|| to.set_faults(Faults { sync: 10_000, ..fine }), &fail_once as &dyn Fn()] {
        to.root().remove(b"copy").unwrap();
        write(&to, b"copy", &old);
        let error = copy(folder_fails, fail).unwrap_err();
        assert!(error.to_string().contains("cannot sync copy to a disk in memory"), "{error}");
        assert!(content(false) == new && content(true) == old);
        // The next run finds the file and syncs its name.
        assert_eq!(copy(fine, &heal).unwrap().skipped, 1);
        assert!(content(true) == new);
    }
}

#[test]
fn names_on_a_mounted_file_system_are_on_disk_at_the_end_although_no_folder_can_be_synced() {
    let (from, to, mounted) = (Disk::new(1), Disk::new(2), Disk::new(3));
    for disk in [&from, &to] {
        disk.root().make_folder(b"folder", 0o755).unwrap();
    }
    to.mount(b"folder", &mounted);
    let folder = from.root().open_folder(b"folder").unwrap();
    for (name, size) in [(&b"large"[..], LARGE), (b"small", 100)] {
        let file = folder.create(name, 0o644).unwrap();
        file.write_all_at(&vec![5; size as usize], 0).unwrap();
    }
    mounted.set_faults(Faults { folder_sync: 10_000, ..Faults::default() });
    let copy = |at_the_end: &dyn Fn()| {
        let options = SourceOptions { recursive: true, ..Default::default() };
        let mut source = Source::open(&[place(&from, "")], &options).unwrap();
        let manifest = source.manifest().clone();
        let options = SinkOptions::default();
        let (mut sink, _) =
            Sink::open(&place(&to, ""), &manifest, 0, &options, &Watch::default()).unwrap();
        bring(&mut sink, &mut source, |_| true);
        sink.sync().unwrap();
        at_the_end();
        sink.finish()
    };
    let error = copy(&|| mounted.fail_next_file_system_sync()).unwrap_err();
    assert!(error.to_string().contains("cannot sync"), "{error}");
    assert!(!mounted.tree(true).contains_key(&b"large"[..]));
    // The next run finds the files and syncs their names.
    assert_eq!(copy(&|| {}).unwrap().skipped, 2);
    let tree = mounted.tree(true);
    assert!(tree.contains_key(&b"large"[..]) && tree.contains_key(&b"small"[..]));
}
