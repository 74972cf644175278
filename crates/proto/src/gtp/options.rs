//! The settings: the paper's constants with their sections, and choices for users. Constants that
//! are not settings are in `tuning`.

use super::tuning::Tuning;
use crate::kind::Kind;
use crate::settings::{ProtocolOption, Settings};
use crate::units::Rate;

/// C_r, "the capacity of all GTP traffic" (section 4.3).
pub const RECEIVE_RATE: ProtocolOption = ProtocolOption::new(
    Kind::Rate,
    "receive-rate",
    "capacity of the receiver for all flows, as UDP payload (0: find it)",
    (0.0, 1e12),
    0.0,
)
.shared();

/// "GTP may be assigned to utilize up to 80% of the bandwidth and leave 20% for TCP flows"
/// (section 3.6).
pub(crate) const RECEIVE_SHARE: ProtocolOption = ProtocolOption::new(
    Kind::Ratio,
    "receive-share",
    "share of the receive rate to use",
    (0.01, 1.0),
    1.0,
)
.shared();

/// Weight of a source in a weighted max-min schedule; equal weights give the paper's schedule.
pub(crate) const WEIGHT: ProtocolOption = ProtocolOption::new(
    Kind::Number,
    "weight",
    "weight of this flow's share among all flows",
    (0.01, 100.0),
    1.0,
);

/// C_r before anything is measured, and the sender's rate until the first request. Our addition.
pub(crate) const START_RATE: ProtocolOption = ProtocolOption::new(
    Kind::Rate,
    "start-rate",
    "capacity of the receiver before anything is measured, as UDP payload",
    (1e5, 1e11),
    10e6,
);

/// Minimum requested rate of a flow. A flow without any requests could not be measured. Our
/// addition.
pub const LEAST_RATE: ProtocolOption = ProtocolOption::new(
    Kind::Rate,
    "least-rate",
    "least requested rate of every flow",
    (1e4, 1e11),
    0.5e6,
);

/// Blocks that leave before the first request arrives; the paper's sender waits for that request.
pub const EARLY: ProtocolOption = ProtocolOption::new(
    Kind::Count,
    "early",
    "blocks sent before the first request arrives (0: as in the paper)",
    (0.0, 1024.0),
    64.0,
);

/// Section 4.1: "We are also exploring efficient delay based single flow rate control mechanism".
pub(crate) const DELAY_CONTROL: ProtocolOption = ProtocolOption::switch(
    "delay-control",
    "reduce a flow's rate before its queue overflows (the paper: when it overflows)",
    false,
);

/// Queues shorter than this share of the path's round-trip time are ignored; our addition.
pub(crate) const QUEUE: ProtocolOption = ProtocolOption::new(
    Kind::Ratio,
    "queue",
    "queueing delay that delay-control allows, as a share of the round-trip time",
    (0.01, 10.0),
    0.25,
);

/// Section 4.1: "proportionally increases the requested rate with a small step size (2% per RTT)";
/// section 4.2: the estimate's first step.
pub(crate) const INCREASE: ProtocolOption = ProtocolOption::new(
    Kind::Ratio,
    "increase",
    "step by which rates and estimates rise",
    (0.001, 1.0),
    0.02,
);

/// Section 4.2: "we increase the allowable increment of estimation exponentially".
pub(crate) const ESTIMATE_GROWTH: ProtocolOption = ProtocolOption::new(
    Kind::Ratio,
    "estimate-growth",
    "factor on the step of an estimate while nothing is lost and the target is achieved",
    (1.0, 10.0),
    2.0,
);

/// The factor 0.5 of sections 4.1 and 4.2.
pub(crate) const LOSS_WEIGHT: ProtocolOption = ProtocolOption::new(
    Kind::Number,
    "loss-weight",
    "factor from the loss ratio to the decrease of a rate or an estimate",
    (0.0, 2.0),
    0.5,
);

/// Section 4.1: "We also set an upper bound (12.5%) for the decrease in rate."
pub(crate) const MOST_DECREASE: ProtocolOption = ProtocolOption::new(
    Kind::Ratio,
    "most-decrease",
    "largest decrease of a flow's rate in a round trip",
    (0.001, 0.9),
    0.125,
);

/// Section 4.2: the estimate's reduction "is bounded by 20%".
pub(crate) const MOST_CUT: ProtocolOption = ProtocolOption::new(
    Kind::Ratio,
    "most-cut",
    "largest cut of an estimate in an interval",
    (0.001, 0.9),
    0.2,
);

/// Section 4.2: "When there is packet loss, but below certain threshold (0.5%), we still increase
/// the estimate".
pub(crate) const LOSS_THRESHOLD: ProtocolOption = ProtocolOption::new(
    Kind::Ratio,
    "loss-threshold",
    "loss below which the estimate still rises",
    (0.0, 0.5),
    0.005,
);

/// Section 4.2: "r_total ≥ 0.95 r_target".
pub const CLOSE: ProtocolOption = ProtocolOption::new(
    Kind::Ratio,
    "close",
    "share of a flow's target that counts as reached",
    (0.01, 1.0),
    0.95,
);

/// In the paper the estimate falls as soon as a flow is below its target. Real hosts pause at
/// times, so here it falls later.
pub const PATIENCE: ProtocolOption = ProtocolOption::new(
    Kind::Count,
    "patience",
    "consecutive intervals without loss in which a flow must be below its target before its \
     estimate falls to its rate (1: as in the paper)",
    (1.0, 100.0),
    3.0,
);

/// Section 4.2: "by default, we set it as three RTTmax".
pub const INTERVAL: ProtocolOption = ProtocolOption::new(
    Kind::Number,
    "interval",
    "control interval, as a multiple of the longest round-trip time of all flows",
    (1.0, 100.0),
    3.0,
)
.shared();

/// Section 4.1: "limits the number of outstanding data requests".
pub(crate) const OUTSTANDING: ProtocolOption = ProtocolOption::new(
    Kind::Number,
    "outstanding",
    "requested data that wait at the sender, in round-trip times",
    (0.25, 16.0),
    1.0,
);

/// Loss that the path has at every rate, so it shows no congestion; our addition.
pub(crate) const TOLERATED_LOSS: ProtocolOption = ProtocolOption::new(
    Kind::Ratio,
    "tolerated-loss",
    "loss of the path itself, which is ignored",
    (0.0, 0.9),
    0.0,
);

/// Whether loss that does not fall with the rate counts as the path's own.
pub(crate) const OWN_LOSS: ProtocolOption = ProtocolOption::switch(
    "own-loss",
    "ignore loss that stays while a flow's rate falls (the paper has no such rule)",
    true,
);

/// Section 3.6, future work: "dynamically adjust allocatable GTP traffic by monitoring and
/// estimating TCP traffic, so as to achieve max-min fairness to all flows". A user who sets C_r has
/// already decided how much to leave to others.
pub const OTHERS: ProtocolOption = ProtocolOption::choice(
    "others",
    "fair: other traffic on the receiver's link keeps a fair share; ignored: it is not \
     measured; auto: fair unless receive-rate is given",
    &["auto", "fair", "ignored"],
)
.shared();

pub(crate) const VARIANT: ProtocolOption = ProtocolOption::choice(
    "gtp-variant",
    "ours: the defaults below; paper: a patience of 1, nothing early, a least-rate of 100kbit/s, \
     own-loss off, others ignored",
    &["ours", "paper"],
)
.shared();

/// The paper's values that differ from ours. The paper has no least rate; 100 kbit/s is almost
/// none. A flow begins with the least rate: at 10 kbit/s a datagram takes a second, and the first
/// measurement shows so little that the flow never recovers.
const PAPERS: [(ProtocolOption, f64); 5] =
    [(PATIENCE, 1.0), (EARLY, 0.0), (LEAST_RATE, 1e5), (OWN_LOSS, 0.0), (OTHERS, 2.0)];

/// The given value of `option`, or its default in the chosen variant.
pub(super) fn value(settings: &Settings, option: &ProtocolOption) -> f64 {
    let is_paper = settings.word(&VARIANT) == "paper";
    let papers = PAPERS.iter().find(|(papers, _)| is_paper && papers.name == option.name);
    let default = papers.map_or(option.default, |(_, value)| *value);
    settings.given(option).unwrap_or(default)
}

pub(super) const ALL: &[ProtocolOption] = &[
    VARIANT,
    RECEIVE_RATE,
    RECEIVE_SHARE,
    WEIGHT,
    START_RATE,
    LEAST_RATE,
    EARLY,
    DELAY_CONTROL,
    QUEUE,
    INCREASE,
    ESTIMATE_GROWTH,
    LOSS_WEIGHT,
    MOST_DECREASE,
    MOST_CUT,
    LOSS_THRESHOLD,
    CLOSE,
    PATIENCE,
    INTERVAL,
    OUTSTANDING,
    TOLERATED_LOSS,
    OWN_LOSS,
    OTHERS,
];

/// The settings as the decisions use them: ratios are shares of 1, rates are bits a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) receive_rate: Option<f64>,
    pub(super) receive_share: f64,
    pub(super) weight: f64,
    pub(super) start_rate: f64,
    pub(super) least_rate: f64,
    pub(super) delay_control: bool,
    pub(super) queue: f64,
    pub(super) increase: f64,
    pub(super) estimate_growth: f64,
    pub(super) loss_weight: f64,
    pub(super) most_decrease: f64,
    pub(super) most_cut: f64,
    pub(super) loss_threshold: f64,
    pub(super) close: f64,
    pub(super) patience: u32,
    pub(super) interval: f64,
    pub(super) outstanding: f64,
    pub(super) tolerated_loss: f64,
    pub(super) own_loss: bool,
    pub(super) others: bool,
    pub(super) tuning: Tuning,
}

impl Rules {
    pub(super) fn new(settings: &Settings) -> Rules {
        let value = |option: &ProtocolOption| value(settings, option);
        let receive_rate = Some(value(&RECEIVE_RATE)).filter(|rate| *rate > 0.0);
        Rules {
            receive_rate,
            receive_share: value(&RECEIVE_SHARE),
            weight: value(&WEIGHT),
            start_rate: value(&START_RATE),
            least_rate: value(&LEAST_RATE),
            delay_control: value(&DELAY_CONTROL) > 0.0,
            queue: value(&QUEUE),
            increase: value(&INCREASE),
            estimate_growth: value(&ESTIMATE_GROWTH),
            loss_weight: value(&LOSS_WEIGHT),
            most_decrease: value(&MOST_DECREASE),
            most_cut: value(&MOST_CUT),
            loss_threshold: value(&LOSS_THRESHOLD),
            close: value(&CLOSE),
            patience: value(&PATIENCE) as u32,
            interval: value(&INTERVAL),
            outstanding: value(&OUTSTANDING),
            tolerated_loss: value(&TOLERATED_LOSS),
            own_loss: value(&OWN_LOSS) > 0.0,
            others: match OTHERS.kind.word(value(&OTHERS)) {
                "fair" => true,
                "ignored" => false,
                _ => receive_rate.is_none(),
            },
            tuning: Tuning::OURS,
        }
    }

    /// The part of a loss ratio above the path's tolerated loss.
    pub(super) fn excess(&self, loss: f64) -> f64 {
        (loss - self.tolerated_loss).max(0.0)
    }
}

/// A rate in bits a second; infinite if there is none.
pub(super) fn bps(rate: Option<Rate>) -> f64 {
    rate.map_or(f64::INFINITY, |rate| rate.as_bps() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gtp::ROW;

    fn rules(list: &[(&str, f64)]) -> Rules {
        let with = |all: Settings, (name, value): &(&str, f64)| all.with(&ROW, name, *value);
        Rules::new(&list.iter().try_fold(Settings::default(), with).unwrap())
    }

    #[test]
    fn the_papers_variant_has_the_papers_rules_and_a_low_least_rate() {
        let paper = rules(&[("gtp-variant", 1.0)]);
        assert_eq!((paper.patience, paper.least_rate), (1, 1e5));
        assert!(!paper.own_loss && !paper.others);
        let ours = rules(&[]);
        assert_eq!((ours.patience, ours.least_rate), (3, 0.5e6));
        assert!(ours.own_loss && ours.others);
    }

    #[test]
    fn a_given_setting_overrides_the_variant() {
        let paper = rules(&[("gtp-variant", 1.0), ("patience", 2.0), ("others", 1.0)]);
        assert_eq!((paper.patience, paper.others, paper.own_loss), (2, true, false));
    }
}
