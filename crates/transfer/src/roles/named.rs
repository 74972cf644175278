//! Processes the receiving end's messages about created and deleted names.

use std::ops::Range;

use super::Hooks;
use super::wire::End;
use crate::control::{Message, Ranges};
use crate::error::{Error, ErrorKind};
use longhaul_files::Manifest;

/// Reports created or deleted names to `hooks`. Ignores other messages.
pub(super) fn hear(hooks: &dyn Hooks, manifest: &Manifest, message: &Message) -> Result<(), End> {
    match message {
        Message::Named(named) => {
            let entries = manifest.entries().len() as u64;
            hooks.named(manifest, &decode(named.entries.as_ref(), entries, "named entries")?);
        }
        Message::DeletedNames(deleted) => hooks.deleted(&deleted.paths),
        _ => {}
    }
    Ok(())
}

pub(super) fn decode(
    ranges: Option<&Ranges>,
    limit: u64,
    what: &str,
) -> Result<Vec<Range<u64>>, Error> {
    let Some(ranges) = ranges else { return Ok(Vec::new()) };
    ranges.decode(limit).map_err(|error| {
        Error::new(
            ErrorKind::Unfinished,
            format!("the other side's list of {what} is malformed: {error:?}"),
        )
    })
}
