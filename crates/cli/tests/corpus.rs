//! Replays the fuzz corpora in `fuzz/corpus/`.

#[allow(unreachable_pub, reason = "the fuzzer's binaries use it as a crate")]
#[path = "../../../fuzz/src/lib.rs"]
mod fuzz;

#[allow(unreachable_pub, dead_code, reason = "it is an example of the fuzzer's crate")]
#[path = "../../../fuzz/examples/seeds.rs"]
pub(crate) mod seeds;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_proto::registry::{self, Row};
use longhaul_proto::wire::Control;

/// Limit on the size of all corpora together, because every checkout contains them.
const MOST_BYTES: usize = 200_000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn listed(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder can be read");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    paths.sort();
    paths
}

fn names(folder: &Path) -> BTreeSet<String> {
    let stem = |path: &PathBuf| path.file_stem().and_then(|name| name.to_str()).map(str::to_owned);
    listed(folder).iter().filter_map(stem).collect()
}

#[test]
fn no_file_of_the_corpus_violates_an_invariant() {
    let mut bytes_in_all = 0;
    for (name, run) in fuzz::TARGETS {
        let files = listed(&folder().join("corpus").join(name));
        assert!(files.len() > 2, "{name} has no corpus");
        for file in files {
            let bytes = fs::read(&file).expect("the file can be read");
            bytes_in_all += bytes.len();
            let kept = std::panic::catch_unwind(|| run(&bytes)).is_ok();
            assert!(kept, "{} violates an invariant", file.display());
        }
    }
    assert!(bytes_in_all <= MOST_BYTES, "the corpus has {bytes_in_all} bytes: minimise it");
}

#[test]
fn messages_of_honest_programs_pass_all_checks() {
    let root = folder().join("..");
    let seeds = seeds::all(&root).expect("the sources of the seeds can be read");
    if std::env::var_os("LONGHAUL_WRITE_SEEDS").is_some() {
        seeds::write(&root).expect("the corpus can be written");
    }
    for (name, run) in fuzz::TARGETS {
        let of_target = seeds.iter().find(|(target, _)| *target == name);
        let (_, seeds) = of_target.unwrap_or_else(|| panic!("{name} has no seeds"));
        for (nth, seed) in seeds.iter().enumerate() {
            let kept = std::panic::catch_unwind(|| run(seed)).is_ok();
            assert!(kept, "seed {nth} of {name} violates an invariant");
        }
        assert!(folder().join(format!("corpus/{name}/seed-00")).exists(), "{name}");
    }
}

#[test]
fn a_client_completes_only_the_valid_copies_among_the_seeds() {
    let sessions = seeds_of("client_session");
    // Stall timeouts. A valid copy completes within `long`, even on a busy host. The others stall,
    // and end after `short`.
    let (long, short) = (Duration::from_secs(60), Duration::from_millis(300));
    // The result of seed 1 varies: its server disconnects, sometimes only after the copy is
    // complete.
    let expected = [(0, true, long), (2, false, short), (3, false, short), (4, false, short)];
    for (number, is_whole, stall) in expected.into_iter().chain([(5, true, long)]) {
        let seed = &sessions[number];
        assert_eq!(fuzz::client_session::is_whole(seed, stall), is_whole, "seed {number}");
    }
}

fn name(control: &Control) -> &'static str {
    match control {
        Control::Done(_) => "done",
        Control::Report(_) => "report",
        Control::Pulse(_) => "pulse",
        Control::Ack(_) => "ack",
        Control::Loss(_) => "loss",
        Control::Request(_) => "request",
        Control::SenderOffer(_) => "offer",
        Control::Selective(_) => "selective",
        Control::Sync(_) => "sync",
        Control::ErrorRate(_) => "error rate",
        Control::Go(_) => "go",
        Control::BufferOk(_) => "buffer ok",
        Control::Resend(_) => "resend",
        // A new kind needs its name here, a seed, and a case in `fuzz/src/spoken.rs`.
        Control::Begun(_) => "begun",
    }
}

fn seeds_of(target: &str) -> Vec<Vec<u8>> {
    let seeds = seeds::all(&folder().join("..")).expect("the sources of the seeds can be read");
    seeds.into_iter().find(|(name, _)| *name == target).unwrap().1
}

#[test]
fn the_sender_and_receiver_seeds_have_every_message_except_done_pulse_and_report() {
    let all: BTreeSet<&str> = seeds::controls().iter().map(name).collect();
    assert_eq!(all.len(), 14, "{all:?}");
    let row = registry::all().first().unwrap();
    type Replay = fn(&'static Row, &[u8]) -> Vec<Control>;
    let replays: [(&str, Replay); 2] =
        [("sender", fuzz::sender::heard), ("receiver", fuzz::receiver::heard)];
    for (target, heard) in replays {
        let seeds = seeds_of(target);
        let told: BTreeSet<&str> =
            seeds.iter().flat_map(|seed| heard(row, seed)).map(|control| name(&control)).collect();
        // The seeds may lack only the messages that the fuzzer makes most often (`message` in
        // `fuzz/src/flow.rs`).
        let missing: Vec<_> = all.difference(&told).collect();
        assert!(
            missing.iter().all(|name| ["done", "pulse", "report"].contains(name)),
            "{target}: {missing:?}"
        );
    }
}

#[test]
fn each_journal_seed_parses_to_the_chunks_of_its_own_intact_records() {
    let chunks = |seed: &Vec<u8>| {
        let journal = fuzz::journal::parsed(seed)?;
        Some(journal.values.into_iter().map(|(chunk, _)| chunk).collect::<Vec<_>>())
    };
    let chunks: Vec<_> = seeds_of("journal").iter().map(chunks).collect();
    assert_eq!(chunks, [Some(vec![0, 8]), Some(vec![0]), Some(vec![0, 5])]);
}

#[test]
fn each_target_has_one_binary_and_one_corpus_and_there_are_no_others() {
    let targets: BTreeSet<String> =
        fuzz::TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(&folder().join("fuzz_targets")), targets);
    assert_eq!(names(&folder().join("corpus")), targets);
    let manifest = fs::read_to_string(folder().join("Cargo.toml")).expect("it can be read");
    let manifest: toml::Table = manifest.parse().expect("a manifest is TOML");
    let binaries = manifest["bin"].as_array().expect("an array of tables");
    let named = binaries.iter().map(|binary| binary["name"].as_str().expect("a name").to_owned());
    assert_eq!(named.collect::<BTreeSet<_>>(), targets);
}
