//! What a machine can send, take and store.

use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};

/// A machine at the edge of the network.
///
/// What arrives passes, in this order: the card at [`Host::nic`]; the socket buffer, which drops
/// what it has no room for; the receiving program, which takes datagrams out of it at
/// [`Host::receives`]; and, for a copy that says so, the disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Its name; programs on other hosts can resolve it.
    pub name: String,
    /// Bits a second that its card puts on the wire and takes from it, Ethernet framing included;
    /// without one, the links alone decide.
    pub nic: Option<Rate>,
    /// What waits for its card on the way out; more is dropped there, as where a program's socket
    /// buffer is larger than the device's queue. Without it, programs wait for the card.
    pub nic_queue: Option<Bytes>,
    /// What of each program waits for the card before the program has to wait: the send buffer of
    /// its socket.
    pub send_buffer: Bytes,
    /// What a sending program gets out at most.
    pub sends: Pace,
    /// What a receiving program takes at most: "the receiving host could not keep up" of the
    /// Quanta paper's first version, and what bends its Figure 5.
    pub receives: Pace,
    /// How long the receiving program is held up by each datagram that it sends back: "the data
    /// receiver must frequently stop pulling packets off of the network to create and send
    /// acknowledgement packets" (FOBS, section 3.2). Where it is, it takes datagrams one by one.
    pub report_cost: Span,
    /// What waits for the receiving program; a datagram for which there is no room is lost.
    pub socket_buffer: Bytes,
    /// What all copies to it may hold together that is not whole and drained, shared in equal parts
    /// as a server shares its `--memory`; without one, each copy has 512 MiB where it writes to a
    /// disk, and no limit where it does not.
    pub memory: Option<Bytes>,
    /// Where copies to and from files end; without one, they never wait for it.
    pub disk: Option<Disk>,
}

/// How fast a program does its work: each datagram costs the longer of the two times.
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
    /// What it reads or writes.
    pub rate: Rate,
    /// Times in which it does nothing.
    pub stalls: Option<Stalls>,
}

/// A disk that stops now and then: at `every`, 2 × `every`, …, for `length` each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalls {
    /// From the beginning of one to the beginning of the next.
    pub every: Span,
    /// How long one lasts.
    pub length: Span,
}

impl Host {
    /// The socket buffer of a host that says nothing: what a tuned host of a long fat path has.
    pub(crate) const DEFAULT_SOCKET_BUFFER: Bytes = Bytes::mebi(4);

    /// The send buffer of a host that says nothing: Linux's `net.core.wmem_default`.
    pub(crate) const DEFAULT_SEND_BUFFER: Bytes = Bytes::new(212_992);

    /// The least memory that copies take: what a sender may send before anything is granted.
    pub(crate) const LEAST_MEMORY: Bytes = Bytes::mebi(32);

    /// A host without limits.
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
    /// Whether it bounds anything.
    pub(crate) fn is_limited(&self) -> bool {
        self.packets.is_some() || self.rate.is_some()
    }

    /// How long a datagram of `payload` takes.
    pub fn cost(&self, payload: Bytes) -> Span {
        let each = self.packets.map_or(Span::ZERO, |packets| Span::from_secs_f64(1.0 / packets));
        let bytes = self.rate.map_or(Span::ZERO, |rate| payload / rate);
        each.max(bytes)
    }

    /// The bits of `size` a second that datagrams of `payload` keep it busy with; `None` where it
    /// is never busy. `size` is the payload or more, such as the frame around it.
    pub(crate) fn keeps_up_with(&self, payload: Bytes, size: Bytes) -> Option<Rate> {
        let cost = self.cost(payload).as_secs_f64();
        (cost > 0.0).then(|| Rate::from_bps_f64(size.get() as f64 * 8.0 / cost))
    }
}

impl Stalls {
    /// When work that would go on at `at` since the start goes on: at once, or at the stall's end.
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
    fn a_stalled_disk_goes_on_at_the_stalls_end() {
        let ms = Span::from_millis;
        let stalls = Stalls { every: ms(1_000), length: ms(200) };
        for (at, resumes) in [(0, 0), (999, 999), (1_000, 1_200), (1_150, 1_200), (1_200, 1_200)] {
            assert_eq!(stalls.resume(ms(at)), ms(resumes), "{at} ms");
        }
    }
}
