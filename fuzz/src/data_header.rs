//! The header in front of every datagram: comes in before the seal has been looked at.

use longhaul_proto::wire::Header;

/// A header that is read is written as the same bytes.
pub fn run(bytes: &[u8]) {
    let Some(header) = Header::decode(bytes) else { return };
    assert!(header.number.0 < Header::NUMBERS && header.block < Header::BLOCKS);
    let mut out = [0; Header::LEN];
    header.encode(&mut out);
    assert_eq!(out[..], bytes[..Header::LEN]);
}
