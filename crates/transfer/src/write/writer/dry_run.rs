//! A dry run: nothing is moved, and what would be is told once all comparisons are answered.

use std::collections::BTreeSet;

use super::{Happened, Plan, Sink, Writer, planned};
use crate::control::Outcome;
use crate::write::skip::without;

impl Writer {
    /// Ends with the plan, unless that has still to be found out: what is to be compared goes ahead
    /// of it then.
    pub(super) fn begin_dry_run(&mut self, mut plan: Plan) {
        let questions = planned::questions(&std::mem::take(&mut plan.compare));
        if let (false, Some(opened)) = (questions.is_empty(), &mut self.opened) {
            opened.unanswered = Some(plan);
            let _ = self.happened.send(Happened::Asks(questions));
            self.take_early_failures();
            return;
        }
        self.end_dry_run(plan);
    }

    /// The comparison of `entry` is answered.
    pub(super) fn note_answer(&mut self, entry: u32) {
        let Some(opened) = &mut self.opened else { return };
        let is_skipped = opened.sink.as_ref().is_some_and(|sink| sink.is_skipped(entry));
        if let (true, Some(plan)) = (is_skipped, &mut opened.unanswered) {
            plan.skipped.push(entry);
            let size = opened.object.manifest().entries()[entry as usize].size();
            plan.resumed_bytes += size.unwrap_or(0);
        }
        if opened.comparing.is_empty()
            && let Some(mut plan) = opened.unanswered.take()
        {
            plan.skipped.sort_unstable();
            self.end_dry_run(plan);
        }
    }

    fn end_dry_run(&mut self, plan: Plan) {
        let skipped = plan.skipped.clone();
        // What would fail is not among what would be made.
        self.tell_failures();
        self.tell_plan(plan);
        self.take_early_failures();
        self.ended = true;
        let Some(opened) = &self.opened else { return };
        let manifest = opened.object.manifest().clone();
        let all = 0..manifest.entries().len() as u64;
        let failures = opened.sink.as_ref().map_or(&[][..], Sink::failures);
        let failed: BTreeSet<u32> = failures.iter().filter_map(|failure| failure.entry).collect();
        let is_file = |entry: &u32| manifest.entries()[*entry as usize].size().is_some();
        let failed_files = failed.iter().filter(|entry| is_file(entry)).count() as u64;
        let settled: BTreeSet<u32> = failed.into_iter().chain(skipped).collect();
        let settled = planned::runs(settled.into_iter().map(u64::from));
        let entries = without(std::slice::from_ref(&all), &settled);
        let due = entries
            .iter()
            .flat_map(|range| &manifest.entries()[range.start as usize..range.end as usize]);
        let files = due.filter(|entry| entry.size().is_some()).count() as u64;
        let skipped = manifest.files().saturating_sub(files + failed_files);
        let failed_count = failures.len() as u64;
        let _ = self.happened.send(Happened::WouldCopy { manifest, entries });
        let outcome = Outcome { files, skipped, failed_count, ..Outcome::default() };
        let _ = self.happened.send(Happened::Outcome(Box::new(outcome), None));
    }
}
