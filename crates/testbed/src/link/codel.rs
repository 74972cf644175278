//! CoDel (RFC 8289): drops packets at the queue's head once the queueing delay has stayed above a
//! limit, the target, for a whole interval.
//!
//! The RFC decides when a packet leaves the queue. That time is known on arrival, so the link
//! decides on arrival. One input of the RFC is then unknown: whether more than one packet will wait
//! *behind* the packet when it leaves. The link uses the bytes that are *before* the packet on its
//! arrival instead.

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;

/// CoDel's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDel {
    /// "TARGET … acceptable standing queue delay" (RFC 8289 §4.3).
    pub target: Span,
    /// "INTERVAL … on the order of a worst-case RTT" (RFC 8289 §4.3).
    pub interval: Span,
}

impl Default for CoDel {
    /// "A TARGET of 5 ms and an INTERVAL of 100 ms work well" (RFC 8289 §4.3, 4.4).
    fn default() -> CoDel {
        CoDel { target: Span::from_millis(5), interval: Span::from_millis(100) }
    }
}

/// CoDel's state for one queue (RFC 8289 §5.3).
#[derive(Clone, Debug, Default)]
pub(super) struct CoDelState {
    /// "Time when we'll declare we're above target."
    first_above: Option<Time>,
    /// "Time to drop next packet."
    drop_next: Time,
    /// "Packets dropped since entering drop state."
    count: u32,
    last_count: u32,
    /// "Set to true if in drop state."
    dropping: bool,
    /// The last drop, until the RFC's `dequeue` is complete.
    just_dropped: Option<Drop>,
    /// "MAXPACKET: the largest packet seen so far."
    largest: Bytes,
}

/// A drop with an unfinished `dequeue` of the RFC.
#[derive(Clone, Copy, Debug)]
struct Drop {
    at: Time,
    /// Whether the drop begins the drop state.
    enters: bool,
}

impl CoDelState {
    /// Whether a packet of `wire` bytes is dropped. It came at `came` behind `ahead` bytes, and
    /// would be sent at `now`.
    pub(super) fn drops(
        &mut self,
        codel: &CoDel,
        came: Time,
        now: Time,
        wire: Bytes,
        ahead: Bytes,
    ) -> bool {
        self.largest = self.largest.max(wire);
        let mut dropped = self.just_dropped.take();
        if dropped.is_some_and(|drop| drop.at < now) {
            // The queue was empty behind the drop.
            self.first_above = None;
            self.finish(codel, dropped.take(), false);
        }
        let late = self.is_late(codel, now.since(came), now, ahead);
        if let Some(drop) = dropped {
            self.finish(codel, Some(drop), late);
            if drop.enters {
                // "Drop the packet, then dequeue another": the other packet always leaves.
                return false;
            }
        } else if self.dropping && !late {
            // "Sojourn time below TARGET - leave drop state."
            self.dropping = false;
        } else if !self.dropping && late {
            self.just_dropped = Some(Drop { at: now, enters: true });
            return true;
        }
        if self.dropping && now >= self.drop_next {
            self.count = self.count.saturating_add(1);
            self.just_dropped = Some(Drop { at: now, enters: false });
            return true;
        }
        false
    }

    /// Completes the RFC's `dequeue` after `drop`. `late`: whether the next packet is late.
    fn finish(&mut self, codel: &CoDel, drop: Option<Drop>, late: bool) {
        let Some(drop) = drop else { return };
        if !drop.enters {
            if late {
                self.drop_next = control_law(codel, self.drop_next, self.count);
            } else {
                self.dropping = false;
            }
            return;
        }
        self.dropping = true;
        // "If min went above TARGET close to when it last went below, assume that the drop rate
        // that controlled the queue on the last cycle is a good starting point".
        let delta = self.count.saturating_sub(self.last_count);
        let recent = drop.at.since(self.drop_next) < codel.interval * 16;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = control_law(codel, drop.at, self.count);
        self.last_count = self.count;
    }

    /// The RFC's `dodequeue`: whether packets have waited longer than the target for a whole
    /// interval.
    fn is_late(&mut self, codel: &CoDel, waited: Span, now: Time, ahead: Bytes) -> bool {
        // "Went below - stay below for at least INTERVAL."
        if waited < codel.target || ahead <= self.largest {
            self.first_above = None;
            return false;
        }
        now >= *self.first_above.get_or_insert(now + codel.interval)
    }
}

/// "The next drop time is decreased in inverse proportion to the square root of the number of
/// drops" (RFC 8289 §3.3).
fn control_law(codel: &CoDel, at: Time, count: u32) -> Time {
    at + Span::from_secs_f64(codel.interval.as_secs_f64() / libm::sqrt(f64::from(count.max(1))))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use longhaul_proto::units::Rate;
    use proptest::prelude::*;

    use super::*;
    use crate::link::{Fate, Link, LinkSpec, QueueControl};

    const PACKET: u32 = 1_462;

    fn link(mbps: u64) -> Link {
        let spec = LinkSpec {
            control: QueueControl::CoDel(CoDel::default()),
            queue: Bytes::new(100_000_000),
            ..LinkSpec::path(Rate::from_mbps(mbps), Span::ZERO)
        };
        Link::new(spec, 1)
    }

    /// RFC 8289 §5 line by line, with a real queue of packets. Only the check for a short queue
    /// differs: it counts the bytes ahead of the packet, not the bytes after it.
    struct Rfc {
        arrivals: VecDeque<(usize, Time)>,
        rate: Rate,
        first_above: Option<Time>,
    }

    impl Rfc {
        /// The packet that leaves at `now`, and whether it may be dropped (the RFC's
        /// `ok_to_drop`). The wire was free at `free`.
        fn dodequeue(&mut self, now: Time, free: Time) -> Option<(usize, bool)> {
            let codel = CoDel::default();
            let next = self.arrivals.pop_front_if(|(_, came)| *came <= now);
            let Some((i, came)) = next else {
                self.first_above = None;
                return None;
            };
            let little = self.rate.over(free.since(came)) <= Bytes::new(1_500);
            if now.since(came) < codel.target || little {
                self.first_above = None;
                return Some((i, false));
            }
            Some((i, now >= *self.first_above.get_or_insert(now + codel.interval)))
        }

        fn drops(mut self) -> Vec<usize> {
            let interval = CoDel::default().interval;
            let law = |at: Time, count: u32| {
                at + Span::from_secs_f64(interval.as_secs_f64() / f64::from(count).sqrt())
            };
            let (mut now, mut dropped) = (Time::ZERO, Vec::new());
            let (mut dropping, mut drop_next, mut count, mut last) = (false, Time::ZERO, 0u32, 0);
            while let Some((_, came)) = self.arrivals.front().copied() {
                let free = now;
                now = now.max(came);
                let mut leaves = self.dodequeue(now, free);
                if dropping {
                    dropping = leaves.is_some_and(|(_, late)| late);
                    while now >= drop_next && dropping {
                        dropped.extend(leaves.map(|(i, _)| i));
                        count += 1;
                        leaves = self.dodequeue(now, now);
                        dropping = leaves.is_some_and(|(_, late)| late);
                        if dropping {
                            drop_next = law(drop_next, count);
                        }
                    }
                } else if let Some((i, true)) = leaves {
                    dropped.push(i);
                    leaves = self.dodequeue(now, now);
                    dropping = true;
                    let delta = count.saturating_sub(last);
                    let recent = now.since(drop_next) < interval * 16;
                    count = if delta > 1 && recent { delta } else { 1 };
                    drop_next = law(now, count);
                    last = count;
                }
                if leaves.is_some() {
                    now += Bytes::new(1_500) / self.rate;
                }
            }
            dropped
        }
    }

    proptest! {
        #[test]
        fn codel_drops_the_packets_that_the_rfcs_loop_drops(
            gaps in prop::collection::vec(0u64..2_000, 200..3_000),
            // A rate at which a packet takes whole nanoseconds.
            mbps in prop::sample::select(vec![4u64, 5, 6, 8, 10, 12, 20, 24, 40]),
            load in 900u64..1_400,
        ) {
            let rate = Rate::from_mbps(mbps);
            let each = (Bytes::new(1_500) / rate).as_nanos();
            let mut at = Time::ZERO;
            let mut come = |gap: &u64| {
                at += Span::from_nanos(each * gap / load);
                at
            };
            let arrivals: Vec<Time> = gaps.iter().map(&mut come).collect();
            let mut link = link(mbps);
            let fates = arrivals.iter().map(|at| link.offer(*at, PACKET));
            let dropped = fates.enumerate().filter(|(_, fate)| *fate == Fate::Managed);
            let dropped: Vec<usize> = dropped.map(|(i, _)| i).collect();
            let queue = arrivals.into_iter().enumerate().collect();
            let rfc = Rfc { arrivals: queue, rate, first_above: None };
            prop_assert_eq!(dropped, rfc.drops());
        }
    }

    #[test]
    fn a_standing_queue_is_brought_down_and_a_short_burst_is_let_through() {
        // 5 % over the rate for 40 s would give drop-tail 2 s of delay.
        let mut overfull = link(10);
        let every = (Bytes::new(1_500) / Rate::from_mbps(10)) * 100 / 105;
        let mut worst_late = Span::ZERO;
        for i in 0..35_000u64 {
            let now = Time::ZERO + every * i;
            if let Fate::Arrives(passage) = overfull.offer(now, PACKET)
                && i > 28_000
            {
                worst_late = worst_late.max(passage.at.since(now));
            }
        }
        assert!(worst_late < Span::from_millis(60), "{worst_late}");
        let tally = overfull.tally();
        let share = tally.managed as f64 / tally.offered as f64;
        assert!((0.02..0.08).contains(&share), "{share}");

        // A burst of 70 ms, drained within an interval: "good queue" (RFC 8289 §3.1).
        let mut burst = link(10);
        assert!((0..58).all(|_| matches!(burst.offer(Time::ZERO, PACKET), Fate::Arrives(_))));
    }
}
