//! Messages of NETBLT (RFC 998), which moves an object buffer by buffer. Buffers are numbered from
//! the start of the object.

use super::{Report, WireError};
use crate::time::Span;
use crate::units::{Bytes, Rate};
use crate::wire::header::Header;
use crate::wire::messages;

/// A rate, as a burst size and the time from one burst to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Datagrams of a burst; at least 1.
    pub size: u32,
    /// Time from the start of one burst to the start of the next; never zero.
    pub interval: Span,
}

/// GO: allows buffers to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Go {
    /// All buffers below this number may be sent.
    pub buffers: u64,
}

/// OK: a buffer is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferOk {
    /// The buffer.
    pub buffer: u64,
    /// The fastest rate that the receiver accepts for the following buffers, if it has a limit.
    pub offer: Option<Burst>,
}

/// RESEND: missing blocks of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resend {
    /// The buffer.
    pub buffer: u64,
    /// Highest arrived packet number plus one; datagrams sent later may be in flight.
    pub highest: u64,
    /// Missing blocks of a slice (range of blocks) of the buffer. The report's round is the number
    /// of requests for the buffer so far, this one included.
    pub report: Report,
}

/// The start of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The buffer.
    pub buffer: u64,
    /// The rate of the buffer, if the sender knows it: the sender's own rate, or the offer if that
    /// is lower.
    pub burst: Option<Burst>,
}

impl Burst {
    /// The burst of `size` datagrams of `datagram` bytes at `rate`; `None` if `size` or `rate` is
    /// zero, or if the interval would be zero.
    pub fn of(rate: Rate, size: u32, datagram: Bytes) -> Option<Burst> {
        let interval = Bytes::new(datagram.get() * u64::from(size)) / rate;
        let is_one = interval > Span::ZERO && interval < Span::MAX;
        is_one.then_some(Burst { size, interval })
    }

    /// The rate for datagrams of `datagram` bytes.
    pub fn rate(self, datagram: Bytes) -> Rate {
        Bytes::new(datagram.get().saturating_mul(self.size.into())) / self.interval
    }

    /// The duration of this many datagrams; a burst that has begun counts in full.
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
        // A request must name at least one block.
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
    fn a_rate_becomes_a_burst_and_an_interval_and_rate_zero_becomes_none() {
        let datagram = Bytes::new(1_000);
        let of = |bps, size| Burst::of(Rate::from_bps(bps), size, datagram);
        let burst = Burst { size: 5, interval: Span::from_millis(4) };
        assert_eq!(of(10_000_000, 5), Some(burst));
        assert_eq!(burst.rate(datagram), Rate::from_mbps(10));
        // A burst that has begun takes its full time.
        let times = [0, 1, 5, 6, 10].map(|datagrams| burst.time_of(datagrams));
        assert_eq!(times, [0, 4, 4, 8, 8].map(Span::from_millis));
        // No datagrams, rate zero, and a rate at which the interval would be zero.
        assert_eq!([of(10_000_000, 0), of(0, 5), of(u64::MAX, 5)], [None; 3]);
    }
}
