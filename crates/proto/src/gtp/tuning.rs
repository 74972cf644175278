//! The constants that are ours: how the paper's quantities are measured, how C_r is found, how
//! silent senders, lossy paths and other traffic are judged. Each may be set, as the paper's may
//! (`options`).
//!
//! What bounds a host against a hostile peer (`sender`: runs and requests that wait) is no setting.

use crate::settings::{ProtocolOption, Settings};
use crate::time::Span;

/// From the table below: an option each, and what the decisions read.
macro_rules! tuning {
    ($($(#[$doc:meta])* $kind:ident $option:ident $field:ident: $type:ty =
        $unit:ident $default:literal, $range:expr, $name:literal, $help:literal;)*) => {
        $($(#[$doc])* pub const $option: ProtocolOption =
            ProtocolOption::$kind($name, $help, $range, $default);)*

        /// All of them, for the registry.
        pub(super) const TUNING: &[ProtocolOption] = &[$($option),*];

        /// The constants as the decisions use them: ratios from 0 to 1, times as spans.
        #[derive(Clone, Copy, Debug)]
        pub(super) struct Tuning {
            $(pub(super) $field: $type,)*
        }

        impl Tuning {
            pub(super) fn new(settings: &Settings) -> Tuning {
                Tuning { $($field: $unit(settings.value(&$option)),)* }
            }
        }
    };
}

impl Tuning {
    /// The time in which each of so many flows is asked once.
    pub(super) fn spacing(&self, flows: usize) -> Span {
        Span::from_secs_f64(flows as f64 / self.requests as f64)
    }
}

fn share(percent: f64) -> f64 {
    percent / 100.0
}

fn millis(ms: f64) -> Span {
    Span::from_secs_f64(ms / 1e3)
}

fn count(number: f64) -> u64 {
    number as u64
}

tuning! {
    /// What a flow does is not judged by fewer datagrams.
    own MEASURE_DATAGRAMS measure_datagrams: u64 = count 16.0, (1.0, 1e4), "measure-datagrams",
        "datagrams that a flow must have sent for an estimate to be made of them";
    /// A host that is busy may not look for so long.
    own AHEAD ahead: Span = millis 100.0, (1.0, 2000.0), "ahead",
        "time for which a sender has data in hand at the least, in ms";
    /// However slow a flow is, so much of it may be under way.
    own AHEAD_BLOCKS ahead_blocks: u64 = count 4.0, (1.0, 1024.0), "ahead-blocks",
        "blocks that may be under way at the least";
    /// A request that is late starves nobody.
    own TURNS_AHEAD turns_ahead: u64 = count 2.0, (1.0, 64.0), "turns-ahead",
        "requests' worth of data that a sender has in hand at the least";
    /// Each costs something, and what came waits as long at the most until more is asked for.
    own TURNS turns: u64 = count 2.0, (1.0, 64.0), "turns",
        "requests to a sender in a round trip at the most";
    /// A request costs both ends as much as some datagrams do.
    own WORTH_ASKING worth_asking: u64 = count 32.0, (1.0, 1e4), "worth-asking",
        "datagrams that a request is for at the least, as far as a sender has them in hand";
    /// What holds packets back lets them go at once; a sender sends what it has in hand.
    own TOO_FAST too_fast: f64 = share 125.0, (100.0, 1e4), "too-fast",
        "rate above which a sender does not obey, in percent of what it is asked for";
    /// The path may have held back as much as a sender has in hand.
    own AT_ONCE at_once: f64 = share 200.0, (100.0, 1e4), "at-once",
        "what a sender that obeys may bring at once, in percent of what it may have in hand";
    /// However many they are, what asks for data must not take the link of what answers.
    shared REQUESTS requests: u64 = count 10_000.0, (100.0, 1e6), "requests",
        "requests a second to all senders together, where nothing is lost";
    /// A sender that says nothing for so long is asked anew.
    own SILENCE silence: Span = millis 500.0, (50.0, 60_000.0), "silence",
        "time after which a silent sender is asked anew, in ms; then twice as long, and so on";
    /// And not before so many round trips are over.
    own SILENCE_RTTS silence_rtts: u64 = count 4.0, (1.0, 64.0), "silence-rtts",
        "round trips that a sender is silent before it is asked anew";
    /// It is asked no more seldom.
    own LONGEST_SILENCE longest_silence: Span =
        millis 4000.0, (50.0, 60_000.0), "longest-silence",
        "time after which a silent sender is asked again at the latest, in ms";
    /// A flow that waits for its host so long leaves the schedule.
    own IDLE_RTTS idle_rtts: u64 = count 3.0, (1.0, 1000.0), "idle-rtts",
        "round trips without data after which a flow that waits for its host has no share";
    /// Many that join take from who has much: for that nobody waits.
    own CROWDED crowded: f64 = share 25.0, (0.0, 100.0), "crowded",
        "part of its target, in percent, below which a flow's new target takes effect at once";
    /// A host's clock and threads are no finer.
    own SHORTEST_TURN shortest_turn: Span = millis 10.0, (1.0, 1000.0), "shortest-turn",
        "time between two decisions on a flow's rate at the least, in ms";
    /// A sender's word sets the pace for all flows, so it is not taken for anything.
    own LONGEST_RTT longest_rtt: Span = millis 2000.0, (10.0, 60_000.0), "longest-rtt",
        "round-trip time beyond which none is believed, in ms";
    /// One answer that was late is no path.
    own ANSWERS answers: u64 = count 8.0, (1.0, 1e4), "answers",
        "answers in which a late one is forgotten: its time falls by one part in so many with each";
    /// The shortest round-trip time is looked for in a time of this length and the one before.
    own PATH_AGE path_age: Span = millis 10_000.0, (100.0, 1e6), "path-age",
        "time after which a path may have become longer for good, in ms";
    /// A drain that was measured on what was sent must not hold the flow there.
    own DRAIN drain: f64 = share 110.0, (100.0, 1000.0), "drain",
        "what a flow is asked for at the most, in percent of what the receiving host drains";
    /// Control intervals are no shorter.
    shared SHORTEST_INTERVAL shortest_interval: Span =
        millis 30.0, (1.0, 10_000.0), "shortest-interval",
        "control interval at the least, in ms";
    /// And no longer, if that is longer.
    shared LONGEST_INTERVAL longest_interval: Span =
        millis 3000.0, (1.0, 60_000.0), "longest-interval",
        "control interval at the most, in ms";
    /// A queue tells how much there is, where C_r is found.
    own RTT_NEWS rtt_news: f64 = share 12.5, (1.0, 100.0), "rtt-news",
        "change of its round-trip time that a sender tells of, in percent";
    /// And so smaller changes count there.
    own RTT_NEWS_FOUND rtt_news_found: f64 = share 3.125, (1.0, 100.0), "rtt-news-found",
        "the same where the receiver finds what it can take";
    /// Nor is it told of less than hosts make.
    own LEAST_NEWS least_news: Span = millis 1.0, (0.0, 100.0), "least-news",
        "change of its round-trip time that is told at the least there, in ms";
    /// What a busy sender did not send would be taken for what it cannot.
    own LATE late: Span = millis 2.0, (0.0, 100.0), "late",
        "lateness that a sender makes up for at once, in ms";

    /// A first train of few steps shows a rate, one of many a ceiling.
    shared TRAIN train: f64 = share 90.0, (10.0, 100.0), "train",
        "what of a first packet train's rate is believed at the most, in percent";
    /// Fewer may be the receiving host's late looks.
    shared TRAIN_STEPS train_steps: u64 = count 16.0, (2.0, 1e4), "train-steps",
        "steps of a first packet train that show a ceiling";
    /// Nothing has shown yet how much there is.
    shared SEARCH search: f64 = share 200.0, (101.0, 1000.0), "search",
        "what the receive rate becomes each interval until something bounds it, in percent of it";
    /// A train has shown that there is more.
    shared STEP_GROWTH step_growth: f64 = share 200.0, (100.0, 1000.0), "step-growth",
        "what a step of the receive rate becomes while a train showed far more, in percent of it";
    /// A ceiling is believed for so many intervals the first time.
    shared BELIEF belief: u64 = count 8.0, (0.0, 1e4), "belief",
        "intervals for which a ceiling of the receive rate is believed the first time";
    /// And for more each time that it is met again.
    shared LONGEST_BELIEF longest_belief: u64 = count 32.0, (0.0, 1e4), "longest-belief",
        "intervals for which a ceiling that is met again is believed at the most";
    /// It was right once more.
    shared BELIEF_AGAIN belief_again: u64 = count 2.0, (1.0, 100.0), "belief-again",
        "times as many intervals for which a ceiling is believed that is met again";
    /// Ceilings no further apart are the same.
    shared SAME_CEILING same_ceiling: f64 = share 5.0, (0.0, 100.0), "same-ceiling",
        "difference of two ceilings that are the same, in percent";
    /// A loss shows at once.
    shared BELOW_CEILING below_ceiling: f64 = share 98.0, (10.0, 100.0), "below-ceiling",
        "where the receive rate goes from a ceiling, in percent of it";
    /// A queue shows two intervals late.
    shared STEPS_BACK steps_back: u64 = count 3.0, (1.0, 100.0), "steps-back",
        "how often the receive rate goes so far down from where a queue showed a ceiling";
    /// A step up that was too much loses more of an interval.
    shared FIRST_LOSS first_loss: f64 = share 0.3, (0.0, 50.0), "first-loss",
        "loss that shows a ceiling while none is believed, in percent";
    /// Hosts that are busy make as much, but not on all flows.
    shared QUEUE_GROWTH queue_growth: Span = millis 4.0, (0.1, 1000.0), "queue-growth",
        "growth of the queue on all paths that shows a ceiling, in ms";
    /// They pause, and lose what they make up for.
    shared PAUSED paused: f64 = share 80.0, (0.0, 100.0), "paused",
        "share of what was asked for below which loss must come twice to count, in percent";
    /// No pause makes so much.
    shared DOUBTFUL doubtful: f64 = share 20.0, (0.0, 100.0), "doubtful",
        "loss above which it counts at once, however little was sent, in percent";
    /// A train is timed by when the host looked.
    shared LIKE_CARD like_card: f64 = share 75.0, (1.0, 100.0), "like-card",
        "rate of a first packet train that shows that the card is the bound, in percent of it";
    /// A link that carries so much, and loses, has others who want more.
    shared LINK_FULL link_full: f64 = share 98.0, (10.0, 100.0), "link-full",
        "what of a link's capacity must be carried for it to be full, in percent";

    /// Loss of a path itself shows when the rate has fallen so far.
    own OWN_FALLEN own_fallen: f64 = share 95.0, (1.0, 99.9), "own-fallen",
        "rate at which loss is judged to be the path's own or not, in percent of the rate before";
    /// Once is chance: it is judged again before it has cost as much.
    own OWN_AGAIN own_again: f64 = share 50.0, (1.0, 100.0), "own-again",
        "how far the rate falls before loss is judged again, in percent of the fall before it";
    /// Halfway from what a link that is too narrow would lose to what was lost before.
    own OWN_STAYS own_stays: f64 = share 50.0, (0.0, 100.0), "own-stays",
        "where loss must be to have stayed, in percent of the way from what a link that is too \
         narrow would lose to what was lost before";
    /// Less is none to learn from.
    own OWN_LEAST own_least: f64 = share 0.1, (0.0, 50.0), "own-least",
        "loss of a path itself that is none, in percent";
    /// It varies from stretch to stretch.
    own OWN_MARGIN own_margin: f64 = share 125.0, (100.0, 1000.0), "own-margin",
        "loss that still is the path's own, in percent of what it was found to be";

    /// What presses a flow of ours down must not make it count for less and less beside others.
    shared EVEN_LEAST even_least: f64 = share 50.0, (0.0, 100.0), "even-least",
        "what of an even share a flow counts for beside others at the least, in percent";
    /// Without it nothing would show what they could do.
    shared OTHERS_LEAST others_least: f64 = share 1.0, (0.01, 50.0), "others-least",
        "what of the link is left to others at the least, in percent";
    /// TCP between two losses has three quarters of its window on average.
    shared OTHERS_USED others_used: f64 = share 70.0, (1.0, 100.0), "others-used",
        "what of their part others must use to be left more, in percent";
    /// Below that their part is larger than what they want.
    shared OTHERS_UNUSED others_unused: f64 = share 50.0, (0.0, 100.0), "others-unused",
        "what of their part others must use not to be left less, in percent";
    /// As far as one can see they are not there.
    shared OTHERS_GONE others_gone: f64 = share 10.0, (0.0, 100.0), "others-gone",
        "what of their part others must use not to be left much less, in percent";
    /// So TCP that wants more has twice as much after three looks.
    shared OTHERS_MORE others_more: f64 = share 125.0, (100.0, 1000.0), "others-more",
        "what others are left that want more, in percent of what they were";
    /// A step down.
    shared OTHERS_LESS others_less: f64 = share 90.0, (1.0, 100.0), "others-less",
        "what others are left that want less, in percent of what they were";
    /// And where they have gone.
    shared OTHERS_MUCH_LESS others_much_less: f64 = share 70.0, (1.0, 100.0), "others-much-less",
        "what others are left that have gone, in percent of what they were";
    /// A card's counter moves in steps.
    shared OTHERS_LOOK others_look: Span = millis 100.0, (1.0, 10_000.0), "others-look",
        "time over which other traffic is judged at the least, in ms";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{FlowId, Receiver, Setup, Wake};
    use crate::gtp::{GtpReceiver, ROW};
    use crate::layout::Layout;
    use crate::time::Time;
    use crate::units::Bytes;
    use crate::wire::Control;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    #[test]
    fn every_constant_has_a_name_of_its_own_and_is_read_as_it_was_set() {
        let names: Vec<&str> = ROW.options.iter().map(|option| option.name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert!(TUNING.iter().all(|option| ROW.options.contains(option)));
        let set = [("train", 50.0), ("silence", 200.0), ("belief", 3.0), ("rtt-news", 5.0)];
        let with = |settings: Settings, (name, value)| settings.with(&ROW, name, value);
        let tuning = Tuning::new(&set.into_iter().try_fold(Settings::default(), with).unwrap());
        assert_eq!((tuning.train, tuning.silence, tuning.belief), (0.5, Span::from_millis(200), 3));
        assert_eq!((tuning.rtt_news, tuning.rtt_news_found), (0.05, 0.03125));
    }

    /// When a receiver with these settings first asks a sender anew that never answers.
    fn asked_anew(settings: Settings) -> Time {
        let layout = Layout::whole(Bytes::new(1_000_000), 1000).unwrap();
        let setup = Setup::new(FlowId(1), layout, Span::from_millis(10));
        let mut receiver = GtpReceiver::default();
        receiver.add_flow(Time::ZERO, &Setup { settings, ..setup });
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
    fn how_long_a_sender_may_be_silent_is_set() {
        let with = |ms| Settings::default().with(&ROW, SILENCE.name, ms).unwrap();
        let (soon, late) = (asked_anew(with(100.0)), asked_anew(with(2000.0)));
        assert!(soon >= Time::ZERO + Span::from_millis(100), "{soon:?}");
        assert!(late >= Time::ZERO + Span::from_millis(2000), "{late:?}");
        assert!(soon < asked_anew(Settings::default()), "{soon:?}");
    }
}
