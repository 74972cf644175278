//! Answers the requests of the kernel.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, Request,
};
use longhaul_transfer::api::{NameKind, Named, RemoteFile};
use tokio::runtime::Handle;

use crate::cache::Cache;
use crate::file::{OpenFile, Version};
use crate::host::{Failed, Host, Retry};
use crate::tree::{Listing, Tree, number};

/// How long the kernel keeps names and attributes.
const KEPT: Duration = Duration::from_secs(1);

pub(crate) struct Remote {
    inner: Arc<Inner>,
    tasks: Handle,
}

struct Inner {
    host: Arc<Host>,
    cache: Arc<Cache>,
    tree: Tree,
    files: Mutex<HashMap<u64, Arc<OpenFile>>>,
    folders: Mutex<HashMap<u64, Arc<Listing>>>,
    /// A file that was opened in a newer version than its inode's, with the number of the newer
    /// version's inode, until the kernel opens that inode.
    newer: Mutex<Option<(u64, (RemoteFile, u64))>>,
    handles: AtomicU64,
    owner: (u32, u32),
}

impl Remote {
    pub(crate) fn new(host: Arc<Host>, cache: Arc<Cache>, top: PathBuf, tasks: Handle) -> Remote {
        let inner = Inner {
            tree: Tree::new(host.clone(), top),
            host,
            cache,
            files: Mutex::default(),
            folders: Mutex::default(),
            newer: Mutex::default(),
            handles: AtomicU64::new(1),
            owner: (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()),
        };
        Remote { inner: Arc::new(inner), tasks }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|error| error.into_inner())
}

fn kind(kind: NameKind) -> FileType {
    match kind {
        NameKind::File => FileType::RegularFile,
        NameKind::Folder => FileType::Directory,
        NameKind::Link => FileType::Symlink,
        NameKind::Pipe => FileType::NamedPipe,
        NameKind::CharDevice => FileType::CharDevice,
        NameKind::BlockDevice => FileType::BlockDevice,
        // An older server says only `Other`. The file is then shown as a socket, because opening a
        // socket fails at once.
        NameKind::Socket | NameKind::Other => FileType::Socket,
    }
}

impl Inner {
    fn attributes(&self, inode: u64, named: &Named) -> FileAttr {
        let (seconds, nanos) = (named.modified.seconds, named.modified.nanos);
        let modified = match u64::try_from(seconds) {
            Ok(seconds) => UNIX_EPOCH.checked_add(Duration::new(seconds, nanos)),
            Err(_) => UNIX_EPOCH.checked_sub(Duration::from_secs(seconds.unsigned_abs())),
        };
        let time: SystemTime = modified.unwrap_or(UNIX_EPOCH);
        // Nothing is writable, and no file runs with another user's rights.
        let perm = (named.mode & 0o555) as u16;
        FileAttr {
            ino: INodeNo(inode),
            size: named.size,
            blocks: named.size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: kind(named.kind),
            perm,
            nlink: 1,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 1 << 20,
            flags: 0,
        }
    }

    fn handle(&self) -> u64 {
        self.handles.fetch_add(1, Ordering::Relaxed)
    }

    async fn open(&self, inode: u64) -> Result<u64, Failed> {
        let (path, known) = (self.tree.path(inode)?, self.tree.known(inode)?);
        let kept = lock(&self.newer).take_if(|(newer, _)| *newer == inode);
        let remote = match kept {
            Some((_, remote)) => remote,
            None => self.host.open(&path, &mut Retry::default()).await?,
        };
        let version = Version::of(&remote.0);
        if version != (Version { size: known.size, modified: known.modified }) {
            // The kernel looks the path up again, once, and opens the inode of the newer version.
            // That open must get this version, although the file may have changed again.
            if let Some(newer) = self.tree.renew(inode, version).await {
                lock(&self.newer).replace((newer, remote));
            }
            return Err(Errno::ESTALE.into());
        }
        let file = OpenFile::new(path, inode, remote, &self.host, &self.cache);
        let handle = self.handle();
        lock(&self.files).insert(handle, Arc::new(file));
        Ok(handle)
    }

    async fn read(&self, handle: u64, offset: u64, len: u32) -> Result<Vec<u8>, Failed> {
        let file = lock(&self.files).get(&handle).cloned().ok_or(Errno::EBADF)?;
        file.read(offset, len.into()).await
    }
}

impl Filesystem for Remote {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The mount also works without these capabilities.
        for wish in [InitFlags::FUSE_PARALLEL_DIROPS, InitFlags::FUSE_CACHE_SYMLINKS] {
            let _ = config.add_capabilities(wish);
        }
        let _ = config.set_max_readahead(1 << 20).map_err(|most| config.set_max_readahead(most));
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (inner, name) = (self.inner.clone(), name.as_bytes().to_vec());
        self.tasks.spawn(async move {
            match inner.tree.look_up(parent.0, &name).await {
                Ok((inode, named)) => {
                    reply.entry(&KEPT, &inner.attributes(inode, &named), Generation(0));
                }
                Err(Failed(errno)) => reply.error(errno),
            }
        });
    }

    fn forget(&self, _: &Request, inode: INodeNo, count: u64) {
        self.inner.tree.forget(inode.0, count);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let inner = self.inner.clone();
        self.tasks.spawn(async move {
            match inner.tree.attributes(inode.0).await {
                Ok(named) => reply.attr(&KEPT, &inner.attributes(inode.0, &named)),
                Err(Failed(errno)) => reply.error(errno),
            }
        });
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        match self.inner.tree.known(inode.0) {
            Ok(Named { target: Some(target), .. }) => reply.data(&target),
            // An older server does not send link targets.
            Ok(_) => reply.error(Errno::EOPNOTSUPP),
            Err(Failed(errno)) => reply.error(errno),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let inner = self.inner.clone();
        self.tasks.spawn(async move {
            match inner.open(inode.0).await {
                // All content that the kernel keeps for an inode is of the inode's version.
                Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_KEEP_CACHE),
                Err(Failed(errno)) => reply.error(errno),
            }
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let inner = self.inner.clone();
        self.tasks.spawn(async move {
            match inner.read(handle.0, offset, size).await {
                Ok(content) => reply.data(&content),
                Err(Failed(errno)) => reply.error(errno),
            }
        });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.inner.files).remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let inner = self.inner.clone();
        self.tasks.spawn(async move {
            match inner.tree.listing(inode.0).await {
                Ok(listing) => {
                    let handle = inner.handle();
                    lock(&inner.folders).insert(handle, listing);
                    reply.opened(FileHandle(handle), FopenFlags::empty());
                }
                Err(Failed(errno)) => reply.error(errno),
            }
        });
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(listing) = lock(&self.inner.folders).get(&handle.0).cloned() else {
            return reply.error(Errno::EBADF);
        };
        let parent = self.inner.tree.parent(inode.0);
        let dots = [(inode.0, &b"."[..]), (parent, b"..")];
        let dots = dots.map(|(inode, name)| (inode, FileType::Directory, name));
        let names = listing
            .names
            .iter()
            .map(|named| (number(inode.0, named), kind(named.kind), &named.name[..]));
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (inode, kind, name)) in dots.into_iter().chain(names).enumerate().skip(from) {
            if reply.add(INodeNo(inode), at as u64 + 1, kind, OsStr::from_bytes(name)) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        lock(&self.inner.folders).remove(&handle.0);
        reply.ok();
    }
}
