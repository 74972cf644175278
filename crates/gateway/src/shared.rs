//! State that all requests of a gateway share: root, tokens, limits.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use longhaul_files::{Place, Root};

use crate::disk::Disk;
use crate::tokens::{Right, Token, Tokens};
use crate::traffic::Traffic;

/// Number of locks of names (see [`Shared::naming`]). Several names share one lock. While a disk
/// hangs, a request keeps its lock; with more locks, fewer other names wait for this lock.
const NAMING: usize = 64;
/// Maximum number of refusals that are reported in a minute. Reports of disconnected clients have
/// the same limit.
const REPORTS_PER_MINUTE: u32 = 60;
const MINUTE: Duration = Duration::from_secs(60);

/// A request and the status of its reply. A gateway reports a request that was refused, that
/// changed the folder, or whose client was disconnected because it neither received nor sent a byte
/// until the time limit.
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
    /// What a MOVE left behind, with the reason: the replaced content under a hidden name next to
    /// the new path, or a change that is not synced.
    pub left: Option<String>,
    /// The time limit, if the client was disconnected because of it.
    pub disconnected_after: Option<Duration>,
}

impl AccessRecord {
    /// Returns whether the request was refused (status 401 or 403) without any effect, and its
    /// client was not disconnected.
    pub fn is_refused(&self) -> bool {
        let has_effect = self.left.is_some() || self.disconnected_after.is_some();
        !has_effect && matches!(self.status, 401 | 403)
    }

    /// Returns whether the request changed the folder and succeeded (status 200 to 299), and its
    /// client was not disconnected.
    pub fn is_write(&self) -> bool {
        let changes = ["PUT", "MKCOL", "DELETE", "MOVE"].contains(&self.method.as_str());
        changes && self.disconnected_after.is_none() && (200..300).contains(&self.status)
    }
}

pub(crate) struct Shared {
    root: Root,
    tokens: RwLock<Tokens>,
    public: bool,
    read_only: bool,
    /// Whether the gateway has no TLS. It then listens on a loopback address, so that only
    /// programs of this host, such as a proxy, can reach it.
    pub(crate) is_loopback_only: bool,
    /// Locks of names: each name has one of them.
    naming: Vec<Arc<Mutex<()>>>,
    pub(crate) disk: Disk,
    refusals: Mutex<Minute>,
    disconnections: Mutex<Minute>,
    idle: Duration,
    traffic: Arc<Traffic>,
    report: Box<dyn Fn(AccessRecord) + Send + Sync>,
}

struct Minute {
    since: Instant,
    count: u32,
}

impl Minute {
    fn starting(since: Instant) -> Minute {
        Minute { since, count: 0 }
    }

    /// Counts an event. Returns whether the limit allows reporting it.
    fn allows(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) > MINUTE {
            *self = Minute::starting(now);
        }
        self.count += 1;
        self.count <= REPORTS_PER_MINUTE
    }
}

impl Shared {
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
            is_loopback_only: false,
            naming: (0..NAMING).map(|_| Arc::default()).collect(),
            disk: Disk::new(),
            refusals: Mutex::new(Minute::starting(Instant::now())),
            disconnections: Mutex::new(Minute::starting(Instant::now())),
            idle,
            traffic: Arc::default(),
            report: Box::new(report),
        }
    }

    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

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

    pub(crate) fn public(&self) -> Option<Right> {
        self.public.then_some(Right { write: false, folder: None, name: None })
    }

    /// Whether every client may only read.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(crate) fn may_write(&self, right: &Right) -> bool {
        right.write && !self.read_only
    }

    /// Reports a change; reports a refusal or a disconnected client unless the limit of this minute
    /// is reached.
    pub(crate) fn report(&self, record: AccessRecord) {
        let limit = match record.disconnected_after {
            Some(_) => Some(&self.disconnections),
            None => record.is_refused().then_some(&self.refusals),
        };
        let allows = |limit: &Mutex<Minute>| {
            limit.lock().unwrap_or_else(PoisonError::into_inner).allows(Instant::now())
        };
        if limit.is_none_or(allows) {
            (self.report)(record);
        }
    }

    /// Returns the lock of a name: a request holds it from the last check of its conditions until
    /// its change of that name is done.
    pub(crate) fn naming(&self, place: &Place) -> Arc<Mutex<()>> {
        self.naming[number(place)].clone()
    }

    /// Returns the locks of two names, each lock once, in an order that all requests share.
    pub(crate) fn naming_of_both(&self, places: [&Place; 2]) -> Vec<Arc<Mutex<()>>> {
        let numbers = BTreeSet::from(places.map(number));
        numbers.into_iter().map(|number| self.naming[number].clone()).collect()
    }
}

/// Returns the number of a name's lock.
fn number(place: &Place) -> usize {
    let mut hasher = DefaultHasher::new();
    place.path().hash(&mut hasher);
    hasher.finish() as usize % NAMING
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A gateway for the folder `top`: public, not read-only, without tokens and without a log.
    pub(crate) fn shared(top: &std::path::Path) -> Arc<Shared> {
        let root = Root::open(top).unwrap();
        Arc::new(Shared::new(root, Vec::new(), (true, false), MINUTE, |_| {}))
    }

    pub(crate) fn record(
        method: &str,
        status: u16,
        disconnected_after: Option<Duration>,
    ) -> AccessRecord {
        AccessRecord {
            address: ([192, 0, 2, 1], 7).into(),
            name: None,
            method: method.to_owned(),
            path: "/".to_owned(),
            destination: None,
            bytes: None,
            status,
            left: None,
            disconnected_after,
        }
    }

    #[test]
    fn a_log_gets_sixty_refusals_and_sixty_disconnected_clients_a_minute_and_all_changes() {
        let top = tempfile::tempdir().unwrap();
        let (lines, seen) = std::sync::mpsc::channel();
        let report = move |record: AccessRecord| lines.send(record).unwrap();
        let root = Root::open(top.path()).unwrap();
        let shared = Shared::new(root, Vec::new(), (true, false), MINUTE, report);
        let after = Some(MINUTE);
        for _ in 0..100 {
            shared.report(record("GET", 401, None));
            shared.report(record("GET", 200, after));
            shared.report(record("PUT", 201, None));
        }
        let all: Vec<AccessRecord> = seen.try_iter().collect();
        let count = |is: fn(&AccessRecord) -> bool| all.iter().filter(|record| is(record)).count();
        assert_eq!(count(AccessRecord::is_refused), 60);
        assert_eq!(count(|record| record.disconnected_after.is_some()), 60);
        assert_eq!((count(AccessRecord::is_write), all.len()), (100, 220));
    }

    #[test]
    fn a_limit_allows_reports_again_after_a_minute() {
        let start = Instant::now();
        let mut minute = Minute::starting(start);
        let mut allowed = |at: Duration| (0..100).filter(|_| minute.allows(start + at)).count();
        let second = Duration::from_secs(1);
        assert_eq!([allowed(second), allowed(MINUTE), allowed(MINUTE + second)], [60, 0, 60]);
    }

    #[test]
    fn a_disconnected_client_and_a_move_with_an_effect_do_not_count_as_refused() {
        for status in [401, 403] {
            assert!(record("GET", status, None).is_refused());
            assert!(!record("GET", status, Some(MINUTE)).is_refused());
            let left = Some("hidden".to_owned());
            assert!(!AccessRecord { left, ..record("MOVE", status, None) }.is_refused());
        }
    }
}
