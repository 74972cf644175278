//! A file written in order, to a writer that cannot seek, such as standard output.
//!
//! Each chunk is verified before any of it is written. A chunk that arrives while an earlier chunk
//! is missing (an *early* chunk) waits in separate memory, up to a limit. Further early chunks stay
//! in the memory that the sender was granted. When they fill this memory, the sender pauses. The
//! next attempt treats the written chunks as existing, and starts after them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::chunk::Content;
use super::destination::{AtSource, Open, Opened, PassState, Reporter};
use super::jobs::WriterEvent;
use super::planned;
use crate::counters::spent::Spent;
use crate::error::{Error, ErrorKind};
use crate::options::Output;
use longhaul_files::digest::{Digest, file_value};
use longhaul_files::{Asked, CHUNK, ChunkKind, Plan, SinkOutcome, VirtualObject};

/// Maximum time without a new chunk while the separate memory is full. With several streams, the
/// next chunk to write may itself wait for memory. A new attempt requests that chunk first.
const STUCK: Duration = Duration::from_secs(5);

pub(crate) struct Ordered {
    pub(crate) output: Output,
    /// The entries (files, folders, links) that the list of files may have.
    pub(crate) asked: Arc<Asked>,
    /// Maximum total size of the copies of early chunks. Copies use no granted memory.
    pub(crate) room: u64,
}

/// A chunk that arrived while an earlier chunk is missing.
enum Early {
    /// A copy, whose granted memory was returned.
    Copied(Vec<u8>),
    /// The chunk in its granted memory.
    Kept(Content),
}

struct Writing {
    to: Ordered,
    /// The number of this attempt. The output refuses writes of an earlier attempt.
    attempt: u64,
    object: VirtualObject,
    size: u64,
    /// Number of the next chunk to write, within the file.
    next: u64,
    early: BTreeMap<u64, (Early, Digest)>,
    copied: u64,
    /// When a chunk last arrived or was written.
    came: Instant,
    failed: Option<String>,
    is_over: bool,
    reporter: Reporter,
    spent: Spent,
}

impl Open for Ordered {
    fn open(
        self: Box<Self>,
        object: VirtualObject,
        _prefix: u64,
        reporter: Reporter,
    ) -> Result<Box<dyn Opened>, Error> {
        let manifest = object.manifest();
        self.asked.admits(manifest)?;
        let Some((size, file)) = manifest.entries().first().and_then(|it| Some((it.size()?, it)))
        else {
            return Err(Error::new(ErrorKind::Usage, "an output takes one file, and no folder"));
        };
        let (attempt, next) = self.output.begin(size, (file.modified, file.version))?;
        let bytes = (next * CHUNK).min(size);
        let first = object.manifest_chunks();
        let have = std::iter::once(first..first + next).filter(|have| !have.is_empty()).collect();
        reporter.board.update(|counters| counters.written.bytes = bytes);
        let plan = Plan { have, resumed_bytes: bytes, ..Plan::default() };
        reporter.report(planned::event(manifest, plan, object.implied()));
        Ok(Box::new(Writing {
            to: *self,
            attempt,
            object,
            size,
            next,
            early: BTreeMap::new(),
            copied: 0,
            came: Instant::now(),
            failed: None,
            is_over: false,
            reporter,
            spent: Spent::default(),
        }))
    }
}

impl Writing {
    fn chunks(&self) -> u64 {
        self.size.div_ceil(CHUNK)
    }

    fn advance(
        &mut self,
        write: impl FnOnce(&Output, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.spent.on(|| write(&self.to.output, self.attempt))?;
        // The time that a slow writer takes is not a wait for the next chunk.
        self.came = Instant::now();
        self.next += 1;
        self.reporter.wrote((self.next * CHUNK).min(self.size), 0);
        self.spent.publish(&self.reporter.board);
        Ok(())
    }

    /// Writes the holes and early chunks that follow without a gap.
    fn go_on(&mut self) -> Result<(), Error> {
        loop {
            let chunk = self.next;
            if let Some((early, value)) = self.early.remove(&chunk) {
                match early {
                    Early::Copied(content) => {
                        self.copied -= content.len() as u64;
                        self.advance(|to, attempt| to.write(attempt, &content, value))?;
                    }
                    Early::Kept(content) => self.write_content(content, value)?,
                }
            } else if self.is_hole(chunk) {
                let len = (self.size - chunk * CHUNK).min(CHUNK) as usize;
                self.advance(|to, attempt| to.write_hole(attempt, len))?;
            } else {
                return Ok(());
            }
        }
    }

    fn write_content(&mut self, content: Content, value: Digest) -> Result<(), Error> {
        let len = self.object.chunk_content(self.object.manifest_chunks() + self.next);
        let bytes = content.bytes().get(..len).unwrap_or_default();
        self.advance(|to, attempt| to.write(attempt, bytes, value))?;
        if content.release(len) {
            self.reporter.report(WriterEvent::Drained);
        }
        Ok(())
    }

    fn is_hole(&self, chunk: u64) -> bool {
        let holes = self.object.manifest().entries()[0].holes();
        let after = holes.partition_point(|hole| hole.end <= chunk);
        holes.get(after).is_some_and(|hole| hole.contains(&chunk))
    }

    /// Ends the attempt; the next one continues after the written chunks.
    fn begin_again(&mut self, why: String) {
        self.is_over = true;
        self.early.clear();
        self.reporter.report(WriterEvent::Again(why));
    }
}

impl Opened for Writing {
    fn needs(&self, chunk: u64) -> bool {
        chunk
            .checked_sub(self.object.manifest_chunks())
            .is_some_and(|own| own >= self.next && !self.early.contains_key(&own))
    }

    fn take_chunk(&mut self, chunk: u64, content: Content, digest: &Digest) -> Result<(), Error> {
        if self.is_over || !self.needs(chunk) {
            return Ok(());
        }
        self.came = Instant::now();
        let len = self.object.chunk_content(chunk);
        let Some(ChunkKind::Large { chunk: own, .. }) = self.object.chunk_kind(chunk) else {
            return Ok(());
        };
        let value = content.bytes().get(..len).map(|bytes| file_value(self.size, own, bytes));
        if value != Some(*digest) {
            self.to.output.note_wrong(own)?;
            self.begin_again(format!("chunk {own} failed verification"));
            return Ok(());
        }
        if own == self.next {
            self.write_content(content, *digest)?;
            return self.go_on();
        }
        let early = match self.copied + len as u64 <= self.to.room {
            true => {
                self.copied += len as u64;
                let copied = content.bytes()[..len].to_vec();
                if content.release(len) {
                    self.reporter.report(WriterEvent::Drained);
                }
                Early::Copied(copied)
            }
            false => Early::Kept(content),
        };
        self.early.insert(own, (early, *digest));
        Ok(())
    }

    fn fail_at_source(&mut self, failed: AtSource) {
        self.failed.get_or_insert(failed.reason);
    }

    fn settle(&mut self, _pass: PassState) -> Result<bool, Error> {
        if self.is_over {
            return Ok(true);
        }
        if let Some(reason) = &self.failed {
            let what = format!("the file cannot be read to its end on the other side: {reason}");
            return Err(Error::new(ErrorKind::RemoteFile, what));
        }
        self.go_on()?;
        if self.next < self.chunks() {
            let is_full = self.early.values().any(|(early, _)| matches!(early, Early::Kept(_)));
            if is_full && self.came.elapsed() >= STUCK {
                self.begin_again("the next chunk does not arrive".into());
            }
            return Ok(self.is_over);
        }
        let digest = self.to.output.finish(self.attempt, self.size)?;
        let outcome = SinkOutcome { files: 1, bytes: self.size, digest, ..SinkOutcome::default() };
        let outcome = planned::outcome(outcome, &BTreeMap::new(), 0);
        self.reporter.report(WriterEvent::Outcome(Box::new(outcome), None));
        self.is_over = true;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use super::super::chunk::Streamed;
    use super::*;
    use longhaul_files::manifest::FileTime;
    use longhaul_files::{Kind, Listed, Manifest, Shape};
    use tokio::sync::{Semaphore, mpsc};

    const SIZE: usize = (5 << 20) + 7;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(buf);
            Ok(buf.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    type Events = mpsc::UnboundedReceiver<WriterEvent>;

    fn open(output: &Output, room: u64, modified: i64) -> Result<(Box<dyn Opened>, Events), Error> {
        let kind = Kind::file(SIZE as u64);
        let modified = FileTime { seconds: modified, nanos: 0 };
        let listed = Listed { path: b"x"[..].into(), kind, mode: 0o644, modified };
        let manifest = Arc::new(Manifest::new(Shape::File, vec![listed]).unwrap());
        let (events, told) = mpsc::unbounded_channel();
        let reporter = Reporter { board: Arc::default(), events };
        let asked = Arc::new(Asked::push(false));
        let ordered = Box::new(Ordered { output: output.clone(), asked, room });
        Ok((ordered.open(VirtualObject::new(&manifest, 0), 0, reporter)?, told))
    }

    fn content() -> Vec<u8> {
        (0..SIZE).map(|at| (at / 7) as u8).collect()
    }

    fn give(opened: &mut dyn Opened, number: u64, is_right: bool) -> Result<(), Error> {
        let chunk = content().chunks(CHUNK as usize).nth(number as usize).unwrap().to_vec();
        let digest = file_value(SIZE as u64, number, &chunk);
        let content = if is_right { chunk } else { vec![1; chunk.len()] };
        let room = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let content = Content::Stream(Streamed { chunk: number, content, room });
        opened.take_chunk(number, content, &digest)
    }

    fn have(events: &mut Events) -> Vec<std::ops::Range<u64>> {
        let WriterEvent::Planned { have, .. } = events.try_recv().unwrap() else { panic!() };
        have
    }

    #[test]
    fn chunks_that_arrive_in_any_order_are_written_in_order_and_a_new_attempt_continues() {
        let written = Written::default();
        let output = Output::new(written.clone());
        // Room for one early chunk; another early chunk keeps its granted memory.
        let (mut opened, mut events) = open(&output, CHUNK, 1).unwrap();
        assert_eq!(have(&mut events), []);
        for number in [2, 3, 0] {
            give(&mut *opened, number, true).unwrap();
        }
        assert_eq!(written.0.lock().unwrap().len(), 1 << 20);
        assert!(!opened.needs(0) && !opened.needs(3) && opened.needs(1));
        give(&mut *opened, 1, false).unwrap();
        assert!(opened.settle(PassState::default()).unwrap(), "the attempt is over");
        assert!(matches!(events.try_recv(), Ok(WriterEvent::Again(_))));
        let error = open(&output, CHUNK, 2).err().expect("another version");
        assert_eq!(error.kind, ErrorKind::RemoteFile);
        let (mut opened, mut events) = open(&output, CHUNK, 1).unwrap();
        assert_eq!(have(&mut events), std::iter::once(0..1).collect::<Vec<_>>());
        for number in [5, 4, 3, 2, 1] {
            assert!(!opened.settle(PassState::default()).unwrap());
            give(&mut *opened, number, true).unwrap();
        }
        assert!(opened.settle(PassState::default()).unwrap());
        assert!(*written.0.lock().unwrap() == content());
        let Ok(WriterEvent::Outcome(outcome, None)) = events.try_recv() else { panic!("no end") };
        assert_eq!(outcome.digest, blake3::hash(&content()).as_bytes());
    }

    #[test]
    fn an_earlier_attempt_writes_nothing_after_the_next_attempt_has_begun() {
        let written = Written::default();
        let output = Output::new(written.clone());
        let (mut old, _events) = open(&output, 9 * CHUNK, 1).unwrap();
        [0, 2, 3].into_iter().for_each(|number| give(&mut *old, number, true).unwrap());
        let (mut new, mut events) = open(&output, CHUNK, 1).unwrap();
        assert_eq!(have(&mut events), std::iter::once(0..1).collect::<Vec<_>>());
        let error = give(&mut *old, 1, true).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unfinished);
        [1, 2, 3, 4, 5].into_iter().for_each(|number| give(&mut *new, number, true).unwrap());
        assert!(new.settle(PassState::default()).unwrap());
        assert!(*written.0.lock().unwrap() == content());
    }

    #[test]
    fn five_wrong_chunks_end_the_copy() {
        let output = Output::new(io::sink());
        let wrong = || {
            let (mut opened, _events) = open(&output, 0, 1).unwrap();
            give(&mut *opened, 0, false)
        };
        assert!((0..4).all(|_| wrong().is_ok()));
        assert_eq!(wrong().unwrap_err().kind, ErrorKind::Verification);
    }
}
