//! The hooks of a server's transfer: they answer questions from other transfers, and report to the
//! client.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::events::Moved;
use super::register::Question;
use super::running::Running;
use crate::control::{self, Message, Outcome, Ping};
use crate::counters::Counters;
use crate::counters::board::Board;
use crate::flow::outbox::Outbox;
use crate::roles::wire::End;
use crate::roles::{Hooks, There, Whence};
use crate::write::planned::named_messages;
use longhaul_files::Manifest;
use longhaul_files::watch::Held;

/// Timeout after which a client that does not answer counts as dead.
const PROOF_OF_LIFE: Duration = Duration::from_millis(1500);

pub(super) struct ServerHooks {
    questions: Option<RefCell<mpsc::UnboundedReceiver<Question>>>,
    /// Transfers that wait to learn whether the client is alive.
    asked: RefCell<Vec<oneshot::Sender<bool>>>,
    /// The start of the client's current silence. The silence restarts at each question to the
    /// client, at each message from the client, and while this end does not read.
    silent_since: Cell<Instant>,
    /// Wakes the transfers that wait for the destination: these senders are dropped when this
    /// transfer ends.
    yielded: RefCell<Vec<oneshot::Sender<()>>>,
    outbox: Outbox,
    /// The conditions for the transfer to continue.
    running: Option<Running>,
    /// Bytes that existed at the destination before the transfer.
    there: Cell<u64>,
    /// The number of failed entries, and how many of them the outcome does not count.
    failed: Cell<(u64, u64)>,
}

impl ServerHooks {
    pub(super) fn new(
        questions: Option<mpsc::UnboundedReceiver<Question>>,
        outbox: Outbox,
    ) -> ServerHooks {
        ServerHooks {
            questions: questions.map(RefCell::new),
            asked: RefCell::default(),
            silent_since: Cell::new(Instant::now()),
            yielded: RefCell::default(),
            outbox,
            running: None,
            there: Cell::default(),
            failed: Cell::default(),
        }
    }

    pub(super) fn of(self, running: Running) -> ServerHooks {
        ServerHooks { running: Some(running), ..self }
    }

    /// Returns the data that the transfer has moved, from the counters of both ends and the
    /// outcome, if there is one. Numbers that the server has not counted itself come from the
    /// client.
    pub(super) fn moved(&self, board: &Board, outcome: Option<&Outcome>) -> Moved {
        let (mine, theirs) = (board.mine().written, board.theirs().written);
        let resumed = outcome.map_or(0, |outcome| outcome.resumed_bytes);
        let reported = outcome.and_then(|outcome| outcome.status.as_ref()).map(Counters::from);
        let reported = reported.map_or(0, |counters| counters.written.bytes);
        let written = mine.bytes.max(theirs.bytes).max(reported);
        let (failed, unlisted) = self.failed.get();
        Moved {
            bytes: written.saturating_sub(self.there.get().max(resumed)),
            files: outcome.map_or(mine.files.max(theirs.files), |outcome| outcome.files),
            failed: outcome.map_or(failed, |outcome| outcome.failed_count.saturating_add(unlisted)),
        }
    }

    fn answer(&self, lives: bool) {
        for asked in self.asked.borrow_mut().drain(..) {
            // The other transfer may have ended meanwhile.
            let _ = asked.send(lives);
        }
    }
}

impl Hooks for ServerHooks {
    fn tick(&self) -> Result<(), End> {
        self.running.as_ref().map_or(Ok(()), Running::check)?;
        let Some(questions) = &self.questions else { return Ok(()) };
        while let Ok(question) = questions.borrow_mut().try_recv() {
            match question {
                Question::Alive(answer) => {
                    self.asked.borrow_mut().push(answer);
                    self.silent_since.set(Instant::now());
                    self.outbox.send(Message::Ping(Ping { answer: false }));
                }
                Question::Yield(answer) => {
                    self.yielded.borrow_mut().push(answer);
                    return Err(End::Lost("the client reconnected over a new connection".into()));
                }
            }
        }
        if self.silent_since.get().elapsed() >= PROOF_OF_LIFE {
            self.answer(false);
        }
        Ok(())
    }

    /// Records that a message has arrived. The client may have sent the message before this server
    /// asked whether the client is alive. So only the answer to that question proves that the
    /// client is alive. But as long as messages arrive, the server waits for the answer.
    fn on_message(&self, message: &Message) {
        self.deaf();
        if matches!(message, Message::Ping(Ping { answer: true })) {
            self.answer(true);
        }
    }

    fn deaf(&self) {
        self.silent_since.set(Instant::now());
    }

    fn held(&self, held: &Held) {
        let held = control::Held::new(held.path.clone(), held.patience);
        self.outbox.send(Message::Held(held));
    }

    fn warn(&self, text: String) {
        self.outbox.send(Message::Warning(control::Warning { text }));
    }

    fn planned(&self, _manifest: &Manifest, _skipped: &[Range<u64>], there: There) {
        self.there.set(there.bytes);
        if let Some(running) = &self.running {
            running.note_there(there.bytes);
        }
    }

    fn named(&self, _manifest: &Manifest, entries: &[Range<u64>]) {
        for named in named_messages(entries) {
            self.outbox.send(Message::Named(named));
        }
    }

    fn deleted(&self, paths: &[Vec<u8>]) {
        self.outbox.send(Message::DeletedNames(control::DeletedNames { paths: paths.to_vec() }));
    }

    fn entry_failed(&self, _path: &[u8], _reason: &str, whence: Whence) {
        let (failed, unlisted) = self.failed.get();
        let is_unlisted = u64::from(whence == Whence::Unlisted);
        self.failed.set((failed.saturating_add(1), unlisted.saturating_add(is_unlisted)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Status;
    use crate::write::budget::MessageCharge;

    fn hooks() -> (ServerHooks, mpsc::UnboundedSender<Question>) {
        let (ask, questions) = mpsc::unbounded_channel();
        let (outbox, _outflow) = Outbox::new(MessageCharge::alone());
        (ServerHooks::new(Some(questions), outbox), ask)
    }

    fn ask(ask: &mpsc::UnboundedSender<Question>) -> oneshot::Receiver<bool> {
        let (alive, lives) = oneshot::channel();
        ask.send(Question::Alive(alive)).expect("it is heard");
        lives
    }

    fn long_ago(hooks: &ServerHooks) {
        let long_ago = Instant::now().checked_sub(PROOF_OF_LIFE);
        hooks.silent_since.set(long_ago.expect("the clock has run for longer"));
    }

    #[test]
    fn entries_that_failed_before_the_list_count_in_addition_to_those_of_the_outcome() {
        let (hooks, _questions) = hooks();
        for whence in [Whence::Unlisted, Whence::Source, Whence::Destination, Whence::Changed] {
            hooks.entry_failed(b"path", "reason", whence);
        }
        let board = Board::default();
        assert_eq!(hooks.moved(&board, None).failed, 4);
        let outcome = Outcome { failed_count: 3, ..Outcome::default() };
        assert_eq!(hooks.moved(&board, Some(&outcome)).failed, 4);
        let outcome = Outcome { failed_count: u64::MAX, ..Outcome::default() };
        assert_eq!(hooks.moved(&board, Some(&outcome)).failed, u64::MAX);
    }

    #[test]
    fn messages_sent_before_the_question_do_not_prove_that_a_client_lives() {
        let (hooks, questions) = hooks();
        let mut lives = ask(&questions);
        hooks.tick().unwrap();
        hooks.on_message(&Message::Status(Status::default()));
        hooks.tick().unwrap();
        assert!(lives.try_recv().is_err(), "nothing is known yet");
        long_ago(&hooks);
        hooks.tick().unwrap();
        assert_eq!(lives.try_recv(), Ok(false));
    }

    #[test]
    fn a_late_answer_proves_that_a_client_lives_if_other_messages_arrive_before_it() {
        let (hooks, questions) = hooks();
        let mut lives = ask(&questions);
        hooks.tick().unwrap();
        for _ in 0..3 {
            long_ago(&hooks);
            hooks.on_message(&Message::Status(Status::default()));
            hooks.tick().unwrap();
        }
        // While this end does not read, it cannot know whether its peer is alive.
        long_ago(&hooks);
        hooks.deaf();
        hooks.tick().unwrap();
        hooks.on_message(&Message::Ping(Ping { answer: true }));
        assert_eq!(lives.try_recv(), Ok(true));
    }
}
