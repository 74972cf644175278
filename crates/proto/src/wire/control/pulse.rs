//! A pulse: the receiver's periodic report on a flow.

use super::WireError;
use crate::time::Span;
use crate::units::{Bytes, Rate};
use crate::wire::header::{Header, PacketNumber};
use crate::wire::messages;

/// The newest arrived datagram and its age, from which the sender computes the round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The number of the datagram.
    pub number: PacketNumber,
    /// The time between the datagram's arrival and the pulse.
    pub age: Span,
}

/// How far the path spread a packet train (datagrams sent back to back).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    /// The number of the train's first datagram.
    pub first: PacketNumber,
    /// UDP payload that arrived after the first arrival of the train. If the receiving host slept
    /// during the train, the datagrams that arrived at the end of the sleep do not count.
    pub bytes: Bytes,
    /// The time from the first arrival to the last, without a sleep of the receiving host; never
    /// zero.
    pub span: Span,
    /// Number of distinct arrival times after the first. A host that seldom reads its socket sees
    /// few steps and times the train poorly.
    pub steps: u32,
}

/// The state of a flow at the receiver. All counts start with the flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// Number of the pulse. If a pulse arrives after a later one, only its grant is used.
    pub sequence: u64,
    /// Time since the receiver first knew the flow.
    pub clock: Span,
    /// Highest arrived packet number plus one.
    pub highest: u64,
    /// Data datagrams that arrived.
    pub received: u64,
    /// Blocks that arrived for the first time.
    pub distinct: u64,
    /// Bytes of blocks that may be sent for the first time.
    pub grant: Bytes,
    /// The rate at which the receiving host empties its buffers, if known.
    pub drain: Option<Rate>,
    /// The newest datagram.
    pub echo: Option<Echo>,
    /// The newest packet train.
    pub train: Option<Train>,
    /// Datagrams that the receiver's own socket dropped.
    pub socket_lost: u64,
}

impl Pulse {
    pub(super) fn to_wire(self) -> messages::Pulse {
        messages::Pulse {
            sequence: self.sequence,
            clock: self.clock.as_nanos(),
            highest: self.highest,
            received: self.received,
            distinct: self.distinct,
            grant: self.grant.get(),
            drain: self.drain.map(Rate::as_bps),
            echo: self.echo.map(|echo| echo.number.0),
            echo_age: self.echo.map_or(0, |echo| echo.age.as_nanos()),
            train: self.train.map(|train| train.first.0),
            train_bytes: self.train.map_or(0, |train| train.bytes.get()),
            train_span: self.train.map_or(0, |train| train.span.as_nanos()),
            train_steps: self.train.map_or(0, |train| train.steps),
            socket_lost: self.socket_lost,
        }
    }

    pub(super) fn from_wire(wire: &messages::Pulse) -> Result<Pulse, WireError> {
        let number = |number: u64| {
            if number < wire.highest { Ok(PacketNumber(number)) } else { Err(WireError::Range) }
        };
        let counts_fit = wire.highest <= Header::NUMBERS
            && wire.received <= wire.highest
            && wire.distinct <= wire.received;
        if !counts_fit || (wire.train.is_some() && wire.train_span == 0) || wire.drain == Some(0) {
            return Err(WireError::Range);
        }
        let echo = wire.echo.map(number).transpose()?;
        let train = wire.train.map(number).transpose()?;
        Ok(Pulse {
            sequence: wire.sequence,
            clock: Span::from_nanos(wire.clock),
            highest: wire.highest,
            received: wire.received,
            distinct: wire.distinct,
            grant: Bytes::new(wire.grant),
            drain: wire.drain.map(Rate::from_bps),
            echo: echo.map(|number| Echo { number, age: Span::from_nanos(wire.echo_age) }),
            train: train.map(|first| Train {
                first,
                bytes: Bytes::new(wire.train_bytes),
                span: Span::from_nanos(wire.train_span),
                steps: wire.train_steps,
            }),
            socket_lost: wire.socket_lost,
        })
    }
}
