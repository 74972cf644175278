//! Scratch folders for network tests, in memory if there is room. A disk that hangs for seconds
//! would look like a network outage.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

const IN_MEMORY: &str = "/dev/shm";
/// Enough memory for all concurrent tests, in bytes.
const ENOUGH: u64 = 6_000_000_000;

pub(crate) fn scratch() -> TempDir {
    let folder = if has_room() { TempDir::new_in(IN_MEMORY) } else { tempfile::tempdir() };
    folder.expect("there is room for a folder")
}

fn has_room() -> bool {
    let room = rustix::fs::statvfs(IN_MEMORY).map_or(0, |fs| fs.f_bavail * fs.f_frsize);
    Path::new(IN_MEMORY).is_dir() && room.min(free_memory()) > ENOUGH
}

/// Memory that programs may still use, in bytes.
fn free_memory() -> u64 {
    let told = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibi = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibi.unwrap_or_default() * 1024
}
