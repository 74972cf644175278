//! Proportional rate reduction (RFC 6937, with the bound of RFC 9937): how many segments may be
//! sent after each acknowledgement during recovery.

#[derive(Clone, Copy, Debug)]
pub(super) struct Reduction {
    /// The flight size at the recovery's start, and the flight size to reach by its end.
    before: u64,
    after: u64,
    /// Segments that have arrived, and segments that were sent, since the start.
    arrived: u64,
    sent: u64,
    /// Segments that may be sent now.
    allowance: u64,
}

impl Reduction {
    pub(super) fn new(before: u32, after: u32) -> Reduction {
        // The first repair is sent immediately.
        let (before, after) = (u64::from(before.max(1)), u64::from(after));
        Reduction { before, after, arrived: 0, sent: 0, allowance: 1 }
    }

    /// Processes an acknowledgement: `arrived` segments arrived, `pipe` are in flight. `clean`: the
    /// cumulative acknowledgement advanced without a new loss.
    pub(super) fn on_ack(&mut self, arrived: u32, pipe: u32, clean: bool) {
        let (arrived, pipe) = (u64::from(arrived), u64::from(pipe));
        self.arrived += arrived;
        let owed = self.arrived.saturating_sub(self.sent);
        self.allowance = if pipe > self.after {
            (self.arrived * self.after).div_ceil(self.before).saturating_sub(self.sent)
        } else {
            // RFC 9937: the slow-start bound after clean acknowledgements. After other
            // acknowledgements, at most as many segments as have arrived.
            let limit = if clean { owed.max(arrived) + 1 } else { owed };
            limit.min(self.after - pipe)
        };
        if self.sent == 0 {
            self.allowance = self.allowance.max(1);
        }
    }

    pub(super) fn allows(&self) -> bool {
        self.allowance > 0
    }

    pub(super) fn on_sent(&mut self) {
        self.sent += 1;
        self.allowance = self.allowance.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends every allowed segment after an acknowledgement; returns their number.
    fn sends(reduction: &mut Reduction, arrived: u32, pipe: u32, clean: bool) -> u32 {
        reduction.on_ack(arrived, pipe, clean);
        let mut sent = 0;
        while reduction.allows() {
            reduction.on_sent();
            sent += 1;
        }
        sent
    }

    #[test]
    fn the_window_is_halved_evenly_over_a_round_trip() {
        let mut reduction = Reduction::new(20, 10);
        let sent: Vec<u32> = (0..10).map(|i| sends(&mut reduction, 1, 19 - i / 2, true)).collect();
        // RFC 6937, section 4: one segment is sent for every second arrival.
        assert_eq!(sent, [1, 0, 1, 0, 1, 0, 1, 0, 1, 0]);
    }

    #[test]
    fn below_the_target_a_clean_acknowledgement_allows_one_segment_more_than_arrived() {
        let mut reduction = Reduction::new(20, 10);
        assert_eq!(sends(&mut reduction, 1, 4, true), 2);
        assert_eq!(sends(&mut reduction, 1, 4, false), 0, "no more are sent than have arrived");
        assert_eq!(sends(&mut reduction, 3, 9, true), 1, "never above the target");
    }
}
