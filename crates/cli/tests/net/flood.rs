//! Strangers on the ports.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Relayed, WAYS, Way};
use crate::rig::{DEADLINE, Pair, bytes, write};

const MANY: Flood = Flood { tricks: &TRICKS, per_millisecond: 50 };
/// Where many are flooded at once.
pub(super) const A_FEW: Flood = Flood { tricks: &TRICKS, per_millisecond: 4 };

/// What a stranger sends, in turn.
#[derive(Clone, Copy)]
pub(super) enum Trick {
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

/// Whose data port a stranger floods: the end's that gets data, or the one's that gets reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum At {
    Receiver,
    Sender,
}

/// What has become of a flood so far.
#[derive(Default)]
struct Tally {
    sent: AtomicU64,
    /// Times that the kernel said of what had been sent that nobody has the port open to strangers.
    unheard: AtomicU64,
}

/// What a stranger does while a copy runs.
#[derive(Clone, Copy)]
pub(super) struct Flood {
    pub(super) tricks: &'static [Trick],
    pub(super) per_millisecond: u32,
}

impl Flood {
    /// What has to come of it at the least: a second's worth.
    fn least(self) -> u64 {
        u64::from(self.per_millisecond) * 1000
    }

    /// Plays the tricks on what is captured, against the port that `to` finds once something was,
    /// until `over`; counts what was sent, and tells when that is twice the least.
    fn play(
        self,
        to: impl FnOnce() -> SocketAddr,
        captured: &Receiver<Vec<u8>>,
        over: &AtomicBool,
        tally: &Tally,
        enough: &Sender<()>,
    ) {
        let stranger = UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
        let mut store: Vec<Vec<u8>> = vec![captured.recv().expect("the copy sends data")];
        let to = to();
        // Without it the kernel would not say where nobody listens.
        stranger.connect(to).expect("a port of this host");
        let begun = Instant::now();
        let mut n = 0;
        while !over.load(Ordering::Relaxed) {
            let due = begun.elapsed().as_millis() as u64 * u64::from(self.per_millisecond);
            if n >= due {
                store.extend(captured.recv_timeout(Duration::from_millis(1)));
                continue;
            }
            store.extend(captured.try_iter().take(8));
            let trick = self.tricks[n as usize % self.tricks.len()];
            let model = &store[store.len() - 1 - n as usize % store.len().min(200)];
            let told = stranger.send(&trick.play(n, model));
            if told.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
                tally.unheard.fetch_add(1, Ordering::Relaxed);
            }
            n += 1;
            tally.sent.store(n, Ordering::Relaxed);
            if n == 2 * self.least() {
                let _ = enough.send(());
            }
        }
    }
}

/// What the kernel has dropped of what came to a UDP port of 127.0.0.1, whoever it was for.
fn dropped_by_kernel(port: u16) -> u64 {
    let table = std::fs::read_to_string("/proc/net/udp").expect("the kernel tells it");
    let socket = format!("{:08X}:{port:04X}", u32::from_ne_bytes([127, 0, 0, 1]));
    let line = table.lines().find(|line| line.split_whitespace().nth(1) == Some(&socket));
    let drops = line.and_then(|line| line.split_whitespace().last()?.parse().ok());
    drops.expect("the server's socket is open")
}

/// Sets it when dropped.
struct AtTheEnd<'a>(&'a AtomicBool);

impl Drop for AtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Copies `len` bytes with `flags` while a stranger floods the data port of an end; that changes
/// nothing. Where it receives data the end counts it; where it sends them nobody does, but its port
/// is one that takes what strangers send.
pub(super) fn copy_through(
    way: Way,
    at: At,
    len: usize,
    flags: &[impl AsRef<OsStr>],
    flood: Flood,
) {
    let mut rig = Relayed::new(len);
    let captured = rig.relay.tap_both_ways();
    let server = SocketAddr::from(([127, 0, 0, 1], rig.pair.server.data_port));
    let rules = rig.relay.rules.clone();
    let client = move || rules.client.lock().expect("no holder panics").expect("it has spoken");
    let is_server = (way == Way::Push) == (at == At::Receiver);
    let port = move || if is_server { server } else { client() };
    let (over, tally) = (AtomicBool::new(false), Tally::default());
    let (tell_enough, enough) = mpsc::channel();
    let (from, to, _) = rig.way(way);
    let (stop, count) = (&over, &tally);
    let (ended, between, unheard) = thread::scope(|scope| {
        // Also where something fails: nothing else would end it.
        let _over = AtTheEnd(stop);
        scope.spawn(move || flood.play(port, &captured, stop, count, &tell_enough));
        let mut copy = rig.pair.copy(flags, &from, &to);
        // It tells once a second how far it is; not every protocol repairs what is lost before all
        // has been sent.
        let mut gone = |blocks: u64| copy.event(|event| event["sent"].as_u64() >= Some(blocks));
        gone(1);
        let before = tally.sent.load(Ordering::Relaxed);
        gone(len as u64 / 2 / 1400);
        // What floods may have less of a busy machine than what is flooded: that waits for it.
        let sender = if way == Way::Push { &copy } else { &*rig.pair.server.child() };
        sender.signal(Signal::STOP);
        let told = enough.recv_timeout(DEADLINE);
        let between = tally.sent.load(Ordering::Relaxed) - before;
        // Later the port may be closed: a copy that ends does that.
        let unheard = tally.unheard.load(Ordering::Relaxed);
        sender.signal(Signal::CONT);
        told.expect("it is sent in time");
        (copy.end(), between, unheard)
    });
    let summary = ended.summary();
    assert_eq!(summary["verified"], true, "{ended}");
    assert!(ended.events("fallback").is_empty(), "{ended}");
    assert!(ended.events("reconnecting").is_empty(), "{ended}");
    rig.assert_copied(way);
    assert_eq!(unheard, 0, "of {between} to the {at:?}, {way:?}: {ended}");
    if at == At::Sender {
        return;
    }
    let refused = summary["refused_datagrams"].as_u64().expect("it is a count");
    let sent = tally.sent.load(Ordering::Relaxed);
    assert!((flood.least()..=sent).contains(&refused), "{way:?}: {refused} of {sent}: {ended}");
    if way == Way::Push {
        // What came between two signs of a copy half done was before what the copy still had to
        // send, so the server has seen it, or its kernel has dropped it. Of noise, one in 256 is
        // taken for a probe of the path and answered.
        let seen = refused + dropped_by_kernel(server.port());
        assert!(20 * seen >= 19 * between, "of {between} {refused}: {ended}");
    }
}

#[test]
fn a_flood_of_forgeries_on_the_data_port_changes_nothing_and_is_counted() {
    for way in WAYS {
        copy_through(way, At::Receiver, 16_000_000, &["--rate=30M", "--datagram=1400"], MANY);
    }
}

#[test]
fn what_belongs_to_nobody_and_what_is_forged_are_both_counted() {
    for tricks in [&[Trick::Random], &[Trick::Forged]] {
        let flood = Flood { tricks, ..MANY };
        let flags = ["--rate=20M", "--datagram=1400"];
        copy_through(Way::Push, At::Receiver, 8_000_000, &flags, flood);
    }
}

#[test]
fn strangers_on_the_control_port_do_not_disturb_a_copy() {
    let pair = Pair::new();
    let content = bytes(8_000_000, 3);
    write(&pair.here.join("object"), &content);
    let control: SocketAddr = pair.server.address.parse().expect("a server's address");
    let (stop, stopped) = mpsc::channel::<()>();
    let ended = thread::scope(|scope| {
        scope.spawn(move || {
            let stranger = UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
            for n in 0.. {
                let mut noise = bytes(1300, n);
                // The beginnings of QUIC's long and short packets, of DNS, and of nothing.
                noise[0] = [0xc3, 0x43, 0x00, noise[0]][n as usize % 4];
                noise.truncate(1 + n as usize * 37 % 1300);
                let _ = stranger.send_to(&noise, control);
                let pause = Duration::from_millis(1);
                if n % 20 == 0 && stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
        });
        let ended = pair.cp(&[&"object", &pair.at("copy"), &"--rate=60M"]);
        drop(stop);
        ended
    });
    assert_eq!(ended.summary()["protocol"], "rbudp", "{ended}");
    assert!(ended.events("reconnecting").is_empty(), "{ended}");
    assert!(std::fs::read(pair.there.join("copy")).expect("it was copied") == content);
}
