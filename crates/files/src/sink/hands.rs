//! Many small things done to files at once, by several threads: what each takes is system calls,
//! and mostly not the disk's time.

use std::io;
use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::thread::{self, Builder, ScopedJoinHandle};

use super::destination::Ground;

/// More threads than this stand in each other's way: a folder takes one new name at a time.
const MOST: usize = 4;
/// Less than this for each is done sooner than a thread starts.
const LEAST: usize = 64;

/// How many threads this host has use for.
fn hands() -> usize {
    static HANDS: OnceLock<usize> = OnceLock::new();
    *HANDS.get_or_init(|| thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST)))
}

/// Does something with each of `items`, in any order; tells what became of each, in theirs.
pub(super) fn each<T: Sync, R: Send>(
    ground: &mut Ground,
    items: &[T],
    act: impl Fn(&mut Ground, &T) -> R + Sync,
) -> Vec<R> {
    let share = items.len().div_ceil(hands()).max(LEAST);
    let work = |ground: &mut Ground, items: &[T]| -> Vec<R> {
        items.iter().map(|item| act(ground, item)).collect()
    };
    let mut shares = items.chunks(share);
    let Some(own) = shares.next() else { return Vec::new() };
    let work = &work;
    thread::scope(|scope| {
        // Handles of its own: each keeps those of the folder that it was in last.
        let start = |share| -> io::Result<ScopedJoinHandle<'_, Vec<R>>> {
            let mut ground = ground.another();
            Builder::new()
                .name("files".into())
                .spawn_scoped(scope, move || work(&mut ground, share))
        };
        let started: Vec<_> = shares.map(|share| (share, start(share))).collect();
        let mut done = work(ground, own);
        for (share, started) in started {
            // A host that has no thread left does it in turn.
            done.extend(match started {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(_) => work(ground, share),
            });
        }
        done
    })
}
