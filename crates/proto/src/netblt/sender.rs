//! The sending end. It sends the buffers in order, as far as the receiver allows (GO). Blocks that
//! the receiver requests again go first.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

use super::BURST;
use super::buffers::Buffers;
use super::sending::Sending;
use crate::endpoint::{BlockRange, Carrier, PacketNumber, Setup};
use crate::ends::{Run, SendingEnd, SendingFlow};
use crate::layout::Block;
use crate::pulse::until_train;
use crate::rate::{RateController, controller};
use crate::time::Time;
use crate::units::{Bytes, Rate};
use crate::wire::{Begun, BufferOk, Burst, Control, Pulse, Resend};

/// Lowest rate to which the receiver's offer can slow a sender.
const LEAST_OFFER: Rate = Rate::from_bps(100_000);

/// NETBLT's sender.
pub struct NetbltSender {
    end: SendingEnd,
    controller: Box<dyn RateController>,
    buffers: Buffers,
    datagram: Bytes,
    /// Buffers below this one may be sent.
    go: u64,
    /// Buffers that have begun and are not known to be complete.
    open: BTreeMap<u64, Sending>,
    /// The open buffers that have blocks to resend.
    resending: BTreeSet<u64>,
    offer: Option<(Rate, u64)>,
    /// The buffer whose OK set `offer` last.
    offered_with: u64,
}

impl NetbltSender {
    /// A sender at the start of a flow.
    pub fn new(setup: &Setup) -> NetbltSender {
        let controller = controller(setup);
        let mut end = SendingEnd::new(setup, controller.rate());
        let burst = setup.settings.count(&BURST);
        if burst > 0 {
            end.pacer.fix_burst(burst);
        }
        NetbltSender {
            end,
            controller,
            buffers: Buffers::new(setup),
            datagram: setup.datagram(),
            go: 0,
            open: BTreeMap::new(),
            resending: BTreeSet::new(),
            offer: None,
            offered_with: 0,
        }
    }

    /// RFC 998: the ends agree on burst size and burst rate for each buffer; the smaller size and
    /// the lower rate apply.
    fn follow_rate(&mut self, now: Time) {
        let own = (self.controller.rate(), self.controller.burst());
        let agreed = |(rate, most): (Rate, u64)| (own.0.min(rate), own.1.min(most));
        let (rate, most) = self.offer.map_or(own, agreed);
        self.end.pace(now, rate, most);
    }

    fn base(&self, segment: u32) -> u64 {
        self.end.layout.number(Block { segment, index: 0 })
    }

    fn next_first(&self) -> Option<Block> {
        let block = self.end.layout.block(self.end.frontier.peek()?)?;
        (self.buffers.of(block) < self.go).then_some(block)
    }

    fn again(&mut self, now: Time, number: u64, max: u32) -> Option<Run> {
        while let Some(&buffer) = self.resending.first() {
            if let Some((segment, _)) = self.buffers.place(buffer) {
                let (base, there) = (self.base(segment), self.end.frontier.there());
                let sending = self.open.get_mut(&buffer);
                let next =
                    |sending: &mut Sending| sending.next_resend(now, number, max, base, there);
                if let Some(blocks) = sending.and_then(next) {
                    return Some(Run { segment, blocks });
                }
            }
            self.resending.remove(&buffer);
        }
        None
    }

    fn first(&mut self, now: Time, number: u64, max: u32) -> Option<Run> {
        let block = self.next_first()?;
        let buffer = self.buffers.of(block);
        let (_, blocks) = self.buffers.place(buffer)?;
        let run = self.end.frontier.take(max.min(blocks.end - block.index))?;
        if !self.open.contains_key(&buffer) {
            let size = u32::try_from(self.end.pacer.burst()).unwrap_or(u32::MAX);
            let burst = Burst::of(self.end.pacer.rate(), size, self.datagram);
            self.end.say(Carrier::Reliable, Control::Begun(Begun { buffer, burst }));
        }
        self.end.accounting.rounds = self.end.accounting.rounds.max(1);
        let end = number + run.blocks.len() as u64;
        self.open.entry(buffer).or_default().on_first(now, run.blocks.end, end);
        Some(run)
    }

    fn forget(&mut self, buffer: u64) {
        self.open.remove(&buffer);
        self.resending.remove(&buffer);
    }

    fn on_ok(&mut self, now: Time, ok: &BufferOk) {
        let Some((segment, blocks)) = self.buffers.place(ok.buffer) else {
            self.end.accounting.refused += 1;
            return;
        };
        self.forget(ok.buffer);
        let base = self.base(segment);
        self.end.frontier.set_there(base + u64::from(blocks.start)..base + u64::from(blocks.end));
        if self.end.is_there(segment, 0) {
            self.end.set_whole(segment);
        }
        // The OK of an earlier buffer may carry an older offer, which is ignored.
        if ok.buffer >= self.offered_with {
            self.offered_with = ok.buffer;
            let offered = |burst: Burst| (burst.rate(self.datagram), u64::from(burst.size));
            self.offer = ok.offer.map(offered).map(|(rate, most)| (rate.max(LEAST_OFFER), most));
            self.follow_rate(now);
        }
    }

    fn on_resend(&mut self, now: Time, resend: &Resend) {
        let (segment, slice) = (resend.report.segment(), resend.report.slice());
        let is_of_buffer = self.buffers.place(resend.buffer).is_some_and(|(of, blocks)| {
            of == segment && blocks.start <= slice.start && slice.end <= blocks.end
        });
        if !is_of_buffer || resend.highest > self.end.numbered() {
            self.end.accounting.refused += 1;
            return;
        }
        // Blocks that were not sent yet cannot be lost.
        let sent_to = self.end.frontier.sent_to(segment);
        let lost = |run: &core::ops::Range<u32>| run.end.min(sent_to).saturating_sub(run.start);
        let lost: u32 = resend.report.missing().iter().map(lost).sum();
        self.end.accounting.reported_lost += u64::from(lost);
        let Some(sending) = self.open.get_mut(&resend.buffer) else { return };
        sending.on_resend(now, resend, self.end.rtt.timeout());
        if sending.has_resends() {
            self.resending.insert(resend.buffer);
            // The first send counts as a round.
            let rounds = sending.round().saturating_add(1);
            self.end.accounting.rounds = self.end.accounting.rounds.max(rounds);
        }
    }

    fn on_pulse(&mut self, now: Time, pulse: &Pulse) {
        if let Some(feedback) = self.end.on_pulse(now, pulse) {
            self.controller.on_feedback(now, &feedback);
            self.follow_rate(now);
        }
    }
}

impl SendingFlow for NetbltSender {
    fn end(&self) -> &SendingEnd {
        &self.end
    }

    fn end_mut(&mut self) -> &mut SendingEnd {
        &mut self.end
    }

    fn hear(&mut self, now: Time, control: &Control) -> bool {
        match control {
            Control::Go(go) if go.buffers <= self.buffers.count() => {
                self.go = self.go.max(go.buffers);
            }
            Control::BufferOk(ok) => self.on_ok(now, ok),
            Control::Resend(resend) => self.on_resend(now, resend),
            Control::Pulse(pulse) => self.on_pulse(now, pulse),
            _ => return false,
        }
        true
    }

    fn leave_out(&mut self, _: Time, blocks: BlockRange) {
        let (segment, indices) = (blocks.first.segment, blocks.indices(&self.end.layout));
        if self.end.frontier.skip(blocks).is_none() {
            return;
        }
        for buffer in self.buffers.touching(segment, indices) {
            let Some((_, blocks)) = self.buffers.place(buffer) else { continue };
            let base = self.base(segment);
            let all = base + u64::from(blocks.start)..base + u64::from(blocks.end);
            if self.end.frontier.there().covers(all) {
                self.forget(buffer);
            }
        }
        if self.end.is_there(segment, 0) {
            self.end.set_whole(segment);
        }
    }

    fn room(&mut self, now: Time, next: PacketNumber) -> u64 {
        let trained = self.controller.train(now, next);
        trained.max(self.end.pacer.allowance(now)).min(until_train(next))
    }

    fn next_run(&mut self, now: Time, number: u64, max: u32) -> Option<(Run, bool)> {
        match self.again(now, number, max) {
            Some(run) => Some((run, false)),
            None => Some((self.first(now, number, max)?, true)),
        }
    }

    fn on_sent(&mut self, now: Time, next: PacketNumber, count: u64) {
        if count > 0 {
            self.controller.on_sent(now, next, count);
        }
        self.follow_rate(now);
    }

    fn has_work(&self) -> bool {
        let has_first = || self.next_first().is_some() && !self.end.frontier.is_out_of_grant();
        !self.resending.is_empty() || has_first()
    }

    fn has_only_first(&self) -> bool {
        self.resending.is_empty() && self.next_first().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::FlowId;
    use crate::layout::Layout;
    use crate::rate::Feedback;
    use crate::time::Span;

    /// A controller at 1 Gbit/s that wants bursts of at most 8 datagrams.
    struct Short;

    impl RateController for Short {
        fn rate(&self) -> Rate {
            Rate::from_mbps(1_000)
        }

        fn train(&mut self, _: Time, _: PacketNumber) -> u64 {
            0
        }

        fn burst(&self) -> u64 {
            8
        }

        fn on_sent(&mut self, _: Time, _: PacketNumber, _: u64) {}

        fn on_feedback(&mut self, _: Time, _: &Feedback<'_>) {}
    }

    #[test]
    fn the_lower_rate_and_the_smaller_burst_of_controller_and_offer_apply() {
        let layout = Layout::whole(Bytes::new(1 << 20), 1_000).unwrap();
        let mut sender = NetbltSender::new(&Setup::new(FlowId(1), layout, Span::from_millis(100)));
        sender.controller = Box::new(Short);
        let mut agreed = |offer| {
            sender.offer = offer;
            sender.follow_rate(Time::ZERO);
            (sender.end.pacer.rate(), sender.end.pacer.burst())
        };
        let (own, low) = (Rate::from_mbps(1_000), Rate::from_mbps(900));
        assert_eq!(agreed(None), (own, 8));
        assert_eq!(agreed(Some((low, 9))), (low, 8));
        assert_eq!(agreed(Some((own.scale(2.0), 7))), (own, 7));
    }
}
