//! How much the emulator carries on this machine: a UDP blaster across it, one Markdown row a run.
//!
//! `cargo run --release -p longhaul-testbed --example blast` makes the whole table;
//! `… --example blast -- LINK_MBPS RTT_MS LOSS SEND_MBPS single|gso SECONDS [pair|dumbbell|star]`
//! one row. A link rate of 0 is none. Rate, delay and loss are those of a dumbbell's
//! shared link, the second of three on the way, and of the sender's link of a star, one of two.

use std::error::Error;
use std::io::{self, Write};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use longhaul_testbed::emu::{Emulation, EmulationSpec, Statistics, Verdict};
use longhaul_testbed::link::{LinkSpec, Loss};
use longhaul_testbed::scenario::{Duplex, Topology};

/// UDP payload of a full packet at MTU 1500.
const PAYLOAD: usize = 1_472;
/// Bytes of such a packet on the wire.
const WIRE: f64 = 1_538.0;
/// Segments of a super-packet.
const SEGMENTS: usize = 44;

/// The network between the two hosts.
#[derive(Clone, Copy)]
enum Shape {
    Pair,
    Dumbbell,
    Star,
}

impl Shape {
    /// Its name, and the nodes from the sender to the receiver; the link that is not free of loss
    /// is the one at the place behind.
    fn way(self) -> (&'static str, &'static [&'static str], usize) {
        match self {
            Shape::Pair => ("", &["a", "b"], 0),
            Shape::Dumbbell => (", dumbbell", &["left1", "left", "right", "right1"], 1),
            Shape::Star => (", star", &["h2", "hub", "h1"], 0),
        }
    }

    fn spec(self, lossy: LinkSpec, back: LinkSpec) -> EmulationSpec {
        let shared = Duplex { forward: lossy.clone(), back: back.clone() };
        let free = Duplex::both(LinkSpec::default());
        let topology = match self {
            Shape::Pair => return EmulationSpec::pair(lossy, back),
            Shape::Dumbbell => {
                Topology::Dumbbell { left: 2, right: 2, bottleneck: shared, access: vec![free] }
            }
            Shape::Star => Topology::Star { hosts: 4, access: vec![free.clone(), shared, free] },
        };
        let (hosts, network) = topology.build();
        EmulationSpec { hosts, network, mtu: 1500, seed: 1 }
    }
}

struct Run {
    shape: Shape,
    link: Option<Rate>,
    rtt: Span,
    loss: LossRatio,
    send: Rate,
    gso: bool,
    seconds: f64,
}

struct Outcome {
    sent: u64,
    received: u64,
    seconds: f64,
    statistics: Statistics,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut out = io::stdout();
    writeln!(
        out,
        "| link, RTT, loss | sent as | asked | carried to b | loss on the line | queue drops | \
         own drops | lost at b's socket | late p99, most | forwarder, of a core | verdict |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    )?;
    let runs = if args.is_empty() { table() } else { vec![parse(&args)?] };
    for run in runs {
        let outcome = blast(&run)?;
        writeln!(out, "{}", row(&run, &outcome))?;
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<Run, Box<dyn Error>> {
    let [link, rtt, loss, send, kind, seconds, shape @ ..] = args else {
        let usage = "LINK_MBPS RTT_MS LOSS SEND_MBPS single|gso SECONDS [pair|dumbbell|star]";
        return Err(usage.into());
    };
    let shape = match shape.first().map_or("pair", String::as_str) {
        "pair" => Shape::Pair,
        "dumbbell" => Shape::Dumbbell,
        "star" => Shape::Star,
        other => return Err(format!("{other}: pair, dumbbell or star").into()),
    };
    let link: u64 = link.parse()?;
    Ok(Run {
        shape,
        link: (link > 0).then_some(Rate::from_mbps(link)),
        rtt: Span::from_secs_f64(rtt.parse::<f64>()? / 1e3),
        loss: LossRatio::new(loss.parse()?).ok_or("a loss from 0 to 1")?,
        send: Rate::from_mbps(send.parse()?),
        gso: kind == "gso",
        seconds: seconds.parse()?,
    })
}

fn table() -> Vec<Run> {
    let run = |link: u64, rtt, loss, send, gso| Run {
        shape: Shape::Pair,
        link: (link > 0).then_some(Rate::from_mbps(link)),
        rtt: Span::from_millis(rtt),
        loss: LossRatio::new(loss).unwrap_or(LossRatio::NONE),
        send: Rate::from_mbps(send),
        gso,
        seconds: 3.0,
    };
    let over = |shape, run: Run| Run { shape, ..run };
    vec![
        run(1_000, 100, 0.01, 950, false),
        run(1_000, 100, 0.01, 950, true),
        run(1_000, 100, 0.01, 1_200, true),
        run(1_600, 10, 0.01, 1_500, false),
        run(2_100, 10, 0.01, 2_000, false),
        run(2_600, 10, 0.01, 2_500, false),
        run(5_000, 10, 0.01, 4_000, true),
        run(7_000, 10, 0.01, 6_000, true),
        run(10_000, 10, 0.01, 8_000, true),
        run(0, 10, 0.0, 8_000, true),
        run(0, 10, 0.0, 10_000, true),
        over(Shape::Dumbbell, run(1_000, 100, 0.01, 950, false)),
        over(Shape::Dumbbell, run(1_000, 100, 0.01, 950, true)),
        over(Shape::Dumbbell, run(5_000, 10, 0.01, 4_000, true)),
        over(Shape::Star, run(1_000, 100, 0.01, 950, false)),
        over(Shape::Star, run(1_000, 100, 0.01, 950, true)),
        over(Shape::Star, run(5_000, 10, 0.01, 4_000, true)),
    ]
}

fn blast(run: &Run) -> Result<Outcome, Box<dyn Error>> {
    let link = match run.link {
        Some(rate) => LinkSpec::path(rate, run.rtt),
        None => LinkSpec { delay: run.rtt / 2, ..LinkSpec::default() },
    };
    let lossy = link.clone().with_loss(Loss::independent(run.loss));
    let emulation = Emulation::start(run.shape.spec(lossy, link))?;
    let bind = |host: &str| -> Result<UdpSocket, Box<dyn Error>> {
        let address = emulation.addresses(host)?.v4;
        Ok(emulation.enter_host(host, || UdpSocket::bind((address, 7_000)))??)
    };
    let (_, nodes, _) = run.shape.way();
    let (a, b) = (bind(nodes[0])?, bind(nodes[nodes.len() - 1])?);
    a.connect(b.local_addr()?)?;
    enlarge(&b)?;
    set_option(&b, libc::SOL_UDP, libc::UDP_GRO, 1)?;
    b.set_read_timeout(Some(Duration::from_millis(50)))?;
    let done = AtomicBool::new(false);
    let (sent, received, seconds) = thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&b, &done));
        let sent = send(&a, run);
        // What is in the queue and on the line arrives within twice the RTT.
        thread::sleep(Duration::from_nanos((run.rtt * 2).as_nanos()) + Duration::from_millis(200));
        done.store(true, Ordering::Relaxed);
        let (received, seconds) = receiver.join().expect("the receiver does not panic");
        (sent, received, seconds)
    });
    Ok(Outcome { sent: sent?, received, seconds, statistics: emulation.statistics()? })
}

/// The largest receive buffer that this user may have.
fn enlarge(socket: &UdpSocket) -> io::Result<()> {
    const BYTES: i32 = 32 << 20;
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BYTES)
        .or_else(|_| set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, BYTES))
}

fn set_option(socket: &UdpSocket, level: i32, name: i32, value: i32) -> io::Result<()> {
    let size = size_of::<i32>() as u32;
    // SAFETY: the option's value is an int, valid for the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Packets sent, at the run's rate, wire bytes counted.
fn send(socket: &UdpSocket, run: &Run) -> io::Result<u64> {
    let packets = if run.gso { SEGMENTS } else { 1 };
    if run.gso {
        set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, PAYLOAD as i32)?;
    }
    let payload = vec![7; PAYLOAD * packets];
    let per_second = run.send.as_bps() as f64 / 8.0 / WIRE;
    let start = Instant::now();
    let mut sent = 0;
    loop {
        let elapsed = start.elapsed().as_secs_f64();
        if elapsed >= run.seconds {
            return Ok(sent);
        }
        let due = (elapsed * per_second) as u64;
        if due <= sent {
            // As a paced sender does: sleep what is long enough to sleep.
            let wait = (sent + 1 - due) as f64 / per_second;
            if wait > 50e-6 {
                thread::sleep(Duration::from_secs_f64(wait));
            }
            continue;
        }
        socket.send(&payload)?;
        sent += packets as u64;
    }
}

/// Packets received, and the seconds from the first to the last.
fn receive(socket: &UdpSocket, done: &AtomicBool) -> (u64, f64) {
    let mut room = vec![0; 65_536];
    let (mut received, mut first, mut last) = (0, None, Instant::now());
    while !done.load(Ordering::Relaxed) {
        if let Ok(len) = socket.recv(&mut room) {
            last = Instant::now();
            first.get_or_insert(last);
            received += len.div_ceil(PAYLOAD) as u64;
        }
    }
    (received, first.map_or(0.0, |first| last.duration_since(first).as_secs_f64()))
}

fn row(run: &Run, outcome: &Outcome) -> String {
    let s = &outcome.statistics;
    let (shape, nodes, lossy) = run.shape.way();
    let tally = |place: usize| s.link(nodes[place], nodes[place + 1]).copied().unwrap_or_default();
    let last = nodes.len() - 2;
    let queue_full: u64 = (0..=last).map(|place| tally(place).queue_full).sum();
    let (first, t, arrives) = (tally(0), tally(lossy), tally(last).arrives);
    let link = run.link.map_or("no rate".to_owned(), |rate| rate.to_string());
    let carried = Bytes::new((arrives as f64 * WIRE) as u64) / Span::from_secs_f64(outcome.seconds);
    format!(
        "| {link}, {}, {}{shape} | {} | {} | {carried} | {:.3} % | {} | {} of {} sent | {} | \
         {}, {} | {:.0} % | {} |",
        run.rtt,
        run.loss,
        if run.gso { "GSO" } else { "single" },
        run.send,
        100.0 * t.lost as f64 / (t.offered - t.queue_full).max(1) as f64,
        queue_full,
        outcome.sent - first.offered.min(outcome.sent),
        outcome.sent,
        arrives.saturating_sub(outcome.received),
        s.late.percentile(0.99),
        s.late.worst(),
        100.0 * s.processor.as_secs_f64() / s.elapsed.as_secs_f64(),
        match s.verdict() {
            Verdict::Valid => "valid".into(),
            Verdict::Invalid(reason) => reason,
        }
    )
}
