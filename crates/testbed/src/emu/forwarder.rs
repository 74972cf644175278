//! The forwarding thread. It reads packets from hosts, and asks the link for each packet's fate: a
//! due time or a drop. At the due time it offers the packet to the route's next link, or writes it
//! to the receiving host.
//!
//! The next link counts from the due time, not from the time at which this thread handles the
//! packet, so lateness does not add up.
//!
//! Each segment of a super-packet (several packets that the kernel passes as one; see
//! `superpacket`) has its own fate. Consecutive segments that are due within 50 µs after the first
//! of them are written as one packet, when the last of them is due.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::ops::{Add, RangeInclusive};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use longhaul_proto::time::{Span, Time};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::awake::Rouser;
use super::clock::processor_time;
use super::host::Port;
use super::lane::{Lane, Run};
use super::slab::{LARGEST_FRAME, Slab, Slot};
use super::starvation::Starvation;
use super::statistics::{LATE_ALLOWANCE, Lateness};
use super::superpacket::{MOST_HEADERS, Shape, destination, payload_start};
use super::ways::Ways;
use super::{EmulationError, sys};
use crate::link::{LinkSpec, LinkTally};
use crate::scenario::LinkBetween;

/// Limits of the interval at which the thread looks for work while packets flow. Within these
/// limits, the interval is 1/50 of the shortest route's delay. A wake-up per packet would cost more
/// than the packet, and busy waiting would take a core.
const TICK: RangeInclusive<Span> = Span::from_micros(20)..=Span::from_micros(100);

/// The thread handles at most this many frames of a host, or runs (segments that travel together)
/// of a link, before it turns to the next host or link.
const TURN: usize = 32;

/// Maximum bytes of memory for packets in flight: more than 2 s of 10 Gbit/s.
const MOST_MEMORY: usize = 3 << 30;

enum Order {
    UpdateLink(usize, Box<LinkSpec>),
    Report(Sender<Report>),
}

pub(super) struct Report {
    pub(super) links: Vec<LinkReport>,
    pub(super) in_flight: u64,
    pub(super) delivered: u64,
    pub(super) own_drops: u64,
    pub(super) offered: u64,
    pub(super) frames: u64,
    pub(super) unrouted: u64,
    pub(super) late: Lateness,
    pub(super) waited: Lateness,
    pub(super) burst_drops: u64,
    pub(super) processor: Span,
    pub(super) elapsed: Span,
}

pub(super) struct LinkReport {
    pub(super) tally: LinkTally,
    pub(super) delay: Span,
}

/// A running forwarder. Dropping this value stops it.
pub(super) struct Remote {
    orders: Option<Sender<Order>>,
    wake: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Remote {
    fn order(&self, order: Order) -> Result<(), EmulationError> {
        let orders = self.orders.as_ref().ok_or(EmulationError::Ended)?;
        orders.send(order).map_err(|_| EmulationError::Ended)?;
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        // If the counter is full, the forwarder wakes anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    pub(super) fn update_link(&self, index: usize, link: LinkSpec) -> Result<(), EmulationError> {
        self.order(Order::UpdateLink(index, Box::new(link)))
    }

    pub(super) fn report(&self) -> Result<Report, EmulationError> {
        let (reply, answer) = channel();
        self.order(Order::Report(reply))?;
        answer.recv().map_err(|_| EmulationError::Ended)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.orders = None;
        self.wake();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the panic was already printed.
            let _ = thread.join();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pass {
    /// There was no work.
    Idle,
    /// All work is done.
    Done,
    /// Some work is done; there may be more.
    More,
}

impl Pass {
    fn after(packets: usize) -> Pass {
        if packets == 0 { Pass::Idle } else { Pass::Done }
    }
}

#[derive(Clone, Copy, Default)]
struct Entry {
    /// When the port was last found empty.
    empty_at: Time,
    frames: u64,
    segments: u64,
}

pub(super) struct Forwarder {
    start: Instant,
    ports: Vec<Port>,
    entries: Vec<Entry>,
    lanes: Vec<Lane>,
    ways: Ways,
    slab: Slab,
    /// A buffer for frames dropped for lack of memory.
    scrap: Box<[u8]>,
    starved: Starvation,
    processors: Rouser,
    orders: Receiver<Order>,
    wake: OwnedFd,
    /// Each device's drops before the start.
    drops_before: Vec<u64>,
    in_flight: u64,
    offered: u64,
    delivered: u64,
    refused: u64,
    unrouted: u64,
    late: Lateness,
    waited: Lateness,
    tick: Timespec,
}

impl Forwarder {
    /// Starts forwarding between `ports` over `links`. `processors` keeps processors awake while
    /// packets are in flight.
    pub(super) fn start(
        ports: Vec<Port>,
        links: Vec<LinkBetween>,
        ways: Ways,
        seed: u64,
        processors: Rouser,
    ) -> Result<Remote, EmulationError> {
        let eventfd = || rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let wake = eventfd().map_err(|e| EmulationError::System("make an event", e.into()))?;
        let ours = wake.try_clone().map_err(EmulationError::system("share an event"))?;
        let (orders, inbox) = channel();
        let lanes = (0u64..).zip(links).map(|(index, between)| {
            // Links need independent random streams.
            Lane::new(between, seed.wrapping_mul(0x9e37_79b9).wrapping_add(index))
        });
        let lanes: Vec<Lane> = lanes.collect();
        let forwarder = Forwarder {
            tick: tick(&lanes, &ways),
            start: Instant::now(),
            drops_before: ports.iter().map(Port::drops).collect(),
            lanes,
            entries: vec![Entry::default(); ports.len()],
            ports,
            ways,
            slab: Slab::new(MOST_MEMORY),
            scrap: vec![0; LARGEST_FRAME].into(),
            starved: Starvation::default(),
            processors,
            orders: inbox,
            wake: ours,
            in_flight: 0,
            offered: 0,
            delivered: 0,
            refused: 0,
            unrouted: 0,
            late: Lateness::default(),
            waited: Lateness::default(),
        };
        let thread = thread::Builder::new()
            .name("forwarder".into())
            .spawn(move || forwarder.run())
            .map_err(EmulationError::system("start a thread"))?;
        Ok(Remote { orders: Some(orders), wake, thread: Some(thread) })
    }

    fn now(&self) -> Time {
        let nanos = self.start.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn run(mut self) {
        // If these calls fail, the statistics show the lateness.
        let _ = sys::run_first();
        let _ = rustix::thread::set_current_timer_slack(core::num::NonZeroU64::new(1));
        self.starved = Starvation::of_this_thread();
        while self.obey() {
            let lanes = (0..self.lanes.len()).map(|lane| self.hand_over(lane)).max();
            let ports = (0..self.ports.len()).map(|port| self.read(port)).max();
            match lanes.max(ports).unwrap_or(Pass::Idle) {
                Pass::Idle => self.await_event(),
                // An interruption only ends the pause early.
                Pass::Done => drop(rustix::thread::nanosleep(&self.tick)),
                Pass::More => {}
            }
        }
    }

    /// Executes the owner's requests; false once the owner is gone.
    fn obey(&mut self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(Order::UpdateLink(index, link)) => {
                    self.lanes[index].link.update(*link);
                    self.tick = tick(&self.lanes, &self.ways);
                }
                Ok(Order::Report(reply)) => {
                    let _ = reply.send(self.report());
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn report(&self) -> Report {
        let drops = self.ports.iter().zip(&self.drops_before).zip(&self.entries);
        let unread: u64 = drops
            .map(|((port, before), entry)| unread(port.drops().saturating_sub(*before), entry))
            .sum();
        let links = self
            .lanes
            .iter()
            .map(|lane| LinkReport { tally: *lane.link.tally(), delay: lane.link.spec().delay });
        Report {
            links: links.collect(),
            in_flight: self.in_flight,
            delivered: self.delivered,
            own_drops: unread + self.refused,
            offered: self.offered,
            frames: self.entries.iter().map(|entry| entry.frames).sum(),
            unrouted: self.unrouted,
            late: self.late.clone(),
            waited: self.waited.clone(),
            burst_drops: self.lanes.iter().map(|lane| lane.burst_drops).sum(),
            processor: processor_time(),
            elapsed: self.now().since(Time::ZERO),
        }
    }

    fn await_event(&mut self) {
        let next = self.lanes.iter().filter_map(|l| l.due.front()).map(|r| r.at).min();
        let now = self.now();
        let wait = match next {
            Some(at) => {
                self.processors.rouse(now);
                Some(at.since(now))
            }
            None => self.processors.quiet(now),
        };
        let timeout = wait.map(timespec);
        let mut events: Vec<PollFd<'_>> =
            self.ports.iter().map(|p| PollFd::new(&p.tun, PollFlags::IN)).collect();
        events.push(PollFd::new(&self.wake, PollFlags::IN));
        let before = self.starved.so_far();
        // An interruption only ends the wait early.
        let _ = rustix::event::poll(&mut events, timeout.as_ref());
        // The thread became runnable at `woken` and then waited for a processor for `starved`. All
        // ports were empty until `woken`.
        let starved = self.starved.so_far().saturating_sub(before);
        let woken = Time::ZERO + self.now().since(Time::ZERO).saturating_sub(starved);
        for entry in &mut self.entries {
            entry.empty_at = entry.empty_at.max(woken);
        }
        if events.last().is_some_and(|e| e.revents().contains(PollFlags::IN)) {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.wake, &mut count);
        }
    }

    fn read(&mut self, port: usize) -> Pass {
        for n in 0..TURN {
            let looked = self.now();
            let tun = self.ports[port].tun.as_fd();
            let read = self.slab.read_with(|room| Ok(rustix::io::read(tun, room)?));
            match read {
                Ok(Some(slot)) => self.offer(port, slot),
                Ok(None) => self.drop_unread(port),
                Err(_) => {
                    self.entries[port].empty_at = looked;
                    return Pass::after(n);
                }
            }
        }
        Pass::More
    }

    /// Reads and drops a frame for lack of memory.
    fn drop_unread(&mut self, port: usize) {
        if let Ok(len) = rustix::io::read(&self.ports[port].tun, &mut *self.scrap) {
            let shape = Shape::of(&self.scrap[..len]);
            self.refused += shape.map_or(1, |shape| shape.segments as u64);
        }
    }

    /// Asks the first link of the route for the fate of each packet in a frame.
    fn offer(&mut self, from: usize, slot: Slot) {
        let now = self.now();
        let frame = self.slab.frame(slot);
        let Some(shape) = Shape::of(frame) else {
            self.refused += 1;
            return;
        };
        let Some(destination) = destination(frame) else { return };
        let to = self.host_at(destination);
        let Some(way) = to.and_then(|to| self.ways.between(from, to)) else {
            // Multicast (neighbour discovery) has no receiver here.
            self.unrouted += u64::from(!destination.is_multicast()) * shape.segments as u64;
            return;
        };
        self.processors.rouse(now);
        let packets = shape.segments as u64;
        let entry = &mut self.entries[from];
        entry.frames += 1;
        entry.segments += packets;
        self.offered += packets;
        self.waited.count(entry.empty_at, now, packets);
        let bunched = now.since(entry.empty_at) > LATE_ALLOWANCE;
        let links = self.ways.links(way);
        let segments = 0..shape.segments as u16;
        let left = links.len() as u16 - 1;
        let run = Run { at: now, slot, segments, turned_bit: None, way, left, bunched };
        let lane = &mut self.lanes[links[0] as usize];
        self.in_flight += lane.offer(&mut self.slab, &shape, run);
    }

    fn host_at(&self, address: IpAddr) -> Option<usize> {
        let last = match address {
            IpAddr::V4(v4) => match v4.octets() {
                [10, 77, 0, last] => last,
                _ => return None,
            },
            IpAddr::V6(v6) => match v6.segments() {
                [0xfd77, 0, 0, 0, 0, 0, 0, last] => u8::try_from(last).ok()?,
                _ => return None,
            },
        };
        usize::from(last).checked_sub(1).filter(|host| *host < self.ports.len())
    }

    /// Passes due packets to the next link or the host.
    fn hand_over(&mut self, index: usize) -> Pass {
        let mut pass = Pass::Idle;
        for _ in 0..TURN {
            if self.lanes[index].due.is_empty() {
                return pass;
            }
            let now = self.now();
            let lane = &mut self.lanes[index];
            let Some(run) = lane.due.pop_front_if(|run| run.at <= now) else { return pass };
            let packets = run.segments.len() as u64;
            self.in_flight -= packets;
            let slot = run.slot;
            if run.left > 0 {
                // If a packet is already due on the next link too, do not wait one tick.
                let due = self.pass_on(run, now);
                pass = pass.max(if due { Pass::More } else { Pass::Done });
            } else {
                let frame = self.slab.frame(slot);
                match write(&self.ports[lane.to].tun, frame, &run) {
                    Ok(()) => self.delivered += packets,
                    Err(_) => self.refused += packets,
                }
                self.late.count(run.at, now, packets);
                pass = pass.max(Pass::Done);
            }
            self.slab.release(slot);
        }
        Pass::More
    }

    /// Offers packets that have passed one link to the next link. Returns whether any packet on
    /// that link is due at `now`.
    fn pass_on(&mut self, run: Run, now: Time) -> bool {
        let Some(shape) = Shape::of(self.slab.frame(run.slot)) else { return false };
        let links = self.ways.links(run.way);
        let next = links[links.len() - usize::from(run.left)];
        let lane = &mut self.lanes[next as usize];
        let run = Run { at: run.at.max(lane.offered), left: run.left - 1, ..run };
        self.in_flight += lane.offer(&mut self.slab, &shape, run);
        lane.due.front().is_some_and(|first| first.at <= now)
    }
}

/// Estimates the number of packets in `frames` dropped frames: as many per frame as the mean of the
/// port's read frames, rounded up.
fn unread(frames: u64, entry: &Entry) -> u64 {
    frames * entry.segments.div_ceil(entry.frames.max(1)).max(1)
}

fn tick(lanes: &[Lane], ways: &Ways) -> Timespec {
    let delay = |link: &u32| lanes[*link as usize].link.spec().delay;
    let delays = ways.all().map(|links| links.iter().map(delay).fold(Span::ZERO, Add::add));
    let shortest = delays.min().unwrap_or(Span::ZERO);
    timespec((shortest / 50).clamp(*TICK.start(), *TICK.end()))
}

fn timespec(span: Span) -> Timespec {
    Timespec {
        tv_sec: (span.as_nanos() / 1_000_000_000) as i64,
        tv_nsec: (span.as_nanos() % 1_000_000_000) as _,
    }
}

fn write(tun: &OwnedFd, frame: &[u8], run: &Run) -> io::Result<()> {
    let shape = Shape::of(frame).ok_or(Errno::INVAL)?;
    let segments = usize::from(run.segments.start)..usize::from(run.segments.end);
    if segments.len() == shape.segments && run.turned_bit.is_none() {
        rustix::io::write(tun, frame)?;
        return Ok(());
    }
    let mut headers = [0; MOST_HEADERS];
    let len = shape.cut(frame, &segments, &mut headers);
    let payload = &frame[shape.payload_of(&segments)];
    let Some(random) = run.turned_bit else {
        rustix::io::writev(tun, &[IoSlice::new(&headers[..len]), IoSlice::new(payload)])?;
        return Ok(());
    };
    let mut packet = [&headers[..len], payload].concat();
    turn_a_bit(&mut packet, random);
    rustix::io::write(tun, &packet)?;
    Ok(())
}

/// Flips the bit of the payload that `random` selects. No kernel compares the payload with a
/// checksum from before this change, so the error reaches the program.
fn turn_a_bit(packet: &mut [u8], random: u32) {
    let start = payload_start(packet).min(packet.len());
    let payload = &mut packet[start..];
    if !payload.is_empty() {
        let bit = random as usize % (payload.len() * 8);
        payload[bit / 8] ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unread_frame_counts_as_the_mean_number_of_packets_of_the_read_frames() {
        let entry = Entry { frames: 10, segments: 435, ..Entry::default() };
        assert_eq!(unread(3, &entry), 3 * 44);
        assert_eq!(unread(3, &Entry::default()), 3);
        assert_eq!(unread(0, &entry), 0);
    }
}
