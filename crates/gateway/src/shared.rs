//! State that all requests of a gateway share: root, tokens, limits.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use longhaul_files::Root;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::tokens::{Right, Token, Tokens};

/// Limit of concurrent disk accesses.
const AT_DISK: usize = 16;
/// Limit of concurrent listings, and how long a further one waits.
const LISTINGS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(10);
/// Refusals logged in a minute, so that strangers cannot fill the log.
const TOLD: u32 = 60;
const MINUTE: Duration = Duration::from_secs(60);

/// A refused request.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The client's address.
    pub address: SocketAddr,
    /// The user, from the comment after the token.
    pub name: Option<String>,
    /// Its method.
    pub method: String,
    /// Its path, still encoded.
    pub path: String,
    /// 401 or 403.
    pub status: u16,
}

/// State that all requests share.
pub(crate) struct Shared {
    root: Root,
    tokens: RwLock<Tokens>,
    public: bool,
    read_only: bool,
    disk: Arc<Semaphore>,
    listings: Arc<Semaphore>,
    told: Mutex<Told>,
    tell: Box<dyn Fn(Refused) + Send + Sync>,
}

/// Number of logged refusals, and the start of the minute.
struct Told {
    since: Instant,
    count: u32,
}

impl Shared {
    /// Makes the state; `tell` is called for refusals.
    pub(crate) fn new(
        root: Root,
        tokens: Vec<Token>,
        (public, read_only): (bool, bool),
        tell: impl Fn(Refused) + Send + Sync + 'static,
    ) -> Shared {
        Shared {
            root,
            tokens: RwLock::new(Tokens::new(tokens)),
            public,
            read_only,
            disk: Arc::new(Semaphore::new(AT_DISK)),
            listings: Arc::new(Semaphore::new(LISTINGS)),
            told: Mutex::new(Told { since: Instant::now(), count: 0 }),
            tell: Box::new(tell),
        }
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

    /// The right of everybody.
    pub(crate) fn public(&self) -> Option<Right> {
        self.public.then_some(Right { write: false, folder: None, name: None })
    }

    pub(crate) fn may_write(&self, right: &Right) -> bool {
        right.write && !self.read_only
    }

    /// Reports a refusal, unless there were too many in this minute.
    pub(crate) fn tell(&self, refused: Refused) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.since.elapsed() > MINUTE {
            *told = Told { since: Instant::now(), count: 0 };
        }
        told.count += 1;
        if told.count <= TOLD {
            drop(told);
            (self.tell)(refused);
        }
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
