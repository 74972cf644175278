//! Counts the datagrams of a flow that arrive before the flow's session is open. The result is a
//! receipt, which tells the sender how much has arrived.

use crate::pulse::TrainMeter;
use crate::receipt::Receipt;
use crate::time::Time;
use crate::units::Bytes;
use crate::wire::Train;
use crate::wire::header::PacketNumber;

/// Collects a flow's receipt while its datagrams arrive.
#[derive(Clone, Debug)]
pub struct Collector {
    highest: u64,
    received: u64,
    meter: TrainMeter,
    /// The first packet train (datagrams sent back to back), once it was timed.
    first: Option<Train>,
}

impl Collector {
    /// A collector for datagrams of `datagram` bytes of UDP payload.
    pub fn new(datagram: Bytes) -> Collector {
        Collector { highest: 0, received: 0, meter: TrainMeter::new(datagram), first: None }
    }

    /// Counts a datagram with data that arrived at `at`.
    pub fn note(&mut self, at: Time, number: PacketNumber) {
        self.highest = self.highest.max(number.0.saturating_add(1));
        self.received += 1;
        if self.first.is_none() {
            self.meter.arrive(at, number);
            self.first = self.meter.ended().filter(|train| train.first.0 == 0);
        }
    }

    /// Returns the receipt so far.
    pub fn receipt(&self) -> Receipt {
        Receipt { highest: self.highest, received: self.received, train: self.first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pulse::TRAIN_LEN;
    use crate::time::Span;

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    #[test]
    fn a_receipt_counts_datagrams_and_times_the_first_train() {
        let mut collector = Collector::new(Bytes::new(1_000));
        for number in 0..TRAIN_LEN {
            assert_eq!(collector.receipt().train, None);
            collector.note(at(10 * number), PacketNumber(number));
        }
        let (bytes, span) = (Bytes::new(31_000), Span::from_micros(310));
        let train = Train { first: PacketNumber(0), bytes, span, steps: 31 };
        collector.note(at(1_000), PacketNumber(40));
        let receipt = collector.receipt();
        assert_eq!(receipt, Receipt { highest: 41, received: 33, train: Some(train) });
        // Later trains do not replace the first.
        for number in 1_024..1_024 + TRAIN_LEN {
            collector.note(at(2_000 + number), PacketNumber(number));
        }
        assert_eq!(collector.receipt().train, Some(train));
    }
}
