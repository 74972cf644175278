//! Messages between clients and servers of a shared tree.

use longhaul_proto::share::{Edit, Limits, Prefix, Replica, Tree, Watcher};
use longhaul_share::convert;
use longhaul_share::messages::{Ask, Asked, Tell, Told};
use prost::Message as _;

use super::input::Input;

const KEYS: usize = 4;

/// Checks the limit of keys, that a client can take each piece that a watcher sends, and that no
/// server can return a client to an older state.
pub fn run(bytes: &[u8]) {
    let limits = Limits { keys: KEYS, bytes: 1000, recent: 300 };
    let mut tree = Tree::new(limits, 0, []);
    let mut watcher = Watcher::new(Prefix::ALL, None);
    let mut honest = Replica::new(Prefix::ALL, 1 << 20);
    let mut lied = Replica::new(Prefix::ALL, 1000);
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        let message = input.slice();
        if let Ok(Ask { asked: Some(asked) }) = Ask::decode(message) {
            change(&mut tree, asked);
        }
        while let Some(piece) = watcher.next(&tree) {
            let part = convert::part(1, piece);
            let piece = convert::piece(part).expect("what a server sends can be read");
            honest.take(piece).expect("what a server sends is taken");
        }
        if let Ok(Tell { told: Some(Told::Part(part)) }) = Tell::decode(message) {
            let before = lied.revision();
            if let Ok(piece) = convert::piece(part) {
                let _ = lied.take(piece);
            }
            assert!(lied.revision() >= before);
        }
    }
}

fn change(tree: &mut Tree, asked: Asked) {
    let before = tree.revision();
    match asked {
        Asked::Put(put) => {
            let owner = (put.presence && put.value.is_some()).then_some(7);
            if let Ok(edit) = convert::edit(put) {
                let edit = Edit { owner, ..edit };
                let Edit { key, value, .. } = edit.clone();
                if let Ok(Some(change)) = tree.apply(edit) {
                    assert_eq!(change.version, before + 1);
                    assert_eq!(tree.entry(key.as_str()).map(|entry| &entry.value), value.as_ref());
                }
            }
        }
        // A `Get` stands for the departure of the client.
        Asked::Get(_) => drop(tree.vanish(7)),
        Asked::Hold(hold) => drop(convert::hold(hold)),
        Asked::Begin(_) => {}
        Asked::Watch(watch) => drop(convert::prefix(&watch.prefix)),
    }
    assert!(tree.len() <= KEYS && tree.revision() >= before);
}
