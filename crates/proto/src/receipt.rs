//! Receipts: what a host tells about the datagrams that it keeps for a flow before the flow's
//! session is open.
//!
//! A receipt is not authenticated. So a sender uses it only to continue sooner at a rate that an
//! earlier, authenticated flow has found ([`remembered`](crate::remembered)), and only until the
//! first authenticated report.

use crate::time::Span;
use crate::units::Bytes;
use crate::wire::Train;
use crate::wire::header::PacketNumber;

/// The state of a flow's early datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Receipt {
    /// The highest packet number that arrived, plus one.
    pub highest: u64,
    /// Number of datagrams that arrived.
    pub received: u64,
    /// The first packet train (datagrams sent back to back), once it was timed.
    pub train: Option<Train>,
}

impl Receipt {
    /// The length of an encoded receipt in bytes.
    pub const LEN: usize = 8 + 8 + 4 + 4 + 2;

    /// Encodes the receipt, big-endian: `highest` and `received`; the train's bytes, its time in ns
    /// and its steps (see [`Train`]). The train's first packet number is always 0, so it is left
    /// out. If no train was timed, its three numbers are zero. A number of the train that does not
    /// fit is encoded as the largest that does: 4 GiB, 4.29 s or 65,535 steps.
    pub fn encode(&self) -> [u8; Receipt::LEN] {
        let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let numbers = |train: Train| {
            let steps = u16::try_from(train.steps).unwrap_or(u16::MAX);
            (short(train.bytes.get()), short(train.span.as_nanos()), steps)
        };
        let (bytes, nanos, steps) = self.train.map(numbers).unwrap_or_default();
        let mut out = [0; Receipt::LEN];
        out[..8].copy_from_slice(&self.highest.to_be_bytes());
        out[8..16].copy_from_slice(&self.received.to_be_bytes());
        out[16..20].copy_from_slice(&bytes.to_be_bytes());
        out[20..24].copy_from_slice(&nanos.to_be_bytes());
        out[24..].copy_from_slice(&steps.to_be_bytes());
        out
    }

    /// Decodes any bytes. The numbers are not checked: they may be lies.
    pub fn decode(bytes: &[u8; Receipt::LEN]) -> Receipt {
        let number = |from: usize, to: usize| {
            bytes[from..to].iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte))
        };
        let train = Train {
            first: PacketNumber(0),
            bytes: Bytes::new(number(16, 20)),
            span: Span::from_nanos(number(20, 24)),
            steps: number(24, 26) as u32,
        };
        let is_timed = train.bytes > Bytes::ZERO && train.span > Span::ZERO;
        let (highest, received) = (number(0, 8), number(8, 16));
        Receipt { highest, received, train: is_timed.then_some(train) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_decoded_as_it_was_encoded_and_any_bytes_decode() {
        let train = Train {
            first: PacketNumber(0),
            bytes: Bytes::new(31_000),
            span: Span::from_micros(310),
            steps: 31,
        };
        let receipt = Receipt { highest: 41, received: 33, train: Some(train) };
        assert_eq!(Receipt::decode(&receipt.encode()), receipt);
        let untimed = Receipt { train: None, ..receipt };
        assert_eq!(Receipt::decode(&untimed.encode()), untimed);
        let slow = Train { span: Span::from_secs(5), ..train };
        let told = Receipt::decode(&Receipt { train: Some(slow), ..receipt }.encode());
        let most = Train { span: Span::from_nanos(u32::MAX.into()), ..train };
        assert_eq!(told.train, Some(most), "a time of more than 4.29 s becomes 4.29 s");
        let lie = Receipt::decode(&[0xff; Receipt::LEN]);
        assert_eq!((lie.highest, lie.received), (u64::MAX, u64::MAX));
    }
}
