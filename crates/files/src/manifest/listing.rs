//! The entries that a walk has found so far, in the order of their discovery. The manifest needs
//! them in another order: a folder, then its content, sorted by name.

use super::check::{Check, TWICE};
use super::{Entry, FIXED, Manifest, ManifestError, Shape, TOP, at_path, whole};

/// Entries in any order, each after the folder that holds it.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    entries: Vec<Entry>,
    names: Vec<u8>,
    /// Memory of the lists of holes and of the link targets, in bytes.
    extra: u64,
}

impl Listing {
    /// Adds the entry `name` in the folder `parent`; returns its number in this list.
    pub(crate) fn add(&mut self, parent: Option<u32>, name: &[u8], entry: Entry) -> u32 {
        let number = self.entries.len() as u32;
        self.extra += entry.extra();
        self.entries.push(entry.at(parent, self.names.len(), name.len()));
        self.names.extend_from_slice(name);
        number
    }

    pub(crate) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    pub(crate) fn path(&self, number: u32) -> Vec<u8> {
        super::path(&self.entries, &self.names, number)
    }

    /// Returns an upper bound of the manifest's memory, including its encoding.
    pub(crate) fn bytes(&self) -> u64 {
        self.len() * (FIXED + super::ENCODED) + 2 * (self.names.len() as u64 + self.extra)
    }

    /// Sorts the entries into the manifest's order and checks them. Returns the manifest, and for
    /// each of its entries the number that [`add`](Listing::add) returned.
    pub(crate) fn into_manifest(
        mut self,
        shape: Shape,
    ) -> Result<(Manifest, Vec<u32>), ManifestError> {
        let siblings = self.siblings();
        if let Some(twice) = siblings.windows(2).find(|pair| self.is_same(pair[0], pair[1])) {
            return Err(at_path(&self.path(twice[0]), TWICE));
        }
        let ranks = self.ranks(&siblings);
        drop(siblings);
        let mut numbers = vec![0; ranks.len()];
        for (number, rank) in ranks.iter().enumerate() {
            numbers[*rank as usize] = number as u32;
        }
        for entry in &mut self.entries {
            entry.parent = entry.parent().map_or(TOP, |parent| ranks[parent as usize]);
        }
        permute(&mut self.entries, ranks);
        let mut names = Vec::with_capacity(self.names.len());
        for entry in &mut self.entries {
            let start = names.len() as u32;
            names.extend_from_slice(entry.name(&self.names));
            entry.name = start;
        }
        let manifest = Manifest { shape, folder_mode: None, entries: self.entries, names };
        manifest.check()?;
        Ok((manifest, numbers))
    }

    /// Returns the numbers of the entries, sorted by the folder that holds the entry, then by name.
    fn siblings(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.entries.len() as u32).collect();
        let key = |number: &u32| {
            let entry = &self.entries[*number as usize];
            (entry.parent, entry.name(&self.names))
        };
        order.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
        order
    }

    fn is_same(&self, a: u32, b: u32) -> bool {
        let (a, b) = (&self.entries[a as usize], &self.entries[b as usize]);
        a.parent == b.parent && a.name(&self.names) == b.name(&self.names)
    }

    /// Returns the place of each entry in the manifest's order.
    fn ranks(&self, siblings: &[u32]) -> Vec<u32> {
        let parent = |number: &u32| self.entries[*number as usize].parent;
        // The start of each folder's entries in `siblings`.
        let mut first = vec![0u32; self.entries.len() + 1];
        for number in siblings.iter().filter(|number| parent(number) != TOP) {
            first[parent(number) as usize + 1] += 1;
        }
        for at in 1..first.len() {
            first[at] += first[at - 1];
        }
        let mut ranks = vec![0u32; self.entries.len()];
        let tops = first[self.entries.len()] as usize..siblings.len();
        let mut open = vec![tops];
        for rank in 0..self.entries.len() as u32 {
            while open.pop_if(|range| range.start == range.end).is_some() {}
            let at = open.last_mut().and_then(Iterator::next).expect("each entry is in a folder");
            let number = siblings[at] as usize;
            ranks[number] = rank;
            open.push(first[number] as usize..first[number + 1] as usize);
        }
        ranks
    }
}

/// Moves each item to the place given by `ranks`.
fn permute<T>(items: &mut [T], mut ranks: Vec<u32>) {
    for at in 0..items.len() {
        while ranks[at] as usize != at {
            let to = ranks[at] as usize;
            items.swap(at, to);
            ranks.swap(at, to);
        }
    }
}

impl Manifest {
    fn check(&self) -> Result<(), ManifestError> {
        let mut check = Check::new(self.shape);
        let mut rest = Vec::new();
        for entry in &self.entries {
            let shared = check.end_of(entry.parent());
            rest.clear();
            rest.extend(entry.parent().map(|_| b'/'));
            rest.extend_from_slice(entry.name(&self.names));
            let placed = check.next(shared, &rest);
            let taken = placed.and_then(|placed| check.take(entry, placed));
            taken.map_err(|reason| at_path(check.path(), reason))?;
        }
        check.end().map_err(whole)
    }
}
