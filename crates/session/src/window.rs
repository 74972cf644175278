//! A congestion window for the control stream, with a floor that no loss lowers.
//!
//! The control stream usually carries a few kilobytes in a round trip. A controller that backs off
//! at each loss would starve it on a path with much random loss.
//!
//! For a stream that carries much, the window changes once a round: one window of packets and their
//! acknowledgements. It grows after a round that used the whole window, lost little and met no
//! queue. It shrinks after a round that lost much or met a queue.
//!
//! A host that stops for a moment also delays some packets. So a round's delay is the smallest
//! round-trip time among the packets acknowledged in its second half. If a round shrank the window
//! because of a queue, the next round waits in the same queue, so the delay of the next round does
//! not shrink the window again. A loss of up to a sixteenth of a round counts as a property of the
//! path.
//!
//! After an earlier transfer over the path, the window may jump to half of the bytes that this
//! transfer had in flight (see `jump`).

mod jump;

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::congestion::{Controller, ControllerFactory};
use quinn_proto::RttEstimator;

use jump::{Jump, State};

/// Minimum size of the window in bytes.
const FLOOR: u64 = 64 << 10;
/// Maximum window in bytes; also the limit on unacknowledged bytes while a stream sends files. A
/// path of 1 Gbit/s and 100 ms holds 12.5 MB; as much again is sent while a lost packet is
/// repeated.
pub(super) const BULK: u64 = 32 << 20;
/// Below this size, the window quadruples after a full round without loss or queue, until a round
/// was too large for the path.
const FAST: u64 = 1 << 20;
/// A round that lost more than one byte in this many was too large for the path.
const TOO_MUCH: u64 = 16;
/// A round met a queue if it exceeded the shortest round by more than one part in [`QUEUE_SHARE`]
/// and by more than [`UNREST`] (a host's own jitter).
const QUEUE_SHARE: u32 = 4;
const UNREST: Duration = Duration::from_millis(10);
/// Bytes a second allowed beyond the window while no acknowledgement arrives, for at most
/// [`LONGEST_OUTAGE`]. A full window permits only probes, at doubling intervals (RFC 9002, section
/// 6.2.1), which would notice the end of an outage late. The first acknowledgement after an outage
/// may be for packets from before it. The packets sent during the outage then still count as in
/// flight beyond the window, so these bytes stay allowed until the packets are declared lost.
const UNACKNOWLEDGED: f64 = 2048.0;
/// After this time without a packet the connection ends.
const LONGEST_OUTAGE: Duration = Duration::from_secs(30);
/// Once a round was too large, each full round grows the window by one part in this many.
const GENTLY: u64 = 8;

/// The window: never less than 64 KiB.
#[derive(Clone, Debug)]
pub(super) struct Window {
    bytes: u64,
    round: Option<Round>,
    /// Duration of the fastest round.
    shortest: Option<Duration>,
    /// Whether a round was too large: since then the window grows slowly.
    met_the_end: bool,
    /// Whether the previous round shrank the window because of a queue, in which this round waits.
    drains: bool,
    /// The number of the last packet sent.
    last: u64,
    /// Since when packets wait for an acknowledgement.
    unacknowledged_since: Option<Instant>,
    /// Bytes that were in flight beyond the window at the last acknowledgement.
    beyond: u64,
    jump: Jump,
}

/// A round: from a packet until its acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Round {
    first: u64,
    begun: Instant,
    sent: u64,
    lost: u64,
    /// Whether the sender had nothing to send at times.
    idle: bool,
    /// The smallest round-trip time of the second half.
    fastest: Option<Duration>,
}

impl Round {
    /// Returns whether the round used the whole `window`. A round with a small window also counts
    /// as full if it sent seven eighths of the window, even if the round is marked idle: the
    /// handshake's acknowledgements may arrive before there is anything to send.
    fn is_full(&self, window: u64) -> bool {
        !self.idle || window < FAST && self.sent >= window / 8 * 7
    }
}

impl Window {
    pub(super) fn new() -> Window {
        Window {
            bytes: FLOOR,
            round: None,
            shortest: None,
            met_the_end: false,
            drains: false,
            last: 0,
            unacknowledged_since: None,
            beyond: 0,
            jump: Jump::default(),
        }
    }

    /// Allows a jump to a flight (bytes sent before any is acknowledged, see `jump`) of `bytes`,
    /// after a round that confirms the path. `bytes` is limited, because the number may come from
    /// the other side. Clones share the permission.
    pub(super) fn resume(&self, bytes: u64, now: Instant) {
        self.jump.allow(bytes.min(BULK / 2), now);
    }

    #[cfg(test)]
    pub(super) fn cancel_permission(&self) -> Option<u64> {
        self.jump.set(None).map(|allowed| allowed.flight)
    }

    /// Records that a packet was acknowledged `took` after it was sent.
    fn saw(&mut self, now: Instant, took: Duration) {
        let half = self.shortest.unwrap_or_default() / 2;
        if let Some(round) = &mut self.round
            && now.saturating_duration_since(round.begun) >= half
        {
            round.fastest = Some(round.fastest.map_or(took, |least| least.min(took)));
        }
    }

    /// Returns how many bytes are allowed beyond the window.
    fn room(&self, now: Instant) -> u64 {
        let since = self.unacknowledged_since;
        let waited = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.beyond + (waited.min(LONGEST_OUTAGE).as_secs_f64() * UNACKNOWLEDGED) as u64
    }

    fn arrived(&mut self, bytes: u64) {
        if let State::Sent(flight) = self.jump.state
            && flight.validating
            && !flight.retreats
        {
            self.bytes = (self.bytes + bytes).min(flight.bytes * 2).min(BULK);
        }
    }

    fn end_round(&mut self, now: Instant, round: Round, took: Duration) {
        let took = round.fastest.map_or(took, |least| least.min(took));
        let drained = std::mem::take(&mut self.drains);
        let is_full = round.is_full(self.bytes);
        let shortest = *self.shortest.insert(self.shortest.map_or(took, |least| least.min(took)));
        let has_queue = took > shortest + (shortest / QUEUE_SHARE).max(UNREST);
        if let State::Sent(mut flight) = self.jump.state {
            if flight.validating {
                self.jump.state = State::None;
                self.met_the_end |= has_queue;
                if has_queue && !flight.retreats {
                    (self.bytes, self.drains) = (flight.bytes.max(FLOOR), true);
                }
            } else {
                // Only sent bytes can validate the path.
                flight.bytes = flight.bytes.min(round.sent);
                flight.validating = true;
                self.jump.state = State::Sent(flight);
                if !flight.retreats {
                    self.bytes = flight.bytes.max(FLOOR);
                }
            }
            return;
        }
        let bytes = if round.lost * TOO_MUCH > round.sent {
            self.met_the_end = true;
            self.bytes / 2
        } else if has_queue {
            self.met_the_end = true;
            self.drains = !drained;
            if drained { self.bytes } else { self.bytes / 4 * 3 }
        } else if !is_full {
            self.bytes
        } else if self.met_the_end {
            self.bytes + self.bytes / GENTLY
        } else if round.lost == 0 && self.bytes < FAST {
            self.jump.confirm(now, self.bytes * 4, self.last);
            self.bytes * 4
        } else {
            self.bytes * 2
        };
        if self.met_the_end || round.lost > 0 {
            self.jump.cancel();
        }
        self.bytes = bytes.clamp(FLOOR, BULK);
    }
}

impl Controller for Window {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.last = last_packet_number;
        self.unacknowledged_since.get_or_insert(now);
        if let Some(flight) = self.jump.begin() {
            self.bytes = self.bytes.max(flight);
            self.round = None;
        }
        let new = Round {
            first: last_packet_number,
            begun: now,
            sent: 0,
            lost: 0,
            idle: false,
            fastest: None,
        };
        self.round.get_or_insert(new).sent += bytes;
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, _: bool, _: &RttEstimator) {
        self.saw(now, now.saturating_duration_since(sent));
        self.arrived(bytes);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.beyond = in_flight.saturating_sub(self.bytes).min(self.room(now));
        self.unacknowledged_since = (self.beyond > 0).then_some(now);
        if let Some(round) = &mut self.round {
            round.idle |= app_limited;
            let round = *round;
            if largest_packet_num_acked.is_some_and(|largest| largest >= round.first) {
                self.round = None;
                self.end_round(now, round, now.saturating_duration_since(round.begun));
            }
        }
        if let Some(largest) = largest_packet_num_acked {
            self.jump.acknowledged(largest);
        }
    }

    // quinn reports a loss after the acknowledgements that reveal it. If these acknowledgements
    // have ended the round, the loss belongs to no round; only `jump` records it.
    fn on_congestion_event(&mut self, _: Instant, _: Instant, persistent: bool, lost_bytes: u64) {
        if let Some(round) = &mut self.round {
            round.lost += lost_bytes;
        }
        if let Some(bytes) = self.jump.lost(lost_bytes) {
            (self.bytes, self.met_the_end) = (bytes.max(FLOOR), true);
        }
        if persistent {
            self.jump.cancel();
            self.bytes = FLOOR;
        }
    }

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        self.bytes + self.room(Instant::now())
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        FLOOR
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl ControllerFactory for Window {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
        Box::new(Window::new())
    }
}

#[cfg(test)]
mod tests {
    use super::jump::Flight;
    use super::*;

    const PACKET: u64 = 1_400;
    const RTT: Duration = Duration::from_millis(100);

    /// A path of [`RTT`] that carries `rate` bytes a second and loses one packet in `one_in`.
    struct Path {
        window: Window,
        rate: u64,
        one_in: u64,
        now: Instant,
        number: u64,
    }

    impl Path {
        fn new(rate: u64, one_in: u64) -> Path {
            Path { window: Window::new(), rate, one_in, now: Instant::now(), number: 0 }
        }

        /// Sends as much as allowed in a round trip, up to `bytes`; returns the amount.
        fn round(&mut self, bytes: u64) -> u64 {
            let (begun, first) = (self.now, self.number);
            let mut sent = 0;
            while sent < self.window.window().min(bytes) {
                self.window.on_sent(begun, PACKET, self.number);
                self.number += 1;
                sent += PACKET;
            }
            self.now += RTT.max(Duration::from_secs_f64(sent as f64 / self.rate as f64));
            let lost = (first..self.number).filter(|n| n % self.one_in == self.one_in - 1).count();
            let lost = lost as u64 * PACKET;
            let idle = bytes <= self.window.window();
            self.window.arrived(sent - lost);
            if lost > 0 {
                self.window.on_congestion_event(self.now, begun, false, lost);
            }
            self.window.on_end_acks(self.now, 0, idle, Some(self.number - 1));
            sent
        }

        fn rounds(&mut self, mut bytes: u64) -> u32 {
            let mut rounds = 0;
            while bytes > 0 {
                bytes -= self.round(bytes).min(bytes);
                rounds += 1;
            }
            rounds
        }
    }

    #[test]
    fn an_outage_leaves_room_for_a_packet_each_second() {
        // 2,048 bytes a second, for 10 s and later for at most 30 s.
        let mut window = Window::new();
        let now = Instant::now();
        window.on_sent(now - Duration::from_secs(10), PACKET, 1);
        window.on_sent(now - Duration::from_secs(9), PACKET, 2);
        let room = window.window() - FLOOR;
        assert!((20_480..21_000).contains(&room), "{room}");
        window.on_end_acks(now, 0, false, None);
        assert_eq!(window.window(), FLOOR);
        window.on_sent(now - Duration::from_secs(100), PACKET, 3);
        assert_eq!(window.window() - FLOOR, 61_440);
    }

    #[test]
    fn after_an_outage_an_old_acknowledgement_leaves_room_for_new_packets() {
        let mut window = Window::new();
        let back = Instant::now();
        let after = |seconds| back + Duration::from_secs(seconds);
        window.on_sent(back - Duration::from_secs(20), PACKET, 1);
        assert_eq!(window.room(back), 40_960);
        // No packet sent during the outage is acknowledged.
        window.on_end_acks(back, FLOOR + 40_000, false, None);
        assert_eq!([0, 1, 2].map(|s| window.room(after(s))), [40_000, 42_048, 44_096]);
        window.on_end_acks(after(1), FLOOR + 50_000, false, None);
        assert_eq!(window.room(after(1)), 42_048);
        // Now all but one of the outage's packets count as lost.
        window.on_end_acks(after(2), PACKET, false, None);
        assert_eq!([2, 3].map(|s| window.room(after(s))), [0, 0]);
    }

    /// A path without a limit on rate.
    const WIDE: u64 = u64::MAX;
    const NEVER: u64 = u64::MAX;

    #[test]
    fn a_list_of_a_million_names_takes_few_round_trips_at_random_losses_up_to_one_in_30() {
        const LIST: u64 = 50_000_000;
        for one_in in [NEVER, 1_000, 100, 30] {
            let rounds = Path::new(WIDE, one_in).rounds(LIST);
            // The floor alone (64 KiB in a round trip) would take 763.
            assert!(rounds <= 20, "{rounds} round trips at one packet lost in {one_in}");
        }
    }

    #[test]
    fn file_content_on_the_stream_fills_a_path_of_1_gbit_within_six_round_trips() {
        let mut path = Path::new(125_000_000, NEVER);
        let sent: Vec<u64> = (0..6).map(|_| path.round(WIDE)).collect();
        assert!(path.window.window() > 12_500_000, "{sent:?}");
    }

    #[test]
    fn overload_never_lowers_the_window_below_its_floor() {
        let mut path = Path::new(WIDE, 8);
        (0..50).for_each(|_| _ = path.round(WIDE));
        assert_eq!((path.window.window(), path.window.initial_window()), (65_536, 65_536));
        assert_eq!(FAST, 1_048_576);
        path.window.on_congestion_event(path.now, path.now, true, 1 << 30);
        assert_eq!(path.window.window(), FLOOR);
    }

    #[test]
    fn a_queue_ends_the_growth_near_what_the_path_holds() {
        // The path of 10 Mbit/s holds 125 kB in 100 ms. The check allows as much again for a queue.
        let mut path = Path::new(1_250_000, NEVER);
        let sent: Vec<u64> = (0..200).map(|_| path.round(WIDE)).collect();
        let later = &sent[20..];
        assert!(later.iter().all(|sent| (64_000..260_000).contains(sent)), "{later:?}");
    }

    /// Returns the window after a round with these values.
    fn after(before: Window, sent: u64, lost: u64, took: Duration) -> Window {
        let mut window = before;
        let begun = Instant::now();
        window.on_sent(begun, sent, 7);
        window.on_congestion_event(begun, begun, false, lost);
        window.on_end_acks(begun + took, 0, false, Some(7));
        window
    }

    fn half_a_mib() -> Window {
        Window { bytes: 512 << 10, shortest: Some(RTT), ..Window::new() }
    }

    #[test]
    fn a_full_round_quadruples_a_window_below_1_mib_and_doubles_a_larger_one() {
        for (bytes, grown) in [(FAST - 1, FAST * 4 - 4), (FAST, FAST * 2)] {
            let window = Window { bytes, ..half_a_mib() };
            assert_eq!(after(window, 16_000, 0, RTT).bytes, grown);
        }
    }

    #[test]
    fn a_round_that_lost_more_than_a_sixteenth_halves_the_window() {
        assert_eq!(after(half_a_mib(), 16_000, 1_000, RTT).bytes, 1 << 20);
        let halved = after(half_a_mib(), 16_000, 1_001, RTT);
        assert_eq!((halved.bytes, halved.met_the_end), (256 << 10, true));
        assert_eq!(after(halved, 16_000, 0, RTT).bytes, (256 << 10) / 8 * 9, "it grows gently");
    }

    #[test]
    fn a_round_delayed_by_more_than_a_quarter_and_10_ms_shrinks_the_window_by_a_quarter() {
        let nano = Duration::from_nanos(1);
        let limit = RTT + RTT / 4;
        assert_eq!(after(half_a_mib(), 16_000, 0, limit).bytes, 2 << 20);
        let less = after(half_a_mib(), 16_000, 0, limit + nano);
        assert_eq!((less.bytes, less.met_the_end), (384 << 10, true));
        let short = Window { shortest: Some(Duration::from_millis(8)), ..half_a_mib() };
        let limit = Duration::from_millis(18);
        assert_eq!(after(short.clone(), 16_000, 0, limit).bytes, 2 << 20);
        assert_eq!(after(short, 16_000, 0, limit + nano).bytes, 384 << 10);
    }

    #[test]
    fn the_round_after_a_shrink_waits_in_the_same_queue_and_does_not_shrink_the_window() {
        let queue = RTT * 2;
        let once = after(half_a_mib(), 16_000, 0, queue);
        let twice = after(once.clone(), 16_000, 0, queue);
        assert_eq!((once.bytes, twice.bytes), (384 << 10, 384 << 10));
        assert_eq!(after(twice, 16_000, 0, queue).bytes, 288 << 10);
        assert_eq!(after(once, 16_000, 0, RTT).bytes, (384 << 10) / 8 * 9);
    }

    #[test]
    fn one_late_packet_is_no_queue_and_the_first_half_of_a_round_does_not_count() {
        for (at, fastest) in [(RTT / 2, RTT), (RTT / 2 - Duration::from_nanos(1), RTT * 2)] {
            let mut window = half_a_mib();
            let begun = Instant::now();
            window.on_sent(begun, 16_000, 7);
            window.saw(begun + at, RTT);
            window.saw(begun + RTT, RTT * 3);
            window.on_end_acks(begun + RTT * 2, 0, false, Some(7));
            let is_queue = fastest > RTT;
            assert_eq!(window.bytes, if is_queue { 384 << 10 } else { 2 << 20 }, "{at:?}");
        }
    }

    #[test]
    fn the_window_stays_between_its_bounds_and_falls_to_the_floor_on_persistent_congestion() {
        let mut large = Window { bytes: 17 << 20, shortest: Some(RTT), ..Window::new() };
        assert_eq!(after(large.clone(), 16_000, 0, RTT).bytes, BULK);
        let small = Window { bytes: FLOOR + 1, shortest: Some(RTT), ..Window::new() };
        assert_eq!(after(small, 16_000, 16_000, RTT).bytes, FLOOR);
        let now = Instant::now();
        large.on_congestion_event(now, now, false, 1);
        assert_eq!(large.bytes, 17 << 20);
        large.on_congestion_event(now, now, true, 1);
        assert_eq!(large.bytes, FLOOR);
    }

    #[test]
    fn a_round_ends_when_its_first_packet_is_acknowledged_and_sums_its_sent_and_lost_bytes() {
        let mut window = half_a_mib();
        let begun = Instant::now();
        window.on_sent(begun, 8_000, 7);
        window.on_sent(begun + RTT, 8_000, 8);
        for _ in 0..2 {
            window.on_congestion_event(begun, begun, false, 501);
        }
        for before in [None, Some(6)] {
            window.on_end_acks(begun + RTT, 0, false, before);
            assert_eq!(window.bytes, 512 << 10, "{before:?}");
        }
        window.on_end_acks(begun + RTT, 0, false, Some(8));
        assert_eq!(window.bytes, 256 << 10, "1,002 of 16,000 bytes were lost");
        window.on_end_acks(begun + RTT, 0, false, Some(9));
        assert_eq!(window.bytes, 256 << 10, "no round is under way");
    }

    #[test]
    fn an_idle_round_leaves_the_window_unchanged_and_may_be_the_shortest() {
        let mut window = half_a_mib();
        let begun = Instant::now();
        window.on_sent(begun, 8_000, 7);
        window.on_end_acks(begun, 0, true, Some(6));
        window.on_end_acks(begun + RTT / 2, 0, false, Some(7));
        assert_eq!((window.bytes, window.shortest), (512 << 10, Some(RTT / 2)));
    }

    /// Half of the bytes that 1 Gbit/s carries in a round trip.
    const FLIGHT: u64 = 6_250_000;

    /// Returns a path whose window may jump to `flight` bytes.
    fn remembered(rate: u64, one_in: u64, flight: u64) -> Path {
        let path = Path::new(rate, one_in);
        path.window.clone().resume(flight, path.now);
        path
    }

    fn flight(bytes: u64) -> Flight {
        Flight { bytes, lost: 0, validating: false, retreats: false }
    }

    #[test]
    fn a_remembered_path_is_half_full_in_the_second_round_and_full_after_the_third() {
        let mut path = remembered(125_000_000, NEVER, FLIGHT);
        let near = |sent: u64, bytes: u64| sent.abs_diff(bytes) <= PACKET;
        assert!(near(path.round(WIDE), FLOOR));
        assert!(near(path.round(WIDE), FLIGHT));
        let sent = Flight { bytes: FLIGHT, validating: true, ..flight(0) };
        assert_eq!((path.window.bytes, path.window.jump.state), (FLIGHT, State::Sent(sent)));
        assert!(near(path.round(WIDE), FLIGHT));
        assert_eq!((path.window.bytes, path.window.jump.state), (2 * FLIGHT, State::None));
    }

    /// Returns a window after a clean first round of packets 1 to 46, before the flight.
    fn confirmed() -> (Window, Instant) {
        let (mut window, begun) = (Window::new(), Instant::now());
        window.resume(FLIGHT, begun);
        (1..=46).for_each(|number| window.on_sent(begun, PACKET, number));
        (1..=46).for_each(|number| window.on_end_acks(begun + RTT, 0, false, Some(number)));
        (window, begun + RTT)
    }

    #[test]
    fn the_last_packet_of_the_first_round_confirms_the_path() {
        let (mut window, begun) = (Window::new(), Instant::now());
        window.resume(FLIGHT, begun);
        (1..=46).for_each(|number| window.on_sent(begun, PACKET, number));
        for number in 1..46 {
            window.on_end_acks(begun + RTT, 0, false, Some(number));
            window.on_sent(begun + RTT, PACKET, 46 + number);
            assert_eq!(window.bytes, 4 * FLOOR, "{number}");
        }
        window.on_end_acks(begun + RTT, 0, false, Some(46));
        window.on_sent(begun + RTT, PACKET, 92);
        assert_eq!((window.bytes, window.jump.state), (FLIGHT, State::Sent(flight(FLIGHT))));
    }

    #[test]
    fn a_loss_that_the_first_rounds_acknowledgements_show_prevents_the_jump() {
        // Seven of 46 packets are lost, reported after the round.
        let (mut window, begun) = (Window::new(), Instant::now());
        window.resume(FLIGHT, begun);
        (1..=46).for_each(|number| window.on_sent(begun, PACKET, number));
        window.on_end_acks(begun + RTT, 0, false, Some(10));
        window.on_congestion_event(begun + RTT, begun, false, 7 * PACKET);
        window.on_end_acks(begun + RTT, 0, false, Some(46));
        window.on_sent(begun + RTT, PACKET, 47);
        assert_eq!((window.bytes, window.jump.state), (4 * FLOOR, State::None));
        let (mut window, now) = confirmed();
        window.on_congestion_event(now, now, false, PACKET);
        window.on_sent(now, PACKET, 47);
        assert_eq!((window.bytes, window.jump.state), (4 * FLOOR, State::None));
    }

    /// Returns a window after its flight of [`FLIGHT`] bytes was sent, as packet 47.
    fn sent() -> (Window, Instant) {
        let (mut window, now) = confirmed();
        window.on_sent(now, FLIGHT, 47);
        (window, now)
    }

    #[test]
    fn too_much_loss_in_a_flight_sets_the_window_to_half_of_the_bytes_not_lost() {
        let (mut window, now) = sent();
        window.on_congestion_event(now, now, false, FLIGHT / TOO_MUCH);
        assert_eq!((window.bytes, window.met_the_end), (FLIGHT, false));
        window.on_congestion_event(now, now, false, 1);
        let rest = FLIGHT - FLIGHT / TOO_MUCH - 1;
        assert_eq!((window.bytes, window.met_the_end), (rest / 2, true));
        // Later losses of the same flight count too.
        window.on_congestion_event(now, now, false, 1_000_000);
        assert_eq!(window.bytes, (rest - 1_000_000) / 2);
        window.on_end_acks(now + RTT, 0, false, Some(47));
        window.arrived(1_000_000);
        assert_eq!(window.bytes, (rest - 1_000_000) / 2, "the window does not grow in a retreat");
        window.on_sent(now + RTT, PACKET, 48);
        window.on_congestion_event(now, now, false, FLIGHT);
        assert_eq!(window.bytes, FLOOR);
        window.on_end_acks(now + RTT * 2, 0, false, Some(48));
        assert_eq!((window.bytes, window.jump.state), (FLOOR, State::None));
    }

    #[test]
    fn the_window_grows_by_what_arrives_while_the_flight_is_validated() {
        let (mut window, now) = sent();
        window.arrived(1_000_000);
        assert_eq!(window.bytes, FLIGHT, "nothing of the flight has arrived");
        window.on_end_acks(now + RTT, 0, false, Some(47));
        window.arrived(1_000_000);
        assert_eq!(window.bytes, FLIGHT + 1_000_000);
        window.arrived(2 * FLIGHT);
        assert_eq!(window.bytes, 2 * FLIGHT);
        window.on_sent(now + RTT, PACKET, 48);
        let (mut queued, begun) = (window.clone(), now + RTT);
        window.on_end_acks(begun + RTT, 0, false, Some(48));
        assert_eq!((window.bytes, window.met_the_end), (2 * FLIGHT, false));
        queued.on_end_acks(begun + RTT * 2, 0, false, Some(48));
        let met = (queued.bytes, queued.met_the_end, queued.drains);
        assert_eq!(met, (FLIGHT, true, true), "the flight is what the path carries");
    }

    #[test]
    fn a_path_that_carries_a_hundredth_of_the_remembered_rate_gets_little_more_than_the_flight() {
        // The path of 10 Mbit/s holds 125 kB in a round trip, and its queue as much.
        let mut path = remembered(1_250_000, NEVER, FLIGHT);
        let room = 250_000;
        let mut sent = path.round(WIDE);
        for _ in 0..10 {
            let (begun, mut flight) = (path.now, 0);
            while flight < path.window.window() {
                path.window.on_sent(begun, PACKET, path.number);
                (path.number, flight) = (path.number + 1, flight + PACKET);
            }
            let lost = flight.saturating_sub(room);
            path.now += RTT * 2;
            path.window.arrived(flight - lost);
            path.window.on_end_acks(path.now, 0, false, Some(path.number - 1));
            path.window.on_congestion_event(path.now, begun, false, lost);
            sent += flight;
        }
        assert!(sent < FLIGHT + 12 * room, "{sent}");
        assert!(path.window.window() <= room, "{}", path.window.window());
    }

    #[test]
    fn a_round_with_a_loss_or_a_queue_or_that_was_not_full_confirms_no_path() {
        let allowed = || {
            let window = Window { shortest: Some(RTT), ..Window::new() };
            window.resume(FLIGHT, Instant::now());
            window
        };
        let lossy = after(allowed(), 16_000, 1_001, RTT);
        let slow = after(allowed(), 16_000, 0, RTT * 2);
        let one = after(allowed(), 16_000, 1, RTT);
        for window in [lossy, slow, one] {
            assert_eq!(window.cancel_permission(), None);
            let next = after(after(window, 16_000, 0, RTT), 16_000, 0, RTT);
            assert!(next.bytes < FLIGHT, "the path is not the remembered one");
        }
        let mut window = allowed();
        let begun = Instant::now();
        window.on_sent(begun, 5_000, 6);
        window.on_end_acks(begun + RTT, 0, true, Some(6));
        assert_eq!((window.bytes, window.jump.state), (FLOOR, State::None));
        let full = after(window, FLOOR, 0, RTT);
        assert_eq!(full.jump.state, State::Confirmed(FLIGHT));
    }

    #[test]
    fn a_first_round_that_began_idle_and_then_used_the_window_is_full() {
        let idle = |bytes, sent| {
            let window = Window { bytes, shortest: Some(RTT), ..Window::new() };
            let (mut window, begun) = (window, Instant::now());
            window.on_sent(begun, sent, 7);
            window.on_end_acks(begun, 0, true, Some(6));
            window.on_end_acks(begun + RTT, 0, false, Some(7));
            window.bytes
        };
        assert_eq!(idle(FLOOR, FLOOR / 8 * 7 - 1), FLOOR);
        assert_eq!(idle(FLOOR, FLOOR / 8 * 7), FLOOR * 4);
        assert_eq!(idle(FAST, FAST), FAST);
    }

    #[test]
    fn an_unused_part_of_a_jump_is_given_back() {
        let (mut window, now) = confirmed();
        window.on_sent(now, 100_000, 47);
        window.on_end_acks(now + RTT, 0, true, Some(47));
        let sent = Flight { bytes: 100_000, validating: true, ..flight(0) };
        assert_eq!((window.bytes, window.jump.state), (100_000, State::Sent(sent)));
    }

    #[test]
    fn a_permission_is_limited_and_expires_and_a_small_one_changes_nothing() {
        let state = |flight, waits| {
            let window = Window { shortest: Some(RTT), ..Window::new() };
            window.resume(flight, Instant::now() - waits);
            after(window, FLOOR, 0, RTT).jump.state
        };
        assert_eq!(state(u64::MAX, RTT), State::Confirmed(BULK / 2));
        assert_eq!(state(FLOOR * 4, RTT), State::None);
        assert_eq!(state(FLIGHT, Duration::from_secs(11)), State::None);
        let (mut window, now) = confirmed();
        window.on_congestion_event(now, now, true, 1);
        assert_eq!((window.bytes, window.jump.state), (FLOOR, State::None));
    }

    #[test]
    fn a_stream_with_little_data_keeps_its_small_window() {
        let mut path = Path::new(WIDE, NEVER);
        (0..100).for_each(|_| _ = path.round(5_000));
        assert_eq!(path.window.window(), FLOOR);
    }
}
