//! Names at the destination that the source lacks. A plan counts or lists them; a copy with
//! deletion removes them at its end.
//!
//! The walk passes through the destination and the manifest in parallel. Both have the same order,
//! so the walk needs no table of names. It opens each folder by its parent's handle, does not
//! follow links, and does not enter other file systems or bind mounts.
//!
//! Other copies may work in the same folders. Entries that appeared or changed since this copy
//! began may belong to other copies, so they stay. Their change time (ctime) decides, because no
//! copy can set it.

use std::cmp::Ordering;
use std::io;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::plan::{is_below, left_off};
use super::{Ground, Sink};
use crate::error::{Error, FileErrorKind};
use crate::filter::{CompiledFilters, Filter};
use crate::folders::Folders;
use crate::manifest::FileTime;
use crate::place::{file_error, show};
use crate::store::{File, NameKind};
use crate::{Failure, Kind, Manifest, Place, Shape, Watch, names};

/// Maximum bytes of listed names; further names are only counted.
const MOST_LISTED: usize = 16 << 20;

/// Milliseconds of the longest tick of a file system's clock (FAT has 2 s), with some reserve.
const LONGEST_TICK: u64 = 2_500;

/// The removal of names that the source lacks.
#[derive(Clone, Debug, Default)]
pub struct Delete {
    /// The filters of the copy: excluded names stay.
    pub filters: Vec<Filter>,
    /// The maximum number of names to remove. If there are more, none is removed.
    pub most: Option<u64>,
    /// The age of this copy, if an earlier attempt began it.
    pub age: Option<Age>,
}

/// The time since a moment, measured by two clocks: one stops while the host sleeps, the other may
/// be set back. The larger result counts.
#[derive(Clone, Copy, Debug)]
pub struct Age {
    first: Duration,
    since: Instant,
    wall: SystemTime,
}

impl Age {
    /// Returns an age that is `first` now.
    pub fn new(first: Duration) -> Age {
        Age { first, since: Instant::now(), wall: SystemTime::now() }
    }

    /// Returns the age now.
    pub fn get(&self) -> Duration {
        let more = self.since.elapsed().max(self.wall.elapsed().unwrap_or_default());
        self.first.saturating_add(more)
    }
}

/// The names that were removed, or would be removed.
#[derive(Debug, Default)]
pub struct Deleted {
    /// The number of files, links and folders.
    pub count: u64,
    /// The paths of the files, links and folders in the order of removal, folders with a trailing
    /// slash. The list ends at 16 MiB.
    pub names: Vec<Vec<u8>>,
    pub(super) failures: Vec<Failure>,
    listed: usize,
    /// A name of the source that exists at the destination, but not in the listing of its folder
    /// there: the file system changes names (case, accents). A name that seems extra may then be a
    /// copied file.
    stored_otherwise: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(super) struct Extra {
    filters: CompiledFilters,
    most: Option<u64>,
    age: Option<Age>,
    /// When this copy began, by the clock of the destination's file system, before the first write
    /// of its first attempt.
    begun: Option<FileTime>,
}

impl Extra {
    pub(super) fn new(place: &Place, shape: Shape, delete: &Delete) -> Result<Extra, Error> {
        let refuse = |what: &str| Err(Error::new(FileErrorKind::Request, what));
        if shape != Shape::Contents {
            return refuse("names are deleted only if the contents of one folder are copied");
        }
        let is_glob = |filter: &Filter| matches!(filter, Filter::Include(_) | Filter::Exclude(_));
        if !delete.filters.iter().all(is_glob) {
            // A size limit leaves a file out of the manifest, so deletion would remove the file at
            // the destination.
            return refuse("deletion does not work with size limits and lists of files");
        }
        if !place.says_folder()
            && let Some(name) = place.name()
            && let Ok(found) = place.parent().folder().and_then(|parent| parent.look(&name))
            && found.kind == NameKind::Link
        {
            let what = format!("{} is a link, so nothing is deleted there", place.shown());
            let error = Error::new(FileErrorKind::File, what).at(place.named());
            return Err(error.advise("name the folder that it leads to"));
        }
        let filters = CompiledFilters::new(&delete.filters)?;
        let (most, age) = (delete.most, delete.age);
        Ok(Extra { filters, most, age, begun: None })
    }

    fn check(&self, manifest: &Manifest, planned: &Deleted, place: &Place) -> Result<(), Error> {
        let count = planned.count;
        let refuse = |what: String| Err(Error::new(FileErrorKind::File, what).at(place.named()));
        let shown = place.shown();
        if let Some(path) = &planned.stored_otherwise {
            return refuse(format!(
                "{shown} stores {} under another name (upper and lower case, or the form of \
                 letters with accents); nothing is deleted there",
                show(path)
            ));
        }
        let names = if count == 1 { "1 name".to_owned() } else { format!("{count} names") };
        let is_empty = manifest.entries().iter().all(|entry| entry.kind == Kind::Folder);
        if is_empty && count > 0 {
            return refuse(format!(
                "the source has no files, so sync would delete {names} of {shown}; it deleted \
                 nothing"
            ));
        }
        match self.most.filter(|most| count > *most) {
            Some(most) => refuse(format!(
                "sync would delete {names} of {shown}, more than the limit of {most}; it deleted \
                 nothing"
            )),
            None => Ok(()),
        }
    }
}

/// Waits until the clock that dates changes is later than `begun`. A file that another copy
/// finishes afterwards then has a later change time. Returns false if the clock does not
/// pass `begun` within about `most` milliseconds.
fn pass_tick(file: &dyn File, begun: FileTime, most: u64) -> io::Result<bool> {
    for length in 1..=most {
        // No event reports a tick of this clock; only a change of a file shows the time.
        thread::sleep(Duration::from_millis(1));
        file.set_len(length)?;
        if file.attributes()?.changed > begun {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Sink {
    /// Records that the source failed to read something, so its list may lack existing names. This
    /// copy then removes nothing. If it created its destination folder, the folder keeps the mark
    /// of an unfinished copy, so a repeated copy writes into the same folder.
    pub fn source_is_incomplete(&mut self) {
        self.is_source_incomplete = true;
    }

    /// Whether an entry failed or the source's list is incomplete.
    pub(super) fn lacks_entries(&self) -> bool {
        self.is_source_incomplete || !self.failures.is_empty()
    }

    /// Returns whether a requested removal is not allowed because an entry failed or the source's
    /// list is incomplete.
    pub fn keeps_extra(&self) -> bool {
        self.extra.is_some() && self.lacks_entries()
    }

    /// Records when this copy began: the change time of a temporary file that is removed at once,
    /// minus the age of this copy.
    pub(super) fn date_extra(&mut self) -> Result<(), Error> {
        let Some(extra) = &mut self.extra else { return Ok(()) };
        if self.options.dry_run || self.ground.is_missing {
            return Ok(());
        }
        let (folder, name) = (self.ground.base(), names::unique(b"begun"));
        let dated = folder.create(&name, 0o600).and_then(|file| {
            let begun = file.attributes().map(|attributes| attributes.changed);
            let passed = begun
                .and_then(|begun| Ok(pass_tick(&*file, begun, LONGEST_TICK)?.then_some(begun)));
            folder.remove(&name)?;
            passed
        });
        let place = &self.ground.place;
        let Some(now) = dated.map_err(|error| file_error("write to", place, &error))? else {
            let what = format!(
                "cannot delete names in {}: the clock of its file system stands still, so a file \
                 that another copy has just finished looks old",
                place.display()
            );
            let error = Error::new(FileErrorKind::File, what).at(place);
            return Err(error.advise("correct the clock, or copy without deletion"));
        };
        extra.begun = Some(extra.age.map_or(now, |age| now.before(age.get())));
        Ok(())
    }

    /// Lists the names that would be removed; none if [`keeps_extra`](Sink::keeps_extra).
    ///
    /// # Errors
    /// There are more names than the limit, there are names although the source has no files, or
    /// the file system stores names in another form (`File`); or the copy was cancelled.
    pub fn would_delete(&mut self) -> Result<Deleted, Error> {
        if self.keeps_extra() {
            return Ok(Deleted::default());
        }
        let planned = self.walk_extra(false, u64::MAX)?;
        self.allows(&planned)?;
        Ok(planned)
    }

    /// Refuses the copy if a check of [`Sink::would_delete`] fails. Checks only if the number of
    /// removals has a limit or the source has no files.
    pub(super) fn check_extra(&mut self) -> Result<(), Error> {
        let manifest = self.ground.manifest.clone();
        let has_files = manifest.entries().iter().any(|entry| entry.kind != Kind::Folder);
        match &self.extra {
            Some(extra) if extra.most.is_some() || !has_files => self.would_delete().map(drop),
            _ => Ok(()),
        }
    }

    /// Removes the names that the source lacks, after everything else is on disk. If a check of
    /// [`Sink::would_delete`] fails, removes none and adds a failure.
    pub(super) fn delete_extra(&mut self) -> Result<Deleted, Error> {
        if self.extra.is_none() || self.keeps_extra() {
            return Ok(Deleted::default());
        }
        self.sync_names()?;
        let planned = self.walk_extra(false, u64::MAX)?;
        if let Err(refused) = self.allows(&planned) {
            // The copy itself is complete, so the refusal becomes a failure of the outcome.
            let (path, reason) = (b".".to_vec(), refused.what);
            self.failures.push(Failure { path, reason, ..Failure::default() });
            return Ok(Deleted::default());
        }
        let mut deleted = self.walk_extra(true, planned.count)?;
        self.failures.append(&mut deleted.failures);
        Ok(deleted)
    }

    fn walk_extra(&self, removes: bool, most: u64) -> Result<Deleted, Error> {
        match &self.extra {
            Some(extra) if !self.ground.is_missing => {
                Walk::new(&self.ground, extra, &self.watch, removes, most).run()
            }
            _ => Ok(Deleted::default()),
        }
    }

    fn allows(&self, planned: &Deleted) -> Result<(), Error> {
        let place = Place::Ambient(self.ground.place.clone());
        let check = |extra: &Extra| extra.check(&self.ground.manifest, planned, &place);
        self.extra.as_ref().map_or(Ok(()), check)
    }
}

struct Level {
    path: Vec<u8>,
    /// The folder's entry in the manifest; `None` for the top, and for a folder that the source
    /// lacks.
    entry: Option<u32>,
    is_extra: bool,
    /// The names in the folder that are still to be examined, sorted.
    names: std::vec::IntoIter<Vec<u8>>,
    /// Whether something in the folder stays.
    keeps: bool,
}

struct Walk<'a> {
    manifest: &'a Manifest,
    extra: &'a Extra,
    watch: &'a Watch,
    folders: Folders,
    removes: bool,
    /// Maximum number of names to remove: as many as the plan has, even if there are more now.
    most: u64,
    /// The file system of the destination; `None` until the walk has entered it.
    device: Option<u64>,
    /// The first entry of the manifest that the walk has not passed.
    next: u32,
    stack: Vec<Level>,
    deleted: Deleted,
}

impl<'a> Walk<'a> {
    fn new(
        ground: &'a Ground,
        extra: &'a Extra,
        watch: &'a Watch,
        removes: bool,
        most: u64,
    ) -> Walk<'a> {
        Walk {
            manifest: &ground.manifest,
            extra,
            watch,
            folders: Folders::new(ground.base().clone()),
            removes,
            most,
            device: None,
            next: 0,
            stack: Vec::new(),
            deleted: Deleted::default(),
        }
    }

    fn run(mut self) -> Result<Deleted, Error> {
        self.enter(Vec::new(), None, false);
        while let Some(level) = self.stack.last_mut() {
            self.watch.go_on().map_err(|_| left_off())?;
            match level.names.next() {
                Some(name) => self.name(&name),
                None => self.leave(),
            }
        }
        Ok(self.deleted)
    }

    fn enter(&mut self, path: Vec<u8>, entry: Option<u32>, is_extra: bool) {
        let device = &mut self.device;
        let names = self.folders.at(&path).and_then(|folder| {
            device.get_or_insert(folder.attributes()?.identity.0);
            folder.names()
        });
        let mut level =
            Level { path, entry, is_extra, names: Vec::new().into_iter(), keeps: false };
        match names {
            Ok(mut names) => {
                names.sort_unstable();
                level.names = names.into_iter();
            }
            Err(error) => {
                self.fail(&level.path, &error);
                level.keeps = true;
            }
        }
        self.stack.push(level);
    }

    /// Leaves the innermost folder. Removes the folder if the source lacks it and nothing in the
    /// folder stays.
    fn leave(&mut self) {
        let unfinished = self.stack.last().filter(|level| !level.is_extra);
        if let Some(entry) = unfinished.map(|level| level.entry) {
            self.find(entry, None);
        }
        let Some(level) = self.stack.pop() else { return };
        if let Some(entry) = level.entry {
            self.pass(entry);
        }
        if level.is_extra {
            match level.keeps {
                true => self.keep(),
                false => self.remove(&level.path, true),
            }
        }
    }

    fn keep(&mut self) {
        if let Some(level) = self.stack.last_mut() {
            level.keeps = true;
        }
    }

    fn name(&mut self, name: &[u8]) {
        let Some(level) = self.stack.last() else { return };
        let (is_extra, entry) = (level.is_extra, level.entry);
        let path = match level.path.is_empty() {
            true => name.to_vec(),
            false => [&level.path, &b"/"[..], name].concat(),
        };
        let known = if is_extra { None } else { self.find(entry, Some(name)) };
        let (folder, _) = crate::manifest::split(&path);
        let found = self.folders.at(folder).and_then(|folder| {
            let found = folder.look_if_there(name)?;
            let may_matter = known.is_none() || found.is_some_and(|f| f.kind == NameKind::Folder);
            Ok(found.map(|found| (found, may_matter && folder.is_mount(name))))
        });
        let (found, is_mount) = match found {
            Ok(Some(found)) => found,
            Ok(None) => return,
            Err(error) => {
                self.fail(&path, &error);
                return self.keep();
            }
        };
        let is_folder = found.kind == NameKind::Folder;
        let is_mounted = is_mount || is_folder && self.device != Some(found.identity.0);
        let is_source_folder =
            |number: u32| self.manifest.entries()[number as usize].kind == Kind::Folder;
        match known {
            Some(number) if is_folder && !is_mounted && is_source_folder(number) => {
                self.next = number + 1;
                self.enter(path, Some(number), false);
            }
            Some(number) => self.pass(number),
            None if names::is_reserved(name)
                || found.kind.is_special()
                || is_mounted
                || self.extra.begun.is_some_and(|begun| found.changed > begun)
                || !self.extra.filters.takes(&path, is_folder) =>
            {
                self.keep();
            }
            None if is_folder => self.enter(path, None, true),
            None => self.remove(&path, false),
        }
    }

    /// Finds the entry `name` in the folder `folder`, which the walk is in, and passes the entries
    /// before this entry. Without a name, passes all entries of the folder.
    fn find(&mut self, folder: Option<u32>, name: Option<&[u8]>) -> Option<u32> {
        loop {
            let entry = self.manifest.entries().get(self.next as usize)?;
            if entry.parent() != folder {
                return None;
            }
            let order = name.map_or(Ordering::Less, |name| self.manifest.name(self.next).cmp(name));
            match order {
                Ordering::Less => {
                    self.note_unlisted(self.next);
                    self.pass(self.next);
                }
                Ordering::Equal => return Some(self.next),
                Ordering::Greater => return None,
            }
        }
    }

    /// Handles an `entry` that the innermost folder does not list. If a lookup finds it, the file
    /// system stores its name in another form.
    fn note_unlisted(&mut self, entry: u32) {
        let Some(level) = self.stack.last() else { return };
        let name = self.manifest.name(entry);
        let found = self.folders.at(&level.path).and_then(|folder| folder.look_if_there(name));
        if let Ok(Some(_)) = found {
            self.deleted.stored_otherwise = Some(name.to_vec());
        }
    }

    fn pass(&mut self, entry: u32) {
        let behind = self.next.max(entry + 1);
        let left = self.manifest.entries().iter().skip(behind as usize);
        let inside = left.take_while(|left| is_below(left, Some(entry))).count();
        self.next = behind + inside as u32;
    }

    fn remove(&mut self, path: &[u8], is_folder: bool) {
        if self.deleted.count >= self.most {
            return self.keep();
        }
        if self.removes {
            let (folder, name) = crate::manifest::split(path);
            let removed = self.folders.at(folder).and_then(|folder| match is_folder {
                true => folder.remove_folder(name),
                false => folder.remove(name),
            });
            if let Err(error) = removed {
                self.fail(path, &error);
                return self.keep();
            }
        }
        let Deleted { count, names, listed, .. } = &mut self.deleted;
        *count += 1;
        *listed = listed.saturating_add(path.len() + size_of::<Vec<u8>>());
        if *listed <= MOST_LISTED {
            let slash: &[u8] = if is_folder { b"/" } else { b"" };
            names.push([path, slash].concat());
        }
    }

    fn fail(&mut self, path: &[u8], error: &io::Error) {
        let reason = format!("cannot be examined or deleted: {}", longhaul_text::reason(error));
        let failure = Failure { path: path.to_vec(), reason, ..Failure::default() };
        self.deleted.failures.push(failure);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Listed;

    fn listed(path: &str, kind: Kind) -> Listed {
        Listed { path: path.as_bytes().into(), kind, mode: 0o700, modified: FileTime::default() }
    }

    fn manifest(has_file: bool) -> Arc<Manifest> {
        let file = Kind::file(1);
        let kind = if has_file { file } else { Kind::Folder };
        Arc::new(Manifest::new(Shape::Contents, vec![listed("a", kind)]).unwrap())
    }

    fn extra(place: &Place, most: Option<u64>) -> Extra {
        Extra::new(place, Shape::Contents, &Delete { most, ..Delete::default() }).unwrap()
    }

    #[test]
    fn names_up_to_the_limit_may_be_deleted_if_the_source_has_a_file() {
        let place = Place::Ambient("there".into());
        let why = |most, count, has_file| {
            let planned = Deleted { count, ..Deleted::default() };
            let checked = extra(&place, most).check(&manifest(has_file), &planned, &place);
            checked.err().map(|error| error.what)
        };
        assert_eq!((why(Some(3), 3, true), why(None, u64::MAX, true)), (None, None));
        let one = "sync would delete 1 name of there, more than the limit of 0; it deleted nothing";
        assert_eq!(why(Some(0), 1, true).as_deref(), Some(one));
        assert!(why(Some(3), 4, true).is_some_and(|why| why.contains("delete 4 names")));
        assert_eq!(why(None, 0, false), None);
        assert!(why(None, 1, false).is_some_and(|why| why.contains("source has no files")));
    }

    #[test]
    fn names_beyond_16_mib_are_counted_and_not_listed() {
        let top = tempfile::tempdir().unwrap();
        let place = Place::Ambient(top.path().to_owned());
        let ground = Ground::open(&place, &manifest(true), true).unwrap();
        let (extra, watch) = (extra(&place, None), Watch::default());
        let mut walk = Walk::new(&ground, &extra, &watch, false, 4);
        walk.remove(b"a/b", false);
        assert_eq!(walk.deleted.listed, 3 + size_of::<Vec<u8>>());
        walk.deleted.listed = MOST_LISTED - 1 - size_of::<Vec<u8>>();
        for name in [b"c", b"d", b"e", b"f"] {
            walk.remove(name, true);
        }
        assert_eq!(walk.deleted.names, [&b"a/b"[..], b"c/"]);
        assert_eq!(walk.deleted.count, 4, "the limit of this walk");
        assert_eq!(MOST_LISTED, 16_777_216);
    }

    #[test]
    fn a_name_that_changed_after_the_start_of_the_copy_stays() {
        let top = tempfile::tempdir().unwrap();
        std::fs::write(top.path().join("x"), "x").unwrap();
        let place = Place::Ambient(top.path().to_owned());
        let ground = Ground::open(&place, &manifest(true), true).unwrap();
        let changed = ground.base().look(b"x").unwrap().changed;
        let before = FileTime { seconds: changed.seconds - 1, ..changed };
        for (begun, count) in [(before, 0), (changed, 1)] {
            let extra = Extra { begun: Some(begun), ..extra(&place, None) };
            let watch = Watch::default();
            let walk = Walk::new(&ground, &extra, &watch, false, 4);
            assert_eq!(walk.run().unwrap().count, count);
        }
    }

    #[test]
    fn a_file_that_another_copy_finishes_after_the_start_has_a_later_change_time() {
        let top = tempfile::tempdir().unwrap();
        let place = Place::Ambient(top.path().to_owned());
        let delete = Some(Delete::default());
        let options = crate::SinkOptions { delete, ..crate::SinkOptions::default() };
        for _ in 0..20 {
            let opened = Sink::open(&place, &manifest(true), 0, &options, &Watch::default());
            let (sink, _) = opened.unwrap();
            std::fs::write(top.path().join("x"), "x").unwrap();
            let changed = sink.ground.base().look(b"x").unwrap().changed;
            assert!(Some(changed) > sink.extra.as_ref().unwrap().begun);
            std::fs::remove_file(top.path().join("x")).unwrap();
        }
    }

    #[test]
    fn a_tick_has_passed_only_if_the_clock_is_later_than_the_start_of_the_copy() {
        let disk = crate::store::memory::Disk::new(1);
        disk.stop_clock();
        let file = disk.root().create(b"x", 0o600).unwrap();
        let now = file.attributes().unwrap().changed;
        let [before, later] = [-1, 1].map(|by| FileTime { seconds: now.seconds + by, ..now });
        for (begun, has_passed) in [(before, true), (now, false), (later, false)] {
            assert_eq!(pass_tick(&*file, begun, 2).unwrap(), has_passed);
        }
    }

    #[test]
    fn a_copy_with_deletion_is_refused_if_the_clock_of_the_destination_stands_still() {
        let disk = crate::store::memory::Disk::new(1);
        disk.stop_clock();
        let root = crate::store::buffers::Store(disk.root());
        let place = Place::Stored { root, path: "".into() };
        let delete = Some(Delete::default());
        let options = crate::SinkOptions { delete, ..crate::SinkOptions::default() };
        let opened = Sink::open(&place, &manifest(true), 0, &options, &Watch::default());
        let error = opened.map(drop).unwrap_err();
        assert!(error.what.contains("stands still") && error.advice.is_some(), "{error}");
    }

    #[test]
    fn the_age_of_a_copy_includes_the_sleep_of_the_host_and_ignores_a_clock_that_was_set_back() {
        let hour = Duration::from_secs(3600);
        let new = Age::new(hour);
        assert!((hour..hour * 2).contains(&new.get()));
        let slept = Age { wall: new.wall - hour, ..new };
        assert!((hour * 2..hour * 3).contains(&slept.get()));
        let set_back = Age { wall: new.wall + hour, ..new };
        assert!((hour..hour * 2).contains(&set_back.get()));
        assert_eq!(Age { first: Duration::MAX, ..slept }.get(), Duration::MAX);
    }

    #[test]
    fn an_entry_that_is_of_another_kind_at_the_source_stays_with_its_content() {
        let top = tempfile::tempdir().unwrap();
        for folder in ["c", "c/kept", "d"] {
            std::fs::create_dir(top.path().join(folder)).unwrap();
        }
        for file in ["a", "b", "c/kept/x", "d/extra"] {
            std::fs::write(top.path().join(file), "x").unwrap();
        }
        let folders = ["a", "a/a", "d"].map(|path| listed(path, Kind::Folder));
        let files = ["a/a/x", "b", "c"].map(|path| listed(path, Kind::file(1)));
        let all = folders.into_iter().chain(files).collect();
        let manifest = Arc::new(Manifest::new(Shape::Contents, all).unwrap());
        let place = Place::Ambient(top.path().to_owned());
        let ground = Ground::open(&place, &manifest, true).unwrap();
        let (extra, watch) = (extra(&place, None), Watch::default());
        let deleted = Walk::new(&ground, &extra, &watch, false, 9).run().unwrap();
        assert_eq!(deleted.names, [b"d/extra"]);
    }

    #[test]
    fn a_name_that_cannot_be_deleted_is_not_counted_and_becomes_a_failure_with_the_reason() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir(top.path().join("x")).unwrap();
        let place = Place::Ambient(top.path().to_owned());
        let ground = Ground::open(&place, &manifest(true), true).unwrap();
        let (extra, watch) = (extra(&place, None), Watch::default());
        let mut walk = Walk::new(&ground, &extra, &watch, true, 4);
        walk.remove(b"x", false);
        let error = std::fs::remove_file(top.path().join("x")).unwrap_err();
        let reason = format!("cannot be examined or deleted: {}", longhaul_text::reason(&error));
        let failure = Failure { path: b"x".to_vec(), reason, ..Failure::default() };
        assert_eq!((walk.deleted.count, walk.deleted.failures), (0, vec![failure]));
    }

    #[test]
    fn deletion_is_refused_for_a_link_for_a_named_folder_and_with_filters_other_than_globs() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir(top.path().join("d")).unwrap();
        std::os::unix::fs::symlink("d", top.path().join("l")).unwrap();
        let new = |name: &str, shape, filter: Option<Filter>| {
            let filters = filter.into_iter().collect();
            let delete = Delete { filters, ..Delete::default() };
            Extra::new(&Place::Ambient(top.path().join(name)), shape, &delete).map(drop)
        };
        let glob = || Some(Filter::Exclude("x".into()));
        for name in ["d", "d/", "l/", "none"] {
            assert_eq!(new(name, Shape::Contents, glob()), Ok(()), "{name}");
        }
        let error = new("l", Shape::Contents, None).unwrap_err();
        assert!(error.what.ends_with("is a link, so nothing is deleted there"), "{error}");
        assert!(new("d", Shape::Named, None).is_err());
        for filter in [Filter::MaxSize(1), Filter::MinSize(1), Filter::Only(b"x".to_vec())] {
            assert!(new("d", Shape::Contents, Some(filter)).is_err());
        }
    }
}
