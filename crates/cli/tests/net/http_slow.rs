//! HTTP clients that read a reply slowly or not at all, or stop sending.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::http::{Http, READER, WRITER};
use crate::rig::{DEADLINE, peak, write};

/// Bytes of a file: more than the socket buffers of client and server hold.
const LARGE: u64 = 256 << 20;
/// Number of clients that read nothing.
const STUCK: usize = 24;

/// Sends a request, and leaves the reply unread.
fn begin(address: SocketAddr, token: &str, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a time limit");
    let head = format!("{request}\nHost: h\nAuthorization: Bearer {token}\n");
    let head = format!("{head}Connection: close\n\n").replace('\n', "\r\n");
    stream.write_all(head.as_bytes()).expect("it reads");
    stream
}

fn get(address: SocketAddr, path: &str) -> TcpStream {
    begin(address, READER, &format!("GET {path} HTTP/1.1"))
}

#[test]
fn a_client_that_does_not_read_delays_nobody_and_costs_little_memory_and_is_disconnected() {
    let mut http = Http::new(&["--http-timeout=2s"]);
    let large = File::create(http.data.join("large")).expect("the folder is ours");
    large.set_len(LARGE).expect("a hole takes no room");
    write(&http.data.join("small"), b"content");
    let (address, child) = (http.address(), http.server.child());
    let before = peak(child.id());
    let mut slow = get(address, "/large");
    let stuck: Vec<TcpStream> = (0..STUCK).map(|_| get(address, "/large")).collect();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..STUCK {
                let event = child.event(|event| event["event"] == "http-disconnected");
                assert_eq!((&event["path"], &event["name"]), (&"/large".into(), &"Rita".into()));
                assert_eq!(
                    (&event["after_seconds"], &event["http_status"]),
                    (&2.0.into(), &200.into())
                );
            }
            ended.store(true, Ordering::Relaxed);
        });
        // Meanwhile new clients get a small file, and one slow client reads a little at a time.
        while !ended.load(Ordering::Relaxed) {
            let mut reply = String::new();
            get(address, "/small").read_to_string(&mut reply).expect("the reply is text");
            assert!(reply.ends_with("content"), "{reply}");
            slow.read_exact(&mut [0; 4096]).expect("it is not disconnected");
        }
    });
    let line = child.complaint("disconnected");
    assert!(line.contains("(Rita) HTTP GET /large: disconnected, because"), "{line}");
    assert!(line.contains("neither received nor sent a byte for 2 s"), "{line}");
    let used = peak(child.id()) - before;
    // 1 MiB for each client that does not read, and 24 MiB for everything else.
    assert!(used < (STUCK as u64 + 24) << 20, "{used} bytes for {STUCK} clients");
    for mut stream in stuck {
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        assert!((reply.len() as u64) < LARGE, "the reply is incomplete");
    }
}

#[test]
fn a_client_that_stops_sending_is_disconnected() {
    let mut http = Http::new(&["--http-timeout=1s"]);
    let mut put = begin(http.address(), WRITER, "PUT /file HTTP/1.1\nContent-Length: 9");
    put.write_all(b"12345").expect("it reads");
    let event = http.server.child().event(|event| event["event"] == "http-disconnected");
    assert_eq!(
        (&event["path"], &event["http_status"]),
        (&"/in/file".into(), &408.into()),
        "{event}"
    );
    let mut reply = String::new();
    put.read_to_string(&mut reply).expect("the reply is text");
    assert!(reply.contains("no data for 1 s"), "{reply}");
    assert!(!http.data.join("in/file").exists());
}
