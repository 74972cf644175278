//! The parts of a channel, each alone: log, cursor, duplicates, datagrams, measurements.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::share::{Key, Prefix};
use crate::time::{Span, Time};

fn message(number: u64, key: &str) -> Message {
    let key = Key::new(key).ok();
    let bytes = Arc::from(number.to_string().into_bytes());
    Message { origin: 7, number, at: number * 1_000, born: 0, hops: 0, via: 0, key, bytes }
}

fn limits(messages: usize, keys: usize) -> Limits {
    Limits { messages, keys, ..Limits::default() }
}

/// The numbers of all messages that `cursor` takes now; `-n` for `n` lost messages.
fn take(cursor: &mut Cursor, log: &Log) -> Vec<i64> {
    // A cursor that does not move on would give messages without end.
    let taken = core::iter::from_fn(|| cursor.take(log)).take(1_000);
    let number = |taken| match taken {
        Taken::Message(message) => message.number as i64,
        Taken::Lost(lost) => -(lost as i64),
    };
    taken.map(number).collect()
}

#[test]
fn a_subscriber_that_falls_behind_loses_its_oldest_messages_and_learns_how_many() {
    let mut log = Log::new(limits(4, 10));
    let mut slow = Cursor::new(&log, Mode::Reliable, Prefix::ALL, 0);
    let mut fast = slow.clone();
    for number in 1..=10 {
        log.push(message(number, ""));
        assert_eq!(take(&mut fast, &log), [number as i64]);
    }
    assert_eq!(slow.behind(&log), 10);
    assert_eq!(take(&mut slow, &log), [-6, 7, 8, 9, 10]);
    assert_eq!(take(&mut slow, &log), []);
    // A new connection continues at the position of the old one.
    let mut again = Cursor::resume(&log, slow.position(), Mode::Reliable, Prefix::ALL, 0).unwrap();
    log.push(message(11, ""));
    assert_eq!((take(&mut again, &log), take(&mut slow, &log)), (vec![11], vec![11]));
}

#[test]
fn a_late_subscriber_gets_the_last_message_of_each_key_first() {
    let mut log = Log::new(limits(2, 10));
    for (number, key) in [(1, "a"), (2, "b"), (3, "a"), (4, ""), (5, "c")] {
        log.push(message(number, key));
    }
    for mode in [Mode::Reliable, Mode::Datagram, Mode::Latest] {
        let mut late = Cursor::new(&log, mode, Prefix::ALL, 0);
        assert_eq!(take(&mut late, &log), [2, 3, 4, 5], "{mode:?}");
    }
    let mut late = Cursor::new(&log, Mode::Reliable, Prefix::ALL, 0);
    assert_eq!(late.behind(&log), 4);
    // The key `b` changes before the late subscriber takes its value, so the subscriber gets only
    // the newest value.
    log.push(message(6, "b"));
    assert_eq!(take(&mut late, &log), [3, 4, 5, 6]);
}

#[test]
fn a_subscriber_that_is_cut_off_while_it_gets_the_last_values_loses_no_message() {
    let keys = Prefix::new("in").unwrap();
    for mode in [Mode::Reliable, Mode::Latest] {
        let mut log = Log::new(limits(9, 10));
        // The subscriber does not want the last message.
        for (number, key) in [(1, "in/a"), (2, "in/b"), (3, "in/c"), (4, "out")] {
            log.push(message(number, key));
        }
        for taken in 0..=3 {
            let mut log = log.clone();
            let mut first = Cursor::new(&log, mode, keys.clone(), 0);
            for _ in 0..taken {
                assert!(first.take(&log).is_some());
            }
            // Messages arrive while there is no connection.
            (5..8).for_each(|number| log.push(message(number, "in/a")));
            let position = first.position();
            let mut again = Cursor::resume(&log, position, mode, keys.clone(), 0).unwrap();
            let later = take(&mut again, &log);
            let missing = (taken + 1..=3).filter(|number| *number > 1);
            let newer = if mode == Mode::Latest { 7..8 } else { 5..8 };
            assert!(
                missing.chain(newer).all(|number| later.contains(&number)),
                "{mode:?} {taken}: {later:?}"
            );
        }
        assert!(Cursor::resume(&log, 5, mode, Prefix::ALL, 0).is_none());
    }
}

#[test]
fn the_newest_value_of_a_key_replaces_values_that_were_not_taken_and_no_key_starves() {
    let mut log = Log::new(limits(100, 10));
    let mut latest = Cursor::new(&log, Mode::Latest, Prefix::ALL, 0);
    for (number, key) in [(1, "a"), (2, "b"), (3, "a"), (4, "a")] {
        log.push(message(number, key));
    }
    assert_eq!(take(&mut latest, &log), [2, 4]);
    // Both keys change before each take: the subscriber gets them in turn.
    let mut taken = Vec::new();
    for round in 0..8 {
        log.push(message(10 + 2 * round, "a"));
        log.push(message(11 + 2 * round, "b"));
        taken.extend(latest.take(&log));
    }
    let number = |taken: &Taken| match taken {
        Taken::Message(message) => message.number,
        Taken::Lost(_) => 0,
    };
    let numbers: Vec<u64> = taken.iter().map(number).collect();
    assert_eq!(numbers, [10, 13, 14, 17, 18, 21, 22, 25]);
    // The subscriber still gets the newest value of `a`, and then nothing.
    assert_eq!(take(&mut latest, &log), [24]);
    assert_eq!(take(&mut latest, &log), []);
}

#[test]
fn a_value_that_arrives_and_is_taken_in_one_round_is_not_repeated_in_the_next() {
    let mut log = Log::new(limits(100, 10));
    let mut latest = Cursor::new(&log, Mode::Latest, Prefix::ALL, 0);
    log.push(message(1, "a"));
    log.push(message(2, "b"));
    assert!(matches!(latest.take(&log), Some(Taken::Message(m)) if m.number == 1));
    assert_eq!(latest.behind(&log), 1, "the round still has `b`");
    log.push(message(3, "b"));
    assert_eq!(take(&mut latest, &log), [3]);
    log.push(message(4, "a"));
    assert_eq!(take(&mut latest, &log), [4]);
}

#[test]
fn filters_select_messages_and_a_datagram_subscriber_skips_old_ones() {
    let mut log = Log::new(limits(1_000, 1_000));
    let keys = Prefix::new("a").unwrap();
    let mut filtered = Cursor::new(&log, Mode::Reliable, keys, 0);
    // This cursor leads to link 9, so it skips messages that came through that link.
    let mut link = Cursor::new(&log, Mode::Reliable, Prefix::ALL, 9);
    log.push(message(1, "a/x"));
    log.push(message(2, "ab"));
    log.push(Message { via: 9, ..message(3, "a") });
    assert_eq!(take(&mut filtered, &log), [1, 3]);
    assert_eq!(take(&mut link, &log), [1, 2]);
    let mut datagrams = Cursor::new(&log, Mode::Datagram, Prefix::ALL, 0);
    for number in 10..310 {
        log.push(message(number, ""));
    }
    let taken = take(&mut datagrams, &log);
    // First the number of lost messages, then the last messages of three keys, then the newest 256
    // of 300 messages.
    assert_eq!((taken[0], taken.len(), taken.last()), (-44, 1 + 3 + 256, Some(&309)));
}

#[test]
fn the_longest_message_is_kept_for_late_subscribers() {
    let mut log = Log::new(Limits::default());
    log.push(Message { bytes: Arc::from(vec![0; MAX_MESSAGE]), ..message(1, &"k".repeat(200)) });
    assert_eq!(log.keys(), 1);
}

#[test]
fn a_log_obeys_its_limits_of_bytes_and_keys() {
    let big = |number, key: &str, len: usize| Message {
        bytes: Arc::from(vec![0; len]),
        ..message(number, key)
    };
    let limits = Limits { messages: 100, bytes: 3_000, keys: 3, key_bytes: 10_000 };
    let mut log = Log::new(limits);
    for number in 1..=5 {
        log.push(big(number, "a", 840));
    }
    // Each message takes 1,001 bytes: 840 of content, 1 of the key, and an overhead of 160.
    assert_eq!((log.first(), log.next(), log.keys()), (3, 5, 1));
    assert_eq!((log.cost(), log.kept_cost()), (3 * 1_001, 1_001));
    let mut exact = Log::new(Limits { bytes: 2_002, ..limits });
    (1..=5).for_each(|number| exact.push(big(number, "a", 840)));
    assert_eq!(exact.first(), 3);
    let mut exact = Log::new(Limits { key_bytes: 2_002, ..limits });
    ["a", "b", "c"].into_iter().for_each(|key| exact.push(big(1, key, 840)));
    assert_eq!((exact.keys(), exact.kept_cost()), (2, 2_002));
    log.push(big(6, "b", 5_000));
    assert_eq!((log.first(), log.next()), (5, 6), "the newest stays");
    for (number, key) in [(7, "c"), (8, "d"), (9, "e")] {
        log.push(big(number, key, 0));
    }
    assert_eq!(log.keys(), 3);
    let all = log.cost();
    log.shrink(all);
    assert_eq!((log.cost(), log.keys()), (all, 3));
    log.shrink(400);
    assert_eq!((log.first(), log.keys()), (9, 2));
    log.shrink(0);
    assert_eq!((log.first(), log.next(), log.cost(), log.keys()), (9, 9, 0, 0));
    log.push(big(10, "a", 1));
    assert_eq!(take(&mut Cursor::new(&log, Mode::Latest, Prefix::ALL, 0), &log), [10]);
}

#[test]
fn each_number_is_new_once_and_lost_numbers_are_counted() {
    let mut numbers = Numbers::default();
    let fresh = |lost, late| Placed::New { lost, late };
    assert_eq!(numbers.mark(10), fresh(0, false));
    assert_eq!(numbers.mark(10), Placed::Twice);
    assert_eq!(numbers.mark(13), fresh(0, false));
    assert_eq!(numbers.missing(), 2);
    assert_eq!(numbers.mark(12), fresh(0, true));
    assert_eq!((numbers.missing(), numbers.mark(12)), (1, Placed::Twice));
    assert!(numbers.has(12) && !numbers.has(11) && !numbers.has(14));
    // Number 11 is in the window of 1,024 numbers until number 1,035 arrives.
    assert_eq!(numbers.mark(11 + 1_023), fresh(0, false));
    assert!(!numbers.has(11));
    assert_eq!(numbers.mark(11 + 1_024), fresh(1, false));
    assert_eq!([11, 12].map(|number| numbers.mark(number)), [Placed::Old, Placed::Twice]);
    assert!(numbers.has(11) && numbers.has(5) && !numbers.has(1_036));
    let before = numbers.missing();
    assert_eq!(before, 1_020);
    // A jump skips 1,999 numbers. The last 1,023 of them are in the new window and not yet lost.
    // The other 976 are lost, and so are the missing numbers of the old window.
    assert_eq!(numbers.mark(1_035 + 2_000), fresh(1_020 + 976, false));
    assert_eq!(numbers.missing(), 1_023);
    // The same for a longer jump, from 3,035; the old window has 1,023 missing numbers.
    let skipped = u64::MAX / 2 - 3_036;
    let lost = skipped - 1_023 + 1_023;
    assert_eq!(numbers.mark(u64::MAX / 2), fresh(lost, false));
}

#[test]
fn the_largest_number_is_never_new() {
    let mut numbers = Numbers::default();
    assert_eq!([0, 1].map(|_| numbers.mark(u64::MAX)), [Placed::Old; 2]);
    let fresh = |late| Placed::New { lost: 0, late };
    assert_eq!(numbers.mark(u64::MAX - 1), fresh(false));
    assert_eq!(numbers.mark(u64::MAX - 1), Placed::Twice);
    assert_eq!(numbers.mark(u64::MAX), Placed::Old);
    assert_eq!(numbers.mark(u64::MAX - 2), fresh(true));
}

#[test]
fn each_message_is_new_once_and_the_longest_silent_sender_is_forgotten_first() {
    let mut seen = Seen::new(2);
    assert!(seen.is_new(1, 5) && seen.is_new(2, 5) && !seen.is_new(1, 5));
    assert!(seen.is_new(3, 1), "sender 2 is forgotten");
    assert!(!seen.is_new(1, 5) && seen.is_new(1, 4) && !seen.is_new(3, 1));
    assert!(seen.is_new(2, 5));
}

#[test]
fn a_message_survives_its_encoding_and_garbage_is_refused() {
    for key in ["", "world/a"] {
        let whole = Message { hops: 3, ..message(42, key) };
        let blob = encode(&whole);
        assert_eq!(decode(&blob), Some(whole));
        for end in 0..blob.len().min(27 + key.len()) {
            assert_eq!(decode(&blob[..end]), None);
        }
    }
    let mut bad = encode(&message(1, "a"));
    bad[27] = b'*';
    assert_eq!(decode(&bad), None);
}

const CODES: [Code; 4] = [
    Code::None,
    Code::Xor { group: 2 },
    Code::Xor { group: 3 },
    Code::ReedSolomon { group: 8, repairs: 4 },
];

/// All datagrams of these messages, one message each millisecond.
fn cut(code: Code, messages: &[Vec<u8>]) -> Vec<Datagram> {
    let (mut cutter, mut out) = (Cutter::new(100, code, Span::from_millis(20)), Vec::new());
    for (at, message) in messages.iter().enumerate() {
        cutter.message(Time::ZERO + Span::from_millis(at as u64), message, &mut out).unwrap();
    }
    out
}

fn joined(datagrams: &[Datagram]) -> (Vec<Joined>, u64) {
    let (mut joiner, mut out) = (Joiner::default(), Vec::new());
    for datagram in datagrams {
        joiner.take(datagram.block, &datagram.payload, &mut out);
    }
    (out, joiner.lost())
}

#[test]
fn every_code_delivers_each_message_once_even_if_datagrams_arrive_twice_or_in_reverse() {
    let messages: Vec<Vec<u8>> = (0..40).map(|n| vec![n as u8; n * 13]).collect();
    for code in CODES {
        let mut datagrams = cut(code, &messages);
        assert!(datagrams.iter().all(|datagram| datagram.payload.len() <= 100), "{code:?}");
        datagrams.extend(datagrams.clone());
        let (out, lost) = joined(&datagrams);
        let got: Vec<Vec<u8>> = out.iter().map(|joined| joined.message.clone()).collect();
        assert!(got == messages && lost == 0, "{code:?}");
        // All messages also arrive if the datagrams come in reverse order.
        datagrams.reverse();
        let (out, _) = joined(&datagrams);
        assert_eq!(out.len(), 40, "{code:?}");
        assert_eq!(out.iter().filter(|joined| joined.late).count(), 39, "{code:?}");
    }
}

#[test]
fn a_group_restores_as_many_datagrams_as_it_has_repairs_and_no_more() {
    let messages: Vec<Vec<u8>> = (0..24).map(|n| vec![n as u8; 10 + n % 5]).collect();
    for (code, size, repairs) in
        [(CODES[1], 3, 1), (CODES[2], 4, 1), (CODES[3], 12, 4), (Code::Xor { group: 1 }, 2, 1)]
    {
        let datagrams = cut(code, &messages);
        assert_eq!(datagrams.len() * (size - repairs), 24 * size, "{code:?}");
        for lost in 0..size {
            let kept = |(at, _): &(usize, &Datagram)| {
                (0..repairs).all(|more| at % size != (lost + more) % size)
            };
            let kept: Vec<Datagram> =
                datagrams.iter().enumerate().filter(kept).map(|(_, d)| d.clone()).collect();
            let (mut out, missing) = joined(&kept);
            out.sort_by_key(|joined| joined.message[0]);
            let got: Vec<&Vec<u8>> = out.iter().map(|joined| &joined.message).collect();
            assert!(got.iter().copied().eq(&messages) && missing == 0, "{code:?} without {lost}");
        }
        let first: Vec<Datagram> = datagrams[repairs + 1..].to_vec();
        assert!(joined(&first).0.len() < 24, "{code:?}");
    }
}

#[test]
fn an_incomplete_group_gets_its_repairs_after_the_wait_and_originals_never_wait() {
    let (mut cutter, mut out) =
        (Cutter::new(100, Code::Xor { group: 3 }, Span::from_millis(20)), Vec::new());
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    cutter.message(at(5), b"one", &mut out).unwrap();
    assert_eq!((out.len(), cutter.next_wakeup()), (1, Some(at(25))));
    cutter.flush(at(24), &mut out);
    assert_eq!(out.len(), 1);
    cutter.flush(at(25), &mut out);
    assert_eq!((out.len(), cutter.next_wakeup()), (2, None));
    // The only original is lost.
    assert_eq!(joined(&out[1..]).0[0].message, b"one");
    assert!(joined(&out[1..]).0[0].restored);
    cutter.message(at(30), &vec![0; 100 * 70_000], &mut out).unwrap_err();
}

#[test]
fn after_hostile_datagrams_memory_is_bounded_and_an_honest_message_arrives() {
    let (mut joiner, mut out) = (Joiner::default(), Vec::new());
    let mut random = 1_u64;
    for step in 0..200_000_u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step);
        let len = (random >> 40) as usize % 90;
        let payload: Vec<u8> = (0..len).map(|at| (random >> (at % 56)) as u8).collect();
        joiner.take(random >> (random % 60), &payload, &mut out);
        out.clear();
    }
    // Single parts of many messages: the newest 1,024 parts are kept, with 1,064 bytes each. The
    // groups keep at most 4 MiB.
    for number in 0..5_000_u64 {
        let head = [&number.to_be_bytes()[..], &[0, 0, 255, 255]].concat();
        joiner.take(0, &[&head[..], &[0; 1_000]].concat(), &mut out);
    }
    assert!(out.is_empty() && joiner.held() <= (1_024 + 1) * 1_064 + (4 << 20));
    let whole = [&6_000_u64.to_be_bytes()[..], &[0, 0, 0, 1], b"x"].concat();
    joiner.take(0, &whole, &mut out);
    assert_eq!(out.len(), 1);
}

#[test]
fn a_code_has_1_to_64_datagrams_and_1_to_32_repairs_or_exactly_1_with_xor() {
    assert!(CodeError.to_string().contains("1 to 64 datagrams and 1 to 32 repairs"));
    assert_eq!(Code::new(false, 0, 0), Ok(Code::None));
    assert_eq!(Code::new(false, 64, 32), Ok(Code::ReedSolomon { group: 64, repairs: 32 }));
    for code in CODES {
        let (is_xor, group, repairs) = code.numbers();
        assert_eq!(Code::new(is_xor, group, repairs), Ok(code));
    }
    for (is_xor, group, repairs) in
        [(true, 0, 1), (true, 65, 1), (true, 3, 2), (true, 3, 0), (false, 65, 1), (false, 8, 33)]
    {
        assert_eq!(Code::new(is_xor, group, repairs), Err(CodeError));
    }
}

#[test]
fn a_meter_measures_rates_jitter_and_losses() {
    let mut meter = Meter::default();
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    for n in 0..200_u64 {
        // One message each 10 ms; every other message comes 4 ms late.
        let now = at(n * 10 + (n % 2) * 4);
        meter.on_bytes(now, 150);
        let bytes = Arc::from(vec![0; 100]);
        meter.on_message(now, &Message { at: n * 10_000, bytes, ..message(n, "") });
    }
    meter.on_lost(40);
    meter.set_missing(10);
    meter.on_late();
    let stats = meter.stats(at(1_994));
    assert_eq!((stats.messages, stats.lost, stats.reordered), (200, 50, 1));
    assert_eq!(stats.loss(), 0.2);
    assert_eq!(stats.bytes.get(), 20_000);
    // The messages have 20,000 bytes, and 30,000 bytes arrived, in 1.994 s. The jitter approaches
    // 4 ms.
    assert_eq!(stats.goodput.as_bps(), 80_240);
    assert_eq!(stats.throughput.as_bps(), 120_361);
    assert_eq!(stats.jitter, Span::from_micros(3_999));
    assert_eq!(meter.stats(at(9_000)).goodput.as_bps(), 0);
}

#[test]
fn the_newest_64_groups_keep_their_datagrams() {
    let (mut joiner, mut out) = (Joiner::default(), Vec::new());
    // Each datagram is one of two repairs for two originals. The joiner keeps its symbol of 2 bytes
    // with an overhead of 64.
    let mut held = |group: u64| {
        joiner.take(group << 16 | cutter::CODED | cutter::REPAIR, &[0, 2, 2, 9, 9], &mut out);
        joiner.held() / (2 + 64)
    };
    assert_eq!([held(0), held(1), held(63)], [1, 2, 3]);
    assert_eq!([held(64), held(0), held(1)], [3, 3, 3], "group 64 replaces group 0");
    assert_eq!([held(127), held(128)], [2, 2]);
}

#[test]
fn the_parts_of_at_most_1024_incomplete_messages_are_kept() {
    let (mut joiner, mut out) = (Joiner::default(), Vec::new());
    let mut held = |number: u64| {
        let head = [&number.to_be_bytes()[..], &[0, 0, 0, 2], b"x"].concat();
        joiner.take(0, &head, &mut out);
        joiner.held() / (1 + 64)
    };
    let all: Vec<usize> = (1..=1_026).map(&mut held).collect();
    assert_eq!((all[0], &all[1_022..]), (1, &[1_023, 1_024, 1_024, 1_024][..]));
}

#[test]
fn the_number_of_a_message_has_at_most_63_bits() {
    let mut joiner = Joiner::default();
    let mut arrives = |number: u64| {
        let mut out = Vec::new();
        let whole = [&number.to_be_bytes()[..], &[0, 0, 0, 1], b"x"].concat();
        joiner.take(0, &whole, &mut out);
        out.len()
    };
    assert_eq!([arrives(u64::MAX / 2), arrives(u64::MAX / 2 + 1)], [1, 0]);
}

#[test]
fn the_kept_datagrams_of_all_groups_have_at_most_4_mib() {
    let (mut joiner, mut out) = (Joiner::default(), Vec::new());
    let payload = [&[0, 2, 2][..], &[9; 100_000]].concat();
    let held: Vec<usize> = (0..60)
        .map(|group| {
            joiner.take(group << 16 | cutter::CODED | cutter::REPAIR, &payload, &mut out);
            joiner.held()
        })
        .collect();
    let one = payload.len() - cutter::REPAIR_HEAD + 64;
    let most = (4 << 20) / one;
    assert_eq!((held[most - 1], held[most], held[59]), (most * one, most * one, most * one));
}

#[test]
fn a_message_with_one_restored_part_is_restored() {
    let datagrams = cut(Code::Xor { group: 2 }, &[vec![7; 120]]);
    assert_eq!(datagrams.len(), 3);
    for lost in 0..2 {
        let kept = datagrams.iter().enumerate().filter(|(at, _)| *at != lost);
        let (out, _) = joined(&kept.map(|(_, datagram)| datagram.clone()).collect::<Vec<_>>());
        assert_eq!((out.len(), &out[0].message, out[0].restored), (1, &vec![7; 120], true));
    }
    assert!(!joined(&datagrams).0[0].restored);
}

#[test]
fn of_two_datagrams_with_one_number_only_the_later_counts_as_memory() {
    let (mut joiner, mut out) = (Joiner::default(), Vec::new());
    let mut held = |len| {
        joiner.take(5 << 16 | cutter::CODED, &vec![0; len], &mut out);
        joiner.held()
    };
    assert_eq!([held(20), held(30), held(10)], [84, 94, 74]);
}

#[test]
fn a_repeated_repair_and_a_longer_copy_of_a_part_cost_no_more_memory() {
    let (mut joiner, mut out) = (Joiner::default(), Vec::new());
    let mut held = |block: u64, payload: &[u8]| {
        joiner.take(block, payload, &mut out);
        joiner.held()
    };
    let repair = [&[0, 2, 2][..], &[9; 100]].concat();
    let place = 5 << 16 | cutter::CODED | cutter::REPAIR;
    assert_eq!([held(place, &repair), held(place, &repair)], [164, 164]);
    let part = |len| [&[0; 8][..], &[0, 0, 0, 2], &vec![7; len]].concat();
    assert_eq!([held(0, &part(1)), held(0, &part(1_000))], [164 + 65, 164 + 65]);
    held(0, &[&[0; 8][..], &[0, 1, 0, 2], b"end"].concat());
    assert_eq!((out.len(), &out[0].message), (1, &b"\x07end".to_vec()));
}

/// Two messages of one datagram each, and the XOR of both datagrams.
fn pair() -> [Datagram; 3] {
    cut(Code::Xor { group: 2 }, &[vec![1; 9], vec![2; 9]]).try_into().unwrap()
}

#[test]
fn a_restored_group_keeps_no_datagrams() {
    let (mut joiner, mut out) = (Joiner::default(), Vec::new());
    // A datagram of another group is kept all the time.
    joiner.take(5 << 16 | cutter::CODED, &[0; 20], &mut out);
    let pair = pair();
    let mut held = |datagram: &Datagram| {
        joiner.take(datagram.block, &datagram.payload, &mut out);
        joiner.held()
    };
    assert_eq!([held(&pair[1]), held(&pair[2]), held(&pair[0])], [84 + 85, 84, 84]);
    assert_eq!(out.len(), 2);
}

#[test]
fn a_datagram_beyond_its_group_does_not_hinder_the_group() {
    let (mut joiner, mut out) = (Joiner::default(), Vec::new());
    let [first, _, repair] = pair();
    joiner.take(first.block, &first.payload, &mut out);
    joiner.take(first.block + 2, b"beyond", &mut out);
    joiner.take(repair.block, &repair.payload, &mut out);
    assert_eq!((out.len(), &out[1].message, out[1].restored), (2, &vec![2; 9], true));
}

#[test]
fn a_cleared_joiner_has_forgotten_incomplete_messages_and_groups() {
    let (mut joiner, mut out) = (Joiner::default(), Vec::new());
    let halves = cut(Code::None, &[vec![7; 120]]);
    let [first, _, repair] = pair();
    joiner.take(first.block, &first.payload, &mut out);
    joiner.take(0, &halves[0].payload, &mut out);
    joiner.clear();
    assert_eq!((joiner.held(), out.len()), (0, 1));
    joiner.take(0, &halves[1].payload, &mut out);
    joiner.take(repair.block, &repair.payload, &mut out);
    assert_eq!(out.len(), 1);
}

#[test]
fn incomplete_messages_and_groups_that_get_no_datagram_expire() {
    let (mut joiner, mut out) = (Joiner::default(), Vec::new());
    // `a`, `b` and `c` are the parts of message 3. The pair's messages are 1 and 2.
    let others = cut(Code::None, &[vec![], vec![], vec![7; 220]]);
    let ([_, _, a, b, c], [first, _, repair]) = (&others[..], pair()) else { panic!("three") };
    let mut take = |joiner: &mut Joiner, datagram: &Datagram| {
        joiner.take(datagram.block, &datagram.payload, &mut out);
        out.len()
    };
    assert_eq!([take(&mut joiner, a), take(&mut joiner, &first)], [0, 1]);
    let held = joiner.held();
    joiner.expire();
    assert_eq!(joiner.held(), held, "both were fresh");
    take(&mut joiner, b);
    joiner.expire();
    assert_eq!(joiner.held(), 2 * (82 + 64), "only the message has got a datagram");
    joiner.expire();
    assert_eq!(joiner.held(), 0);
    assert_eq!([take(&mut joiner, c), take(&mut joiner, &repair)], [1, 1]);
}

#[test]
fn a_new_code_and_wait_apply_from_the_next_group_on() {
    let wait = Span::from_millis;
    let (mut cutter, mut out) = (Cutter::new(100, Code::Xor { group: 2 }, wait(20)), Vec::new());
    let mut next = |cutter: &mut Cutter| {
        out.clear();
        cutter.message(Time::ZERO, b"x", &mut out).unwrap();
        (out.len(), cutter.next_wakeup())
    };
    let due = |millis| Some(Time::ZERO + wait(millis));
    assert_eq!(next(&mut cutter), (1, due(20)));
    cutter.follow(Code::ReedSolomon { group: 2, repairs: 3 }, wait(5));
    assert_eq!([next(&mut cutter), next(&mut cutter)], [(2, None), (1, due(5))]);
    assert_eq!(next(&mut cutter), (1 + 3, None));
    assert_eq!(cutter.count(), 4, "repairs do not count");
    assert!(alloc::format!("{cutter:?}").contains("repairs: 3"));
}

#[test]
fn a_subscriber_that_continues_too_late_learns_how_many_messages_it_lost() {
    let mut log = Log::new(limits(4, 10));
    (1..=10).for_each(|number| log.push(message(number, "")));
    let mut late = Cursor::at(2, Mode::Reliable, Prefix::ALL, 0);
    assert_eq!(take(&mut late, &log), [-4, 7, 8, 9, 10]);
}

#[test]
fn a_mode_says_whether_it_uses_datagrams_and_has_a_deadline() {
    let deadline = Span::from_millis(30);
    for (mode, is_datagrams, deadline) in [
        (Mode::Reliable, false, None),
        (Mode::Latest, false, None),
        (Mode::Datagram, true, None),
        (Mode::Deadline(deadline), true, Some(deadline)),
        (Mode::Multicast, false, None),
    ] {
        assert_eq!((mode.is_datagrams(), mode.deadline()), (is_datagrams, deadline), "{mode:?}");
    }
}

#[test]
fn the_kept_datagrams_may_have_exactly_4_mib() {
    let (mut joiner, mut out) = (Joiner::default(), Vec::new());
    for group in 0..64 {
        joiner.take(group << 16 | cutter::CODED, &[0; (64 << 10) - 64], &mut out);
    }
    assert_eq!(joiner.held(), 4 << 20);
}

#[test]
fn a_repair_that_contradicts_the_first_one_is_not_kept() {
    let (mut joiner, mut out) = (Joiner::default(), Vec::new());
    let mut held = |number: u64, payload: &[u8]| {
        joiner.take(5 << 16 | cutter::CODED | cutter::REPAIR | number, payload, &mut out);
        joiner.held() / (2 + 64)
    };
    // Reed-Solomon, 8 originals, 2 repairs.
    assert_eq!(held(0, &[0, 8, 2, 9, 9]), 1);
    for other in [[1, 8, 2, 9, 9], [0, 7, 2, 9, 9], [0, 8, 3, 9, 9]] {
        assert_eq!(held(1, &other), 1, "{other:?}");
    }
    assert_eq!([held(2, &[0, 8, 2, 9, 9]), held(1, &[0, 8, 2, 9, 9])], [1, 2]);
}
