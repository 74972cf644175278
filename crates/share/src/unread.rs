//! Limits the unread data of a client's watches. All watches of a client (up to 15) share one
//! limit: if each watch had its own limit, a server could fill all of them. Incomplete snapshots
//! count too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_proto::share::Update;
use longhaul_session::{Error, Kind};

/// Limit on unread bytes of a client: two snapshots of the largest possible tree.
const MOST: usize = 2 << 30;

#[derive(Clone, Debug)]
pub(crate) struct Limit {
    held: Arc<AtomicUsize>,
    most: usize,
}

/// A reserved part of the limit, released on drop.
#[derive(Debug)]
pub(crate) struct Held {
    limit: Limit,
    bytes: usize,
}

/// An unread update of a watch, counted until the program takes it.
#[derive(Debug)]
pub struct Unread {
    update: Update,
    _held: Held,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit { held: Arc::default(), most: MOST }
    }
}

impl Limit {
    pub(crate) fn hold(&self) -> Held {
        Held { limit: self.clone(), bytes: 0 }
    }

    /// Counts `update` until the program takes it.
    pub(crate) fn unread(&self, update: Update) -> Result<Unread, Error> {
        let mut held = self.hold();
        held.set(update.bytes())?;
        Ok(Unread { update, _held: held })
    }
}

impl Held {
    /// Changes the reservation; an error leaves it unchanged.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), Error> {
        let Limit { held, most } = &self.limit;
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            let now = held.fetch_add(more, Ordering::Relaxed) + more;
            if now > *most {
                held.fetch_sub(more, Ordering::Relaxed);
                let what = format!(
                    "unread events and incomplete snapshots of the watches exceed {} MiB",
                    most >> 20
                );
                return Err(Error::new(Kind::Usage, what)
                    .advise("read the events of each watch, or watch smaller parts of the tree"));
            }
        } else {
            held.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.limit.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Unread {
    /// Takes the update.
    pub fn take(self) -> Update {
        self.update
    }
}

#[cfg(test)]
mod tests {
    use longhaul_proto::share::{Entry, Key};

    use super::*;

    fn update(len: usize) -> Update {
        let entry = Entry { value: vec![0; len].into(), version: 1, owner: None };
        Update::Snapshot(vec![(Key::new("a").unwrap(), entry)])
    }

    #[test]
    fn all_watches_of_a_client_share_one_limit_and_reading_frees_it() {
        // An entry takes 96 bytes, 1 for its key, and its value.
        let limit = Limit { held: Arc::default(), most: 1000 };
        let mut snapshot = limit.hold();
        snapshot.set(400).unwrap();
        let unread = limit.unread(update(500 - 97)).unwrap();
        assert!(limit.unread(update(4)).is_err() && snapshot.set(501).is_err());
        assert_eq!(unread.take(), update(500 - 97));
        snapshot.set(999).unwrap();
        assert!(snapshot.set(1001).is_err());
        snapshot.set(0).unwrap();
        drop((limit.unread(update(900)).unwrap(), snapshot));
        assert_eq!(limit.held.load(Ordering::Relaxed), 0);
    }
}
