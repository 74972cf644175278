//! What changes about a link as time goes by: steps, and ramps from one value to another.

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Rate;

use super::{Change, LinkSpec};

/// How far a link's schedule has come.
#[derive(Clone, Debug, Default)]
pub(super) struct Schedule {
    next_step: usize,
    rate: Option<Ramp>,
    delay: Option<Ramp>,
}

/// A value on its way, evenly in time.
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
        // A mean of two numbers of 64 bits is one.
        (sum / u128::from(self.over.as_nanos())) as u64
    }
}

impl Schedule {
    /// Makes `spec` what it is at `now`; true where its loss is another than before.
    pub(super) fn follow(&mut self, spec: &mut LinkSpec, now: Time) -> bool {
        let mut new_loss = false;
        while let Some(step) = spec.schedule.get(self.next_step).filter(|step| step.at <= now) {
            self.next_step += 1;
            let (at, change) = (step.at, step.change.clone());
            // A ramp that this step ends has come as far as it could by then.
            self.move_on(spec, at);
            match change {
                Change::Rate(rate) => (spec.rate, self.rate) = (rate, None),
                Change::Delay(delay) => (spec.delay, self.delay) = (delay, None),
                Change::RateRamp { to, over } => {
                    let from = spec.rate.unwrap_or(to).as_bps();
                    self.rate = Some(Ramp { start: at, over, from, to: to.as_bps() });
                }
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

    /// Puts what is on a ramp where it is at `now`.
    fn move_on(&mut self, spec: &mut LinkSpec, now: Time) {
        let ended = |ramp: &mut Ramp| now.since(ramp.start) >= ramp.over;
        if let Some(ramp) = &self.rate {
            spec.rate = Some(Rate::from_bps(ramp.value(now)));
            self.rate.take_if(ended);
        }
        if let Some(ramp) = &self.delay {
            spec.delay = Span::from_nanos(ramp.value(now));
            self.delay.take_if(ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Step;

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
        let mut schedule = Schedule::default();
        move |millis| {
            schedule.follow(&mut spec, at(millis));
            spec.clone()
        }
    }

    #[test]
    fn a_ramp_goes_evenly_from_what_is_to_what_shall_be() {
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
    fn a_step_ends_a_ramp_and_a_ramp_starts_where_another_was_broken_off() {
        let ramp =
            |mbps| Change::RateRamp { to: Rate::from_mbps(mbps), over: Span::from_millis(100) };
        let mut spec = following(&[
            (0, ramp(200)),
            (50, ramp(50)),
            (100, Change::Rate(Some(Rate::from_mbps(7)))),
        ]);
        // Not looked at in between: the second ramp starts from 150.
        assert_eq!(spec(75).rate, Some(Rate::from_mbps(125)));
        assert_eq!(spec(160).rate, Some(Rate::from_mbps(7)));
    }
}
