//! Super-packets: up to 64 kB that the kernel passes as one packet, and how to split them.
//!
//! TUN puts a virtio header of 10 bytes before each packet. With a segment size in this header, the
//! packet represents many packets on the wire, each with a copy of the headers and one segment of
//! the payload. Any run of segments can be written as a smaller super-packet. Its lengths, IPv4
//! identification and checksum, and TCP sequence number and flags are those that the kernel's own
//! segmentation writes. The transport checksum stays incomplete, so only its pseudo-header sum must
//! be recomputed.

use core::ops::Range;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of the virtio header before every packet.
pub(super) const DEVICE_HEADER: usize = 10;

/// Maximum bytes of all headers of a packet that can be split, the virtio header included.
pub(super) const MOST_HEADERS: usize = 256;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

const TCP_FIN: u8 = 0x01;
const TCP_PUSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// The structure of a frame: a virtio header and its packet (a super-packet or an ordinary one).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Offset of the transport header in the IP packet; 0 for an ordinary packet.
    transport: usize,
    /// Bytes of IP and transport headers; 0 for an ordinary packet.
    headers: usize,
    /// Payload bytes of all segments; for an ordinary packet, the bytes of the whole IP packet.
    payload: usize,
    /// Payload bytes of each segment but the last.
    segment: usize,
    /// Packets on the wire.
    pub(super) segments: usize,
    v6: bool,
    tcp: bool,
}

/// A frame's destination, if it is an IP packet.
pub(super) fn destination(frame: &[u8]) -> Option<IpAddr> {
    let packet = frame.get(DEVICE_HEADER..)?;
    match packet.first()? >> 4 {
        4 => {
            let octets: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            Some(Ipv4Addr::from(octets).into())
        }
        6 => {
            let octets: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

/// The offset of a UDP or TCP payload in the frame. For another protocol, the offset 8 bytes after
/// the IP header.
pub(super) fn payload_start(frame: &[u8]) -> usize {
    let packet = &frame[DEVICE_HEADER.min(frame.len())..];
    let byte = |at: usize| usize::from(*packet.get(at).unwrap_or(&0));
    let (ip, protocol) =
        if byte(0) >> 4 == 6 { (40, byte(6)) } else { (byte(0) % 16 * 4, byte(9)) };
    let transport = if protocol == 6 { byte(ip + 12) / 16 * 4 } else { 8 };
    DEVICE_HEADER + ip + transport
}

impl Shape {
    /// Parses a frame; `None` if its headers are invalid or unknown.
    pub(super) fn of(frame: &[u8]) -> Option<Shape> {
        let packet = frame.get(DEVICE_HEADER..)?;
        let v6 = packet.first()? >> 4 == 6;
        let gso = frame[1] & !GSO_ECN;
        if gso == GSO_NONE {
            let (headers, payload) = (0, packet.len());
            let whole = Shape {
                transport: 0,
                headers,
                payload,
                segment: payload,
                segments: 1,
                v6,
                tcp: false,
            };
            return Some(whole);
        }
        let tcp = match (gso, v6) {
            (GSO_TCP4, false) | (GSO_TCP6, true) => true,
            (GSO_UDP, _) => false,
            _ => return None,
        };
        let field = |at: usize| usize::from(u16::from_ne_bytes([frame[at], frame[at + 1]]));
        let (segment, transport) = (field(4), field(6));
        let least = if v6 { 40 } else { 20 };
        let length = if tcp { usize::from(packet.get(transport + 12)? >> 4) * 4 } else { 8 };
        let headers = transport + length;
        let sound = frame[0] & NEEDS_CHECKSUM != 0
            && segment > 0
            && transport >= least
            && headers < packet.len()
            && DEVICE_HEADER + headers <= MOST_HEADERS
            && (!tcp || length >= 20);
        let payload = packet.len().checked_sub(headers)?;
        let segments = payload.div_ceil(segment.max(1));
        sound.then_some(Shape { transport, headers, payload, segment, segments, v6, tcp })
    }

    /// The bytes on the wire of the IP packet with segment `index`.
    pub(super) fn packet_bytes(&self, index: usize) -> u32 {
        let start = index * self.segment;
        (self.headers + self.segment.min(self.payload - start)) as u32
    }

    /// The byte range of the payload of the segments in `run`.
    pub(super) fn payload_of(&self, run: &Range<usize>) -> Range<usize> {
        let base = DEVICE_HEADER + self.headers;
        base + run.start * self.segment..base + self.payload.min(run.end * self.segment)
    }

    /// Writes the headers of a packet with the segments in `run` to `out` ([`MOST_HEADERS`] bytes);
    /// returns their length, device header included.
    pub(super) fn cut(&self, frame: &[u8], run: &Range<usize>, out: &mut [u8]) -> usize {
        let len = DEVICE_HEADER + self.headers;
        out[..len].copy_from_slice(&frame[..len]);
        if self.segments == 1 {
            return len;
        }
        let payload = self.payload_of(run).len();
        if payload <= self.segment {
            out[1] = GSO_NONE;
            out[4..6].fill(0);
        }
        let packet = &mut out[DEVICE_HEADER..len];
        self.mend_ip(packet, run, self.headers + payload);
        let (ip, transport) = packet.split_at_mut(self.transport);
        if self.tcp {
            self.mend_tcp(transport, run);
        } else {
            let bytes = (8 + payload) as u16;
            transport[4..6].copy_from_slice(&bytes.to_be_bytes());
        }
        let transport_bytes = self.headers - self.transport + payload;
        let sum = pseudo_header_sum(ip, self.v6, self.tcp, transport_bytes);
        let at = if self.tcp { 16 } else { 6 };
        transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        len
    }

    fn mend_ip(&self, packet: &mut [u8], run: &Range<usize>, bytes: usize) {
        if self.v6 {
            packet[4..6].copy_from_slice(&((bytes - 40) as u16).to_be_bytes());
            return;
        }
        packet[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
        let id = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(run.start as u16);
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        packet[10..12].fill(0);
        let header = usize::from(packet[0] & 0x0f) * 4;
        let sum = !folded(sum_of(&packet[..header.clamp(20, self.transport)]));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    fn mend_tcp(&self, transport: &mut [u8], run: &Range<usize>) {
        let number = transport[4..8].try_into().expect("a TCP header has 20 bytes");
        let moved = u32::from_be_bytes(number).wrapping_add((run.start * self.segment) as u32);
        transport[4..8].copy_from_slice(&moved.to_be_bytes());
        if run.end < self.segments {
            transport[13] &= !(TCP_FIN | TCP_PUSH);
        }
        if run.start > 0 {
            transport[13] &= !TCP_CWR;
        }
    }
}

/// The sum over the pseudo-header, as in an incomplete checksum.
fn pseudo_header_sum(ip: &[u8], v6: bool, tcp: bool, transport_bytes: usize) -> u16 {
    let addresses = if v6 { &ip[8..40] } else { &ip[12..20] };
    let protocol = if tcp { 6 } else { 17 };
    folded(sum_of(addresses) + protocol + transport_bytes as u32)
}

fn sum_of(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    words.map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0))).sum()
}

fn folded(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame as the kernel writes it, with payload 0, 1, 2, ….
    fn frame(v6: bool, tcp: bool, segment: usize, payload: usize) -> Vec<u8> {
        let transport = if v6 { 40 } else { 20 };
        let headers = transport + if tcp { 32 } else { 8 };
        let mut packet = vec![0u8; headers];
        let bytes = headers + payload;
        if v6 {
            packet[0] = 0x60;
            packet[4..6].copy_from_slice(&((bytes - 40) as u16).to_be_bytes());
            packet[6] = if tcp { 6 } else { 17 };
            packet[8..40].fill(0xab);
        } else {
            packet[0] = 0x45;
            packet[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
            packet[4..6].copy_from_slice(&0xfffe_u16.to_be_bytes());
            packet[9] = if tcp { 6 } else { 17 };
            packet[12..20].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
        }
        if tcp {
            packet[transport + 4..transport + 8].copy_from_slice(&u32::MAX.to_be_bytes());
            packet[transport + 12] = 8 << 4;
            packet[transport + 13] = TCP_FIN | TCP_PUSH | TCP_CWR | 0x10;
        } else {
            let length = (8 + payload) as u16;
            packet[transport + 4..transport + 6].copy_from_slice(&length.to_be_bytes());
        }
        let gso = if !tcp { GSO_UDP } else { [GSO_TCP4, GSO_TCP6][usize::from(v6)] };
        let mut frame = vec![NEEDS_CHECKSUM, gso];
        let offset = if tcp { 16 } else { 6 };
        for field in [headers, segment, transport, offset] {
            frame.extend((field as u16).to_ne_bytes());
        }
        frame.extend(packet);
        frame.extend((0..payload).map(|i| i as u8));
        frame
    }

    fn cut(frame: &[u8], run: Range<usize>) -> Vec<u8> {
        let shape = Shape::of(frame).unwrap();
        let mut out = [0; MOST_HEADERS];
        let len = shape.cut(frame, &run, &mut out);
        [&out[..len], &frame[shape.payload_of(&run)]].concat()
    }

    #[test]
    fn a_cut_of_all_segments_keeps_the_length_and_a_second_cut_changes_nothing() {
        for (v6, tcp) in [(false, false), (false, true), (true, false), (true, true)] {
            let frame = frame(v6, tcp, 100, 950);
            let n = Shape::of(&frame).unwrap().segments;
            assert_eq!(n, 10);
            let whole = cut(&frame, 0..n);
            let cut_twice = cut(&whole, 0..n);
            assert_eq!(whole, cut_twice);
            assert_eq!(whole.len(), frame.len());
        }
    }

    #[test]
    fn each_run_has_its_own_ip_length_and_all_runs_together_have_the_payload() {
        for (v6, tcp) in [(false, false), (false, true), (true, false), (true, true)] {
            let frame = frame(v6, tcp, 100, 950);
            let shape = Shape::of(&frame).unwrap();
            let mut payload = Vec::new();
            for run in [0..1, 1..4, 4..9, 9..10] {
                let part = cut(&frame, run.clone());
                let parsed = Shape::of(&part).unwrap();
                assert_eq!(parsed.segments, run.len());
                let packet = &part[DEVICE_HEADER..];
                let announced = match v6 {
                    true => 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])),
                    false => usize::from(u16::from_be_bytes([packet[2], packet[3]])),
                };
                assert_eq!(announced, packet.len());
                let sizes: u32 = run.clone().map(|i| shape.packet_bytes(i)).sum();
                let repeated = shape.headers * (run.len() - 1);
                assert_eq!(sizes as usize, packet.len() + repeated);
                payload.extend_from_slice(&packet[shape.headers..]);
            }
            assert_eq!(payload, frame[DEVICE_HEADER + shape.headers..]);
            assert_eq!(payload_start(&frame), DEVICE_HEADER + shape.headers);
        }
    }

    #[test]
    fn ipv4_checksums_are_correct_and_identifications_increase() {
        let frame = frame(false, false, 100, 950);
        let part = cut(&frame, 3..4);
        let ip = &part[DEVICE_HEADER..DEVICE_HEADER + 20];
        assert_eq!(folded(sum_of(ip)), 0xffff);
        assert_eq!(u16::from_be_bytes([ip[4], ip[5]]), 1, "0xfffe + 3 wraps to 1");
        // Pseudo-header: addresses, protocol 17, UDP length 108.
        let sum = 0x0a4d + 0x0001 + 0x0a4d + 0x0002 + 17 + 108;
        assert_eq!(u16::from_be_bytes([ip_udp(&part)[6], ip_udp(&part)[7]]), sum);
    }

    fn ip_udp(part: &[u8]) -> &[u8] {
        &part[DEVICE_HEADER + 20..]
    }

    #[test]
    fn tcp_sequence_numbers_advance_and_flags_stay_on_their_segments() {
        let frame = frame(false, true, 100, 950);
        let header = |run| ip_udp(&cut(&frame, run))[..32].to_vec();
        let number = |h: &[u8]| u32::from_be_bytes(h[4..8].try_into().unwrap());
        let (first, middle, last) = (header(0..2), header(2..9), header(9..10));
        assert_eq!((number(&first), number(&middle), number(&last)), (u32::MAX, 199, 899));
        assert_eq!(first[13], TCP_CWR | 0x10);
        assert_eq!(middle[13], 0x10);
        assert_eq!(last[13], TCP_FIN | TCP_PUSH | 0x10);
    }

    #[test]
    fn destinations_are_read_and_nonsense_is_refused() {
        let v4 = frame(false, false, 100, 100);
        assert_eq!(destination(&v4), Some(Ipv4Addr::new(10, 77, 0, 2).into()));
        assert!(destination(&frame(true, false, 9, 9)).unwrap().is_ipv6());
        assert_eq!(destination(&[0; 12]), None);
        assert_eq!(Shape::of(&[]), None);
        for (at, value) in [(4, 0), (5, 0), (1, 3), (6, 255), (7, 255), (0, 0)] {
            let mut wrong = frame(false, true, 100, 950);
            wrong[at] = value;
            if (at, value) == (4, 0) {
                wrong[5] = 0;
            }
            let shape = Shape::of(&wrong);
            assert!(shape.is_none() || at == 5, "{at} {value}: {shape:?}");
        }
    }
}
