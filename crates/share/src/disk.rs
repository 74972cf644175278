//! The file of a shared tree of values: a redb database. Every commit is synced before it is
//! acknowledged (`Durability::Immediate`). Presence (values that end with their writer's
//! connection) is not stored.
//!
//! Each change gives the tree the next revision (a number). The version of a key is the revision of
//! its last change.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use longhaul_proto::share::{
    Calls, Change, Disk as OnDisk, Entry, Key, Limits, Rows, Tree, Writer, Writers,
};
use redb::backends::FileBackend;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

/// Numbers of edits, and the versions that they made.
type Outcomes = Vec<(u64, u64)>;

/// Key → version and value.
const VALUES: TableDefinition<'_, &str, (u64, &[u8])> = TableDefinition::new("values");
/// A writer's client and number → its recent edits' numbers and versions.
const WRITERS: TableDefinition<'_, ([u8; 32], u64), Outcomes> = TableDefinition::new("writers");
/// Client → how often outcomes of its edits were discarded.
const FORGOTTEN: TableDefinition<'_, [u8; 32], u64> = TableDefinition::new("forgotten");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
/// Name of the stored limit on revisions. No run of the server has used a revision above this
/// limit.
const CEILING: &str = "ceiling";
/// A new stored limit is this far above the last revision. Changes of presence alone need a commit
/// only if their revision exceeds the limit.
const AHEAD: u64 = 4096;

/// Opens a file. A new file is readable by its owner only.
pub(crate) fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[derive(Debug)]
pub(crate) struct Disk {
    database: Database,
    ceiling: u64,
}

pub(crate) type Trouble = redb::Error;

impl Disk {
    pub(crate) fn open(path: &Path) -> Result<Disk, Trouble> {
        let file = open_private(path).map_err(redb::Error::Io)?;
        Disk::over(Database::builder().create_with_backend(FileBackend::new(file)?)?)
    }

    pub(crate) fn over(database: Database) -> Result<Disk, Trouble> {
        let mut disk = Disk { database, ceiling: 0 };
        let begun = disk.begin()?;
        begun.open_table(VALUES)?;
        begun.open_table(WRITERS)?;
        begun.open_table(FORGOTTEN)?;
        disk.ceiling = begun.open_table(NUMBERS)?.get(CEILING)?.map_or(0, |number| number.value());
        begun.commit()?;
        Ok(disk)
    }

    fn begin(&self) -> Result<redb::WriteTransaction, Trouble> {
        let mut begun = self.database.begin_write()?;
        begun.set_durability(Durability::Immediate).map_err(redb::Error::from)?;
        Ok(begun)
    }

    /// Reads the tree and its writers. The tree gets a revision above all earlier ones, so a
    /// watcher with an earlier revision needs a new snapshot.
    pub(crate) fn load(&self, limits: Limits) -> Result<Calls, Trouble> {
        let reading = self.database.begin_read()?;
        let table = reading.open_table(VALUES)?;
        let mut entries = Vec::new();
        let mut newest = self.ceiling;
        for row in table.iter()? {
            let (key, value) = row?;
            let Ok(key) = Key::new(key.value()) else { continue };
            let (version, value) = value.value();
            newest = newest.max(version);
            entries.push((key, Entry { value: Arc::from(value), version, owner: None }));
        }
        let mut rows = Rows::default();
        for row in reading.open_table(WRITERS)?.iter()? {
            let (writer, made) = row?;
            let (client, instance) = writer.value();
            rows.writers.push((Writer { client, instance }, made.value()));
        }
        for row in reading.open_table(FORGOTTEN)?.iter()? {
            let (client, times) = row?;
            rows.forgotten.push((client.value(), times.value()));
        }
        Ok(Calls::new(Tree::new(limits, newest + 1, entries), Writers::new(rows)))
    }

    /// Returns whether changes need a commit.
    pub(crate) fn must_store(&self, changes: &[Change]) -> bool {
        let last = changes.last().map_or(0, |change| change.version);
        last > self.ceiling || changes.iter().any(|change| change.disk != OnDisk::Untouched)
    }

    pub(crate) fn commit(&mut self, changes: &[Change], rows: &Rows) -> Result<(), Trouble> {
        let last = changes.last().map_or(0, |change| change.version);
        let is_above = last > self.ceiling;
        let ceiling = if is_above { last + AHEAD } else { self.ceiling };
        let begun = self.begin()?;
        {
            let mut table = begun.open_table(VALUES)?;
            for change in changes {
                let key = change.key.as_str();
                match (change.disk, &change.value) {
                    (OnDisk::Store, Some(value)) => {
                        table.insert(key, (change.version, &**value))?;
                    }
                    (OnDisk::Remove, _) => drop(table.remove(key)?),
                    _ => {}
                }
            }
            let mut writers = begun.open_table(WRITERS)?;
            for (Writer { client, instance }, made) in &rows.writers {
                match made.is_empty() {
                    true => drop(writers.remove((*client, *instance))?),
                    false => drop(writers.insert((*client, *instance), made)?),
                }
            }
            let mut forgotten = begun.open_table(FORGOTTEN)?;
            for (client, times) in &rows.forgotten {
                forgotten.insert(client, times)?;
            }
            if is_above {
                begun.open_table(NUMBERS)?.insert(CEILING, ceiling)?;
            }
        }
        begun.commit()?;
        self.ceiling = ceiling;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
