//! The plan, made before the first chunk is written: equal entries, data of an earlier run, and
//! entries to create.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::alike::Alike;
use super::large::{self, Large};
use super::partial;
use super::space::{self, Need};
use super::{Compare, Comparing, Plan, Sink, State, attributes};
use crate::digest::Digest;
use crate::error::{Error, FileErrorKind};
use crate::manifest::FileTime;
use crate::place::as_path;
use crate::store::{Access, Attributes, File, NameKind, OpenFile};
use crate::watch::Held;
use crate::{CHUNK, Entry, Kind, Watch, names};

/// Interval between checks whether another copy has unlocked a file.
const ASK_AGAIN: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct Walk {
    /// The outermost new folder that the walk is in. Nothing exists below this folder yet.
    new: Option<u32>,
    /// The outermost failed folder that the walk is in. The folder's content fails too.
    lost: Option<u32>,
    need: Need,
    resumed: u64,
    skipped: Vec<u32>,
    compare: Vec<Compare>,
}

/// The existing file under the final name, which may have some of the new content.
#[derive(Debug)]
pub(super) struct Basis {
    file: OpenFile,
    attributes: Attributes,
}

impl Basis {
    pub(super) fn open(ground: &mut super::Ground, number: u32) -> io::Result<Basis> {
        let (folder, name) = ground.at(number)?;
        let file = folder.open(&name, Access::Read)?;
        let attributes = file.attributes()?;
        Ok(Basis { file, attributes })
    }

    /// Returns whether this is the file that `earlier` describes, apparently unchanged.
    pub(super) fn is_still(&self, earlier: &Attributes) -> io::Result<bool> {
        let now = self.file.attributes()?;
        let all = |of: &Attributes| (of.identity, of.size, of.modified, of.changed);
        Ok(all(&now) == all(earlier))
    }

    pub(super) fn is_unchanged(&self) -> io::Result<bool> {
        self.is_still(&self.attributes)
    }

    pub(super) fn is_of(&self, size: u64) -> bool {
        self.attributes.size == size
    }

    fn values(&self, size: u64, watch: &Watch) -> io::Result<Vec<(u64, Digest)>> {
        let value = |chunk| {
            watch.go_on()?;
            let value = large::read_value(&*self.file, size, chunk);
            Ok(value.ok().map(|value| (chunk, value)))
        };
        let values = (0..size.min(self.attributes.size).div_ceil(CHUNK)).map(value);
        values.filter_map(Result::transpose).collect()
    }

    pub(super) fn read(&self, at: u64, content: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(content, at)
    }

    pub(super) fn file(&self) -> &dyn File {
        &*self.file
    }
}

/// Returns whether a file equals the source's, judged by size and time.
fn is_equal(found: &Attributes, entry: &Entry) -> bool {
    // Some file systems store whole seconds only.
    let same_time = |there: FileTime, source: FileTime| {
        there.seconds == source.seconds && (there.nanos == source.nanos || there.nanos == 0)
    };
    entry.size() == Some(found.size) && same_time(found.modified, entry.modified)
}

/// Returns whether an entry is below `folder`. Valid only while the entries are visited in order:
/// the caller must stop at the first entry that is not below `folder`.
pub(super) fn is_below(entry: &Entry, folder: Option<u32>) -> bool {
    folder.is_some_and(|folder| entry.parent().is_some_and(|parent| parent >= folder))
}

impl Sink {
    /// Examines the place of every entry; creates folders and resumes partial files unless it is a
    /// dry run.
    pub(super) fn plan(&mut self) -> Result<Plan, Error> {
        let manifest = self.ground.manifest.clone();
        let mut walk = Walk::default();
        // A dry run creates nothing, so it cannot test whether the destination ignores case.
        let mut alike = (!self.options.dry_run).then(|| Alike::new(&manifest));
        for (number, entry) in manifest.entries().iter().enumerate() {
            let number = number as u32;
            self.watch.go_on().map_err(|_| left_off())?;
            if !is_below(entry, walk.new) {
                walk.new = None;
            }
            if !is_below(entry, walk.lost) {
                walk.lost = None;
            } else {
                self.give_up(number, "the folder that holds it failed".to_owned());
                continue;
            }
            let is_new = walk.new.is_some() || self.ground.is_missing;
            let checked = match &mut alike {
                Some(alike) => alike.check(&mut self.ground, number),
                None => Ok(()),
            };
            let planned = checked.and_then(|()| match entry.kind {
                Kind::Folder => self.plan_folder(number, is_new, &mut walk),
                Kind::Link { .. } => self.plan_link(number, entry, is_new, &mut walk),
                Kind::File { size, .. } => self.plan_file(number, entry, size, is_new, &mut walk),
            });
            let planned = planned.and_then(|()| self.check_may_create(number, is_new, &walk));
            if let Err(error) = planned {
                if self.watch.is_over() {
                    return Err(left_off());
                }
                if entry.kind == Kind::Folder {
                    walk.lost = Some(number);
                }
                self.local_failure(number, &error)?;
            } else {
                self.close_the_oldest()?;
                self.have_alone(number)?;
            }
        }
        if !self.options.dry_run {
            space::check(&**self.ground.base(), &self.ground.place, walk.need)?;
            self.begin_single()?;
        }
        self.needed = self.find_needed();
        self.needless.clear();
        Ok(Plan {
            have: self.have(),
            compare: walk.compare,
            skipped: walk.skipped,
            resumed_bytes: walk.resumed,
            bytes_due: self.bytes_due(),
        })
    }

    fn check_may_create(&mut self, number: u32, is_new: bool, walk: &Walk) -> io::Result<()> {
        let is_settled =
            self.states[number as usize] != State::Due || walk.skipped.last() == Some(&number);
        let is_open = self.comparing.contains_key(&number);
        if !self.options.dry_run || is_new || is_settled || is_open {
            return Ok(());
        }
        self.check_folder_allows(number)
    }

    pub(super) fn check_folder_allows(&mut self, number: u32) -> io::Result<()> {
        let (folder, _) = self.ground.at(number)?;
        folder.may_write()
    }

    fn plan_folder(&mut self, number: u32, is_new: bool, walk: &mut Walk) -> io::Result<()> {
        let dry = self.options.dry_run;
        if dry && is_new {
            return Ok(());
        }
        let (folder, name) = self.ground.at(number)?;
        let found = if is_new { None } else { folder.look_if_there(&name)? };
        match found {
            Some(found) if found.kind == NameKind::Folder => {
                if attributes::is_unfinished(&found) {
                    self.unfinished.insert(number.into());
                }
                self.ground.note_device(number, found.identity.0)?;
                walk.skipped.push(number);
            }
            Some(found) => {
                let what = match found.kind {
                    NameKind::Link => "a link is in its place and is not followed",
                    _ => "something that is not a folder is in its place",
                };
                return Err(io::Error::new(io::ErrorKind::NotADirectory, what));
            }
            None if dry => {
                walk.new = Some(number);
                return Ok(());
            }
            None => {
                folder.make_folder(&name, attributes::UNFINISHED_FOLDER)?;
                self.unfinished.insert(number.into());
                self.made_folders += 1;
                if self.options.names {
                    self.named.push(number);
                }
                if walk.new.is_none() {
                    walk.new = Some(number);
                }
            }
        }
        self.ground.folder(number)?;
        Ok(())
    }

    fn plan_link(
        &mut self,
        number: u32,
        entry: &Entry,
        is_new: bool,
        walk: &mut Walk,
    ) -> io::Result<()> {
        let Kind::Link { target } = &entry.kind else { return Ok(()) };
        if is_new {
            return Ok(());
        }
        let (folder, name) = self.ground.at(number)?;
        match folder.look_if_there(&name)?.map(|found| found.kind) {
            Some(NameKind::Folder) => Err(folder_in_place()),
            Some(NameKind::Link) => {
                if *folder.read_link(&name)? == **target {
                    self.skip(number, walk);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn plan_file(
        &mut self,
        number: u32,
        entry: &Entry,
        size: u64,
        is_new: bool,
        walk: &mut Walk,
    ) -> io::Result<()> {
        if is_new {
            self.small.set_new(number);
            walk.need.add(entry);
            return Ok(());
        }
        let (folder, name) = self.ground.at(number)?;
        let found = folder.look_if_there(&name)?;
        let is_large = self.object.is_large(number);
        let has_large = folder.look_if_there(&names::partial(&name))?.is_some()
            || is_large && !self.options.dry_run && partial::take_back(folder, &name)?;
        let begun = has_large && is_large;
        if is_large && !has_large && found.is_some() && !self.options.dry_run {
            // A copy killed after the final rename leaves a journal. If the removal fails, the
            // journal does no harm.
            let _ = large::remove_journal(folder, &name);
        }
        match found {
            Some(found) if found.kind == NameKind::Folder => return Err(folder_in_place()),
            Some(found) if found.kind == NameKind::File => {
                if !self.options.checksum && is_equal(&found, entry) {
                    self.repair_mode(number, entry, &found)?;
                    if begun && !self.options.dry_run {
                        large::remove_remains(number, &mut self.ground)?;
                    }
                    self.skip(number, walk);
                    return Ok(());
                }
                if self.options.checksum && !begun {
                    self.plan_compare(number, size, &found, walk)?;
                }
            }
            Some(found) if found.kind.is_special() => {
                let what = "a device, socket or pipe is in its place";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
            }
            _ => {}
        }
        if begun && !self.options.dry_run {
            return self.plan_resume(number, entry, walk);
        }
        if !self.options.dry_run {
            self.remove_other_remains(number, has_large)?;
        }
        walk.need.add(entry);
        Ok(())
    }

    /// Removes the remains of a killed copy if the file was large then and is small now, or the
    /// reverse. `has_large` says whether the partial file of a large file exists.
    fn remove_other_remains(&mut self, number: u32, has_large: bool) -> io::Result<()> {
        if self.object.is_large(number) {
            let (folder, name) = self.ground.at(number)?;
            return match partial::remove_free(folder, &names::small(&name), None) {
                Err(error) if partial::is_busy(&error) => Ok(()),
                removed => removed,
            };
        }
        if has_large { large::remove_remains(number, &mut self.ground) } else { Ok(()) }
    }

    /// Creates the partial file of a single-file copy now, so that a second copy detects the first.
    fn begin_single(&mut self) -> Result<(), Error> {
        let is_due = self.states.first() == Some(&State::Due) && self.object.is_large(0);
        if !self.ground.manifest.is_single() || !is_due || self.larges.contains_key(&0) {
            return Ok(());
        }
        let made = self.once_free(0, |sink| Large::create(0, &mut sink.ground));
        match made {
            Ok(large) => {
                self.larges.insert(0, large);
                Ok(())
            }
            Err(error) => self.local_failure(0, &error),
        }
    }

    fn plan_resume(&mut self, number: u32, entry: &Entry, walk: &mut Walk) -> io::Result<()> {
        let resumed = self.once_free(number, |sink| {
            let left = &sink.options.left;
            Large::resume(number, &mut sink.ground, sink.options.distrust, left, &sink.watch)
        })?;
        let Some(remains) = resumed else { return Ok(()) };
        let all = entry.size().unwrap_or(0) - in_holes(entry);
        walk.need.bytes += all.saturating_sub(remains.allocated);
        walk.resumed += remains.large.bytes();
        if !remains.compare.is_empty() && !self.options.conceal {
            self.await_compare(number, remains.compare, None, walk);
        }
        self.larges.insert(number, remains.large);
        Ok(())
    }

    /// Retries `work` on a partial file or folder, within this copy's patience, while another copy
    /// has locked it.
    pub(super) fn once_free<T>(
        &mut self,
        number: u32,
        mut work: impl FnMut(&mut Sink) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match work(self) {
                Err(error) if partial::is_busy(&error) && self.may_wait(number) => {
                    std::thread::sleep(ASK_AGAIN);
                }
                done => return done,
            }
        }
    }

    /// Returns whether to continue waiting for another copy; reports the first entry that waits.
    fn may_wait(&mut self, number: u32) -> bool {
        let patience = self.options.patience;
        if patience.is_zero() || self.watch.is_over() {
            return false;
        }
        let since = match self.held_since {
            Some(since) => since,
            None => {
                self.watch.report_held(Held {
                    path: self.place_of(number).display().to_string(),
                    patience,
                });
                *self.held_since.insert(Instant::now())
            }
        };
        since.elapsed() < patience
    }

    /// Returns the path of an entry for errors. For a single file this is the destination,
    /// otherwise a path relative to the destination.
    pub(super) fn place_of(&self, number: u32) -> PathBuf {
        let manifest = &self.ground.manifest;
        match manifest.is_single() {
            true => self.ground.place.clone(),
            false => as_path(&self.ground.path(&manifest.path(number))).to_owned(),
        }
    }

    fn plan_compare(
        &mut self,
        number: u32,
        size: u64,
        found: &Attributes,
        walk: &mut Walk,
    ) -> io::Result<()> {
        let same_size = found.size == size;
        if size == 0 && same_size {
            return self.keep_empty(number, walk);
        }
        if size == 0 || !(same_size || self.object.is_large(number)) {
            return Ok(());
        }
        let basis = Basis::open(&mut self.ground, number)?;
        let values = basis.values(size, &self.watch)?;
        if values.is_empty() {
            return Ok(());
        }
        // A file that changes during the read may no longer have the hashed content.
        if basis.is_unchanged()? {
            self.await_compare(number, values, Some(basis.attributes), walk);
        }
        Ok(())
    }

    /// Keeps an empty file: empty files are equal without a comparison.
    fn keep_empty(&mut self, number: u32, walk: &mut Walk) -> io::Result<()> {
        if !self.options.dry_run {
            let basis = Basis::open(&mut self.ground, number)?;
            let manifest = self.ground.manifest.clone();
            self.keep.repair(basis.file(), &manifest.entries()[number as usize])?;
        }
        self.skip(number, walk);
        Ok(())
    }

    fn await_compare(
        &mut self,
        entry: u32,
        values: Vec<(u64, Digest)>,
        under_final_name: Option<Attributes>,
        walk: &mut Walk,
    ) {
        let values: Arc<[(u64, Digest)]> = values.into();
        let comparing = Comparing { values: values.clone(), under_final_name };
        self.comparing.insert(entry, comparing);
        walk.compare.push(Compare { entry, values });
    }

    fn repair_mode(&mut self, number: u32, entry: &Entry, found: &Attributes) -> io::Result<()> {
        match self.keep.mode(entry) {
            Some(mode) if mode != found.mode && !self.options.dry_run => {
                let basis = Basis::open(&mut self.ground, number)?;
                basis.file().set_mode(mode)
            }
            _ => Ok(()),
        }
    }

    fn skip(&mut self, number: u32, walk: &mut Walk) {
        self.settle(number, State::Skipped);
        walk.skipped.push(number);
        walk.resumed += self.ground.manifest.entries()[number as usize].size().unwrap_or(0);
    }

    fn find_needed(&self) -> super::Bits {
        let mut needed = super::Bits::new(self.object.chunks());
        for (number, state) in self.states.iter().enumerate() {
            let number = number as u32;
            if *state != State::Due {
                continue;
            }
            self.object.content_runs(number).for_each(|run| needed.insert_run(run));
            let first = self.object.chunks_of(number).start;
            for run in self.larges.get(&number).into_iter().flat_map(Large::verified) {
                needed.remove_run(first + run.start..first + run.end);
            }
        }
        needed
    }

    fn bytes_due(&self) -> u64 {
        let due = self.needed.runs(true).into_iter().flatten();
        due.map(|chunk| self.object.chunk_content(chunk) as u64).sum()
    }

    fn have(&self) -> Vec<Range<u64>> {
        let mut missing = self.needed.clone();
        self.object.hole_chunks().for_each(|hole| missing.insert_run(hole));
        missing.runs(false)
    }
}

pub(super) fn left_off() -> Error {
    Error::new(FileErrorKind::Unfinished, "the copy ended before its destination was complete")
}

fn folder_in_place() -> io::Error {
    io::Error::new(io::ErrorKind::IsADirectory, "a folder is in its place")
}

impl Need {
    fn add(&mut self, entry: &Entry) {
        self.files += 1;
        self.bytes += entry.size().unwrap_or(0) - in_holes(entry);
    }
}

fn in_holes(entry: &Entry) -> u64 {
    let size = entry.size().unwrap_or(0);
    let bytes = |hole: &Range<u64>| (hole.end * CHUNK).min(size) - hole.start * CHUNK;
    entry.holes().iter().map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::store::Folder;
    use crate::store::buffers::MemoryFolder;
    use crate::{Listed, Manifest, Shape};

    fn entry(size: u64, modified: FileTime) -> Entry {
        let kind = Kind::file(size);
        let listed = Listed { path: b"x"[..].into(), kind, mode: 0o600, modified };
        let manifest = Manifest::new(Shape::File, vec![listed]).expect("it is sound");
        manifest.entries()[0].clone()
    }

    #[test]
    fn files_of_equal_size_and_time_are_equal_even_if_the_destination_has_whole_seconds() {
        let folder = MemoryFolder::new(10);
        folder.put(OsStr::new("x"), b"1234567".to_vec());
        let time = |seconds, nanos| FileTime { seconds, nanos };
        let equal = |size, found: FileTime, source| {
            let there = Attributes { modified: found, ..folder.look(b"x").expect("it is there") };
            is_equal(&there, &entry(size, source))
        };
        assert!(equal(7, time(5, 6), time(5, 6)) && equal(7, time(5, 0), time(5, 6)));
        assert!(!equal(8, time(5, 6), time(5, 6)) && !equal(6, time(5, 6), time(5, 6)));
        assert!(!equal(7, time(5, 6), time(5, 7)) && !equal(7, time(5, 6), time(5, 0)));
        assert!(!equal(7, time(4, 6), time(5, 6)) && !equal(7, time(4, 0), time(5, 6)));
    }

    #[test]
    fn only_a_copy_that_has_patience_and_was_not_cancelled_waits_for_another_copy() {
        let top = tempfile::tempdir().unwrap();
        let place = crate::Place::Ambient(top.path().join("x"));
        let manifest = Arc::new(Manifest::of_file(b"x", 1, FileTime::default(), 0).unwrap());
        for (patience, is_cancelled, waits) in
            [(0, false, false), (60, true, false), (60, false, true)]
        {
            let patience = Duration::from_secs(patience);
            let options = crate::SinkOptions { patience, ..Default::default() };
            let watch = Watch::default();
            let (mut sink, _) = Sink::open(&place, &manifest, 0, &options, &watch).unwrap();
            if is_cancelled {
                watch.end();
            }
            assert_eq!((sink.may_wait(0), watch.take_held().is_some()), (waits, waits));
        }
    }

    #[test]
    fn holes_are_not_among_the_chunks_that_the_destination_has() {
        let top = tempfile::tempdir().unwrap();
        let place = crate::Place::Ambient(top.path().join("x"));
        let kind = Kind::File { size: 5 * CHUNK, sparse: true, holes: Box::new([1..3, 4..5]) };
        let modified = FileTime::default();
        let listed = Listed { path: b"x"[..].into(), kind, mode: 0o600, modified };
        let manifest = Arc::new(Manifest::new(Shape::File, vec![listed]).unwrap());
        let (options, watch) = (crate::SinkOptions::default(), Watch::default());
        let (mut sink, plan) = Sink::open(&place, &manifest, 0, &options, &watch).unwrap();
        assert_eq!(plan.have, []);
        let first = 0..1;
        sink.needed.remove_run(first.clone());
        assert_eq!(sink.have(), [first]);
    }

    #[test]
    fn a_file_written_after_it_was_opened_counts_as_changed() {
        let disk = crate::store::memory::Disk::new(1);
        let root = crate::store::buffers::Store(disk.root());
        let place = crate::Place::Stored { root, path: "x".into() };
        let file = disk.root().create(b"x", 0o600).unwrap();
        let manifest = Arc::new(Manifest::of_file(b"x", 1, FileTime::default(), 0).unwrap());
        let mut ground = super::super::Ground::open(&place, &manifest, false).unwrap();
        let basis = Basis::open(&mut ground, 0).unwrap();
        assert!(basis.is_unchanged().unwrap());
        file.write_all_at(b"x", 0).unwrap();
        assert!(!basis.is_unchanged().unwrap());
    }

    #[test]
    fn a_file_needs_its_bytes_without_its_holes() {
        let kind = Kind::File { size: 5 * CHUNK + 7, sparse: true, holes: Box::new([1..3, 5..6]) };
        let entry = Entry::new(kind, 0o600, FileTime::default());
        assert_eq!(in_holes(&entry), 2 * CHUNK + 7);
        let mut need = Need { bytes: 1, files: 1 };
        need.add(&entry);
        need.add(&Entry::new(Kind::Folder, 0o700, FileTime::default()));
        assert_eq!((need.bytes, need.files), (1 + 3 * CHUNK, 3));
    }

    #[test]
    fn an_entry_is_below_a_folder_if_its_parents_number_is_at_least_the_folders() {
        let file = |path: &str| {
            let kind = Kind::file(1);
            Listed { path: path.as_bytes().into(), kind, mode: 0, modified: FileTime::default() }
        };
        let folder = |path: &str| Listed { kind: Kind::Folder, ..file(path) };
        // The numbers are a 0, a/b 1, a/b/c 2, a/d 3, e 4.
        let listed = ["a", "a/b"].map(folder).into_iter();
        let listed = listed.chain(["a/b/c", "a/d", "e"].map(file)).collect();
        let manifest = Manifest::new(Shape::Several, listed).expect("it is sound");
        let below = |folder| {
            let entries = manifest.entries().iter();
            entries.map(|entry| is_below(entry, folder)).collect::<Vec<_>>()
        };
        assert_eq!(below(Some(0)), [false, true, true, true, false]);
        assert_eq!(below(Some(1)), [false, false, true, false, false]);
        assert_eq!(below(None), [false; 5]);
    }
}
