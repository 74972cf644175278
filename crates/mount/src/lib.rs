//! A remote folder as a read-only file system: FUSE over the services for listings and remote
//! files.
//!
//! Modules in reading order:
//! - `host`: the connection, which is restored after a loss.
//! - `cache`: a limited number of chunks.
//! - `file`: an open file, with its chunks and read-ahead.
//! - `tree`: inodes and listings.
//! - `fs`: the requests of the kernel.
//!
//! Each request that may need the host is an asynchronous task, and one thread runs all tasks. A
//! task that waits for the host does not block this thread, so it delays no other request.

#![cfg(target_os = "linux")]

mod cache;
mod file;
mod fs;
mod host;
mod tree;

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use fuser::{Config, MountOption, Session, SessionUnmounter};
use longhaul_transfer::api::{CancelHandle, Client, Error, ErrorKind, blocking};
use longhaul_transfer::location::Location;
use longhaul_transfer::options::ReachOptions;
use rustix::mount::UnmountFlags;

use self::cache::Cache;
use self::fs::Remote;
use self::host::Host;

const DEVICE: &str = "/dev/fuse";
/// The minimum size of the cache in bytes.
pub const LEAST_CACHE: u64 = 8 << 20;

/// How a folder is mounted.
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum bytes of file content in the cache, at least [`LEAST_CACHE`].
    pub cache: u64,
    /// How long to keep retrying a lost connection before a request fails.
    pub retry_for: Duration,
    /// How to reach the host.
    pub reach: ReachOptions,
}

/// A mounted folder. Dropping this value unmounts the folder, and closes the connection.
pub struct Mount {
    at: PathBuf,
    _reached: Reached,
    unmounter: SessionUnmounter,
    ended: Receiver<io::Result<()>>,
}

/// The connection. Dropping this value closes the connection.
struct Reached(Arc<Host>);

impl Drop for Reached {
    fn drop(&mut self) {
        blocking::wait(self.0.close());
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mount")
    }
}

impl Mount {
    /// Mounts the remote folder `location` on the empty local folder `at`. Blocks until the host
    /// has listed the remote folder. `warn` gets warnings about lost connections and failed
    /// requests. `cancel` ends all requests.
    ///
    /// # Errors
    /// FUSE is missing on this system or refuses the mount; `at` is not an empty folder; the host
    /// cannot be reached, or does not list the folder.
    pub fn start(
        client: &Client,
        location: &Location,
        at: &Path,
        options: &Options,
        cancel: &CancelHandle,
        warn: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<Mount, Error> {
        check(at)?;
        let runtime = runtime()?;
        let host = Arc::new(Host::new(client, location, options, cancel, warn));
        let reached = Reached(host.clone());
        let top = location.path().to_owned();
        let (host_of_check, top_of_check) = (host.clone(), top.clone());
        let (tell, listed) = mpsc::channel();
        runtime.spawn(async move {
            let _ = tell.send(host_of_check.check(&top_of_check).await);
        });
        listed.recv().map_err(|_| vanished())??;
        let cache = Arc::new(Cache::new(options.cache.max(LEAST_CACHE)));
        let remote = Remote::new(host, cache, top, runtime);
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(location.to_string().replace(',', "%2C")),
            MountOption::Subtype("longhaul".to_owned()),
            MountOption::RO,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoAtime,
        ];
        let whole = at.canonicalize().map_err(|error| refused(at, &error))?;
        let mut session = Session::new(remote, at, &config).map_err(|error| refused(at, &error))?;
        let unmounter = session.unmount_callable();
        let (tell, ended) = mpsc::channel();
        let run = move || {
            let _ = tell.send(session.run());
        };
        thread::Builder::new().name("longhaul mount".to_owned()).spawn(run).map_err(no_thread)?;
        Ok(Mount { at: whole, _reached: reached, unmounter, ended })
    }

    /// Waits up to `patience`; returns whether the folder was unmounted from outside.
    ///
    /// # Errors
    /// The connection to the kernel failed.
    pub fn ended(&self, patience: Duration) -> Result<bool, Error> {
        match self.ended.recv_timeout(patience) {
            Ok(Ok(())) | Err(RecvTimeoutError::Disconnected) => Ok(true),
            Ok(Err(error)) => {
                let what = format!("the file system ended: {error}");
                Err(Error::new(ErrorKind::LocalFile, what))
            }
            Err(RecvTimeoutError::Timeout) => Ok(false),
        }
    }

    /// Unmounts the folder; later reads of open files fail. Returns whether files were open. An
    /// ordinary user always gets `false`, because `fusermount3` does not report open files.
    ///
    /// # Errors
    /// The system refuses.
    pub fn unmount(mut self) -> Result<bool, Error> {
        self.detach()
            .map_err(|error| Error::new(ErrorKind::LocalFile, format!("cannot unmount: {error}")))
    }

    fn detach(&mut self) -> io::Result<bool> {
        match self.unmounter.unmount() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
                rustix::mount::unmount(&self.at, flags)?;
                Ok(true)
            }
            done => done.map(|()| false),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.detach();
    }
}

fn check(at: &Path) -> Result<(), Error> {
    let local = |what: String| Error::new(ErrorKind::LocalFile, what);
    if !Path::new(DEVICE).exists() {
        let what = format!(
            "{DEVICE} is missing, so this host cannot mount; load the kernel module \
             `fuse` and install the package fuse3, or read files with `longhaul cat`"
        );
        return Err(local(what));
    }
    let found = std::fs::read_dir(at)
        .map_err(|error| local(format!("cannot mount on {}: {error}", at.display())))?;
    match found.count() {
        0 => Ok(()),
        _ => {
            let what = format!("cannot mount on {}: it is not empty", at.display());
            Err(local(what))
        }
    }
}

fn refused(at: &Path, error: &io::Error) -> Error {
    let device = File::options().read(true).write(true).open(DEVICE);
    let what = match (error.kind(), device) {
        (io::ErrorKind::NotFound, _) => {
            "fusermount3 is missing, and only root mounts without it; install the package fuse3"
                .to_owned()
        }
        (_, Err(why)) => format!(
            "cannot mount on {}: {DEVICE} cannot be opened: {why}; give a container this device \
             and the right to use it, or read files with `longhaul cat`",
            at.display(),
        ),
        (_, Ok(_)) => format!(
            "cannot mount on {}: {error}; FUSE ({DEVICE}) needs root, or fusermount3 with its \
             set-user-ID bit",
            at.display(),
        ),
    };
    Error::new(ErrorKind::LocalFile, what)
}

fn vanished() -> Error {
    Error::new(ErrorKind::Cancelled, "the mount ended")
}

fn no_thread(error: io::Error) -> Error {
    Error::new(ErrorKind::LocalFile, format!("cannot start a thread: {error}"))
}

/// Starts a thread that runs all tasks of a mount. The thread ends with the process.
fn runtime() -> Result<tokio::runtime::Handle, Error> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(no_thread)?;
    let handle = runtime.handle().clone();
    let run = move || runtime.block_on(std::future::pending::<()>());
    thread::Builder::new().name("longhaul mount tasks".to_owned()).spawn(run).map_err(no_thread)?;
    Ok(handle)
}
