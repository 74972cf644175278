//! State that all requests of a gateway share: root, tokens, limits.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use longhaul_files::Root;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::tokens::{Right, Token, Tokens};
use crate::traffic::Traffic;

/// Maximum number of concurrent disk accesses.
const AT_DISK: usize = 16;
/// Maximum number of concurrent listings.
const LISTINGS: usize = 16;
/// How long a listing beyond this limit waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of refusals reported in a minute, so that strangers cannot fill the log.
const REFUSALS_PER_MINUTE: u32 = 60;
const MINUTE: Duration = Duration::from_secs(60);

/// A request that was refused because of a missing right, that changed the folder, or whose client
/// was disconnected because it neither received nor sent a byte.
#[derive(Clone, Debug)]
pub struct AccessRecord {
    /// The client's address.
    pub address: SocketAddr,
    /// The user, from the comment after the token.
    pub name: Option<String>,
    /// The request's method.
    pub method: String,
    /// The request's path below the root, percent-encoded.
    pub path: String,
    /// The new path of a MOVE below the root, percent-encoded.
    pub destination: Option<String>,
    /// The `Content-Length` of the request.
    pub bytes: Option<u64>,
    /// The status of the reply.
    pub status: u16,
    /// The time limit, if the client was disconnected because of it.
    pub disconnected_after: Option<Duration>,
}

impl AccessRecord {
    /// Returns whether the client lacked a right.
    pub fn is_refused(&self) -> bool {
        matches!(self.status, 401 | 403)
    }

    /// Returns whether the request has changed the folder.
    pub fn is_write(&self) -> bool {
        let changes = ["PUT", "MKCOL", "DELETE", "MOVE"].contains(&self.method.as_str());
        changes && self.disconnected_after.is_none() && (200..300).contains(&self.status)
    }
}

/// State that all requests share.
pub(crate) struct Shared {
    root: Root,
    tokens: RwLock<Tokens>,
    public: bool,
    read_only: bool,
    disk: Arc<Semaphore>,
    listings: Arc<Semaphore>,
    refusals: Mutex<Refusals>,
    idle: Duration,
    traffic: Arc<Traffic>,
    report: Box<dyn Fn(AccessRecord) + Send + Sync>,
}

/// The number of refusals in the current minute, and the start of this minute.
struct Refusals {
    since: Instant,
    count: u32,
}

impl Shared {
    /// Returns the shared state; `report` is called for refusals, changes and disconnected clients.
    pub(crate) fn new(
        root: Root,
        tokens: Vec<Token>,
        (public, read_only): (bool, bool),
        idle: Duration,
        report: impl Fn(AccessRecord) + Send + Sync + 'static,
    ) -> Shared {
        Shared {
            root,
            tokens: RwLock::new(Tokens::new(tokens)),
            public,
            read_only,
            disk: Arc::new(Semaphore::new(AT_DISK)),
            listings: Arc::new(Semaphore::new(LISTINGS)),
            refusals: Mutex::new(Refusals { since: Instant::now(), count: 0 }),
            idle,
            traffic: Arc::default(),
            report: Box::new(report),
        }
    }

    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Returns the time limit of a client that neither receives nor sends a byte.
    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    pub(crate) fn set_tokens(&self, tokens: Vec<Token>) {
        let tokens = Tokens::new(tokens);
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    pub(crate) fn root(&self) -> &Root {
        &self.root
    }

    pub(crate) fn right(&self, token: &str) -> Option<Right> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).right(token).cloned()
    }

    /// Returns the right of everybody.
    pub(crate) fn public(&self) -> Option<Right> {
        self.public.then_some(Right { write: false, folder: None, name: None })
    }

    pub(crate) fn may_write(&self, right: &Right) -> bool {
        right.write && !self.read_only
    }

    /// Reports a change; reports a refusal unless the limit of this minute is reached.
    pub(crate) fn report(&self, record: AccessRecord) {
        if record.is_refused() && !self.may_report_refusal() {
            return;
        }
        (self.report)(record);
    }

    /// Counts a refusal. Returns whether the limit allows reporting it.
    fn may_report_refusal(&self) -> bool {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.since.elapsed() > MINUTE {
            *refusals = Refusals { since: Instant::now(), count: 0 };
        }
        refusals.count += 1;
        refusals.count <= REFUSALS_PER_MINUTE
    }

    pub(crate) async fn seat_for_listing(&self) -> Option<OwnedSemaphorePermit> {
        timeout(PATIENCE, self.listings.clone().acquire_owned()).await.ok()?.ok()
    }

    /// Runs work that may wait for a disk.
    pub(crate) async fn at_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let disk = self.disk.clone().acquire_owned().await.map_err(io::Error::other)?;
        let done = tokio::task::spawn_blocking(move || {
            let _disk = disk;
            work()
        });
        done.await.unwrap_or_else(|ended| Err(io::Error::other(ended)))
    }
}
