//! Chunks of files in memory, up to a number of bytes. The least recently used chunks are dropped
//! first.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

/// Identifies a chunk: the number of the version of a file, and the chunk's index.
pub(crate) type Key = (u64, u64);

#[derive(Debug)]
pub(crate) struct Cache {
    most: u64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    chunks: HashMap<Key, (Arc<[u8]>, u64)>,
    /// The chunks by the time of their last use.
    used: BTreeMap<u64, Key>,
    bytes: u64,
    time: u64,
}

impl Cache {
    pub(crate) fn new(most: u64) -> Cache {
        Cache { most, kept: Mutex::default() }
    }

    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(|error| error.into_inner())
    }

    pub(crate) fn get(&self, key: Key) -> Option<Arc<[u8]>> {
        let mut kept = self.kept();
        let kept = &mut *kept;
        let (content, used) = kept.chunks.get_mut(&key)?;
        kept.used.remove(used);
        kept.time += 1;
        *used = kept.time;
        kept.used.insert(kept.time, key);
        Some(content.clone())
    }

    pub(crate) fn has(&self, key: Key) -> bool {
        self.kept().chunks.contains_key(&key)
    }

    /// Stores a chunk, and drops the least recently used other chunks beyond the limit.
    pub(crate) fn put(&self, key: Key, content: Arc<[u8]>) {
        let mut kept = self.kept();
        let kept = &mut *kept;
        kept.time += 1;
        kept.bytes += content.len() as u64;
        kept.used.insert(kept.time, key);
        if let Some((old, used)) = kept.chunks.insert(key, (content, kept.time)) {
            kept.bytes -= old.len() as u64;
            kept.used.remove(&used);
        }
        while kept.bytes > self.most && kept.chunks.len() > 1 {
            let Some((_, key)) = kept.used.pop_first() else { return };
            if let Some((old, _)) = kept.chunks.remove(&key) {
                kept.bytes -= old.len() as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_chunk_is_dropped_first() {
        let cache = Cache::new(30);
        let content = |byte: u8| -> Arc<[u8]> { vec![byte; 10].into() };
        for chunk in 0..3 {
            cache.put((1, chunk), content(chunk as u8));
        }
        assert_eq!(cache.get((1, 0)).unwrap()[..], [0; 10]);
        cache.put((1, 3), content(3));
        assert!(cache.has((1, 0)) && !cache.has((1, 1)) && cache.has((1, 2)) && cache.has((1, 3)));
        cache.put((1, 2), content(9));
        assert_eq!(cache.get((1, 2)).unwrap()[..], [9; 10]);
        let kept = cache.kept();
        assert_eq!((kept.bytes, kept.used.len()), (30, kept.chunks.len()));
        drop(kept);
        assert_eq!(cache.get((2, 0)), None);
    }

    #[test]
    fn a_chunk_larger_than_the_limit_is_kept_alone() {
        let cache = Cache::new(5);
        cache.put((1, 0), vec![0; 10].into());
        cache.put((1, 1), vec![1; 10].into());
        assert!(!cache.has((1, 0)) && cache.has((1, 1)));
    }
}
