//! What the two ends of a protocol that moves an object buffer by buffer say (RFC 998). Buffers
//! are counted through the object.

use super::{Report, WireError};
use crate::time::Span;
use crate::units::{Bytes, Rate};
use crate::wire::header::Header;
use crate::wire::messages;

/// A rate, as so many datagrams at once and the time from one such burst to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Datagrams of a burst; at least 1.
    pub size: u32,
    /// From the start of one burst to that of the next; never zero.
    pub interval: Span,
}

/// GO: buffers may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Go {
    /// All below this one.
    pub buffers: u64,
}

/// OK: a buffer has come whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferOk {
    /// The buffer.
    pub buffer: u64,
    /// The fastest that the receiver takes the buffers that follow, if it minds.
    pub offer: Option<Burst>,
}

/// RESEND: what is missing of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resend {
    /// The buffer.
    pub buffer: u64,
    /// One more than the highest packet number that had come: what left later may be on its way.
    pub highest: u64,
    /// Missing blocks of a slice of the buffer. Its round counts the requests about the buffer.
    pub report: Report,
}

/// A buffer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The buffer.
    pub buffer: u64,
    /// How fast it comes, if the sender knows: its own rate, or the offer if that is lower.
    pub burst: Option<Burst>,
}

impl Burst {
    /// The burst of so many datagrams of `datagram` bytes that makes `rate`; nothing at standstill.
    pub fn of(rate: Rate, size: u32, datagram: Bytes) -> Option<Burst> {
        let interval = Bytes::new(datagram.get() * u64::from(size)) / rate;
        let is_one = size > 0 && interval > Span::ZERO && interval < Span::MAX;
        is_one.then_some(Burst { size, interval })
    }

    /// The rate for datagrams of `datagram` bytes.
    pub fn rate(self, datagram: Bytes) -> Rate {
        Bytes::new(datagram.get().saturating_mul(self.size.into())) / self.interval
    }

    /// How long so many datagrams take.
    pub(crate) fn time_of(self, datagrams: u64) -> Span {
        self.interval * datagrams.div_ceil(self.size.into())
    }

    fn to_wire(self) -> messages::Burst {
        messages::Burst { size: self.size, interval: self.interval.as_nanos() }
    }

    fn from_wire(wire: &messages::Burst) -> Result<Burst, WireError> {
        if wire.size == 0 || wire.interval == 0 {
            return Err(WireError::Range);
        }
        Ok(Burst { size: wire.size, interval: Span::from_nanos(wire.interval) })
    }
}

impl Go {
    pub(super) fn to_wire(self) -> messages::Go {
        messages::Go { buffers: self.buffers }
    }

    pub(super) fn from_wire(wire: &messages::Go) -> Result<Go, WireError> {
        let is_possible = (1..=Header::BLOCKS).contains(&wire.buffers);
        if is_possible { Ok(Go { buffers: wire.buffers }) } else { Err(WireError::Range) }
    }
}

impl BufferOk {
    pub(super) fn to_wire(self) -> messages::BufferOk {
        messages::BufferOk { buffer: self.buffer, offer: self.offer.map(Burst::to_wire) }
    }

    pub(super) fn from_wire(wire: &messages::BufferOk) -> Result<BufferOk, WireError> {
        let offer = wire.offer.as_ref().map(Burst::from_wire).transpose()?;
        Ok(BufferOk { buffer: wire.buffer, offer })
    }
}

impl Resend {
    pub(super) fn to_wire(&self) -> messages::Resend {
        let report = Some(self.report.to_wire());
        messages::Resend { buffer: self.buffer, highest: self.highest, report }
    }

    pub(super) fn from_wire(wire: messages::Resend) -> Result<Resend, WireError> {
        let report = Report::from_wire(wire.report.ok_or(WireError::Range)?)?;
        // A request is about something.
        if report.missing().is_empty() || wire.highest > Header::NUMBERS {
            return Err(WireError::Range);
        }
        Ok(Resend { buffer: wire.buffer, highest: wire.highest, report })
    }
}

impl Begun {
    pub(super) fn to_wire(self) -> messages::Begun {
        messages::Begun { buffer: self.buffer, burst: self.burst.map(Burst::to_wire) }
    }

    pub(super) fn from_wire(wire: &messages::Begun) -> Result<Begun, WireError> {
        let burst = wire.burst.as_ref().map(Burst::from_wire).transpose()?;
        Ok(Begun { buffer: wire.buffer, burst })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_datagrams_at_once_and_the_time_to_the_next_and_none_at_standstill() {
        let datagram = Bytes::new(1_000);
        let of = |bps, size| Burst::of(Rate::from_bps(bps), size, datagram);
        let burst = Burst { size: 5, interval: Span::from_millis(4) };
        assert_eq!(of(10_000_000, 5), Some(burst));
        assert_eq!(burst.rate(datagram), Rate::from_mbps(10));
        // A burst that has begun takes its whole time.
        let times = [0, 1, 5, 6, 10].map(|datagrams| burst.time_of(datagrams));
        assert_eq!(times, [0, 4, 4, 8, 8].map(Span::from_millis));
        // No datagrams, no rate, and a rate at which no time passes.
        assert_eq!([of(10_000_000, 0), of(0, 5), of(u64::MAX, 5)], [None; 3]);
    }
}
