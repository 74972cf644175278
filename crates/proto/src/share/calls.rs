//! A server's tree of small values, and its writers (the programs that edit it). [`Calls`] does not
//! make a repeated edit again: it returns the first outcome, or [`Refusal::Unknown`] if it has
//! discarded the outcome. Edits of a presence (a value that vanishes with its writer) are an
//! exception: if the presence has vanished, a repeated edit is made again.

use alloc::vec::Vec;

use super::edits::Hold;
use super::tree::{Change, Condition, Edit, Refusal, Tree};
use super::writers::{Crowd, Known, Rows, Writer, Writers};

/// A stream (connection) of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By {
    /// The writer.
    pub writer: Writer,
    /// The stream's number, from 1, unique within a server.
    pub stream: u64,
}

/// An edit that arrived on a stream.
#[derive(Clone, Debug)]
pub struct Call {
    /// The stream.
    pub by: By,
    /// The edit's number.
    pub number: u64,
    /// Whether the edit was sent before, on a stream that was lost.
    pub again: bool,
    /// The edit. [`Calls::edit`] sets its owner.
    pub edit: Edit,
}

/// The outcome of a call: the version of the edited key (0 if a missing key was deleted), and the
/// change, if any.
pub type Made = Result<(u64, Option<Change>), Refusal>;

/// The tree and its writers.
#[derive(Debug)]
pub struct Calls {
    tree: Tree,
    writers: Writers,
}

impl Calls {
    /// A tree and its writers, as read from the disk.
    pub fn new(tree: Tree, writers: Writers) -> Calls {
        Calls { tree, writers }
    }

    /// The tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Begins a stream; see [`Writers::begin`].
    ///
    /// # Errors
    /// See [`Writers::begin`].
    pub fn begin(&mut self, by: By, is_first: bool, seen: Option<u64>) -> Result<u64, Crowd> {
        self.writers.begin(by.writer, by.stream, is_first, seen)
    }

    /// Makes an edit, unless it was made before.
    ///
    /// # Errors
    /// [`Refusal`]: this call did not make the edit.
    pub fn edit(&mut self, call: Call, is_presence: bool) -> Made {
        let Call { by: By { writer, stream }, number, again, mut edit } = call;
        match self.writers.known(writer, stream, number, again) {
            Known::Made(version) => return Ok((version, None)),
            Known::Unknown => return Err(Refusal::Unknown),
            Known::Replaced => return Err(Refusal::Replaced),
            Known::New => {}
        }
        let owner = self.writers.owner(writer, stream);
        if let Condition::NotSince(_) = edit.condition
            && let Some(entry) = self.tree.entry(edit.key.as_str())
            && (entry.owner.is_some_and(|had| Some(had) == owner)
                || self.writers.wrote(writer, entry.version))
        {
            // `NotSince` must not fail because of the writer's own change.
            edit.condition = Condition::Always;
        }
        edit.owner = owner.filter(|_| is_presence && edit.value.is_some());
        let is_presence = edit.owner.is_some();
        let change = self.tree.apply(edit)?;
        let version = change.as_ref().map_or(0, |change| change.version);
        self.writers.made(writer, number, version, is_presence);
        Ok((version, change))
    }

    /// Resumes a presence that an earlier stream of the writer created. If the presence has
    /// vanished, it is created again.
    ///
    /// # Errors
    /// [`Refusal`]: the presence was not resumed. A vanished strict presence (set under a
    /// condition) is never created again.
    pub fn hold(&mut self, by: By, hold: Hold) -> Made {
        let owner = self.writers.owner(by.writer, by.stream).ok_or(Refusal::Replaced)?;
        let had = self.tree.entry(hold.key.as_str());
        match had {
            Some(had) if had.owner == Some(owner) && had.value == hold.value => {
                return Ok((had.version, None));
            }
            Some(had) if had.owner == Some(owner) => {}
            None if !hold.is_strict => {}
            other => return Err(Refusal::Conflict(other.cloned())),
        }
        let Hold { key, value, .. } = hold;
        let condition = Condition::Always;
        let edit = Edit { key, value: Some(value), condition, owner: Some(owner) };
        let change = self.tree.apply(edit)?;
        Ok((change.as_ref().map_or(0, |change| change.version), change))
    }

    /// Ends a stream as [`Writers::ended`] does. If the stream was its writer's current one,
    /// deletes all presences of the writer.
    pub fn ended(&mut self, by: By, is_last: bool) -> Vec<Change> {
        let owner = self.writers.ended(by.writer, by.stream, is_last);
        owner.map(|owner| self.tree.vanish(owner)).unwrap_or_default()
    }

    /// Whether outcomes must be stored before they are sent.
    pub fn must_store(&self) -> bool {
        self.writers.must_store()
    }

    /// The writers' data for the disk to store.
    pub fn take_rows(&mut self) -> Rows {
        self.writers.take_rows()
    }

    /// The version that an edit created, if the edit was made and is remembered.
    pub fn known(&self, writer: Writer, number: u64) -> Option<u64> {
        self.writers.outcome(writer, number)
    }
}
