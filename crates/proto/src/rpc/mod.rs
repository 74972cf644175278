//! Remote procedure calls over one ordered stream: Quanta's `QUANTAnet_rpc_c` (section 3.2).
//!
//! Client and server (the two ends) call each other: a [`Caller`] makes the calls of its own end, a
//! [`Callee`] serves the calls of the other end. The client's calls have odd numbers, and the
//! server's calls have even numbers. A call has a request and one answer. With [`Call::items`] both
//! ends also send items, at most [`CREDIT`] more than their reader has taken. Calls do not wait for
//! each other, so a batch of calls takes one round trip.
//!
//! When the connection is lost, calls with items fail. The caller sends its other unanswered calls
//! again on the next connection, with their old numbers. The callee executes each call at most
//! once: if the callee still has the answer, it repeats the answer. The callee keeps answers until
//! the caller confirms them, within limits. A call whose answer was discarded fails with
//! [`RpcCode::Unknown`].

mod callee;
mod caller;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::share::Lie;

pub use callee::{Callee, Order, Room};
pub use caller::{Caller, Event, Request};

/// The longest request, item or answer in bytes.
pub const MAX_BODY: usize = 256 << 10;
/// Limit of one caller's unanswered calls.
pub const CALLS: usize = 256;
/// Limit of one caller's unanswered calls with items.
pub const STREAMS: usize = 16;
/// Maximum number of items that wait for their reader.
pub const CREDIT: u32 = 8;
/// Limits of the answers that a callee keeps: count and bytes.
pub const KEPT: (usize, usize) = (512, 4 << 20);

/// A message of either end. Each `u64` is the number of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A call.
    Call(Call),
    /// An item of a call.
    Item(u64, Vec<u8>),
    /// The caller sends no more items.
    Finish(u64),
    /// The answer, which ends a call.
    Answer(u64, Answer),
    /// The caller no longer needs the answer.
    Cancel(u64),
    /// The receiver of this message may send this many more items of the call.
    Credit(u64, u32),
    /// The caller confirms these answers.
    Have(Vec<u64>),
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The number, which grows with each call of the caller.
    pub id: u64,
    /// The name of the method.
    pub method: String,
    /// The request.
    pub body: Vec<u8>,
    /// Time left for the answer in milliseconds; 0: no limit.
    pub within: u64,
    /// Whether both ends may send items.
    pub items: bool,
    /// Whether the call was sent before, on a lost connection.
    pub again: bool,
}

/// The result of a call.
pub type Answer = Result<Vec<u8>, RpcError>;

/// The error of a failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// The kind of failure.
    pub code: RpcCode,
    /// The reason, for people.
    pub reason: String,
}

impl RpcError {
    /// Returns an error with its reason.
    pub fn new(code: RpcCode, reason: impl Into<String>) -> RpcError {
        RpcError { code, reason: reason.into() }
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl core::error::Error for RpcError {}

/// The kind of failure of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RpcCode {
    /// The method failed.
    Failed,
    /// An item could not be sent, because the call has ended.
    Cancelled,
    /// The deadline passed before the answer.
    Deadline,
    /// The other side has no such method.
    NoMethod,
    /// The caller has no right to this method, or the connection ended with an error other than
    /// a loss.
    Denied,
    /// Too many calls are unanswered; a later call may succeed.
    Busy,
    /// A request, item or answer is longer than 256 KiB.
    TooLong,
    /// A request, item or answer has another type than its reader expects.
    Malformed,
    /// The call may have been executed, but its answer is lost.
    Unknown,
    /// The connection was lost.
    Lost,
    /// An error of the application, with its own number.
    Custom(u16),
}

impl RpcCode {
    const ALL: [RpcCode; 10] = [
        RpcCode::Failed,
        RpcCode::Cancelled,
        RpcCode::Deadline,
        RpcCode::NoMethod,
        RpcCode::Denied,
        RpcCode::Busy,
        RpcCode::TooLong,
        RpcCode::Malformed,
        RpcCode::Unknown,
        RpcCode::Lost,
    ];
    /// The number of the first error of applications.
    const CUSTOM: u32 = 1 << 16;

    /// Returns the number on the wire, from 1.
    pub fn number(self) -> u32 {
        match self {
            RpcCode::Custom(number) => RpcCode::CUSTOM + u32::from(number),
            known => {
                RpcCode::ALL.iter().position(|code| *code == known).map_or(1, |at| at as u32 + 1)
            }
        }
    }

    /// Returns the kind with a number. A kind of a newer release counts as [`RpcCode::Failed`].
    pub fn of_number(number: u32) -> RpcCode {
        if let Some(custom) = number.checked_sub(RpcCode::CUSTOM) {
            return u16::try_from(custom).map_or(RpcCode::Failed, RpcCode::Custom);
        }
        let at = number.checked_sub(1).map(|at| at as usize);
        at.and_then(|at| RpcCode::ALL.get(at).copied()).unwrap_or(RpcCode::Failed)
    }
}

/// Items of a call at one end: how many more each side may send.
#[derive(Debug)]
struct Items {
    /// Items that this end may send.
    ours: u32,
    /// Items that the other end may send.
    theirs: u32,
    /// Items read here for which no new credit was sent yet.
    read: u32,
}

impl Items {
    fn new() -> Items {
        Items { ours: CREDIT, theirs: CREDIT, read: 0 }
    }

    /// Counts an item that this end sends; returns whether it may be sent.
    fn send(&mut self) -> bool {
        let may = self.ours > 0;
        self.ours = self.ours.saturating_sub(1);
        may
    }

    fn came(&mut self) -> Result<(), Lie> {
        let left = self.theirs.checked_sub(1);
        self.theirs = left.ok_or(Lie("a call has more items than its reader allows"))?;
        Ok(())
    }

    fn allowed(&mut self, more: u32) -> Result<(), Lie> {
        let all = self.ours.checked_add(more).filter(|all| *all <= CREDIT);
        self.ours = all.ok_or(Lie("a call is allowed more unread items than the limit"))?;
        Ok(())
    }

    /// Counts an item that was read. After every 4 items (half of [`CREDIT`]), returns how many
    /// more to allow.
    fn read(&mut self) -> Option<u32> {
        self.read += 1;
        (self.read >= CREDIT / 2).then(|| {
            self.theirs += self.read;
            core::mem::take(&mut self.read)
        })
    }
}

/// Queues a message that allows `more` items of a call. If the queue already has such a message for
/// the call, adds `more` to that message.
fn allow(queue: &mut VecDeque<Message>, id: u64, more: u32) {
    let earlier = queue.iter_mut().find_map(|message| match message {
        Message::Credit(of, items) if *of == id => Some(items),
        _ => None,
    });
    match earlier {
        Some(items) => *items += more,
        None => queue.push_back(Message::Credit(id, more)),
    }
}
