//! A dry run: reports the entries (files, folders and links) that a real run would copy or delete.

use std::collections::{BTreeMap, BTreeSet};

use super::chunk::Content;
use super::destination::{AtSource, Opened, PassState, Reporter};
use super::jobs::WriterEvent;
use super::planned;
use super::skip::without;
use super::writing::Questions;
use crate::control::{Compared, Outcome};
use crate::error::Error;
use longhaul_files::digest::Digest;
use longhaul_files::{Plan, Sink, VirtualObject};

pub(super) struct Rehearsal {
    object: VirtualObject,
    sink: Sink,
    reporter: Reporter,
    questions: Questions,
    /// The plan, until it is reported.
    plan: Option<Plan>,
    /// Entries that need no copy, because equal ones exist.
    skipped: Vec<u32>,
    /// The entries that failed at the source, and whether each changed while it was read.
    failed_at_source: BTreeMap<u32, bool>,
    failures_reported: usize,
}

impl Rehearsal {
    /// Reports the plan, or requests the comparisons on which the plan depends.
    pub(super) fn begin(
        object: VirtualObject,
        sink: Sink,
        mut plan: Plan,
        reporter: Reporter,
    ) -> Rehearsal {
        reporter.board.update(|counters| counters.written.bytes = plan.resumed_bytes);
        let asked = Questions::of(&plan);
        let questions = planned::questions(&std::mem::take(&mut plan.compare));
        let mut rehearsal = Rehearsal {
            object,
            sink,
            reporter,
            questions: asked,
            plan: Some(plan),
            skipped: Vec::new(),
            failed_at_source: BTreeMap::new(),
            failures_reported: 0,
        };
        match questions.is_empty() {
            true => rehearsal.report_plan(),
            false => rehearsal.reporter.report(WriterEvent::Asks(questions)),
        }
        rehearsal
    }

    fn report_plan(&mut self) {
        let Some(mut plan) = self.plan.take() else { return };
        plan.skipped.sort_unstable();
        self.skipped.clone_from(&plan.skipped);
        // Report failures before the plan: entries that would fail must not be reported as created.
        let (failures, at_source) = (self.sink.failures(), &self.failed_at_source);
        planned::report_failures(failures, &mut self.failures_reported, at_source, &self.reporter);
        let object = &self.object;
        self.reporter.report(planned::event(object.manifest(), plan, object.implied()));
    }

    /// Reports the entries that would be copied or deleted, and the summary.
    fn end(&mut self) -> Result<(), Error> {
        let deleted = self.sink.would_delete()?;
        let kept_extra = self.sink.keeps_extra();
        let manifest = self.object.manifest().clone();
        let all = 0..manifest.entries().len() as u64;
        let failures = self.sink.failures();
        let failed: BTreeSet<u32> = failures.iter().filter_map(|failure| failure.entry).collect();
        let is_file = |entry: &u32| manifest.entries()[*entry as usize].size().is_some();
        let failed_files = failed.iter().filter(|entry| is_file(entry)).count() as u64;
        let settled: BTreeSet<u32> =
            failed.into_iter().chain(self.skipped.iter().copied()).collect();
        let settled = planned::runs(settled.into_iter().map(u64::from));
        let entries = without(std::slice::from_ref(&all), &settled);
        let due = entries
            .iter()
            .flat_map(|range| &manifest.entries()[range.start as usize..range.end as usize]);
        let files = due.filter(|entry| entry.size().is_some()).count() as u64;
        let skipped = manifest.files().saturating_sub(files + failed_files);
        let failed_count = failures.len() as u64;
        self.reporter.report(WriterEvent::WouldCopy { manifest, entries });
        let count = deleted.count;
        planned::report_deleted(deleted.names, &self.reporter);
        let outcome = Outcome {
            files,
            skipped,
            failed_count,
            deleted: count,
            kept_extra,
            ..Outcome::default()
        };
        self.reporter.report(WriterEvent::Outcome(Box::new(outcome), None));
        Ok(())
    }
}

impl Opened for Rehearsal {
    fn needs(&self, _chunk: u64) -> bool {
        false
    }

    /// A dry run requests no chunks.
    fn take_chunk(&mut self, _: u64, _: Content, _: &Digest) -> Result<(), Error> {
        Ok(())
    }

    fn take_compared(&mut self, answer: &Compared) -> Result<(), Error> {
        let Some((entry, answers)) = self.questions.take(answer) else { return Ok(()) };
        self.sink.compare_result(entry, &answers)?;
        if let Some(plan) = self.plan.as_mut().filter(|_| self.sink.is_skipped(entry)) {
            plan.skipped.push(entry);
            let size = self.object.manifest().entries()[entry as usize].size();
            plan.resumed_bytes += size.unwrap_or(0);
        }
        if self.questions.is_empty() {
            self.report_plan();
        }
        Ok(())
    }

    fn fail_at_source(&mut self, AtSource { entry, reason, changed }: AtSource) {
        if (entry as usize) < self.object.manifest().entries().len() {
            self.failed_at_source.insert(entry, changed);
            let needless = self.sink.fail_entry(entry, &reason);
            self.reporter.report(WriterEvent::Needless(needless));
        }
    }

    fn source_is_incomplete(&mut self) {
        self.sink.source_is_incomplete();
    }

    fn settle(&mut self, _: PassState) -> Result<bool, Error> {
        let is_ended = self.plan.is_none();
        if is_ended {
            self.end()?;
        }
        Ok(is_ended)
    }
}
