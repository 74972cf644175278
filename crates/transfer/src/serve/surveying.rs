//! Answers surveys: sends the hashes of an object's chunks to a client that has several sources of
//! the object.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::reading::{UNREAD, send_within};
use crate::control::{Frame, Message, Survey, Surveyed};
use crate::error::{Error, ErrorKind};
use crate::options::Filter;
use crate::session::{PeerId, Session};
use longhaul_files::{
    CHUNK, DiskPermit, DiskPermits, ListMemory, Place, Source, SourceOptions, Watch,
};

/// Bytes of the manifest or of values (the hashes of chunks) in one message: a quarter of a frame's
/// limit.
const PIECE: usize = 256 << 10;
/// Messages that may wait for the stream.
const WAITING: usize = 4;
/// Interval of progress messages to the client.
const SIGN: Duration = Duration::from_secs(1);

/// Maximum number of surveys that read at the same time; others wait. One client gets at most half
/// of those that the other clients leave ([`DiskPermits`]). The limit is low, because each survey
/// takes a disk's whole rate.
const READING: usize = 8;

pub(super) struct Permits {
    permits: DiskPermits<PeerId>,
    /// The steps of all surveys so far.
    work: AtomicU64,
    /// Timeout for a client that does not read.
    unread: Duration,
}

impl Default for Permits {
    fn default() -> Permits {
        Permits { permits: DiskPermits::new(READING), work: AtomicU64::new(0), unread: UNREAD }
    }
}

impl Permits {
    /// Waits for a permit. Reports the progress of the other surveys to the client meanwhile, so
    /// the client knows whether it waits for a disk that hangs. Returns the permit and that
    /// progress.
    async fn take(&self, session: &mut Session) -> Result<(DiskPermit<PeerId>, u64), Error> {
        let mut permit = pin!(self.permits.take(session.peer));
        let before = self.work.load(Ordering::Relaxed);
        loop {
            let taken = timeout(SIGN, &mut permit).await;
            let looked = self.work.load(Ordering::Relaxed) - before;
            match taken {
                Ok(permit) => return Ok((permit, looked)),
                Err(_) => self.send(session, Surveyed { looked, ..Surveyed::default() }).await?,
            }
        }
    }

    async fn send(&self, session: &mut Session, piece: Surveyed) -> Result<(), Error> {
        send_within(self.unread, session, Frame::from(Message::Surveyed(piece))).await
    }
}

/// Answers a survey of `places` when a permit is free; afterwards the session can carry a request.
/// `memory` is charged for the list of files.
pub(super) async fn answer(
    session: &mut Session,
    survey: &Survey,
    places: Vec<Place>,
    permits: &Permits,
    memory: Box<dyn ListMemory>,
) -> Result<(), Error> {
    let filters = survey.filters.iter().map(Filter::from).collect();
    let watch = Watch::default();
    // This value is dropped with the call, so the reading ends if the client disconnects.
    let looked = EndsWork(watch.clone());
    let options = SourceOptions { recursive: survey.recursive, filters, watch };
    let (pieces_end, mut pieces) = mpsc::channel(WAITING);
    let (permit, waited) = permits.take(session).await?;
    let mut counted = 0;
    let reading = tokio::task::spawn_blocking(move || {
        // Keep the permit until the reading ends, even if the client disconnects earlier.
        let _permit = permit;
        read(&places, &options, memory, &pieces_end)
    });
    loop {
        let next = timeout(SIGN, pieces.recv()).await;
        let steps = looked.0.looked();
        permits.work.fetch_add(steps - counted, Ordering::Relaxed);
        counted = steps;
        let piece = match next {
            Ok(Some(piece)) => piece,
            Ok(None) => break,
            Err(_) => Surveyed { looked: waited + steps, ..Surveyed::default() },
        };
        // If the client has disconnected or does not read, this fails and the reader's channel
        // closes.
        permits.send(session, piece).await?;
    }
    reading.await.map_err(|_| Error::new(ErrorKind::Unfinished, "the survey ended early"))?
}

struct EndsWork(Watch);

impl Drop for EndsWork {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn read(
    places: &[Place],
    options: &SourceOptions,
    memory: Box<dyn ListMemory>,
    pieces: &mpsc::Sender<Surveyed>,
) -> Result<(), Error> {
    let mut source = Source::open_within(places, options, memory)?;
    source.fill_holes();
    let gone = |_| Error::new(ErrorKind::Unfinished, "the client has disconnected");
    let send = |piece: Surveyed| pieces.blocking_send(piece).map_err(gone);
    for manifest in source.manifest().encode().chunks(PIECE) {
        send(Surveyed { manifest: manifest.to_vec(), ..Surveyed::default() })?;
    }
    let mut buffer = vec![0; CHUNK as usize];
    let mut values = Vec::with_capacity(PIECE);
    let mut last_sign = std::time::Instant::now();
    for chunk in 0..source.object().chunks() {
        check(&source)?;
        options.watch.step();
        values.extend(source.read_chunk(chunk, &mut buffer)?.value);
        if values.len() + 32 > PIECE || last_sign.elapsed() >= SIGN {
            last_sign = std::time::Instant::now();
            send(Surveyed { values: std::mem::take(&mut values), ..Surveyed::default() })?;
        }
    }
    check(&source)?;
    send(Surveyed { values, done: true, ..Surveyed::default() })
}

/// Fails if a file could not be read: then this host is not a source of the object.
fn check(source: &Source) -> Result<(), Error> {
    let Some(failure) = source.failures().first() else { return Ok(()) };
    let what = format!("cannot read {}: {}", failure.shown(), failure.reason);
    Err(Error::new(ErrorKind::LocalFile, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::PeerId;

    /// Returns two ends of a session that takes `unread` bytes before the other end reads.
    fn pair(unread: usize) -> (Session, Session) {
        let (near, far) = tokio::io::duplex(unread);
        let session = |end| {
            let (input, out) = tokio::io::split(end);
            Session::over(PeerId([1; 32]), input, out)
        };
        (session(near), session(far))
    }

    async fn looked(session: &mut Session) -> u64 {
        match session.read::<Frame>().await {
            Ok(Some(Frame { message: Some(Message::Surveyed(piece)) })) => piece.looked,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_waiting_survey_reports_the_progress_of_the_running_surveys() {
        let permits = Permits::default();
        let (mut server, mut client) = pair(1 << 20);
        let mut readers = Vec::new();
        for _ in 0..READING / 2 {
            readers.push(permits.permits.take(server.peer).await);
        }
        permits.work.store(7, Ordering::Relaxed);
        let waiting = permits.take(&mut server);
        let client = async {
            assert_eq!(looked(&mut client).await, 0, "no other survey progresses");
            permits.work.fetch_add(5, Ordering::Relaxed);
            assert_eq!(looked(&mut client).await, 5);
            drop(readers);
        };
        let (taken, ()) = tokio::join!(waiting, client);
        assert_eq!(taken.unwrap().1, 5);
    }

    /// Answers a survey of a folder with a file of this many `bytes`.
    async fn survey(permits: &Permits, server: &mut Session, bytes: usize) -> Result<(), Error> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), vec![1; bytes]).unwrap();
        let places = vec![Place::Ambient(folder.path().to_owned())];
        let survey = Survey { recursive: true, ..Survey::default() };
        answer(server, &survey, places, permits, Box::new(())).await
    }

    #[tokio::test]
    async fn a_survey_counts_its_steps_for_the_waiting_surveys() {
        let (permits, (mut server, _client)) = (Permits::default(), pair(1 << 20));
        survey(&permits, &mut server, 3 << 20).await.unwrap();
        assert!(permits.work.load(Ordering::Relaxed) >= 3);
    }

    #[tokio::test]
    async fn a_survey_whose_client_does_not_read_ends_and_returns_its_permit() {
        let permits = Permits { unread: Duration::from_millis(1), ..Permits::default() };
        let (mut server, _client) = pair(16);
        let error = survey(&permits, &mut server, 1).await.unwrap_err();
        assert!(error.what.contains("does not read"), "{error}");
        let mut all = Vec::new();
        for _ in 0..READING / 2 {
            all.push(permits.permits.take(server.peer).await);
        }
    }
}
