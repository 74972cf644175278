//! Edits and presence (values that vanish with the client) across lost connections, late streams
//! and restarts of the server.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use proptest::prelude::*;

use super::super::writers::Known;
use super::super::*;
use super::{key, put, wish};

const CLIENT: Writer = Writer { client: [1; 32], instance: 7 };

/// A server, its disk, and one client with delayed streams.
struct World {
    calls: Calls,
    values: BTreeMap<Key, Entry>,
    writers: BTreeMap<Writer, Vec<(u64, u64)>>,
    forgotten: BTreeMap<[u8; 32], u64>,
    edits: Edits,
    stream: u64,
    seen: Option<u64>,
    /// The edits in flight on each stream.
    on_way: BTreeMap<u64, VecDeque<Sent>>,
    /// Answers in flight on the open stream.
    answers: Vec<(u64, Answer)>,
    /// For each edit, the versions that the server created.
    made: BTreeMap<u64, Vec<u64>>,
    delivered: BTreeMap<u64, Answer>,
}

impl World {
    fn new() -> World {
        let mut world = World {
            calls: Calls::new(Tree::new(Limits::default(), 0, []), Writers::default()),
            values: BTreeMap::new(),
            writers: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            edits: Edits::default(),
            stream: 0,
            seen: None,
            on_way: BTreeMap::new(),
            answers: Vec::new(),
            made: BTreeMap::new(),
            delivered: BTreeMap::new(),
        };
        world.connect();
        world
    }

    fn by(&self) -> By {
        By { writer: CLIENT, stream: self.stream }
    }

    fn connect(&mut self) {
        let is_first = self.stream == 0;
        self.stream += 1;
        let forgotten = self.calls.begin(self.by(), is_first, self.seen).expect("there is room");
        self.edits.connected();
        if !self.edits.is_in_doubt() {
            self.seen = Some(forgotten);
        }
    }

    fn lose(&mut self) {
        self.edits.lost();
        self.answers.clear();
        self.connect();
    }

    fn send(&mut self) {
        let sent = core::iter::from_fn(|| self.edits.poll());
        self.on_way.entry(self.stream).or_default().extend(sent);
    }

    /// The server processes the edits of `stream`, and its disk stores the result.
    fn arrive(&mut self, stream: u64) {
        for sent in self.on_way.remove(&stream).unwrap_or_default() {
            let Sent { number, wish, condition, again } = sent;
            let edit = Edit { key: wish.key, value: wish.value, condition, owner: None };
            let by = By { writer: CLIENT, stream };
            let answer = match self.calls.edit(Call { by, number, again, edit }, wish.presence) {
                Ok((version, change)) => {
                    if let Some(change) = change {
                        self.made.entry(number).or_default().push(change.version);
                        self.store(&[change]);
                    }
                    Answer::Made(version)
                }
                Err(Refusal::Conflict(now)) => Answer::Conflict(now),
                Err(Refusal::Unknown) => Answer::Unknown,
                Err(Refusal::Replaced) => continue,
                Err(other) => panic!("{other:?}"),
            };
            if stream == self.stream {
                self.answers.push((number, answer));
            }
        }
    }

    fn store(&mut self, changes: &[Change]) {
        for change in changes {
            match (change.disk, &change.value) {
                (Disk::Store, Some(value)) => {
                    let (value, version) = (value.clone(), change.version);
                    let entry = Entry { value, version, owner: None };
                    self.values.insert(change.key.clone(), entry);
                }
                (Disk::Remove, _) => drop(self.values.remove(&change.key)),
                _ => {}
            }
        }
        let must_store = self.calls.must_store();
        let rows = self.calls.take_rows();
        let has_outcomes = rows.writers.iter().any(|(_, outcomes)| !outcomes.is_empty());
        assert_eq!((must_store, self.calls.must_store()), (has_outcomes, false));
        self.writers.extend(rows.writers);
        self.writers.retain(|_, made| !made.is_empty());
        self.forgotten.extend(rows.forgotten);
    }

    fn restart(&mut self) {
        self.on_way.clear();
        let newest = self.calls.tree().revision();
        let tree = Tree::new(Limits::default(), newest, self.values.clone());
        let (writers, forgotten) = (self.writers.clone(), self.forgotten.clone());
        let (writers, forgotten) = (writers.into_iter().collect(), forgotten.into_iter().collect());
        self.calls = Calls::new(tree, Writers::new(Rows { writers, forgotten }));
        self.lose();
    }

    fn hear(&mut self) {
        for (number, answer) in core::mem::take(&mut self.answers) {
            self.edits.answered(number, &answer).expect("it waits");
            self.delivered.insert(number, answer);
        }
    }

    fn settle(&mut self) {
        while !self.edits.is_empty() {
            self.send();
            self.arrive(self.stream);
            self.hear();
            self.hold();
        }
    }

    /// Resumes presence; returns the keys of lost presence.
    fn hold(&mut self) -> Vec<Key> {
        let mut lost = Vec::new();
        while let Some(hold) = self.edits.poll_hold() {
            let key = hold.key.clone();
            let answer = match self.calls.hold(self.by(), hold) {
                Ok((version, change)) => {
                    self.store(change.as_slice());
                    Answer::Made(version)
                }
                Err(Refusal::Conflict(now)) => Answer::Conflict(now),
                Err(other) => panic!("{other:?}"),
            };
            if self.edits.hold_answered(&key, &answer) {
                lost.push(key);
            }
        }
        lost
    }

    fn foreign(&mut self, name: &str, value: &[u8]) {
        let by = By { writer: Writer { client: [2; 32], instance: 1 }, stream: u64::MAX };
        self.calls.begin(by, true, None).expect("there is room");
        let number = self.calls.tree().revision() + 1;
        let call = Call { by, number, again: false, edit: put(name, value) };
        let (_, change) = self.calls.edit(call, false).expect("it is made");
        self.store(change.as_slice());
    }

    fn value(&self, name: &str) -> Option<&[u8]> {
        self.calls.tree().entry(name).map(|entry| &*entry.value)
    }
}

proptest! {
    /// Cuts a client's connection at any time, delivers its old streams late, and kills the server.
    /// Another writer puts the same values.
    #[test]
    fn each_edit_is_applied_at_most_once_and_its_client_gets_the_true_result(
        steps in prop::collection::vec((0..12_u8, 0..3_u8), 1..200),
    ) {
        let mut world = World::new();
        for (what, which) in steps {
            let name = ["k0", "k1", "k2"][usize::from(which)];
            match what {
                0..=2 => {
                    // Values repeat, so they cannot identify an edit.
                    let version = world.calls.tree().entry(name).map_or(0, |entry| entry.version);
                    let version = (what == 2).then_some(version);
                    let value = if which == 2 { None } else { Some([0].as_slice().into()) };
                    world.edits.add(Wish { version, value, ..wish(name, b"") });
                }
                3 => world.foreign(name, &[0]),
                4 | 5 => world.send(),
                6 | 7 => world.arrive(world.stream),
                8 => {
                    let oldest = world.on_way.keys().next().copied();
                    oldest.into_iter().for_each(|stream| world.arrive(stream));
                }
                9 => world.hear(),
                10 => world.lose(),
                _ => world.restart(),
            }
        }
        world.settle();
        for stream in 0..world.stream {
            world.arrive(stream);
        }
        for (number, answer) in &world.delivered {
            let made = world.made.get(number).map_or(&[][..], Vec::as_slice);
            match answer {
                // The edit deleted a key that did not exist.
                Answer::Made(0) => prop_assert!(made.is_empty()),
                Answer::Made(version) => prop_assert_eq!(made, [*version]),
                Answer::Conflict(_) => prop_assert!(made.is_empty(), "{} was made", number),
                other => prop_assert!(false, "nothing was forgotten: {:?}", other),
            }
        }
    }
}

#[test]
fn an_edit_whose_answer_was_lost_is_not_applied_twice_and_its_writer_gets_the_version() {
    let mut world = World::new();
    let number = world.edits.add(wish("k", b"mine"));
    world.send();
    world.arrive(world.stream);
    // Another writer has since changed the key, and has put the same value at another key.
    world.foreign("k", b"theirs");
    world.foreign("other", b"mine");
    let other = world.edits.add(Wish { version: Some(0), ..wish("other", b"mine") });
    world.lose();
    world.settle();
    assert_eq!(world.delivered[&number], Answer::Made(1));
    assert!(
        matches!(world.delivered[&other], Answer::Conflict(Some(_))),
        "another writer put the value"
    );
    assert_eq!(world.value("k"), Some(&b"theirs"[..]));
}

#[test]
fn without_a_wanted_version_only_an_edit_that_waited_for_a_connection_is_conditional() {
    let mut edits = Edits::default();
    edits.note_revision(5);
    edits.add(wish("k", b"waits"));
    edits.connected();
    // This edit was not sent before the connection was lost, so it waits as well.
    edits.add(wish("k", b"waits after the loss"));
    edits.note_revision(6);
    edits.lost();
    edits.add(wish("k", b"waits too"));
    edits.connected();
    edits.add(wish("k", b"is new"));
    let conditions = core::iter::from_fn(|| edits.poll()).map(|sent| sent.condition);
    let expected =
        [Condition::NotSince(5), Condition::NotSince(5), Condition::NotSince(6), Condition::Always];
    assert_eq!(conditions.collect::<Vec<_>>(), expected);
}

#[test]
fn a_presence_is_resumed_only_by_its_writer() {
    let mut world = World::new();
    world.edits.add(Wish { presence: true, ..wish("k", b"me") });
    world.settle();
    let hold =
        |value: &[u8]| Hold { key: key("k"), value: value.into(), version: 1, is_strict: false };
    let (mine, change) = world.calls.hold(world.by(), hold(b"me")).expect("it is mine");
    assert_eq!((mine, change), (1, None));
    let other = By { writer: Writer { instance: 9, ..CLIENT }, stream: 77 };
    world.calls.begin(other, true, None).expect("there is room");
    for value in [b"me", b"it"] {
        assert!(matches!(world.calls.hold(other, hold(value)), Err(Refusal::Conflict(Some(_)))));
    }
    let (newer, change) = world.calls.hold(world.by(), hold(b"it")).expect("it is mine");
    assert!(newer > mine && change.is_some());
}

#[test]
fn a_lost_edit_is_applied_only_if_no_other_writer_has_since_put_its_key() {
    let mut world = World::new();
    let (first, second) = (world.edits.add(wish("k", b"1")), world.edits.add(wish("k", b"2")));
    let taken = world.edits.add(wish("taken", b"1"));
    world.send();
    world.foreign("taken", b"0");
    world.on_way.clear();
    world.restart();
    assert_eq!(world.calls.known(CLIENT, first), None);
    world.settle();
    let Answer::Made(version) = world.delivered[&first] else {
        panic!("{:?}", world.delivered[&first])
    };
    assert_eq!(world.calls.known(CLIENT, first), Some(version));
    assert!(
        matches!(world.delivered[&second], Answer::Made(_)),
        "only this client changed the key"
    );
    assert!(matches!(world.delivered[&taken], Answer::Conflict(Some(_))));
    assert_eq!(world.value("k"), Some(&b"2"[..]));
}

#[test]
fn a_forgotten_outcome_is_reported_as_unknown_and_never_as_made() {
    let mut world = World::new();
    let number = world.edits.add(wish("k", b"mine"));
    world.send();
    world.arrive(world.stream);
    world.calls.ended(world.by(), false);
    // Enough other programs of this client come and go to use up the server's records of writers.
    for instance in 100..100 + WRITERS as u64 {
        let by = By { writer: Writer { instance, ..CLIENT }, stream: instance };
        world.calls.begin(by, true, None).expect("there is room");
        let call = Call { by, number: 1, again: false, edit: put("other", b"x") };
        world.calls.edit(call, false).expect("it is made");
        world.calls.ended(by, false);
    }
    world.store(&[]);
    let fresh = world.edits.add(wish("fresh", b"1"));
    world.restart();
    world.settle();
    assert_eq!(world.delivered[&number], Answer::Unknown);
    assert!(matches!(world.delivered[&fresh], Answer::Made(_)), "it was never sent");
    // The client has not yet sent this edit when the connection is lost.
    let number = world.edits.add(wish("k", b"mine"));
    world.lose();
    world.settle();
    assert!(matches!(world.delivered[&number], Answer::Made(_)), "it was never sent either");
}

#[test]
fn a_client_has_at_most_256_writers_with_a_stream_at_a_time() {
    let mut writers = Writers::default();
    let of = |instance| Writer { instance, ..CLIENT };
    for instance in 0..WRITERS as u64 {
        assert_eq!(writers.begin(of(instance), instance + 1, true, None), Ok(0));
    }
    assert_eq!(writers.begin(of(1000), 1000, true, None), Err(Crowd));
    let other = Writer { client: [2; 32], instance: 0 };
    assert_eq!(writers.begin(other, 1001, true, None), Ok(0), "another client has its own limit");
    writers.ended(of(3), 4, false);
    assert_eq!(writers.begin(of(1000), 1002, true, None), Ok(0), "nothing was forgotten");
}

#[test]
fn presence_that_cannot_be_resumed_is_reported_lost() {
    let mut world = World::new();
    for (name, version) in [("open", None), ("lock", Some(0)), ("robbed", None)] {
        world.edits.add(Wish { version, presence: true, ..wish(name, b"me") });
    }
    world.settle();
    // A new stream that begins before the old one has ended keeps all presence.
    let old = world.by();
    world.lose();
    assert_eq!(world.hold(), []);
    assert_eq!(world.calls.ended(old, false), [], "the new stream keeps the presence");
    assert_eq!(world.value("lock"), Some(&b"me"[..]));
    // The server has noticed the loss: vanished presence is created again, except a lock and a key
    // that another client has put.
    let gone = world.calls.ended(world.by(), false);
    assert_eq!(gone.len(), 3);
    world.foreign("robbed", b"theirs");
    world.lose();
    let lost: Vec<Key> = world.hold();
    assert_eq!(lost, [key("lock"), key("robbed")]);
    assert_eq!(world.value("open"), Some(&b"me"[..]));
    assert_eq!(world.value("lock"), None);
    assert_eq!(world.value("robbed"), Some(&b"theirs"[..]));
    assert!(world.edits.holds(&key("open")) && !world.edits.holds(&key("lock")));
}

#[test]
fn a_presence_never_overwrites_a_newer_value_of_its_own_client() {
    let mut world = World::new();
    world.edits.add(Wish { presence: true, ..wish("k", b"old") });
    world.settle();
    world.edits.add(Wish { presence: true, ..wish("k", b"new") });
    world.send();
    world.arrive(world.stream);
    world.lose();
    world.settle();
    assert_eq!(world.value("k"), Some(&b"new"[..]));
    world.edits.add(wish("k", b"kept"));
    world.settle();
    world.lose();
    assert_eq!(world.hold(), []);
    assert_eq!(world.value("k"), Some(&b"kept"[..]));
}

#[test]
fn a_writer_that_returns_to_a_server_that_discarded_nothing_may_repeat_its_edits() {
    let (writer, mut writers) = (Writer { client: [1; 32], instance: 1 }, Writers::default());
    assert_eq!(writers.begin(writer, 1, false, None), Ok(0));
    assert_eq!(writers.known(writer, 1, 1, true), Known::New);
}

#[test]
fn a_late_edit_conflicts_with_presence_of_another_writer_but_not_of_its_own_writer() {
    let mut calls = Calls::new(Tree::new(Limits::default(), 0, []), Writers::default());
    let by = |instance| By { writer: Writer { instance, ..CLIENT }, stream: instance };
    for instance in [1, 2] {
        calls.begin(by(instance), true, None).expect("there is room");
    }
    let presence = Call { by: by(1), number: 1, again: false, edit: put("here", b"1") };
    assert!(calls.edit(presence, true).is_ok());
    let mut change = |instance, number| {
        let edit = Edit { condition: Condition::NotSince(0), ..put("here", b"2") };
        calls.edit(Call { by: by(instance), number, again: false, edit }, false)
    };
    assert!(matches!(change(2, 1), Err(Refusal::Conflict(Some(_)))));
    assert!(change(1, 2).is_ok());
}

#[test]
fn the_key_of_an_edit_can_be_looked_up_until_the_answer_arrives() {
    let mut world = World::new();
    let number = world.edits.add(wish("k", b"1"));
    assert_eq!(world.edits.key(number), Some(&key("k")));
    assert_eq!(world.edits.key(number + 1), None);
    world.settle();
    assert_eq!(world.edits.key(number), None);
}

#[test]
fn the_writer_whose_stream_ended_first_is_forgotten_first() {
    let mut writers = Writers::default();
    let of = |instance| Writer { instance, ..CLIENT };
    for instance in 0..WRITERS as u64 {
        writers.begin(of(instance), instance + 1, true, None).expect("there is room");
        writers.made(of(instance), 1, instance + 1, false);
    }
    writers.ended(of(5), 6, false);
    writers.ended(of(2), 3, false);
    assert_eq!(writers.begin(of(1000), 1000, true, None), Ok(1));
    assert_eq!((writers.outcome(of(5), 1), writers.outcome(of(2), 1)), (None, Some(3)));
}

#[test]
fn a_repeated_edit_without_a_record_is_unknown_if_its_outcome_may_have_been_discarded() {
    let known = |forgotten, is_first, seen| {
        let forgotten = Vec::from([(CLIENT.client, forgotten)]);
        let mut writers = Writers::new(Rows { writers: Vec::new(), forgotten });
        writers.begin(CLIENT, 1, is_first, seen).expect("there is room");
        writers.known(CLIENT, 1, 1, true)
    };
    for (forgotten, is_first, seen, outcome) in [
        (0, false, None, Known::New),
        (2, true, None, Known::New),
        (2, false, Some(2), Known::New),
        (2, false, Some(1), Known::Unknown),
        (2, false, None, Known::Unknown),
    ] {
        assert_eq!(known(forgotten, is_first, seen), outcome, "{forgotten} {is_first} {seen:?}");
    }
}

#[test]
fn the_outcomes_of_the_last_64_edits_are_remembered() {
    let mut writers = Writers::default();
    writers.begin(CLIENT, 1, true, None).expect("there is room");
    writers.made(CLIENT, 1, 10, false);
    writers.made(CLIENT, 64, 11, false);
    assert_eq!((writers.outcome(CLIENT, 1), writers.wrote(CLIENT, 10)), (Some(10), true));
    writers.made(CLIENT, 65, 12, false);
    assert_eq!((writers.outcome(CLIENT, 1), writers.wrote(CLIENT, 10)), (None, false));
    let known = |number| writers.known(CLIENT, 1, number, false);
    assert_eq!([known(1), known(2), known(64)], [Known::Unknown, Known::New, Known::Made(11)]);
}

#[test]
fn the_length_counts_unanswered_edits_and_after_a_loss_unconfirmed_presence() {
    let mut edits = Edits::default();
    edits.connected();
    for name in ["a", "b"] {
        let number = edits.add(Wish { presence: true, ..wish(name, b"me") });
        assert_eq!(edits.poll().map(|sent| sent.number), Some(number));
        edits.answered(number, &Answer::Made(number)).expect("it waits");
    }
    assert_eq!((edits.len(), edits.is_empty()), (0, true));
    edits.lost();
    assert_eq!((edits.len(), edits.poll_hold()), (2, None));
    let number = edits.add(wish("c", b"1"));
    assert_eq!((edits.len(), edits.is_in_doubt()), (3, false));
    edits.connected();
    assert_eq!(edits.poll().map(|sent| sent.again), Some(false));
    assert_eq!(edits.poll_hold().map(|hold| hold.key), Some(key("a")));
    assert_eq!(edits.len(), 3);
    assert!(!edits.hold_answered(&key("a"), &Answer::Made(3)));
    assert_eq!((edits.len(), edits.is_empty()), (2, false));
    edits.lost();
    assert!(edits.is_in_doubt());
    edits.connected();
    assert_eq!(edits.poll().map(|sent| sent.again), Some(true));
    edits.answered(number, &Answer::Refused).expect("it waits");
    assert_eq!((edits.len(), edits.is_in_doubt()), (2, false));
}

#[test]
fn only_an_edit_of_the_same_key_raises_the_version_that_a_waiting_edit_accepts() {
    let mut edits = Edits::default();
    let first = edits.add(wish("a", b"1"));
    edits.add(wish("b", b"2"));
    edits.add(wish("a", b"3"));
    edits.connected();
    edits.poll();
    edits.answered(first, &Answer::Made(9)).expect("it waits");
    let conditions = [0, 1].map(|_| edits.poll().map(|sent| sent.condition));
    assert_eq!(conditions, [0, 9].map(|version| Some(Condition::NotSince(version))));
}

#[test]
fn at_most_64_edits_are_in_flight() {
    let mut edits = Edits::default();
    for number in 1..=70 {
        assert_eq!(edits.add(wish("k", b"1")), number);
    }
    edits.connected();
    let send = |edits: &mut Edits| core::iter::from_fn(|| edits.poll()).count();
    assert_eq!(send(&mut edits), 64);
    for (number, more) in [(3, 0), (1, 1), (2, 2)] {
        edits.answered(number, &Answer::Made(number)).expect("it waits");
        assert_eq!(send(&mut edits), more, "{number}");
    }
}
