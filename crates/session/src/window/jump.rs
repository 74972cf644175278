//! A jump of the congestion window to half of the bytes that an earlier transfer had in flight
//! (Careful Resume, RFC 9959).
//!
//! - **Reconnaissance** (section 3.2): the jump requires a full first round without loss or queue.
//! - **Unvalidated** (3.3): the window is this half, and the bytes sent with it are the *flight*.
//!   This phase ends when any packet of the flight is acknowledged.
//! - **Validating** (3.4): the window grows by the bytes that arrive, to at most twice the flight,
//!   until all of the flight is acknowledged or lost.
//! - **Safe Retreat** (3.5): after too many losses in the flight, the window is half of the
//!   flight's bytes that were not lost.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::TOO_MUCH;

/// How long a permission to jump is valid.
const VALID: Duration = Duration::from_secs(10);

/// The permission to jump, shared by clones, and the jump's state.
#[derive(Clone, Debug, Default)]
pub(super) struct Jump {
    allowed: Arc<Mutex<Option<Allowed>>>,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    pub(super) flight: u64,
    until: Instant,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// There is no jump now.
    #[default]
    None,
    /// A full round has ended; the jump waits for the acknowledgement of packet number `last`.
    Confirming { flight: u64, last: u64 },
    /// The path is confirmed: the next packet begins the flight of this many bytes.
    Confirmed(u64),
    /// The flight has begun.
    Sent(Flight),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    pub(super) bytes: u64,
    pub(super) lost: u64,
    /// Whether any packet of the flight was acknowledged.
    pub(super) validating: bool,
    /// Whether too many bytes of the flight were lost.
    pub(super) retreats: bool,
}

impl Jump {
    pub(super) fn allow(&self, flight: u64, now: Instant) {
        self.set(Some(Allowed { flight, until: now + VALID }));
    }

    pub(super) fn set(&self, allowed: Option<Allowed>) -> Option<Allowed> {
        let mut now = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *now, allowed)
    }

    pub(super) fn cancel(&mut self) {
        self.set(None);
        self.state = State::None;
    }

    /// Records the end of a full round without a loss or a queue, up to packet `last`. Takes the
    /// permission to jump; discards it if it has expired, or if the flight has at most `usual`
    /// bytes (the next window without a jump).
    pub(super) fn confirm(&mut self, now: Instant, usual: u64, last: u64) {
        if let Some(Allowed { flight, until }) = self.set(None)
            && now <= until
            && flight > usual
        {
            self.state = State::Confirming { flight, last };
        }
    }

    pub(super) fn acknowledged(&mut self, largest: u64) {
        if let State::Confirming { flight, last } = self.state
            && largest >= last
        {
            self.state = State::Confirmed(flight);
        }
    }

    /// Records that a packet is sent; all losses known by then have been recorded. If the packet is
    /// the flight's first, returns the flight's bytes.
    pub(super) fn begin(&mut self) -> Option<u64> {
        let State::Confirmed(bytes) = self.state else { return None };
        let flight = Flight { bytes, lost: 0, validating: false, retreats: false };
        self.state = State::Sent(flight);
        Some(bytes)
    }

    /// Records a loss of `bytes`. Returns the new window if the flight has lost too much. A loss
    /// before the flight has begun cancels the jump.
    pub(super) fn lost(&mut self, bytes: u64) -> Option<u64> {
        match &mut self.state {
            State::Sent(flight) => {
                flight.lost += bytes;
                flight.retreats |= flight.lost.saturating_mul(TOO_MUCH) > flight.bytes;
                flight.retreats.then(|| flight.bytes.saturating_sub(flight.lost) / 2)
            }
            State::Confirming { .. } | State::Confirmed(_) => {
                self.cancel();
                None
            }
            State::None => None,
        }
    }
}
