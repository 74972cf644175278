//! Reassembles messages from datagrams, each of which carries one *part* of a message. Restores
//! lost datagrams from *repairs*, which the sender adds to each *group* of datagrams (the
//! *originals*).

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

use super::cutter::{CODED, HEAD, LENGTH, MAX_GROUP, REPAIR, REPAIR_HEAD};
use super::seen::{Numbers, Placed};
use crate::fec::{Decoder, Scheme, Shape};

/// How many of the newest groups keep their datagrams, to restore lost ones.
const GROUPS: u64 = 64;
/// Maximum bytes of the datagrams that all groups together keep.
const GROUP_BYTES: usize = 4 << 20;
const PARTIAL: usize = 1_024;
/// Maximum bytes of all incomplete messages.
const PARTIAL_BYTES: usize = 32 << 20;
/// Memory of a part or a kept datagram in addition to its bytes, in bytes.
const OVERHEAD: usize = 64;

/// A complete message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The message.
    pub message: Vec<u8>,
    /// Whether a datagram of the message was lost and restored.
    pub restored: bool,
    /// Whether a message that was sent later arrived earlier.
    pub late: bool,
}

#[derive(Default)]
struct Partial {
    parts: BTreeMap<u16, Vec<u8>>,
    restored: bool,
    cost: usize,
    /// Whether a part arrived since the last [`Joiner::expire`].
    is_fresh: bool,
}

#[derive(Default)]
struct Group {
    originals: BTreeMap<u8, Vec<u8>>,
    repairs: BTreeMap<u8, Vec<u8>>,
    /// Whether the code is XOR, the number of originals and the number of repairs, as the first
    /// repair that arrived states them.
    shape: Option<(bool, u8, u8)>,
    /// Whether enough datagrams have arrived to restore the lost originals; then the group keeps
    /// no more datagrams.
    done: bool,
    cost: usize,
    /// Whether a datagram arrived since the last [`Joiner::expire`].
    is_fresh: bool,
}

/// Reassembles messages from datagrams. Each message is returned at most once, in any order.
#[derive(Default)]
pub struct Joiner {
    numbers: Numbers,
    lost: u64,
    partial: BTreeMap<u64, Partial>,
    partial_bytes: usize,
    groups: BTreeMap<u64, Group>,
    group_bytes: usize,
    newest: u64,
    decoder: Decoder,
}

impl Joiner {
    /// Number of messages that have not arrived although a later one has. Some may still be in
    /// flight.
    pub fn lost(&self) -> u64 {
        self.lost.saturating_add(self.numbers.missing())
    }

    /// Approximate bytes of memory of incomplete messages and groups.
    pub fn held(&self) -> usize {
        self.partial_bytes + self.group_bytes
    }

    /// Drops the parts of incomplete messages, and the datagrams kept to restore lost datagrams.
    pub fn clear(&mut self) {
        self.partial.clear();
        self.groups.clear();
        (self.partial_bytes, self.group_bytes) = (0, 0);
    }

    /// Drops the incomplete messages and the groups that no datagram has reached since the last
    /// call.
    pub fn expire(&mut self) {
        self.partial.retain(|_, partial| core::mem::take(&mut partial.is_fresh));
        self.groups.retain(|_, group| core::mem::take(&mut group.is_fresh));
        self.partial_bytes = self.partial.values().map(|partial| partial.cost).sum();
        self.group_bytes = self.groups.values().map(|group| group.cost).sum();
    }

    /// Takes an authentic datagram with the number `block` (its group, flags, and index within the
    /// group); appends to `out` the messages that the datagram completes. A malformed datagram
    /// completes no message.
    pub fn take(&mut self, block: u64, payload: &[u8], out: &mut Vec<Joined>) {
        let (group, index) = (block >> 16, block & 0xff);
        if block & REPAIR == 0 {
            self.part(payload, false, out);
        }
        if block & CODED == 0 || index >= MAX_GROUP.into() || !self.admit(group) {
            return;
        }
        self.keep(group, index as u8, block & REPAIR != 0, payload);
        self.restore(group, out);
        while self.group_bytes > GROUP_BYTES {
            let Some((_, oldest)) = self.groups.pop_first() else { break };
            self.group_bytes -= oldest.cost;
        }
    }

    /// Whether the group is one of the newest [`GROUPS`]. Drops the groups that a new highest
    /// number makes too old.
    fn admit(&mut self, group: u64) -> bool {
        if group > self.newest {
            self.newest = group;
            let kept = self.groups.split_off(&group.saturating_sub(GROUPS - 1));
            let old = core::mem::replace(&mut self.groups, kept);
            self.group_bytes -= old.values().map(|group| group.cost).sum::<usize>();
        }
        group.saturating_add(GROUPS) > self.newest
    }

    fn keep(&mut self, number: u64, index: u8, is_repair: bool, payload: &[u8]) {
        let group = self.groups.entry(number).or_default();
        let (stored, before) = match is_repair {
            _ if group.done => return,
            false => (payload.len(), group.originals.insert(index, payload.to_vec())),
            true => {
                let Some((head, symbol)) = payload.split_at_checked(REPAIR_HEAD) else { return };
                let shape = (head[0] == 1, head[1], head[2]);
                if *group.shape.get_or_insert(shape) != shape || index >= shape.2 {
                    return;
                }
                (symbol.len(), group.repairs.insert(index, symbol.to_vec()))
            }
        };
        let more = stored + OVERHEAD;
        let less = before.map_or(0, |before| before.len() + OVERHEAD).min(group.cost + more);
        group.cost = group.cost + more - less;
        group.is_fresh = true;
        self.group_bytes = self.group_bytes + more - less;
    }

    fn restore(&mut self, number: u64, out: &mut Vec<Joined>) {
        let Some(group) = self.groups.get_mut(&number) else { return };
        let Some((is_xor, count, repairs)) = group.shape else { return };
        group.originals.retain(|index, _| *index < count);
        let has = group.originals.len();
        if group.done || has + group.repairs.len() < count.into() {
            return;
        }
        let mut restored = Vec::new();
        if has < count.into() {
            let symbol = group.repairs.values().next().map_or(0, Vec::len);
            let scheme = if is_xor { Scheme::Xor } else { Scheme::ReedSolomon };
            let coded: Vec<(u16, Vec<u8>)> = group
                .originals
                .iter()
                .map(|(index, bytes)| {
                    let length = (bytes.len() as u16).to_be_bytes();
                    (u16::from(*index), [&length[..], bytes].concat())
                })
                .collect();
            let symbol = u16::try_from(symbol).unwrap_or(0);
            if let Ok(shape) = Shape::new(scheme, count.into(), repairs.into(), symbol) {
                let originals = coded.iter().map(|(index, bytes)| (*index, &bytes[..]));
                let repairs = group.repairs.iter().map(|(at, bytes)| (u16::from(*at), &bytes[..]));
                // Repairs that do not fit the shape (a dishonest sender) restore nothing.
                let _ = self.decoder.decode(shape, originals, repairs, |_, bytes| {
                    restored.push(bytes.to_vec());
                });
            }
        }
        group.done = true;
        self.group_bytes -= group.cost;
        group.cost = 0;
        (group.originals, group.repairs) = Default::default();
        for symbol in restored {
            let Some((length, bytes)) = symbol.split_at_checked(LENGTH) else { continue };
            let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
            if let Some(payload) = bytes.get(..length) {
                self.part(payload, true, out);
            }
        }
    }

    fn part(&mut self, payload: &[u8], restored: bool, out: &mut Vec<Joined>) {
        let Some((head, bytes)) = payload.split_at_checked(HEAD) else { return };
        let number = head[..8].try_into().map_or(0, u64::from_be_bytes);
        let part = u16::from_be_bytes([head[8], head[9]]);
        let parts = u16::from_be_bytes([head[10], head[11]]);
        if part >= parts || number > u64::MAX / 2 {
            return;
        }
        if parts == 1 {
            return self.whole(number, bytes.to_vec(), restored, out);
        }
        if self.numbers.has(number) {
            return;
        }
        let partial = self.partial.entry(number).or_default();
        partial.restored |= restored;
        // Of two different versions of a part the first counts.
        if let Entry::Vacant(place) = partial.parts.entry(part) {
            place.insert(bytes.to_vec());
            partial.cost += bytes.len() + OVERHEAD;
            partial.is_fresh = true;
            self.partial_bytes += bytes.len() + OVERHEAD;
        }
        if partial.parts.len() == usize::from(parts) {
            let partial = self.forget(number);
            let message = partial.parts.into_values().flatten().collect();
            self.whole(number, message, partial.restored, out);
        }
        while self.partial.len() > PARTIAL || self.partial_bytes > PARTIAL_BYTES {
            let Some((oldest, _)) = self.partial.first_key_value() else { break };
            self.forget(*oldest);
        }
    }

    fn forget(&mut self, number: u64) -> Partial {
        let partial = self.partial.remove(&number).unwrap_or_default();
        self.partial_bytes -= partial.cost;
        partial
    }

    fn whole(&mut self, number: u64, message: Vec<u8>, restored: bool, out: &mut Vec<Joined>) {
        if let Placed::New { lost, late } = self.numbers.mark(number) {
            self.lost = self.lost.saturating_add(lost);
            out.push(Joined { message, restored, late });
        }
    }
}

impl core::fmt::Debug for Joiner {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Joiner").field("lost", &self.lost).finish_non_exhaustive()
    }
}
