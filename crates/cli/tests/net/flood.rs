//! Strangers on the ports.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use super::{Relayed, Way};
use crate::rig::{Pair, bytes, write};

/// Datagrams a millisecond.
const PER_MILLISECOND: u32 = 50;

/// What a stranger sends, in turn.
#[derive(Clone, Copy)]
enum Trick {
    Random,
    Truncated,
    Replayed,
    Forged,
    BitFlipped,
}

const TRICKS: [Trick; 5] =
    [Trick::Random, Trick::Truncated, Trick::Replayed, Trick::Forged, Trick::BitFlipped];

impl Trick {
    /// The stranger's datagram number `n`, made of one that was captured.
    fn play(self, n: u64, captured: &[u8]) -> Vec<u8> {
        let mut datagram = captured.to_vec();
        let len = datagram.len();
        let noise = bytes(64, n);
        match self {
            Trick::Random => return noise,
            Trick::Truncated => datagram.truncate(noise[0] as usize % len.max(1)),
            Trick::Replayed => {}
            // A header that fits the flow, with a number still to come, and nobody's content.
            Trick::Forged => {
                datagram.truncate(16);
                if let Some(number) = datagram.get_mut(7..10) {
                    number.copy_from_slice(&noise[..3]);
                }
                datagram.extend_from_slice(&noise);
                datagram.resize(len.max(16), 0x5a);
            }
            Trick::BitFlipped => datagram[noise[0] as usize % len] ^= 1 << (noise[1] % 8),
        }
        datagram
    }
}

/// Floods `to` with tricks on what is captured, until `over`; counts what was sent.
fn flood(to: SocketAddr, captured: Receiver<Vec<u8>>, over: &AtomicBool, sent: &AtomicU64) {
    let stranger = UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
    let mut store: Vec<Vec<u8>> = vec![captured.recv().expect("the copy sends data")];
    let begun = Instant::now();
    let mut n = 0;
    while !over.load(Ordering::Relaxed) {
        let due = begun.elapsed().as_millis() as u64 * u64::from(PER_MILLISECOND);
        if n >= due {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        store.extend(captured.try_iter().take(8));
        let trick = TRICKS[n as usize % TRICKS.len()];
        let model = &store[store.len() - 1 - n as usize % store.len().min(200)];
        let _ = stranger.send_to(&trick.play(n, model), to);
        n += 1;
        sent.store(n, Ordering::Relaxed);
    }
}

#[test]
fn a_flood_of_forgeries_on_the_data_port_changes_nothing() {
    let rig = Relayed::new(16_000_000);
    let captured = rig.relay.tap();
    let port = SocketAddr::from(([127, 0, 0, 1], rig.pair.server.data_port));
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let (from, to, _) = rig.way(Way::Push);
    let (stop, count) = (&over, &sent);
    let ended = thread::scope(|scope| {
        scope.spawn(move || flood(port, captured, stop, count));
        let ended = rig.pair.cp(&[&from, &to, &"--rate=60M", &"--datagram=1400"]);
        over.store(true, Ordering::Relaxed);
        ended
    });
    let summary = ended.summary();
    assert_eq!(summary["verified"], true, "{ended}");
    assert_eq!(summary["protocol"], "rbudp", "{ended}");
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent > 10_000, "the stranger could send only {sent}");
    rig.assert_copied(Way::Push);
}

#[test]
fn strangers_on_the_control_port_do_not_disturb_a_copy() {
    let pair = Pair::new();
    let content = bytes(8_000_000, 3);
    write(&pair.here.join("object"), &content);
    let control: SocketAddr = pair.server.address.parse().expect("a server's address");
    let over = AtomicBool::new(false);
    let ended = thread::scope(|scope| {
        scope.spawn(|| {
            let stranger = UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
            for n in 0.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let mut noise = bytes(1300, n);
                // The beginnings of QUIC's long and short packets, of DNS, and of nothing.
                noise[0] = [0xc3, 0x43, 0x00, noise[0]][n as usize % 4];
                noise.truncate(1 + n as usize * 37 % 1300);
                let _ = stranger.send_to(&noise, control);
                if n % 20 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let ended = pair.cp(&[&"object", &pair.at("copy"), &"--rate=60M"]);
        over.store(true, Ordering::Relaxed);
        ended
    });
    assert_eq!(ended.summary()["protocol"], "rbudp", "{ended}");
    assert!(ended.events("reconnecting").is_empty(), "{ended}");
    assert!(std::fs::read(pair.there.join("copy")).expect("it was copied") == content);
}
