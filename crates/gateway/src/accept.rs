//! Accepts connections and limits them.
//!
//! A connection is closed if
//! - a TLS handshake or a request's header takes too long ([`HEAD`]), or a header is too long
//!   ([`HEADER`], [`FIELDS`]);
//! - the gateway waits too long for a client that neither receives nor sends ([`Serving::idle`]);
//! - there are too many connections ([`MOST`], [`MOST_OF_ONE`]).

use std::cell::RefCell;
use std::collections::HashMap;
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
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::error::Error;
use crate::patient::Patient;
use crate::reply::Reply;
use crate::shared::AccessRecord;
use crate::tokens::read_private;
use crate::traffic::Traffic;

/// Maximum number of concurrent connections.
const MOST: usize = 512;
/// Maximum number of concurrent connections from one network other than loopback: one IPv4 address
/// or one IPv6 /64.
const MOST_OF_ONE: usize = 64;
/// Timeout of a TLS handshake and of a request's header. The timeout also closes idle connections.
const HEAD: Duration = Duration::from_secs(20);
/// Maximum size of a header in bytes.
const HEADER: usize = 32 << 10;
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

struct Places {
    taken: RefCell<HashMap<Network, usize>>,
    traffic: Arc<Traffic>,
}

/// Dropping this value releases the connection's place.
struct Place {
    places: Rc<Places>,
    network: Network,
}

impl Places {
    fn take(self: &Rc<Self>, address: IpAddr) -> Option<Place> {
        let mut taken = self.taken.borrow_mut();
        // A proxy on this host may serve many clients.
        let most = if address.to_canonical().is_loopback() { MOST } else { MOST_OF_ONE };
        let network = Network::of(address);
        let own = taken.get(&network).copied().unwrap_or(0);
        if own >= most || taken.values().sum::<usize>() >= MOST {
            return None;
        }
        taken.insert(network, own + 1);
        self.traffic.opened();
        Some(Place { places: self.clone(), network })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.traffic.closed();
        let mut taken = self.places.taken.borrow_mut();
        if let Some(own) = taken.get_mut(&self.network) {
            *own -= 1;
        }
        taken.retain(|_, own| *own > 0);
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
        let places = Rc::new(Places { taken: RefCell::default(), traffic });
        loop {
            let Ok((stream, address)) = listener.accept().await else {
                // Usually no file descriptor is free. Try again after a pause.
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            // Over the limit: the connection is closed.
            let Some(place) = places.take(address.ip()) else { continue };
            let serving = serving.clone();
            tokio::task::spawn_local(async move {
                connection(stream, address, serving).await;
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
) {
    // Send small replies immediately. If the option fails, they are only delayed.
    let _ = stream.set_nodelay(true);
    let stream = Patient::new(stream, idle, traffic);
    match acceptor {
        None => requests(stream, address, answers).await,
        Some(acceptor) => {
            if let Ok(Ok(stream)) = timeout(HEAD, acceptor.accept(stream)).await {
                requests(stream, address, answers).await;
            }
        }
    }
}

async fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    address: SocketAddr,
    answers: Arc<dyn Answers>,
) {
    let last = RefCell::new(None);
    let service = service_fn(|request| async {
        let mut reply = answers.clone().answer(address, request).await;
        last.replace(reply.extensions_mut().remove::<AccessRecord>());
        Ok::<_, Infallible>(reply)
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
    use std::sync::Mutex;

    use hyper::Response;
    use tokio::io::{AsyncWriteExt, duplex};

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

    /// Returns the statuses of the replies whose client was disconnected. The one client reads
    /// nothing; if `leaves`, the client closes the connection.
    fn disconnected(leaves: bool) -> Vec<u16> {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let large = Arc::new(Large::default());
        let work = async {
            let (near, mut far) = duplex(1 << 10);
            far.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
            let _open = (!leaves).then_some(far);
            let near = Patient::new(near, Duration::from_millis(1), Arc::default());
            let served = requests(near, ([127, 0, 0, 1], 1).into(), large.clone());
            timeout(Duration::from_secs(60), served).await.expect("it ends");
        };
        LocalSet::new().block_on(&runtime, work);
        std::mem::take(&mut *large.0.lock().unwrap())
    }

    #[test]
    fn the_connections_of_an_ipv6_network_or_an_ipv4_address_are_limited_together() {
        let places = Rc::new(Places { taken: RefCell::default(), traffic: Arc::default() });
        let ip = |text: String| text.parse::<IpAddr>().unwrap();
        let fill = |address: &dyn Fn(usize) -> IpAddr| {
            (0..MOST).map_while(|number| places.take(address(number))).collect::<Vec<_>>()
        };
        let network = fill(&|number| ip(format!("2001:db8:1:2::{number:x}")));
        let alone = fill(&|_| ip("192.0.2.1".to_owned()));
        assert_eq!((network.len(), alone.len()), (MOST_OF_ONE, MOST_OF_ONE));
        assert!(places.take(ip("::ffff:192.0.2.1".to_owned())).is_none());
        assert!(places.take(ip("2001:db8:1:3::1".to_owned())).is_some());
        drop(network);
        assert!(places.take(ip("2001:db8:1:2::9".to_owned())).is_some());
        drop(alone);
        assert_eq!(fill(&|_| ip("::ffff:127.0.0.1".to_owned())).len(), MOST);
    }

    #[test]
    fn a_client_that_does_not_read_is_disconnected_and_one_that_leaves_is_not() {
        assert_eq!((disconnected(false), disconnected(true)), (vec![200], Vec::new()));
    }
}
