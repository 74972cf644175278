//! The flow window: how many blocks may be unacknowledged.

use crate::time::Span;
use crate::units::{Bytes, Rate};

/// A maximum of one block would wait for each acknowledgement.
const LEAST: u64 = 2;

/// "The flow window is 1 packet initially. Its size is increased to the number of acknowledged
/// packets after each received ACK until it reaches the maximum window size or an NAK packet is
/// received. Once the NAK is received, the flow window is set to the maximum value, and is not
/// changed." (Section 3.5.)
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    size: u64,
    /// The maximum is no less than this.
    least: u64,
    /// The maximum, if it was set.
    set: Option<u64>,
    datagram: Bytes,
    /// The highest rate that the flow knows of.
    rate: Rate,
    full: bool,
}

impl Window {
    /// A window that starts at `first` blocks, whatever the rate then is.
    pub(super) fn new(first: u64, datagram: Bytes) -> Window {
        let least = first.max(LEAST);
        Window { size: first, least, set: None, datagram, rate: Rate::ZERO, full: false }
    }

    /// The first blocks have shown the rate: from now on it alone makes the maximum.
    pub(super) fn end_start(&mut self) {
        self.least = LEAST;
    }

    /// A window that lets everything go, until [`Window::set_most`].
    pub(super) fn unlimited(datagram: Bytes) -> Window {
        Window { set: Some(u64::MAX), full: true, ..Window::new(0, datagram) }
    }

    /// The application has set the maximum; 0 sets none.
    pub(super) fn set_most(&mut self, blocks: u64) {
        if blocks > 0 {
            self.set = Some(blocks);
        }
    }

    /// The flow sends at `rate`, which the path may well carry.
    pub(super) fn note_rate(&mut self, rate: Rate) {
        self.rate = self.rate.max(rate);
    }

    /// "A good window size is the product of bandwidth and (SYN + RTT)." (Section 3.4.)
    fn most(&self, sync: Span, rtt: Span) -> u64 {
        let good = self.rate.over(sync + rtt).get() / self.datagram.get().max(1);
        self.set.unwrap_or(good.max(self.least))
    }

    /// So many blocks have been acknowledged since the start.
    pub(super) fn on_ack(&mut self, acknowledged: u64) {
        self.size = self.size.max(acknowledged);
    }

    /// A loss has been reported.
    pub(super) fn on_loss(&mut self) {
        self.full = true;
    }

    /// How many blocks may be unacknowledged where reports come each `sync`.
    pub(super) fn size(&self, sync: Span, rtt: Span) -> u64 {
        let most = self.most(sync, rtt);
        if self.full { most } else { self.size.min(most) }
    }
}
