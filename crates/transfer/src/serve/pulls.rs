//! Limits of pulls. A pull occupies a sending thread and its buffers. While the pull walks over the
//! files, it also occupies a thread of the runtime.

use std::time::Duration;

use longhaul_files::{DiskPermit, DiskPermits, ListMemory};
use tokio::time::timeout;

use crate::error::{Error, ErrorKind};
use crate::session::PeerId;
use crate::write::budget::ListCharge;

/// Maximum number of pulls of all clients.
const PULLS: usize = 1024;
/// Maximum number of pulls of one client.
const PULLS_OF_ONE: usize = 64;
/// Maximum number of concurrent walks: half of the threads that the runtime has for disk accesses.
const WALKS: usize = 256;
/// How long a pull waits for its permits. Then it is refused, and its client retries.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Pulls {
    pulls: DiskPermits<PeerId>,
    walks: DiskPermits<PeerId>,
    patience: Duration,
}

/// The permits of a pull.
pub(super) struct Pull {
    pub(super) memory: PullMemory,
    /// To be kept until the walk ends, even if the client disconnects earlier.
    pub(super) walking: DiskPermit<PeerId>,
}

/// The memory for the list of files, with the permit of the pull. The source owns both, so the
/// permit is returned when the last thread that reads the files ends. If a disk hangs, that may be
/// long after the client has disconnected.
#[derive(Debug)]
pub(super) struct PullMemory {
    list: ListCharge,
    _permit: DiskPermit<PeerId>,
}

impl ListMemory for PullMemory {
    fn hold(&mut self, bytes: u64) -> Result<(), longhaul_files::Error> {
        self.list.hold(bytes)
    }
}

impl Default for Pulls {
    fn default() -> Pulls {
        let pulls = DiskPermits::limited(PULLS, PULLS_OF_ONE);
        Pulls { pulls, walks: DiskPermits::new(WALKS), patience: PATIENCE }
    }
}

impl Pulls {
    /// Waits for the permits of another pull by `peer`. The pull's list of files is charged to
    /// `list`.
    pub(super) async fn enter(&self, peer: PeerId, list: ListCharge) -> Result<Pull, Error> {
        let permits = async { (self.pulls.take(peer).await, self.walks.take(peer).await) };
        let (_permit, walking) = timeout(self.patience, permits).await.map_err(|_| {
            let what = format!("the running pulls leave no room for another pull of {peer}");
            Error::new(ErrorKind::Unfinished, what).busy().advise("wait for a pull to end")
        })?;
        Ok(Pull { memory: PullMemory { list, _permit }, walking })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::budget::Budget;
    use longhaul_files::{Place, Source, SourceOptions};

    #[tokio::test]
    async fn a_pull_keeps_its_permit_until_nothing_reads_its_files() {
        let pulls = Pulls {
            pulls: DiskPermits::limited(PULLS, 1),
            patience: Duration::ZERO,
            ..Pulls::default()
        };
        let budget = Budget::new(Budget::least_of(1)).unwrap();
        let [one, other] = [1, 2].map(|id| PeerId([id; 32]));
        let enter = async |peer| pulls.enter(peer, budget.list_for(peer)).await;
        let Pull { memory, walking } = enter(one).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), b"f").unwrap();
        let places = [Place::Ambient(folder.path().join("file"))];
        let source = Source::open_within(&places, &SourceOptions::default(), Box::new(memory));
        drop(walking);
        let refused = enter(one).await.err().expect("the source can still be read");
        assert!(refused.what.contains("no room for another pull"), "{refused}");
        assert!(enter(other).await.is_ok());
        drop(source);
        assert!(enter(one).await.is_ok());
    }

    #[tokio::test]
    async fn walks_of_one_client_leave_threads_for_the_walks_of_others() {
        let pulls =
            Pulls { walks: DiskPermits::new(2), patience: Duration::ZERO, ..Pulls::default() };
        let budget = Budget::new(Budget::least_of(1)).unwrap();
        let [one, other] = [1, 2].map(|id| PeerId([id; 32]));
        let enter = async |peer| pulls.enter(peer, budget.list_for(peer)).await;
        let first = enter(one).await.unwrap();
        assert!(enter(one).await.is_err());
        assert!(enter(other).await.is_ok());
        drop(first.walking);
        assert!(enter(one).await.is_ok(), "the first walk has ended");
    }
}
