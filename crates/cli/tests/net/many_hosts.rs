//! Copies from hosts of different kinds, each with its own id.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use super::many::Star;
use super::ssh::Ssh;
use crate::rig::{Host, Server, bytes, need, remains, skip, write};

/// Servers that each have `content` in a file of their name, and allow the client of `ssh`.
fn servers(ssh: &Ssh, names: &[&str], content: &[u8]) -> Vec<Server> {
    let one = |name: &&str| {
        let root = ssh.path(&format!("root-{name}"));
        write(&root.join(name), content);
        let host = Host::new(&ssh.path(&format!("server-{name}")));
        Server::start(&host, &root, &["--allow", &ssh.client.id])
    };
    names.iter().map(one).collect()
}

#[test]
fn files_of_ssh_hosts_and_servers_arrive_in_one_folder() {
    let ssh = need!(Ssh::new());
    let other = bytes(3_000_000, 21);
    let [server] = &servers(&ssh, &["other"], &other)[..] else { unreachable!("one was named") };
    let (near, at) = (ssh.at("source"), server.at("other").into_string().expect("it is ASCII"));
    let ended = ssh.start("", &["--accept-new", &near, &at, "."]).end();
    let summary = ended.summary();
    assert_eq!(summary["protocol"], "gtp", "{ended}");
    assert!(fs::read(ssh.here.join("source")).expect("it was copied") == ssh.content);
    assert!(fs::read(ssh.here.join("other")).expect("it was copied") == other);
    let rows = summary["sources"].as_array().expect("two sources").clone();
    let named: Vec<_> = rows.iter().filter_map(|row| row["source"].as_str()).collect();
    assert_eq!(named, [&*near, &*at], "{ended}");
    assert!(rows.iter().all(|row| row["state"] == "done"), "{ended}");
    assert_eq!(ended.events("connected").len(), 2, "{ended}");
}

#[test]
fn a_copy_of_replicas_on_an_ssh_host_and_servers_survives_the_death_of_a_server() {
    let ssh = need!(Ssh::new());
    let content = bytes(16_000_000, 22);
    write(&ssh.path("there/source"), &content);
    let mut servers = servers(&ssh, &["a", "b"], &content);
    let at = |server: &Server, name| server.at(name).into_string().expect("it is ASCII");
    let (near, a, b) = (ssh.at("source"), at(&servers[0], "a"), at(&servers[1], "b"));
    let flags = ["--accept-new", "--rate=16M", "--replicas"];
    let mut copy = ssh.start("", &[&flags[..], &[&near, &a, &b, "x"]].concat());
    copy.progressed(1_000_000);
    servers[0].child().signal(Signal::KILL);
    let ended = copy.end();
    assert_eq!(ended.summary()["verified"], true, "{ended}");
    assert!(fs::read(ssh.here.join("x")).expect("it was copied") == content, "{ended}");
}

#[test]
fn each_server_is_checked_against_its_own_pin() {
    let star = Star::new(2);
    for (root, name) in star.roots.iter().zip(["a", "b"]) {
        write(&root.join(name), &bytes(1_000_000, 23));
    }
    let pin = |server: usize, id: usize| {
        format!("--server-id={}={}", star.servers[server].address, star.servers[id].id)
    };
    let copy = |flags: &[&str]| {
        let sources = ["a", "b"].iter().enumerate().map(|(n, name)| star.servers[n].at(name));
        let words = ["cp", "--json"].iter().chain(flags).map(Into::into);
        let command = words.chain(sources).chain([".".into()]).collect::<Vec<_>>();
        star.client_in_here(command)
    };
    copy(&[&pin(0, 0), &pin(1, 1)]).summary();
    // A server whose pin is the id of another server gets nothing.
    fs::remove_file(star.here.join("a")).expect("it was copied");
    fs::remove_file(star.here.join("b")).expect("it was copied");
    let ended = copy(&[&pin(0, 0), &pin(1, 0)]);
    ended.is(8, &[&star.servers[1].id, "nothing was sent"]);
    assert!(star.here.join("a").exists() && !star.here.join("b").exists(), "{ended}");
    // A bare id applies to servers without their own pin.
    let alone = |id: usize| format!("--server-id={}", star.servers[id].id);
    copy(&[&pin(1, 1), &alone(0)]).summary();
    copy(&[&alone(0)]).is(8, &["--server-id HOST=ID pins each"]);
    // Wrong pins are refused before anything is sent.
    let unknown = format!("--server-id=h9={}", star.servers[0].id);
    copy(&[&unknown]).is(2, &["names h9", &star.servers[0].address, &star.servers[1].address]);
    copy(&[&alone(0), &alone(1)]).is(2, &["which server has which", "HOST=ID"]);
    copy(&[&pin(0, 0), &pin(0, 1)]).is(2, &["two ids"]);
    copy(&["--server-id=h1=lh1:nonsense"]).is(2, &["h1=lh1:nonsense"]);
    assert!(!star.client.config.join("known_servers").exists(), "a pin is for one command");
}

#[test]
fn a_weight_multiplies_the_share_of_a_source() {
    let star = Star::new(2);
    for (root, name) in star.roots.iter().zip(["a", "b"]) {
        write(&root.join(name), &bytes(6_000_000, 24));
    }
    let weight = format!("--weight={}=4", star.servers[0].address);
    let mut copy = star.start(&["--receive-rate=16M", &weight], &[(0, "a"), (1, "b")], ".");
    let brought = |event: &Value, server| {
        star.row(event, server)["received_bytes"].as_u64().expect("a number of bytes")
    };
    let event = copy.event(|event| event["event"] == "progress" && brought(event, 0) > 4_000_000);
    let (heavy, light) = (brought(&event, 0), brought(&event, 1));
    let ended = copy.end();
    let summary = ended.summary();
    let receives = &summary["receives"];
    assert_eq!((&receives["from"], &receives["rate_bps"]), (&"given".into(), &16_000_000.into()));
    assert!(receives["others_bps"].is_null(), "{ended}");
    // Flows that are slower than requested cannot use a larger share.
    let in_time = summary["seconds"].as_f64() <= Some(12.0);
    need!(skip::unless(in_time, "this machine is too busy for 16 Mbit/s: weights decide nothing"));
    // The shares are four to one, except for data that arrive before the receiver's first schedule
    // (its division of the rate among the sources).
    assert!(heavy > 2 * light, "{heavy} and {light}: {ended}");
}

#[test]
fn a_limit_applies_to_all_sources_together_with_any_protocol() {
    let star = Star::new(2);
    let content = bytes(3_000_000, 27);
    star.roots.iter().zip(["a", "b"]).for_each(|(root, name)| write(&root.join(name), &content));
    for protocol in ["gtp", "rbudp", "tcp"] {
        let flags = ["--bwlimit=16M", &format!("--protocol={protocol}")];
        let ended = star.start(&flags, &[(0, "a"), (1, "b")], ".").end();
        let summary = ended.summary();
        // The tolerance allows for data before the first schedule.
        let least = 6e6 * 8.0 / 16e6 * 0.7;
        assert!(summary["seconds"].as_f64() >= Some(least), "{protocol} {ended}");
        ["a", "b"].iter().for_each(|name| {
            star.assert_copied(name, &content);
            fs::remove_file(star.here.join(name)).expect("it was copied");
        });
    }
}

#[test]
fn exceeding_the_memory_limit_is_reported() {
    let star = Star::new(2);
    star.roots.iter().zip(["a", "b"]).for_each(|(root, name)| write(&root.join(name), b"little"));
    let ended = star.start(&["--memory=32Mi"], &[(0, "a"), (1, "b")], ".").end();
    ended.is(0, &["2 sources need 67.11 MB", "of --memory: the copy uses 67.11 MB"]);
    let ended = star.start(&["--memory=64Mi"], &[(0, "a"), (1, "b")], ".").end();
    assert!(ended.events("warning").is_empty(), "{ended}");
}

#[test]
fn a_copy_from_several_hosts_resumes_with_other_hosts_after_a_kill() {
    // `each` bytes have arrived from each source at the kill, and `least` bytes survive. Data are
    // synced once a second, so an early kill may lose everything.
    for (each, least) in [(0, 0), (1, 0), (6_000_000, 6_000_000)] {
        kill_and_go_on(each, least);
    }
}

/// Kills a copy once at least `each` bytes have arrived from each of two hosts. Continues with a
/// third host instead of one of them. At least `least` bytes must not be sent again.
fn kill_and_go_on(each: u64, least: u64) {
    let star = Star::new(3);
    let contents = [bytes(12_000_000, 25), bytes(12_000_000, 26)];
    write(&star.roots[0].join("a"), &contents[0]);
    for server in [1, 2] {
        write(&star.roots[server].join("b"), &contents[1]);
    }
    // Progress events come once a second.
    let mut copy = star.start(&["--rate=12M"], &[(0, "a"), (1, "b")], ".");
    copy.event(|event| {
        let brought = |server| star.row(event, server)["received_bytes"].as_u64();
        event["event"] == "progress" && brought(0) >= Some(each) && brought(1) >= Some(each)
    });
    copy.kill();
    assert!(!star.here.join("a").exists() && !star.here.join("b").exists());
    let ended = star.start(&[], &[(0, "a"), (2, "b")], ".").end();
    // Data from the replaced source count too.
    let resumed = ended.summary()["resumed_bytes"].as_u64();
    assert!(resumed >= Some(least), "{each}: {ended}");
    star.assert_copied("a", &contents[0]);
    star.assert_copied("b", &contents[1]);
    assert!(remains(&star.here).is_empty());
}
