//! Tests of the first flight: data that leave before the session is open.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use longhaul_net::clock;
use longhaul_net::port::{Port, PortHandle};
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::registry;
use longhaul_proto::remembered::Remembered;
use longhaul_proto::time::Span;
use longhaul_proto::units::{LossRatio, Rate};
use longhaul_proto::wire::header::{Header, Kind};
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

use super::Terms;
use super::flight::{Flight, FlightSecret};
use super::lies::source;
use super::prepared::{Description, prepare};
use super::sending::{FirstPass, SendingRole};
use super::turns::{Alone, receive_alone, terms};
use super::wire::{End, Wire};
use crate::control::{Frame, Message, Outcome, Plan};
use crate::counters::board::Board;
use crate::loopback::{LOOPBACKS, pair, run};
use crate::session::{Carriers, FrameReader, Session};
use crate::write::budget::{Budget, MessageCharge};
use longhaul_files::Place;
use longhaul_proto::units::Bytes;

const FLOW: FlowId = FlowId(9);

/// Terms with a protocol, over a path that an earlier copy measured.
fn base(session: &Session) -> Terms {
    let rate = Rate::from_mbps(400);
    let remembered = Remembered { rate, rtt: Span::from_millis(20), loss: LossRatio::NONE };
    let remembered = Some(remembered);
    Terms { protocol: registry::all().first(), remembered, ..terms(session) }
}

/// The terms of the two ends of a transfer that begins with a first flight.
fn both(near: &Session, far: &Session) -> (Terms, Terms) {
    let secret = FlightSecret::draw(FLOW);
    let told = FlightSecret::told(FLOW, &secret.tell());
    (Terms { flight: Some(secret), ..base(near) }, Terms { flight: told, ..base(far) })
}

fn start(
    terms: &Terms,
    to: SocketAddr,
    port: PortHandle,
    board: Arc<Board>,
) -> (tempfile::TempDir, Description, Flight) {
    let folder = tempfile::tempdir().unwrap();
    let (description, payloads) = prepare(source(&folder), false, false).unwrap();
    let charge = MessageCharge::alone();
    let flight = Flight::start(terms.clone(), &description, payloads, port, to, board, charge);
    (folder, description, flight.unwrap())
}

async fn send(
    session: Session,
    terms: Terms,
    port: PortHandle,
    to: SocketAddr,
    (description, first): (Description, FirstPass),
    board: Arc<Board>,
) -> Result<Outcome, End> {
    let (_stream_ends, streams) = mpsc::unbounded_channel();
    let mut wire = Wire::new(session, MessageCharge::alone());
    // A recalled flight gets another flow, as in a copy: the port may still know its first flow.
    let flow = terms.flight.as_ref().map_or(FlowId(10), |flight| flight.flow);
    let end = SendingRole {
        wire: &mut wire,
        terms,
        port,
        path: Some(to.into()),
        flow,
        board,
        streams,
        hooks: &Alone,
        decides: true,
        dry_run: false,
        surveyed: false,
    };
    let ended = end.run(description, first).await;
    wire.leave().await;
    ended
}

/// Copies a file by a first flight, which is recalled before the session if `is_recalled`.
async fn copy(is_recalled: bool) {
    let (near, far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
    let (from, to) = (port(), port());
    to.expect(LOOPBACKS[0]);
    let (mut terms, far_terms) = both(&near, &far);
    let address = to.socket().local_addr();
    let (folder, description, flight) = start(&terms, address, from.handle(), Arc::default());
    let first = match is_recalled {
        false => FirstPass::Flight(Box::new(flight)),
        true => {
            terms.flight = None;
            FirstPass::Payloads(flight.recall().await.expect("it has them"))
        }
    };
    let far_terms = Terms { flight: far_terms.flight.filter(|_| !is_recalled), ..far_terms };
    let budget = Budget::new(Bytes::mebi(64)).unwrap();
    let memory = Arc::new(budget.enter().await.expect("there is memory"));
    let (place, data) = (Place::Ambient(folder.path().join("copy")), to.handle());
    let receiving = spawn_local(async move {
        let mut wire = Wire::new(far, MessageCharge::alone());
        let ended = receive_alone(&mut wire, far_terms, data, memory, place).await;
        wire.close(None).await;
        ended.map(|received| received.outcome.files)
    });
    let first = (description, first);
    let sent = send(near, terms, from.handle(), address, first, Arc::default()).await;
    assert_eq!(sent.expect("it succeeds").files, 1);
    assert_eq!(receiving.await.expect("it ends").ok(), Some(1));
    let read = |name| std::fs::read(folder.path().join(name)).unwrap();
    assert!(read("copy") == read("source"));
}

fn port() -> Port {
    Port::bind((LOOPBACKS[0], 0).into()).unwrap()
}

async fn next(reader: &mut FrameReader) -> Message {
    loop {
        let frame = reader.read::<Frame>().await.expect("the session is open");
        if let Some(message) = frame.expect("it goes on").message {
            return message;
        }
    }
}

/// Returns the flows of the passes that a sender announces to a receiver whose plan accepts the
/// first flight, or refuses it without `takes_flight`.
async fn passes(takes_flight: bool) -> Vec<u32> {
    let (near, far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
    let (from, to) = (port(), port());
    let (terms, _) = both(&near, &far);
    let address = to.socket().local_addr();
    let (board, port) = (Arc::new(Board::default()), from.handle());
    let (_folder, description, flight) = start(&terms, address, port.clone(), board.clone());
    let first = (description, FirstPass::Flight(Box::new(flight)));
    let sending = spawn_local(async move { send(near, terms, port, address, first, board).await });
    let (mut writer, mut reader) = far.split();
    let plan = Plan { takes_flight, ..Plan::default() };
    let mut flows = Vec::new();
    while flows.len() < if takes_flight { 1 } else { 2 } {
        if let Message::Pass(pass) = next(&mut reader).await {
            flows.push(pass.flow);
            writer.write(&Frame::from(Message::Plan(plan.clone()))).await.unwrap();
        }
    }
    // Nothing else is announced before the end.
    writer.write(&Frame::from(Message::Outcome(Outcome::default()))).await.unwrap();
    assert!(sending.await.expect("it ends").is_ok());
    while let Ok(Some(Frame { message })) = reader.read::<Frame>().await {
        assert!(!matches!(message, Some(Message::Pass(_))));
    }
    flows
}

fn on_local_set(test: impl Future<Output = ()>) {
    run(async { LocalSet::new().run_until(test).await });
}

#[test]
fn a_first_flight_becomes_the_first_pass_and_a_recalled_one_is_sent_again() {
    on_local_set(async {
        copy(false).await;
        copy(true).await;
    });
}

#[test]
fn failed_files_of_a_recalled_flight_are_reported_again() {
    on_local_set(async {
        let (near, far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
        let (from, to) = (port(), port());
        let (terms, _) = both(&near, &far);
        let folder = tempfile::tempdir().unwrap();
        let (description, payloads) = prepare(source(&folder), false, false).unwrap();
        std::fs::remove_file(folder.path().join("source")).unwrap();
        let (board, charge) = (Arc::new(Board::default()), MessageCharge::alone());
        let address = to.socket().local_addr();
        let start =
            Flight::start(terms, &description, payloads, from.handle(), address, board, charge);
        let mut flight = start.unwrap();
        flight.failed().await;
        let mut payloads = flight.recall().await.unwrap();
        assert_eq!((payloads.new_failures().len(), payloads.new_failures().len()), (1, 0));
    });
}

#[test]
fn the_datagrams_of_a_recalled_flight_count_as_sent_but_not_as_the_start_of_the_data() {
    on_local_set(async {
        let (near, far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
        let recorder = UdpSocket::bind((LOOPBACKS[0], 0)).unwrap();
        recorder.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (from, board) = (port(), Arc::new(Board::default()));
        let (mut terms, _) = both(&near, &far);
        let address = recorder.local_addr().unwrap();
        let (_folder, description, flight) = start(&terms, address, from.handle(), board.clone());
        recorder.recv(&mut [0; 1 << 16]).expect("the flight leaves");
        let first = (description, FirstPass::Payloads(flight.recall().await.unwrap()));
        let sent = board.mine().sender.sent;
        assert!(sent > 0 && board.first_datagram().is_none());
        terms.flight = None;
        let (port, other) = (from.handle(), board.clone());
        let sending =
            spawn_local(async move { send(near, terms, port, address, first, other).await });
        let (mut writer, mut reader) = far.split();
        while !matches!(next(&mut reader).await, Message::Pass(_)) {}
        writer.write(&Frame::from(Message::Plan(Plan::default()))).await.unwrap();
        writer.write(&Frame::from(Message::Outcome(Outcome::default()))).await.unwrap();
        assert!(sending.await.expect("it ends").is_ok());
        assert!(board.mine().sender.sent >= sent);
    });
}

#[test]
fn a_flight_whose_messages_find_no_memory_ends_the_session() {
    on_local_set(async {
        let (near, far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
        let (from, to) = (port(), port());
        let (terms, _) = both(&near, &far);
        let address = to.socket().local_addr();
        let (_folder, _, flight) = start(&terms, address, from.handle(), Arc::default());
        assert!(!flight.has_lost_messages());
        flight.lose_messages();
        assert!(flight.has_lost_messages());
        let mut wire = Wire::new(near, MessageCharge::alone());
        let _adopted = flight.adopt(&wire).expect("it runs");
        let Err(End::Lost(why)) = wire.next().await else { panic!("the session goes on") };
        assert!(why.contains("MiB of messages"), "{why}");
    });
}

#[test]
fn a_receiver_that_takes_no_first_flight_gets_another_pass() {
    on_local_set(async {
        assert_eq!(passes(true).await, [FLOW.0]);
        let flows = passes(false).await;
        assert_eq!((flows[0], flows[1] == FLOW.0), (FLOW.0, false));
    });
}

#[test]
fn a_first_flight_can_be_read_only_with_the_secret_of_its_transfer() {
    on_local_set(async {
        let (near, far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
        let recorder = UdpSocket::bind((LOOPBACKS[0], 0)).unwrap();
        recorder.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let from = port();
        let (terms, told) = both(&near, &far);
        let address = recorder.local_addr().unwrap();
        let (_folder, _, flight) = start(&terms, address, from.handle(), Arc::default());
        let mut datagram = vec![0; 1 << 16];
        let header = loop {
            let len = recorder.recv(&mut datagram).expect("the flight leaves");
            datagram.truncate(len);
            let header = Header::decode(&datagram).expect("a header");
            if header.kind == Kind::Data {
                break header;
            }
            datagram.resize(1 << 16, 0);
        };
        let opens = |terms: &Terms| {
            let mut opener = terms.keys(FLOW).receiving_end().data;
            opener.open(clock::now(), &header, &datagram, &mut vec![0; 1 << 16]).is_ok()
        };
        assert!(opens(&told));
        // Later transfers have other secrets, even for the same flow.
        let (other, _) = both(&near, &far);
        assert!(!opens(&other), "another first flight");
        assert!(!opens(&base(&far)), "a transfer of the session without a first flight");
        assert!(FlightSecret::told(FLOW, &[7; 31]).is_none());
        drop(flight);
    });
}
