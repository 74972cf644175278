//! The header in front of every datagram: 16 bytes, big-endian. A seal encrypts the content of a
//! datagram, and authenticates the content and the header. Probes and their answers have no seal.
//! With `--cipher none`, data datagrams end with a token instead of a seal.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0 | [`Kind`] |
//! | 1–4 | flow |
//! | 5–9 | packet number |
//! | 10–15 | block, counted from the start of the object |
//!
//! In a flow of a stream or channel, the block field holds a number that the stream or channel
//! defines. A probe and its answer have the same random block field. In control messages and
//! challenges the field is 0.

/// The id of a flow: the datagrams of one object, stream or channel from one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

/// The number of a datagram within its flow. Every transmission has its own number, even if it
/// repeats a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketNumber(pub u64);

/// The kind of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A block or coded symbol of the object, or a datagram of a stream or channel.
    Data,
    /// A sealed control message.
    Control,
    /// A probe of the path's packet size.
    Probe,
    /// The answer to a probe.
    ProbeAnswer,
    /// A challenge: a random value that an address must echo before it is trusted.
    Challenge,
    /// The echoed value of a challenge.
    ChallengeAnswer,
}

impl Kind {
    const fn code(self) -> u8 {
        match self {
            Kind::Data => 1,
            Kind::Control => 2,
            Kind::Probe => 3,
            Kind::ProbeAnswer => 4,
            Kind::Challenge => 5,
            Kind::ChallengeAnswer => 6,
        }
    }

    const fn from_code(code: u8) -> Option<Kind> {
        match code {
            1 => Some(Kind::Data),
            2 => Some(Kind::Control),
            3 => Some(Kind::Probe),
            4 => Some(Kind::ProbeAnswer),
            5 => Some(Kind::Challenge),
            6 => Some(Kind::ChallengeAnswer),
            _ => None,
        }
    }
}

/// A datagram's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the datagram.
    pub kind: Kind,
    /// The flow to which the datagram belongs.
    pub flow: FlowId,
    /// The datagram's number within the flow; below 2⁴⁰.
    pub number: PacketNumber,
    /// The block's number, counted from the start of the object; below 2⁴⁸.
    pub block: u64,
}

impl Header {
    /// The header's length in bytes.
    pub const LEN: usize = 16;
    /// One more than the highest packet number that fits.
    pub const NUMBERS: u64 = 1 << 40;
    /// One more than the highest block number that fits.
    pub const BLOCKS: u64 = 1 << 48;

    /// Writes the header. Number and block must be below [`Header::NUMBERS`] and
    /// [`Header::BLOCKS`].
    pub fn encode(&self, out: &mut [u8; Header::LEN]) {
        debug_assert!(self.number.0 < Header::NUMBERS && self.block < Header::BLOCKS);
        out[0] = self.kind.code();
        out[1..5].copy_from_slice(&self.flow.0.to_be_bytes());
        out[5..10].copy_from_slice(&self.number.0.to_be_bytes()[3..]);
        out[10..].copy_from_slice(&self.block.to_be_bytes()[2..]);
    }

    /// Reads the header at the start of a datagram; `None` if the datagram is too short or of an
    /// unknown kind.
    pub fn decode(datagram: &[u8]) -> Option<Header> {
        let bytes: &[u8; Header::LEN] = datagram.first_chunk()?;
        let tail = |from: usize, len: usize| {
            bytes[from..from + len].iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
        };
        Some(Header {
            kind: Kind::from_code(bytes[0])?,
            flow: FlowId(tail(1, 4) as u32),
            number: PacketNumber(tail(5, 5)),
            block: tail(10, 6),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: Header = Header {
        kind: Kind::Data,
        flow: FlowId(0x0102_0304),
        number: PacketNumber(0x05_0607_0809),
        block: 0x0a0b_0c0d_0e0f,
    };
    const BYTES: [u8; 16] = [1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    #[test]
    fn a_header_has_the_bytes_of_the_wire_format() {
        let mut out = [0; Header::LEN];
        HEADER.encode(&mut out);
        assert_eq!(out, BYTES);
        assert_eq!(Header::decode(&BYTES), Some(HEADER));
    }

    #[test]
    fn every_truncation_is_refused() {
        for len in 0..Header::LEN {
            assert_eq!(Header::decode(&BYTES[..len]), None);
        }
    }

    #[test]
    fn kinds_from_one_to_six_are_known_and_no_others() {
        for code in 0..=255u8 {
            let mut bytes = BYTES;
            bytes[0] = code;
            let known = Header::decode(&bytes).map(|header| header.kind.code());
            assert_eq!(known, (1..=6).contains(&code).then_some(code));
        }
    }

    proptest! {
        #[test]
        fn a_header_survives_the_wire(
            code in 1u8..=6, flow: u32, number in 0..Header::NUMBERS, block in 0..Header::BLOCKS,
        ) {
            let kind = Kind::from_code(code).unwrap();
            let header =
                Header { kind, flow: FlowId(flow), number: PacketNumber(number), block };
            let mut out = [0; Header::LEN];
            header.encode(&mut out);
            prop_assert_eq!(Header::decode(&out), Some(header));
        }
    }
}
