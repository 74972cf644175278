//! Faults of clients of rooms, and of linked servers (`longhaul reflect`).

use std::process::Command;
use std::sync::atomic::Ordering;

use longhaul_proto::units::Rate;
use longhaul_stream::channel::messages::{ChannelAsk, ChannelAsked, Subscribe};
use rustix::process::Signal;

use super::liar::{block_on, meet};
use super::path::Wan;
use super::relay::Relay;
use super::rooms::{Speaker, hears, texts};
use crate::rig::{Child, Host, Pair, Server, need, side_by_side};

/// Waits until the server has ended a stream whose request contains `verb`.
fn given_up(server: &mut Server, verb: &str) {
    server.child().event(|event| {
        event["event"] == "ended" && event["wish"].as_str().is_some_and(|wish| wish.contains(verb))
    });
}

fn channel(client: &Host, id: &str, address: &str, words: &[&str]) -> Command {
    let (id, url) = (format!("--server-id={id}"), format!("lh://{address}/lab/x"));
    client.command([&["channel"], words, &["--json", &id, &url]].concat())
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Cut,
    Frozen,
}

impl Fault {
    /// Starts or ends the fault: cuts the connections through `relay`, or freezes `process`.
    fn set(self, is_on: bool, relay: &Relay, process: &Child) {
        match self {
            Fault::Cut => relay.rules.cut.store(is_on, Ordering::Relaxed),
            Fault::Frozen => process.signal(if is_on { Signal::STOP } else { Signal::CONT }),
        }
    }
}

fn sender_is_given_up(fault: Fault) {
    let mut pair = Pair::of_services("channel=rw");
    let relay = Relay::new(&pair.server);
    let id = pair.server.id.clone();
    let near = pair.server.address.clone();
    let mut subscriber = Child::spawn(&mut channel(&pair.client, &id, &near, &["receive"]));
    subscriber.event(|event| event["event"] == "joined");
    let through = relay.address().to_string();
    let mut sender = Speaker::start(channel(&pair.client, &id, &through, &["send"]));
    sender.say("before");
    hears(&mut subscriber, "before");
    fault.set(true, &relay, &sender.child);
    sender.say("meanwhile");
    given_up(&mut pair.server, "sends");
    fault.set(false, &relay, &sender.child);
    hears(&mut subscriber, "meanwhile");
    sender.say("after");
    hears(&mut subscriber, "after");
    let sent = sender.end();
    assert_eq!(sent.is(0, &[]).summary()["taken"], 3, "{fault:?}: {sent}");
    subscriber.signal(Signal::INT);
    assert_eq!(texts(&subscriber.end()), ["before", "meanwhile", "after"], "{fault:?}");
}

#[test]
fn a_sender_that_was_cut_off_or_frozen_until_the_server_gave_it_up_loses_nothing() {
    side_by_side([Fault::Cut, Fault::Frozen], sender_is_given_up);
}

fn subscriber_is_given_up(fault: Fault) {
    let mut pair = Pair::of_services("channel=rw");
    let relay = Relay::new(&pair.server);
    let id = pair.server.id.clone();
    let near = pair.server.address.clone();
    let through = relay.address().to_string();
    let mut subscriber = Child::spawn(&mut channel(&pair.client, &id, &through, &["receive"]));
    subscriber.event(|event| event["event"] == "joined");
    let mut sender = Speaker::start(channel(&pair.client, &id, &near, &["send"]));
    sender.say("before");
    hears(&mut subscriber, "before");
    fault.set(true, &relay, &subscriber);
    (0..100).for_each(|number| sender.say(&format!("meanwhile {number}")));
    given_up(&mut pair.server, "receives");
    fault.set(false, &relay, &subscriber);
    sender.say("after");
    hears(&mut subscriber, "after");
    sender.end().is(0, &[]);
    subscriber.signal(Signal::INT);
    let came = subscriber.end();
    let expected = (0..100).map(|number| format!("meanwhile {number}"));
    let expected = ["before".to_owned()].into_iter().chain(expected).chain(["after".to_owned()]);
    assert_eq!(texts(&came), expected.collect::<Vec<_>>(), "{fault:?}: {came}");
    assert_eq!(came.events("messages-lost").len(), 0, "{fault:?}: {came}");
}

#[test]
fn a_subscriber_that_was_cut_off_or_frozen_until_the_server_gave_it_up_continues_where_it_was() {
    side_by_side([Fault::Cut, Fault::Frozen], subscriber_is_given_up);
}

fn link_is_given_up(fault: Fault) {
    let scratch = tempfile::tempdir().unwrap();
    let [client, first, second] = ["c", "a", "b"].map(|name| Host::new(&scratch.path().join(name)));
    let allow = format!("--allow={},channel=rw", client.id);
    let linked = format!("--allow={},channel=rw,link=rw", second.id);
    let reflect = |host: &Host, more: &str| {
        let words = ["reflect", "--json", "--listen=127.0.0.1:0", "--accept-new", &allow, more];
        Server::start_as(&mut host.command(words))
    };
    let mut a = reflect(&first, &linked);
    let relay = Relay::new(&a);
    let mut b = reflect(&second, &format!("--link=lh://{}/lab/x", relay.address()));
    let ends = [(a.id.clone(), a.address.clone()), (b.id.clone(), b.address.clone())];
    let mut subscribers = ends.clone().map(|(id, address)| {
        let mut child = Child::spawn(&mut channel(&client, &id, &address, &["receive"]));
        child.event(|event| event["event"] == "joined");
        child
    });
    let mut speakers =
        ends.map(|(id, address)| Speaker::start(channel(&client, &id, &address, &["send"])));
    for (number, speaker) in (0..).zip(&mut speakers) {
        speaker.say(&format!("before {number}"));
        subscribers.iter_mut().for_each(|child| hears(child, &format!("before {number}")));
    }
    fault.set(true, &relay, b.child());
    speakers[0].say("meanwhile");
    hears(&mut subscribers[0], "meanwhile");
    // The link has two streams, so the server ends two.
    given_up(&mut a, "room");
    given_up(&mut a, "room");
    fault.set(false, &relay, b.child());
    hears(&mut subscribers[1], "meanwhile");
    speakers[1].say("after");
    subscribers.iter_mut().for_each(|child| hears(child, "after"));
    for child in subscribers {
        child.signal(Signal::INT);
        let came = child.end();
        assert_eq!(texts(&came), ["before 0", "before 1", "meanwhile", "after"], "{fault:?}");
    }
}

#[test]
fn a_linked_server_that_was_cut_off_or_frozen_until_the_other_gave_it_up_loses_nothing() {
    side_by_side([Fault::Cut, Fault::Frozen], link_is_given_up);
}

#[test]
fn a_subscriber_that_never_reads_delays_nobody() {
    let pair = Pair::of_services("channel=rw");
    block_on(async {
        let mut silent = meet(&pair, &pair.client).await;
        silent.ask_for("channel", 1);
        let subscribe = Subscribe { name: "lab/x".into(), ..Subscribe::default() };
        let asked = Some(ChannelAsked::Subscribe(subscribe));
        silent.write(&ChannelAsk { asked }).await.unwrap();
        let (id, address) = (&pair.server.id, &pair.server.address);
        let mut reads = Child::spawn(&mut channel(&pair.client, id, address, &["receive"]));
        reads.event(|event| event["event"] == "joined");
        let mut sender = Speaker::start(channel(&pair.client, id, address, &["send"]));
        for number in 0..20_000 {
            sender.say(&format!("{number:0>1000}"));
        }
        hears(&mut reads, &format!("{:0>1000}", 19_999));
        let sent = sender.end();
        assert_eq!(sent.is(0, &[]).summary()["taken"], 20_000, "{sent}");
        drop(silent);
    });
}

#[test]
fn a_subscriber_whose_long_messages_and_repairs_fill_its_path_delays_no_other_client() {
    // Each message and its repairs keep the subscriber's path busy for four minutes.
    let wan = need!(Wan::with_card(Rate::from_mbps(1), ",channel=rw", 16 << 20));
    let server = wan.server.as_ref().unwrap();
    let (id, url) = (format!("--server-id={}", server.id), format!("lh://{}/lab", server.address));
    let hostile = ["--mode=datagram", "--code=rs:32+32"];
    let words = [&["channel", "receive", "--json", &id, &url], &hostile[..]].concat();
    let mut hostile = wan.run("a", &wan.client.command(words));
    hostile.event(|event| event["event"] == "joined");
    // These senders do not use the subscriber's path.
    let send = |room: &str| {
        let url = format!("{url}{room}");
        let read = ["sh", "-c", "exec \"$@\" < object", "sh"];
        let mut sender =
            wan.client.wrapped(&read, ["channel", "send", "--whole", "--json", &id, &url]);
        let sent = wan.run("b", sender.current_dir(&wan.here)).end();
        assert_eq!(sent.is(0, &[]).summary()["taken"], 1, "{sent}");
    };
    ["", "", "/other"].iter().for_each(|room| send(room));
}
