//! The constants that are ours: how the paper's quantities are measured, how C_r is found, how
//! silent senders, lossy paths and other traffic are judged. They are no settings: nobody could
//! choose better values for a single copy. A test changes a field.
//!
//! What bounds a host against a hostile peer (`sender`: runs and requests that wait) is not here.

use crate::time::Span;

/// From the table below: the fields, and their values.
macro_rules! tuning {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $value:expr;)*) => {
        /// The constants as the decisions use them: ratios as shares of 1.
        #[derive(Clone, Copy, Debug)]
        pub(super) struct Tuning {
            $($(#[$doc])* pub(super) $field: $type,)*
        }

        impl Tuning {
            /// The values with which the experiments were run.
            pub(super) const OURS: Tuning = Tuning { $($field: $value,)* };
        }
    };
}

impl Tuning {
    /// The time in which each of so many flows is asked once.
    pub(super) fn spacing(&self, flows: usize) -> Span {
        Span::from_secs_f64(flows as f64 / self.requests as f64)
    }
}

tuning! {
    /// Datagrams that a flow must have sent for an estimate to be made of them. What a flow does is
    /// not judged by fewer.
    measure_datagrams: u64 = 16;
    /// Time for which a sender has data in hand at the least. A host that is busy may not look for
    /// so long.
    ahead: Span = Span::from_millis(100);
    /// Blocks that may be under way at the least. However slow a flow is, so much of it may be
    /// under way.
    ahead_blocks: u64 = 4;
    /// Requests' worth of data that a sender has in hand at the least. A request that is late
    /// starves nobody.
    turns_ahead: u64 = 2;
    /// Requests to a sender in a round trip at the most. Each costs something, and what came waits
    /// as long at the most until more is asked for.
    turns: u64 = 2;
    /// Datagrams that a request is for at the least, as far as a sender has them in hand. A request
    /// costs both ends as much as some datagrams do.
    worth_asking: u64 = 32;
    /// Rate above which a sender does not obey, as a share of what it is asked for. What holds
    /// packets back lets them go at once; a sender sends what it has in hand.
    too_fast: f64 = 1.25;
    /// What a sender that obeys may bring at once, as a share of what it may have in hand. The path
    /// may have held back as much as a sender has in hand.
    at_once: f64 = 2.0;
    /// Requests a second to all senders together, where nothing is lost. However many they are,
    /// what asks for data must not take the link of what answers.
    requests: u64 = 10_000;
    /// Time after which a silent sender is asked anew; then twice as long, and so on.
    silence: Span = Span::from_millis(500);
    /// Round trips that a sender is silent before it is asked anew, if that is longer than
    /// `silence`.
    silence_rtts: u64 = 4;
    /// Time after which a silent sender is asked again at the latest.
    longest_silence: Span = Span::from_secs(4);
    /// Round trips without data after which a flow that waits for its host leaves the
    /// schedule.
    idle_rtts: u64 = 3;
    /// Share of its target below which a flow's new target takes effect at once. Many that join
    /// take from who has much: for that nobody waits.
    crowded: f64 = 0.25;
    /// Time between two decisions on a flow's rate at the least. A host's clock and threads are no
    /// finer.
    shortest_turn: Span = Span::from_millis(10);
    /// Round-trip time beyond which none is believed. A sender's word sets the pace for all flows,
    /// so it is not taken for anything.
    longest_rtt: Span = Span::from_secs(2);
    /// Answers in which a late one is forgotten: its time falls by one part in so many with each.
    /// One answer that was late is no path.
    answers: u64 = 8;
    /// Time after which a path may have become longer for good. The shortest round-trip time is
    /// looked for in a time of this length and the one before.
    path_age: Span = Span::from_secs(10);
    /// What a flow is asked for at the most, as a share of what the receiving host drains. A drain
    /// that was measured on what was sent must not hold the flow there.
    drain: f64 = 1.1;
    /// Control interval at the least.
    shortest_interval: Span = Span::from_millis(30);
    /// Control interval at the most.
    longest_interval: Span = Span::from_secs(3);
    /// Change of its round-trip time that a sender tells of, as a share of it.
    rtt_news: f64 = 0.125;
    /// The same where the receiver finds what it can take: there a queue tells how much that is.
    rtt_news_found: f64 = 0.03125;
    /// Change of its round-trip time that is told at the least there. Hosts make as much
    /// by themselves.
    least_news: Span = Span::from_millis(1);
    /// Lateness that a sender makes up for at once. What a busy sender did not send would be taken
    /// for what it cannot.
    late: Span = Span::from_millis(2);

    /// What of a first packet train's rate is believed at the most. A first train of few steps
    /// shows a rate, one of many a ceiling.
    train: f64 = 0.9;
    /// Steps of a first packet train that show a ceiling. Fewer may be the receiving host's late
    /// looks.
    train_steps: u64 = 16;
    /// What the receive rate becomes each interval until something bounds it, as a share of it.
    /// Nothing has shown yet how much there is.
    search: f64 = 2.0;
    /// What a step of the receive rate becomes while a train showed far more, as a share of it. A
    /// train has shown that there is more.
    step_growth: f64 = 2.0;
    /// Intervals for which a ceiling of the receive rate is believed the first time.
    belief: u64 = 8;
    /// Intervals for which a ceiling that is met again is believed at the most.
    longest_belief: u64 = 32;
    /// Times as many intervals for which a ceiling is believed that is met again.
    belief_again: u64 = 2;
    /// Difference of two ceilings that count as the same, as a share of one.
    same_ceiling: f64 = 0.05;
    /// Where the receive rate goes from a ceiling, as a share of it. A loss shows at once.
    below_ceiling: f64 = 0.98;
    /// How often the receive rate goes so far down from where a queue showed a ceiling. A queue
    /// shows two intervals late.
    steps_back: u64 = 3;
    /// Loss that shows a ceiling while none is believed. A step up that was too much loses more of
    /// an interval.
    first_loss: f64 = 0.003;
    /// Growth of the queue on all paths that shows a ceiling. Hosts that are busy make as much, but
    /// not on all flows.
    queue_growth: Span = Span::from_millis(4);
    /// Share of what was asked for below which loss must come twice to count. Hosts pause,
    /// and lose what they make up for.
    paused: f64 = 0.8;
    /// Loss above which it counts at once, however little was sent. No pause makes so much.
    doubtful: f64 = 0.2;
    /// Rate of a first packet train that shows that the card is the bound, as a share of it. A
    /// train is timed by when the host looked.
    like_card: f64 = 0.75;
    /// What of a link's capacity must be carried for it to be full. A link that carries so much,
    /// and loses, has others who want more.
    link_full: f64 = 0.98;

    /// Rate at which loss is judged to be the path's own or not, as a share of the rate before.
    /// Loss of a path itself shows when the rate has fallen so far.
    own_fallen: f64 = 0.95;
    /// How far the rate falls before loss is judged again, as a share of the fall before it. Once
    /// is chance: it is judged again before it has cost as much.
    own_again: f64 = 0.5;
    /// Where loss must be to have stayed, as a share of the way from what a link that is too narrow
    /// would lose to what was lost before.
    own_stays: f64 = 0.5;
    /// Loss of a path itself that is none. Less is none to learn from.
    own_least: f64 = 0.001;
    /// Loss that still is the path's own, as a share of what it was found to be. It varies from
    /// stretch to stretch.
    own_margin: f64 = 1.25;

    /// What of an even share a flow counts for beside others at the least. What presses a flow of
    /// ours down must not make it count for less and less beside others.
    even_least: f64 = 0.5;
    /// What of the link is left to others at the least. Without it nothing would show what they
    /// could do.
    others_least: f64 = 0.01;
    /// What of their part others must use to be left more. TCP between two losses has three
    /// quarters of its window on average.
    others_used: f64 = 0.7;
    /// What of their part others must use not to be left less. Below that their part is larger than
    /// what they want.
    others_unused: f64 = 0.5;
    /// What of their part others must use not to be left much less. As far as one can see they are
    /// not there.
    others_gone: f64 = 0.1;
    /// What others are left that want more, as a share of what they were. So TCP that wants more
    /// has twice as much after three looks.
    others_more: f64 = 1.25;
    /// What others are left that want less, as a share of what they were.
    others_less: f64 = 0.9;
    /// What others are left that have gone, as a share of what they were.
    others_much_less: f64 = 0.7;
    /// Time over which other traffic is judged at the least. A card's counter moves in steps.
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

    /// When a receiver with this patience first asks a sender anew that never answers.
    fn asked_anew(silence: Span) -> Time {
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
            let Wake::At(at, _) = receiver.next_wakeup() else { panic!("it has given up") };
            now = at;
            receiver.on_timeout(now);
        }
    }

    #[test]
    fn a_sender_is_asked_anew_once_it_has_been_silent_for_so_long() {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let asked = [100, 500, 2000].map(|ms| asked_anew(Span::from_millis(ms)));
        assert!(asked[0] >= at(100) && asked[0] < asked[1], "{asked:?}");
        assert!(asked[2] >= at(2000), "{asked:?}");
    }
}
