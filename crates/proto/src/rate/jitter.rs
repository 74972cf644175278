//! Jitter, which may spoil a flow's first packet train.
//!
//! The datagrams between the first train and the first rate leave slowly and make no queue. The
//! range of their round-trip times is therefore the path's jitter.

use super::pool::MIN_STEPS;
use crate::time::Span;
use crate::units::Bytes;
use crate::wire::Train;

/// Round-trip times that vary by at most this do not count as jitter: hosts that wake up late cause
/// as much variation.
const MIN_RANGE: Span = Span::from_micros(500);

/// A train counts as stretched by jitter only if it took longer than [`STRETCHED`], and at least
/// [`WHOLE`] of its datagrams arrived after the first. If fewer arrive, a short queue may have
/// dropped the others.
const STRETCHED: Span = Span::from_micros(700);
const WHOLE: u64 = 20;

/// A flow's first train, and the round-trip times of the datagrams that were sent between this
/// train and the first rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Jitter {
    /// Duration of the train, until the train is judged.
    train: Option<Span>,
    /// Whether the train arrived in a few bunches with long pauses between them, as if jitter had
    /// stretched it: without jitter, the path carries more than the train showed.
    pub(super) is_stretched: bool,
    rtts: Option<(Span, Span)>,
}

impl Jitter {
    /// Takes in the first train of a flow whose datagrams have `datagram` bytes.
    pub(super) fn note_train(&mut self, train: &Train, datagram: Bytes) {
        let is_whole = train.bytes.get() >= WHOLE * datagram.get();
        self.is_stretched = is_whole && train.steps < MIN_STEPS && train.span > STRETCHED;
        self.train = Some(train.span);
    }

    pub(super) fn note(&mut self, rtt: Span) {
        let (low, high) = self.rtts.unwrap_or((rtt, rtt));
        self.rtts = Some((low.min(rtt), high.max(rtt)));
    }

    /// The longest round-trip time minus the shortest; zero for fewer than two times.
    pub(super) fn range(&self) -> Span {
        self.rtts.map_or(Span::ZERO, |(low, high)| high - low)
    }

    /// Returns, once for each train, whether jitter may have spoiled it; false afterwards.
    pub(super) fn judge(&mut self) -> bool {
        self.train.take().is_some_and(|span| self.range() > MIN_RANGE.max(span / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::PacketNumber;

    const DATAGRAM: Bytes = Bytes::new(1_250);

    fn train(datagrams: u64, span: u64, steps: u32) -> Train {
        let bytes = Bytes::new(datagrams * DATAGRAM.get());
        Train { first: PacketNumber(0), bytes, span: micros(span), steps }
    }

    const fn micros(micros: u64) -> Span {
        Span::from_micros(micros)
    }

    #[test]
    fn jitter_is_the_range_of_the_round_trip_times() {
        let mut jitter = Jitter::default();
        assert_eq!(jitter.range(), Span::ZERO);
        for (rtt, range) in [(300, 0), (100, 200), (250, 200), (900, 800)] {
            jitter.note(micros(rtt));
            assert_eq!(jitter.range(), micros(range));
        }
    }

    #[test]
    fn jitter_above_half_a_millisecond_and_half_the_train_spoils_the_train_once() {
        for (span, range, is_spoiled) in
            [(900, 500, false), (900, 501, true), (1_200, 600, false), (1_200, 601, true)]
        {
            let mut jitter = Jitter::default();
            jitter.note(micros(20_000));
            jitter.note(micros(20_000 + range));
            assert!(!jitter.judge(), "there is no train");
            jitter.note_train(&train(31, span, 31), DATAGRAM);
            assert_eq!((jitter.judge(), jitter.judge()), (is_spoiled, false), "{span} {range}");
        }
    }

    #[test]
    fn a_nearly_whole_train_that_arrives_in_few_bunches_and_takes_long_is_stretched() {
        for (datagrams, span, steps, is_stretched) in
            [(20, 701, 5, true), (19, 701, 5, false), (20, 700, 5, false), (20, 701, 6, false)]
        {
            let mut jitter = Jitter::default();
            jitter.note_train(&train(datagrams, span, steps), DATAGRAM);
            assert_eq!(jitter.is_stretched, is_stretched, "{datagrams} {span} {steps}");
        }
    }
}
