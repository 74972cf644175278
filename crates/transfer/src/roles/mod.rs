//! The two roles of a transfer on the control plane: one task each, over one session.
//!
//! [`wire`] is a session as both use it; [`sending`] offers an object and answers for it;
//! [`receiving`] plans, and says what stands. Client and server are the same here: who asked for
//! the copy no longer matters.

#[cfg(test)]
mod cards;
mod due;
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
pub(crate) mod receiving;
mod room;
pub(crate) mod sending;
mod silence;
mod terms;
#[cfg(test)]
mod turns;
pub(crate) mod wire;

use std::ops::Range;
use std::time::Duration;

use longhaul_proto::time::Span;

pub(crate) use terms::{DEFAULT_SEGMENT, Terms};
use wire::End;

use crate::control::{EntryFailed, Message};
use crate::error::ErrorKind;
use longhaul_files::watch::Held;
use longhaul_files::{Failure, Manifest};

/// How long the files may take to close, after `result`. A disk that has not answered before does
/// not do so then; a later run hashes what was not journalled.
fn closing<T>(result: &Result<T, End>) -> Duration {
    match result {
        Err(End::Fatal(error)) => closing_after(Some(error.kind)),
        _ => closing_after(None),
    }
}

/// The same after an error of this kind, or without one.
pub(crate) fn closing_after(error: Option<ErrorKind>) -> Duration {
    match error {
        Some(ErrorKind::Stalled) => Duration::from_secs(1),
        Some(ErrorKind::Cancelled) => Duration::from_secs(10),
        _ => Duration::from_secs(60),
    }
}

/// What need not be sent, as a plan has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct There {
    /// Bytes that are there.
    pub(crate) bytes: u64,
    /// The source is asked about more, which may be there as well.
    pub(crate) asks: bool,
}

/// Where an entry failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whence {
    /// At the source, where it changed while it was read.
    Changed,
    /// At the source.
    Source,
    /// At the destination.
    Destination,
}

impl Whence {
    /// What a peer says of an entry.
    pub(crate) fn of(failed: &EntryFailed) -> Whence {
        match (failed.at_source, failed.changed) {
            (true, true) => Whence::Changed,
            (true, false) => Whence::Source,
            (false, _) => Whence::Destination,
        }
    }

    /// What the source itself has found.
    pub(crate) fn at_source(failure: &Failure) -> Whence {
        if failure.changed { Whence::Changed } else { Whence::Source }
    }
}

/// What the process around an end wants to know, and decides.
pub(crate) trait Hooks {
    /// Ten times a second: may the end go on?
    ///
    /// # Errors
    /// Why it may not.
    fn tick(&self) -> Result<(), End>;

    /// The other end has said this.
    fn heard(&self, _message: &Message) {}

    /// This end takes nothing in at present: it hears nothing, whoever speaks.
    fn deaf(&self) {}

    /// Another copy has a file of the destination, and its end is waited for.
    fn held(&self, _held: &Held) {}

    /// Nothing has come from the other end for so long, and nothing is sent until it does; or,
    /// with nothing, it is heard again.
    fn silence(&self, _since: Option<Span>) {}

    /// The plan is complete: entries left out, and what need not be sent.
    fn planned(&self, manifest: &Manifest, skipped: &[Range<u64>], there: There);

    /// These entries have got their names, where that was asked for.
    fn named(&self, manifest: &Manifest, entries: &[Range<u64>]);

    /// A dry run: these entries would be made.
    fn would_copy(&self, _manifest: &Manifest, _entries: &[Range<u64>]) {}

    /// These names that the source lacks were removed, or would be.
    fn deleted(&self, _paths: &[Vec<u8>]) {}

    /// An entry failed.
    fn entry_failed(&self, path: &[u8], reason: &str, whence: Whence);
}
