//! `longhaul compare`: the same object by each protocol in turn, and one table.
//!
//! In reading order: `candidate` (what is compared), `runs` (what a run gave, and what the runs of
//! one candidate come to), `simulated` and `copies` with `beside` (where runs come from), `course`
//! (how far a copy was, when), `table`, `events` and `page` (where they go to).

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
Send the same object by each protocol in turn, and say how each fared

With --scenario the runs are in virtual time: the scenario's first flow is carried by each \
protocol, what else the scenario has stays beside it, and each seed is run once more with a CUBIC \
TCP flow beside the copy. Against HOST they are real copies of random bytes; nothing is written \
there unless --write says so, and no TCP goes beside them unless --beside-tcp does. The \
protocols take turns, so that a path that changes changes for all of them.";

/// Send the same object by each protocol in turn, and say how each fared
#[derive(clap::Args)]
#[command(long_about = ABOUT, after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXAMPLES}\n{}", exit::TABLE))]
#[command(group = clap::ArgGroup::new("where").required(true).args(["host", "scenario"]))]
pub(crate) struct CompareArgs {
    /// The server as lh://HOST:PORT/PATH (PORT and PATH may be left out), or a host of ssh as
    /// USER@HOST:PATH
    #[arg(value_name = "HOST", value_parser = parse_host)]
    host: Option<Location>,
    /// Run this scenario in virtual time
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Size of the object [default: the scenario's; against a host 300MB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    size: Option<Bytes>,
    /// What is compared: names of cp --protocol; tcp:N is N connections, tcp:auto as many as a
    /// real path is found to like [default: all but tcp:auto]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = Candidate::parse)]
    protocols: Vec<Candidate>,
    /// How often each has its turn
    #[arg(long, value_name = "COUNT", default_value = "3")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Seed of the first turn, in place of the scenario's; each turn after it has the next
    #[arg(long, value_name = "N", conflicts_with = "host")]
    seed: Option<u64>,
    /// Rate for those that take one, as in cp [default: the scenario's, or what each finds]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<Rate>,
    /// Write the object at the path of HOST, verified; each run replaces it, the last stays
    #[arg(long, conflicts_with = "scenario")]
    write: bool,
    /// Copy once more in each turn, beside a TCP copy to HOST, and say how the two shared the path
    #[arg(long, conflicts_with = "scenario")]
    beside_tcp: bool,
    #[command(flatten)]
    reach: ReachArgs,
    /// Write runs as JSON on stdout, one object a line; the last is the summary
    #[arg(long)]
    json: bool,
    /// Write table and plot to this file, one page that needs no other
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// What is compared, and how it was done: what stands above a table.
struct Setting {
    /// Where, how large, how often.
    title: String,
    /// What to know when reading the figures.
    notes: Vec<String>,
    /// What the vertical axis of the plot is.
    rates: &'static str,
}

/// Runs all, prints what came of it; the exit status.
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
            return Err(usage(format!("{flag} 0 measures nothing"), "leave the flag out"));
        }
    }
    if let Some(file) = &args.html {
        // Hours of runs are not to end with a page that cannot be written.
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
        (None, None) => return Err(usage("nothing to compare on", "name HOST or --scenario")),
    };
    let standings = runs::standings(&candidates, &runs);
    let failed = runs.iter().filter(|run| run.end.is_err()).count();
    let status = if failed == 0 { exit::DONE } else { exit::status(ErrorKind::Unfinished) };
    present(args, &setting, &runs, &standings, status)?;
    Ok(status)
}

/// What is asked for, or everything.
fn candidates(args: &CompareArgs) -> Result<Vec<Candidate>, Error> {
    if args.protocols.is_empty() {
        return Ok(candidate::all());
    }
    let twice =
        args.protocols.iter().enumerate().find(|(at, one)| args.protocols[..*at].contains(one));
    match twice {
        Some((_, one)) => {
            let what = format!("{one} stands twice in --protocols");
            Err(usage(what, "name it once; --repeat runs each several times"))
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
