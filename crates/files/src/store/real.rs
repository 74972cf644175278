//! The file system of this host. Each entry is reached through an open handle of its folder.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use cap_std::fs::Dir;
use rustix::fs::{
    Advice, AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, SeekFrom,
    Stat, Timespec, Timestamps, UTIME_OMIT,
};
use rustix::io::Errno;

use super::scarce::{Handle, patiently};
use super::{Access, Attributes, File, Folder, NameKind, OpenFile, Room, SharedFolder, busy};
use crate::manifest::FileTime;

/// The magic number of tmpfs. Nothing is reserved there, because tmpfs allocates all reserved
/// memory immediately.
const TMPFS: i64 = 0x0102_1994;

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);
const NO_LINK: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);
/// Flags that open an existing file, without waiting if the file is a pipe.
const FILE: OFlags = NO_LINK.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
const NEW_FILE: OFlags = NO_LINK.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::RDWR);
const HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
const CHANGE: rustix::fs::Access = rustix::fs::Access::WRITE_OK.union(rustix::fs::Access::EXEC_OK);

pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the permission bits that this process withholds from new files. The bits are read once;
/// a program that changes them later still gets the first ones.
pub(crate) fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| umask_of_proc().unwrap_or_else(umask_by_syscall))
}

/// Returns the umask as Linux reports it. `umask(2)` would change it for a moment, for all threads.
fn umask_of_proc() -> Option<u32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(mask.trim(), 8).ok()
}

/// Returns the umask on systems without `/proc`. The mask is 0o077 for a moment, so files that
/// other threads create meanwhile are private.
fn umask_by_syscall() -> u32 {
    let umask = rustix::process::umask(Mode::from_bits_truncate(0o077));
    rustix::process::umask(umask);
    umask.bits() as u32
}

const USER_OBJ: u16 = 1;
const GROUP_OBJ: u16 = 4;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// An access control list (acl(5)). Linux stores the list as a version, then tag, permissions and
/// id of each entry, in little-endian order.
struct AccessList(Vec<u8>);

impl AccessList {
    /// Reads a list with `get`, which copies it into a buffer and returns its length. `None` if
    /// there is no list.
    fn read(get: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Option<AccessList> {
        // Most lists are short. Linux stores at most 64 KiB.
        for room in [1 << 10, 1 << 16] {
            let mut list = vec![0; room];
            match get(&mut list) {
                Err(Errno::RANGE) => {}
                len => {
                    list.truncate(len.ok()?);
                    return Some(AccessList(list));
                }
            }
        }
        None
    }

    /// Returns the permissions of the first entry with `tag`.
    fn granted(&self, tag: u16) -> Option<u32> {
        let (entries, _) = self.0.get(4..)?.as_chunks::<8>();
        let has_tag = |entry: &&[u8; 8]| u16::from_le_bytes([entry[0], entry[1]]) == tag;
        entries.iter().find(has_tag).map(|entry| u32::from(entry[2] & 7))
    }
}

/// Returns the permission bits that the default access control list of a folder grants to new
/// entries; `None` without such a list.
fn granted_by_default(folder: impl AsFd) -> Option<u32> {
    let get = |list: &mut [u8]| rustix::fs::fgetxattr(&folder, "system.posix_acl_default", list);
    let list = AccessList::read(get)?;
    let group = list.granted(MASK).or(list.granted(GROUP_OBJ))?;
    Some(list.granted(USER_OBJ)? * 0o100 + group * 0o10 + list.granted(OTHER)?)
}

/// Returns the permissions of the owning group in the access control list of the file `name`;
/// `None` without such a list.
fn granted_to_group(folder: impl AsFd, name: &[u8]) -> Option<u32> {
    // A path through /proc needs no right to open the file.
    let path = format!("/proc/self/fd/{}/", folder.as_fd().as_raw_fd()).into_bytes();
    let path = [&path, name].concat();
    let get =
        |list: &mut [u8]| rustix::fs::lgetxattr(path.as_slice(), "system.posix_acl_access", list);
    AccessList::read(get)?.granted(GROUP_OBJ)
}

#[derive(Debug)]
struct RealFolder(Handle<OwnedFd>);

#[derive(Debug)]
struct RealFile(Handle<fs::File>);

/// Opens a folder by its path, following links.
pub(crate) fn open_path(path: &Path) -> io::Result<SharedFolder> {
    Ok(folder(patiently(|| rustix::fs::open(path, FOLDER, Mode::empty()))?))
}

/// Opens the folder of a handle again, for reading; the handle itself may allow only path
/// operations (`O_PATH`).
pub(crate) fn open_again(handle: impl AsFd) -> io::Result<SharedFolder> {
    Ok(folder(patiently(|| rustix::fs::openat(&handle, ".", FOLDER, Mode::empty()))?))
}

/// Opens the folder `name` for path operations only. Fails on a link.
pub(crate) fn open_below(folder: impl AsFd, name: &OsStr) -> io::Result<Dir> {
    let how = OFlags::PATH.union(OFlags::DIRECTORY).union(NO_LINK);
    let handle = patiently(|| rustix::fs::openat(&folder, name, how, Mode::empty()))?;
    Ok(Dir::from_std_file(handle.into()))
}

fn folder(handle: OwnedFd) -> SharedFolder {
    Arc::new(RealFolder(Handle::new(handle)))
}

#[allow(clippy::unnecessary_cast, reason = "the field types differ between systems")]
fn attributes(stat: &Stat) -> Attributes {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => NameKind::File,
        FileType::Directory => NameKind::Folder,
        FileType::Symlink => NameKind::Link,
        FileType::Fifo => NameKind::Pipe,
        FileType::Socket => NameKind::Socket,
        FileType::CharacterDevice => NameKind::CharDevice,
        FileType::BlockDevice => NameKind::BlockDevice,
        _ => NameKind::Other,
    };
    Attributes {
        kind,
        size: stat.st_size as u64,
        mode: stat.st_mode as u32 & 0o7777,
        modified: FileTime { seconds: stat.st_mtime as i64, nanos: stat.st_mtime_nsec as u32 },
        changed: FileTime { seconds: stat.st_ctime as i64, nanos: stat.st_ctime_nsec as u32 },
        identity: (stat.st_dev as u64, stat.st_ino as u64),
        links: stat.st_nlink as u64,
        owner: stat.st_uid as u32,
        allocated: stat.st_blocks as u64 * 512,
    }
}

fn times(modified: FileTime) -> Timestamps {
    let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let last_modification = Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanos.into() };
    Timestamps { last_access, last_modification }
}

/// Renames `from` in the folder `source` to `to` in `folder`. Fails with `AlreadyExists` if `to`
/// exists.
pub(crate) fn rename_new(
    source: impl AsFd,
    from: &[u8],
    folder: impl AsFd,
    to: &[u8],
) -> io::Result<()> {
    match rustix::fs::renameat_with(&source, from, &folder, to, RenameFlags::NOREPLACE) {
        // NFS, for example, cannot do this.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
        renamed => return Ok(renamed?),
    }
    // Making a hard link also fails if `to` exists. A folder, for example, cannot get a hard link.
    match rustix::fs::linkat(&source, from, &folder, to, AtFlags::empty()) {
        Ok(()) => return Ok(rustix::fs::unlinkat(&source, from, AtFlags::empty())?),
        Err(Errno::EXIST) => return Err(Errno::EXIST.into()),
        Err(_) => {}
    }
    match rustix::fs::statat(&folder, to, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(rustix::fs::renameat(&source, from, &folder, to)?),
        found => Err(found.err().unwrap_or(Errno::EXIST).into()),
    }
}

/// Locks a file or folder without waiting. Returns false if the file system cannot lock it.
fn lock(handle: impl AsFd) -> io::Result<bool> {
    match rustix::fs::flock(handle, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(busy()),
        locked => Ok(locked.is_ok()),
    }
}

fn device_node(major: u32, minor: u32) -> Option<String> {
    let reported = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).ok()?;
    reported
        .lines()
        .find_map(|line| line.strip_prefix("DEVNAME="))
        .map(|name| format!("/dev/{name}"))
}

/// Returns the source of the mount with this device number. Needed for file systems such as NFS:
/// their device number has no node in `/dev`.
fn mounted(major: u32, minor: u32) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let number = format!("{major}:{minor}");
    let mut lines = mounts.lines().filter(|line| line.split(' ').nth(2) == Some(&number));
    // After the dash: the file system's type and its source.
    let (_, behind) = lines.next()?.split_once(" - ")?;
    behind.split(' ').nth(1).map(str::to_owned)
}

impl Folder for RealFolder {
    fn withheld(&self) -> u32 {
        granted_by_default(&self.0).map_or_else(umask, |granted| 0o777 & !granted)
    }

    fn attributes(&self) -> io::Result<Attributes> {
        Ok(attributes(&rustix::fs::fstat(&self.0)?))
    }

    fn look(&self, name: &[u8]) -> io::Result<Attributes> {
        Ok(attributes(&rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    #[cfg(target_os = "linux")]
    fn is_mount(&self, name: &[u8]) -> bool {
        use rustix::fs::{StatxAttributes, StatxFlags, statx};
        let how = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        // The kernel reports this attribute since Linux 5.8.
        statx(&self.0, name, how, StatxFlags::empty())
            .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
    }

    fn each_name(&self, tell: &mut dyn FnMut(Vec<u8>) -> bool) -> io::Result<()> {
        for found in patiently(|| rustix::fs::Dir::read_from(&self.0))? {
            let name = found?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." && !tell(name) {
                break;
            }
        }
        Ok(())
    }

    fn open(&self, name: &[u8], access: Access) -> io::Result<OpenFile> {
        let how = match access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::WRONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        let how = how.union(FILE);
        let handle = patiently(|| rustix::fs::openat(&self.0, name, how, Mode::empty()))?;
        Ok(Box::new(RealFile(Handle::new(handle.into()))))
    }

    fn create(&self, name: &[u8], mode: u32) -> io::Result<OpenFile> {
        let mode = Mode::from_bits_truncate(mode);
        let handle = patiently(|| rustix::fs::openat(&self.0, name, NEW_FILE, mode))?;
        Ok(Box::new(RealFile(Handle::new(handle.into()))))
    }

    fn open_folder(&self, name: &[u8]) -> io::Result<SharedFolder> {
        let how = FOLDER.union(NO_LINK);
        Ok(folder(patiently(|| rustix::fs::openat(&self.0, name, how, Mode::empty()))?))
    }

    fn lock(&self) -> io::Result<SharedFolder> {
        let handle = patiently(|| rustix::fs::openat(&self.0, ".", FOLDER, Mode::empty()))?;
        lock(&handle)?;
        Ok(folder(handle))
    }

    fn make_folder(&self, name: &[u8], mode: u32) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.0, name, Mode::from_bits_truncate(mode))?)
    }

    fn make_link(&self, target: &[u8], name: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.0, name)?)
    }

    fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.0, name, Vec::new())?.into_bytes())
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    fn rename_new(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        rename_new(&self.0, from, &self.0, to)
    }

    fn remove(&self, name: &[u8]) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn remove_folder(&self, name: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&self.0, Mode::from_bits_truncate(mode))?)
    }

    fn set_modified(&self, modified: FileTime) -> io::Result<()> {
        Ok(rustix::fs::futimens(&self.0, &times(modified))?)
    }

    fn set_link_modified(&self, name: &[u8], modified: FileTime) -> io::Result<()> {
        let how = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::utimensat(&self.0, name, &times(modified), how)?)
    }

    fn granted_to_group(&self, name: &[u8]) -> u32 {
        granted_to_group(&self.0, name).unwrap_or(0o7)
    }

    fn may_write(&self) -> io::Result<()> {
        Ok(rustix::fs::accessat(&self.0, ".", CHANGE, AtFlags::EACCESS)?)
    }

    fn may_read(&self, name: &[u8]) -> io::Result<()> {
        let wanted = rustix::fs::Access::READ_OK;
        Ok(rustix::fs::accessat(&self.0, name, wanted, AtFlags::EACCESS)?)
    }

    fn room(&self) -> Option<Room> {
        let stat = rustix::fs::fstatvfs(&self.0).ok()?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        Some(Room {
            // A file system that reports no blocks at all has unknown space.
            free: if stat.f_blocks > 0 { free } else { u64::MAX },
            block: stat.f_frsize,
            free_files: (stat.f_files > 0).then_some(stat.f_favail),
        })
    }

    fn device(&self) -> String {
        let device = self.attributes().map_or(0, |found| found.identity.0);
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        device_node(major, minor)
            .or_else(|| mounted(major, minor))
            .unwrap_or_else(|| format!("device {major}:{minor}"))
    }

    fn sync(&self) -> io::Result<()> {
        match rustix::fs::fsync(&self.0) {
            // Some file systems cannot sync a folder, and there is no alternative.
            Ok(()) | Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    #[cfg(target_os = "linux")]
    fn sync_file_system(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.0)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn sync_file_system(&self) -> io::Result<()> {
        rustix::fs::sync();
        Ok(())
    }
}

impl RealFile {
    #[allow(clippy::unnecessary_cast, reason = "the field's type differs between systems")]
    fn is_in_memory(&self) -> io::Result<bool> {
        Ok(rustix::fs::fstatfs(&self.0)?.f_type as i64 == TMPFS)
    }
}

impl File for RealFile {
    fn attributes(&self) -> io::Result<Attributes> {
        Ok(attributes(&rustix::fs::fstat(&self.0)?))
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(buf, at)
    }

    fn write_at(&self, content: &[u8], at: u64) -> io::Result<usize> {
        self.0.write_at(content, at)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&self.0, Mode::from_bits_truncate(mode))?)
    }

    fn set_modified(&self, modified: FileTime) -> io::Result<()> {
        Ok(rustix::fs::futimens(&self.0, &times(modified))?)
    }

    fn lock(&self) -> io::Result<bool> {
        lock(&self.0)
    }

    fn reserve(&self, size: u64) -> io::Result<()> {
        if self.is_in_memory()? {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.0, FallocateFlags::KEEP_SIZE, 0, size) {
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn punch(&self, range: Range<u64>) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.0, HOLE, range.start, range.end - range.start)?)
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        match rustix::fs::seek(&self.0, SeekFrom::Data(at)) {
            Ok(at) => Ok(Some(at)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn next_hole(&self, at: u64) -> io::Result<u64> {
        Ok(rustix::fs::seek(&self.0, SeekFrom::Hole(at))?)
    }

    fn read_ahead(&self) {
        let _ = rustix::fs::fadvise(&self.0, 0, None, Advice::Sequential);
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use longhaul_testbed::{alone, need, skip};

    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_reports_the_umask_that_a_child_inherits() {
        let shell = std::process::Command::new("sh").args(["-c", "umask"]).output().unwrap();
        let umask = String::from_utf8(shell.stdout).unwrap();
        assert_eq!(umask_of_proc(), u32::from_str_radix(umask.trim(), 8).ok());
        let memory = crate::MemoryFolder::new(1);
        assert_eq!(Some(memory.withheld()), umask_of_proc(), "memory folders have no default list");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_is_in_memory_where_stat_reports_a_tmpfs() {
        for path in ["/dev/shm/.", "/proc/self/status", concat!(env!("CARGO_MANIFEST_DIR"), "/.")] {
            let Ok(file) = fs::File::open(path) else { continue };
            let stat = std::process::Command::new("stat").args(["-f", "-c", "%t", path]).output();
            let is_tmpfs = stat.unwrap().stdout == b"1021994\n";
            assert_eq!(RealFile(Handle::new(file)).is_in_memory().unwrap(), is_tmpfs, "{path}");
        }
    }

    /// Runs in its own process, because it changes the umask for a moment.
    #[test]
    #[cfg(target_os = "linux")]
    fn the_umask_read_by_syscall_equals_the_umask_in_proc() {
        const ALONE: &str = "LONGHAUL_TEST_UMASK";
        if std::env::var_os(ALONE).is_some() {
            return assert_eq!(
                [umask_by_syscall(), umask_by_syscall()].map(Some),
                [umask_of_proc(); 2]
            );
        }
        let name = "store::real::tests::the_umask_read_by_syscall_equals_the_umask_in_proc";
        alone::assert_passed(&alone::command(name).env(ALONE, "1").output().unwrap());
    }

    #[test]
    fn new_files_lack_the_bits_of_the_umask() {
        let folder = tempfile::tempdir().unwrap();
        let made = fs::File::create(folder.path().join("file")).unwrap();
        let mode = made.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(0o666 & !umask(), mode);
    }

    #[test]
    fn a_device_without_a_node_is_named_by_its_mount() {
        let device = rustix::fs::stat("/proc").unwrap().st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        // `mounts` is another list of the same mounts, with the device first.
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = mounts.lines().find(|line| line.split(' ').nth(1) == Some("/proc"));
        let name = line.and_then(|line| line.split(' ').next());
        assert_eq!(mounted(major, minor).as_deref(), name);
        assert_eq!(mounted(4_000, 1 << 19), None);
    }

    /// Gives `path` the access control list user::rwx user:N:rwx group::r-- mask::rwx other::-w-,
    /// with `users` named users. Returns false if the file system has no lists.
    fn set_list(path: &Path, name: &str, users: u32) -> bool {
        let user = |n| (2u16, 7u16, 1_000 + n);
        let others = [(4, 4, u32::MAX), (16, 7, u32::MAX), (32, 2, u32::MAX)];
        let mut list = vec![2, 0, 0, 0];
        for (tag, granted, id) in
            std::iter::once((1, 7, u32::MAX)).chain((0..users).map(user)).chain(others)
        {
            list.extend(tag.to_le_bytes());
            list.extend(granted.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        rustix::fs::setxattr(path, name, &list, rustix::fs::XattrFlags::empty()).is_ok()
    }

    #[test]
    fn a_default_access_control_list_decides_in_place_of_the_umask() {
        for users in [1, 300] {
            let folder = tempfile::tempdir().unwrap();
            let set = set_list(folder.path(), "system.posix_acl_default", users);
            need!(skip::unless(set, "this file system has no access control lists"));
            let made = fs::File::create(folder.path().join("file")).unwrap();
            let mode = made.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o662);
            assert_eq!(0o666 & !open_path(folder.path()).unwrap().withheld(), mode);
        }
    }

    #[test]
    fn the_mask_of_an_access_control_list_is_not_the_permission_of_the_owning_group() {
        for users in [1, 300] {
            let base = tempfile::tempdir().unwrap();
            let path = base.path().join("file");
            fs::write(&path, "").unwrap();
            let folder = open_path(base.path()).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o4675)).unwrap();
            assert_eq!(folder.permissions(b"file").unwrap(), Some(0o675));
            let set = set_list(&path, "system.posix_acl_access", users);
            need!(skip::unless(set, "this file system has no access control lists"));
            assert_eq!(folder.look(b"file").unwrap().mode & 0o777, 0o772, "the mask");
            assert_eq!(folder.permissions(b"file").unwrap(), Some(0o742));
            // The mask also limits the owning group.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o715)).unwrap();
            assert_eq!(folder.permissions(b"file").unwrap(), Some(0o705));
        }
    }

    #[test]
    fn a_file_has_the_attributes_that_the_standard_library_reads() {
        use std::os::unix::fs::MetadataExt;
        let base = tempfile::tempdir().unwrap();
        let folder = open_path(base.path()).unwrap();
        let file = folder.create(b"x", 0o600).unwrap();
        file.write_all_at(&[1; 10_000], 0).unwrap();
        file.set_mode(0o4640).unwrap();
        file.sync_all().unwrap();
        let found = file.attributes().unwrap();
        let known = base.path().join("x").metadata().unwrap();
        assert_eq!((found.size, found.mode, found.links), (10_000, 0o4640, 1));
        assert_eq!((found.allocated, found.owner), (known.blocks() * 512, known.uid()));
        assert_eq!(found.identity, (known.dev(), known.ino()));
        assert_eq!(
            (found.changed.seconds, i64::from(found.changed.nanos)),
            (known.ctime(), known.ctime_nsec())
        );
        assert_eq!(
            (found.modified.seconds, i64::from(found.modified.nanos)),
            (known.mtime(), known.mtime_nsec())
        );
    }

    #[test]
    fn a_folder_reports_its_names_its_space_and_its_device() {
        let base = tempfile::tempdir().unwrap();
        let folder = open_path(base.path()).unwrap();
        folder.create(b"a", 0o600).unwrap();
        folder.make_folder(b"b", 0o700).unwrap();
        let mut names = folder.names().unwrap();
        names.sort();
        assert_eq!(names, [b"a", b"b"]);
        let mut heard = 0;
        let mut one = |_| {
            heard += 1;
            false
        };
        folder.each_name(&mut one).unwrap();
        assert_eq!(heard, 1);
        let stat = rustix::fs::statvfs(base.path()).unwrap();
        let room = folder.room().unwrap();
        assert_eq!(room.block, stat.f_frsize);
        assert!(room.free <= stat.f_blocks * stat.f_frsize && room.free > stat.f_frsize);
        assert_eq!(room.free_files.is_some(), stat.f_files > 0);
        // /proc has neither blocks nor inodes.
        let proc = open_path(Path::new("/proc")).unwrap().room().unwrap();
        assert_eq!((proc.free, proc.free_files), (u64::MAX, None));
        let device = folder.attributes().unwrap().identity.0;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let named = device_node(major, minor).or_else(|| mounted(major, minor));
        assert!(folder.device().contains(&named.unwrap_or_else(|| format!("{major}:{minor}"))));
        assert!(!folder.device().is_empty());
    }

    #[test]
    fn a_block_device_is_named_by_its_node() {
        let blocks = fs::read_dir("/sys/dev/block").into_iter().flatten().flatten();
        for name in blocks.map(|block| block.file_name()) {
            let link = fs::read_link(Path::new("/sys/dev/block").join(&name)).unwrap();
            let (major, minor) = name.to_str().unwrap().split_once(':').unwrap();
            let node = device_node(major.parse().unwrap(), minor.parse().unwrap());
            // The kernel writes the slashes of a name as exclamation marks.
            let device = link.file_name().unwrap().to_str().unwrap().replace('!', "/");
            assert_eq!(node, Some(format!("/dev/{device}")), "{name:?}");
        }
        assert_eq!(device_node(4_000, 1 << 19), None);
    }

    #[test]
    fn errors_of_the_system_are_reported() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("x"), "x").unwrap();
        let folder = open_path(base.path()).unwrap();
        assert!(folder.may_read(b"x").is_ok() && folder.may_read(b"y").is_err());
        assert!(folder.may_write().is_ok());
        assert!(folder.remove_folder(b"x").is_err() && folder.rename(b"y", b"z").is_err());
        let time = FileTime { seconds: 5, nanos: 6 };
        assert!(folder.set_link_modified(b"y", time).is_err());
        // A handle for paths only, and a handle of a file in place of a folder.
        let path = rustix::fs::open(base.path(), OFlags::PATH, Mode::empty()).unwrap();
        let paths_only = RealFolder(Handle::new(path));
        assert!(paths_only.sync().is_err() && paths_only.sync_file_system().is_err());
        assert!(paths_only.set_mode(0o700).is_err() && paths_only.set_modified(time).is_err());
        let file = fs::File::open(base.path().join("x")).unwrap();
        assert!(RealFolder(Handle::new(file.into())).may_write().is_err());
        // A file that has no content on a disk.
        let reported = RealFile(Handle::new(fs::File::open("/proc/self/status").unwrap()));
        assert!(reported.sync_data().is_err() && reported.sync_all().is_err());
        assert!(reported.punch(0..1).is_err() && reported.set_len(0).is_err());
    }

    #[test]
    fn a_link_gets_its_time_and_a_folder_gets_its_time_and_mode() {
        let base = tempfile::tempdir().unwrap();
        let folder = open_path(base.path()).unwrap();
        let time = FileTime { seconds: 5, nanos: 6 };
        folder.make_link(b"nowhere", b"l").unwrap();
        folder.set_link_modified(b"l", time).unwrap();
        folder.set_mode(0o711).unwrap();
        folder.set_modified(time).unwrap();
        let link = folder.look(b"l").unwrap();
        assert_eq!((link.kind, link.modified), (NameKind::Link, time));
        assert_eq!(folder.read_link(b"l").unwrap(), b"nowhere");
        let own = folder.attributes().unwrap();
        assert_eq!((own.kind, own.mode, own.modified), (NameKind::Folder, 0o711, time));
        assert!(super::super::is_link(&folder.open(b"l", Access::Read).unwrap_err()));
    }

    #[test]
    fn a_lock_excludes_other_handles_until_it_is_dropped() {
        let base = tempfile::tempdir().unwrap();
        let folder = open_path(base.path()).unwrap();
        let held = folder.lock().unwrap();
        assert_eq!(folder.lock().unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(held);
        assert!(folder.lock().is_ok());
        let file = folder.create(b"x", 0o600).unwrap();
        assert!(file.lock().unwrap());
        let other = folder.open(b"x", Access::Read).unwrap();
        assert_eq!(other.lock().unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    }

    #[test]
    fn a_hole_has_the_length_of_its_range() {
        let base = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let file = open_path(base.path()).unwrap().create(b"x", 0o600).unwrap();
        let mut content = vec![1; 16384];
        file.write_all_at(&content, 0).unwrap();
        need!(skip::unless(file.punch(4096..8192).is_ok(), "this file system has no holes"));
        content[4096..8192].fill(0);
        assert_eq!(fs::read(base.path().join("x")).unwrap(), content);
    }

    #[test]
    fn a_reserved_file_takes_its_space_and_a_hole_gives_it_back() {
        let base = tempfile::tempdir().unwrap();
        let [file, probe] = ["file", "probe"].map(|name| {
            RealFile(Handle::new(fs::File::create_new(base.path().join(name)).unwrap()))
        });
        let allocated = |file: &RealFile| file.attributes().unwrap().allocated;
        let reserved = rustix::fs::fallocate(&probe.0, FallocateFlags::KEEP_SIZE, 0, 1 << 20);
        let is_able = reserved.is_ok() && allocated(&probe) >= 1 << 20;
        file.reserve(0).unwrap();
        file.reserve(1 << 20).unwrap();
        let is_used = is_able && !file.is_in_memory().unwrap();
        assert_eq!(allocated(&file) >= 1 << 20, is_used);
        need!(skip::unless(is_used, "this file system reserves nothing"));
        assert!(file.reserve(1 << 62).is_err(), "no disk is that large");
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; 8192], 0).unwrap();
        assert_eq!((file.next_data(0).unwrap(), file.next_data(1 << 21).unwrap()), (Some(0), None));
        file.punch(0..1 << 20).unwrap();
        assert_eq!((file.attributes().unwrap().size, allocated(&file)), (1 << 20, 0));
        assert_eq!((file.next_data(0).unwrap(), file.next_hole(0).unwrap()), (None, 0));
    }
}
