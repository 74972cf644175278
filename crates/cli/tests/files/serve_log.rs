//! What a server says of its clients: one calm line each on stderr; with `--json`, as servers of
//! these tests have it, one event each on stdout.

use std::time::Duration;

use longhaul_transfer::options::{ServerPin, Trust};
use longhaul_transfer::session::trust::ask_nobody;
use longhaul_transfer::session::{Identity, Kind, Settings, connect};
use rustix::process::Signal;

use crate::rig::{Host, Pair, bytes, write};

#[test]
fn a_server_tells_of_clients_and_ends_and_refusals_on_stderr_and_is_silent_with_q() {
    for (quiet, flags) in [(false, &[][..]), (true, &["-q"])] {
        let mut pair = Pair::with(flags);
        write(&pair.here.join("file"), &bytes(1000, 1));
        pair.cp(&[&"file", &pair.at("new\nname")]).summary();
        pair.cp(&[&pair.at("none"), &"."]).is(5, &["none"]);
        let stranger = Host::new(&pair.scratch.path().join("stranger"));
        let id = format!("--server-id={}", pair.server.id);
        let from = pair.at("new\nname");
        let words = crate::rig::words(&[&"cp", &id, &from, &"stolen"]);
        let mut copy = stranger.command(words);
        crate::rig::Child::spawn(copy.current_dir(&pair.here)).end().is(3, &[]);
        if !quiet {
            let refused = format!("was turned away: {} is not allowed here", stranger.id);
            pair.server.child().complaint(&refused);
        }
        pair.server.child().signal(Signal::TERM);
        let ended = pair.server.into_child().end();
        let events = ended.stdout.iter().map(|line| {
            let event: serde_json::Value = serde_json::from_str(line).expect("an event is JSON");
            event["event"].as_str().expect("an event has a name").to_owned()
        });
        let told = ["ready", "asked", "ended", "asked", "ended", "refused"];
        assert_eq!(events.collect::<Vec<_>>(), told, "{ended}");
        let said = ended.stderr.lines().filter(|line| line.contains(&pair.client.id));
        let said: Vec<&str> = said.collect();
        if quiet {
            assert!(said.is_empty(), "{ended}");
            continue;
        }
        let [asked, done, _, failed] = said[..] else { panic!("four lines of it: {ended}") };
        assert!(asked.starts_with("longhaul: 127.0.0.1:"), "{asked}");
        assert!(asked.contains(&format!("({}) writes to /new\\nname", pair.client.id)), "{asked}");
        assert!(done.contains("/new\\nname: done in"), "{done}");
        assert!(failed.contains("reads /none: ended after") && failed.contains("No such file"));
    }
}

#[test]
fn clients_without_rights_get_five_lines_and_the_others_are_counted() {
    let mut pair = Pair::new();
    let stranger = Host::new(&pair.scratch.path().join("stranger"));
    let (id, from) = (format!("--server-id={}", pair.server.id), pair.at("file"));
    for _ in 0..8 {
        let words = crate::rig::words(&[&"cp", &"--retry-for=0s", &id, &from, &"stolen"]);
        crate::rig::Child::spawn(stranger.command(words).current_dir(&pair.here)).end().is(3, &[]);
    }
    pair.server.child().signal(Signal::TERM);
    let ended = pair.server.into_child().end();
    let lines = ended.stderr.lines().filter(|line| line.contains("is not allowed here"));
    assert_eq!(lines.count(), 5, "{ended}");
    ended.is(0, &["3 more clients were turned away"]);
}

#[test]
fn a_client_of_an_unknown_version_is_told_on_both_sides() {
    let mut pair = Pair::new();
    let server: std::net::SocketAddr = pair.server.address.parse().expect("an address");
    let identity = Identity::load_or_create(&pair.client.config).expect("it is there");
    let trust = Trust {
        config_dir: pair.client.config.clone(),
        pins: vec![ServerPin { server: None, id: pair.server.id.clone() }],
        accept_new: false,
    };
    let settings = Settings { versions: 7..=9, ..Settings::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let heard = runtime.expect("a runtime").block_on(async {
        let (host, port) = (server.ip().to_string(), server.port());
        let session = connect(&host, port, &identity, &trust, &ask_nobody, &settings).await;
        let mut session = session.expect("it listens");
        session.write(&1u32).await.expect("it is open");
        let answer = tokio::time::timeout(Duration::from_secs(60), session.read::<u32>()).await;
        answer.expect("it answers").expect_err("there is no common version")
    });
    assert_eq!(heard.kind, Kind::Unreachable);
    let told = pair.server.child().complaint("was turned away");
    for text in [heard.to_string(), told] {
        assert!(text.contains("version 2") && text.contains("versions 7 to 9"), "{text}");
    }
}
