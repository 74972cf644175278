//! The caller and the callee of remote procedure calls, message by message.

use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::callee::{MAX_NAME, UNREAD};
use super::*;
use crate::time::{Span, Time};

const ROOM: Room = Room { calls: true, streams: true };

fn request(body: &[u8]) -> Request {
    Request { method: "echo".to_string(), body: body.to_vec(), within: None, items: false }
}

fn stream() -> Request {
    Request { items: true, ..request(b"") }
}

fn call(id: u64) -> Call {
    let (method, body) = ("echo".to_string(), vec![1]);
    Call { id, method, body, within: 0, items: false, again: false }
}

/// A client and an echo server, with a path between them in virtual time.
struct Pair {
    now: Time,
    one_way: Span,
    caller: Caller,
    callee: Callee,
    up: VecDeque<(Time, Message)>,
    down: VecDeque<(Time, Message)>,
    ran: Vec<u64>,
    answers: Vec<(u64, Answer)>,
}

impl Pair {
    fn new(one_way: Span) -> Pair {
        Pair {
            now: Time::ZERO,
            one_way,
            caller: Caller::new(1),
            callee: Callee::new(true, false),
            up: VecDeque::new(),
            down: VecDeque::new(),
            ran: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn send(&mut self) {
        let at = self.now + self.one_way;
        while let Some(message) = self.caller.poll(self.now) {
            self.up.push_back((at, message));
        }
        while let Some(message) = self.callee.poll() {
            self.down.push_back((at, message));
        }
    }

    /// Delivers the next messages; returns whether there were any.
    fn step(&mut self) -> bool {
        self.send();
        let first = |queue: &VecDeque<(Time, Message)>| queue.front().map(|(at, _)| *at);
        let Some(next) = first(&self.up).into_iter().chain(first(&self.down)).min() else {
            return false;
        };
        self.now = next;
        while let Some((_, message)) = self.up.pop_front_if(|(at, _)| *at <= next) {
            if let Some(Order::Run(call)) = self.callee.on_message(message, ROOM).expect("honest") {
                self.ran.push(call.id);
                self.callee.answer(call.id, Ok(call.body));
            }
        }
        while let Some((_, message)) = self.down.pop_front_if(|(at, _)| *at <= next) {
            if let Some(Event::Answered(id, answer)) =
                self.caller.on_message(message).expect("honest")
            {
                self.answers.push((id, answer));
            }
        }
        true
    }

    fn lose(&mut self) {
        self.send();
        self.up.clear();
        self.down.clear();
        self.caller.lost();
        self.callee.lost();
    }
}

#[test]
fn a_hundred_calls_take_one_round_trip() {
    let mut pair = Pair::new(Span::from_millis(150));
    for number in 0..100 {
        pair.caller.call(request(&[number]), pair.now).expect("there is room");
    }
    while pair.answers.len() < 100 {
        assert!(pair.step(), "all calls are answered");
    }
    assert_eq!(pair.now, Time::ZERO + Span::from_millis(300));
    let bodies: Vec<_> = pair.answers.iter().map(|(_, answer)| answer.clone()).collect();
    assert_eq!(bodies, (0..100).map(|number| Ok(vec![number])).collect::<Vec<_>>());
    assert!(!pair.caller.is_busy());
}

#[test]
fn a_call_whose_answer_was_lost_is_made_once_and_gets_the_first_answer() {
    let mut pair = Pair::new(Span::from_millis(50));
    pair.caller.call(request(b"x"), pair.now).expect("there is room");
    assert!(pair.step());
    pair.lose();
    // A second call is lost on its way to the callee.
    pair.caller.call(request(b"y"), pair.now).expect("there is room");
    pair.lose();
    while pair.step() {}
    assert_eq!(pair.ran, [1, 3]);
    assert_eq!(pair.answers, [(1, Ok(b"x".to_vec())), (3, Ok(b"y".to_vec()))]);
}

#[test]
fn a_running_call_is_answered_on_the_next_connection() {
    let mut callee = Callee::new(true, false);
    assert!(matches!(callee.on_message(Message::Call(call(1)), ROOM), Ok(Some(Order::Run(_)))));
    assert_eq!(callee.lost(), []);
    let again = Call { again: true, ..call(1) };
    assert_eq!(callee.on_message(Message::Call(again), ROOM), Ok(None));
    callee.answer(1, Ok(vec![7]));
    assert_eq!(callee.poll(), Some(Message::Answer(1, Ok(vec![7]))));
}

#[test]
fn a_call_whose_answer_is_forgotten_fails_and_is_not_made_again() {
    let again = |id| Message::Call(Call { again: true, ..call(id) });
    let unknown =
        |message| matches!(message, Some(Message::Answer(_, Err(f))) if f.code == RpcCode::Unknown);
    // The server has restarted, so it knows no earlier call.
    let mut callee = Callee::new(true, true);
    assert_eq!(callee.on_message(again(1), ROOM), Ok(None));
    assert!(unknown(callee.poll()));
    assert!(matches!(callee.on_message(Message::Call(call(3)), ROOM), Ok(Some(Order::Run(_)))));
    // The client confirms the answer, and then repeats the call.
    callee.answer(3, Ok(Vec::new()));
    callee.on_message(Message::Have(vec![3]), ROOM).expect("honest");
    callee.lost();
    assert_eq!(callee.on_message(again(3), ROOM), Ok(None));
    assert!(unknown(callee.poll()));
}

#[test]
fn kept_answers_have_limits_and_the_oldest_are_discarded_first() {
    for (body, most) in [(Vec::new(), KEPT.0), (vec![0; MAX_BODY], KEPT.1 / MAX_BODY)] {
        let mut callee = Callee::new(true, false);
        let ids = (0..2 * KEPT.0 as u64).map(|n| 2 * n + 1);
        for id in ids.clone() {
            callee.on_message(Message::Call(call(id)), ROOM).expect("honest");
            callee.answer(id, Ok(body.clone()));
            callee.poll().expect("an answer");
        }
        let last: Vec<u64> = ids.skip(2 * KEPT.0 - most).collect();
        assert_eq!(callee.kept(), last);
    }
}

#[test]
fn a_flood_of_calls_is_refused_and_a_caller_that_does_not_read_loses_its_connection() {
    let mut callee = Callee::new(true, false);
    let mut next = (0..).map(|n| Message::Call(call(2 * n + 1)));
    let mut deliver = |callee: &mut Callee| callee.on_message(next.next().expect("endless"), ROOM);
    // Above the limit of running calls, each further call gets an error as its answer. The client
    // may leave UNREAD answers unread.
    for _ in 0..CALLS {
        assert!(matches!(deliver(&mut callee), Ok(Some(Order::Run(_)))));
    }
    for _ in 0..UNREAD {
        assert_eq!(deliver(&mut callee), Ok(None));
    }
    assert!(matches!(deliver(&mut callee), Err(Lie(_))));
    assert_eq!(callee.running(), (CALLS, 0));
    let busy = callee.poll();
    assert!(matches!(busy, Some(Message::Answer(_, Err(f))) if f.code == RpcCode::Busy));
    // The calls on the client's other connections have already reached the limit.
    let mut callee = Callee::new(true, false);
    let full = Room { calls: false, streams: false };
    assert_eq!(callee.on_message(Message::Call(call(1)), full), Ok(None));
}

#[test]
fn an_honest_caller_keeps_to_the_limits_of_unanswered_calls() {
    let mut caller = Caller::new(1);
    for _ in 0..CALLS + 1 {
        caller.call(request(b""), Time::ZERO).expect("it waits");
    }
    let sent = core::iter::from_fn(|| caller.poll(Time::ZERO)).count();
    assert_eq!(sent, CALLS);
    caller.on_message(Message::Answer(1, Ok(vec![]))).expect("honest");
    assert_eq!(caller.poll(Time::ZERO), Some(Message::Have(vec![1])));
    assert!(matches!(caller.poll(Time::ZERO), Some(Message::Call(_))));
    for _ in 0..STREAMS {
        caller.call(stream(), Time::ZERO).expect("there is room");
    }
    assert_eq!(caller.call(stream(), Time::ZERO).unwrap_err().code, RpcCode::Busy);
}

#[test]
fn a_cancelled_call_stops_its_method_and_its_late_answer_is_ignored() {
    let (mut caller, mut callee) = (Caller::new(1), Callee::new(true, false));
    let id = caller.call(request(b""), Time::ZERO).expect("there is room");
    callee.on_message(caller.poll(Time::ZERO).expect("a call"), ROOM).expect("honest");
    caller.cancel(id);
    assert_eq!(caller.on_message(Message::Answer(id, Ok(Vec::new()))), Ok(None));
    assert!(caller.is_busy(), "the cancellation waits to be sent");
    let cancel = caller.poll(Time::ZERO).expect("the cancellation");
    assert_eq!(callee.on_message(cancel, ROOM), Ok(Some(Order::Stop(id))));
    callee.answer(id, Ok(Vec::new()));
    assert_eq!((callee.poll(), callee.running()), (None, (0, 0)));
    let id = caller.call(stream(), Time::ZERO).expect("there is room");
    caller.item(id, vec![1]).expect("short");
    caller.cancel(id);
    assert_eq!((caller.poll(Time::ZERO), caller.is_busy()), (None, false));
}

#[test]
fn a_call_ends_at_its_deadline_and_the_callee_knows_the_time_that_is_left() {
    let (mut caller, at) = (Caller::new(1), |millis| Time::ZERO + Span::from_millis(millis));
    caller.call(request(b""), Time::ZERO).expect("there is room");
    assert!(matches!(caller.poll(Time::ZERO), Some(Message::Call(call)) if call.within == 0));
    assert_eq!(caller.deadline(), None, "this call has no limit");
    let limited = Request { within: Some(Span::from_millis(500)), ..request(b"") };
    let id = caller.call(limited, Time::ZERO).expect("there is room");
    let sent = caller.poll(at(200));
    assert!(matches!(sent, Some(Message::Call(call)) if call.within == 300));
    assert_eq!(caller.deadline(), Some(at(500)));
    assert_eq!(caller.expire(Time::from_nanos(499_999_999)), []);
    assert_eq!(caller.expire(at(500)), [id]);
    assert_eq!(caller.poll(at(500)), Some(Message::Cancel(id)));
    assert_eq!(caller.deadline(), None);
}

#[test]
fn items_wait_for_their_reader() {
    let (mut caller, mut callee) = (Caller::new(1), Callee::new(true, false));
    let id = caller.call(stream(), Time::ZERO).expect("there is room");
    for _ in 0..2 * CREDIT {
        caller.item(id, vec![1]).expect("short");
    }
    let sent: Vec<_> = core::iter::from_fn(|| caller.poll(Time::ZERO)).collect();
    assert_eq!(sent.len(), 1 + CREDIT as usize, "the caller sends no more than is allowed");
    for message in sent {
        callee.on_message(message, ROOM).expect("honest");
    }
    assert!(callee.on_message(Message::Item(id, vec![]), ROOM).is_err(), "one more than allowed");
    for _ in 0..CREDIT / 2 {
        callee.read(id);
    }
    let credit = callee.poll().expect("it is announced every few items");
    assert_eq!(credit, Message::Credit(id, CREDIT / 2));
    assert_eq!(caller.on_message(credit), Ok(Some(Event::Credit(id, CREDIT / 2))));
    assert!(caller.on_message(Message::Credit(id, CREDIT)).is_err(), "more than was sent");
    assert_eq!(callee.lost(), [id]);
    assert_eq!(caller.lost(), [id]);
}

#[test]
fn impossible_messages_end_the_connection() {
    let mut callee = Callee::new(true, false);
    callee.on_message(Message::Call(call(5)), ROOM).expect("honest");
    for lie in [
        Message::Call(call(5)),
        Message::Call(call(3)),
        Message::Call(call(8)),
        Message::Call(Call { method: "x".repeat(MAX_NAME + 1), ..call(7) }),
        Message::Call(Call { body: vec![0; MAX_BODY + 1], ..call(7) }),
        Message::Item(5, vec![]),
        Message::Item(7, vec![]),
        Message::Item(5, vec![0; MAX_BODY + 1]),
        Message::Finish(6),
        Message::Cancel(9),
        Message::Credit(5, 1),
        Message::Have(vec![5, 7]),
        Message::Answer(5, Ok(vec![])),
    ] {
        let shown = alloc::format!("{lie:?}");
        assert!(callee.on_message(lie, ROOM).is_err(), "{shown}");
    }
    let mut caller = Caller::new(1);
    caller.call(request(b""), Time::ZERO).expect("there is room");
    for lie in [
        Message::Answer(3, Ok(vec![])),
        Message::Item(1, vec![]),
        Message::Credit(1, 1),
        Message::Cancel(1),
        Message::Call(call(1)),
    ] {
        let shown = alloc::format!("{lie:?}");
        assert!(caller.on_message(lie).is_err(), "{shown}");
    }
    let long = caller.call(request(&[0; MAX_BODY + 1]), Time::ZERO);
    assert_eq!(long.unwrap_err().code, RpcCode::TooLong);
    callee.answer(5, Ok(vec![0; MAX_BODY + 1]));
    assert!(
        matches!(callee.poll(), Some(Message::Answer(5, Err(f))) if f.code == RpcCode::TooLong)
    );
}

#[test]
fn each_code_is_known_by_its_number_and_unknown_numbers_mean_failed() {
    assert_eq!(RpcError::new(RpcCode::Busy, "no room").to_string(), "no room");
    let all = RpcCode::ALL.into_iter().chain([RpcCode::Custom(0), RpcCode::Custom(u16::MAX)]);
    for code in all {
        assert_eq!(RpcCode::of_number(code.number()), code);
    }
    for newer in [0, 11, (1 << 16) - 1, 1 << 17, u32::MAX] {
        assert_eq!(RpcCode::of_number(newer), RpcCode::Failed, "{newer}");
    }
}

#[test]
fn the_end_of_the_items_follows_the_call_and_its_items() {
    let mut caller = Caller::new(1);
    let id = caller.call(stream(), Time::ZERO).expect("there is room");
    caller.item(id, vec![1]).expect("short");
    caller.finish(id);
    caller.finish(id + 2);
    let sent: Vec<_> = core::iter::from_fn(|| caller.poll(Time::ZERO)).collect();
    assert!(matches!(sent[0], Message::Call(_)));
    assert_eq!(sent[1..], [Message::Item(id, vec![1]), Message::Finish(id)]);
}

#[test]
fn items_of_a_call_that_was_sent_do_not_wait() {
    let mut caller = Caller::new(1);
    let id = caller.call(stream(), Time::ZERO).expect("there is room");
    assert!(matches!(caller.poll(Time::ZERO), Some(Message::Call(_))));
    caller.item(id, vec![1]).expect("short");
    assert_eq!(caller.poll(Time::ZERO), Some(Message::Item(id, vec![1])));
    assert_eq!(caller.poll(Time::ZERO), None);
}

#[test]
fn an_answered_call_is_not_sent_again_on_the_next_connection() {
    let mut caller = Caller::new(1);
    for _ in 0..2 {
        caller.call(request(b"x"), Time::ZERO).expect("there is room");
        assert!(matches!(caller.poll(Time::ZERO), Some(Message::Call(_))));
    }
    caller.lost();
    let answer = Message::Answer(1, Ok(vec![1]));
    assert!(matches!(caller.on_message(answer), Ok(Some(Event::Answered(1, _)))));
    assert_eq!(caller.poll(Time::ZERO), Some(Message::Have(vec![1])));
    let Some(Message::Call(call)) = caller.poll(Time::ZERO) else { panic!("call 3 waits") };
    assert_eq!((call.id, call.again, caller.poll(Time::ZERO)), (3, true, None));
}

/// A caller and its callee, after these calls have arrived.
fn called(requests: &[Request]) -> (Caller, Callee) {
    let (mut caller, mut callee) = (Caller::new(1), Callee::new(true, false));
    for request in requests {
        caller.call(request.clone(), Time::ZERO).expect("there is room");
        let call = caller.poll(Time::ZERO).expect("a call");
        assert!(matches!(callee.on_message(call, ROOM), Ok(Some(Order::Run(_)))));
    }
    (caller, callee)
}

#[test]
fn items_of_a_method_wait_for_their_reader() {
    let (mut caller, mut callee) = called(&[stream()]);
    for _ in 0..CREDIT + 1 {
        callee.item(1, vec![1]).expect("short");
    }
    assert_eq!(callee.item(1, vec![0; MAX_BODY + 1]).unwrap_err().code, RpcCode::TooLong);
    let sent: Vec<_> = core::iter::from_fn(|| callee.poll()).collect();
    assert_eq!(sent, vec![Message::Item(1, vec![1]); CREDIT as usize]);
    for message in sent {
        assert_eq!(caller.on_message(message), Ok(Some(Event::Item(1, vec![1]))));
    }
    (0..3).for_each(|_| caller.read(1));
    assert_eq!(caller.poll(Time::ZERO), None);
    caller.read(1);
    let credit = caller.poll(Time::ZERO).expect("half of the items were read");
    assert_eq!(credit, Message::Credit(1, 4));
    assert_eq!(callee.on_message(credit, ROOM), Ok(Some(Order::Credit(1, 4))));
    for _ in 0..5 {
        callee.item(1, vec![2]).expect("short");
    }
    for _ in 0..4 {
        let item = callee.poll().expect("the credit allows it");
        assert_eq!(caller.on_message(item), Ok(Some(Event::Item(1, vec![2]))));
    }
    assert_eq!(callee.poll(), None);
    assert!(caller.on_message(Message::Item(1, vec![])).is_err(), "one more than allowed");
}

#[test]
fn unsent_credits_of_one_call_become_one_message() {
    let (_, mut callee) = called(&[stream(), stream()]);
    for id in [1, 3] {
        for _ in 0..CREDIT {
            callee.on_message(Message::Item(id, vec![]), ROOM).expect("honest");
        }
    }
    for id in [1, 3, 1] {
        (0..4).for_each(|_| callee.read(id));
    }
    assert_eq!(
        [callee.poll(), callee.poll()],
        [(1, 8), (3, 4)].map(|(id, more)| Some(Message::Credit(id, more)))
    );
    assert!(!callee.is_busy());
}

#[test]
fn an_item_may_have_the_longest_length_and_a_longer_item_is_refused() {
    let (_, mut callee) = called(&[stream()]);
    let longest = Message::Item(1, vec![0; MAX_BODY]);
    assert!(matches!(callee.on_message(longest, ROOM), Ok(Some(Order::Item(1, _)))));
    assert!(callee.on_message(Message::Item(1, vec![0; MAX_BODY + 1]), ROOM).is_err());
}

#[test]
fn running_methods_and_those_with_items_are_counted() {
    let (mut caller, mut callee) = called(&[stream(), request(b""), stream()]);
    assert_eq!((callee.running(), callee.is_busy(), caller.is_busy()), ((3, 2), false, true));
    callee.answer(1, Ok(vec![]));
    assert_eq!((callee.running(), callee.is_busy()), ((2, 1), true));
    callee.answer(3, Ok(vec![]));
    assert_eq!(callee.running(), (1, 1));
    assert_eq!(callee.lost(), [5]);
    assert_eq!(callee.running(), (0, 0));
    caller.cancel(1);
    caller.cancel(3);
    assert_eq!(caller.lost(), [5]);
    assert!(!caller.is_busy());
}

#[test]
fn a_call_may_have_the_longest_name_and_the_longest_request() {
    let mut callee = Callee::new(true, false);
    let longest = Call { method: "x".repeat(MAX_NAME), body: vec![0; MAX_BODY], ..call(1) };
    assert!(matches!(callee.on_message(Message::Call(longest), ROOM), Ok(Some(Order::Run(_)))));
    assert!(Caller::new(1).call(request(&[0; MAX_BODY]), Time::ZERO).is_ok());
    callee.answer(1, Ok(vec![0; MAX_BODY]));
    assert!(matches!(callee.poll(), Some(Message::Answer(1, Ok(_)))));
}
