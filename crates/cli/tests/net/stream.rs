//! Streams, through `longhaul stream`.

use std::fs;
use std::process::{Command, Stdio};

use longhaul_stream::messages::{
    Again, Ask, Asked, End, Receive, Report, Send, State, Tell, Told, Way,
};
use rustix::process::Signal;

use super::liar::{self, block_on, meet};
use crate::rig::{Child, Ended, Host, Pair, Server, bytes};

/// A deadline that no frame misses, even on a busy host.
const DEADLINE: &str = "--deadline=20s";

fn command(pair: &Pair, verb: &str, name: &str, more: &[&str]) -> Command {
    pair.of_name(["stream", verb], name, more)
}

fn receive(pair: &Pair, name: &str, more: &[&str]) -> Child {
    Child::spawn(&mut command(pair, "receive", name, more))
}

/// Sends `frames` test frames as soon as the stream has `receivers` receivers.
fn pattern(pair: &Pair, name: &str, frames: u32, receivers: u32, more: &[&str]) -> Child {
    let (frames, receivers) = (format!("--frames={frames}"), format!("--receivers={receivers}"));
    let words = ["--test-pattern", "--json", "--frame=20000", "--fps=50", &frames, &receivers];
    let more: Vec<&str> = words.into_iter().chain(more.iter().copied()).collect();
    Child::spawn(&mut command(pair, "send", name, &more))
}

fn numbers(ended: &Ended) -> Vec<u64> {
    ended.events("frame").iter().filter_map(|frame| frame["number"].as_u64()).collect()
}

#[test]
fn each_of_several_receivers_gets_every_frame_whole_and_in_order() {
    let pair = Pair::of_services("stream=rw");
    let receivers: Vec<Child> =
        (0..3).map(|_| receive(&pair, "lab/cam", &["--check", "--json"])).collect();
    let sent = pattern(&pair, "lab/cam", 40, 3, &[DEADLINE]).end();
    let summary = sent.summary();
    assert_eq!((&summary["frames"], &summary["skipped"]), (&40.into(), &0.into()), "{sent}");
    let way = &sent.events("way")[0];
    assert!(
        way["way"].as_str().is_some_and(|way| way.contains("lost datagrams are sent again")),
        "{way}"
    );
    for receiver in receivers {
        let came = receiver.end();
        let summary = came.summary();
        assert_eq!(numbers(&came), (0..40).collect::<Vec<u64>>(), "{came}");
        assert_eq!((&summary["on_time"], &summary["wrong"]), (&40.into(), &0.into()), "{came}");
        assert_eq!(summary["bound_by"], "nothing", "{came}");
    }
}

#[test]
fn a_streamed_file_or_pipe_arrives_unchanged() {
    let pair = Pair::of_services("stream=rw");
    let content = bytes(10 * 30_000 + 777, 1);
    fs::write(pair.here.join("frames"), &content).unwrap();
    for source in ["frames", "-"] {
        let receiver = receive(&pair, "x", &["-o", "copy"]);
        let words = ["--frame=30000", "--fps=100", DEADLINE, "--receivers=1", source];
        let mut send = command(&pair, "send", "x", &words);
        send.stdin(fs::File::open(pair.here.join("frames")).unwrap());
        Child::spawn(&mut send).end().is(0, &["11 frames"]);
        receiver.end().is(0, &["11 frames on time"]);
        assert!(fs::read(pair.here.join("copy")).unwrap() == content, "by {source}");
    }
}

#[test]
fn a_streamed_folder_arrives_as_a_folder_and_frames_may_go_to_a_pipe() {
    let pair = Pair::of_services("stream=rw");
    let (from, to) = (pair.here.join("from"), pair.here.join("to"));
    fs::create_dir(&from).unwrap();
    fs::create_dir(&to).unwrap();
    let frames: Vec<Vec<u8>> = (0..6).map(|n| bytes(1 + 9_000 * n as usize, n)).collect();
    for (n, frame) in frames.iter().enumerate() {
        fs::write(from.join(format!("{n}.raw")), frame).unwrap();
    }
    let folder = receive(&pair, "x", &["-o", "to"]);
    let mut piped = command(&pair, "receive", "x", &["-o", "-"]);
    let piped = piped.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let words = ["--frame=50000", "--fps=50", DEADLINE, "--receivers=2", "from"];
    Child::spawn(&mut command(&pair, "send", "x", &words)).end().is(0, &[]);
    folder.end().is(0, &[]);
    assert_eq!(piped.wait_with_output().unwrap().stdout, frames.concat());
    for (n, frame) in frames.iter().enumerate() {
        assert!(fs::read(to.join(format!("frame-{n:010}"))).unwrap() == *frame, "frame {n}");
    }
    let small = ["--frame=5000", "--fps=50", DEADLINE, "from"];
    let refused = Child::spawn(&mut command(&pair, "send", "x", &small)).end();
    refused.is(2, &["--frame"]);
}

#[test]
fn a_stream_right_covers_its_prefix_and_its_direction() {
    let end = |pair: &Pair, name| pattern(pair, name, 1, 0, &[DEADLINE]).end();
    let refused = |ended: Ended, why: &str| {
        let what = ended.is(3, &[]).last()["what"].as_str().unwrap_or_default().to_owned();
        assert!(what.contains(why), "{ended}");
    };
    let reads = Pair::of_services("stream=ro:lab");
    refused(end(&reads, "lab/a"), "may not send 'lab/a'");
    refused(receive(&reads, "labs", &["--json"]).end(), "may not receive 'labs'");
    let writes = Pair::of_services("stream=wo:lab");
    end(&writes, "lab/a").is(0, &[]);
    refused(end(&writes, "x"), "may not send 'x'");
    refused(receive(&writes, "lab/a", &["--json"]).end(), "may not receive");
    refused(end(&Pair::of_services("files=rw"), "x"), "has no right to stream");
    for bad in ["", "a//b", "../x"] {
        let ended = end(&writes, bad);
        assert_eq!(ended.status, Some(2), "{bad:?}: {ended}");
    }
}

#[test]
fn invalid_arguments_are_refused() {
    let pair = Pair::of_services("stream=rw");
    let send = |words: &[&str]| {
        let words = [&["--test-pattern"], words].concat();
        Child::spawn(&mut command(&pair, "send", "x", &words)).end()
    };
    send(&["--frame=17Mi", "--fps=1", DEADLINE]).is(2, &["1 to 16777216"]);
    send(&["--frame=1", "--fps=0", DEADLINE]).is(2, &["0 frames a second"]);
    send(&["--frame=1", "--fps=1", "--deadline=2m"]).is(2, &["a deadline of"]);
    send(&["--frame=1", "--fps=1", DEADLINE, "source"]).is(2, &["takes no SOURCE"]);
    let both = receive(&pair, "x", &["--json", "-o", "-"]).end();
    assert_eq!(both.status, Some(2), "{both}");
}

#[test]
fn frames_above_the_rate_are_skipped_or_thinned_as_configured() {
    let pair = Pair::of_services("stream=rw");
    fs::write(pair.here.join("frames"), bytes(100 * 50_000, 1)).unwrap();
    for how in ["skip", "thin"] {
        let receiver = receive(&pair, "x", &["--json"]);
        let behind = format!("--when-behind={how}");
        // The sender sends at 1.25 times the necessary rate, so a frame takes 0.8 s. The file
        // delivers its frames faster.
        let words = ["--json", "--frame=50000", "--fps=1", DEADLINE, "--receivers=1", &behind, "-"];
        let mut send = command(&pair, "send", "x", &words);
        send.stdin(fs::File::open(pair.here.join("frames")).unwrap());
        let sent = Child::spawn(&mut send).end();
        let summary = sent.summary();
        let skipped = summary["skipped"].as_u64().expect("a number");
        assert_eq!(summary["frames"], 100, "{sent}");
        assert!(skipped > 50, "{sent}");
        let came = receiver.end();
        let (numbers, summary) = (numbers(&came), came.summary());
        assert_eq!(numbers.len() as u64 + skipped, 100, "{came}");
        assert_eq!(summary["missed"].as_u64(), Some(skipped), "{came}");
        let newest = numbers.last().copied();
        assert_eq!(newest == Some(99), how == "thin", "{how}: {numbers:?}");
    }
}

#[test]
fn another_id_may_not_send_the_same_stream_and_the_same_id_takes_it_over() {
    let scratch = tempfile::tempdir().unwrap();
    let host = |name: &str| Host::new(&scratch.path().join(name));
    let (one, other) = (host("one"), host("other"));
    let allow = [format!("{},stream=rw", one.id), format!("{},stream=rw", other.id)];
    let args = ["--allow", &allow[0], "--allow", &allow[1]];
    let server = Server::start(&host("server"), scratch.path(), &args);
    let url = server.at("x").into_string().unwrap();
    let id = format!("--server-id={}", server.id);
    let send = |host: &Host| {
        let words = ["stream", "send", "--test-pattern", "--json", "--frame=1000", "--fps=50"];
        let words = words.into_iter().chain([DEADLINE, &id, &url]);
        Child::spawn(&mut host.command(words))
    };
    let mut first = send(&one);
    first.event(|event| event["event"] == "way");
    let refused = send(&other).end();
    let what = refused.is(3, &[]).last()["what"].as_str().unwrap_or_default().to_owned();
    assert!(what.contains("already sends the stream 'x'"), "{refused}");
    let mut second = send(&one);
    second.event(|event| event["event"] == "way");
    let what = first.end().is(3, &[]).last()["what"].as_str().unwrap_or_default().to_owned();
    assert!(what.contains("another process of this client"), "{what}");
    second.event(|event| event["event"] == "progress");
}

#[test]
fn a_receiver_continues_with_the_next_sender_if_the_first_is_killed() {
    let pair = Pair::of_services("stream=rw");
    let mut receiver = receive(&pair, "x", &["--json", "--check"]);
    let first = pattern(&pair, "x", 100_000, 1, &[DEADLINE]);
    receiver.event(|event| event["event"] == "frame" && event["number"].as_u64() > Some(5));
    first.kill();
    let second = pattern(&pair, "x", 20, 1, &[DEADLINE]);
    receiver.event(|event| event["event"] == "begun");
    second.end().is(0, &[]);
    let came = receiver.end();
    assert_eq!(came.events("begun").len(), 2, "{came}");
    assert_eq!(came.summary()["wrong"], 0, "{came}");
    let last = came.events("frame").last().cloned().unwrap_or_default();
    assert_eq!(last["number"], 19, "{came}");
}

#[test]
fn after_an_outage_a_stream_continues_without_old_frames() {
    let mut pair = Pair::of_services("stream=rw");
    let mut receiver = receive(&pair, "x", &["--json", "--check"]);
    let words =
        ["--json", "--test-pattern", "--frame=20000", "--fps=50", DEADLINE, "--receivers=1"];
    let mut sender = Child::spawn(&mut command(&pair, "send", "x", &words));
    receiver.event(|event| event["event"] == "frame" && event["number"].as_u64() > Some(5));
    pair.kill_server();
    sender.event(|event| event["event"] == "lost");
    pair.start_again();
    sender.event(|event| event["event"] == "heard-again");
    let missed = receiver.event(|event| event["event"] == "missed");
    let last = missed["last"].as_u64().expect("a number");
    let after = receiver.event(|event| event["event"] == "frame");
    assert!(after["number"].as_u64() > Some(last), "{missed} {after}");
    drop(sender);
    receiver.signal(Signal::INT);
    let came = receiver.end();
    // The sender is still the same one: its frames continue in order.
    assert_eq!(came.events("begun").len(), 1, "{came}");
    assert!(numbers(&came).is_sorted_by(|a, b| a < b), "{came}");
}

#[test]
fn the_server_withholds_frames_only_from_a_frozen_receiver() {
    let pair = Pair::of_services("stream=rw");
    let mut frozen = receive(&pair, "x", &["--json", "--check"]);
    let other = receive(&pair, "x", &["--json", "--check"]);
    let mut sender = pattern(&pair, "x", 400, 2, &["--deadline=1s"]);
    frozen.event(|event| event["event"] == "frame");
    frozen.signal(Signal::STOP);
    // Waits for 6 of the stream's 8 s. The server stops forwarding to a silent receiver after 4 s.
    sender.event(|event| event["event"] == "progress" && event["frames"].as_u64() > Some(300));
    frozen.signal(Signal::CONT);
    sender.end().is(0, &[]);
    let came = other.end();
    let summary = came.summary();
    assert_eq!((&summary["withheld"], &summary["wrong"]), (&0.into(), &0.into()), "{came}");
    let came = frozen.end();
    let summary = came.summary();
    assert!(summary["withheld"].as_u64() > Some(0) && summary["wrong"] == 0, "{came}");
    assert!(summary["missed"].as_u64() > Some(0), "{came}");
    // No old frame from the host's buffers follows a newer one.
    assert!(numbers(&came).is_sorted_by(|a, b| a < b), "{came}");
}

#[test]
fn a_receiver_whose_output_nobody_reads_bounds_its_memory() {
    let pair = Pair::of_services("stream=rw");
    // Nobody reads from this pipe, so its writer blocks.
    let mut stuck = command(&pair, "receive", "x", &["-o", "-"]);
    let mut stuck = stuck.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let other = receive(&pair, "x", &["--json", "--check"]);
    let words = ["--test-pattern", "--json", "--frame=1Mi", "--fps=40", "--frames=120"];
    let more = [&words[..], &[DEADLINE, "--receivers=2"]].concat();
    let sent = Child::spawn(&mut command(&pair, "send", "x", &more)).end();
    sent.is(0, &[]);
    let peak = crate::rig::peak(stuck.id());
    stuck.kill().unwrap();
    stuck.wait().unwrap();
    let came = other.end();
    assert_eq!(came.summary()["wrong"], 0, "{came}");
    // 120 MiB were sent.
    assert!(peak < 80 << 20, "{peak} bytes");
}

/// Sends `asks`. Returns up to three answers of the server, and its error if it sends one.
fn told(pair: &Pair, asks: Vec<Ask>) -> (Vec<Tell>, Option<String>) {
    told_in_version(pair, 2, asks)
}

fn told_in_version(pair: &Pair, version: u32, asks: Vec<Ask>) -> (Vec<Tell>, Option<String>) {
    liar::told(pair, ("stream", version), asks, 3)
}

fn ask(asked: Asked) -> Ask {
    Ask { asked: Some(asked) }
}

/// A request to send symbols (the payloads of datagrams) of frame 0 again.
fn again(first: Vec<u32>, last: Vec<u32>) -> Ask {
    ask(Asked::Again(Again { frame: 0, first, last, receiver: 0 }))
}

fn honest() -> Send {
    Send {
        name: "lab/x".into(),
        flow: 7,
        cipher: "aes-128-gcm".into(),
        run: 1,
        symbol: 1_400,
        frame: 1_000,
        per_second_milli: 20_000,
        deadline_micros: 100_000,
        group: 0,
    }
}

#[test]
fn a_server_refuses_false_values_in_each_message_and_continues() {
    let pair = Pair::of_services("stream=rw:lab");
    let most = u32::MAX;
    for (lie, why) in [
        (Send { name: "x".into(), ..honest() }, "may not send"),
        (Send { name: "lab/../x".into(), ..honest() }, "not a name"),
        (Send { name: "x".repeat(513), ..honest() }, "not a name"),
        (Send { cipher: "none\u{1b}".into(), ..honest() }, "no cipher none is known"),
        (Send { symbol: 0, ..honest() }, "datagrams with 0"),
        (Send { symbol: 1_401, ..honest() }, "datagrams with 1401"),
        (Send { symbol: most, ..honest() }, "datagrams with"),
        (Send { frame: 0, ..honest() }, "frames of 0"),
        (Send { frame: most, ..honest() }, "frames of"),
        (Send { per_second_milli: 0, ..honest() }, "frames a second"),
        (Send { per_second_milli: u64::MAX, ..honest() }, "frames a second"),
        (Send { group: most, ..honest() }, "payloads of"),
        (Send { deadline_micros: 0, ..honest() }, "a deadline of"),
        (Send { deadline_micros: u64::MAX, ..honest() }, "a deadline of"),
    ] {
        let (_, last) = told(&pair, vec![ask(Asked::Send(lie.clone()))]);
        assert!(last.as_deref().is_some_and(|last| last.contains(why)), "{lie:?}: {last:?}");
    }
    let asks_for = |name: &str| {
        let cipher = "aes-128-gcm".to_owned();
        Receive { name: name.to_owned(), flow: 9, cipher }
    };
    for (lie, why) in [
        (asks_for("x"), "may not receive"),
        (asks_for("lab//x"), "not a name"),
        (Receive { cipher: "rot13".into(), ..asks_for("lab/x") }, "no cipher"),
    ] {
        let (_, last) = told(&pair, vec![ask(Asked::Receive(lie.clone()))]);
        assert!(last.as_deref().is_some_and(|last| last.contains(why)), "{lie:?}: {last:?}");
    }
    let report = Report {
        loss_ppm: most,
        burst_milli: most,
        jitter_micros: u64::MAX,
        on_time: u64::MAX,
        missed: u64::MAX,
    };
    let (_, last) = told_in_version(&pair, 1, vec![ask(Asked::Receive(asks_for("lab/x")))]);
    assert!(last.as_deref().is_some_and(|last| last.contains("version")), "{last:?}");
    // The server accepts a false report, and a request for symbols of a stream that nobody sends.
    let asks = vec![
        ask(Asked::Receive(asks_for("lab/x"))),
        ask(Asked::Report(report.clone())),
        again(vec![0, 9], vec![3, 65_535]),
    ];
    let (heard, last) = told(&pair, asks);
    assert!(last.is_none() && heard.len() == 3, "{last:?}");
    for asks in [
        vec![Ask::default()],
        vec![ask(Asked::End(End { frames: most }))],
        vec![ask(Asked::Report(report.clone()))],
        vec![again(vec![0], vec![1])],
        vec![ask(Asked::Send(honest())), again(vec![0], vec![1])],
        vec![ask(Asked::Receive(asks_for("lab/x"))), again(vec![1], vec![0])],
        vec![ask(Asked::Receive(asks_for("lab/x"))), again(vec![0, 1], vec![1])],
        vec![ask(Asked::Receive(asks_for("lab/x"))), again(vec![0], vec![most])],
        vec![ask(Asked::Receive(asks_for("lab/x"))), again(vec![0; 1_025], vec![0; 1_025])],
        vec![ask(Asked::Receive(asks_for("lab/x"))), ask(Asked::Send(honest()))],
        vec![ask(Asked::Receive(asks_for("lab/x"))), ask(Asked::End(End { frames: 1 }))],
        vec![ask(Asked::Send(honest())), ask(Asked::Send(honest()))],
        vec![ask(Asked::Send(honest())), ask(Asked::Report(report))],
    ] {
        let (_, last) = told(&pair, asks.clone());
        assert!(last.is_some(), "{asks:?}");
    }
    let receiver = receive(&pair, "lab/x", &["--json", "--check"]);
    pattern(&pair, "lab/x", 5, 1, &[DEADLINE]).end().is(0, &[]);
    assert_eq!(numbers(&receiver.end()), [0, 1, 2, 3, 4]);
}

/// Makes `count` requests, each on its own session, and keeps the sessions. Returns why the server
/// refuses one more.
async fn refused_after(pair: &Pair, count: u32, asked: impl Fn(u32) -> Asked) -> String {
    let mut kept = Vec::new();
    for number in 0..count {
        let mut session = meet(pair, &pair.client).await;
        session.ask_for("stream", 2);
        session.write(&ask(asked(number))).await.unwrap();
        assert!(session.read::<Tell>().await.is_ok_and(|told| told.is_some()), "{number}");
        kept.push(session);
    }
    let mut session = meet(pair, &pair.client).await;
    session.ask_for("stream", 2);
    session.write(&ask(asked(count))).await.unwrap();
    session.read::<Tell>().await.err().map(|error| error.what).unwrap_or_default()
}

#[test]
fn one_id_has_at_most_16_streams_and_256_receivers_at_a_server() {
    let pair = Pair::of_services("stream=rw");
    let sends = |flow| Asked::Send(Send { name: format!("s/{flow}"), flow, ..honest() });
    let refused = block_on(refused_after(&pair, 16, sends));
    assert!(refused.contains("this id has 16 streams"), "{refused}");
    let receives = |flow| {
        let cipher = "aes-128-gcm".to_owned();
        Asked::Receive(Receive { name: format!("r/{flow}"), flow: 100 + flow, cipher })
    };
    let refused = block_on(refused_after(&pair, 256, receives));
    assert!(refused.contains("this id has 256 receivers"), "{refused}");
}

#[test]
fn a_receiver_with_false_messages_costs_the_others_no_frame() {
    let pair = Pair::of_services("stream=rw");
    for way in ["code", "repair"] {
        let mut receiver = receive(&pair, "x", &["--json", "--check"]);
        let way = format!("--way={way}");
        let sender = pattern(&pair, "x", 100, 1, &[DEADLINE, &way]);
        let sent = block_on(async {
            let mut session = meet(&pair, &pair.client).await;
            session.ask_for("stream", 2);
            let cipher = "aes-128-gcm".to_owned();
            let receive = Receive { name: "x".to_owned(), flow: 9, cipher };
            session.write(&ask(Asked::Receive(receive))).await.unwrap();
            // The hostile receiver never reads, reports that it loses everything, and requests
            // everything.
            let report = Report {
                loss_ppm: u32::MAX,
                burst_milli: u32::MAX,
                jitter_micros: u64::MAX,
                ..Report::default()
            };
            for number in [20, 60] {
                receiver.event(|event| event["number"].as_u64() > Some(number));
                for frame in (0..100).cycle().take(1_000) {
                    session.write(&ask(Asked::Report(report.clone()))).await.unwrap();
                    let (first, last) = (vec![0], vec![u32::from(u16::MAX)]);
                    let again = Again { frame, first, last, receiver: frame };
                    session.write(&ask(Asked::Again(again))).await.unwrap();
                }
            }
            let sent = tokio::task::spawn_blocking(|| sender.end()).await.unwrap();
            let _ = session.close(None).await;
            sent
        });
        // Even if receivers report more, the sender adds repairs for a loss of at most 10 % in
        // bursts of 64 datagrams.
        let count = |field: &str| sent.summary()[field].as_u64().expect("a number");
        assert!(count("most_repairs") < 500, "{sent}");
        // The stream has 100 frames of 15 datagrams. With `repair`, the sender resends each
        // datagram about once at most.
        let resent = count("resent");
        let is_right =
            if way == "--way=code" { resent == 0 } else { (15..2_000).contains(&resent) };
        assert!(is_right, "{sent}");
        assert_eq!(numbers(&receiver.end()).len(), 100);
    }
}

#[test]
fn frames_arrive_by_each_way_even_if_the_last_payload_has_fewer_frames() {
    let pair = Pair::of_services("stream=rw");
    for (way, words) in [
        ("auto", "repair at"),
        ("repair", "repair at"),
        ("code", "repairs a frame"),
        ("payloads", "payloads at"),
    ] {
        let receiver = receive(&pair, "lab/cam", &["--check", "--json"]);
        let (flag, more) = (format!("--way={way}"), ["--frame=1000000", "--fps=40"]);
        // With `payloads`, up to 16 frames of 1 MB share a payload of 16 MiB. The last of the three
        // payloads has 8 frames.
        let sent = pattern(&pair, "lab/cam", 40, 1, &[DEADLINE, &flag, more[0], more[1]]).end();
        let summary = sent.is(0, &[]).summary();
        assert_eq!((&summary["frames"], &summary["skipped"]), (&40.into(), &0.into()), "{sent}");
        assert!(summary["way"].as_str().is_some_and(|way| way.contains(words)), "{sent}");
        let came = receiver.end();
        assert_eq!(numbers(&came), (0..40).collect::<Vec<u64>>(), "{way} {came}");
        assert_eq!(came.summary()["wrong"], 0, "{came}");
        let begun = &came.events("begun")[0];
        assert_eq!(begun["frames_per_second"], 40.0, "{begun}");
    }
    let short = ["--way=repair", "--deadline=1ms"];
    let refused = pattern(&pair, "lab/cam", 1, 0, &short).end();
    let what = refused.is(2, &[]).last()["what"].as_str().unwrap_or_default().to_owned();
    assert!(what.contains("no stream by repair meets"), "{refused}");
}

#[test]
fn clients_refuse_invalid_answers() {
    let lied = |verb: &'static str, lies: Vec<Tell>| {
        liar::lied::<Ask, _>("stream", lies, move |client, id, there| {
            let url = there.into_string().unwrap() + "key";
            let words: &[&str] = match verb {
                "send" => &["--test-pattern", "--frame=1000", "--fps=50", "--deadline=1s"],
                _ => &[],
            };
            let id = format!("--server-id={id}");
            let all = [&["stream", verb], words, &["--json", "--retry-for=0s", &id, &url]].concat();
            client.run(all)
        })
    };
    let way = |way| Tell { told: Some(Told::Way(way)) };
    let state = |state| Tell { told: Some(Told::State(state)) };
    let most = u64::MAX;
    let all = Way {
        receivers: u32::MAX,
        nearest_micros: most,
        farthest_micros: most,
        loss_ppm: u32::MAX,
        burst_milli: u32::MAX,
        jitter_micros: most,
        came: most,
        on_time: most,
        missed: most,
        carried_bps: most,
    };
    let live = State { phase: 1, symbol: 1_400, ..State::default() };
    let again = Again { frame: 0, first: vec![1], last: vec![0], receiver: 0 };
    let again = Tell { told: Some(Told::Again(again)) };
    for lies in [
        vec![way(all)],
        vec![state(live.clone())],
        vec![Tell::default()],
        vec![again.clone()],
        vec![],
    ] {
        let ended = lied("send", lies.clone());
        assert_ne!(ended.status, Some(0), "{lies:?}: {ended}");
    }
    for lies in [
        vec![state(State { symbol: u32::MAX, ..live.clone() })],
        vec![state(State { deadline_micros: most, ..live.clone() })],
        vec![state(State { group: u32::MAX, ..live.clone() })],
        vec![again],
        vec![state(live)],
        vec![way(Way::default())],
        vec![Tell::default()],
    ] {
        let ended = lied("receive", lies.clone());
        assert_ne!(ended.status, Some(0), "{lies:?}: {ended}");
        let count = ended.events("error").len();
        assert_eq!((count, ended.stdout.len()), (1, 1), "{ended}");
    }
}

#[test]
fn the_log_has_the_end_of_each_receiver() {
    let mut pair = Pair::of_services("stream=rw,channel=rw");
    let mut receiver = receive(&pair, "lab/cam", &["--json"]);
    pattern(&pair, "lab/cam", 3, 1, &[DEADLINE]).end().is(0, &[]);
    receiver.ended().is(0, &[]);
    let mut waiting = receive(&pair, "lab/none", &[]);
    waiting.complaint("receives lh://");
    waiting.signal(Signal::INT);
    assert_eq!(waiting.ended().status, Some(130));
    let words = ["channel", "receive"];
    let mut subscriber = Child::spawn(&mut pair.of_name(words, "lab/room", &[]));
    subscriber.complaint("receives lh://");
    subscriber.signal(Signal::INT);
    assert_eq!(subscriber.ended().status, Some(130));
    for wish in ["receives the stream /lab/cam", "receives the stream /lab/none", "room /lab/room"]
    {
        let is_end = |event: &serde_json::Value| {
            let asked = event["wish"].as_str().unwrap_or_default();
            event["event"] == "ended" && asked.contains(wish)
        };
        let ended = pair.server.child().event(is_end);
        assert_eq!(ended["result"], "done", "{ended}");
    }
}

#[test]
fn a_receiver_without_frames_reports_neither_delays_nor_a_bound() {
    let pair = Pair::of_services("stream=rw");
    let mut receiver = receive(&pair, "lab/none", &[]);
    receiver.complaint("receives lh://");
    receiver.signal(Signal::INT);
    let ended = receiver.end();
    ended.is(130, &["0 frames on time"]);
    assert!(!ended.stderr.contains("bound by") && !ended.stderr.contains("median"), "{ended}");
}

#[test]
fn a_missing_output_folder_is_named() {
    let pair = Pair::of_services("stream=rw");
    let ended = receive(&pair, "lab/cam", &["-o", "missing/"]).end();
    ended.is(4, &["the folder missing/ does not exist", "mkdir -p missing/"]);
}

#[test]
fn a_refused_receiver_does_not_say_that_it_receives() {
    let pair = Pair::of_services("files=ro,stream=wo:/lab,channel=wo:/lab");
    for service in ["stream", "channel"] {
        let words = [service, "receive"];
        let ended = Child::spawn(&mut pair.of_name(words, "lab/cam", &[])).end();
        ended.is(3, &["this client may not receive", "its right is wo:/lab"]);
        assert!(!ended.stderr.contains("receives"), "{ended}");
    }
}
