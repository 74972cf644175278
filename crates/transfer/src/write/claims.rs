//! Which of several sources brings what name into one folder: no two bring the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, ErrorKind};
use longhaul_files::place::show;
use longhaul_files::{Digest, Kind, Manifest, Together};

/// The names that sources have claimed, and the folders that they have together.
pub(crate) struct Claims {
    sources: Vec<String>,
    together: Arc<Together>,
    /// By a hash of the path: whole paths of a deep tree would take any amount of memory.
    taken: Mutex<HashMap<Digest, usize>>,
}

/// One source's way to claim.
pub(crate) struct Claim {
    claims: Arc<Claims>,
    source: usize,
}

impl Claims {
    /// Nothing is claimed; `sources` as people know them.
    pub(crate) fn new(sources: Vec<String>) -> Arc<Claims> {
        Arc::new(Claims { sources, together: Arc::default(), taken: Mutex::default() })
    }

    /// The folders that the sources have together.
    pub(crate) fn together(&self) -> &Arc<Together> {
        &self.together
    }

    /// For the source of this number.
    pub(crate) fn of_source(self: &Arc<Claims>, source: usize) -> Claim {
        Claim { claims: self.clone(), source }
    }
}

impl Claim {
    /// Claims all files and links of `manifest`; folders may be shared. What was claimed before by
    /// the same source stays so.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] with the first name that is another's; nothing is claimed then.
    pub(crate) fn take(&self, manifest: &Manifest) -> Result<(), Error> {
        // Nothing panics while the lock is held.
        let mut taken = self.claims.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let all = || manifest.entries().iter().zip(0..).filter(|(it, _)| it.kind != Kind::Folder);
        let hash = |number| *blake3::hash(&manifest.path(number)).as_bytes();
        for (_, number) in all() {
            if let Some(other) = taken.get(&hash(number)).filter(|other| **other != self.source) {
                let name = |source: usize| &self.claims.sources[source];
                let (path, other) = (show(&manifest.path(number)), name(*other));
                let what = format!("{other} and {} both have {path}", name(self.source));
                return Err(Error::new(ErrorKind::Usage, what)
                    .advise("copy one of the two into another folder"));
            }
        }
        for (_, number) in all() {
            taken.insert(hash(number), self.source);
        }
        Ok(())
    }
}
