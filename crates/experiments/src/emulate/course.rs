//! A flow's rate over time, at the sampling times of the simulation. Between two progress reports
//! the rate counts as constant.

use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;
use longhaul_testbed::emu::flows::FlowEnd;

use crate::outcome::Sample;

/// The flow's mean rate in each sampling interval. The intervals end at the multiples of `apart`
/// since the scenario's start; the first begins when the flow starts. Without a whole interval, or
/// if `apart` is zero, the list is empty.
pub(super) fn of(end: &FlowEnd, apart: Span) -> Vec<Sample> {
    let start = end.started.since(Time::ZERO);
    let mut reported = vec![(Span::ZERO, Bytes::ZERO)];
    // The session setup is subtracted, because the simulation has none.
    let since_setup = end.series.iter().map(|(at, bytes)| (at.saturating_sub(end.setup), *bytes));
    let last = (end.took.saturating_sub(end.setup), end.delivered);
    for (at, bytes) in since_setup.chain([last]) {
        let (before, had) = reported[reported.len() - 1];
        if at > before {
            reported.push((at, bytes.max(had)));
        }
    }
    let (ended, _) = reported[reported.len() - 1];
    let mut samples = Vec::new();
    let (mut before, mut had) = (start, 0.0);
    let mut number = start.as_nanos() / apart.as_nanos().max(1) + 1;
    loop {
        let at = apart * number;
        if apart == Span::ZERO || at > start + ended {
            return samples;
        }
        let has = bits_at(&reported, at - start);
        let goodput = (has - had) / (at - before).as_secs_f64() / 1e6;
        samples.push(Sample { at: at.as_secs_f64(), goodput, ..Sample::default() });
        (before, had, number) = (at, has, number + 1);
    }
}

/// Bits delivered until the time `at` after the flow's start, interpolated between reports.
fn bits_at(reported: &[(Span, Bytes)], at: Span) -> f64 {
    let after = reported.partition_point(|(then, _)| *then < at);
    let Some(&(next, has)) = reported.get(after) else {
        return reported.last().map_or(0.0, |(_, bytes)| bytes.bits());
    };
    let Some(&(before, had)) = after.checked_sub(1).and_then(|place| reported.get(place)) else {
        return has.bits();
    };
    let passed = (at - before).as_secs_f64() / (next - before).as_secs_f64();
    had.bits() + (has - had).bits() * passed
}

#[cfg(test)]
mod tests {
    use longhaul_testbed::scenario::{Reading, Scenario};

    use super::*;

    fn reported(series: &[(u64, u64)], took: u64, setup: u64) -> FlowEnd {
        let flow = r#"{ from = "a", to = "b", protocol = "rbudp", size = "9MB", start = "1s" }"#;
        let text = format!("flow = [{flow}]\n[topology]\nkind = \"pair\"");
        let scenario = Scenario::parse("case", &text, &Reading::PLAIN).unwrap();
        let mut end = FlowEnd::of(&scenario, &scenario.flows[0]);
        let ms = Span::from_millis;
        end.series = series.iter().map(|(at, kb)| (ms(*at), Bytes::new(kb * 1_000))).collect();
        (end.took, end.setup) = (ms(took), ms(setup));
        end.delivered = Bytes::new(series.last().map_or(0, |(_, kb)| kb * 1_000));
        end
    }

    #[test]
    fn between_two_reports_a_flow_is_interpolated() {
        // The flow starts at 1 s, delivers 1 MB from 0.3 to 1.3 s after its start, and 2 MB in the
        // next second.
        let end = reported(&[(300, 0), (1_300, 1_000), (2_300, 3_000)], 2_300, 0);
        let course = of(&end, Span::from_secs(1));
        let at: Vec<f64> = course.iter().map(|sample| sample.at).collect();
        assert_eq!(at, [2.0, 3.0]);
        // Expected: 0.7 of 1 MB by 2 s; then 0.3 of 1 MB and 0.7 of 2 MB.
        let near = |got: f64, expected: f64| assert!((got - expected).abs() < 1e-9, "{got}");
        near(course[0].goodput, 5.6);
        near(course[1].goodput, 13.6);
    }

    #[test]
    fn the_progress_of_a_copy_begins_when_its_session_is_open() {
        let end = reported(&[(1_500, 1_000)], 1_500, 500);
        let course = of(&end, Span::from_millis(500));
        let goodputs: Vec<f64> = course.iter().map(|sample| sample.goodput).collect();
        assert_eq!(goodputs, [8.0, 8.0]);
    }

    #[test]
    fn a_flow_without_reports_or_a_sampling_interval_has_no_samples() {
        assert!(of(&reported(&[], 0, 0), Span::from_secs(1)).is_empty());
        assert!(of(&reported(&[(900, 5)], 900, 0), Span::ZERO).is_empty());
    }
}
