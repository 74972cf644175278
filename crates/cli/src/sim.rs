//! `longhaul sim`: simulates a scenario, once or for a range of settings.

mod print;
mod sweep;

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind};
use clap::Args;
use longhaul_experiments::plot::{Axis, Origin, Plot, Series};
use longhaul_experiments::simulate::spread;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Rate;
use longhaul_testbed::scenario::Scenario;
use longhaul_testbed::sim::{self, SimError, SimOutcome};

use crate::{console, exit, scenario_file};
use sweep::{Setting, Sweep};

/// Simulate a scenario in virtual time with the real protocol code
///
/// A scenario is a TOML file of hosts, links and flows. The seed determines all random choices: the
/// same scenario and seed give the same output, byte for byte, on every machine.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  longhaul sim wan.toml
  longhaul sim wan.toml --seed 7 --json --plot rates.svg
  longhaul sim wan.toml --sweep topology.link.loss=0,0.1%,1% --sweep flow.0.rate=500M,900M --csv")]
pub(crate) struct SimArgs {
    /// Scenario file
    #[arg(value_name = "SCENARIO")]
    scenario: PathBuf,
    /// Seed of all random choices, instead of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run once for each value of a key (link.0.rate, flow.NAME.size, flow.*.rate); several sweeps
    /// run once for each combination
    #[arg(long, value_name = "KEY=A,B,C", value_parser = sweep::parse)]
    sweep: Vec<Sweep>,
    /// Print one JSON object a run
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values, one line a flow, after a line of column names
    #[arg(long)]
    csv: bool,
    /// Plot each flow's receive rate over time to an SVG file; a point every 100 ms unless the
    /// scenario has record-every
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Default interval of a plot's points.
const PLOT_EVERY: Span = Span::from_millis(100);

struct Run {
    settings: Vec<Setting>,
    outcome: SimOutcome,
}

pub(crate) fn run(args: &SimArgs) -> u8 {
    let (runs, failed): (Vec<_>, Vec<_>) = match simulate(args) {
        Ok(runs) => runs.into_iter().partition(Result::is_ok),
        Err(error) => return exit::fail(&error),
    };
    // Successful runs are printed even if others failed.
    let runs: Vec<Run> = runs.into_iter().flatten().collect();
    print(args, &runs);
    let drawn = args.plot.as_deref().filter(|_| !runs.is_empty());
    let drawn = drawn.map_or(Ok(()), |file| draw(file, &runs));
    let statuses = failed.into_iter().filter_map(Result::err).chain(drawn.err());
    statuses.map(|error| exit::fail(&error)).max().unwrap_or(exit::DONE)
}

fn print(args: &SimArgs, runs: &[Run]) {
    if args.json {
        runs.iter().for_each(|run| console::out(print::json(run)));
    } else if args.csv {
        print::csv(runs).iter().for_each(console::out);
    } else {
        runs.iter().flat_map(print::table).for_each(console::out);
    }
    if runs.first().is_some_and(|run| run.outcome.flows.is_empty()) {
        console::warn("the scenario has no [[flow]]: nothing was sent");
    }
    for run in runs.iter().filter(|run| run.outcome.timed_out) {
        let of = print::title(run);
        console::warn(format_args!(
            "{of}: the time limit ended the run before its flows ended; raise time-limit"
        ));
    }
}

/// Plots the receive rate of every flow of every run over time.
fn draw(file: &Path, runs: &[Run]) -> Result<(), Error> {
    let flows = runs.iter().flat_map(|run| run.outcome.flows.iter().map(move |flow| (run, flow)));
    let series = flows.map(|(run, flow)| {
        let label = match run.settings.as_slice() {
            [] => flow.name.clone(),
            settings => {
                let shown = settings.iter().map(|(key, value)| format!("{key}={value}"));
                format!("{} {}", flow.name, shown.collect::<Vec<_>>().join(" "))
            }
        };
        let point = |(at, rate): (Time, Rate)| {
            (at.since(Time::ZERO).as_secs_f64(), rate.as_bps() as f64 / 1e6)
        };
        Series::new(label, Origin::Simulated, flow.receive_rates().into_iter().map(point))
    });
    let plot = Plot {
        title: runs.first().map_or_else(String::new, |run| run.outcome.scenario.clone()),
        x: Axis::linear("time, s"),
        y: Axis::linear("received, Mbit/s"),
        series: series.collect(),
    };
    let drawn = plot.svg().map_err(|error| error.to_string());
    let written = drawn.and_then(|svg| fs::write(file, svg).map_err(|error| error.to_string()));
    written.map_err(|error| {
        let what = format!("{}: the plot cannot be written: {error}", file.display());
        Error::new(ErrorKind::LocalFile, what).advise("name another file for --plot")
    })
}

fn simulate(args: &SimArgs) -> Result<Vec<Result<Run, Error>>, Error> {
    if args.seed.is_some() && args.sweep.iter().any(|sweep| sweep.is_of("seed")) {
        let what = "--seed and --sweep seed= both set the seed";
        return Err(Error::new(ErrorKind::Usage, what).advise("give one of them"));
    }
    let path = &args.scenario;
    let text = scenario_file::text(path)?;
    let mut cases = Vec::new();
    for settings in sweep::combinations(&args.sweep)? {
        let seed = args.seed.map(|seed| ("seed".to_owned(), seed.to_string()));
        let all: Vec<Setting> = settings.iter().cloned().chain(seed).collect();
        let mut scenario = scenario_file::parse(path, &text, &all)?;
        if args.plot.is_some() {
            scenario.record.interval.get_or_insert(PLOT_EVERY);
        }
        cases.push((settings, scenario));
    }
    let scenarios: Vec<&Scenario> = cases.iter().map(|(_, scenario)| scenario).collect();
    let outcomes = on_all_cores(&scenarios);
    let runs = cases.into_iter().zip(outcomes).map(|((settings, scenario), outcome)| {
        let outcome = outcome.map_err(|error| failed(path, scenario.seed, &settings, &error))?;
        Ok(Run { settings, outcome })
    });
    Ok(runs.collect())
}

/// The error of a failed run. For [`SimError::Broken`] (an invariant failed) it names the command
/// that repeats the run.
fn failed(path: &Path, seed: u64, settings: &[Setting], error: &SimError) -> Error {
    let path = path.display();
    let settings: Vec<&Setting> = settings.iter().filter(|(key, _)| key != "seed").collect();
    let of: String = settings.iter().map(|(key, value)| format!(", {key}={value}")).collect();
    match error {
        SimError::Scenario(_) => Error::new(ErrorKind::Usage, format!("{path}{of}: {error}")),
        SimError::Broken { .. } => {
            let sweep = |(key, value): &&Setting| format!(" --sweep '{key}={value}'");
            let again: String = settings.iter().map(sweep).collect();
            Error::new(ErrorKind::Verification, format!("{path}, seed {seed}{of}: {error}"))
                .advise(format!("repeat it: longhaul sim '{path}' --seed {seed}{again}"))
        }
    }
}

/// Prints the scenario's name and seed if the simulation panics.
struct Named<'s>(&'s Scenario);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Scenario { name, seed, .. } = self.0;
            console::warn(format_args!("scenario {name}, seed {seed}"));
        }
    }
}

/// Simulates each scenario; the results are in the order of the scenarios.
pub(crate) fn on_all_cores(scenarios: &[&Scenario]) -> Vec<Result<SimOutcome, SimError>> {
    spread(scenarios, |scenario| {
        let _named = Named(scenario);
        sim::run(scenario)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_run_prints_the_command_that_repeats_it() {
        let settings = [("seed", "7"), ("flow.0.rate", "5M")];
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let (at, whose, what) = (Time::ZERO, "copy".to_owned(), "it is not whole".to_owned());
        let error =
            failed(Path::new("wan.toml"), 7, &settings, &SimError::Broken { at, whose, what });
        assert_eq!(error.kind, ErrorKind::Verification);
        assert!(error.what.contains("seed 7") && error.what.contains("it is not whole"));
        let again = "longhaul sim 'wan.toml' --seed 7 --sweep 'flow.0.rate=5M'";
        assert!(error.advice.is_some_and(|advice| advice.ends_with(again)));
    }
}
