//! The emulator conforms to the specification of its links. A super-packet is several datagrams
//! or TCP segments that the kernel handles as one packet.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use longhaul_testbed::emu::{
    Emulation, EmulationError, EmulationSpec, KernelTcp, Verdict, available,
};
use longhaul_testbed::link::{LinkSpec, Loss};
use longhaul_testbed::need;
use longhaul_testbed::scenario::{Amount, LinkBetween, Network, Reading, Scenario};
use longhaul_testbed::skip::{self, Skipped};

const PORT: u16 = 7_000;

/// Starts an emulation of two hosts; skips the test if this machine forbids it.
fn start(forward: LinkSpec, back: LinkSpec) -> Result<Emulation, Skipped> {
    available().map_err(skip::forbidden)?;
    Ok(Emulation::start(EmulationSpec::pair(forward, back)).expect("available"))
}

fn socket(emulation: &Emulation, host: &str, v6: bool, port: u16) -> UdpSocket {
    let addresses = emulation.addresses(host).unwrap();
    let ip = if v6 { IpAddr::V6(addresses.v6) } else { IpAddr::V4(addresses.v4) };
    let bound = emulation.enter_host(host, || UdpSocket::bind(SocketAddr::new(ip, port)));
    let socket = bound.unwrap().unwrap();
    // Only root outside any user namespace may exceed the machine's limit.
    for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
        let _ = try_option(&socket, libc::SOL_SOCKET, option, 8 << 20);
    }
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket
}

#[allow(unsafe_code, reason = "a socket option that no library offers")]
fn try_option(socket: &UdpSocket, level: i32, name: i32, value: i32) -> io::Result<()> {
    let (fd, size) = (socket.as_raw_fd(), size_of::<i32>() as u32);
    // SAFETY: the option's value is an int, valid for the call.
    let result = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), size) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn sockets(emulation: &Emulation, v6: bool) -> (UdpSocket, UdpSocket) {
    let (a, b) = (socket(emulation, "a", v6, PORT), socket(emulation, "b", v6, PORT));
    a.connect(b.local_addr().unwrap()).unwrap();
    b.connect(a.local_addr().unwrap()).unwrap();
    (a, b)
}

/// Sends `super_packets` of `segments` segments of `bytes` bytes. A segment has its number, then
/// copies of the number's lowest byte.
fn send_numbered(socket: &UdpSocket, super_packets: u32, segments: u32, bytes: usize) {
    try_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, bytes as i32).unwrap();
    for n in 0..super_packets {
        let numbers = n * segments..(n + 1) * segments;
        let payload: Vec<u8> = numbers.flat_map(|i| numbered(i, bytes)).collect();
        socket.send(&payload).unwrap();
    }
}

fn numbered(number: u32, bytes: usize) -> Vec<u8> {
    let mut segment = vec![number as u8; bytes];
    segment[..4].copy_from_slice(&number.to_be_bytes());
    segment
}

/// Receives until nothing comes for `quiet`.
fn receive_all(socket: &UdpSocket, quiet: Duration) -> Vec<Vec<u8>> {
    socket.set_read_timeout(Some(quiet)).unwrap();
    let mut room = [0; 2_048];
    let mut all = Vec::new();
    while let Ok(len) = socket.recv(&mut room) {
        all.push(room[..len].to_vec());
    }
    all
}

fn ratio(value: f64) -> LossRatio {
    LossRatio::new(value).unwrap()
}

#[test]
fn no_round_trip_is_shorter_than_the_rtt_and_the_shortest_is_hardly_longer() {
    let link = LinkSpec::path(Rate::from_mbps(1_000), Span::from_millis(20));
    let emulation = need!(start(link.clone(), link));
    for v6 in [false, true] {
        let (a, b) = sockets(&emulation, v6);
        let echo = thread::spawn(move || {
            let mut room = [0; 64];
            while let Ok(len) = b.recv(&mut room) {
                if len == 1 || b.send(&room[..len]).is_err() {
                    break;
                }
            }
        });
        let ping = |_| {
            let start = Instant::now();
            a.send(b"ping").unwrap();
            a.recv(&mut [0; 64]).unwrap();
            start.elapsed()
        };
        let trips: Vec<Duration> = (0..30).map(ping).collect();
        let least = trips.iter().min().unwrap();
        assert!(*least >= Duration::from_millis(20), "{least:?}");
        // Other load on the machine delays some of the 30 round trips.
        assert!(*least < Duration::from_millis(23), "{trips:?}");
        a.send(b".").unwrap();
        echo.join().unwrap();
    }
}

#[test]
fn a_full_link_carries_its_rate() {
    for (mbps, super_packets) in [(100_u64, 400_u32), (1_000, 3_000)] {
        let rate = Rate::from_mbps(mbps);
        // The queue holds all data, so the link is never idle.
        let path = LinkSpec::path(rate, Span::from_millis(10));
        let link = LinkSpec { queue: Bytes::new(1 << 30), ..path };
        let emulation = need!(start(link.clone(), link));
        let (a, b) = sockets(&emulation, false);
        try_option(&a, libc::SOL_UDP, libc::UDP_SEGMENT, 1_472).unwrap();
        let payload = [7; 20 * 1_472];
        for _ in 0..super_packets {
            a.send(&payload).unwrap();
        }
        b.recv(&mut [0; 2_048]).unwrap();
        // The times are by the clock of the forwarder (the emulator's thread that delivers the
        // packets), because this thread may wake up late.
        let first = emulation.statistics().unwrap();
        let mut last = first.clone();
        loop {
            let now = emulation.statistics().unwrap();
            if now.in_flight == 0 {
                break;
            }
            last = now;
            thread::sleep(Duration::from_millis(2));
        }
        let packets = (last.delivered - first.delivered) as f64;
        let seconds = last.elapsed.saturating_sub(first.elapsed).as_secs_f64();
        // A payload of 1,472 bytes takes 1,538 bytes of the link.
        let found = packets * 1_538.0 * 8.0 / seconds / rate.as_bps() as f64;
        assert!((found - 1.0).abs() < 0.05, "{mbps} Mbit/s: {found} of it");
        assert!(packets > f64::from(super_packets * 20) * 0.1, "{packets}");
    }
}

/// Polls until `is` holds; fails after two minutes.
#[track_caller]
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn drops_of_a_full_socket_are_reported_for_its_host() {
    let link = LinkSpec::path(Rate::from_mbps(1_000), Span::from_millis(1));
    let emulation = need!(start(link.clone(), link));
    let drops = |host: &str| {
        let hosts = emulation.statistics().unwrap().hosts;
        hosts.into_iter().find(|h| h.host == host).unwrap().socket_drops
    };
    for v6 in [false, true] {
        let before = drops("b");
        let (a, b) = sockets(&emulation, v6);
        // The smallest buffer; nothing reads from it.
        try_option(&b, libc::SOL_SOCKET, libc::SO_RCVBUF, 1).unwrap();
        for _ in 0..200 {
            a.send(&[7; 1_000]).unwrap();
        }
        until("some datagrams had no room", || drops("b") > before);
    }
    assert!(drops("b") <= 400, "{}", emulation.statistics().unwrap());
    assert_eq!(drops("a"), 0);
}

#[test]
fn processors_are_kept_awake_while_packets_flow_and_left_alone_when_they_do_not() {
    let link = LinkSpec::path(Rate::from_mbps(1_000), Span::from_millis(1));
    let emulation = need!(start(link.clone(), link));
    let (a, _b) = sockets(&emulation, false);
    let taken = || emulation.statistics().unwrap().awake;
    until("awake while packets flow", || {
        a.send(b"packet").unwrap();
        taken() > Span::ZERO
    });
    until("at rest without packets", || {
        let before = taken();
        thread::sleep(Duration::from_millis(500));
        taken() == before
    });
}

#[test]
fn independent_loss_stays_independent_within_super_packets() {
    const LOSS: f64 = 0.05;
    let link = LinkSpec {
        queue: Bytes::new(1 << 30),
        ..LinkSpec::path(Rate::from_mbps(40), Span::from_millis(2))
    };
    let lossy = link.clone().with_loss(Loss::Independent(ratio(LOSS)));
    let pair = need!(start(lossy.clone(), link.clone()));
    check_independence(&pair, ("a", "b"), LOSS);
    drop(pair);
    // The second link gets super-packets from the first.
    let between = |from, to, link: &LinkSpec| LinkBetween { from, to, link: link.clone() };
    let network = Network {
        routers: vec!["r".into()],
        links: vec![
            between(0, 2, &link),
            between(2, 1, &lossy),
            between(1, 2, &link),
            between(2, 0, &link),
        ],
        ..Network::default()
    };
    let spec = EmulationSpec { network, ..EmulationSpec::pair(link.clone(), link) };
    check_independence(&Emulation::start(spec).unwrap(), ("r", "b"), LOSS);
}

fn check_independence(emulation: &Emulation, lossy: (&str, &str), loss: f64) {
    for v6 in [false, true] {
        let before = emulation.statistics().unwrap();
        let (a, b) = sockets(emulation, v6);
        let receiver = thread::spawn(move || receive_all(&b, Duration::from_millis(500)));
        let sent = 500 * 40;
        send_numbered(&a, 500, 40, 100);
        let got = receiver.join().unwrap();
        let mut arrived = vec![false; sent];
        for message in &got {
            let number = u32::from_be_bytes(message[..4].try_into().unwrap());
            assert_eq!(*message, numbered(number, 100), "cut at the right place");
            arrived[number as usize] = true;
        }
        let after = emulation.statistics().unwrap();
        let tally = |s: &longhaul_testbed::emu::Statistics| *s.link(lossy.0, lossy.1).unwrap();
        let (before, after) = (tally(&before), tally(&after));
        assert_eq!(after.offered - before.offered, sent as u64);
        assert_eq!(after.arrives - before.arrives, got.len() as u64);
        let runs: Vec<usize> =
            arrived.split(|got| *got).map(<[bool]>::len).filter(|n| *n > 0).collect();
        let lost: usize = runs.iter().sum();
        // Four standard deviations. With independent losses, a run of lost packets has the mean
        // length 1 / (1 − p) and the standard deviation √p / (1 − p).
        let deviation = (loss * (1.0 - loss) / sent as f64).sqrt();
        let share = lost as f64 / sent as f64;
        assert!((share - loss).abs() < 4.0 * deviation, "{share}");
        let mean = lost as f64 / runs.len() as f64;
        let expected = 1.0 / (1.0 - loss);
        let deviation = loss.sqrt() / (1.0 - loss) / (runs.len() as f64).sqrt();
        assert!((mean - expected).abs() < 4.0 * deviation, "mean run {mean}");
    }
}

#[test]
fn tcp_arrives_whole_through_loss_reordering_and_duplicates() {
    let mut link = LinkSpec::path(Rate::from_mbps(400), Span::from_millis(4))
        .with_loss(Loss::Independent(ratio(0.01)));
    link.duplicate = 0.01;
    link.reorder.share = 0.01;
    link.reorder.by = Span::from_micros(500);
    let emulation = need!(start(link.clone(), link));
    let content: Vec<u8> = (0..4_000_000u32).map(|i| (i ^ (i >> 7)) as u8).collect();
    for v6 in [false, true] {
        let addresses = emulation.addresses("b").unwrap();
        let ip = if v6 { IpAddr::V6(addresses.v6) } else { IpAddr::V4(addresses.v4) };
        let server = SocketAddr::new(ip, PORT);
        let listener = emulation.enter_host("b", || TcpListener::bind(server)).unwrap().unwrap();
        let receiver = thread::spawn(move || {
            let mut got = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
            got
        });
        let connected = emulation.enter_host("a", || TcpStream::connect(server));
        connected.unwrap().unwrap().write_all(&content).unwrap();
        assert!(receiver.join().unwrap() == content);
    }
    let statistics = emulation.statistics().unwrap();
    let tally = statistics.link("a", "b").unwrap();
    assert!(tally.lost > 0 && tally.duplicates > 0 && tally.held_back > 0, "{tally:?}");
}

#[test]
fn an_outage_begins_and_ends_on_demand() {
    let link = LinkSpec { delay: Span::from_millis(1), ..LinkSpec::default() };
    let emulation = need!(start(link.clone(), link.clone()));
    let (a, b) = sockets(&emulation, false);
    let passes = |timeout| {
        a.send(b"x").unwrap();
        b.set_read_timeout(Some(timeout)).unwrap();
        b.recv(&mut [0; 8]).is_ok()
    };
    assert!(passes(Duration::from_secs(2)));
    emulation.update_link("a", "b", LinkSpec { up: false, ..link.clone() }).unwrap();
    assert!(!passes(Duration::from_millis(50)));
    emulation.update_link("a", "b", link).unwrap();
    assert!(passes(Duration::from_secs(2)));
    assert_eq!(emulation.statistics().unwrap().link("a", "b").unwrap().down, 1);
}

#[test]
fn packets_pass_only_between_hosts_with_a_link() {
    need!(start(LinkSpec::default(), LinkSpec::default()));
    let between = |from, to| LinkBetween { from, to, link: LinkSpec::default() };
    let spec = EmulationSpec {
        hosts: ["hub", "near", "far"].map(String::from).into(),
        network: Network {
            links: vec![between(0, 1), between(1, 0), between(0, 2), between(2, 0)],
            ..Network::default()
        },
        ..EmulationSpec::pair(LinkSpec::default(), LinkSpec::default())
    };
    let emulation = Emulation::start(spec).unwrap();
    let [hub, near, far] = ["hub", "near", "far"].map(|host| socket(&emulation, host, false, PORT));
    let to_far = far.local_addr().unwrap();
    let before = emulation.statistics().unwrap().unrouted;
    near.send_to(b"n", to_far).unwrap();
    hub.send_to(b"h", to_far).unwrap();
    let (len, from) = far.recv_from(&mut [0; 8]).unwrap();
    assert_eq!((len, from), (1, hub.local_addr().unwrap()));
    assert_eq!(emulation.statistics().unwrap().unrouted, before + 1);
    assert!(emulation.statistics().unwrap().to_string().contains("had no route"));
    assert_eq!(emulation.statistics().unwrap().offered, 1);
    let error = emulation.update_link("near", "far", LinkSpec::default()).unwrap_err();
    assert!(error.to_string().contains("no link from near to far"), "{error}");
}

#[test]
fn super_packets_leave_a_host_whole() {
    const EACH: u32 = 44;
    let link = LinkSpec::path(Rate::from_mbps(1_000), Span::from_millis(1));
    let emulation = need!(start(link.clone(), link));
    let whole = emulation.notices().iter().all(|notice| !notice.contains("super-packets"));
    need!(skip::unless(whole, emulation.notices().join("; ")));
    for v6 in [false, true] {
        let before = emulation.statistics().unwrap();
        let (a, b) = sockets(&emulation, v6);
        let receiver = thread::spawn(move || receive_all(&b, Duration::from_millis(300)));
        send_numbered(&a, 20, EACH, if v6 { 1_452 } else { 1_472 });
        receiver.join().unwrap();
        let after = emulation.statistics().unwrap();
        let packets = after.offered + after.own_drops - before.offered - before.own_drops;
        assert!(packets >= u64::from(20 * EACH), "{packets}");
        // Hosts also send packets of their own.
        let frames = after.frames - before.frames;
        assert!(frames * 10 < packets, "{packets} packets in {frames} frames");
    }
}

fn tcp(port: u16, amount: Amount) -> KernelTcp {
    let [from, to] = ["a", "b"].map(str::to_owned);
    KernelTcp { from, to, port, streams: 1, amount, window: None, congestion: None }
}

#[test]
fn tcp_leaves_a_host_in_super_packets() {
    // The kernel sends a millisecond of paced data together, at most 64 kB: half a millisecond on
    // this link.
    let link = LinkSpec::path(Rate::from_mbps(1_000), Span::from_millis(1));
    let emulation = need!(start(link.clone(), link));
    let tcp = tcp(PORT, Amount::Size(Bytes::new(20_000_000)));
    emulation.start_tcp(&tcp).unwrap().wait().unwrap();
    let statistics = emulation.statistics().unwrap();
    let sent = statistics.link("a", "b").unwrap().offered;
    assert!(sent > 20_000_000 / 1_460, "{sent}");
    // Each acknowledgement is one frame.
    let acknowledged = statistics.link("b", "a").unwrap().offered;
    let frames = statistics.frames - acknowledged.min(statistics.frames);
    assert!(frames * 4 < sent, "{sent} packets in {frames} frames");
}

#[test]
fn every_packet_is_accounted_for() {
    let mut link = LinkSpec {
        queue: Bytes::new(60_000),
        ..LinkSpec::path(Rate::from_mbps(200), Span::from_millis(2))
    }
    .with_loss(Loss::Independent(ratio(0.02)));
    link.duplicate = 0.02;
    link.corrupt = 0.02;
    let emulation = need!(start(link.clone(), link));
    let (a, b) = sockets(&emulation, false);
    let receiver = thread::spawn(move || receive_all(&b, Duration::from_millis(300)));
    send_numbered(&a, 300, 20, 1_000);
    let got = receiver.join().unwrap();
    let statistics = emulation.statistics().unwrap();
    let t = *statistics.link("a", "b").unwrap();
    assert_eq!(t.offered + statistics.own_drops, 300 * 20);
    assert_eq!(t.offered, statistics.offered);
    assert_eq!(t.arrives, t.offered - t.lost - t.queue_full);
    assert_eq!(statistics.delivered, t.arrives + t.duplicates);
    assert_eq!(statistics.in_flight, 0);
    assert_eq!(got.len() as u64, statistics.delivered);
    assert!(t.lost > 0 && t.queue_full > 0 && t.duplicates > 0, "{t:?}");
    // Each corrupted message, and its copy, has one wrong bit. The comparison misses a wrong bit in
    // the number's three higher bytes (24 of the 8,000 bits), because the payload repeats only the
    // number's lowest byte.
    let wrong = got.iter().filter(|message| {
        let number = u32::from_be_bytes(message[..4].try_into().unwrap());
        **message != numbered(number, 1_000)
    });
    let wrong = wrong.count() as u64;
    assert!(wrong >= t.corrupted * 9 / 10 && wrong <= t.corrupted + t.duplicates, "{wrong} {t:?}");
}

#[test]
#[expect(clippy::zombie_processes, reason = "the emulation's end is what is tested")]
fn programs_find_each_other_by_name_and_end_with_the_emulation() {
    let emulation = need!(start(LinkSpec::default(), LinkSpec::default()));
    let known = emulation.command("a", "cat").unwrap().arg("/etc/hosts").output().unwrap();
    let known = String::from_utf8(known.stdout).unwrap();
    assert!(known.contains("10.77.0.2 b\n") && known.contains("fd77::1 a\n"), "{known}");
    assert!(matches!(emulation.command("c", "true"), Err(EmulationError::NoSuchHost(_))));
    let status = emulation.command("b", "sh").unwrap().args(["-c", "exit 9"]).status().unwrap();
    assert_eq!(status.code(), Some(9));

    // SIGTERM, SIGINT and SIGHUP end neither the program nor its child.
    let script = "trap '' TERM INT HUP; echo started; sleep 86321 & sleep 86321; wait";
    let command = emulation.command("b", "sh").unwrap().args(["-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 8]).unwrap();
    let start = Instant::now();
    drop(emulation);
    assert!(start.elapsed() < Duration::from_secs(5));
    out.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn the_kernels_tcp_carries_every_byte_and_can_be_stopped() {
    let link = || LinkSpec::path(Rate::from_mbps(50), Span::from_millis(4));
    let emulation = need!(start(link(), link()));
    let bytes = Bytes::new(1_000_003);
    let tcp = KernelTcp { streams: 3, ..tcp(PORT, Amount::Size(bytes)) };
    let mut running = emulation.start_tcp(&tcp).unwrap();
    while !running.is_finished() {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(running.received(), bytes);
    // 1 MB at 50 Mbit/s takes 160 ms.
    assert!(running.wait().unwrap() > Span::from_millis(150));
    let (window, amount) = (Some(Bytes::new(64_000)), Amount::Lasts(Span::from_millis(100)));
    let timed = KernelTcp { amount, window, port: PORT + 3, ..tcp.clone() };
    assert!(emulation.start_tcp(&timed).unwrap().wait().unwrap() >= Span::from_millis(100));
    let endless = KernelTcp { amount: Amount::Endless, port: PORT + 1, ..tcp.clone() };
    drop(emulation.start_tcp(&endless).unwrap());
    let unknown = KernelTcp { congestion: Some("no-such".into()), port: PORT + 2, ..tcp };
    assert!(matches!(emulation.start_tcp(&unknown), Err(EmulationError::System(..))));
}

#[test]
fn a_window_limits_the_kernels_tcp_to_one_window_per_round_trip() {
    let rtt = Span::from_millis(50);
    let link = || LinkSpec::path(Rate::from_mbps(200), rtt);
    let emulation = need!(start(link(), link()));
    for (port, window) in [(PORT, 64 << 10), (PORT + 1, 256 << 10)] {
        let window = Bytes::new(window);
        let tcp = KernelTcp { window: Some(window), ..tcp(port, Amount::Endless) };
        let running = emulation.start_tcp(&tcp).unwrap();
        let so_far = || (running.received(), running.elapsed());
        while running.received().get() < window.get() * 4 && running.elapsed() < Span::from_secs(20)
        {
            thread::sleep(Duration::from_millis(5));
        }
        let (before, from) = so_far();
        thread::sleep(Duration::from_secs(2));
        let (after, until) = so_far();
        let goodput = (after - before) / until.saturating_sub(from);
        let ratio = goodput.as_bps() as f64 / (window / rtt).as_bps() as f64;
        // A whole super-packet may be late; a busy machine lengthens round trips.
        assert!((0.8..1.1).contains(&ratio), "{goodput} with a window of {window}: {ratio}");
    }
    let window = Some(Bytes::new(8 << 30));
    let unbounded = KernelTcp { window, ..tcp(PORT + 2, Amount::Endless) };
    let refused = emulation.start_tcp(&unbounded).err().expect("no buffer is that large");
    let refused = refused.to_string();
    assert!(refused.contains("net.core.rmem_max"), "{refused}");
}

#[test]
fn every_hosts_tcp_may_fill_a_long_path_or_a_notice_says_why_not() {
    let emulation = need!(start(LinkSpec::default(), LinkSpec::default()));
    for (host, buffer) in [("a", "tcp_wmem"), ("b", "tcp_rmem")] {
        let path = format!("/proc/sys/net/ipv4/{buffer}");
        let found = emulation.command(host, "cat").unwrap().arg(path).output().unwrap();
        let limits = String::from_utf8(found.stdout).unwrap();
        let most: u64 = limits.split_whitespace().nth(2).unwrap().parse().unwrap();
        let told = emulation.notices().iter().any(|notice| notice.contains("tcp_wmem"));
        assert_eq!(most < 64 << 20, told, "{limits} {:?}", emulation.notices());
    }
    assert_eq!(emulation.statistics().unwrap().notices, emulation.notices());
}

/// A path with so many links that the emulator cannot keep up with super-packets.
fn overloaded() -> Result<Emulation, Skipped> {
    const ROUTERS: usize = 1_000;
    start(LinkSpec::default(), LinkSpec::default())?;
    let between = |from, to| LinkBetween { from, to, link: LinkSpec::default() };
    // Nodes 0 and 1 are the hosts, then the routers.
    let nodes: Vec<usize> = [0].into_iter().chain(2..2 + ROUTERS).chain([1]).collect();
    let links = nodes.windows(2).map(|pair| between(pair[0], pair[1]));
    let network = Network {
        routers: (0..ROUTERS).map(|n| format!("r{n}")).collect(),
        links: links.chain([between(1, 0)]).collect(),
        ..Network::default()
    };
    let spec = EmulationSpec::pair(LinkSpec::default(), LinkSpec::default());
    Ok(Emulation::start(EmulationSpec { network, ..spec }).unwrap())
}

#[test]
fn an_emulation_that_cannot_keep_up_is_reported_invalid_with_the_reason() {
    let emulation = need!(overloaded());
    let (a, _b) = sockets(&emulation, false);
    // 8,800 packets over 1,001 links, at once.
    send_numbered(&a, 200, 44, 1_000);
    let deadline = Instant::now() + Duration::from_secs(60);
    let statistics = loop {
        let statistics = emulation.statistics().unwrap();
        if statistics.delivered > 0 && statistics.in_flight == 0 {
            break statistics;
        }
        assert!(Instant::now() < deadline, "{statistics}");
        thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(statistics.offered + statistics.own_drops, 8_800);
    let Verdict::Invalid(reason) = statistics.verdict() else { panic!("{statistics}") };
    assert!(statistics.to_string().contains(&reason), "{statistics}");
}

#[test]
fn flows_share_a_bottleneck_and_every_link_on_their_way_delays_them() {
    need!(start(LinkSpec::default(), LinkSpec::default()));
    let text = r#"
        [topology]
        kind = "dumbbell"
        left = 2
        right = 2
        bottleneck = { rate = "20M", delay = "10ms", queue = "1GB" }
        access = { delay = "2ms" }
        [all-hosts]
        nic = "1G"
    "#;
    let scenario = Scenario::parse("shared", text, &Reading::PLAIN).unwrap();
    let emulation = Emulation::start(EmulationSpec::of(&scenario)).unwrap();
    let [left1, left2, right1, right2] =
        ["left1", "left2", "right1", "right2"].map(|host| socket(&emulation, host, false, PORT));
    left1.connect(right1.local_addr().unwrap()).unwrap();
    left2.connect(right2.local_addr().unwrap()).unwrap();
    let began = Instant::now();
    left1.send(b"first").unwrap();
    right1.recv(&mut [0; 8]).unwrap();
    // 10 ms on the bottleneck, 2 ms on each access link.
    assert!(began.elapsed() >= Duration::from_millis(14), "{:?}", began.elapsed());

    // Each sender sends 400 packets of 1500 bytes. The 800 packets take 0.49 s of the bottleneck.
    // With `first`, `left1` sends 401.
    let receivers = [right1, right2]
        .map(|socket| thread::spawn(move || receive_all(&socket, Duration::from_secs(2)).len()));
    send_numbered(&left1, 20, 20, 1_472);
    send_numbered(&left2, 20, 20, 1_472);
    let got = receivers.map(|receiver| receiver.join().unwrap());
    let statistics = emulation.statistics().unwrap();
    let tally = |from: &str, to: &str| *statistics.link(from, to).unwrap();
    assert_eq!(tally("left", "right").offered, 801);
    assert_eq!(tally("left1", "left1-card").offered, 401);
    assert_eq!(tally("left2-card", "left").offered, 400);
    assert_eq!(tally("right", "left").offered, 0);
    assert_eq!((got[0] + got[1]) as u64 + 1, statistics.delivered);
    assert_eq!((statistics.in_flight, statistics.own_drops), (0, 0));
}

/// A host's card makes the host's programs wait; the card's queue alone would drop most of the
/// test's 4.2 MB.
#[test]
fn a_card_makes_its_hosts_programs_wait() {
    need!(available().map_err(skip::forbidden));
    let text = r#"
        host = [{ name = "a", nic = "100M" }, { name = "b" }]
        link = [{ between = ["a", "b"] }]
    "#;
    let scenario = Scenario::parse("card", text, &Reading::PLAIN).unwrap();
    let emulation = Emulation::start(EmulationSpec::of(&scenario)).unwrap();
    let unpaced = emulation.notices().iter().find(|notice| notice.contains("sch_tbf"));
    need!(unpaced.map_or(Ok(()), |notice| Err(skip::forbidden(notice))));
    let (a, b) = sockets(&emulation, false);
    try_option(&a, libc::SOL_SOCKET, libc::SO_SNDBUF, 200_000).unwrap();
    let receiver = thread::spawn(move || receive_all(&b, Duration::from_secs(2)).len());
    let began = Instant::now();
    send_numbered(&a, 100, 30, 1_400);
    // All data have left, except the content of the socket's buffer. At 100 Mbit/s each of the 100
    // super-packets takes 3.5 ms.
    assert!(began.elapsed() >= Duration::from_millis(250), "{:?}", began.elapsed());
    let got = receiver.join().unwrap() as u64;
    let statistics = emulation.statistics().unwrap();
    let card = *statistics.link("a", "a-card").unwrap();
    assert_eq!(card.arrives, 3_000, "{card:?}");
    assert_eq!(got + statistics.own_drops, 3_000);
}
