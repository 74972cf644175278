//! `longhaul cp`: a file or a tree, here or there, whole. `sync` shares its flags and its course.

mod files_from;
mod pipe;
mod remote;
mod resolve;

pub(crate) use resolve::{TCP, protocols};

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, ArgMatches};
use longhaul::{CancelHandle, Delete, Location, Summary, blocking};
use longhaul_proto::law::Weight;
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};

use crate::config::Setting;
use crate::error::{Error, ErrorKind};
use crate::protocol_settings::ProtocolSettings;
use crate::quantity::{parse_bytes, parse_rate, parse_rate_with_unit, parse_span};
use crate::reach::{ReachArgs, advise_scheme};
use crate::report::Kind;
use crate::screen::{Screen, Show};
use crate::{console, descriptors, exit, json, progress, signals};

/// What Ctrl-C answers where the copy can go on.
const RESUMABLE: &str = "ending; run the same command again to go on; a second Ctrl-C ends at once";

/// What `longhaul help cp` begins with.
pub(crate) const EXAMPLES: &str = "\
Examples:
  longhaul cp -r run42 dtn.example.org:/data/        over ssh
  longhaul cp -r -P lh://dtn.example.org/run42 .     from a longhaul serve
  longhaul cp h1:/a h2:/b lh://h3/c dest/            from three hosts at once
  longhaul cp -r h1:run42 h2:/data/                  from one host to another
  longhaul cp --replicas h1:/x h2:/x h3:/x dest/x    one object from replicas
  tar c run42 | longhaul cp - dtn.example.org:42.tar from a pipe
";

const ABOUT: &str = "\
Copy files and folders to or from another host

A location is a local path, [user@]host:path over ssh, or lh://host[:port]/path on a running \
longhaul serve. Sources are all local, or all remote; those on several hosts are fetched at once, \
each getting its share of what this host can take. Where both ends are on this host, the copy \
is verified and resumable all the same, and no network is used. Where both are on other hosts, \
the first that ssh reaches runs the copy, and the data go directly to the other. The location \
- is standard input, of any length, or standard output; neither can be resumed. Any other \
interrupted copy goes on where it stopped when the same command is run again.

Rates are decimal bits a second unless written B/s; sizes take k/M/G/T (1000) and Ki/Mi/Gi/Ti \
(1024); times take ms, s, m, h. Defaults for the flags may stand in config.toml.";

/// Copy files and folders to or from another host
#[derive(clap::Args)]
#[command(override_usage = "longhaul cp [OPTIONS] <SOURCE>... <DESTINATION>")]
#[command(long_about = format!("{ABOUT}\n\n{EXAMPLES}"))]
#[command(after_help = EXAMPLES, after_long_help = exit::TABLE)]
pub(crate) struct CpArgs {
    #[command(flatten)]
    pub(crate) copy: CopyArgs,
}

// The flags of `cp` and `sync`. Without a doc comment, which would take the place of theirs.
#[derive(clap::Args)]
pub(crate) struct CopyArgs {
    /// What to copy, and where to; in the name of a source on another host, *, ?, [...] and {a,b}
    /// match the names there
    #[arg(value_name = "LOCATION", num_args = 1.., required_unless_present = "show_config")]
    #[arg(value_parser = OsStringValueParser::new().try_map(|text| Location::parse(&text)))]
    locations: Vec<Location>,
    /// The sources all hold the same object: compare what they have, then take each part of it from
    /// whoever delivers; sources that die or differ are left out
    #[arg(long)]
    replicas: bool,
    /// Copy folders with all that is in them
    #[arg(short, long)]
    recursive: bool,
    /// Keep permissions and times
    #[arg(short, long, overrides_with = "no_preserve")]
    preserve: bool,
    /// Take back --preserve of a configuration file
    #[arg(long, overrides_with = "preserve")]
    no_preserve: bool,
    /// The same as -r -p
    #[arg(short, long)]
    archive: bool,
    /// Name each file, folder and link as it is made, and say more; -vv names those that are
    /// skipped too
    #[arg(short, long, action = ArgAction::Count, overrides_with = "quiet")]
    verbose: u8,
    /// Say nothing but errors, whatever else is asked for but --json; of -q and -v the last counts
    #[arg(short, long, overrides_with = "verbose")]
    quiet: bool,
    /// Name what would be made: files, folders/, links -> where they lead; copy nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// As in rsync: --partial, which is always on, and --progress (a port goes into -e, or behind
    /// the host of lh://)
    #[arg(short = 'P')]
    partial_progress: bool,
    /// What rsync needs so that an interrupted copy goes on: here it always does
    #[arg(long = "partial", hide = true)]
    _partial: bool,
    /// What rsync compresses by: accepted with a note, for data are not compressed
    #[arg(short = 'z', long, hide = true)]
    compress: bool,
    /// Show progress: a bar on a terminal, elsewhere a line every 10 s
    #[arg(long, overrides_with = "no_progress")]
    progress: bool,
    /// Show no progress on a terminal either
    #[arg(long, overrides_with = "progress")]
    no_progress: bool,
    /// Write events as JSON on stdout, one object a line; the last is the summary
    #[arg(long)]
    json: bool,
    /// Upper limit of the rate that is found, with its unit: 500M, 60MB/s; of several sources
    /// together
    #[arg(long, value_name = "RATE", value_parser = parse_rate_with_unit)]
    bwlimit: Option<Rate>,
    /// Share the path with other traffic: equal takes the part of one TCP flow, a number that of so
    /// many, low hardly any; no effect on --rate, sabul, gtp and TCP
    #[arg(long, value_name = "low|equal|N")]
    share: Option<Weight>,
    /// Send at this rate and never react to loss (sabul, tsunami, fobs-table: at most this rate):
    /// bit/s of UDP payload, longhaul's header and tag included, UDP, IP and Ethernet not; each of
    /// several sources sends so much
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<Rate>,
    /// Search for the rate as on a new path, and keep nothing of what is found (see
    /// `longhaul path`)
    #[arg(long)]
    no_path_memory: bool,
    /// Leave out what matches this glob; the first --exclude or --include that matches decides
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Take what matches this glob
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Read globs to leave out from this file, one a line; '#' and ';' start comment lines
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// Copy only the paths that this file lists, one a line, relative to the one source folder; a
    /// listed folder is copied with all that it holds; - reads standard input, '#' and ';' start
    /// comment lines; a missing path is reported, and the copy ends with status 8
    #[arg(long, value_name = "FILE")]
    files_from: Option<PathBuf>,
    /// The paths of --files-from end with a zero byte and not with a line, and have no comments
    #[arg(long, requires = "files_from")]
    from0: bool,
    /// Make the folders that lead to the destination where they are missing
    #[arg(long)]
    mkpath: bool,
    /// Leave out files of a folder that are larger
    ///
    /// Also files that --include names.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_size: Option<Bytes>,
    /// Leave out files of a folder that are smaller
    ///
    /// Also files that --include names.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    min_size: Option<Bytes>,
    #[command(flatten)]
    reach: ReachArgs,
    /// Compare files that are there already, and what an earlier run left of them, by content and
    /// not by size and time
    #[arg(short, long, overrides_with = "no_checksum")]
    checksum: bool,
    /// Take back --checksum of a configuration file
    #[arg(long, overrides_with = "checksum")]
    no_checksum: bool,
    #[arg(long, value_name = "NAME", help = resolve::protocol_help())]
    #[arg(value_parser = PossibleValuesParser::new(resolve::protocols()))]
    protocol: Option<String>,
    #[command(flatten)]
    settings: ProtocolSettings,
    #[arg(long, help = resolve::streams_help(), value_name = "COUNT|auto")]
    #[arg(value_parser = resolve::parse_streams)]
    streams: Option<Streams>,
    /// Size of a segment, a multiple of 1Mi; 0 for the whole object, all of which a kill may then
    /// cost on a path that loses packets [default: 16Mi]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    segment: Option<Bytes>,
    /// How much received data may wait in memory, at most: blocks of incomplete chunks, and chunks
    /// that wait for the disk; the list of files counts, too; at least 32Mi. A pipe that is sent is
    /// read ahead in parts of up to a quarter of it
    #[arg(long, value_name = "SIZE", default_value = "512Mi", value_parser = parse_bytes)]
    memory: Bytes,
    /// How data are sealed; none must be allowed by the server too (serve --allow-plain)
    #[arg(long, value_name = "NAME", default_value = "auto")]
    #[arg(value_parser = PossibleValuesParser::new(resolve::CIPHERS))]
    cipher: String,
    /// How the receiver moves payloads; fake measures, and writes nothing
    #[arg(long, value_name = "NAME", default_value = "naive")]
    #[arg(value_parser = PossibleValuesParser::new(resolve::RECEIVES))]
    receive: String,
    /// UDP payload of a data datagram in bytes, in IP fragments above 8972; without it the path is
    /// probed
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(512..=65000))]
    datagram: Option<u16>,
    /// How long a lost connection is taken up again
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_span)]
    retry_for: Span,
    /// How long without progress, on the way or at a disk, before the copy is given up
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_span)]
    stall: Span,
    /// For a longhaul on another host that has started this one: end with standard input, and say
    /// nothing but events
    #[arg(long, hide = true)]
    watch_stdin: bool,
}

/// A copy that makes one folder equal to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mirror {
    /// Names that the source lacks are deleted.
    pub(crate) delete: Option<Delete>,
}

/// How many connections parallel TCP has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Streams {
    /// So many.
    Count(u16),
    /// As many as are found to be best.
    Auto,
}

/// A flag that filters files of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilterFlag {
    /// `--exclude`
    Exclude(String),
    /// `--include`
    Include(String),
    /// `--exclude-from`
    ExcludeFrom(PathBuf),
}

/// The filters in the order in which they decide: the command line's, then the files'.
fn filters(matches: &ArgMatches, settings: &[Setting]) -> Vec<FilterFlag> {
    fn placed<'a, T: Clone + Send + Sync + 'static>(
        matches: &'a ArgMatches,
        id: &'a str,
        word: fn(T) -> FilterFlag,
    ) -> impl Iterator<Item = (usize, FilterFlag)> + 'a {
        let values = matches.get_many::<T>(id).unwrap_or_default().cloned();
        matches.indices_of(id).unwrap_or_default().zip(values.map(word))
    }
    let mut words: Vec<(usize, FilterFlag)> = Vec::new();
    words.extend(placed(matches, "exclude", FilterFlag::Exclude));
    words.extend(placed(matches, "include", FilterFlag::Include));
    words.extend(placed(matches, "exclude_from", FilterFlag::ExcludeFrom));
    words.sort_by_key(|(index, _)| *index);
    let filters = ["exclude", "include", "exclude-from"];
    let from_files = settings.iter().filter(|setting| filters.contains(&setting.key.as_str()));
    // Defaults stand before the user's own words, so that those win; here the first one wins.
    words.rotate_left(from_files.map(|setting| setting.words.len()).sum());
    words.into_iter().map(|(_, word)| word).collect()
}

/// Copies, and says how it went. `matches` has the words of the command line and of `settings`.
pub(crate) fn run(
    args: &CopyArgs,
    mirror: Option<Mirror>,
    matches: &ArgMatches,
    settings: &[Setting],
) -> u8 {
    let filters = filters(matches, settings);
    descriptors::raise_limit();
    let cancel = CancelHandle::default();
    let screen = Arc::new(Screen::new(show_what(args), cancel.clone()));
    let started = match resolve::remote(args, mirror, &filters, settings, matches, &screen) {
        Ok(Some(plan)) => start_elsewhere(args, &plan, &screen, cancel),
        Ok(None) => start(args, mirror, filters, settings, &screen, cancel),
        Err(error) => Err(error),
    };
    match started {
        Ok(status) => status,
        Err(error) => {
            let error = advise_scheme(say_how_to_go_on(error), &args.locations);
            screen.failed(&error);
            exit::status(error.kind)
        }
    }
}

/// What was not finished and says nothing better is finished by the same command.
fn say_how_to_go_on(error: Error) -> Error {
    let resumable =
        matches!(error.kind, ErrorKind::Unfinished | ErrorKind::Cancelled | ErrorKind::Stalled);
    if resumable && error.advice.is_none() {
        return error.advise("run the same command again to go on where it stopped");
    }
    error
}

fn start(
    args: &CopyArgs,
    mirror: Option<Mirror>,
    filters: Vec<FilterFlag>,
    settings: &[Setting],
    screen: &Arc<Screen>,
    cancel: CancelHandle,
) -> Result<u8, Error> {
    let copy = resolve::prepare(args, mirror, filters, settings, screen)?;
    let pipe = copy.pipe.clone();
    let first = match pipe {
        Some(_) => "ending; a second Ctrl-C ends at once",
        None => RESUMABLE,
    };
    watch_signals(&cancel, first)?;
    if args.watch_stdin {
        signals::cancel_with_stdin(cancel.clone()).map_err(cannot_watch)?;
    }
    if args.compress && !args.quiet {
        console::warn("data are not compressed on the way; -z does nothing");
    }
    screen.started(&copy.sources, &copy.destination, copy.protocol);
    let request = match &pipe {
        Some(pipe) => pipe.join(copy.request, &cancel),
        None => copy.request,
    };
    let shown = screen.clone();
    let copy = request.cancel_with(&cancel).on_event(move |event| shown.see(event));
    let ended = blocking::wait(copy.start()?.finish()).map_err(Error::from);
    let summary = match pipe {
        Some(_) => ended.map_err(|error| pipe::Pipe::explain(error, &cancel))?,
        None => ended?,
    };
    let status = status(args, &summary);
    screen.finished(&summary, status, &json::summary(&summary, status));
    Ok(status)
}

/// Starts a copy on another host, and shows it.
fn start_elsewhere(
    args: &CopyArgs,
    plan: &remote::Plan,
    screen: &Arc<Screen>,
    cancel: CancelHandle,
) -> Result<u8, Error> {
    watch_signals(&cancel, RESUMABLE)?;
    let (summary, line) = remote::run(plan, screen, &cancel)?;
    let status = status(args, &summary);
    screen.finished(&summary, status, &line);
    Ok(status)
}

fn watch_signals(cancel: &CancelHandle, first: &'static str) -> Result<(), Error> {
    signals::cancel_on_signal(cancel.clone(), first).map_err(cannot_watch)
}

fn cannot_watch(error: io::Error) -> Error {
    Error::new(ErrorKind::LocalFile, format!("cannot watch signals: {error}"))
}

/// The exit status of a copy that was done.
fn status(args: &CopyArgs, summary: &Summary) -> u8 {
    // Replicas that failed are told of; what they would have brought is there.
    let is_short = summary.failed_sources > 0 && !args.replicas;
    let some_failed = summary.failed_files > 0 || is_short;
    if some_failed { exit::status(ErrorKind::SomeFiles) } else { exit::DONE }
}

fn show_what(args: &CopyArgs) -> Show {
    let asked = args.progress || args.partial_progress || args.verbose > 0;
    let hidden = args.no_progress || args.quiet;
    Show {
        json: args.json,
        progress: !hidden && (asked || (progress::can_draw() && !args.json)),
        verbose: args.verbose > 0,
        quiet: args.quiet || args.watch_stdin,
        silent: args.watch_stdin,
        kind: match args.receive.as_str() {
            _ if args.dry_run => Kind::DryRun,
            "fake" => Kind::Fake,
            _ if args.replicas => Kind::Replicas,
            _ => Kind::Copy,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;
    use std::ffi::OsString;

    fn words(line: &[&str], settings: &[Setting]) -> Vec<FilterFlag> {
        let mut argv: Vec<OsString> = vec!["longhaul".into(), "cp".into()];
        argv.extend(settings.iter().flat_map(|setting| setting.words.clone()));
        argv.extend(line.iter().map(OsString::from));
        let matches = Cli::command().try_get_matches_from(argv).unwrap();
        filters(matches.subcommand_matches("cp").unwrap(), settings)
    }

    #[test]
    fn exclude_and_include_keep_their_order() {
        let exclude = |glob: &str| FilterFlag::Exclude(glob.into());
        let include = |glob: &str| FilterFlag::Include(glob.into());
        let line = ["--include=a", "--exclude", "b", "x", "--include", "c", "y", "--exclude=d"];
        let expected = [include("a"), exclude("b"), include("c"), exclude("d")];
        assert_eq!(words(&line, &[]), expected);
    }

    #[test]
    fn filters_of_a_file_come_last() {
        let setting = Setting {
            key: "exclude".into(),
            words: vec!["--exclude=f".into(), "--exclude=g".into()],
            origin: "c.toml:1".into(),
        };
        let words = words(&["--include=a", "x", "y"], &[setting]);
        assert_eq!(words[0], FilterFlag::Include("a".into()));
        assert_eq!(words[2], FilterFlag::Exclude("g".into()));
    }
}
