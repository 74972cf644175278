//! Messages between the ends of a channel, and its datagrams.

use longhaul_proto::channel::{
    Code, Departure, Joiner, Judge, MAX_HOPS, MAX_MESSAGE, Message, decode, encode,
};
use longhaul_proto::time::{Span, Time};
use longhaul_stream::channel::group_address;
use longhaul_stream::channel::messages::{
    ChannelAsk, ChannelAsked, ChannelTell, ChannelTold, Part,
};
use longhaul_stream::channel::parts::Parts;
use prost::Message as _;

use super::input::Input;

/// Checks that accepted messages are within limits, and that decoded messages encode to the same
/// bytes.
pub fn run(bytes: &[u8]) {
    let (mut parts, mut joiner, mut joined) = (Parts::default(), Joiner::default(), Vec::new());
    let mut judge = Judge::new(Span::from_secs(1));
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        let message = input.slice();
        match ChannelAsk::decode(message).map(|ask| ask.asked) {
            Ok(Some(ChannelAsked::Part(part))) => take(&mut parts, part),
            Ok(Some(ChannelAsked::Subscribe(asked))) => {
                if let Ok(code) = Code::new(asked.xor, asked.group, asked.repairs) {
                    assert!(code.numbers().1 <= 64 && code.numbers().2 <= 32);
                }
            }
            _ => {}
        }
        match ChannelTell::decode(message).map(|tell| tell.told) {
            Ok(Some(ChannelTold::Part(part))) => take(&mut parts, part),
            Ok(Some(ChannelTold::Group(group))) => {
                if let Ok(address) = group_address(&group) {
                    assert!(address.ip().is_multicast() && address.port() > 0);
                }
            }
            _ => {}
        }
        let block = input.any();
        if let Some((departure, rest)) = Departure::decode(message) {
            assert_eq!([&departure.encode()[..], rest].concat(), message);
            let (now, path) = (Time::from_nanos(block), Span::from_millis(50));
            if let Some(born) = judge.born(now, departure, path) {
                assert!(born <= (now.as_nanos() / 1_000) as i64);
            }
        }
        joiner.take(block, message, &mut joined);
        for joined in joined.drain(..) {
            if let Some(message) = decode(&joined.message) {
                assert_eq!(encode(&message), joined.message);
            }
        }
    }
}

fn take(parts: &mut Parts, part: Part) {
    match parts.take(part) {
        Ok(Some((Message { bytes, hops, number, .. }, _))) => {
            assert!(bytes.len() <= MAX_MESSAGE && hops <= MAX_HOPS && number <= u64::MAX / 2);
        }
        Ok(None) => assert!(parts.held() < MAX_MESSAGE),
        Err(_) => *parts = Parts::default(),
    }
}
