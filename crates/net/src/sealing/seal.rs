//! Sealing: writes header, ciphertext and tag directly into the outgoing buffer, so the payload
//! needs no other copy.
//!
//! Only this code assigns packet numbers. Every transmission gets a new number, even a repeat: the
//! number determines the nonce.

use std::fmt;

use aws_lc_rs::aead::Aad;
use longhaul_proto::endpoint::PacketNumber;
use longhaul_proto::wire::header::{Header, Kind};

use crate::sealing::keys::{Class, EpochKey, Schedule, Suite};

/// Bytes of the tag after a sealed payload.
pub(crate) const TAG_LEN: usize = 16;
/// Bytes of the token after an unencrypted payload. The token is derived from the flow's secret and
/// replaces the tag.
pub(crate) const TOKEN_LEN: usize = 8;
/// Bytes of a sealed datagram besides its payload.
pub const SEALED_OVERHEAD: usize = Header::LEN + TAG_LEN;
/// Bytes of an unencrypted datagram besides its payload.
pub(crate) const PLAIN_OVERHEAD: usize = Header::LEN + TOKEN_LEN;

/// Returns the number of bytes of a data datagram besides its block.
pub fn data_overhead(suite: Suite) -> usize {
    match suite {
        Suite::Plain => PLAIN_OVERHEAD,
        Suite::Aes128Gcm | Suite::ChaCha20Poly1305 => SEALED_OVERHEAD,
    }
}

/// Why a datagram was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealError {
    /// All 2⁴⁰ packet numbers are used; more data need a new flow.
    Exhausted,
    /// The output buffer is shorter than payload and overhead.
    Room,
    /// A data datagram at the sealer for control, or the reverse.
    Kind,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SealError::Exhausted => "the flow's packet numbers are used up",
            SealError::Room => "no room for the sealed datagram",
            SealError::Kind => "this kind of datagram belongs to another sealer",
        })
    }
}

impl std::error::Error for SealError {}

/// Seals the datagrams of one direction and class (data or control) of a flow, and counts their
/// packet numbers.
pub struct Sealer {
    schedule: Schedule,
    current: EpochKey,
    token: Option<[u8; TOKEN_LEN]>,
    next: PacketNumber,
}

impl Sealer {
    pub(crate) fn new(schedule: Schedule) -> Sealer {
        Sealer::starting_at(schedule, PacketNumber(0))
    }

    pub(crate) fn starting_at(schedule: Schedule, next: PacketNumber) -> Sealer {
        let token = schedule.is_plain().then(|| schedule.token());
        Sealer { current: schedule.key(EpochKey::epoch_of(next)), token, next, schedule }
    }

    /// Returns the packet number that the next datagram will get.
    pub fn next_number(&self) -> PacketNumber {
        self.next
    }

    /// Returns the number of bytes of a datagram besides its payload.
    pub fn overhead(&self) -> usize {
        if self.token.is_some() { PLAIN_OVERHEAD } else { SEALED_OVERHEAD }
    }

    /// Seals `payload` into the start of `out` under the next packet number; returns the datagram's
    /// length.
    ///
    /// # Errors
    /// [`SealError`]; the packet number stays unused.
    pub fn seal(
        &mut self,
        kind: Kind,
        block: u64,
        payload: &[u8],
        out: &mut [u8],
    ) -> Result<usize, SealError> {
        if Class::of(kind) != self.schedule.class() {
            return Err(SealError::Kind);
        }
        if self.next.0 >= Header::NUMBERS {
            return Err(SealError::Exhausted);
        }
        let len = payload.len() + self.overhead();
        let out = out.get_mut(..len).ok_or(SealError::Room)?;
        let (head, rest) = out.split_first_chunk_mut().ok_or(SealError::Room)?;
        let header = Header { kind, flow: self.schedule.flow(), number: self.next, block };
        header.encode(head);
        let (body, tag) = rest.split_at_mut(payload.len());
        match &self.token {
            Some(token) => {
                body.copy_from_slice(payload);
                tag.copy_from_slice(token);
            }
            None => self.encrypt(head, payload, body, tag),
        }
        self.next.0 += 1;
        Ok(len)
    }

    fn encrypt(&mut self, head: &[u8], payload: &[u8], body: &mut [u8], tag: &mut [u8]) {
        let epoch = EpochKey::epoch_of(self.next);
        if self.current.epoch != epoch {
            self.current = self.schedule.key(epoch);
        }
        let nonce = self.current.nonce(self.next);
        self.current
            .key()
            .seal_out_of_place_scatter(nonce, Aad::from(head), payload, body, &[], tag)
            .expect("the slices have the lengths that the cipher wants");
    }
}
