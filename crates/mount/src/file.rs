//! An open file: chunks of 1 MiB, with read-ahead while the reads are sequential.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use fuser::Errno;
use longhaul_transfer::api::{Error, FileTime, RemoteFile};
use tokio::sync::Notify;

use crate::cache::Cache;
use crate::host::{Failed, Host, Retry};

/// Length of a chunk in bytes. A server's digests verify whole chunks.
pub(crate) const CHUNK: u64 = 1 << 20;
/// Maximum number of chunks to read ahead: as much as a path of 1 Gbit/s carries in 270 ms.
const AHEAD: u64 = 32;
/// A read at most this many chunks before the expected chunk still counts as sequential, because
/// the kernel's threads overtake each other.
const NEAR: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) size: u64,
    pub(crate) modified: FileTime,
}

impl Version {
    pub(crate) fn of(file: &RemoteFile) -> Version {
        Version { size: file.len(), modified: file.modified() }
    }
}

pub(crate) struct OpenFile {
    path: PathBuf,
    /// The number of this version's inode, which also names the version in the cache.
    number: u64,
    version: Version,
    host: Arc<Host>,
    cache: Arc<Cache>,
    /// The file at the host, and the number of its connection; replaced after a lost connection.
    remote: tokio::sync::Mutex<(RemoteFile, u64)>,
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Default)]
struct State {
    /// Requested chunks. An error, with the number of its connection, stays until a reader takes
    /// it.
    pending: HashMap<u64, Option<(Error, u64)>>,
    /// The chunk after the highest chunk of the current sequence of reads.
    next: u64,
    /// Number of chunks to read ahead; doubles while the reads are sequential.
    ahead: u64,
    /// Number of jumps (reads that are not sequential). A jump ends the read-ahead that began
    /// before the jump.
    jumps: u64,
}

impl OpenFile {
    pub(crate) fn new(
        path: PathBuf,
        number: u64,
        (remote, connection): (RemoteFile, u64),
        host: &Arc<Host>,
        cache: &Arc<Cache>,
    ) -> OpenFile {
        OpenFile {
            path,
            number,
            version: Version::of(&remote),
            host: host.clone(),
            cache: cache.clone(),
            remote: tokio::sync::Mutex::new((remote, connection)),
            state: Mutex::default(),
            arrived: Notify::new(),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|error| error.into_inner())
    }

    /// Reads up to `len` bytes at `offset`; fewer only at the end of the file.
    pub(crate) async fn read(self: &Arc<Self>, offset: u64, len: u64) -> Result<Vec<u8>, Failed> {
        let end = offset.saturating_add(len).min(self.version.size);
        let mut all = Vec::with_capacity(end.saturating_sub(offset) as usize);
        let mut at = offset;
        while at < end {
            let chunk = at / CHUNK;
            let content = self.chunk(chunk).await?;
            let from = (at - chunk * CHUNK) as usize;
            let to = (end - chunk * CHUNK).min(CHUNK) as usize;
            all.extend_from_slice(content.get(from..to).ok_or(Errno::EIO)?);
            at = chunk * CHUNK + to as u64;
        }
        Ok(all)
    }

    async fn chunk(self: &Arc<Self>, chunk: u64) -> Result<Arc<[u8]>, Failed> {
        let mut retry = Retry::default();
        loop {
            let arrived = self.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            self.ask(chunk);
            if let Some(content) = self.cache.get((self.number, chunk)) {
                return Ok(content);
            }
            let failed = {
                let mut state = self.state();
                match state.pending.get(&chunk) {
                    Some(Some(_)) => state.pending.remove(&chunk).flatten(),
                    // Either the chunk arrived after the look into the cache, or the cache dropped
                    // it before the look, or its read-ahead has ended. Request and look again.
                    None => continue,
                    Some(None) => None,
                }
            };
            match failed {
                Some((error, connection)) => {
                    self.host.failed(Some(connection), &error, &mut retry).await?;
                    self.open_again(connection, &mut retry).await?;
                }
                None => arrived.await,
            }
        }
    }

    /// Requests `chunk` and the chunks to read ahead, except those already cached or requested.
    fn ask(self: &Arc<Self>, chunk: u64) {
        let (runs, jumps) = {
            let mut state = self.state();
            let most = AHEAD.min(self.cache.most() / CHUNK / 2);
            let ahead = state.seen(chunk, most);
            let end = (chunk + 1 + ahead).min(self.version.size.div_ceil(CHUNK));
            // If only chunks to read ahead are due, request nothing until they are at least a
            // quarter of `ahead`: a few large requests are better than one request for each chunk.
            let is_due =
                |at: u64| !state.pending.contains_key(&at) && !self.cache.has((self.number, at));
            let due: Vec<u64> = (chunk..end).filter(|at| is_due(*at)).collect();
            let is_worth_it = due.first() == Some(&chunk) || due.len() as u64 * 4 >= ahead;
            let due = if is_worth_it { due } else { Vec::new() };
            state.pending.extend(due.iter().map(|at| (*at, None)));
            (runs(&due), state.jumps)
        };
        if !runs.is_empty() {
            let file = self.clone();
            tokio::spawn(async move { file.fetch(runs, jumps).await });
        }
    }

    async fn fetch(self: Arc<Self>, runs: Vec<Range<u64>>, jumps: u64) {
        let (remote, connection) = self.remote.lock().await.clone();
        let mut due: VecDeque<u64> = runs.iter().cloned().flatten().collect();
        let bytes = runs.iter().map(|run| run.start * CHUNK..run.end * CHUNK);
        let failed = match remote.read_ranges(bytes).await {
            Err(error) => Some(error),
            Ok(mut reads) => {
                let mut part = Vec::new();
                loop {
                    let Some(chunk) = due.front().copied() else { break None };
                    match reads.next().await {
                        Some(Ok(piece)) => part.extend(piece.bytes),
                        Some(Err(error)) => break Some(error),
                        None => break None,
                    }
                    let len = (self.version.size - chunk * CHUNK).min(CHUNK) as usize;
                    if part.len() < len {
                        continue;
                    }
                    let rest = part.split_off(len);
                    let whole = std::mem::replace(&mut part, rest);
                    self.cache.put((self.number, chunk), whole.into());
                    due.pop_front();
                    let is_over = {
                        let mut state = self.state();
                        state.pending.remove(&chunk);
                        state.jumps != jumps
                    };
                    self.arrived.notify_waiters();
                    if is_over {
                        break None;
                    }
                }
            }
        };
        let mut state = self.state();
        for chunk in due {
            match &failed {
                Some(error) => state.pending.insert(chunk, Some((error.clone(), connection))),
                // A reader that still needs the chunk requests it again.
                None => state.pending.remove(&chunk),
            };
        }
        drop(state);
        self.arrived.notify_waiters();
    }

    /// Opens the file over a new connection, unless another reader has already done so.
    async fn open_again(&self, connection: u64, retry: &mut Retry) -> Result<(), Failed> {
        let mut remote = self.remote.lock().await;
        if remote.1 != connection {
            return Ok(());
        }
        let opened = self.host.open(&self.path, retry).await?;
        if Version::of(&opened.0) != self.version {
            return Err(Errno::ESTALE.into());
        }
        *remote = opened;
        Ok(())
    }
}

impl State {
    /// Notes a read of `chunk`; returns how many chunks to read ahead.
    fn seen(&mut self, chunk: u64, most: u64) -> u64 {
        let is_next = (self.next.saturating_sub(NEAR)..=self.next).contains(&chunk);
        if !is_next {
            self.jumps += 1;
            self.ahead = 0;
        } else if chunk == self.next {
            self.ahead = (self.ahead * 2).clamp(2, most.max(2));
        }
        self.next = if is_next { self.next.max(chunk + 1) } else { chunk + 1 };
        self.ahead
    }
}

fn runs(chunks: &[u64]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for chunk in chunks.iter().copied() {
        match runs.last_mut() {
            Some(last) if last.end == chunk => last.end += 1,
            _ => runs.push(chunk..chunk + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_reads_cause_read_ahead_and_a_jump_does_not() {
        let mut state = State::default();
        let ahead: Vec<u64> = (0..7).map(|chunk| state.seen(chunk, 32)).collect();
        assert_eq!(ahead, [2, 4, 8, 16, 32, 32, 32]);
        // Reads of the kernel's threads may arrive out of order.
        assert_eq!(state.seen(5, 32), 32);
        assert_eq!((state.seen(7, 32), state.jumps), (32, 0));
        assert_eq!((state.seen(100, 32), state.jumps), (0, 1));
        assert_eq!(state.seen(101, 32), 2);
        assert_eq!((state.seen(3, 32), state.jumps), (0, 2));
        assert_eq!(State::default().seen(0, 4), 2);
    }

    #[test]
    fn neighbouring_chunks_form_one_run() {
        assert_eq!(runs(&[]), []);
        assert_eq!(runs(&[1, 2, 3, 7, 9, 10]), [1..4, 7..8, 9..11]);
    }
}
