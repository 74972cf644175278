//! The tree's file: a redb database.
//!
//! Every commit is synced before it counts (`Durability::Immediate`): what a client was told
//! survives a killed process and a power cut. Presence is not stored.

use std::path::Path;
use std::sync::Arc;

use longhaul_proto::share::{Change, Disk as OnDisk, Entry, Key, Limits, Tree};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

/// Key → version and value.
const VALUES: TableDefinition<'_, &str, (u64, &[u8])> = TableDefinition::new("values");
/// Numbers of the tree.
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
/// No revision above this one was ever given out.
const CEILING: &str = "ceiling";
/// How far the ceiling is raised at once: changes of presence alone then need no commit.
const AHEAD: u64 = 4096;

/// The open file.
#[derive(Debug)]
pub(crate) struct Disk {
    database: Database,
    ceiling: u64,
}

/// What redb reports, as text: its error types have nothing that we would decide by.
pub(crate) type Trouble = redb::Error;

impl Disk {
    /// Opens the file at `path`, or makes it.
    pub(crate) fn open(path: &Path) -> Result<Disk, Trouble> {
        Disk::over(Database::create(path)?)
    }

    pub(crate) fn over(database: Database) -> Result<Disk, Trouble> {
        let mut disk = Disk { database, ceiling: 0 };
        let begun = disk.begin()?;
        // Makes the tables of a new file.
        begun.open_table(VALUES)?;
        disk.ceiling = begun.open_table(NUMBERS)?.get(CEILING)?.map_or(0, |number| number.value());
        begun.commit()?;
        Ok(disk)
    }

    fn begin(&self) -> Result<redb::WriteTransaction, Trouble> {
        let mut begun = self.database.begin_write()?;
        begun.set_durability(Durability::Immediate).map_err(redb::Error::from)?;
        Ok(begun)
    }

    /// Reads the whole tree. Its revision is one that no earlier run gave out.
    pub(crate) fn load(&self, limits: Limits) -> Result<Tree, Trouble> {
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
        Ok(Tree::new(limits, newest, entries))
    }

    /// Stores changes and syncs them; nothing is written where they are all presence.
    pub(crate) fn commit(&mut self, changes: &[Change]) -> Result<(), Trouble> {
        let last = changes.last().map_or(0, |change| change.version);
        let is_above = last > self.ceiling;
        if !is_above && changes.iter().all(|change| change.disk == OnDisk::Untouched) {
            return Ok(());
        }
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
