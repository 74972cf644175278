//! Hosts: limits on sending, receiving and storing.

use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};

/// A machine at the edge of the network.
///
/// Arriving datagrams pass, in this order:
/// 1. the network card, at the rate [`Host::nic`];
/// 2. the socket buffer, which drops datagrams that do not fit;
/// 3. the receiving program, at the pace [`Host::receives`];
/// 4. the disk, for a copy that uses it.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Its name, resolved on other hosts.
    pub name: String,
    /// The card's rate in each direction in bits a second, framing included. `None`: only the links
    /// limit the host.
    pub nic: Option<Rate>,
    /// The card's output queue, which drops datagrams when full. `None`: programs wait for the
    /// card.
    pub nic_queue: Option<Bytes>,
    /// Each program's send buffer: maximum bytes that wait for the card.
    pub send_buffer: Bytes,
    /// The limit of a sending program.
    pub sends: Pace,
    /// The limit of a receiving program.
    pub receives: Pace,
    /// The receiving program's time for each datagram that it sends back (FOBS, section 3.2). If
    /// this time is not zero, the program reads datagrams one by one.
    pub report_cost: Span,
    /// The receive buffer; datagrams that do not fit are lost.
    pub socket_buffer: Bytes,
    /// The memory for data that are incomplete or not yet written. All copies to this host share it
    /// equally. `None`: in the simulator each copy to a disk has 512 MiB, and other copies have no
    /// limit; in the emulator all copies to this host share 4 GiB.
    pub memory: Option<Bytes>,
    /// The disk of copies. `None`: copies never wait for one.
    pub disk: Option<Disk>,
}

/// A program's speed. With both limits, the slower one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Datagrams a second.
    pub packets: Option<f64>,
    /// Bits of UDP payload a second.
    pub rate: Option<Rate>,
}

/// A disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disk {
    /// The rate of reading or writing.
    pub rate: Rate,
    /// Periods without work.
    pub stalls: Option<Stalls>,
}

/// A disk's stalls: at `every`, 2 × `every`, …, for `length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalls {
    /// From the start of one stall to the start of the next.
    pub every: Span,
    /// The length of a stall.
    pub length: Span,
}

impl Host {
    /// The default receive buffer, as on a host tuned for long fat networks.
    pub(crate) const DEFAULT_SOCKET_BUFFER: Bytes = Bytes::mebi(4);

    /// The default send buffer: Linux's `net.core.wmem_default`.
    pub(crate) const DEFAULT_SEND_BUFFER: Bytes = Bytes::new(212_992);

    /// The minimum memory for a copy: the 30 MiB that a sender may send before a grant, and two
    /// chunks that may be partly filled.
    pub(crate) const LEAST_MEMORY: Bytes = Bytes::mebi(32);

    /// A host with the default buffers and no other limits.
    pub fn new(name: impl Into<String>) -> Host {
        Host {
            name: name.into(),
            nic: None,
            nic_queue: None,
            send_buffer: Host::DEFAULT_SEND_BUFFER,
            sends: Pace::default(),
            receives: Pace::default(),
            report_cost: Span::ZERO,
            socket_buffer: Host::DEFAULT_SOCKET_BUFFER,
            memory: None,
            disk: None,
        }
    }
}

impl Pace {
    pub(crate) fn is_limited(&self) -> bool {
        self.packets.is_some() || self.rate.is_some()
    }

    /// The time for a datagram of `payload`.
    pub fn cost(&self, payload: Bytes) -> Span {
        let each = self.packets.map_or(Span::ZERO, |packets| Span::from_secs_f64(1.0 / packets));
        let bytes = self.rate.map_or(Span::ZERO, |rate| payload / rate);
        each.max(bytes)
    }

    /// The highest rate at which the program processes datagrams of `payload`, if limited. The rate
    /// counts `size` for each datagram.
    pub(crate) fn keeps_up_with(&self, payload: Bytes, size: Bytes) -> Option<Rate> {
        let cost = self.cost(payload).as_secs_f64();
        (cost > 0.0).then(|| Rate::from_bps_f64(size.get() as f64 * 8.0 / cost))
    }
}

impl Stalls {
    /// When work at `at` can continue: at once, or after the stall.
    pub fn resume(&self, at: Span) -> Span {
        let (every, length) = (self.every.as_nanos(), self.length.as_nanos());
        let into = at.as_nanos() % every.max(1);
        let stalled = at >= self.every && into < length;
        if stalled { at + Span::from_nanos(length - into) } else { at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_costs_the_longer_of_its_two_times() {
        // 1,000 datagrams a second: 1 ms each; 1,000 bytes at 8 Mbit/s: 1 ms.
        let pace = Pace { packets: Some(1_000.0), rate: Some(Rate::from_mbps(8)) };
        assert_eq!(pace.cost(Bytes::new(100)), Span::from_millis(1));
        assert_eq!(pace.cost(Bytes::new(2_000)), Span::from_millis(2));
        assert_eq!(Pace::default().cost(Bytes::new(2_000)), Span::ZERO);
        assert!(pace.is_limited() && !Pace::default().is_limited());
        let rate = |pace: Pace, payload, size| {
            pace.keeps_up_with(Bytes::new(payload), Bytes::new(size)).map(Rate::as_bps)
        };
        assert_eq!(rate(pace, 2_000, 2_000), Some(8_000_000));
        assert_eq!(rate(pace, 2_000, 2_500), Some(10_000_000));
        assert_eq!(rate(pace, 500, 500), Some(4_000_000));
        assert_eq!(rate(Pace::default(), 2_000, 2_000), None);
    }

    #[test]
    fn a_stalled_disk_continues_at_the_end_of_the_stall() {
        let ms = Span::from_millis;
        let stalls = Stalls { every: ms(1_000), length: ms(200) };
        for (at, resumes) in [(0, 0), (999, 999), (1_000, 1_200), (1_150, 1_200), (1_200, 1_200)] {
            assert_eq!(stalls.resume(ms(at)), ms(resumes), "{at} ms");
        }
    }
}
