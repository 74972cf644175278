//! Claims of names by several sources that are copied into one folder: no two sources may write the
//! same file or link. Several sources may have the same folder.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, ErrorKind};
use longhaul_files::place::show;
use longhaul_files::{Digest, Kind, Manifest, Together};

pub(crate) struct Claims {
    sources: Vec<String>,
    together: Arc<Together>,
    /// The source that claimed each path, by a hash of the path: a hash has a fixed size, but the
    /// paths of a deep tree may be long.
    taken: Mutex<HashMap<Digest, usize>>,
}

pub(crate) struct Claim {
    claims: Arc<Claims>,
    source: usize,
}

impl Claims {
    /// `sources` has the names of the sources, as error messages show them.
    pub(crate) fn new(sources: Vec<String>) -> Arc<Claims> {
        Arc::new(Claims { sources, together: Arc::default(), taken: Mutex::default() })
    }

    pub(crate) fn together(&self) -> &Arc<Together> {
        &self.together
    }

    pub(crate) fn of_source(self: &Arc<Claims>, source: usize) -> Claim {
        Claim { claims: self.clone(), source }
    }
}

impl Claim {
    /// Claims all files and links of `manifest`; folders may be shared. Earlier claims of the same
    /// source remain. If another source has claimed a name, nothing is claimed.
    pub(crate) fn take(&self, manifest: &Manifest) -> Result<(), Error> {
        // No thread panics while it holds the lock.
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
