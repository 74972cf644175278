//! The storage interface. [`Source`](super::Source), [`Sink`](super::Sink) and the walk access
//! files through [`Folder`] and [`File`].
//!
//! `real` is the file system of this host; `scarce` waits for a file descriptor if none is free.
//! `buffers` is a folder in memory, for programs that send or receive without a disk. `memory`
//! (tests only) is a disk in memory with a page cache, power cuts and seeded faults.
//!
//! Names are single components. A folder opens each name through the folder's handle, and never
//! follows a symbolic link. So a name that changes between a check and a use cannot lead outside
//! the folder.

pub(crate) mod buffers;
#[cfg(test)]
pub(crate) mod memory;
pub(crate) mod real;
mod scarce;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;

use super::manifest::FileTime;

pub(crate) use real::user;
pub(super) use scarce::kept;

pub(crate) type SharedFolder = Arc<dyn Folder>;

pub(crate) type OpenFile = Box<dyn File>;

/// The kind of file that a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link with any target.
    Link,
    /// A pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A device, a pipe or a socket of a host that does not say which, or a kind that this version
    /// does not know.
    Other,
}

impl NameKind {
    /// Returns whether copies leave this kind out.
    pub(crate) fn is_special(self) -> bool {
        !matches!(self, NameKind::File | NameKind::Folder | NameKind::Link)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    pub(crate) kind: NameKind,
    pub(crate) size: u64,
    /// The 12 permission bits.
    pub(crate) mode: u32,
    pub(crate) modified: FileTime,
    /// The time of the last change of content or attributes (ctime). No call can set this time.
    pub(crate) changed: FileTime,
    /// Device and inode: two handles with the same identity refer to one file.
    pub(crate) identity: (u64, u64),
    pub(crate) links: u64,
    pub(crate) owner: u32,
    /// Bytes that the file occupies on disk.
    pub(crate) allocated: u64,
}

impl Attributes {
    /// Returns a stamp of the file's version, half from the change time, half from device and
    /// inode.
    pub(crate) fn version(&self) -> u64 {
        let FileTime { seconds, nanos } = self.changed;
        let changed = half(seconds as u64, u64::from(nanos));
        let (device, inode) = self.identity;
        (u64::from(changed) << 32) + u64::from(half(device, inode))
    }

    pub(crate) fn is_own(&self) -> bool {
        self.owner == user()
    }
}

/// Returns whether two stamps have the same change time. Device and inode may differ for a file
/// that was opened again: some file systems renumber files.
pub(crate) fn is_same_change(a: u64, b: u64) -> bool {
    a >> 32 == b >> 32
}

fn half(a: u64, b: u64) -> u32 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&a.to_le_bytes());
    bytes[8..].copy_from_slice(&b.to_le_bytes());
    let hash = blake3::hash(&bytes);
    u32::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    ReadWrite,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Free bytes; `u64::MAX` if the file system does not know its space.
    pub(crate) free: u64,
    /// Bytes of a block of the file system.
    pub(crate) block: u64,
    /// Free inodes; `None` if the file system has no limit.
    pub(crate) free_files: Option<u64>,
}

pub(crate) trait Folder: Debug + Send + Sync {
    fn attributes(&self) -> io::Result<Attributes>;

    /// Returns the attributes of `name`; does not follow a link.
    fn look(&self, name: &[u8]) -> io::Result<Attributes>;

    /// Returns whether something is mounted on `name`; false if the system does not tell. A
    /// comparison of device numbers would miss a bind mount from the same file system: the mounted
    /// folder has the device number of the folder around it.
    fn is_mount(&self, _name: &[u8]) -> bool {
        false
    }

    /// Returns all names, without `.` and `..`.
    fn names(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        self.each_name(&mut |name| {
            names.push(name);
            true
        })?;
        Ok(names)
    }

    /// Calls `tell` with each name, until `tell` returns `false`.
    fn each_name(&self, tell: &mut dyn FnMut(Vec<u8>) -> bool) -> io::Result<()>;

    /// Opens the file `name`. Fails on a link, and does not wait for the other end of a pipe.
    fn open(&self, name: &[u8], access: Access) -> io::Result<OpenFile>;

    /// Creates the file `name`, which must not exist, and opens it for reading and writing.
    fn create(&self, name: &[u8], mode: u32) -> io::Result<OpenFile>;

    /// Opens the folder `name`; fails on a link.
    fn open_folder(&self, name: &[u8]) -> io::Result<SharedFolder>;

    /// Opens this folder again and locks the new handle, without waiting. The lock ends with that
    /// handle. Where there are no locks, the new handle is not locked.
    ///
    /// # Errors
    /// `ResourceBusy` if another copy holds the lock.
    fn lock(&self) -> io::Result<SharedFolder>;

    fn make_folder(&self, name: &[u8], mode: u32) -> io::Result<()>;

    fn make_link(&self, target: &[u8], name: &[u8]) -> io::Result<()>;

    fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>>;

    /// Renames `from` to `to` within this folder, replacing an existing `to`.
    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()>;

    /// As [`rename`](Folder::rename), but fails with `AlreadyExists` if `to` exists.
    fn rename_new(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        match self.look_if_there(to)? {
            Some(_) => Err(Errno::EXIST.into()),
            None => self.rename(from, to),
        }
    }

    /// Removes the file or link `name`; succeeds if it does not exist.
    fn remove(&self, name: &[u8]) -> io::Result<()>;

    /// Removes the empty folder `name`; fails on a link.
    fn remove_folder(&self, name: &[u8]) -> io::Result<()>;

    fn set_mode(&self, mode: u32) -> io::Result<()>;

    fn set_modified(&self, modified: FileTime) -> io::Result<()>;

    fn set_link_modified(&self, name: &[u8], modified: FileTime) -> io::Result<()>;

    /// Returns the permission bits that new entries of this folder do not get. The folder's default
    /// access control list decides, or, without such a list, the umask.
    fn withheld(&self) -> u32 {
        real::umask()
    }

    /// Returns the permissions that a file gets if it replaces the regular file `name`: those of
    /// the replaced file, without set-id and sticky bits, and without group bits that
    /// [`granted_to_group`](Folder::granted_to_group) lacks. `None` if there is no such file.
    fn permissions(&self, name: &[u8]) -> io::Result<Option<u32>> {
        let found = self.look_if_there(name)?.filter(|found| found.kind == NameKind::File);
        let granted = |found: Attributes| found.mode & (0o707 + self.granted_to_group(name) * 0o10);
        Ok(found.map(granted))
    }

    /// Returns the permissions of the owning group in the access control list of the file `name`;
    /// 7 without such a list. With a list, the group bits of the mode are the list's mask, which
    /// must not become the group's permissions in a file without a list.
    fn granted_to_group(&self, _name: &[u8]) -> u32 {
        0o7
    }

    fn may_write(&self) -> io::Result<()>;

    fn may_read(&self, name: &[u8]) -> io::Result<()>;

    /// Returns the free space; `None` if the file system does not report it.
    fn room(&self) -> Option<Room>;

    fn device(&self) -> String;

    /// Syncs this folder's entries; succeeds if the file system cannot sync folders.
    fn sync(&self) -> io::Result<()>;

    fn sync_file_system(&self) -> io::Result<()>;

    fn look_if_there(&self, name: &[u8]) -> io::Result<Option<Attributes>> {
        match self.look(name) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

pub(crate) trait File: Debug + Send + Sync {
    fn attributes(&self) -> io::Result<Attributes>;

    /// Reads up to `buf.len()` bytes at `at`; zero at the end of the file.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes up to `content.len()` bytes at `at`.
    fn write_at(&self, content: &[u8], at: u64) -> io::Result<usize>;

    /// Truncates the file or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    fn set_mode(&self, mode: u32) -> io::Result<()>;

    fn set_modified(&self, modified: FileTime) -> io::Result<()>;

    /// Locks the file for this handle without waiting. Returns false where there are no locks, as
    /// on some network file systems.
    ///
    /// # Errors
    /// `ResourceBusy` if another handle holds the lock.
    fn lock(&self) -> io::Result<bool>;

    /// Reserves disk blocks for the first `size` bytes, if the file system can.
    ///
    /// # Errors
    /// The disk is full, or the file would be too large.
    fn reserve(&self, size: u64) -> io::Result<()>;

    fn punch(&self, range: Range<u64>) -> io::Result<()>;

    /// Returns the start of the next data at or after `at`; `None` if only holes follow.
    fn next_data(&self, at: u64) -> io::Result<Option<u64>>;

    /// Returns the start of the next hole at or after `at`; the end of the file counts as one.
    fn next_hole(&self, at: u64) -> io::Result<u64>;

    /// Advises the system that the file will be read from its start to its end.
    fn read_ahead(&self);

    fn sync_data(&self) -> io::Result<()>;

    /// Syncs content and attributes.
    fn sync_all(&self) -> io::Result<()>;

    /// Fills `buf` from the bytes at `at`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends earlier.
    fn read_exact_at(&self, mut buf: &mut [u8], mut at: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    buf = &mut buf[read..];
                    at += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_all_at(&self, mut content: &[u8], mut at: u64) -> io::Result<()> {
        while !content.is_empty() {
            match self.write_at(content, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    content = &content[written..];
                    at += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read_start(&self, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut piece = vec![0; 1 << 16];
        while (bytes.len() as u64) < most {
            let want = (most - bytes.len() as u64).min(piece.len() as u64) as usize;
            match self.read_at(&mut piece[..want], bytes.len() as u64) {
                Ok(0) => break,
                Ok(read) => bytes.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }
}

pub(crate) fn busy() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "another copy is writing it at this moment")
}

/// Returns the error for a partial file that belongs to the user `owner`, and that this process
/// cannot open.
pub(crate) fn foreign(owner: u32) -> io::Error {
    let what = format!(
        "user {owner} has a partial file of it, and may be copying it at this moment; \
         wait for that copy, or have its .lh-part file removed"
    );
    io::Error::new(io::ErrorKind::ResourceBusy, what)
}

pub(crate) fn not_found() -> io::Error {
    Errno::NOENT.into()
}

pub(crate) fn not_a_folder() -> io::Error {
    Errno::NOTDIR.into()
}

/// Returns whether a file could not be opened because its name is a symbolic link.
pub(crate) fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Ignores a refusal to set a mode, because a file system may have no permissions. Callers use this
/// for a mode that the user did not request.
pub(crate) fn unless_refused(set: io::Result<()>) -> io::Result<()> {
    match set {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        set => set,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::ffi::OsStr;
    use std::sync::Mutex;

    use super::buffers::MemoryFolder;
    use super::*;

    /// A file that reads or writes at most three bytes per call, and interrupts every second call.
    #[derive(Debug)]
    struct Halting(OpenFile, Mutex<RefCell<u32>>);

    impl Halting {
        fn interrupts(&self) -> io::Result<()> {
            let calls = self.1.lock().expect("one thread");
            *calls.borrow_mut() += 1;
            assert!(*calls.borrow() < 100, "a call is repeated for ever");
            if *calls.borrow() % 2 == 1 { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
        }
    }

    impl File for Halting {
        fn attributes(&self) -> io::Result<Attributes> {
            self.0.attributes()
        }

        fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
            assert!(!buf.is_empty(), "a needless call");
            self.interrupts()?;
            let most = buf.len().min(3);
            self.0.read_at(&mut buf[..most], at)
        }

        fn write_at(&self, content: &[u8], at: u64) -> io::Result<usize> {
            self.interrupts()?;
            self.0.write_at(&content[..content.len().min(3)], at)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.0.set_len(len)
        }

        fn set_mode(&self, mode: u32) -> io::Result<()> {
            self.0.set_mode(mode)
        }

        fn set_modified(&self, modified: FileTime) -> io::Result<()> {
            self.0.set_modified(modified)
        }

        fn lock(&self) -> io::Result<bool> {
            self.0.lock()
        }

        fn reserve(&self, size: u64) -> io::Result<()> {
            self.0.reserve(size)
        }

        fn punch(&self, range: Range<u64>) -> io::Result<()> {
            self.0.punch(range)
        }

        fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
            self.0.next_data(at)
        }

        fn next_hole(&self, at: u64) -> io::Result<u64> {
            self.0.next_hole(at)
        }

        fn read_ahead(&self) {}

        fn sync_data(&self) -> io::Result<()> {
            self.0.sync_data()
        }

        fn sync_all(&self) -> io::Result<()> {
            self.0.sync_all()
        }
    }

    fn halting(content: &[u8]) -> Halting {
        let folder = MemoryFolder::new(1 << 20);
        folder.put(OsStr::new("x"), content.to_vec());
        Halting(folder.open(b"x", Access::ReadWrite).expect("it is there"), Mutex::default())
    }

    #[test]
    fn interrupted_and_partial_calls_are_completed() {
        let file = halting(b"0123456789");
        let mut buf = [0; 7];
        file.read_exact_at(&mut buf, 2).expect("it is there");
        assert_eq!(&buf, b"2345678");
        file.write_all_at(b"abcdefg", 8).expect("there is room");
        assert_eq!(file.read_start(100).expect("it is there"), b"01234567abcdefg");
        assert_eq!(file.read_start(4).expect("it is there"), b"0123");
        assert_eq!(file.read_start(0).expect("it is there"), b"");
        let error = file.read_exact_at(&mut buf, 9).expect_err("it has 15 bytes");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_call_that_fails_is_not_repeated() {
        let disk = memory::Disk::new(1);
        let file = disk.root().create(b"x", 0o600).expect("there is room");
        disk.set_faults(memory::Faults { access: 10_000, ..Default::default() });
        let file = Halting(file, Mutex::default());
        let failed = [
            file.read_exact_at(&mut [0; 7], 0),
            file.read_start(7).map(drop),
            file.write_all_at(b"y", 0),
        ];
        for error in failed.map(|call| call.expect_err("the disk fails")) {
            assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
        }
    }

    #[test]
    fn a_refused_write_is_an_error_and_only_eloop_means_a_link() {
        let folder = MemoryFolder::new(5);
        folder.put(OsStr::new("x"), b"x".to_vec());
        let file = folder.open(b"x", Access::Read).expect("it is there");
        assert!(file.write_all_at(b"y", 0).is_err());
        assert!(is_link(&Errno::LOOP.into()) && !is_link(&Errno::NOENT.into()));
    }

    #[test]
    fn only_a_refusal_to_set_a_mode_is_ignored() {
        let set = |kind: io::ErrorKind| unless_refused(Err(kind.into())).map_err(|e| e.kind());
        assert_eq!(set(io::ErrorKind::PermissionDenied), Ok(()));
        assert_eq!(set(io::ErrorKind::Unsupported), Ok(()));
        assert_eq!(set(io::ErrorKind::NotFound), Err(io::ErrorKind::NotFound));
        assert!(unless_refused(Ok(())).is_ok());
    }

    #[test]
    fn a_stamp_depends_on_change_time_device_and_inode() {
        let folder = MemoryFolder::new(5);
        folder.put(OsStr::new("x"), b"x".to_vec());
        let one = folder.look(b"x").expect("it is there");
        let time = FileTime { nanos: one.changed.nanos ^ 1, ..one.changed };
        let later = Attributes { changed: time, ..one };
        let (device, inode) = one.identity;
        let moved = Attributes { identity: (device, inode + 1), ..one };
        let stamps = [one.version(), later.version(), moved.version()];
        assert!(stamps[0] != stamps[1] && stamps[0] != stamps[2] && stamps[1] != stamps[2]);
        assert!(is_same_change(stamps[0], stamps[2]) && !is_same_change(stamps[0], stamps[1]));
        // The low half depends on device and inode, the high half on the change time.
        assert_eq!(stamps[0] as u32, stamps[1] as u32);
        assert_ne!(stamps[0] >> 32, stamps[1] >> 32);
    }
}
