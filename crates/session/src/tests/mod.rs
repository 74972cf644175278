//! Sessions over real sockets on loopback.

mod admission;
mod carriers;
mod foreign;
mod lossy;
mod ssh;
mod streams;
mod trust;

use std::net::Ipv6Addr;
use std::sync::Mutex;
use std::time::Duration;

use tempfile::TempDir;

use super::trust::Trust;
use super::*;
use crate::Kind;

/// Timeout; long because machines under load are slow.
const LONG: Duration = Duration::from_secs(20);

pub(crate) const LOOPBACKS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime for the test");
    runtime.block_on(async {
        tokio::time::timeout(LONG * 2, test).await.expect("the test ends in time");
    });
}

/// A user who is asked to trust a new server.
#[derive(Default)]
struct User {
    trusts: bool,
    asked: Mutex<Vec<String>>,
}

impl User {
    fn who(trusts: bool) -> User {
        User { trusts, ..User::default() }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic while asked").clone()
    }
}

impl User {
    fn ask(&self, server: &str, id: &str) -> bool {
        self.asked.lock().expect("no panic while asked").push(format!("{server} {id}"));
        self.trusts
    }
}

struct Client {
    identity: Identity,
    trust: Trust,
    settings: Settings,
    folder: TempDir,
}

impl Client {
    fn new(carriers: Carriers) -> Client {
        let folder = tempfile::tempdir().expect("a folder for the test");
        Client {
            identity: Identity::load_or_create(folder.path()).expect("a new key"),
            trust: Trust {
                config_dir: folder.path().to_owned(),
                pins: Vec::new(),
                accept_new: false,
            },
            settings: settings(carriers),
            folder,
        }
    }

    fn pinned(carriers: Carriers, server: &Identity) -> Client {
        let mut client = Client::new(carriers);
        client.trust = client.trust.only(server.id().to_string());
        client
    }

    async fn connect_as(&self, user: &User, to: SocketAddr) -> Result<Session, Error> {
        let host = to.ip().to_string();
        let ask = |server: &str, id: &str| user.ask(server, id);
        connect(&host, to.port(), &self.identity, &self.trust, &ask, &self.settings).await
    }

    async fn connect(&self, to: SocketAddr) -> Result<Session, Error> {
        self.connect_as(&User::default(), to).await
    }
}

fn settings(carriers: Carriers) -> Settings {
    Settings { carriers, handshake: LONG, ..Settings::default() }
}

fn listen(ip: IpAddr, identity: &Identity) -> Listener {
    Listener::bind(SocketAddr::new(ip, 0), identity, &settings(Carriers::Both))
        .expect("loopback can be listened on")
}

/// Returns both ends of one session.
pub(crate) async fn pair(carriers: Carriers, ip: IpAddr) -> (Session, Session) {
    let server = Identity::generate();
    let mut listener = listen(ip, &server);
    let client = Client::pinned(carriers, &server);
    let mut near = client.connect(listener.local_addr()).await.expect("a server that listens");
    near.write(&"first".to_owned()).await.expect("an open session");
    let mut far = listener.accept().await;
    let first: Option<String> = far.read().await.expect("a message");
    assert_eq!(first.as_deref(), Some("first"));
    (near, far)
}

#[test]
fn the_first_message_of_a_stream_names_its_service() {
    run(async {
        let (near, far) = tokio::io::duplex(1 << 10);
        let (near_in, near_out) = tokio::io::split(near);
        let (far_in, far_out) = tokio::io::split(far);
        let mut near = Session::over(PeerId([1; 32]), near_in, near_out);
        let mut far = Session::over(PeerId([2; 32]), far_in, far_out);
        near.ask_for("lists", 3);
        assert_eq!(far.asked(), ("", 0));
        near.write(&7u32).await.expect("open");
        assert_eq!(far.first::<u32>().await, Ok(Some(7)));
        assert_eq!(far.asked(), ("lists", 3));
    });
}

#[test]
fn a_choice_of_carriers_enables_quic_or_tcp_or_both() {
    let has = |carriers: Carriers| (carriers.quic(), carriers.tcp());
    assert_eq!(has(Carriers::Both), (true, true));
    assert_eq!(has(Carriers::Quic), (true, false));
    assert_eq!(has(Carriers::Tcp), (false, true));
}

#[test]
fn the_limit_of_waiting_clients_is_a_quarter_of_the_file_descriptors_but_at_most_1024() {
    for (descriptors, clients) in
        [(0, 0), (3, 0), (4, 1), (7, 1), (400, 100), (4095, 1023), (4096, 1024), (1 << 20, 1024)]
    {
        assert_eq!(crate::waiting(Some(descriptors)), clients, "{descriptors}");
    }
    assert_eq!(crate::waiting(None), 1024);
}

#[test]
fn a_session_and_an_rtt_watch_are_printed_without_secrets() {
    let peer = PeerId([4; 32]);
    let session = Session::over(peer, tokio::io::empty(), tokio::io::sink());
    assert_eq!(format!("{session:?}"), format!("Session(tls with {peer} at 127.0.0.1:9)"));
    let rtt = RttWatch::once(Some(Duration::from_millis(3)));
    assert_eq!(rtt.now(), Some(Duration::from_millis(3)));
    assert_eq!(format!("{rtt:?}"), "RttWatch(Some(3ms))");
}
