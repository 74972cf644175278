//! Reads the bytes of a block by its number, and computes a digest for every chunk that is sent.
//!
//! The object of a copy is the content of all files, as one sequence of bytes. A long manifest (the
//! list of files) is the start of this sequence. A chunk is 1 MiB of the object. A block is the
//! payload of one datagram. A coded symbol (of an erasure code) replaces any one missing block of
//! its chunk.
//!
//! A pass is one run over the missing chunks. The first block of a chunk in a pass causes a read of
//! the whole chunk, which is hashed. The chunk stays in a buffer until another whole chunk is read.
//! A block that is needed after that is read alone.

use std::ops::Range;
use std::time::{Duration, Instant};

use longhaul_proto::coded::{Symbol, shape};
use longhaul_proto::fec::Encoder;
use longhaul_proto::layout::{Block, Layout};
use longhaul_proto::tally::Tally;

use crate::control::{Compare, Compared};
use crate::counters::thread_time;
use crate::error::{Error, ErrorKind};
use longhaul_files::digest::Digest;
use longhaul_files::{CHUNK, Failure, Source};

pub(crate) struct Payloads {
    source: Source,
    /// The chunk in `buffer`. The bytes of `buffer` after the chunk's content are zero.
    chunk: Option<u64>,
    len: usize,
    buffer: Box<[u8]>,
    block: Vec<u8>,
    /// The chunk that the erasure code encoded last, and all of its symbols.
    coded: (Option<u64>, Vec<u8>),
    encoder: Encoder,
    /// Chunks whose digests were computed in this pass.
    announced: Tally,
    digests: Vec<(u64, Digest)>,
    failures_reported: usize,
    reading: Duration,
    /// The part of `reading` that was CPU time. It is measured only while whole chunks are read and
    /// hashed. Other reads, for repairs, are few; all of their time counts as waiting for the disk.
    reading_cpu: Duration,
}

impl Payloads {
    /// Failures that `source` has already, from the walk over the files, count as reported.
    pub(crate) fn new(source: Source) -> Result<Payloads, Error> {
        let too_large = |_| Error::new(ErrorKind::Usage, "the object has 2³² or more chunks");
        let chunks = u32::try_from(source.object().chunks()).map_err(too_large)?;
        Ok(Payloads {
            failures_reported: source.failures().len(),
            source,
            chunk: None,
            len: 0,
            buffer: vec![0; CHUNK as usize].into_boxed_slice(),
            block: Vec::new(),
            coded: (None, Vec::new()),
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

    /// Returns the payload of `block`. The first block of a chunk in a pass adds the chunk's digest
    /// to [`Payloads::take_digests`]. A file that cannot be read is not an error here; see
    /// [`Payloads::new_failures`].
    pub(crate) fn payload(&mut self, layout: &Layout, block: Block) -> Result<&[u8], Error> {
        let chunk = layout.chunk_of(block);
        let extent = layout.extent(block);
        let start = (extent.offset - chunk * CHUNK) as usize;
        let within = start..start + extent.len as usize;
        if self.announced.mark(chunk as u32) {
            self.read(chunk)?;
        }
        if self.chunk == Some(chunk) {
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
            let mut content = vec![0; len as usize];
            let started = Instant::now();
            self.source.read_within(symbol.chunk, 0, &mut content)?;
            self.reading += started.elapsed();
            let code = |_| Error::new(ErrorKind::Unfinished, "a chunk cannot be coded");
            let shape = shape(layout, symbol.chunk).ok_or(()).map_err(code)?;
            let originals = content.chunks(size);
            self.encoder.encode(shape, originals, &mut self.coded.1).map_err(|_| code(()))?;
            self.coded.0 = Some(symbol.chunk);
        }
        let start = usize::from(symbol.number) * size;
        Ok(&self.coded.1[start..start + size])
    }

    /// Reads all of `chunk` and returns its digest; [`Payloads::content`] then returns its content.
    pub(crate) fn read_whole(&mut self, chunk: u64) -> Result<Digest, Error> {
        let value = self.read(chunk)?;
        self.digests.clear();
        Ok(value)
    }

    pub(crate) fn content(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    fn read(&mut self, chunk: u64) -> Result<Digest, Error> {
        self.chunk = None;
        let (started, cpu) = (Instant::now(), thread_time());
        let read = self.source.read_chunk(chunk, &mut self.buffer)?;
        self.reading += started.elapsed();
        self.reading_cpu += thread_time().saturating_sub(cpu);
        self.buffer[read.len..].fill(0);
        self.chunk = Some(chunk);
        self.len = read.len;
        self.digests.push((chunk, read.value));
        Ok(read.value)
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

    /// Returns the time spent reading and hashing, and the part of that time that was CPU time.
    pub(crate) fn reading(&self) -> (Duration, Duration) {
        (self.reading, self.reading_cpu)
    }
}
