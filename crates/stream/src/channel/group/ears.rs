//! Receives the messages of a multicast group. An epoch is the time during which the same keys are
//! valid.

use std::collections::{BTreeMap, VecDeque};

use longhaul_net::clock::{Span, Time};
use longhaul_net::sealing::open::Opener;
use longhaul_proto::channel::{Joined, Message, Senders, decode};
use longhaul_proto::wire::header::{Header, Kind};

use super::author::CODE;
use super::epoch::Epoch;

/// How long datagrams of the previous epoch are accepted, and how long datagrams wait for a key.
const KEPT: Span = Span::from_secs(2);
/// Maximum number of datagrams that wait for the key of their epoch.
const EARLY: usize = 64;
/// Maximum content of a datagram in bytes.
const MOST: usize = u16::MAX as usize;

#[derive(Debug)]
pub(super) struct Received {
    /// The message's epoch, and its sender's number in this epoch.
    pub(super) sender: (u64, u32),
    pub(super) message: Message,
    /// The encoded message, which `code` authenticates.
    pub(super) signed: Vec<u8>,
    /// The sender's authentication code for `signed`.
    pub(super) code: [u8; CODE],
    /// Whether a lost datagram of the message was restored.
    pub(super) restored: bool,
    /// Whether a later message arrived first.
    pub(super) overtaken: bool,
}

/// An epoch with a known key, and its senders' incomplete messages.
struct Known {
    epoch: Epoch,
    openers: BTreeMap<u32, Opener>,
    senders: Senders,
}

impl Known {
    fn new(epoch: Epoch) -> Known {
        Known { epoch, openers: BTreeMap::new(), senders: Senders::default() }
    }
}

pub(super) struct Ears {
    now: Known,
    before: Option<(Known, Time)>,
    /// This end's own sender number, to ignore; `None` for a subscriber.
    own: Option<u32>,
    /// Datagrams of unknown flows, with their arrival times.
    early: VecDeque<(Time, Vec<u8>)>,
    /// Number of lost messages of epochs that are no longer accepted.
    lost: u64,
    scratch: Vec<u8>,
    joined: Vec<Joined>,
}

impl Ears {
    /// Creates a receiver for all senders except `own`.
    pub(super) fn new(epoch: Epoch, own: Option<u32>) -> Ears {
        let (now, scratch) = (Known::new(epoch), vec![0; MOST]);
        let (early, joined) = (VecDeque::new(), Vec::new());
        Ears { now, before: None, own, early, lost: 0, scratch, joined }
    }

    /// Sets the key of a new epoch. Appends to `out` the messages of datagrams that arrived before
    /// the key. Ignores an epoch that is known already: a new [`Known`] would not recognise
    /// duplicates.
    pub(super) fn renew(&mut self, now: Time, epoch: Epoch, out: &mut Vec<Received>) {
        let before = self.before.as_ref().map(|(known, _)| &known.epoch);
        if self.now.epoch == epoch || before == Some(&epoch) {
            return;
        }
        let old = std::mem::replace(&mut self.now, Known::new(epoch));
        let older = self.before.replace((old, now + KEPT));
        self.forget(older);
        for (came, datagram) in std::mem::take(&mut self.early) {
            if now <= came + KEPT {
                self.take(now, &datagram, out);
            }
        }
    }

    fn forget(&mut self, known: Option<(Known, Time)>) {
        let lost = known.map_or(0, |(known, _)| known.senders.lost());
        self.lost = self.lost.saturating_add(lost);
    }

    fn keep_early(&mut self, now: Time, datagram: &[u8]) {
        self.early.push_back((now, datagram.to_vec()));
        while self.early.len() > EARLY
            || self.early.front().is_some_and(|(came, _)| *came + KEPT < now)
        {
            self.early.pop_front();
        }
    }

    /// Handles a datagram; appends completed messages to `out`.
    pub(super) fn take(&mut self, now: Time, datagram: &[u8], out: &mut Vec<Received>) {
        let Some(header) = Header::decode(datagram) else { return };
        if header.kind != Kind::Data {
            return;
        }
        let over = self.before.take_if(|(_, until)| *until < now);
        self.forget(over);
        let before = self.before.as_mut().map(|(known, _)| known);
        let found = [Some(&mut self.now), before].into_iter().flatten().find_map(|known| {
            let sender = known.epoch.sender(header.flow)?;
            Some((known, sender))
        });
        let Some((known, sender)) = found else { return self.keep_early(now, datagram) };
        if Some(sender) == self.own {
            return;
        }
        let mut fresh = None;
        let opener = match known.openers.get_mut(&sender) {
            Some(opener) => opener,
            None => fresh.insert(known.epoch.opener(sender)),
        };
        let Ok(len) = opener.open(now, &header, datagram, &mut self.scratch) else { return };
        if let Some(opener) = fresh {
            known.openers.insert(sender, opener);
        }
        known.senders.take(sender, header.block, &self.scratch[..len], &mut self.joined);
        let sender = (known.epoch.number, sender);
        for Joined { message: mut signed, restored, late: overtaken } in self.joined.drain(..) {
            // Each message of a correct sender has a code and can be decoded.
            let Some(code) = signed.last_chunk().copied() else { continue };
            signed.truncate(signed.len() - CODE);
            let Some(message) = decode(&signed) else { continue };
            out.push(Received { sender, message, signed, code, restored, overtaken });
        }
    }

    pub(super) fn lost(&self) -> u64 {
        let lost = self.known().map(|known| known.senders.lost());
        lost.fold(self.lost, u64::saturating_add)
    }

    /// Returns the number of lost messages of a sender of an epoch; `None` if the epoch is not
    /// accepted.
    pub(super) fn lost_of(&self, (epoch, sender): (u64, u32)) -> Option<u64> {
        let known = self.known().find(|known| known.epoch.number == epoch)?;
        Some(known.senders.lost_of(sender))
    }

    fn known(&self) -> impl Iterator<Item = &Known> {
        let before = self.before.as_ref().map(|(known, _)| known);
        std::iter::once(&self.now).chain(before)
    }

    #[cfg(test)]
    pub(super) fn early(&self) -> usize {
        self.early.len()
    }

    pub(super) fn held(&self) -> usize {
        self.known().map(|known| known.senders.held()).sum()
    }

    /// Drops incomplete messages, and the keys of the previous epoch.
    pub(super) fn clear(&mut self) {
        let over = self.before.take();
        self.forget(over);
        self.now.senders.clear();
    }
}
