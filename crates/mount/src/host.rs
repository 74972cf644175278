//! The connection to the host of a mount. After a loss, the connection is opened again.

use std::path::Path;
use std::time::{Duration, Instant};

use fuser::Errno;
use longhaul_transfer::api::{
    CancelHandle, Client, Connection, Error, ErrorKind, Named, RemoteFile,
};
use longhaul_transfer::location::Location;
use longhaul_transfer::options::ReachOptions;
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::Options;

const MOST_NAMES: usize = 1_000_000;
/// The first pause between two tries, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed(pub(crate) Errno);

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Failed {
        Failed(errno)
    }
}

pub(crate) fn is_lost(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Unfinished | ErrorKind::Cancelled | ErrorKind::Stalled)
}

/// Returns the error code for the kernel, for an error that a new connection cannot fix.
fn code(error: &Error) -> Errno {
    match error.kind {
        ErrorKind::Unreachable => Errno::EACCES,
        _ => Errno::EIO,
    }
}

/// The retries of one request: the time of the first try, and the next pause.
#[derive(Debug)]
pub(crate) struct Retry {
    since: Instant,
    pause: Duration,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { since: Instant::now(), pause: PAUSES.0 }
    }
}

pub(crate) struct Host {
    client: Client,
    location: Location,
    reach: ReachOptions,
    retry_for: Duration,
    cancel: CancelHandle,
    warn: Box<dyn Fn(String) + Send + Sync>,
    /// The connection, and the number of connections opened so far.
    connection: Mutex<(Option<Connection>, u64)>,
}

impl Host {
    pub(crate) fn new(
        client: &Client,
        location: &Location,
        options: &Options,
        cancel: &CancelHandle,
        warn: impl Fn(String) + Send + Sync + 'static,
    ) -> Host {
        Host {
            client: client.clone(),
            location: location.clone(),
            reach: options.reach.clone(),
            retry_for: options.retry_for,
            cancel: cancel.child(),
            warn: Box::new(warn),
            connection: Mutex::new((None, 0)),
        }
    }

    /// Connects, and lists `path` once, without retries.
    ///
    /// # Errors
    /// The connection or the listing fails, or `path` is a file.
    pub(crate) async fn check(&self, path: &Path) -> Result<(), Error> {
        let (connection, _) = self.connected().await?;
        let mut names = connection.list(path).await?;
        while let Some(named) = names.next().await {
            let is_itself = named.as_ref().is_ok_and(|named| {
                path.file_name().is_some_and(|name| name.as_encoded_bytes() == named.name)
            });
            named?;
            if is_itself && connection.open_file(path).await.is_ok() {
                let what = format!("{} is a file; name its folder", self.location);
                return Err(Error::new(ErrorKind::Usage, what));
            }
        }
        Ok(())
    }

    /// Ends all requests, and waits until the connection is closed.
    pub(crate) async fn close(&self) {
        self.cancel.cancel();
        // Requests that fail during the close take the lock, so it is released first.
        let connection = self.connection.lock().await.0.take();
        if let Some(connection) = connection {
            connection.close().await;
        }
    }

    /// Returns the connection and its number; opens one if there is none.
    async fn connected(&self) -> Result<(Connection, u64), Error> {
        let mut slot = self.connection.lock().await;
        if let (Some(connection), number) = &*slot {
            return Ok((connection.clone(), *number));
        }
        let request = self.client.connect(self.location.clone()).reach(self.reach.clone());
        let connection = request.cancel_with(&self.cancel).await?;
        *slot = (Some(connection.clone()), slot.1 + 1);
        Ok((connection, slot.1))
    }

    /// Drops connection `number` after `error`, if it is still in use, and waits before the next
    /// try.
    ///
    /// # Errors
    /// The time for retries is over, or the mount is cancelled.
    async fn lost(
        &self,
        number: Option<u64>,
        error: &Error,
        retry: &mut Retry,
    ) -> Result<(), Failed> {
        if let Some(number) = number {
            let mut slot = self.connection.lock().await;
            if slot.1 == number && slot.0.take().is_some() {
                (self.warn)(format!("connection lost ({}); trying again", error.what()));
            }
        }
        if self.cancel.is_cancelled() || retry.since.elapsed() >= self.retry_for {
            (self.warn)(format!("a request failed: {}", error.what()));
            return Err(Errno::ETIMEDOUT.into());
        }
        // The first pause is short, because the server may only have closed an idle connection.
        sleep(retry.pause).await;
        retry.pause = (retry.pause * 2).min(PAUSES.1);
        Ok(())
    }

    /// Handles a failed call over connection `number`, or a failed attempt to connect (`None`).
    /// Returns `Ok` if the call may be tried again.
    ///
    /// # Errors
    /// The error is final, the time for retries is over, or the mount is cancelled.
    pub(crate) async fn failed(
        &self,
        number: Option<u64>,
        error: &Error,
        retry: &mut Retry,
    ) -> Result<(), Failed> {
        let was_reached = self.connection.lock().await.1 > 0;
        let is_away = number.is_none() && error.kind == ErrorKind::Unreachable && was_reached;
        if is_lost(error) || is_away {
            return self.lost(number, error, retry).await;
        }
        (self.warn)(error.what().to_owned());
        Err(code(error).into())
    }

    pub(crate) async fn list(&self, path: &Path) -> Result<Vec<Named>, Failed> {
        let mut retry = Retry::default();
        loop {
            let (error, number) = match self.connected().await {
                Ok((connection, number)) => match names(&connection, path).await {
                    Ok(Some(names)) => return Ok(names),
                    Ok(None) => return Err(Errno::EFBIG.into()),
                    Err(error) => (error, Some(number)),
                },
                Err(error) => (error, None),
            };
            self.failed(number, &error, &mut retry).await?;
        }
    }

    pub(crate) async fn open(
        &self,
        path: &Path,
        retry: &mut Retry,
    ) -> Result<(RemoteFile, u64), Failed> {
        loop {
            let (error, number) = match self.connected().await {
                Ok((connection, number)) => match connection.open_file(path).await {
                    Ok(file) => return Ok((file, number)),
                    Err(error) => (error, Some(number)),
                },
                Err(error) => (error, None),
            };
            self.failed(number, &error, retry).await?;
        }
    }
}

/// Returns the names in a folder; `None` if there are too many.
async fn names(connection: &Connection, path: &Path) -> Result<Option<Vec<Named>>, Error> {
    let (mut listing, mut names) = (connection.list(path).await?, Vec::new());
    while let Some(named) = listing.next().await {
        names.push(named?);
        if names.len() > MOST_NAMES {
            return Ok(None);
        }
    }
    Ok(Some(names))
}
