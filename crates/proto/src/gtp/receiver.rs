//! The receiving end: all flows, and the decisions they share.
//!
//! > Based on a receiver's set of flow statistics, the central scheduler allocates receiver
//! > bandwidth to each flow and updates each flow's target rate. … The updated allowed (target)
//! > rate for each flow is then fed to each SFC [single-flow controller]. (section 3.4)
//!
//! A queue of due times wakes the flows one by one. The receiver makes one schedule (a new target
//! for each flow) in each interval, and one for all joins and departures that happen together. A
//! schedule of N flows costs O(N log N). Changes happen together if they fall within the time of
//! one round of requests to all N flows. Each schedule sends a request to every flow: with a
//! schedule for each change, a thousand joins would send 500,500 requests.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::capacity::{Capacity, Totals, Trains};
use super::flow::{Count, Flow};
use super::link::{Link, estimates};
use super::options::Rules;
use super::scheduler::{Demand, floor, shares};
use super::transitions::{delay, gain};
use super::tuning::Tuning;
use crate::accounting::ReceiverAccounting;
use crate::endpoint::{
    Arrival, BlockRange, Event, FlowId, Others, Outgoing, ReceiveCapacity, Receiver, Setup, Wake,
    Why,
};
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::Control;

/// GTP's receiver for any number of flows.
pub struct GtpReceiver {
    flows: BTreeMap<FlowId, Flow>,
    due: BTreeMap<FlowId, Time>,
    /// The flows in the order in which they are due.
    queue: BTreeSet<(Time, FlowId)>,
    outgoing: VecDeque<Outgoing>,
    events: VecDeque<(FlowId, Event)>,
    capacity: Capacity,
    link: Link,
    /// The newest flow's rules, which apply to everything that the flows share.
    rules: Option<Rules>,
    /// Whether flows have joined, left or changed since the last schedule.
    changed: bool,
    /// The rate of all flows that left or paused since the last schedule, in bits a second.
    freed: f64,
    /// No change triggers a schedule before this time, so changes close together share one
    /// schedule.
    next_change: Time,
    next_interval: Time,
    last_interval: Time,
    pub(super) tuning: Tuning,
    /// Steps of all schedules so far; a test bounds their number.
    pub(super) work: u64,
}

impl Default for GtpReceiver {
    fn default() -> GtpReceiver {
        GtpReceiver {
            flows: BTreeMap::new(),
            due: BTreeMap::new(),
            queue: BTreeSet::new(),
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
            capacity: Capacity::new(),
            link: Link::new(),
            rules: None,
            changed: false,
            freed: 0.0,
            next_change: Time::ZERO,
            next_interval: Time::NEVER,
            last_interval: Time::ZERO,
            tuning: Tuning::OURS,
            work: 0,
        }
    }
}

impl GtpReceiver {
    /// Runs `act` on a flow. Then collects the flow's messages and events, notes whether the flow
    /// changed, and updates its due time.
    fn with<T>(&mut self, id: FlowId, act: impl FnOnce(&mut Flow) -> T) -> Option<T> {
        let flow = self.flows.get_mut(&id)?;
        let done = act(flow);
        let said = flow.outgoing.drain(..);
        self.outgoing.extend(said.map(|(carrier, control)| Outgoing {
            flow: id,
            carrier,
            control,
        }));
        while let Some(event) = flow.end.poll_event() {
            self.events.push_back((id, event));
        }
        let change = core::mem::take(&mut flow.change);
        self.changed |= change.changed || change.freed > 0.0;
        self.freed += change.freed;
        let due = flow.due();
        let before = self.due.insert(id, due);
        if before != Some(due) {
            if let Some(before) = before {
                self.queue.remove(&(before, id));
            }
            self.queue.insert((due, id));
        }
        Some(done)
    }

    fn advance(&mut self, now: Time) {
        loop {
            let interval = self.next_interval <= now;
            if interval || self.change_due() <= now {
                self.schedule(now, interval);
            }
            while let Some(&(due, id)) = self.queue.first()
                && due <= now
            {
                self.with(id, |flow| flow.on_time(now));
            }
            if self.change_due().min(self.next_interval) > now {
                return;
            }
        }
    }

    fn change_due(&self) -> Time {
        if self.changed { self.next_change } else { Time::NEVER }
    }

    /// Sets new targets for all active flows. At the end of an interval (`interval`), updates the
    /// estimates first; otherwise flows have joined, left or changed.
    fn schedule(&mut self, now: Time, interval: bool) {
        let Some(rules) = self.rules else { return };
        if interval {
            self.estimate(now, &rules);
        }
        self.changed = false;
        let active: Vec<(FlowId, &mut Flow)> = self
            .flows
            .iter_mut()
            .map(|(&id, flow)| (id, flow))
            .filter(|(_, flow)| flow.is_active())
            .collect();
        self.work += self.due.len() as u64;
        let fixed = active.iter().filter_map(|(_, flow)| flow.standing.fixed()).sum();
        let capacity = self.link.rate(&self.capacity, fixed);
        let sum: f64 = active.iter().map(|(_, flow)| flow.estimate().min(capacity)).sum();
        let freed = core::mem::take(&mut self.freed);
        let weights: f64 = active.iter().map(|(_, flow)| flow.rules.weight).sum();
        let mut demands = Vec::with_capacity(active.len());
        let mut flows = Vec::with_capacity(active.len());
        let mut longest = Span::ZERO;
        for (id, flow) in active {
            flow.raise_estimate(gain(freed, flow.estimate().min(capacity), sum));
            longest = longest.max(flow.standing.path_rtt());
            let weight = flow.rules.weight;
            let least = floor(flow.rules.least_rate, capacity, weight, weights);
            let least = flow.set_least(least);
            demands.push(Demand { estimate: flow.estimate().max(least).min(capacity), weight });
            flows.push(id);
        }
        let shares = shares(&demands, capacity, &mut self.work);
        let spacing = rules.tuning.spacing(flows.len());
        self.next_change = now + spacing;
        for (&id, share) in flows.iter().zip(shares) {
            self.with(id, |flow| {
                // A target that falls sharply, as after many joins, takes effect immediately.
                let is_crowded = share < flow.target() * rules.tuning.crowded;
                let rtt = if is_crowded { longest } else { flow.standing.path_rtt() };
                flow.set_target(now + delay(longest, rtt), share, spacing);
            });
        }
        if flows.is_empty() {
            self.next_interval = Time::NEVER;
        } else if interval || self.next_interval == Time::NEVER {
            let length = Span::from_secs_f64(longest.as_secs_f64() * rules.interval);
            let Tuning { shortest_interval, longest_interval, .. } = rules.tuning;
            let length = length.min(longest_interval).max(shortest_interval).max(spacing);
            self.next_interval = now + length;
        }
    }

    /// Ends the control interval of all active flows, and returns their measurements together.
    fn measure(&mut self, now: Time) -> Totals {
        let searching = self.capacity.is_searching();
        let (mut did, mut unmeasured) = (Vec::with_capacity(self.flows.len()), 0.0);
        let (mut shortest, mut longest) = (f64::INFINITY, 0.0f64);
        let (mut count, mut trains) = (Count::default(), Trains::default());
        for flow in self.flows.values_mut().filter(|flow| flow.is_active()) {
            flow.standing.train().into_iter().for_each(|rate| trains.add(rate));
            let Count { came, dropped } = flow.take_count();
            (count.came, count.dropped) = (count.came + came, count.dropped + dropped);
            match flow.on_interval(now, searching) {
                Some(measured) => {
                    did.push(measured);
                    let queue = flow.standing.queue().as_secs_f64();
                    (shortest, longest) = (shortest.min(queue), longest.max(queue));
                }
                None if flow.is_active() => unmeasured += flow.rate(),
                None => self.freed += core::mem::take(&mut flow.change.freed),
            }
        }
        // A queue at the receiver's link delays all flows; a queue on one path delays only the flow
        // of this path and must not count. The shortest of all flows' queues ignores the queue of
        // one path, but rises only after the farthest sender has reported. The geometric mean of
        // the shortest and the longest queue rises earlier, and is also zero while one flow has no
        // queue.
        let queue = if did.is_empty() { 0.0 } else { libm::sqrt(shortest * longest) };
        let whole = Totals { unmeasured, queue, trains, ..Totals::of(&mut did) };
        let took = now.since(core::mem::replace(&mut self.last_interval, now));
        whole.with_drops(count.came as f64, count.dropped as f64, took)
    }

    /// Updates the estimates of all flows, of the receiver's capacity and of other traffic on the
    /// link.
    fn estimate(&mut self, now: Time, rules: &Rules) {
        let whole = self.measure(now);
        self.capacity.on_interval(rules, &self.link.totals(&self.capacity, whole));
        let active: Vec<&Flow> = self.flows.values().filter(|flow| flow.is_active()).collect();
        let weights = active.iter().map(|flow| flow.rules.weight).sum();
        let even_least = self.link.even_least(&self.capacity, weights);
        let could = |flow: &Flow| {
            let least = flow.standing.bound().min(even_least * flow.rules.weight);
            (flow.estimate().max(least), flow.rules.weight)
        };
        let estimates = estimates(active.into_iter().map(could));
        self.link.on_interval(&rules.tuning, &mut self.capacity, whole.current, &estimates);
    }

    fn note_train(&mut self, flow: FlowId) {
        let flow = self.flows.get_mut(&flow).filter(|flow| flow.standing.fixed().is_none());
        let Some(flow) = flow else { return };
        let first = flow.end.pulses.train().filter(|train| train.first.0 == 0);
        if let Some(train) = first {
            let rate = (train.bytes / train.span).as_bps() as f64;
            flow.standing.set_train(rate);
            self.changed |= self.capacity.on_train(rate, train.steps);
            // Late reading may have shortened the train by up to one step.
            let sure = rate * (1.0 - 1.0 / f64::from(train.steps.max(1)));
            self.changed |= self.link.on_train(&mut self.capacity, sure);
        }
    }
}

impl Receiver for GtpReceiver {
    fn on_datagrams(&mut self, now: Time, flow: FlowId, arrivals: &[Arrival]) {
        self.with(flow, |flow| flow.on_datagrams(now, arrivals));
        self.note_train(flow);
    }

    fn on_control(&mut self, now: Time, flow: FlowId, control: &Control) {
        self.with(flow, |flow| match control {
            Control::SenderOffer(offer) => flow.on_offer(now, offer),
            _ => flow.end.accounting.refused += 1,
        });
    }

    fn on_timeout(&mut self, now: Time) {
        self.advance(now);
    }

    fn skip(&mut self, _: Time, flow: FlowId, blocks: BlockRange) {
        self.with(flow, |flow| flow.skip(blocks));
    }

    fn set_grant(&mut self, now: Time, flow: FlowId, grant: Bytes, drain: Option<Rate>) {
        self.with(flow, |flow| flow.set_grant(now, grant, drain));
    }

    fn set_socket_lost(&mut self, _: Time, flow: FlowId, lost: u64) {
        self.with(flow, |flow| flow.set_socket_lost(lost));
    }

    fn wants_others(&self) -> bool {
        self.rules.is_some_and(|rules| rules.receive_rate.is_none() || rules.others)
    }

    fn set_others(&mut self, now: Time, others: Others) {
        self.link.set(now, others, self.rules.is_some_and(|rules| rules.others));
    }

    fn set_receive_limit(&mut self, limit: Rate) {
        self.link.set_limit(limit.as_bps() as f64);
    }

    fn receive_capacity(&self) -> Option<ReceiveCapacity> {
        self.rules.is_some().then(|| self.link.receive_capacity(&self.capacity))
    }

    fn poll_control(&mut self, now: Time) -> Option<Outgoing> {
        self.advance(now);
        self.outgoing.pop_front()
    }

    fn poll_event(&mut self) -> Option<(FlowId, Event)> {
        self.events.pop_front()
    }

    fn next_wakeup(&self) -> Wake {
        let due = self.queue.first().map_or(Time::NEVER, |&(due, _)| due);
        let due = due.min(self.next_interval).min(self.change_due());
        if due == Time::NEVER { Wake::OnInput } else { Wake::At(due, Why::Report) }
    }

    fn is_finished(&self, flow: FlowId) -> bool {
        self.flows.get(&flow).is_some_and(|flow| flow.end.is_finished())
    }

    fn accounting(&self, flow: FlowId) -> Option<&ReceiverAccounting> {
        self.flows.get(&flow).map(|flow| &flow.end.accounting)
    }

    fn add_flow(&mut self, now: Time, setup: &Setup) {
        if self.flows.contains_key(&setup.flow) {
            return;
        }
        let rules = Rules { tuning: self.tuning, ..Rules::new(&setup.settings) };
        self.capacity.set_rules(&rules);
        self.rules = Some(rules);
        let among = (self.flows.len() + 1) as f64;
        let least = floor(rules.least_rate, self.link.taken(&self.capacity), 1.0, among);
        let flow = Flow::new(now, setup, rules, least);
        self.flows.insert(setup.flow, flow);
        self.with(setup.flow, |_| ());
    }

    fn remove_flow(&mut self, flow: FlowId) {
        let Some(removed) = self.flows.remove(&flow) else { return };
        if removed.is_active() {
            self.freed += removed.rate();
            self.changed = true;
        }
        if let Some(due) = self.due.remove(&flow) {
            self.queue.remove(&(due, flow));
        }
        self.outgoing.retain(|outgoing| outgoing.flow != flow);
        self.events.retain(|(of, _)| *of != flow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::PacketNumber;
    use crate::layout::{Block, Layout};

    /// Returns a receiver of flows 1 and 2 with a round trip of 10 ms and datagrams of 8,256 bits.
    fn receiver(grants: [Bytes; 2]) -> GtpReceiver {
        let mut receiver = GtpReceiver::default();
        let layout = Layout::whole(Bytes::new(1_000_000), 1000).unwrap();
        for (flow, grant) in [1, 2].map(FlowId).into_iter().zip(grants) {
            let setup = Setup::new(flow, layout, Span::from_millis(10));
            receiver.add_flow(Time::ZERO, &Setup { grant, overhead: Bytes::new(32), ..setup });
        }
        receiver
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn a_flow_out_of_grant_frees_its_rate_and_a_new_flow_counts_with_its_requested_rate() {
        let mut receiver = receiver([Bytes::ZERO, Bytes::MAX]);
        let rate = |flow: u32| receiver.flows[&FlowId(flow)].rate();
        let (idle, new) = (rate(1), rate(2));
        assert!(idle > 0.0 && new > 0.0);
        receiver.freed = 7.0;
        let whole = receiver.measure(at(10_000));
        assert_eq!((receiver.freed, whole.unmeasured), (7.0 + idle, new));
        // The rate is freed only once.
        let whole = receiver.measure(at(10_100));
        assert_eq!(receiver.freed, 7.0 + idle);
        assert_eq!((whole.unmeasured, whole.total, whole.queue), (new, 0.0, 0.0));
    }

    #[test]
    fn drops_of_the_host_since_the_last_interval_count_for_all_flows_together() {
        let mut receiver = receiver([Bytes::MAX; 2]);
        let arrival = |index| Arrival {
            number: PacketNumber(u64::from(index)),
            block: Block { segment: 0, index },
            at: at(5),
        };
        let arrivals: Vec<Arrival> = (0..30).map(arrival).collect();
        for flow in [1, 2].map(FlowId) {
            receiver.on_datagrams(at(5), flow, &arrivals);
            receiver.set_socket_lost(at(5), flow, 10);
        }
        let whole = receiver.measure(at(1_000));
        let of = |datagrams: f64| datagrams * 8_256.0;
        assert_eq!((whole.total, whole.current, whole.loss), (of(80.0), of(60.0), 0.25));
        receiver.set_socket_lost(at(1_100), FlowId(2), 15);
        let whole = receiver.measure(at(1_500));
        assert_eq!((whole.total, whole.current, whole.loss), (of(10.0), 0.0, 1.0));
    }

    #[test]
    fn the_work_of_a_schedule_counts_each_flow_and_each_step_of_the_shares() {
        let mut receiver = receiver([Bytes::MAX; 2]);
        receiver.advance(Time::ZERO);
        assert!(receiver.work >= 2 + 3, "{}", receiver.work);
    }
}
