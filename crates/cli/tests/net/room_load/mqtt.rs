//! The loads of `room_load` with mosquitto: MQTT 3.1.1, quality of service 0, unencrypted.

use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::spawn_local;

use super::{END, Load, SENDERS, SIZE, Seen, cpu, micros, report};

const TOPIC: &[u8] = b"load";

async fn connect(port: u16, id: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("mosquitto listens");
    stream.set_nodelay(true).expect("TCP");
    let mut hello = vec![0x10, 12 + id.len() as u8, 0, 4];
    hello.extend(b"MQTT\x04\x02\x00\x00");
    hello.extend([0, id.len() as u8]);
    hello.extend(id.as_bytes());
    stream.write_all(&hello).await.expect("it reads");
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await.expect("it answers");
    assert_eq!(answer, [0x20, 2, 0, 0]);
    stream
}

fn publish(content: &[u8]) -> Vec<u8> {
    // Messages are shorter than 128 bytes, so the length takes one byte.
    let mut packet = vec![0x30, (2 + TOPIC.len() + content.len()) as u8, 0, TOPIC.len() as u8];
    packet.extend(TOPIC);
    packet.extend(content);
    packet
}

async fn subscribe(stream: &mut BufReader<TcpStream>, base: Instant, seen: &Seen) {
    let mut packet = [0; 128];
    loop {
        stream.read_exact(&mut packet[..2]).await.expect("the session stays");
        let length = usize::from(packet[1]);
        stream.read_exact(&mut packet[..length]).await.expect("the session stays");
        let content = &packet[2 + TOPIC.len()..length];
        if content == END {
            return;
        }
        let at = content[..8].try_into().map_or(0, u64::from_be_bytes);
        let delay = micros(base).saturating_sub(at);
        seen.delays.borrow_mut().push(u32::try_from(delay).unwrap_or(u32::MAX));
    }
}

async fn send(port: u16, sender: u64, per_second: f64, seconds: u64, base: Instant) {
    let mut stream = connect(port, &format!("sender{sender}")).await;
    let (total, start, mut sent) = ((per_second * seconds as f64) as u64, Instant::now(), 0);
    let mut tick = tokio::time::interval(Duration::from_millis(2));
    while sent < total {
        tick.tick().await;
        let due = (start.elapsed().as_secs_f64() * per_second) as u64;
        let mut packets = Vec::new();
        while sent < due.min(total) {
            sent += 1;
            let mut content = [0; SIZE];
            content[..8].copy_from_slice(&micros(base).to_be_bytes());
            packets.extend(publish(&content));
        }
        stream.write_all(&packets).await.expect("it reads");
    }
}

pub(super) async fn run(loads: &[Load]) {
    let folder = tempfile::tempdir().expect("a folder");
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let port = port.expect("a free port").port();
    let config = folder.path().join("conf");
    let text = format!("listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n");
    std::fs::write(&config, text).expect("the folder is ours");
    let mut command = Command::new("mosquitto");
    command.arg("-c").arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = command.spawn().expect("mosquitto is installed");
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut sessions = Vec::new();
    for number in 0..loads[0].0 {
        let mut stream = connect(port, &format!("subscriber{number}")).await;
        let asked = [&[0x82, 9, 0, 1, 0, 4][..], TOPIC, &[0]].concat();
        stream.write_all(&asked).await.expect("it reads");
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await.expect("it answers");
        sessions.push(BufReader::new(stream));
    }
    for load in loads {
        let Load(_, rate, seconds) = *load;
        let (seen, base) = (Rc::new(Seen::default()), Instant::now());
        let before = (cpu(server.id()), cpu(std::process::id()));
        let mut reading = Vec::new();
        for mut session in sessions.drain(..) {
            let seen = seen.clone();
            reading.push(spawn_local(async move {
                subscribe(&mut session, base, &seen).await;
                session
            }));
        }
        let share = rate as f64 / SENDERS as f64;
        let sending =
            (0..SENDERS).map(|sender| spawn_local(send(port, sender, share, seconds, base)));
        for sender in sending.collect::<Vec<_>>() {
            sender.await.expect("it sends");
        }
        // Wait until the queues are empty: queued messages would delay the next load.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let mut last = connect(port, "last").await;
        last.write_all(&publish(END)).await.expect("it reads");
        for reader in reading {
            sessions.push(reader.await.expect("the session stays"));
        }
        let used = (cpu(server.id()) - before.0, cpu(std::process::id()) - before.1);
        let sent = (share * seconds as f64) as u64 * SENDERS * sessions.len() as u64;
        let came = seen.delays.borrow().len() as u64;
        seen.lost.set(sent.saturating_sub(came));
        report("mosquitto", sessions.len(), rate, &seen, used);
    }
    let _ = server.kill();
    let _ = server.wait();
}
