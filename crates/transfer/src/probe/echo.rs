//! Measures round trips: one end sends small sealed datagrams (questions), the other end returns
//! their content (answers).
//!
//! The server sends measurement data only to the source address of the client's genuine questions,
//! and only if the client's session has the same address.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use longhaul_proto::time::{Span, Time};
use longhaul_proto::wire::header::Kind;
use tokio::sync::oneshot;

use longhaul_net::port::{Datagrams, FlowSink};
use longhaul_net::sealing::open::Opener;
use longhaul_net::sealing::seal::{SEALED_OVERHEAD, Sealer};
use longhaul_net::socket::{Path, Socket};

/// Questions in one measurement.
pub(super) const QUESTIONS: usize = 20;
/// Interval between questions.
const EVERY: Span = Span::from_millis(20);
/// Longest wait for the last answer.
const PATIENCE: Span = Span::from_millis(1_500);
/// Bytes of a question's number.
const CONTENT: usize = 8;

pub(super) struct Echo {
    pub(super) questions: Opener,
    pub(super) answers: Sealer,
    /// The address that the session has validated.
    pub(super) peer: IpAddr,
    pub(super) socket: Arc<Socket>,
    /// The source of the first genuine question.
    pub(super) path: Arc<OnceLock<Path>>,
}

impl FlowSink for Echo {
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>) {
        for datagram in datagrams {
            if datagram.path.remote.ip().to_canonical() != self.peer {
                continue;
            }
            let mut content = [0; CONTENT];
            let opened = self.questions.open(now, &datagram.header, datagram.bytes, &mut content);
            let Ok(len) = opened else { continue };
            let _ = self.path.set(datagram.path);
            let mut answer = [0; CONTENT + SEALED_OVERHEAD];
            if let Ok(len) = self.answers.seal(Kind::Control, 0, &content[..len], &mut answer) {
                // A failed send is equivalent to a loss.
                let _ = self.socket.send(datagram.path, &answer[..len]);
            }
        }
    }

    fn on_wake(&mut self, _: Time) {}

    fn next_wakeup(&self) -> Option<Time> {
        None
    }

    fn on_port_closed(&mut self, _: &str) {}
}

pub(super) struct Asking {
    questions: Sealer,
    answers: Opener,
    socket: Arc<Socket>,
    path: Path,
    sent: Vec<Time>,
    trips: Vec<Option<Span>>,
    next: Time,
    done: Option<oneshot::Sender<Vec<Option<Span>>>>,
}

impl Asking {
    /// Sends questions over `path`. After the last answer, or a timeout, the returned receiver gets
    /// the round trip of each question; `None` for a question without an answer.
    pub(super) fn new(
        now: Time,
        questions: Sealer,
        answers: Opener,
        socket: Arc<Socket>,
        path: Path,
    ) -> (Asking, oneshot::Receiver<Vec<Option<Span>>>) {
        let (done, trips) = oneshot::channel();
        let asking = Asking {
            questions,
            answers,
            socket,
            path,
            sent: Vec::with_capacity(QUESTIONS),
            trips: vec![None; QUESTIONS],
            next: now,
            done: Some(done),
        };
        (asking, trips)
    }

    fn drive(&mut self, now: Time) {
        if now >= self.next && self.sent.len() < QUESTIONS {
            let number = (self.sent.len() as u64).to_be_bytes();
            let mut question = [0; CONTENT + SEALED_OVERHEAD];
            if let Ok(len) = self.questions.seal(Kind::Control, 0, &number, &mut question) {
                let _ = self.socket.send(self.path, &question[..len]);
            }
            self.sent.push(now);
            let last = self.sent.len() == QUESTIONS;
            self.next = now + if last { PATIENCE } else { EVERY };
        }
        let answered = self.trips.iter().all(Option::is_some);
        if answered || (now >= self.next && self.sent.len() == QUESTIONS) {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if let Some(done) = self.done.take() {
            let _ = done.send(std::mem::take(&mut self.trips));
        }
    }
}

impl FlowSink for Asking {
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>) {
        for datagram in datagrams {
            let mut content = [0; CONTENT];
            let opened = self.answers.open(now, &datagram.header, datagram.bytes, &mut content);
            let number = u64::from_be_bytes(content) as usize;
            if opened == Ok(CONTENT)
                && let Some(sent) = self.sent.get(number)
                && let Some(trip) = self.trips.get_mut(number)
            {
                trip.get_or_insert(now.since(*sent));
            }
        }
        self.drive(now);
    }

    fn on_wake(&mut self, now: Time) {
        self.drive(now);
    }

    fn next_wakeup(&self) -> Option<Time> {
        Some(self.next)
    }

    fn is_closed(&self) -> bool {
        self.done.is_none()
    }

    fn on_port_closed(&mut self, _: &str) {
        self.finish();
    }
}
