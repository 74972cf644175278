//! SABUL's flow window: the limit on unacknowledged blocks.

use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};

/// Lower limit of the window's maximum in blocks, unless the application sets the maximum or the
/// window follows the arrival rate. A window of one block would wait for each acknowledgement.
const LEAST: u64 = 2;

/// Blocks added to a window that follows the arrival rate, as in UDT. Without these blocks the
/// window would never let the rate grow.
const MORE: u64 = 16;

/// Weight of the newest acknowledgement in the average arrival rate, as in the average of losses.
const WEIGHT: f64 = 0.125;

/// "The flow window is 1 packet initially. Its size is increased to the number of acknowledged
/// packets after each received ACK until it reaches the maximum window size or an NAK packet is
/// received. Once the NAK is received, the flow window is set to the maximum value, and is not
/// changed." (Section 3.5.)
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    size: u64,
    /// Lower limit of the maximum, in blocks.
    least: u64,
    /// The maximum that the application set, if any.
    set: Option<u64>,
    datagram: Bytes,
    /// The cap on the flow's rate; without a cap, the highest rate that the flow was set to.
    rate: Rate,
    full: bool,
    /// The arrival rate, if the window follows it.
    available: Option<Available>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Available {
    /// Time of the last acknowledgement, and the number of arrived blocks that it reported.
    last: Option<(Time, u64)>,
    /// Blocks a second; `None` before the second acknowledgement.
    rate: Option<f64>,
}

impl Available {
    fn note(&mut self, now: Time, received: u64) {
        let (at, before) = self.last.unwrap_or((now, received));
        if received < before {
            // An older acknowledgement arrived late.
            return;
        }
        let seconds = now.since(at).as_secs_f64();
        if seconds > 0.0 {
            let news = (received - before) as f64 / seconds;
            self.rate = Some(self.rate.map_or(news, |rate| rate + (news - rate) * WEIGHT));
        }
        self.last = Some((now, received));
    }
}

impl Window {
    pub(super) fn new(first: u64, datagram: Bytes) -> Window {
        let least = first.max(LEAST);
        Window {
            size: first,
            least,
            set: None,
            datagram,
            rate: Rate::ZERO,
            full: false,
            available: None,
        }
    }

    /// Ends the start phase: from now on the maximum may be below the initial window.
    pub(super) fn end_start(&mut self) {
        self.least = LEAST;
    }

    /// A window without limit, until [`Window::set_most`] or the arrival rate sets one.
    pub(super) fn unlimited(datagram: Bytes) -> Window {
        Window { set: Some(u64::MAX), full: true, ..Window::new(0, datagram) }
    }

    /// Sets the maximum that the application chose; 0 changes nothing.
    pub(super) fn set_most(&mut self, blocks: u64) {
        if blocks > 0 {
            self.set = Some(blocks);
        }
    }

    pub(super) fn follow_arrivals(&mut self) {
        self.available = Some(Available::default());
    }

    pub(super) fn note_arrivals(&mut self, now: Time, received: u64) {
        if let Some(available) = &mut self.available {
            available.note(now, received);
        }
    }

    pub(super) fn note_rate(&mut self, rate: Rate) {
        self.rate = self.rate.max(rate);
    }

    /// "A good window size is the product of bandwidth and (SYN + RTT)." (Section 3.4.)
    fn most(&self, sync: Span, rtt: Span) -> u64 {
        if let Some(arrives) = self.available.and_then(|available| available.rate) {
            let most = (arrives * (sync + rtt).as_secs_f64()) as u64 + MORE;
            return most.min(self.set.unwrap_or(u64::MAX));
        }
        let good = self.rate.over(sync + rtt).get() / self.datagram.get().max(1);
        self.set.unwrap_or(good.max(self.least))
    }

    pub(super) fn on_ack(&mut self, acknowledged: u64) {
        self.size = self.size.max(acknowledged);
    }

    pub(super) fn on_loss(&mut self) {
        self.full = true;
    }

    /// The limit on unacknowledged blocks on a path with round-trip time `rtt`, if the receiver
    /// acknowledges every `sync`.
    pub(super) fn size(&self, sync: Span, rtt: Span) -> u64 {
        let most = self.most(sync, rtt);
        if self.full { most } else { self.size.min(most) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_acknowledgement_has_a_weight_of_one_eighth_in_the_average_arrival_rate() {
        let mut available = Available::default();
        let mut after = |millis, received| {
            available.note(Time::ZERO + Span::from_millis(millis), received);
            available.rate
        };
        assert_eq!([after(0, 50), after(0, 50)], [None, None]);
        assert_eq!(after(1_000, 150), Some(100.0));
        assert_eq!(after(1_000, 170), Some(100.0), "no time has passed");
        assert_eq!(after(1_500, 160), Some(100.0), "an older acknowledgement");
        assert_eq!(after(2_500, 340), Some(100.0 + (170.0 / 1.5 - 100.0) / 8.0));
    }

    /// The window's size, for an interval of 10 ms and a round trip of 90 ms.
    fn size(window: &Window) -> u64 {
        window.size(Span::from_millis(10), Span::from_millis(90))
    }

    #[test]
    fn the_window_grows_with_acknowledgements_to_rate_times_delay() {
        let mut window = Window::new(1, Bytes::new(1_000));
        window.note_rate(Rate::from_mbps(8));
        window.note_rate(Rate::from_mbps(4));
        let mut after = |acknowledged| {
            window.on_ack(acknowledged);
            size(&window)
        };
        assert_eq!([0, 50, 30, 101].map(&mut after), [1, 50, 50, 100]);
        let mut lost = Window { rate: Rate::from_mbps(8), ..Window::new(1, Bytes::new(1_000)) };
        lost.on_loss();
        assert_eq!(size(&lost), 100);
    }

    #[test]
    fn the_maximum_is_at_least_the_first_window_until_the_start_ends() {
        let mut window = Window::new(32, Bytes::new(1_000));
        window.on_loss();
        assert_eq!(size(&window), 32);
        window.end_start();
        assert_eq!(size(&window), LEAST);
        window.set_most(0);
        assert_eq!(size(&window), LEAST);
        window.set_most(1);
        assert_eq!(size(&window), 1);
    }

    #[test]
    fn arrivals_or_the_application_can_limit_a_window_that_starts_unlimited() {
        let mut window = Window::unlimited(Bytes::new(1_000));
        assert_eq!(size(&window), u64::MAX);
        window.follow_arrivals();
        window.note_arrivals(Time::ZERO, 0);
        assert_eq!(size(&window), u64::MAX);
        window.note_arrivals(Time::ZERO + Span::from_secs(1), 100);
        assert_eq!(size(&window), 10 + MORE);
        window.set_most(20);
        assert_eq!(size(&window), 20);
    }
}
