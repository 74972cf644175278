//! The load of `share_load` with Redis, unencrypted. A writer sends each change with `SET` and
//! `PUBLISH`, because Redis's own notifications of changed keys have no values.

use std::rc::Rc;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::spawn_local;

use super::{Load, SIZE, Seen, Writer};

/// Encodes a command in RESP, the protocol of Redis.
fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut all = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        all.extend(format!("${}\r\n", word.len()).bytes());
        all.extend_from_slice(word);
        all.extend(b"\r\n");
    }
    all
}

async fn connect(load: &Load) -> TcpStream {
    let stream = TcpStream::connect((load.host.as_str(), load.port)).await;
    let stream = stream.expect("redis listens");
    stream.set_nodelay(true).expect("TCP");
    stream
}

pub(super) struct Redis {
    stream: TcpStream,
    queued: Vec<u8>,
    read: Vec<u8>,
    /// Lines in all answers so far. Each change has two: for `SET` and for `PUBLISH`.
    lines: u64,
}

impl Redis {
    pub(super) async fn connect(load: &Load) -> Redis {
        Redis { stream: connect(load).await, queued: Vec::new(), read: Vec::new(), lines: 0 }
    }
}

impl Writer for Redis {
    async fn put(&mut self, key: &str, value: &[u8]) {
        self.queued.extend(command(&[b"SET", key.as_bytes(), value]));
        self.queued.extend(command(&[b"PUBLISH", key.as_bytes(), value]));
    }

    async fn flush(&mut self) {
        self.stream.write_all(&self.queued).await.expect("it reads");
        self.queued.clear();
    }

    async fn answers(&mut self) -> u64 {
        self.read.clear();
        let count = self.stream.read_buf(&mut self.read).await.expect("it answers");
        assert!(count > 0 && !self.read.contains(&b'-'), "redis failed");
        let before = self.lines / 2;
        self.lines += self.read.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.lines / 2 - before
    }
}

/// Subscribes to all keys of the load, and notes each value that arrives. A message ends with its
/// value.
pub(super) async fn watch(load: &Load, base: Instant, seen: Rc<Seen>) {
    let mut stream = connect(load).await;
    stream.write_all(&command(&[b"PSUBSCRIBE", b"load/*"])).await.expect("it reads");
    let mut answer = vec![0; command(&[b"psubscribe", b"load/*"]).len() + 4];
    stream.read_exact(&mut answer).await.expect("it answers");
    spawn_local(async move {
        let (mut buffer, mark) = (Vec::with_capacity(1 << 16), format!("${SIZE}\r\n"));
        while stream.read_buf(&mut buffer).await.is_ok_and(|count| count > 0) {
            let mut at = 0;
            let whole = mark.len() + SIZE + 2;
            while let Some(found) = find(&buffer[at..], mark.as_bytes()) {
                let value = at + found + mark.len();
                if buffer.len() < at + found + whole {
                    break;
                }
                seen.note(base, &buffer[value..value + SIZE]);
                at = value + SIZE + 2;
            }
            buffer.drain(..at);
        }
    });
}

fn find(all: &[u8], part: &[u8]) -> Option<usize> {
    all.windows(part.len()).position(|window| window == part)
}
