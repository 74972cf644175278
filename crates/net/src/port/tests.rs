//! Ports over loopback: delivery, wake-ups, drops, answers to probes, and flows that end or panic.

use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use longhaul_proto::endpoint::{FlowId, PacketNumber};
use longhaul_proto::time::{Span, Time};
use longhaul_proto::wire::header::{Header, Kind};

use crate::batch::{Batch, MAX_DATAGRAMS};
use crate::clock;
use crate::port::{Datagrams, FlowSink, Port};
use crate::sealing::keys::{FlowKeys, Suite};
use crate::sealing::open::Opener;
use crate::socket::{MESSAGES, Path, SendOutcome, Socket};

const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, PartialEq)]
enum Event {
    Batch(Vec<Vec<u8>>),
    Mail(u32),
    Woken,
    Closed,
}

struct Recorder {
    report: Sender<Event>,
    mail: Option<Receiver<u32>>,
    wakeup: Option<Time>,
}

impl FlowSink for Recorder {
    fn on_batch(&mut self, _: Time, datagrams: &mut Datagrams<'_>) {
        let payloads = datagrams.map(|d| d.bytes[Header::LEN..].to_vec()).collect();
        let _ = self.report.send(Event::Batch(payloads));
    }

    fn on_wake(&mut self, now: Time) {
        for message in self.mail.iter().flat_map(|mail| mail.try_iter()) {
            let _ = self.report.send(Event::Mail(message));
        }
        if self.wakeup.is_some_and(|time| time <= now) {
            self.wakeup = None;
            let _ = self.report.send(Event::Woken);
        }
    }

    fn next_wakeup(&self) -> Option<Time> {
        self.wakeup
    }

    fn on_port_closed(&mut self, _: &str) {
        let _ = self.report.send(Event::Closed);
    }
}

fn loopback() -> Socket {
    Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
}

fn port() -> Port {
    Port::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
}

fn path(port: &Port) -> Path {
    port.socket().local_addr().into()
}

fn recorder() -> (Box<Recorder>, Receiver<Event>) {
    let (report, events) = channel();
    (Box::new(Recorder { report, mail: None, wakeup: None }), events)
}

fn datagram(flow: u32, number: u64) -> Vec<u8> {
    let mut bytes = vec![number as u8; Header::LEN + 8];
    let number = PacketNumber(number);
    let header = Header { kind: Kind::Data, flow: FlowId(flow), number, block: 0 };
    header.encode(bytes.first_chunk_mut().unwrap());
    bytes
}

fn payloads(events: &Receiver<Event>, count: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while all.len() < count {
        match events.recv_timeout(PATIENCE) {
            Ok(Event::Batch(batch)) => all.extend(batch),
            other => panic!("{other:?} after {} of {count}", all.len()),
        }
    }
    all
}

fn seen(port: &Port, count: u64) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while port.statistics().received < count {
        assert!(std::time::Instant::now() < deadline, "{:?}", port.statistics());
        std::thread::yield_now();
    }
}

#[test]
fn each_flow_gets_its_own_datagrams_in_order() {
    let (port, sender) = (port(), loopback());
    let sinks: Vec<Receiver<Event>> = (0..3)
        .map(|flow| {
            let (sink, events) = recorder();
            port.register(FlowId(flow), sink).unwrap();
            events
        })
        .collect();
    let train: Vec<u8> = (0..30).flat_map(|n| datagram(n as u32 % 3, n)).collect();
    sender.send_train(path(&port), &train, Header::LEN + 8).unwrap();
    for (flow, events) in sinks.iter().enumerate() {
        let expected: Vec<Vec<u8>> = (0..10).map(|n| vec![n * 3 + flow as u8; 8]).collect();
        assert_eq!(payloads(events, 10), expected);
    }
    assert_eq!(port.statistics().received, 30);
}

#[test]
fn a_flow_id_is_registered_once() {
    let port = port();
    port.register(FlowId(1), recorder().0).unwrap();
    assert!(port.register(FlowId(1), recorder().0).is_err());
}

#[test]
fn datagrams_without_a_registered_flow_are_counted_as_foreign_and_dropped() {
    let (port, sender) = (port(), loopback());
    sender.send(path(&port), &datagram(1, 1)).unwrap();
    sender.send(path(&port), b"short").unwrap();
    sender.send(path(&port), &[0xff; 600]).unwrap();
    seen(&port, 3);
    let (sink, events) = recorder();
    port.register(FlowId(1), sink).unwrap();
    sender.send(path(&port), &datagram(1, 2)).unwrap();
    assert_eq!(payloads(&events, 1), [[2; 8]]);
    assert_eq!(port.statistics().foreign, 3);
}

#[test]
fn first_datagrams_wait_for_their_flow() {
    let (port, sender) = (port(), loopback());
    port.expect(Ipv4Addr::LOCALHOST.into());
    // The command `expect` and the datagrams race. The port processes commands in order: when flow
    // 10, registered after `expect`, reports its message, the port has processed `expect`.
    let (probe, events) = recorder();
    port.register(FlowId(9), probe).unwrap();
    let (mailbox, mail) = port.mailbox(FlowId(10));
    let (mut second, second_events) = recorder();
    second.mail = Some(mail);
    port.register(FlowId(10), second).unwrap();
    assert!(mailbox.post(5));
    assert_eq!(second_events.recv_timeout(PATIENCE), Ok(Event::Mail(5)));
    for n in 0..5 {
        sender.send(path(&port), &datagram(1, n)).unwrap();
    }
    sender.send(path(&port), &datagram(9, 0)).unwrap();
    assert_eq!(payloads(&events, 1).len(), 1);
    let (sink, events) = recorder();
    port.register(FlowId(1), sink).unwrap();
    let expected: Vec<Vec<u8>> = (0..5).map(|n| vec![n; 8]).collect();
    assert_eq!(payloads(&events, 5), expected);
    assert_eq!(port.statistics().held, 5);
}

#[test]
fn a_wakeup_happens_and_is_not_early() {
    let port = port();
    let (mut sink, events) = recorder();
    let due = clock::now() + Span::from_millis(20);
    sink.wakeup = Some(due);
    port.register(FlowId(1), sink).unwrap();
    assert_eq!(events.recv_timeout(PATIENCE), Ok(Event::Woken));
    assert!(clock::now() >= due);
}

#[test]
fn closing_a_port_informs_its_flows_and_a_later_registration_gets_the_reason() {
    let port = port();
    let (sink, events) = recorder();
    port.register(FlowId(1), sink).unwrap();
    let handle = port.handle();
    drop(port);
    assert_eq!(events.recv_timeout(PATIENCE), Ok(Event::Closed));
    assert!(handle.is_closed());
    let late = handle.register(FlowId(2), recorder().0).unwrap_err();
    assert!(late.what.ends_with("the port has closed: the port was closed"), "{}", late.what);
}

struct Opening {
    opener: Opener,
    report: Sender<(u64, Vec<u8>)>,
    left: usize,
}

impl FlowSink for Opening {
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>) {
        for datagram in datagrams {
            let mut out = vec![0; datagram.bytes.len()];
            let opened = self.opener.open(now, &datagram.header, datagram.bytes, &mut out);
            if let Ok(len) = opened {
                out.truncate(len);
                self.left -= 1;
                let _ = self.report.send((datagram.header.block, out));
            }
        }
    }

    fn on_wake(&mut self, _: Time) {}

    fn next_wakeup(&self) -> Option<Time> {
        None
    }

    fn is_closed(&self) -> bool {
        self.left == 0
    }

    fn on_port_closed(&mut self, _: &str) {}
}

#[test]
fn sealed_batches_arrive_opened_and_a_closed_flow_is_forgotten() {
    for suite in [Suite::Aes128Gcm, Suite::Plain] {
        let (port, socket) = (port(), loopback());
        let keys = || FlowKeys::new(&[1; 32], suite, 1, FlowId(4));
        let mut sealer = keys().sending_end().data;
        let (report, events) = channel();
        let opener = keys().receiving_end().data;
        let sink = Opening { opener, report, left: 100 };
        port.register(FlowId(4), Box::new(sink)).unwrap();
        let mut batch = Batch::new(1472);
        assert_eq!(batch.capacity(), MAX_DATAGRAMS);
        let payload = vec![6; 1472 - sealer.overhead()];
        for block in 0..100u64 {
            let len = if block == 50 { 10 } else { payload.len() };
            batch.push(&mut sealer, Kind::Data, block, &payload[..len]).unwrap();
            if batch.room() == 0 || block == 99 {
                assert!(matches!(batch.send(&socket, path(&port)), Ok(SendOutcome::Sent)));
                assert!(batch.is_empty());
            }
        }
        let blocks: Vec<(u64, Vec<u8>)> =
            (0..100).map(|_| events.recv_timeout(PATIENCE).unwrap()).collect();
        assert!(blocks.iter().map(|(block, _)| *block).eq(0..100));
        assert_eq!(blocks[50].1.len(), 10);
        assert_eq!(blocks[51].1, payload);
        // Dropping the sink drops the sender of the channel.
        assert_eq!(events.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
        let (again, _) = recorder();
        port.register(FlowId(4), again).unwrap();
    }
}

#[test]
fn a_flood_is_counted_and_stops_no_flow() {
    let (port, socket, stranger) = (port(), loopback(), loopback());
    let keys = || FlowKeys::new(&[1; 32], Suite::Aes128Gcm, 1, FlowId(4));
    let mut sealer = keys().sending_end().data;
    let (report, events) = channel();
    let opener = keys().receiving_end().data;
    port.register(FlowId(4), Box::new(Opening { opener, report, left: 1000 })).unwrap();
    let mut genuine = vec![0; 100];
    let mut sent = 0;
    for block in 0..1000u64 {
        // Forged datagrams of a known flow and of unknown flows; then a short one, and a replay of
        // the last genuine one (at first 100 zero bytes).
        for n in 0..8u64 {
            let mut forged = datagram([4, n as u32 * 7919][n as usize % 2], block * 8 + n);
            forged.resize(24 + (n as usize * 37) % 200, n as u8);
            stranger.send(path(&port), &forged).unwrap();
        }
        stranger.send(path(&port), &[block as u8; 11]).unwrap();
        stranger.send(path(&port), &genuine).unwrap();
        sealer.seal(Kind::Data, block, &[1; 68], &mut genuine).unwrap();
        socket.send(path(&port), &genuine).unwrap();
        sent += 11;
        if block % 50 == 49 {
            seen(&port, sent); // Prevents an overflow of the socket buffer.
        }
    }
    let blocks: Vec<u64> = (0..1000).map(|_| events.recv_timeout(PATIENCE).unwrap().0).collect();
    assert!(blocks.into_iter().eq(0..1000));
    let statistics = port.statistics();
    assert_eq!(statistics.received, sent);
    assert!(statistics.foreign >= 5 * 1000);
}

#[test]
fn an_answered_probe_is_counted() {
    let (port, socket) = (port(), loopback());
    let mut probe = vec![0; 1200];
    let header =
        Header { kind: Kind::Probe, flow: FlowId(0x1234_5678), number: PacketNumber(0), block: 42 };
    header.encode(probe.first_chunk_mut().unwrap());
    socket.send(path(&port), &probe).unwrap();
    seen(&port, 1);
    assert_eq!(port.statistics().probes, 1);
}

#[test]
fn a_strangers_probes_do_not_use_up_the_answers_of_others() {
    let port = port();
    let socket_at = |address: [u8; 4]| {
        std::net::UdpSocket::bind((std::net::Ipv4Addr::from(address), 0)).unwrap()
    };
    let (stranger, client) = (socket_at([127, 0, 0, 2]), socket_at([127, 0, 0, 3]));
    let mut probe = [0; 100];
    let header = Header { kind: Kind::Probe, flow: FlowId(1), number: PacketNumber(0), block: 42 };
    header.encode(probe.first_chunk_mut().unwrap());
    let to = port.socket().local_addr();
    for n in 1..=2_000 {
        stranger.send_to(&probe, to).unwrap();
        if n % 50 == 0 {
            seen(&port, n); // Prevents an overflow of the socket buffer.
        }
    }
    let answered = port.statistics().probes;
    assert!(answered < 2_000, "a stranger has a limit too: {answered}");
    client.send_to(&probe, to).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(client.recv(&mut [0; 100]).unwrap(), Header::LEN + 2);
}

struct Faulty {
    report: Sender<Event>,
}

impl FlowSink for Faulty {
    fn on_batch(&mut self, _: Time, _: &mut Datagrams<'_>) {
        panic!("a fault on purpose");
    }

    fn on_wake(&mut self, _: Time) {}

    fn next_wakeup(&self) -> Option<Time> {
        None
    }

    fn on_port_closed(&mut self, _: &str) {
        let _ = self.report.send(Event::Closed);
    }
}

#[test]
fn a_sink_that_panics_is_closed_and_the_others_continue() {
    let (port, sender) = (port(), loopback());
    let (report, fault) = channel();
    port.register(FlowId(1), Box::new(Faulty { report })).unwrap();
    let (sink, events) = recorder();
    port.register(FlowId(2), sink).unwrap();
    sender.send(path(&port), &datagram(1, 0)).unwrap();
    assert_eq!(fault.recv_timeout(PATIENCE), Ok(Event::Closed));
    sender.send(path(&port), &datagram(2, 5)).unwrap();
    assert_eq!(payloads(&events, 1), [vec![5; 8]]);
    assert!(!port.is_closed());
    let (sink, _events) = recorder();
    port.register(FlowId(1), sink).unwrap();
}

/// A sink that is busy with its first batch until it may continue.
struct Busy {
    report: Sender<Call>,
    go_on: Option<Receiver<()>>,
}

#[derive(Debug)]
enum Call {
    /// This many datagrams, with the time of the last one and the time of the call.
    Batch(usize, Time, Time),
    /// A wake-up, with the time of the call.
    Wake(Time),
}

impl FlowSink for Busy {
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>) {
        let came: Vec<Time> = datagrams.map(|datagram| datagram.at).collect();
        let newest = came.iter().max().copied().unwrap();
        let _ = self.report.send(Call::Batch(came.len(), newest, now));
        if let Some(go_on) = self.go_on.take() {
            let _ = go_on.recv_timeout(PATIENCE);
        }
    }

    fn on_wake(&mut self, now: Time) {
        let _ = self.report.send(Call::Wake(now));
    }

    fn next_wakeup(&self) -> Option<Time> {
        None
    }

    fn on_port_closed(&mut self, _: &str) {}
}

#[test]
fn datagrams_are_delivered_with_their_arrival_time_and_before_an_earlier_wakeup() {
    let (port, sender) = (port(), loopback());
    let ((report, events), (go, go_on)) = (channel(), channel());
    port.register(FlowId(1), Box::new(Busy { report, go_on: Some(go_on) })).unwrap();
    let next = || events.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(next(), Call::Wake(_)), "a flow is woken when it is registered");
    sender.send(path(&port), &datagram(1, 0)).unwrap();
    assert!(matches!(next(), Call::Batch(1, ..)));
    // The flow keeps the port's thread busy while the wake-up and then the datagrams arrive.
    port.handle().wake(FlowId(1));
    let count = 3 * MESSAGES + 1;
    for number in 1..=count as u64 {
        sender.send(path(&port), &datagram(1, number)).unwrap();
    }
    let sent = clock::now();
    go.send(()).unwrap();
    let (mut came, mut newest) = (0, Time::ZERO);
    while came < count {
        let Call::Batch(datagrams, last, as_of) = next() else { panic!("wake after {came}") };
        came += datagrams;
        // While datagrams are unread, the time of a call is at most the time when the last of all
        // datagrams was sent.
        assert!(as_of >= last && (came == count || as_of <= sent), "{as_of:?}, sent by {sent:?}");
        newest = last;
    }
    let Call::Wake(as_of) = next() else { panic!("more came than was sent") };
    assert!(as_of >= newest);
}
