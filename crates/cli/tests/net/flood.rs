//! Strangers send datagrams to the ports of a copy.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Relayed, WAYS, Way};
use crate::rig::{DEADLINE, Pair, bytes, send_signal, write};

const MANY: Flood = Flood { tricks: &TRICKS, per_millisecond: 50 };
/// A slower flood, so that several can run at the same time.
pub(super) const A_FEW: Flood = Flood { tricks: &TRICKS, per_millisecond: 4 };

/// A delayed flood catches up by at most this much time.
const MOST_LATE: Duration = Duration::from_millis(10);

/// Kinds of hostile datagrams, used in turn.
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
    /// The stranger's datagram number `n`.
    fn play(self, n: u64, captured: &[u8]) -> Vec<u8> {
        let mut datagram = captured.to_vec();
        let len = datagram.len();
        let noise = bytes(64, n);
        match self {
            Trick::Random => return noise,
            Trick::Truncated => datagram.truncate(noise[0] as usize % len.max(1)),
            Trick::Replayed => {}
            // A valid header of the flow (16 bytes), and false content. The last three bytes of
            // the packet number (bytes 5 to 9) are random, so nearly every number is a future one.
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

/// The end of the copy whose data port the stranger floods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum At {
    Receiver,
    Sender,
}

#[derive(Default)]
struct Tally {
    sent: AtomicU64,
    /// ICMP errors that report the port as closed to strangers.
    unheard: AtomicU64,
    /// Datagrams to send before the test continues; zero: no goal.
    goal: AtomicU64,
}

#[derive(Clone, Copy)]
pub(super) struct Flood {
    pub(super) tricks: &'static [Trick],
    pub(super) per_millisecond: u32,
}

impl Flood {
    /// Least number of datagrams while the copy's sender is frozen: half a second's worth.
    fn least(self) -> u64 {
        u64::from(self.per_millisecond) * 500
    }

    /// Sends variations of the captured datagrams until `over`.
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
        // The kernel reports closed ports only to connected sockets.
        stranger.connect(to).expect("a port of this host");
        let mut begun = Instant::now();
        let (mut n, rate) = (0, u64::from(self.per_millisecond));
        while !over.load(Ordering::Relaxed) {
            let due = begun.elapsed().as_millis() as u64 * rate;
            // On a busy machine a larger burst would take CPU time from the copy.
            begun += Duration::from_millis(due.saturating_sub(n) / rate).saturating_sub(MOST_LATE);
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
            if (1..=n).contains(&tally.goal.load(Ordering::Relaxed)) {
                tally.goal.store(0, Ordering::Relaxed);
                let _ = enough.send(());
            }
        }
    }
}

fn dropped_by_kernel(port: u16) -> u64 {
    let table = |name| std::fs::read_to_string(name).unwrap_or_default();
    let tables = table("/proc/net/udp") + &table("/proc/net/udp6");
    let end = format!(":{port:04X}");
    let is_its = |line: &&str| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&end));
    let drops = |line: &str| line.split_whitespace().last()?.parse::<u64>().ok();
    tables.lines().filter(is_its).filter_map(drops).sum()
}

struct AtTheEnd<'a>(&'a AtomicBool);

impl Drop for AtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Copies `len` bytes with `flags` while a stranger floods a data port. The copy must succeed. The
/// port must be open to strangers; otherwise the kernel would drop the flood before the program
/// receives it. A receiver must also count the hostile datagrams.
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
    let (stop, count, find) = (&over, &tally, port.clone());
    let (ended, between, dropped, unheard) = thread::scope(|scope| {
        let _over = AtTheEnd(stop);
        scope.spawn(move || flood.play(find, &captured, stop, count, &tell_enough));
        let copy = rig.pair.copy(flags, &from, &to);
        let sender = if way == Way::Push { copy.id() } else { rig.pair.server.child().id() };
        // Freezes the sender after half of the copy, so that the flood meets a running copy.
        let (tell_frozen, frozen) = mpsc::channel();
        rig.relay.once_tapped(len / 2 / 1400, move || {
            send_signal(sender, Signal::STOP);
            let _ = tell_frozen.send(());
        });
        let is_frozen = frozen.recv_timeout(DEADLINE);
        let before = tally.sent.load(Ordering::Relaxed);
        tally.goal.store(before + flood.least(), Ordering::Relaxed);
        let told = enough.recv_timeout(DEADLINE);
        let between = tally.sent.load(Ordering::Relaxed) - before;
        let dropped = dropped_by_kernel(port().port());
        // The port may be closed after the copy.
        let unheard = tally.unheard.load(Ordering::Relaxed);
        send_signal(sender, Signal::CONT);
        is_frozen.and(told).expect("half of the copy passes, and the flood is sent in time");
        (copy.end(), between, dropped, unheard)
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
    assert!((1..=sent).contains(&refused), "{way:?}: {refused} of {sent}: {ended}");
    // One in 256 random datagrams looks like a path probe and is answered, not refused.
    let seen = refused + dropped;
    assert!(20 * seen >= 19 * between, "{way:?}: of {between} {refused}, {dropped}: {ended}");
}

#[test]
fn a_flood_of_hostile_datagrams_on_the_data_port_changes_nothing_and_is_counted() {
    for way in WAYS {
        copy_through(way, At::Receiver, 16_000_000, &["--rate=30M", "--datagram=1400"], MANY);
    }
}

#[test]
fn random_and_forged_datagrams_are_counted() {
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
                // The datagram begins like a QUIC packet with a long or a short header, begins with
                // zero, or is random.
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
