//! The two roles of a transfer on the control plane: one task each, over one session.
//!
//! [`wire`] is a session as both use it; [`sending`] offers an object and answers for it;
//! [`receiving`] plans, and says what stands. Client and server are the same here: who asked for
//! the copy no longer matters.

mod bounds;
#[cfg(test)]
mod greed;
#[cfg(test)]
mod lies;
mod listing;
pub(crate) mod receiving;
pub(crate) mod sending;
mod silence;
mod terms;
#[cfg(test)]
mod turns;
pub(crate) mod wire;

use std::ops::Range;

use longhaul_proto::time::Span;

pub(crate) use terms::{DEFAULT_SEGMENT, EARLY_GRANT, Terms};
use wire::End;

use crate::objects::Manifest;

/// What the process around an end wants to know, and decides.
pub(crate) trait Hooks {
    /// Ten times a second: may the end go on?
    ///
    /// # Errors
    /// Why it may not.
    fn tick(&self) -> Result<(), End>;

    /// The other end has said something.
    fn heard(&self) {}

    /// Nothing has come from the other end for so long, and nothing is sent until it does; or,
    /// with nothing, it is heard again.
    fn silence(&self, _since: Option<Span>) {}

    /// The plan is complete: entries left out, and bytes that need not be sent.
    fn planned(&self, manifest: &Manifest, skipped: &[Range<u64>], resumed_bytes: u64);

    /// These entries have got their names, where that was asked for.
    fn named(&self, manifest: &Manifest, entries: &[Range<u64>]);

    /// A dry run: this file would be copied.
    fn would_copy(&self, _path: &[u8]) {}

    /// An entry failed.
    fn entry_failed(&self, path: &[u8], reason: &str, at_source: bool);
}
