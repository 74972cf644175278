//! Messages between the ends of remote procedure calls.

use longhaul_rpc::messages::{Answer, Begin, Call, Cancel, Credit, Finish, Have, Item, Said, Say};
use prost::Message as _;

/// Seeds, each a sequence of messages. A byte with the message's length precedes each message.
pub(super) fn all() -> Vec<Vec<u8>> {
    // The byte after a call selects what the called method does.
    let one = |said: Said, then: &[u8]| {
        let message = Say { said: Some(said) }.encode_to_vec();
        [&[message.len() as u8][..], &message, then].concat()
    };
    let call = |id, items, again| Call {
        id,
        method: "m".to_owned(),
        body: vec![7; 5],
        within: 900,
        items,
        again,
    };
    let item = |id| one(Said::Item(Item { id, body: vec![1] }), &[]);
    let answer = |id, code| {
        let answer = Answer { id, code, body: vec![1], why: "no\u{1b}".to_owned() };
        one(Said::Answer(answer), &[])
    };
    let honest = [
        one(Said::Call(call(1, false, false)), &[3]),
        one(Said::Call(call(3, true, false)), &[0]),
        item(3),
        one(Said::Credit(Credit { id: 4, items: 1 }), &[]),
        one(Said::Finish(Finish { id: 3 }), &[]),
        one(Said::Have(Have { ids: vec![1] }), &[]),
        one(Said::Cancel(Cancel { id: 3 }), &[]),
        item(4),
        answer(2, 0),
        answer(4, 1),
        answer(6, 70_000),
    ];
    let lies = [
        one(Said::Begin(Begin { instance: 4, first: true }), &[]),
        one(Said::Call(call(2, false, false)), &[]),
        one(Said::Call(call(u64::MAX, true, false)), &[2]),
        one(Said::Call(call(1, false, true)), &[3]),
        one(Said::Call(call(1, false, true)), &[3]),
        answer(u64::MAX - 1, 0),
        one(Said::Credit(Credit { id: 4, items: u32::MAX }), &[]),
        one(Said::Have(Have { ids: vec![u64::MAX] }), &[]),
        item(2),
    ];
    vec![honest.concat(), lies.concat(), honest[..3].concat(), vec![0, 0]]
}
