//! The state that every receiver keeps for a flow, and a receiver of many independent flows.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::accounting::ReceiverAccounting;
use crate::coded::Symbol;
use crate::endpoint::{
    Arrival, BlockRange, Carrier, Event, FlowId, Outgoing, Receiver, Setup, Wake, Why,
};
use crate::layout::{Block, Layout};
use crate::pulse::Pulses;
use crate::time::Time;
use crate::units::{Bytes, Rate};
use crate::wire::Control;

/// A flow's receiving end without the protocol's decisions.
pub struct ReceivingEnd {
    /// How the object is divided into blocks.
    pub layout: Layout,
    /// The periodic report to the sender.
    pub pulses: Pulses,
    /// The counters; [`ReceivingEnd::on_arrivals`] counts arrivals.
    pub accounting: ReceiverAccounting,
    /// When the highest packet number last rose.
    pub risen: Time,
    events: VecDeque<Event>,
    finished: bool,
}

impl ReceivingEnd {
    /// A receiving end at the start of a flow.
    pub fn new(now: Time, setup: &Setup) -> ReceivingEnd {
        let mut end = ReceivingEnd {
            layout: setup.layout,
            pulses: Pulses::new(now, setup),
            accounting: ReceiverAccounting::default(),
            risen: now,
            events: VecDeque::new(),
            finished: false,
        };
        if setup.layout.blocks() == 0 {
            end.finish();
        }
        end
    }

    /// Handles a batch: updates pulses and counters. Returns the number of datagrams that carry a
    /// block of the object. The protocol marks those blocks, then calls [`ReceivingEnd::count`].
    pub(crate) fn on_arrivals(&mut self, now: Time, arrivals: &[Arrival]) -> u64 {
        let layout = self.layout;
        self.take(now, arrivals, |block| block.index < layout.blocks_in(block.segment))
    }

    /// As [`ReceivingEnd::on_arrivals`], for a protocol that also takes coded symbols
    /// ([`crate::coded`]).
    pub(crate) fn on_coded_arrivals(&mut self, now: Time, arrivals: &[Arrival]) -> u64 {
        let layout = self.layout;
        let is_real = |block: Block| block.index < layout.blocks_in(block.segment);
        self.take(now, arrivals, |block| is_real(block) || Symbol::of(&layout, block).is_some())
    }

    fn take(
        &mut self,
        now: Time,
        arrivals: &[Arrival],
        of_object: impl Fn(Block) -> bool + Clone,
    ) -> u64 {
        let known = arrivals.iter().filter(|arrival| of_object(arrival.block));
        self.pulses.on_arrivals(known.clone());
        let (mut received, mut highest) = (0, 0);
        for arrival in known {
            received += 1;
            highest = highest.max(arrival.number.0 + 1);
        }
        self.accounting.refused += arrivals.len() as u64 - received;
        self.accounting.received += received;
        if highest > self.accounting.highest {
            self.accounting.highest = highest;
            self.risen = now;
        }
        received
    }

    /// Counts a batch of `received` datagrams: `new` blocks were new, the others duplicates.
    pub fn count(&mut self, received: u64, new: u64) {
        self.accounting.distinct += new;
        self.accounting.duplicates += received - new;
    }

    /// Records that coded symbols replace `blocks` missing blocks of a chunk. An equal number of
    /// symbols, counted as duplicates on arrival, now counts as new.
    pub(crate) fn restored(&mut self, chunk: u64, blocks: u64) {
        self.accounting.recovered += blocks;
        self.accounting.distinct += blocks;
        self.accounting.duplicates = self.accounting.duplicates.saturating_sub(blocks);
        self.events.push_back(Event::Restored { chunk });
    }

    /// Subtracts blocks that were counted as lost but need not arrive, because the receiver has
    /// them from another source.
    pub(crate) fn forget_lost(&mut self, blocks: u64) {
        let lost = &mut self.accounting.blocks_lost;
        *lost = lost.saturating_sub(blocks);
    }

    /// Records that every block has arrived; later calls change nothing.
    pub fn finish(&mut self) {
        if !core::mem::replace(&mut self.finished, true) {
            self.events.push_back(Event::Finished);
        }
    }

    /// Whether every block has arrived.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Queues an event.
    pub fn push_event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// The next event to report.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn poll_pulse(&mut self, now: Time) -> Option<(Carrier, Control)> {
        let due = self.pulses.due() <= now;
        due.then(|| {
            let pulse = self.pulses.make(now, &self.accounting);
            (Carrier::Datagram, Control::Pulse(pulse))
        })
    }

    /// When the next pulse is due.
    pub fn next_wakeup(&self) -> Wake {
        Wake::At(self.pulses.due(), Why::Pulse)
    }
}

/// One flow of a receiver whose flows are independent.
pub trait ReceivingFlow: Send {
    /// Creates the flow at its start.
    fn new(now: Time, setup: &Setup) -> Self;
    /// The shared state.
    fn end(&self) -> &ReceivingEnd;
    /// The shared state, mutable.
    fn end_mut(&mut self) -> &mut ReceivingEnd;
    /// As [`Receiver::on_datagrams`].
    fn on_datagrams(&mut self, now: Time, arrivals: &[Arrival]);
    /// As [`Receiver::on_control`].
    fn on_control(&mut self, now: Time, control: &Control);
    /// As [`Receiver::on_timeout`].
    fn on_timeout(&mut self, now: Time);
    /// As [`Receiver::skip`].
    fn skip(&mut self, now: Time, blocks: BlockRange);
    /// Returns the protocol's next report; pulses are not among the reports.
    fn poll_report(&mut self, now: Time) -> Option<(Carrier, Control)>;
    /// When the protocol's own next report is due.
    fn next_report(&self) -> Wake;
}

/// A receiver of any number of independent flows.
///
/// The cost of a call hardly grows with the number of flows: only changed flows are polled, and
/// the wake-ups of the others are kept in order.
pub struct Flows<F> {
    flows: BTreeMap<FlowId, Member<F>>,
    /// Flows that have not been polled to the end since they changed.
    stirred: Few,
    /// When the flows outside `stirred` want to be woken, unless they wait only for input.
    wakes: BTreeMap<(Time, FlowId), Why>,
    /// Flows that may have events.
    with_events: Few,
}

/// A set of flows that usually has one member or none. The lowest id is last, so its removal moves
/// no other id.
#[derive(Default)]
struct Few(Vec<FlowId>);

impl Few {
    fn place(&self, id: FlowId) -> Result<usize, usize> {
        self.0.binary_search_by(|other| id.cmp(other))
    }

    fn insert(&mut self, id: FlowId) {
        if let Err(place) = self.place(id) {
            self.0.insert(place, id);
        }
    }

    fn remove(&mut self, id: FlowId) {
        if let Ok(place) = self.place(id) {
            self.0.remove(place);
        }
    }

    fn first(&self) -> Option<FlowId> {
        self.0.last().copied()
    }

    /// The members, lowest id first.
    fn iter(&self) -> impl Iterator<Item = &FlowId> {
        self.0.iter().rev()
    }
}

struct Member<F> {
    flow: F,
    /// The flow's time in [`Flows::wakes`]; `None` if the flow is not there.
    wake: Option<Time>,
}

impl<F> Default for Flows<F> {
    fn default() -> Flows<F> {
        Flows {
            flows: BTreeMap::new(),
            stirred: Few::default(),
            wakes: BTreeMap::new(),
            with_events: Few::default(),
        }
    }
}

impl<F: ReceivingFlow> Member<F> {
    fn next_wakeup(&self) -> Wake {
        self.flow.next_report().earlier(self.flow.end().next_wakeup())
    }
}

impl<F: ReceivingFlow> Flows<F> {
    /// Returns a flow that is about to change, and marks it to be polled.
    fn stir(&mut self, id: FlowId) -> Option<&mut F> {
        let member = self.flows.get_mut(&id)?;
        if let Some(at) = member.wake.take() {
            self.wakes.remove(&(at, id));
        }
        self.stirred.insert(id);
        self.with_events.insert(id);
        Some(&mut member.flow)
    }

    fn next_due(&self, now: Time) -> Option<FlowId> {
        let (&(at, id), _) = self.wakes.first_key_value()?;
        (at <= now).then_some(id)
    }

    /// Notes that the flow has no output left, and when it wants to be woken.
    fn settle(&mut self, id: FlowId) {
        self.stirred.remove(id);
        let Some(member) = self.flows.get_mut(&id) else { return };
        let (at, why) = match member.next_wakeup() {
            Wake::OnInput => return,
            Wake::Now => (Time::ZERO, Why::Report),
            Wake::At(at, why) => (at, why),
        };
        member.wake = Some(at);
        self.wakes.insert((at, id), why);
    }
}

impl<F: ReceivingFlow> Receiver for Flows<F> {
    fn on_datagrams(&mut self, now: Time, flow: FlowId, arrivals: &[Arrival]) {
        if let Some(flow) = self.stir(flow) {
            flow.on_datagrams(now, arrivals);
        }
    }

    fn on_control(&mut self, now: Time, flow: FlowId, control: &Control) {
        if let Some(flow) = self.stir(flow) {
            flow.on_control(now, control);
        }
    }

    fn on_timeout(&mut self, now: Time) {
        while let Some(id) = self.next_due(now) {
            self.stir(id);
        }
        for id in self.stirred.iter() {
            if let Some(member) = self.flows.get_mut(id) {
                member.flow.on_timeout(now);
            }
        }
    }

    fn skip(&mut self, now: Time, flow: FlowId, blocks: BlockRange) {
        if let Some(flow) = self.stir(flow) {
            flow.skip(now, blocks);
        }
    }

    fn set_grant(&mut self, _: Time, flow: FlowId, grant: Bytes, drain: Option<Rate>) {
        if let Some(flow) = self.stir(flow) {
            flow.end_mut().pulses.set_grant(grant, drain);
        }
    }

    fn set_socket_lost(&mut self, _: Time, flow: FlowId, lost: u64) {
        if let Some(flow) = self.stir(flow) {
            flow.end_mut().pulses.set_socket_lost(lost);
        }
    }

    fn poll_control(&mut self, now: Time) -> Option<Outgoing> {
        while let Some(id) = self.next_due(now) {
            self.stir(id);
        }
        while let Some(id) = self.stirred.first() {
            self.with_events.insert(id);
            let flow = self.flows.get_mut(&id).map(|member| &mut member.flow);
            let said = flow
                .and_then(|flow| flow.poll_report(now).or_else(|| flow.end_mut().poll_pulse(now)));
            if let Some((carrier, control)) = said {
                return Some(Outgoing { flow: id, carrier, control });
            }
            self.settle(id);
        }
        None
    }

    fn poll_event(&mut self) -> Option<(FlowId, Event)> {
        while let Some(id) = self.with_events.first() {
            let member = self.flows.get_mut(&id);
            if let Some(event) = member.and_then(|m| m.flow.end_mut().poll_event()) {
                return Some((id, event));
            }
            self.with_events.remove(id);
        }
        None
    }

    fn next_wakeup(&self) -> Wake {
        let first = self.wakes.first_key_value();
        let first = first.map_or(Wake::OnInput, |(&(at, _), &why)| Wake::At(at, why));
        let stirred = self.stirred.iter().filter_map(|id| self.flows.get(id));
        stirred.map(Member::next_wakeup).fold(first, Wake::earlier)
    }

    fn is_finished(&self, flow: FlowId) -> bool {
        self.flows.get(&flow).is_some_and(|member| member.flow.end().is_finished())
    }

    fn accounting(&self, flow: FlowId) -> Option<&ReceiverAccounting> {
        self.flows.get(&flow).map(|member| &member.flow.end().accounting)
    }

    fn add_flow(&mut self, now: Time, setup: &Setup) {
        let new = || Member { flow: F::new(now, setup), wake: None };
        self.flows.entry(setup.flow).or_insert_with(new);
        self.stir(setup.flow);
    }

    fn remove_flow(&mut self, flow: FlowId) {
        self.stir(flow);
        self.flows.remove(&flow);
        self.stirred.remove(flow);
        self.with_events.remove(flow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Block, Layout};
    use crate::rbudp::RbudpReceiver;
    use crate::time::Span;

    #[test]
    fn each_flow_finishes_independently_and_is_unknown_after_its_removal() {
        let (now, layout) = (Time::ZERO, Layout::whole(Bytes::new(2_000), 1_000).unwrap());
        let mut receiver = RbudpReceiver::default();
        for id in [1, 2] {
            receiver.add_flow(now, &Setup::new(FlowId(id), layout, Span::from_millis(10)));
        }
        let states = |receiver: &RbudpReceiver| {
            [1, 2, 3].map(|id| {
                let id = FlowId(id);
                (receiver.accounting(id).is_some(), receiver.is_finished(id))
            })
        };
        let first = Block { segment: 0, index: 0 };
        receiver.skip(now, FlowId(2), BlockRange { first, count: 1 });
        assert_eq!(states(&receiver), [(true, false), (true, false), (false, false)]);
        receiver.skip(now, FlowId(2), BlockRange { first, count: 2 });
        assert_eq!(states(&receiver), [(true, false), (true, true), (false, false)]);
        receiver.remove_flow(FlowId(2));
        assert_eq!(states(&receiver), [(true, false), (false, false), (false, false)]);
    }
}
