//! The journal of a large file lists the chunks that are on disk. A chunk gets its record after the
//! sync of the partial file.

use std::io;

use super::Large;
use crate::journal::{Header, Journal};
use crate::names;
use crate::sink::destination::Ground;
use crate::sink::partial;
use crate::store::{Access, Folder, OpenFile};

impl Large {
    /// Syncs the partial file, and adds the verified chunks to the journal. If a sync of names has
    /// failed before the file's name was on disk, the chunks stay pending until the file is
    /// complete.
    pub(in crate::sink) fn sync(&mut self, ground: &mut Ground) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let synced = self.file(ground)?.sync_data();
        self.judge_sync(synced)?;
        if !self.is_named {
            // If the name is not on disk, a power failure loses the whole file, so nothing is added
            // to the journal before the folder is synced. After a failed sync, a second one would
            // prove nothing.
            if ground.names_lost.is_some() {
                return Ok(());
            }
            if let Err(error) = ground.at(self.number)?.0.sync() {
                ground.lose_names(&error);
                return Ok(());
            }
            self.is_named = true;
        }
        let mut records = Vec::new();
        if self.journal_end == 0 {
            records.extend(self.header.encode());
        }
        for (chunk, value) in &self.pending {
            records.extend(self.header.encode_record(*chunk, value));
        }
        // Overwrites a record that was written only in part because of an earlier error.
        open_journal(ground, self.number)?.write_all_at(&records, self.journal_end)?;
        self.journal_end += records.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Drops the pending chunks if a sync has failed, and returns the sync's result. A failed sync
    /// marks the unwritten pages as clean, so a second sync would succeed and prove nothing.
    pub(super) fn judge_sync(&mut self, synced: io::Result<()>) -> io::Result<()> {
        if synced.is_err() {
            self.lose_pending();
        }
        synced
    }

    pub(in crate::sink) fn lose_pending(&mut self) {
        self.pending.clear();
        self.has_lost = true;
    }

    pub(in crate::sink) fn has_lost(&self) -> bool {
        self.has_lost
    }

    pub(in crate::sink) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Removes the journal, so that a later run has to compare the partial file.
    pub(in crate::sink) fn distrust(self, ground: &mut Ground) -> io::Result<()> {
        let (folder, name) = ground.at(self.number)?;
        remove_journal(folder, &name)
    }

    /// Cuts the journal `sound` after its last valid record; without a `sound` journal, removes the
    /// journal.
    pub(super) fn settle_journal(
        &mut self,
        ground: &mut Ground,
        sound: Option<&Journal>,
    ) -> io::Result<()> {
        match sound {
            Some(journal) => {
                self.journal_end = journal.sound;
                open_journal(ground, self.number)?.set_len(journal.sound)
            }
            None => {
                let (folder, name) = ground.at(self.number)?;
                folder.remove(&names::journal(&name))?;
                // Sync even if the journal does not exist. An earlier run may have failed to sync
                // the removal, and the journal could reappear after a power failure.
                folder.sync()
            }
        }
    }
}

/// Removes the journal of the file `name`, and syncs the removal: after a power failure the journal
/// must not describe another partial file.
pub(in crate::sink) fn remove_journal(folder: &dyn Folder, name: &[u8]) -> io::Result<()> {
    let journal = names::journal(name);
    if folder.look_if_there(&journal)?.is_some() {
        folder.remove(&journal)?;
        folder.sync()?;
    }
    Ok(())
}

pub(super) fn open_journal(ground: &mut Ground, number: u32) -> io::Result<OpenFile> {
    let (folder, name) = ground.at(number)?;
    let name = names::journal(&name);
    match folder.open(&name, Access::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => folder.create(&name, 0o600),
        opened => opened,
    }
}

/// Reads the journal of a partial file of at most `size` bytes; `None` if there is no valid one.
pub(super) fn read_journal(
    ground: &mut Ground,
    number: u32,
    size: u64,
) -> io::Result<Option<Journal>> {
    let (folder, name) = ground.at(number)?;
    let Ok(file) = folder.open(&names::journal(&name), Access::Read) else {
        // The journal counts as missing; `settle_journal` removes whatever is in its place.
        return Ok(None);
    };
    if !partial::is_own(&file.attributes()?) {
        return Ok(None);
    }
    let bytes = file.read_start(Header::longest(size));
    Ok(bytes.ok().and_then(|bytes| Journal::decode(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::large::remove_remains;
    use crate::sink::large::tests::ground;
    use crate::{CHUNK, digest};

    #[test]
    fn a_folder_in_place_of_a_partial_file_or_journal_is_an_error() {
        let (disk, mut ground) = ground();
        for name in [names::partial(b"x"), names::journal(b"x")] {
            disk.root().make_folder(&name, 0o700).unwrap();
        }
        let errors = [remove_remains(0, &mut ground), open_journal(&mut ground, 0).map(drop)];
        assert_eq!(errors.map(|it| it.unwrap_err().kind()), [io::ErrorKind::IsADirectory; 2]);
    }

    #[test]
    fn a_new_partial_file_has_no_old_journal_even_after_a_power_failure() {
        let (disk, mut ground) = ground();
        disk.root().create(&names::journal(b"x"), 0o600).unwrap();
        disk.root().sync().unwrap();
        Large::create(0, &mut ground).unwrap();
        assert!(!disk.tree(true).contains_key(&names::journal(b"x")));
    }

    #[test]
    fn nothing_is_journalled_before_the_name_of_the_partial_file_is_on_disk() {
        use crate::store::memory::Faults;
        let (disk, mut ground) = ground();
        let mut large = Large::create(0, &mut ground).unwrap();
        let content = vec![1; CHUNK as usize];
        let value = digest::file_value(2 * CHUNK, 0, &content);
        large.write(&mut ground, 0, &content, value).unwrap();
        // After the failed sync, a sync that succeeds proves nothing.
        for faults in [Faults { folder_sync: 10_000, ..Faults::default() }, Faults::default()] {
            disk.set_faults(faults);
            large.sync(&mut ground).unwrap();
            assert_eq!((large.has_pending(), disk.struck().0.folder_sync), (true, 1));
        }
    }
}
