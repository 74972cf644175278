//! Reads the bytes of a block by its number, and computes a digest for every chunk that is sent.
//!
//! The object of a copy is the content of all files, as one sequence of bytes. A long manifest (the
//! list of files) is the start of this sequence. A chunk is 1 MiB of the object. A block is the
//! payload of one datagram. A coded symbol (of an erasure code) replaces any one missing block of
//! its chunk.
//!
//! A pass is one run over the missing chunks. A pass reads and hashes a chunk in parts of [`PART`]
//! bytes, as the blocks of the chunk are needed. To read and hash a whole chunk at once would take
//! a millisecond or more; in this time a short queue on the path may run empty. The chunk stays in
//! a buffer until another chunk is begun. If a block of the earlier chunk is needed after that,
//! only this block is read.

use std::ops::Range;
use std::sync::Once;
use std::time::{Duration, Instant};

use longhaul_proto::coded::{Symbol, shape};
use longhaul_proto::fec::{self, Encoder};
use longhaul_proto::layout::{Block, Layout};
use longhaul_proto::tally::Tally;

use crate::control::{Compare, Compared};
use crate::counters::thread_time;
use crate::error::{Error, ErrorKind};
use longhaul_files::digest::Digest;
use longhaul_files::{CHUNK, Failure, PartialChunk, Source};

/// Bytes that are read and hashed at once. This takes a fraction of a millisecond, and the bytes
/// fit into the processor's cache.
const PART: usize = 64 << 10;

/// Computes the tables of the erasure code in another thread, once per process. Otherwise the first
/// symbol would stop its sending thread for 10 to 20 ms.
pub(crate) fn prepare_code() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Without the thread, the first symbol computes the tables.
        let _ = std::thread::Builder::new().name("code tables".to_owned()).spawn(fec::prepare);
    });
}

pub(crate) struct Payloads {
    source: Source,
    /// The chunk in `buffer`. The bytes of `buffer` after the chunk's content are zero.
    chunk: Option<PartialChunk>,
    buffer: Box<[u8]>,
    block: Vec<u8>,
    /// The chunk that the erasure code encoded last, and all of its symbols.
    coded: (Option<u64>, Vec<u8>),
    /// The content of that chunk.
    originals: Vec<u8>,
    encoder: Encoder,
    /// Chunks that were begun in this pass; the digest of each is computed.
    announced: Tally,
    digests: Vec<(u64, Digest)>,
    /// Number of failures of the walk over the files; they come first.
    walked: usize,
    failures_reported: usize,
    reading: Duration,
    /// The part of `reading` that was CPU time. It is measured only while chunks are read and
    /// hashed. Other reads, for repairs, are few; all of their time counts as waiting for the disk.
    reading_cpu: Duration,
}

impl Payloads {
    /// Failures that `source` has already, from the walk over the files, count as reported.
    pub(crate) fn new(source: Source) -> Result<Payloads, Error> {
        let too_large = |_| Error::new(ErrorKind::Usage, "the object has 2³² or more chunks");
        let chunks = u32::try_from(source.object().chunks()).map_err(too_large)?;
        Ok(Payloads {
            walked: source.failures().len(),
            failures_reported: source.failures().len(),
            source,
            chunk: None,
            buffer: vec![0; CHUNK as usize].into_boxed_slice(),
            block: Vec::new(),
            coded: (None, Vec::new()),
            originals: Vec::new(),
            encoder: Encoder::new(),
            announced: Tally::new(chunks),
            digests: Vec::new(),
            reading: Duration::ZERO,
            reading_cpu: Duration::ZERO,
        })
    }

    pub(crate) fn manifest_chunks(&self) -> u64 {
        self.source.object().manifest_chunks()
    }

    /// Starts a new pass, which sends the digests of its chunks again.
    pub(crate) fn rewind(&mut self) {
        (self.chunk, self.coded.0) = (None, None);
        self.digests.clear();
        self.announced = Tally::new(self.announced.blocks());
    }

    /// Returns the payload of `block`. After all of a chunk was read, [`Payloads::take_digests`]
    /// returns the chunk's digest. A file that cannot be read is not an error here; see
    /// [`Payloads::new_failures`].
    pub(crate) fn payload(&mut self, layout: &Layout, block: Block) -> Result<&[u8], Error> {
        let chunk = layout.chunk_of(block);
        let extent = layout.extent(block);
        let start = (extent.offset - chunk * CHUNK) as usize;
        let within = start..start + extent.len as usize;
        if self.announced.mark(chunk as u32) {
            self.begin(chunk)?;
        }
        if self.chunk.as_ref().is_some_and(|read| read.number() == chunk) {
            self.read_to(within.end)?;
            return Ok(&self.buffer[within]);
        }
        self.block.clear();
        self.block.resize(within.len(), 0);
        let started = Instant::now();
        self.source.read_within(chunk, start, &mut self.block)?;
        self.reading += started.elapsed();
        Ok(&self.block)
    }

    /// Returns the payload of a coded symbol. Reads and codes the symbol's chunk, unless the last
    /// symbol was of the same chunk.
    pub(crate) fn symbol(&mut self, layout: &Layout, symbol: Symbol) -> Result<&[u8], Error> {
        let size = layout.block_size() as usize;
        if self.coded.0 != Some(symbol.chunk) {
            let (first, blocks) = layout.blocks_of_chunk(symbol.chunk);
            let last = Block { index: first.index + blocks.saturating_sub(1), ..first };
            let end = layout.extent(last);
            let len = (end.offset + u64::from(end.len)).saturating_sub(symbol.chunk * CHUNK);
            self.coded.0 = None;
            self.originals.resize(len as usize, 0);
            let started = Instant::now();
            self.source.read_within(symbol.chunk, 0, &mut self.originals)?;
            self.reading += started.elapsed();
            let code = |_| Error::new(ErrorKind::Unfinished, "a chunk cannot be coded");
            let shape = shape(layout, symbol.chunk).ok_or(()).map_err(code)?;
            let originals = self.originals.chunks(size);
            self.encoder.encode(shape, originals, &mut self.coded.1).map_err(|_| code(()))?;
            self.coded.0 = Some(symbol.chunk);
        }
        let start = usize::from(symbol.number) * size;
        Ok(&self.coded.1[start..start + size])
    }

    /// Reads all of `chunk` and returns its digest; [`Payloads::content`] then returns its content.
    pub(crate) fn read_whole(&mut self, chunk: u64) -> Result<Digest, Error> {
        self.begin(chunk)?;
        self.finish()?;
        let last = self.digests.pop();
        self.digests.clear();
        let lost = || Error::new(ErrorKind::Unfinished, format!("chunk {chunk} was not read"));
        last.map(|(_, value)| value).ok_or_else(lost)
    }

    pub(crate) fn content(&self) -> &[u8] {
        &self.buffer[..self.chunk.as_ref().map_or(0, PartialChunk::content_len)]
    }

    fn begin(&mut self, chunk: u64) -> Result<(), Error> {
        self.finish()?;
        self.chunk = None;
        let chunk = self.source.begin_chunk(chunk)?;
        self.buffer[chunk.content_len()..].fill(0);
        self.chunk = Some(chunk);
        Ok(())
    }

    /// Reads the rest of the chunk in the buffer.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.read_to(self.buffer.len())
    }

    /// Reads the chunk in the buffer at least up to byte `end`, unless that was done before.
    fn read_to(&mut self, end: usize) -> Result<(), Error> {
        let Some(chunk) = &mut self.chunk else { return Ok(()) };
        while chunk.bytes_read() < end.min(chunk.content_len()) {
            let next = chunk.bytes_read() + PART;
            let (started, cpu) = (Instant::now(), thread_time());
            let value = self.source.read_on(chunk, &mut self.buffer, next)?;
            self.reading += started.elapsed();
            self.reading_cpu += thread_time().saturating_sub(cpu);
            self.digests.extend(value.map(|value| (chunk.number(), value)));
        }
        Ok(())
    }

    pub(crate) fn take_digests(&mut self) -> Vec<(u64, Digest)> {
        std::mem::take(&mut self.digests)
    }

    /// Compares the chunks of the one file that `ask` names. Returns the answer, and those chunks
    /// of the object that need not be sent because they are equal. For a small file the second list
    /// is empty: several small files share a chunk of the object, and the chunk is needless only if
    /// all of them are equal. The receiving end decides that.
    pub(crate) fn compare(&mut self, ask: &Compare) -> Result<(Compared, Vec<Range<u64>>), Error> {
        let (entry, asked) = ask.question()?;
        let same = self.source.compare(entry, &asked);
        if !self.source.object().is_large(entry) {
            return Ok((Compared { entry: ask.entry, same }, Vec::new()));
        }
        let first = self.source.object().chunks_of(entry).start;
        let right = asked.iter().zip(&same).filter(|(_, same)| **same);
        let chunks = right.map(|((chunk, _), _)| first + chunk..first + chunk + 1).collect();
        Ok((Compared { entry: ask.entry, same }, chunks))
    }

    /// Returns the failures since the last call: files that changed or cannot be read.
    pub(crate) fn new_failures(&mut self) -> &[Failure] {
        let failures = self.source.failures();
        let reported = std::mem::replace(&mut self.failures_reported, failures.len());
        &failures[reported..]
    }

    /// Makes [`Payloads::new_failures`] return all failures once more, except those of the walk
    /// over the files: the earlier reports did not reach the receiver.
    pub(crate) fn report_again(&mut self) {
        self.failures_reported = self.walked;
    }

    /// Returns the time spent reading and hashing, and the part of that time that was CPU time.
    pub(crate) fn reading(&self) -> (Duration, Duration) {
        (self.reading, self.reading_cpu)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_files::digest::file_value;
    use longhaul_files::{Place, SourceOptions};
    use longhaul_proto::units::Bytes;
    use tempfile::TempDir;

    use super::*;

    const SIZE: u64 = 2 * CHUNK + 77;
    /// A divisor of [`PART`], so that each part of a chunk ends at the end of a block.
    const BLOCK: u32 = 1024;

    fn content() -> Vec<u8> {
        (0..SIZE).map(|n| (n * 31 % 251) as u8).collect()
    }

    fn payloads(folder: &TempDir) -> (Payloads, Layout) {
        let file = folder.path().join("source");
        std::fs::write(&file, content()).unwrap();
        let source = Source::open(&[Place::Ambient(file)], &SourceOptions::default()).unwrap();
        let layout = Layout::new(Bytes::new(SIZE), Bytes::ZERO, Bytes::new(CHUNK), BLOCK).unwrap();
        (Payloads::new(source).unwrap(), layout)
    }

    /// Returns the payloads of the blocks `blocks`.
    fn take(payloads: &mut Payloads, layout: &Layout, blocks: Range<u32>) -> Vec<u8> {
        let payload =
            |index| payloads.payload(layout, Block { segment: 0, index }).unwrap().to_vec();
        blocks.flat_map(payload).collect()
    }

    #[test]
    fn a_chunk_is_read_in_parts_and_its_digest_is_known_after_the_last_part() {
        let folder = tempfile::tempdir().unwrap();
        let (mut payloads, layout) = payloads(&folder);
        let read = |payloads: &Payloads| payloads.chunk.as_ref().map(PartialChunk::bytes_read);
        let (per_part, per_chunk) = (PART as u32 / BLOCK, CHUNK as u32 / BLOCK);
        let mut sent = take(&mut payloads, &layout, 0..per_part);
        assert_eq!(read(&payloads), Some(PART));
        sent.extend(take(&mut payloads, &layout, per_part..per_chunk - per_part));
        assert_eq!((read(&payloads), payloads.take_digests()), (Some(15 * PART), vec![]));
        sent.extend(take(&mut payloads, &layout, per_chunk - per_part..per_chunk));
        assert!(sent == content()[..CHUNK as usize]);
        assert_eq!(payloads.take_digests(), [(0, file_value(SIZE, 0, &sent))]);
    }

    #[test]
    fn the_next_chunk_or_finish_reads_and_hashes_the_rest_of_a_begun_chunk() {
        let folder = tempfile::tempdir().unwrap();
        let (mut payloads, layout) = payloads(&folder);
        let value = |chunk| {
            let start = (chunk * CHUNK) as usize;
            let end = (start + CHUNK as usize).min(SIZE as usize);
            (chunk, file_value(SIZE, chunk, &content()[start..end]))
        };
        let first = |chunk: u64| (chunk * CHUNK) as u32 / BLOCK;
        take(&mut payloads, &layout, first(1)..first(1) + 1);
        take(&mut payloads, &layout, first(0)..first(0) + 1);
        assert_eq!(payloads.take_digests(), [value(1)]);
        payloads.finish().unwrap();
        assert_eq!(payloads.take_digests(), [value(0)]);
        payloads.finish().unwrap();
        assert_eq!(payloads.take_digests(), []);
        assert_eq!(payloads.read_whole(2).unwrap(), value(2).1);
        assert_eq!(payloads.content(), &content()[2 * CHUNK as usize..]);
    }

    #[test]
    fn a_file_that_changes_between_two_parts_of_a_chunk_is_a_failure_and_the_rest_is_zeros() {
        let folder = tempfile::tempdir().unwrap();
        let (mut payloads, layout) = payloads(&folder);
        let per_chunk = CHUNK as u32 / BLOCK;
        let mut sent = take(&mut payloads, &layout, 0..1);
        std::fs::write(folder.path().join("source"), vec![9; SIZE as usize + 1]).unwrap();
        assert_eq!(payloads.new_failures().len(), 0);
        sent.extend(take(&mut payloads, &layout, 1..per_chunk));
        assert_eq!(payloads.new_failures().len(), 1);
        let old = content();
        assert!(sent[..PART] == old[..PART] && sent[PART..].iter().all(|byte| *byte == 0));
        assert_eq!(payloads.take_digests(), [(0, file_value(SIZE, 0, &sent))]);
    }
}
