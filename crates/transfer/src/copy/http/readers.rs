//! Threads that read ranges of a file, each over its own connection.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use longhaul_fetch::{self as fetch, Client, Remote};
use longhaul_files::CHUNK;

use crate::error::{Error, ErrorKind};

/// Maximum number of chunks (of 1 MiB) in one range request. With so many, a request's round trip
/// costs little.
const MOST: u64 = 32;
/// Approximate minimum number of requests per connection. With fewer, one connection could have a
/// long request left when the others are done.
const EACH: u64 = 4;
/// Maximum number of chunks in the queue for the writer.
const AHEAD: usize = 8;

pub(super) enum ReaderEvent {
    Chunk(u64, Vec<u8>),
    /// A reader has failed. If the server supports ranges and other readers still run, they read
    /// the rest.
    Failed(fetch::Error),
}

/// The running readers. After this value is dropped, each reader ends once its current chunk is
/// complete, or when its connection is silent for too long.
pub(super) struct Readers {
    work: Arc<Work>,
    events: Receiver<ReaderEvent>,
    give_back: Sender<Vec<u8>>,
}

struct Work {
    client: Client,
    remote: Remote,
    due: Mutex<VecDeque<Range<u64>>>,
    buffers: Mutex<Receiver<Vec<u8>>>,
    bytes: AtomicU64,
    is_over: AtomicBool,
}

impl Readers {
    pub(super) fn start(
        client: &Client,
        remote: &Remote,
        missing: &[Range<u64>],
        connections: u16,
    ) -> Result<Readers, Error> {
        let due = match remote.has_ranges() {
            true => parts(missing, connections.into()),
            // A server without ranges sends only the whole file, from its start.
            false => std::iter::once(0..remote.size().div_ceil(CHUNK)).collect(),
        };
        let (give_back, buffers) = mpsc::channel();
        let count = due.len().min(connections.into());
        let work = Arc::new(Work {
            client: client.clone(),
            remote: remote.clone(),
            due: Mutex::new(due),
            buffers: Mutex::new(buffers),
            bytes: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let (send, events) = mpsc::sync_channel(AHEAD);
        let readers = Readers { work: work.clone(), events, give_back };
        for _ in 0..count {
            let (work, send) = (work.clone(), send.clone());
            let named = thread::Builder::new().name("http reader".to_owned());
            named.spawn(move || work.read(&send)).map_err(|error| {
                Error::new(ErrorKind::LocalFile, format!("cannot start a thread: {error}"))
            })?;
        }
        Ok(readers)
    }

    /// Returns the next event. Fails with `Timeout` if none comes within `patience`, and with
    /// `Disconnected` after the last one.
    pub(super) fn next(&self, patience: Duration) -> Result<ReaderEvent, RecvTimeoutError> {
        self.events.recv_timeout(patience)
    }

    pub(super) fn give_back(&self, buffer: Vec<u8>) {
        let _ = self.give_back.send(buffer);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.work.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.work.is_over.store(true, Ordering::Relaxed);
    }
}

fn parts(missing: &[Range<u64>], connections: u64) -> VecDeque<Range<u64>> {
    let all: u64 = missing.iter().map(|run| run.end - run.start).sum();
    let most = all.div_ceil(connections.max(1) * EACH).clamp(1, MOST);
    let mut parts = VecDeque::new();
    for run in missing {
        let starts = (run.start..run.end).step_by(most as usize);
        parts.extend(starts.map(|start| start..(start + most).min(run.end)));
    }
    parts
}

impl Work {
    fn due(&self) -> std::sync::MutexGuard<'_, VecDeque<Range<u64>>> {
        self.due.lock().unwrap_or_else(|error| error.into_inner())
    }

    /// Processes requests until none is left, one fails, or `Readers` is dropped.
    fn read(&self, send: &SyncSender<ReaderEvent>) {
        loop {
            let Some(mut part) = self.due().pop_front() else { return };
            let read = self.part(&mut part, send);
            let is_over = self.is_over.load(Ordering::Relaxed);
            if !part.is_empty() && self.remote.has_ranges() {
                self.due().push_front(part);
            }
            match read {
                Ok(true) if !is_over => {}
                Ok(_) => return,
                Err(error) => {
                    let _ = send.send(ReaderEvent::Failed(error));
                    return;
                }
            }
        }
    }

    /// Requests the chunks `part`, and removes each chunk from `part` once it is complete. Returns
    /// false if the receiver of the chunks was dropped.
    fn part(
        &self,
        part: &mut Range<u64>,
        send: &SyncSender<ReaderEvent>,
    ) -> Result<bool, fetch::Error> {
        let size = self.remote.size();
        let end = |chunk: u64| ((chunk + 1) * CHUNK).min(size);
        let mut body = self.client.read(&self.remote, part.start * CHUNK..end(part.end - 1))?;
        while !part.is_empty() {
            let chunk = part.start;
            let buffer = self.buffers.lock().ok().and_then(|buffers| buffers.try_recv().ok());
            let mut buffer = buffer.unwrap_or_default();
            buffer.resize((end(chunk) - chunk * CHUNK) as usize, 0);
            body.fill(&mut buffer, &|len| {
                self.bytes.fetch_add(len, Ordering::Relaxed);
            })?;
            if self.is_over.load(Ordering::Relaxed)
                || send.send(ReaderEvent::Chunk(chunk, buffer)).is_err()
            {
                return Ok(false);
            }
            part.start += 1;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_chunks_become_requests_in_order_and_none_is_left_out() {
        let missing = [0..3, 10..200];
        for connections in [1, 4, 64] {
            let parts = parts(&missing, connections);
            let flat: Vec<u64> = parts.iter().cloned().flatten().collect();
            assert_eq!(flat, missing.iter().cloned().flatten().collect::<Vec<_>>());
            assert!(parts.iter().all(|part| part.end - part.start <= MOST));
            assert!(parts.len() as u64 >= connections.min(100));
        }
        assert!(self::parts(&[], 4).is_empty());
    }
}
