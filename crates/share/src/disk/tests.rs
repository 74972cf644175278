//! Tests of the disk: power cuts at any write, and a file that cannot be opened again.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_proto::share::{By, Call, Condition, Edit, Piece, Prefix, Refusal, Watcher};
use redb::StorageBackend;
use tokio::sync::oneshot;

use super::*;
use crate::store::{Command, Failed, Store};

/// A disk that keeps synced writes, and some later ones, at a power cut.
#[derive(Clone, Debug, Default)]
struct Medium(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    now: Vec<u8>,
    synced: Vec<u8>,
    /// Writes since the last sync.
    loose: Vec<(usize, Vec<u8>)>,
    /// How many further operations succeed; `None`: all.
    left: Option<u32>,
}

impl State {
    fn step(&mut self) -> io::Result<()> {
        match &mut self.left {
            Some(0) => Err(io::Error::other("the power is off")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Medium {
    /// Returns a disk as after a power cut, with about half of the unsynced writes; `chance` is the
    /// state of the random generator.
    fn after_cut(&self, chance: &mut u64) -> Medium {
        let state = self.0.lock().unwrap();
        let mut now = state.synced.clone();
        for (at, bytes) in &state.loose {
            *chance = chance.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if *chance >> 63 == 1 {
                now.resize(now.len().max(at + bytes.len()), 0);
                now[*at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
        let synced = now.clone();
        Medium(Arc::new(Mutex::new(State { now, synced, ..State::default() })))
    }
}

impl StorageBackend for Medium {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.lock().unwrap().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let state = self.0.lock().unwrap();
        let begin = offset as usize;
        out.copy_from_slice(&state.now[begin..begin + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        let mut state = self.0.lock().unwrap();
        state.step()?;
        state.now.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut state = self.0.lock().unwrap();
        state.step()?;
        state.synced = state.now.clone();
        state.loose.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let mut state = self.0.lock().unwrap();
        state.step()?;
        let begin = offset as usize;
        state.now[begin..begin + data.len()].copy_from_slice(data);
        state.loose.push((begin, data.to_vec()));
        Ok(())
    }
}

const WRITER: Writer = Writer { client: [3; 32], instance: 9 };

fn open(medium: Medium) -> (Disk, Calls) {
    let database = Database::builder().create_with_backend(medium).expect("it can be opened");
    let disk = Disk::over(database).expect("it can be opened");
    let calls = disk.load(Limits::default()).expect("it can be read");
    (disk, calls)
}

/// Returns the edit `number`, whose value begins with this number.
fn call(by: By, number: u64) -> Call {
    let value = [&number.to_be_bytes()[..], &[7; 100]].concat();
    let edit = Edit {
        key: Key::new(&format!("k{}", number % 3)).unwrap(),
        value: Some(value.into()),
        condition: Condition::Always,
        owner: None,
    };
    Call { by, number, again: false, edit }
}

fn number_of(calls: &Calls, key: &str) -> u64 {
    let entry = calls.tree().entry(key);
    entry.map_or(0, |entry| u64::from_be_bytes(entry.value[..8].try_into().unwrap()))
}

#[test]
fn committed_edits_and_their_outcomes_survive_a_power_cut_at_any_write() {
    let (mut medium, mut chance) = (Medium::default(), 7_u64);
    let mut committed: BTreeMap<String, u64> = BTreeMap::new();
    let (mut newest, mut tried) = (0, 0_u64);
    for cut in 0..60_u32 {
        let (mut disk, mut calls) = open(medium.clone());
        for (key, number) in &committed {
            // The last edit may be there without acknowledgement.
            let there = number_of(&calls, key);
            assert!(there >= *number, "cut {cut}: {key} is {there}, not {number}");
        }
        assert!(calls.tree().revision() >= newest, "the tree lost a committed revision");
        let is_there = tried > 0 && number_of(&calls, &format!("k{}", tried % 3)) == tried;
        assert_eq!(calls.known(WRITER, tried).is_some(), is_there, "cut {cut}: edit {tried}");
        let by = By { writer: WRITER, stream: u64::from(cut) + 1 };
        calls.begin(by, cut == 0, Some(0)).expect("there is room");
        // The power fails after up to 36 further operations.
        medium.0.lock().unwrap().left = Some(cut % 37);
        for _ in 0..u8::MAX {
            tried += 1;
            let (version, change) = calls.edit(call(by, tried), false).unwrap();
            if disk.commit(change.as_slice(), &calls.take_rows()).is_err() {
                break;
            }
            newest = version;
            committed.insert(format!("k{}", tried % 3), tried);
        }
        drop(disk);
        medium = medium.after_cut(&mut chance);
    }
    assert_eq!(committed.len(), 3, "a key has no committed edit");
}

fn ask<T>(store: &Store, make: impl FnOnce(oneshot::Sender<T>) -> Command) -> T {
    let (sender, receiver) = oneshot::channel();
    store.order(make(sender));
    receiver.blocking_recv().expect("it is answered")
}

#[test]
fn a_tree_answers_no_reads_until_its_file_opens_again_and_then_lacks_the_unstored_edit() {
    let medium = Medium::default();
    let (file, can_open) = (medium.clone(), Arc::new(AtomicBool::new(true)));
    let can = can_open.clone();
    let open = move || match can.load(Ordering::Relaxed) {
        true => Ok(open(file.after_cut(&mut 0))),
        false => Err(redb::Error::Io(io::Error::other("no such disk"))),
    };
    let store = Store::start(super::tests::open(medium.clone()), Box::new(open)).unwrap();
    let key = || Key::new("k1").unwrap();
    let by = |stream| By { writer: WRITER, stream };
    let begin =
        |stream| ask(&store, |sender| Command::Begin(by(stream), stream == 1, Some(0), sender));
    assert!(matches!(begin(1), Ok(0)));
    let edit = |number, stream| {
        let (sender, receiver) = oneshot::channel();
        store.order(Command::Edit(call(by(stream), number), false, sender));
        receiver.blocking_recv()
    };
    assert!(matches!(edit(1, 1), Ok(Ok(_))));
    let read = || ask(&store, |sender| Command::Read(key(), sender));
    let shown = || read().map(|(_, entry)| entry.map(|entry| entry.value[7]));
    assert!(matches!(shown(), Ok(Some(1))));
    let mut anew = std::pin::pin!(store.anew());
    can_open.store(false, Ordering::Relaxed);
    medium.0.lock().unwrap().left = Some(0);
    assert!(edit(4, 1).is_err(), "its outcome is unknown");
    assert!(matches!(shown(), Err(Failed::Closed(_))), "the unstored edit must not be shown");
    let (sender, mut receiver) = oneshot::channel();
    store.order(Command::Next(Watcher::new(Prefix::ALL, None), sender));
    assert!(matches!(begin(2), Err(Failed::Closed(_))));
    assert!(receiver.try_recv().is_err(), "a watcher sees nothing");
    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
    assert!(anew.as_mut().poll(context).is_ready());
    can_open.store(true, Ordering::Relaxed);
    assert!(matches!(shown(), Ok(Some(1))), "the unstored edit is not there");
    let (_, piece) = receiver.blocking_recv().expect("the watcher has waited");
    let Piece::Snapshot { entries, .. } = piece else { panic!("{piece:?}") };
    assert_eq!(entries[0].1.value[7], 1);
    assert!(matches!(edit(4, 1), Ok(Err(Failed::Refused(Refusal::Replaced)))), "stream 1 is gone");
    assert!(matches!(begin(3), Ok(0)));
    assert!(matches!(edit(4, 3), Ok(Ok(_))));
    assert!(matches!(shown(), Ok(Some(4))));
}

#[test]
fn a_refusal_caused_by_an_unstored_change_is_replaced_by_the_error_of_the_disk() {
    let (first, mut opened) = (Medium::default(), 0);
    let (said, is_open) = std::sync::mpsc::channel();
    let (go, may_open) = std::sync::mpsc::channel();
    let reopen = move || {
        said.send(()).unwrap();
        may_open.recv().unwrap();
        opened += 1;
        let medium = Medium::default();
        let begun = super::tests::open(medium.clone());
        if opened == 1 {
            // The next commit fails too.
            medium.0.lock().unwrap().left = Some(0);
        }
        Ok(begun)
    };
    let store = Store::start(open(first.clone()), Box::new(reopen)).unwrap();
    let by = |stream| By { writer: WRITER, stream };
    let begin = |stream| {
        let (sender, receiver) = oneshot::channel();
        store.order(Command::Begin(by(stream), stream == 1, Some(0), sender));
        receiver
    };
    let edit = |call: Call| {
        let (sender, receiver) = oneshot::channel();
        store.order(Command::Edit(call, false, sender));
        receiver
    };
    assert!(matches!(begin(1).blocking_recv(), Ok(Ok(0))));
    first.0.lock().unwrap().left = Some(0);
    let lost = edit(call(by(1), 1));
    // While the thread opens the file again, these commands become one batch.
    is_open.recv().unwrap();
    let begun = begin(2);
    let unstored = edit(call(by(2), 1));
    let mut conflict = call(by(2), 4);
    conflict.edit.condition = Condition::Version(0);
    let conflict = edit(conflict);
    // The outcome of edit 5 would be discarded if edit 100 were stored.
    let newest = edit(call(by(2), 100));
    let discarded = edit(call(by(2), 5));
    go.send(()).unwrap();
    assert!(matches!(lost.blocking_recv(), Ok(Err(Failed::Disk(_)))));
    is_open.recv().unwrap();
    go.send(()).unwrap();
    assert!(matches!(unstored.blocking_recv(), Ok(Err(Failed::Disk(_)))));
    let conflict = conflict.blocking_recv();
    assert!(matches!(conflict, Ok(Err(Failed::Disk(_)))), "{conflict:?}");
    assert!(matches!(newest.blocking_recv(), Ok(Err(Failed::Disk(_)))));
    let discarded = discarded.blocking_recv();
    assert!(matches!(discarded, Ok(Err(Failed::Disk(_)))), "{discarded:?}");
    assert!(begun.blocking_recv().is_err(), "the reopened tree has no streams");
}

#[test]
fn only_the_owner_can_read_a_new_file_and_a_file_that_others_may_write_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tree");
    let open = || Store::open(&path, Limits::default());
    open().unwrap();
    let mut mode = path.metadata().unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    mode.set_mode(0o660);
    std::fs::set_permissions(&path, mode).unwrap();
    let error = open().unwrap_err().to_string();
    assert!(error.contains("can be written by others") && error.contains("chmod"), "{error}");
}
