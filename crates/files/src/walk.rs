//! The walk over a source. The walk reaches each entry through the open folder that holds the
//! entry. Links stay links and are never followed.

use std::collections::HashMap;
use std::ops::Range;

use super::filter::CompiledFilters;
use super::folders::Folders;
use super::manifest::{self, Entry, Kind, ListMemory, Listing, MAX_ENTRIES, MAX_HOLES, MAX_PATH};
use super::place::show;
use super::store::{Access, Attributes, Folder, NameKind, SharedFolder};
use super::{CHUNK, Failure, LARGE, Watch, names};
use crate::error::{Error, FileErrorKind};
use longhaul_text::reason;

type Merged = HashMap<(Option<u32>, Vec<u8>), u32>;

/// The entries found so far, unsorted.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) listing: Listing,
    /// For each entry, the number of the source in which it was found.
    pub(crate) origins: Vec<u16>,
    /// The folders by parent and name, if there are several sources: folders of the same name are
    /// merged.
    merged: Option<Merged>,
    pub(crate) failures: Vec<Failure>,
    pub(crate) warnings: Vec<String>,
    /// Bytes that `failures` and `warnings` take.
    said: u64,
    /// Counts the examined names, and can cancel the walk.
    pub(crate) watch: Watch,
    pub(crate) memory: Box<dyn ListMemory>,
}

#[derive(Clone, Copy)]
pub(crate) struct Spot<'a> {
    pub(crate) source: u16,
    /// The folder that holds the entry, by number in the listing; `None` at the top.
    pub(crate) folder: Option<u32>,
    pub(crate) path: &'a [u8],
}

impl Spot<'_> {
    fn name(&self) -> &[u8] {
        manifest::split(self.path).1
    }
}

impl Walk {
    pub(crate) fn new(watch: Watch, several: bool, memory: Box<dyn ListMemory>) -> Walk {
        Walk {
            listing: Listing::default(),
            origins: Vec::new(),
            merged: several.then(HashMap::new),
            failures: Vec::new(),
            warnings: Vec::new(),
            said: 0,
            watch,
            memory,
        }
    }

    fn add(&mut self, spot: Spot<'_>, kind: Kind, attributes: &Attributes) -> u32 {
        self.origins.push(spot.source);
        let mut entry = Entry::new(kind, attributes.mode, attributes.modified);
        if entry.size().is_some() {
            entry.version = attributes.version();
        }
        self.listing.add(spot.folder, spot.name(), entry)
    }

    /// Adds the file `name` of the folder `parent`. A sparse file of `large_from` bytes or more is
    /// searched for holes.
    pub(crate) fn file(
        &mut self,
        spot: Spot<'_>,
        (parent, name): (&dyn Folder, &[u8]),
        attributes: &Attributes,
        large_from: u64,
    ) {
        match file_kind(parent, name, attributes, large_from) {
            Ok(kind) => drop(self.add(spot, kind, attributes)),
            Err(error) => self.fail(spot.path, reason(&error)),
        }
    }

    pub(crate) fn link(&mut self, spot: Spot<'_>, parent: &dyn Folder, attributes: &Attributes) {
        match parent.read_link(spot.name()) {
            Ok(target) => {
                let kind = Kind::Link { target: target.into() };
                self.add(spot, kind, attributes);
            }
            Err(error) => self.fail(spot.path, reason(&error)),
        }
    }

    /// Adds a folder without its content, unless an earlier source added this folder. Returns the
    /// folder's number.
    pub(crate) fn folder(&mut self, spot: Spot<'_>, attributes: &Attributes) -> u32 {
        let key = self.merged.is_some().then(|| (spot.folder, spot.name().to_vec()));
        let known = self.merged.as_ref().zip(key.as_ref()).and_then(|(all, key)| all.get(key));
        if let Some(number) = known {
            return *number;
        }
        let number = self.add(spot, Kind::Folder, attributes);
        if let Some((all, key)) = self.merged.as_mut().zip(key) {
            all.insert(key, number);
        }
        number
    }

    /// Adds the content of the folder `base` as the content of the folder `top` (`None` for the top
    /// of the copy).
    pub(crate) fn tree(
        &mut self,
        source: u16,
        base: SharedFolder,
        top: Option<u32>,
        filters: &CompiledFilters,
    ) -> Result<Folders, Error> {
        let mut folders = Folders::new(base);
        let mut left = vec![top];
        let strip = top.map_or(0, |top| self.listing.path(top).len() + 1);
        while let Some(number) = left.pop() {
            let mut path = number.map_or(Vec::new(), |number| self.listing.path(number));
            let inner = path.get(strip..).unwrap_or_default();
            let found = folders.at(inner).and_then(|folder| {
                let names = folder.names()?;
                Ok((folder, names))
            });
            let (folder, names) = match found {
                Ok(found) => found,
                Err(error) => {
                    self.fail(&path, reason(&error));
                    self.bound()?;
                    continue;
                }
            };
            path.extend((!path.is_empty()).then_some(b'/'));
            let end = path.len();
            for name in names {
                self.go_on()?;
                path.truncate(end);
                path.extend_from_slice(&name);
                let spot = Spot { source, folder: number, path: &path };
                left.extend(self.found(spot, folder, filters).map(Some));
                self.bound()?;
            }
        }
        let above = top.map_or(Vec::new(), |top| [&self.listing.path(top)[..], b"/"].concat());
        self.miss_listed(&mut folders, &above, filters)?;
        Ok(folders)
    }

    /// Adds a failure for each path below `above` that a filter lists and that cannot be looked up.
    fn miss_listed(
        &mut self,
        folders: &mut Folders,
        above: &[u8],
        filters: &CompiledFilters,
    ) -> Result<(), Error> {
        for path in filters.listed() {
            self.go_on()?;
            let Some(inner) = path.strip_prefix(above) else { continue };
            let (folder, name) = manifest::split(inner);
            if let Err(error) = folders.at(folder).and_then(|folder| folder.look(name)) {
                self.fail(path, reason(&error));
                self.bound()?;
            }
        }
        Ok(())
    }

    fn go_on(&self) -> Result<(), Error> {
        let ended =
            |error: std::io::Error| Error::new(FileErrorKind::Unfinished, error.to_string());
        self.watch.go_on().map_err(ended)
    }

    /// Checks the number of entries, and reserves memory for the entries, failures and warnings.
    fn bound(&mut self) -> Result<(), Error> {
        check_count(self.listing.len())?;
        self.memory.hold(self.bytes())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.listing.bytes() + self.said
    }

    /// Adds an entry of the folder `parent`. If the entry is a folder, returns its number; the
    /// caller adds the content.
    fn found(
        &mut self,
        spot: Spot<'_>,
        parent: &dyn Folder,
        filters: &CompiledFilters,
    ) -> Option<u32> {
        let Spot { path, .. } = spot;
        let name = spot.name();
        if names::is_reserved(name) {
            self.warn(format!("{}: left by an unfinished copy, not copied", show(path)));
            return None;
        }
        let attributes = match parent.look(name) {
            Ok(attributes) => attributes,
            Err(error) => {
                self.fail(path, reason(&error));
                return None;
            }
        };
        let is_fit = attributes.kind != NameKind::File || filters.fits(attributes.size);
        if !is_fit || !filters.takes(path, attributes.kind == NameKind::Folder) {
            return None;
        }
        if path.len() > MAX_PATH {
            self.fail(path, "its path is longer than 4096 bytes".to_owned());
            return None;
        }
        if name.len() > names::NAME_MAX {
            self.fail(path, "its name is longer than 255 bytes".to_owned());
            return None;
        }
        match attributes.kind {
            NameKind::File => self.file(spot, (parent, name), &attributes, LARGE),
            NameKind::Link => self.link(spot, parent, &attributes),
            NameKind::Folder => return Some(self.folder(spot, &attributes)),
            _ => {
                self.warn(format!("{}: a device, socket or pipe, not copied", show(path)));
            }
        }
        None
    }

    fn fail(&mut self, path: &[u8], reason: String) {
        let failure = Failure { path: path.to_vec(), reason, ..Failure::default() };
        self.said += failure.bytes();
        self.failures.push(failure);
    }

    fn warn(&mut self, warning: String) {
        self.said += (size_of::<String>() + warning.len()) as u64;
        self.warnings.push(warning);
    }
}

fn check_count(entries: u64) -> Result<(), Error> {
    if entries <= MAX_ENTRIES {
        return Ok(());
    }
    let what = "more than ten million files and folders in one copy";
    Err(Error::new(FileErrorKind::Request, what).advise("copy its folders one by one"))
}

fn file_kind(
    parent: &dyn Folder,
    name: &[u8],
    attributes: &Attributes,
    large_from: u64,
) -> std::io::Result<Kind> {
    let size = attributes.size;
    let sparse = attributes.allocated < size;
    let mut holes = Vec::new();
    if size >= large_from {
        let file = parent.open(name, Access::Read)?;
        if sparse {
            holes = holes_of(size, |at| file.next_data(at), |at| file.next_hole(at));
        }
    } else if !is_ours(attributes) {
        // If a link replaces the file meanwhile, this call checks the link's target. That is
        // harmless, because the later read follows no link.
        parent.may_read(name)?;
    }
    Ok(Kind::File { size, sparse, holes: holes.into() })
}

/// Returns whether this process's user owns a file and the mode lets the owner read it. Such a file
/// needs no other check.
fn is_ours(attributes: &Attributes) -> bool {
    attributes.mode & 0o400 != 0 && attributes.is_own()
}

/// Returns the chunks without any content, in at most [`MAX_HOLES`] ranges. Chunks for which the
/// file system does not report holes count as content.
pub(crate) fn holes_of(
    size: u64,
    next_data: impl Fn(u64) -> std::io::Result<Option<u64>>,
    next_hole: impl Fn(u64) -> std::io::Result<u64>,
) -> Vec<Range<u64>> {
    let mut holes = Vec::new();
    let mut end_of_content = 0;
    while end_of_content < size {
        let next = match next_data(end_of_content) {
            Ok(at) => at.map_or(size, |at| at.min(size)),
            Err(_) => break,
        };
        let first = end_of_content.div_ceil(CHUNK);
        let end = if next == size { size.div_ceil(CHUNK) } else { next / CHUNK };
        if first < end {
            holes.push(first..end);
        }
        if holes.len() == MAX_HOLES {
            break;
        }
        match next_hole(next) {
            Ok(at) if at > next => end_of_content = at,
            _ => break,
        }
    }
    holes
}

#[cfg(test)]
mod tests {
    #![expect(clippy::single_range_in_vec_init, reason = "the lists have one range")]

    use std::ffi::OsStr;
    use std::io::ErrorKind;

    use super::*;
    use crate::MemoryFolder;

    fn walk(several: bool) -> Walk {
        Walk::new(Watch::default(), several, Box::new(()))
    }

    fn memory() -> (MemoryFolder, Attributes) {
        let folder = MemoryFolder::new(10);
        folder.put(OsStr::new("x"), b"12345".to_vec());
        let found = folder.look(b"x").expect("it is there");
        (folder, found)
    }

    #[test]
    fn a_copy_has_at_most_ten_million_entries() {
        assert_eq!(check_count(10_000_000).map_err(|error| error.kind), Ok(()));
        let kind = check_count(10_000_001).map_err(|error| error.kind);
        assert_eq!(kind, Err(FileErrorKind::Request));
    }

    #[test]
    fn failures_and_warnings_are_charged_and_a_cancelled_walk_ends() {
        let mut walk = walk(false);
        walk.fail(b"ab", "why".to_owned());
        let failure = (size_of::<Failure>() + 2 + 3) as u64;
        assert_eq!(walk.bytes(), failure);
        walk.warn("skipped".to_owned());
        assert_eq!(walk.bytes(), failure + (size_of::<String>() + 7) as u64);
        walk.watch.end();
        assert_eq!(walk.go_on().expect_err("it has ended").kind, FileErrorKind::Unfinished);
    }

    #[test]
    fn folders_of_one_name_are_merged_if_there_are_several_sources() {
        let (_, found) = memory();
        let add = |walk: &mut Walk, source, folder, path: &str| {
            walk.folder(Spot { source, folder, path: path.as_bytes() }, &found)
        };
        let mut one = walk(false);
        assert_eq!([add(&mut one, 0, None, "a"), add(&mut one, 0, None, "a")], [0, 1]);
        let mut several = walk(true);
        assert_eq!([add(&mut several, 0, None, "a"), add(&mut several, 1, None, "a")], [0, 0]);
        assert_eq!([add(&mut several, 1, Some(0), "a/a"), add(&mut several, 0, None, "b")], [1, 2]);
        assert_eq!(several.origins, [0, 1, 0]);
    }

    #[test]
    fn large_files_are_opened_and_small_files_are_checked_unless_owned_and_readable() {
        let (folder, found) = memory();
        let kind = |name: &[u8], attributes: Attributes, large_from| {
            file_kind(&folder, name, &attributes, large_from).ok()
        };
        let sparse = |sparse| Some(Kind::File { size: 5, sparse, holes: Box::default() });
        assert_eq!(kind(b"x", found, 5), sparse(false));
        assert_eq!(kind(b"x", Attributes { allocated: 4, ..found }, 5), sparse(true));
        assert_eq!((kind(b"y", found, 5), kind(b"y", found, 6)), (None, sparse(false)));
        let foreign = Attributes { owner: found.owner + 1, ..found };
        let hidden = Attributes { mode: 0o377, ..found };
        for other in [foreign, hidden] {
            assert_eq!((kind(b"y", other, 6), kind(b"x", other, 6)), (None, sparse(false)));
            assert!(!is_ours(&other));
        }
        assert!(is_ours(&Attributes { mode: 0o400, ..found }));
    }

    fn holes(size: u64, data: &[Range<u64>]) -> Vec<Range<u64>> {
        let next = |at| data.iter().find(|data| data.end > at);
        let next_data = |at| Ok(next(at).map(|data| data.start.max(at)));
        let next_hole = |at| Ok(next(at).filter(|data| data.contains(&at)).map_or(at, |it| it.end));
        holes_of(size, next_data, next_hole)
    }

    #[test]
    fn without_information_about_holes_the_rest_counts_as_data() {
        let cannot = || Err::<(), _>(ErrorKind::Unsupported.into());
        assert_eq!(holes_of(3 * CHUNK, |_| cannot().map(|()| None), Ok), []);
        let one = |at| if at == 0 { Ok(Some(CHUNK)) } else { Err(ErrorKind::Unsupported.into()) };
        assert_eq!(holes_of(3 * CHUNK, one, |_| Ok(2 * CHUNK)), [0..1]);
        assert_eq!(holes_of(3 * CHUNK, |_| Ok(Some(CHUNK)), |_| cannot().map(|()| 0)), [0..1]);
    }

    #[test]
    fn the_search_for_holes_ends_at_the_end_of_the_file_and_at_content_of_length_zero() {
        let within = |at| {
            assert!(at < CHUNK, "the file ends there");
            Ok(Some(0))
        };
        assert_eq!(holes_of(CHUNK, within, |_| Ok(CHUNK)), []);
        let calls = std::cell::Cell::new(0);
        let counted = |at| {
            calls.set(calls.get() + 1);
            assert!(calls.get() < 9, "the search repeats itself");
            Ok(Some(at))
        };
        assert_eq!(holes_of(9 * CHUNK, counted, Ok), []);
    }

    #[test]
    fn a_hole_consists_of_chunks_without_content() {
        const C: u64 = CHUNK;
        assert_eq!(holes(5 * C, &[0..5 * C]), []);
        assert_eq!(holes(5 * C, &[]), [0..5]);
        assert_eq!(holes(5 * C, &[0..C, 3 * C..4 * C]), [1..3, 4..5]);
        // A chunk with a byte of content, at either end, is not a hole.
        assert_eq!(holes(5 * C, &[0..C + 1, 4 * C - 1..5 * C]), [2..3]);
        assert_eq!(holes(5 * C, &[0..1, C..5 * C]), []);
        // The last chunk may be short, and data after the end do not count.
        assert_eq!(holes(4 * C + 1, &[0..C]), [1..5]);
        assert_eq!(holes(4 * C + 1, &[0..C, 9 * C..10 * C]), [1..5]);
        assert_eq!(holes(0, &[]), []);
    }

    #[test]
    fn the_search_for_holes_ends_at_the_maximum_number_of_ranges() {
        // Every second chunk is a hole.
        let next_data = |at: u64| Ok(Some((at / CHUNK).next_multiple_of(2) * CHUNK));
        let next_hole = |at: u64| Ok((at / CHUNK + 1) * CHUNK);
        let last = MAX_HOLES as u64;
        let found = holes_of(u64::MAX, next_data, next_hole);
        assert_eq!((found.len(), &found[0]), (MAX_HOLES, &(1..2)));
        assert_eq!(found.last(), Some(&(2 * last - 1..2 * last)));
    }
}
