//! Rooms as multicast groups.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};
use rustix::process::Signal;

use super::channel::assert_reports;
use super::rooms::{Speaker, hears, texts};
use crate::rig::{
    Child, DEADLINE, Ended, Host, Server, Skipped, bytes, need, side_by_side, skip, write_private,
};

/// Interrupts a subscriber, and returns the texts that it received.
fn ended(child: Child) -> Vec<String> {
    child.signal(Signal::INT);
    texts(&child.end())
}

/// Two domains, joined by a cable between their reflectors. A domain has a switch, a reflector
/// (`r`) and two hosts. The field is the prefix of the names of all namespaces.
struct Nets(String);

impl Nets {
    fn new() -> Result<Nets, Skipped> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let nets = Nets(format!("lh{}-{count}", std::process::id()));
        nets.try_ip("", &format!("netns add {}", nets.name("s0"))).map_err(skip::forbidden)?;
        for domain in 0..2 {
            let switch = format!("s{domain}");
            if domain > 0 {
                nets.ip("", &format!("netns add {}", nets.name(&switch)));
            }
            nets.ip(&switch, "link add br0 type bridge mcast_snooping 0");
            nets.ip(&switch, "link set dev br0 up");
            for (number, host) in (1..).zip(["r", "a", "b"]) {
                let name = format!("{host}{domain}");
                nets.ip("", &format!("netns add {}", nets.name(&name)));
                let there = nets.name(&switch);
                let cable = format!("link add eth0 type veth peer name {host} netns {there}");
                nets.ip(&name, &cable);
                nets.ip(&switch, &format!("link set dev {host} master br0 up"));
                nets.up(&name, "eth0", domain, number);
            }
        }
        let there = nets.name("r1");
        nets.ip("r0", &format!("link add wan0 type veth peer name wan0 netns {there}"));
        nets.up("r0", "wan0", 9, 1);
        nets.up("r1", "wan0", 9, 2);
        Ok(nets)
    }

    fn up(&self, host: &str, device: &str, net: u32, number: u32) {
        self.ip(host, &format!("addr add 10.81.{net}.{number}/24 dev {device}"));
        self.ip(host, &format!("addr add fd81:{net}::{number}/64 dev {device} nodad"));
        self.ip(host, "link set dev lo up");
        self.ip(host, &format!("link set dev {device} up"));
    }

    fn name(&self, host: &str) -> String {
        format!("{}{host}", self.0)
    }

    fn try_ip(&self, host: &str, words: &str) -> Result<(), String> {
        let mut command = Command::new("ip");
        if !host.is_empty() {
            command.args(["-n", &self.name(host)]);
        }
        let output = command.args(words.split(' ')).output().map_err(|error| error.to_string())?;
        let why = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(format!("ip {words}: {why}")) }
    }

    fn ip(&self, host: &str, words: &str) {
        self.try_ip(host, words).expect("the first namespace was made");
    }

    /// `longhaul WORDS` on an emulated host, with the identity of `who`.
    fn command(&self, host: &str, who: &Host, words: &[String]) -> Command {
        let name = self.name(host);
        who.wrapped(&["ip", "netns", "exec", &name], words)
    }
}

impl Drop for Nets {
    fn drop(&mut self) {
        for host in ["s0", "s1", "r0", "r1", "a0", "a1", "b0", "b1"] {
            let _ = Command::new("ip").args(["netns", "del", &self.name(host)]).output();
        }
    }
}

#[derive(Clone, Copy)]
struct Family {
    group: &'static str,
    /// The URL of the room at the reflector of a network. Networks 0 and 1 are those of the
    /// domains, 9 is the cable between the reflectors.
    at: fn(u32) -> String,
}

const FAMILIES: [Family; 2] = [
    Family { group: "239.81.0.1:5000", at: |net| format!("lh://10.81.{net}.1/lab/x") },
    Family { group: "[ff15::81]:5000", at: |net| format!("lh://[fd81:{net}::1]/lab/x") },
];

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn two_domains(family: Family) {
    let nets = need!(Nets::new());
    let scratch = tempfile::tempdir().unwrap();
    let [client, first, second] =
        ["c", "r0", "r1"].map(|name| Host::new(&scratch.path().join(name)));
    let group = format!("--multicast=lab/x={}%eth0", family.group);
    let allow = format!("--allow={},channel=rw", client.id);
    let reflect = |number: usize, more: &[String]| {
        let own =
            words(&["reflect", "--json", "--listen=[::]:7717", "--accept-new", &allow, &group]);
        let host = [&first, &second][number];
        Server::start_as(&mut nets.command(&format!("r{number}"), host, &[&own, more].concat()))
    };
    let linked = format!("--allow={},channel=rw,link=rw", second.id);
    let link = format!("--link={}", (family.at)(9));
    let _one = reflect(0, &[linked]);
    let two = reflect(1, std::slice::from_ref(&link));
    let channel = |verb: &str, host: &str, mode: &str| {
        let domain = if host.ends_with('0') { 0 } else { 1 };
        let id = format!("--server-id={}", [&first, &second][domain].id);
        let (mode, url) = (format!("--mode={mode}"), (family.at)(domain as u32));
        let all = words(&["channel", verb, "--json", "--retry-for=1m", &id, &mode, &url]);
        nets.command(host, &client, &all)
    };
    let receive = |host: &str, mode: &str| {
        let mut child = Child::spawn(&mut channel("receive", host, mode));
        child.event(|event| event["event"] == "joined");
        child
    };
    let mut here = [receive("a0", "multicast"), receive("b0", "multicast")];
    let mut there = [receive("a1", "multicast"), receive("b1", "multicast")];
    let mut by_unicast = receive("b1", "reliable");
    let [mut near, mut far] = ["b0", "b1"].map(|host| {
        let mut speaker = Speaker::start(channel("send", host, "multicast"));
        speaker.say(&format!("hello {host}"));
        speaker
    });
    // A new member may miss the first datagram of its group. It then gets the datagram's message
    // later, as the last message of the room.
    for (speaker, text) in [(&mut near, "one"), (&mut far, "two")] {
        speaker.say(text);
        let everybody = here.iter_mut().chain(&mut there).chain([&mut by_unicast]);
        everybody.for_each(|child| hears(child, text));
    }
    // Without their reflector, the members of a domain still hear each other.
    two.into_child().kill();
    far.say("three");
    there.iter_mut().for_each(|child| hears(child, "three"));
    near.say("four");
    here.iter_mut().for_each(|child| hears(child, "four"));
    far.child.event(|event| event["event"] == "lost");
    let _two = reflect(1, &[link]);
    far.child.event(|event| event["event"] == "heard-again");
    far.say("five");
    for child in here.iter_mut().chain(&mut there).chain([&mut by_unicast]) {
        hears(child, "five");
    }
    for speaker in [near, far] {
        speaker.end().is(0, &[]);
    }
    let told = ["one", "two", "three", "four", "five"];
    let of = |heard: Vec<String>| -> Vec<String> {
        heard.into_iter().filter(|text| told.contains(&&**text)).collect()
    };
    for child in here {
        assert_eq!(of(ended(child)), ["one", "two", "four", "five"]);
    }
    for child in there {
        // The link delivers "four" after the restart, if it is still the last message of the room.
        let heard = of(ended(child));
        let mut once = heard.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), heard.len(), "{heard:?}");
        let own: Vec<&String> = heard.iter().filter(|text| *text != "four").collect();
        assert_eq!(own, ["one", "two", "three", "five"]);
    }
}

#[test]
fn two_domains_with_groups_are_one_room_again_after_a_reflector_is_killed_and_restarted() {
    side_by_side(FAMILIES, two_domains);
}

/// Reflectors and members on one host; their group is on the loopback interface.
struct One {
    scratch: tempfile::TempDir,
    client: Host,
    group: SocketAddrV4,
}

impl One {
    /// Tests that run at the same time need different numbers.
    fn new(number: u8) -> One {
        let scratch = tempfile::tempdir().unwrap();
        let client = Host::new(&scratch.path().join("client"));
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 81, 1, number), 47_800);
        One { scratch, client, group }
    }

    fn host(&self, name: &str) -> Host {
        Host::new(&self.scratch.path().join(name))
    }

    fn reflect(&self, host: &Host, more: &[&str]) -> Server {
        let group = format!("--multicast=lab/x={}%lo", self.group);
        let own = ["reflect", "--json", "--listen=127.0.0.1:0", "--accept-new", &group];
        Server::start_as(&mut host.command([&own[..], more].concat()))
    }

    fn allow(&self) -> String {
        format!("--allow={},channel=rw", self.client.id)
    }

    fn channel(&self, who: &Host, server: &Server, verb: &str, mode: &str) -> Command {
        let (id, mode) = (format!("--server-id={}", server.id), format!("--mode={mode}"));
        let url = server.at("lab/x").into_string().unwrap();
        who.command(["channel", verb, "--json", "--interface=lo", &id, &mode, &url])
    }

    /// Starts a subscriber, and waits until it has received `last`, the last message of the room.
    /// In the mode `multicast` the subscriber has then joined the group.
    fn receive(&self, server: &Server, mode: &str, last: &str) -> Child {
        let mut child = Child::spawn(&mut self.channel(&self.client, server, "receive", mode));
        hears(&mut child, last);
        child
    }

    fn say(&self, server: &Server, mode: &str, text: &str) -> Ended {
        let mut speaker = Speaker::start(self.channel(&self.client, server, "send", mode));
        speaker.say(text);
        speaker.end()
    }

    /// A stranger that receives the group's datagrams.
    fn stranger(&self) -> UdpSocket {
        let fd = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        sockopt::set_socket_reuseaddr(&fd, true).unwrap();
        bind(&fd, &SocketAddr::from(self.group)).unwrap();
        let stranger = UdpSocket::from(fd);
        stranger.join_multicast_v4(self.group.ip(), &Ipv4Addr::LOCALHOST).unwrap();
        sockopt::set_ip_multicast_if(&stranger, &Ipv4Addr::LOCALHOST).unwrap();
        stranger.set_read_timeout(Some(DEADLINE)).unwrap();
        stranger
    }
}

fn overheard(stranger: &UdpSocket) -> Vec<u8> {
    let mut datagram = vec![0; 65_536];
    let len = stranger.recv(&mut datagram).expect("the group is heard");
    datagram[..len].to_vec()
}

#[test]
fn a_stranger_can_neither_read_messages_of_a_group_nor_inject_any() {
    let one = One::new(1);
    let server = one.reflect(&one.host("r"), &[&one.allow()]);
    let stranger = one.stranger();
    let secret = "a text that nobody else may read";
    let sent = one.say(&server, "multicast", secret);
    assert_eq!(sent.is(0, &[]).summary()["taken"], 1, "{sent}");
    assert_reports(&sent.summary(), "a sender");
    let mut members = ["multicast", "reliable"].map(|mode| one.receive(&server, mode, secret));
    let datagram = overheard(&stranger);
    let holds = |part: &[u8]| datagram.windows(part.len()).any(|window| window == part);
    assert!(datagram.len() > secret.len() && !holds(&secret.as_bytes()[..8]));
    let send = |bytes: &[u8]| {
        stranger.send_to(bytes, one.group).unwrap();
    };
    for len in 0..datagram.len() {
        let mut changed = datagram.clone();
        changed[len] ^= 1;
        [&datagram, &changed, &datagram[..len].to_vec(), &bytes(1_400, len as u64)]
            .into_iter()
            .for_each(|bytes| send(bytes));
    }
    // Five messages, because the flood may make a member's socket drop a datagram of the group.
    let said = [1, 2, 3, 4, 5].map(|n| format!("message {n}"));
    for text in &said {
        one.say(&server, "multicast", text).is(0, &[]);
    }
    one.say(&server, "reliable", "third").is(0, &[]);
    for member in &mut members {
        hears(member, "third");
    }
    for member in members {
        member.signal(Signal::INT);
        let came = member.end();
        let texts = texts(&came);
        let [first, between @ .., last] = &texts[..] else { panic!("{texts:?}") };
        assert_eq!((first.as_str(), last.as_str()), (secret, "third"));
        assert!(!between.is_empty() && between.iter().all(|text| said.contains(text)), "{texts:?}");
        assert_reports(&came.events("summary")[0], "a subscriber");
    }
}

#[test]
fn two_linked_reflectors_in_one_group_pass_each_message_once() {
    let one = One::new(2);
    let [first, second] = ["r0", "r1"].map(|name| one.host(name));
    let linked = format!("--allow={},channel=rw,link=rw", second.id);
    let a = one.reflect(&first, &[&one.allow(), &linked]);
    let link = format!("--link={}", a.at("lab/x").display());
    let b = one.reflect(&second, &[&one.allow(), &link]);
    one.say(&a, "reliable", "first").is(0, &[]);
    let ends = [(&a, "multicast"), (&a, "reliable"), (&b, "multicast"), (&b, "reliable")];
    let mut members = ends.map(|(server, mode)| one.receive(server, mode, "first"));
    let mut said = vec!["first".to_owned()];
    for round in 0..3 {
        for (name, (server, mode)) in ["am", "ar", "bm", "br"].into_iter().zip(ends) {
            let text = format!("{name} {round}");
            one.say(server, mode, &text).is(0, &[]);
            members.iter_mut().for_each(|member| hears(member, &text));
            said.push(text);
        }
    }
    for member in members {
        assert_eq!(ended(member), said);
    }
}

#[test]
fn a_group_gets_a_new_key_when_a_member_loses_its_right() {
    let one = One::new(3);
    let other = one.host("other");
    let list = one.scratch.path().join("allowed");
    let allow = |rights: &str| {
        let text = format!("{},channel=rw\n{},{rights}\n", one.client.id, other.id);
        write_private(&list, &text);
    };
    allow("channel=rw");
    let file = format!("--allow-file={}", list.display());
    let mut server = one.reflect(&one.host("r"), &[&file]);
    one.say(&server, "reliable", "before").is(0, &[]);
    let mut stays = one.receive(&server, "multicast", "before");
    let mut goes = Child::spawn(&mut one.channel(&other, &server, "receive", "multicast"));
    hears(&mut goes, "before");
    let stranger = one.stranger();
    // The flow number in the server's datagrams (bytes 1 to 4) changes with the key of the group.
    let flow = |server: &Server, text: &str| {
        one.say(server, "reliable", text).is(0, &[]);
        overheard(&stranger)[1..5].to_vec()
    };
    let old = flow(&server, "known to both");
    hears(&mut goes, "known to both");
    allow("stream=rw");
    server.child().signal(Signal::HUP);
    let refused = goes.end();
    assert!(refused.last()["what"].as_str().is_some_and(|what| what.contains("no longer")));
    let mut count = 0;
    while flow(&server, &format!("{count}")) == old {
        count += 1;
    }
    flow(&server, "last");
    hears(&mut stays, "last");
    assert_eq!(texts(&refused), ["before", "known to both"]);
}

#[test]
fn a_missing_right_a_room_without_a_group_and_an_unusable_group_address_are_refused() {
    let one = One::new(4);
    let (host, reader) = (one.host("r"), one.host("reader"));
    let reads = format!("--allow={},channel=ro", reader.id);
    let server = one.reflect(&host, &[&one.allow(), &reads]);
    let refused = |ended: Ended, why: &str| {
        let what = ended.is(3, &[]).last()["what"].as_str().unwrap_or_default().to_owned();
        assert!(what.contains(why), "{ended}");
    };
    let sends = Child::spawn(&mut one.channel(&reader, &server, "send", "multicast")).end();
    refused(sends, "may not send to 'lab/x'");
    let url = server.at("lab/y").into_string().unwrap();
    let id = format!("--server-id={}", server.id);
    for verb in ["send", "receive"] {
        let command = ["channel", verb, "--json", "--mode=multicast", &id, &url];
        refused(one.client.run(command), "'lab/y' has no multicast group");
    }
    for (group, why) in [
        ("lab/x", "ROOM=GROUP:PORT"),
        ("lab//x=239.1.2.3:5000", "lab//x is not a room"),
        ("lab/x=10.0.0.1:5000", "not a multicast address"),
        ("lab/x=224.0.0.1:5000", "reserved"),
        ("lab/x=239.1.2.3:5000%nosuch0", "no interface nosuch0"),
    ] {
        let words = ["reflect", "--listen=127.0.0.1:0", &one.allow(), "--multicast", group];
        host.run(words).is(2, &[why]);
    }
    let words = ["channel", "receive", "--mode=multicast", "--interface=nosuch0", &id, &url];
    one.client.run(words).is(2, &["no interface nosuch0"]);
}
