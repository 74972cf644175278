//! Mounted folders, read as local files.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirEntryExt, FileExt, FileTypeExt, MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::Signal;

use super::channel_of_ssh;
use crate::rig::{Child, Pair, Server, Skipped, bytes, need, skip, write};

const MEBI: usize = 1 << 20;

/// Whether this process can mount. The error is the reason to skip a test.
pub(super) fn fuse() -> Result<(), Skipped> {
    match Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(skip::forbidden("there is no /dev/fuse, or this is not root")),
    }
}

pub(super) struct Mounted {
    pub(super) child: Child,
    pub(super) at: PathBuf,
}

impl Mounted {
    fn new(pair: &Pair, flags: &[&str], path: &str) -> Mounted {
        Mounted::of(pair, flags, pair.at(path))
    }

    /// Mounts the folder at `url`.
    pub(super) fn of(pair: &Pair, flags: &[&str], url: impl AsRef<OsStr>) -> Mounted {
        let at = pair.scratch.path().join("mnt");
        fs::create_dir_all(&at).unwrap();
        let id = format!("--server-id={}", pair.server.id);
        let mut command = pair.client.command(["mount", "--json", &id]);
        let mut child = Child::spawn(command.args(flags).arg(url).arg(&at));
        child.event(|event| event["event"] == "mounted");
        Mounted { child, at }
    }

    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.contains(self.at.to_str().unwrap())
    }
}

#[test]
fn programs_read_a_mounted_folder_as_local_files() {
    need!(fuse());
    let pair = Pair::new();
    let content = bytes(40 * MEBI + 77, 1);
    write(&pair.there.join("sub/deep/file"), &content);
    write(&pair.there.join("sub/small"), b"small");
    write(&pair.there.join("sub/empty"), b"");
    symlink("deep/file", pair.there.join("sub/link")).unwrap();
    symlink("/nowhere", pair.there.join("sub/broken")).unwrap();
    let _socket = UnixListener::bind(pair.there.join("sub/socket")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, pair.there.join("sub/pipe"), Mode::RUSR).unwrap();
    let mounted = Mounted::new(&pair, &["--cache=16Mi"], "sub");
    let names = |folder: &Path| {
        let names = fs::read_dir(folder).unwrap().map(|name| name.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&mounted.at), ["broken", "deep", "empty", "link", "pipe", "small", "socket"]);
    assert_eq!(names(&mounted.at.join("deep")), ["file"]);
    assert!(fs::read(mounted.at.join("deep/file")).unwrap() == content);
    assert!(fs::read(mounted.at.join("link")).unwrap() == content);
    assert_eq!(fs::read(mounted.at.join("small")).unwrap(), b"small");
    assert_eq!(fs::read(mounted.at.join("empty")).unwrap(), b"");
    assert_eq!(fs::read_link(mounted.at.join("broken")).unwrap(), Path::new("/nowhere"));
    let kind = |name: &str| fs::metadata(mounted.at.join(name)).unwrap().file_type();
    assert!(kind("socket").is_socket() && kind("pipe").is_fifo());
    let (here, there) = (mounted.at.join("deep/file"), pair.there.join("sub/deep/file"));
    let (here, there) = (fs::metadata(here).unwrap(), fs::metadata(there).unwrap());
    assert_eq!(
        (here.size(), here.mtime(), here.mtime_nsec()),
        (there.size(), there.mtime(), there.mtime_nsec())
    );
    let mut file = fs::File::open(mounted.at.join("deep/file")).unwrap();
    for at in [39 * MEBI + 5, 17, 20 * MEBI - 3, 40 * MEBI + 70, 5 * MEBI] {
        let mut part = [0; 7];
        file.seek(SeekFrom::Start(at as u64)).unwrap();
        file.read_exact(&mut part).unwrap();
        assert_eq!(part, content[at..at + 7], "{at}");
    }
    for (wrong, code) in [
        (fs::read(mounted.at.join("none")).unwrap_err(), libc_code("ENOENT")),
        (fs::write(mounted.at.join("small"), b"x").unwrap_err(), libc_code("EROFS")),
        (fs::create_dir(mounted.at.join("new")).unwrap_err(), libc_code("EROFS")),
    ] {
        assert_eq!(wrong.raw_os_error(), Some(code), "{wrong}");
    }
    drop(file);
    assert!(mounted.is_mounted());
    mounted.child.signal(Signal::TERM);
    let Mounted { mut child, at } = mounted;
    child.ended().is(0, &[]);
    assert_eq!(names(&at), [""; 0]);
}

#[test]
fn a_signal_unmounts_a_folder_while_a_file_in_it_is_open() {
    need!(fuse());
    let pair = Pair::new();
    write(&pair.there.join("file"), b"x");
    let mut mounted = Mounted::new(&pair, &[], "");
    let _open = fs::File::open(mounted.at.join("file")).unwrap();
    mounted.child.signal(Signal::TERM);
    let ended = mounted.child.ended();
    assert!(!mounted.is_mounted());
    ended.is(0, &["unmounted while files were open"]);
}

#[test]
fn the_error_of_a_mount_names_the_device_that_cannot_be_opened() {
    need!(fuse());
    let pair = Pair::new();
    let scratch = pair.scratch.path();
    fs::create_dir(scratch.join("mnt")).unwrap();
    // Hides /dev/fuse behind a device without a driver.
    let without = "mknod device c 240 250 && mount --bind device /dev/fuse && exec \"$@\"";
    let id = format!("--server-id={}", pair.server.id);
    let url = pair.at("").into_string().expect("our own name");
    let words = ["mount", &id, &url, "mnt"];
    let mut command = pair.client.wrapped(&["unshare", "-m", "sh", "-c", without, "sh"], words);
    let ended = Child::spawn(command.current_dir(scratch)).end();
    ended.is(4, &["cannot mount on mnt: /dev/fuse cannot be opened: No such device"]);
}

fn libc_code(name: &str) -> i32 {
    match name {
        "ENOENT" => Errno::NOENT.raw_os_error(),
        _ => Errno::ROFS.raw_os_error(),
    }
}

#[test]
fn a_mounted_file_stays_readable_after_its_server_restarts() {
    need!(fuse());
    let mut pair = Pair::new();
    let content = bytes(60 * MEBI, 2);
    write(&pair.there.join("file"), &content);
    let mut mounted = Mounted::new(&pair, &["--cache=8Mi"], "");
    let mut file = fs::File::open(mounted.at.join("file")).unwrap();
    let mut all = vec![0; 10 * MEBI];
    file.read_exact(&mut all).unwrap();
    // Restarts the server at the same port.
    let (address, id) = (pair.server.address.clone(), pair.client.id.clone());
    pair.server.child().signal(Signal::KILL);
    pair.server.child().ended();
    let words = Server::words(&address, &pair.there, &["--allow", &id]);
    pair.server = Server::start_as(&mut pair.host.command(words));
    file.read_to_end(&mut all).unwrap();
    assert!(all == content);
    mounted.child.complaint("connection lost");
    // A read through the old handle may fail now; a new open gets the new version.
    write(&pair.there.join("file"), b"new");
    let mut part = [0; 10];
    file.seek(SeekFrom::Start(1)).unwrap();
    drop(file.read(&mut part));
    drop(file);
    crate::rig::wait_until("the new version is seen", || {
        fs::read(mounted.at.join("file")).is_ok_and(|content| content == b"new")
    });
    let unmounted = Command::new("umount").arg(&mounted.at).status().expect("there is umount");
    assert!(unmounted.success());
    mounted.child.ended().is(0, &[]);
}

/// Reads `len` bytes at `at`. `None` if the read fails because the file is another version.
fn read_at(file: &fs::File, at: usize, len: usize) -> Option<Vec<u8>> {
    let mut part = vec![0; len];
    match file.read_at(&mut part, at as u64) {
        Ok(read) => Some(part[..read].to_vec()),
        Err(error) => {
            let expected = [Errno::STALE, Errno::IO].map(|errno| Some(errno.raw_os_error()));
            assert!(expected.contains(&error.raw_os_error()), "{error}");
            None
        }
    }
}

#[test]
fn an_open_file_never_returns_content_of_a_later_version_of_its_path() {
    need!(fuse());
    let pair = Pair::new();
    // A longer and a shorter version, a change in place and a replacement by a rename.
    for (change, len) in [("rename", 1000), ("rename", 300), ("truncate", 300), ("append", 1000)] {
        let old = vec![b'a'; 800];
        let new = match change {
            "rename" => vec![b'b'; len],
            _ => [&old[..old.len().min(len)], &vec![b'b'; len.saturating_sub(800)]].concat(),
        };
        let there = pair.there.join("folder/file");
        write(&there, &old);
        let mounted = Mounted::new(&pair, &[], "");
        let here = mounted.at.join("folder/file");
        let file = fs::File::open(&here).unwrap();
        assert_eq!(read_at(&file, 0, 100), Some(old[..100].to_vec()));
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let before = (inode(&here), inode(here.parent().unwrap()));
        match change {
            "rename" => {
                write(&pair.there.join("new"), &new);
                fs::rename(pair.there.join("new"), &there).unwrap();
            }
            _ => fs::write(&there, &new).unwrap(),
        }
        // A new open gets the new version at once, with its size.
        let opened = fs::File::open(&here).unwrap();
        assert_eq!(opened.metadata().unwrap().len(), len as u64, "{change}");
        assert_eq!(read_at(&opened, 0, 2000), Some(new.clone()), "{change}");
        for at in [0, 100, 299, 700, 799] {
            let read = read_at(&file, at, 1);
            assert!(read.is_none_or(|read| read == b"a"), "{change} {at}");
        }
        assert!(read_at(&file, 900, 50).is_none_or(|read| read.is_empty()), "{change}");
        crate::rig::wait_until("a read beyond the old end fails", || {
            file.read_at(&mut [0; 50], 800).is_err_and(|error| is_stale(&error))
        });
        assert!(file.metadata().is_err_and(|error| is_stale(&error)), "{change}");
        // The new version has a new inode, in listings too. The inode of the folder stays the same.
        let after = (inode(&here), inode(here.parent().unwrap()));
        assert!(after.0 != before.0 && after.1 == before.1, "{change}");
        let listed = fs::read_dir(here.parent().unwrap()).unwrap().next().unwrap().unwrap().ino();
        assert_eq!((listed, inode(&here)), (after.0, after.0), "{change}");
        drop((file, opened));
        mounted.child.signal(Signal::TERM);
        mounted.child.end().is(0, &[]);
    }
}

fn is_stale(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::STALE.raw_os_error())
}

#[test]
fn reads_fail_if_the_server_stays_away_longer_than_retry_for() {
    need!(fuse());
    let pair = Pair::new();
    write(&pair.there.join("file"), &bytes(20 * MEBI, 3));
    let mounted = Mounted::new(&pair, &["--retry-for=1s", "--cache=8Mi"], "");
    let mut file = fs::File::open(mounted.at.join("file")).unwrap();
    let mut part = vec![0; MEBI];
    file.read_exact(&mut part).unwrap();
    let Pair { server, .. } = pair;
    server.into_child().kill();
    let mut rest = Vec::new();
    assert!(file.read_to_end(&mut rest).is_err());
    drop(file);
    mounted.child.signal(Signal::INT);
    mounted.child.end().is(0, &["a request failed"]);
}

#[test]
fn a_folder_is_mounted_over_ssh_and_a_file_or_a_wrong_mount_point_is_refused() {
    need!(fuse());
    let pair = Pair::new();
    write(&pair.there.join("file"), b"x");
    let scratch = tempfile::tempdir().expect("there is room for a folder");
    write(&scratch.path().join("data/folder/file"), b"by ssh");
    let at = pair.scratch.path().join("mnt");
    fs::create_dir_all(&at).unwrap();
    let (ssh, remote) = channel_of_ssh(scratch.path());
    let words = ["mount", "--json", "-e", &ssh, &remote, "nowhere.invalid:folder"];
    let mut command = pair.client.command(words);
    let mut child = Child::spawn(command.arg(&at));
    child.event(|event| event["event"] == "mounted");
    assert_eq!(fs::read(at.join("file")).unwrap(), b"by ssh");
    child.signal(Signal::TERM);
    child.end().is(0, &[]);
    let id = format!("--server-id={}", pair.server.id);
    let refused = |path: &str, at: &Path, status: i32, what: &str| {
        let mut command = pair.client.command(["mount", &id]);
        Child::spawn(command.arg(pair.at(path)).arg(at)).end().is(status, &[what]);
    };
    refused("file", &at, 2, "name its folder");
    refused("none", &at, 5, "none");
    refused("", &at.join("none"), 4, "cannot mount on");
    refused("", &pair.there, 4, "not empty");
}

/// The interpreter for which Linux distributions offer the package h5py.
const PYTHON: &str = "/usr/bin/python3";

#[test]
fn the_hdf5_library_reads_a_file_through_a_mount() {
    need!(fuse());
    let has_h5py = Command::new(PYTHON).args(["-c", "import h5py"]).output();
    need!(match has_h5py.is_ok_and(|output| output.status.success()) {
        true => Ok(()),
        false => Err(skip::uninstalled(format!("h5py of {PYTHON} is not installed"))),
    });
    let pair = Pair::new();
    let script = "import h5py, numpy, sys\n\
        if sys.argv[1] == 'write':\n \
            f = h5py.File(sys.argv[2], 'w')\n \
            f.create_dataset('x', data=numpy.arange(1000000), chunks=True, compression='gzip')\n \
            f.close()\n\
        else: print(h5py.File(sys.argv[2], 'r')['x'][:].sum())";
    let python = |word: &str, path: PathBuf| {
        let output = Command::new(PYTHON).args(["-c", script, word]).arg(path).output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    fs::create_dir_all(&pair.there).unwrap();
    python("write", pair.there.join("table.h5"));
    let mounted = Mounted::new(&pair, &[], "");
    assert_eq!(python("read", mounted.at.join("table.h5")), "499999500000");
    mounted.child.signal(Signal::TERM);
    mounted.child.end().is(0, &[]);
}
