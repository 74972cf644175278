//! The requested blocks of a flow, and which of them are missing.
//!
//! > Lost UDB's [blocks] are requested again by the receiver. Because packet delivery is expected
//! > to be in-order, we employ a per-connection data packet sequence number … to diagnose packet
//! > loss. … If needed, GTP can be augmented to handle out of order delivery. (section 3.5)
//!
//! A sender sends blocks in the order of the requests. Each requested block has a *place* in that
//! order. A block that arrives shows that the blocks of all earlier places were sent. The *edge* is
//! the highest place whose block arrived. A block before the edge may still arrive within a
//! *grace*, a short wait for reordered datagrams. A block that is still missing after the grace
//! counts as lost and will be requested again. A sender that has answered all requests reports
//! this. The blocks that are then missing count as lost one grace after the sender's last datagram
//! arrived, or after two graces without a newer datagram.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

use crate::ranges::RangeSet;
use crate::time::{Span, Time};

#[derive(Clone, Debug)]
struct Run {
    /// Number of blocks requested before these.
    place: u64,
    blocks: Range<u64>,
    /// Number of the request; 0 for blocks that the sender sends before any request.
    request: u64,
    /// When the request was made.
    at: Time,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// In the order of the requests, without places that already count as arrived or lost.
    runs: VecDeque<Run>,
    /// The first block of each run and its place; no block is in two runs.
    places: BTreeMap<u64, u64>,
    /// Number of places assigned so far.
    end: u64,
    /// The edge, plus one.
    reached: u64,
    /// When `reached` last rose.
    risen: Time,
    /// An edge whose grace has not ended, plus one, and when it was reached.
    edge: Option<(u64, Time)>,
    /// The number of places that the sender reports as answered, and the packet number after them.
    answered: Option<(u64, u64)>,
    /// Lost blocks, to be requested again.
    lost: VecDeque<Range<u64>>,
    /// Blocks that the sender may never have sent, to be requested again.
    unsent: VecDeque<Range<u64>>,
}

impl Asked {
    pub(super) fn note(&mut self, now: Time, request: u64, blocks: Range<u64>) {
        let place = self.end;
        self.end += blocks.end - blocks.start;
        self.places.insert(blocks.start, place);
        self.runs.push_back(Run { place, blocks, request, at: now });
    }

    /// Number of requested blocks after the edge, which may still be under way.
    pub(super) fn under_way(&self) -> u64 {
        self.end - self.reached
    }

    /// Handles arrived blocks; returns the time since the newest request for any of them.
    pub(super) fn on_arrival(&mut self, now: Time, blocks: &Range<u64>) -> Option<Span> {
        let mut at = blocks.end;
        let mut asked = None;
        // Visits the runs that touch the blocks, from the last one backwards.
        while let Some((&first, &place)) = self.places.range(..at).next_back() {
            let run = self.run(place)?;
            let end = run.blocks.end.min(at);
            if end <= blocks.start {
                break;
            }
            // Blocks sent before any request answer no request.
            asked = asked.max(Some(run.at).filter(|_| run.request > 0));
            let reached = place + (end - first);
            if reached > self.reached {
                (self.reached, self.risen) = (reached, now);
            }
            if first <= blocks.start {
                break;
            }
            at = first;
        }
        if self.edge.is_none() && self.reached > self.runs.front().map_or(u64::MAX, |r| r.place) {
            self.edge = Some((self.reached, self.risen));
        }
        asked.map(|asked| now.since(asked))
    }

    fn run(&self, place: u64) -> Option<&Run> {
        let after = self.runs.partition_point(|run| run.place <= place);
        self.runs.get(after.checked_sub(1)?)
    }

    /// Notes that the sender has sent all blocks of the requests up to `request`, with packet
    /// numbers below `highest`.
    pub(super) fn on_answered(&mut self, request: u64, highest: u64) {
        let after = self.runs.partition_point(|run| run.request <= request);
        let Some(last) = after.checked_sub(1).and_then(|last| self.runs.get(last)) else { return };
        let place = last.place + (last.blocks.end - last.blocks.start);
        if self.answered.is_none_or(|(before, _)| before < place) {
            self.answered = Some((place, highest));
        }
    }

    /// Gives up blocks that are missing for longer than `grace`. `there` holds the arrived blocks;
    /// `highest` is the highest packet number plus one, which last rose at `risen`. Returns the
    /// newly lost runs.
    pub(super) fn settle(
        &mut self,
        now: Time,
        grace: Span,
        (highest, risen): (u64, Time),
        there: &RangeSet,
    ) -> Vec<Range<u64>> {
        let mut lost = Vec::new();
        if let Some((place, _)) = self.edge.filter(|(_, at)| now >= *at + grace) {
            self.edge = None;
            self.give_up(place, there, &mut lost);
        }
        // Datagrams of the answer may still arrive as long as newer datagrams arrive.
        let answered = self.answered.filter(|(_, last)| {
            let whole = highest >= *last && now >= risen + grace;
            whole || now >= risen.max(self.risen) + grace * 2
        });
        if let Some((place, _)) = answered {
            self.answered = None;
            self.reached = self.reached.max(place);
            self.give_up(place, there, &mut lost);
        }
        if self.edge.is_none() && self.runs.front().is_some_and(|run| run.place < self.reached) {
            self.edge = Some((self.reached, self.risen));
        }
        lost
    }

    pub(super) fn due(&self, grace: Span, risen: Time) -> Time {
        let edge = self.edge.map_or(Time::NEVER, |(_, at)| at + grace);
        let answered = self.answered.map_or(Time::NEVER, |_| risen.max(self.risen) + grace * 2);
        edge.min(answered)
    }

    /// Gives up all missing blocks because the sender does not answer; they will be requested
    /// again.
    pub(super) fn give_up_all(&mut self, there: &RangeSet) {
        self.reached = self.end;
        (self.edge, self.answered) = (None, None);
        let lost = core::mem::take(&mut self.lost);
        self.give_up(self.end, there, &mut Vec::new());
        // The blocks given up now precede those left from an earlier call.
        let waiting =
            core::mem::replace(&mut self.unsent, core::mem::replace(&mut self.lost, lost));
        self.unsent.extend(waiting);
    }

    fn give_up(&mut self, place: u64, there: &RangeSet, lost: &mut Vec<Range<u64>>) {
        while let Some(run) = self.runs.front_mut()
            && run.place < place
        {
            let first = run.blocks.start;
            let count = (place - run.place).min(run.blocks.end - first);
            self.places.remove(&first);
            (run.place, run.blocks.start) = (run.place + count, first + count);
            let mut at = first;
            while let Some(gap) = there.first_gap(at..first + count) {
                at = gap.end;
                lost.push(gap.clone());
                self.lost.push_back(gap);
            }
            if run.blocks.is_empty() {
                self.runs.pop_front();
            } else {
                self.places.insert(run.blocks.start, run.place);
            }
        }
    }

    /// Moves up to `most` of the blocks that must be requested again into `list`. Of these blocks,
    /// returns the lost ones, without blocks that may never have been sent.
    pub(super) fn take_lost(
        &mut self,
        most: u64,
        there: &RangeSet,
        list: &mut RangeSet,
    ) -> Vec<Range<u64>> {
        let mut lost = Vec::new();
        take(&mut self.lost, most, there, |run| {
            list.insert(run.clone());
            lost.push(run);
        });
        let most = most.saturating_sub(list.count());
        take(&mut self.unsent, most, there, |run| {
            list.insert(run);
        });
        lost
    }
}

/// Takes up to `most` blocks that are not in `there` from the front of `runs`.
fn take(
    runs: &mut VecDeque<Range<u64>>,
    mut most: u64,
    there: &RangeSet,
    mut each: impl FnMut(Range<u64>),
) {
    while let Some(front) = runs.front_mut()
        && most > 0
    {
        let Some(gap) = there.first_gap(front.clone()) else {
            runs.pop_front();
            continue;
        };
        let end = gap.end.min(gap.start + most);
        most -= end - gap.start;
        front.start = end;
        each(gap.start..end);
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "the list has one run on purpose")]
mod tests {
    use super::*;

    const GRACE: Span = Span::from_millis(10);

    fn ms(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    struct Model {
        asked: Asked,
        there: RangeSet,
    }

    impl Model {
        fn new(runs: &[Range<u64>]) -> Model {
            let mut asked = Asked::default();
            for (request, blocks) in runs.iter().enumerate() {
                asked.note(ms(0), request as u64 + 1, blocks.clone());
            }
            Model { asked, there: RangeSet::new() }
        }

        fn arrive(&mut self, at: u64, blocks: Range<u64>) -> Option<Span> {
            self.there.insert(blocks.clone());
            self.asked.on_arrival(ms(at), &blocks)
        }

        fn settle(&mut self, at: u64, highest: (u64, u64)) -> Vec<Range<u64>> {
            self.asked.settle(ms(at), GRACE, (highest.0, ms(highest.1)), &self.there)
        }

        fn lost(&mut self, most: u64) -> Vec<Range<u64>> {
            let mut list = RangeSet::new();
            self.asked.take_lost(most, &self.there, &mut list);
            list.iter().collect()
        }
    }

    #[test]
    fn at_most_the_given_number_of_lost_blocks_is_taken_at_a_time() {
        let mut model = Model::new(&[10..20]);
        model.asked.give_up_all(&model.there);
        assert_eq!([model.lost(2), model.lost(3)], [[10..12], [12..15]]);
    }

    #[test]
    fn missing_blocks_requested_before_an_arrived_block_count_as_lost_after_a_grace() {
        let mut model = Model::new(&[10..20, 40..44, 20..30]);
        assert_eq!(model.asked.under_way(), 24);
        assert_eq!(model.arrive(50, 10..14), Some(Span::from_millis(50)));
        model.arrive(51, 16..20);
        model.arrive(52, 20..21);
        assert_eq!(model.asked.under_way(), 9);
        assert!(model.settle(59, (9, 52)).is_empty());
        assert!(model.settle(60, (9, 52)).is_empty());
        model.arrive(61, 41..42);
        assert_eq!(model.settle(62, (9, 52)), [14..16, 40..41, 42..44]);
        assert_eq!(model.lost(4), [14..16, 40..41, 42..43]);
        assert_eq!(model.lost(4), [43..44]);
        assert_eq!(model.asked.due(GRACE, ms(0)), Time::NEVER);
    }

    #[test]
    fn the_answer_to_an_older_request_changes_nothing() {
        let mut model = Model::new(&[10..20, 40..44, 20..30]);
        let mut after = |request, highest| {
            model.asked.on_answered(request, highest);
            model.asked.answered
        };
        assert_eq!(after(2, 20), Some((14, 20)));
        assert_eq!(after(1, 30), Some((14, 20)));
        assert_eq!(after(2, 40), Some((14, 20)));
        assert_eq!(after(3, 50), Some((24, 50)));
    }

    #[test]
    fn a_late_block_is_not_requested_again() {
        let mut model = Model::new(&[0..10]);
        model.arrive(5, 9..10);
        assert_eq!(model.settle(15, (1, 5)), [0..9]);
        model.arrive(16, 2..5);
        assert_eq!(model.lost(100), [0..2, 5..9]);
    }

    #[test]
    fn missing_blocks_of_an_answer_count_as_lost_after_its_last_datagram_or_after_silence() {
        let mut model = Model::new(&[0..10, 10..20]);
        model.arrive(5, 0..8);
        model.settle(15, (8, 5));
        model.asked.on_answered(1, 9);
        assert!(model.settle(24, (8, 5)).is_empty());
        assert_eq!(model.asked.due(GRACE, ms(5)), ms(25));
        assert_eq!(model.settle(25, (8, 5)), [8..10]);
        model.asked.on_answered(2, 20);
        model.arrive(40, 10..19);
        model.asked.on_answered(1, 9);
        assert_eq!(model.settle(50, (20, 40)), [19..20]);
        assert_eq!(model.asked.under_way(), 0);
    }

    #[test]
    fn an_arriving_batch_may_cover_blocks_of_several_runs() {
        let mut model = Model::new(&[20..25, 0..10, 10..20]);
        model.arrive(1, 5..23);
        assert_eq!(model.asked.under_way(), 0);
        assert_eq!(model.settle(20, (1, 1)), [23..25, 0..5]);
        assert_eq!(model.arrive(21, 70..80), None);
        model.asked.note(ms(30), 9, 23..25);
        model.asked.give_up_all(&model.there);
        assert_eq!(model.lost(100), [0..5, 23..25]);
    }
}
