//! `longhaul reproduce`: reproduces the papers' tables and figures.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::error::{Error, ErrorKind};
use clap::ValueEnum;
use longhaul_experiments::experiment::{Case, Experiment, Set};
use longhaul_experiments::outcome::Outcomes;
use longhaul_experiments::page::{self, File, Page};
use longhaul_experiments::updates::{self, UpdatesRun};
use longhaul_experiments::{catalogue, results, simulate};

use crate::{console, exit, utc};

/// Exit status if a page or a figure differs from the committed one.
const EXIT_DIFFERS: u8 = 1;

/// Reproduce the papers' tables and figures
///
/// Without a name, lists the experiments. Runs the named experiments (`all`: those that take only
/// seconds), prints their pages, and compares them with the committed results. Simulated values are
/// the same on every machine: if one differs, the exit status is 1, and stderr names it. If an
/// experiment fails, the others still run.
#[derive(clap::Args)]
pub(crate) struct ReproduceArgs {
    /// Experiments to run, `all`, or `list`
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Simulate only, or also run over the emulator with real sockets
    #[arg(long, value_name = "WAY", default_value = "sim")]
    how: How,
    /// Emulate only cases with this text in their name; the others keep their values
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Write pages and figures to the folder of results
    #[arg(long)]
    update: bool,
    /// The folder of results [default: that of the enclosing repository]
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum How {
    /// In virtual time
    Sim,
    /// Also in real time, with this binary over the emulator (Linux only)
    Emulate,
}

pub(crate) fn run(args: &ReproduceArgs) -> u8 {
    let done = match args.ids.as_slice() {
        [] if args.update || args.how != How::Sim || args.case.is_some() => {
            let error = Error::new(ErrorKind::Usage, "no experiment named");
            Err(error.advise("name experiments, or write all; longhaul reproduce lists them"))
        }
        [] => {
            list();
            console::note("longhaul: name the experiments to run, or write all");
            Ok(true)
        }
        [id] if id == "list" => {
            list();
            Ok(true)
        }
        ids => chosen(ids).and_then(|chosen| reproduce(&chosen, args)),
    };
    match done {
        Ok(true) => exit::DONE,
        Ok(false) => EXIT_DIFFERS,
        Err(error) => exit::fail(&error),
    }
}

fn list() {
    for experiment in catalogue::all() {
        let emulated = (experiment.cases)().iter().filter(|case| case.is_emulated()).count();
        let ways = match emulated {
            0 => "sim".to_owned(),
            cases => format!("sim, emulate {cases}"),
        };
        let named = if experiment.set == Set::Named { " (only by name)" } else { "" };
        console::out(format_args!("{:<24} {ways:<16} {}{named}", experiment.id, experiment.title));
    }
}

fn chosen(ids: &[String]) -> Result<Vec<&'static Experiment>, Error> {
    if ids == ["all"] {
        let all = catalogue::all().into_iter();
        return Ok(all.filter(|experiment| experiment.set != Set::Named).collect());
    }
    let find = |id: &String| {
        catalogue::find(id).ok_or_else(|| {
            let error = Error::new(ErrorKind::Usage, format!("no experiment is called '{id}'"));
            error.advise("longhaul reproduce list shows them")
        })
    };
    ids.iter().map(find).collect()
}

/// Returns `false` if a page or figure differs from the committed one and was not updated.
fn reproduce(experiments: &[&'static Experiment], args: &ReproduceArgs) -> Result<bool, Error> {
    let folder = match &args.results {
        Some(folder) => Some(folder.clone()),
        None => std::env::current_dir().ok().and_then(|here| results::find(&here)),
    };
    if folder.is_none() && args.update {
        let what = "there is no folder of results here or above";
        return Err(Error::new(ErrorKind::Usage, what).advise("name it with --results"));
    }
    if args.case.is_some() && args.how == How::Sim {
        let error = Error::new(ErrorKind::Usage, "--case works only with --how emulate");
        return Err(error.advise("add --how emulate, or leave --case out"));
    }
    if folder.is_none() {
        console::warn(
            "no folder of results here or above: nothing is compared; name one with --results",
        );
    }
    let mut emulator = match args.how {
        How::Sim => None,
        How::Emulate => Some(emulator()?),
    };
    let (mut same, mut failed) = (true, Vec::new());
    for experiment in experiments {
        match one(experiment, args, folder.as_deref(), emulator.as_mut()) {
            Ok(as_committed) => same &= as_committed,
            Err(error) => {
                console::warn(format_args!("{}: {error}", experiment.id));
                failed.push(experiment.id);
            }
        }
    }
    if let Some(folder) = folder.filter(|_| args.update) {
        results::write_index(&folder, &catalogue::all()).map_err(|e| file_trouble(&e))?;
    }
    if failed.is_empty() {
        return Ok(same);
    }
    let what = format!("{} of {} failed: {}", failed.len(), experiments.len(), failed.join(" "));
    Err(Error::new(ErrorKind::Unfinished, what).advise("run these again: longhaul reproduce ID..."))
}

fn one(
    experiment: &'static Experiment,
    args: &ReproduceArgs,
    folder: Option<&Path>,
    emulator: Option<&mut Emulator>,
) -> Result<bool, Error> {
    console::note(format_args!("reproduce {}", experiment.id));
    let committed = match folder {
        Some(folder) => results::read(folder, &experiment.file()).map_err(|e| file_trouble(&e))?,
        None => None,
    };
    let cases = (experiment.cases)();
    let simulated = simulate::run(&cases)
        .map_err(|error| failed(format_args!("{}: {error}", experiment.id)))?;
    let mut page = Page::new(experiment, &simulated, committed.as_deref());
    // The page is compared without new emulated values, because they vary from run to run.
    let as_committed = page.clone();
    if let Some(emulator) = emulator {
        let asked = |case: &&Case| args.case.as_ref().is_none_or(|text| case.name.contains(text));
        let cases: Vec<Case> = cases.iter().filter(asked).cloned().collect();
        emulate(emulator, &cases, &simulated, &mut page, folder);
        let mut paths = updates::in_real_time(experiment);
        let asked = |name: &str| args.case.as_ref().is_none_or(|text| name.contains(text));
        paths.iter_mut().for_each(|path| path.retain(|(name, _)| asked(name)));
        emulate_updates(emulator, &paths, &mut page, folder);
    }
    let files = page.files(&simulated).map_err(failed)?;
    console::out(&files[0].text);
    match folder {
        Some(folder) if args.update => {
            let changed = results::write(folder, &files).map_err(|e| file_trouble(&e))?;
            console::note(format_args!("  {changed} of {} files have changed", files.len()));
            Ok(true)
        }
        Some(folder) => compare(folder, &as_committed.files(&simulated).map_err(failed)?),
        None => Ok(true),
    }
}

/// Whether the files match the committed ones; prints the differences.
fn compare(folder: &Path, files: &[File]) -> Result<bool, Error> {
    let mut same = true;
    for File { name, text } in files {
        let committed = results::read(folder, name).map_err(|error| file_trouble(&error))?;
        let found = match committed {
            None => vec!["does not exist".to_owned()],
            Some(committed) if name.ends_with(".md") => page::differences(text, &committed),
            Some(committed) if committed == *text => Vec::new(),
            Some(_) => vec!["differs".to_owned()],
        };
        for line in &found {
            console::warn(format_args!("{}: {line}", folder.join(name).display()));
        }
        same &= found.is_empty();
    }
    Ok(same)
}

#[cfg(target_os = "linux")]
type Emulator = longhaul_experiments::emulate::Emulator;
#[cfg(not(target_os = "linux"))]
type Emulator = ();

#[cfg(target_os = "linux")]
fn emulator() -> Result<Emulator, Error> {
    let binary = std::env::current_exe().map_err(|error| file_trouble(&error))?;
    Ok(Emulator::new(binary))
}

#[cfg(not(target_os = "linux"))]
fn emulator() -> Result<Emulator, Error> {
    Err(Error::new(ErrorKind::Usage, "only Linux can emulate").advise("use --how sim"))
}

#[cfg(target_os = "linux")]
fn emulate(
    emulator: &mut Emulator,
    cases: &[Case],
    simulated: &Outcomes,
    page: &mut Page,
    folder: Option<&Path>,
) {
    let (count, span) = emulator.expected(cases, simulated);
    if count > 0 {
        let minutes = span.as_secs_f64() / 60.0;
        console::note(format_args!("  emulates {count} cases, in about {minutes:.1} min"));
    }
    let mut failed = Vec::new();
    let outcomes = emulator.run(cases, simulated, |case, outcome| match outcome {
        Ok(outcome) => {
            let goodput = outcome.first().goodput();
            console::note(format_args!("  emulated {case}: {goodput:.1} Mbit/s"));
        }
        Err(error) => failed.extend(failure(case, error)),
    });
    if !outcomes.is_empty() || !failed.is_empty() {
        page.emulated(&outcomes, &failed, provenance(folder));
    }
}

/// Reports a failed case. Returns the case and the reason if the case was tried.
#[cfg(target_os = "linux")]
fn failure(
    case: &str,
    error: &longhaul_experiments::emulate::EmulateError,
) -> Option<(String, String)> {
    console::warn(format_args!("{case}: {error}; its value stays as it was"));
    error.was_tried().then(|| (case.to_owned(), error.to_string()))
}

/// Emulates runs of state updates. The runs of one element of `paths` run at the same time.
#[cfg(target_os = "linux")]
fn emulate_updates(
    emulator: &Emulator,
    paths: &[Vec<(String, UpdatesRun)>],
    page: &mut Page,
    folder: Option<&Path>,
) {
    for path in paths.iter().filter(|path| !path.is_empty()) {
        let mut failed = Vec::new();
        let outcomes = emulator.updates(path, |case, outcome| match outcome {
            Ok(outcome) => {
                let came = outcome.delays.len();
                console::note(format_args!("  emulated {case}: {came} updates arrived"));
            }
            Err(error) => failed.extend(failure(case, error)),
        });
        if !outcomes.is_empty() || !failed.is_empty() {
            page.emulated(&outcomes, &failed, provenance(folder));
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn emulate_updates(_: &Emulator, _: &[Vec<(String, UpdatesRun)>], _: &mut Page, _: Option<&Path>) {}

#[cfg(not(target_os = "linux"))]
fn emulate(_: &mut Emulator, _: &[Case], _: &Outcomes, _: &mut Page, _: Option<&Path>) {}

/// Date, machine and commit of emulated values.
fn provenance(folder: Option<&Path>) -> String {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let tcp = read("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let processor = read("/proc/cpuinfo");
    let processor =
        processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let processor = processor.map_or(std::env::consts::ARCH, |(_, name)| name.trim());
    let commit = commit(folder.unwrap_or(Path::new(".")));
    format!(
        "{}, {cores} cores of {processor}, Linux {} (TCP: {}), commit {}.",
        utc::today(),
        kernel.trim(),
        tcp.trim(),
        commit.as_deref().unwrap_or("unknown"),
    )
}

/// The commit of a repository, and whether its code or scenarios have uncommitted changes.
fn commit(folder: &Path) -> Option<String> {
    let git = |args: &[&str]| {
        // Without `safe.directory`, git run by root refuses another user's clone.
        let output = Command::new("git")
            .arg("-C")
            .arg(folder)
            .args(["-c", "safe.directory=*"])
            .args(args)
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short", "HEAD"])?;
    let ours = [":(top)crates", ":(top)scenarios", ":(top)Cargo.lock"];
    let changed = git(&[&["status", "--porcelain", "--"], &ours[..]].concat())?;
    Some(if changed.is_empty() { commit } else { format!("{commit} with changes") })
}

fn failed(what: impl Display) -> Error {
    Error::new(ErrorKind::Unfinished, what.to_string())
}

fn file_trouble(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::LocalFile, format!("the folder of results: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_experiment_is_refused_with_advice() {
        let error = chosen(&["quanta-fig99".into()]).expect_err("there is none").to_string();
        assert!(error.contains("quanta-fig99") && error.contains("reproduce list"), "{error}");
    }

    #[test]
    fn all_runs_every_experiment_except_those_that_must_be_named() {
        let all = chosen(&["all".into()]).expect("it is known");
        assert!(!all.is_empty() && all.iter().all(|experiment| experiment.set != Set::Named));
        let named: Vec<String> = catalogue::all().iter().map(|e| e.id.to_owned()).collect();
        assert_eq!(chosen(&named).map(|all| all.len()).ok(), Some(named.len()));
        assert!(all.len() < named.len());
    }
}
