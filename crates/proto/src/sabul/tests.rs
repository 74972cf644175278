//! SABUL's sender and receiver, message by message. The *release* is the SABUL program that Oak
//! Ridge National Laboratory (ORNL) measured; the variant `sabul-ornl` behaves like it.
#![allow(clippy::single_range_in_vec_init, reason = "the list has one run on purpose")]

mod extremes;
mod rates;

use alloc::vec::Vec;
use core::ops::Range;

use super::{ORNL_ROW, ROW, SabulOrnlReceiver, SabulReceiver, SabulSender};
use crate::endpoint::{Arrival, BlockRange, PacketNumber, Receiver, Sender, Setup, Wake, Why};
use crate::ends::out::{self, FLOW};
use crate::layout::{Block, Layout};
use crate::row::Row;
use crate::settings::Settings;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::{Ack, Control, Loss, Pulse, Sync, Train};

const RTT: Span = Span::from_millis(100);

fn setup(blocks: u64) -> Setup {
    let layout = Layout::whole(Bytes::new(blocks * 1000), 1000).unwrap();
    let (overhead, rate) = (Bytes::new(32), Some(Rate::from_mbps(100)));
    Setup { overhead, rate, ..Setup::new(FLOW, layout, RTT) }
}

fn set(row: &'static Row, settings: &[(&str, f64)]) -> Settings {
    let with = |all: Settings, (name, value): &(&str, f64)| all.with(row, name, *value).unwrap();
    settings.iter().fold(Settings::default(), with)
}

fn ms(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

fn loss(sequence: u64, lost: &[Range<u64>]) -> Control {
    Control::Loss(Loss::fill(sequence, &mut lost.iter().cloned().peekable()))
}

type Out = out::Out<SabulSender>;

impl Out {
    fn new(setup: &Setup) -> Out {
        Out::of(SabulSender::new(setup))
    }

    /// A sender whose window is at its maximum, which is large.
    fn open(blocks: u64) -> Out {
        let settings = set(&ROW, &[("window", 1e6)]);
        let mut out = Out::new(&Setup { settings, ..setup(blocks) });
        out.sender.window.on_loss();
        out
    }

    fn ack(&mut self, next: u64) {
        self.sequence += 1;
        self.hear(&Control::Ack(Ack { sequence: self.sequence, next, received: next }));
    }

    fn lose(&mut self, lost: &[Range<u64>]) {
        self.sequence += 1;
        self.hear(&loss(self.sequence, lost));
    }
}

#[test]
fn the_flow_window_starts_at_one_and_grows_with_acknowledgements() {
    let mut out = Out::new(&setup(1000));
    assert_eq!(out.run_for(50), [0]);
    let mut sizes = Vec::new();
    for _ in 0..5 {
        out.ack(out.sent.len() as u64);
        sizes.push(out.run_for(50).len());
    }
    assert_eq!(sizes, [1, 2, 4, 8, 16]);
    // "Once the NAK is received, the flow window is set to the maximum value": 100 Mbit/s times
    // 110 ms, in datagrams of 1032 bytes. The 110 ms are a round trip and a SYN interval (the time
    // between rate changes, 10 ms).
    out.lose(&[20..21]);
    out.ack(20);
    assert_eq!(out.sender.window_room() + out.sender.end.frontier.unacknowledged(), 1332);
    out.ack(32);
    out.lose(&[32..33]);
    assert_eq!(out.sender.window_room(), 1332);
}

#[test]
fn a_window_set_by_the_application_limits_the_blocks_in_flight() {
    let settings = set(&ROW, &[("window", 5.0)]);
    let mut out = Out::new(&Setup { settings, ..setup(1000) });
    out.run_for(10);
    for next in [1, 2, 4, 8] {
        out.ack(next);
        out.run_for(10);
    }
    assert_eq!(out.sent.len(), 8 + 5);
}

#[test]
fn an_available_window_is_rate_times_delay_and_at_most_the_set_maximum() {
    let sizes = |settings: &[(&str, f64)]| {
        let settings = set(&ROW, &[settings, &[("initial-rate", 8e6)]].concat());
        let mut out = Out::new(&Setup { settings, rate: None, ..setup(100_000) });
        out.sender.window.on_loss();
        let mut before = 0;
        for turn in 0..200 {
            before = if turn == 189 { out.sent.len() } else { before };
            out.run_for(10);
            out.ack(out.sent.len() as u64);
        }
        let size = out.sender.window_room() + out.sender.end.frontier.unacknowledged();
        (size, (out.sent.len() - before) as u64)
    };
    // The window is the number of blocks that arrived in the last 110 ms (a round trip and a SYN
    // interval), plus 16.
    let (followed, arrived) = sizes(&[("available-window", 1.0)]);
    assert!(arrived > 100 && followed.abs_diff(arrived + 16) < arrived / 5, "{followed}");
    assert_eq!(sizes(&[("available-window", 1.0), ("window", 40.0)]).0, 40);
    assert_eq!(sizes(&[("window", 1e6)]).0, 1_000_000);
}

#[test]
fn listed_losses_are_resent_first_in_order_and_once() {
    let mut out = Out::open(100_000);
    let sent = out.run_for(10).len() as u64;
    assert!(sent > 60);
    out.lose(&[40..42, 50..51]);
    out.lose(&[10..11, 41..43]);
    assert!(out.run_for(99).is_empty());
    let again = out.run_for(10);
    assert_eq!(&again[..6], [10, 40, 41, 42, 50, sent as u32]);
    assert_eq!(out.sender.accounting().retransmitted, 5);
    assert_eq!(out.sender.accounting().reported_lost, 6);
}

#[test]
fn a_report_made_before_the_repair_could_arrive_is_ignored() {
    let mut out = Out::open(100_000);
    out.run_for(10);
    out.lose(&[10..11]);
    out.run_for(110);
    let rate = out.sender.rate();
    out.lose(&[10..11]);
    assert!(out.sender.repairs.is_empty() && out.sender.rate() == rate);
    out.run_for(100);
    out.lose(&[10..11]);
    assert!(!out.sender.repairs.is_empty());
    assert_eq!(out.sender.accounting().reported_lost, 3);
}

#[test]
fn a_report_that_comes_twice_counts_once() {
    let mut out = Out::open(1000);
    out.run_for(10);
    let report = loss(1, &[5..6]);
    out.hear(&report);
    let rate = out.sender.rate();
    out.hear(&report);
    assert_eq!((out.sender.accounting().reported_lost, out.sender.rate()), (1, rate));
}

#[test]
fn impossible_messages_are_refused() {
    let mut out = Out::new(&setup(100));
    out.run_for(10);
    out.lose(&[0..2]);
    out.lose(&[99..101]);
    out.ack(101);
    out.hear(&Control::Sync(Sync { sequence: 1 }));
    assert_eq!(out.sender.accounting().refused, 4);
    assert!(out.sender.repairs.is_empty() && !out.sender.is_finished());
}

#[test]
fn an_acknowledgement_takes_blocks_off_the_loss_list() {
    let mut out = Out::open(1000);
    out.run_for(10);
    out.lose(&[5..20, 30..40]);
    out.ack(35);
    assert_eq!(out.sender.repairs.head(), 35..40);
    let first = Block { segment: 0, index: 36 };
    out.sender.skip(out.now, FLOW, BlockRange { first, count: 2 });
    assert_eq!(out.run_for(110)[..3], [35, 38, 39]);
}

#[test]
fn in_silence_a_sender_resends_its_last_block_and_after_a_second_all_unacknowledged_blocks() {
    let mut out = Out::open(20);
    assert_eq!(out.run_for(20).len(), 20);
    // In silence the sender resends the last block after a timeout, and again after growing waits.
    assert_eq!(out.run_until(ms(600)), [19]);
    assert_eq!(out.run_until(ms(990)), [19]);
    // The sender resends the last block twice more. After a second of silence all 15 blocks in
    // flight count as lost.
    out.ack(5);
    assert_eq!(out.run_for(1_100).len(), 2 + 15);
}

#[test]
fn all_blocks_count_as_lost_after_a_timeout_and_two_intervals_but_not_within_a_second() {
    for (rtt, probe) in [(100, 320), (2000, 6020)] {
        let rtt = Span::from_millis(rtt);
        let mut out = Out::new(&Setup { rtt, ..setup(1) });
        assert_eq!(out.run_until(ms(1)), [0]);
        let wait = Span::from_millis(probe);
        let expiry = Time::ZERO + wait.max(Span::from_secs(1));
        assert_eq!(out.sender.expiry(), expiry);
        let Wake::At(at, _) = out.sender.next_wakeup() else { panic!("blocks are in flight") };
        assert_eq!(at, Time::ZERO + wait);
    }
}

#[test]
fn a_second_of_silence_is_counted_from_the_first_block_after_a_pause() {
    let mut out = Out::new(&Setup { grant: Bytes::new(1000), ..setup(10) });
    out.run_for(20);
    out.ack(1);
    out.run_for(30_000);
    // The grant (the bytes that may be sent for the first time) blocked the sender, with nothing in
    // flight.
    out.hear(&Control::Pulse(Pulse { sequence: 1, grant: Bytes::MAX, ..Pulse::default() }));
    assert_eq!(out.run_for(100), [1]);
    assert!(out.sender.expiry() > out.now + Span::from_millis(800));
}

#[test]
fn the_first_train_is_sent_whole_even_on_a_short_path() {
    // Before the rate is known, the window's maximum would be 9 blocks: the data of a SYN interval
    // and a round trip at an assumed rate of 8 Mbit/s.
    let mut out = Out::new(&Setup { rate: None, rtt: Span::from_micros(50), ..setup(1000) });
    assert_eq!(out.run_until(Time::ZERO).len(), 32);
}

#[test]
fn without_a_given_rate_the_sender_takes_nine_tenths_of_the_first_trains_rate() {
    let free = Setup { rate: None, ..setup(100_000) };
    let mut out = Out::new(&free);
    let train = out.run_until(Time::ZERO);
    assert_eq!(train.len(), 32);
    let first = PacketNumber(0);
    let span = Span::from_micros(310);
    let train = Some(Train { first, bytes: Bytes::new(31 * 1032), span, steps: 31 });
    let pulse = Pulse { sequence: 1, highest: 32, received: 32, train, ..Pulse::default() };
    out.hear(&Control::Pulse(pulse));
    // Nine tenths of the 825.6 Mbit/s of the train (datagrams sent back to back).
    assert_eq!(out.sender.rate(), Rate::from_bps(743_040_000));
    let mut limited = Out::new(&Setup { rate_limit: Some(Rate::from_mbps(50)), ..free });
    limited.run_until(Time::ZERO);
    limited.hear(&Control::Pulse(Pulse { sequence: 1, highest: 32, received: 32, train, ..pulse }));
    assert_eq!(limited.sender.rate(), Rate::from_mbps(50));
}

struct In<R> {
    receiver: R,
    next: u64,
}

impl<R: Receiver + Default> In<R> {
    fn new(setup: &Setup) -> In<R> {
        let mut receiver = R::default();
        receiver.add_flow(Time::ZERO, setup);
        In { receiver, next: 0 }
    }

    fn arrive(&mut self, now: Time, blocks: impl IntoIterator<Item = u32>) {
        let arrival = |(index, number)| Arrival {
            number: PacketNumber(number),
            block: Block { segment: 0, index },
            at: now,
        };
        let arrivals: Vec<Arrival> = blocks.into_iter().zip(self.next..).map(arrival).collect();
        self.next += arrivals.len() as u64;
        self.receiver.on_datagrams(now, FLOW, &arrivals);
    }

    /// The receiver's messages now, without pulses (periodic reports).
    fn said(&mut self, now: Time) -> Vec<Control> {
        self.receiver.on_timeout(now);
        let polls = core::iter::from_fn(|| Some(self.receiver.poll_control(now)?.control));
        polls.filter(|control| !matches!(control, Control::Pulse(_))).collect()
    }

    fn lost(&mut self, now: Time) -> Vec<Range<u64>> {
        let said = self.said(now).into_iter();
        let lost = said.filter_map(|control| match control {
            Control::Loss(loss) => Some(loss.lost().to_vec()),
            _ => None,
        });
        lost.flatten().collect()
    }
}

#[test]
fn a_gap_is_reported_immediately_and_again_after_two_then_three_then_four_round_trips() {
    let mut inn = In::<SabulReceiver>::new(&setup(1000));
    inn.arrive(ms(0), [0, 1, 5, 6, 9]);
    assert_eq!(inn.lost(ms(0)), [2..5, 7..9]);
    assert_eq!(inn.lost(ms(199)), []);
    // Blocks that arrived meanwhile are not reported. The others are reported as runs.
    inn.arrive(ms(150), [3]);
    assert_eq!(inn.lost(ms(200)), [2..3, 4..5, 7..9]);
    assert_eq!(inn.lost(ms(499)), []);
    assert_eq!(inn.lost(ms(500)), [2..3, 4..5, 7..9]);
    assert_eq!(inn.lost(ms(899)), []);
    assert_eq!(inn.lost(ms(900)), [2..3, 4..5, 7..9]);
    // Five losses are reported once, and the four that remain three more times.
    let accounting = inn.receiver.accounting(FLOW).unwrap();
    assert_eq!((accounting.blocks_lost, accounting.reported_lost), (5, 5 + 3 * 4));
}

#[test]
fn a_late_block_is_reported_lost_and_its_repair_is_a_duplicate() {
    let mut inn = In::<SabulReceiver>::new(&setup(1000));
    inn.arrive(ms(0), [0, 2]);
    assert_eq!(inn.lost(ms(0)), [1..2]);
    inn.arrive(ms(1), [1]);
    inn.arrive(ms(100), [1]);
    assert_eq!(inn.lost(ms(300)), []);
    let accounting = inn.receiver.accounting(FLOW).unwrap();
    assert_eq!((accounting.blocks_lost, accounting.reported_lost), (1, 1));
    assert_eq!((accounting.distinct, accounting.duplicates), (3, 1));
}

#[test]
fn the_first_report_of_a_gap_is_due_immediately_although_the_acknowledgement_is_due_later() {
    let mut inn = In::<SabulReceiver>::new(&setup(1000));
    inn.arrive(ms(0), [0]);
    inn.said(ms(0));
    inn.arrive(ms(1), [2]);
    // The acknowledgement is due at 10 ms.
    assert_eq!(inn.receiver.next_wakeup(), Wake::At(ms(0), Why::Report));
    assert_eq!(inn.lost(ms(1)), [1..2]);
}

#[test]
fn an_acknowledgement_is_sent_each_interval_with_new_arrivals() {
    let mut inn = In::<SabulReceiver>::new(&setup(10));
    let ack = |sequence, next, received| Control::Ack(Ack { sequence, next, received });
    inn.arrive(ms(0), [0]);
    assert_eq!(inn.said(ms(0)), [ack(1, 1, 1)]);
    inn.arrive(ms(1), [1, 2]);
    assert_eq!(inn.said(ms(9)), []);
    assert_eq!(inn.said(ms(10)), [ack(2, 3, 3)]);
    inn.arrive(ms(11), [1]);
    assert_eq!(inn.said(ms(40)), []);
    inn.arrive(ms(41), 3..9);
    assert_eq!(inn.said(ms(41)), [ack(3, 9, 9)]);
    inn.arrive(ms(42), [9]);
    assert_eq!(inn.said(ms(42)), [ack(4, 10, 10)]);
    assert!(inn.receiver.is_finished(FLOW));
}

#[test]
fn blocks_present_already_are_no_gap() {
    let mut inn = In::<SabulReceiver>::new(&setup(100));
    let first = Block { segment: 0, index: 10 };
    inn.receiver.skip(ms(0), FLOW, BlockRange { first, count: 20 });
    inn.arrive(ms(0), 0..10);
    inn.arrive(ms(0), [31]);
    assert_eq!(inn.lost(ms(0)), [30..31]);
}

#[test]
fn the_release_reports_missing_blocks_every_20_ms_and_sends_a_signal_every_200_ms() {
    let mut inn = In::<SabulOrnlReceiver>::new(&setup(1000));
    inn.arrive(ms(1), [0, 1, 5]);
    assert_eq!(inn.lost(ms(1)), [2..5]);
    assert_eq!(inn.lost(ms(19)), []);
    for turn in 1..=5 {
        assert_eq!(inn.lost(ms(20 * turn)), [2..5]);
    }
    // Six reports name the three blocks.
    let accounting = inn.receiver.accounting(FLOW).unwrap();
    assert_eq!((accounting.blocks_lost, accounting.reported_lost), (3, 18));
    inn.arrive(ms(100), [2, 3, 4]);
    inn.said(ms(101));
    assert!(inn.said(ms(200)).is_empty());
    assert_eq!(inn.said(ms(201)), [Control::Sync(Sync { sequence: 1 })]);
    assert_eq!(inn.said(ms(401)), [Control::Sync(Sync { sequence: 2 })]);
}

#[test]
fn the_release_resends_blocks_that_are_reported_again() {
    let mut out = Out::of(SabulSender::release(&setup(100_000)));
    out.run_for(10);
    for _ in 0..3 {
        out.lose(&[3..5]);
        assert_eq!(out.run_for(1)[..2], [3, 4]);
    }
    assert_eq!(out.sender.accounting().retransmitted, 6);
    // No flow window limits the sender, so it sends at its rate: 100 Mbit/s for 100 ms are 1,211
    // datagrams of 1032 bytes.
    assert!(out.run_for(100).len() > 1_200);
    let in_flight = out.sender.end.frontier.unacknowledged();
    out.run_for(1_000);
    let given_up = out.sender.accounting().retransmitted - 6;
    assert!(given_up > in_flight / 2, "{given_up} of {in_flight}");
}

#[test]
fn blocks_skipped_later_do_not_count_as_lost() {
    let mut inn = In::<SabulReceiver>::new(&setup(100));
    inn.arrive(ms(0), [0, 5]);
    assert_eq!(inn.lost(ms(0)), [1..5]);
    // Blocks 2 and 3 were reported, blocks 6 and 7 were not.
    let first = |index| Block { segment: 0, index };
    inn.receiver.skip(ms(1), FLOW, BlockRange { first: first(2), count: 2 });
    inn.receiver.skip(ms(1), FLOW, BlockRange { first: first(6), count: 2 });
    assert_eq!(inn.receiver.accounting(FLOW).unwrap().blocks_lost, 2);
}

#[test]
fn a_receiver_without_missing_blocks_schedules_no_loss_report() {
    let mut inn = In::<SabulOrnlReceiver>::new(&setup(1000));
    inn.arrive(ms(1), 0..3);
    inn.said(ms(1));
    inn.said(ms(11));
    assert_eq!(inn.receiver.next_wakeup(), Wake::At(ms(201), Why::Report));
    inn.arrive(ms(12), [4]);
    assert_eq!(inn.lost(ms(12)), [3..4]);
    assert_eq!(inn.receiver.next_wakeup(), Wake::At(ms(20), Why::Report));
}

#[test]
fn loss_reports_are_numbered_without_gaps() {
    let mut inn = In::<SabulReceiver>::new(&setup(1000));
    let mut numbers = |now, blocks: &[u32]| -> Vec<u64> {
        inn.arrive(now, blocks.iter().copied());
        let said = inn.said(now).into_iter();
        said.filter_map(|control| match control {
            Control::Loss(loss) => Some(loss.sequence()),
            _ => None,
        })
        .collect()
    };
    assert_eq!(numbers(ms(0), &[0, 2]), [1]);
    assert_eq!(numbers(ms(1), &[3]), []);
    assert_eq!(numbers(ms(2), &[5]), [2]);
}

#[test]
fn a_new_receiver_acknowledges_nothing() {
    let mut inn = In::<SabulReceiver>::new(&setup(1000));
    let first = inn.receiver.poll_control(ms(100)).map(|outgoing| outgoing.control);
    assert!(!matches!(first, Some(Control::Ack(_))), "{first:?}");
}

#[test]
fn a_new_sender_waits_a_second_for_an_answer() {
    assert_eq!(Out::new(&setup(1)).sender.expiry(), ms(1_000));
}

#[test]
fn a_signal_ends_an_interval_once_in_the_release_and_is_refused_by_the_papers_sender() {
    let (signal, open) = (Control::Sync(Sync { sequence: 1 }), Setup { rate: None, ..setup(100) });
    let mut out = Out::of(SabulSender::release(&open));
    out.run_for(10);
    let before = out.sender.rate();
    out.lose(&[3..50]);
    assert_eq!(out.sender.rate(), before);
    out.hear(&signal);
    let after = out.sender.rate();
    assert!(after < before, "an interval with losses lowers the rate: {before} to {after}");
    out.hear(&signal);
    assert_eq!((out.sender.rate(), out.sender.accounting().refused), (after, 0));
    let mut out = Out::new(&open);
    out.hear(&signal);
    assert_eq!(out.sender.accounting().refused, 1);
}

#[test]
fn the_grant_blocks_a_sender_only_if_an_unsent_block_exceeds_it_and_no_lost_block_waits() {
    let blocked = |grant, next| {
        let settings = set(&ROW, &[("window", 1e6)]);
        let mut out = Out::new(&Setup { grant: Bytes::new(grant), settings, ..setup(3) });
        out.sender.window.on_loss();
        out.run_for(20);
        out.ack(next);
        out.run_for(20);
        out.sender.is_blocked_by_grant()
    };
    assert_eq!([blocked(2_000, 2), blocked(3_000, 2), blocked(3_000, 3)], [true, false, false]);
    let mut out = Out::new(&Setup { grant: Bytes::new(2_000), ..setup(3) });
    out.sender.window.on_loss();
    assert_eq!(out.run_for(20), [0, 1]);
    assert!(out.sender.is_blocked_by_grant());
    out.lose(&[0..1]);
    assert!(!out.sender.is_blocked_by_grant(), "a lost block is left to send");
}

#[test]
fn a_new_sender_starts_with_one_block() {
    let mut sent = Vec::new();
    let mut sender = SabulSender::new(&setup(5));
    assert_eq!(Sender::rtt(&sender), RTT);
    sender.poll_transmit(Time::ZERO, PacketNumber(0), 16, &mut sent);
    assert_eq!(sent, [Block { segment: 0, index: 0 }]);
}

#[test]
fn a_removed_flow_has_no_counters() {
    let mut inn = In::<SabulReceiver>::new(&setup(10));
    assert!(inn.receiver.accounting(FLOW).is_some());
    inn.receiver.remove_flow(FLOW);
    assert!(inn.receiver.accounting(FLOW).is_none());
}

#[test]
fn a_pulse_has_the_drops_of_the_hosts_socket() {
    let mut inn = In::<SabulReceiver>::new(&setup(1000));
    inn.arrive(ms(0), [0]);
    inn.receiver.set_socket_lost(ms(0), FLOW, 5);
    inn.receiver.on_timeout(ms(1_000));
    let said = core::iter::from_fn(|| inn.receiver.poll_control(ms(1_000)));
    let lost = said.filter_map(|outgoing| match outgoing.control {
        Control::Pulse(pulse) => Some(pulse.socket_lost),
        _ => None,
    });
    assert_eq!(lost.last(), Some(5));
}

#[test]
fn a_block_beyond_the_object_is_refused() {
    let mut inn = In::<SabulReceiver>::new(&setup(10));
    inn.arrive(ms(0), [9, 10, 11]);
    let accounting = inn.receiver.accounting(FLOW).unwrap();
    assert_eq!((accounting.distinct, accounting.received, accounting.refused), (1, 1, 2));
}

#[test]
fn the_last_sent_block_may_be_reported_and_no_later_one() {
    let mut out = Out::open(20);
    out.run_for(20);
    out.lose(&[19..20]);
    let accounting = *out.sender.accounting();
    assert_eq!((accounting.reported_lost, accounting.refused), (1, 0));
    out.lose(&[19..21]);
    assert_eq!(out.sender.accounting().refused, 1);
}
