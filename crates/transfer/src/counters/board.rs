//! What the threads of one end let the rest of the process know: counters, published a few times
//! a second, never once a datagram.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use longhaul_proto::time::Time;

use super::Counters;
use crate::control::Status;
use crate::summary::Segments;
use longhaul_files::Watch;

/// One end's notice board.
#[derive(Debug, Default)]
pub(crate) struct Board {
    mine: Mutex<Counters>,
    theirs: Mutex<Counters>,
    /// When a sealed datagram last came from the other end; 0 before the first.
    heard: AtomicU64,
    /// When anything last came from the other end, by any way.
    spoke: AtomicU64,
    /// Bytes and files of the object, once the manifest is known.
    total_bytes: AtomicU64,
    total_files: AtomicU64,
    /// Time of the first data datagram, in nanoseconds of the process's clock; 0 before it.
    first_datagram: AtomicU64,
    /// The block size of the pass that runs, or ran last; 0 before the first.
    block: AtomicU32,
    /// Time of the last block that this end was waiting for; 0 before it.
    last_block: AtomicU64,
    /// What TCP has sent of the chunks, where the kernel tells.
    segments: Mutex<Option<Segments>>,
    /// This end's long work at its files.
    watch: Watch,
}

impl Board {
    /// Changes this end's counters.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut self.mine.lock().expect("no holder of a board panics"));
    }

    /// TCP has sent so many segments of the chunks by now.
    pub(crate) fn note_segments(&self, segments: Segments) {
        *self.segments.lock().expect("no holder of a board panics") = Some(segments);
    }

    /// How many segments TCP has sent of the chunks, where it carries them and the kernel tells.
    pub(crate) fn segments(&self) -> Option<Segments> {
        *self.segments.lock().expect("no holder of a board panics")
    }

    /// The calling thread carries the control stream; before the transfer it had taken `before` of
    /// CPU time.
    pub(crate) fn note_carrying(&self, before: Duration) {
        let carried = super::span(super::thread_time().saturating_sub(before));
        self.update(|counters| counters.times.carrier = carried);
    }

    /// This end's counters.
    pub(crate) fn mine(&self) -> Counters {
        let mine = self.mine.lock().expect("no holder of a board panics").clone();
        Counters { looked: self.watch.looked(), ..mine }
    }

    /// This end's counters, as it tells them to the other end.
    pub(crate) fn status(&self) -> Status {
        Status::from(&self.mine())
    }

    /// Who does long work at the files tells it of that.
    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The other end's counters, as it last told them.
    pub(crate) fn theirs(&self) -> Counters {
        self.theirs.lock().expect("no holder of a board panics").clone()
    }

    /// The other end told its counters; an older message that comes late changes nothing. Numbers
    /// beyond belief are cut: what is added up from them must not overflow.
    pub(crate) fn set_theirs(&self, status: &Status) {
        let told = Counters::from(status);
        let mut theirs = self.theirs.lock().expect("no holder of a board panics");
        if told.sender.sent >= theirs.sender.sent && told.written.bytes >= theirs.written.bytes {
            *theirs = told;
        }
    }

    /// The object's size is known.
    pub(crate) fn set_totals(&self, bytes: u64, files: u64) {
        self.total_bytes.store(bytes, Ordering::Relaxed);
        self.total_files.store(files, Ordering::Relaxed);
    }

    /// Bytes and files of the object; zero before they are known.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.total_bytes.load(Ordering::Relaxed), self.total_files.load(Ordering::Relaxed))
    }

    /// A sealed datagram came from the other end.
    pub(crate) fn note_heard(&self, now: Time) {
        self.heard.store(now.as_nanos().max(1), Ordering::Relaxed);
    }

    /// The other end has said something on the control stream.
    pub(crate) fn note_spoke(&self, now: Time) {
        self.spoke.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// When the other end last gave a sign of life, on whichever way; zero before the first.
    pub(crate) fn lived(&self) -> Time {
        let nanos = self.heard.load(Ordering::Relaxed).max(self.spoke.load(Ordering::Relaxed));
        Time::from_nanos(nanos)
    }

    /// When a sealed datagram last came from the other end, if ever.
    pub(crate) fn heard(&self) -> Option<Time> {
        match self.heard.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Time::from_nanos(nanos)),
        }
    }

    /// The first data datagram went out, or came in, at `nanos` of the process's clock.
    pub(crate) fn note_first_datagram(&self, nanos: u64) {
        let _ = self.first_datagram.compare_exchange(
            0,
            nanos.max(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// A pass begins whose blocks are of `block` bytes: a size that the path does not take is
    /// given up for the next pass.
    pub(crate) fn note_block(&self, block: u32) {
        self.block.store(block, Ordering::Relaxed);
    }

    /// The block size of the last pass; nothing before the first.
    pub(crate) fn block(&self) -> Option<u32> {
        Some(self.block.load(Ordering::Relaxed)).filter(|block| *block > 0)
    }

    /// The last block that this end was waiting for, so far, came at `now`.
    pub(crate) fn note_last_block(&self, now: Time) {
        self.last_block.store(now.as_nanos().max(1), Ordering::Relaxed);
    }

    /// When the last block came that this end was waiting for, if it has.
    pub(crate) fn last_block(&self) -> Option<Time> {
        match self.last_block.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Time::from_nanos(nanos)),
        }
    }

    /// When the first data datagram went out or came in, in nanoseconds of the process's clock.
    pub(crate) fn first_datagram(&self) -> Option<u64> {
        match self.first_datagram.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(nanos),
        }
    }
}
