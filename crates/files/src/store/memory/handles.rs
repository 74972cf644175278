//! Open files and folders of the disk in memory.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::{Body, Disk, Inode, PAGE, State, eio};
use crate::manifest::FileTime;
use crate::store::{Access, Attributes, File, Folder, OpenFile, Room, SharedFolder, busy};

/// The id of the next handle. A lock belongs to the id of the handle that took it.
static NEXT: AtomicU64 = AtomicU64::new(1);

#[derive(Debug)]
struct Handle {
    disk: Disk,
    number: u64,
    id: u64,
    access: Access,
    /// Number of the file system's errors that this handle has reported or that happened before it
    /// was opened.
    seen: AtomicU64,
}

impl Handle {
    fn new(disk: &Disk, state: &mut State, number: u64, access: Access) -> io::Result<Handle> {
        state.inode(number)?.handles += 1;
        let (disk, id) = (disk.clone(), NEXT.fetch_add(1, Ordering::Relaxed));
        Ok(Handle { disk, number, id, access, seen: AtomicU64::new(state.errors) })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.state();
        state.call()?;
        act(&mut state)
    }

    /// As `with`, for a change of the file or folder, which an injected fault may refuse.
    fn change<T>(&self, act: impl FnOnce(&mut Inode) -> T) -> io::Result<T> {
        self.with(|state| {
            if state.strike(|faults| &mut faults.access) {
                return Err(eio());
            }
            Ok(act(state.inode(self.number)?))
        })
    }

    fn lock(&self, state: &mut State) -> io::Result<bool> {
        if state.fails_locks {
            return Err(eio());
        }
        if !state.has_locks {
            return Ok(false);
        }
        let holder = *state.locks.entry(self.number).or_insert(self.id);
        if holder == self.id { Ok(true) } else { Err(busy()) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.disk.state().close(self.number, self.id);
    }
}

pub(super) fn folder(disk: &Disk, state: &mut State, number: u64) -> io::Result<SharedFolder> {
    match state.inode(number)?.body {
        Body::Folder => Ok(Arc::new(Handle::new(disk, state, number, Access::Read)?)),
        _ => Err(Errno::NOTDIR.into()),
    }
}

impl Folder for Handle {
    fn attributes(&self) -> io::Result<Attributes> {
        self.with(|state| state.attributes(self.number))
    }

    fn look(&self, name: &[u8]) -> io::Result<Attributes> {
        self.with(|state| {
            let number = state.find(self.number, name)?;
            match state.mounts.get(&number) {
                Some(mounted) => mounted.root().attributes(),
                None => state.attributes(number),
            }
        })
    }

    fn each_name(&self, tell: &mut dyn FnMut(Vec<u8>) -> bool) -> io::Result<()> {
        let names: Vec<Vec<u8>> =
            self.with(|state| Ok(state.inode(self.number)?.entries.keys().cloned().collect()))?;
        let _ = names.into_iter().all(tell);
        Ok(())
    }

    fn open(&self, name: &[u8], access: Access) -> io::Result<OpenFile> {
        self.with(|state| {
            let number = state.find(self.number, name)?;
            let needed = match access {
                Access::Read => 0o400,
                Access::Write => 0o200,
                Access::ReadWrite => 0o600,
            };
            let inode = state.inode(number)?;
            let (mode, body) = (inode.cached.mode, inode.body.clone());
            if state.obeys_modes && mode & needed != needed {
                return Err(Errno::ACCESS.into());
            }
            match body {
                Body::File => Ok(Box::new(Handle::new(&self.disk, state, number, access)?) as _),
                Body::Folder => Err(Errno::ISDIR.into()),
                Body::Link(_) => Err(Errno::LOOP.into()),
            }
        })
    }

    fn create(&self, name: &[u8], mode: u32) -> io::Result<OpenFile> {
        self.with(|state| {
            let inode = Inode::new(Body::File, mode, state.now());
            let number = state.add(self.number, name, inode)?;
            Ok(Box::new(Handle::new(&self.disk, state, number, Access::ReadWrite)?) as _)
        })
    }

    fn open_folder(&self, name: &[u8]) -> io::Result<SharedFolder> {
        self.with(|state| {
            let number = state.find(self.number, name)?;
            match state.mounts.get(&number) {
                Some(mounted) => Ok(mounted.root()),
                None => folder(&self.disk, state, number),
            }
        })
    }

    fn lock(&self) -> io::Result<SharedFolder> {
        self.with(|state| {
            let handle = Handle::new(&self.disk, state, self.number, Access::Read)?;
            match handle.lock(state) {
                Ok(_) => Ok(Arc::new(handle) as _),
                Err(error) => {
                    // Dropping the handle would lock the disk, which is already locked here.
                    state.close(handle.number, handle.id);
                    std::mem::forget(handle);
                    Err(error)
                }
            }
        })
    }

    fn make_folder(&self, name: &[u8], mode: u32) -> io::Result<()> {
        self.with(|state| {
            let inode = Inode::new(Body::Folder, mode, state.now());
            state.add(self.number, name, inode).map(|_| ())
        })
    }

    fn make_link(&self, target: &[u8], name: &[u8]) -> io::Result<()> {
        self.with(|state| {
            let inode = Inode::new(Body::Link(target.to_vec()), 0o777, state.now());
            state.add(self.number, name, inode).map(|_| ())
        })
    }

    fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        self.with(|state| {
            let number = state.find(self.number, name)?;
            match &state.inode(number)?.body {
                Body::Link(target) => Ok(target.clone()),
                _ => Err(Errno::INVAL.into()),
            }
        })
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        self.with(|state| {
            if state.strike(|faults| &mut faults.rename) {
                return Err(eio());
            }
            let number = state.find(self.number, from)?;
            let entries = vec![(from.to_vec(), None), (to.to_vec(), Some(number))];
            state.change(self.number, entries)
        })
    }

    fn remove(&self, name: &[u8]) -> io::Result<()> {
        self.with(|state| match state.find(self.number, name) {
            Ok(_) => state.change(self.number, vec![(name.to_vec(), None)]),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        })
    }

    fn remove_folder(&self, name: &[u8]) -> io::Result<()> {
        if !self.open_folder(name)?.names()?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.remove(name)
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.change(|inode| inode.cached.mode = mode)
    }

    fn set_modified(&self, modified: FileTime) -> io::Result<()> {
        self.change(|inode| inode.cached.modified = modified)
    }

    fn set_link_modified(&self, name: &[u8], modified: FileTime) -> io::Result<()> {
        self.with(|state| {
            let number = state.find(self.number, name)?;
            state.inode(number)?.cached.modified = modified;
            Ok(())
        })
    }

    fn may_write(&self) -> io::Result<()> {
        self.with(|state| {
            let is_refused =
                state.obeys_modes && state.inode(self.number)?.cached.mode & 0o200 == 0;
            if is_refused { Err(Errno::ACCESS.into()) } else { Ok(()) }
        })
    }

    fn may_read(&self, name: &[u8]) -> io::Result<()> {
        self.look(name).map(|_| ())
    }

    fn room(&self) -> Option<Room> {
        None
    }

    fn device(&self) -> String {
        "a disk in memory".to_owned()
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|state| state.sync_folder(self.number))
    }

    fn sync_file_system(&self) -> io::Result<()> {
        self.with(|state| {
            let synced = state.sync_all(self.seen.load(Ordering::Relaxed));
            self.seen.store(state.errors, Ordering::Relaxed);
            synced
        })
    }
}

impl File for Handle {
    fn attributes(&self) -> io::Result<Attributes> {
        self.with(|state| state.attributes(self.number))
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.with(|state| {
            let fails = state.strike(|faults| &mut faults.access);
            let inode = state.inode(self.number)?;
            if fails || inode.is_unreadable(at as usize..at as usize + buf.len()) {
                let is_short = inode.is_short();
                state.unread.0 += u64::from(!is_short);
                state.unread.1 += u64::from(is_short);
                return Err(eio());
            }
            let is_short = buf.len() > 1 && state.strike(|faults| &mut faults.short);
            let most = if is_short { buf.len() / 2 } else { buf.len() };
            let cache = &state.inode(self.number)?.cache;
            let there = cache.get(at as usize..).unwrap_or_default();
            let len = there.len().min(most);
            buf[..len].copy_from_slice(&there[..len]);
            Ok(len)
        })
    }

    fn write_at(&self, content: &[u8], at: u64) -> io::Result<usize> {
        self.with(|state| {
            if self.access == Access::Read {
                return Err(Errno::BADF.into());
            }
            if state.strike(|faults| &mut faults.access) {
                return Err(eio());
            }
            if state.strike(|faults| &mut faults.room) {
                return Err(Errno::NOSPC.into());
            }
            let is_short = content.len() > 1 && state.strike(|faults| &mut faults.short);
            let len = if is_short { content.len() / 2 } else { content.len() };
            let now = state.now();
            let inode = state.inode(self.number)?;
            inode.write(at as usize, &content[..len]);
            inode.cached.modified = now;
            if state.strike(|faults| &mut faults.write_back) {
                state.write_back(self.number, true);
                state.inode(self.number)?.unreported = true;
                state.errors += 1;
            }
            Ok(len)
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.access == Access::Read {
            return Err(Errno::INVAL.into());
        }
        self.with(|state| {
            if state.strike(|faults| &mut faults.access) {
                return Err(eio());
            }
            let now = state.now();
            let inode = state.inode(self.number)?;
            inode.set_len(len);
            inode.cached.modified = now;
            Ok(())
        })
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.change(|inode| inode.cached.mode = mode)
    }

    fn set_modified(&self, modified: FileTime) -> io::Result<()> {
        self.change(|inode| inode.cached.modified = modified)
    }

    fn lock(&self) -> io::Result<bool> {
        self.with(|state| Handle::lock(self, state))
    }

    fn reserve(&self, _size: u64) -> io::Result<()> {
        self.with(|state| match state.strike(|faults| &mut faults.room) {
            true => Err(Errno::NOSPC.into()),
            false => Ok(()),
        })
    }

    fn punch(&self, range: Range<u64>) -> io::Result<()> {
        if self.access == Access::Read {
            return Err(Errno::BADF.into());
        }
        self.change(|inode| inode.blank(range.start as usize..range.end as usize))
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        self.with(|state| {
            let inode = state.inode(self.number)?;
            let first = at as usize / PAGE;
            let pages = inode.pages.iter().enumerate().skip(first);
            let found = pages.filter(|(_, page)| page.cached).map(|(n, _)| (n * PAGE) as u64);
            let len = inode.cached.len;
            Ok(found.map(|start| start.max(at)).find(|start| *start < len))
        })
    }

    fn next_hole(&self, at: u64) -> io::Result<u64> {
        self.with(|state| {
            let inode = state.inode(self.number)?;
            let first = at as usize / PAGE;
            let mut pages = inode.pages.iter().enumerate().skip(first);
            let hole = pages.find(|(_, page)| !page.cached).map(|(n, _)| (n * PAGE) as u64);
            let len = inode.cached.len;
            Ok(hole.map_or(len, |hole| hole.max(at)).min(len))
        })
    }

    fn read_ahead(&self) {}

    fn sync_data(&self) -> io::Result<()> {
        self.with(|state| state.sync_file(self.number, false))
    }

    fn sync_all(&self) -> io::Result<()> {
        self.with(|state| state.sync_file(self.number, true))
    }
}
