//! A copy from several sources consists of one copy (here called a part) per source. This module
//! has the state of a part, and the state that all parts share.

use std::cell::RefCell;
use std::path::Path as FsPath;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::registry::Row;
use longhaul_proto::units::Rate;

use super::writer::ReplicaLink;
use crate::flow::shared_core::SharedCore;
use crate::options::{CopyOptions, Names, Receive};
use crate::reach::{DataPorts, Reached};
use crate::write::budget::Budget;
use crate::write::claims::Claims;
use crate::write::destination::Destination;
use crate::write::discard::Discard;
use crate::write::files::Files;
use crate::write::jobs::Jobs;
use crate::write::ordered::Ordered;
use longhaul_files::sink::{Age, Left};
use longhaul_files::{Asked, Delete, SinkOptions};

/// How long to wait for another copy on this host to unlock a file. The system unlocks the file of
/// a killed copy after a short time.
const LET_GO: Duration = Duration::from_secs(1);

pub(crate) struct Shared {
    pub(crate) sources: u64,
    pub(crate) memory: Budget,
    /// Ports for data; `None` if each session opens its own.
    pub(crate) ports: Option<DataPorts>,
    /// The receiving core (the protocol's state machine) of all flows, if the protocol has one core
    /// for many flows.
    pub(crate) core: Option<SharedCore>,
    /// Writing threads that the sources share; empty for a single source, and for replicas, which
    /// have another writer.
    pub(crate) writers: Vec<Jobs>,
    /// The names claimed by sources: no two sources may write one name.
    pub(crate) claims: Option<Arc<Claims>>,
    /// Partial files left by earlier attempts.
    pub(crate) left: Arc<Left>,
}

impl Shared {
    pub(crate) fn writer_of(&self, number: usize) -> Option<&Jobs> {
        self.writers.get(number % self.writers.len().max(1))
    }
}

pub(crate) struct CopyPart {
    pub(crate) shared: Rc<Shared>,
    pub(crate) number: usize,
    pub(crate) to: To,
    /// An existing session for the first attempt.
    pub(crate) reached: RefCell<Option<Reached>>,
}

pub(crate) enum To {
    Files,
    /// The object that several sources send together.
    Replicas(ReplicaLink),
}

impl CopyPart {
    /// Files go to `place`, or below it. `age` is the age of the copy, if an earlier attempt began
    /// it.
    pub(crate) fn destination(
        &self,
        place: &FsPath,
        asked: &Arc<Asked>,
        options: &CopyOptions,
        age: Option<Age>,
    ) -> Box<dyn Destination> {
        let (claims, asked) = (self.shared.claims.as_ref(), asked.clone());
        let output = options.output.as_ref().filter(|_| !options.dry_run);
        match (&self.to, output) {
            (To::Replicas(link), _) => Box::new(link.clone()),
            (To::Files, _) if options.receive == Receive::Fake => Box::new(Discard),
            (To::Files, Some(output)) => {
                let room = options.memory.get() / 2;
                Box::new(Ordered { output: output.clone(), asked, room })
            }
            (To::Files, None) => {
                let sink = sink_options(options);
                let files = Files {
                    place: options.place(place.to_owned()),
                    asked,
                    options: SinkOptions {
                        delete: sink.delete.map(|delete| Delete { age, ..delete }),
                        together: claims.map(|claims| claims.together().clone()),
                        left: self.shared.left.clone(),
                        ..sink
                    },
                    claim: claims.map(|claims| claims.of_source(self.number)),
                };
                files.into_destination()
            }
        }
    }
}

impl Shared {
    /// Returns the rate limit of one source, from the `limit` for all sources. If the receiving
    /// core divides the capacity among the flows of `protocol`, each source gets the whole limit,
    /// because the core limits their sum. Otherwise each source gets an equal share.
    pub(crate) fn limit(&self, limit: Rate, protocol: Option<&Row>) -> Rate {
        match (&self.core, protocol) {
            (Some(core), Some(row)) if core.is_of(row) => limit,
            _ => Rate::from_bps((limit.as_bps() / self.sources).max(1)),
        }
    }
}

impl CopyPart {
    /// Returns the part of a copy that has only one source. `core` is the receiving core, if the
    /// protocol divides this host's capacity among flows.
    pub(crate) fn alone(memory: Budget, core: Option<SharedCore>) -> CopyPart {
        let (ports, writers, claims) = (None, Vec::new(), None);
        let left = Arc::default();
        let shared = Shared { sources: 1, memory, ports, core, writers, claims, left };
        CopyPart { shared: Rc::new(shared), number: 0, to: To::Files, reached: RefCell::default() }
    }
}

pub(crate) fn sink_options(options: &CopyOptions) -> SinkOptions {
    SinkOptions {
        preserve: options.preserve,
        set_id: false,
        modified: None,
        checksum: options.checksum,
        distrust: options.replicas || options.checksum,
        conceal: false,
        dry_run: options.dry_run,
        make_path: options.make_path,
        delete: options.delete.map(|delete| delete.with(options.filters.clone())),
        names: options.names >= Names::Done,
        patience: LET_GO,
        together: None,
        left: Arc::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::budget::Budget;
    use longhaul_proto::registry;
    use longhaul_proto::units::Bytes;

    #[test]
    fn the_receiver_divides_the_limit_if_it_can_otherwise_each_source_gets_an_equal_share() {
        let memory = Budget::new(Bytes::mebi(64)).unwrap();
        let mut shared = Shared {
            sources: 4,
            memory,
            ports: None,
            core: Some(SharedCore::new(registry::of_many())),
            writers: Vec::new(),
            claims: None,
            left: Arc::default(),
        };
        let limit = Rate::from_mbps(100);
        let other = registry::all().iter().find(|row| !row.many);
        let of = |shared: &Shared, row| shared.limit(limit, row);
        assert_eq!(of(&shared, Some(registry::of_many())), limit);
        // Over another protocol, or over streams, each of the four sources gets a quarter.
        assert_eq!(of(&shared, other), Rate::from_mbps(25));
        assert_eq!(of(&shared, None), Rate::from_mbps(25));
        shared.core = None;
        assert_eq!(of(&shared, other), Rate::from_mbps(25));
    }
}
