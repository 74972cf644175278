//! Sends chunks over streams, if datagrams do not pass or the user chose TCP. Source, digests,
//! verification and resume are as in a copy by datagrams; only the transport differs. A long
//! manifest (the list of files) is the start of the object. From the manifest, the receiver makes
//! its plan: the list of chunks that need not be sent.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use longhaul_net::clock;
use longhaul_proto::pace::Pacer;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};
use tokio::sync::{mpsc, oneshot};

use super::outbox::Outbox;
use super::payloads::Payloads;
use super::send::SenderEvent;
use super::trial::Trial;
use crate::control::{ChunkPiece, Compare, Digests, Frame, Message};
use crate::counters::board::Board;
use crate::counters::{Counters, span};
use crate::error::{Error, ErrorKind};
use crate::session::{SegmentWatch, Session};
use crate::summary::Segments;
use crate::write::skip::{tidy, without};
use longhaul_files::CHUNK;

/// Bytes of one piece: small, so that the other end can report arrivals soon.
const PIECE: usize = 64 << 10;
/// With a rate limit, a piece has the bytes that the rate sends in this time, but at least
/// [`SMALLEST_PIECE`] and at most [`PIECE`].
const PIECE_TIME: Span = Span::from_millis(20);
/// Minimum bytes of a piece under a rate limit.
const SMALLEST_PIECE: usize = 1 << 10;
/// Pieces that may wait for a stream: the pieces of one chunk.
const WAITING: usize = CHUNK as usize / PIECE;
/// How often arrivals and lost streams are checked during a wait for streams.
const CHECK_EVERY: Duration = Duration::from_millis(50);
/// Once the streams have taken all chunks, the pass fails if a stream has been closed for longer
/// than this.
const FOLLOWS: Duration = Duration::from_secs(2);

enum StreamCommand {
    Skip(Vec<Range<u64>>),
    Compare(Compare),
    Planned,
    Stop,
}

pub(crate) struct Outgoing {
    commands: Sender<StreamCommand>,
    done: oneshot::Receiver<Result<Payloads, Error>>,
}

impl Outgoing {
    pub(crate) fn skip(&self, chunks: Vec<Range<u64>>) {
        let _ = self.commands.send(StreamCommand::Skip(chunks));
    }

    pub(crate) fn compare(&self, ask: Compare) {
        let _ = self.commands.send(StreamCommand::Compare(ask));
    }

    pub(crate) fn planned(&self) {
        let _ = self.commands.send(StreamCommand::Planned);
    }

    /// Completes when the thread ends before it is stopped.
    pub(crate) async fn ended(
        &mut self,
    ) -> Result<Result<Payloads, Error>, oneshot::error::RecvError> {
        (&mut self.done).await
    }

    /// Stops the thread and returns the payloads; `None` if [`Outgoing::ended`] has completed, or
    /// the thread ends with an error.
    pub(crate) async fn stop(self) -> Option<Payloads> {
        if self.done.is_terminated() {
            return None;
        }
        let _ = self.commands.send(StreamCommand::Stop);
        self.done.await.ok()?.ok()
    }
}

pub(crate) struct Outgo {
    pub(crate) payloads: Payloads,
    /// The chunks to send, before the plan removes some.
    pub(crate) wanted: Vec<Range<u64>>,
    pub(crate) planned: bool,
    pub(crate) sessions: Vec<Session>,
    /// The control stream, which carries chunks if there are no sessions.
    pub(crate) bulk: mpsc::Sender<ChunkPiece>,
    pub(crate) outbox: Outbox,
    pub(crate) board: Arc<Board>,
    pub(crate) events: mpsc::UnboundedSender<SenderEvent>,
    /// The path's round-trip time, to find the best number of sessions by trying; `None` without a
    /// search.
    pub(crate) trial: Option<Span>,
    /// The limit for all streams together.
    pub(crate) cap: Option<Rate>,
}

pub(crate) fn send(outgo: Outgo) -> Result<Outgoing, Error> {
    let (free, freed) = std::sync::mpsc::channel();
    let counted = outgo.sessions.iter().filter_map(Session::segments);
    let counted = counted.map(|watch| (watch, Segments::default())).collect();
    let sessions = outgo.sessions.into_iter().enumerate();
    let mut streams: Vec<mpsc::Sender<ChunkPiece>> =
        sessions.map(|(stream, session)| spawn_stream(session, stream, free.clone())).collect();
    let idle = (0..streams.len()).collect();
    let by_control = streams.is_empty();
    if by_control {
        streams.push(outgo.bulk);
    }
    let (commands, inbox) = std::sync::mpsc::channel();
    let (ended, done) = oneshot::channel();
    let trial = outgo.trial.map(|rtt| Trial::new(streams.len(), rtt));
    let mut sending = Streaming {
        payloads: outgo.payloads,
        wanted: outgo.wanted,
        streams,
        counted,
        trial,
        pace: outgo.cap.map(Pace::new),
        by_control,
        idle,
        freed,
        inbox,
        held: VecDeque::new(),
        outbox: outgo.outbox,
        board: outgo.board,
        events: outgo.events,
    };
    let planned = outgo.planned;
    std::thread::Builder::new()
        .name("send by stream".into())
        .spawn(move || {
            let result = sending.run(planned);
            sending.count_segments();
            let _ = ended.send(result.map(|()| sending.payloads));
        })
        .map_err(|error| {
            Error::new(ErrorKind::Unfinished, format!("cannot start a sending thread: {error}"))
        })?;
    Ok(Outgoing { commands, done })
}

/// Starts a task that writes pieces to `session`, and reports on `free` when it can take another
/// chunk. When the session ends, the task closes the channel of the pieces.
fn spawn_stream(session: Session, stream: usize, free: Sender<usize>) -> mpsc::Sender<ChunkPiece> {
    let (sender, mut pieces) = mpsc::channel::<ChunkPiece>(WAITING);
    tokio::task::spawn_local(async move {
        let (mut writer, mut reader) = session.split();
        loop {
            let piece = tokio::select! {
                piece = pieces.recv() => piece,
                // The system takes data before it sends them, so a write does not always detect
                // that the connection is lost. A read that fails or reaches the end shows the
                // loss.
                read = reader.read::<Frame>() => match read {
                    Ok(Some(_)) => continue,
                    Ok(None) | Err(_) => return,
                },
            };
            let Some(piece) = piece else { break };
            let last = piece.last;
            if writer.write(&Frame::from(Message::ChunkPiece(piece))).await.is_err() {
                return;
            }
            if last {
                // The thread that fills the streams may have ended.
                let _ = free.send(stream);
            }
        }
        let _ = writer.close(reader, None).await;
    });
    sender
}

struct Pace {
    pacer: Pacer,
    piece: usize,
}

impl Pace {
    fn new(rate: Rate) -> Pace {
        let piece = usize::try_from(rate.over(PIECE_TIME).get()).unwrap_or(PIECE);
        let piece = piece.clamp(SMALLEST_PIECE, PIECE);
        let mut pacer = Pacer::new(rate, Bytes::new(piece as u64));
        pacer.idle(clock::now());
        Pace { pacer, piece }
    }
}

struct Streaming {
    payloads: Payloads,
    wanted: Vec<Range<u64>>,
    streams: Vec<mpsc::Sender<ChunkPiece>>,
    /// The TCP segments of each stream at its last count.
    counted: Vec<(SegmentWatch, Segments)>,
    trial: Option<Trial>,
    pace: Option<Pace>,
    /// Whether the control stream carries the chunks. The thread then waits until the control
    /// stream has room for a piece.
    by_control: bool,
    /// Indexes of the streams that wait for a chunk.
    idle: VecDeque<usize>,
    /// The indexes of streams that have sent their chunk.
    freed: Receiver<usize>,
    inbox: Receiver<StreamCommand>,
    /// Commands that arrived while a chunk was paced. They wait until the chunk has been sent.
    held: VecDeque<StreamCommand>,
    outbox: Outbox,
    board: Arc<Board>,
    events: mpsc::UnboundedSender<SenderEvent>,
}

impl Streaming {
    fn run(&mut self, mut planned: bool) -> Result<(), Error> {
        self.payloads.rewind();
        self.publish_stream_count();
        super::send::report_failures(&mut self.payloads, &self.outbox, &self.events);
        // The plan needs the manifest, so the manifest does not wait for the plan.
        let manifest = 0..self.payloads.manifest_chunks();
        let mut wanted = without(&self.wanted, std::slice::from_ref(&manifest));
        for chunk in manifest
            .filter(|chunk| self.wanted.iter().any(|range| range.contains(chunk)))
            .collect::<Vec<_>>()
        {
            if !self.send_chunk(chunk)? {
                return Ok(());
            }
        }
        while !planned {
            let command = self.held.pop_front().map_or_else(|| self.inbox.recv(), Ok);
            match command {
                Ok(StreamCommand::Planned) => planned = true,
                Ok(command) => {
                    if !self.take(command, &mut wanted)? {
                        return Ok(());
                    }
                }
                Err(_) => return Ok(()),
            }
        }
        while let Some(chunk) = take_first(&mut wanted) {
            if !self.send_chunk(chunk)? {
                return Ok(());
            }
            while let Some(command) = self.next_command() {
                if !self.take(command, &mut wanted)? {
                    return Ok(());
                }
            }
        }
        // Until the receiver ends the pass, the streams deliver the data that they have taken.
        let mut lost_since = None;
        loop {
            // Count again and again: a receiver that has everything ends the streams before its
            // last message arrives, and the segments of closed streams cannot be counted.
            self.count_segments();
            let since = clock::now();
            match self.inbox.recv_timeout(CHECK_EVERY) {
                Ok(StreamCommand::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(_) | Err(RecvTimeoutError::Timeout) => self.account_wait(since),
            }
            // The last message of a receiver that has everything may still arrive.
            if self.is_lost() && lost_since.get_or_insert_with(Instant::now).elapsed() > FOLLOWS {
                return Err(lost());
            }
        }
    }

    /// Adds the time since `since` to the wait for streams, and publishes the reading time.
    fn account_wait(&self, since: Time) {
        let waited = clock::now().since(since);
        let (reading, cpu) = self.payloads.reading();
        let (reading, cpu) = (span(reading), span(cpu));
        self.board.update(|Counters { times, .. }| {
            times.stream = times.stream + waited;
            (times.busy, times.disk, times.disk_cpu) = (reading, reading, cpu);
        });
    }

    fn next_command(&mut self) -> Option<StreamCommand> {
        self.held.pop_front().or_else(|| self.inbox.try_recv().ok())
    }

    /// Waits until the rate allows a piece of `len` bytes; returns false once the pass is over.
    fn pace(&mut self, len: usize) -> bool {
        let Some(pace) = &mut self.pace else { return true };
        let waited = clock::now();
        while pace.pacer.allowance(clock::now()) == 0 {
            let left = clock::duration(pace.pacer.next().since(clock::now()));
            match self.inbox.recv_timeout(left) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(StreamCommand::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
                Ok(command) => self.held.push_back(command),
            }
        }
        let now = clock::now();
        pace.pacer.spend(now, Bytes::new(len as u64));
        let rate = pace.pacer.rate();
        self.board.update(|counters| {
            counters.times.paced = counters.times.paced + now.since(waited);
            counters.sender.rate = rate;
        });
        true
    }

    /// Processes a command; returns false once the pass is over.
    fn take(
        &mut self,
        command: StreamCommand,
        wanted: &mut Vec<Range<u64>>,
    ) -> Result<bool, Error> {
        match command {
            StreamCommand::Planned => {}
            StreamCommand::Skip(have) => *wanted = without(wanted, &tidy(have)),
            StreamCommand::Compare(ask) => {
                let (compared, same) = self.payloads.compare(&ask)?;
                super::send::report_failures(&mut self.payloads, &self.outbox, &self.events);
                *wanted = without(wanted, &tidy(same));
                self.outbox.send(Message::Compared(compared));
            }
            StreamCommand::Stop => return Ok(false),
        }
        Ok(true)
    }

    /// Sends one chunk on an idle stream, or on the control stream. Returns false if the pass ends
    /// first.
    fn send_chunk(&mut self, chunk: u64) -> Result<bool, Error> {
        self.board.note_first_datagram(clock::now().as_nanos());
        let digest = self.payloads.read_whole(chunk)?;
        super::send::report_failures(&mut self.payloads, &self.outbox, &self.events);
        let (chunks, values) = (vec![chunk], digest.to_vec());
        self.outbox.send(Message::Digests(Digests { chunks, values }));
        let since = clock::now();
        let stream = self.idle_stream()?;
        self.account_wait(since);
        let (all, size) = (self.payloads.content().len(), self.piece());
        let pieces = all.div_ceil(size).max(1);
        for nth in 0..pieces {
            let start = nth * size;
            let end = (start + size).min(all);
            if !self.pace(end - start) {
                return Ok(false);
            }
            let piece = ChunkPiece {
                chunk,
                offset: start as u32,
                bytes: self.payloads.content()[start..end].to_vec(),
                last: nth + 1 == pieces,
            };
            let since = clock::now();
            let taken = self.streams[stream].blocking_send(piece);
            self.account_wait(since);
            // This attempt ends. The next attempt sends the chunks of the lost stream again.
            if taken.is_err() || self.is_lost() {
                return Err(lost());
            }
        }
        Ok(true)
    }

    fn count_segments(&mut self) {
        let mut all = Segments::default();
        for (watch, last) in &mut self.counted {
            // A closed stream keeps its last count.
            *last = watch.now().unwrap_or(*last);
            all.sent += last.sent;
            all.retransmitted += last.retransmitted;
        }
        if !self.counted.is_empty() {
            self.board.note_segments(all);
        }
    }

    fn piece(&self) -> usize {
        self.pace.as_ref().map_or(PIECE, |pace| pace.piece)
    }

    fn idle_stream(&mut self) -> Result<usize, Error> {
        if self.by_control {
            return Ok(0);
        }
        loop {
            self.look();
            let count = self.trial.as_ref().map_or(self.streams.len(), Trial::count);
            if let Some(at) = self.idle.iter().position(|stream| *stream < count) {
                return self.idle.remove(at).ok_or_else(lost);
            }
            match self.freed.recv_timeout(CHECK_EVERY) {
                Ok(stream) => self.idle.push_back(stream),
                Err(RecvTimeoutError::Timeout) if !self.is_lost() => {}
                Err(_) => return Err(lost()),
            }
        }
    }

    fn is_lost(&self) -> bool {
        self.streams.iter().any(mpsc::Sender::is_closed)
    }
}

impl Streaming {
    /// Measures the rate of the current number of streams; once the best number is found, closes
    /// the other streams.
    fn look(&mut self) {
        let Some(trial) = &mut self.trial else { return };
        let before = trial.count();
        trial.look(clock::now(), self.board.theirs().written.streamed);
        let (found, count) = (trial.is_found(), trial.count());
        if found {
            self.count_segments();
            self.streams.truncate(count);
        }
        if found || count != before {
            self.publish_stream_count();
        }
        if found {
            self.trial = None;
        }
    }

    fn publish_stream_count(&self) {
        let count = self.trial.as_ref().map_or(self.streams.len(), Trial::count) as u32;
        let found = self.trial.as_ref().is_some_and(Trial::is_found);
        self.board.update(|Counters { sender, .. }| {
            (sender.streams, sender.streams_found) = (count, found);
        });
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Unfinished, "a stream that carried data was lost")
}

fn take_first(ranges: &mut Vec<Range<u64>>) -> Option<u64> {
    let first = ranges.first_mut()?;
    let number = first.next();
    if first.is_empty() {
        ranges.remove(0);
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_lost_its_streams_reports_once_and_leaves_nothing_to_stop() {
        let (commands, _inbox) = std::sync::mpsc::channel();
        let (ended, done) = oneshot::channel();
        let mut outgoing = Outgoing { commands, done };
        assert!(ended.send(Err(lost())).is_ok());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            assert!(outgoing.ended().await.is_ok_and(|result| result.is_err()));
            assert!(outgoing.stop().await.is_none());
        });
    }
}
