//! Commands close their sessions before they end, and send few requests to a server that shuts
//! down.

use std::cell::Cell;
use std::fs;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::mount::{Mounted, fuse};
use crate::rig::{Child, Pair, need, side_by_side, write};

fn is(event: &Value, name: &str) -> bool {
    event["event"] == name
}

#[test]
fn top_closes_its_session_at_a_signal_and_when_nobody_reads_its_output() {
    let view = r#""$@" | head -n 2"#;
    side_by_side([&["env"][..], &["sh", "-c", view, "sh"]], |wrapper| {
        let mut pair = Pair::of_services("status=ro");
        let id = format!("--server-id={}", pair.server.id);
        let url = pair.at("").into_string().expect("our own name");
        let words = ["top", "--json", "--interval=0.1", &id, &url];
        let mut top = Child::spawn(&mut pair.client.wrapped(wrapper, words));
        top.event(|event| is(event, "status"));
        if wrapper == ["env"] {
            top.signal(Signal::INT);
        }
        top.end().is(0, &[]);
        let ended = pair.server.child().event(|event| is(event, "ended"));
        assert_eq!(ended["result"], "done", "{wrapper:?}: {ended}");
    });
}

#[test]
fn mount_closes_its_session_at_an_unmount_and_at_a_signal() {
    need!(fuse());
    for (signal, keeps_open) in
        [(None, false), (Some(Signal::INT), false), (Some(Signal::TERM), true)]
    {
        let mut pair = Pair::new();
        write(&pair.there.join("file"), b"content");
        let mut mounted = Mounted::of(&pair, &[], pair.at(""));
        let mut open = Some(fs::File::open(mounted.at.join("file")).expect("it is mounted"));
        open.take_if(|_| !keeps_open);
        match signal {
            Some(signal) => mounted.child.signal(signal),
            None => {
                let unmounted = Command::new("umount").arg(&mounted.at).status();
                assert!(unmounted.expect("there is umount").success());
            }
        }
        mounted.child.ended().is(0, &[]);
        // The number of running requests, and whether the request for the file has ended.
        let (left, has_ended) = (Cell::new(0), Cell::new(false));
        pair.server.child().event(|event| {
            left.set(left.get() + i32::from(is(event, "asked")) - i32::from(is(event, "ended")));
            if is(event, "ended") {
                assert_eq!(event["result"], "done", "{signal:?}: {event}");
                has_ended.set(has_ended.get() || event["wish"].to_string().contains("file"));
            }
            left.get() == 0 && has_ended.get()
        });
    }
}

#[test]
fn a_server_that_shuts_down_closes_the_session_of_an_idle_mount_with_the_reason() {
    need!(fuse());
    let mut pair = Pair::new();
    write(&pair.there.join("file"), b"content");
    let mut mounted = Mounted::of(&pair, &["--retry-for=1s"], pair.at(""));
    pair.server.child().signal(Signal::TERM);
    pair.server.child().ended().is(0, &[]);
    fs::read(mounted.at.join("file")).expect_err("there is no server");
    mounted.child.complaint("it is shutting down");
    mounted.child.signal(Signal::TERM);
    mounted.child.ended().is(0, &[]);
}

#[test]
fn an_interrupted_sender_of_a_stream_closes_its_session_with_the_reason() {
    let mut pair = Pair::of_services("stream=rw");
    let words = ["--test-pattern", "--json", "--frame=1000", "--fps=50", "--deadline=5s"];
    let mut sender = Child::spawn(&mut pair.of_name(["stream", "send"], "x", &words));
    sender.event(|event| is(event, "progress"));
    sender.signal(Signal::INT);
    sender.end().is(130, &[]);
    let ended = pair.server.child().event(|event| is(event, "ended"));
    assert_eq!(ended["result"], "failed", "{ended}");
    assert!(
        ended["what"].as_str().is_some_and(|what| what.ends_with("says: interrupted")),
        "{ended}"
    );
}

#[test]
fn clients_send_few_requests_to_a_server_that_shuts_down() {
    let mut pair = Pair::of_services("channel=rw,stream=rw");
    let clients = ["channel", "stream", "channel"]
        .map(|service| Child::spawn(&mut pair.of_name([service, "receive"], "room", &["--json"])));
    for _ in &clients {
        pair.server.child().event(|event| is(event, "asked"));
    }
    // The server waits 2 s for the frozen client before it ends.
    clients[2].signal(Signal::STOP);
    pair.server.child().signal(Signal::TERM);
    let ended = pair.server.into_child().end();
    let asked = ended.events("asked").len();
    assert!(asked < 25, "{asked} requests of three clients");
}
