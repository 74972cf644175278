//! The largest datagram size that a path carries.
//!
//! A search sends padded probes of all likely sizes together; the answers are short. The usual
//! search therefore takes one round trip. It can run during the handshake, because probes are in
//! the clear and carry no secret. A probe's 80 random bits (flow id and block) must be echoed. An
//! answer is never longer than its probe, and a port limits its answers per second to each network.
//!
//! The block size is fixed when a pass (one flow of a transfer) begins; another size needs another
//! pass. [`HoleWatch`] suspects a path that starts to drop large datagrams. The flow then searches
//! again, to confirm the suspicion.

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::rand;
use longhaul_proto::endpoint::{FlowId, PacketNumber};
use longhaul_proto::time::{Span, Time};
use longhaul_proto::wire::header::{Header, Kind};

use crate::clock;
use crate::error::Error;
use crate::port::{Datagrams, FlowSink, PortHandle};
use crate::socket::{Path, SendError, SendOutcome, Socket};

/// Bytes of the shortest probe that is answered.
pub(super) const SHORTEST: usize = 64;
/// Bytes of an answer: the header, and the size of the probe that arrived.
pub(super) const ANSWER_LEN: usize = Header::LEN + 2;
/// MTUs worth a probe: the packet that every IPv4 host accepts, IPv6's minimum, nested tunnels,
/// WireGuard, VXLAN, PPPoE, Ethernet, jumbo frames.
const MTUS: [u16; 8] = [576, 1280, 1400, 1420, 1450, 1492, 1500, 9000];
/// The largest packet that a search tries, in bytes with its headers.
pub const LARGEST: u16 = MTUS[MTUS.len() - 1];
/// How many times a probe is sent before its size counts as too large.
const TRIES: u32 = 3;
/// How long a search waits for the first answer before it repeats all probes.
const FIRST_WAIT: Span = Span::from_millis(250);

/// Returns the size in bytes of the IP and UDP headers in front of a datagram to `address`.
pub fn packet_overhead(address: IpAddr) -> u16 {
    match address.to_canonical() {
        IpAddr::V4(_) => 20 + 8,
        IpAddr::V6(_) => 40 + 8,
    }
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The largest UDP payload that arrived.
    pub size: u16,
    /// The round-trip time of the first answer.
    pub rtt: Span,
}

/// A search for the largest size, without socket or clock.
///
/// A round sends probes of all sizes that may still pass. The first answer gives the round-trip
/// time. After the first answer, sizes above the largest confirmed size are probed again every
/// round trip, at most twice each.
#[derive(Debug)]
pub struct Search {
    /// Largest first.
    candidates: Vec<Candidate>,
    found: Option<Found>,
    /// Start of each round.
    rounds: Vec<Time>,
    deadline: Time,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    size: u16,
    said: u32,
    due: bool,
}

impl Search {
    /// Returns a search for the path to `address`, for sizes up to `ceiling`, that ends at
    /// `deadline`.
    pub fn new(now: Time, address: IpAddr, ceiling: u16, deadline: Time) -> Search {
        let overhead = packet_overhead(address);
        let mut sizes: Vec<u16> = MTUS.iter().map(|mtu| (mtu - overhead).min(ceiling)).collect();
        sizes.retain(|size| usize::from(*size) >= SHORTEST);
        sizes.dedup();
        let candidates =
            sizes.into_iter().rev().map(|size| Candidate { size, said: 0, due: true }).collect();
        Search { candidates, found: None, rounds: vec![now], deadline }
    }

    /// Returns the next probe to send now, if there is one: its size, and its round as its packet
    /// number.
    pub(crate) fn poll_probe(&mut self, now: Time) -> Option<(u16, PacketNumber)> {
        if now >= self.round_ends() && !self.is_over(now) {
            self.rounds.push(now);
            let answered = self.found.is_some();
            for candidate in &mut self.candidates {
                // Until a probe is answered, silence says nothing about the size.
                candidate.due = !answered || candidate.said < TRIES;
            }
        }
        let due = self.candidates.iter_mut().find(|candidate| candidate.due)?;
        due.due = false;
        due.said += 1;
        Some((due.size, PacketNumber(self.rounds.len() as u64 - 1)))
    }

    pub(crate) fn on_answer(&mut self, now: Time, size: u16, number: PacketNumber) {
        let known = self.candidates.iter().any(|c| c.size == size && c.said > 0);
        let round = usize::try_from(number.0).ok().and_then(|round| self.rounds.get(round));
        let Some(began) = round.copied().filter(|_| known) else {
            return;
        };
        let first = Found { size, rtt: now.since(began) };
        if self.found.is_none() {
            // Before the round-trip time was known, rounds may have followed each other too fast:
            // a missing answer may only be late.
            self.candidates.iter_mut().for_each(|c| c.said = c.said.min(1));
        }
        self.found = Some(Found { size, ..self.found.unwrap_or(first) });
        self.candidates.retain(|candidate| candidate.size > size);
    }

    pub(crate) fn on_refused(&mut self, size: u16) {
        self.candidates.retain(|candidate| candidate.size < size);
    }

    /// Returns the largest size confirmed so far.
    pub fn found(&self) -> Option<Found> {
        self.found
    }

    /// Returns whether the search has ended.
    pub fn is_over(&self, now: Time) -> bool {
        let waited = now >= self.round_ends();
        let tried = self.candidates.iter().all(|candidate| candidate.said >= TRIES && waited);
        now >= self.deadline || self.candidates.is_empty() || self.found.is_some() && tried
    }

    /// Returns when to call `poll_probe` again if no answer arrives.
    pub fn next_wakeup(&self) -> Time {
        self.round_ends().min(self.deadline)
    }

    fn round_ends(&self) -> Time {
        let wait = match self.found {
            // Answers to one round arrive close together.
            Some(found) => found.rtt + found.rtt / 4 + Span::from_millis(2),
            None => FIRST_WAIT,
        };
        self.rounds.last().map_or(Time::ZERO, |began| *began + wait)
    }
}

/// Suspects a path that drops large datagrams while small datagrams pass (a hole).
#[derive(Clone, Copy, Debug)]
pub struct HoleWatch {
    arrived: u64,
    sent: u64,
    since: Time,
    reported: Time,
}

/// A hole is suspected after this many datagrams of which none has arrived.
const SUSPICIOUS: u64 = 50;
/// If no report arrives for longer than this and for more than two round trips, small datagrams did
/// not pass either.
const REPORTS: Span = Span::from_millis(750);

impl HoleWatch {
    /// Returns a watch at the start of a pass (one flow of a transfer).
    pub fn new(now: Time) -> HoleWatch {
        HoleWatch { arrived: 0, sent: 0, since: now, reported: now }
    }

    /// Handles a report, which shows that small datagrams pass: of `sent` data datagrams so far,
    /// `arrived` have arrived. Returns whether the path seems to have a hole: at least 50 have been
    /// sent since the last arrival, and then none has arrived for four round trips (at least 1 s).
    pub fn on_report(&mut self, now: Time, sent: u64, arrived: u64, rtt: Span) -> bool {
        // If the reports paused, the network or a host was unavailable: data that were sent
        // meanwhile prove nothing.
        let paused = now.since(self.reported) > REPORTS.max(rtt * 2);
        if arrived != self.arrived || paused {
            *self = HoleWatch { arrived, sent, since: now, reported: now };
        } else if sent.saturating_sub(self.sent) < SUSPICIOUS {
            // A sender without data to send does not indicate a hole.
            self.since = now;
        }
        self.reported = now;
        let patience = (rtt * 4).max(Span::from_secs(1));
        sent.saturating_sub(self.sent) >= SUSPICIOUS && now.since(self.since) >= patience
    }
}

/// Returns the answer to a probe of `len` bytes; `None` if `len` is too short for a probe.
pub(super) fn answer(probe: &Header, len: usize) -> Option<[u8; ANSWER_LEN]> {
    let size = u16::try_from(len).ok().filter(|_| len >= SHORTEST)?;
    let mut answer = [0; ANSWER_LEN];
    let (head, rest) = answer.split_first_chunk_mut()?;
    Header { kind: Kind::ProbeAnswer, ..*probe }.encode(head);
    rest.copy_from_slice(&size.to_be_bytes());
    Some(answer)
}

/// Searches for the largest datagram size to `path` over `port`, up to `ceiling`, for at most
/// `patience`. `done` is called once, on the receive thread, with `None` if no probe was answered.
///
/// Needs only a longhaul port at the other end: no session, no keys.
///
/// # Errors
/// The port has closed, the random flow id is in use, or the system has no random numbers. After an
/// error `done` is never called.
pub fn search(
    port: &PortHandle,
    path: Path,
    ceiling: u16,
    patience: Span,
    done: impl FnOnce(Option<Found>) + Send + 'static,
) -> Result<(), Error> {
    let mut random = [0; 10];
    rand::fill(&mut random)
        .map_err(|_| Error::new("the system's random number generator failed"))?;
    let (flow, block) = random.split_at(4);
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let header = Header {
        kind: Kind::Probe,
        flow: FlowId(number(flow) as u32),
        number: PacketNumber(0),
        block: number(block),
    };
    let now = clock::now();
    let search = Search::new(now, path.remote.ip(), ceiling, now + patience);
    let socket = port.socket().clone();
    let prober = Prober { search, header, path, socket, done: Some(Box::new(done)) };
    port.register(header.flow, Box::new(prober))
}

/// Returns the error about a data port that answered no probe.
pub fn unanswered(address: SocketAddr) -> Error {
    let port = address.port();
    let what = format!("UDP port {port} of {} does not answer", address.ip());
    Error::new(what)
        .advise(format!("open UDP {port} in the firewalls on the path and on the server"))
}

struct Prober {
    search: Search,
    header: Header,
    path: Path,
    socket: std::sync::Arc<Socket>,
    done: Option<Box<dyn FnOnce(Option<Found>) + Send>>,
}

impl Prober {
    fn drive(&mut self, now: Time) {
        while let Some((size, number)) = self.search.poll_probe(now) {
            let mut probe = vec![0; usize::from(size)];
            let Some(head) = probe.first_chunk_mut() else { continue };
            Header { number, ..self.header }.encode(head);
            match self.socket.send(self.path, &probe) {
                Ok(SendOutcome::Sent | SendOutcome::Lost(_)) => {}
                Err(SendError::TooLarge) => self.search.on_refused(size),
                Err(SendError::Broken(_)) => self.finish(),
            }
        }
        if self.search.is_over(now) {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if let Some(done) = self.done.take() {
            done(self.search.found());
        }
    }
}

impl FlowSink for Prober {
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>) {
        for datagram in datagrams {
            let number = datagram.header.number;
            let expected = Header { kind: Kind::ProbeAnswer, number, ..self.header };
            let size = datagram.bytes.get(Header::LEN..).and_then(|rest| rest.first_chunk());
            let ours = datagram.header == expected && datagram.path.remote == self.path.remote;
            if let Some(size) = size.filter(|_| ours) {
                self.search.on_answer(now, u16::from_be_bytes(*size), number);
            }
        }
        self.drive(now);
    }

    fn on_wake(&mut self, now: Time) {
        self.drive(now);
    }

    fn next_wakeup(&self) -> Option<Time> {
        Some(self.search.next_wakeup())
    }

    fn is_closed(&self) -> bool {
        self.done.is_none()
    }

    fn on_port_closed(&mut self, _: &str) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::Port;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    const FOUR: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const START: Time = Time::from_nanos(1_000_000);
    const RTT: Span = Span::from_millis(100);

    /// Runs a search over a path whose first link refuses datagrams above `link` bytes.
    /// `passes(size, n)` decides whether the `n`th probe of this size passes the rest of the path.
    /// Returns the result and the duration.
    fn run(ceiling: u16, link: u16, passes: impl Fn(u16, u32) -> bool) -> (Option<Found>, Span) {
        run_at(RTT, ceiling, link, passes)
    }

    fn run_at(
        rtt: Span,
        ceiling: u16,
        link: u16,
        passes: impl Fn(u16, u32) -> bool,
    ) -> (Option<Found>, Span) {
        let mut search = Search::new(START, FOUR, ceiling, START + Span::from_secs(5));
        let mut now = START;
        let mut said = std::collections::HashMap::new();
        let mut answers: Vec<(Time, u16, PacketNumber)> = Vec::new();
        for _ in 0..1000 {
            while let Some((size, number)) = search.poll_probe(now) {
                *said.entry(size).or_insert(0) += 1;
                if size > link {
                    search.on_refused(size);
                } else if passes(size, said[&size]) {
                    answers.push((now + rtt, size, number));
                }
            }
            if search.is_over(now) {
                return (search.found(), now.since(START));
            }
            let next = answers.iter().map(|(at, ..)| *at).min().unwrap_or(Time::NEVER);
            now = next.min(search.next_wakeup()).max(now);
            for (_, size, number) in answers.extract_if(.., |(at, ..)| *at <= now) {
                search.on_answer(now, size, number);
            }
        }
        panic!("the search never ends");
    }

    #[test]
    fn a_search_takes_one_round_trip_if_only_the_first_link_limits_the_size() {
        assert_eq!(run(9000, 1472, |_, _| true), (Some(Found { size: 1472, rtt: RTT }), RTT));
        assert_eq!(run(9000, 8972, |_, _| true).1, RTT);
    }

    #[test]
    fn the_size_limit_of_a_later_link_is_found() {
        let (found, took) = run(9000, 8972, |size, _| size <= 1392);
        assert_eq!(found.map(|found| found.size), Some(1392));
        assert!(took < RTT * 5, "{took}");
        assert_eq!(run(9000, 8972, |size, _| size <= 548).0.map(|found| found.size), Some(548));
    }

    #[test]
    fn a_lost_probe_is_repeated() {
        let (found, _) = run(9000, 1472, |size, said| size < 1472 || said == 3);
        assert_eq!(found.map(|found| found.size), Some(1472));
    }

    #[test]
    fn a_search_whose_whole_first_round_is_lost_still_finds_the_size() {
        let (found, _) = run(9000, 1472, |_, said| said > 1);
        assert_eq!(found.map(|found| found.size), Some(1472));
    }

    #[test]
    fn a_path_longer_than_the_first_wait_is_measured_correctly() {
        let rtt = Span::from_millis(600);
        let (found, took) = run_at(rtt, 9000, 8972, |size, _| size <= 1472);
        assert_eq!(found, Some(Found { size: 1472, rtt }));
        assert!(took < rtt * 5, "{took}");
    }

    #[test]
    fn a_search_whose_sizes_are_all_refused_ends_at_once() {
        assert_eq!(run(9000, 500, |_, _| true), (None, Span::ZERO));
    }

    #[test]
    fn a_search_without_answers_ends_at_the_deadline() {
        assert_eq!(run(9000, 1472, |_, _| false), (None, Span::from_secs(5)));
    }

    #[test]
    fn the_ceiling_is_probed_too() {
        assert_eq!(run(1000, 1472, |_, _| true).0.map(|found| found.size), Some(1000));
    }

    #[test]
    fn an_answer_without_a_probe_is_ignored() {
        let mut search = Search::new(START, FOUR, 9000, START + RTT);
        assert_eq!(search.poll_probe(START), Some((8972, PacketNumber(0))));
        search.on_answer(START, 8971, PacketNumber(0));
        search.on_answer(START, 1472, PacketNumber(0));
        search.on_answer(START, 8972, PacketNumber(1));
        assert_eq!(search.found(), None);
    }

    #[test]
    fn a_hole_is_detected_only_while_reports_show_no_arrivals() {
        let at = |millis| START + Span::from_millis(millis);
        let mut watch = HoleWatch::new(START);
        assert!(!watch.on_report(at(500), 1000, 0, RTT), "too early");
        assert!(!watch.on_report(at(1000), 1000, 1, RTT), "one arrived");
        assert!(!watch.on_report(at(1500), 1010, 1, RTT));
        assert!(!watch.on_report(at(2000), 1020, 1, RTT), "too few");
        assert!(!watch.on_report(at(2500), 2000, 1, RTT), "a burst after a pause has just left");
        assert!(!watch.on_report(at(2900), 2000, 1, RTT));
        assert!(watch.on_report(at(3300), 2000, 1, RTT));
    }

    #[test]
    fn an_outage_is_not_a_hole() {
        let at = |millis| START + Span::from_millis(millis);
        let mut watch = HoleWatch::new(START);
        assert!(!watch.on_report(at(500), 1000, 900, RTT));
        assert!(!watch.on_report(at(3000), 9000, 900, RTT), "the first report after an outage");
        assert!(!watch.on_report(at(3250), 9000, 950, RTT));
    }

    #[test]
    fn two_ports_find_the_loopbacks_size() {
        let port = || Port::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let (here, there) = (port(), port());
        let (sender, receiver) = std::sync::mpsc::channel();
        let path = there.socket().local_addr().into();
        let done = move |found| sender.send(found).unwrap();
        search(&here, path, 9000, Span::from_secs(10), done).unwrap();
        let found: Option<Found> = receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(found.map(|found| found.size), Some(8972));
        assert_eq!(there.statistics().foreign, 0);
    }
}
