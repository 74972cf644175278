//! How a stream meets its deadline: by payloads, by repair or by code.

use core::fmt;

use crate::fec::{Losses, repairs};
use crate::model;
use crate::time::Span;
use crate::units::{Bytes, Rate};

/// The requirements of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Bytes of a frame.
    pub frame: Bytes,
    /// Frames a second.
    pub per_second: f64,
    /// Time from the frame's arrival at the sender to its delivery.
    pub deadline: Span,
    /// The share of frames that may be missed.
    pub epsilon: f64,
}

/// The known properties of the path.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The round-trip time.
    pub rtt: Span,
    /// Delay variation: a datagram takes up to this much longer than RTT/2.
    pub jitter: Span,
    /// Losses.
    pub losses: Losses,
    /// Bytes of a frame in each datagram.
    pub symbol: u16,
}

impl Path {
    /// Limits the jitter to a quarter of `deadline`. With more jitter, data are late whatever the
    /// sender does.
    pub(crate) fn calmed(self, deadline: Span) -> Path {
        Path { jitter: self.jitter.min(deadline / 4), ..self }
    }

    /// The time that `deadline` leaves for sending, after half a round trip and the jitter.
    pub(crate) fn leaves(&self, deadline: Span) -> Span {
        deadline.saturating_sub(self.rtt / 2 + self.jitter)
    }
}

/// The sending rate of each way that meets the deadline. Rates are of frames and repairs, without
/// headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The sending rate by payloads of several frames, each an RBUDP transfer.
    pub payloads: Option<Rate>,
    /// The sending rate if lost datagrams are sent again while they can be in time.
    pub repair: Option<Rate>,
    /// Number of repairs per frame, and the sending rate, if each frame has its own code.
    pub code: Option<(u16, Rate)>,
}

/// Computes the sending rates from deadline, round-trip time, jitter and losses. A way that cannot
/// meet the deadline is left out:
///
/// - **payloads**: equations 8 to 11, with a round trip for each round that equation 6 expects:
///   B_send = B_obj·S_obj / (1 − (1 + N_resend)·RTT/D).
/// - **repair**: D ≥ 1.5·RTT + jitter, and r rounds fit such that k·L^(r + 1) ≤ ε.
/// - **code**: D > RTT/2 + jitter. A frame and its repairs are sent within the frame's interval, or
///   within the time that the deadline leaves, whichever is shorter.
pub fn choose(needs: &Needs, path: &Path) -> Choice {
    let choice = Choice {
        payloads: payloads(needs, path),
        repair: repair(needs, path),
        code: code(needs, path),
    };
    if needs.per_second > 0.0 {
        choice
    } else {
        Choice { payloads: None, repair: None, code: None }
    }
}

fn payloads(needs: &Needs, path: &Path) -> Option<Rate> {
    let Needs { frame, per_second, deadline, .. } = *needs;
    let payload = model::stream_payload(frame, model::stream_objects(per_second, deadline));
    let resends = model::resends(payload, path.symbol.into(), path.losses.ratio())?;
    // The model assumes independent losses and no jitter. With jitter, a round waits for its latest
    // datagram.
    let round = path.rtt + path.jitter;
    let rounds = round * (u64::from(resends) + 1);
    model::stream_send_rate(frame, per_second, deadline, rounds).ok()
}

/// The rate that sends `bytes` within a frame's interval, or within `left` if that is less.
fn rate(bytes: f64, per_second: f64, left: Span) -> Option<Rate> {
    let seconds = left.as_secs_f64().min(1.0 / per_second);
    (seconds > 0.0).then(|| Rate::from_bps_f64(bytes * 8.0 / seconds))
}

fn originals(needs: &Needs, path: &Path) -> u64 {
    needs.frame.get().div_ceil(u64::from(path.symbol.max(1)))
}

fn repair(needs: &Needs, path: &Path) -> Option<Rate> {
    let (loss, k) = (path.losses.ratio().get(), originals(needs, path) as f64);
    let once = path.rtt / 2 + path.jitter;
    let (mut left, mut missed) = (needs.deadline.saturating_sub(once), k * loss);
    // At least one round if there is any loss: D ≥ 1.5 RTT + jitter.
    while missed > needs.epsilon {
        if left < path.rtt || path.rtt == Span::ZERO || loss >= 1.0 {
            return None;
        }
        left = left - path.rtt;
        missed *= loss;
    }
    rate(needs.frame.get() as f64 / (1.0 - loss), needs.per_second, left)
}

fn code(needs: &Needs, path: &Path) -> Option<(u16, Rate)> {
    let k = u16::try_from(originals(needs, path)).ok()?;
    let m = repairs(k, path.losses, needs.epsilon)?;
    let left = path.leaves(needs.deadline);
    let bytes = needs.frame.get() as f64 + f64::from(m) * f64::from(path.symbol);
    Some((m, rate(bytes, needs.per_second, left)?))
}

impl Choice {
    fn ways(&self) -> [(&'static str, Option<Rate>); 3] {
        let code = self.code.map(|(_, rate)| rate);
        [("repair", self.repair), ("code", code), ("payloads", self.payloads)]
    }

    /// The way with the lowest sending rate, and the rate.
    fn best(&self) -> Option<(&'static str, Rate)> {
        let possible = self.ways().into_iter().filter_map(|(name, rate)| Some((name, rate?)));
        possible.min_by_key(|(_, rate)| *rate)
    }

    /// One sentence for a stream that uses a code: its rate, and the rates of the other ways.
    pub fn by_code(&self) -> impl fmt::Display {
        let way = self.code.map(|(_, rate)| ("code", rate));
        fmt::from_fn(move |f| self.describe(way, f))
    }

    fn describe(&self, way: Option<(&str, Rate)>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((chosen, rate)) = way else {
            return write!(f, "nothing keeps the deadline: it must exceed RTT/2 + jitter");
        };
        write!(f, "{chosen} at {rate}")?;
        for (name, other) in self.ways() {
            match other {
                _ if name == chosen => {}
                Some(rate) => write!(f, "; {name} would take {rate}")?,
                None => write!(f, "; {name} would be late")?,
            }
        }
        Ok(())
    }
}

/// One sentence: the way with the lowest rate, its rate, and the rates of the other ways.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe(self.best(), f)
    }
}
