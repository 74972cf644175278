//! Opening: verifies received datagrams and decrypts them into place.
//!
//! The checks, cheapest first: the replay window, the epoch's key, the cipher. (An epoch is a range
//! of 2²³ packet numbers with one key.) Only an opened datagram moves the window or the epoch, so a
//! forged number moves neither.

use std::fmt;

use aws_lc_rs::aead::Aad;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use longhaul_proto::endpoint::PacketNumber;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::wire::header::Header;

use crate::sealing::keys::{Class, EpochKey, Schedule};
use crate::sealing::replay::{ReplayWindow, Seen, WINDOW};
use crate::sealing::seal::{PLAIN_OVERHEAD, SEALED_OVERHEAD, TOKEN_LEN};

/// Epochs beyond the current one whose keys are tried. Each key is derived once and kept, so forged
/// numbers cost at most this many derivations.
const EPOCHS_AHEAD: u32 = 16;

/// Minimum time that an old epoch's key is kept after the next epoch began, unless one more epoch
/// begins earlier. On a long path the key is kept for four round trips.
const KEPT: Span = Span::from_secs(4);

/// Why a datagram was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// Shorter than header and tag, or of the other class (data or control), or of another flow.
    Malformed,
    /// Opened before under this number: a duplicate or a replay.
    Replayed,
    /// Older than the replay window or the kept keys.
    Stale,
    /// Numbered too far ahead to be accepted.
    Wild,
    /// Not sealed by the peer, or modified on the way.
    Forged,
    /// The AEAD forgery limit is reached: the flow must end.
    Ended,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OpenError::Malformed => "not a datagram of this flow",
            OpenError::Replayed => "seen before",
            OpenError::Stale => "too old",
            OpenError::Wild => "numbered too far ahead",
            OpenError::Forged => "not sealed by the other end",
            OpenError::Ended => "too many forgeries for the cipher's integrity limit",
        })
    }
}

impl std::error::Error for OpenError {}

/// Counts of an opener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenCounts {
    /// Genuine datagrams, each number counted once.
    pub opened: u64,
    /// Datagrams whose number had been opened before.
    pub replayed: u64,
    /// Datagrams too old to check.
    pub stale: u64,
    /// Datagrams that failed to open; they count towards the integrity limit.
    pub failed: u64,
    /// Datagrams that were malformed or numbered too far ahead; none of them was decrypted.
    pub refused: u64,
}

/// Opens one direction and class of a flow.
pub struct Opener {
    schedule: Schedule,
    token: Option<[u8; TOKEN_LEN]>,
    window: ReplayWindow,
    current: EpochKey,
    previous: Option<(EpochKey, Time)>,
    ahead: Vec<EpochKey>,
    /// The number of an unencrypted datagram that was too far ahead to be accepted on its own.
    far: Option<u64>,
    /// How long an old key is kept.
    kept: Span,
    limit: u64,
    counts: OpenCounts,
}

impl Opener {
    pub(crate) fn new(schedule: Schedule) -> Opener {
        let limit = schedule.integrity_limit();
        Opener::with_limit(schedule, limit)
    }

    /// Lowers the limit on failed opens, for tests.
    #[must_use]
    pub fn limited_to(mut self, limit: u64) -> Opener {
        self.limit = self.limit.min(limit);
        self
    }

    pub(crate) fn with_limit(schedule: Schedule, limit: u64) -> Opener {
        Opener {
            token: schedule.is_plain().then(|| schedule.token()),
            window: ReplayWindow::default(),
            current: schedule.key(0),
            previous: None,
            ahead: Vec::new(),
            far: None,
            kept: KEPT,
            limit,
            counts: OpenCounts::default(),
            schedule,
        }
    }

    /// Sets the round-trip time of the path.
    #[must_use]
    pub fn over(mut self, rtt: Span) -> Opener {
        self.kept = KEPT.max(rtt * 4);
        self
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> OpenCounts {
        self.counts
    }

    /// Returns whether the forgery limit is reached and the flow must end.
    pub fn is_ended(&self) -> bool {
        self.counts.failed >= self.limit
    }

    /// Returns the number of bytes of a datagram besides its payload.
    pub fn overhead(&self) -> usize {
        if self.token.is_some() { PLAIN_OVERHEAD } else { SEALED_OVERHEAD }
    }

    /// Returns the payload length of a datagram of this length; `None` if it is too short.
    pub(crate) fn payload_len(&self, datagram: usize) -> Option<usize> {
        datagram.checked_sub(self.overhead())
    }

    /// Opens `datagram` with header `header` into the start of `out`; returns the payload's length.
    ///
    /// `out` may be overwritten even if the check of the tag fails. Pass only the place of a
    /// missing block or a scratch buffer, never bytes that are still needed.
    ///
    /// # Errors
    /// [`OpenError`]; each except `Ended` is counted. An `out` shorter than the payload is
    /// `Malformed`.
    pub fn open(
        &mut self,
        now: Time,
        header: &Header,
        datagram: &[u8],
        out: &mut [u8],
    ) -> Result<usize, OpenError> {
        self.admit(header)?;
        let len = self.payload_len(datagram.len()).ok_or(OpenError::Malformed);
        let out = len.and_then(|len| out.get_mut(..len).ok_or(OpenError::Malformed));
        let out = out.inspect_err(|_| self.counts.refused += 1)?;
        let (head, rest) = datagram.split_at(Header::LEN);
        let (body, tag) = rest.split_at(out.len());
        if let Some(token) = &self.token {
            if verify_slices_are_equal(token, tag).is_err() {
                return Err(self.fail());
            }
            self.believe(header.number)?;
            out.copy_from_slice(body);
            self.accept(header.number);
            return Ok(out.len());
        }
        let place = self.locate(now, header.number)?;
        let key = self.key(place);
        let nonce = key.nonce(header.number);
        let opened = key.key().open_separate_gather(nonce, Aad::from(head), body, tag, out);
        if opened.is_err() {
            return Err(self.fail());
        }
        self.adopt(now, place);
        self.accept(header.number);
        Ok(out.len())
    }

    /// Opens a payload that is separate from its header and tag, in place. The payload becomes the
    /// plaintext; if the check fails, its content is undefined.
    ///
    /// # Errors
    /// As [`Opener::open`].
    pub(crate) fn open_in_place(
        &mut self,
        now: Time,
        head: &[u8; Header::LEN],
        tag: &[u8],
        payload: &mut [u8],
    ) -> Result<(), OpenError> {
        let header = Header::decode(head).ok_or(OpenError::Malformed);
        let header = header.inspect_err(|_| self.counts.refused += 1)?;
        self.admit(&header)?;
        if let Some(token) = &self.token {
            if verify_slices_are_equal(token, tag).is_err() {
                return Err(self.fail());
            }
            self.believe(header.number)?;
            self.accept(header.number);
            return Ok(());
        }
        let place = self.locate(now, header.number)?;
        let key = self.key(place);
        let nonce = key.nonce(header.number);
        let aad = Aad::from(head);
        if key.key().open_in_place_separate_tag(nonce, aad, tag, payload).is_err() {
            return Err(self.fail());
        }
        self.adopt(now, place);
        self.accept(header.number);
        Ok(())
    }

    fn admit(&mut self, header: &Header) -> Result<(), OpenError> {
        if self.is_ended() {
            return Err(OpenError::Ended);
        }
        let ours = header.flow == self.schedule.flow();
        if !ours || Class::of(header.kind) != self.schedule.class() {
            self.counts.refused += 1;
            return Err(OpenError::Malformed);
        }
        match self.window.check(header.number) {
            Seen::New => Ok(()),
            Seen::Again => {
                self.counts.replayed += 1;
                Err(OpenError::Replayed)
            }
            Seen::Stale => {
                self.counts.stale += 1;
                Err(OpenError::Stale)
            }
        }
    }

    /// Checks the number of an unencrypted datagram. A corrupted number far ahead would make the
    /// next genuine datagrams stale. So a number far ahead is accepted only if the last refused
    /// number is near it but different. After an outage, the second genuine number is accepted.
    fn believe(&mut self, number: PacketNumber) -> Result<(), OpenError> {
        let PacketNumber(number) = number;
        if number < self.window.end().saturating_add(WINDOW) {
            return Ok(());
        }
        let again = self.far.replace(number);
        if again.is_some_and(|before| before != number && before.abs_diff(number) < WINDOW) {
            self.far = None;
            return Ok(());
        }
        self.counts.refused += 1;
        Err(OpenError::Wild)
    }

    fn locate(&mut self, now: Time, number: PacketNumber) -> Result<KeyPlace, OpenError> {
        let epoch = EpochKey::epoch_of(number);
        if epoch == self.current.epoch {
            return Ok(KeyPlace::Current);
        }
        if epoch < self.current.epoch {
            let kept =
                self.previous.as_ref().is_some_and(|(k, until)| k.epoch == epoch && now <= *until);
            if kept {
                return Ok(KeyPlace::Previous);
            }
            self.counts.stale += 1;
            return Err(OpenError::Stale);
        }
        if epoch - self.current.epoch > EPOCHS_AHEAD {
            self.counts.refused += 1;
            return Err(OpenError::Wild);
        }
        let place = self.ahead.iter().position(|key| key.epoch == epoch).unwrap_or_else(|| {
            self.ahead.push(self.schedule.key(epoch));
            self.ahead.len() - 1
        });
        Ok(KeyPlace::Ahead(place))
    }

    fn key(&self, place: KeyPlace) -> &EpochKey {
        match place {
            KeyPlace::Current => &self.current,
            KeyPlace::Ahead(index) => &self.ahead[index],
            KeyPlace::Previous => &self.previous.as_ref().expect("located under the same borrow").0,
        }
    }

    /// Notes that the key at `place` has opened a datagram. A key of a later epoch then becomes the
    /// current key.
    fn adopt(&mut self, now: Time, place: KeyPlace) {
        if let KeyPlace::Ahead(index) = place {
            let next = self.ahead.swap_remove(index);
            let last = std::mem::replace(&mut self.current, next);
            self.previous = Some((last, now + self.kept));
            self.ahead.retain(|key| key.epoch > self.current.epoch);
        }
    }

    fn accept(&mut self, number: PacketNumber) {
        self.window.mark(number);
        self.counts.opened += 1;
    }

    fn fail(&mut self) -> OpenError {
        self.counts.failed += 1;
        OpenError::Forged
    }
}

#[derive(Clone, Copy)]
enum KeyPlace {
    Current,
    Previous,
    Ahead(usize),
}
