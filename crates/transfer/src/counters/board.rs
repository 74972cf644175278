//! The counters that the threads of one side of a transfer publish for the rest of the process. A
//! block is the payload of one datagram. A pass is one transmission of the missing chunks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use longhaul_proto::time::Time;

use super::Counters;
use super::chunk_map::ChunkMap;
use crate::control::Status;
use crate::summary::Segments;
use longhaul_files::Watch;

/// The published state of one side of a transfer. Times are in nanoseconds of the process's clock.
#[derive(Debug, Default)]
pub(crate) struct Board {
    mine: Mutex<Counters>,
    theirs: Mutex<Counters>,
    /// When a sealed datagram, or a chunk over a stream, last arrived from the other end; 0 before
    /// the first.
    last_received: AtomicU64,
    /// When a message last arrived from the other end on the control stream; 0 before the first.
    spoke: AtomicU64,
    /// Bytes of the object; 0 before the manifest is known.
    total_bytes: AtomicU64,
    /// Files of the object; 0 before the manifest is known.
    total_files: AtomicU64,
    /// When the first data datagram, or chunk over a stream, was sent or received; 0 before it.
    first_datagram: AtomicU64,
    /// The block size of the current or last pass; 0 before the first.
    block: AtomicU32,
    /// When the last needed block arrived; 0 before it.
    last_block: AtomicU64,
    /// The TCP segments sent for the chunks, if the kernel reports them.
    segments: Mutex<Option<Segments>>,
    /// Which chunks of the object are at the destination. Empty at the sending end.
    chunk_map: Mutex<ChunkMap>,
    /// The progress of this end's long work on its files.
    watch: Watch,
}

impl Board {
    pub(crate) fn update(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut self.mine.lock().expect("no holder of a board panics"));
    }

    pub(crate) fn map_chunks(&self, change: impl FnOnce(&mut ChunkMap)) {
        change(&mut self.chunk_map.lock().expect("no holder of a board panics"));
    }

    /// Returns, for each cell (a part of the object), how many per cent of its chunks are at the
    /// destination.
    pub(crate) fn chunk_map(&self) -> Vec<u8> {
        self.chunk_map.lock().expect("no holder of a board panics").percents()
    }

    pub(crate) fn note_segments(&self, segments: Segments) {
        *self.segments.lock().expect("no holder of a board panics") = Some(segments);
    }

    pub(crate) fn segments(&self) -> Option<Segments> {
        *self.segments.lock().expect("no holder of a board panics")
    }

    /// Records how much CPU time the calling thread, which carries the control stream, has used
    /// since its CPU time was `before`.
    pub(crate) fn note_carrying(&self, before: Duration) {
        let carried = super::span(super::thread_time().saturating_sub(before));
        self.update(|counters| counters.times.carrier = carried);
    }

    pub(crate) fn mine(&self) -> Counters {
        let mine = self.mine.lock().expect("no holder of a board panics").clone();
        Counters { looked: self.watch.looked(), ..mine }
    }

    pub(crate) fn status(&self) -> Status {
        Status::from(&self.mine())
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    pub(crate) fn theirs(&self) -> Counters {
        self.theirs.lock().expect("no holder of a board panics").clone()
    }

    /// Stores the other end's counters. An older message that arrives late changes nothing.
    pub(crate) fn set_theirs(&self, status: &Status) {
        let reported = Counters::from(status);
        let mut theirs = self.theirs.lock().expect("no holder of a board panics");
        if reported.sender.sent >= theirs.sender.sent
            && reported.written.bytes >= theirs.written.bytes
        {
            *theirs = reported;
        }
    }

    pub(crate) fn set_totals(&self, bytes: u64, files: u64) {
        self.total_bytes.store(bytes, Ordering::Relaxed);
        self.total_files.store(files, Ordering::Relaxed);
    }

    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.total_bytes.load(Ordering::Relaxed), self.total_files.load(Ordering::Relaxed))
    }

    pub(crate) fn note_received(&self, now: Time) {
        self.last_received.store(now.as_nanos().max(1), Ordering::Relaxed);
    }

    pub(crate) fn note_spoke(&self, now: Time) {
        self.spoke.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Returns when the other end last gave a sign of life on any channel; zero before the first.
    pub(crate) fn lived(&self) -> Time {
        let nanos =
            self.last_received.load(Ordering::Relaxed).max(self.spoke.load(Ordering::Relaxed));
        Time::from_nanos(nanos)
    }

    pub(crate) fn last_received(&self) -> Option<Time> {
        match self.last_received.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Time::from_nanos(nanos)),
        }
    }

    /// Later calls change nothing.
    pub(crate) fn note_first_datagram(&self, nanos: u64) {
        let _ = self.first_datagram.compare_exchange(
            0,
            nanos.max(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    pub(crate) fn note_block(&self, block: u32) {
        self.block.store(block, Ordering::Relaxed);
    }

    pub(crate) fn block(&self) -> Option<u32> {
        Some(self.block.load(Ordering::Relaxed)).filter(|block| *block > 0)
    }

    pub(crate) fn note_last_block(&self, now: Time) {
        self.last_block.store(now.as_nanos().max(1), Ordering::Relaxed);
    }

    pub(crate) fn last_block(&self) -> Option<Time> {
        match self.last_block.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Time::from_nanos(nanos)),
        }
    }

    pub(crate) fn first_datagram(&self) -> Option<u64> {
        match self.first_datagram.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(nanos),
        }
    }
}
