//! Inodes and listings. An inode's number is a hash of its folder's number, its name and its
//! version ([`identity`]), so a listing can state the number of a name that has no inode in memory.
//! A changed file has a new inode: the kernel keeps the size and the cached content of the old
//! inode for programs that have the old version open. Only names that the kernel has looked up have
//! an inode in memory.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::{Discriminant, discriminant};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fuser::Errno;
use longhaul_transfer::api::{FileTime, NameKind, Named};

use crate::file::Version;
use crate::host::{Failed, Host};

pub(crate) const TOP: u64 = 1;
/// How long a listing counts as current.
const CURRENT: Duration = Duration::from_secs(5);
/// Maximum number of names in all kept listings; beyond it, all listings are dropped.
const MOST_NAMES: usize = 2_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) names: Vec<Named>,
    since: Instant,
}

impl Listing {
    fn new(mut names: Vec<Named>) -> Listing {
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        names.dedup_by(|a, b| a.name == b.name);
        Listing { names, since: Instant::now() }
    }

    fn position(&self, name: &[u8]) -> Option<usize> {
        self.names.binary_search_by(|named| named.name[..].cmp(name)).ok()
    }

    fn find(&self, name: &[u8]) -> Option<&Named> {
        self.position(name).map(|at| &self.names[at])
    }

    fn replace(&mut self, named: Named) {
        if let Some(at) = self.position(&named.name) {
            self.names[at] = named;
        }
    }

    fn is_current(&self) -> bool {
        self.since.elapsed() < CURRENT
    }
}

#[derive(Clone, Debug)]
struct Node {
    parent: u64,
    named: Named,
    lookups: u64,
}

/// A folder's listing. The lock is held while the listing is read from the host.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<Listing>>>>;

pub(crate) struct Tree {
    top: PathBuf,
    host: Arc<Host>,
    nodes: Mutex<HashMap<u64, Node>>,
    /// The listing of each folder, with the time of its last use and its number of names.
    folders: Mutex<HashMap<u64, (Slot, Instant, usize)>>,
}

/// The kind, size, modification time and target of a name.
type Identity<'a> = (Discriminant<NameKind>, u64, FileTime, Option<&'a [u8]>);

/// Returns the values that distinguish the versions of a name. Only files and links have versions:
/// the kernel caches their content.
fn identity(named: &Named) -> Identity<'_> {
    let Named { kind, size, modified, target, .. } = named;
    let kind_only = (discriminant(kind), 0, FileTime::default(), None);
    match kind {
        NameKind::File | NameKind::Link => (kind_only.0, *size, *modified, target.as_deref()),
        _ => kind_only,
    }
}

/// Returns the number of the inode of `named` in the folder `parent`.
pub(crate) fn number(parent: u64, named: &Named) -> u64 {
    let mut hasher = DefaultHasher::new();
    (parent, &named.name[..], identity(named)).hash(&mut hasher);
    // The numbers 0 and `TOP` have other meanings.
    hasher.finish().max(TOP + 1)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|error| error.into_inner())
}

impl Tree {
    pub(crate) fn new(host: Arc<Host>, top: PathBuf) -> Tree {
        Tree { top, host, nodes: Mutex::default(), folders: Mutex::default() }
    }

    pub(crate) fn path(&self, inode: u64) -> Result<PathBuf, Failed> {
        let nodes = lock(&self.nodes);
        let (mut names, mut at) = (Vec::new(), inode);
        while at != TOP {
            let node = nodes.get(&at).ok_or(Errno::ESTALE)?;
            names.push(OsStr::from_bytes(&node.named.name));
            at = node.parent;
        }
        let mut path = self.top.clone();
        path.extend(names.into_iter().rev());
        Ok(path)
    }

    /// Returns the folder that holds `inode`; [`TOP`] for the top itself and for an unknown inode.
    pub(crate) fn parent(&self, inode: u64) -> u64 {
        lock(&self.nodes).get(&inode).map_or(TOP, |node| node.parent)
    }

    pub(crate) async fn listing(&self, folder: u64) -> Result<Arc<Listing>, Failed> {
        let slot = {
            let mut folders = lock(&self.folders);
            folders.retain(|_, (_, used, _)| used.elapsed() < CURRENT * 2);
            let slot =
                folders.entry(folder).or_insert_with(|| (Slot::default(), Instant::now(), 0));
            slot.1 = Instant::now();
            slot.0.clone()
        };
        let mut slot = slot.lock().await;
        if let Some(listing) = slot.as_ref().filter(|listing| listing.is_current()) {
            return Ok(listing.clone());
        }
        let listing = Arc::new(Listing::new(self.host.list(&self.path(folder)?).await?));
        let mut folders = lock(&self.folders);
        if let Some(of_it) = folders.get_mut(&folder) {
            of_it.2 = listing.names.len();
        }
        if folders.values().map(|(_, _, names)| names).sum::<usize>() > MOST_NAMES {
            folders.clear();
        }
        *slot = Some(listing.clone());
        Ok(listing)
    }

    /// Puts the newer version of a file into the folder's listing, so that the next lookup finds
    /// it. Returns the number of the newer version's inode; `None` if no listing is kept.
    pub(crate) async fn renew(&self, inode: u64, newer: Version) -> Option<u64> {
        let node = self.node(inode).ok()?;
        let slot = lock(&self.folders).get(&node.parent)?.0.clone();
        let mut slot = slot.lock().await;
        let listing = slot.as_mut()?;
        let named = Named { size: newer.size, modified: newer.modified, ..node.named };
        let number = number(node.parent, &named);
        Arc::make_mut(listing).replace(named);
        Some(number)
    }

    /// Finds `name` in `parent`, and counts one more lookup by the kernel.
    pub(crate) async fn look_up(&self, parent: u64, name: &[u8]) -> Result<(u64, Named), Failed> {
        let listing = self.listing(parent).await?;
        let named = listing.find(name).ok_or(Errno::ENOENT)?.clone();
        let inode = number(parent, &named);
        let mut nodes = lock(&self.nodes);
        let fresh = || Node { parent, named: named.clone(), lookups: 0 };
        let node = nodes.entry(inode).or_insert_with(fresh);
        let is_it = node.named.name == name && identity(&node.named) == identity(&named);
        if node.parent != parent || !is_it {
            // Two names or versions have the same number.
            return Err(Errno::EIO.into());
        }
        node.named = named.clone();
        node.lookups += 1;
        Ok((inode, named))
    }

    pub(crate) fn forget(&self, inode: u64, count: u64) {
        let mut nodes = lock(&self.nodes);
        if let Some(node) = nodes.get_mut(&inode) {
            node.lookups = node.lookups.saturating_sub(count);
            if node.lookups == 0 {
                nodes.remove(&inode);
            }
        }
    }

    /// Returns the attributes of an inode. Fails with `ESTALE` if the file has changed since this
    /// inode was looked up: the inode must not get the size of a later version.
    pub(crate) async fn attributes(&self, inode: u64) -> Result<Named, Failed> {
        if inode == TOP {
            let modified = FileTime { seconds: 0, nanos: 0 };
            let kind = NameKind::Folder;
            return Ok(Named {
                name: Vec::new(),
                kind,
                mode: 0o755,
                size: 0,
                modified,
                target: None,
            });
        }
        let node = self.node(inode)?;
        let listing = self.listing(node.parent).await?;
        let named = listing.find(&node.named.name).ok_or(Errno::ENOENT)?.clone();
        if identity(&named) != identity(&node.named) {
            return Err(Errno::ESTALE.into());
        }
        if let Some(node) = lock(&self.nodes).get_mut(&inode) {
            node.named = named.clone();
        }
        Ok(named)
    }

    fn node(&self, inode: u64) -> Result<Node, Failed> {
        Ok(lock(&self.nodes).get(&inode).ok_or(Errno::ESTALE)?.clone())
    }

    /// Returns the attributes that the kernel last received for an inode.
    pub(crate) fn known(&self, inode: u64) -> Result<Named, Failed> {
        self.node(inode).map(|node| node.named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_version_of_a_file_or_link_has_a_new_number_and_a_folder_keeps_its_number() {
        let modified = FileTime { seconds: 1, nanos: 0 };
        let (name, target) = (b"name".to_vec(), None);
        let file = Named { name, kind: NameKind::File, mode: 0o644, size: 1, modified, target };
        let later = FileTime { seconds: 1, nanos: 1 };
        let changes: [fn(&mut Named); 5] = [
            |named| named.size = 2,
            |named| named.modified.nanos = 1,
            |named| named.target = Some(b"target".to_vec()),
            |named| named.kind = NameKind::Folder,
            |named| named.name = b"other".to_vec(),
        ];
        for change in changes {
            let mut changed = file.clone();
            change(&mut changed);
            assert_ne!(number(TOP, &changed), number(TOP, &file), "{changed:?}");
        }
        assert_ne!(number(TOP + 1, &file), number(TOP, &file));
        assert_eq!(number(TOP, &Named { mode: 0o600, ..file.clone() }), number(TOP, &file));
        let folder = Named { kind: NameKind::Folder, ..file };
        let changed = Named { size: 9, modified: later, ..folder.clone() };
        assert_eq!(number(TOP, &changed), number(TOP, &folder));
    }
}
