//! Faults of streams and channels.

use std::cell::Cell;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_net::sealing::keys::{FlowKeys, Suite};
use longhaul_net::sealing::seal::Sealer;
use longhaul_proto::channel::{Code, Cutter, Message, encode};
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::stream::Head;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::wire::header::Kind;
use longhaul_stream::channel::messages::{ChannelAsk, ChannelAsked, ChannelTell, Publish};
use longhaul_stream::messages::{Ask, Asked, Send, Tell, Told};
use longhaul_transfer::session::Session;
use rustix::process::Signal;
use serde_json::Value;

use super::liar::{block_on, meet};
use super::relay::Relay;
use super::rooms::{Speaker, hears, texts};
use super::service_faults::{Fault, OUTAGE};
use crate::rig::{Child, Ended, Pair, bytes, side_by_side};

/// The client behind the relay. Every fault except `FrozenServer` affects this client.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    Sender,
    Receiver,
}

/// Carries the session of the client behind the relay: QUIC, or four TCP connections if the relay
/// blocks QUIC.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Carrier {
    Quic,
    Tcp,
}

struct Far {
    pair: Pair,
    relay: Relay,
}

impl Far {
    fn new(rights: &str) -> Far {
        let pair = Pair::of_services(rights);
        let relay = Relay::new(&pair.server);
        Far { pair, relay }
    }

    /// Starts `longhaul WORDS` for `lab/x`, through the relay if `is_far`.
    fn start(&self, is_far: bool, words: &[&str]) -> Child {
        Child::spawn(&mut self.command(is_far, words))
    }

    fn command(&self, is_far: bool, words: &[&str]) -> std::process::Command {
        let id = format!("--server-id={}", self.pair.server.id);
        let near = self.pair.server.address.clone();
        let address = if is_far { self.relay.address().to_string() } else { near };
        let url = format!("lh://{address}/lab/x");
        self.pair.client.command([words, &["--json", &id, &url]].concat())
    }
}

/// Asserts that each frame was delivered once or reported as missed, in order. Also asserts that
/// each delay is below half the outage, so no frame from before the fault arrived after it.
fn assert_no_old_frame(came: &Ended, case: (Fault, Of)) {
    let number = |event: &Value, field: &str| event[field].as_u64().expect("a number");
    let mut next = None;
    for line in &came.stdout {
        let event: Value = serde_json::from_str(line).expect("an event");
        let (first, last) = match event["event"].as_str() {
            Some("frame") => (number(&event, "number"), number(&event, "number")),
            Some("missed") => (number(&event, "first"), number(&event, "last")),
            _ => continue,
        };
        assert!(next.is_none_or(|next| next == first), "{case:?}: {event} instead of {next:?}");
        next = Some(last + 1);
        let delay = event["delay_seconds"].as_f64().unwrap_or(0.0);
        assert!(delay < OUTAGE.as_secs_f64() / 2.0, "{case:?}: {event}");
    }
    assert_eq!(came.events("begun").len(), 1, "{case:?}");
    assert_eq!(came.events("summary")[0]["wrong"], 0, "{case:?}");
}

fn stream_continues((fault, of): (Fault, Of)) {
    let mut far = Far::new("stream=rw");
    let server = far.pair.server.child().id();
    let mut other = far.start(false, &["stream", "receive", "--check"]);
    let mut receiver = far.start(of == Of::Receiver, &["stream", "receive", "--check"]);
    let words = ["stream", "send", "--test-pattern", "--frame=20000", "--fps=50", "--deadline=5s"];
    let mut sender = far.start(of == Of::Sender, &[&words[..], &["--receivers=2"]].concat());
    let reaches = |child: &mut Child, number: u64| {
        child.event(|event| event["event"] == "frame" && event["number"].as_u64() > Some(number));
    };
    reaches(&mut receiver, 20);
    let client = if of == Of::Sender { sender.id() } else { receiver.id() };
    fault.begin(&far.relay, server, client)();
    let ended = Instant::now();
    // A report that is read within two seconds after the fault may have been written during it.
    let is_new =
        |event: &Value| event["event"] == "progress" && ended.elapsed() > Duration::from_secs(2);
    let sent = sender.event(is_new)["frames"].as_u64().expect("a number");
    reaches(&mut receiver, sent + 50);
    reaches(&mut other, sent + 50);
    drop(sender.kill());
    for child in [&receiver, &other] {
        child.signal(Signal::INT);
    }
    assert_no_old_frame(&receiver.end(), (fault, of));
    let other = other.end();
    assert_no_old_frame(&other, (fault, of));
    if of == Of::Receiver {
        let summary = &other.events("summary")[0];
        assert_eq!((&summary["missed"], &summary["withheld"]), (&0.into(), &0.into()), "{fault:?}");
    }
}

#[test]
fn a_stream_survives_20_s_without_network_or_peer_and_delivers_no_old_frame() {
    let cases = [
        (Fault::Cut, Of::Sender),
        (Fault::Cut, Of::Receiver),
        (Fault::FrozenServer, Of::Sender),
        (Fault::FrozenClient, Of::Sender),
        (Fault::FrozenClient, Of::Receiver),
    ];
    side_by_side(cases, stream_continues);
}

#[test]
fn a_sender_whose_frames_end_during_an_outage_succeeds_when_the_network_is_back() {
    let far = Far::new("stream=rw");
    let mut receiver = far.start(false, &["stream", "receive"]);
    let words = ["stream", "send", "--test-pattern", "--frame=1000", "--fps=50", "--frames=100"];
    let sender = far.start(true, &[&words[..], &["--deadline=5s", "--receivers=1"]].concat());
    receiver.event(|event| event["event"] == "frame" && event["number"].as_u64() > Some(20));
    Fault::Cut.begin(&far.relay, 0, 0)();
    sender.end().is(0, &[]);
    receiver.end().is(0, &[]);
}

fn channel_continues((mode, carrier, fault, of): (&str, Carrier, Fault, Of)) {
    let mut far = Far::new("channel=rw");
    far.relay.rules.no_control.store(carrier == Carrier::Tcp, Ordering::Relaxed);
    let server = far.pair.server.child().id();
    let mode_flag = format!("--mode={mode}");
    let mut words = vec![&*mode_flag];
    words.extend((mode == "deadline").then_some("--deadline=5s"));
    words.extend((carrier == Carrier::Tcp).then_some("--streams=4"));
    let of_verb = |verb| [&["channel", verb], &words[..]].concat();
    let mut subscriber = far.start(of == Of::Receiver, &of_verb("receive"));
    subscriber.event(|event| event["event"] == "joined");
    let mut sender = Speaker::start(far.command(of == Of::Sender, &of_verb("send")));
    let client = if of == Of::Sender { sender.child.id() } else { subscriber.id() };
    let (said, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (sent, heard) = thread::scope(|scope| {
        let (said, is_over) = (&said, &is_over);
        let speaking = scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                sender.say(&said.load(Ordering::Relaxed).to_string());
                said.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
            sender.end()
        });
        let number = |event: &Value| event["text"].as_str()?.parse::<u64>().ok();
        let hears_after = |subscriber: &mut Child, least| {
            number(&subscriber.event(|event| number(event) > Some(least)))
        };
        hears_after(&mut subscriber, 20);
        if carrier == Carrier::Tcp {
            assert_eq!(far.relay.rules.tcp_opened.load(Ordering::Relaxed), 4);
        }
        fault.begin(&far.relay, server, client)();
        let heard = hears_after(&mut subscriber, said.load(Ordering::Relaxed) + 50);
        is_over.store(true, Ordering::Relaxed);
        (speaking.join().expect("no panic"), heard)
    });
    let case = format!("{mode} {carrier:?} {fault:?} {of:?}");
    let said = said.load(Ordering::Relaxed);
    assert_eq!(sent.is(0, &[]).summary()["messages"], said, "{case}: {sent}");
    if mode == "reliable" && heard < Some(said - 1) {
        hears(&mut subscriber, &(said - 1).to_string());
    }
    subscriber.signal(Signal::INT);
    let came = subscriber.end();
    let texts = texts(&came);
    let mut numbers: Vec<u64> = texts.iter().map(|text| text.parse().expect("digits")).collect();
    if mode == "reliable" {
        assert!(numbers.iter().copied().eq(0..said), "{case}: a gap or a duplicate: {came}");
        assert_eq!(came.events("messages-lost").len(), 0, "{case}: {came}");
    }
    numbers.sort_unstable();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{case}: a duplicate: {came}");
}

#[test]
fn a_channel_survives_an_outage_of_20_s_without_duplicates_and_if_reliable_without_gaps() {
    let cuts = |mode| [Of::Sender, Of::Receiver].map(|of| (mode, Carrier::Quic, Fault::Cut, of));
    let modes = ["reliable", "latest", "datagram", "deadline"].into_iter().flat_map(cuts);
    let reliable = [
        ("reliable", Carrier::Quic, Fault::FrozenServer, Of::Sender),
        ("reliable", Carrier::Tcp, Fault::Cut, Of::Sender),
        ("reliable", Carrier::Tcp, Fault::Cut, Of::Receiver),
    ];
    side_by_side(modes.chain(reliable), channel_continues);
}

#[test]
fn a_stream_whose_data_port_is_blocked_ends_with_an_error_that_names_the_port() {
    const SEND: [&str; 6] =
        ["stream", "send", "--test-pattern", "--frame=1000", "--fps=50", "--deadline=5s"];
    let cases = [&["stream", "receive"][..], &["--receivers=1"], &["--frames=10"]];
    side_by_side(cases, |words| {
        let far = Far::new("stream=rw");
        far.relay.rules.no_data.store(true, Ordering::Relaxed);
        let send = if words[0] == "stream" { &[][..] } else { &SEND };
        let ended = far.start(true, &[send, words].concat()).end();
        let port = far.relay.address().port() + 1;
        let last = ended.is(3, &[]).last();
        assert_eq!(last["what"], format!("UDP port {port} of 127.0.0.1 does not answer"));
        assert!(last["advice"].to_string().contains(&format!("open UDP {port}")), "{last}");
    });
}

#[test]
fn a_killed_receiver_costs_the_others_no_frame() {
    let far = Far::new("stream=rw");
    let [mut killed, other] = [(); 2].map(|()| far.start(false, &["stream", "receive", "--check"]));
    let words = ["stream", "send", "--test-pattern", "--frame=20000", "--fps=50", "--frames=150"];
    let sender = far.start(false, &[&words[..], &["--deadline=20s", "--receivers=2"]].concat());
    killed.event(|event| event["event"] == "frame" && event["number"].as_u64() > Some(20));
    drop(killed.kill());
    assert_eq!(sender.end().is(0, &[]).summary()["skipped"], 0);
    let came = other.end();
    let summary = came.is(0, &[]).summary();
    assert_eq!((&summary["on_time"], &summary["withheld"]), (&150.into(), &0.into()), "{came}");
}

#[test]
fn a_killed_sender_or_subscriber_costs_the_others_no_message() {
    let far = Far::new("channel=rw");
    let mut subscribers = [(); 2].map(|()| far.start(false, &["channel", "receive"]));
    for child in &mut subscribers {
        child.event(|event| event["event"] == "joined");
    }
    let [mut one, mut two] =
        [(); 2].map(|()| Speaker::start(far.command(false, &["channel", "send"])));
    one.say("first");
    subscribers.iter_mut().for_each(|child| hears(child, "first"));
    two.say("second");
    subscribers.iter_mut().for_each(|child| hears(child, "second"));
    let [killed, mut other] = subscribers;
    drop(killed.kill());
    drop(one.child.kill());
    two.say("third");
    hears(&mut other, "third");
    assert_eq!(two.end().is(0, &[]).summary()["taken"], 2);
    other.signal(Signal::INT);
    let came = other.end();
    assert_eq!(texts(&came), ["first", "second", "third"], "{came}");
}

/// A flow of datagrams with valid encryption, whatever their payload is.
struct Flow {
    socket: UdpSocket,
    sealer: Sealer,
    sent: Cell<u64>,
}

const FLOW: u32 = 7;
const CIPHER: &str = "aes-128-gcm";

impl Flow {
    fn new(pair: &Pair, session: &Session) -> Flow {
        let secret = session.exporter().export(b"longhaul stream", &[]);
        let suite = Suite::sealed(CIPHER).expect("a cipher");
        let keys = FlowKeys::new(&secret, suite, 0, FlowId(FLOW));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.connect(("127.0.0.1", pair.server.data_port)).expect("loopback");
        Flow { socket, sealer: keys.sending_end().data, sent: Cell::new(0) }
    }

    fn send(&mut self, block: u64, payload: &[u8]) {
        let mut out = vec![0; payload.len() + 64];
        let len = self.sealer.seal(Kind::Data, block, payload, &mut out).expect("there is room");
        self.socket.send(&out[..len]).expect("loopback");
        self.sent.set(self.sent.get() + 1);
    }
}

/// Block numbers and payloads that no honest sender sends.
fn garbage() -> Vec<(u64, Vec<u8>)> {
    let blocks = [0, 1, 0xffff, 1 << 16, 0xffff_ffff_ffff];
    let lengths = [0, 1, 9, 10, 11, 100, 1_400];
    let noise = lengths.into_iter().flat_map(|len| [bytes(len, 3), vec![0; len], vec![255; len]]);
    blocks.into_iter().flat_map(|block| noise.clone().map(move |noise| (block, noise))).collect()
}

#[test]
fn garbage_in_the_datagrams_of_a_stream_reaches_no_receiver_and_disturbs_no_stream() {
    let pair = Pair::of_services("stream=rw");
    let words = ["--check", "--json"];
    let receiver = Child::spawn(&mut pair.of_name(["stream", "receive"], "x", &words));
    block_on(async {
        let mut session = meet(&pair, &pair.client).await;
        session.ask_for("stream", 2);
        let send = Send {
            name: "x".into(),
            flow: FLOW,
            cipher: CIPHER.into(),
            run: 1,
            symbol: 100,
            frame: 1_000,
            per_second_milli: 20_000,
            deadline_micros: 1_000_000,
            group: 0,
        };
        session.write(&Ask { asked: Some(Asked::Send(send)) }).await.unwrap();
        let mut flow = Flow::new(&pair, &session);
        let mut came = async |least: u64, receivers: u32| loop {
            let tell: Tell = session.read().await.unwrap().expect("it stays");
            if let Some(Told::Way(way)) = tell.told
                && way.came >= least
                && way.receivers >= receivers
            {
                break;
            }
        };
        came(0, 1).await;
        for (block, payload) in garbage() {
            flow.send(block, &payload);
        }
        // A frame of 250 bytes has symbols of 100, 100 and 50 bytes. Each case below is invalid:
        // the symbol contradicts its head, the head has too many repairs, or the frame is longer
        // than the announced 1000 bytes.
        let head = Head { frame: 9, index: 1, repairs: 0, length: 250, skipped: 0, at: 7 };
        for (head, symbol) in [
            (head, 99),
            (head, 101),
            (Head { index: 2, ..head }, 100),
            (Head { index: 3, ..head }, 100),
            (Head { index: u16::MAX, ..head }, 100),
            (Head { repairs: u16::MAX, ..head }, 100),
            (Head { length: 1_001, ..head }, 100),
        ] {
            flow.send(head.block(), &[&head.encode()[..], &vec![1; symbol]].concat());
        }
        came(flow.sent.get(), 1).await;
    });
    // A new sender with the same client id replaces the first sender.
    let words = ["--test-pattern", "--frame=1000", "--fps=50", "--frames=20", "--deadline=20s"];
    let words = [&words[..], &["--receivers=1"]].concat();
    Child::spawn(&mut pair.of_name(["stream", "send"], "x", &words)).end().is(0, &[]);
    let came = receiver.end();
    let frames: Vec<u64> =
        came.events("frame").iter().filter_map(|frame| frame["number"].as_u64()).collect();
    assert_eq!(frames, (0..20).collect::<Vec<u64>>(), "{came}");
    assert_eq!(came.summary()["wrong"], 0, "{came}");
}

#[test]
fn garbage_in_the_datagrams_of_a_channel_reaches_no_subscriber_and_stops_no_honest_message() {
    let pair = Pair::of_services("channel=rw");
    let words = ["--json", "--count=1"];
    let mut subscriber = Child::spawn(&mut pair.of_name(["channel", "receive"], "x", &words));
    subscriber.event(|event| event["event"] == "joined");
    block_on(async {
        let mut session = meet(&pair, &pair.client).await;
        session.ask_for("channel", 1);
        let (name, cipher) = ("x".into(), CIPHER.into());
        let publish = Publish { name, run: 1, cipher, flow: FLOW, ..Publish::default() };
        let asked = Some(ChannelAsked::Publish(publish));
        session.write(&ChannelAsk { asked }).await.unwrap();
        session.read::<ChannelTell>().await.unwrap().expect("the room");
        let mut flow = Flow::new(&pair, &session);
        for (block, payload) in garbage() {
            flow.send(block, &payload);
        }
        let honest = Message {
            origin: 0,
            number: 1,
            at: 0,
            born: 0,
            hops: 0,
            via: 0,
            key: None,
            bytes: b"honest".as_slice().into(),
        };
        let mut cutter = Cutter::new(1_200, Code::None, Span::from_millis(20));
        let mut datagrams = Vec::new();
        cutter.message(Time::ZERO, &encode(&honest), &mut datagrams).expect("it is short");
        for datagram in datagrams {
            flow.send(datagram.block, &datagram.payload);
        }
        // The subscriber ends after one message.
        tokio::task::spawn_blocking(move || {
            let came = subscriber.end();
            assert_eq!(texts(came.is(0, &[])), ["honest"], "{came}");
        })
        .await
        .unwrap();
    });
}
