//! Copies from HTTP servers: longhaul's, and a test server with faults.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::BASE64;
use rustix::process::Signal;
use tempfile::TempDir;

use super::http::{Http, READER, has, succeeds};
use crate::rig::slow::{as_words, failing_first_calls};
use crate::rig::{
    Child, Ended, Host, Server, bytes, need, remains, wait_until, write, write_private,
};

const MEBI: usize = 1 << 20;

struct Client {
    host: Host,
    scratch: TempDir,
}

impl Client {
    fn new() -> Client {
        let scratch = tempfile::tempdir().expect("there is room for a folder");
        Client { host: Host::new(&scratch.path().join("client")), scratch }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// `cp --json`, not started yet.
    fn command(&self, flags: &[&str], url: &str, name: &str) -> Command {
        let mut command = self.host.command(["cp", "--json"]);
        command.args(flags).arg(url).arg(self.path(name)).env("no_proxy", "*");
        command
    }

    fn cp(&self, flags: &[&str], url: &str, name: &str) -> Ended {
        Child::spawn(&mut self.command(flags, url, name)).end()
    }

    fn content(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("it is there")
    }
}

/// A request for a range, or for the whole file.
struct Asked {
    method: String,
    path: String,
    fields: BTreeMap<String, String>,
    /// Number of earlier requests.
    number: u64,
}

impl Asked {
    fn read(stream: &mut BufReader<TcpStream>, number: u64) -> Option<Asked> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            match stream.read_line(&mut line) {
                Ok(len) if len > 2 => lines.push(line.trim_end().to_owned()),
                Ok(2) => break,
                _ => return None,
            }
        }
        let mut first = lines.first()?.split(' ').map(str::to_owned);
        let pairs = lines.iter().skip(1).filter_map(|line| line.split_once(": "));
        let fields = pairs.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        Some(Asked { method: first.next()?, path: first.next()?, fields, number })
    }

    fn range(&self, len: usize) -> Option<Range<usize>> {
        let (first, last) = self.fields.get("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some(first.parse().ok()?..(last.parse::<usize>().ok()? + 1).min(len))
    }
}

type Reply = (String, Vec<u8>);

/// A server with replies that the test chooses.
struct Liar {
    address: SocketAddr,
    /// Bytes of all bodies so far. A reply to HEAD counts with the body that it omits.
    sent: Arc<AtomicU64>,
}

impl Liar {
    /// If `reply` returns `None`, the server closes the connection without an answer.
    fn start(reply: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static) -> Liar {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (reply, sent, count) =
            (Arc::new(reply), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let bytes = sent.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (reply, bytes, count) = (reply.clone(), bytes.clone(), count.clone());
                thread::spawn(move || {
                    let mut write = stream.try_clone().expect("it is open");
                    let mut read = BufReader::new(stream);
                    while let Some(asked) = Asked::read(&mut read, count.load(Ordering::SeqCst)) {
                        count.fetch_add(1, Ordering::SeqCst);
                        let Some((head, body)) = reply(&asked) else { return };
                        let head = head.replace('\n', "\r\n");
                        if write.write_all(head.as_bytes()).is_err() {
                            return;
                        }
                        if asked.method != "HEAD" && write.write_all(&body).is_err() {
                            return;
                        }
                        bytes.fetch_add(body.len() as u64, Ordering::SeqCst);
                        if head.contains("Connection: close") {
                            return;
                        }
                    }
                });
            }
        });
        Liar { address, sent }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }
}

/// An honest reply with the further header fields `more`.
fn honest(asked: &Asked, content: &[u8], more: &str) -> Reply {
    match asked.range(content.len()) {
        Some(range) => {
            let head = format!(
                "HTTP/1.1 206 Partial\nContent-Range: bytes {}-{}/{}\nContent-Length: {}\n{more}\n",
                range.start,
                range.end - 1,
                content.len(),
                range.len()
            );
            (head, content[range].to_vec())
        }
        None => {
            let head = format!("HTTP/1.1 200 OK\nContent-Length: {}\n{more}\n", content.len());
            (head, content.to_vec())
        }
    }
}

fn sha256(content: &[u8]) -> String {
    let value = BASE64.encode(digest(&SHA256, content).as_ref());
    format!("Repr-Digest: sha-256=:{value}:\n")
}

#[test]
fn a_file_of_longhauls_http_server_is_copied_once() {
    let (http, client) = (Http::new(&[]), Client::new());
    let content = bytes(20 * MEBI + 5, 1);
    write(&http.data.join("run 42.h5"), &content);
    let token = client.path("token");
    write_private(&token, READER);
    fs::create_dir(client.path("to")).unwrap();
    let flags = [&format!("--token-file={}", token.display())[..]];
    let url = format!("{}run 42.h5", http.url);
    let summary = client.cp(&flags, &url, "to").summary();
    assert_eq!((&summary["protocol"], &summary["verified"]), (&"http".into(), &false.into()));
    assert!(client.content("to/run 42.h5") == content);
    let modified = |path: PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    let since = |path| modified(path).duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(since(client.path("to/run 42.h5")), since(http.data.join("run 42.h5")));
    let again = client.cp(&flags, &url, "to").summary();
    assert_eq!((&again["skipped_files"], &again["copied_files"]), (&1.into(), &0.into()));
    client.cp(&[], &url, "to").is(3, &["credentials", "--token-file"]);
    write_private(&client.path("wrong"), "wrong-0123456789abcdef");
    let wrong = [&format!("--token-file={}", client.path("wrong").display())[..]];
    client.cp(&wrong, &url, "to").is(3, &["does not accept the given token"]);
    client.cp(&flags, &format!("{}in/", http.url), "x").is(5, &["/in/ is a folder", "one file"]);
    client.cp(&flags, &format!("{}in", http.url), "x").is(5, &["/in is a folder"]);
    let none = format!("{}none", http.url);
    client.cp(&flags, &none, "to").is(5, &["does not exist"]);
    let user = url.replace("http://", &format!("http://ada:{READER}@"));
    let empty = user.replace("run 42.h5", "empty");
    write(&http.data.join("empty"), b"");
    client.cp(&[], &empty, "empty").summary();
    assert_eq!(client.content("empty"), b"");
    let dry = client.cp(&["-n"], &user, "dry").summary();
    assert!(dry["copied_files"] == 1 && !client.path("dry").exists());
}

#[test]
fn a_published_digest_verifies_the_file_and_a_file_with_another_digest_is_not_kept() {
    let client = Client::new();
    let content = bytes(9 * MEBI + 1, 2);
    for (len, url) in [(content.len(), "whole"), (3, "small")] {
        let part = content[..len].to_vec();
        let server = Liar::start(move |asked| Some(honest(asked, &part, &sha256(&part))));
        let summary = client.cp(&[], &server.url(url), url).summary();
        assert_eq!(summary["verified"], true);
        assert!(client.content(url) == content[..len]);
    }
    let (right, wrong) = (content.clone(), bytes(content.len(), 3));
    let lies = Arc::new(AtomicU64::new(1));
    let lying = lies.clone();
    let server = Liar::start(move |asked| {
        let sent = if lying.load(Ordering::SeqCst) == 1 { &wrong } else { &right };
        Some(honest(asked, sent, &format!("ETag: \"1\"\n{}", sha256(&right))))
    });
    let ended = client.cp(&[], &server.url("f"), "f");
    ended.is(6, &["does not have its published SHA-256"]);
    assert!(!client.path("f").exists());
    lies.store(0, Ordering::SeqCst);
    assert_eq!(client.cp(&[], &server.url("f"), "f").summary()["verified"], true);
    assert!(client.content("f") == content);
    for (named, published) in [("empty", &b""[..]), ("cut", b"content")] {
        let head = format!("HTTP/1.1 200 OK\nContent-Length: 0\n{}\n", sha256(published));
        let server = Liar::start(move |_| Some((head.clone(), Vec::new())));
        let ended = client.cp(&[], &server.url(named), named);
        if published.is_empty() {
            assert_eq!(ended.summary()["verified"], true);
        } else {
            ended.is(6, &["does not have its published SHA-256"]);
        }
        assert_eq!(client.path(named).exists(), published.is_empty());
    }
    assert!(remains(client.scratch.path()).is_empty());
}

#[test]
fn a_chunk_that_arrives_again_after_a_failed_sync_is_verified_again() {
    let fails = need!(failing_first_calls("fsync"));
    let client = Client::new();
    let (right, wrong) = (bytes(3 * MEBI, 10), bytes(3 * MEBI, 11));
    // The server sends the right bytes once. The sync of the complete file fails.
    let left = Mutex::new(right.len());
    let server = Liar::start(move |asked| {
        let mut left = left.lock().unwrap();
        let sent = if *left > 0 { &right } else { &wrong };
        let reply = honest(asked, sent, &format!("ETag: \"1\"\n{}", sha256(&right)));
        if asked.method != "HEAD" {
            *left = left.saturating_sub(reply.1.len());
        }
        Some(reply)
    });
    let (url, to) = (server.url("f"), client.path("f"));
    let to = to.to_str().expect("our own name");
    let mut command = client.host.wrapped(&as_words(&fails), ["cp", "--json", &url, to]);
    let ended = Child::spawn(command.env("no_proxy", "*")).end();
    ended.is(6, &["does not have its published SHA-256"]);
    assert!(!client.path("f").exists());
}

/// Callers of `wait` continue after `open`.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn wait(&self) {
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
    }
}

/// A server that holds back the content after 16 MiB until the gate opens. The test may change its
/// header `fields`.
fn gated(content: &[u8], fields: &Arc<Mutex<String>>) -> (Liar, Arc<Gate>) {
    let (gate, content, fields) = (Arc::new(Gate::default()), content.to_vec(), fields.clone());
    let waits = gate.clone();
    let server = Liar::start(move |asked| {
        if asked.range(content.len()).is_some_and(|range| range.start >= 16 * MEBI) {
            waits.wait();
        }
        let fields = fields.lock().unwrap().clone();
        Some(honest(asked, &content, &fields))
    });
    (server, gate)
}

#[test]
fn a_killed_copy_resumes_only_if_a_strong_etag_or_the_modified_time_is_the_same() {
    let content = bytes(40 * MEBI, 4);
    for (before, after, resumes) in [
        ("ETag: \"1\"\n", "ETag: \"1\"\n", true),
        ("ETag: \"1\"\n", "ETag: \"2\"\n", false),
        (
            "Last-Modified: Mon, 02 Nov 2020 10:00:00 GMT\n",
            "Last-Modified: Mon, 02 Nov 2020 10:00:00 GMT\n",
            true,
        ),
        ("ETag: W/\"1\"\n", "ETag: W/\"1\"\n", false),
        ("", "", false),
    ] {
        let client = Client::new();
        let fields = Arc::new(Mutex::new(format!("{before}{}", sha256(&content))));
        let (server, gate) = gated(&content, &fields);
        let child = Child::spawn(&mut client.command(&[], &server.url("f"), "f"));
        // The journal lists only chunks that are on disk, so the next copy can use them.
        let journal = client.path(".f.lh-journal");
        wait_until("chunks are in the journal", || {
            fs::metadata(&journal).is_ok_and(|file| file.len() > 500)
        });
        child.kill();
        gate.open();
        assert!(!client.path("f").exists());
        *fields.lock().unwrap() = format!("{after}{}", sha256(&content));
        let before = server.sent.load(Ordering::SeqCst);
        let summary = client.cp(&[], &server.url("f"), "f").summary();
        let (resumed, sent) = (
            summary["resumed_bytes"].as_u64().unwrap(),
            server.sent.load(Ordering::SeqCst) - before,
        );
        assert_eq!(resumed >= MEBI as u64, resumes, "{before} {after} {resumed}");
        assert!(sent <= content.len() as u64 - resumed + 10, "{sent} bytes were sent");
        assert_eq!(summary["verified"], true);
        assert!(client.content("f") == content);
        assert!(remains(client.scratch.path()).is_empty());
    }
}

#[test]
fn a_copy_has_the_last_modified_time_of_the_server_or_else_the_time_of_the_copy() {
    let client = Client::new();
    let content = bytes(3 * MEBI, 9);
    let copied = |fields: &'static str, name: &str| {
        let content = content.clone();
        let server = Liar::start(move |asked| Some(honest(asked, &content, fields)));
        client.cp(&[], &server.url("f"), name).summary();
        fs::metadata(client.path(name)).and_then(|file| file.modified()).expect("a copied file")
    };
    let known = copied("Last-Modified: Mon, 02 Nov 2020 10:00:00 GMT\n", "known");
    assert_eq!(known, SystemTime::UNIX_EPOCH + Duration::from_secs(1_604_311_200));
    let begun = SystemTime::now();
    let unknown = copied("ETag: \"1\"\n", "unknown");
    assert!(unknown >= begun && unknown <= SystemTime::now(), "{unknown:?} after {begun:?}");
}

#[test]
fn ctrl_c_ends_a_copy_whose_server_is_silent() {
    let client = Client::new();
    let (server, _gate) = gated(&bytes(40 * MEBI, 5), &Arc::default());
    let mut child = Child::spawn(&mut client.command(&[], &server.url("f"), "f"));
    child.progressed(10 * MEBI as u64);
    child.signal(Signal::INT);
    child.end().is(130, &[]);
}

#[test]
fn a_file_that_changes_during_the_copy_arrives_whole_in_its_new_version() {
    let client = Client::new();
    let (old, new) = (bytes(30 * MEBI, 6), bytes(30 * MEBI, 7));
    let content = new.clone();
    let server = Liar::start(move |asked| {
        let (content, tag) = if asked.number < 6 { (&old, 1) } else { (&new, 2) };
        let fields = format!("ETag: \"{tag}\"\n");
        let is_same =
            asked.fields.get("if-range").is_none_or(|known| *known == format!("\"{tag}\""));
        match is_same {
            true => Some(honest(asked, content, &fields)),
            false => {
                let head =
                    format!("HTTP/1.1 200 OK\nContent-Length: {}\n{fields}\n", content.len());
                Some((head, content.clone()))
            }
        }
    });
    let ended = client.cp(&[], &server.url("f"), "f");
    ended.summary();
    let warned = ended.events("warning");
    assert!(
        warned
            .iter()
            .any(|event| event["text"].as_str().is_some_and(|text| text.contains("has changed"))),
        "{ended}"
    );
    assert!(client.content("f") == content);
    let server = Liar::start(move |asked| {
        let fields = format!("ETag: \"{}\"\n", asked.number);
        Some(honest(asked, &content, &fields))
    });
    let ended = client.cp(&[], &server.url("g"), "g");
    ended.is(5, &["changes all the time"]);
    // The copy starts four times.
    assert_eq!(ended.events("warning").len(), 3, "{ended}");
}

#[test]
fn a_server_without_ranges_sends_the_file_whole() {
    let client = Client::new();
    let content = bytes(5 * MEBI + 3, 8);
    let whole = content.clone();
    // Request 0 asks for the version. Request 1 gets an incomplete reply.
    let server = Liar::start(move |asked| {
        let head = format!(
            "HTTP/1.1 200 OK\nContent-Length: {}\nETag: \"1\"\nConnection: close\n\n",
            whole.len()
        );
        let len = if asked.number == 1 { 2 * MEBI } else { whole.len() };
        Some((head, whole[..len].to_vec()))
    });
    let ended = client.cp(&[], &server.url("f"), "f");
    ended.summary();
    assert_eq!(ended.events("reconnecting").len(), 1, "{ended}");
    assert!(client.content("f") == content);
}

#[test]
fn unusable_replies_end_the_copy_in_time_and_leave_no_file() {
    let content = bytes(3 * MEBI, 9);
    let part = |asked: &Asked, range: &str, body: &[u8]| match asked.number {
        0 | 1 => honest(asked, &bytes(3 * MEBI, 9), ""),
        _ => {
            let head = format!(
                "HTTP/1.1 206 Partial\nContent-Range: {range}\nContent-Length: {}\n\
                 Connection: close\n\n",
                body.len()
            );
            (head, body.to_vec())
        }
    };
    type Lie = Box<dyn Fn(&Asked) -> Option<Reply> + Send + Sync>;
    let lies: Vec<(Lie, i32, &str)> = vec![
        (Box::new(move |asked| Some(part(asked, "bytes 5-9/3145728", b"12345"))), 1, "instead of"),
        (
            Box::new(move |asked| Some(part(asked, "", b"12345"))),
            1,
            "without a valid Content-Range",
        ),
        (
            Box::new(move |asked| Some(part(asked, "bytes 0-1048575/3145728", b"short"))),
            1,
            "not restored within",
        ),
        (
            Box::new(move |asked| match asked.number {
                0 | 1 => Some(honest(asked, &bytes(3 * MEBI, 9), "")),
                _ => None,
            }),
            1,
            "not restored within",
        ),
        (
            Box::new(move |asked| match asked.number {
                0 | 1 => Some(honest(asked, &bytes(3 * MEBI, 9), "")),
                _ => Some(("HTTP/1.1 500 Broken\nContent-Length: 0\n\n".to_owned(), Vec::new())),
            }),
            1,
            "cannot answer now (500)",
        ),
        (
            Box::new(|_| {
                Some(("HTTP/1.1 200 OK\nConnection: close\n\n".to_owned(), vec![0; MEBI]))
            }),
            5,
            "does not say how long",
        ),
        (
            Box::new(|_| Some(("HTTP/1.1 200 OK\nContent-Length: -5\n\n".to_owned(), Vec::new()))),
            3,
            "",
        ),
        (
            Box::new(|_| {
                let range = "Content-Range: bytes 0-0/18446744073709551615";
                Some((format!("HTTP/1.1 206 OK\n{range}\nContent-Length: 1\n\n"), vec![0]))
            }),
            5,
            "cannot be a file here",
        ),
        (
            Box::new(|_| {
                Some((
                    "HTTP/1.1 302 Found\nLocation: /f\nContent-Length: 0\n\n".to_owned(),
                    Vec::new(),
                ))
            }),
            5,
            "more than 10 times",
        ),
        (
            Box::new(|_| Some(("HTTP/1.1 403 No\nContent-Length: 0\n\n".to_owned(), Vec::new()))),
            3,
            "refuses access",
        ),
        (
            Box::new(|_| {
                Some((format!("HTTP/1.1 200 OK\nX: {}\n\n", "x".repeat(MEBI)), Vec::new()))
            }),
            3,
            "",
        ),
        (Box::new(|_| Some(("garbage\n\n".to_owned(), Vec::new()))), 3, ""),
    ];
    for (number, (lie, status, what)) in lies.into_iter().enumerate() {
        let (client, server) = (Client::new(), Liar::start(lie));
        let ended = client.cp(&["--retry-for=1s"], &server.url("f"), "f");
        assert_eq!(ended.status, Some(status), "lie {number}: {ended}");
        ended.is(status, &[what]);
        assert!(!client.path("f").exists(), "lie {number}");
    }
    // A body that is longer than the range and has no `Content-Length` does not stop the copy.
    let client = Client::new();
    let whole = content.clone();
    let server = Liar::start(move |asked| {
        let (head, mut body) = honest(asked, &whole, "Connection: close\n");
        body.resize(body.len() + MEBI, 7);
        Some((head.replace("Content-Length", "X-Length"), body))
    });
    client.cp(&["--retry-for=1s"], &server.url("f"), "f").summary();
    assert!(client.content("f") == content);
}

#[test]
fn redirects_are_followed_and_the_proxy_of_the_environment_is_used() {
    let client = Client::new();
    let content = bytes(4 * MEBI, 10);
    let (whole, tokens) = (content.clone(), Arc::new(Mutex::new(Vec::new())));
    let seen = tokens.clone();
    let other = Liar::start(move |asked| {
        seen.lock().unwrap().extend(asked.fields.get("authorization").cloned());
        Some(honest(asked, &whole, ""))
    });
    let to = other.url("moved");
    let first = Liar::start(move |_| {
        Some((format!("HTTP/1.1 307 There\nLocation: {to}\nContent-Length: 0\n\n"), Vec::new()))
    });
    let url = first.url("f").replace("http://", "http://ada:secret@");
    client.cp(&[], &url, "f").summary();
    assert!(client.content("f") == content);
    assert_eq!(*tokens.lock().unwrap(), [""; 0], "the other host got the password");
    // A redirect within one server keeps the password.
    let whole = content.clone();
    let own = Liar::start(move |asked| match (&*asked.path, asked.fields.get("authorization")) {
        ("/f", Some(_)) => {
            let head = "HTTP/1.1 302 There\nLocation: /moved\nContent-Length: 0\n\n";
            Some((head.to_owned(), Vec::new()))
        }
        (_, Some(_)) => Some(honest(asked, &whole, "")),
        _ => Some(("HTTP/1.1 401 Who\nContent-Length: 0\n\n".to_owned(), Vec::new())),
    });
    client.cp(&[], &own.url("f").replace("http://", "http://ada:secret@"), "h").summary();
    assert!(client.content("h") == content);
    let (proxy, asked) = proxy();
    let mut command = client.command(&[], &other.url("g"), "g");
    command.env_remove("no_proxy").env("http_proxy", format!("http://{proxy}"));
    Child::spawn(&mut command).end().summary();
    assert!(client.content("g") == content);
    assert!(asked.load(Ordering::SeqCst) > 0);
}

/// A proxy that counts its connections.
fn proxy() -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (address, count) =
        (listener.local_addr().expect("it is bound"), Arc::new(AtomicU64::new(0)));
    let asked = count.clone();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut read = BufReader::new(stream.try_clone().expect("it is open"));
            let Some(connect) = Asked::read(&mut read, 0) else { continue };
            assert_eq!(connect.method, "CONNECT");
            asked.fetch_add(1, Ordering::SeqCst);
            let to = TcpStream::connect(&connect.path).expect("it listens");
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("it waits");
            let mut back = (to.try_clone().expect("it is open"), stream);
            thread::spawn(move || std::io::copy(&mut back.0, &mut back.1));
            thread::spawn(move || std::io::copy(&mut read, &mut &to));
        }
    });
    (address, count)
}

#[test]
fn https_needs_a_trusted_authority_and_is_redirected_to_http_only_if_allowed() {
    need!(has("openssl"));
    need!(has("python3"));
    let client = Client::new();
    let folder = client.scratch.path();
    succeeds(
        "umask 077; openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem \
         -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
         -addext basicConstraints=critical,CA:FALSE",
        folder,
    );
    let content = bytes(2 * MEBI, 11);
    write(&folder.join("data/file"), &content);
    let tls = ["--http-cert", "cert.pem", "--http-key", "key.pem", "--http-public"];
    let words = Server::words("127.0.0.1:0", &folder.join("data"), &tls);
    let host = Host::new(&folder.join("server"));
    let mut command = host.command(words);
    let mut child = Child::spawn(command.args(["--http", "127.0.0.1:0"]).current_dir(folder));
    let ready = child.event(|event| event["event"] == "ready");
    let url = ready["http"].as_str().unwrap().replace("127.0.0.1", "localhost");
    let by = |url: &str, name: &str, flags: &[&str], authority: &str| {
        let mut command = client.command(flags, url, name);
        Child::spawn(command.env("SSL_CERT_FILE", folder.join(authority))).end()
    };
    let summary = by(&format!("{url}file"), "got", &[], "cert.pem").summary();
    assert_eq!(summary["cipher"], "tls");
    assert!(client.content("got") == content);
    succeeds(
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout other-key.pem -out other.pem \
         -days 2 -subj /CN=localhost",
        folder,
    );
    by(&format!("{url}file"), "none", &[], "other.pem")
        .is(3, &["no trusted TLS connection", "SSL_CERT_FILE"]);
    // This server redirects from https to http.
    let plain = Liar::start(move |asked| Some(honest(asked, b"plain", "")));
    let script = format!(
        "import http.server, ssl\n\
         class H(http.server.BaseHTTPRequestHandler):\n\
         \x20 def do_GET(self):\n\
         \x20   self.send_response(302); self.send_header('Location', '{}')\n\
         \x20   self.send_header('Content-Length', '0'); self.end_headers()\n\
         \x20 do_HEAD = do_GET\n\
         s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)\n\
         c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); c.load_cert_chain('cert.pem', 'key.pem')\n\
         s.socket = c.wrap_socket(s.socket, server_side=True)\n\
         print(s.server_address[1], flush=True); s.serve_forever()\n",
        plain.url("f")
    );
    let mut python = Command::new("python3");
    python.args(["-c", &script]).current_dir(folder).stdout(std::process::Stdio::piped());
    let mut python = Child::spawn(python.stderr(std::process::Stdio::piped()));
    let port = python.line().expect("it prints its port");
    let url = format!("https://localhost:{port}/f");
    by(&url, "down", &[], "cert.pem")
        .is(3, &["redirects from https to http://", "--allow-downgrade"]);
    assert!(!client.path("down").exists());
    by(&url, "down", &["--allow-downgrade"], "cert.pem").summary();
    assert_eq!(client.content("down"), b"plain");
}
