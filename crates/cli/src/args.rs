//! The command line: parses the arguments and runs the subcommand.

use std::ffi::OsString;

use crate::error::{Error, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use longhaul::{Location, ServerPin};

use crate::{
    cat, channel, compare, completions, config, console, cp, demo, doctor, exit, habits, help, id,
    json, ls, man, model, path, probe, reproduce, serve, share, show_config, sim, stream, sync,
    top,
};
#[cfg(target_os = "linux")]
use crate::{emulate, mount};

/// Fast, verified, resumable copies over long or lossy networks
#[derive(Parser)]
#[command(name = "longhaul", version, max_term_width = 100, after_help = exit::TABLE)]
#[command(arg_required_else_help = true)]
#[command(args_override_self = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: SubcommandArgs,
}

/// Ids of arguments that name hosts.
const PLACES: [&str; 5] = ["locations", "path", "paths", "host", "url"];

/// Id of the arguments of `stream send`: an optional source, then the URL.
const SOURCE_AND_URL: &str = "places";

/// With `--json`, these subcommands write an `error` event if they refuse their command line or
/// configuration.
const WITH_EVENTS: [&str; 6] = ["cp", "sync", "ls", "probe", "doctor", "serve"];

#[derive(Subcommand)]
enum SubcommandArgs {
    Cp(Box<cp::CpArgs>),
    Sync(Box<sync::SyncArgs>),
    Ls(ls::LsArgs),
    Cat(cat::CatArgs),
    #[cfg(target_os = "linux")]
    Mount(mount::MountArgs),
    Top(top::TopArgs),
    Serve(serve::ServeArgs),
    Share(share::ShareArgs),
    Stream(stream::StreamArgs),
    Channel(channel::ChannelArgs),
    Reflect(serve::ReflectArgs),
    Id(id::IdArgs),
    Model(model::ModelArgs),
    Path(path::PathArgs),
    Probe(probe::ProbeArgs),
    Doctor(doctor::DoctorArgs),
    Demo(demo::DemoArgs),
    Compare(compare::CompareArgs),
    Sim(sim::SimArgs),
    Reproduce(reproduce::ReproduceArgs),
    #[cfg(target_os = "linux")]
    Emulate(emulate::EmulateArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

pub(crate) fn run() -> u8 {
    let argv: Vec<OsString> = std::env::args_os().collect();
    // clap's own `help` refuses the name of a protocol, as in `help cp gtp`.
    if let Some(status) = help::answer(&argv) {
        return status;
    }
    // The error of a wrong flag, and `--help`, must not depend on the configuration.
    let own = match Cli::command().try_get_matches_from(&argv) {
        Ok(own) => own,
        Err(error) => return refuse(error, &argv),
    };
    let settings = match settings(&own) {
        Ok(settings) => settings,
        Err(error) => {
            if wants_events(&argv) {
                console::out(json::error(&error, exit::status(error.kind)));
            }
            return exit::fail(&error);
        }
    };
    // The settings go after the innermost subcommand, such as `get` in `longhaul share get`.
    let at = 1 + depth(&own);
    let mut words = argv.clone();
    words.splice(at..at, settings.iter().flat_map(|setting| setting.words.iter().cloned()));
    let parsed = Cli::command().try_get_matches_from(words);
    let parsed = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return refuse(error, &argv),
    };
    let (ran, words) = (leaf(&matches), leaf(&own));
    if show_config::is_asked(ran) {
        show_config::in_force(ran, words, &settings).iter().for_each(console::out);
        return exit::DONE;
    }
    match cli.command {
        SubcommandArgs::Cp(args) => cp::run(&args.copy, None, ran, &settings),
        SubcommandArgs::Sync(args) => sync::run(&args, ran, &settings),
        SubcommandArgs::Ls(args) => ls::run(&args, &settings),
        SubcommandArgs::Cat(args) => cat::run(&args, &settings),
        #[cfg(target_os = "linux")]
        SubcommandArgs::Mount(args) => mount::run(&args, &settings),
        SubcommandArgs::Top(args) => top::run(&args, &settings),
        SubcommandArgs::Serve(args) => serve::run(&args),
        SubcommandArgs::Share(args) => share::run(&args, &settings),
        SubcommandArgs::Stream(args) => stream::run(&args, &settings),
        SubcommandArgs::Reflect(args) => serve::run_reflect(&args),
        SubcommandArgs::Channel(args) => channel::run(&args, &settings),
        SubcommandArgs::Id(args) => id::run(&args),
        SubcommandArgs::Model(args) => model::run(&args),
        SubcommandArgs::Path(args) => path::run(&args),
        SubcommandArgs::Probe(args) => probe::run(&args, &settings),
        SubcommandArgs::Doctor(args) => doctor::run(&args),
        SubcommandArgs::Demo(args) => demo::run(&args),
        SubcommandArgs::Compare(args) => compare::run(&args),
        SubcommandArgs::Sim(args) => sim::run(&args),
        SubcommandArgs::Reproduce(args) => reproduce::run(&args),
        #[cfg(target_os = "linux")]
        SubcommandArgs::Emulate(args) => emulate::run(&args),
        SubcommandArgs::Completions(args) => completions::run(&args, Cli::command()),
        SubcommandArgs::Man(args) => man::run(&args, Cli::command()),
    }
}

fn leaf(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, inner)| leaf(inner))
}

fn depth(matches: &ArgMatches) -> usize {
    matches.subcommand().map_or(0, |(_, inner)| 1 + depth(inner))
}

fn settings(own: &ArgMatches) -> Result<Vec<config::Setting>, Error> {
    let Some(section) = own.subcommand_name() else { return Ok(Vec::new()) };
    let section = if section == "sync" { "cp" } else { section };
    let matches = leaf(own);
    let places = PLACES.iter().filter_map(|id| matches.try_get_many::<Location>(id).ok()?);
    let words = matches.try_get_many::<OsString>(SOURCE_AND_URL).ok().flatten();
    let url = words.and_then(|mut words| words.next_back()?.to_str()?.parse().ok());
    let places: Vec<Location> = places.flatten().cloned().chain(url).collect();
    if !config::SECTIONS.contains(&section) && places.is_empty() {
        return Ok(Vec::new());
    }
    let has_flag = |key: &str| matches.try_get_raw(&key.replace('-', "_")).is_ok();
    let is_given = |key: &str| {
        let is_key = |id: &&clap::Id| id.as_str().replace('_', "-") == key;
        let id = matches.ids().find(is_key).map(clap::Id::as_str);
        id.is_some_and(|id| matches.value_source(id) == Some(ValueSource::CommandLine))
    };
    let pins = matches.try_get_many::<ServerPin>("server_id").ok().flatten().unwrap_or_default();
    let pins: Vec<ServerPin> = pins.cloned().collect();
    let (is_given, has_flag) = (&is_given, &has_flag);
    let wanted = config::Wanted { section, places: &places, is_given, has_flag, pins: &pins };
    config::load(&Cli::command(), wanted)
}

/// Prints the error, as an event too if `--json` asks for events, and ends the process.
fn refuse(error: clap::Error, argv: &[OsString]) -> u8 {
    let subcommand = argv.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let error = habits::explain(error, subcommand);
    if error.use_stderr() && wants_events(argv) {
        let error = as_event(&error.render().to_string(), subcommand);
        console::out(json::error(&error, exit::status(error.kind)));
    }
    error.exit()
}

/// Whether the error must be an event, as with `longhaul cp --json`.
fn wants_events(argv: &[OsString]) -> bool {
    let mut words = argv.iter().skip(1).take_while(|word| *word != "--");
    let has_events = |word: &OsString| WITH_EVENTS.iter().any(|name| word == name);
    words.next().is_some_and(has_events) && words.any(|word| word == "--json")
}

/// Converts clap's text: the first line and the names of missing arguments are the error, the tips
/// are its advice.
fn as_event(said: &str, subcommand: &str) -> Error {
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    // Names of missing arguments are on separate lines.
    let names =
        said.lines().skip(1).take_while(|line| line.starts_with("  ") && !line.contains("tip:"));
    let names = names.map(|line| format!(" {}", line.trim()));
    let what = format!("{}{}", first.trim_start_matches("error: "), names.collect::<String>());
    let tips: Vec<&str> = lines.filter_map(|line| line.strip_prefix("tip: ")).collect();
    let error = Error::new(ErrorKind::Usage, what);
    match tips.is_empty() {
        true => error.advise(format!("longhaul {subcommand} --help")),
        false => error.advise(tips.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
