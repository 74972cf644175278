//! The two roles of a transfer on the control plane: one task each, over one session.
//!
//! [`wire`] is the session as both roles use it. [`sending`] offers an object (the list of files
//! and their content, as one sequence of bytes) and sends it. [`receiving`] plans which parts are
//! needed, and reports the outcome. Client and server use the same code here: it does not matter
//! which side requested the copy.
//!
//! - what both roles agree on: `terms` (the parameters of a transfer), `offer` and `listing` (the
//!   list of files), `plan` (what need not be sent) and `due` (the blocks that must arrive), and
//!   `flows` (the flow ids).
//! - during the transfer: `room` grants memory for chunks from streams, `named` passes on the names
//!   that were created or deleted, and `silence` detects that datagrams do not arrive although the
//!   control stream works.
//! - before the session: `prepared` splits a source into what is announced and what is sent,
//!   `flight` sends data already, and `begin` starts a flow; `carried` is what carries the data of
//!   a pass.
//! - `limits` checks what the other end announces and sends.

mod begin;
#[cfg(test)]
mod cards;
mod carried;
mod due;
pub(crate) mod flight;
#[cfg(test)]
mod flights;
mod flows;
#[cfg(test)]
mod greed;
#[cfg(test)]
mod lies;
mod limits;
mod listing;
mod named;
mod offer;
mod plan;
pub(crate) mod prepared;
pub(crate) mod receiving;
mod room;
pub(crate) mod sending;
mod silence;
mod terms;
#[cfg(test)]
mod turns;
pub(crate) mod wire;

use std::ops::Range;
use std::pin::pin;
use std::time::Duration;

use longhaul_proto::time::Span;

pub(crate) use terms::{DEFAULT_SEGMENT, Terms};
use wire::End;

use crate::control::{EntryFailed, Message};
use crate::error::{Error, ErrorKind};
use longhaul_files::watch::Held;
use longhaul_files::{Failure, Manifest};

/// Returns the timeout for closing the files after `result`. After a stall the timeout is short,
/// because the disk probably still hangs.
fn closing<T>(result: &Result<T, End>) -> Duration {
    match result {
        Err(End::Fatal(error)) => closing_after(Some(error.kind)),
        _ => closing_after(None),
    }
}

/// Returns the timeout for closing the files. `error` is the kind of a permanent error.
pub(crate) fn closing_after(error: Option<ErrorKind>) -> Duration {
    match error {
        Some(ErrorKind::Stalled) => Duration::from_secs(1),
        Some(ErrorKind::Cancelled) => Duration::from_secs(10),
        _ => Duration::from_secs(60),
    }
}

/// Interval of [`Hooks::tick`] and of status messages to the other end.
const TICK: Duration = Duration::from_millis(100);

/// Waits for `work`. Meanwhile `tick` is called at intervals of [`TICK`]; its error ends the wait.
pub(crate) async fn ticking<T>(
    work: impl Future<Output = T>,
    mut tick: impl FnMut() -> Result<(), End>,
) -> Result<T, End> {
    let mut work = pin!(work);
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            done = &mut work => return Ok(done),
            _ = ticks.tick() => tick()?,
        }
    }
}

fn lost_thread() -> Error {
    Error::new(ErrorKind::Unfinished, "the sending thread ended early")
}

/// The bytes that the destination already has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct There {
    pub(crate) bytes: u64,
    /// Whether `bytes` may still grow, because the source is comparing more chunks.
    pub(crate) asks: bool,
}

/// Where an entry failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whence {
    /// At the source, before the list of entries: the list lacks the entry, so the outcome does not
    /// count it.
    Unlisted,
    /// At the source: the file changed while it was read.
    Changed,
    Source,
    Destination,
}

impl Whence {
    pub(crate) fn of(failed: &EntryFailed) -> Whence {
        match (failed.at_source, failed.changed) {
            (true, _) if failed.entry == u64::MAX => Whence::Unlisted,
            (true, true) => Whence::Changed,
            (true, false) => Whence::Source,
            (false, _) => Whence::Destination,
        }
    }

    pub(crate) fn at_source(failure: &Failure) -> Whence {
        match (failure.entry, failure.changed) {
            (None, _) => Whence::Unlisted,
            (Some(_), true) => Whence::Changed,
            (Some(_), false) => Whence::Source,
        }
    }
}

/// The callbacks through which the surrounding program observes one side of a transfer, and can
/// stop that side.
pub(crate) trait Hooks {
    /// Decides ten times a second whether this side of the transfer continues. An error is the
    /// reason to stop.
    fn tick(&self) -> Result<(), End>;

    fn on_message(&self, _message: &Message) {}

    /// Reports that this end does not read at present. Silence of the other end then means nothing.
    fn deaf(&self) {}

    /// Reports that another copy has locked a file or folder of the destination.
    fn held(&self, _held: &Held) {}

    /// Passes a warning of the receiving end on to the user.
    fn warn(&self, _text: String) {}

    /// Reports how long the other end has been silent, or `None` at the end of the silence. During
    /// the silence the sending role, at whichever end, sends no data.
    fn silence(&self, _since: Option<Span>) {}

    /// Reports the complete plan: skipped entries, and existing bytes.
    fn planned(&self, manifest: &Manifest, skipped: &[Range<u64>], there: There);

    /// Reports entries that have their final names, if requested.
    fn named(&self, manifest: &Manifest, entries: &[Range<u64>]);

    /// Reports entries that a dry run would create.
    fn would_copy(&self, _manifest: &Manifest, _entries: &[Range<u64>]) {}

    /// Reports names that the source lacks, and that this copy removed or a dry run would remove.
    fn deleted(&self, _paths: &[Vec<u8>]) {}

    fn entry_failed(&self, path: &[u8], reason: &str, whence: Whence);
}
