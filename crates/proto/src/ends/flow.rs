//! Implements [`Sender`] for every protocol that implements [`SendingFlow`]. The protocol decides
//! what to send, how much, and when to be called; everything else is the same for all protocols.

use alloc::vec::Vec;

use super::{Run, SendingEnd};
use crate::accounting::SenderAccounting;
use crate::endpoint::{BlockRange, Event, FlowId, Outgoing, PacketNumber, Sender, Wake};
use crate::law::Found;
use crate::layout::Block;
use crate::receipt::Receipt;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::Control;

/// What a protocol decides at the sending end of a flow.
pub trait SendingFlow: Send {
    /// The part of the sender that is the same for all protocols.
    fn end(&self) -> &SendingEnd;

    /// As [`SendingFlow::end`], mutable.
    fn end_mut(&mut self) -> &mut SendingEnd;

    /// As [`Sender::on_control`], for a message of this flow. Returns whether the protocol knows
    /// this kind of message.
    fn hear(&mut self, now: Time, control: &Control) -> bool;

    /// As [`Sender::on_timeout`]; not called after the flow has finished, or while the circuit
    /// breaker is open (the receiver is silent).
    fn expire(&mut self, _: Time) {}

    /// As [`Sender::skip`], for blocks of this flow.
    fn leave_out(&mut self, now: Time, blocks: BlockRange);

    /// As [`Sender::set_peer_card`].
    fn hear_of_card(&mut self, _now: Time, _card: Rate) {}

    /// As [`Sender::allow_coded`].
    fn use_coded(&mut self) {}

    /// As [`Sender::uses_coded`].
    fn codes(&self) -> bool {
        false
    }

    /// As [`Sender::on_receipt`].
    fn use_receipt(&mut self, _now: Time, _receipt: &Receipt) {}

    /// Number of datagrams that may leave now; the first gets number `next`.
    fn room(&mut self, now: Time, next: PacketNumber) -> u64;

    /// Returns the next run (consecutive blocks of one segment) to send, of at most `max` blocks,
    /// and whether its blocks are sent for the first time. The first block gets packet number
    /// `number`. `None` if nothing is to be sent until the next message or timeout.
    fn next_run(&mut self, now: Time, number: u64, max: u32) -> Option<(Run, bool)>;

    /// Notes that a run was added to the datagrams to send; its last datagram has number `last`.
    fn on_run(&mut self, _now: Time, _run: &Run, _first_time: bool, _last: u64) {}

    /// Notes that a poll has ended: `count` datagrams leave, the first with number `next`.
    fn on_sent(&mut self, _now: Time, _next: PacketNumber, _count: u64) {}

    /// Whether a datagram waits only for the pacer.
    fn has_work(&self) -> bool;

    /// Whether no block is due to be resent now, so that only blocks that were never sent can
    /// follow. If the grant does not allow these, the flow is blocked by the grant.
    fn has_only_first(&self) -> bool;

    /// As [`Sender::found`].
    fn found_out(&self) -> Found {
        Found::default()
    }

    /// When the protocol itself next needs a call.
    fn next_due(&self) -> Wake {
        Wake::OnInput
    }
}

impl<F: SendingFlow> Sender for F {
    fn on_control(&mut self, now: Time, flow: FlowId, control: &Control) {
        if self.end_mut().hear(now, flow) && !self.hear(now, control) {
            self.end_mut().accounting.refused += 1;
        }
    }

    fn on_timeout(&mut self, now: Time) {
        if !self.end_mut().check_breaker(now) {
            self.expire(now);
        }
    }

    fn skip(&mut self, now: Time, flow: FlowId, blocks: BlockRange) {
        if flow == self.end().flow {
            self.leave_out(now, blocks);
        }
    }

    fn set_peer_card(&mut self, now: Time, card: Rate) {
        self.hear_of_card(now, card);
    }

    fn allow_coded(&mut self) {
        self.use_coded();
    }

    fn uses_coded(&self) -> bool {
        self.codes()
    }

    fn on_receipt(&mut self, now: Time, receipt: &Receipt) {
        self.use_receipt(now, receipt);
    }

    fn raise_grant(&mut self, _: Time, grant: Bytes) {
        self.end_mut().frontier.raise_grant(grant);
    }

    fn poll_transmit(&mut self, now: Time, next: PacketNumber, max: usize, out: &mut Vec<Block>) {
        if self.end().is_at_rest() {
            return;
        }
        let mut room = self.room(now, next).min(max as u64).min(u32::MAX.into()) as u32;
        let mut number = next.0;
        while room > 0 {
            let Some((run, first_time)) = self.next_run(now, number, room) else {
                self.end_mut().pacer.idle(now);
                break;
            };
            self.end_mut().send(now, &run, first_time, out);
            let count = run.blocks.end - run.blocks.start;
            number += u64::from(count);
            room -= count;
            self.on_run(now, &run, first_time, number - 1);
        }
        self.end_mut().sent(now, next, number - next.0);
        self.on_sent(now, next, number - next.0);
    }

    fn poll_control(&mut self, _: Time) -> Option<Outgoing> {
        self.end_mut().poll_control()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.end_mut().poll_event()
    }

    fn next_wakeup(&self) -> Wake {
        if self.end().is_at_rest() {
            return Wake::OnInput;
        }
        self.end().next_wakeup(self.has_work()).earlier(self.next_due())
    }

    fn is_finished(&self) -> bool {
        self.end().is_finished()
    }

    fn is_blocked_by_grant(&self) -> bool {
        !self.end().is_finished() && self.has_only_first() && self.end().frontier.is_out_of_grant()
    }

    fn rate(&self) -> Rate {
        self.end().pacer.rate()
    }

    fn rtt(&self) -> Span {
        self.end().rtt.smoothed()
    }

    fn found(&self) -> Found {
        self.found_out()
    }

    fn accounting(&self) -> &SenderAccounting {
        &self.end().accounting
    }
}
