//! Plans a stream for the measured path: the way ([`Way`]) in which the stream meets its deadline,
//! the rate, and the number of repair datagrams for each frame. There are three ways: payloads
//! (several frames are sent as one object), repair (lost datagrams are resent), and code (each
//! frame is sent with an erasure code). A datagram carries one symbol: a piece of a frame, or a
//! repair.

use super::choose::{Choice, Needs, Path, Way, choose, payload_time, repair_time};
use crate::fec::Losses;
use crate::time::Span;
use crate::units::{Bytes, Rate};

/// With repair or code, a frame is sent at this multiple of the necessary rate, to allow for
/// threads that wake late on a busy host.
const FASTER: f64 = 1.25;

/// Share of frames, or of groups of messages, that may be missed because of the measured losses.
pub const EPSILON: f64 = 1e-4;

/// Parameters for sending a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// How the stream meets its deadline.
    pub way: Way,
    /// UDP payload a second while a frame is being sent.
    pub rate: Rate,
    /// Number of repair datagrams of a frame of full length.
    pub repairs: u16,
    /// The losses that the repairs cover.
    pub losses: Losses,
    /// The rates of all ways that meet the deadline.
    pub choice: Choice,
}

/// Plans a stream that uses `way`; without `way`, it uses repair or code, whichever has the lower
/// rate. Its datagrams have `overhead` bytes in addition to the symbol. For payloads, the frame of
/// `needs` is a whole payload. The jitter counts as at most a quarter of the deadline; frames with
/// a longer additional delay may be late. Returns `None` if `way` (without `way`: both repair and
/// code) cannot meet the deadline.
pub fn plan(needs: &Needs, path: &Path, overhead: u16, way: Option<Way>) -> Option<Plan> {
    let path = path.calmed(needs.deadline);
    let choice = choose(needs, &path);
    // Payloads are never chosen here: their number of frames is fixed before the path is known.
    let way = way.or_else(|| Choice { payloads: None, ..choice }.best())?;
    let least = choice.rate(way)?;
    let (repairs, left) = match way {
        Way::Code => (choice.code?.0, path.leaves(needs.deadline)),
        Way::Repair => (0, repair_time(needs, &path)?),
        Way::Payloads => (0, payload_time(needs, &path).unwrap_or(Span::MAX)),
    };
    let symbol = u64::from(path.symbol.max(1));
    let symbols = needs.frame.get().div_ceil(symbol) + u64::from(repairs);
    let bytes = Bytes::new(symbols * (symbol + u64::from(overhead)));
    let interval = Span::from_secs_f64(1.0 / needs.per_second);
    let rate = bytes / left.min(interval);
    let rate = match way {
        Way::Payloads => rate.max(least.scale(bytes.bits() / needs.frame.bits())),
        Way::Repair | Way::Code => rate.scale(FASTER),
    };
    Some(Plan { way, rate, repairs, losses: path.losses, choice })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::LossRatio;

    fn planned(deadline: u64, jitter: u64) -> Option<Plan> {
        let deadline = Span::from_millis(deadline);
        let frame = Bytes::new(1_440_000);
        let needs = Needs { frame, per_second: 20.0, deadline, epsilon: 1e-4, receivers: 1 };
        let losses = Losses::independent(LossRatio::new(0.01).expect("a share"));
        let (rtt, jitter) = (Span::from_millis(100), Span::from_millis(jitter));
        plan(&needs, &Path { rtt, jitter, losses, symbol: 1430 }, 42, Some(Way::Code))
    }

    #[test]
    fn a_frame_and_its_repairs_are_sent_in_four_fifths_of_the_available_time() {
        // 1031 datagrams of 1472 bytes in 40 ms, four fifths of the 50 ms between frames.
        let plan_120 = planned(120, 0).expect("it is possible");
        assert_eq!((plan_120.repairs, plan_120.rate), (24, Rate::from_bps(303_526_400)));
        // Half a round trip takes 50 of the 80 ms: 30 are left, of which the frame gets 24.
        let plan_80 = planned(80, 0).expect("it is possible");
        assert_eq!(plan_80.rate, Rate::from_bps(505_877_333));
    }

    #[test]
    fn a_stream_with_a_long_enough_deadline_can_be_planned_whatever_the_jitter() {
        assert_eq!(planned(50, 0), None);
        assert!(planned(120, 5_000).is_some());
    }

    #[test]
    fn a_payload_is_sent_at_the_rate_of_equation_11_unless_pauses_require_a_higher_rate() {
        let frame = Bytes::new(14_400_000);
        let deadline = Span::from_millis(500);
        let needs = Needs { frame, per_second: 2.0, deadline, epsilon: 1e-4, receivers: 1 };
        let rate = |rtt: u64, loss: f64| {
            let losses = Losses::independent(LossRatio::new(loss).expect("a share"));
            let (rtt, jitter) = (Span::from_millis(rtt), Span::ZERO);
            let path = Path { rtt, jitter, losses, symbol: 1440 };
            plan(&needs, &path, 0, Some(Way::Payloads)).expect("it is possible").rate
        };
        assert_eq!(rate(100, 0.0), Rate::from_mbps(288));
        for loss in [0.001, 0.003, 0.005, 0.01] {
            assert_eq!(rate(100, loss), Rate::from_mbps(576), "{loss}");
        }
        // Without delay, equation 11 (`crate::model`) leaves 500 ms for the payload. The pauses
        // after three rounds, 10 ms each, leave 470 ms.
        assert_eq!(rate(0, 0.01), Bytes::new(14_400_000) / Span::from_millis(470));
    }
}
