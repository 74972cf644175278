//! Accepts connections and limits them.
//!
//! A connection is closed if
//! - a TLS handshake or a request's header takes too long ([`HEAD`]), or a header is too long
//!   ([`HEADER`], [`FIELDS`]);
//! - the gateway waits too long for a client that neither receives nor sends ([`Serving::idle`]);
//! - there are too many connections. A new connection beyond the limit of its network
//!   ([`MOST_OF_ONE`]) closes the oldest idle connection of this network; idle means without a
//!   request. A new connection beyond [`MOST`] closes the oldest idle connection of the network
//!   that has the most connections, among the networks with an idle one. If there is no such
//!   connection, the new connection is closed.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::error::Error as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use longhaul_net::network::Network;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::{Notify, oneshot};
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::body::WorkBody;
use crate::error::Error;
use crate::patient::Patient;
use crate::reply::Reply;
use crate::shared::AccessRecord;
use crate::tokens::read_private;
use crate::traffic::Traffic;

/// Maximum number of concurrent connections.
const MOST: usize = 512;
/// Maximum number of concurrent connections from one network (an IPv4 address or an IPv6 /64).
/// Loopback does not have this limit.
const MOST_OF_ONE: usize = 64;
/// Timeout of a TLS handshake and of a request's header. The timeout also closes idle connections.
const HEAD: Duration = Duration::from_secs(20);
/// Maximum size of a header in bytes.
const HEADER: usize = 32 << 10;
/// Maximum number of fields in a header.
const FIELDS: usize = 100;

/// Loads certificates and key; refuses a key that others can read.
pub(crate) fn tls(cert: &Path, key: &Path) -> Result<TlsAcceptor, Error> {
    let wrong = |path: &Path, why: String| {
        let what = format!("{} cannot be used for TLS: {why}", path.display());
        Error::host(what, "name a certificate and its private key, both in PEM")
    };
    let certs =
        CertificateDer::pem_file_iter(cert).and_then(|all| all.collect::<Result<Vec<_>, _>>());
    let certs = certs.map_err(|error| wrong(cert, error.to_string()))?;
    let text = read_private(key)?;
    let private = PrivateKeyDer::from_pem_slice(text.as_bytes());
    let private = private.map_err(|error| wrong(key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certs, private));
    let mut config = config.map_err(|error| wrong(cert, error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[derive(Default)]
struct Places {
    next: Cell<u64>,
    /// The connections by age.
    taken: RefCell<BTreeMap<u64, Rc<Taken>>>,
    traffic: Arc<Traffic>,
}

struct Taken {
    network: Network,
    /// Each request in progress, and each write that waits for the client, has a clone.
    work: Arc<()>,
    leave: Notify,
}

/// Dropping this value releases the connection's place.
struct Place {
    places: Rc<Places>,
    number: u64,
    taken: Rc<Taken>,
}

impl Places {
    fn take(self: &Rc<Self>, address: IpAddr) -> Option<Place> {
        // A proxy on this host may serve many clients.
        let most = if address.to_canonical().is_loopback() { MOST } else { MOST_OF_ONE };
        let network = Network::of(address);
        let mut all = self.taken.borrow_mut();
        let mut counts = HashMap::new();
        for taken in all.values() {
            *counts.entry(taken.network).or_insert(0) += 1;
        }
        let is_own_full = counts.get(&network).is_some_and(|count| *count >= most);
        if is_own_full || all.len() >= MOST {
            let may_leave = |taken: &Taken| {
                let is_idle = Arc::strong_count(&taken.work) == 1;
                is_idle && (taken.network == network || !is_own_full)
            };
            let idle = all.iter().filter(|(_, taken)| may_leave(taken));
            let oldest =
                idle.max_by_key(|(number, taken)| (counts[&taken.network], Reverse(**number)));
            let number = oldest.map(|(number, _)| *number)?;
            if let Some(taken) = all.remove(&number) {
                taken.leave.notify_one();
            }
        }
        let number = self.next.replace(self.next.get() + 1);
        let taken = Rc::new(Taken { network, work: Arc::default(), leave: Notify::new() });
        all.insert(number, taken.clone());
        self.traffic.opened();
        Some(Place { places: self.clone(), number, taken })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.traffic.closed();
        self.places.taken.borrow_mut().remove(&self.number);
    }
}

#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) acceptor: Option<TlsAcceptor>,
    pub(crate) answers: Arc<dyn Answers>,
    /// Time limit of a client that neither receives nor sends a byte.
    pub(crate) idle: Duration,
    pub(crate) traffic: Arc<Traffic>,
}

pub(crate) trait Answers: Send + Sync + 'static {
    /// Answers a request from `address`. The reply may carry an [`AccessRecord`] for
    /// [`Answers::disconnected`].
    fn answer(
        self: Arc<Self>,
        address: SocketAddr,
        request: Request<Incoming>,
    ) -> Pin<Box<dyn Future<Output = Reply>>>;

    /// Called after the client was disconnected because it did not read the reply.
    fn disconnected(&self, _: AccessRecord) {}
}

pub(crate) fn run(
    listener: std::net::TcpListener,
    serving: Serving,
    stopped: oneshot::Receiver<()>,
) {
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
    let serve = async {
        let Ok(listener) = TcpListener::from_std(listener) else { return };
        let traffic = serving.traffic.clone();
        let places = Rc::new(Places { traffic, ..Places::default() });
        loop {
            let Ok((stream, address)) = listener.accept().await else {
                // Usually no file descriptor is free. Try again after a pause.
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            // Over the limit, and no connection may be closed for this one.
            let Some(place) = places.take(address.ip()) else { continue };
            let serving = serving.clone();
            tokio::task::spawn_local(async move {
                let taken = place.taken.clone();
                tokio::select! {
                    // A closed connection must not begin a request.
                    biased;
                    () = taken.leave.notified() => {}
                    () = connection(stream, address, serving, &taken.work) => {}
                }
                drop(place);
            });
        }
    };
    LocalSet::new().block_on(&runtime, async {
        tokio::select! {
            () = serve => {}
            _ = stopped => {}
        }
    });
    // Do not wait for threads. A thread that waits for a hanging disk must not keep the process
    // alive.
    runtime.shutdown_background();
}

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    Serving { acceptor, answers, idle, traffic }: Serving,
    work: &Arc<()>,
) {
    // Send small replies immediately. If the option fails, they are only delayed.
    let _ = stream.set_nodelay(true);
    let stream = Patient::new(stream, idle, traffic, Arc::downgrade(work));
    match acceptor {
        None => requests(stream, address, answers, work).await,
        Some(acceptor) => {
            if let Ok(Ok(stream)) = timeout(HEAD, acceptor.accept(stream)).await {
                requests(stream, address, answers, work).await;
            }
        }
    }
}

async fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    address: SocketAddr,
    answers: Arc<dyn Answers>,
    work: &Arc<()>,
) {
    let last = RefCell::new(None);
    let service = service_fn(|request| async {
        let work = work.clone();
        let mut reply = answers.clone().answer(address, request).await;
        last.replace(reply.extensions_mut().remove::<AccessRecord>());
        Ok::<_, Infallible>(reply.map(|body| WorkBody { body, _work: work }))
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    builder.max_buf_size(HEADER).max_headers(FIELDS);
    // Only an unread reply is reported. After any other error the client has left, sent no header
    // in time, or got hyper's answer to invalid HTTP, or the content of the reply failed.
    let ended = builder.serve_connection(TokioIo::new(stream), service).await;
    if ended.is_err_and(|error| is_unread(&error))
        && let Some(record) = last.take()
    {
        answers.disconnected(record);
    }
}

/// Returns whether [`Patient`] or the kernel ended the connection because the client received
/// nothing.
fn is_unread(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, Weak};

    use hyper::Response;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::body::Body;
    use crate::shared::tests::record;

    /// Answers each request with more bytes than the client reads. Records the status of the reply
    /// that a disconnected client did not read.
    #[derive(Default)]
    struct Large(Mutex<Vec<u16>>);

    impl Answers for Large {
        fn answer(
            self: Arc<Self>,
            _: SocketAddr,
            _: Request<Incoming>,
        ) -> Pin<Box<dyn Future<Output = Reply>>> {
            let mut reply = Response::new(Body::whole(vec![0; 1 << 20]));
            reply.extensions_mut().insert(record("GET", 200, None));
            Box::pin(async { reply })
        }

        fn disconnected(&self, record: AccessRecord) {
            self.0.lock().unwrap().push(record.status);
        }
    }

    /// Returns the statuses of the replies whose client was disconnected. The only client reads
    /// nothing; if `leaves`, the client closes the connection.
    fn disconnected(leaves: bool) -> Vec<u16> {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let (large, work) = (Arc::new(Large::default()), Arc::default());
        let serve = async {
            let (near, mut far) = duplex(1 << 10);
            far.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
            let _open = (!leaves).then_some(far);
            let near = Patient::new(near, Duration::from_millis(1), Arc::default(), Weak::new());
            let served = requests(near, ([127, 0, 0, 1], 1).into(), large.clone(), &work);
            timeout(Duration::from_secs(60), served).await.expect("it ends");
        };
        LocalSet::new().block_on(&runtime, serve);
        std::mem::take(&mut *large.0.lock().unwrap())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Takes a place for each address. If `is_busy`, each connection has a request.
    fn fill(
        places: &Rc<Places>,
        addresses: impl IntoIterator<Item = String>,
        is_busy: bool,
    ) -> Vec<(Place, Option<Arc<()>>)> {
        let take = |address: String| {
            let place = places.take(ip(&address))?;
            let work = is_busy.then(|| place.taken.work.clone());
            Some((place, work))
        };
        addresses.into_iter().map_while(take).collect()
    }

    /// Returns the numbers of the connections that were told to close.
    fn closed(filled: &[(Place, Option<Arc<()>>)]) -> Vec<usize> {
        let is_open = |place: &Place| place.places.taken.borrow().contains_key(&place.number);
        (0..filled.len()).filter(|number| !is_open(&filled[*number].0)).collect()
    }

    #[test]
    fn the_connections_of_an_ipv6_network_or_an_ipv4_address_are_limited_together() {
        let places = Rc::<Places>::default();
        let addresses = (0..MOST).map(|number| format!("2001:db8:1:2::{number:x}"));
        let network = fill(&places, addresses, true);
        let alone = fill(&places, (0..MOST).map(|_| "192.0.2.1".to_owned()), true);
        assert_eq!((network.len(), alone.len()), (MOST_OF_ONE, MOST_OF_ONE));
        assert!(places.take(ip("::ffff:192.0.2.1")).is_none());
        assert!(places.take(ip("2001:db8:1:3::1")).is_some());
        drop(network);
        assert!(places.take(ip("2001:db8:1:2::9")).is_some());
        drop(alone);
        let here = fill(&places, (0..MOST).map(|_| "::ffff:127.0.0.1".to_owned()), true);
        assert_eq!(here.len(), MOST);
    }

    #[test]
    fn a_newcomer_closes_the_oldest_idle_connection_and_never_one_with_a_request() {
        let places = Rc::<Places>::default();
        let busy = fill(&places, ["2001:db8:0:1::1".to_owned()], true);
        let address = |number: usize| format!("2001:db8:0:{:x}::1", 1 + number / MOST_OF_ONE);
        let idle = fill(&places, (1..MOST).map(address), false);
        assert_eq!((busy.len(), idle.len()), (1, MOST - 1));
        // A network at its own limit closes one of its own idle connections, never one with a
        // request.
        let own = places.take(ip("2001:db8:0:1::2")).expect("an own idle connection closes");
        assert_eq!((closed(&busy), closed(&idle)), (vec![], vec![0]));
        let other = places.take(ip("192.0.2.1")).expect("an idle connection closes");
        assert_eq!((closed(&busy), closed(&idle)), (vec![], vec![0, 1]));
        drop((own, other));
        assert!(places.take(ip("192.0.2.1")).is_some());
        assert_eq!(closed(&idle).len(), 2, "two places are free");
    }

    #[test]
    fn a_connection_is_busy_until_the_end_of_the_reply_fits_into_the_clients_buffer() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let (large, work) = (Arc::new(Large::default()), Arc::new(()));
        let is_idle = || Arc::strong_count(&work) == 1;
        let serve = async {
            let (near, mut far) = duplex(1 << 10);
            far.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
            let own = Duration::from_secs(60);
            let near = Patient::new(near, own, Arc::default(), Arc::downgrade(&work));
            let served = requests(near, ([127, 0, 0, 1], 1).into(), large.clone(), &work);
            let read = async {
                let mut all = vec![far.read_u8().await.unwrap()];
                assert!(!is_idle());
                while !all.ends_with(&[0; 1 << 20]) {
                    far.read_buf(&mut all).await.unwrap();
                }
                while !is_idle() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! { () = served => unreachable!("it is open"), () = read => {} }
        };
        LocalSet::new().block_on(&runtime, serve);
    }

    #[test]
    fn a_client_that_does_not_read_is_reported_as_disconnected_and_one_that_leaves_is_not() {
        assert_eq!((disconnected(false), disconnected(true)), (vec![200], Vec::new()));
    }
}
