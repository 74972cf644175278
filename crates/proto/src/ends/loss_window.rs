//! The loss ratio to expect. It comes from the receiver's counts of the flow's recent datagrams;
//! while too few datagrams are counted, from an earlier flow over the same path.

use crate::units::LossRatio;

/// A window holds about one to two times this many datagrams; at the start of a flow, fewer.
const WINDOW: u64 = 8_192;
/// A remembered ratio counts only until this many datagrams were reported.
const ENOUGH: u64 = 2_000;
/// A remembered ratio counts as wrong if the number of lost datagrams differs from the expected
/// number by more than this many standard deviations plus one datagram.
const DEVIATIONS: f64 = 2.5;

/// The loss ratio to expect of the next datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Expected {
    pub(crate) ratio: LossRatio,
    /// Whether an earlier flow found the ratio; otherwise the ratio is that of this flow.
    pub(crate) is_remembered: bool,
}

/// A window of the flow's recent datagrams. Each pair is the highest packet number plus one and the
/// number of received datagrams: at the window's start, at its middle, and now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossWindow {
    start: (u64, u64),
    middle: (u64, u64),
    now: (u64, u64),
    remembered: Option<LossRatio>,
}

impl LossWindow {
    /// A window without counts, on a path that lost the share `remembered` of an earlier flow's
    /// datagrams.
    pub(crate) fn new(remembered: Option<LossRatio>) -> LossWindow {
        LossWindow { remembered, ..LossWindow::default() }
    }

    /// Notes that the receiver has `received` datagrams, the highest with number `highest` − 1.
    pub(crate) fn note(&mut self, highest: u64, received: u64) {
        if highest.saturating_sub(self.middle.0) >= WINDOW {
            self.start = self.middle;
            self.middle = (highest, received);
        }
        self.now = (highest, received);
    }

    /// Returns the loss ratio to expect. This is the remembered ratio while fewer than [`ENOUGH`]
    /// datagrams were reported and the counts do not refute it; otherwise, the ratio since the
    /// start of the window. Without a remembered ratio, `None` until `least` datagrams were sent.
    pub(crate) fn expected(&self, least: u64) -> Option<Expected> {
        let sent = self.now.0.saturating_sub(self.start.0);
        let lost = sent.saturating_sub(self.now.1.saturating_sub(self.start.1));
        match self.remembered {
            Some(ratio) if sent < ENOUGH && agree(lost, sent, ratio) => {
                Some(Expected { ratio, is_remembered: true })
            }
            None if sent < least => None,
            _ => Some(Expected { ratio: LossRatio::of(lost, sent), is_remembered: false }),
        }
    }
}

/// Whether `lost` of `sent` datagrams is a plausible loss on a path with this loss ratio.
fn agree(lost: u64, sent: u64, ratio: LossRatio) -> bool {
    let (sent, ratio) = (sent as f64, ratio.get());
    let noise = DEVIATIONS * libm::sqrt(sent * ratio * (1.0 - ratio));
    (lost as f64 - sent * ratio).abs() <= noise + 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_8192_to_16383_datagrams_and_fewer_at_the_start_of_a_flow() {
        let mut window = LossWindow::default();
        let ratio = |window: &LossWindow| window.expected(512).map(|loss| loss.ratio.get());
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

    #[test]
    fn a_remembered_ratio_holds_until_2000_datagrams_were_counted_or_the_counts_refute_it() {
        let (remembered, counted) = (|ratio| Some((ratio, true)), |ratio| Some((ratio, false)));
        let expected = |ratio, sent, lost| {
            let mut window = LossWindow::new(LossRatio::new(ratio));
            window.note(sent, sent - lost);
            window.expected(500).map(|loss| (loss.ratio.get(), loss.is_remembered))
        };
        assert_eq!([0.01, 0.0].map(|ratio| expected(ratio, 0, 0)), [0.01, 0.0].map(remembered));
        // At 1 %, 19 ± 4.337 of 1,900 datagrams are lost. The numbers 8 to 30 are within 2.5
        // standard deviations plus one datagram.
        let of_1900 = |lost| expected(0.01, 1_900, lost);
        assert_eq!([8, 30].map(of_1900), [remembered(0.01); 2]);
        assert_eq!([7, 31].map(of_1900), [7.0, 31.0].map(|lost| counted(lost / 1_900.0)));
        assert_eq!(expected(0.01, 1_999, 10), remembered(0.01));
        assert_eq!(expected(0.01, 2_000, 10), counted(0.005));
        // On a path that has lost nothing, one loss is plausible; a second loss refutes the ratio.
        assert_eq!(expected(0.0, 100, 1), remembered(0.0));
        assert_eq!(expected(0.0, 100, 2), counted(0.02));
        // On a path that loses everything, one datagram may arrive.
        assert_eq!(expected(1.0, 100, 99), remembered(1.0));
        assert_eq!(expected(1.0, 100, 98), counted(0.98));
    }
}
