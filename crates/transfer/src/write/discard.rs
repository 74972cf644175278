//! A destination that writes nothing, for measurements: it only counts the bytes that arrive.

use super::chunk::Content;
use super::destination::{Open, Opened, PassState, Reporter};
use super::jobs::WriterEvent;
use super::planned;
use crate::counters::Counters;
use crate::error::Error;
use longhaul_files::digest::Digest;
use longhaul_files::{Plan, VirtualObject};

pub(crate) struct Discard;

struct Discarding {
    object: VirtualObject,
    reporter: Reporter,
    /// Bytes that have not arrived over streams. Datagrams do not change this count: their flow
    /// reports when all blocks have arrived.
    left: u64,
}

impl Open for Discard {
    fn open(
        self: Box<Self>,
        object: VirtualObject,
        prefix: u64,
        reporter: Reporter,
    ) -> Result<Box<dyn Opened>, Error> {
        let implied = object.implied();
        let never_sent: u64 = implied.iter().map(|range| range.end - range.start).sum();
        let left = object.len().saturating_sub(prefix + never_sent);
        reporter.report(planned::event(object.manifest(), Plan::default(), implied));
        Ok(Box::new(Discarding { object, reporter, left }))
    }
}

impl Opened for Discarding {
    /// Returns false, so that the writer drops digests. Otherwise the digests of chunks that come
    /// in datagrams would collect until the writer refuses more.
    fn needs(&self, _chunk: u64) -> bool {
        false
    }

    fn take_chunk(&mut self, chunk: u64, content: Content, _: &Digest) -> Result<(), Error> {
        let len = self.object.chunk_content(chunk);
        self.reporter.board.update(|counters| counters.written.bytes += len as u64);
        self.left = self.left.saturating_sub(len as u64);
        if content.release(len) {
            self.reporter.report(WriterEvent::Drained);
        }
        Ok(())
    }

    fn settle(&mut self, pass: PassState) -> Result<bool, Error> {
        let is_over = pass.all_arrived || self.left == 0;
        // Blocks from datagrams are only counted, and never arrive here as chunks.
        let board = &self.reporter.board;
        if let Some(block) = board.block() {
            let moved = board.mine().receiver.distinct.saturating_mul(block.into());
            let bytes = moved.min(self.object.len());
            board.update(|Counters { written, .. }| written.bytes = written.bytes.max(bytes));
        }
        if is_over {
            let (bytes, _) = self.reporter.board.totals();
            self.reporter.board.update(|counters| counters.written.bytes = bytes);
            self.reporter.report(WriterEvent::Outcome(Box::default(), None));
        }
        Ok(is_over)
    }
}
