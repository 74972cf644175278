//! Measures the emulator's capacity on this machine with UDP packets; writes one Markdown row per
//! run.
//!
//! `cargo run --release -p longhaul-testbed --example blast` writes the whole table; `… --example
//! blast -- LINK_MBPS RTT_MS LOSS SEND_MBPS single|gso SECONDS [pair|dumbbell|star [SEED]]` writes
//! one row. A link rate of 0 means unlimited. Rate, delay and loss apply to a dumbbell's shared
//! link (the second of three on the path), or to the sender's link of a star (the first of two).
//! Each row of the table has its own seed.
//!
//! Each packet carries its number. The sender records when it passes the packet to the kernel; the
//! receiver records the arrival by the same clock. "Measured beyond the path" is the recorded
//! arrival minus the arrival that [`Link`] computes. The difference contains all delays except the
//! path's: also the delays of the sockets and of the receiver's wake-up.

use std::error::Error;
use std::io::{self, Write};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use longhaul_testbed::emu::{Emulation, EmulationSpec, Statistics, Verdict};
use longhaul_testbed::link::{Fate, Link, LinkSpec, Loss};
use longhaul_testbed::scenario::{Duplex, Topology};

/// UDP payload of a full packet at MTU 1500.
const PAYLOAD: usize = 1_472;
/// Bytes of the IP packet with [`PAYLOAD`].
const PACKET: u32 = 1_500;
/// Wire bytes of an IP packet of [`PACKET`] bytes.
const WIRE: f64 = 1_538.0;
/// Packets of one GSO send: as many as fit into the 65,535 bytes of an IP packet.
const SEGMENTS: usize = 44;

#[derive(Clone, Copy)]
enum Shape {
    Pair,
    Dumbbell,
    Star,
}

impl Shape {
    /// The network's name, the nodes from sender to receiver, and the index of the lossy link.
    fn way(self) -> (&'static str, &'static [&'static str], usize) {
        match self {
            Shape::Pair => ("", &["a", "b"], 0),
            Shape::Dumbbell => (", dumbbell", &["left1", "left", "right", "right1"], 1),
            Shape::Star => (", star", &["h2", "hub", "h1"], 0),
        }
    }

    fn spec(self, lossy: LinkSpec, back: LinkSpec, seed: u64) -> EmulationSpec {
        let shared = Duplex { forward: lossy.clone(), back: back.clone() };
        let free = Duplex::both(LinkSpec::default());
        let topology = match self {
            Shape::Pair => {
                return EmulationSpec { seed, ..EmulationSpec::pair(lossy, back) };
            }
            Shape::Dumbbell => {
                Topology::Dumbbell { left: 2, right: 2, bottleneck: shared, access: vec![free] }
            }
            Shape::Star => Topology::Star { hosts: 4, access: vec![free.clone(), shared, free] },
        };
        let (hosts, network) = topology.build();
        EmulationSpec { hosts, network, mtu: 1500, seed, cards: Vec::new() }
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
    seed: u64,
}

struct BlastOutcome {
    sent: u64,
    received: u64,
    seconds: f64,
    /// Each packet's delay beyond the path's, sorted.
    beyond: Vec<Span>,
    statistics: Statistics,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut out = io::stdout();
    writeln!(
        out,
        "| link, RTT, loss | seed | sent as | asked | carried to b | loss on the line | its 95 % \
         interval | queue drops | own drops | lost at b's socket | late p99, most | measured \
         beyond the path p50, p99 | forwarder, of a core | verdict |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
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
        let usage =
            "LINK_MBPS RTT_MS LOSS SEND_MBPS single|gso SECONDS [pair|dumbbell|star [SEED]]";
        return Err(usage.into());
    };
    let seed = shape.get(1).map_or(Ok(1), |seed| seed.parse())?;
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
        loss: LossRatio::new(loss.parse()?).ok_or("LOSS is a ratio from 0 to 1")?,
        send: Rate::from_mbps(send.parse()?),
        gso: kind == "gso",
        seconds: seconds.parse()?,
        seed,
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
        seed: 1,
    };
    let over = |shape, run: Run| Run { shape, ..run };
    let runs = [
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
    ];
    (1..).zip(runs).map(|(seed, run)| Run { seed, ..run }).collect()
}

fn blast(run: &Run) -> Result<BlastOutcome, Box<dyn Error>> {
    let link = match run.link {
        Some(rate) => LinkSpec::path(rate, run.rtt),
        None => LinkSpec { delay: run.rtt / 2, ..LinkSpec::default() },
    };
    let lossy = link.clone().with_loss(Loss::independent(run.loss));
    let emulation = Emulation::start(run.shape.spec(lossy, link.clone(), run.seed))?;
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
    let (done, clock) = (AtomicBool::new(false), Instant::now());
    let (sent, got) = thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&b, clock, &done));
        let sent = send(&a, clock, run);
        // All packets arrive within twice the RTT; 200 ms are a margin.
        thread::sleep(Duration::from_nanos((run.rtt * 2).as_nanos()) + Duration::from_millis(200));
        done.store(true, Ordering::Relaxed);
        (sent, receiver.join().expect("the receiver does not panic"))
    });
    let sent = sent?;
    let seconds = match (got.first(), got.last()) {
        (Some(first), Some(last)) => last.1.since(first.1).as_secs_f64(),
        _ => 0.0,
    };
    Ok(BlastOutcome {
        sent: sent.len() as u64,
        received: got.len() as u64,
        seconds,
        beyond: beyond(link, &sent, &got),
        statistics: emulation.statistics()?,
    })
}

/// The sorted lateness of the packets: each arrival minus its computed arrival over `link`.
fn beyond(link: LinkSpec, sent: &[Time], got: &[(u64, Time)]) -> Vec<Span> {
    let mut link = Link::new(link, 1);
    let due: Vec<Option<Time>> = sent
        .iter()
        .map(|at| match link.offer(*at, PACKET) {
            Fate::Arrives(passage) => Some(passage.at),
            _ => None,
        })
        .collect();
    let late = |(number, at): &(u64, Time)| Some(at.since((*due.get(*number as usize)?)?));
    let mut beyond: Vec<Span> = got.iter().filter_map(late).collect();
    beyond.sort();
    beyond
}

fn now(clock: Instant) -> Time {
    Time::from_nanos(u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// Sets a receive buffer of up to 32 MiB.
fn enlarge(socket: &UdpSocket) -> io::Result<()> {
    const BYTES: i32 = 32 << 20;
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BYTES)
        .or_else(|_| set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, BYTES))
}

#[allow(unsafe_code, reason = "a socket option that no library offers")]
fn set_option(socket: &UdpSocket, level: i32, name: i32, value: i32) -> io::Result<()> {
    let size = size_of::<i32>() as u32;
    // SAFETY: the option's value is an int, valid for the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends at the run's rate; returns each packet's sending time.
fn send(socket: &UdpSocket, clock: Instant, run: &Run) -> io::Result<Vec<Time>> {
    let packets = if run.gso { SEGMENTS } else { 1 };
    if run.gso {
        set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, PAYLOAD as i32)?;
    }
    let mut payload = vec![7; PAYLOAD * packets];
    let per_second = run.send.as_bps() as f64 / 8.0 / WIRE;
    let start = Instant::now();
    let mut times = Vec::with_capacity((per_second * run.seconds * 1.1) as usize);
    loop {
        let sent = times.len() as u64;
        let elapsed = start.elapsed().as_secs_f64();
        if elapsed >= run.seconds {
            return Ok(times);
        }
        let due = (elapsed * per_second) as u64;
        if due <= sent {
            // Like a paced sender: sleeps only for long waits.
            let wait = (sent + 1 - due) as f64 / per_second;
            if wait > 50e-6 {
                thread::sleep(Duration::from_secs_f64(wait));
            }
            continue;
        }
        for (number, segment) in (sent..).zip(payload.chunks_exact_mut(PAYLOAD)) {
            segment[..8].copy_from_slice(&number.to_be_bytes());
        }
        let at = now(clock);
        socket.send(&payload)?;
        times.resize(times.len() + packets, at);
    }
}

fn receive(socket: &UdpSocket, clock: Instant, done: &AtomicBool) -> Vec<(u64, Time)> {
    let mut room = vec![0; 65_536];
    let mut got = Vec::with_capacity(1 << 21);
    while !done.load(Ordering::Relaxed) {
        let Ok(len) = socket.recv(&mut room) else { continue };
        let at = now(clock);
        for packet in room[..len].chunks(PAYLOAD) {
            let number = packet.first_chunk().map(|number| u64::from_be_bytes(*number));
            got.extend(number.map(|number| (number, at)));
        }
    }
    got
}

/// The 95 % interval for a share, given `hits` of `of` trials (Wilson 1927), in per cent.
fn interval(hits: u64, of: u64) -> (f64, f64) {
    const DEVIATIONS: f64 = 1.96;
    let n = of.max(1) as f64;
    let (p, z) = (hits as f64 / n, DEVIATIONS * DEVIATIONS / n);
    let middle = (p + z / 2.0) / (1.0 + z);
    let half = (z * p * (1.0 - p) + z * z / 4.0).sqrt() / (1.0 + z);
    (100.0 * (middle - half).max(0.0), 100.0 * (middle + half))
}

fn row(run: &Run, outcome: &BlastOutcome) -> String {
    let s = &outcome.statistics;
    let (shape, nodes, lossy) = run.shape.way();
    let tally = |place: usize| s.link(nodes[place], nodes[place + 1]).copied().unwrap_or_default();
    let last = nodes.len() - 2;
    let queue_full: u64 = (0..=last).map(|place| tally(place).queue_full).sum();
    let (first, t, arrives) = (tally(0), tally(lossy), tally(last).arrives);
    let link = run.link.map_or("no rate".to_owned(), |rate| rate.to_string());
    let carried = Bytes::new((arrives as f64 * WIRE) as u64) / Span::from_secs_f64(outcome.seconds);
    let on_the_line = t.offered - t.queue_full;
    let (low, high) = interval(t.lost, on_the_line);
    let beyond = |share: f64| {
        let place = ((outcome.beyond.len() as f64 * share) as usize).saturating_sub(1);
        outcome.beyond.get(place).copied().unwrap_or(Span::ZERO)
    };
    format!(
        "| {link}, {}, {}{shape} | {} | {} | {} | {carried} | {:.3} % | {low:.3} to {high:.3} % | \
         {} | {} of {} sent | {} | {}, {} | {}, {} | {:.0} % | {} |",
        run.rtt,
        run.loss,
        run.seed,
        if run.gso { "GSO" } else { "single" },
        run.send,
        100.0 * t.lost as f64 / on_the_line.max(1) as f64,
        queue_full,
        outcome.sent - first.offered.min(outcome.sent),
        outcome.sent,
        arrives.saturating_sub(outcome.received),
        s.late.percentile(0.99),
        s.late.worst(),
        beyond(0.5),
        beyond(0.99),
        100.0 * s.processor.as_secs_f64() / s.elapsed.as_secs_f64(),
        match s.verdict() {
            Verdict::Valid => "valid".into(),
            Verdict::Invalid(reason) => reason,
        }
    )
}
