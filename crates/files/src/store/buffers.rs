//! A folder in memory, without subfolders or links, for programs that send or receive without a
//! disk.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

use super::{Access, Attributes, File, Folder, NameKind, OpenFile, Room, SharedFolder, not_found};
use crate::manifest::FileTime;

/// The device number of files in memory. No disk has this number.
const DEVICE: u64 = u64::MAX;
/// Every file may have this many bytes, even if the folder's limit is lower, because a journal is
/// also a file of the folder.
const JOURNAL: u64 = 64 << 10;

/// A folder of files in memory, each of limited size. Clones refer to the same folder.
#[derive(Clone, Debug)]
pub struct MemoryFolder(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Maximum bytes of a file; less than [`JOURNAL`] counts as [`JOURNAL`].
    limit: u64,
    files: Mutex<BTreeMap<Vec<u8>, Arc<Content>>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Content {
    number: u64,
    body: Mutex<Body>,
}

#[derive(Clone, Debug)]
struct Body {
    bytes: Vec<u8>,
    mode: u32,
    modified: FileTime,
    changed: FileTime,
}

impl MemoryFolder {
    /// Returns an empty folder. Each file may grow to `limit` bytes, or to 64 KiB if that is more.
    pub fn new(limit: u64) -> MemoryFolder {
        let (files, next) = (Mutex::default(), AtomicU64::new(1));
        MemoryFolder(Arc::new(Shared { limit, files, next }))
    }

    /// Adds a file of any size; replaces a file of the same name.
    pub fn put(&self, name: &OsStr, bytes: Vec<u8>) {
        let content = self.content(bytes, 0o644);
        self.files().insert(name.as_bytes().to_vec(), content);
    }

    /// Removes and returns a file.
    pub fn take(&self, name: &OsStr) -> Option<Vec<u8>> {
        let content = self.files().remove(name.as_bytes())?;
        Some(std::mem::take(&mut content.body().bytes))
    }

    fn content(&self, bytes: Vec<u8>, mode: u32) -> Arc<Content> {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (modified, changed) = (now(), now());
        Arc::new(Content { number, body: Mutex::new(Body { bytes, mode, modified, changed }) })
    }

    /// Locks the files. A poisoned lock is used as it is, because no panic leaves the map
    /// inconsistent.
    fn files(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Arc<Content>>> {
        self.0.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, name: &[u8]) -> io::Result<Arc<Content>> {
        self.files().get(name).cloned().ok_or_else(not_found)
    }
}

/// The top folder of a [`Place::Stored`](crate::Place::Stored).
#[derive(Clone, Debug)]
pub struct Store(pub(crate) SharedFolder);

impl From<&MemoryFolder> for Store {
    fn from(folder: &MemoryFolder) -> Store {
        Store(Arc::new(folder.clone()))
    }
}

impl Content {
    fn body(&self) -> MutexGuard<'_, Body> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attributes(&self) -> Attributes {
        let body = self.body();
        Attributes {
            kind: NameKind::File,
            size: body.bytes.len() as u64,
            mode: body.mode,
            modified: body.modified,
            changed: body.changed,
            identity: (DEVICE, self.number),
            links: 1,
            owner: super::user(),
            allocated: body.bytes.len() as u64,
        }
    }
}

fn now() -> FileTime {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    FileTime { seconds: now.as_secs() as i64, nanos: now.subsec_nanos() }
}

fn no_room() -> io::Error {
    Errno::NOSPC.into()
}

impl Folder for MemoryFolder {
    fn attributes(&self) -> io::Result<Attributes> {
        let time = FileTime { seconds: 0, nanos: 0 };
        Ok(Attributes {
            kind: NameKind::Folder,
            size: 0,
            mode: 0o700,
            modified: time,
            changed: time,
            identity: (DEVICE, 0),
            links: 1,
            owner: super::user(),
            allocated: 0,
        })
    }

    fn look(&self, name: &[u8]) -> io::Result<Attributes> {
        Ok(self.find(name)?.attributes())
    }

    fn each_name(&self, tell: &mut dyn FnMut(Vec<u8>) -> bool) -> io::Result<()> {
        let names: Vec<Vec<u8>> = self.files().keys().cloned().collect();
        let _ = names.into_iter().all(tell);
        Ok(())
    }

    fn open(&self, name: &[u8], access: Access) -> io::Result<OpenFile> {
        let content = self.find(name)?;
        Ok(Box::new(Handle { content, limit: self.0.limit, access }))
    }

    fn create(&self, name: &[u8], mode: u32) -> io::Result<OpenFile> {
        let content = self.content(Vec::new(), mode);
        let mut files = self.files();
        if files.contains_key(name) {
            return Err(Errno::EXIST.into());
        }
        files.insert(name.to_vec(), content.clone());
        Ok(Box::new(Handle { content, limit: self.0.limit, access: Access::ReadWrite }))
    }

    fn open_folder(&self, name: &[u8]) -> io::Result<SharedFolder> {
        self.find(name)?;
        Err(Errno::NOTDIR.into())
    }

    /// Locks nothing, because no other process uses this folder.
    fn lock(&self) -> io::Result<SharedFolder> {
        Ok(Arc::new(self.clone()))
    }

    fn make_folder(&self, _name: &[u8], _mode: u32) -> io::Result<()> {
        Err(Errno::OPNOTSUPP.into())
    }

    fn make_link(&self, _target: &[u8], _name: &[u8]) -> io::Result<()> {
        Err(Errno::OPNOTSUPP.into())
    }

    fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        self.find(name)?;
        Err(Errno::INVAL.into())
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let mut files = self.files();
        let content = files.remove(from).ok_or_else(not_found)?;
        files.insert(to.to_vec(), content);
        Ok(())
    }

    fn remove(&self, name: &[u8]) -> io::Result<()> {
        self.files().remove(name);
        Ok(())
    }

    fn remove_folder(&self, _name: &[u8]) -> io::Result<()> {
        Err(super::not_a_folder())
    }

    fn set_mode(&self, _mode: u32) -> io::Result<()> {
        Ok(())
    }

    fn set_modified(&self, _modified: FileTime) -> io::Result<()> {
        Ok(())
    }

    fn set_link_modified(&self, name: &[u8], _modified: FileTime) -> io::Result<()> {
        self.find(name).map(|_| ())
    }

    fn may_write(&self) -> io::Result<()> {
        Ok(())
    }

    fn may_read(&self, name: &[u8]) -> io::Result<()> {
        self.find(name).map(|_| ())
    }

    fn room(&self) -> Option<Room> {
        Some(Room { free: self.0.limit, block: 0, free_files: None })
    }

    fn device(&self) -> String {
        "memory".to_owned()
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_file_system(&self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct Handle {
    content: Arc<Content>,
    limit: u64,
    access: Access,
}

impl Handle {
    fn make_room(&self, body: &mut Body, len: u64) -> io::Result<()> {
        if len > self.limit.max(JOURNAL) {
            return Err(no_room());
        }
        let len = usize::try_from(len).map_err(|_| no_room())?;
        let more = len.saturating_sub(body.bytes.len());
        body.bytes.try_reserve(more).map_err(|_| no_room())
    }

    fn may_change(&self) -> io::Result<()> {
        if self.access == Access::Read { Err(Errno::BADF.into()) } else { Ok(()) }
    }
}

impl File for Handle {
    fn attributes(&self) -> io::Result<Attributes> {
        Ok(self.content.attributes())
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let body = self.content.body();
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let there = body.bytes.get(at..).unwrap_or_default();
        let len = there.len().min(buf.len());
        buf[..len].copy_from_slice(&there[..len]);
        Ok(len)
    }

    fn write_at(&self, content: &[u8], at: u64) -> io::Result<usize> {
        self.may_change()?;
        let mut body = self.content.body();
        let end = at.checked_add(content.len() as u64).ok_or_else(no_room)?;
        self.make_room(&mut body, end)?;
        let (at, end) = (at as usize, end as usize);
        let len = body.bytes.len().max(end);
        body.bytes.resize(len, 0);
        body.bytes[at..end].copy_from_slice(content);
        (body.modified, body.changed) = (now(), now());
        Ok(content.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.may_change()?;
        let mut body = self.content.body();
        self.make_room(&mut body, len)?;
        body.bytes.resize(len as usize, 0);
        body.changed = now();
        Ok(())
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.content.body().mode = mode;
        Ok(())
    }

    fn set_modified(&self, modified: FileTime) -> io::Result<()> {
        self.content.body().modified = modified;
        Ok(())
    }

    fn lock(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn reserve(&self, size: u64) -> io::Result<()> {
        self.make_room(&mut self.content.body(), size)
    }

    /// Memory has no holes: the caller writes zeros.
    fn punch(&self, _: Range<u64>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        Ok((at < self.content.body().bytes.len() as u64).then_some(at))
    }

    fn next_hole(&self, _at: u64) -> io::Result<u64> {
        Ok(self.content.body().bytes.len() as u64)
    }

    fn read_ahead(&self) {}

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_grows_to_its_limit_and_no_further() {
        let folder = MemoryFolder::new(1 << 20);
        let file = folder.create(b"x", 0o600).unwrap();
        file.write_all_at(b"end", (1 << 20) - 3).unwrap();
        let full = |result: io::Result<()>| result.unwrap_err().kind();
        assert_eq!(full(file.write_all_at(b"more", (1 << 20) - 3)), io::ErrorKind::StorageFull);
        assert_eq!(full(file.set_len((1 << 20) + 1)), io::ErrorKind::StorageFull);
        assert_eq!(full(file.reserve(u64::MAX)), io::ErrorKind::StorageFull);
        assert_eq!(full(file.write_all_at(b"x", u64::MAX)), io::ErrorKind::StorageFull);
        let bytes = folder.take(OsStr::new("x")).unwrap();
        assert_eq!((bytes.len(), &bytes[bytes.len() - 4..]), (1 << 20, &b"\0end"[..]));
        assert_eq!(folder.take(OsStr::new("x")), None);
    }

    #[test]
    fn a_rename_keeps_the_version_of_a_file_and_a_replacement_changes_it() {
        let folder = MemoryFolder::new(100);
        folder.put(OsStr::new("a"), b"content".to_vec());
        let before = folder.look(b"a").unwrap();
        folder.rename(b"a", b"b").unwrap();
        assert_eq!(folder.look(b"b").unwrap().version(), before.version());
        assert!(folder.look_if_there(b"a").unwrap().is_none());
        folder.put(OsStr::new("b"), b"content".to_vec());
        assert_ne!(folder.look(b"b").unwrap().version(), before.version());
    }

    #[test]
    fn a_handle_for_reading_cannot_change_content_or_length() {
        let folder = MemoryFolder::new(100);
        folder.put(OsStr::new("a"), b"content".to_vec());
        let file = folder.open(b"a", Access::Read).unwrap();
        assert!(file.write_at(b"x", 0).is_err() && file.set_len(0).is_err());
        let mut buf = [0; 100];
        assert_eq!(file.read_at(&mut buf, 3).unwrap(), 4);
        assert_eq!(&buf[..4], b"tent");
        assert_eq!(file.read_at(&mut buf, 7).unwrap(), 0);
    }

    #[test]
    fn a_file_has_the_attributes_that_it_was_given_and_its_own_identity() {
        let folder = MemoryFolder::new(100);
        let file = folder.create(b"a", 0o640).unwrap();
        file.write_all_at(b"content", 0).unwrap();
        let time = FileTime { seconds: 5, nanos: 6 };
        file.set_modified(time).unwrap();
        let found = folder.look(b"a").unwrap();
        assert_eq!((found.kind, found.size, found.allocated), (NameKind::File, 7, 7));
        assert_eq!((found.mode, found.modified, found.links), (0o640, time, 1));
        assert!(found.is_own() && found.changed.seconds > 1_700_000_000);
        file.set_mode(0o400).unwrap();
        assert_eq!(file.attributes().unwrap().mode, 0o400);
        assert!(file.lock().unwrap());
        folder.put(OsStr::new("b"), Vec::new());
        let other = folder.look(b"b").unwrap();
        assert_eq!((found.identity, other.identity), ((DEVICE, 1), (DEVICE, 2)));
        assert_eq!(other.mode, 0o644);
        let own = folder.attributes().unwrap();
        assert_eq!((own.kind, own.mode, own.identity), (NameKind::Folder, 0o700, (DEVICE, 0)));
        assert_eq!((own.size, own.allocated, own.links), (0, 0, 1));
    }

    #[test]
    fn creating_a_name_twice_fails_and_names_are_listed_in_order_and_can_be_removed() {
        let folder = MemoryFolder::new(100);
        for name in [b"b", b"a", b"c"] {
            folder.create(name, 0o600).unwrap();
        }
        assert_eq!(folder.create(b"a", 0o600).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(folder.names().unwrap(), [b"a", b"b", b"c"]);
        let mut heard = 0;
        folder
            .each_name(&mut |_| {
                heard += 1;
                heard < 2
            })
            .unwrap();
        assert_eq!(heard, 2);
        folder.remove(b"b").unwrap();
        folder.remove(b"b").unwrap();
        assert_eq!(folder.names().unwrap(), [b"a", b"c"]);
        assert!(folder.rename(b"b", b"d").is_err() && folder.open(b"b", Access::Read).is_err());
    }

    #[test]
    fn a_folder_in_memory_has_neither_folders_nor_links() {
        let folder = MemoryFolder::new(100);
        folder.put(OsStr::new("a"), Vec::new());
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        use io::ErrorKind::{InvalidInput, NotADirectory, NotFound, Unsupported};
        assert_eq!(kind(folder.open_folder(b"a").map(drop)), NotADirectory);
        assert_eq!(kind(folder.open_folder(b"b").map(drop)), NotFound);
        assert_eq!(kind(folder.make_folder(b"b", 0o700)), Unsupported);
        assert_eq!(kind(folder.make_link(b"a", b"b")), Unsupported);
        assert_eq!(kind(folder.remove_folder(b"a")), NotADirectory);
        assert_eq!(kind(folder.read_link(b"a").map(drop)), InvalidInput);
        assert_eq!(kind(folder.read_link(b"b").map(drop)), NotFound);
        let time = FileTime::default();
        assert!(folder.set_link_modified(b"a", time).is_ok() && folder.may_read(b"a").is_ok());
        assert_eq!(kind(folder.set_link_modified(b"b", time)), NotFound);
        assert_eq!(kind(folder.may_read(b"b")), NotFound);
    }

    #[test]
    fn the_free_space_of_a_folder_is_reported_as_its_file_limit() {
        let folder = MemoryFolder::new(4321);
        let room = folder.room().expect("the folder reports its room");
        assert_eq!((room.free, room.block, room.free_files), (4321, 0, None));
        assert_eq!(folder.device(), "memory");
    }

    #[test]
    fn every_file_has_room_for_64_kib_even_if_the_limit_is_lower() {
        let folder = MemoryFolder::new(10);
        let file = folder.create(b"a", 0o600).unwrap();
        file.reserve(65_536).unwrap();
        assert!(file.reserve(JOURNAL + 1).is_err());
        file.set_len(5).unwrap();
        file.write_all_at(b"xy", 2).unwrap();
        assert_eq!((file.next_data(4).unwrap(), file.next_data(5).unwrap()), (Some(4), None));
        assert_eq!(file.next_hole(0).unwrap(), 5);
        file.set_len(3).unwrap();
        assert_eq!(folder.take(OsStr::new("a")).unwrap(), b"\0\0x");
    }
}
