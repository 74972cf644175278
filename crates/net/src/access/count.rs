//! Makes two byte counts comparable: the count of the network interface, which includes headers,
//! and the count of our sockets, which does not.
//!
//! From each packet counted by the interface, the header size of our datagrams is subtracted. Our
//! own traffic then matches our sockets' count, even if the card or the kernel merges several
//! datagrams into one counted packet. The rest is other traffic, within a few per cent.

/// Largest believable increase of a counter between two readings, in bytes: more than 1.6 Tbit/s
/// for a tenth of a second means a reset or a wrap.
const MOST: u64 = 20_000_000_000;
/// Maximum bytes of apparent other traffic that may turn out to be ours: datagrams in a socket's
/// buffer, which the interface has counted and our program has not read yet.
const WAITING: i64 = 32 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) bytes: u64,
    pub(super) packets: u64,
}

/// Bytes of other traffic since the counter was created.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Others {
    /// The interfaces' count minus our sockets' count, but at least `reported` minus [`WAITING`].
    sum: i64,
    /// The largest `sum` so far.
    reported: i64,
}

/// Returns the number of bytes without headers between two readings of an interface; `None` after a
/// counter reset, or for more than [`MOST`] bytes.
pub(super) fn payload(before: Counted, now: Counted, header: u64) -> Option<u64> {
    let bytes = now.bytes.checked_sub(before.bytes).filter(|bytes| *bytes <= MOST)?;
    let packets = now.packets.checked_sub(before.packets)?;
    Some(bytes.saturating_sub(packets.saturating_mul(header)))
}

impl Others {
    /// Adds a reading: since the last one, `came` bytes arrived at the interfaces, and our own
    /// sockets received `ours`. Returns the total of other traffic, which never decreases.
    pub(super) fn note(&mut self, came: u64, ours: u64) -> u64 {
        let [came, ours] = [came, ours].map(|bytes| bytes.min(MOST) as i64);
        self.sum = (self.sum + came - ours).max(self.reported - WAITING);
        self.reported = self.reported.max(self.sum);
        self.reported as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: u64 = 42;

    #[test]
    fn headers_are_subtracted_from_single_and_from_merged_datagrams() {
        let before = Counted { bytes: 1_000, packets: 10 };
        let single = Counted { bytes: 1_000 + 10 * 1514, packets: 20 };
        assert_eq!(payload(before, single, HEADER), Some(10 * 1472));
        let merged = Counted { bytes: 1_000 + 42 + 10 * 1472, packets: 11 };
        assert_eq!(payload(before, merged, HEADER), Some(10 * 1472));
        // TCP's full packets count like ours.
        let tcp = Counted { bytes: 1_000 + 1514, packets: 11 };
        assert_eq!(payload(before, tcp, HEADER), Some(1472));
        // A bare TCP acknowledgement has 54 bytes, 12 more than the headers of a datagram.
        let bare = Counted { bytes: 1_000 + 54, packets: 11 };
        assert_eq!(payload(before, bare, HEADER), Some(12));
    }

    #[test]
    fn counters_that_restart_or_jump_are_ignored() {
        let before = Counted { bytes: 5_000, packets: 10 };
        assert_eq!(payload(before, Counted::default(), HEADER), None);
        assert_eq!(payload(before, Counted { bytes: 6_000, packets: 9 }, HEADER), None);
        assert_eq!(payload(before, Counted { bytes: u64::MAX, packets: 11 }, HEADER), None);
        // Packets without bytes do not make the result negative.
        assert_eq!(payload(before, Counted { bytes: 5_000, packets: 99 }, HEADER), Some(0));
    }

    #[test]
    fn own_datagrams_mistaken_for_other_traffic_are_deducted_from_later_other_traffic() {
        let mut others = Others::default();
        assert_eq!(others.note(5_000, 0), 5_000);
        // The datagrams turn out to be ours.
        assert_eq!(others.note(0, 5_000), 5_000);
        assert_eq!(others.note(1_000, 0), 5_000);
        assert_eq!(others.note(4_500, 0), 5_500);
    }

    #[test]
    fn an_interface_that_undercounts_hides_at_most_32_mib_of_other_traffic() {
        let mut others = Others::default();
        for _ in 0..100 {
            assert_eq!(others.note(0, 10_000_000_000), 0);
        }
        others.note(32 << 20, 0);
        assert_eq!(others.note(7, 0), 7);
    }
}
