use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use longhaul_proto::share::{Condition, Edit, Tree};
use redb::StorageBackend;

use super::*;

/// A disk that keeps what was synced, and of later writes what chance keeps, at a power cut.
#[derive(Clone, Debug, Default)]
struct Medium(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    now: Vec<u8>,
    synced: Vec<u8>,
    /// Writes since the last sync.
    loose: Vec<(usize, Vec<u8>)>,
    /// So many further calls succeed.
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
    /// What is there when the power is back, by the seed `chance`.
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

fn open(medium: Medium) -> (Disk, Tree) {
    let database = Database::builder().create_with_backend(medium).expect("it can be opened");
    let disk = Disk::over(database).expect("it can be opened");
    let tree = disk.load(Limits::default()).expect("it can be read");
    (disk, tree)
}

#[test]
fn what_was_committed_survives_a_power_cut_at_any_write() {
    let (mut medium, mut chance) = (Medium::default(), 7_u64);
    let mut committed: BTreeMap<String, u8> = BTreeMap::new();
    let mut newest = 0;
    for cut in 0..60_u32 {
        let (mut disk, mut tree) = open(medium.clone());
        for (key, value) in &committed {
            let there = tree.entry(key).map(|entry| entry.value[0]);
            // The last edit, which was not acknowledged, may be there.
            assert!(there >= Some(*value), "cut {cut}: {key} is {there:?}, not {value}");
        }
        assert!(tree.revision() >= newest, "a revision comes twice");
        medium.0.lock().unwrap().left = Some(cut % 37);
        for number in 0..u8::MAX {
            let key = format!("k{}", number % 3);
            let value = committed.get(&key).map_or(0, |value| value.saturating_add(1));
            let edit = Edit {
                key: Key::new(&key).unwrap(),
                value: Some(vec![value; 100].into()),
                condition: Condition::Always,
                owner: None,
            };
            let change = tree.apply(edit).unwrap().unwrap();
            if disk.commit(std::slice::from_ref(&change)).is_err() {
                break;
            }
            newest = change.version;
            committed.insert(key, value);
        }
        drop(disk);
        medium = medium.after_cut(&mut chance);
    }
    assert_eq!(committed.len(), 3, "no cut came so late that anything was committed");
}
