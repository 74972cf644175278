//! The sending end: sends the blocks that the receiver requests, at the rate that the receiver
//! requests. From the paper of GTP:
//!
//! > The sender side design is simple: send the requested data to receiver at the
//! > receiver-specified rate (if that rate can be achieved by sender). (section 3.2)
//!
//! > GTP senders are not responsible for loss retransmission. (section 3.5)

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

use super::options::{EARLY, RECEIVE_RATE, START_RATE, value};
use super::tuning::Tuning;
use crate::endpoint::{BlockRange, Carrier, PacketNumber, Setup};
use crate::ends::{FirstTrain, Frontier, Run, SendingEnd, SendingFlow};
use crate::layout::Block;
use crate::pulse::{TRAIN_EVERY, TRAIN_LEN};
use crate::ranges::RangeSet;
use crate::time::{Span, Time};
use crate::units::Rate;
use crate::wire::{Ack, Control, Pulse, Request, SenderOffer};

/// Maximum number of runs of blocks waiting to be sent.
const MAX_RUNS: usize = 1 << 16;
/// Maximum number of requests waiting for an earlier request.
const MAX_AHEAD: usize = 1 << 12;

/// GTP's sender.
pub struct GtpSender {
    end: SendingEnd,
    /// Upper limit of the sending rate, regardless of requests.
    cap: Option<Rate>,
    train: FirstTrain,
    /// Minimum relative change of the round-trip time for another report to the receiver.
    rtt_change: f64,
    /// Minimum absolute change of the round-trip time for another report to the receiver.
    least_rtt_change: Span,
    /// Blocks to be sent, in the order of the requests.
    wanted: VecDeque<Range<u64>>,
    sent: RangeSet,
    /// The number of the last obeyed request; requests are obeyed in order.
    obeyed: u64,
    /// Requests that wait for an earlier request that is missing.
    ahead: BTreeMap<u64, Request>,
    /// The number of the request whose rate applies.
    newest: u64,
    /// Whether the sender still has to report, in an offer, that it has sent all requested blocks.
    unanswered: bool,
    offer: SenderOffer,
    /// All blocks below this number are known to have arrived.
    acknowledged: u64,
}

/// The blocks sent before any request, known to both ends: the first `early` blocks of the object,
/// as far as the initial grant ([`Setup::grant`]) allows.
pub(super) fn early(setup: &Setup, frontier: &mut Frontier) -> Vec<Range<u64>> {
    let (mut left, mut runs) = (value(&setup.settings, &EARLY) as u32, Vec::new());
    while let Some(Run { segment, blocks }) = frontier.take(left) {
        let first = setup.layout.number(Block { segment, index: blocks.start });
        left -= blocks.len() as u32;
        runs.push(first..first + blocks.len() as u64);
    }
    runs
}

fn is_found(setup: &Setup) -> bool {
    setup.settings.value(&RECEIVE_RATE) == 0.0
}

/// Number of datagrams sent back to back at a flow's start (a train), known to both ends. If the
/// receiver finds its capacity, the train consists of the early blocks, but has at least
/// [`TRAIN_LEN`] and at most [`TRAIN_EVERY`] datagrams. If the user gives the capacity, the train
/// has [`TRAIN_LEN`] (32) datagrams. Such a train is too short to find the capacity: at 1 Gbit/s a
/// card delivers it in 6 or 7 steps (distinct arrival times). Only a train of 16 steps or more is
/// exact enough to show a ceiling (an upper limit) of the capacity.
pub(super) fn first_train(setup: &Setup) -> u64 {
    let early = value(&setup.settings, &EARLY) as u64;
    if is_found(setup) { early.clamp(TRAIN_LEN, TRAIN_EVERY) } else { TRAIN_LEN }
}

impl GtpSender {
    /// A sender at the start of a flow.
    pub fn new(setup: &Setup) -> GtpSender {
        let cap = setup.cap();
        let start = setup.settings.rate(&START_RATE);
        let rate = setup.fixed_rate().unwrap_or(cap.map_or(start, |cap| start.min(cap)));
        // A separate frontier (border between sent and unsent blocks): the flow's own frontier
        // advances when the blocks are sent.
        let wanted: VecDeque<_> = early(setup, &mut Frontier::new(setup)).into();
        // Leave out a limit of zero: the rate of a request must be above zero.
        let known = [cap, setup.card].into_iter().flatten();
        let limit = known.filter(|rate| *rate > Rate::ZERO).min();
        let tuning = Tuning::OURS;
        let mut sender = GtpSender {
            end: SendingEnd::new(setup, rate),
            cap,
            train: FirstTrain::new(setup, setup.rate.is_none() && !wanted.is_empty(), 1.0)
                .with_len(first_train(setup)),
            rtt_change: if is_found(setup) { tuning.rtt_change_found } else { tuning.rtt_change },
            least_rtt_change: if is_found(setup) { tuning.least_rtt_change } else { Span::ZERO },
            unanswered: !wanted.is_empty(),
            wanted,
            sent: RangeSet::new(),
            obeyed: 0,
            ahead: BTreeMap::new(),
            newest: 0,
            offer: SenderOffer { rtt: setup.rtt, limit, ..SenderOffer::default() },
            acknowledged: 0,
        };
        sender.end.pacer.forgive(tuning.late);
        if !sender.end.is_finished() {
            sender.say_offer();
        }
        sender
    }

    /// Sends the current offer at the start of the flow and on changes: "In the connection setup
    /// stage …, both ends exchange resource availability, RTT, and sender access bandwidth"
    /// (section 3.3).
    fn say_offer(&mut self) {
        self.offer.sequence += 1;
        self.end.say(Carrier::Reliable, Control::SenderOffer(self.offer));
    }

    fn on_request(&mut self, now: Time, request: &Request) {
        let blocks = self.end.layout.blocks();
        let sequence = request.sequence();
        let beyond = request.blocks().last().is_some_and(|run| run.end > blocks);
        // The next request in order makes room; so does a request that voids earlier ones.
        let makes_room = request.is_anew() || sequence == self.obeyed + 1;
        if beyond || (self.ahead.len() >= MAX_AHEAD && !makes_room) {
            self.end.accounting.refused += 1;
            return;
        }
        if sequence > self.newest {
            self.newest = sequence;
            let rate = self.cap.map_or(request.rate(), |cap| cap.min(request.rate()));
            self.end.pacer.set_rate(now, rate);
        }
        if sequence <= self.obeyed {
            return;
        }
        if request.is_anew() {
            // Earlier requests are void, received or not.
            self.ahead.retain(|ahead, _| *ahead > sequence);
            self.wanted.clear();
            self.obey(request);
        } else {
            self.ahead.insert(sequence, request.clone());
        }
        while let Some(next) = self.ahead.remove(&(self.obeyed + 1)) {
            self.obey(&next);
        }
    }

    fn obey(&mut self, request: &Request) {
        self.obeyed = request.sequence();
        if self.wanted.len() + request.blocks().len() > MAX_RUNS {
            self.end.accounting.refused += 1;
            return;
        }
        self.unanswered |= !request.blocks().is_empty();
        self.wanted.extend(request.blocks().iter().cloned());
        // A requested block that was sent before counts as lost.
        let again = request.blocks().iter().flat_map(|run| self.sent.within(run.clone()));
        self.end.accounting.reported_lost += again.map(|run| run.end - run.start).sum::<u64>();
    }

    /// The next run within a segment, at most `max` blocks, and whether it is sent for the first
    /// time.
    fn take(&mut self, max: u64) -> Option<(Run, bool)> {
        while let Some(front) = self.wanted.front_mut() {
            let gap = self.end.frontier.there().first_gap(front.clone());
            let place = gap.and_then(|gap| Some((self.end.layout.block(gap.start)?, gap)));
            let Some((Block { segment, index }, gap)) = place else {
                self.wanted.pop_front();
                continue;
            };
            let in_segment = u64::from(self.end.layout.blocks_in(segment) - index);
            let end = gap.end.min(gap.start + max.min(in_segment));
            let (end, first_time) = match self.sent.run_at(gap.start) {
                Some(sent) => (end.min(sent.end), false),
                None => (self.sent.first_gap(gap.start..end).map_or(end, |gap| gap.end), true),
            };
            front.start = end;
            let count = (end - gap.start) as u32;
            if first_time {
                self.sent.insert(gap.start..end);
                self.end.frontier.pass(end);
            }
            return Some((Run { segment, blocks: index..index + count }, first_time));
        }
        None
    }

    fn on_ack(&mut self, ack: &Ack) {
        if ack.next > self.end.layout.blocks() {
            self.end.accounting.refused += 1;
            return;
        }
        if ack.next > self.acknowledged {
            let new = self.acknowledged..ack.next;
            self.acknowledged = ack.next;
            self.end.frontier.set_there(new.clone());
            self.end.note(new);
        }
    }

    fn on_pulse(&mut self, now: Time, pulse: &Pulse) {
        let Some(feedback) = self.end.on_pulse(now, pulse) else { return };
        let (rtt, offered) = (feedback.rtt, self.offer.rtt);
        let share = offered.as_secs_f64() * self.rtt_change;
        let change = Span::from_secs_f64(share).max(self.least_rtt_change);
        if feedback.sample.is_some() && (rtt - offered).max(offered - rtt) > change {
            self.offer.rtt = rtt;
            self.say_offer();
        }
    }
}

impl SendingFlow for GtpSender {
    fn end(&self) -> &SendingEnd {
        &self.end
    }

    fn end_mut(&mut self) -> &mut SendingEnd {
        &mut self.end
    }

    fn hear(&mut self, now: Time, control: &Control) -> bool {
        match control {
            Control::Request(request) => self.on_request(now, request),
            Control::Ack(ack) => self.on_ack(ack),
            Control::Pulse(pulse) => self.on_pulse(now, pulse),
            _ => return false,
        }
        true
    }

    fn leave_out(&mut self, _: Time, blocks: BlockRange) {
        if let Some(new) = self.end.frontier.skip(blocks) {
            self.end.note(new);
        }
    }

    fn room(&mut self, now: Time, next: PacketNumber) -> u64 {
        self.train.room(next).max(self.end.pacer.allowance(now))
    }

    fn next_run(&mut self, _: Time, _: u64, max: u32) -> Option<(Run, bool)> {
        self.take(max.into())
    }

    fn on_sent(&mut self, _: Time, next: PacketNumber, count: u64) {
        if self.wanted.is_empty() && core::mem::take(&mut self.unanswered) {
            (self.offer.answered, self.offer.highest) = (self.obeyed, next.0 + count);
            self.say_offer();
        }
    }

    fn has_work(&self) -> bool {
        !self.wanted.is_empty()
    }

    fn has_only_first(&self) -> bool {
        self.wanted.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::FlowId;
    use crate::gtp::ROW;
    use crate::layout::Layout;
    use crate::settings::Settings;
    use crate::units::Bytes;

    fn sender() -> GtpSender {
        let layout = Layout::whole(Bytes::new(1_000_000_000), 1000).unwrap();
        let settings = Settings::default().with(&ROW, "early", 0.0).unwrap();
        let setup = Setup::new(FlowId(7), layout, Span::from_millis(100));
        GtpSender::new(&Setup { settings, ..setup })
    }

    fn request(sequence: u64, blocks: &[u64]) -> Request {
        let blocks = &mut blocks.iter().map(|block| *block..*block + 1).peekable();
        Request::fill(sequence, Rate::from_mbps(1), false, blocks)
    }

    #[test]
    fn a_request_for_more_runs_than_may_wait_is_refused() {
        let mut sender = sender();
        sender.wanted = (0..MAX_RUNS as u64 - 2).map(|run| 2 * run..2 * run + 1).collect();
        sender.on_request(Time::ZERO, &request(1, &[600_000, 700_000]));
        assert_eq!((sender.wanted.len(), sender.end.accounting.refused), (MAX_RUNS, 0));
        sender.on_request(Time::ZERO, &request(2, &[800_000]));
        assert_eq!((sender.wanted.len(), sender.end.accounting.refused), (MAX_RUNS, 1));
        assert_eq!(sender.obeyed, 2);
    }
}
