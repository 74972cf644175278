//! Constants of our own: how the paper's quantities are measured, how the receiver's capacity C_r
//! is found, and how silent senders, lossy paths and other traffic are judged. Own loss is the loss
//! of the path itself, which does not fall with the rate. The constants are not settings, because
//! no user could choose better values for a single copy.

use crate::time::Span;

/// Generates the struct and its values from the table below.
macro_rules! tuning {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $value:expr;)*) => {
        /// The constants as the decisions use them; ratios are shares of 1.
        #[derive(Clone, Copy, Debug)]
        pub(super) struct Tuning {
            $($(#[$doc])* pub(super) $field: $type,)*
        }

        impl Tuning {
            pub(super) const OURS: Tuning = Tuning { $($field: $value,)* };
        }
    };
}

impl Tuning {
    /// The time in which each of `flows` flows gets one request.
    pub(super) fn spacing(&self, flows: usize) -> Span {
        Span::from_secs_f64(flows as f64 / self.requests as f64)
    }
}

tuning! {
    /// Minimum number of datagrams in a measurement of a flow.
    measure_datagrams: u64 = 16;
    /// Minimum amount of requested data that a sender has in hand, as time at its rate: a busy
    /// host may pause for this long.
    ahead: Span = Span::from_millis(100);
    /// Minimum window (limit on requested blocks that have not arrived) in blocks, however slow the
    /// flow.
    ahead_blocks: u64 = 4;
    /// Minimum amount of requested data that a sender has in hand, as a number of intervals between
    /// requests to it.
    turns_ahead: u64 = 2;
    /// Maximum number of regular requests to a sender in a round trip. A loss, a new target or a
    /// new grant causes a further request.
    turns: u64 = 2;
    /// Minimum number of datagrams in a request, unless the sender would run out of data.
    worth_asking: u64 = 32;
    /// Rate above which a sender counts as too fast, as a share of the requested rate. Above 1,
    /// because queues release packets in bursts.
    too_fast: f64 = 1.25;
    /// Largest burst of arrivals that does not count as too fast, as a multiple of the data that
    /// the sender may have in hand. The path may hold such data back and release them together.
    at_once: f64 = 2.0;
    /// Maximum number of regular requests a second to all senders together.
    requests: u64 = 10_000;
    /// Time after which a silent sender gets a new request; the time doubles with each
    /// repetition.
    silence: Span = Span::from_millis(500);
    /// The initial wait before a new request, in round trips, if this is longer than `silence`.
    silence_rtts: u64 = 4;
    /// Longest time between requests to a silent sender; the initial wait may be longer.
    longest_silence: Span = Span::from_secs(4);
    /// Round trips without data after which a flow that waits for room at the receiving host leaves
    /// the schedule.
    idle_rtts: u64 = 3;
    /// A flow's new target takes effect immediately if it is below this share of the current
    /// target. Without this rule, flows that join would wait for the flow that holds most of the
    /// link.
    crowded: f64 = 0.25;
    /// Minimum time between two decisions on a flow's rate; clocks and threads are no finer.
    shortest_turn: Span = Span::from_millis(10);
    /// Longest round-trip time that the receiver accepts from a sender, because the longest one
    /// sets the pace of all flows.
    longest_rtt: Span = Span::from_secs(2);
    /// The remembered delay of the slowest recent answer shrinks by 1 / `answers` with each further
    /// answer.
    answers: u64 = 8;
    /// Length of the window for the shortest round-trip time; the current window and the one before
    /// count.
    path_age: Span = Span::from_secs(10);
    /// Maximum rate requested from a flow, as a share of the rate at which the receiving host
    /// empties its buffers (drain rate). Above 1, because a drain rate measured on requested data
    /// must not fix the flow at that rate.
    drain: f64 = 1.1;
    /// Minimum length of a control interval. At its end all flows' estimates and targets are
    /// updated.
    shortest_interval: Span = Span::from_millis(30);
    /// Maximum length of a control interval, unless the requests to many flows take longer.
    longest_interval: Span = Span::from_secs(3);
    /// Minimum relative change that makes a sender report its round-trip time.
    rtt_change: f64 = 0.125;
    /// Like `rtt_change`, for a receiver that has to find its capacity.
    rtt_change_found: f64 = 0.03125;
    /// Minimum absolute change that makes a sender report its round-trip time to a receiver that
    /// has to find its capacity. Hosts cause smaller changes by themselves.
    least_rtt_change: Span = Span::from_millis(1);
    /// Maximum lateness that a sender makes up for in one burst.
    late: Span = Span::from_millis(2);

    /// Maximum share of the rate of a first packet train (datagrams sent back to back) that counts
    /// as capacity.
    train: f64 = 0.9;
    /// Minimum number of steps (distinct arrival times after the first) of a first packet train
    /// that shows a ceiling (an upper limit of C_r).
    train_steps: u64 = 16;
    /// Factor on C_r in each interval until a limit is found.
    search: f64 = 2.0;
    /// Factor on the relative step of C_r in each interval while C_r is far below a train's rate.
    step_growth: f64 = 2.0;
    /// If C_r is above this multiple of the fastest train's rate, the receiver's link did not limit
    /// that train.
    past: f64 = 1.06;
    /// Number of intervals for which a ceiling holds the first time. A ceiling that a queue showed
    /// never holds longer.
    belief: u64 = 8;
    /// Maximum number of intervals for which a confirmed ceiling holds.
    longest_belief: u64 = 32;
    /// Factor by which a ceiling holds longer each time it is confirmed.
    belief_again: u64 = 2;
    /// Relative difference up to which two ceilings count as the same.
    same_ceiling: f64 = 0.05;
    /// Ceiling, as a share of the arrival rate that showed it.
    below_ceiling: f64 = 0.98;
    /// Number of steps down by the factor `below_ceiling` after a queue showed a ceiling, because
    /// a queue is noticed two intervals late.
    steps_back: u64 = 3;
    /// Loss ratio that shows a ceiling while no ceiling holds. A step beyond the capacity loses
    /// more than this in an interval.
    first_loss: f64 = 0.003;
    /// A queue on all paths that has grown by this much shows a ceiling. Busy hosts cause the same
    /// growth, but not on all paths.
    queue_growth: Span = Span::from_millis(4);
    /// If flows send less than this share of the requested data, loss counts only if the next
    /// interval has loss too. Hosts pause, and lose data while they catch up.
    paused: f64 = 0.8;
    /// Loss ratio above which loss counts immediately: no pause causes so much.
    doubtful: f64 = 0.2;
    /// Minimum rate of a first packet train, as a share of the card's speed, that shows the card to
    /// be the bottleneck. Below 1, because the host may read the datagrams more slowly than they
    /// arrive.
    like_card: f64 = 0.75;
    /// Share of a link's capacity at which the link counts as full.
    link_full: f64 = 0.98;

    /// Rate at which own loss is judged, as a share of the highest rate since losses began.
    own_reduced: f64 = 0.95;
    /// How far the rate falls before loss is judged again, as a share of the first fall.
    own_again: f64 = 0.5;
    /// Minimum level of loss that counts as unchanged after the rate fell. Level 0 is the loss that
    /// a link of limited capacity would have now; level 1 is the loss before the rate fell.
    own_stays: f64 = 0.5;
    /// A higher own loss is learned only if the loss ratio exceeds `own_margin` times the known own
    /// loss by more than this.
    own_least: f64 = 0.001;
    /// Loss up to this multiple of the learned own loss counts as own loss too, because own
    /// loss varies over time.
    own_margin: f64 = 1.25;

    /// When other traffic gets its part of the link, a flow's estimate counts as at least this much
    /// of an even share. Without this minimum, a flow whose rate is pushed down would lose more and
    /// more of its share.
    even_least: f64 = 0.5;
    /// Minimum part of other traffic (the rate left to it), as a share of the link. Without it the
    /// demand of other traffic could not show.
    others_least: f64 = 0.01;
    /// Other traffic that uses at least this share of its part gets a larger part. Between two
    /// losses TCP uses on average three quarters of its window.
    others_used: f64 = 0.7;
    /// Other traffic that uses less than this share of its part gets a smaller part.
    others_unused: f64 = 0.5;
    /// Other traffic that uses less than this share of its part counts as gone.
    others_absent: f64 = 0.1;
    /// Other traffic below this share of the link does not end the search for C_r over several
    /// paths.
    others_small: f64 = 0.05;
    /// Factor on the part of other traffic that wants more.
    others_more: f64 = 1.25;
    /// Factor on the part of other traffic that wants less.
    others_less: f64 = 0.9;
    /// Factor on the part of other traffic that is gone.
    others_much_less: f64 = 0.7;
    /// Minimum time over which other traffic is judged (a period); a card's counter moves in steps.
    others_look: Span = Span::from_millis(100);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{FlowId, Receiver, Setup, Wake};
    use crate::gtp::GtpReceiver;
    use crate::layout::Layout;
    use crate::time::Time;
    use crate::units::Bytes;
    use crate::wire::Control;

    /// When a receiver with this `silence` repeats its request to a sender that never answers.
    fn second_request_at(silence: Span) -> Time {
        let layout = Layout::whole(Bytes::new(1_000_000), 1000).unwrap();
        let setup = Setup::new(FlowId(1), layout, Span::from_millis(10));
        let mut receiver = GtpReceiver::default();
        receiver.tuning.silence = silence;
        receiver.add_flow(Time::ZERO, &setup);
        let mut now = Time::ZERO;
        loop {
            while let Some(outgoing) = receiver.poll_control(now) {
                if let Control::Request(request) = outgoing.control
                    && request.is_anew()
                {
                    return now;
                }
            }
            let Wake::At(at, _) = receiver.next_wakeup() else { panic!("the receiver gave up") };
            now = at;
            receiver.on_timeout(now);
        }
    }

    #[test]
    fn a_sender_gets_a_new_request_after_its_silence() {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let asked = [100, 500, 2000].map(|ms| second_request_at(Span::from_millis(ms)));
        assert!(asked[0] >= at(100) && asked[0] < asked[1], "{asked:?}");
        assert!(asked[2] >= at(2000), "{asked:?}");
    }
}
