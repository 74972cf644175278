//! `longhaul compare`: copies the same object with each protocol, and prints one table.
//!
//! In reading order: `candidate` (the compared protocols), `runs` (results of one run, and of all
//! runs of a candidate), `simulated` (runs in virtual time), `copies` and `beside` (runs on a real
//! path), `course` (progress of a copy over time), `table`, `events` and `page` (output).

mod beside;
mod candidate;
mod copies;
mod course;
mod events;
mod page;
mod runs;
mod simulated;
mod table;

use std::fs;
use std::path::PathBuf;

use crate::error::{Error, ErrorKind};
use longhaul::Location;
use longhaul_experiments::plot::Origin;
use longhaul_proto::units::{Bytes, Rate};

use crate::quantity::{parse_bytes, parse_rate};
use crate::reach::{ReachArgs, parse_host};
use crate::{console, exit, json};
use candidate::Candidate;
use runs::{Run, Standing};

const EXAMPLES: &str = "\
Examples:
  longhaul compare --scenario wan.toml --html wan.html
  longhaul compare lh://dtn.example.org --protocols rbudp,sabul,tcp:1,tcp:8
  longhaul compare --write --size 1G me@dtn.example.org:scratch/object
";

const ABOUT: &str = "\
Copy the same object with each protocol, and compare the results

With --scenario the runs are simulated: each protocol carries the scenario's first flow, the other \
flows do not change, and each seed is run once more with a concurrent CUBIC flow. With HOST the \
runs are real copies of random bytes; HOST discards them unless --write is given. With \
--beside-tcp, each run is followed by a second copy that shares the path with a TCP copy; HOST \
discards both. The protocols take turns, so that a change of the path affects all of them.";

/// Copy the same object with each protocol, and compare the results
#[derive(clap::Args)]
#[command(long_about = ABOUT, after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXAMPLES}\n{}", exit::TABLE))]
#[command(group = clap::ArgGroup::new("where").required(true).args(["host", "scenario"]))]
pub(crate) struct CompareArgs {
    // rustdoc would read the brackets of a doc comment as links.
    #[arg(value_name = "HOST", value_parser = parse_host)]
    #[arg(help = "A server, lh://HOST[:PORT][/PATH], or an ssh host, [USER@]HOST[:PATH]")]
    host: Option<Location>,
    /// Simulate this scenario
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Size of the object [default: the scenario's, or with HOST 300MB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    size: Option<Bytes>,
    /// Compare these protocols of cp --protocol; tcp:N has N connections, tcp:auto tries several
    /// numbers (HOST only) [default: all UDP protocols, tcp:1 and tcp:8]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = Candidate::parse)]
    protocols: Vec<Candidate>,
    /// Number of runs of each protocol
    #[arg(long, value_name = "COUNT", default_value = "3")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Seed of the first run of each protocol, instead of the scenario's; each repetition adds one
    #[arg(long, value_name = "N", conflicts_with = "host")]
    seed: Option<u64>,
    /// Sending rate of each protocol, as in cp [default: the scenario's rate, or without one the
    /// rate that the protocol finds]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<Rate>,
    /// Write the object to the path of HOST; each run replaces the object of the previous run, and
    /// the last object stays
    #[arg(long, conflicts_with = "scenario")]
    write: bool,
    /// After each run, copy again while a TCP copy to HOST runs, and print how the two copies
    /// shared the path
    #[arg(long, conflicts_with = "scenario")]
    beside_tcp: bool,
    #[command(flatten)]
    reach: ReachArgs,
    /// Write runs as JSON to stdout, one object a line; the last one is the summary or an error
    #[arg(long)]
    json: bool,
    /// Write table and plot to this file as one self-contained page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

struct Setting {
    /// Host or scenario, size, number of runs.
    title: String,
    /// Notes below the table.
    notes: Vec<String>,
    /// Label of the plot's vertical axis.
    rates: &'static str,
    /// Whether the runs are simulated or real.
    origin: Origin,
    /// The congestion control of TCP, if it is known.
    congestion: Option<String>,
}

impl Setting {
    /// The congestion control of a candidate that is TCP.
    fn congestion_of(&self, candidate: Candidate) -> Option<&str> {
        self.congestion.as_deref().filter(|_| candidate.is_tcp())
    }

    /// The name of a candidate in the table: `rbudp`, `tcp:8 (cubic)`.
    fn name(&self, candidate: Candidate) -> String {
        match self.congestion_of(candidate) {
            Some(congestion) => format!("{candidate} ({congestion})"),
            None => candidate.to_string(),
        }
    }
}

pub(crate) fn run(args: &CompareArgs) -> u8 {
    match compare(args) {
        Ok(status) => status,
        Err(error) => {
            if args.json {
                console::out(json::error(&error, exit::status(error.kind)));
            }
            exit::fail(&error)
        }
    }
}

fn compare(args: &CompareArgs) -> Result<u8, Error> {
    let candidates = candidates(args)?;
    for (flag, zero) in
        [("--rate", args.rate == Some(Rate::ZERO)), ("--size", args.size == Some(Bytes::ZERO))]
    {
        if zero {
            return Err(usage(format!("{flag} 0 measures nothing"), "leave it out"));
        }
    }
    if let Some(file) = &args.html {
        // Fails now if the page cannot be written, not after hours of runs.
        let there = fs::OpenOptions::new().append(true).create(true).open(file);
        there.map_err(|error| unwritten(file, &error))?;
    }
    let tell = |run: &Run| {
        if args.json {
            console::out(events::run(run));
        }
    };
    let (setting, runs) = match (&args.scenario, &args.host) {
        (Some(scenario), _) => simulated::run(args, scenario, &candidates, tell)?,
        (None, Some(host)) => copies::run(args, host, &candidates, tell)?,
        (None, None) => return Err(usage("no path to compare on", "name HOST or --scenario")),
    };
    let standings = runs::standings(&candidates, &runs);
    let failed = runs.iter().filter(|run| run.end.is_err()).count();
    let status = if failed == 0 { exit::DONE } else { exit::status(ErrorKind::Unfinished) };
    present(args, &setting, &runs, &standings, status)?;
    Ok(status)
}

/// The requested protocols, by default those of `candidate::all`.
fn candidates(args: &CompareArgs) -> Result<Vec<Candidate>, Error> {
    if args.protocols.is_empty() {
        return Ok(candidate::all());
    }
    let twice =
        args.protocols.iter().enumerate().find(|(at, one)| args.protocols[..*at].contains(one));
    match twice {
        Some((_, one)) => {
            let what = format!("--protocols names {one} twice");
            Err(usage(what, "name it once; --repeat runs each protocol several times"))
        }
        None => Ok(args.protocols.clone()),
    }
}

fn present(
    args: &CompareArgs,
    setting: &Setting,
    runs: &[Run],
    standings: &[Standing],
    status: u8,
) -> Result<(), Error> {
    if args.json {
        console::out(events::summary(setting, standings, status));
    } else {
        table::lines(setting, standings).into_iter().for_each(console::out);
    }
    for run in runs {
        if let Err(reason) = &run.end {
            console::warn(format_args!("{}, turn {}: {reason}", run.candidate, run.turn));
        }
    }
    if let Some(file) = &args.html {
        let page = page::html(setting, runs, standings)
            .map_err(|error| Error::new(ErrorKind::Unfinished, error.to_string()))?;
        fs::write(file, page).map_err(|error| unwritten(file, &error))?;
    }
    Ok(())
}

fn unwritten(file: &std::path::Path, error: &std::io::Error) -> Error {
    let what = format!("cannot write {}: {error}", file.display());
    Error::new(ErrorKind::LocalFile, what).advise("name another file with --html")
}

fn usage(what: impl Into<String>, advice: &str) -> Error {
    Error::new(ErrorKind::Usage, what).advise(advice)
}
