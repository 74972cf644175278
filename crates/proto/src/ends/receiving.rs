//! What every receiver keeps of a flow, and many flows behind one receiver.

use alloc::collections::{BTreeMap, VecDeque};

use crate::accounting::ReceiverAccounting;
use crate::endpoint::{
    Arrival, BlockRange, Carrier, Event, FlowId, Outgoing, Receiver, Setup, Wake, Why,
};
use crate::layout::{Block, Layout};
use crate::pulse::Pulses;
use crate::time::Time;
use crate::units::{Bytes, Rate};
use crate::wire::Control;

/// A flow's receiving end, without its protocol's decisions.
pub struct ReceivingEnd {
    /// How the object is cut.
    pub layout: Layout,
    /// When and how the sender is told how the flow fares.
    pub pulses: Pulses,
    /// The columns; [`ReceivingEnd::on_arrivals`] counts what comes.
    pub accounting: ReceiverAccounting,
    /// When the highest packet number last rose.
    pub risen: Time,
    events: VecDeque<Event>,
    finished: bool,
}

impl ReceivingEnd {
    /// The end at the start of a flow.
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

    /// Takes in a batch: feeds the pulses and the columns; tells how many of its datagrams are of
    /// blocks that the object has. The protocol marks those, then calls [`ReceivingEnd::count`].
    pub fn on_arrivals(&mut self, now: Time, arrivals: &[Arrival]) -> u64 {
        let layout = self.layout;
        let of_object = |block: Block| block.index < layout.blocks_in(block.segment);
        let known = arrivals.iter().filter(|arrival| of_object(arrival.block));
        self.pulses.on_arrivals(now, known.clone());
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

    /// So many of the batch's blocks were `new`; the others were there already.
    pub fn count(&mut self, received: u64, new: u64) {
        self.accounting.distinct += new;
        self.accounting.duplicates += received - new;
    }

    /// Every block is there. Said again, it changes nothing.
    pub fn finish(&mut self) {
        if !core::mem::replace(&mut self.finished, true) {
            self.events.push_back(Event::Finished);
        }
    }

    /// Whether every block is there.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Queues an event.
    pub fn tell(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// The pulse, if one is due.
    pub fn poll_pulse(&mut self, now: Time) -> Option<(Carrier, Control)> {
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

/// One flow of a receiver whose flows know nothing of each other.
pub trait ReceivingFlow: Send {
    /// The flow at its start.
    fn new(now: Time, setup: &Setup) -> Self;
    /// What every flow keeps.
    fn end(&self) -> &ReceivingEnd;
    /// The same, to change it.
    fn end_mut(&mut self) -> &mut ReceivingEnd;
    /// As [`Receiver::on_datagrams`].
    fn on_datagrams(&mut self, now: Time, arrivals: &[Arrival]);
    /// As [`Receiver::on_control`].
    fn on_control(&mut self, now: Time, control: &Control);
    /// As [`Receiver::on_timeout`].
    fn on_timeout(&mut self, now: Time);
    /// As [`Receiver::skip`].
    fn skip(&mut self, now: Time, blocks: BlockRange);
    /// What the protocol has to say; pulses are not its business.
    fn poll_report(&mut self, now: Time) -> Option<(Carrier, Control)>;
    /// When the protocol's own next report is due.
    fn next_report(&self) -> Wake;
}

/// A receiver of any number of flows that know nothing of each other.
pub struct Flows<F> {
    flows: BTreeMap<FlowId, F>,
}

impl<F> Default for Flows<F> {
    fn default() -> Flows<F> {
        Flows { flows: BTreeMap::new() }
    }
}

impl<F: ReceivingFlow> Receiver for Flows<F> {
    fn on_datagrams(&mut self, now: Time, flow: FlowId, arrivals: &[Arrival]) {
        if let Some(flow) = self.flows.get_mut(&flow) {
            flow.on_datagrams(now, arrivals);
        }
    }

    fn on_control(&mut self, now: Time, flow: FlowId, control: &Control) {
        if let Some(flow) = self.flows.get_mut(&flow) {
            flow.on_control(now, control);
        }
    }

    fn on_timeout(&mut self, now: Time) {
        self.flows.values_mut().for_each(|flow| flow.on_timeout(now));
    }

    fn skip(&mut self, now: Time, flow: FlowId, blocks: BlockRange) {
        if let Some(flow) = self.flows.get_mut(&flow) {
            flow.skip(now, blocks);
        }
    }

    fn set_grant(&mut self, _: Time, flow: FlowId, grant: Bytes, drain: Option<Rate>) {
        if let Some(flow) = self.flows.get_mut(&flow) {
            flow.end_mut().pulses.set_grant(grant, drain);
        }
    }

    fn set_socket_lost(&mut self, _: Time, flow: FlowId, lost: u64) {
        if let Some(flow) = self.flows.get_mut(&flow) {
            flow.end_mut().pulses.set_socket_lost(lost);
        }
    }

    fn poll_control(&mut self, now: Time) -> Option<Outgoing> {
        self.flows.iter_mut().find_map(|(&id, flow)| {
            let said = flow.poll_report(now).or_else(|| flow.end_mut().poll_pulse(now));
            let (carrier, control) = said?;
            Some(Outgoing { flow: id, carrier, control })
        })
    }

    fn poll_event(&mut self) -> Option<(FlowId, Event)> {
        let mut flows = self.flows.iter_mut();
        flows.find_map(|(&id, flow)| Some((id, flow.end_mut().events.pop_front()?)))
    }

    fn next_wakeup(&self) -> Wake {
        let wakes = self.flows.values();
        let wakes = wakes.map(|flow| flow.next_report().earlier(flow.end().next_wakeup()));
        wakes.fold(Wake::OnInput, Wake::earlier)
    }

    fn is_finished(&self, flow: FlowId) -> bool {
        self.flows.get(&flow).is_some_and(|flow| flow.end().is_finished())
    }

    fn accounting(&self, flow: FlowId) -> Option<&ReceiverAccounting> {
        self.flows.get(&flow).map(|flow| &flow.end().accounting)
    }

    fn add_flow(&mut self, now: Time, setup: &Setup) {
        self.flows.entry(setup.flow).or_insert_with(|| F::new(now, setup));
    }

    fn remove_flow(&mut self, flow: FlowId) {
        self.flows.remove(&flow);
    }
}
