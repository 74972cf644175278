//! A disk in memory, for tests, with a page cache. A seed chooses the faults and the losses of a
//! power failure.
//!
//! A failed sync marks the unwritten pages as clean. Later syncs succeed, but the device gets these
//! pages only if they are written again. Reads return the new content until the cache drops it.
//! Entries of a folder are volatile until that folder, or the file system, is synced. An entry
//! whose sync failed stays volatile, as in a journalling file system. A rename is atomic. After a
//! power failure any subset of the volatile pages and entries may exist.

mod handles;
mod power;
mod rng;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

pub(crate) use self::rng::Rng;
use super::{Attributes, NameKind, SharedFolder, real};
use crate::manifest::FileTime;

const PAGE: usize = 4096;
const ROOT: u64 = 1;

/// One number for each kind of fault: either its rate per 10,000 calls, or its count so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Reads, writes and other changes of files that fail.
    pub(crate) access: u32,
    /// Reads and writes that transfer only half of the bytes.
    pub(crate) short: u32,
    /// Writes, reservations and new entries that fail because the disk is full.
    pub(crate) room: u32,
    /// Failed syncs of a file, of a folder, or of the file system, without failures that
    /// `folder_sync` causes.
    pub(crate) sync: u32,
    /// Failed syncs of a folder. The rate is in addition to `sync`; the count includes every failed
    /// sync of a folder.
    pub(crate) folder_sync: u32,
    pub(crate) rename: u32,
    /// Writes after which the system's own write-back of dirty pages fails.
    pub(crate) write_back: u32,
    /// Calls at whose start the cache drops clean pages.
    pub(crate) eviction: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Page {
    /// Whether the cache has data for the page; false for a hole.
    cached: bool,
    /// Whether the device has data for the page; false for a hole.
    stored: bool,
    dirty: bool,
    /// Whether a failed write-back marked the page as clean.
    lost: bool,
    /// Whether reads of the page fail.
    unreadable: bool,
}

#[derive(Clone, Debug)]
enum Body {
    File,
    Folder,
    Link(Vec<u8>),
}

#[derive(Clone, Copy, Debug, Default)]
struct Meta {
    len: u64,
    mode: u32,
    modified: FileTime,
}

#[derive(Clone, Debug)]
struct Inode {
    body: Body,
    cached: Meta,
    stored: Meta,
    cache: Vec<u8>,
    device: Vec<u8>,
    pages: Vec<Page>,
    /// Whether the next sync of the file reports the error of an earlier write-back.
    unreported: bool,
    links: u64,
    handles: u64,
    /// A folder's entries in the cache.
    entries: BTreeMap<Vec<u8>, u64>,
    /// A folder's entries on the device.
    stored_entries: BTreeMap<Vec<u8>, u64>,
}

/// A change of a folder's entries. The device does not have the change yet.
#[derive(Clone, Debug)]
struct Change {
    folder: u64,
    entries: Vec<(Vec<u8>, Option<u64>)>,
}

#[derive(Debug)]
struct State {
    device: u64,
    /// The disks that are mounted on folders of this disk.
    mounts: BTreeMap<u64, Disk>,
    inodes: BTreeMap<u64, Inode>,
    next: u64,
    /// Whether names are case-insensitive, and keep the form in which they were created.
    folds: bool,
    clock: i64,
    /// Whether the clock stands still.
    stands: bool,
    changes: Vec<Change>,
    locks: BTreeMap<u64, u64>,
    has_locks: bool,
    fails_locks: bool,
    /// Whether the modes of files limit this process, as they limit any user but root.
    obeys_modes: bool,
    faults: Faults,
    rng: Rng,
    /// Errors that syncs of the file system report, once for each handle.
    errors: u64,
    /// Calls until the process is killed.
    calls_left: Option<u64>,
    struck: Faults,
    /// Failed write-backs, which may lose dirty pages: of files of a page or more, and of all
    /// others.
    lost: (u64, u64),
    /// Failed reads: of files of a page or more, and of shorter files.
    unread: (u64, u64),
}

/// Clones refer to the same disk.
#[derive(Clone, Debug)]
pub(crate) struct Disk(Arc<Mutex<State>>);

/// The inode number of each path, in the cache or on the device.
pub(crate) type Tree = BTreeMap<Vec<u8>, u64>;

fn eio() -> io::Error {
    Errno::IO.into()
}

impl Inode {
    fn new(body: Body, mode: u32, modified: FileTime) -> Inode {
        let cached = Meta { len: 0, mode, modified };
        Inode {
            body,
            cached,
            stored: cached,
            cache: Vec::new(),
            device: Vec::new(),
            pages: Vec::new(),
            unreported: false,
            links: 1,
            handles: 0,
            entries: BTreeMap::new(),
            stored_entries: BTreeMap::new(),
        }
    }

    fn set_len(&mut self, len: u64) {
        let (old, new) = (self.cached.len as usize, len as usize);
        self.cached.len = len;
        self.cache.resize(new, 0);
        self.pages.resize(new.div_ceil(PAGE).max(self.pages.len()), Page::default());
        if new < old {
            self.blank(new..old);
        }
    }

    /// Makes a range read as zeros, and marks its pages as dirty.
    fn blank(&mut self, range: Range<usize>) {
        let end = range.end.min(self.cache.len());
        if range.start < end {
            self.cache[range.start..end].fill(0);
        }
        for page in range.start / PAGE..range.end.div_ceil(PAGE) {
            let is_whole = page * PAGE >= range.start
                && ((page + 1) * PAGE <= range.end || range.end >= self.cache.len());
            if let Some(page) = self.pages.get_mut(page) {
                page.cached &= !is_whole;
                (page.dirty, page.lost) = (true, false);
            }
        }
    }

    fn write(&mut self, at: usize, content: &[u8]) {
        let end = at + content.len();
        if end > self.cache.len() {
            self.set_len(end as u64);
        }
        self.cache[at..end].copy_from_slice(content);
        for page in &mut self.pages[at / PAGE..end.div_ceil(PAGE)] {
            *page = Page { cached: true, stored: page.stored, dirty: true, ..Page::default() };
        }
    }

    fn store(&mut self, number: usize) {
        let (start, end) = (number * PAGE, ((number + 1) * PAGE).min(self.cache.len()));
        if self.device.len() < self.cache.len() {
            self.device.resize(self.cache.len(), 0);
        }
        let page = &mut self.pages[number];
        page.stored = page.cached;
        if start < end {
            self.device[start..end].copy_from_slice(&self.cache[start..end]);
        }
        if let Some(behind) = self.device.get_mut(end.max(start)..) {
            let rest = ((number + 1) * PAGE).saturating_sub(end.max(start)).min(behind.len());
            behind[..rest].fill(0);
        }
        (page.dirty, page.lost) = (false, false);
    }

    fn is_short(&self) -> bool {
        self.cached.len < PAGE as u64
    }

    fn is_unreadable(&self, range: Range<usize>) -> bool {
        let pages = self.pages.iter().take(range.end.div_ceil(PAGE)).skip(range.start / PAGE);
        pages.into_iter().any(|page| page.unreadable)
    }

    fn dirty_pages(&self) -> Vec<usize> {
        (0..self.pages.len()).filter(|number| self.pages[*number].dirty).collect()
    }

    /// Drops clean pages from the cache. Only lost pages change: for the others, the device has the
    /// same content.
    fn evict(&mut self) {
        for number in 0..self.pages.len() {
            let page = &mut self.pages[number];
            if !page.lost {
                continue;
            }
            (page.lost, page.cached) = (false, page.stored);
            let start = (number * PAGE).min(self.cache.len());
            let end = ((number + 1) * PAGE).min(self.cache.len());
            self.cache[start..end].fill(0);
            if let Some(device) = self.device.get(start..end.min(self.device.len())) {
                self.cache[start..start + device.len()].copy_from_slice(device);
            }
        }
    }

    fn stored_content(&self) -> Vec<u8> {
        let mut content = self.device.clone();
        content.resize(self.stored.len as usize, 0);
        content
    }
}

impl State {
    /// Counts a call: fails after the kill of the process, and may drop clean pages from the cache.
    fn call(&mut self) -> io::Result<()> {
        match &mut self.calls_left {
            Some(0) => return Err(eio()),
            Some(left) => *left -= 1,
            None => {}
        }
        if self.strike(|faults| &mut faults.eviction) {
            self.inodes.values_mut().for_each(Inode::evict);
        }
        Ok(())
    }

    fn strike(&mut self, kind: impl Fn(&mut Faults) -> &mut u32) -> bool {
        let strikes = self.rng.chance(*kind(&mut self.faults));
        *kind(&mut self.struck) += u32::from(strikes);
        strikes
    }

    fn now(&mut self) -> FileTime {
        self.clock += i64::from(!self.stands);
        FileTime { seconds: self.clock, nanos: 0 }
    }

    fn inode(&mut self, number: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&number).ok_or_else(|| Errno::STALE.into())
    }

    /// Returns the name under which the disk stores the file `name`, or would create it.
    fn stored_name(&mut self, folder: u64, name: &[u8]) -> io::Result<Vec<u8>> {
        let folds = self.folds;
        let mut there = self.inode(folder)?.entries.keys();
        let found = there.find(|there| folds && there.eq_ignore_ascii_case(name));
        Ok(found.map_or_else(|| name.to_vec(), Vec::clone))
    }

    fn find(&mut self, folder: u64, name: &[u8]) -> io::Result<u64> {
        let name = self.stored_name(folder, name)?;
        let found = self.inode(folder)?.entries.get(&name).copied();
        found.ok_or_else(|| Errno::NOENT.into())
    }

    fn attributes(&self, number: u64) -> io::Result<Attributes> {
        let inode = self.inodes.get(&number).ok_or_else(|| io::Error::from(Errno::STALE))?;
        let kind = match inode.body {
            Body::File => NameKind::File,
            Body::Folder => NameKind::Folder,
            Body::Link(_) => NameKind::Link,
        };
        let there = inode.pages.iter().filter(|page| page.cached).count();
        Ok(Attributes {
            kind,
            size: inode.cached.len,
            mode: inode.cached.mode,
            modified: inode.cached.modified,
            changed: inode.cached.modified,
            identity: (self.device, number),
            links: inode.links,
            owner: real::user(),
            allocated: (there * PAGE) as u64,
        })
    }

    fn add(&mut self, folder: u64, name: &[u8], inode: Inode) -> io::Result<u64> {
        let name = &*self.stored_name(folder, name)?;
        if self.inode(folder)?.entries.contains_key(name) {
            return Err(Errno::EXIST.into());
        }
        if self.strike(|faults| &mut faults.room) {
            return Err(Errno::NOSPC.into());
        }
        let number = self.next;
        self.next += 1;
        self.inodes.insert(number, inode);
        self.change(folder, vec![(name.to_vec(), Some(number))])?;
        Ok(number)
    }

    fn change(&mut self, folder: u64, entries: Vec<(Vec<u8>, Option<u64>)>) -> io::Result<()> {
        let mut entries = entries;
        for (name, _) in &mut entries {
            *name = self.stored_name(folder, name)?;
        }
        for (name, number) in &entries {
            let inode = self.inode(folder)?;
            let before = match number {
                Some(number) => inode.entries.insert(name.clone(), *number),
                None => inode.entries.remove(name),
            };
            if let Some(before) = before.filter(|before| Some(*before) != *number) {
                let still = self.inodes[&folder].entries.values().any(|there| *there == before);
                let moves = entries.iter().any(|(_, number)| *number == Some(before));
                if !still && !moves {
                    self.inode(before)?.links = 0;
                }
            }
        }
        let now = self.now();
        self.inode(folder)?.cached.modified = now;
        self.changes.push(Change { folder, entries });
        Ok(())
    }

    fn store_change(&mut self, change: Change) {
        let Some(folder) = self.inodes.get_mut(&change.folder) else { return };
        for (name, number) in change.entries {
            match number {
                Some(number) => folder.stored_entries.insert(name, number),
                None => folder.stored_entries.remove(&name),
            };
        }
    }

    /// Writes a file's dirty pages back; with `fails` each of them may be lost.
    fn write_back(&mut self, number: u64, fails: bool) {
        let is_short = self.inodes.get(&number).is_some_and(Inode::is_short);
        self.lost.0 += u64::from(fails && !is_short);
        self.lost.1 += u64::from(fails && is_short);
        let mut rng = self.rng.clone();
        let Some(inode) = self.inodes.get_mut(&number) else { return };
        for page in inode.dirty_pages() {
            if fails && rng.coin() {
                (inode.pages[page].dirty, inode.pages[page].lost) = (false, true);
            } else {
                inode.store(page);
            }
        }
        self.rng = rng;
    }

    fn sync_file(&mut self, number: u64, all: bool) -> io::Result<()> {
        let fails = self.strike(|faults| &mut faults.sync);
        self.write_back(number, fails);
        let inode = self.inode(number)?;
        let reported = std::mem::take(&mut inode.unreported);
        if fails || reported {
            return Err(eio());
        }
        inode.stored.len = inode.cached.len;
        if all {
            inode.stored = inode.cached;
        }
        Ok(())
    }

    fn sync_folder(&mut self, number: u64) -> io::Result<()> {
        if self.strike(|faults| &mut faults.folder_sync) {
            return Err(eio());
        }
        if self.strike(|faults| &mut faults.sync) {
            self.struck.folder_sync += 1;
            return Err(eio());
        }
        let changes = std::mem::take(&mut self.changes);
        let (own, others) = changes.into_iter().partition(|change| change.folder == number);
        self.changes = others;
        let own: Vec<Change> = own;
        own.into_iter().for_each(|change| self.store_change(change));
        let inode = self.inode(number)?;
        inode.stored = inode.cached;
        Ok(())
    }

    fn sync_all(&mut self, seen: u64) -> io::Result<()> {
        let fails = self.strike(|faults| &mut faults.sync);
        let numbers: Vec<u64> = self.inodes.keys().copied().collect();
        for number in numbers {
            let fails = fails && self.rng.coin();
            self.write_back(number, fails);
        }
        if fails {
            self.errors += 1;
        }
        if self.errors > seen {
            return Err(eio());
        }
        let changes = std::mem::take(&mut self.changes);
        changes.into_iter().for_each(|change| self.store_change(change));
        self.inodes.values_mut().for_each(|inode| inode.stored = inode.cached);
        Ok(())
    }

    fn close(&mut self, number: u64, id: u64) {
        self.locks.retain(|_, holder| *holder != id);
        let forgets = self.rng.coin();
        let Some(inode) = self.inodes.get_mut(&number) else { return };
        inode.handles -= 1;
        let is_clean = inode.pages.iter().all(|page| !page.dirty);
        // Under memory pressure the system forgets the file, its pages and the error.
        if inode.handles == 0 && is_clean && forgets && matches!(inode.body, Body::File) {
            inode.evict();
            inode.unreported = false;
        }
    }
}

impl Disk {
    pub(crate) fn new(seed: u64) -> Disk {
        let root = Inode::new(Body::Folder, 0o755, FileTime::default());
        Disk(Arc::new(Mutex::new(State {
            device: seed,
            mounts: BTreeMap::new(),
            inodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
            folds: false,
            clock: 1_000_000,
            stands: false,
            changes: Vec::new(),
            locks: BTreeMap::new(),
            has_locks: true,
            fails_locks: false,
            obeys_modes: false,
            faults: Faults::default(),
            rng: Rng::new(seed),
            errors: 0,
            calls_left: None,
            struck: Faults::default(),
            lost: (0, 0),
            unread: (0, 0),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lose_locks(&self) {
        self.state().has_locks = false;
    }

    pub(crate) fn fail_locks(&self) {
        self.state().fails_locks = true;
    }

    pub(crate) fn obey_modes(&self) {
        self.state().obeys_modes = true;
    }

    pub(crate) fn fold_names(&self) {
        self.state().folds = true;
    }

    pub(crate) fn stop_clock(&self) {
        self.state().stands = true;
    }

    pub(crate) fn root(&self) -> SharedFolder {
        handles::folder(self, &mut self.state(), ROOT).expect("the top is a folder")
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Returns the count of each kind of fault, and of failed write-backs, which may lose dirty
    /// pages: of files of a page or more, and of all others.
    pub(crate) fn struck(&self) -> (Faults, (u64, u64)) {
        let state = self.state();
        (state.struck, state.lost)
    }

    /// Makes the next sync of each file fail, even if the sync writes everything back.
    pub(crate) fn fail_next_sync(&self) {
        let mut state = self.state();
        state.inodes.values_mut().for_each(|inode| inode.unreported = true);
    }

    /// Mounts `other` on a folder at the top.
    pub(crate) fn mount(&self, name: &[u8], other: &Disk) {
        let mut state = self.state();
        let number = state.find(ROOT, name).expect("the folder is there");
        state.mounts.insert(number, other.clone());
    }

    /// Makes the next sync of the file system through each open handle fail.
    pub(crate) fn fail_next_file_system_sync(&self) {
        self.state().errors += 1;
    }

    /// Returns the number of failed reads: of files of a page or more, and of shorter files.
    pub(crate) fn unread(&self) -> (u64, u64) {
        self.state().unread
    }

    /// Makes the page at `offset` of a file unreadable, like a bad sector, until the page is
    /// written again or the power is cut.
    pub(crate) fn spoil(&self, number: u64, offset: u64) {
        let mut state = self.state();
        let inode = state.inode(number).expect("the file is there");
        inode.pages[offset as usize / PAGE].unreadable = true;
    }

    /// After `calls` more calls, kills the process that uses the disk: later calls fail and change
    /// nothing, until [`Disk::restart`].
    pub(crate) fn kill_after(&self, calls: u64) {
        self.state().calls_left = Some(calls);
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.state().calls_left == Some(0)
    }

    /// Starts another process; the cache remains.
    pub(crate) fn restart(&self) {
        let mut state = self.state();
        state.calls_left = None;
        state.locks.clear();
    }

    /// Returns every path on the device (`stored`) or in the cache.
    pub(crate) fn tree(&self, stored: bool) -> Tree {
        self.state().tree(stored)
    }

    pub(crate) fn stored(&self, number: u64) -> Vec<u8> {
        self.state().inodes[&number].stored_content()
    }

    pub(crate) fn cached(&self, number: u64) -> Vec<u8> {
        self.state().inodes[&number].cache.clone()
    }
}

impl State {
    fn tree(&self, stored: bool) -> Tree {
        let mut tree = Tree::new();
        let mut left = vec![(Vec::new(), ROOT)];
        while let Some((path, number)) = left.pop() {
            let inode = &self.inodes[&number];
            let entries = if stored { &inode.stored_entries } else { &inode.entries };
            for (name, number) in entries {
                let path =
                    if path.is_empty() { name.clone() } else { [&path, &b"/"[..], name].concat() };
                if let Some(inode) = self.inodes.get(number) {
                    if matches!(inode.body, Body::Folder) {
                        left.push((path.clone(), *number));
                    }
                    tree.insert(path, *number);
                }
            }
        }
        tree
    }
}
