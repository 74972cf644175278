//! Sends content of unknown length as a sequence of parts. Each part is a separate copy within one
//! connection. A final message has the length and digest of the whole content.
//!
//! Two parts are sent at a time, so the end of one part causes no pause. Content that fits the
//! first part is an ordinary copy and can be resumed. Longer content cannot be resumed, because the
//! reader cannot return the bytes again: if the connection is lost, the copy fails.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_proto::units::{Bytes, Rate};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::feed::{Fed, Feed, Next};
use super::pipe_board::PipeBoard;
use crate::control;
use crate::control::pipe::{self, Pipe, PipeEnd, Piped};
use crate::counters::span;
use crate::error::{Error, ErrorKind};
use crate::many::part::CopyPart;
use crate::many::{self, StartOne};
use crate::notices::interrupted;
use crate::options::{CopyOptions, PartOfPipe};
use crate::progress::{Cancel, Notice, Observer};
use crate::reach::route::Route;
use crate::reach::transport::first_transport;
use crate::reach::{Reached, SizeSearch, reach};
use crate::session::{Connection, Session, Settings, random_u64};
use crate::summary::{BoundBy, Summary, hex};
use crate::write::budget::Budget;
use longhaul_files::MemoryFolder;
use longhaul_files::digest::Digest;
use longhaul_text::CallOption;

/// Parts sent at a time.
const TRAVELLING: usize = 2;
/// How long parts may take to end after the pipe has failed.
const ENDING: Duration = Duration::from_secs(10);

/// Sends the input of `options` in parts. `one` starts the copy of each part.
pub(super) async fn push(
    options: CopyOptions,
    route: &Route,
    observer: Arc<dyn Observer>,
    cancel: Cancel,
    one: StartOne,
) -> Result<Summary, Error> {
    let (Some(input), Route::Push { sources, destination, .. }) = (&options.input, route) else {
        return Err(Error::new(
            ErrorKind::Usage,
            "content of unknown length can only be sent to another host",
        ));
    };
    let [name] = &sources[..] else {
        return Err(Error::new(ErrorKind::Usage, "content of unknown length must be one file"));
    };
    if options.dry_run {
        let what = "content of unknown length has no plan, so a dry run cannot show it";
        return Err(
            Error::new(ErrorKind::Usage, what).advise(format!("leave {} out", CallOption::DryRun))
        );
    }
    let mut feed = Feed::start(input, options.memory)?;
    let first = tokio::select! {
        first = feed.next() => first,
        () = cancel.wished() => return Err(interrupted()),
    };
    let parts = Parts { options: &options, route, name, one };
    let first = match first {
        Next::Failed(error) => return Err(error),
        Next::Last(fed, _) => {
            let part = parts.alone()?;
            return one(parts.of(fed.bytes, 1), route.clone(), observer, cancel, part).await;
        }
        Next::Part(fed) => fed,
    };
    let board = PipeBoard::new(observer.clone());
    let opened = tokio::select! {
        opened = open(&options, route, &*observer, destination) => opened?,
        () = cancel.wished() => return Err(interrupted()),
    };
    let wish = cancel.child();
    let mut running = Running {
        parts,
        pipe: opened,
        board,
        wish: wish.clone(),
        travelling: JoinSet::new(),
        summary: None,
        waited: Duration::ZERO,
    };
    let sent = tokio::select! {
        sent = running.send(first, &mut feed) => sent,
        () = cancel.wished() => Err(interrupted()),
    };
    if sent.is_err() {
        wish.cancel();
        let ended = async { while running.travelling.join_next().await.is_some() {} };
        let _ = timeout(ENDING, ended).await;
    }
    // Without a goodbye the server keeps an unfinished file until the connection's idle timeout.
    let _ = running.pipe.session.leave().await;
    sent
}

struct Opened {
    number: u64,
    session: Session,
    connection: Connection,
    /// For the data of all parts: the local port, the server's address, and the datagram size.
    by: (Rc<longhaul_net::port::Port>, std::net::SocketAddr, Option<u16>),
    patience: Duration,
}

async fn open(
    options: &CopyOptions,
    route: &Route,
    observer: &dyn Observer,
    destination: &std::path::Path,
) -> Result<Opened, Error> {
    use std::os::unix::ffi::OsStrExt;
    let identity = options.key.identity()?;
    let carriers = first_transport(options).carriers();
    let settings = Settings { streams: true, carriers, ..Settings::default() };
    let search =
        if options.datagram.is_some() { SizeSearch::No } else { SizeSearch::DuringHandshake };
    let reached = reach(options, route, &identity, observer).open(&settings, search).await?;
    let Reached { mut session, data, contact, datagram } = reached;
    observer.notice(Notice::Connected {
        peer: session.peer.to_string(),
        address: session.remote.to_string(),
        carrier: session.carrier,
    });
    let connection = session.connection().ok_or_else(|| {
        Error::new(ErrorKind::Unreachable, "the connection carries no further streams")
    })?;
    session.ask_for(pipe::SERVICE, pipe::VERSION);
    let number = random_u64();
    let path = destination.as_os_str().as_bytes().to_vec();
    session.write(&Pipe { path, pipe: number }).await?;
    let by = (data, contact, options.datagram.or(datagram));
    let mut opened = Opened { number, session, connection, by, patience: options.stall };
    opened.answer(false).await?;
    Ok(opened)
}

impl Opened {
    /// Waits for the server's answer: the file is complete if `done`, or else the pipe is open.
    async fn answer(&mut self, done: bool) -> Result<(), Error> {
        let silent = |_| {
            let what = format!("the server was silent for {} s", self.patience.as_secs());
            Error::new(ErrorKind::Stalled, what)
        };
        let said = timeout(self.patience, self.session.read::<Piped>()).await.map_err(silent)??;
        match said {
            Some(said) if said.done == done => Ok(()),
            Some(_) => {
                Err(Error::new(ErrorKind::Unfinished, "the server sent an unexpected answer"))
            }
            None => Err(lost()),
        }
    }

    /// Completes when the server ends the pipe early.
    async fn ended(&mut self) -> Error {
        match self.session.read::<Piped>().await {
            Ok(Some(_)) => Error::new(ErrorKind::Unfinished, "the server ended the pipe too early"),
            Ok(None) => lost(),
            Err(error) => error.into(),
        }
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Unfinished, "the server ended the pipe")
}

struct Parts<'a> {
    options: &'a CopyOptions,
    route: &'a Route,
    name: &'a PathBuf,
    one: StartOne,
}

impl Parts<'_> {
    fn alone(&self) -> Result<CopyPart, Error> {
        Ok(CopyPart::alone(Budget::of_copy(self.options, Budget::least_of(1), 1)?, None))
    }

    /// Returns the options for the copy of one part. `travelling` parts are sent at a time, and
    /// share the requested rates equally.
    fn of(&self, bytes: Vec<u8>, travelling: usize) -> CopyOptions {
        let folder = MemoryFolder::new(bytes.len() as u64);
        folder.put(self.name.as_os_str(), bytes);
        let share = |rate: Rate| Rate::from_bps((rate.as_bps() / travelling as u64).max(1));
        CopyOptions {
            local: Some(folder),
            input: None,
            rate: self.options.rate.map(share),
            rate_limit: self.options.rate_limit.map(share),
            ..self.options.clone()
        }
    }
}

struct Running<'a> {
    parts: Parts<'a>,
    pipe: Opened,
    board: Arc<PipeBoard>,
    wish: Cancel,
    travelling: JoinSet<(u64, Result<Summary, Error>)>,
    summary: Option<Summary>,
    /// How long no part was in transit, because the input was slower than the copy.
    waited: Duration,
}

impl Running<'_> {
    async fn send(&mut self, first: Fed, feed: &mut Feed) -> Result<Summary, Error> {
        self.begin(first).await?;
        let mut end = None;
        while end.is_none() || !self.travelling.is_empty() {
            let is_wanted = end.is_none() && self.travelling.len() < TRAVELLING;
            let idle = self.travelling.is_empty().then(Instant::now);
            tokio::select! {
                next = feed.next(), if is_wanted => {
                    self.waited += idle.map_or(Duration::ZERO, |since| since.elapsed());
                    match next {
                        Next::Part(fed) => self.begin(fed).await?,
                        Next::Last(fed, digest) => {
                            let total = fed.offset + fed.bytes.len() as u64;
                            end = Some((total, digest));
                            self.board.set_total(total);
                            self.begin(fed).await?;
                        }
                        Next::Failed(error) => return Err(error),
                    }
                }
                Some(ended) = self.travelling.join_next() => {
                    let what = "a part ended early";
                    let gone = |_| Error::new(ErrorKind::Unfinished, what);
                    let (offset, summary) = ended.map_err(gone)?;
                    self.take(summary?);
                    self.board.finish_part(offset);
                }
                error = self.pipe.ended() => return Err(error),
            }
        }
        let (total, digest) = end.ok_or_else(lost)?;
        self.finish(total, &digest).await
    }

    async fn begin(&mut self, fed: Fed) -> Result<(), Error> {
        let Fed { offset, bytes } = fed;
        let session = self.pipe.connection.open(control::SERVICE, control::VERSION).await?;
        let (data, contact, datagram) = self.pipe.by.clone();
        let part = self.parts.alone()?;
        part.reached.replace(Some(Reached { session, data, contact, datagram }));
        let place = Some(PartOfPipe { pipe: self.pipe.number, offset });
        let protocol = self.board.protocol(&self.parts.options.protocol);
        let options = CopyOptions { part: place, protocol, ..self.parts.of(bytes, TRAVELLING) };
        let (observer, route) = (self.board.of_part(offset), self.parts.route.clone());
        let copy = (self.parts.one)(options, route, observer, self.wish.clone(), part);
        self.travelling.spawn_local(async move { (offset, copy.await) });
        Ok(())
    }

    fn take(&mut self, part: Summary) {
        self.summary = Some(match self.summary.take() {
            Some(whole) => many::summary_of_parts(&[whole, part]),
            None => part,
        });
    }

    async fn finish(&mut self, total: u64, digest: &Digest) -> Result<Summary, Error> {
        let end = PipeEnd { total, digest: digest.to_vec() };
        self.pipe.session.write(&end).await?;
        self.pipe.answer(true).await?;
        let elapsed = self.board.elapsed();
        let parts = self.summary.take().unwrap_or_default();
        let has_mostly_waited = span(self.waited) > elapsed / 2;
        Ok(Summary {
            files: 1,
            copied_files: 1,
            elapsed,
            goodput: Bytes::new(total) / elapsed,
            blake3: hex(digest),
            bound_by: if has_mostly_waited { BoundBy::Nothing } else { parts.bound_by },
            ..parts
        })
    }
}
