//! How a stream meets its deadline: with payloads of several frames, with repair (lost datagrams
//! are sent again), or with a code (an erasure code for each frame).

use core::fmt;

use super::kept::share;
use super::receiver::PAUSE;
use crate::fec::{Losses, repairs};
use crate::model;
use crate::time::Span;
use crate::units::{Bytes, Rate};

/// A run of losses is rarely longer than this many times the mean burst length.
const RUN: f64 = 8.0;

/// The requirements of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Bytes of a frame.
    pub frame: Bytes,
    /// Frames a second.
    pub per_second: f64,
    /// Longest time from a frame's arrival at the sender to its delivery.
    pub deadline: Span,
    /// The share of frames that may be missed.
    pub epsilon: f64,
    /// Number of receivers. Each receiver loses different datagrams; a repeated datagram goes to
    /// all receivers.
    pub receivers: u32,
}

/// The known properties of the path.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The round-trip time.
    pub rtt: Span,
    /// Delay variation: a datagram takes up to this much longer than RTT/2.
    pub jitter: Span,
    /// The loss ratio and the mean burst length.
    pub losses: Losses,
    /// Bytes of a frame in each datagram.
    pub symbol: u16,
}

impl Path {
    /// Limits the jitter to a quarter of `deadline`. Data with a longer additional delay may be
    /// late.
    pub(crate) fn calmed(self, deadline: Span) -> Path {
        Path { jitter: self.jitter.min(deadline / 4), ..self }
    }

    /// The time that `deadline` leaves for sending, after half a round trip and the jitter.
    pub(crate) fn leaves(&self, deadline: Span) -> Span {
        deadline.saturating_sub(self.rtt / 2 + self.jitter)
    }
}

/// How a stream meets its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Several frames form one payload of an RBUDP transfer; its lost datagrams are sent again.
    Payloads,
    /// Lost datagrams of a frame are sent again; a frame has no erasure code.
    Repair,
    /// Each frame has its own erasure code.
    Code,
}

impl Way {
    /// The way's name.
    pub fn name(self) -> &'static str {
        match self {
            Way::Payloads => "payloads",
            Way::Repair => "repair",
            Way::Code => "code",
        }
    }
}

/// The sending rate of each way that meets the deadline. The rates count frames and repairs, but no
/// headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The sending rate with payloads of several frames, each an RBUDP transfer.
    pub payloads: Option<Rate>,
    /// The sending rate if lost datagrams are sent again while they can be in time.
    pub repair: Option<Rate>,
    /// Number of repairs per frame, and the sending rate, if each frame has its own code.
    pub code: Option<(u16, Rate)>,
}

/// Computes the sending rates from the deadline D, the round-trip time, the jitter and the loss
/// ratio L. ε is the share of frames that may be missed, k the number of datagrams of a frame. A
/// way that cannot meet the deadline has no rate. The rates and conditions:
///
/// - **payloads**: equations 8 to 11 of the Quanta paper ([`crate::model`]). The first sending and
///   each of the N_resend repair rounds of equation 6 take RTT + jitter:
///   B_send = B_obj·S_obj / (1 − (1 + N_resend)·(RTT + jitter)/D). B_send is the sending rate,
///   B_obj the number of frames a second, and S_obj the size of a frame.
/// - **repair**: D > RTT/2 + jitter. With r > 0 repair rounds, D must exceed this sum by the time
///   until a loss is noticed and r·(RTT + 10 ms). r is the smallest number for which
///   k·L·(2L − L²)^r ≤ ε: a round fails if the request or its answer is lost. If r > 0, a receiver
///   must also be allowed to request all datagrams of a run of losses that is 8 times as long as
///   the mean burst.
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

/// Returns the time that the deadline leaves for sending a payload: after half a round trip, the
/// jitter, and the round trips and pauses of the repair rounds. The field `frame` of `needs` has
/// the payload's length. `None` if no time is left. Equation 11, in contrast, reserves no time for
/// pauses.
pub(super) fn payload_time(needs: &Needs, path: &Path) -> Option<Span> {
    let resends = model::resends(needs.frame, path.symbol.into(), path.losses.ratio())?;
    let rounds = (path.rtt + PAUSE) * u64::from(resends) + PAUSE;
    Some(path.leaves(needs.deadline).saturating_sub(rounds)).filter(|left| *left > Span::ZERO)
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
    let left = repair_time(needs, path)?;
    let loss = path.losses.ratio().get();
    let again = f64::from(needs.receivers.max(1)) * loss / (1.0 - loss);
    rate(needs.frame.get() as f64 * (1.0 + again), needs.per_second, left)
}

/// The time that the deadline leaves for sending, after the rounds of repair that the losses
/// require. `None` if these rounds take too long, or if a frame has too many datagrams or losses
/// for repair.
pub(super) fn repair_time(needs: &Needs, path: &Path) -> Option<Span> {
    let (loss, burst) = (path.losses.ratio().get(), path.losses.burst());
    let k = u16::try_from(originals(needs, path)).ok()?;
    let mut missed = f64::from(k) * loss;
    let mut left = path.leaves(needs.deadline);
    if missed <= needs.epsilon {
        return Some(left);
    }
    if burst * RUN > share(k) as f64 {
        return None;
    }
    // If no symbol of a frame arrives, the receiver notices this only when the next frame arrives.
    let interval = Span::from_secs_f64(1.0 / needs.per_second);
    let all_lost = libm::pow(loss, f64::from(k) / burst);
    let paced = if all_lost > needs.epsilon { interval } else { interval / u64::from(k.max(1)) };
    left = left - PAUSE.max(paced);
    while missed > needs.epsilon {
        let round = path.rtt + PAUSE;
        if left < round {
            return None;
        }
        left = left - round;
        missed *= loss * (2.0 - loss);
    }
    Some(left)
}

fn code(needs: &Needs, path: &Path) -> Option<(u16, Rate)> {
    let k = u16::try_from(originals(needs, path)).ok()?;
    let m = repairs(k, path.losses, needs.epsilon)?;
    let left = path.leaves(needs.deadline);
    let bytes = needs.frame.get() as f64 + f64::from(m) * f64::from(path.symbol);
    Some((m, rate(bytes, needs.per_second, left)?))
}

impl Choice {
    fn ways(&self) -> [(Way, Option<Rate>); 3] {
        let code = self.code.map(|(_, rate)| rate);
        [(Way::Repair, self.repair), (Way::Code, code), (Way::Payloads, self.payloads)]
    }

    /// The way with the lowest sending rate; `None` if no way meets the deadline.
    pub fn best(&self) -> Option<Way> {
        let possible = self.ways().into_iter().filter_map(|(way, rate)| Some((way, rate?)));
        possible.min_by_key(|(_, rate)| *rate).map(|(way, _)| way)
    }

    /// The sending rate of `way`, if it meets the deadline.
    pub fn rate(&self, way: Way) -> Option<Rate> {
        self.ways().into_iter().find(|(other, _)| *other == way)?.1
    }

    /// One sentence: the rate of `way`, and the rates of the other ways.
    pub fn by(&self, way: Way) -> impl fmt::Display {
        fmt::from_fn(move |f| self.describe(Some(way), f))
    }

    fn describe(&self, way: Option<Way>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((chosen, rate)) = way.and_then(|way| Some((way, self.rate(way)?))) else {
            return write!(f, "no way meets the deadline, which must exceed RTT/2 + jitter");
        };
        write!(f, "{} at {rate}", chosen.name())?;
        for (other, rate) in self.ways() {
            match rate {
                _ if other == chosen => {}
                Some(rate) => write!(f, "; {} would take {rate}", other.name())?,
                None => write!(f, "; {} would be late", other.name())?,
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
