//! The server's memory of its clients' edits of the tree. A repeated edit is not applied again: the
//! client gets the first outcome, or learns that the outcome is unknown.
//!
//! A writer is a client's program, identified by the client's key and a random number that the
//! program chose. A writer numbers its edits. Each new stream of a writer replaces the writer's old
//! stream. From then on the server refuses edits of the old stream. The server remembers which of
//! the last [`WINDOW`] edits were made, and stores this on disk together with the values. Edits of
//! presence (values that vanish with the writer) are remembered only in memory, until the presence
//! vanishes; if such an edit is sent again after that, it is applied again.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// The number of a writer's edits whose outcomes are remembered; also the most edits in flight.
pub const WINDOW: u64 = 64;

/// Maximum number of remembered writers per client.
pub const WRITERS: usize = 256;

/// A program that edits the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Writer {
    /// The client's key, proven by the session.
    pub client: [u8; 32],
    /// The program's random number.
    pub instance: u64,
}

/// The status of an edit when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Already made, with this version.
    Made(u64),
    /// Not made.
    New,
    /// Possibly made: the outcome is forgotten.
    Unknown,
    /// The edit's stream has ended, or another stream of the writer has replaced it.
    Replaced,
}

#[derive(Clone, Copy, Debug)]
struct Made {
    version: u64,
    is_presence: bool,
}

#[derive(Debug, Default)]
struct Record {
    made: BTreeMap<u64, Made>,
    /// The current stream; edits of other streams are refused. `None` if there is no stream.
    stream: Option<u64>,
    /// Owner of the writer's presence (values that vanish with the writer): the number of the
    /// stream that began when the writer had no open stream.
    owner: u64,
    /// Whether outcomes of edits on earlier streams may have been discarded.
    is_blind: bool,
    /// When a stream of the writer last ended, on a clock that advances with each ended stream of
    /// any writer.
    used: u64,
}

impl Record {
    fn stored(&self) -> Vec<(u64, u64)> {
        let kept = self.made.iter().filter(|(_, made)| !made.is_presence);
        kept.map(|(number, made)| (*number, made.version)).collect()
    }
}

/// A writer on the disk: the numbers and versions of edits that were made.
pub type Row = (Writer, Vec<(u64, u64)>);

/// The writers' data to store together with the tree's changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Changed writers. A writer without edits must be removed from the disk.
    pub writers: Vec<Row>,
    /// How often outcomes of a client were discarded.
    pub forgotten: Vec<([u8; 32], u64)>,
}

/// All writers.
#[derive(Debug, Default)]
pub struct Writers {
    records: BTreeMap<Writer, Record>,
    forgotten: BTreeMap<[u8; 32], u64>,
    changed: BTreeSet<Writer>,
    newly_forgotten: BTreeSet<[u8; 32]>,
    uses: u64,
}

impl Writers {
    /// The writers of an earlier run.
    pub fn new(rows: Rows) -> Writers {
        let mut writers = Writers::default();
        for (writer, made) in rows.writers {
            let made = made.into_iter();
            let made = made.map(|(number, version)| (number, Made { version, is_presence: false }));
            let made: BTreeMap<u64, Made> = made.collect();
            // The disk does not store when a writer was last active. The newest version that the
            // writer made stands for this time.
            let used = made.values().map(|made| made.version).max().unwrap_or(0);
            writers.uses = writers.uses.max(used);
            writers.records.insert(writer, Record { made, used, ..Record::default() });
        }
        writers.forgotten = rows.forgotten.into_iter().collect();
        writers
    }

    /// Begins the stream `stream` of `writer`; streams are numbered from 1. Returns how often
    /// outcomes of this client were discarded. `seen` is the count that the writer last got when it
    /// had no edit in doubt (sent on a lost stream and not acknowledged), if any. `is_first`: the
    /// writer had no stream before.
    ///
    /// # Errors
    /// The client already has [`WRITERS`] writers with a stream.
    pub fn begin(
        &mut self,
        writer: Writer,
        stream: u64,
        is_first: bool,
        seen: Option<u64>,
    ) -> Result<u64, Crowd> {
        if !self.records.contains_key(&writer) {
            self.make_room(writer.client)?;
        }
        let forgotten = self.forgotten.get(&writer.client).copied().unwrap_or(0);
        // A writer without a record has made no edit here except of presence, or its record was
        // discarded. If the client's count has not changed, nothing was discarded.
        let is_blind = !is_first && seen.map_or(forgotten > 0, |seen| seen != forgotten);
        let new = || Record { is_blind, ..Record::default() };
        let record = self.records.entry(writer).or_insert_with(new);
        if record.stream.is_none() {
            record.owner = stream;
        }
        record.stream = Some(stream);
        Ok(forgotten)
    }

    fn make_room(&mut self, client: [u8; 32]) -> Result<(), Crowd> {
        let of = |instance| Writer { client, instance };
        let all = self.records.range(of(0)..=of(u64::MAX));
        if all.clone().count() < WRITERS {
            return Ok(());
        }
        let idle = all.filter(|(_, record)| record.stream.is_none());
        let oldest = idle.min_by_key(|(_, record)| record.used).map(|(writer, _)| *writer);
        let oldest = oldest.ok_or(Crowd)?;
        self.records.remove(&oldest);
        self.changed.insert(oldest);
        *self.forgotten.entry(client).or_default() += 1;
        self.newly_forgotten.insert(client);
        Ok(())
    }

    /// The status of edit `number` that arrived on `stream`; `again` says whether the edit was sent
    /// before.
    pub fn known(&self, writer: Writer, stream: u64, number: u64, again: bool) -> Known {
        let current = self.records.get(&writer).filter(|record| record.stream == Some(stream));
        let Some(record) = current else { return Known::Replaced };
        if let Some(made) = record.made.get(&number) {
            return Known::Made(made.version);
        }
        let newest = record.made.last_key_value().map_or(0, |(number, _)| *number);
        match number.saturating_add(WINDOW) <= newest || (again && record.is_blind) {
            true => Known::Unknown,
            false => Known::New,
        }
    }

    /// The version that edit `number` created, if it was made and is remembered.
    pub fn outcome(&self, writer: Writer, number: u64) -> Option<u64> {
        let made = self.records.get(&writer)?.made.get(&number)?;
        Some(made.version)
    }

    /// The owner of the presence of `writer`, if `stream` is its current stream.
    pub fn owner(&self, writer: Writer, stream: u64) -> Option<u64> {
        let current = self.records.get(&writer).filter(|record| record.stream == Some(stream));
        current.map(|record| record.owner)
    }

    /// Whether an edit of `writer` created this version.
    pub fn wrote(&self, writer: Writer, version: u64) -> bool {
        let record = self.records.get(&writer);
        record.is_some_and(|record| record.made.values().any(|made| made.version == version))
    }

    /// Records that edit `number` was made.
    pub fn made(&mut self, writer: Writer, number: u64, version: u64, is_presence: bool) {
        let Some(record) = self.records.get_mut(&writer) else { return };
        record.made.insert(number, Made { version, is_presence });
        let newest = record.made.last_key_value().map_or(0, |(number, _)| *number);
        record.made.retain(|number, _| number.saturating_add(WINDOW) > newest);
        if !is_presence {
            self.changed.insert(writer);
        }
    }

    /// Ends a stream. `is_last`: the writer has received all answers, and opens no further stream.
    /// Returns the owner whose presence vanishes; `None` if this is not the writer's current
    /// stream.
    pub fn ended(&mut self, writer: Writer, stream: u64, is_last: bool) -> Option<u64> {
        let record = self.records.get_mut(&writer)?;
        if record.stream != Some(stream) {
            return None;
        }
        self.uses += 1;
        record.stream = None;
        record.used = self.uses;
        let owner = record.owner;
        // If an edit of the vanished presence is sent again, it must create the presence again.
        record.made.retain(|_, made| !made.is_presence);
        if is_last || (record.made.is_empty() && !record.is_blind) {
            self.records.remove(&writer);
            self.changed.insert(writer);
        }
        Some(owner)
    }

    /// Whether an edit (other than of presence) was made that is not yet on the disk.
    pub fn must_store(&self) -> bool {
        let stored = |writer| self.records.get(writer).is_some_and(|r| !r.stored().is_empty());
        self.changed.iter().any(stored)
    }

    /// Returns the rows that changed since the last call, to be stored on the disk.
    pub fn take_rows(&mut self) -> Rows {
        let stored = |writer| self.records.get(&writer).map_or(Vec::new(), Record::stored);
        let changed = core::mem::take(&mut self.changed);
        let writers = changed.into_iter().map(|writer| (writer, stored(writer))).collect();
        let times = |client| self.forgotten.get(&client).copied().unwrap_or(0);
        let forgotten = core::mem::take(&mut self.newly_forgotten).into_iter();
        Rows { writers, forgotten: forgotten.map(|client| (client, times(client))).collect() }
    }
}

/// Error: a client has too many writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd;
