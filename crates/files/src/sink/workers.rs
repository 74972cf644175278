//! Runs many small operations on files on several threads.

use std::io;
use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::thread::{self, Builder, ScopedJoinHandle};

use super::destination::Ground;

/// Maximum number of threads. More would block each other: a folder takes one new name at a time.
const MOST: usize = 4;
/// Minimum number of operations per thread, except for the last thread.
const LEAST: usize = 64;

fn workers() -> usize {
    static WORKERS: OnceLock<usize> = OnceLock::new();
    *WORKERS
        .get_or_init(|| thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST)))
}

/// Applies a function to each of `items`, in any order; returns the results in the order of the
/// items.
pub(super) fn each<T: Sync, R: Send>(
    ground: &mut Ground,
    items: &[T],
    act: impl Fn(&mut Ground, &T) -> R + Sync,
) -> Vec<R> {
    let share = items.len().div_ceil(workers()).max(LEAST);
    let work = |ground: &mut Ground, items: &[T]| -> Vec<R> {
        items.iter().map(|item| act(ground, item)).collect()
    };
    let mut shares = items.chunks(share);
    let Some(own) = shares.next() else { return Vec::new() };
    let work = &work;
    thread::scope(|scope| {
        // Each worker has separate handles, because it keeps the handles of its last folder.
        let start = |share| -> io::Result<ScopedJoinHandle<'_, Vec<R>>> {
            let mut ground = ground.another();
            Builder::new()
                .name("files".into())
                .spawn_scoped(scope, move || work(&mut ground, share))
        };
        let started: Vec<_> = shares.map(|share| (share, start(share))).collect();
        let mut done = work(ground, own);
        for (share, started) in started {
            // If a thread could not be started, the calling thread does that share.
            done.extend(match started {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(_) => work(ground, share),
            });
        }
        done
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use super::*;
    use crate::manifest::FileTime;
    use crate::{Manifest, Place};

    #[test]
    fn results_keep_the_order_of_items_and_many_items_use_several_threads() {
        let top = tempfile::tempdir().unwrap();
        let manifest = Arc::new(Manifest::of_file(b"x", 1, FileTime::default(), 0).unwrap());
        let place = Place::Ambient(top.path().to_owned());
        let mut ground = Ground::open(&place, &manifest, true).unwrap();
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get().min(4));
        for (items, threads) in [(0, 0), (1, 1), (64, 1), (64 * 64, cores)] {
            let all: Vec<usize> = (0..items).collect();
            let done = each(&mut ground, &all, |_, item| (*item, thread::current().id()));
            assert_eq!(done.iter().map(|(item, _)| *item).collect::<Vec<_>>(), all);
            let by: HashSet<_> = done.iter().map(|(_, thread)| *thread).collect();
            assert_eq!(by.len(), threads, "{items}");
        }
    }
}
