//! A tree of small values, and watchers with their replicas, message by message.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use proptest::prelude::*;

use super::*;

mod again;

fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

fn put(name: &str, value: &[u8]) -> Edit {
    Edit { key: key(name), value: Some(value.into()), condition: Condition::Always, owner: None }
}

fn wish(name: &str, value: &[u8]) -> Wish {
    Wish { key: key(name), value: Some(value.into()), version: None, presence: false }
}

#[test]
fn keys_are_words_joined_by_slashes() {
    for good in ["a", "a/b", "world/camera 7/ü", &"x".repeat(MAX_KEY)] {
        assert_eq!(Key::new(good).map(|key| String::from(key.as_str())), Ok(good.into()));
    }
    for (bad, why) in [
        ("", KeyError::Empty),
        ("/a", KeyError::Empty),
        ("a/", KeyError::Empty),
        ("a//b", KeyError::Empty),
        ("a/../b", KeyError::Letter),
        (".", KeyError::Letter),
        ("a/*", KeyError::Letter),
        ("a\n", KeyError::Letter),
        (&"x".repeat(MAX_KEY + 1), KeyError::Long),
    ] {
        assert_eq!(Key::new(bad), Err(why), "{bad}");
    }
}

#[test]
fn an_error_of_a_key_says_what_is_wrong() {
    let why = |text: &str| format!("{}", Key::new(text).unwrap_err());
    assert!(why("a//b").contains("single slashes"));
    assert!(why(&"a".repeat(513)).contains("512 bytes"));
    assert!(why("a*").contains("*$?#"));
    assert_eq!(format!("{:?} {}", key("a/b"), key("a/b")), "\"a/b\" a/b");
}

#[test]
fn a_prefix_matches_only_whole_words() {
    let tree = &mut Tree::new(Limits::default(), 0, []);
    for name in ["a", "a-b", "a/x", "a/x/y", "a0", "b"] {
        tree.apply(put(name, b"")).expect("it is made");
    }
    let below = |prefix: &str| {
        let prefix = Prefix::new(prefix).expect("a prefix");
        let names: Vec<String> = tree.range(&prefix).map(|(key, _)| key.as_str().into()).collect();
        assert!(names.iter().all(|name| prefix.contains(name)));
        names.join(" ")
    };
    assert_eq!(below("a"), "a a/x a/x/y");
    assert_eq!(below("a/x"), "a/x a/x/y");
    assert_eq!(below("c"), "");
    assert_eq!(below(""), "a a-b a/x a/x/y a0 b");
}

#[test]
fn an_edit_is_made_only_if_its_condition_holds() {
    let mut tree = Tree::new(Limits::default(), 40, []);
    let mut when = |condition, value: &[u8]| {
        tree.apply(Edit { condition, ..put("k", value) })
            .map(|change| change.map(|change| change.version))
    };
    assert!(matches!(when(Condition::Version(3), b"no"), Err(Refusal::Conflict(None))));
    assert_eq!(when(Condition::Version(0), b"1"), Ok(Some(41)));
    assert!(matches!(when(Condition::Version(0), b"no"), Err(Refusal::Conflict(Some(_)))));
    assert_eq!(when(Condition::Version(41), b"2"), Ok(Some(42)));
    assert!(matches!(when(Condition::NotSince(41), b"no"), Err(Refusal::Conflict(Some(_)))));
    assert_eq!(when(Condition::NotSince(42), b"3"), Ok(Some(43)));
    let delete = Edit { value: None, ..put("k", b"") };
    assert_eq!(tree.apply(delete.clone()).map(|change| change.map(|c| c.version)), Ok(Some(44)));
    assert_eq!(tree.apply(delete), Ok(None), "there is nothing to delete");
    assert_eq!(tree.revision(), 44);
}

#[test]
fn a_full_tree_refuses_growth_and_accepts_other_edits() {
    // An entry takes 96 bytes in addition to its key and value.
    let limits = Limits { keys: 2, bytes: 1000, ..Limits::default() };
    let mut tree = Tree::new(limits, 0, []);
    tree.apply(put("a", &[1; 300])).expect("there is room");
    tree.apply(put("b", &[1; 300])).expect("there is room");
    assert_eq!(tree.apply(put("c", b"")), Err(Refusal::Full));
    assert_eq!(tree.apply(put("a", &[1; 700])), Err(Refusal::Full));
    assert_eq!(tree.apply(put("a", &vec![1; MAX_VALUE + 1])), Err(Refusal::Long));
    let longest = put("a", &vec![1; MAX_VALUE]);
    assert!(Tree::new(Limits::default(), 0, []).apply(longest).is_ok());
    assert!(tree.apply(put("a", &[1; 400])).is_ok());
    assert!(tree.apply(Edit { value: None, ..put("b", b"") }).is_ok());
    assert!(tree.apply(put("c", &[1; 300])).is_ok());
    let fits =
        |bytes| Tree::new(Limits { bytes, ..limits }, 0, []).apply(put("a", &[1; 10])).is_ok();
    assert_eq!([fits(96 + 1 + 9), fits(96 + 1 + 10)], [false, true]);
}

#[test]
fn presence_vanishes_with_its_client_and_is_never_stored() {
    let mut tree = Tree::new(Limits::default(), 0, []);
    let disk = |tree: &mut Tree, name, owner| {
        tree.apply(Edit { owner, ..put(name, b"v") }).expect("made").expect("a change").disk
    };
    assert_eq!(disk(&mut tree, "mine", Some(1)), Disk::Untouched);
    assert_eq!(disk(&mut tree, "taken over", Some(1)), Disk::Untouched);
    assert_eq!(disk(&mut tree, "taken over", Some(2)), Disk::Untouched);
    assert_eq!(disk(&mut tree, "kept now", Some(1)), Disk::Untouched);
    assert_eq!(disk(&mut tree, "kept now", None), Disk::Store);
    assert_eq!(disk(&mut tree, "was kept", None), Disk::Store);
    assert_eq!(disk(&mut tree, "was kept", Some(1)), Disk::Remove);
    let gone: Vec<_> = tree.vanish(1).into_iter().map(|change| (change.key, change.disk)).collect();
    assert_eq!(gone, [(key("mine"), Disk::Untouched), (key("was kept"), Disk::Untouched)]);
    assert_eq!(tree.vanish(1), []);
    assert_eq!(tree.len(), 2);
}

/// A step of a test in which a watcher reads occasionally from a tree. The tree keeps a limited
/// number of bytes of recent changes.
#[derive(Debug, Clone)]
enum Step {
    /// Edits a key: its number, the new value (`None` deletes the key), and the owner.
    Edit(u8, Option<u8>, Option<u8>),
    /// The client with this number leaves.
    Vanish(u8),
    Read,
    /// Reconnects the watcher: to another run of the server, if true.
    Reconnect(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..12_u8, any::<Option<u8>>(), prop::option::of(0..3_u8))
            .prop_map(|(key, value, owner)| Step::Edit(key, value, owner)),
        1 => (0..3_u8).prop_map(Step::Vanish),
        4 => Just(Step::Read),
        1 => any::<bool>().prop_map(Step::Reconnect),
    ]
}

type View = BTreeMap<Key, alloc::sync::Arc<[u8]>>;

fn view(tree: &Tree, prefix: &Prefix) -> View {
    tree.range(prefix).map(|(key, entry)| (key.clone(), entry.value.clone())).collect()
}

/// Applies the next piece to the program's view `seen`; returns whether there was one.
fn take(watcher: &mut Watcher, tree: &Tree, replica: &mut Replica, seen: &mut View) -> bool {
    let Some(piece) = watcher.next(tree) else { return false };
    match replica.take(piece).expect("the server is honest") {
        Some(Update::Snapshot(entries)) => {
            *seen = entries.into_iter().map(|(key, entry)| (key, entry.value)).collect();
        }
        Some(Update::Changes(changes)) => {
            for change in changes {
                match change.value {
                    Some(value) => drop(seen.insert(change.key, value)),
                    None => drop(seen.remove(&change.key)),
                }
            }
        }
        None => {}
    }
    true
}

/// Edits two keys of the tree of `watched`: the first key of the snapshot's first piece, and the
/// only key of its second piece.
fn edit_both(tree: &mut Tree, value: &[u8]) {
    for name in ["w/a", "w/z"] {
        tree.apply(put(name, value)).unwrap();
    }
}

/// Returns a tree with four values of 60 KiB; the first piece of the snapshot holds three of them,
/// the second piece one. The tree keeps at most `recent` bytes of recent changes.
fn watched(recent: usize) -> (Tree, Watcher, Replica) {
    let mut tree = Tree::new(Limits { recent, ..Limits::default() }, 0, []);
    for name in ["w/a", "w/b", "w/c", "w/z"] {
        tree.apply(put(name, &[0; 60 << 10])).unwrap();
    }
    let prefix = Prefix::new("w").unwrap();
    (tree, Watcher::new(prefix.clone(), None), Replica::new(prefix, 1 << 20))
}

#[test]
fn a_slow_watcher_keeps_no_old_values_and_gets_a_consistent_snapshot() {
    let (mut tree, mut watcher, mut replica) = watched(1 << 20);
    let first = watcher.next(&tree).unwrap();
    assert!(replica.take(first).unwrap().is_none());
    let old = tree.entry("w/z").unwrap().value.clone();
    edit_both(&mut tree, b"new");
    tree.apply(put("w/y", b"new")).unwrap();
    tree.apply(Edit { value: None, ..put("w/c", b"") }).unwrap();
    // Three owners of the value: the change that put the value, the change that replaced it, and
    // this test.
    assert_eq!(alloc::sync::Arc::strong_count(&old), 3);
    let Some(Update::Snapshot(entries)) = replica.take(watcher.next(&tree).unwrap()).unwrap()
    else {
        panic!("the snapshot is complete");
    };
    let names: Vec<_> = entries.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(names, ["w/a", "w/b", "w/c", "w/z"]);
    assert!(entries.iter().all(|(_, entry)| entry.value.len() == 60 << 10));
    let Some(Update::Changes(changes)) = replica.take(watcher.next(&tree).unwrap()).unwrap() else {
        panic!("the changes follow");
    };
    assert_eq!(changes.len(), 4);
    assert_eq!(replica.bytes(), 0);
}

#[test]
fn a_watcher_whose_snapshot_falls_behind_gets_a_fresh_one() {
    let (mut tree, mut watcher, mut replica) = watched(1000);
    assert!(replica.take(watcher.next(&tree).unwrap()).unwrap().is_none());
    let old = tree.entry("w/z").unwrap().value.clone();
    edit_both(&mut tree, &[1; 60 << 10]);
    assert_eq!(alloc::sync::Arc::strong_count(&old), 1, "only this test holds the old value");
    let begun = watcher.next(&tree).unwrap();
    assert!(matches!(begun, Piece::Snapshot { is_first: true, revision: 6, .. }));
    assert!(replica.take(begun.clone()).unwrap().is_none());
    assert!(replica.take(begun).is_err());
    let Some(Update::Snapshot(entries)) = replica.take(watcher.next(&tree).unwrap()).unwrap()
    else {
        panic!("the snapshot is complete");
    };
    assert_eq!(entries.iter().map(|(_, entry)| entry.value[0]).collect::<Vec<_>>(), [1, 0, 0, 1]);
}

#[test]
fn the_size_of_a_snapshot_includes_the_overhead_of_each_entry() {
    let entries = (0..100).map(|n| {
        let entry = Entry { value: [].as_slice().into(), version: 1, owner: None };
        (key(&format!("{n:03}")), entry)
    });
    let piece =
        Piece::Snapshot { revision: 1, is_first: true, is_last: true, entries: entries.collect() };
    assert!(Replica::new(Prefix::ALL, 9_000).take(piece.clone()).is_err());
    let news = Replica::new(Prefix::ALL, 10_000).take(piece).unwrap().unwrap();
    // An entry takes 96 bytes, and its key takes 3.
    assert_eq!(news.bytes(), 100 * 99);
}

proptest! {
    #[test]
    fn a_watcher_sees_only_states_that_the_tree_had_and_finally_the_current_one(
        steps in prop::collection::vec(step(), 1..200),
        recent in prop_oneof![0..2000_usize, 0..1_000_000_usize],
        whole: bool,
    ) {
        let mut tree = Tree::new(Limits { recent, ..Limits::default() }, 0, []);
        let prefix = Prefix::new(if whole { "" } else { "w/1" }).unwrap();
        let mut watcher = Watcher::new(prefix.clone(), None);
        let mut replica = Replica::new(prefix.clone(), 1 << 20);
        let mut seen = View::new();
        let mut history = BTreeMap::from([(0, View::new())]);
        for step in steps {
            match step {
                Step::Edit(name, value, owner) => {
                    let name = format!("w/{}{}", name % 2, ["", "/a", "/b"][usize::from(name / 4)]);
                    // A piece of changes holds at most two long values, a snapshot piece three.
                    let len = |value| if value % 2 == 0 { 40 } else { 50 << 10 };
                    let value = value.map(|value| vec![value; len(value)].into());
                    let owner = owner.map(u64::from);
                    let _ = tree.apply(Edit { value, owner, ..put(&name, b"") });
                    history.insert(tree.revision(), view(&tree, &prefix));
                }
                Step::Vanish(owner) => {
                    tree.vanish(owner.into());
                    history.insert(tree.revision(), view(&tree, &prefix));
                }
                Step::Read => {
                    take(&mut watcher, &tree, &mut replica, &mut seen);
                    if let Some(revision) = replica.revision() {
                        // The history has no entry for the revisions within one `vanish`.
                        let then = history.range(revision..).next().expect("a state").1;
                        let before = history.range(..=revision).next_back().expect("a state").1;
                        prop_assert!(&seen == then || &seen == before);
                    }
                }
                Step::Reconnect(is_other) => {
                    replica.reconnected(is_other);
                    watcher = Watcher::new(prefix.clone(), replica.revision());
                }
            }
        }
        while take(&mut watcher, &tree, &mut replica, &mut seen) {}
        prop_assert_eq!(&seen, &view(&tree, &prefix));
    }

    #[test]
    fn no_piece_makes_a_replica_panic_or_go_back(
        pieces in prop::collection::vec(
            (any::<bool>(), 0..5_u64, any::<(bool, bool)>(),
             prop::collection::vec((0..4_u8, 0..6_u64), 0..3)), 0..20),
    ) {
        let mut replica = Replica::new(Prefix::new("a").unwrap(), 400);
        let mut last = None;
        for (is_snapshot, revision, (is_first, is_last), items) in pieces {
            let named = |name: u8| key(["a", "a/b", "a/c", "z"][usize::from(name)]);
            let value: alloc::sync::Arc<[u8]> = [0; 30].as_slice().into();
            let piece = match is_snapshot {
                true => Piece::Snapshot {
                    revision, is_first, is_last,
                    entries: items.into_iter().map(|(name, version)| {
                        (named(name), Entry { value: value.clone(), version, owner: None })
                    }).collect(),
                },
                false => Piece::Changes {
                    through: revision,
                    changes: items.into_iter().map(|(name, version)| Change {
                        key: named(name), value: Some(value.clone()), version,
                        disk: Disk::Untouched,
                    }).collect(),
                },
            };
            match replica.take(piece) {
                Ok(Some(Update::Snapshot(entries))) => {
                    prop_assert!(entries.iter().all(|(key, _)| key.as_str().starts_with('a')));
                    prop_assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
                }
                Ok(Some(Update::Changes(changes))) => {
                    prop_assert!(changes.is_sorted_by(|a, b| a.version < b.version));
                }
                Ok(None) | Err(_) => {}
            }
            prop_assert!(replica.revision() >= last);
            last = replica.revision();
        }
    }
}

#[test]
fn a_snapshot_may_take_exactly_the_memory_limit_of_the_client() {
    let entry = Entry { value: [7; 50].as_slice().into(), version: 1, owner: None };
    let entries = alloc::vec![(key("ab"), entry)];
    let piece = Piece::Snapshot { revision: 1, is_first: true, is_last: true, entries };
    let take = |most| Replica::new(Prefix::ALL, most).take(piece.clone()).is_ok();
    assert_eq!([take(96 + 2 + 50 - 1), take(96 + 2 + 50)], [false, true]);
    let mut replica = Replica::new(Prefix::ALL, 1_000);
    assert_eq!((replica.revision(), replica.bytes()), (None, 0));
    let Piece::Snapshot { entries, .. } = piece else { panic!("it is a snapshot") };
    let first = Piece::Snapshot { revision: 9, is_first: true, is_last: false, entries };
    assert_eq!(replica.take(first), Ok(None));
    assert_eq!((replica.revision(), replica.bytes()), (None, 96 + 2 + 50));
    let last = Piece::Snapshot { revision: 9, is_first: false, is_last: true, entries: Vec::new() };
    assert!(replica.take(last).is_ok());
    assert_eq!((replica.revision(), replica.bytes()), (Some(9), 0));
}

#[test]
fn the_size_of_a_recent_change_includes_the_entry_that_it_replaced() {
    let remembers = |recent| {
        let mut tree = Tree::new(Limits { recent, ..Limits::default() }, 0, []);
        tree.apply(put("k", &[0; 10])).unwrap();
        tree.apply(put("k", &[0; 20])).unwrap();
        tree.changes_after(0).is_some()
    };
    // Each change takes twice 96 bytes, the key, the value and the old value.
    let bytes = (192 + 1 + 10) + (192 + 1 + 20 + 10);
    assert_eq!([remembers(bytes - 1), remembers(bytes)], [false, true]);
    // There is room for two changes of an empty value.
    let mut tree = Tree::new(Limits { recent: 2 * 193, ..Limits::default() }, 0, []);
    assert!(tree.is_empty());
    for revision in 1..=4 {
        tree.apply(put("k", b"")).unwrap();
        let after = [3, 2].map(|back| tree.changes_after(revision - back.min(revision)).is_some());
        assert_eq!(after, [revision < 3, true], "{revision}");
    }
    assert!(!tree.is_empty());
}

#[test]
fn a_piece_of_changes_may_have_exactly_the_maximum_size() {
    let pieces = |last: usize| {
        let mut tree = Tree::new(Limits::default(), 0, []);
        let mut watcher = Watcher::new(Prefix::ALL, Some(0));
        tree.apply(put("a", &[0; 60 << 10])).unwrap();
        tree.apply(put("b", &[0; 60 << 10])).unwrap();
        tree.apply(put("c", &vec![0; last])).unwrap();
        core::iter::from_fn(|| watcher.next(&tree)).count()
    };
    // The size of a change is its value, its key and 32 bytes.
    let rest = PIECE - (120 << 10) - 3 * 33;
    assert_eq!([pieces(rest), pieces(rest + 1)], [1, 2]);
}

#[test]
fn a_piece_of_a_snapshot_ends_with_the_entry_that_reaches_the_maximum_size() {
    let first_piece = |second: usize| {
        let mut tree = Tree::new(Limits::default(), 0, []);
        for (name, len) in [("a", 60 << 10), ("b", 60 << 10), ("c", second), ("d", 0)] {
            tree.apply(put(name, &vec![0; len])).unwrap();
        }
        match Watcher::new(Prefix::ALL, None).next(&tree) {
            Some(Piece::Snapshot { entries, is_last, .. }) => (entries.len(), is_last),
            other => panic!("{other:?} is no snapshot"),
        }
    };
    // The size of an entry is its value, its key and 32 bytes.
    let rest = PIECE - (120 << 10) - 3 * 33;
    assert_eq!([first_piece(rest - 1), first_piece(rest)], [(4, true), (3, false)]);
}
