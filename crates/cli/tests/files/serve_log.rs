//! A server's log of its clients.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use longhaul_transfer::options::{ServerPin, Trust};
use longhaul_transfer::session::trust::ask_nobody;
use longhaul_transfer::session::{Identity, Kind, Settings, connect};
use rustix::process::Signal;

use crate::rig::{Child, Host, Pair, Server, bytes, wait_until, write, write_private};

#[test]
fn a_server_logs_requests_results_and_refusals_to_stderr_unless_quiet() {
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
            let refused = format!("was refused: {} is not allowed here", stranger.id);
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
        let [asked, done, _, failed] = said[..] else { panic!("not four lines: {ended}") };
        let (time, asked) = asked.split_once("Z ").expect("a line begins with the time");
        assert!(time.starts_with("longhaul: 20") && asked.starts_with("127.0.0.1:"), "{asked}");
        assert!(asked.contains(&format!("({}) writes to /new\\nname", pair.client.id)), "{asked}");
        assert!(done.contains("/new\\nname: done, 1 file, 1.00 kB in"), "{done}");
        assert!(failed.contains("reads /none: failed, 0 files") && failed.contains("No such file"));
    }
}

#[test]
fn a_server_logs_five_refusals_and_counts_the_others() {
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
    ended.is(0, &["3 more clients were refused"]);
}

#[test]
fn client_and_server_report_a_client_of_an_unknown_version() {
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
    let told = pair.server.child().complaint("was refused");
    for text in [heard.to_string(), told] {
        assert!(text.contains("version 2") && text.contains("versions 7 to 9"), "{text}");
    }
}

/// A server that logs to `log` and names its client Ada.
fn logged(scratch: &Path, log: &Path, args: &[&str]) -> Pair {
    let mut pair = Pair::new();
    let allowed = scratch.join("allowed");
    write_private(&allowed, &format!("{}:rw # Ada\n", pair.client.id));
    let (allowed, log) = (allowed.to_str().expect("text"), log.to_str().expect("text"));
    let args = [&["--allow-file", allowed, "--log-file", log], args].concat();
    let mut words = Server::words("127.0.0.1:0", &pair.there, &args);
    if !args.contains(&"--json") {
        words.retain(|word| word != "--json");
        let mut child = Child::spawn(&mut pair.host.command(words));
        let line = child.line().expect("it is ready");
        let address = line.split_whitespace().skip_while(|word| *word != "on").nth(1);
        let address = address.expect("it says where").to_owned();
        pair.server = Server { child, address, data_port: 0, id: pair.host.id.clone() };
    } else {
        words.dedup();
        pair.server = Server::start_as(&mut pair.host.command(words));
    }
    pair
}

fn lines(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).expect("the log is there");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_log_file_has_a_line_for_each_transfer_with_name_size_rate_and_result() {
    let scratch = tempfile::tempdir().expect("there is room");
    let log = scratch.path().join("log");
    let mut pair = logged(scratch.path(), &log, &["--json"]);
    write(&pair.here.join("tree/a"), &bytes(300_000, 1));
    write(&pair.here.join("tree/b"), &bytes(1000, 2));
    // The second file fails, because a folder has its name.
    write(&pair.there.join("out/tree/b/x"), b"x");
    pair.cp(&[&"-r", &"tree", &pair.at("out/")]).is(8, &[]);
    pair.cp(&[&pair.at("out/tree/a"), &"copy"]).summary();
    pair.cp(&[&pair.at("none"), &"."]).is(5, &[]);
    pair.server.child().signal(Signal::TERM);
    let ended = pair.server.into_child().end();
    assert_eq!(ended.stdout.len(), 1, "stdout has only the ready line: {ended}");
    assert!(ended.stderr.is_empty(), "{ended}");
    let mode = fs::metadata(&log).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let events: Vec<serde_json::Value> =
        lines(&log).iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [some, all, none] = &events[..] else { panic!("three lines: {events:?}") };
    for event in &events {
        assert_eq!((&event["event"], &event["name"]), (&"ended".into(), &"Ada".into()), "{event}");
        assert_eq!(event["peer"], pair.client.id, "{event}");
        let time = event["time"].as_str().expect("a text");
        assert!(time.starts_with("20") && time.ends_with('Z') && time.len() == 20, "{event}");
        assert!(event["seconds"].as_f64().expect("a number") > 0.0, "{event}");
    }
    assert_eq!((&some["result"], &some["path"]), (&"partial".into(), &"/out/".into()), "{some}");
    assert_eq!((&some["files"], &some["failed_files"]), (&1.into(), &1.into()), "{some}");
    assert!(some["bytes"].as_u64() >= Some(300_000), "{some}");
    assert_eq!((&all["result"], &all["bytes"]), (&"done".into(), &300_000.into()), "{all}");
    assert!(all["rate_bps"].as_u64() > Some(0), "{all}");
    assert_eq!((&none["result"], &none["class"]), (&"failed".into(), &"local-file".into()));
}

#[test]
fn files_that_fail_at_the_source_count_in_the_servers_log_at_a_push_and_at_a_pull() {
    let scratch = tempfile::tempdir().expect("there is room");
    let log = scratch.path().join("log");
    let mut pair = logged(scratch.path(), &log, &["--json"]);
    for root in [&pair.here, &pair.there] {
        write(&root.join("t/x"), b"x");
        fs::create_dir(root.join("several")).expect("a new folder");
    }
    write(&pair.here.join("list"), b"x\nno/such\n");
    let named = ["1 file FAILED"];
    pair.copy(&["--files-from=list"], "t", pair.at("listed")).end().is(8, &named);
    pair.copy(&["--files-from=list"], pair.at("t"), "listed").end().is(8, &named);
    pair.cp(&[&"t/x", &"none", &pair.at("several/")]).is(8, &named);
    pair.cp(&[&pair.at("t/x"), &pair.at("none"), &"several/"]).is(8, &named);
    pair.server.child().signal(Signal::TERM);
    pair.server.into_child().end().is(0, &[]);
    assert_eq!(lines(&log).len(), 4);
    for line in lines(&log) {
        let event: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(event["result"], "partial", "{event}");
        assert_eq!((&event["files"], &event["failed_files"]), (&1.into(), &1.into()), "{event}");
    }
}

#[test]
fn sighup_reopens_the_log_file_and_each_transfer_stays_on_one_line() {
    let scratch = tempfile::tempdir().expect("there is room");
    let (log, old) = (scratch.path().join("log"), scratch.path().join("log.1"));
    let mut pair = logged(scratch.path(), &log, &[]);
    write(&pair.here.join("file"), &bytes(1000, 1));
    pair.cp(&[&"file", &pair.at("new\nname")]).summary();
    // The client may learn of the end before the log is written.
    wait_until("the first line is there", || !lines(&log).is_empty());
    fs::rename(&log, &old).expect("as logrotate does");
    pair.server.child().signal(Signal::HUP);
    wait_until("the log is there again", || log.exists());
    pair.cp(&[&"file", &pair.at("second")]).summary();
    pair.server.child().signal(Signal::TERM);
    pair.server.into_child().end().is(0, &[]);
    let [first] = &lines(&old)[..] else { panic!("one line: {:?}", lines(&old)) };
    let said = format!("({} Ada) writes to /new\\nname: done, 1 file, 1.00 kB in ", pair.client.id);
    assert!(first.contains(&said), "{first}");
    let [second] = &lines(&log)[..] else { panic!("one line: {:?}", lines(&log)) };
    assert!(second.contains("writes to /second: done"), "{second}");
}

#[test]
fn a_server_does_not_start_with_a_log_file_that_cannot_be_written() {
    let scratch = tempfile::tempdir().expect("there is room");
    let host = Host::new(&scratch.path().join("config"));
    let log = scratch.path().join("none/log");
    let args = ["--allow", &host.id, "--log-file", log.to_str().expect("text")];
    let words = Server::words("127.0.0.1:0", scratch.path(), &args);
    let ended = Child::spawn(&mut host.command(words)).end();
    ended.is(4, &["cannot write the log", "none/log", "--log-file"]);
    assert_eq!(ended.events("error").len(), ended.stdout.len(), "{ended}");
}

#[test]
fn a_log_file_has_a_line_for_each_request_of_a_probe() {
    let scratch = tempfile::tempdir().expect("there is room");
    let log = scratch.path().join("log");
    let mut pair = logged(scratch.path(), &log, &["--json"]);
    let (id, server) = (&pair.server.id, &pair.server.address);
    let (id, server) = (format!("--server-id={id}"), format!("lh://{server}"));
    pair.client.run(["probe", "--json", &id, &server]).summary();
    pair.server.child().signal(Signal::TERM);
    pair.server.into_child().end().is(0, &[]);
    // A probe sends two requests: for UDP, and for TCP.
    let ends = lines(&log);
    assert_eq!(ends.len(), 2, "{ends:?}");
    for line in ends {
        let event: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(
            (&event["event"], &event["result"]),
            (&"ended".into(), &"done".into()),
            "{event}"
        );
        let (name, peer) = ("Ada".into(), pair.client.id.as_str().into());
        assert_eq!((&event["name"], &event["peer"]), (&name, &peer), "{event}");
    }
}
