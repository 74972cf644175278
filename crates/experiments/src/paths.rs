//! Converts link rates and the papers' rates to rates of UDP payload.

use longhaul_proto::units::Rate;

/// Bytes of a datagram besides its block: header and authentication tag.
pub(crate) const OVERHEAD: u32 = 32;
/// Object bytes in a 1500-byte packet, after 28 bytes of IP and UDP headers and [`OVERHEAD`].
pub(crate) const BLOCK: u32 = 1_440;
/// Wire bytes of a full packet: 1500 and Ethernet's 38.
const FRAME: f64 = 1_538.0;

/// A link's capacity for UDP payload in full packets.
pub(crate) fn payload_ceiling(link: Rate) -> Rate {
    link.scale(f64::from(BLOCK + OVERHEAD) / FRAME)
}

/// The rate of UDP payload at which a flow carries `rate` of object data. The papers' rates exclude
/// our header and tag, but a flow's rate includes them.
pub(crate) fn with_overhead(rate: Rate) -> Rate {
    rate.scale(f64::from(BLOCK + OVERHEAD) / f64::from(BLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_packet_carries_1440_of_1538_bytes() {
        let link = Rate::from_mbps(1_538);
        assert_eq!(payload_ceiling(link), Rate::from_mbps(1_472));
        assert_eq!(with_overhead(Rate::from_mbps(1_440)), Rate::from_mbps(1_472));
    }
}
