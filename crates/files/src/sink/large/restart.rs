//! A new partial file after a failed sync.

use std::io;

use super::Large;
use super::journal::{read_journal, remove_journal};
use super::read_back::read_verified;
use crate::digest::Digest;
use crate::sink::attributes::PARTIAL_FILE;
use crate::sink::destination::Ground;
use crate::sink::partial;
use crate::{CHUNK, Watch, names};

impl Large {
    /// Continues in a new partial file after a failed sync. Returns the chunks that must be sent
    /// again.
    ///
    /// The new file gets the chunks in the journal, and the chunks of an earlier run that the
    /// source also has. Each is read, and written again if it verifies. If there are such chunks,
    /// the old file keeps its name and its journal until the sync of the new file has succeeded, so
    /// a kill before this sync loses nothing.
    pub(in crate::sink) fn restart(
        mut self,
        ground: &mut Ground,
        watch: &Watch,
    ) -> io::Result<(Large, Vec<u64>)> {
        let manifest = ground.manifest.clone();
        let mut new = Large::new(self.number, &manifest.entries()[self.number as usize]);
        let size = self.header.size;
        let journal = read_journal(ground, self.number, size)?;
        let journal = journal.filter(|journal| journal.header == self.header && !self.is_fresh());
        let mut kept: Vec<(u64, Digest)> = journal.map_or(Vec::new(), |journal| journal.values);
        kept.retain(|(chunk, _)| self.have.has(*chunk) && !self.is_hole(*chunk));
        kept.extend(self.found.iter().filter(|(chunk, _)| !self.have.has(*chunk)));
        let (folder, name) = ground.at(self.number)?;
        let (old, restarted) = (names::partial(&name), names::restarted(&name));
        if kept.is_empty() {
            remove_journal(folder, &name)?;
            folder.remove(&old)?;
            let file = folder.create(&old, PARTIAL_FILE)?;
            file.lock()?;
            new.begin(file)?;
        } else {
            folder.remove(&restarted)?;
            let file = folder.create(&restarted, PARTIAL_FILE)?;
            file.lock()?;
            new.begin(file)?;
            let how = new.writing;
            let (from, to) = (self.file(ground)?, new.file(ground)?);
            let mut copied = Vec::new();
            for (chunk, value) in kept {
                watch.go_on()?;
                if let Some(content) = read_verified(from, size, chunk, &value) {
                    partial::write(to, how, chunk * CHUNK, &content)?;
                    copied.push((chunk, value));
                }
            }
            to.sync_data()?;
            let (folder, name) = ground.at(self.number)?;
            // The old journal must not describe the new file, not even after a power failure.
            remove_journal(folder, &name)?;
            folder.rename(&restarted, &old)?;
            copied.into_iter().for_each(|(chunk, value)| new.take(chunk, value));
            new.sync(ground)?;
        }
        let had = self.have.runs(true).into_iter().flatten();
        let lost = had.filter(|chunk| !new.have.has(*chunk) && !self.is_hole(*chunk)).collect();
        Ok((new, lost))
    }

    /// Returns whether this copy has neither written a journal nor resumed from one.
    fn is_fresh(&self) -> bool {
        self.journal_end == 0
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::single_range_in_vec_init, reason = "the lists have one range")]

    use super::*;
    use crate::digest::file_value;
    use crate::manifest::FileTime;
    use crate::sink::large::HoleBudget;
    use crate::sink::large::journal::open_journal;
    use crate::{Kind, Listed, Manifest, Place, Shape};

    const SIZE: u64 = 6 * CHUNK;

    fn begun(top: &std::path::Path) -> (Ground, Large) {
        let place = Place::Ambient(top.join("x"));
        let kind = Kind::File { size: SIZE, sparse: true, holes: Box::new([1..3]) };
        let modified = FileTime::default();
        let listed = Listed { path: b"x"[..].into(), kind, mode: 0o600, modified };
        let manifest = Manifest::new(Shape::File, vec![listed]).unwrap();
        let mut ground = Ground::open(&place, &manifest.into(), true).unwrap();
        let large = Large::create(0, &mut ground).unwrap();
        (ground, large)
    }

    #[test]
    fn a_journal_that_this_copy_has_not_written_is_not_trusted() {
        let top = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let (mut ground, mut large) = begun(top.path());
        let [content, older] = [7, 8].map(|byte| vec![byte; CHUNK as usize]);
        let [own, others] = [&content, &older].map(|content| file_value(SIZE, 0, content));
        large.write(&mut ground, 0, &content, own).unwrap();
        // After the failed sync, the content and the journal of another run are back.
        large.lose_pending();
        large.file(&mut ground).unwrap().write_all_at(&older, 0).unwrap();
        let journal = [large.header.encode(), large.header.encode_record(0, &others)].concat();
        open_journal(&mut ground, 0).unwrap().write_all_at(&journal, 0).unwrap();
        let (new, lost) = large.restart(&mut ground, &Watch::default()).unwrap();
        assert_eq!((new.verified(), lost), (vec![], vec![0]));
    }

    #[test]
    fn a_new_partial_file_has_the_journalled_chunks_and_no_chunk_of_a_hole_is_sent_again() {
        let top = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let (mut ground, mut large) = begun(top.path());
        let content = vec![7; CHUNK as usize];
        for chunk in [0, 3] {
            let value = file_value(SIZE, chunk, &content);
            large.write(&mut ground, chunk, &content, value).unwrap();
        }
        large.sync(&mut ground).unwrap();
        // The journal also has a record of a hole's chunk.
        let value = file_value(SIZE, 1, &vec![0; CHUNK as usize]);
        let record = large.header.encode_record(1, &value);
        let journal = open_journal(&mut ground, 0).unwrap();
        journal.write_all_at(&record, large.journal_end).unwrap();
        large.write(&mut ground, 4, &content, file_value(SIZE, 4, &content)).unwrap();
        // Chunks 3 and 5 of an earlier run equal the source's. This run has written chunk 3 too.
        large.file(&mut ground).unwrap().write_all_at(&content, 5 * CHUNK).unwrap();
        large.expect_found(&[3, 5].map(|chunk| (chunk, file_value(SIZE, chunk, &content))));
        let watch = Watch::default();
        large.hash_holes(&mut HoleBudget::default(), 0, &watch);
        large.lose_pending();
        let (new, lost) = large.restart(&mut ground, &watch).unwrap();
        assert_eq!((new.verified(), new.missing, lost), (vec![0..1, 3..4, 5..6], 1, vec![4]));
        assert!(!new.has_lost() && !new.has_pending());
    }
}
