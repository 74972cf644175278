//! Entries that went wrong at the source.

use super::{Happened, Writer};
use crate::error::{Class, Error};

/// Bytes of failures kept until the destination is open; a source in worse shape is copied in
/// parts.
const MOST_EARLY_FAILURES: usize = 64 << 20;

/// An entry that went wrong at the source.
pub(super) struct AtSource {
    pub(super) entry: u32,
    pub(super) reason: String,
    pub(super) changed: bool,
}

impl Writer {
    /// A file that went wrong at the source never gets its name; what is known too early is kept
    /// until the destination is open.
    pub(super) fn take_source_failure(&mut self, failed: AtSource) -> Result<(), Error> {
        if self.opened.is_some() {
            self.fail_at_source(failed);
            return Ok(());
        }
        self.early_bytes += size_of::<AtSource>() + failed.reason.len();
        if self.early_bytes > MOST_EARLY_FAILURES {
            let what = "the other side reports more failed files than fit into memory before its \
                        list of files is here";
            return Err(Error::new(Class::Unfinished, what).advise("copy in several parts"));
        }
        self.early_failures.push(failed);
        Ok(())
    }

    fn fail_at_source(&mut self, AtSource { entry, reason, changed }: AtSource) {
        let Some(opened) = &mut self.opened else { return };
        let entries = opened.object.manifest().entries().len();
        if let Some(sink) = opened.sink.as_mut().filter(|_| (entry as usize) < entries) {
            opened.failed_at_source.insert(entry, changed);
            let needless = sink.fail_entry(entry, &reason);
            let _ = self.happened.send(Happened::Needless(needless));
        }
    }

    pub(super) fn take_early_failures(&mut self) {
        for failed in std::mem::take(&mut self.early_failures) {
            self.fail_at_source(failed);
        }
    }
}
