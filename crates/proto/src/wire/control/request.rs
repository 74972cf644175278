//! Messages of a receiver that requests its data (GTP, section 3.3), and the sender's answers.
//! Block numbers are those of [`Layout::number`](crate::layout::Layout::number).

use alloc::vec::Vec;
use core::ops::Range;

use super::{WireError, runs};
use crate::time::Span;
use crate::units::Rate;
use crate::wire::header::Header;
use crate::wire::messages;

/// Blocks that the receiver requests, and the rate from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    sequence: u64,
    rate: Rate,
    anew: bool,
    blocks: Vec<Range<u64>>,
}

/// The sender's limits and progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderOffer {
    /// Number of the offer, from 1: a late offer with a lower number is ignored.
    pub sequence: u64,
    /// The sender's round-trip time.
    pub rtt: Span,
    /// The lower of the sender's rate limit and the speed of its network card, in bits a second of
    /// UDP payload; `None` if neither is known.
    pub limit: Option<Rate>,
    /// Number of a request: all blocks of the requests up to this number have been sent, or need
    /// not be sent. 0 stands for the blocks sent before any request.
    pub answered: u64,
    /// Highest packet number used when the last block of request `answered` was sent, plus one.
    pub highest: u64,
}

impl Request {
    /// A request with as many runs of `blocks` as one message holds; the runs are in order and do
    /// not touch. The rest stays in the iterator. Without runs the request only changes the rate.
    pub fn fill(
        sequence: u64,
        rate: Rate,
        anew: bool,
        blocks: &mut core::iter::Peekable<impl Iterator<Item = Range<u64>>>,
    ) -> Request {
        Request { sequence, rate, anew, blocks: runs::take(blocks) }
    }

    /// Number of the request, from 1. Requests are obeyed in order, each at most once.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The allowed rate from now on, in bits a second of UDP payload.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Whether the sender forgets requested blocks that it has not sent yet.
    pub fn is_anew(&self) -> bool {
        self.anew
    }

    /// The blocks, in order, in disjoint runs.
    pub fn blocks(&self) -> &[Range<u64>] {
        &self.blocks
    }

    pub(super) fn to_wire(&self) -> messages::Request {
        let blocks = runs::write(0, self.blocks.iter().cloned());
        let (sequence, rate) = (self.sequence, self.rate.as_bps());
        messages::Request { sequence, rate, anew: self.anew, blocks }
    }

    pub(super) fn from_wire(wire: &messages::Request) -> Result<Request, WireError> {
        if wire.sequence == 0 || wire.rate == 0 {
            return Err(WireError::Range);
        }
        let blocks = runs::read(&wire.blocks, 0..Header::BLOCKS)?;
        let (sequence, rate) = (wire.sequence, Rate::from_bps(wire.rate));
        Ok(Request { sequence, rate, anew: wire.anew, blocks })
    }
}

impl SenderOffer {
    pub(super) fn to_wire(self) -> messages::SenderOffer {
        messages::SenderOffer {
            sequence: self.sequence,
            rtt: self.rtt.as_nanos(),
            limit: self.limit.map(Rate::as_bps),
            answered: self.answered,
            highest: self.highest,
        }
    }

    pub(super) fn from_wire(wire: &messages::SenderOffer) -> Result<SenderOffer, WireError> {
        if wire.sequence == 0 || wire.limit == Some(0) || wire.highest > Header::NUMBERS {
            return Err(WireError::Range);
        }
        Ok(SenderOffer {
            sequence: wire.sequence,
            rtt: Span::from_nanos(wire.rtt),
            limit: wire.limit.map(Rate::from_bps),
            answered: wire.answered,
            highest: wire.highest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Control, MAX_CONTROL};

    fn encoded(control: &Control) -> Vec<u8> {
        let mut out = Vec::new();
        control.encode(&mut out);
        out
    }

    #[test]
    fn long_requests_are_split_into_messages_within_the_limit_and_survive_the_wire() {
        let run = |n: u64| n * 1000 + (1 << 40)..n * 1000 + (1 << 40) + 7;
        let all: Vec<Range<u64>> = (0..3000).map(run).collect();
        let (mut rest, mut heard) = (all.iter().cloned().peekable(), Vec::new());
        for sequence in 1.. {
            let request = Request::fill(sequence, Rate::from_mbps(9), sequence == 1, &mut rest);
            let bytes = encoded(&Control::Request(request.clone()));
            assert!(bytes.len() <= MAX_CONTROL);
            assert_eq!(Control::decode(&bytes), Ok(Control::Request(request.clone())));
            heard.extend_from_slice(request.blocks());
            if rest.peek().is_none() {
                break;
            }
        }
        assert_eq!(heard, all);
    }

    #[test]
    fn an_offer_survives_the_wire_and_invalid_offers_and_requests_are_refused() {
        let limit = Some(Rate::from_mbps(900));
        let rtt = Span::from_millis(40);
        let offer = SenderOffer { sequence: 3, rtt, limit, answered: 7, highest: 99 };
        let bytes = encoded(&Control::SenderOffer(offer));
        assert_eq!(Control::decode(&bytes), Ok(Control::SenderOffer(offer)));
        let most = SenderOffer { highest: Header::NUMBERS, ..offer };
        let bytes = encoded(&Control::SenderOffer(most));
        assert_eq!(Control::decode(&bytes), Ok(Control::SenderOffer(most)));
        let none = &mut core::iter::empty().peekable();
        for lie in [
            Control::SenderOffer(SenderOffer { sequence: 0, ..offer }),
            Control::SenderOffer(SenderOffer { limit: Some(Rate::ZERO), ..offer }),
            Control::SenderOffer(SenderOffer { highest: Header::NUMBERS + 1, ..offer }),
            Control::Request(Request::fill(0, Rate::from_mbps(1), false, none)),
            Control::Request(Request::fill(1, Rate::ZERO, false, none)),
        ] {
            assert_eq!(Control::decode(&encoded(&lie)), Err(WireError::Range), "{lie:?}");
        }
    }
}
