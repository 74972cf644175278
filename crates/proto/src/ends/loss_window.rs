//! The loss ratio of a flow's recent datagrams, from the receiver's counts.

use crate::units::LossRatio;

/// A window holds about one to two times this many datagrams; at the start of a flow, fewer.
const WINDOW: u64 = 8_192;

/// The highest packet number plus one and the number of received datagrams, at the start and the
/// middle of the window and now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossWindow {
    start: (u64, u64),
    middle: (u64, u64),
    now: (u64, u64),
}

impl LossWindow {
    /// Notes that the receiver has `received` datagrams, the highest with number `highest` − 1.
    pub(crate) fn note(&mut self, highest: u64, received: u64) {
        if highest.saturating_sub(self.middle.0) >= WINDOW {
            self.start = self.middle;
            self.middle = (highest, received);
        }
        self.now = (highest, received);
    }

    /// Returns the loss ratio since the start of the window; `None` after fewer than `least`
    /// datagrams.
    pub(crate) fn ratio(&self, least: u64) -> Option<LossRatio> {
        let sent = self.now.0.saturating_sub(self.start.0);
        let received = self.now.1.saturating_sub(self.start.1);
        (sent >= least).then(|| LossRatio::of(sent.saturating_sub(received), sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_8192_to_16384_datagrams() {
        let mut window = LossWindow::default();
        let ratio = |window: &LossWindow| window.ratio(512).map(LossRatio::get);
        window.note(511, 500);
        assert_eq!(ratio(&window), None);
        window.note(512, 384);
        assert_eq!(ratio(&window), Some(0.25));
        window.note(8_192, 4_096);
        assert_eq!(ratio(&window), Some(0.5));
        // From here on nothing is lost. Until number 16,384 the window starts at 0, then at 8,192.
        window.note(16_383, 12_287);
        assert_eq!(ratio(&window), Some(4_096.0 / 16_383.0));
        window.note(16_384, 12_288);
        assert_eq!(ratio(&window), Some(0.0));
        // Datagrams that were sent before the window may arrive within the window, so the count of
        // arrivals may exceed the count of sent datagrams.
        window.note(16_385, 12_300);
        assert_eq!(ratio(&window), Some(0.0));
    }
}
