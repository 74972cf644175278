//! Files as the destination, and a rehearsal (dry run) that only reports what would happen to them.

use std::sync::Arc;

use super::claims::Claim;
use super::destination::{Destination, Open, Opened, Reporter};
use super::rehearsal::Rehearsal;
use super::writing::Writing;
use crate::error::Error;
use longhaul_files::{Asked, Place, Plan, Sink, SinkOptions, VirtualObject};

pub(crate) struct Files {
    pub(crate) place: Place,
    /// The entries (files, folders, links) that the list of files may have.
    pub(crate) asked: Arc<Asked>,
    pub(crate) options: SinkOptions,
    /// Claims the names of the files, so that no other source of the copy writes them.
    pub(crate) claim: Option<Claim>,
}

/// A dry run: moves no data, and reports the entries that would be copied.
struct RehearsedFiles(Files);

impl Files {
    pub(crate) fn into_destination(self) -> Box<dyn Destination> {
        match self.options.dry_run {
            true => Box::new(RehearsedFiles(self)),
            false => Box::new(self),
        }
    }

    fn sink(
        self,
        object: &VirtualObject,
        prefix: u64,
        reporter: &Reporter,
    ) -> Result<(Sink, Plan), Error> {
        let manifest = object.manifest();
        self.asked.admits(manifest)?;
        self.claim.map_or(Ok(()), |claim| claim.take(manifest))?;
        let watch = reporter.board.watch();
        Ok(Sink::open(&self.place, manifest, prefix, &self.options, watch)?)
    }
}

impl Open for Files {
    fn open(
        self: Box<Self>,
        object: VirtualObject,
        prefix: u64,
        reporter: Reporter,
    ) -> Result<Box<dyn Opened>, Error> {
        let (sink, plan) = self.sink(&object, prefix, &reporter)?;
        Ok(Box::new(Writing::begin(object, sink, plan, reporter)))
    }
}

impl Open for RehearsedFiles {
    fn open(
        self: Box<Self>,
        object: VirtualObject,
        prefix: u64,
        reporter: Reporter,
    ) -> Result<Box<dyn Opened>, Error> {
        let (sink, plan) = self.0.sink(&object, prefix, &reporter)?;
        Ok(Box::new(Rehearsal::begin(object, sink, plan, reporter)))
    }
}
