//! Monitoring of a server: metrics, page, events, and `longhaul top`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::has;
use crate::rig::{Child, DEADLINE, Ended, Host, Server, bytes, need, write, write_private};

const TOKEN: &str = "page-token-0123456789";

/// A server with a page, and a client that may copy and watch.
struct Seen {
    server: Server,
    page: SocketAddr,
    /// The address of HTTP, if enabled.
    http: Option<SocketAddr>,
    client: Host,
    _host: Host,
    scratch: TempDir,
}

impl Seen {
    fn new() -> Seen {
        Seen::with(&[])
    }

    /// Like [`Seen::new`], with further arguments for `serve`.
    fn with(more: &[&str]) -> Seen {
        let scratch = tempfile::tempdir().expect("there is room for a folder");
        let folder = |name: &str| scratch.path().join(name);
        let (client, host) = (Host::new(&folder("client")), Host::new(&folder("server")));
        let (data, token) = (folder("data"), folder("token"));
        fs::create_dir(&data).expect("the scratch folder is ours");
        write_private(&token, TOKEN);
        let allow = format!("{},files=rw,share=rw,channel=rw,status=ro", client.id);
        let (tree, token) = (folder("tree"), token.to_str().expect("our own name").to_owned());
        let args = ["--allow", &allow, "--share", tree.to_str().expect("our own name")];
        let ui = ["--ui", "127.0.0.1:0", "--ui-token", &token];
        let words = Server::words("127.0.0.1:0", &data, &[&args[..], &ui, more].concat());
        let mut child = Child::spawn(&mut host.command(words));
        let ready = child.event(|event| event["event"] == "ready");
        let text = |name: &str| ready[name].as_str().expect("it is a text").to_owned();
        let at = |name: &str| {
            let host = ready[name].as_str()?.strip_prefix("http://")?.split('/').next()?;
            host.parse().ok()
        };
        let (page, http) = (at("ui").expect("an address"), at("http"));
        let server = Server { child, address: text("address"), data_port: 0, id: text("id") };
        Seen { server, page, http, client, _host: host, scratch }
    }

    fn url(&self) -> String {
        format!("http://{}/?token={TOKEN}", self.page)
    }

    fn open(&self, head: &str) -> TcpStream {
        Seen::open_at(self.page, head)
    }

    fn open_at(address: SocketAddr, head: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a time limit");
        let head = format!("{head}Host: localhost\nConnection: close\n\n").replace('\n', "\r\n");
        stream.write_all(head.as_bytes()).expect("it reads");
        stream
    }

    fn ask(&self, method: &str, target: &str, more: &str) -> String {
        let mut reply = String::new();
        let mut stream = self.open(&format!("{method} {target} HTTP/1.1\n{more}"));
        stream.read_to_string(&mut reply).expect("the reply is text");
        reply
    }

    fn get(&self, path: &str) -> String {
        let reply = self.ask("GET", &format!("{path}?token={TOKEN}"), "");
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
        reply.split_once("\r\n\r\n").expect("a head and a body").1.to_owned()
    }

    /// A copy that takes a few seconds.
    fn slow_copy(&self, name: &str, content: &[u8]) -> Child {
        let path = self.scratch.path().join(name);
        write(&path, content);
        let id = format!("--server-id={}", self.server.id);
        let to = self.server.at("secret-name");
        let words: [&dyn AsRef<std::ffi::OsStr>; 6] =
            [&"cp", &"--json", &id, &"--bwlimit=20M", &path, &to];
        Child::spawn(&mut self.client.command(crate::rig::words(&words)))
    }

    fn top(&self, args: &[&str]) -> Command {
        let id = format!("--server-id={}", self.server.id);
        let mut command = self.client.command(["top", &id]);
        command.args(args).arg(format!("lh://{}/", self.server.address));
        command
    }
}

/// A family of OpenMetrics text.
#[derive(Default)]
struct Family {
    kind: String,
    unit: String,
    has_help: bool,
    samples: BTreeMap<String, f64>,
}

/// Checks OpenMetrics text by the specification (1.0) and by longhaul's own rules.
fn lint(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let body = text.trim_end().strip_suffix("# EOF").expect("the text ends with its mark");
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let [word, name, value] = rest.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                panic!("three words: {line}")
            };
            if word == "TYPE" {
                assert!(!families.contains_key(name), "{name} comes twice");
                current = name.to_owned();
            }
            assert_eq!(name, current, "the lines of a family are together");
            let family = families.entry(name.to_owned()).or_default();
            match word {
                "TYPE" => family.kind = value.to_owned(),
                "UNIT" => family.unit = value.to_owned(),
                "HELP" => family.has_help = value.ends_with('.'),
                other => panic!("{other}: {line}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a series and its value");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        assert!(value.is_finite() && value >= 0.0, "{line}");
        let name = series.split('{').next().unwrap_or_default();
        let family = families.get_mut(&current).expect("a family before its samples");
        let ending = match family.kind.as_str() {
            "counter" => "_total",
            "gauge" => "",
            "info" => "_info",
            other => panic!("{other} is no type"),
        };
        assert_eq!(name, format!("{current}{ending}"), "{line}");
        let labels = series.strip_prefix(name).unwrap_or_default();
        assert!(labels.is_empty() || labels.starts_with('{') && labels.ends_with("\"}"), "{line}");
        for pair in labels.trim_matches(['{', '}']).split(',').filter(|pair| !pair.is_empty()) {
            let key = pair.split('=').next().unwrap_or_default();
            assert!(
                ["way", "result", "where", "version", "method", "status"].contains(&key),
                "a new label: {line}"
            );
        }
        let is_new = family.samples.insert(series.to_owned(), value).is_none();
        assert!(is_new, "{series} comes twice");
    }
    for (name, family) in &families {
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        assert!(name.starts_with("longhaul_") || name.starts_with("process_"), "{name}");
        assert!(family.has_help && !family.samples.is_empty(), "{name} has help and samples");
        assert!(name.ends_with(&family.unit), "{name} ends with {}", family.unit);
        assert!(!name.ends_with("_total"), "{name}: the ending belongs to its samples");
    }
    families
}

fn value(families: &BTreeMap<String, Family>, series: &str) -> f64 {
    let mut all = families.values().flat_map(|family| &family.samples);
    all.find(|(name, _)| *name == series).unwrap_or_else(|| panic!("no {series}")).1.to_owned()
}

#[test]
fn metrics_are_well_formed_and_count_copied_data_and_name_no_file_or_peer() {
    let seen = Seen::new();
    let before = lint(&seen.get("/metrics"));
    assert_eq!(value(&before, "longhaul_delivered_bytes_total{way=\"in\"}"), 0.0);
    let content = bytes(12_000_000, 1);
    let mut copy = seen.slow_copy("source", &content);
    copy.progressed(300_000);
    let text = seen.get("/metrics");
    let during = lint(&text);
    assert_eq!(value(&during, "longhaul_transfers{way=\"in\"}"), 1.0, "{text}");
    copy.ended().is(0, &[]);
    let done = "longhaul_requests_ended_total{result=\"done\"}";
    crate::rig::wait_until("the request has ended", || {
        value(&lint(&seen.get("/metrics")), done) > 0.0
    });
    let text = seen.get("/metrics");
    let after = lint(&text);
    assert_eq!(value(&after, "longhaul_delivered_bytes_total{way=\"in\"}"), 12_000_000.0);
    assert_eq!(value(&after, "longhaul_delivered_files_total{way=\"in\"}"), 1.0);
    assert_eq!(value(&after, "longhaul_transfers{way=\"in\"}"), 0.0);
    assert!(value(&after, "longhaul_received_datagrams_total") > 40.0, "{text}");
    assert!(value(&after, "process_cpu_seconds_total") > 0.0);
    for (name, earlier) in &before {
        for (series, count) in &earlier.samples {
            let is_counter = earlier.kind == "counter";
            assert!(!is_counter || value(&after, series) >= *count, "{name} fell");
        }
    }
    for name in ["secret-name", "lh1:", "127.0.0.1", "source", " -0"] {
        assert!(!text.contains(name), "{name} is in {text}");
    }
}

#[test]
fn downloads_and_reads_of_ranges_are_counted() {
    let seen = Seen::new();
    write(&seen.scratch.path().join("data/file"), &bytes(3_000_000, 5));
    let id = format!("--server-id={}", seen.server.id);
    let (from, to) = (seen.server.at("file"), seen.scratch.path().join("copy"));
    let words: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"cp", &id, &from, &to];
    seen.client.run(crate::rig::words(&words)).is(0, &[]);
    let out = |name: &str| {
        let families = lint(&seen.get("/metrics"));
        value(&families, &format!("longhaul_delivered_{name}_total{{way=\"out\"}}"))
    };
    crate::rig::wait_until("the copy has ended", || out("files") > 0.0);
    assert_eq!((out("files"), out("bytes")), (1.0, 3_000_000.0));
    let words: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"cat", &id, &"--range=5-12", &from];
    seen.client.run(crate::rig::words(&words)).is(0, &[]);
    crate::rig::wait_until("the read is counted", || out("bytes") == 3_000_007.0);
    assert_eq!(out("files"), 1.0);
}

#[test]
fn http_requests_are_counted_without_their_paths() {
    let seen = Seen::with(&["--http", "127.0.0.1:0", "--http-public"]);
    let http = seen.http.expect("it is enabled");
    write(&seen.scratch.path().join("data/secret-name"), &bytes(300_000, 1));
    let reply = |head: &str| {
        let mut reply = Vec::new();
        Seen::open_at(http, head).read_to_end(&mut reply).expect("it answers");
        reply.len() as f64
    };
    let mut sent = reply("GET /secret-name HTTP/1.1\n");
    sent += reply("GET /secret-name HTTP/1.1\nRange: bytes=0-9\n");
    sent += reply("GET /nothing HTTP/1.1\n");
    sent += reply("SECRET-METHOD / HTTP/1.1\n");
    crate::rig::wait_until("the connections are closed", || {
        value(&lint(&seen.get("/metrics")), "longhaul_http_connections") == 0.0
    });
    let _open = TcpStream::connect(http).expect("it listens");
    crate::rig::wait_until("a connection is open", || {
        value(&lint(&seen.get("/metrics")), "longhaul_http_connections") == 1.0
    });
    let text = seen.get("/metrics");
    let families = lint(&text);
    for (method, status, count) in [("GET", "2xx", 2.0), ("GET", "4xx", 1.0), ("other", "4xx", 1.0)]
    {
        let labels = format!("method=\"{method}\",status=\"{status}\"");
        assert_eq!(value(&families, &format!("longhaul_http_requests_total{{{labels}}}")), count);
    }
    assert_eq!(value(&families, "longhaul_http_bytes_total{way=\"out\"}"), sent, "{text}");
    assert!(value(&families, "longhaul_http_bytes_total{way=\"in\"}") > 100.0, "{text}");
    assert!(!text.to_lowercase().contains("secret"), "{text}");
}

#[test]
fn top_names_the_rooms_and_the_metrics_count_them_without_their_names() {
    let seen = Seen::new();
    let (id, room) = (format!("--server-id={}", seen.server.id), seen.server.at("lab/secret-room"));
    let room = room.to_str().expect("our own name");
    let words = ["channel", "receive", "--json", &id, room];
    let mut subscriber = Child::spawn(&mut seen.client.command(words));
    subscriber.event(|event| event["event"] == "joined");
    let said = seen.scratch.path().join("said");
    write(&said, b"one\ntwo\n");
    let mut send = seen.client.command(["channel", "send", &id, room]);
    send.stdin(fs::File::open(&said).expect("it was written"));
    Child::spawn(&mut send).end().is(0, &["2 messages, 2 taken"]);
    subscriber.event(|event| event["text"] == "two");
    let reported = Child::spawn(&mut seen.top(&["--once", "--json"])).ended_with(0);
    let reported: Value = serde_json::from_str(&reported.stdout[0]).expect("a line of JSON");
    let row = &reported["rooms"][0];
    assert_eq!(
        (&row["room"], &row["messages"]),
        (&json!("lab/secret-room"), &json!(2)),
        "{reported}"
    );
    assert_eq!((&row["subscribers"], &reported["totals"]["room_messages"]), (&json!(1), &json!(2)));
    let once = Child::spawn(&mut seen.top(&["--once"])).ended_with(0);
    assert!(once.stdout.join("\n").contains("lab/secret-room"), "{once}");
    let text = seen.get("/metrics");
    let families = lint(&text);
    assert_eq!(value(&families, "longhaul_rooms"), 1.0, "{text}");
    assert_eq!(value(&families, "longhaul_room_messages_total"), 2.0, "{text}");
    assert_eq!(value(&families, "longhaul_room_clients{way=\"out\"}"), 1.0, "{text}");
    assert!(!text.contains("secret-room"), "{text}");
}

#[test]
fn the_page_requires_a_token_and_is_read_only_and_loads_nothing_from_elsewhere() {
    let seen = Seen::new();
    for target in ["/", "/metrics", "/state", "/events", "/?token=", "/metrics?token=page-token"] {
        let refused = seen.ask("GET", target, "");
        assert!(refused.starts_with("HTTP/1.1 403 "), "{target}: {refused}");
    }
    for method in ["POST", "PUT", "DELETE", "PROPFIND"] {
        let refused = seen.ask(method, &format!("/?token={TOKEN}"), "Content-Length: 0\n");
        assert!(refused.starts_with("HTTP/1.1 405 "), "{method}: {refused}");
    }
    let bearer = format!("Authorization: Bearer {TOKEN}\n");
    assert!(seen.ask("GET", "/metrics", &bearer).contains("# EOF"));
    assert!(seen.ask("GET", "/none", &bearer).starts_with("HTTP/1.1 404 "));
    let (page, again) = (seen.ask("GET", "/", &bearer), seen.ask("GET", "/", &bearer));
    let policy = |reply: &str| {
        let lines = reply.lines().map(str::to_ascii_lowercase);
        let mut policies = lines.filter(|line| line.starts_with("content-security-policy"));
        policies.next().expect("it has a policy")
    };
    for word in ["default-src 'none'", "script-src 'nonce-", "frame-ancestors 'none'"] {
        assert!(policy(&page).contains(word), "{page}");
    }
    assert!(!policy(&page).contains("unsafe") && policy(&page) != policy(&again));
    assert!(page.contains("referrer-policy: no-referrer") && !page.contains(TOKEN), "{page}");
    let words = ["serve", "--root", ".", "--allow", &seen.client.id, "--ui", "0.0.0.0:0"];
    let open = seen.client.run(words);
    open.is(2, &["in the clear", "ssh -L"]);
}

#[test]
fn events_come_at_most_ten_times_a_second_and_show_the_transfer() {
    let seen = Seen::new();
    let mut copy = seen.slow_copy("source", &bytes(10_000_000, 2));
    copy.progressed(100_000);
    let begun = Instant::now();
    let mut lines = BufReader::new(seen.open(&format!("GET /events?token={TOKEN} HTTP/1.1\n")));
    let (mut events, mut line) = (Vec::<Value>::new(), String::new());
    while begun.elapsed() < Duration::from_secs(2) {
        line.clear();
        lines.read_line(&mut line).expect("events come");
        if let Some(data) = line.strip_prefix("data: ") {
            events.push(serde_json::from_str(data).expect("an event is JSON"));
        }
    }
    // At most ten events a second: 20 in 2 s, plus a tolerance of two. A busy host may send fewer.
    assert!((8..=22).contains(&events.len()), "{} events in 2 s", events.len());
    let last = &events.last().expect("there are some")["transfers"][0];
    let first = &events[0]["transfers"][0];
    assert_eq!(
        (&last["wish"], &last["receives"]),
        (&json!("writes to /secret-name"), &json!(true))
    );
    assert_eq!(last["peer"], json!(seen.client.id));
    let number = |row: &Value, name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{row}"));
    assert!(number(last, "bytes") > number(first, "bytes"), "{first} {last}");
    let arrived = |row: &Value| -> u64 {
        let cells = row["chunk_map"].as_array().unwrap_or_else(|| panic!("{row}"));
        assert_eq!(cells.len(), 10, "a cell for each MiB: {row}");
        cells.iter().filter_map(Value::as_u64).sum()
    };
    // Each of the ten cells is a percentage, so 1000 is the whole object.
    assert!(arrived(first) < arrived(last) && arrived(last) < 1000, "{first} {last}");
    let rate = number(last, "rate_now_bps");
    assert!((5e6..40e6).contains(&rate), "20 Mbit/s were asked for: {last}");
    assert_eq!(last["bound_by"], "rate", "{last}");
    assert!(number(last, "received") > 0.0 && number(last, "sending_bps") > 0.0, "{last}");
    drop(lines);
    copy.ended().is(0, &[]);
}

#[test]
fn top_shows_a_server_to_an_allowed_client_and_not_to_an_unknown_one() {
    let mut seen = Seen::new();
    let mut copy = seen.slow_copy("source", &bytes(12_000_000, 3));
    copy.progressed(100_000);
    let once = Child::spawn(&mut seen.top(&["--once"])).ended_with(0);
    let text = once.stdout.join("\n");
    assert!(text.contains("writes to /secret-name") && text.contains("bit/s"), "{once}");
    assert!(text.contains("shared tree: 0 keys"), "{once}");
    let ended = seen.server.child().event(|event| event["event"] == "ended");
    assert_eq!(ended["result"], "done", "the command closed the session: {ended}");
    let reported = Child::spawn(&mut seen.top(&["--once", "--json"])).ended_with(0);
    let reported: Value = serde_json::from_str(&reported.stdout[0]).expect("a line of JSON");
    assert!(
        reported["transfers"][0]["rate_now_bps"].as_u64().expect("a rate") > 1_000_000,
        "{reported}"
    );
    let mut view = Child::spawn(&mut seen.top(&["--json", "--interval", "0.1"]));
    view.event(|event| event["event"] == "status");
    view.event(|event| event["event"] == "status");
    view.signal(rustix::process::Signal::INT);
    view.ended().is(0, &[]);
    copy.ended().is(0, &[]);
    let other = Host::new(&seen.scratch.path().join("other"));
    let id = format!("--server-id={}", seen.server.id);
    let refused = other.run(["top", "--once", &id, &format!("lh://{}/", seen.server.address)]);
    assert_ne!(refused.status, Some(0), "{refused}");
    assert!(refused.stdout.is_empty(), "{refused}");
}

trait EndedWith {
    fn ended_with(self, status: i32) -> Ended;
}

impl EndedWith for Child {
    fn ended_with(mut self, status: i32) -> Ended {
        let ended = self.ended();
        ended.is(status, &[]);
        ended
    }
}

/// A headless Chromium, controlled by the DevTools protocol over a pipe.
pub(super) struct Browser {
    process: std::process::Child,
    replies: BufReader<std::process::ChildStdout>,
    number: u64,
    session: String,
}

impl Browser {
    pub(super) fn start(folder: &Path) -> Browser {
        let line = "exec chromium --headless --no-sandbox --disable-gpu --no-first-run \
                    --disable-dev-shm-usage --disable-background-networking --hide-scrollbars \
                    --user-data-dir=profile --remote-debugging-pipe 3<&0 4>&1 2>/dev/null";
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(folder).env("HOME", folder);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("there is a shell");
        let replies = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut browser = Browser { process, replies, number: 0, session: String::new() };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", &attach);
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        browser.call("Runtime.enable", &json!({}));
        browser.call("Log.enable", &json!({}));
        browser
    }

    fn read(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.replies.read_until(0, &mut bytes).expect("the browser lives");
        bytes.pop();
        serde_json::from_slice(&bytes).expect("the browser sends JSON")
    }

    /// Calls a method; fails if the page reports errors meanwhile.
    pub(super) fn call(&mut self, method: &str, params: &Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let stdin = self.process.stdin.as_mut().expect("it is piped");
        stdin.write_all(format!("{message}\0").as_bytes()).expect("the browser reads");
        loop {
            let reply = self.read();
            let event = reply["method"].as_str().unwrap_or_default();
            let is_error = reply["params"]["entry"]["level"] == "error";
            assert!(event != "Runtime.exceptionThrown" && !is_error, "{reply}");
            if reply["id"] == json!(self.number) {
                assert!(reply["error"].is_null(), "{method}: {reply}");
                return reply["result"].clone();
            }
        }
    }

    pub(super) fn eval(&mut self, script: &str) -> Value {
        let params = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        self.call("Runtime.evaluate", &params)["result"]["value"].clone()
    }

    pub(super) fn wait(&mut self, condition: &str) {
        let script = format!(
            "new Promise((done) => {{ const look = () => ({condition}) ? done(true) : \
             setTimeout(look, 50); look(); \
             setTimeout(() => done(document.body.innerText), 15000); }})"
        );
        let met = self.eval(&script);
        assert_eq!(met, json!(true), "{condition}");
    }

    fn screen(&mut self, (wide, high): (u32, u32), scheme: &str, path: &Path) {
        let size = json!({"width": wide, "height": high, "deviceScaleFactor": 1,
            "mobile": wide < 600});
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", &media);
        // Waits until the plots are drawn again.
        self.eval("new Promise((done) => setTimeout(() => requestAnimationFrame(done), 400))");
        let shot = self.call("Page.captureScreenshot", &json!({"format": "png"}));
        let data = shot["data"].as_str().expect("a picture");
        let mut decode = Command::new("base64");
        decode.arg("-d").stdin(Stdio::piped());
        let mut decode = decode
            .stdout(fs::File::create(path).expect("the folder is ours"))
            .spawn()
            .expect("there is base64");
        let stdin = decode.stdin.take();
        stdin.expect("it is piped").write_all(data.as_bytes()).expect("it reads");
        assert!(decode.wait().expect("it ends").success());
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_browser_shows_the_progress_of_transfers() {
    need!(has("chromium"));
    let seen = Seen::new();
    let mut copy = seen.slow_copy("source", &bytes(60_000_000, 4));
    copy.progressed(100_000);
    let shots = match std::env::var_os("LONGHAUL_WRITE_SHOTS") {
        Some(folder) => PathBuf::from(folder),
        None => seen.scratch.path().join("shots"),
    };
    fs::create_dir_all(&shots).expect("the folder can be made");
    let mut browser = Browser::start(seen.scratch.path());
    browser.call("Page.enable", &json!({}));
    browser.call("Page.navigate", &json!({"url": seen.url()}));
    browser.wait(
        "document.querySelector('#link') && \
                  document.querySelector('#link').textContent === 'live'",
    );
    browser.wait("document.querySelectorAll('article').length === 1");
    let title = browser.eval("document.querySelector('h3').textContent");
    assert_eq!(title, json!("↓ writes to /secret-name"));
    let delivered = "document.querySelector('article [data-name=delivered]').textContent";
    let first = browser.eval(delivered);
    browser.wait(&format!("{delivered} !== {first}"));
    // Each plot has an alternative text.
    browser.wait(
        "[...document.querySelectorAll('canvas')].every((canvas) => \
                  (canvas.getAttribute('aria-label') || '').includes(':'))",
    );
    let map = browser.eval("document.querySelector('.map canvas').getAttribute('aria-label')");
    assert!(map.as_str().is_some_and(|text| text.contains(" of 58 parts")), "{map}");
    let rate = browser.eval("document.querySelector('.plots canvas').getAttribute('aria-label')");
    assert!(rate.as_str().is_some_and(|text| text.contains("delivered")), "{rate}");
    browser.wait("performance.now() > 4000");
    browser.screen((1100, 640), "light", &shots.join("light.png"));
    browser.screen((1100, 640), "dark", &shots.join("dark.png"));
    browser.screen((390, 844), "dark", &shots.join("phone.png"));
    let overflow = browser.eval("document.documentElement.scrollWidth > innerWidth");
    assert_eq!(overflow, json!(false), "the page fits a phone");
    // Enter folds the details of a transfer.
    browser.eval("document.querySelector('article').focus()");
    for kind in ["keyDown", "keyUp"] {
        let key = json!({"type": kind, "key": "Enter", "code": "Enter",
            "windowsVirtualKeyCode": 13});
        browser.call("Input.dispatchKeyEvent", &key);
    }
    let folded = browser.eval("document.querySelector('article').getAttribute('aria-expanded')");
    assert_eq!(folded, json!("false"));
    let colours: BTreeSet<u8> =
        fs::read(shots.join("light.png")).expect("it is there").into_iter().collect();
    assert!(colours.len() > 100, "the picture is not empty");
    copy.signal(rustix::process::Signal::INT);
    copy.ended();
    browser.wait("!document.querySelector('#idle').hidden");
}
