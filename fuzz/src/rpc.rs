//! Messages between the ends of remote procedure calls.

use longhaul_proto::rpc::{
    CALLS, Callee, Caller, Event, KEPT, MAX_BODY, Message, Order, Request, Room, STREAMS,
};
use longhaul_proto::time::Time;
use longhaul_rpc::convert;
use longhaul_rpc::messages::Say;
use prost::Message as _;

use super::input::Input;

const ROOM: Room = Room { calls: true, streams: true };

/// Checks that accepted messages are within limits, and that each call of this end is answered at
/// most once.
pub fn run(bytes: &[u8]) {
    let (mut caller, mut callee) = (Caller::new(2), Callee::new(true, false));
    let mut open = Vec::new();
    for items in [false, true, false] {
        let request = Request { method: "m".to_owned(), body: Vec::new(), within: None, items };
        open.push(caller.call(request, Time::ZERO).expect("there is room"));
    }
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        let message = input.slice();
        let Ok(Ok(Some(message))) = Say::decode(message).map(convert::message) else {
            continue;
        };
        let again = convert::message(convert::say(message.clone())).expect("it is honest");
        if !matches!(message, Message::Answer(..)) {
            assert_eq!(again, Some(message.clone()));
        }
        if let Ok(Some(Event::Answered(id, _))) = caller.on_message(message.clone()) {
            let place = open.iter().position(|open| *open == id);
            open.remove(place.expect("a call has one answer"));
        }
        match callee.on_message(message, ROOM) {
            Ok(Some(Order::Run(call))) => {
                assert!(call.body.len() <= MAX_BODY);
                match input.byte() % 4 {
                    0 => {}
                    1 => callee.read(call.id),
                    2 => drop(callee.item(call.id, vec![1])),
                    _ => callee.answer(call.id, Ok(call.body)),
                }
            }
            Ok(Some(Order::Item(id, item))) => {
                assert!(item.len() <= MAX_BODY);
                callee.read(id);
            }
            Ok(_) => {}
            Err(_) => {
                callee.lost();
                caller.lost();
            }
        }
        let (running, streams) = callee.running();
        assert!(running <= CALLS && streams <= STREAMS);
        while caller.poll(Time::ZERO).is_some() {}
    }
    let waiting = std::iter::from_fn(|| callee.poll()).count();
    assert!(waiting <= 8 * CALLS + KEPT.0);
}
