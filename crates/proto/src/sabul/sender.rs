//! SABUL's sending end: sends the first block of the loss list or, if the list is empty, a new
//! block within the window. "The release" is the version of SABUL that Oak Ridge measured in its
//! study.

use alloc::boxed::Box;

use super::rate::{PaperRate, RateControl};
use super::release::ReleaseRate;
use super::window::Window;
use super::{AVAILABLE_WINDOW, INITIAL_RATE, RELEASE_SYNC_INTERVAL, SYNC_INTERVAL, WINDOW};
use crate::endpoint::{BlockRange, PacketNumber, Setup, Wake, Why};
use crate::ends::{Again, FirstTrain, Repairs, Run, SeenNumbers, SendingEnd, SendingFlow};
use crate::pulse::TRAIN_LEN;
use crate::rate::train::{FIRST_SHARE, TRICKLE};
use crate::time::{Span, Time};
use crate::units::Rate;
use crate::wire::{Ack, Control, Loss, Pulse, Sync};

/// "If no ACK or ERR packet has been received during a specified interval (1000ms). The server then
/// assumes all packets sent in the current period have been lost and adds them to the lost list."
/// (Study, 4.3.3)
const EXPIRY: Span = Span::from_secs(1);

/// Number of times that the wait doubles in silence; the release's wait never doubles.
const MOST_DOUBLED: u32 = 2;

/// SABUL's sender, as in the paper or as in the release that Oak Ridge measured.
pub struct SabulSender {
    pub(super) end: SendingEnd,
    pub(super) repairs: Repairs,
    losses: SeenNumbers,
    syncs: SeenNumbers,
    pub(super) window: Window,
    control: Box<dyn RateControl>,
    interval: Interval,
    /// Timer that resends the last block during silence while blocks are in flight.
    probes: Again,
    /// Timer that counts all blocks in flight as lost during silence.
    expiries: Again,
    /// The end of a freeze, during which nothing is sent.
    frozen: Option<Time>,
    train: FirstTrain,
    cap: Option<Rate>,
    /// Whether the release's rules apply: the receiver's signals end the intervals, instead of a
    /// clock here.
    release: bool,
}

/// Datagrams sent and losses reported since the last rate decision.
struct Interval {
    len: Span,
    /// When the interval ends; `None` before the first datagram.
    end: Option<Time>,
    sent: u64,
    lost: u64,
}

impl Interval {
    fn new(len: Span) -> Interval {
        Interval { len, end: None, sent: 0, lost: 0 }
    }

    /// Begins the next interval. Returns the number of datagrams sent, and of losses reported, in
    /// the interval that ends.
    fn take(&mut self) -> (u64, u64) {
        (core::mem::take(&mut self.sent), core::mem::take(&mut self.lost))
    }
}

impl SabulSender {
    /// The paper's sender at the start of a flow.
    pub fn new(setup: &Setup) -> SabulSender {
        let cap = setup.cap();
        let wanted = setup.settings.rate(&INITIAL_RATE);
        let wanted = if wanted > Rate::ZERO { Some(wanted) } else { setup.rate };
        let first = wanted.unwrap_or(TRICKLE);
        let first = cap.map_or(first, |cap| first.min(cap));
        let control = Box::new(PaperRate::new(setup, first, cap));
        let window = Window::new(if wanted.is_some() { 1 } else { TRAIN_LEN }, setup.datagram());
        let interval = Interval::new(setup.settings.span(&SYNC_INTERVAL));
        let mut sender = SabulSender::with(setup, control, interval, window);
        sender.train = FirstTrain::new(setup, wanted.is_none(), FIRST_SHARE);
        sender
    }

    /// The sender of the release that Oak Ridge measured, at the start of a flow.
    pub fn release(setup: &Setup) -> SabulSender {
        let control = Box::new(ReleaseRate::new(setup, setup.cap()));
        let interval = Interval::new(setup.settings.span(&RELEASE_SYNC_INTERVAL));
        let window = Window::unlimited(setup.datagram());
        let sender = SabulSender::with(setup, control, interval, window);
        SabulSender { release: true, expiries: Again::new(0), ..sender }
    }

    fn with(
        setup: &Setup,
        control: Box<dyn RateControl>,
        interval: Interval,
        mut window: Window,
    ) -> SabulSender {
        let cap = setup.cap();
        window.set_most(setup.settings.count(&WINDOW));
        window.note_rate(cap.unwrap_or(control.rate()));
        if setup.settings.is_on(&AVAILABLE_WINDOW) {
            window.follow_arrivals();
        }
        SabulSender {
            end: SendingEnd::new(setup, control.rate()),
            repairs: Repairs::default(),
            losses: SeenNumbers::default(),
            syncs: SeenNumbers::default(),
            window,
            control,
            interval,
            probes: Again::new(MOST_DOUBLED),
            expiries: Again::new(MOST_DOUBLED),
            frozen: None,
            train: FirstTrain::new(setup, false, FIRST_SHARE),
            cap,
            release: false,
        }
    }

    /// Number of new blocks (blocks that were never sent) that the flow window allows.
    pub(super) fn window_room(&self) -> u64 {
        // With a fixed rate or a rate limit, a window computed from the smallest round-trip time
        // keeps the queue short. Without such a limit, this window would make the flow slower than
        // other flows that share a queue with it.
        let rtt = &self.end.rtt;
        let rtt = if self.cap.is_some() { rtt.min() } else { rtt.smoothed() };
        let size = self.window.size(self.interval.len, rtt);
        // The first packet train (datagrams sent back to back) is not part of the protocol, so the
        // window does not limit it.
        let size = if self.train.is_open() { size.max(TRAIN_LEN) } else { size };
        size.saturating_sub(self.end.frontier.unacknowledged())
    }

    fn is_frozen(&mut self, now: Time) -> bool {
        if self.frozen.is_some_and(|until| until <= now) {
            self.frozen = None;
            self.end.pacer.idle(now);
        }
        self.frozen.is_some()
    }

    /// "After each constant synchronization (SYN) interval, the sender triggers a rate control
    /// event that updates the inter-packet time." (3.4) The sender checks the interval only when it
    /// sends or receives: an earlier change of the rate would have no effect.
    fn check_interval(&mut self, now: Time) {
        let Some(end) = self.interval.end.filter(|end| *end <= now && !self.release) else {
            return;
        };
        let next = end + self.interval.len;
        self.interval.end = Some(if next > now { next } else { now + self.interval.len });
        self.end_interval(now);
    }

    fn end_interval(&mut self, now: Time) {
        let (sent, lost) = self.interval.take();
        self.control.on_interval(sent, lost);
        self.apply_rate(now);
    }

    fn apply_rate(&mut self, now: Time) {
        let rate = self.control.rate();
        self.window.note_rate(self.cap.unwrap_or(rate));
        self.end.pacer.set_rate(now, rate);
    }

    fn on_sync(&mut self, now: Time, sync: &Sync) {
        if !self.release {
            self.end.accounting.refused += 1;
        } else if self.syncs.is_new(sync.sequence) {
            self.end_interval(now);
        }
    }

    /// Notes that an acknowledgement or a loss report arrived, or that the first block after a
    /// pause is sent.
    fn hear_report(&mut self, now: Time) {
        self.probes.restart(now);
        self.expiries.restart(now);
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        if !self.repairs.on_ack(&mut self.end, ack.next) {
            self.end.accounting.refused += 1;
            return;
        }
        self.hear_report(now);
        let sent = self.end.accounting.first;
        self.window.note_arrivals(now, ack.received.min(self.end.accounting.sent));
        self.window.on_ack(sent - self.end.frontier.unacknowledged());
    }

    fn on_loss(&mut self, now: Time, loss: &Loss) {
        let Some(highest) = loss.lost().last().map(|run| run.end - 1) else { return };
        let sent_to = self.end.frontier.passed();
        if highest >= sent_to {
            self.end.accounting.refused += 1;
            return;
        }
        if !self.losses.is_new(loss.sequence()) {
            return;
        }
        self.hear_report(now);
        self.window.on_loss();
        self.end.accounting.reported_lost += loss.count();
        let mut lost = 0;
        for run in loss.lost() {
            lost += self.repairs.list(now, &self.end, run.clone(), !self.release);
        }
        if lost == 0 {
            return;
        }
        self.interval.lost += lost;
        // "The packet sending is frozen (no data is sent out) for a RTT once condition 1) is
        // satisfied." (3.5)
        if self.control.on_report(highest, sent_to) {
            self.frozen = Some(now + self.end.rtt.smoothed());
        }
        self.apply_rate(now);
    }

    fn on_pulse(&mut self, now: Time, pulse: &Pulse) {
        if self.end.on_pulse(now, pulse).is_none() {
            return;
        }
        if let Some(rate) = self.train.on_pulse(pulse) {
            self.window.end_start();
            self.control.start(rate);
            self.apply_rate(now);
        }
    }

    pub(super) fn expiry(&self) -> Time {
        let wait = EXPIRY.max(self.end.rtt.timeout() + self.interval.len * 2);
        self.expiries.next(wait)
    }

    /// When the last block is resent, because no later block will show whether it arrived.
    fn probe(&self) -> Option<Time> {
        let is_due = !self.release && self.frozen.is_none() && !self.has_work();
        let wait = self.end.rtt.timeout() + self.interval.len * 2;
        is_due.then(|| self.probes.next(wait))
    }

    /// Handles a timeout after silence.
    fn check_silence(&mut self, now: Time) {
        if self.end.frontier.unacknowledged() == 0 {
            return;
        }
        if self.expiry() <= now {
            self.interval.lost += self.repairs.list_in_flight(now, &self.end);
            self.expiries.note(now);
        } else if self.probe().is_some_and(|at| at <= now) {
            self.repairs.list_last(&self.end);
            self.probes.note(now);
        }
    }
}

impl SendingFlow for SabulSender {
    fn end(&self) -> &SendingEnd {
        &self.end
    }

    fn end_mut(&mut self) -> &mut SendingEnd {
        &mut self.end
    }

    fn hear(&mut self, now: Time, control: &Control) -> bool {
        self.check_interval(now);
        match control {
            Control::Ack(ack) => self.on_ack(now, ack),
            Control::Loss(loss) => self.on_loss(now, loss),
            Control::Sync(sync) => self.on_sync(now, sync),
            Control::Pulse(pulse) => self.on_pulse(now, pulse),
            _ => return false,
        }
        true
    }

    fn expire(&mut self, now: Time) {
        self.check_silence(now);
    }

    fn leave_out(&mut self, _: Time, blocks: BlockRange) {
        self.repairs.skip(&mut self.end, blocks);
    }

    fn room(&mut self, now: Time, next: PacketNumber) -> u64 {
        if self.is_frozen(now) {
            return 0;
        }
        self.check_interval(now);
        self.train.room(next).max(self.end.pacer.allowance(now))
    }

    fn next_run(&mut self, now: Time, _: u64, max: u32) -> Option<(Run, bool)> {
        if let Some(run) = self.repairs.take(now, &self.end, max) {
            return Some((run, false));
        }
        let room = self.window_room().min(u64::from(max)) as u32;
        if self.end.frontier.unacknowledged() == 0 {
            self.hear_report(now);
        }
        Some((self.end.frontier.take(room)?, true))
    }

    fn on_sent(&mut self, now: Time, _: PacketNumber, count: u64) {
        if count > 0 {
            self.interval.sent += count;
            self.interval.end.get_or_insert(now + self.interval.len);
        }
    }

    fn has_work(&self) -> bool {
        let has_first = || self.end.frontier.is_open() && self.window_room() > 0;
        self.frozen.is_none() && (!self.repairs.is_empty() || has_first())
    }

    fn has_only_first(&self) -> bool {
        self.repairs.is_empty()
    }

    fn next_due(&self) -> Wake {
        let thaw = self.frozen.map_or(Wake::OnInput, |until| Wake::At(until, Why::Pacing));
        if self.end.frontier.unacknowledged() == 0 {
            return thaw;
        }
        let silence = self.probe().map_or(self.expiry(), |at| at.min(self.expiry()));
        thaw.earlier(Wake::At(silence, Why::Repeat))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::FlowId;
    use crate::layout::Layout;
    use crate::units::Bytes;

    #[test]
    fn the_next_interval_begins_at_the_last_end_or_now_if_a_whole_interval_was_missed() {
        let layout = Layout::whole(Bytes::new(1_000_000), 1000).unwrap();
        let mut sender = SabulSender::new(&Setup::new(FlowId(7), layout, Span::from_millis(100)));
        let ms = |ms| Time::ZERO + Span::from_millis(ms);
        assert_eq!(sender.interval.len, Span::from_millis(10));
        sender.interval.end = Some(ms(10));
        // The time of a check, and the end of the interval after it.
        for (now, end) in [(9, 10), (10, 20), (25, 30), (40, 50), (95, 105)] {
            sender.check_interval(ms(now));
            assert_eq!(sender.interval.end, Some(ms(end)), "at {now} ms");
        }
    }

    #[test]
    fn the_first_interval_begins_with_the_first_datagram_and_counts_all_datagrams() {
        let layout = Layout::whole(Bytes::new(1_000_000), 1000).unwrap();
        let mut sender = SabulSender::new(&Setup::new(FlowId(7), layout, Span::from_millis(100)));
        let ms = |ms| Time::ZERO + Span::from_millis(ms);
        let mut send = |now, count| {
            sender.on_sent(ms(now), PacketNumber(0), count);
            (sender.interval.end, sender.interval.sent)
        };
        assert_eq!(send(5, 0), (None, 0));
        assert_eq!(send(7, 3), (Some(ms(17)), 3));
        assert_eq!(send(9, 2), (Some(ms(17)), 5));
        assert_eq!(sender.interval.take(), (5, 0));
        assert_eq!(sender.interval.take(), (0, 0));
    }
}
