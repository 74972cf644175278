//! Converts the reports of a destination into messages that each fit a frame. The plan says which
//! chunks exist already; the outcome is the result of the transfer. An entry is a file, folder or
//! link.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use prost::Message as _;

use super::destination::Reporter;
use super::jobs::WriterEvent;
use crate::control::{Compare, EntryFailed, Named, Outcome, Plan, Ranges};
use longhaul_files::{Failure, Manifest};

/// Maximum number of ranges in one message; a range takes at most twenty bytes.
const RANGES: usize = 20_000;
/// Maximum number of values to compare in one message; the source reads a chunk for each value.
const VALUES: usize = 256;
/// Maximum number of failures in an outcome; further failures are only counted.
const FAILURES: usize = 1_000;
/// Maximum bytes of these failures.
const FAILURE_BYTES: usize = 512 << 10;
/// Maximum bytes of the tag and the length before a field's content.
const FIELD: usize = 6;

/// Returns the plan as messages. All except the last have `more` set: another message follows.
pub(crate) fn slices(plan: &longhaul_files::Plan) -> Vec<Plan> {
    let mut slices: Vec<Plan> = Vec::new();
    for have in plan.have.chunks(RANGES) {
        let have = Some(Ranges::encode(have.iter().cloned()));
        slices.push(Plan { have, more: true, ..Plan::default() });
    }
    for skipped in runs(plan.skipped.iter().map(|entry| u64::from(*entry))).chunks(RANGES) {
        let skipped = Some(Ranges::encode(skipped.iter().cloned()));
        slices.push(Plan { skipped, more: true, ..Plan::default() });
    }
    slices.extend(questions(&plan.compare));
    slices.push(Plan { resumed_bytes: plan.resumed_bytes, ..Plan::default() });
    slices
}

/// Returns the comparisons as messages with `more` set.
pub(crate) fn questions(compare: &[longhaul_files::sink::Compare]) -> Vec<Plan> {
    let mut slices = Vec::new();
    for ask in compare {
        for values in ask.values.chunks(VALUES) {
            let compare = vec![Compare {
                entry: u64::from(ask.entry),
                chunks: values.iter().map(|(chunk, _)| *chunk).collect(),
                values: values.iter().flat_map(|(_, value)| *value).collect(),
            }];
            slices.push(Plan { compare, more: true, ..Plan::default() });
        }
    }
    slices
}

pub(crate) fn event(
    manifest: &Arc<Manifest>,
    plan: longhaul_files::Plan,
    implied: Vec<Range<u64>>,
) -> WriterEvent {
    WriterEvent::Planned {
        manifest: manifest.clone(),
        slices: slices(&plan),
        skipped: runs(plan.skipped.iter().map(|entry| u64::from(*entry))),
        have: plan.have,
        implied,
        resumed_bytes: plan.resumed_bytes,
    }
}

/// Reports the failures after the first `count`. Skips failures of entries in `at_source`, because
/// the source has reported them. Sets `count` to the number of all failures.
pub(crate) fn report_failures(
    failures: &[Failure],
    count: &mut usize,
    at_source: &BTreeMap<u32, bool>,
    reporter: &Reporter,
) {
    for failure in &failures[*count..] {
        if failure.entry.is_some_and(|entry| at_source.contains_key(&entry)) {
            continue;
        }
        let (path, reason) = (failure.path.clone(), failure.reason.clone());
        reporter.report(WriterEvent::EntryFailed { path, reason });
    }
    *count = failures.len();
}

/// Returns the event for entries that have their final names.
pub(crate) fn named(manifest: &Arc<Manifest>, mut entries: Vec<u32>) -> WriterEvent {
    entries.sort_unstable();
    let entries = runs(entries.into_iter().map(u64::from));
    WriterEvent::Named { manifest: manifest.clone(), entries }
}

pub(crate) fn named_messages(entries: &[Range<u64>]) -> impl Iterator<Item = Named> {
    let encode = |ranges: &[Range<u64>]| Some(Ranges::encode(ranges.iter().cloned()));
    entries.chunks(RANGES).map(move |ranges| Named { entries: encode(ranges) })
}

/// Approximate bytes of removed names in one message.
const NAMES: usize = 64 << 10;

/// Reports the removed names; in a dry run, the names that a real run would remove.
pub(crate) fn report_deleted(mut paths: Vec<Vec<u8>>, reporter: &Reporter) {
    while !paths.is_empty() {
        let mut room = NAMES;
        let fits = |path: &&Vec<u8>| {
            let is_room = room > 0;
            room = room.saturating_sub(path.len() + FIELD);
            is_room
        };
        let rest = paths.split_off(paths.iter().take_while(fits).count());
        reporter.report(WriterEvent::Deleted(std::mem::replace(&mut paths, rest)));
    }
}

/// Returns the outcome of a destination that already had `resumed_bytes`. `at_source` are the
/// entries that failed at the source, and whether each file changed while it was read.
pub(crate) fn outcome(
    outcome: longhaul_files::SinkOutcome,
    at_source: &BTreeMap<u32, bool>,
    resumed_bytes: u64,
) -> Outcome {
    let mut room = FAILURE_BYTES;
    let limited = outcome.failures.iter().take(FAILURES).map(|failure| EntryFailed {
        entry: failure.entry.map_or(u64::MAX, u64::from),
        path: failure.path.clone(),
        reason: failure.reason.clone(),
        at_source: failure.entry.is_some_and(|entry| at_source.contains_key(&entry)),
        changed: failure.entry.and_then(|entry| at_source.get(&entry)).copied().unwrap_or(false),
    });
    let failed = limited.take_while(|failure| {
        let taken = room.checked_sub(failure.encoded_len() + FIELD);
        room = taken.unwrap_or(0);
        taken.is_some()
    });
    Outcome {
        files: outcome.files,
        skipped: outcome.skipped,
        failed: failed.collect(),
        digest: outcome.digest.map(Vec::from).unwrap_or_default(),
        status: None,
        failed_count: outcome.failures.len() as u64,
        resumed_bytes,
        since_last_nanos: None,
        failed_bytes: outcome.failed_bytes,
        links: outcome.links,
        folders: outcome.folders,
        deleted: outcome.deleted,
        kept_extra: outcome.kept_extra,
    }
}

/// Returns ascending numbers as ranges.
pub(crate) fn runs(numbers: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(last) if last.end == number => last.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::frame;

    #[test]
    fn a_plan_of_any_size_fits_its_frames() {
        let values: Vec<_> = (0..300_000).map(|chunk| (chunk, [7; 32])).collect();
        let plan = longhaul_files::Plan {
            have: (0..200_000).map(|n| n * 1_000_000..n * 1_000_000 + 7).collect(),
            compare: vec![longhaul_files::sink::Compare { entry: 3, values: values.into() }],
            skipped: (0..1_000_000).step_by(2).collect(),
            resumed_bytes: 9,
            bytes_due: 0,
        };
        let slices = slices(&plan);
        let (last, others) = slices.split_last().unwrap();
        assert!(!last.more && others.iter().all(|slice| slice.more));
        for slice in slices {
            let frame = crate::control::Frame::from(crate::control::Message::Plan(slice));
            frame::encode(&frame, &mut Vec::new()).unwrap();
        }
    }

    #[test]
    fn an_outcome_of_many_failures_with_long_paths_fits_its_frame() {
        let failure = |entry| longhaul_files::Failure {
            entry: Some(entry),
            path: vec![b'p'; 4096],
            reason: "no space left on the device".into(),
            changed: false,
        };
        let failures: Vec<_> = (0..1_000).map(failure).collect();
        let outcome = outcome(
            longhaul_files::SinkOutcome { failures, ..longhaul_files::SinkOutcome::default() },
            &BTreeMap::new(),
            0,
        );
        assert_eq!(outcome.failed_count, 1_000);
        assert!(outcome.failed.len() > 100, "{}", outcome.failed.len());
        let frame = crate::control::Frame::from(crate::control::Message::Outcome(outcome));
        frame::encode(&frame, &mut Vec::new()).unwrap();
    }
}
