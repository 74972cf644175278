//! The transfers under way.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::session::{PeerId, Session};

/// How long a silent transfer into the same destination is given to show that it lives.
const PROOF_OF_LIFE: Duration = Duration::from_millis(1500);

/// Further streams that a transfer may have at most.
const MAX_STREAMS: u32 = 64;

/// The transfers under way, by number.
#[derive(Default)]
pub(super) struct Register {
    transfers: RefCell<BTreeMap<u64, Entry>>,
    next: RefCell<u64>,
}

struct Entry {
    peer: PeerId,
    transfer: u64,
    /// Where it writes to, if it writes.
    destination: Option<Vec<u8>>,
    streams: mpsc::UnboundedSender<Session>,
    /// How many more streams it may be given.
    places: Cell<u32>,
    /// Asks whether the client lives; an answer means that it does.
    question: mpsc::UnboundedSender<Question>,
}

/// Asked of a transfer whose destination another one wants.
pub(super) enum Question {
    /// Does the client live? The answer is sent when it speaks.
    Alive(oneshot::Sender<()>),
    /// End: the client has come back. Dropped when the destination is free.
    Yield(oneshot::Sender<()>),
}

/// A transfer's place in the register, given back when dropped.
pub(super) struct Registered<'a> {
    register: &'a Register,
    number: u64,
    pub(super) streams: Option<mpsc::UnboundedReceiver<Session>>,
    pub(super) questions: Option<mpsc::UnboundedReceiver<Question>>,
}

impl Register {
    /// Enters a transfer that has asked for so many further `streams`.
    pub(super) fn enter(
        &self,
        peer: PeerId,
        transfer: u64,
        destination: Option<Vec<u8>>,
        streams: u32,
    ) -> Registered<'_> {
        let places = Cell::new(streams.min(MAX_STREAMS));
        let (stream_end, streams) = mpsc::unbounded_channel();
        let (question, questions) = mpsc::unbounded_channel();
        let mut next = self.next.borrow_mut();
        *next += 1;
        let entry = Entry { peer, transfer, destination, streams: stream_end, places, question };
        self.transfers.borrow_mut().insert(*next, entry);
        Registered {
            register: self,
            number: *next,
            streams: Some(streams),
            questions: Some(questions),
        }
    }

    /// Hands a further stream to its transfer; one that belongs to none, or that it did not ask
    /// for, is closed.
    pub(super) fn attach(&self, peer: PeerId, transfer: u64, session: Session) {
        let transfers = self.transfers.borrow();
        let entry = transfers.values().find(|e| e.peer == peer && e.transfer == transfer);
        if let Some(entry) = entry
            && entry.take_place()
        {
            let _ = entry.streams.send(session);
        }
    }
}

impl Entry {
    fn take_place(&self) -> bool {
        let left = self.places.get().checked_sub(1);
        left.inspect(|left| self.places.set(*left)).is_some()
    }
}

impl Registered<'_> {
    /// Before this transfer writes: another of the same client into the same place, whose client
    /// no longer lives, gives way. One that lives keeps its lock, and this one will find it there.
    pub(super) async fn make_way(&self) {
        let questions: Vec<_> = {
            let transfers = self.register.transfers.borrow();
            let Some(own) = transfers.get(&self.number) else { return };
            let before = transfers.range(..self.number).map(|(_, entry)| entry);
            before
                .filter(|entry| {
                    own.destination.is_some()
                        && entry.peer == own.peer
                        && entry.destination == own.destination
                })
                .map(|entry| entry.question.clone())
                .collect()
        };
        for question in questions {
            let (alive, lives) = oneshot::channel();
            if question.send(Question::Alive(alive)).is_err() {
                continue;
            }
            if let Ok(Ok(())) = tokio::time::timeout(PROOF_OF_LIFE, lives).await {
                continue;
            }
            let (yielded, gone) = oneshot::channel();
            if question.send(Question::Yield(yielded)).is_ok() {
                // Dropped unanswered once the transfer has let go of its files.
                let _ = gone.await;
            }
        }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.register.transfers.borrow_mut().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Carriers;
    use crate::session::tests::{LOOPBACKS, pair, run};

    #[test]
    fn a_transfer_is_given_the_streams_it_asked_for_and_no_more() {
        run(async {
            let register = Register::default();
            let (first, second) = pair(Carriers::Tcp, LOOPBACKS[0]).await;
            let (third, _) = pair(Carriers::Tcp, LOOPBACKS[0]).await;
            let peer = first.peer;
            let mut registered = register.enter(peer, 7, None, 2);
            for session in [first, second, third] {
                register.attach(peer, 7, session);
            }
            let mut streams = registered.streams.take().unwrap();
            assert!(streams.try_recv().is_ok() && streams.try_recv().is_ok());
            assert!(streams.try_recv().is_err());
        });
    }

    #[test]
    fn no_transfer_is_given_streams_without_bound() {
        let register = Register::default();
        let peer = crate::session::Identity::ephemeral().id();
        let _registered = register.enter(peer, 7, None, u32::MAX);
        let transfers = register.transfers.borrow();
        let entry = transfers.values().next().unwrap();
        let taken = (0..1_000).filter(|_| entry.take_place()).count();
        assert_eq!(taken, 64);
    }
}
