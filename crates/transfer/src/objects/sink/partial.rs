//! The file that a copy writes until it is whole: ours alone, locked, never through a link.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, FlockOperation, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::objects::CHUNK;
use crate::objects::folders::{self, FileKind};

/// How often a partial file that changes under our hands is tried again.
const TRIES: usize = 10;

/// The magic number of tmpfs, where reserving room means touching all of its memory at once.
const TMPFS: i64 = 0x0102_1994;

/// Opens the partial file `name` and locks it; makes it with mode `create` where it is missing,
/// or returns nothing without.
///
/// # Errors
/// `ResourceBusy` if another copy has it; else what the system says.
pub(super) fn open(
    folder: impl AsFd,
    name: &[u8],
    create: Option<u32>,
) -> io::Result<Option<File>> {
    for _ in 0..TRIES {
        let file = match folders::open(&folder, name, OFlags::RDWR) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => match create {
                None => return Ok(None),
                Some(mode) => match folders::create(&folder, name, mode) {
                    Ok(file) => file,
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                    Err(error) => return Err(error),
                },
            },
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                folders::remove_if_there(&folder, name)?;
                continue;
            }
            Err(error) => return Err(error),
        };
        let found = folders::look_at(&file)?;
        let owner = rustix::process::geteuid().as_raw();
        if found.kind != FileKind::File || found.links > 1 || found.owner != owner {
            // Planted by somebody else, perhaps as a second name of another file.
            if found.links > 0 {
                folders::remove_if_there(&folder, name)?;
            }
            continue;
        }
        lock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // It may have got its final name between the two calls.
        let named = folders::look_if_there(&folder, name)?;
        if named.is_some_and(|named| named.identity == found.identity) {
            return Ok(Some(file));
        }
    }
    Err(busy())
}

fn busy() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "another copy is writing it at this moment")
}

/// Whether another copy has it.
pub(super) fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

/// Locks a file or folder without waiting.
///
/// # Errors
/// `ResourceBusy` if another copy has it.
pub(super) fn lock(handle: impl AsFd, how: FlockOperation) -> io::Result<()> {
    match rustix::fs::flock(handle, how) {
        Err(Errno::WOULDBLOCK) => Err(busy()),
        // Some network file systems have no locks; the copy is worth more.
        _ => Ok(()),
    }
}

/// Reserves room for the whole file where the file system can.
pub(super) fn reserve(file: &File, size: u64) -> io::Result<()> {
    let kind = rustix::fs::fstatfs(file)?.f_type;
    #[allow(clippy::unnecessary_cast, reason = "the field's type differs between systems")]
    if size == 0 || kind as i64 == TMPFS {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, size) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
        _ => Ok(()),
    }
}

const PAGE: usize = 4096;
static ZEROS: [u8; PAGE] = [0; PAGE];

/// How content is put into a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    /// Zero pages need not be written.
    pub(super) sparse: bool,
    /// Nothing was there before: what is not written reads as zeros.
    pub(super) fresh: bool,
}

/// Writes `content` at `offset`; zero pages of sparse files become or stay holes.
pub(super) fn write(file: &File, how: Writing, offset: u64, content: &[u8]) -> io::Result<()> {
    if !how.sparse {
        return file.write_all_at(content, offset);
    }
    if !how.fresh {
        clear(file, offset..offset + content.len() as u64)?;
    }
    let is_zero = |page: &[u8]| *page == ZEROS[..page.len()];
    let mut start = 0;
    for run in content.chunks(PAGE).collect::<Vec<_>>().chunk_by(|a, b| is_zero(a) == is_zero(b)) {
        let len: usize = run.iter().map(|page| page.len()).sum();
        if !is_zero(run[0]) {
            file.write_all_at(&content[start..start + len], offset + start as u64)?;
        }
        start += len;
    }
    Ok(())
}

/// Makes a range read as zeros, as a hole where the file system has holes.
pub(super) fn clear(file: &File, range: Range<u64>) -> io::Result<()> {
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if rustix::fs::fallocate(file, how, range.start, range.end - range.start).is_ok() {
        return Ok(());
    }
    for at in range.clone().step_by(PAGE) {
        file.write_all_at(&ZEROS[..(range.end - at).min(PAGE as u64) as usize], at)?;
    }
    Ok(())
}

/// The chunks of a file of `size` bytes in which anything was written.
pub(super) fn chunks_with_content(file: &File, size: u64) -> Vec<Range<u64>> {
    let mut out: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) if start < size => start,
            Ok(_) | Err(Errno::NXIO) => break,
            // It cannot tell holes: anything may be content.
            Err(_) => at,
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
        let end = if end > start { end } else { size };
        let (first, behind) = (start / CHUNK, end.div_ceil(CHUNK));
        match out.last_mut() {
            Some(last) if last.end >= first => last.end = last.end.max(behind),
            _ => out.push(first..behind),
        }
        at = end;
    }
    out
}
