//! Sessions on loopback, for tests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::session::trust::{Trust, ask_nobody};
use crate::session::{Carriers, Identity, Listener, Session, Settings, connect};

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

pub(crate) async fn pair(carriers: Carriers, ip: IpAddr) -> (Session, Session) {
    let settings = |carriers| Settings { carriers, handshake: LONG, ..Settings::default() };
    let server = Identity::generate();
    let mut listener =
        Listener::bind(SocketAddr::new(ip, 0), &server, &settings(Carriers::Both)).unwrap();
    let nowhere = Trust { config_dir: "/".into(), pins: Vec::new(), accept_new: false };
    let (trust, port) = (nowhere.only(server.id().to_string()), listener.local_addr().port());
    let (client, host) = (Identity::generate(), ip.to_string());
    let settings = settings(carriers);
    let connecting = connect(&host, port, &client, &trust, &ask_nobody, &settings);
    let mut near = connecting.await.expect("a server that listens");
    near.write(&"first".to_owned()).await.expect("an open session");
    let mut far = listener.accept().await;
    let first: Option<String> = far.read().await.expect("a message");
    assert_eq!(first.as_deref(), Some("first"));
    (near, far)
}
