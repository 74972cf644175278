//! The register of running transfers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::session::{PeerId, Session};

/// How long to wait for another transfer into the same destination to answer or to end. After that
/// the new transfer tries to lock the files.
pub(super) const ASKED: Duration = Duration::from_secs(15);

/// Maximum number of additional streams of a transfer.
const MAX_STREAMS: u32 = 64;

#[derive(Default)]
pub(super) struct Register {
    transfers: RefCell<BTreeMap<u64, Entry>>,
    next: RefCell<u64>,
}

struct Entry {
    peer: PeerId,
    transfer: u64,
    /// The id of the transfer that this transfer resumes; zero for none.
    replaces: u64,
    /// The destination of the transfer, if the transfer writes.
    destination: Option<PathBuf>,
    streams: mpsc::UnboundedSender<Session>,
    /// How many more additional streams the transfer may get.
    places: Cell<u32>,
    question: mpsc::UnboundedSender<Question>,
}

/// A question to a transfer whose destination another transfer needs.
pub(super) enum Question {
    /// Is the client alive? The answer is sent as soon as it is known.
    Alive(oneshot::Sender<bool>),
    /// End, because the same client needs the destination again. The answer's channel is closed
    /// without an answer when the destination is free.
    Yield(oneshot::Sender<()>),
}

/// A transfer's entry in the register, removed on drop.
pub(super) struct Registered<'a> {
    register: &'a Register,
    number: u64,
    pub(super) peer: PeerId,
    pub(super) streams: Option<mpsc::UnboundedReceiver<Session>>,
    pub(super) questions: Option<mpsc::UnboundedReceiver<Question>>,
}

impl Register {
    pub(super) fn enter(
        &self,
        peer: PeerId,
        transfer: u64,
        replaces: u64,
        destination: Option<PathBuf>,
        streams: u32,
    ) -> Registered<'_> {
        let places = Cell::new(streams.min(MAX_STREAMS));
        let (stream_end, streams) = mpsc::unbounded_channel();
        let (question, questions) = mpsc::unbounded_channel();
        let mut next = self.next.borrow_mut();
        *next += 1;
        let entry =
            Entry { peer, transfer, replaces, destination, streams: stream_end, places, question };
        self.transfers.borrow_mut().insert(*next, entry);
        Registered {
            register: self,
            number: *next,
            peer,
            streams: Some(streams),
            questions: Some(questions),
        }
    }

    /// Passes an additional stream to its transfer; closes the stream if it belongs to no transfer,
    /// or was not requested.
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
    /// Returns whether this transfer claims to resume `earlier`.
    fn is_next_to(&self, earlier: &Entry) -> bool {
        self.replaces != 0 && self.replaces == earlier.transfer
    }

    fn take_place(&self) -> bool {
        let left = self.places.get().checked_sub(1);
        left.inspect(|left| self.places.set(*left)).is_some()
    }
}

impl Registered<'_> {
    /// Ends the transfer that this transfer resumes. Also ends older transfers of the same client
    /// into the same destination, if their clients no longer answer. Waits at most [`ASKED`]
    /// for each answer and for each end. To be called before this transfer writes. Returns whether
    /// an older transfer of any client into the same destination continues because its client still
    /// answers.
    pub(super) async fn make_way(&self) -> bool {
        let mut held = false;
        for (whose, question) in self.before() {
            let lives = match whose {
                Earlier::Replaced => Some(false),
                Earlier::Own | Earlier::Others => ask(&question).await,
            };
            match lives {
                Some(true) => held = true,
                Some(false) if whose != Earlier::Others => give_way(&question).await,
                // The lock on the files decides about a dead transfer of another client, and about
                // a transfer that has ended or did not answer.
                Some(false) | None => {}
            }
        }
        held
    }

    /// Returns the earlier transfers into the same destination, and the transfer that this transfer
    /// resumes, each with its channel for questions.
    fn before(&self) -> Vec<(Earlier, mpsc::UnboundedSender<Question>)> {
        let transfers = self.register.transfers.borrow();
        let Some(own) = transfers.get(&self.number) else { return Vec::new() };
        let before = transfers.range(..self.number).map(|(_, entry)| entry);
        let whose = |entry: &Entry| {
            let is_own = entry.peer == own.peer;
            let same_place = own.destination.is_some() && entry.destination == own.destination;
            match same_place {
                _ if is_own && own.is_next_to(entry) => Some(Earlier::Replaced),
                true if is_own => Some(Earlier::Own),
                true => Some(Earlier::Others),
                false => None,
            }
        };
        before.filter_map(|entry| Some((whose(entry)?, entry.question.clone()))).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Earlier {
    /// Of the same client, and resumed by this transfer.
    Replaced,
    /// Of the same client, into the same destination.
    Own,
    /// Of another client, into the same destination.
    Others,
}

/// Returns whether a transfer's client is alive; `None` if unknown.
async fn ask(question: &mpsc::UnboundedSender<Question>) -> Option<bool> {
    let (alive, lives) = oneshot::channel();
    question.send(Question::Alive(alive)).ok()?;
    timeout(ASKED, lives).await.ok()?.ok()
}

/// Ends a transfer, and waits, at most [`ASKED`], until it has unlocked its files.
async fn give_way(question: &mpsc::UnboundedSender<Question>) {
    let (yielded, gone) = oneshot::channel();
    if question.send(Question::Yield(yielded)).is_ok() {
        // If the transfer ends, the channel is dropped without an answer.
        let _ = timeout(ASKED, gone).await;
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
    use crate::loopback::{LOOPBACKS, pair, run};
    use crate::session::Carriers;

    #[test]
    fn a_transfer_gets_the_requested_streams_and_no_more() {
        run(async {
            let register = Register::default();
            let (first, second) = pair(Carriers::Tcp, LOOPBACKS[0]).await;
            let (third, _) = pair(Carriers::Tcp, LOOPBACKS[0]).await;
            let peer = first.peer;
            let mut registered = register.enter(peer, 7, 0, None, 2);
            for session in [first, second, third] {
                register.attach(peer, 7, session);
            }
            let mut streams = registered.streams.take().unwrap();
            assert!(streams.try_recv().is_ok() && streams.try_recv().is_ok());
            assert!(streams.try_recv().is_err());
        });
    }

    #[test]
    fn a_transfer_gets_at_most_64_additional_streams() {
        let register = Register::default();
        let peer = crate::session::Identity::generate().id();
        let _registered = register.enter(peer, 7, 0, None, u32::MAX);
        let transfers = register.transfers.borrow();
        let entry = transfers.values().next().unwrap();
        let taken = (0..1_000).filter(|_| entry.take_place()).count();
        assert_eq!(taken, 64);
    }

    /// Plays a transfer: answers `lives` to the question whether its client is alive, and ends when
    /// the transfer has to give way.
    async fn transfer_of(mut registered: Registered<'_>, lives: bool) {
        let mut questions = registered.questions.take().unwrap();
        while let Some(question) = questions.recv().await {
            match question {
                Question::Alive(answer) => drop(answer.send(lives)),
                Question::Yield(_) => return,
            }
        }
    }

    #[test]
    fn dead_or_resumed_transfers_of_the_same_client_give_way_and_no_others() {
        run(async {
            let [client, other] = [(); 2].map(|()| crate::session::Identity::generate().id());
            let place = || Some(PathBuf::from("to"));
            for (peer, transfer, lives, held, left) in [
                (client, 5, false, false, false),
                (client, 5, true, true, true),
                // The same client resumes the transfer, so the answer does not matter.
                (client, 7, true, false, false),
                (other, 7, false, false, true),
                (other, 5, true, true, true),
            ] {
                let register = Register::default();
                let earlier = register.enter(peer, transfer, 0, place(), 0);
                let newcomer = register.enter(client, 8, 7, place(), 0);
                let earlier = transfer_of(earlier, lives);
                tokio::pin!(earlier);
                let mut gave_way = false;
                let yielding = newcomer.make_way();
                tokio::pin!(yielding);
                let is_held = loop {
                    tokio::select! {
                        () = &mut earlier, if !gave_way => gave_way = true,
                        is_held = &mut yielding => break is_held,
                    }
                };
                assert_eq!((is_held, !gave_way), (held, left), "{transfer} {lives}");
            }
        });
    }

    #[test]
    fn a_transfer_to_another_destination_is_not_asked() {
        run(async {
            let register = Register::default();
            let client = crate::session::Identity::generate().id();
            // This transfer answers no questions: a question would wait for [`ASKED`].
            let _earlier = register.enter(client, 1, 0, Some(PathBuf::from("a")), 0);
            let newcomer = register.enter(client, 2, 0, Some(PathBuf::from("b")), 0);
            assert!(!newcomer.make_way().await);
            assert!(!register.enter(client, 3, 0, None, 0).make_way().await);
        });
    }
}
