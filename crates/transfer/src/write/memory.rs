//! Memory as the destination: one file of bounded size, for a program that reads a remote file.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::destination::{Open, Opened, Reporter};
use super::writing::{Store, Writing};
use crate::error::{Class, Error};
use longhaul_files::digest::{self, Digest};
use longhaul_files::place::show;
use longhaul_files::{Asked, CHUNK, Kind, Manifest, Mark, Outcome, Plan, Verdict, VirtualObject};
use longhaul_proto::ranges::RangeSet;
use longhaul_proto::units::Bytes;

/// One file in memory. Clones are the same: each attempt of a copy goes on with what the earlier
/// ones verified, while the source has the same version of the file.
#[derive(Clone, Debug)]
pub struct MemoryFile {
    limit: Bytes,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    manifest: Option<Arc<Manifest>>,
    content: Vec<u8>,
    /// Chunks that are still to come.
    missing: RangeSet,
    /// BLAKE3 of all of the content, once it is whole.
    digest: Option<Digest>,
}

impl MemoryFile {
    /// Nothing yet; a file of more than `limit` bytes is refused before any of it comes.
    pub fn new(limit: Bytes) -> MemoryFile {
        MemoryFile { limit, state: Arc::default() }
    }

    /// Takes the content, once every chunk has been verified; nothing before.
    pub fn take(&self) -> Option<Vec<u8>> {
        let mut state = self.state();
        state.digest.take()?;
        state.manifest = None;
        Some(std::mem::take(&mut state.content))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The size of the one file that `manifest` must be.
    fn size_of(&self, manifest: &Manifest) -> Result<u64, Error> {
        let usage = |what| Error::new(Class::Usage, what);
        let entry = manifest.entries().first().filter(|_| manifest.is_single());
        let Some(Kind::File { size, .. }) = entry.map(|entry| &entry.kind) else {
            return Err(usage("only a single file can be read into memory".into()));
        };
        if *size > self.limit.get() {
            let name = show(&manifest.path(0));
            let what = format!("{name} has {} and {} may be read", Bytes::new(*size), self.limit);
            return Err(usage(what).advise("allow more bytes"));
        }
        Ok(*size)
    }
}

/// A copy's way into a [`MemoryFile`].
pub(crate) struct Memory {
    pub(crate) file: MemoryFile,
    /// What the manifest may list.
    pub(crate) asked: Arc<Asked>,
}

impl Open for Memory {
    fn open(
        self: Box<Self>,
        object: VirtualObject,
        _prefix: u64,
        reporter: Reporter,
    ) -> Result<Box<dyn Opened>, Error> {
        let manifest = object.manifest();
        self.asked.admits(manifest)?;
        let size = self.file.size_of(manifest)?;
        let chunks = object.chunks_of(0);
        let (start, all) = (chunks.start, chunks.clone());
        let mut state = self.file.state();
        // Version stamps are part of the manifest: chunks of another version are not kept.
        if state.manifest.as_ref() != Some(manifest) {
            *state = State { manifest: Some(manifest.clone()), ..State::default() };
            state.content = zeros(size)?;
            for run in object.content_runs(0) {
                state.missing.insert(run.start - start..run.end - start);
            }
        }
        let missing: Vec<_> =
            state.missing.iter().map(|run| run.start + start..run.end + start).collect();
        drop(state);
        let holes: Vec<_> = object.hole_chunks().collect();
        let have = super::skip::without(std::slice::from_ref(&all), &missing);
        let have = super::skip::without(&have, &holes);
        let count = |chunk| object.chunk_content(chunk) as u64;
        let resumed_bytes = have.iter().cloned().flatten().map(count).sum();
        let plan = Plan { have, resumed_bytes, ..Plan::default() };
        let store =
            MemoryStore { file: self.file, object: object.clone(), start, size, written: 0 };
        Ok(Box::new(Writing::begin(object, store, plan, reporter)))
    }
}

/// So much memory, which the system may refuse.
fn zeros(size: u64) -> Result<Vec<u8>, Error> {
    let len = usize::try_from(size).ok();
    let mut content = Vec::new();
    if len.is_none_or(|len| content.try_reserve_exact(len).is_err()) {
        let what = format!("this host has no memory for {}", Bytes::new(size));
        return Err(Error::new(Class::Unfinished, what));
    }
    content.resize(size as usize, 0);
    Ok(content)
}

struct MemoryStore {
    file: MemoryFile,
    object: VirtualObject,
    /// The file's first chunk within the object.
    start: u64,
    size: u64,
    written: u64,
}

impl Store for MemoryStore {
    fn needs(&self, chunk: u64) -> bool {
        chunk.checked_sub(self.start).is_some_and(|chunk| self.file.state().missing.contains(chunk))
    }

    fn missing_chunks(&self) -> u64 {
        self.file.state().missing.count()
    }

    fn bytes_written(&self) -> u64 {
        self.written
    }

    fn files_done(&self) -> u64 {
        u64::from(self.missing_chunks() == 0)
    }

    fn write_chunk(
        &mut self,
        chunk: u64,
        content: &[u8],
        expected: &Digest,
    ) -> Result<Verdict, Error> {
        let Some(chunk) = self.object.chunk_kind(chunk).and_then(|_| chunk.checked_sub(self.start))
        else {
            return Ok(Verdict::Mismatch);
        };
        if digest::file_value(self.size, chunk, content) != *expected {
            return Ok(Verdict::Mismatch);
        }
        let mut state = self.file.state();
        let at = (chunk * CHUNK) as usize;
        if state.missing.contains(chunk)
            && let Some(place) = state.content.get_mut(at..at + content.len())
        {
            place.copy_from_slice(content);
            state.missing.remove(chunk..chunk + 1);
            self.written += content.len() as u64;
        }
        Ok(Verdict::Written)
    }

    fn finish(self) -> Result<(Outcome, Option<Mark>), Error> {
        let mut state = self.file.state();
        let digest = *blake3::hash(&state.content).as_bytes();
        state.digest = Some(digest);
        let (bytes, digest) = (self.written, Some(digest));
        Ok((Outcome { files: 1, bytes, digest, ..Outcome::default() }, None))
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::super::chunk::{Content, Streamed};
    use super::super::destination::PassState;
    use super::super::jobs::WriterEvent;
    use super::*;
    use longhaul_files::manifest::FileTime;
    use longhaul_files::{Listed, Shape};

    const SIZE: usize = 2 * CHUNK as usize + 5;

    fn manifest(shape: Shape, kind: Kind, seconds: i64) -> Arc<Manifest> {
        let modified = FileTime { seconds, ..FileTime::default() };
        let path = b"file".to_vec().into();
        Arc::new(Manifest::new(shape, vec![Listed { path, kind, mode: 0o644, modified }]).unwrap())
    }

    fn file(seconds: i64) -> Arc<Manifest> {
        let kind = Kind::File { size: SIZE as u64, sparse: false, holes: Box::default() };
        manifest(Shape::File, kind, seconds)
    }

    fn content() -> Vec<u8> {
        (0..SIZE).map(|at| (at / 7) as u8).collect()
    }

    struct Copying {
        opened: Box<dyn Opened>,
        events: UnboundedReceiver<WriterEvent>,
    }

    fn open(memory: &MemoryFile, manifest: &Arc<Manifest>) -> Result<Copying, Error> {
        let (end, events) = unbounded_channel();
        let reporter = Reporter { board: Arc::default(), events: end };
        let memory = Memory { file: memory.clone(), asked: Arc::new(Asked::push(true)) };
        let opened = Box::new(memory).open(VirtualObject::new(manifest, 0), 0, reporter)?;
        Ok(Copying { opened, events })
    }

    impl Copying {
        /// Brings a chunk that is `wrong` by so much in its first byte.
        fn bring(&mut self, chunk: usize, wrong: u8) {
            let mut bytes = content();
            let len = bytes.len();
            let range = chunk * CHUNK as usize..len.min((chunk + 1) * CHUNK as usize);
            let digest = digest::file_value(len as u64, chunk as u64, &bytes[range.clone()]);
            bytes[range.start] ^= wrong;
            let room = Arc::new(tokio::sync::Semaphore::new(1)).try_acquire_owned().unwrap();
            let chunk = chunk as u64;
            let streamed = Streamed { chunk, content: bytes[range].to_vec(), room };
            self.opened.take_chunk(chunk, Content::Stream(streamed), &digest).unwrap();
        }

        fn settle(&mut self) -> bool {
            self.opened.settle(PassState::default()).unwrap()
        }

        /// The chunks that the plan says are there.
        fn have(&mut self) -> Vec<std::ops::Range<u64>> {
            match self.events.try_recv() {
                Ok(WriterEvent::Planned { have, .. }) => have,
                _ => panic!("a plan comes first"),
            }
        }
    }

    #[test]
    fn a_file_is_whole_when_each_chunk_has_its_digest_and_not_before() {
        let memory = MemoryFile::new(Bytes::new(SIZE as u64));
        let mut copying = open(&memory, &file(1)).unwrap();
        assert!(copying.have().is_empty());
        copying.bring(2, 0);
        copying.bring(0, 1);
        copying.bring(1, 0);
        assert!(!copying.settle() && memory.take().is_none());
        let Ok(WriterEvent::PassEnd(end)) = copying.events.try_recv() else {
            panic!("one is wrong")
        };
        let failed = end.failed.expect("the wrong chunk is asked for again");
        assert!(failed.decode(3).unwrap().into_iter().eq(std::iter::once(0..1)));
        copying.opened.begin_pass();
        copying.bring(0, 0);
        assert!(copying.settle());
        let Ok(WriterEvent::Outcome(outcome, None)) = copying.events.try_recv() else { panic!() };
        assert_eq!(outcome.digest, blake3::hash(&content()).as_bytes());
        assert_eq!(memory.take(), Some(content()));
        assert_eq!(memory.take(), None);
    }

    #[test]
    fn more_than_is_allowed_and_what_is_no_single_file_are_refused_at_once() {
        fn refused(memory: &MemoryFile, manifest: &Arc<Manifest>) -> Error {
            match open(memory, manifest) {
                Ok(_) => panic!("it is opened"),
                Err(error) => error,
            }
        }
        let error = refused(&MemoryFile::new(Bytes::new(SIZE as u64 - 1)), &file(1));
        assert!(error.what.contains("file has") && error.class == Class::Usage, "{error}");
        let tree = manifest(Shape::Named, Kind::Folder, 1);
        let error = refused(&MemoryFile::new(Bytes::mebi(1)), &tree);
        assert!(error.what.contains("single file"), "{error}");
    }

    #[test]
    fn a_later_attempt_goes_on_with_the_same_version_and_with_no_other() {
        let memory = MemoryFile::new(Bytes::mebi(3));
        let mut first = open(&memory, &file(1)).unwrap();
        first.bring(1, 0);
        drop(first);
        let mut second = open(&memory, &file(1)).unwrap();
        assert!(second.have().into_iter().eq(std::iter::once(1..2)));
        second.bring(0, 0);
        let mut other = open(&memory, &file(2)).unwrap();
        assert!(other.have().is_empty());
        (0..3).for_each(|chunk| other.bring(chunk, 0));
        assert!(other.settle());
        assert_eq!(memory.take(), Some(content()));
    }
}
