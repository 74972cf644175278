//! Frames without repair symbols: the receiver requests lost symbols, and the sender sends them
//! again.

use alloc::vec;

use super::*;

/// Returns a sender that keeps its frames, and the `count` symbols of its first frame.
fn kept(count: u32) -> (Sender, Vec<Head>) {
    let deadline = Span::from_millis(300);
    let rate = Rate::from_mbps(1_000);
    let mut sender = Sender::new(Settings { keeps: true, rate, deadline, ..settings() });
    sender.offer(at(0), count * u32::from(SYMBOL)).expect("there is room");
    let mut all = Vec::new();
    while sender.sends(0) {
        let now = sender.next_wakeup().expect("it sends");
        all.extend(sent(&mut sender, now));
    }
    (sender, all)
}

fn patient() -> Receiver {
    Receiver::new(SYMBOL, Span::from_millis(300), PATH, 64 << 20).paced(Span::from_millis(50))
}

fn request(frame: u32, ranges: &[(u16, u16)]) -> Request {
    Request { frame, ranges: ranges.to_vec() }
}

/// The numbers of the symbols that are sent in the 10 ms after `from` (in ms).
fn indices(sender: &mut Sender, from: u64) -> Vec<u16> {
    let heads = (from..from + 10).flat_map(|millis| sent(sender, at(millis)));
    heads.map(|head| head.index).collect()
}

#[test]
fn requested_symbols_do_not_change_how_many_frames_may_wait() {
    let (mut sender, _) = kept(64);
    let now = sender.next_wakeup().expect("it keeps a frame");
    sender.again(now, &request(0, &[(0, 20)]), 1);
    // `settings` let two frames wait behind the frame that is sent next.
    let offered: Vec<_> = (0..4).map(|_| sender.offer(now, 1)).collect();
    assert_eq!(offered, [Ok(1), Ok(2), Ok(3), Err(Full)]);
}

#[test]
fn lost_symbols_are_requested_after_the_frames_last_symbol_and_again_after_a_round_trip() {
    let (mut sender, all) = kept(8);
    assert!(all.iter().all(|head| head.repairs == 0) && all.len() == 8, "{all:?}");
    let mut receiver = patient();
    for head in all.iter().filter(|head| ![2, 3, 5].contains(&head.index)) {
        assert_eq!(receiver.poll_request(at(50)), None);
        assert_eq!(receiver.on_symbol(at(50), head), Placed::Keep);
    }
    // Reordered symbols have 2 ms to arrive.
    assert_eq!(
        (receiver.poll_request(at(51)), receiver.next_request(at(51))),
        (None, Some(at(52)))
    );
    let asked = request(0, &[(2, 3), (5, 5)]);
    assert_eq!(receiver.poll_request(at(52)), Some(asked.clone()));
    assert_eq!((receiver.poll_request(at(52)), receiver.is_requested(0)), (None, true));
    sender.again(at(60), &asked, 1);
    assert_eq!((indices(&mut sender, 60), sender.resent()), (vec![2, 3, 5], 3));
    for index in [2, 3] {
        receiver.on_symbol(at(110), &Head { index, ..all[0] });
    }
    // Symbol 5 is lost again: the next request follows a round trip and 10 ms after the previous
    // request.
    assert_eq!(receiver.poll_request(at(161)), None);
    assert_eq!(receiver.poll_request(at(162)), Some(request(0, &[(5, 5)])));
    receiver.on_symbol(at(262), &all[5]);
    assert!(matches!(receiver.poll(at(262)), Some(Delivery::Frame { frame: 0, .. })));
    assert_eq!(receiver.next_request(at(262)), None);
}

#[test]
fn if_a_frame_continues_after_a_stall_only_its_lost_symbols_are_requested_again() {
    let (_, all) = kept(64);
    let mut receiver = patient();
    let (before, after) = all.split_at(10);
    for head in before {
        receiver.on_symbol(at(50), head);
    }
    assert_eq!(receiver.poll_request(at(60)), Some(request(0, &[(10, 63)])));
    // Now the sender continues; it ignores requests for a frame that it is still sending.
    for head in after.iter().filter(|head| head.index != 20) {
        assert_eq!(receiver.on_symbol(at(65), head), Placed::Keep);
        assert_eq!(receiver.poll_request(at(65)), None);
    }
    assert_eq!(receiver.next_request(at(65)), Some(at(67)));
    assert_eq!(receiver.poll_request(at(67)), Some(request(0, &[(20, 20)])));
}

#[test]
fn the_end_of_a_frame_is_requested_after_the_longest_gap_between_two_of_its_symbols() {
    let mut receiver = patient();
    let head = Head { repairs: 0, ..symbol(0, 0, 0) };
    receiver.on_symbol(at(50), &head);
    // Frames come every 50 ms, so the two symbols of a frame are at most 25 ms apart.
    assert_eq!(receiver.next_request(at(50)), Some(at(75)));
    // The first symbol of frame 1 also shows that the second symbol of frame 0 is lost.
    receiver.on_symbol(at(60), &Head { frame: 1, at: 10_000, ..head });
    assert_eq!(receiver.next_request(at(60)), Some(at(62)));
    assert_eq!(receiver.poll_request(at(62)), Some(request(0, &[(1, 1)])));
}

#[test]
fn a_frame_of_which_nothing_arrived_is_requested_when_a_later_one_arrives() {
    let mut receiver = Receiver::new(SYMBOL, Span::from_secs(1), PATH, 64 << 20);
    receiver = receiver.paced(Span::from_millis(50));
    // The sender did not send frame 2.
    for index in 0..2 {
        receiver.on_symbol(at(200), &Head { skipped: 1, repairs: 0, ..symbol(3, index, 150) });
    }
    let all = [(0, u16::MAX)];
    assert_eq!(receiver.next_request(at(200)), Some(at(202)));
    for frame in [0, 1] {
        assert_eq!(receiver.poll_request(at(202)), Some(request(frame, &all)));
    }
    assert_eq!(receiver.poll_request(at(202)), None);
    receiver.on_symbol(at(302), &Head { repairs: 0, ..symbol(1, 0, 50) });
    assert!(receiver.is_requested(1));
    assert_eq!(receiver.poll_request(at(311)), None);
    assert_eq!(receiver.poll_request(at(312)), Some(request(0, &all)));
    assert_eq!(receiver.poll_request(at(312)), Some(request(1, &[(1, 1)])));
    // Frame 0 is due at 1,000 ms, frame 1 at 1,050. Repeated symbols arrive after a round trip of
    // 100 ms, too late for frame 0.
    assert_eq!(receiver.poll_request(at(901)), Some(request(1, &[(1, 1)])));
    assert_eq!((receiver.poll_request(at(901)), receiver.next_request(at(951))), (None, None));
}

#[test]
fn coded_frames_are_never_requested() {
    let mut receiver = patient();
    receiver.on_symbol(at(50), &symbol(2, 0, 0));
    assert_eq!((receiver.poll_request(at(90)), receiver.next_request(at(90))), (None, None));
}

#[test]
fn a_frame_is_neither_requested_nor_kept_when_no_answer_could_be_in_time() {
    let (mut sender, all) = kept(2);
    let mut receiver = patient();
    receiver.on_symbol(at(50), &all[0]);
    // The deadline is at 300 ms, and an answer takes 100 ms.
    assert_eq!((receiver.poll_request(at(201)), receiver.next_request(at(201))), (None, None));
    assert_eq!(receiver.poll_request(at(200)), Some(request(0, &[(1, 1)])));
    // A symbol that leaves at 250 ms arrives at the deadline.
    assert_eq!(sender.next_wakeup(), Some(at(250) + Span::from_nanos(1)));
    sender.again(at(240), &request(0, &[(0, 0)]), 1);
    assert_eq!(indices(&mut sender, 241), [0]);
    sender.again(at(251), &request(0, &[(1, 1)]), 1);
    assert!(sent(&mut sender, at(251)).is_empty());
    assert!(!sender.holds(0) && sender.next_wakeup().is_none());
}

#[test]
fn a_request_for_an_unknown_or_unfinished_frame_is_ignored() {
    let (mut sender, _) = kept(8);
    for frame in [1, u32::MAX] {
        sender.again(at(60), &request(frame, &[(0, u16::MAX)]), 1);
    }
    assert!(sent(&mut sender, at(60)).is_empty());
    sender.again(at(60), &request(0, &[(8, 9), (100, u16::MAX)]), 1);
    assert!(sent(&mut sender, at(60)).is_empty());
    sender.offer(at(60), 1_000 * u32::from(SYMBOL)).expect("there is room");
    assert!(!sent(&mut sender, at(60)).is_empty() && sender.sends(1));
    sender.again(at(60), &request(1, &[(0, 0)]), 1);
    assert!((61..65).flat_map(|ms| sent(&mut sender, at(ms))).all(|head| head.index > 0));
}

#[test]
fn a_symbol_that_several_receivers_lack_is_resent_at_most_once_in_a_round_trip() {
    let (mut sender, _) = kept(8);
    sender.again(at(60), &request(0, &[(1, 2)]), 1);
    sender.again(at(60), &request(0, &[(2, 3)]), 2);
    assert_eq!(indices(&mut sender, 60), [1, 2, 3]);
    sender.again(at(159), &request(0, &[(2, 3)]), 3);
    assert!(sent(&mut sender, at(159)).is_empty());
    sender.again(at(160), &request(0, &[(2, 3)]), 3);
    assert_eq!(indices(&mut sender, 160), [2, 3]);
}

#[test]
fn a_receiver_may_request_a_quarter_of_a_frame_plus_16_symbols_and_leaves_others_their_share() {
    // A receiver may request 100 / 4 + 16 = 41 symbols; 42 are refused.
    let (mut sender, all) = kept(100);
    assert_eq!(all.len(), 100);
    sender.again(at(60), &request(0, &[(0, 41)]), 1);
    assert!(indices(&mut sender, 60).is_empty());
    // A symbol counts as often as the ranges name it.
    sender.again(at(60), &request(0, &[(0, 20), (0, 20)]), 1);
    assert!(indices(&mut sender, 60).is_empty());
    sender.again(at(60), &request(0, &[(0, 40)]), 1);
    assert_eq!(indices(&mut sender, 60).len(), 41);
    sender.again(at(70), &request(0, &[(99, 99)]), 1);
    assert!(indices(&mut sender, 70).is_empty());
    for receiver in 2..10 {
        sender.again(at(70), &request(0, &[(59, 99)]), receiver);
        sender.again(at(70), &request(0, &[(41, 58)]), receiver);
    }
    assert_eq!(indices(&mut sender, 70).len(), 41 + 18);
    // All receivers together get at most four times this share: 164 symbols. 100 were sent again
    // before, so the first two ranges fit (159), and the third range with 41 more does not.
    for receiver in 10..100 {
        sender.again(at(171), &request(0, &[(0, 40)]), receiver);
        sender.again(at(171), &request(0, &[(41, 58)]), receiver);
        sender.again(at(171), &request(0, &[(59, 99)]), receiver);
    }
    assert_eq!((indices(&mut sender, 171).len(), sender.resent()), (41 + 18, 159));
}

#[test]
fn kept_frames_take_at_most_64_mib_of_memory() {
    let deadline = Span::from_secs(60);
    let rate = Rate::from_mbps(1_000_000);
    let mut sender = Sender::new(Settings { keeps: true, rate, deadline, ..settings() });
    for frame in 0..10 {
        sender.offer(at(0), MAX_FRAME).expect("there is room");
        while sender.sends(frame) {
            let now = sender.next_wakeup().expect("it sends");
            sent(&mut sender, now);
        }
    }
    let held: Vec<u32> = (0..10).filter(|frame| sender.holds(*frame)).collect();
    assert_eq!(held, [6, 7, 8, 9]);
    sender.give_up();
    assert!(!(0..10).any(|frame| sender.holds(frame)));
}

#[test]
fn the_newest_64_mib_of_sent_frames_are_kept() {
    let mut kept = super::super::kept::Kept::default();
    let mut keep = |frame, length| {
        let head = Head { length, ..symbol(frame, 0, 0) };
        kept.keep(head, symbol(0, 0, 0).shape(SYMBOL).expect("a shape"), at(100));
        (0..5).filter(|frame| kept.holds(*frame)).collect::<Vec<u32>>()
    };
    assert_eq!(keep(0, 32 << 20), [0]);
    assert_eq!(keep(1, 32 << 20), [0, 1]);
    assert_eq!(keep(2, 1), [1, 2]);
    assert_eq!(keep(3, 32 << 20), [2, 3]);
    assert_eq!(keep(4, 32 << 20), [3, 4]);
}

#[test]
fn a_late_symbol_of_an_older_frame_moves_the_frames_request_to_2_ms_after_the_symbol() {
    let mut receiver = patient();
    let head = |frame, index| Head {
        repairs: 0,
        length: 10 * u32::from(SYMBOL),
        ..symbol(frame, index, 0)
    };
    receiver.on_symbol(at(50), &head(0, 0));
    assert_eq!(receiver.next_request(at(50)), Some(at(60)));
    receiver.on_symbol(at(51), &head(1, 0));
    assert_eq!(receiver.next_request(at(51)), Some(at(53)));
    receiver.on_symbol(at(52), &head(0, 1));
    assert_eq!(receiver.next_request(at(52)), Some(at(54)));
    receiver.on_symbol(at(53), &head(0, 9));
    assert_eq!(receiver.next_request(at(53)), Some(at(55)));
}
