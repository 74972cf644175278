//! Tsunami's sender and receiver, message by message.
#![allow(clippy::single_range_in_vec_init, reason = "the list has one run on purpose")]

use alloc::vec::Vec;
use core::ops::Range;

use super::delay::Delay;
use super::{ROW, TsunamiReceiver, TsunamiSender};
use crate::endpoint::{Arrival, PacketNumber, Receiver, Sender, Setup, Wake};
use crate::ends::out::{self, FLOW};
use crate::layout::{Block, Layout};
use crate::settings::Settings;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::{Ack, Control, ErrorRate, Loss, Pulse, Train};

fn setup(blocks: u64) -> Setup {
    let layout = Layout::whole(Bytes::new(blocks * 1000), 1000).unwrap();
    let (overhead, rate) = (Bytes::new(32), Some(Rate::from_mbps(30)));
    Setup { overhead, rate, ..Setup::new(FLOW, layout, Span::from_millis(100)) }
}

fn set(name: &str, value: f64) -> Settings {
    Settings::default().with(&ROW, name, value).unwrap()
}

fn ms(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

/// The delay of a flow with 1024 bytes a datagram at 50 Mbit/s, as in the packet capture of the
/// public tool.
fn delay(error_rate: f64) -> Delay {
    let layout = Layout::whole(Bytes::new(1 << 20), 1024).unwrap();
    let settings = set("error-rate", error_rate);
    let setup = Setup { settings, ..Setup::new(FLOW, layout, Span::from_millis(100)) };
    Delay::new(&setup, Rate::from_mbps(50))
}

fn micros(delay: &Delay) -> f64 {
    8192.0 * 1e6 / delay.rate().as_bps() as f64
}

#[test]
fn the_delay_falls_by_sixths_from_three_times_the_target_delay_as_in_the_public_tool() {
    let mut delay = delay(0.075);
    let mut delays = Vec::new();
    for _ in 0..8 {
        delays.push(micros(&delay));
        delay.on_error_rate(7_500);
    }
    // The public tool's delays on the wire; the tool truncates the target's delay of 163.84 µs to
    // 163 µs.
    let seen = [489.0, 408.0, 340.0, 283.0, 236.0, 197.0, 164.0];
    for (ours, seen) in delays.iter().zip(seen) {
        assert!((ours / seen - 1.0).abs() < 0.01, "{ours} µs, {seen} seen");
    }
    assert!((delays[7] - 163.84).abs() < 0.01);
}

#[test]
fn the_delay_grows_with_the_excess_over_the_tolerated_error_rate() {
    let mut delay = delay(0.079);
    let before = micros(&delay);
    delay.on_error_rate(7_901);
    let step = micros(&delay) / before - 1.0;
    assert!((step - 2.0 / 24.0 / 92_100.0).abs() < 1e-8, "{step}");
    let before = micros(&delay);
    delay.on_error_rate(ErrorRate::ALL);
    assert!((micros(&delay) / before - 25.0 / 24.0).abs() < 1e-5);
    // Seen on the wire with everything lost: 488, 510, 531, 553 µs, and so on up to 10 ms.
    for _ in 0..200 {
        delay.on_error_rate(ErrorRate::ALL);
    }
    assert!((micros(&delay) - 10_000.0).abs() < 1e-3);
    let slow = Delay::new(&setup(10), Rate::from_bps(80_000));
    assert_eq!(slow.rate(), Rate::from_bps(80_000));
}

type Out = out::Out<TsunamiSender>;

impl Out {
    fn new(setup: &Setup) -> Out {
        Out::of(TsunamiSender::new(setup))
    }

    fn ask(&mut self, lost: &[Range<u64>]) {
        self.sequence += 1;
        let lost = &mut lost.iter().cloned().peekable();
        self.hear(&Control::Loss(Loss::fill(self.sequence, lost)));
    }

    fn report(&mut self, rate: u32, restart: Option<u64>) {
        self.sequence += 1;
        self.hear(&Control::ErrorRate(ErrorRate { sequence: self.sequence, rate, restart }));
    }

    fn ack(&mut self, next: u64) {
        self.sequence += 1;
        self.hear(&Control::Ack(Ack { sequence: self.sequence, next, received: next }));
    }
}

#[test]
fn requested_blocks_are_sent_first_and_once_per_round_trip() {
    let mut out = Out::new(&setup(10_000));
    // A third of 30 Mbit/s.
    assert_eq!(out.sender.rate(), Rate::from_mbps(10));
    let sent = out.run_for(100).len() as u32;
    assert!((120..125).contains(&sent));
    for _ in 0..50 {
        out.ask(&[10..12, 20..21]);
    }
    let next = out.run_for(10);
    assert_eq!(next[..4], [10, 11, 20, sent]);
    out.ask(&[10..12]);
    assert!(!out.run_for(10).contains(&10));
    out.run_for(100);
    out.ask(&[10..12]);
    assert_eq!(out.run_for(10)[..2], [10, 11]);
    let accounting = out.sender.accounting();
    assert_eq!((accounting.reported_lost, accounting.retransmitted), (50 * 3 + 4, 5));
}

#[test]
fn the_last_block_is_resent_a_few_times_not_thousands() {
    let mut out = Out::new(&setup(100));
    assert_eq!(out.run_for(90).len(), 100);
    // Without answers only the last block is repeated, with growing waits, until the circuit
    // breaker (RFC 8085: the receiver has been silent for too long) stops the flow.
    let again = out.run_for(60_000);
    assert!(again.iter().all(|index| *index == 99));
    assert!((2..=4).contains(&again.len()), "{again:?}");
    let mut out = Out::new(&setup(100));
    out.run_for(90);
    out.run_for(100);
    out.ack(100);
    assert!(out.sender.is_finished());
    assert_eq!((out.sent.len(), out.sender.next_wakeup()), (100, Wake::OnInput));
}

#[test]
fn an_acknowledgement_delays_the_repeat_of_the_last_block() {
    let repeats = |acknowledged: Option<u64>| {
        let mut out = Out::new(&setup(100));
        out.run_for(200);
        acknowledged.into_iter().for_each(|next| out.ack(next));
        out.run_for(250).len()
    };
    assert_eq!((repeats(None), repeats(Some(50))), (1, 0));
}

#[test]
fn a_sender_that_waits_for_a_grant_does_not_repeat_acknowledged_blocks() {
    // The grant (how much the receiver allows to be sent for the first time) is 50 blocks.
    let mut out = Out::new(&Setup { grant: Bytes::new(50_000), ..setup(100) });
    assert_eq!(out.run_for(400).len(), 50);
    out.ack(50);
    assert!(out.run_for(2_000).is_empty());
    // Without an acknowledgement the sender repeats only the last block that it sent. This block
    // shows the receiver which blocks are missing.
    let mut out = Out::new(&Setup { grant: Bytes::new(50_000), ..setup(100) });
    out.run_for(400);
    assert_eq!(out.run_for(500), [49]);
}

#[test]
fn a_sender_that_has_blocks_to_resend_is_not_blocked_by_the_grant() {
    let mut out = Out::new(&Setup { grant: Bytes::new(50_000), ..setup(100) });
    assert!(!out.sender.is_blocked_by_grant());
    assert_eq!(out.run_for(200).len(), 50);
    assert!(out.sender.is_blocked_by_grant());
    out.ask(&[10..12]);
    assert!(!out.sender.is_blocked_by_grant());
    assert_eq!(out.run_for(10), [10, 11]);
    assert!(out.sender.is_blocked_by_grant());
}

#[test]
fn a_restart_resends_all_blocks_from_its_number_on_and_then_sends_new_ones() {
    let mut out = Out::new(&setup(10_000));
    let sent = out.run_for(300).len() as u32;
    out.ack(100);
    out.report(0, Some(150));
    let again = out.run_for(400);
    let expected: Vec<u32> = (150..sent).chain(sent..).take(again.len()).collect();
    assert_eq!(again, expected);
    let before = out.sender.accounting().retransmitted;
    let sequence = out.sequence;
    out.hear(&Control::ErrorRate(ErrorRate { sequence, rate: 0, restart: Some(150) }));
    out.report(0, Some(9_999));
    out.run_for(10);
    assert_eq!(
        (out.sender.accounting().retransmitted, out.sender.accounting().refused),
        (before, 1)
    );
}

#[test]
fn each_error_rate_sets_the_pace_once_and_silence_reduces_it() {
    let mut out = Out::new(&setup(10_000));
    out.run_for(50);
    out.report(0, None);
    assert_eq!(out.sender.rate(), Rate::from_mbps(12));
    out.hear(&Control::ErrorRate(ErrorRate { sequence: out.sequence, rate: 0, restart: None }));
    assert_eq!(out.sender.rate(), Rate::from_mbps(12));
    // The public tool's heartbeat: half a second without a report counts as all lost, so the delay
    // grows by 1/24.
    out.run_for(510);
    assert_eq!(out.sender.rate(), Rate::from_bps(11_519_995));
}

#[test]
fn without_a_rate_the_target_follows_the_measured_rate() {
    let mut out = Out::new(&Setup { rate: None, ..setup(100_000) });
    out.run_for(0);
    assert_eq!(out.sent.len(), 32);
    let span = Span::from_micros(310);
    let bytes = Bytes::new(31 * 1032);
    let train = Some(Train { first: PacketNumber(0), bytes, span, steps: 31 });
    let pulse = Pulse { sequence: 1, highest: 32, received: 32, train, ..Pulse::default() };
    out.hear(&Control::Pulse(pulse));
    // The train shows 825.6 Mbit/s. The sender immediately takes 90 % of this rate, and leaves the
    // rest to other flows.
    let shown = out.sender.rate();
    assert_eq!(shown, Rate::from_bps(743_040_000));
    // The train misled the sender: at most 450 datagrams arrive in 50 ms (74 Mbit/s). The target
    // falls to about this rate.
    let (mut clock, mut received) = (Span::ZERO, 32);
    for sequence in 2..60 {
        let from = out.sent.len() as u64;
        out.run_for(50);
        clock = clock + Span::from_millis(50);
        received += (out.sent.len() as u64 - from).min(450);
        let highest = out.sent.len() as u64;
        let pulse = Pulse { sequence, clock, highest, received, ..Pulse::default() };
        out.hear(&Control::Pulse(pulse));
    }
    let found = out.sender.rate();
    assert!(found < Rate::from_mbps(85) && found > Rate::from_mbps(50), "{found}");
}

struct In {
    receiver: TsunamiReceiver,
    next: u64,
}

impl In {
    fn new(setup: &Setup) -> In {
        let mut receiver = TsunamiReceiver::default();
        receiver.add_flow(Time::ZERO, setup);
        In { receiver, next: 0 }
    }

    fn arrive(&mut self, now: Time, blocks: impl IntoIterator<Item = u32>) {
        for index in blocks {
            let (number, block) = (PacketNumber(self.next), Block { segment: 0, index });
            self.next += 1;
            self.receiver.on_datagrams(now, FLOW, &[Arrival { number, block, at: now }]);
        }
    }

    /// The blocks that the receiver requests at `now`, and the error rates that it reports.
    fn said(&mut self, now: Time) -> (Vec<Range<u64>>, Vec<ErrorRate>) {
        self.receiver.on_timeout(now);
        let (mut asked, mut rates) = (Vec::new(), Vec::new());
        while let Some(outgoing) = self.receiver.poll_control(now) {
            match outgoing.control {
                Control::Loss(loss) => asked.extend_from_slice(loss.lost()),
                Control::ErrorRate(rate) => rates.push(rate),
                _ => {}
            }
        }
        (asked, rates)
    }

    fn asked(&mut self, now: Time) -> Vec<Range<u64>> {
        self.said(now).0
    }

    fn counts(&self) -> (u64, u64) {
        let accounting = self.receiver.accounting(FLOW).unwrap();
        (accounting.blocks_lost, accounting.reported_lost)
    }
}

#[test]
fn a_report_is_sent_after_350_ms_at_a_multiple_of_50_datagrams() {
    let mut inn = In::new(&setup(10_000));
    inn.arrive(ms(0), (0..10).chain(20..110));
    inn.arrive(ms(300), 110..140);
    inn.arrive(ms(351), 140..159);
    assert_eq!(inn.said(ms(351)), (Vec::new(), Vec::new()));
    inn.arrive(ms(352), [159]);
    let (asked, rates) = inn.said(ms(352));
    assert_eq!(asked, [10..20]);
    // The public tool's formula: 10 lost of 1 + 10 + 150, times one half, times three quarters.
    let rate = (0.75 * 50_000.0 * 10.0 / 161.0) as u32;
    assert_eq!(rates, [ErrorRate { sequence: 1, rate, restart: None }]);
    inn.arrive(ms(700), 160..210);
    assert_eq!(inn.said(ms(701)).1.len(), 0);
    inn.arrive(ms(702), 210..260);
    let next = inn.said(ms(702)).1[0].rate;
    // The smoothed rate keeps a quarter of the earlier rate. The same blocks are requested again
    // after two round trips.
    let again = 0.75 * 50_000.0 * 10.0 / 111.0;
    assert_eq!(next, (0.25 * 0.75 * 50_000.0 * 10.0 / 161.0 + again) as u32);
    assert_eq!(inn.counts(), (10, 20));
}

#[test]
fn the_last_block_is_acknowledged_once_and_immediately() {
    let mut inn = In::new(&setup(10));
    let mut acks = |blocks: Range<u32>| {
        inn.arrive(ms(0), blocks);
        let said = core::iter::from_fn(|| inn.receiver.poll_control(ms(0)));
        said.filter(|outgoing| matches!(outgoing.control, Control::Ack(_))).count()
    };
    assert_eq!([acks(0..9), acks(9..10), acks(9..10)], [0, 1, 0]);
}

#[test]
fn a_block_is_not_requested_again_before_its_repair_can_arrive() {
    let settings = set("report-interval", 0.02);
    let mut inn = In::new(&Setup { settings, ..setup(10_000) });
    inn.arrive(ms(0), (0..10).chain(20..60));
    let mut times = Vec::new();
    for turn in 1..30 {
        let now = ms(21 * turn);
        inn.arrive(now, turn as u32 * 50 + 10..turn as u32 * 50 + 60);
        if !inn.asked(now).is_empty() {
            times.push(21 * turn);
        }
    }
    // From 84 ms on, each report (every 21 ms) would request the blocks: 26 times. The wait of two
    // round trips (200 ms) leaves three requests.
    assert_eq!(times, [84, 294, 504]);
    assert_eq!(inn.counts(), (10, 30));
}

#[test]
fn blocks_late_within_the_grace_are_not_requested() {
    let mut inn = In::new(&setup(10_000));
    inn.arrive(ms(0), 0..50);
    // The grace (the wait for late blocks) is 25 ms. Ten blocks are late, by 20 ms, just when a
    // report is due; twenty others are lost.
    inn.arrive(ms(300), (60..90).chain(100..130));
    inn.arrive(ms(330), 130..140);
    inn.arrive(ms(355), 150..180);
    assert_eq!(inn.said(ms(355)).1.len(), 1);
    inn.arrive(ms(375), 140..150);
    assert_eq!(inn.counts(), (20, 20));
}

#[test]
fn without_a_grace_late_blocks_are_requested_as_in_the_public_tool() {
    for (grace, expected) in [(0.0, Some(140..150)), (0.25, None)] {
        let mut inn = In::new(&Setup { settings: set("grace", grace), ..setup(10_000) });
        inn.arrive(ms(0), 0..140);
        inn.arrive(ms(352), 150..200);
        let asked = inn.asked(ms(352));
        assert_eq!(asked, expected.iter().cloned().collect::<Vec<_>>(), "grace {grace}");
        // These blocks were late by a millisecond.
        inn.arrive(ms(353), 140..150);
        assert_eq!(inn.counts().0, expected.map_or(0, |run| run.end - run.start));
    }
    // Without a grace, missing blocks are requested as soon as the last block arrives.
    let mut inn = In::new(&Setup { settings: set("grace", 0.0), ..setup(100) });
    inn.arrive(ms(0), (0..50).chain(53..100));
    assert_eq!(inn.asked(ms(0)), [50..53]);
}

#[test]
fn a_receiver_without_arrivals_sends_requests_on_its_own() {
    let mut inn = In::new(&setup(10_000));
    inn.arrive(ms(0), [0, 1, 5]);
    let Wake::At(at, _) = inn.receiver.next_wakeup() else { panic!("it waits for ever") };
    assert!(at <= ms(350));
    assert_eq!(inn.asked(ms(350)), [2..5]);
    assert_eq!(inn.asked(ms(699)), []);
    assert_eq!(inn.asked(ms(700)), [2..5]);
}

#[test]
fn missing_blocks_are_requested_when_the_grace_after_the_last_block_is_over() {
    let mut inn = In::new(&setup(100));
    inn.arrive(ms(0), (0..50).chain(53..100));
    assert_eq!(inn.asked(ms(24)), []);
    assert_eq!(inn.asked(ms(25)), [50..53]);
    inn.arrive(ms(125), [50, 51]);
    inn.arrive(ms(240), [99]);
    assert_eq!(inn.asked(ms(265)), [52..53]);
    inn.arrive(ms(400), [52]);
    assert!(inn.receiver.is_finished(FLOW));
    let last = inn.receiver.poll_control(ms(400)).map(|outgoing| outgoing.control);
    assert!(matches!(last, Some(Control::Ack(Ack { next: 100, .. }))), "{last:?}");
}

#[test]
fn during_a_restart_only_blocks_that_were_lost_again_are_requested() {
    let mut inn = In::new(&Setup { settings: set("table", 100.0), ..setup(10_000) });
    inn.arrive(ms(300), (0..50).chain(200..399));
    inn.arrive(ms(352), [399]);
    inn.arrive(ms(353), 400..449);
    let (asked, rates) = inn.said(ms(353));
    assert_eq!((asked, rates[0].restart), (Vec::new(), None));
    inn.arrive(ms(710), 449..500);
    // The 150 missing blocks overflow the table of 100 entries, so the receiver requests a restart:
    // the sender resends everything from the first missing block on.
    let (asked, rates) = inn.said(ms(710));
    assert_eq!((asked, rates[0].restart), (Vec::new(), Some(50)));
    assert_eq!(inn.counts(), (150, 150));
    inn.arrive(ms(820), (50..60).chain(65..100));
    inn.arrive(ms(1_070), [100, 101, 102, 103, 104]);
    let (asked, rates) = inn.said(ms(1_070));
    assert_eq!((asked, rates[0].restart), (alloc::vec![60..65], None));
    // The restart makes no further progress. After four waits of two round trips (800 ms), the
    // blocks of the restart that have not arrived count as missing.
    inn.arrive(ms(1_870), 500..550);
    assert_eq!(inn.said(ms(1_870)).1[0].restart, Some(60));
    assert_eq!(inn.counts(), (150, 150 + 5 + 100));
}

#[test]
fn a_receiver_refuses_messages_for_a_sender() {
    let mut inn = In::new(&setup(10));
    let ack = Control::Ack(Ack { sequence: 1, next: 5, received: 5 });
    inn.receiver.on_control(ms(0), FLOW, &ack);
    assert_eq!(inn.receiver.accounting(FLOW).unwrap().refused, 1);
}
