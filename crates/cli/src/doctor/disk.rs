//! Checks the disk: writes, syncs and reads back a file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};
use longhaul_testbed::random::Random;
use rustix::fs::{Advice, fadvise, fdatasync, statvfs};

use super::{Finding, Grade, Want};

/// Maximum number of bytes to write.
const MOST: u64 = 128_000_000;
/// Time limit of the writes, and time limit of the reads. The sync between them has no limit.
const TIME: Duration = Duration::from_secs(2);
/// Bytes of one write, as many as in a copy.
const PIECE: usize = 1 << 20;
/// Bytes of the smallest unit in which disks deduplicate.
const BLOCK: usize = 4096;
/// Bytes that must stay free on the disk.
const SPARE: u64 = 512_000_000;

pub(super) fn look(want: Want, folder: &Path) -> Vec<Finding> {
    let shown = folder.display();
    let trouble = |error: io::Error| {
        let what = format!("{shown} cannot be written: {error}");
        vec![Finding::new("disk-write", Grade::Bad, what, "name another folder with --dir")]
    };
    // Saturates, because a file system may report any numbers.
    match statvfs(folder).map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize)) {
        Ok(free) if free < MOST + SPARE => {
            let free = Bytes::new(free);
            let what = format!("{free} free in {shown}: too little to measure");
            let mend = "free some space, or name another folder with --dir";
            return vec![Finding::new("disk-write", Grade::Warn, what, mend)];
        }
        Ok(_) => {}
        Err(error) => return trouble(error.into()),
    }
    match measure(folder) {
        Ok((written, read)) => {
            vec![
                judge("disk-write", "written", written, want),
                judge("disk-read", "read", read, want),
            ]
        }
        Err(error) => trouble(error),
    }
}

fn judge(name: &'static str, done: &str, rate: Rate, want: Want) -> Finding {
    let bytes = Bytes::new(rate.as_bps() / 8);
    let what =
        format!("{bytes}/s {done}; {} needs {}/s", want.rate, Bytes::new(want.rate.as_bps() / 8));
    let mend = "the disk limits copies: use a faster one, or several in parallel";
    Finding::new(name, Grade::unless(rate >= want.rate, Grade::Warn), what, mend)
}

/// Rates of writing including sync, and of reading from the disk. The file has no name, so it
/// disappears even after a crash.
fn measure(folder: &Path) -> io::Result<(Rate, Rate)> {
    let mut file = tempfile::tempfile_in(folder)?;
    let mut piece = vec![0; PIECE];
    // Random content, because some file systems compress.
    let mut random = Random::new(PIECE as u64);
    for word in piece.chunks_exact_mut(8) {
        word.copy_from_slice(&random.bits().to_le_bytes());
    }
    let began = Instant::now();
    let mut written = 0u64;
    while MOST - written >= PIECE as u64 && began.elapsed() < TIME {
        stamp(&mut piece, written);
        file.write_all(&piece)?;
        written += PIECE as u64;
    }
    fdatasync(&file)?;
    let writing = rate(written, began.elapsed());
    forget(&file);
    file.seek(SeekFrom::Start(0))?;
    let began = Instant::now();
    let mut read = 0;
    while began.elapsed() < TIME {
        match file.read(&mut piece)? {
            0 => break,
            len => read += len as u64,
        }
    }
    Ok((writing, rate(read, began.elapsed())))
}

/// Makes each block of the file unique, because some disks deduplicate. `at` is the offset of the
/// piece in the file, in bytes.
fn stamp(piece: &mut [u8], at: u64) {
    for (block, nth) in piece.chunks_exact_mut(BLOCK).zip(0u64..) {
        block[..8].copy_from_slice(&(at + nth).to_ne_bytes());
    }
}

/// Asks the kernel to drop the file from its cache.
fn forget(file: &File) {
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}

fn rate(bytes: u64, time: Duration) -> Rate {
    Bytes::new(bytes) / Span::from_nanos((time.as_nanos() as u64).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_folder_stays_empty_and_a_missing_folder_is_bad() {
        let folder = tempfile::tempdir().unwrap();
        let want = |rate| Want { rate, rtt: Span::ZERO, is_asked: true };
        let findings = look(want(Rate::from_bps(8)), folder.path());
        assert!(findings.iter().all(|finding| finding.grade < Grade::Bad), "{findings:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let missing = look(want(Rate::from_bps(8)), &folder.path().join("no"));
        assert_eq!(missing[0].grade, Grade::Bad);
        assert!(missing[0].what.contains("No such file"), "{}", missing[0].what);
    }

    #[test]
    fn no_two_blocks_of_the_written_file_are_equal() {
        let mut piece = vec![0; PIECE];
        let mut blocks = std::collections::BTreeSet::new();
        for at in [0, PIECE as u64] {
            stamp(&mut piece, at);
            blocks.extend(piece.chunks(4096).map(<[u8]>::to_vec));
        }
        assert_eq!(blocks.len(), 2 * PIECE / 4096);
    }

    #[test]
    fn a_disk_slower_than_the_rate_causes_a_warning() {
        let want = Want { rate: Rate::from_mbps(1_000), rtt: Span::ZERO, is_asked: true };
        let slow = judge("disk-write", "written", Rate::from_mbps(800), want);
        assert_eq!(slow.grade, Grade::Warn);
        assert!(slow.what.contains("100.00 MB/s written") && slow.what.contains("125.00 MB/s"));
    }
}
