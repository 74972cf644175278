//! A measured flow over loopback, and attacks on it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longhaul_net::clock;
use longhaul_net::port::Port;
use longhaul_net::sealing::keys::{FlowKeys, Suite};
use longhaul_net::sealing::seal::SEALED_OVERHEAD;
use longhaul_net::socket::Path;
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;
use longhaul_proto::wire::header::Kind;

use super::blast::Blast;
use super::count::Counter;
use super::echo::{Asking, Echo, QUESTIONS};
use super::server::{self, Permits};
use crate::control::{Frame, Message, Probe, ProbeRun};
use crate::loopback::pair;
use crate::session::Carriers;

const FLOW: FlowId = FlowId(9);
const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

fn port(ip: IpAddr) -> Port {
    Port::bind(SocketAddr::new(ip, 0)).expect("a free port")
}

fn keys(secret: u8) -> FlowKeys {
    FlowKeys::new(&[secret; 32], Suite::Aes128Gcm, 1, FLOW)
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

fn blast(from: &Port, to: &Port, secret: u8) -> Blast {
    Blast {
        socket: from.socket().clone(),
        path: Path::from(to.socket().local_addr()),
        sealer: keys(secret).sending_end().data,
        datagram: 1_000,
        rate: Rate::from_mbps(10),
        span: Span::from_millis(100),
    }
}

#[test]
fn all_datagrams_over_a_lossless_path_are_counted() {
    let (from, to) = (port(HOME), port(HOME));
    for copies in [false, true] {
        run(async {
            let opener = keys(1).receiving_end().data;
            let counter = Counter::start(&to, FLOW, opener, copies).await.expect("a free flow");
            let blasted = blast(&from, &to, 1).start().expect("a thread").ended().await;
            let sent = blasted.expect("it ends").sent;
            // At most 10 Mbit/s for 100 ms, which is 125 datagrams of 1,000 bytes, and a burst. A
            // slow machine sends fewer.
            assert!((1..=140).contains(&sent), "{sent}");
            let count = counter.finish(sent, Span::from_millis(100), Duration::ZERO).await;
            assert_eq!((count.sent, count.received, count.bytes), (sent, sent, sent * 1_000));
            assert_eq!((count.reordered, count.socket_lost), (0, 0));
            assert!(count.rate_bps > 0);
        });
    }
}

#[test]
fn forged_datagrams_are_not_counted() {
    let (from, to) = (port(HOME), port(HOME));
    run(async {
        let opener = keys(1).receiving_end().data;
        let counter = Counter::start(&to, FLOW, opener, false).await.expect("a free flow");
        let sent = blast(&from, &to, 2).start().expect("a thread").ended().await;
        let sent = sent.expect("it ends").sent;
        let count = counter.finish(sent, Span::from_millis(100), Duration::ZERO).await;
        assert_eq!((count.received, count.bytes, count.rate_bps), (0, 0, 0));
    });
}

/// Returns a port that answers questions from 127.0.0.1, and the cell for its client's address.
fn echoing() -> (Port, Arc<OnceLock<Path>>) {
    let server = port(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let (path, ends) = (Arc::new(OnceLock::new()), keys(1).sending_end());
    let echo = Echo {
        questions: ends.reports,
        answers: ends.control,
        peer: HOME,
        socket: server.socket().clone(),
        path: path.clone(),
    };
    server.register(FLOW, Box::new(echo)).expect("a free flow");
    (server, path)
}

#[test]
fn questions_are_answered_and_show_their_senders_address() {
    let (server, path) = echoing();
    let client = port(HOME);
    let to = SocketAddr::new(HOME, server.socket().local_addr().port());
    let (ends, socket) = (keys(1).receiving_end(), client.socket().clone());
    let (asking, trips) =
        Asking::new(clock::now(), ends.reports, ends.control, socket, Path::from(to));
    client.register(FLOW, Box::new(asking)).expect("a free flow");
    let trips = run(trips).expect("the port lives");
    assert_eq!(trips.iter().flatten().count(), QUESTIONS);
    let learned = path.get().expect("a genuine question came").remote;
    assert_eq!(learned, client.socket().local_addr());
}

#[test]
fn neither_forged_questions_nor_those_from_another_address_are_answered() {
    let (server, path) = echoing();
    let port = server.socket().local_addr().port();
    let ask = |ip: IpAddr, secret: u8, number: u64| {
        let socket = std::net::UdpSocket::bind((ip, 0)).expect("a free port");
        let mut question = [0; 8 + SEALED_OVERHEAD];
        let mut sealer = keys(secret).receiving_end().reports;
        // Use different numbers, so that datagrams are not dropped as replays.
        for _ in 0..=number {
            sealer.seal(Kind::Control, 0, &[7; 8], &mut question).expect("room");
        }
        socket.send_to(&question, (HOME, port)).expect("loopback takes it");
        socket
    };
    let strangers = [ask(HOME, 2, 0), ask(ELSEWHERE, 1, 1)];
    // The genuine datagram is answered last, so earlier answers would have arrived.
    let client = ask(HOME, 1, 2);
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("an option");
    client.recv(&mut [0; 100]).expect("the genuine one is answered");
    for stranger in strangers {
        stranger.set_nonblocking(true).expect("an option");
        assert!(stranger.recv(&mut [0; 100]).is_err(), "a stranger was answered");
    }
    assert_eq!(path.get().map(|path| path.remote), client.local_addr().ok());
}

#[test]
fn a_flow_in_use_is_refused_to_a_probe_and_keeps_its_owner() {
    // First the probe's own flow is in use, then the flow of a measurement.
    for (echo, measured) in [(FLOW, None), (FlowId(10), Some(FLOW))] {
        let (from, to) = (port(HOME), port(HOME));
        run(async {
            let opener = keys(1).receiving_end().data;
            let counter = Counter::start(&to, FLOW, opener, false).await.expect("a free flow");
            let (mut near, far) = pair(Carriers::Quic, HOME).await;
            let probe = Probe { probe: 5, flow: echo.0, cipher: "aes-128-gcm".into() };
            let permits = Permits::default();
            let asking = async {
                if let Some(flow) = measured {
                    near.read::<Frame>().await.expect("the server is ready");
                    let run = ProbeRun { flow: flow.0, up: true, ..run_of(1_000) };
                    near.write(&Frame::from(Message::ProbeRun(run))).await.expect("it is open");
                }
                near.read::<Frame>().await.expect_err("it is refused")
            };
            let answering = server::answer(&to, &permits, far, &probe, std::future::pending());
            let (error, ended) = tokio::join!(asking, answering);
            assert!(error.what.contains("the flow id is in use"), "{error}");
            assert!(error.what.ends_with(&ended.unwrap_err().what), "{error}");
            let blasted = blast(&from, &to, 1).start().expect("a thread").ended().await;
            let sent = blasted.expect("it ends").sent;
            let count = counter.finish(sent, Span::from_millis(100), Duration::ZERO).await;
            assert_eq!((count.sent, count.received), (sent, sent));
        });
    }
}

fn run_of(micros: u64) -> ProbeRun {
    ProbeRun { rate_bps: 1_000_000, micros, datagram: 1_000, ..ProbeRun::default() }
}
