//! Writes the chunks of an object into a store: verifies them, and requests them again if they
//! fail. An entry is a file, folder or link of the object. The plan says which chunks exist
//! already.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Instant;

use super::chunk::Content;
use super::destination::{AtSource, Opened, PassState, Reporter};
use super::jobs::WriterEvent;
use super::planned;
use super::wrong::WrongChunks;
use crate::control::{Compared, PassEnd, Ranges};
use crate::counters::chunk_map::ChunkMap;
use crate::counters::spent::Spent;
use crate::error::Error;
use longhaul_files::digest::Digest;
use longhaul_files::{Failure, Mark, Plan, Sink, SinkOutcome, Verdict, VirtualObject};

/// Verifies and stores the chunks of an object. [`Sink`] implements and documents all methods. The
/// methods with a default body do nothing for a part of a pipe.
pub(super) trait Store: Send + Sized {
    fn needs(&self, chunk: u64) -> bool;

    fn missing_chunks(&self) -> u64;

    fn bytes_written(&self) -> u64;

    fn files_done(&self) -> u64;

    fn write_chunk(
        &mut self,
        chunk: u64,
        content: &[u8],
        digest: &Digest,
    ) -> Result<Verdict, Error>;

    fn finish(self) -> Result<(SinkOutcome, Option<Mark>), Error>;

    fn compare_result(&mut self, _entry: u32, _same: &[bool]) -> Result<Vec<Range<u64>>, Error> {
        Ok(Vec::new())
    }

    fn fail_entry(&mut self, _entry: u32, _reason: &str) -> Vec<Range<u64>> {
        Vec::new()
    }

    fn source_is_incomplete(&mut self) {}

    fn failures(&self) -> &[Failure] {
        &[]
    }

    fn tick(&mut self, _now: Instant) -> Result<(), Error> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn take_changed(&mut self) -> Vec<u64> {
        Vec::new()
    }

    fn take_needless(&mut self) -> Vec<Range<u64>> {
        Vec::new()
    }

    fn take_named(&mut self) -> Vec<u32> {
        Vec::new()
    }
}

impl Store for Sink {
    fn needs(&self, chunk: u64) -> bool {
        self.needs(chunk)
    }

    fn missing_chunks(&self) -> u64 {
        self.missing_chunks()
    }

    fn bytes_written(&self) -> u64 {
        self.bytes_written()
    }

    fn files_done(&self) -> u64 {
        self.files_done()
    }

    fn write_chunk(
        &mut self,
        chunk: u64,
        content: &[u8],
        digest: &Digest,
    ) -> Result<Verdict, Error> {
        Ok(self.write_chunk(chunk, content, digest)?)
    }

    fn finish(self) -> Result<(SinkOutcome, Option<Mark>), Error> {
        Ok(self.finish_without_reply()?)
    }

    fn compare_result(&mut self, entry: u32, same: &[bool]) -> Result<Vec<Range<u64>>, Error> {
        Ok(self.compare_result(entry, same)?)
    }

    fn fail_entry(&mut self, entry: u32, reason: &str) -> Vec<Range<u64>> {
        self.fail_entry(entry, reason)
    }

    fn source_is_incomplete(&mut self) {
        self.source_is_incomplete();
    }

    fn failures(&self) -> &[Failure] {
        self.failures()
    }

    fn tick(&mut self, now: Instant) -> Result<(), Error> {
        Ok(self.tick(now)?)
    }

    fn sync(&mut self) -> Result<(), Error> {
        Ok(self.sync()?)
    }

    fn take_changed(&mut self) -> Vec<u64> {
        self.take_changed()
    }

    fn take_needless(&mut self) -> Vec<Range<u64>> {
        self.take_needless()
    }

    fn take_named(&mut self) -> Vec<u32> {
        self.take_named()
    }
}

pub(super) struct Writing<S> {
    object: VirtualObject,
    /// `None` once the object is complete.
    store: Option<S>,
    reporter: Reporter,
    questions: Questions,
    /// Bytes that existed before this run.
    resumed: u64,
    /// Chunks that must be sent again.
    failed: BTreeSet<u64>,
    wrong: WrongChunks,
    /// Entries that failed at the source, and whether each file changed while it was read.
    failed_at_source: BTreeMap<u32, bool>,
    failures_reported: usize,
    spent: Spent,
}

/// Entries that the source is comparing: the number of expected answers, and the answers so far.
pub(super) struct Questions(BTreeMap<u32, (usize, Vec<bool>)>);

impl Questions {
    pub(super) fn of(plan: &Plan) -> Questions {
        let asked = plan.compare.iter();
        Questions(asked.map(|ask| (ask.entry, (ask.values.len(), Vec::new()))).collect())
    }

    /// Returns whether every entry has its answers.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes answers, which come in the order of the questions, perhaps in several messages per
    /// entry. Returns the entry whose answers are complete with this message.
    pub(super) fn take(&mut self, compared: &Compared) -> Option<(u32, Vec<bool>)> {
        let entry = u32::try_from(compared.entry).ok()?;
        let (wanted, answers) = self.0.get_mut(&entry)?;
        answers.extend(&compared.same);
        if answers.len() < *wanted {
            return None;
        }
        let answers = std::mem::take(answers);
        self.0.remove(&entry);
        Some((entry, answers))
    }
}

impl<S: Store> Writing<S> {
    /// Starts to write `object` into an open store, and reports the store's `plan`.
    pub(super) fn begin(
        object: VirtualObject,
        store: S,
        plan: Plan,
        reporter: Reporter,
    ) -> Writing<S> {
        let (questions, resumed) = (Questions::of(&plan), plan.resumed_bytes);
        reporter.board.update(|counters| counters.written.bytes = resumed);
        let list = 0..object.manifest_chunks();
        let have = [&[list][..], &plan.have].concat();
        reporter.board.map_chunks(|map| *map = ChunkMap::new(object.chunks(), &have));
        reporter.report(planned::event(object.manifest(), plan, object.implied()));
        Writing {
            object,
            store: Some(store),
            reporter,
            questions,
            resumed,
            failed: BTreeSet::new(),
            wrong: WrongChunks::default(),
            failed_at_source: BTreeMap::new(),
            failures_reported: 0,
            spent: Spent::default(),
        }
    }

    /// Reports changes that the store makes itself: failures, files that got their names, and
    /// chunks that the store newly needs or no longer needs.
    fn report_changes(&mut self) {
        let Some(store) = &mut self.store else { return };
        let changed = store.take_changed().into_iter();
        self.failed.extend(changed.filter(|chunk| store.needs(*chunk)));
        let named = store.take_named();
        if !named.is_empty() {
            self.reporter.report(planned::named(self.object.manifest(), named));
        }
        let at_source = &self.failed_at_source;
        planned::report_failures(
            store.failures(),
            &mut self.failures_reported,
            at_source,
            &self.reporter,
        );
        let needless = store.take_needless();
        if !needless.is_empty() {
            drop_needless(&mut self.failed, store, &needless);
            self.reporter.report(WriterEvent::Needless(needless));
        }
    }

    /// Ends the pass (one transmission of the missing chunks) if only the failed chunks are
    /// missing.
    fn judge_pass(&mut self, missing: u64, pass: PassState) {
        if missing > self.failed.len() as u64 || self.failed.is_empty() {
            return;
        }
        let failed = planned::runs(std::mem::take(&mut self.failed).into_iter());
        let failed = Some(Ranges::encode(failed));
        self.reporter.report(WriterEvent::PassEnd(PassEnd { number: pass.number, failed }));
    }

    fn finish(&mut self, store: S) -> Result<(), Error> {
        let (mut outcome, mark) = self.spent.on(|| store.finish())?;
        let files = outcome.files + outcome.skipped;
        self.reporter.board.update(|counters| counters.written.files = files);
        self.spent.publish(&self.reporter.board);
        let named = std::mem::take(&mut outcome.named);
        if !named.is_empty() {
            self.reporter.report(planned::named(self.object.manifest(), named));
        }
        let deleted = std::mem::take(&mut outcome.deleted_names);
        planned::report_deleted(deleted, &self.reporter);
        let outcome = planned::outcome(outcome, &self.failed_at_source, self.resumed);
        self.reporter.report(WriterEvent::Outcome(Box::new(outcome), mark));
        Ok(())
    }
}

/// Removes the chunks from `failed` that `store` no longer needs.
fn drop_needless<S: Store>(failed: &mut BTreeSet<u64>, store: &S, needless: &[Range<u64>]) {
    if !needless.is_empty() {
        failed.retain(|chunk| store.needs(*chunk));
    }
}

impl<S: Store> Opened for Writing<S> {
    fn needs(&self, chunk: u64) -> bool {
        self.store.as_ref().is_some_and(|store| store.needs(chunk))
    }

    fn take_chunk(&mut self, chunk: u64, content: Content, digest: &Digest) -> Result<(), Error> {
        let Some(store) = &mut self.store else { return Ok(()) };
        let is_new = store.needs(chunk);
        let len = self.object.chunk_content(chunk);
        let verdict = match content.bytes().get(..len) {
            Some(bytes) => self.spent.on(|| store.write_chunk(chunk, bytes, digest))?,
            None => Verdict::Mismatch,
        };
        if verdict == Verdict::Mismatch {
            self.wrong.note(chunk)?;
            // A wrong chunk that is not needed does not count as missing.
            if store.needs(chunk) {
                self.failed.insert(chunk);
            }
        } else {
            self.wrong.forget(chunk);
            self.failed.remove(&chunk);
            if is_new {
                self.reporter.board.map_chunks(|map| map.add(chunk..chunk + 1));
            }
        }
        let (bytes, files) = (self.resumed + store.bytes_written(), store.files_done());
        self.reporter.wrote(bytes, files);
        self.spent.publish(&self.reporter.board);
        if content.release(len) {
            self.reporter.report(WriterEvent::Drained);
        }
        Ok(())
    }

    fn take_compared(&mut self, answer: &Compared) -> Result<(), Error> {
        let Some(store) = &mut self.store else { return Ok(()) };
        let Some((entry, answers)) = self.questions.take(answer) else { return Ok(()) };
        let needless = store.compare_result(entry, &answers)?;
        // These chunks changed after the comparison. The source sends them only in another pass.
        let changed = store.take_changed().into_iter();
        self.failed.extend(changed.filter(|chunk| store.needs(*chunk)));
        drop_needless(&mut self.failed, store, &needless);
        let there = |range: &Range<u64>| {
            range.clone().map(|chunk| self.object.chunk_content(chunk) as u64).sum::<u64>()
        };
        self.resumed += needless.iter().map(there).sum::<u64>();
        self.reporter
            .board
            .map_chunks(|map| needless.iter().cloned().for_each(|same| map.add(same)));
        let (bytes, files) = (self.resumed + store.bytes_written(), store.files_done());
        self.reporter.wrote(bytes, files);
        self.reporter.report(match self.object.is_large(entry) {
            true => WriterEvent::Same(needless),
            false => WriterEvent::Needless(needless),
        });
        Ok(())
    }

    fn fail_at_source(&mut self, AtSource { entry, reason, changed }: AtSource) {
        let entries = self.object.manifest().entries().len();
        if let Some(store) = self.store.as_mut().filter(|_| (entry as usize) < entries) {
            self.failed_at_source.insert(entry, changed);
            let needless = store.fail_entry(entry, &reason);
            drop_needless(&mut self.failed, store, &needless);
            self.reporter.report(WriterEvent::Needless(needless));
        }
    }

    fn source_is_incomplete(&mut self) {
        if let Some(store) = &mut self.store {
            store.source_is_incomplete();
        }
    }

    fn begin_pass(&mut self) {
        self.failed.clear();
    }

    fn settle(&mut self, pass: PassState) -> Result<bool, Error> {
        let Some(store) = &mut self.store else { return Ok(true) };
        self.spent.on(|| store.tick(Instant::now()))?;
        if store.missing_chunks() == 0 {
            // If the sync of a file fails, its chunks must be sent again.
            self.spent.on(|| store.sync())?;
        }
        self.report_changes();
        let missing = self.store.as_ref().map_or(0, Store::missing_chunks);
        if !self.questions.is_empty() || missing > 0 {
            if self.questions.is_empty() {
                self.judge_pass(missing, pass);
            }
            return Ok(false);
        }
        self.store.take().map_or(Ok(()), |store| self.finish(store))?;
        Ok(true)
    }
}
