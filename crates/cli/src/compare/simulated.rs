//! Runs in virtual time: each candidate (a protocol, or TCP) carries the first flow of a scenario.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Error, ErrorKind};
use longhaul_experiments::plot::Origin;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;
use longhaul_testbed::scenario::{Amount, Flow, Scenario, Tcp, Traffic, Transfer};
use longhaul_testbed::sim::{FlowOutcome, SimError, SimOutcome};

use super::candidate::Candidate;
use super::runs::{Counts, Measured, Run, Shares};
use super::{CompareArgs, Setting, usage};
use crate::{scenario_file, sim};

/// Default interval of samples.
const RECORD_EVERY: Span = Span::from_millis(50);
/// Maximum number of points in the plot of a run.
const POINTS: usize = 150;
/// Name of the TCP flow that [`beside_tcp`] adds.
const BESIDE: &str = "beside";

/// A planned run of the copy alone; [`beside_tcp`] makes the scenario of the second run, with TCP.
struct Case {
    candidate: Candidate,
    turn: u32,
    scenario: Scenario,
}

/// Runs each candidate `--repeat` times. Each repetition has a new seed, the same for all
/// candidates.
pub(super) fn run(
    args: &CompareArgs,
    file: &Path,
    candidates: &[Candidate],
    tell: impl Fn(&Run),
) -> Result<(Setting, Vec<Run>), Error> {
    let text = scenario_file::text(file)?;
    let base = prepared(args, file, scenario_file::parse(file, &text, &[])?)?;
    let mut cases = Vec::new();
    for turn in 1..=args.repeat {
        for candidate in candidates {
            let mut scenario = base.clone();
            scenario.seed = base.seed.wrapping_add(u64::from(turn - 1));
            let from = scenario.flows[0].traffic.clone();
            scenario.flows[0].traffic = carried(args, *candidate, &from)?;
            cases.push(Case { candidate: *candidate, turn, scenario });
        }
    }
    let besides: Vec<Scenario> = cases.iter().map(|case| beside_tcp(&case.scenario)).collect();
    let all: Vec<&Scenario> = cases.iter().map(|case| &case.scenario).chain(&besides).collect();
    let mut outcomes = sim::on_all_cores(&all);
    let beside = outcomes.split_off(cases.len());
    let mut runs = Vec::new();
    for ((case, alone), beside) in cases.iter().zip(outcomes).zip(beside) {
        let run = ended(case, alone, beside).map_err(|error| failed(file, case, &error))?;
        tell(&run);
        runs.push(run);
    }
    Ok((setting(args, &base), runs))
}

/// Checks the scenario, and applies the flags that concern all candidates.
fn prepared(args: &CompareArgs, file: &Path, mut scenario: Scenario) -> Result<Scenario, Error> {
    let file = file.display();
    let Some(first) = scenario.flows.first_mut() else {
        return Err(usage(format!("{file} has no flow"), "add the [[flow]] to compare"));
    };
    if !matches!(first.traffic, Traffic::Protocol(_) | Traffic::Tcp(_)) {
        let what = format!("{file}: its first flow, {}, is not a copy", first.name);
        return Err(usage(what, "make a flow with protocol or tcp the first flow of the file"));
    }
    match (args.size, first.amount) {
        (Some(size), _) => first.amount = Amount::Size(size),
        (None, Amount::Size(_)) => {}
        (None, _) => {
            let what = format!("{file}: its first flow, {}, has no size", first.name);
            return Err(usage(what, "give --size"));
        }
    }
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    scenario.record.interval.get_or_insert(RECORD_EVERY);
    Ok(scenario)
}

/// The flow `from`, carried by the candidate, with those settings of `from` that the candidate has.
fn carried(args: &CompareArgs, candidate: Candidate, from: &Traffic) -> Result<Traffic, Error> {
    Ok(match (candidate, from) {
        (Candidate::Registry(row), Traffic::Protocol(transfer)) => {
            let known = |name: &str| row.options.iter().any(|option| option.name == name);
            let own = transfer.settings.iter().filter(|(name, _)| known(name));
            let settings: BTreeMap<String, f64> =
                own.map(|(name, value)| (name.clone(), *value)).collect();
            Traffic::Protocol(Transfer {
                protocol: row.name.to_owned(),
                rate: args.rate.or(transfer.rate),
                settings,
                ..transfer.clone()
            })
        }
        (Candidate::Registry(row), _) => Traffic::Protocol(Transfer {
            protocol: row.name.to_owned(),
            rate: args.rate,
            ..Transfer::default()
        }),
        (Candidate::Tcp { streams }, from) => {
            Traffic::Tcp(Tcp { streams: u32::from(streams), ..tcp_like(from) })
        }
        (Candidate::TcpTried, _) => {
            let what = format!("{candidate} needs a real path to try numbers of connections");
            return Err(usage(what, "write tcp:N for each number, as in --protocols tcp:1,tcp:8"));
        }
    })
}

/// The settings of TCP in `traffic`, or the default ones.
fn tcp_like(traffic: &Traffic) -> Tcp {
    if let Traffic::Tcp(tcp) = traffic { *tcp } else { Tcp::default() }
}

/// Adds a CUBIC flow with the start and the route of the copy.
fn beside_tcp(scenario: &Scenario) -> Scenario {
    let mut scenario = scenario.clone();
    let copy = &scenario.flows[0];
    let taken = |name: &str| scenario.flows.iter().any(|flow| flow.name == name);
    let mut name = BESIDE.to_owned();
    while taken(&name) {
        name.push('-');
    }
    let beside = Flow {
        name,
        from: copy.from,
        to: copy.to,
        start: copy.start,
        amount: Amount::Endless,
        traffic: Traffic::Tcp(Tcp::default()),
    };
    scenario.flows.push(beside);
    scenario
}

fn ended(
    case: &Case,
    alone: Result<SimOutcome, SimError>,
    beside: Result<SimOutcome, SimError>,
) -> Result<Run, SimError> {
    let (alone, beside) = (alone?, beside?);
    let flow = &alone.flows[0];
    let end = match flow.finished {
        Some(finished) => Ok(measured(case.candidate, flow, finished, shares(&beside))),
        None => Err(format!(
            "the time limit was reached with {} of {} delivered; raise time-limit",
            flow.delivered,
            flow.object.unwrap_or(Bytes::ZERO)
        )),
    };
    Ok(Run { candidate: case.candidate, turn: case.turn, seed: Some(alone.seed), end })
}

fn measured(
    candidate: Candidate,
    flow: &FlowOutcome,
    finished: Time,
    beside_tcp: Option<Shares>,
) -> Measured {
    let accounts = &flow.accounts;
    // TCP's hosts do not know how many segments were lost, but the simulated network does.
    let path_lost = match candidate {
        Candidate::Registry(_) => accounts.path_lost,
        Candidate::Tcp { .. } | Candidate::TcpTried => accounts.dropped,
    };
    let counts = Counts {
        waste: flow.waste,
        retransmitted: accounts.retransmitted as f64,
        path_lost: Some(path_lost as f64),
        blocks_lost: Some(accounts.blocks_lost as f64),
        reported_lost: Some(accounts.reported_lost as f64),
        duplicates: Some(accounts.duplicates as f64),
    };
    let rates = flow.receive_rates().into_iter();
    let rates =
        rates.map(|(at, rate)| (at.since(flow.started).as_secs_f64(), rate.as_bps() as f64 / 1e6));
    Measured {
        bytes: flow.object.unwrap_or(flow.delivered),
        took: finished.since(flow.started),
        goodput: flow.goodput,
        counts: Some(counts),
        cpu: None,
        beside_tcp,
        rates: thinned(&rates.collect::<Vec<_>>()),
    }
}

/// Goodputs until the copy's end; `None` if the copy did not end within the time limit.
fn shares(outcome: &SimOutcome) -> Option<Shares> {
    let (copy, tcp) = (outcome.flows.first()?, outcome.flows.last()?);
    let finished = copy.finished?;
    // Other flows may continue after the copy, so the TCP flow's last sample may be too late.
    let then = tcp.series.iter().find(|point| point.at >= finished);
    let rate = then.map_or(tcp.goodput, |point| point.delivered / point.at.since(tcp.started));
    Some(Shares { copy: copy.goodput, tcp: rate })
}

/// Replaces each group of neighbours by their mean, at the time of the group's last point.
fn thinned(rates: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let together = rates.len().div_ceil(POINTS).max(1);
    let mean = |points: &[(f64, f64)]| {
        let sum: f64 = points.iter().map(|(_, rate)| rate).sum();
        (points[points.len() - 1].0, sum / points.len() as f64)
    };
    rates.chunks(together).map(mean).collect()
}

fn failed(file: &Path, case: &Case, error: &SimError) -> Error {
    let kind = match error {
        SimError::Scenario(_) => ErrorKind::Usage,
        SimError::Broken { .. } => ErrorKind::Verification,
    };
    let (candidate, seed) = (case.candidate, case.scenario.seed);
    Error::new(kind, format!("{}, {candidate}, seed {seed}: {error}", file.display()))
}

fn setting(args: &CompareArgs, scenario: &Scenario) -> Setting {
    let flow = &scenario.flows[0];
    let size = match flow.amount {
        Amount::Size(size) => size,
        _ => Bytes::ZERO,
    };
    let rate = args.rate.map_or(String::new(), |rate| format!(", rate {rate}"));
    Setting {
        title: format!(
            "{}: {size} from {} to {}{rate}, in virtual time, {} from seed {}",
            scenario.name,
            scenario.node_name(flow.from),
            scenario.node_name(flow.to),
            if args.repeat == 1 { "one turn".to_owned() } else { format!("{} turns", args.repeat) },
            scenario.seed
        ),
        notes: vec![
            "beside TCP: goodput of the copy + goodput of one CUBIC flow, and TCP's share of the \
             sum. Both start together and are measured until the copy ends, in a separate run"
                .into(),
            "no CPU time: virtual time does not show how much a host would need".into(),
        ],
        rates: "arriving, repeats included, Mbit/s",
        origin: Origin::Simulated,
        congestion: Some(tcp_like(&flow.traffic).congestion.name().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_averages_neighbours_and_keeps_the_time_of_the_last_point() {
        // 600 points become 150, each the mean of four points with the rates 0 to 3.
        let rates: Vec<(f64, f64)> = (1..=600).map(|n| (f64::from(n), f64::from(n % 4))).collect();
        let thin = thinned(&rates);
        assert_eq!((thin.len(), thin[149].0), (150, 600.0));
        assert!(thin.iter().all(|(_, rate)| *rate == 1.5));
        assert_eq!(thinned(&rates[..3]), rates[..3]);
        assert!(thinned(&[]).is_empty());
    }
}
