//! Scheduled changes of a link: steps and ramps.

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Rate;

use super::{Change, LinkSpec, Step};

/// Progress of a link's schedule, without the changes of the rate.
#[derive(Clone, Debug, Default)]
pub(super) struct Schedule {
    next_step: usize,
    delay: Option<Ramp>,
}

/// Progress of the rate. Separate, because a link needs the rate at two times: now, and when a
/// packet leaves the queue.
#[derive(Clone, Debug)]
pub(super) struct RateCourse {
    next_step: usize,
    rate: Option<Rate>,
    ramp: Option<Ramp>,
}

#[derive(Clone, Copy, Debug)]
struct Ramp {
    start: Time,
    over: Span,
    from: u64,
    to: u64,
}

impl Ramp {
    fn value(&self, now: Time) -> u64 {
        let gone = now.since(self.start);
        if gone >= self.over {
            return self.to;
        }
        let part = |value: u64, share: Span| u128::from(value) * u128::from(share.as_nanos());
        let sum = part(self.from, self.over - gone) + part(self.to, gone);
        // A mean of two 64-bit numbers fits 64 bits.
        (sum / u128::from(self.over.as_nanos())) as u64
    }

    fn has_ended(&self, now: Time) -> bool {
        now.since(self.start) >= self.over
    }
}

impl RateCourse {
    pub(super) fn new(rate: Option<Rate>) -> RateCourse {
        RateCourse { next_step: 0, rate, ramp: None }
    }

    /// The rate at `now`. Times must not go back.
    pub(super) fn at(&mut self, steps: &[Step], now: Time) -> Option<Rate> {
        while let Some(step) = steps.get(self.next_step).filter(|step| step.at <= now) {
            self.next_step += 1;
            match step.change {
                Change::Rate(rate) => (self.rate, self.ramp) = (rate, None),
                // A new ramp starts at the old ramp's current value.
                Change::RateRamp { to, over } => {
                    self.move_on(step.at);
                    let from = self.rate.unwrap_or(to).as_bps();
                    self.ramp = Some(Ramp { start: step.at, over, from, to: to.as_bps() });
                }
                _ => {}
            }
        }
        self.move_on(now);
        self.rate
    }

    fn move_on(&mut self, now: Time) {
        if let Some(ramp) = &self.ramp {
            self.rate = Some(Rate::from_bps(ramp.value(now)));
            self.ramp.take_if(|ramp| ramp.has_ended(now));
        }
    }
}

impl Schedule {
    /// Advances `spec` to `now`, except its rate; returns whether the loss changed.
    pub(super) fn follow(&mut self, spec: &mut LinkSpec, now: Time) -> bool {
        let mut new_loss = false;
        while let Some(step) = spec.schedule.get(self.next_step).filter(|step| step.at <= now) {
            self.next_step += 1;
            let (at, change) = (step.at, step.change.clone());
            // A new ramp starts at the old ramp's current value.
            self.move_on(spec, at);
            match change {
                Change::Rate(_) | Change::RateRamp { .. } => {}
                Change::Delay(delay) => (spec.delay, self.delay) = (delay, None),
                Change::DelayRamp { to, over } => {
                    let from = spec.delay.as_nanos();
                    self.delay = Some(Ramp { start: at, over, from, to: to.as_nanos() });
                }
                Change::Up(up) => spec.up = up,
                Change::Loss(loss) => (spec.loss, new_loss) = (loss, true),
            }
        }
        self.move_on(spec, now);
        new_loss
    }

    fn move_on(&mut self, spec: &mut LinkSpec, now: Time) {
        if let Some(ramp) = &self.delay {
            spec.delay = Span::from_nanos(ramp.value(now));
            self.delay.take_if(|ramp| ramp.has_ended(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn following(steps: &[(u64, Change)]) -> impl FnMut(u64) -> LinkSpec + use<> {
        let step =
            |(millis, change): &(u64, Change)| Step { at: at(*millis), change: change.clone() };
        let mut spec = LinkSpec {
            schedule: steps.iter().map(step).collect(),
            ..LinkSpec::path(Rate::from_mbps(100), Span::from_millis(20))
        };
        let (mut schedule, mut rate) = (Schedule::default(), RateCourse::new(spec.rate));
        move |millis| {
            schedule.follow(&mut spec, at(millis));
            spec.rate = rate.at(&spec.schedule, at(millis));
            spec.clone()
        }
    }

    #[test]
    fn a_ramp_goes_evenly_from_the_old_value_to_the_new_one() {
        let over = Span::from_millis(100);
        let mut spec = following(&[
            (50, Change::RateRamp { to: Rate::from_mbps(200), over }),
            (60, Change::DelayRamp { to: Span::ZERO, over }),
        ]);
        for (millis, mbps, delay) in [
            (49, 100, 10_000),
            (50, 100, 10_000),
            (75, 125, 8_500),
            (110, 160, 5_000),
            (500, 200, 0),
        ] {
            let spec = spec(millis);
            assert_eq!(spec.rate, Some(Rate::from_mbps(mbps)), "{millis} ms");
            assert_eq!(spec.delay, Span::from_micros(delay), "{millis} ms");
        }
    }

    #[test]
    fn a_step_ends_a_ramp_and_a_new_ramp_starts_at_the_value_of_the_ramp_it_replaces() {
        let ramp =
            |mbps| Change::RateRamp { to: Rate::from_mbps(mbps), over: Span::from_millis(100) };
        let mut spec = following(&[
            (0, ramp(200)),
            (50, ramp(50)),
            (100, Change::Rate(Some(Rate::from_mbps(7)))),
        ]);
        // At 50 ms the first ramp has reached 150 Mbit/s, and the second ramp starts from there,
        // although the first query comes later.
        assert_eq!(spec(75).rate, Some(Rate::from_mbps(125)));
        assert_eq!(spec(160).rate, Some(Rate::from_mbps(7)));
    }
}
