//! `longhaul cp`: copies files and trees between hosts or on one. `sync` shares its flags and code.

mod files_from;
mod pipe;
mod remote;
mod resolve;

pub(crate) use resolve::{MOST_STREAMS, TCP, protocols};

use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, ArgMatches};
use longhaul::{CancelHandle, Delete, Event, Location, Summary, blocking};
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

/// Printed after Ctrl-C if the copy can be resumed.
const RESUMABLE: &str =
    "stopping; run the same command again to resume; press Ctrl-C again to stop immediately";

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
longhaul serve. A source can also be a file at an https:// or http:// address. Sources are all \
local or all remote. Sources on several hosts are fetched in \
parallel; each gets a fair share of this host's capacity. If both ends are on this host, no \
network is used. If both are on other hosts, one of them runs the copy and the data go directly \
between them. The location - is standard input, of any length, or standard output; such a copy \
cannot be resumed. To resume any other interrupted copy, run the same command again.

Rates are decimal bits a second unless written B/s; sizes take k/M/G/T (1000) and Ki/Mi/Gi/Ti \
(1024); times take ms, s, m, h. Set defaults for the flags in config.toml.";

/// Copy files and folders to or from another host
#[derive(clap::Args)]
#[command(override_usage = "longhaul cp [OPTIONS] <SOURCE>... <DESTINATION>")]
#[command(long_about = format!("{ABOUT}\n\n{EXAMPLES}"))]
#[command(after_help = EXAMPLES, after_long_help = exit::TABLE)]
pub(crate) struct CpArgs {
    #[command(flatten)]
    pub(crate) copy: CopyArgs,
}

// The flags of `cp` and `sync`. A doc comment here would replace the help of the subcommands.
#[derive(clap::Args)]
pub(crate) struct CopyArgs {
    /// Sources, then the destination. In the path of a remote source, *, ?, [...] and {a,b} match
    /// names on that host
    #[arg(value_name = "LOCATION", num_args = 1.., required_unless_present = "show_config")]
    #[arg(value_parser = OsStringValueParser::new().try_map(|text| Location::parse(&text)))]
    locations: Vec<Location>,
    /// Copy one object that all sources hold: fetch each part from any source that delivers it, and
    /// leave out sources that fail or differ
    #[arg(long)]
    replicas: bool,
    /// Copy folders with their contents
    #[arg(short, long)]
    recursive: bool,
    /// Keep permissions and times
    #[arg(short, long, overrides_with = "no_preserve")]
    preserve: bool,
    /// Override --preserve from a configuration file
    #[arg(long, overrides_with = "preserve")]
    no_preserve: bool,
    /// Copy folders, and keep permissions and times: -r -p
    #[arg(short, long)]
    archive: bool,
    /// Print each file, folder and link when it is created, and a longer summary; -vv also prints
    /// skipped files
    #[arg(short, long, action = ArgAction::Count, overrides_with = "quiet")]
    verbose: u8,
    /// Print only errors (--json output is not affected); of -q and -v the last one wins
    #[arg(short, long, overrides_with = "verbose")]
    quiet: bool,
    /// Print what would be created (files, folders/, links -> targets) and copy nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Show progress, as --progress; rsync's --partial is always on. -P is not the port: for a port
    /// use -e 'ssh -p PORT' or lh://HOST:PORT
    #[arg(short = 'P')]
    partial_progress: bool,
    /// Accepted for compatibility with rsync: partial files are kept without this flag too
    #[arg(long = "partial", hide = true)]
    _partial: bool,
    /// Accepted for compatibility with rsync, with a warning: data are not compressed
    #[arg(short = 'z', long, hide = true)]
    compress: bool,
    /// Show progress: a bar on a terminal, otherwise a line every 10 s
    #[arg(long, overrides_with = "no_progress")]
    progress: bool,
    /// Show no progress, even on a terminal
    #[arg(long, overrides_with = "progress")]
    no_progress: bool,
    /// Write events as JSON to stdout, one object a line; the last one is the summary or an error
    #[arg(long)]
    json: bool,
    /// With --json, also write a `sample` event every 100 ms: rate, delivered, queue, loss, phase
    #[arg(long, requires = "json", hide_short_help = true)]
    series: bool,
    /// Limit the rate that longhaul searches for, with a unit: 500M, 60MB/s; several sources share
    /// the limit
    #[arg(long, value_name = "RATE", value_parser = parse_rate_with_unit)]
    bwlimit: Option<Rate>,
    /// Share of the path next to other traffic: equal takes as much as one TCP flow, N as much as N
    /// flows, low about 2 %; no effect with --rate, sabul, gtp and TCP
    #[arg(long, value_name = "low|equal|N", default_value_t)]
    share: Weight,
    /// Send at this rate and ignore loss (rbudp, fobs, netblt), or send at most at this rate (the
    /// other protocols). Counts bits of UDP payload with longhaul's header and tag; applies to each
    /// source
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<Rate>,
    /// Ignore the remembered rate of this path, and do not remember the new one (see
    /// `longhaul path`)
    #[arg(long)]
    no_path_memory: bool,
    /// Skip names that match this glob; the first --exclude or --include that matches decides
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Copy names that match this glob
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Read --exclude globs from this file, one a line; '#' and ';' start comment lines
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// Copy only the paths in this file, one a line, relative to the one source folder. A listed
    /// folder is copied with its contents. - reads standard input; '#' and ';' start comment lines.
    /// A missing path is reported, and the exit status is 8
    #[arg(long, value_name = "FILE")]
    files_from: Option<PathBuf>,
    /// Separate the paths of --files-from by zero bytes instead of lines; no comments
    #[arg(long, requires = "files_from")]
    from0: bool,
    /// Create missing parent folders of the destination
    #[arg(long)]
    mkpath: bool,
    /// Skip files of a folder that are larger than SIZE
    ///
    /// Applies also to files that --include names.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_size: Option<Bytes>,
    /// Skip files of a folder that are smaller than SIZE
    ///
    /// Applies also to files that --include names.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    min_size: Option<Bytes>,
    #[command(flatten)]
    reach: ReachArgs,
    /// Send the token in this file to the host of an https:// or http:// source
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Follow redirects from https:// to http://
    #[arg(long, hide_short_help = true)]
    allow_downgrade: bool,
    /// Compare existing and partial files by content, not by size and time
    #[arg(short, long, overrides_with = "no_checksum")]
    checksum: bool,
    /// Override --checksum from a configuration file
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
    /// Send the object in segments of this size, a multiple of 1Mi. With 0 the whole object is one
    /// segment, and an interrupted copy may restart from zero [default: 16Mi]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    segment: Option<Bytes>,
    /// Limit of received data in memory: blocks of incomplete chunks, chunks that wait for the
    /// disk, and the list of files. At least 32Mi if this host receives. A pipe is sent in parts of
    /// up to a quarter of this limit
    #[arg(long, value_name = "SIZE", default_value = "512Mi", value_parser = parse_bytes)]
    memory: Bytes,
    /// Encryption of the data; `none` (no encryption) is allowed only over ssh, or to a server with
    /// --allow-plain
    #[arg(long, value_name = "NAME", default_value = "auto")]
    #[arg(value_parser = PossibleValuesParser::new(resolve::CIPHERS))]
    cipher: String,
    /// How the receiver moves payloads; fake only measures, and writes nothing
    #[arg(long, value_name = "NAME", default_value = "naive")]
    #[arg(value_parser = PossibleValuesParser::new(resolve::RECEIVES))]
    receive: String,
    /// UDP payload of a data datagram in bytes; above 8972 as IP fragments [default: probed]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(512..=65000))]
    datagram: Option<u16>,
    /// How long to keep retrying a lost connection
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_span)]
    retry_for: Span,
    /// Give up after this long without progress, on the network or at a disk
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_span)]
    stall: Span,
    /// Used by a longhaul on another host: stop when standard input ends, and print only events
    #[arg(long, hide = true)]
    watch_stdin: bool,
}

/// The options of `sync`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mirror {
    /// `None` keeps names that the source lacks.
    pub(crate) delete: Option<Delete>,
}

/// Number of connections of parallel TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Streams {
    Count(u16),
    /// Tries several numbers and keeps the best.
    Auto,
}

/// A flag that filters files of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilterFlag {
    Exclude(String),
    Include(String),
    ExcludeFrom(PathBuf),
}

/// The filters of the command line, then those of configuration files: the first match decides.
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
    // clap gets the flags from configuration files first, so that the command line overrides them.
    // Among filters the first match decides, so the filters from files move to the end.
    words.rotate_left(from_files.map(|setting| setting.words.len()).sum());
    words.into_iter().map(|(_, word)| word).collect()
}

/// `matches` holds the flags of the command line and of `settings`.
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
    if args.compress && !args.quiet {
        console::warn("-z has no effect: longhaul does not compress data");
    }
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

/// Adds advice to a resumable error that has none.
fn say_how_to_go_on(error: Error) -> Error {
    let resumable =
        matches!(error.kind, ErrorKind::Unfinished | ErrorKind::Cancelled | ErrorKind::Stalled);
    if resumable && error.advice.is_none() {
        return error.advise("run the same command again to resume");
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
        Some(_) => "stopping; press Ctrl-C again to stop immediately",
        None => RESUMABLE,
    };
    watch_signals(&cancel, first)?;
    if args.watch_stdin {
        signals::cancel_with_stdin(cancel.clone())?;
    }
    screen.started(&copy.sources, &copy.destination, copy.protocol);
    if let Some(warning) = copy.warning {
        screen.see(Event::Warning(warning));
    }
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
    signals::cancel_on_signal(cancel.clone(), first)
}

fn status(args: &CopyArgs, summary: &Summary) -> u8 {
    // A failed replica is only reported, because the other replicas have delivered its chunks.
    let is_short = summary.failed_sources > 0 && !args.replicas;
    let some_failed = summary.failed_files > 0 || is_short;
    if some_failed { exit::status(ErrorKind::SomeFiles) } else { exit::DONE }
}

fn show_what(args: &CopyArgs) -> Show {
    let asked = args.progress || args.partial_progress || args.verbose > 0;
    // The host that started the copy shows its progress.
    let hidden = args.no_progress || args.quiet || args.watch_stdin;
    Show {
        json: args.json,
        series: args.series,
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
    fn filters_of_a_configuration_file_come_last() {
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
