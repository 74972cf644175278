//! Messages between clients and servers of a shared tree.

use longhaul_share::messages::{Ask, Asked, Begin, Get, Hold, Item, Part, Put, Tell, Told, Watch};
use prost::Message as _;

/// Seeds, each a sequence of messages. A byte with the message's length precedes each message.
pub(super) fn all() -> Vec<Vec<u8>> {
    let one = |message: Vec<u8>| [&[message.len() as u8][..], &message].concat();
    let ask = |asked| one(Ask { asked: Some(asked) }.encode_to_vec());
    let put = |key: &str, value: &[u8]| {
        let (key, value) = (key.to_owned(), Some(value.to_vec()));
        Put { id: 1, key, value, ..Put::default() }
    };
    let item = |key: &str, version| {
        let (key, value) = (key.to_owned(), Some(b"v".to_vec()));
        Item { key, value, version, presence: false }
    };
    let part = |revision, is_snapshot, items| {
        let part = Part { run: 1, revision, is_snapshot, is_first: true, is_last: true, items };
        one(Tell { told: Some(Told::Part(part)) }.encode_to_vec())
    };
    let edits = [
        put("world/a", b"one"),
        Put { version: Some(1), ..put("world/a", &[0; 90]) },
        Put { not_since: Some(2), presence: true, ..put("world/b", &[1; 90]) },
        Put { value: None, ..put("world/a", b"") },
        put("../x", b"no"),
    ];
    let edits = edits.map(|put| ask(Asked::Put(put))).concat();
    let begin = Begin { instance: 4, first: true, seen: Some(0) };
    let hold = Hold { id: 2, key: "a".to_owned(), value: b"v".to_vec(), version: 4, strict: true };
    let get = Get { id: 2, key: "a".to_owned() };
    let watch = Watch { prefix: "a".to_owned(), revision: 3, run: 9, anew: false };
    vec![
        [
            ask(Asked::Begin(begin)),
            ask(Asked::Hold(hold)),
            edits,
            ask(Asked::Get(get)),
            ask(Asked::Watch(watch)),
        ]
        .concat(),
        [part(5, true, vec![item("a", 2), item("b", 5)]), part(7, false, vec![item("a", 6)])]
            .concat(),
        [part(5, true, vec![item("b", 2), item("a", 9)]), part(1, false, vec![item("a", 6)])]
            .concat(),
    ]
}
