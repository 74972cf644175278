//! Reflectors, through `longhaul reflect`.

use std::path::Path;

use super::rooms::texts;
use crate::rig::{Child, Host, Server, write_private};

/// Hosts, and a client that may use all their reflectors.
struct Net {
    scratch: tempfile::TempDir,
    client: Host,
}

impl Net {
    fn new() -> Net {
        let scratch = tempfile::tempdir().unwrap();
        let client = Host::new(&scratch.path().join("client"));
        Net { scratch, client }
    }

    fn host(&self, name: &str) -> Host {
        Host::new(&self.scratch.path().join(name))
    }

    /// Starts a reflector. The client may use its streams and channels; `others` may use its
    /// channels and link to it.
    fn reflect(&self, host: &Host, listen: &str, others: &[&Host], links: &[String]) -> Server {
        let mut words = vec!["reflect".to_owned(), "--json".into(), "--listen".into()];
        words.extend([listen.to_owned(), "--accept-new".into()]);
        words.extend([format!("--allow={},channel=rw,stream=rw", self.client.id)]);
        words.extend(others.iter().map(|other| format!("--allow={},channel=rw,link=rw", other.id)));
        words.extend(links.iter().map(|link| format!("--link={link}")));
        Server::start_as(&mut host.command(words.iter().map(String::as_str)))
    }

    fn receive(&self, server: &Server, more: &[&str]) -> Child {
        self.receive_as(&self.client, server, more)
    }

    fn receive_as(&self, host: &Host, server: &Server, more: &[&str]) -> Child {
        let (id, url) = self.at(server);
        let words = ["channel", "receive", "--json", &id, &url];
        let words: Vec<&str> = words.into_iter().chain(more.iter().copied()).collect();
        let mut child = Child::spawn(&mut host.command(words));
        child.event(|event| event["event"] == "joined");
        child
    }

    fn at(&self, server: &Server) -> (String, String) {
        (format!("--server-id={}", server.id), room(server))
    }

    fn say(&self, server: &Server, text: &str) {
        let input = self.scratch.path().join("input");
        std::fs::write(&input, format!("{text}\n")).unwrap();
        self.send(server, &input);
    }

    fn send(&self, server: &Server, input: &Path) {
        let (id, url) = self.at(server);
        let mut command = self.client.command(["channel", "send", &id, &url]);
        command.stdin(std::fs::File::open(input).unwrap());
        Child::spawn(&mut command).end().is(0, &[]);
    }
}

fn room(server: &Server) -> String {
    server.at("lab/x").into_string().expect("our own name")
}

#[test]
fn a_reflector_serves_rooms_and_no_files() {
    let net = Net::new();
    let server = net.reflect(&net.host("r"), "127.0.0.1:0", &[], &[]);
    let mut subscriber = net.receive(&server, &["--count=1"]);
    net.say(&server, "hello");
    subscriber.event(|event| event["text"] == "hello");
    subscriber.end().is(0, &[]);
    let id = format!("--server-id={}", server.id);
    let listed = net.client.run(["ls", "--json", &id, &room(&server)]);
    assert_ne!(listed.status, Some(0), "{listed}");
    let refused = net.client.run(["cp", "--json", &id, "/dev/null", &room(&server)]);
    assert_ne!(refused.status, Some(0), "{refused}");
}

#[test]
fn a_chain_of_reflectors_delivers_each_message_once_in_both_directions() {
    let net = Net::new();
    let hosts = ["a", "b", "c"].map(|name| net.host(name));
    let a = net.reflect(&hosts[0], "127.0.0.1:0", &[&hosts[1]], &[]);
    let b = net.reflect(&hosts[1], "127.0.0.1:0", &[&hosts[2]], &[room(&a)]);
    let c = net.reflect(&hosts[2], "127.0.0.1:0", &[], &[room(&b)]);
    // A new link forwards the last message of its room. So the first message reaches `b` and `c`
    // even if they link after it was sent.
    net.say(&a, "first");
    let mut ends = [&a, &b, &c].map(|server| net.receive(server, &[]));
    for end in &mut ends {
        end.event(|event| event["text"] == "first");
    }
    for (server, text) in [(&a, "from a"), (&c, "from c"), (&b, "from b")] {
        net.say(server, text);
        for end in &mut ends {
            end.event(|event| event["text"] == text);
        }
    }
    for end in ends {
        end.signal(rustix::process::Signal::INT);
        let came = end.end();
        assert_eq!(texts(&came), ["first", "from a", "from c", "from b"], "{came}");
    }
}

#[test]
fn a_ring_of_four_reflectors_delivers_each_message_once_also_after_one_reflector_is_killed() {
    let net = Net::new();
    let hosts = ["a", "b", "c", "d"].map(|name| net.host(name));
    // `b`, `c` and `d` each link to the previous reflector, and `d` also links to `a`.
    let a = net.reflect(&hosts[0], "127.0.0.1:0", &[&hosts[1], &hosts[3]], &[]);
    let b = net.reflect(&hosts[1], "127.0.0.1:0", &[&hosts[2]], &[room(&a)]);
    let c = net.reflect(&hosts[2], "127.0.0.1:0", &[&hosts[3]], &[room(&b)]);
    let d = net.reflect(&hosts[3], "127.0.0.1:0", &[], &[room(&c), room(&a)]);
    let mut ends = [&a, &c, &d].map(|server| net.receive(server, &[]));
    let mut said = Vec::new();
    let mut say = |server: &Server, text: String, ends: &mut [Child]| {
        net.say(server, &text);
        for end in ends {
            end.event(|event| event["text"] == text.as_str());
        }
        said.push(text);
    };
    for round in 0..3 {
        for (name, server) in [("a", &a), ("b", &b), ("c", &c), ("d", &d)] {
            say(server, format!("{round} from {name}"), &mut ends);
        }
    }
    b.into_child().kill();
    for round in 3..5 {
        for (name, server) in [("a", &a), ("c", &c), ("d", &d)] {
            say(server, format!("{round} from {name}"), &mut ends);
        }
    }
    for end in ends {
        end.signal(rustix::process::Signal::INT);
        let came = end.end();
        // This test waits for each message before it sends the next, so the order is the same at
        // all reflectors.
        assert_eq!(texts(&came), said, "{came}");
        assert_eq!(came.events("summary")[0]["lost"], 0, "{came}");
    }
}

#[test]
fn a_link_without_the_right_to_link_is_refused_and_reported() {
    let net = Net::new();
    let (first, second) = (net.host("a"), net.host("b"));
    let a = net.reflect(&first, "127.0.0.1:0", &[], &[]);
    let mut command = second.command([
        "reflect",
        "--json",
        "--listen=127.0.0.1:0",
        "--accept-new",
        &format!("--allow={},channel=rw", net.client.id),
        &format!("--link={}", room(&a)),
    ]);
    let b = Server::start_as(&mut command);
    let mut child = b.into_child();
    let failed = child.event(|event| event["event"] == "link-failed");
    assert!(failed["what"].as_str().is_some_and(|what| what.contains("not allowed")), "{failed}");
}

#[test]
fn revoking_the_right_to_link_ends_the_running_link_but_no_other_stream_of_the_same_id() {
    let net = Net::new();
    let (first, second) = (net.host("a"), net.host("b"));
    let list = net.scratch.path().join("allowed");
    let allow = |rights: &str| {
        let client = &net.client.id;
        write_private(&list, &format!("{client},channel=rw\n{},{rights}\n", second.id));
    };
    allow("channel=rw,link=rw");
    let list = format!("--allow-file={}", list.display());
    let words = ["reflect", "--json", "--listen=127.0.0.1:0", &list];
    let mut a = Server::start_as(&mut first.command(words));
    let mut b = net.reflect(&second, "127.0.0.1:0", &[], &[room(&a)]);
    let mut ends = [net.receive_as(&second, &a, &[]), net.receive(&b, &[])];
    net.say(&a, "before");
    for end in &mut ends {
        end.event(|event| event["text"] == "before");
    }
    allow("channel=rw");
    a.child().signal(rustix::process::Signal::HUP);
    let failed = b.child().event(|event| event["event"] == "link-failed");
    assert!(failed["what"].as_str().is_some_and(|what| what.contains("no longer")), "{failed}");
    net.say(&a, "after");
    net.say(&b, "own");
    let [plain, linked] = &mut ends;
    plain.event(|event| event["text"] == "after");
    linked.event(|event| event["text"] == "own");
    for (end, expected) in ends.into_iter().zip([["before", "after"], ["before", "own"]]) {
        end.signal(rustix::process::Signal::INT);
        let came = end.end();
        assert_eq!(texts(&came), expected, "{came}");
    }
}
