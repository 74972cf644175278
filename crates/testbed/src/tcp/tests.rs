//! Both ends of a connection, against hand-computed values and published laws.

use std::collections::VecDeque;

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;

use super::*;
use crate::random::Random;
use crate::scenario::{Congestion, Tcp};

const MSS: u32 = 1_448;
/// The one-way delay: a round trip takes 100 ms.
const DELAY: Span = Span::from_millis(50);

fn tcp(congestion: Congestion) -> Tcp {
    Tcp { congestion, ..Tcp::default() }
}

fn at(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

/// Two ends, and a path that loses chosen segments.
struct Pair {
    now: Time,
    sender: Sender,
    receiver: Receiver,
    there: VecDeque<(Time, Segment)>,
    back: VecDeque<(Time, Segment)>,
    log: Vec<(Time, u32)>,
    /// Whether a data segment is lost, by its position among all transmissions (from 0) and its
    /// number.
    lost: Box<dyn FnMut(u64, u32) -> bool>,
}

impl Pair {
    fn new(tcp: &Tcp, total: Option<u32>, lost: impl FnMut(u64, u32) -> bool + 'static) -> Pair {
        Pair {
            now: Time::ZERO,
            sender: Sender::new(Time::ZERO, tcp, MSS, total),
            receiver: Receiver::new(),
            there: VecDeque::new(),
            back: VecDeque::new(),
            log: Vec::new(),
            lost: Box::new(lost),
        }
    }

    fn pump(&mut self) {
        while let Some(segment) = self.sender.poll(self.now) {
            if let Segment::Data(data) = segment {
                let nth = self.log.len() as u64;
                self.log.push((self.now, data.number));
                if (self.lost)(nth, data.number) {
                    continue;
                }
            }
            self.there.push_back((self.now + DELAY, segment));
        }
        while let Some(ack) = self.receiver.poll(self.now) {
            self.back.push_back((self.now + DELAY, Segment::Ack(ack)));
        }
    }

    /// Runs until `end`, or until everything is acknowledged.
    fn run(&mut self, end: Time) {
        while !self.sender.is_done() {
            self.pump();
            let first = |queue: &VecDeque<(Time, Segment)>| queue.front().map(|(at, _)| *at);
            let timers = [self.sender.next_timeout(), self.receiver.next_timeout()];
            let times = [first(&self.there), first(&self.back)].into_iter().chain(timers);
            let next = times.flatten().min().expect("something is always due");
            if next > end {
                return;
            }
            self.now = next.max(self.now);
            while self.there.front().is_some_and(|(at, _)| *at <= self.now) {
                match self.there.pop_front().expect("it is there").1 {
                    Segment::Syn => self.back.push_back((self.now + DELAY, Segment::SynAck)),
                    Segment::Data(data) => self.receiver.on_data(self.now, &data),
                    other => panic!("{other:?} on the way there"),
                }
                self.pump();
            }
            while self.back.front().is_some_and(|(at, _)| *at <= self.now) {
                match self.back.pop_front().expect("it is there").1 {
                    Segment::SynAck => self.sender.on_syn_ack(self.now),
                    Segment::Ack(ack) => self.sender.on_ack(self.now, &ack),
                    other => panic!("{other:?} on the way back"),
                }
                self.pump();
            }
        }
    }

    /// Segments sent at each time, in milliseconds.
    fn rounds(&self) -> Vec<(u64, usize)> {
        let millis = |at: Time| at.since(Time::ZERO).as_nanos() / 1_000_000;
        let rounds = self.log.chunk_by(|a, b| a.0 == b.0);
        rounds.map(|round| (millis(round[0].0), round.len())).collect()
    }
}

#[test]
fn slow_start_doubles_from_ten_segments_after_a_handshake_of_one_round_trip() {
    let mut pair = Pair::new(&tcp(Congestion::NewReno), Some(150), |_, _| false);
    pair.run(at(1_000));
    assert_eq!(pair.rounds(), [(100, 10), (200, 20), (300, 40), (400, 80)]);
    assert!(pair.sender.is_done());
    assert_eq!(pair.sender.counts().sent, 150);
}

#[test]
fn an_untuned_window_sends_64_kb_a_round_trip() {
    let untuned = Tcp { window: Some(Bytes::new(64_000)), ..tcp(Congestion::Cubic) };
    let mut pair = Pair::new(&untuned, None, |_, _| false);
    pair.run(at(2_050));
    // 64,000 bytes hold 44 segments.
    assert_eq!(&pair.rounds()[..5], &[(100, 10), (200, 20), (300, 40), (400, 44), (500, 44)]);
    assert_eq!(pair.rounds().last(), Some(&(2_000, 44)));
}

#[test]
fn one_loss_is_repaired_in_a_round_trip_and_halves_the_window() {
    // The second round's first segment is lost.
    let mut pair = Pair::new(&tcp(Congestion::NewReno), None, |nth, _| nth == 10);
    pair.run(at(450));
    let counts = *pair.sender.counts();
    assert_eq!((counts.sent - counts.first, counts.recoveries, counts.timeouts), (1, 1, 0));
    // At 300 ms the third sack reveals the loss.
    let repair = pair.log.iter().skip(11).find(|(_, number)| *number == 10).copied();
    assert_eq!(repair, Some((at(300), 10)));
    // The window falls from 20 to 10, and the acknowledgements of ten segments add one.
    let rounds = pair.rounds();
    assert!(rounds.contains(&(100, 10)) && rounds.contains(&(200, 20)), "{rounds:?}");
    assert_eq!(pair.sender.window(), 10);
    pair.run(at(510));
    assert_eq!(pair.sender.window(), 10 + 1);
}

#[test]
fn a_lost_repair_is_detected_without_a_timeout() {
    // Segment 15 and its first repair are lost.
    let mut times = 0;
    let mut pair = Pair::new(&tcp(Congestion::NewReno), Some(300), move |_, number| {
        times += u32::from(number == 15);
        number == 15 && times <= 2
    });
    pair.run(at(5_000));
    assert!(pair.sender.is_done());
    let counts = pair.sender.counts();
    assert_eq!((counts.sent - counts.first, counts.timeouts, counts.recoveries), (2, 0, 1));
}

#[test]
fn a_lost_tail_is_probed_after_two_round_trips() {
    // Segments 8 and 9, the last two, are lost. The probe after 2 × 100 ms repeats segment 9. A
    // single segment after the missing one does not reveal a loss, so segment 8 is repeated only
    // at the timeout.
    let mut pair = Pair::new(&tcp(Congestion::NewReno), Some(10), |nth, _| nth == 8 || nth == 9);
    pair.run(at(5_000));
    let times: Vec<(u64, u32)> = pair.log[10..]
        .iter()
        .map(|(at, n)| (at.since(Time::ZERO).as_nanos() / 1_000_000, *n))
        .collect();
    assert_eq!(times[0], (400, 9));
    assert_eq!(times[1].1, 8);
    assert!(pair.sender.is_done() && pair.sender.counts().timeouts == 1);
}

#[test]
fn a_silent_path_is_tried_again_after_timeouts_that_double() {
    let mut pair = Pair::new(&tcp(Congestion::Cubic), None, |nth, _| nth < 14);
    pair.run(at(20_000));
    // Ten segments, a probe after 2 RTT = 200 ms, then one segment at each timeout. The first
    // timeout is RTT + 200 ms = 300 ms; each further timeout is twice the one before.
    let times: Vec<u64> = pair.rounds().iter().map(|(at, _)| *at).collect();
    assert_eq!(&times[..6], &[100, 300, 600, 1_200, 2_400, 4_800]);
    assert_eq!(pair.rounds()[2..6].iter().map(|(_, n)| *n).max(), Some(1));
    assert!(pair.receiver.next() > 1_000, "it comes back to speed");
}

#[test]
fn acknowledgements_wait_for_a_second_segment_or_40_ms() {
    let mut receiver = Receiver::new();
    let mut data = |number, now| {
        receiver.on_data(now, &Data { number, sent: now });
        (receiver.poll(now).map(|ack| ack.next), receiver.next_timeout())
    };
    // Linux acknowledges the first segments immediately.
    for number in 0..16 {
        assert_eq!(data(number, at(1)), (Some(number + 1), None));
    }
    assert_eq!(data(16, at(2)), (None, Some(at(42))));
    assert_eq!(data(17, at(3)), (Some(18), None));
    assert_eq!(data(18, at(4)), (None, Some(at(44))));
    // A gap, its filling and a repeat are acknowledged immediately.
    assert_eq!(data(20, at(5)).0, Some(19));
    assert_eq!(data(19, at(6)).0, Some(21));
    assert_eq!(data(3, at(7)).0, Some(21));
    assert_eq!(data(21, at(8)), (None, Some(at(48))));
    assert_eq!(receiver.poll(at(48)).map(|ack| ack.next), Some(22));
}

#[test]
fn an_acknowledgement_lists_the_most_recently_changed_sack_blocks_first() {
    let mut receiver = Receiver::new();
    for number in [0, 2, 4, 5, 8, 10] {
        receiver.on_data(at(1), &Data { number, sent: at(0) });
    }
    let ack = receiver.poll(at(1)).expect("out of order");
    assert_eq!((ack.next, ack.sacked), (1, [(10, 11), (8, 9), (4, 6)]));
    receiver.on_data(at(2), &Data { number: 3, sent: at(0) });
    let ack = receiver.poll(at(2)).expect("out of order");
    assert_eq!(ack.sacked, [(2, 6), (10, 11), (8, 9)]);
}

/// Segments per round trip at loss probability `p`.
fn response(congestion: Congestion, p: f64, secs: u64) -> f64 {
    let mut random = Random::new(7);
    let mut pair = Pair::new(&tcp(congestion), None, move |_, _| random.chance(p));
    // Slow start overshoots in the first 20 s.
    pair.run(at(20_000));
    let before = pair.receiver.next();
    pair.run(at((20 + secs) * 1_000));
    f64::from(pair.receiver.next() - before) * (DELAY * 2).as_secs_f64() / secs as f64
}

#[test]
fn newreno_follows_the_square_root_law() {
    // Mathis, Semke, Mahdavi, Ott, 1997: W = √(3/2) / √p.
    for p in [0.01f64, 0.001] {
        let (found, law) = (response(Congestion::NewReno, p, 800), (1.5 / p).sqrt());
        assert!((found / law - 1.0).abs() < 0.25, "p {p}: {found}, the law says {law}");
    }
}

#[test]
fn cubic_follows_its_response_function() {
    // RFC 9438, figure 5: AVG_W = ∜(C (3 + β) / (4 (1 − β))) × RTT^(3/4) / p^(3/4), or Reno's
    // window if larger.
    for p in [0.01f64, 0.000_3] {
        let cubic = (0.4 * 3.7 / (4.0 * 0.3) * (0.1 / p).powi(3)).powf(0.25);
        let law = cubic.max((1.5 / p).sqrt());
        let found = response(Congestion::Cubic, p, 1_600);
        assert!((found / law - 1.0).abs() < 0.25, "p {p}: {found}, the law says {law}");
    }
}
