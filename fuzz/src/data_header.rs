//! The header of every datagram, which is parsed before the seal is verified.

use longhaul_proto::wire::Header;

/// Checks that a parsed header is within its limits, and encodes to the same bytes.
pub fn run(bytes: &[u8]) {
    let Some(header) = Header::decode(bytes) else { return };
    assert!(header.number.0 < Header::NUMBERS && header.block < Header::BLOCKS);
    let mut out = [0; Header::LEN];
    header.encode(&mut out);
    assert_eq!(out[..], bytes[..Header::LEN]);
}
