//! Channels, through `longhaul channel`.

use std::cell::Cell;
use std::fs;
use std::process::{Command, Stdio};

use longhaul_stream::channel::messages::{
    ChannelAsk, ChannelAsked, ChannelTell, ChannelTold, Group, Hop, LastOfKeys, Lost, Part,
    Publish, Room, Subscribe, Taken,
};
use rustix::process::Signal;

use super::liar;
use super::rooms::{Speaker, hears, texts};
use crate::rig::{Child, Ended, Pair, bytes};

fn command(pair: &Pair, verb: &str, name: &str, more: &[&str]) -> Command {
    pair.of_name(["channel", verb], name, more)
}

/// Starts a subscriber, and waits until it has joined the room.
fn receive(pair: &Pair, name: &str, more: &[&str]) -> Child {
    let more = [&["--json"], more].concat();
    let mut child = Child::spawn(&mut command(pair, "receive", name, &more));
    child.event(|event| event["event"] == "joined");
    child
}

fn send(pair: &Pair, name: &str, more: &[&str], input: &[u8]) -> Ended {
    fs::write(pair.here.join("input"), input).unwrap();
    let mut command = command(pair, "send", name, more);
    command.stdin(fs::File::open(pair.here.join("input")).unwrap());
    Child::spawn(&mut command).end()
}

fn lines(count: usize) -> Vec<u8> {
    (0..count).flat_map(|n| format!("{n}\n").into_bytes()).collect()
}

/// The summary of a command that a signal ended; an `error` event follows it.
fn summary(ended: &Ended) -> serde_json::Value {
    ended.events("summary").pop().unwrap_or_default()
}

fn count(count: usize) -> String {
    format!("--count={count}")
}

#[test]
fn each_subscriber_gets_every_message_of_each_sender_in_order() {
    let pair = Pair::of_services("channel=rw");
    let all = count(1_000);
    let subscribers: Vec<Child> = (0..3).map(|_| receive(&pair, "lab/log", &[&all])).collect();
    let sent = send(&pair, "lab/log", &["--json"], &lines(500));
    let summary = sent.is(0, &[]).summary();
    assert_eq!((&summary["taken"], &summary["dropped"]), (&500.into(), &0.into()), "{sent}");
    send(&pair, "lab/log", &[], &lines(500)).is(0, &["500 messages, 500 taken"]);
    let expected: Vec<String> = (0..1_000).map(|n| (n % 500).to_string()).collect();
    for subscriber in subscribers {
        let came = subscriber.end();
        let summary = came.is(0, &[]).summary();
        assert!(texts(&came) == expected, "{came}");
        assert_eq!((&summary["messages"], &summary["lost"]), (&1_000.into(), &0.into()), "{came}");
    }
}

#[test]
fn a_late_subscriber_gets_the_last_message_of_each_key_even_if_all_senders_are_gone() {
    let pair = Pair::of_services("channel=rw");
    for (key, text) in [("pose/1", "old\n"), ("pose/2", "b\n"), ("log", "c\n"), ("pose/1", "a\n")] {
        send(&pair, "x", &["--key", key], text.as_bytes()).is(0, &[]);
    }
    for mode in ["reliable", "latest", "datagram"] {
        let mode = format!("--mode={mode}");
        let came = receive(&pair, "x", &[&mode, "--key=pose", &count(2)]).end();
        assert_eq!(texts(&came), ["b", "a"], "{mode}: {came}");
        let keys: Vec<_> = came.events("message").iter().map(|m| m["key"].clone()).collect();
        assert_eq!(keys, ["pose/2", "pose/1"], "{came}");
    }
}

#[test]
fn a_long_message_arrives_whole_and_a_too_long_one_is_refused() {
    let pair = Pair::of_services("channel=rw");
    let content = bytes(16 << 20, 1);
    for (mode, len) in [("reliable", 16 << 20), ("latest", 3_000_000), ("datagram", 20_000)] {
        let (room, mode) = (mode, format!("--mode={mode}"));
        let mut whole = command(&pair, "receive", room, &[&mode, "--whole", "--key=big"]);
        let whole = whole.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let sent = send(&pair, room, &[&mode, "--whole", "--key=big"], &content[..len]);
        sent.is(0, &["1 message,"]);
        let came = whole.wait_with_output().unwrap();
        assert!(came.stdout == content[..len], "{mode}: {} bytes", came.stdout.len());
    }
    let longer = [&content[..], b"x"].concat();
    send(&pair, "x", &["--whole"], &longer).is(2, &["at most 16 MiB"]);
    send(&pair, "x", &[], &vec![b'x'; longer.len()]).is(2, &["at most 16 MiB"]);
}

#[test]
fn datagrams_carry_messages_with_and_without_repairs() {
    let pair = Pair::of_services("channel=rw");
    for (room, code) in [("x", "none"), ("y", "xor:3"), ("z", "rs:8+4")] {
        let (code, all) = (format!("--code={code}"), count(200));
        let words = ["--mode=datagram", &code];
        let subscriber = receive(&pair, room, &[&words[..], &[&all]].concat());
        let other = receive(&pair, room, &[&all]);
        let sent = send(&pair, room, &words, &lines(200));
        sent.is(0, &["200 messages, 200 taken"]);
        let mut came = texts(&other.end());
        came.sort_by_key(|text| text.parse::<u32>().ok());
        let expected: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        assert!(came == expected, "{came:?}");
        let mut came = texts(&subscriber.end());
        came.sort_by_key(|text| text.parse::<u32>().ok());
        assert!(came == expected, "{came:?}");
    }
    send(&pair, "x", &["--code=xor:3"], b"")
        .is(2, &["only the modes datagram and multicast take a code"]);
}

#[test]
fn messages_with_a_deadline_arrive_in_time_and_late_ones_are_counted() {
    let pair = Pair::of_services("channel=rw");
    let deadline = ["--mode=deadline", "--deadline=20s"];
    let mut timely = receive(&pair, "lab/x", &deadline);
    let mut all = receive(&pair, "lab/x", &[]);
    let old =
        Part { number: 1, bytes: b"old".into(), age_micros: 3_600_000_000, ..Part::default() };
    told(&pair, vec![ask(ChannelAsked::Publish(publish())), ask(ChannelAsked::Part(old))]);
    all.event(|event| event["text"] == "old");
    let (mut texts_sent, late) = (Vec::new(), Cell::new(false));
    // The server reports late messages once a second.
    while !late.get() {
        let text = format!("new {}", texts_sent.len());
        let sent = send(&pair, "lab/x", &[&deadline[..], &["--json"]].concat(), text.as_bytes());
        assert_eq!(sent.is(0, &[]).summary()["late"], 0, "{sent}");
        timely.event(|event| {
            late.set(late.get() || event["event"] == "progress" && event["late"] == 1);
            event["text"] == text.as_str()
        });
        texts_sent.push(text);
    }
    timely.signal(Signal::INT);
    let came = timely.end();
    assert_eq!(texts(&came), texts_sent, "{came}");
    assert_eq!(summary(&came)["late"], 1, "{came}");
    // In this mode, a subscriber gets no messages from before it joined.
    let mut later = receive(&pair, "lab/x", &deadline);
    send(&pair, "lab/x", &[], b"last\n").is(0, &[]);
    later.event(|event| event["text"] == "last");
    later.signal(Signal::INT);
    assert_eq!(texts(&later.end()), ["last"]);
    for (words, why) in [
        (&["--mode=deadline"][..], "--deadline"),
        (&["--deadline=1s"], "this mode has no deadline"),
        (&["--mode=deadline", "--deadline=2m"], "a deadline of"),
        (
            &["--mode=deadline", "--deadline=1s", "--code=xor:3"],
            "only the modes datagram and multicast take a code",
        ),
    ] {
        send(&pair, "lab/x", words, b"").is(2, &[why]);
    }
}

/// Checks the fields that sender and receiver report in each mode.
pub(super) fn assert_reports(summary: &serde_json::Value, why: &str) {
    for field in ["messages", "bytes", "goodput_bps", "throughput_bps", "rtt_seconds"] {
        assert!(summary[field].as_f64() > Some(0.0), "{why}: {field} of {summary}");
    }
    assert!(summary["throughput_bps"].as_u64() >= summary["goodput_bps"].as_u64(), "{why}");
    assert_eq!((&summary["loss"], &summary["late"]), (&0.0.into(), &0.into()), "{why}: {summary}");
    assert!(summary["queue"].is_u64(), "{why}: {summary}");
}

#[test]
fn sender_and_receiver_report_rates_losses_round_trips_and_the_queue_in_each_mode() {
    let pair = Pair::of_services("channel=rw");
    let deadline = ["--mode=deadline", "--deadline=20s"];
    for (room, mode, all) in [
        ("a", &["--mode=reliable"][..], 100),
        ("b", &["--mode=latest"], 1),
        ("c", &["--mode=datagram", "--code=xor:2"], 100),
        ("d", &deadline, 100),
    ] {
        let subscriber = receive(&pair, room, &[mode, &[&count(all)]].concat());
        let sent = send(&pair, room, &[mode, &["--json"]].concat(), &lines(100));
        let came = subscriber.end();
        let summary = came.is(0, &[]).summary();
        assert_reports(&summary, room);
        assert!(summary["jitter_seconds"].is_f64() && summary["reordered"].is_u64(), "{came}");
        assert_reports(&sent.is(0, &[]).summary(), room);
    }
}

#[test]
fn the_newest_message_of_a_key_replaces_queued_older_ones() {
    let pair = Pair::of_services("channel=rw");
    let mut subscriber = receive(&pair, "x", &["--mode=latest"]);
    subscriber.signal(Signal::STOP);
    let all = lines(200_000);
    for key in ["a", "b"] {
        let sent = send(&pair, "x", &["--json", "--mode=latest", "--key", key], &all);
        let summary = sent.is(0, &[]).summary();
        let number = |field: &str| summary[field].as_u64().expect("a number");
        assert_eq!(number("taken") + number("replaced"), 200_000, "{sent}");
    }
    subscriber.signal(Signal::CONT);
    for key in ["a", "b"] {
        subscriber.event(|event| event["key"] == key && event["text"] == "199999");
    }
    subscriber.signal(Signal::INT);
    let came = subscriber.end();
    assert_eq!(summary(&came)["lost"], 0, "{came}");
}

#[test]
fn a_frozen_subscriber_delays_nobody_and_learns_how_many_messages_it_lost() {
    let pair = Pair::of_services("channel=rw");
    let mut frozen = receive(&pair, "x", &[]);
    let mut other = receive(&pair, "x", &[]);
    frozen.signal(Signal::STOP);
    // The room and the path cannot hold 20 MB of messages.
    let text: Vec<u8> = (0..40_000).flat_map(|n| format!("{n:0>512}\n").into_bytes()).collect();
    send(&pair, "x", &["--json"], &text).is(0, &[]);
    let last = format!("{:0>512}", 39_999);
    // `other` gets the last message while `frozen` is stopped.
    other.event(|event| event["text"] == last.as_str());
    frozen.signal(Signal::CONT);
    frozen.event(|event| event["text"] == last.as_str());
    let lost = [frozen, other].map(|subscriber| {
        subscriber.signal(Signal::INT);
        let came = subscriber.end();
        let counts = came.events("messages-lost");
        let lost: u64 = counts.iter().filter_map(|event| event["count"].as_u64()).sum();
        assert_eq!(texts(&came).len() as u64 + lost, 40_000);
        assert_eq!(summary(&came)["lost"].as_u64(), Some(lost));
        lost
    });
    assert!(lost[0] > 0, "{lost:?}");
}

#[test]
fn a_right_covers_its_prefix_and_its_direction_and_a_stream_right_does_not_cover_channels() {
    let refused = |ended: Ended, why: &str| {
        let what = ended.is(3, &[]).last()["what"].as_str().unwrap_or_default().to_owned();
        assert!(what.contains(why), "{ended}");
    };
    let send = |pair: &Pair, name| send(pair, name, &["--json"], b"x\n");
    let receive = |pair: &Pair, name| {
        Child::spawn(&mut command(pair, "receive", name, &["--json", "--count=1"])).end()
    };
    let reads = Pair::of_services("channel=ro:lab");
    refused(send(&reads, "lab/a"), "may not send to 'lab/a'");
    refused(receive(&reads, "labs"), "may not receive from 'labs'");
    let writes = Pair::of_services("channel=wo:lab");
    send(&writes, "lab/a").is(0, &[]);
    refused(send(&writes, "x"), "may not send to 'x'");
    refused(receive(&writes, "lab/a"), "may not receive from");
    refused(send(&Pair::of_services("stream=rw"), "x"), "has no right to channel");
    for bad in ["", "a//b", "../x"] {
        let ended = send(&writes, bad);
        assert_eq!(ended.status, Some(2), "{bad:?}: {ended}");
    }
}

#[test]
fn after_a_kill_of_the_server_the_sender_resends_unacknowledged_messages() {
    let mut pair = Pair::of_services("channel=rw");
    let mut receiver = receive(&pair, "x", &[]);
    let mut sender = Speaker::start(command(&pair, "send", "x", &["--json"]));
    sender.say("before");
    hears(&mut receiver, "before");
    sender.child.event(|event| event["event"] == "progress" && event["taken"] == 1);
    pair.kill_server();
    sender.say("meanwhile");
    sender.child.event(|event| event["event"] == "lost");
    pair.start_again();
    // The receiver may rejoin after the room got the message. The receiver still gets the message,
    // because a room keeps the last message of each key.
    hears(&mut receiver, "meanwhile");
    sender.say("after");
    hears(&mut receiver, "after");
    let sent = sender.end();
    assert_eq!(sent.is(0, &[]).summary()["taken"], 3, "{sent}");
    receiver.signal(Signal::INT);
    let came = receiver.end();
    assert_eq!(texts(&came), ["before", "meanwhile", "after"], "{came}");
    assert_eq!(came.events("joined").len(), 2, "{came}");
}

/// Sends `asks`. Returns the server's first answer, if any, and the reason if the server then ends
/// the stream with an error.
fn told(pair: &Pair, asks: Vec<ChannelAsk>) -> (Vec<ChannelTell>, Option<String>) {
    liar::told(pair, ("channel", 1), asks, 1)
}

fn ask(asked: ChannelAsked) -> ChannelAsk {
    ChannelAsk { asked: Some(asked) }
}

fn publish() -> Publish {
    Publish { name: "lab/x".into(), run: 1, ..Publish::default() }
}

fn subscribe() -> Subscribe {
    Subscribe { name: "lab/x".into(), ..Subscribe::default() }
}

fn lies() -> Hop {
    Hop { loss_ppm: u32::MAX, burst_milli: u32::MAX, jitter_micros: u64::MAX }
}

fn by_datagrams() -> Subscribe {
    let cipher = "aes-128-gcm".to_owned();
    Subscribe { mode: 2, cipher, flow: 7, datagram: 1_400, ..subscribe() }
}

#[test]
fn a_server_refuses_false_values_in_each_message_and_continues() {
    let pair = Pair::of_services("channel=rw:lab");
    let refuses = |asks: Vec<ChannelAsk>, why: &str| {
        let (_, last) = told(&pair, asks.clone());
        assert!(last.as_deref().is_some_and(|last| last.contains(why)), "{asks:?}: {last:?}");
    };
    for (lie, why) in [
        (Publish { name: "x".into(), ..publish() }, "may not send to"),
        (Publish { name: "lab/../x".into(), ..publish() }, "not a name"),
        (Publish { name: "x".repeat(513), ..publish() }, "not a name"),
        (Publish { cipher: "none\u{1b}".into(), ..publish() }, "no cipher none is known"),
        (Publish { link: 5, ..publish() }, "may not link the room 'lab/x'"),
        (Publish { multicast: true, ..publish() }, "has no multicast group"),
        (
            Publish { cipher: "aes-128-gcm".into(), deadline_micros: u64::MAX, ..publish() },
            "a deadline of",
        ),
    ] {
        refuses(vec![ask(ChannelAsked::Publish(lie))], why);
    }
    for (lie, why) in [
        (Subscribe { name: "x".into(), ..subscribe() }, "may not receive from"),
        (Subscribe { mode: 4, ..subscribe() }, "has no multicast group"),
        (Subscribe { mode: 5, ..subscribe() }, "no mode 5"),
        (Subscribe { mode: 3, ..by_datagrams() }, "the deadline is missing"),
        (Subscribe { mode: 3, deadline_micros: 1, ..by_datagrams() }, "a deadline of"),
        (Subscribe { mode: 3, deadline_micros: u64::MAX, ..by_datagrams() }, "a deadline of"),
        (Subscribe { keys: "a//b".into(), ..subscribe() }, "the key is invalid"),
        (Subscribe { link: 5, ..subscribe() }, "may not link"),
        (Subscribe { mode: 2, ..subscribe() }, "no cipher"),
        (Subscribe { datagram: 100, ..by_datagrams() }, "datagrams of 100 bytes"),
        (Subscribe { datagram: u32::MAX, ..by_datagrams() }, "datagrams of 4294967295 bytes"),
        (Subscribe { group: 65, repairs: 1, ..by_datagrams() }, "1 to 64 datagrams"),
        (Subscribe { xor: true, group: 3, repairs: 2, ..by_datagrams() }, "a group has"),
        (Subscribe { group: 1, repairs: 32, ..by_datagrams() }, "more repairs than datagrams"),
    ] {
        refuses(vec![ask(ChannelAsked::Subscribe(lie))], why);
    }
    let part = |part| vec![ask(ChannelAsked::Publish(publish())), ask(ChannelAsked::Part(part))];
    for (lie, why) in [
        (Part { rest: u64::MAX, bytes: vec![1], ..Part::default() }, "longer than 16 MiB"),
        (Part { rest: 5, ..Part::default() }, "is empty"),
        (Part { key: "*".into(), ..Part::default() }, "the key is invalid"),
        (Part { key: "x".repeat(513), ..Part::default() }, "the key is invalid"),
        (Part { number: u64::MAX, ..Part::default() }, "out of its limits"),
        (Part { hops: u32::MAX, ..Part::default() }, "out of its limits"),
    ] {
        refuses(part(lie), why);
    }
    let first = Part { rest: 5, bytes: vec![1], ..Part::default() };
    let next = Part { rest: 5, bytes: vec![1], ..Part::default() };
    refuses([part(first), vec![ask(ChannelAsked::Part(next))]].concat(), "does not continue");
    for asks in [
        vec![ChannelAsk::default()],
        vec![ask(ChannelAsked::Part(Part::default()))],
        vec![ask(ChannelAsked::Publish(publish())), ask(ChannelAsked::Publish(publish()))],
        vec![ask(ChannelAsked::Subscribe(subscribe())), ask(ChannelAsked::Part(Part::default()))],
        vec![ask(ChannelAsked::Subscribe(subscribe())), ask(ChannelAsked::Publish(publish()))],
        vec![ask(ChannelAsked::Subscribe(subscribe())), ask(ChannelAsked::Hop(lies()))],
        vec![ask(ChannelAsked::Publish(publish())), ask(ChannelAsked::Hop(lies()))],
        vec![ask(ChannelAsked::Hop(lies()))],
        vec![ask(ChannelAsked::LastOfKeys(LastOfKeys::default()))],
        vec![
            ask(ChannelAsked::Subscribe(subscribe())),
            ask(ChannelAsked::LastOfKeys(LastOfKeys::default())),
        ],
    ] {
        refuses(asks, "");
    }
    // Lies about the path are accepted. A subscriber's `Publish` ends the stream.
    let with_deadline = Subscribe { mode: 3, deadline_micros: 1_000_000, ..by_datagrams() };
    let mut asks = vec![ask(ChannelAsked::Subscribe(with_deadline))];
    asks.extend(vec![ask(ChannelAsked::Hop(lies())); 3]);
    refuses([asks, vec![ask(ChannelAsked::Publish(publish()))]].concat(), "is not allowed on this");
    let kept = Part { number: 1, bytes: b"kept".into(), ..Part::default() };
    told(&pair, part(kept));
    // The request names another run of the room (as after a restart of the server), and a position
    // in it. The server ignores both.
    let ahead = Subscribe { run: 7, next: u64::MAX, ..subscribe() };
    let (heard, _) = told(&pair, vec![ask(ChannelAsked::Subscribe(ahead))]);
    assert!(matches!(heard[0].told, Some(ChannelTold::Room(_))), "{heard:?}");
    let subscriber = receive(&pair, "lab/y", &["--count=1"]);
    send(&pair, "lab/y", &[], b"honest\n").is(0, &[]);
    assert_eq!(texts(&subscriber.end()), ["honest"]);
}

#[test]
fn a_client_cannot_send_in_the_name_of_another() {
    let pair = Pair::of_services("channel=rw");
    let mut subscriber = receive(&pair, "lab/x", &[]);
    send(&pair, "lab/x", &[], b"mine\n").is(0, &[]);
    let mine = subscriber.event(|event| event["text"] == "mine");
    let origin = u64::from_str_radix(mine["origin"].as_str().unwrap(), 16).unwrap();
    // This message has the origin of the first sender, and a high number.
    let number = 1 << 40;
    let forged = Part { origin, number, hops: 3, bytes: b"forged".into(), ..Part::default() };
    told(&pair, vec![ask(ChannelAsked::Publish(publish())), ask(ChannelAsked::Part(forged))]);
    let forged = subscriber.event(|event| event["text"] == "forged");
    assert_ne!(forged["origin"], mine["origin"]);
}

#[test]
fn clients_refuse_invalid_answers() {
    let lied = |verb: &'static str, mode: &'static str, lies: Vec<ChannelTell>| {
        liar::lied::<ChannelAsk, _>("channel", lies, move |client, id, there| {
            let url = there.into_string().unwrap() + "key";
            let id = format!("--server-id={id}");
            client.run(["channel", verb, "--json", "--retry-for=0s", "--mode", mode, &id, &url])
        })
    };
    let tell = |told| ChannelTell { told: Some(told) };
    let room = || tell(ChannelTold::Room(Room { run: 1, next: 0 }));
    let taken = Taken { count: u64::MAX, dropped: u64::MAX, late: u64::MAX };
    for lies in [
        vec![],
        vec![ChannelTell::default()],
        vec![tell(ChannelTold::Taken(taken))],
        vec![room(), tell(ChannelTold::Hop(lies()))],
        vec![room(), tell(ChannelTold::Group(Group::default()))],
    ] {
        let ended = lied("send", "reliable", lies.clone());
        assert!(ended.status.is_some_and(|status| status < 128), "{lies:?}: {ended}");
    }
    let long = Part { rest: u64::MAX, bytes: vec![1], ..Part::default() };
    let lost = Lost { count: u64::MAX, next: u64::MAX, late: u64::MAX };
    for lies in [
        vec![],
        vec![ChannelTell::default()],
        vec![room(), tell(ChannelTold::Part(long))],
        vec![room(), tell(ChannelTold::Lost(lost.clone())), tell(ChannelTold::Lost(lost))],
        vec![tell(ChannelTold::Part(Part { key: "..".into(), ..Part::default() }))],
    ] {
        let ended = lied("receive", "reliable", lies.clone());
        assert!(ended.status.is_some_and(|status| status != 0 && status < 100), "{ended}");
        assert_eq!(ended.events("error").len(), 1, "{lies:?}: {ended}");
    }
    // A server cannot make clients use a multicast address outside the permitted range.
    let (cipher, key) = ("aes-128-gcm".to_owned(), vec![0; 32]);
    let anywhere = Group { port: 5, hops: 1, cipher, key, ..Group::default() };
    for address in [vec![127, 0, 0, 1], vec![224, 0, 0, 1], vec![255; 4], vec![]] {
        for verb in ["send", "receive"] {
            let group = Group { address: address.clone(), ..anywhere.clone() };
            let ended = lied(verb, "multicast", vec![room(), tell(ChannelTold::Group(group))]);
            let what = ended.is(2, &[]).last()["what"].as_str().unwrap_or_default().to_owned();
            assert!(what.contains("the server's group is invalid"), "{ended}");
        }
    }
}
