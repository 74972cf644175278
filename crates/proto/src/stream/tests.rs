//! One coded stream, datagram by datagram, and the choice of the way to meet a deadline.

use alloc::vec::Vec;

use proptest::prelude::*;

mod repair;

use super::*;
use crate::fec::Losses;
use crate::time::{Span, Time};
use crate::units::{Bytes, LossRatio, Rate};

const SYMBOL: u16 = 1430;
const PATH: Span = Span::from_millis(50);
const DEADLINE: Span = Span::from_millis(120);

fn losses(share: f64) -> Losses {
    Losses::independent(LossRatio::new(share).expect("a share"))
}

fn settings() -> Settings {
    Settings {
        symbol: SYMBOL,
        overhead: 42,
        deadline: DEADLINE,
        path: PATH,
        losses: losses(0.01),
        epsilon: 1e-4,
        rate: Rate::from_mbps(250),
        overflow: Overflow::Block,
        waiting: 2,
        keeps: false,
    }
}

fn receiver() -> Receiver {
    Receiver::new(SYMBOL, DEADLINE, PATH, 64 << 20)
}

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

/// A symbol of a frame of two originals and one repair; the sender got the frame at `millis`.
fn symbol(frame: u32, index: u16, millis: u32) -> Head {
    Head { frame, index, repairs: 1, length: 2 * u32::from(SYMBOL), skipped: 0, at: millis * 1_000 }
}

fn sent(sender: &mut Sender, now: Time) -> Vec<Head> {
    core::iter::from_fn(|| sender.poll_transmit(now)).map(|(head, _)| head).collect()
}

/// How much longer than the path's own delay a delivered frame took.
fn beyond_path(delivery: Option<Delivery>) -> Option<Span> {
    match delivery {
        Some(Delivery::Frame { beyond_path, .. }) => Some(beyond_path),
        _ => None,
    }
}

#[test]
fn an_encoded_head_decodes_to_itself_and_wrong_heads_are_refused() {
    let head =
        Head { frame: 7, index: 11_756, repairs: 24, length: 1 << 24, skipped: 127, at: u32::MAX };
    assert_eq!(Head::decode(head.block(), &head.encode(), SYMBOL), Ok(head));
    assert_eq!(Head::decode(head.block(), &head.encode()[1..], SYMBOL), Err(HeadError::Short));
    let past = Head { index: 11_757, ..head };
    let read = Head::decode(past.block(), &past.encode(), SYMBOL);
    assert_eq!(read, Err(HeadError::Index(11_757)));
    for (length, error) in
        [(0, HeadError::Length(0)), (MAX_FRAME + 1, HeadError::Length(MAX_FRAME + 1))]
    {
        let wrong = Head { length, ..head };
        assert_eq!(Head::decode(wrong.block(), &wrong.encode(), SYMBOL), Err(error));
    }
    for (error, part) in [
        (HeadError::Short, "cut off"),
        (HeadError::Length(7), "16777216 bytes, not 7"),
        (HeadError::Shape, "repairs"),
        (HeadError::Index(5), "symbol 5"),
    ] {
        assert!(alloc::string::ToString::to_string(&error).contains(part), "{error:?}");
    }
    let wrong = Head { repairs: u16::MAX, ..head };
    assert_eq!(Head::decode(0, &wrong.encode(), SYMBOL), Err(HeadError::Shape));
}

#[test]
fn the_originals_go_first_and_in_order_then_the_repairs() {
    let mut sender = Sender::new(settings());
    assert_eq!(sender.offer(at(0), 1_440_000), Ok(0));
    let (mut heads, mut now) = (Vec::new(), at(0));
    while let Some(next) = sender.next_wakeup() {
        now = now.max(next);
        heads.extend(sent(&mut sender, now));
    }
    assert!(heads.iter().enumerate().all(|(n, head)| usize::from(head.index) == n));
    // 1,440,000 bytes are 1006 symbols of 1430 bytes and a shorter one. With 24 repairs they are
    // 1031 datagrams.
    assert_eq!((heads.len(), heads[0].repairs), (1031, 24));
    assert!(heads.iter().all(|head| (head.frame, head.at) == (0, 0)));
    // 1031 datagrams of 1472 bytes take 48.6 ms at 250 Mbit/s.
    let took = now.since(at(0));
    assert!(took > Span::from_millis(48) && took < Span::from_millis(49), "{took}");
}

#[test]
fn a_full_sender_refuses_a_frame_or_drops_the_new_or_the_oldest_waiting_frame() {
    let first_of = |overflow| {
        let mut sender = Sender::new(Settings { overflow, ..settings() });
        sender.offer(at(0), 1_440_000).expect("room");
        sent(&mut sender, at(0));
        let offered: Vec<_> = (1..5).map(|_| sender.offer(at(0), 1)).collect();
        let waiting: Vec<u32> = (1..200)
            .flat_map(|millis| sent(&mut sender, at(millis)))
            .filter(|head| head.length == 1 && head.index == 0)
            .map(|head| head.frame)
            .collect();
        (offered, waiting, sender.skipped())
    };
    let full = Err(Full);
    assert_eq!(first_of(Overflow::Block), ([Ok(1), Ok(2), full, full].into(), [1, 2].into(), 0));
    let all = [Ok(1), Ok(2), Ok(3), Ok(4)];
    assert_eq!(first_of(Overflow::Skip), (all.into(), [1, 2].into(), 2));
    assert_eq!(first_of(Overflow::Thin), (all.into(), [3, 4].into(), 2));
}

#[test]
fn frames_that_wait_or_are_being_sent_can_be_given_up() {
    let mut sender = Sender::new(settings());
    sender.offer(at(0), 1_440_000).expect("room");
    sent(&mut sender, at(0));
    sender.offer(at(0), 1).expect("room");
    sender.give_up();
    assert_eq!((sender.skipped(), sender.next_wakeup()), (2, None));
    sender.give_up();
    assert_eq!(sender.skipped(), 2, "nothing waits");
}

#[test]
fn each_frame_of_a_skipped_payload_counts_as_skipped() {
    let mut sender = Sender::new(Settings { overflow: Overflow::Thin, ..settings() });
    sender.pass(3);
    assert_eq!(sender.skipped(), 3);
    sender.offer_payload(at(0), 1, 2).expect("room");
    assert!(sent(&mut sender, at(119)).is_empty(), "it is late");
    assert_eq!(sender.skipped(), 5);
    sender.offer_payload(at(200), 1_440_000, 4).expect("room");
    sent(&mut sender, at(200));
    for frames in [5, 6, 7] {
        sender.offer_payload(at(200), 1, frames).expect("room");
    }
    assert_eq!(sender.skipped(), 10, "the third replaces the first");
    sender.give_up();
    assert_eq!(sender.skipped(), 27);
}

#[test]
fn a_frame_that_cannot_be_in_time_is_not_sent() {
    let mut sender = Sender::new(settings());
    sender.offer(at(0), 1).expect("room");
    // The deadline is 120 ms. The path takes 50 ms of it, and a datagram takes 47 µs to send.
    assert_eq!(sent(&mut sender, at(69)).len(), 2);
    sender.offer(at(100), 1).expect("room");
    assert_eq!((sent(&mut sender, at(170)).len(), sender.skipped()), (0, 1));
    assert_eq!((sender.oldest(), sender.next_wakeup()), (2, None));
}

#[test]
fn any_two_of_three_symbols_give_the_frame_at_once() {
    for (one, other) in [(0, 1), (0, 2), (1, 2), (2, 0)] {
        let mut receiver = receiver();
        assert_eq!(receiver.on_symbol(at(50), &symbol(0, one, 0)), Placed::Keep);
        assert_eq!(receiver.poll(at(50)), None);
        assert_eq!(receiver.on_symbol(at(51), &symbol(0, one, 0)), Placed::Spare);
        assert_eq!(receiver.on_symbol(at(60), &symbol(0, other, 0)), Placed::Keep);
        assert!(receiver.is_here(0, one) && receiver.is_here(0, other));
        let delivery = receiver.poll(at(60));
        assert_eq!(beyond_path(delivery), Some(Span::from_millis(10)));
        assert_eq!((receiver.used(), receiver.next_wakeup()), (0, None));
        assert_eq!(receiver.on_symbol(at(61), &symbol(0, 1, 0)), Placed::Spare);
    }
}

#[test]
fn a_frame_is_delivered_up_to_its_deadline_and_missed_after_it() {
    let whole_at = |late: Span| {
        let mut receiver = receiver();
        receiver.on_symbol(at(50), &symbol(0, 0, 0));
        let now = at(120) + late;
        receiver.on_symbol(now, &symbol(0, 1, 0));
        receiver.poll(now)
    };
    assert!(matches!(whole_at(Span::ZERO), Some(Delivery::Frame { frame: 0, .. })));
    let missed = Some(Delivery::Missed { first: 0, last: 0 });
    assert_eq!(whole_at(Span::from_nanos(1)), missed);
}

#[test]
fn a_missed_frame_whose_symbols_arrive_late_counts_as_overdue() {
    let mut receiver = receiver();
    // In time, frames 0 and 1 get one symbol each, and frame 2 gets none.
    for head in [symbol(0, 0, 0), symbol(1, 0, 0)] {
        assert_eq!(receiver.on_symbol(at(50), &head), Placed::Keep);
    }
    for frame in [0, 1] {
        let missed = Some(Delivery::Missed { first: frame, last: frame });
        assert_eq!(receiver.poll(at(121)), missed);
    }
    assert_eq!(receiver.finish(3), Some(Delivery::Missed { first: 2, last: 2 }));
    assert_eq!(receiver.overdue(), 0);
    for (head, overdue) in
        [(symbol(1, 2, 0), 1), (symbol(1, 1, 0), 1), (symbol(2, 0, 0), 1), (symbol(2, 1, 0), 2)]
    {
        assert_eq!(receiver.on_symbol(at(122), &head), Placed::Spare);
        assert_eq!(receiver.overdue(), overdue, "{head:?}");
    }
}

#[test]
fn a_missed_frame_is_reported_without_another_datagram() {
    let mut receiver = receiver();
    receiver.on_symbol(at(50), &symbol(0, 0, 0));
    assert_eq!(receiver.poll(at(120)), None);
    let wakeup = receiver.next_wakeup().expect("a deadline");
    assert_eq!(wakeup, at(120) + Span::from_nanos(1));
    assert_eq!(receiver.poll(wakeup), Some(Delivery::Missed { first: 0, last: 0 }));
    assert_eq!(receiver.on_symbol(at(121), &symbol(0, 1, 0)), Placed::Spare);
}

#[test]
fn frames_are_delivered_in_order_and_no_later_than_their_own_deadline() {
    let mut receiver = receiver();
    receiver.on_symbol(at(50), &symbol(0, 0, 0));
    for index in 0..2 {
        receiver.on_symbol(at(70), &symbol(1, index, 20));
    }
    assert_eq!(receiver.poll(at(100)), None);
    let wakeup = receiver.next_wakeup().expect("a deadline");
    assert_eq!(receiver.poll(wakeup), Some(Delivery::Missed { first: 0, last: 0 }));
    assert!(matches!(receiver.poll(wakeup), Some(Delivery::Frame { frame: 1, .. })));
}

#[test]
fn a_complete_frame_waits_until_its_own_deadline_for_an_absent_earlier_frame() {
    let mut receiver = receiver();
    for index in 0..2 {
        receiver.on_symbol(at(70), &symbol(1, index, 20));
    }
    assert_eq!((receiver.poll(at(100)), receiver.next_wakeup()), (None, Some(at(140))));
    assert_eq!(receiver.poll(at(140)), Some(Delivery::Missed { first: 0, last: 0 }));
    assert!(matches!(receiver.poll(at(140)), Some(Delivery::Frame { frame: 1, .. })));
}

#[test]
fn a_frame_does_not_wait_for_frames_that_were_never_sent() {
    let mut sender = Sender::new(settings());
    for _ in 0..3 {
        sender.pass(1);
    }
    sender.offer(at(0), 1).expect("room");
    let heads = sent(&mut sender, at(0));
    assert_eq!((heads[0].frame, heads[0].skipped), (3, 3));
    let mut receiver = receiver();
    assert_eq!(receiver.on_symbol(at(50), &heads[0]), Placed::Keep);
    assert_eq!(receiver.poll(at(50)), Some(Delivery::Missed { first: 0, last: 2 }));
    assert!(matches!(receiver.poll(at(50)), Some(Delivery::Frame { frame: 3, .. })));
    // Before frame 6 the sender sent only one of the frames 4 and 5.
    let head = Head { skipped: 1, ..symbol(6, 0, 20) };
    for index in 0..2 {
        receiver.on_symbol(at(70), &Head { index, ..head });
    }
    assert_eq!((receiver.poll(at(70)), receiver.next_wakeup()), (None, Some(at(140))));
    let many = Head { skipped: Head::MANY, ..symbol(1_000, 0, 30) };
    for index in 0..2 {
        receiver.on_symbol(at(80), &Head { index, ..many });
    }
    let all: Vec<_> = core::iter::from_fn(|| receiver.poll(at(80))).collect();
    assert_eq!(all.len(), 4, "{all:?}");
}

#[test]
fn after_an_outage_the_stream_goes_on_with_new_frames() {
    let mut receiver = receiver();
    receiver.on_symbol(at(50), &symbol(0, 0, 0));
    let (frame, millis) = (100_000, 5_000_000 / 1_000);
    for index in 0..2 {
        assert_eq!(receiver.on_symbol(at(5_050), &symbol(frame, index, millis)), Placed::Keep);
    }
    let all: Vec<_> = core::iter::from_fn(|| receiver.poll(at(5_120))).collect();
    assert_eq!(all[0], Delivery::Missed { first: 0, last: 0 });
    assert_eq!(all[1], Delivery::Missed { first: 1, last: frame - 1 });
    assert!(matches!(all[2], Delivery::Frame { frame: 100_000, .. }));
    assert_eq!(receiver.on_symbol(at(5_121), &symbol(5, 0, 100)), Placed::Spare);
}

#[test]
fn the_memory_limit_bounds_the_number_of_open_frames() {
    // A frame reserves memory for two symbols, so there is room for two frames.
    let mut receiver = Receiver::new(SYMBOL, DEADLINE, PATH, 5 * usize::from(SYMBOL));
    assert_eq!(receiver.on_symbol(at(50), &symbol(0, 0, 0)), Placed::Keep);
    assert_eq!(receiver.on_symbol(at(50), &symbol(1, 0, 0)), Placed::Keep);
    assert_eq!(receiver.on_symbol(at(50), &symbol(2, 0, 0)), Placed::NoRoom);
    assert_eq!(receiver.used(), 4 * usize::from(SYMBOL));
    receiver.poll(at(200));
    assert_eq!(receiver.on_symbol(at(200), &symbol(2, 0, 150)), Placed::Keep);
}

#[test]
fn symbols_that_contradict_their_frame_and_symbols_with_an_invalid_head_are_wrong() {
    let mut receiver = receiver();
    let first = symbol(0, 0, 0);
    receiver.on_symbol(at(50), &first);
    for other in [
        Head { length: first.length - 1, index: 1, ..first },
        Head { repairs: 2, index: 1, ..first },
        Head { at: 1, index: 1, ..first },
        Head { frame: 1, length: 0, ..first },
        Head { frame: 1, index: 3, ..first },
    ] {
        assert_eq!(receiver.on_symbol(at(50), &other), Placed::Wrong, "{other:?}");
    }
}

#[test]
fn no_frame_may_have_the_number_u32_max() {
    let mut receiver = receiver().starting_at(u32::MAX - 1);
    let placed = |frame| receiver.on_symbol(at(50), &symbol(frame, 0, 0));
    assert_eq!([u32::MAX - 1, u32::MAX].map(placed), [Placed::Keep, Placed::Wrong]);
}

#[test]
fn a_senders_clock_that_wraps_and_drifts_adds_less_than_7_ms_to_the_measured_delay() {
    let mut receiver = receiver();
    let start = u32::MAX - 1_000_000;
    // The sender's clock runs 100 ppm slow for two hours: 0.72 s in all. The receiver keeps the
    // minimum of (arrival − stamp) for up to a minute. In a minute the clock loses 6 ms.
    for frame in 0..72_000_u32 {
        let now = Time::from_nanos(50_000_000 + u64::from(frame) * 100_000_000);
        let stamp = start.wrapping_add(frame.wrapping_mul(100_000 - 10));
        for index in 0..2 {
            let head = Head { at: stamp, ..symbol(frame, index, 0) };
            assert_eq!(receiver.on_symbol(now, &head), Placed::Keep);
        }
        let delivery = receiver.poll(now);
        let beyond_path = beyond_path(delivery).expect("a frame");
        assert!(beyond_path < Span::from_millis(7), "{frame} {beyond_path}");
    }
}

proptest! {
    /// Arbitrary numbers cause no panic, memory stays bounded, and deliveries are in order.
    #[test]
    fn a_receiver_withstands_any_heads(
        heads in prop::collection::vec(
            (0u8..8, any::<u32>(), 0u16..5, 0u16..3, 0u32..9000, any::<u32>()),
            1..300,
        ),
    ) {
        let memory = 8 * usize::from(SYMBOL);
        let mut receiver = Receiver::new(SYMBOL, DEADLINE, PATH, memory);
        let (mut next, mut now) = (0_u64, Time::ZERO);
        for (kind, any, index, repairs, length, stamp) in heads {
            now += Span::from_millis(u64::from(kind));
            let frame = if kind == 0 { any } else { any % 20 };
            let skipped = kind * 20;
            let head = Head { frame, index, repairs, length, skipped, at: stamp };
            receiver.on_symbol(now, &head);
            prop_assert!(receiver.used() <= memory);
            while let Some(delivery) = receiver.poll(now) {
                let (first, last) = match delivery {
                    Delivery::Frame { frame, .. } => (frame, frame),
                    Delivery::Missed { first, last } => (first, last),
                };
                prop_assert!(u64::from(first) == next && first <= last);
                next = u64::from(last) + 1;
            }
        }
    }
}

/// The stream of the Quanta paper: 20 frames of 1.44 MB a second, from the program Griz.
fn griz(deadline: Span) -> Needs {
    let frame = Bytes::new(1_440_000);
    Needs { frame, per_second: 20.0, deadline, epsilon: 1e-4, receivers: 1 }
}

fn path(rtt: u64, jitter: u64, losses: Losses) -> Path {
    let (rtt, jitter) = (Span::from_millis(rtt), Span::from_millis(jitter));
    Path { rtt, jitter, losses, symbol: 1440 }
}

#[test]
fn the_papers_stream_needs_288_mbit_in_multi_frame_payloads_and_236_mbit_with_a_code() {
    let choice = choose(&griz(Span::from_millis(500)), &path(100, 0, losses(0.0)));
    assert_eq!(choice.payloads, Some(Rate::from_mbps(288)));
    let choice = choose(&griz(DEADLINE), &path(100, 0, losses(0.01)));
    // 1024 symbols of 1440 bytes, 20 frames a second. With the 42 bytes of header, tag and head in
    // each datagram the rate would be 242.8 Mbit/s.
    assert_eq!(choice.code, Some((24, Rate::from_bps(235_929_600))));
    assert_eq!((choice.payloads, choice.repair), (None, None));
}

/// Repair is possible if the deadline exceeds 1.5 RTT + jitter + two pauses of 10 ms (waits of
/// the receiver before it requests missing symbols): 175 ms here.
#[test]
fn repair_needs_a_round_trip_and_a_half_and_losses_in_short_bursts() {
    let small = |millis, symbols: u64| Needs {
        frame: Bytes::new(1440 * symbols),
        epsilon: 1e-2,
        ..griz(Span::from_millis(millis))
    };
    let of = |millis, symbols, losses| {
        choose(&small(millis, symbols), &path(100, 5, losses)).repair.is_some()
    };
    assert_eq!((of(175, 10, losses(0.01)), of(176, 10, losses(0.01))), (false, true));
    // Frames of one datagram: the receiver notices a loss when the next frame arrives, after 50 ms.
    assert_eq!((of(215, 1, losses(0.02)), of(216, 1, losses(0.02))), (false, true));
    // A receiver may request 10 / 4 + 16 = 18 datagrams for a frame of 10 symbols. This number must
    // be at least 8 times the mean burst length.
    let bursts = |burst| Losses::bursty(LossRatio::new(0.01).expect("a share"), burst);
    assert!(of(10_000, 10, bursts(2.2)) && !of(10_000, 10, bursts(2.3)));
}

#[test]
fn for_three_receivers_a_code_needs_a_lower_rate_than_repair() {
    let best = |receivers| {
        let needs = Needs { receivers, ..griz(Span::from_secs(1)) };
        choose(&needs, &path(100, 0, losses(0.01))).best()
    };
    assert_eq!(
        (best(1), best(2), best(3)),
        (Some(Way::Repair), Some(Way::Repair), Some(Way::Code))
    );
}

#[test]
fn the_table_in_docs_streaming_shows_the_chosen_ways() {
    use alloc::format;
    use alloc::string::String;
    let mut table = String::new();
    for (deadline, rtt, jitter, loss, burst) in [
        (500, 100, 0, 0.0, 1.0),
        (500, 100, 0, 0.001, 1.0),
        (500, 100, 0, 0.01, 1.0),
        (300, 100, 5, 0.001, 1.0),
        (120, 100, 0, 0.001, 1.0),
        (120, 100, 0, 0.01, 1.0),
        (120, 100, 5, 0.01, 5.0),
        (400, 300, 10, 0.02, 1.0),
        (60, 100, 10, 0.0, 1.0),
    ] {
        let share = LossRatio::new(loss).expect("a share");
        let choice = choose(
            &griz(Span::from_millis(deadline)),
            &path(rtt, jitter, Losses::bursty(share, burst)),
        );
        let percent = loss * 100.0;
        table += &format!("| {deadline} | {rtt} | {jitter} | {percent} | {burst} | {choice} |\n");
    }
    let page = include_str!("../../../../docs/streaming.md");
    assert!(page.contains(&table), "docs/streaming.md must have:\n{table}");
}

#[test]
fn time_left_for_sending_is_deadline_minus_path_delay_minus_pause_minus_six_rounds() {
    // Of 100 datagrams 10 are lost. A repair fails if the request or the repeated datagram is lost,
    // 1 − 0.9² = 19 %, so after six rounds 0.0005 datagrams are missing on average. A round takes a
    // round trip and 10 ms.
    let needs = Needs { frame: Bytes::new(1440 * 100), epsilon: 1e-3, ..griz(Span::from_secs(10)) };
    let left = choose::repair_time(&needs, &path(100, 5, losses(0.1)));
    assert_eq!(left, Some(Span::from_millis(10_000 - 55 - 10 - 6 * 110)));
}

#[test]
fn late_symbols_are_counted_only_for_the_newest_64_missed_frames() {
    let overdue = |frame| {
        let mut receiver = receiver();
        assert_eq!(receiver.finish(100), Some(Delivery::Missed { first: 0, last: 99 }));
        assert_eq!(receiver.finish(101), Some(Delivery::Missed { first: 100, last: 100 }));
        assert_eq!(receiver.next(), 101);
        for index in 0..2 {
            assert_eq!(receiver.on_symbol(at(200), &symbol(frame, index, 0)), Placed::Spare);
        }
        receiver.overdue()
    };
    assert_eq!([36, 37, 100].map(overdue), [0, 1, 1]);
}

#[test]
fn frames_that_the_window_has_passed_are_missed_at_once() {
    let mut receiver = receiver();
    receiver.on_symbol(at(50), &symbol(10, 0, 0));
    receiver.on_symbol(at(51), &symbol(400, 0, 0));
    let all: Vec<_> = core::iter::from_fn(|| receiver.poll(at(51))).collect();
    let missed = |first, last| Delivery::Missed { first, last };
    assert_eq!(all, [missed(0, 9), missed(10, 10)]);
    assert_eq!(receiver.on_symbol(at(51), &symbol(144, 0, 0)), Placed::Spare);
    assert_eq!(receiver.on_symbol(at(51), &symbol(145, 0, 0)), Placed::Keep);
}
