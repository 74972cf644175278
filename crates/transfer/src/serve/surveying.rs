//! Answers surveys: sends the hashes of an object's chunks to a client that has several sources of
//! the object.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use crate::control::{Frame, Message, Survey, Surveyed};
use crate::error::{Error, ErrorKind};
use crate::options::Filter;
use crate::session::Session;
use longhaul_files::{CHUNK, ListMemory, Place, Source, SourceOptions, Watch};

/// Bytes of the manifest or of values (the hashes of chunks) in one message: a quarter of a frame's
/// limit.
const PIECE: usize = 256 << 10;
/// Messages that may wait for the stream.
const WAITING: usize = 4;
/// Interval of progress messages to the client.
const SIGN: Duration = Duration::from_secs(1);

/// Maximum number of surveys that read at the same time; others wait. The limit is low, because
/// each survey takes a disk's whole rate.
const READING: usize = 4;

pub(super) struct Permits {
    permits: Arc<Semaphore>,
    /// The steps of all surveys so far.
    work: Arc<AtomicU64>,
}

impl Default for Permits {
    fn default() -> Permits {
        Permits { permits: Arc::new(Semaphore::new(READING)), work: Arc::default() }
    }
}

impl Permits {
    /// Waits for a permit. Reports the progress of the other surveys to the client meanwhile, so
    /// the client knows whether it waits for a disk that hangs. Returns the permit and that
    /// progress.
    async fn take(&self, session: &mut Session) -> Result<(OwnedSemaphorePermit, u64), Error> {
        let permit = self.permits.clone().acquire_owned();
        tokio::pin!(permit);
        let before = self.work.load(Ordering::Relaxed);
        loop {
            let taken = timeout(SIGN, &mut permit).await;
            let looked = self.work.load(Ordering::Relaxed) - before;
            match taken {
                Ok(permit) => return Ok((permit.expect("nobody closes it"), looked)),
                Err(_) => send(session, Surveyed { looked, ..Surveyed::default() }).await?,
            }
        }
    }
}

async fn send(session: &mut Session, piece: Surveyed) -> Result<(), Error> {
    Ok(session.write(&Frame::from(Message::Surveyed(piece))).await?)
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
        // If the client has disconnected, this fails and the reader's channel closes.
        send(session, piece).await?;
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

    fn pair() -> (Session, Session) {
        let (near, far) = tokio::io::duplex(1 << 20);
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
    async fn a_survey_that_waits_reports_the_progress_of_those_that_read() {
        let permits = Permits::default();
        let readers = permits.permits.clone().acquire_many_owned(READING as u32).await.unwrap();
        permits.work.store(7, Ordering::Relaxed);
        let (mut server, mut client) = pair();
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

    #[tokio::test]
    async fn a_survey_counts_its_steps_for_those_that_wait() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), vec![1; 3 << 20]).unwrap();
        let (permits, (mut server, _client)) = (Permits::default(), pair());
        let places = vec![Place::Ambient(folder.path().to_owned())];
        let survey = Survey { recursive: true, ..Survey::default() };
        answer(&mut server, &survey, places, &permits, Box::new(())).await.unwrap();
        assert!(permits.work.load(Ordering::Relaxed) >= 3);
    }
}
