//! Deliberately broken senders: the test rig ([`crate::rig`]) or the model ([`crate::model`]) must
//! detect each of them.

use longhaul_proto::accounting::SenderAccounting;
use longhaul_proto::endpoint::{
    BlockRange, Event, FlowId, Outgoing, PacketNumber, Sender, Setup, Wake,
};
use longhaul_proto::layout::Block;
use longhaul_proto::registry::{Row, all};
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Rate;
use longhaul_proto::wire::Control;

use crate::rig::{Channel, Host, Rig, setup};

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Flaw {
    /// Skips blocks but reports them as sent.
    Forgets,
    /// Sends more blocks than a poll requests.
    Overruns,
    /// Always asks to be woken immediately.
    Spins,
    /// Sends after the receiver has reported the object as complete.
    Lingers,
    /// Resends the first block although it is not missing.
    Repeats,
    /// Reverses the order of the blocks of each poll.
    Disorders,
    /// Ignores reports of losses.
    Deaf,
}

/// The sender of the first registered protocol, with a flaw.
struct Broken {
    inner: Box<dyn Sender>,
    flaw: Flaw,
}

impl Sender for Broken {
    fn on_control(&mut self, now: Time, flow: FlowId, control: &Control) {
        if self.flaw != Flaw::Deaf || !matches!(control, Control::Loss(_)) {
            self.inner.on_control(now, flow, control);
        }
    }
    fn on_timeout(&mut self, now: Time) {
        self.inner.on_timeout(now);
    }
    fn skip(&mut self, now: Time, flow: FlowId, blocks: BlockRange) {
        self.inner.skip(now, flow, blocks);
    }
    fn poll_transmit(&mut self, now: Time, next: PacketNumber, max: usize, out: &mut Vec<Block>) {
        self.inner.poll_transmit(now, next, max, out);
        let first = Block { segment: 0, index: 0 };
        match self.flaw {
            Flaw::Forgets => out.truncate(out.len().max(2) - 1),
            Flaw::Overruns if !out.is_empty() => out.resize(max + 1, first),
            Flaw::Lingers if self.inner.is_finished() => out.push(first),
            Flaw::Repeats if out.iter().any(|block| *block != first) => out[0] = first,
            Flaw::Disorders => out.reverse(),
            _ => {}
        }
    }
    fn poll_control(&mut self, now: Time) -> Option<Outgoing> {
        self.inner.poll_control(now)
    }
    fn poll_event(&mut self) -> Option<Event> {
        self.inner.poll_event()
    }
    fn next_wakeup(&self) -> Wake {
        match self.flaw {
            Flaw::Spins => Wake::Now,
            _ => self.inner.next_wakeup(),
        }
    }
    fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }
    fn is_blocked_by_grant(&self) -> bool {
        self.inner.is_blocked_by_grant()
    }
    fn rate(&self) -> Rate {
        self.inner.rate()
    }
    fn rtt(&self) -> Span {
        self.inner.rtt()
    }
    fn accounting(&self) -> &SenderAccounting {
        self.inner.accounting()
    }
}

pub(crate) fn broken(setup: &Setup, flaw: Flaw) -> Box<dyn Sender> {
    Box::new(Broken { inner: (all()[0].sender)(setup), flaw })
}

fn run(sender: fn(&Setup) -> Box<dyn Sender>) {
    let row = Row { sender, ..all()[0] };
    let mut rig = Rig::new(&row, 1, Channel::perfect(Span::from_millis(10)));
    let rate = Some(Rate::from_mbps(3_000));
    rig.add_flow(setup(1, 1_000, 0, rate, Span::from_millis(20)), Host::Fast);
    rig.run(Span::from_secs(20));
    rig.linger(Span::from_secs(1));
}

#[test]
fn a_sound_sender_passes() {
    run(|setup| (all()[0].sender)(setup));
}

#[test]
#[should_panic(expected = "assertion")]
fn a_sender_that_skips_blocks_is_detected() {
    run(|setup| broken(setup, Flaw::Forgets));
}

#[test]
#[should_panic(expected = "more blocks than were asked for")]
fn a_sender_of_more_blocks_than_a_poll_requests_is_detected() {
    run(|setup| broken(setup, Flaw::Overruns));
}

#[test]
#[should_panic(expected = "one instant was polled")]
fn a_sender_that_spins_is_detected() {
    run(|setup| broken(setup, Flaw::Spins));
}

#[test]
#[should_panic(expected = "sends without end")]
fn a_sender_that_continues_after_the_end_is_detected() {
    run(|setup| broken(setup, Flaw::Lingers));
}
