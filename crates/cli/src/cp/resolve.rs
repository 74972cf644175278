//! Turns the flags of `longhaul cp` into the options of a copy.

use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use longhaul::protocol::{MOST_TRIED, TCP_STREAMS};
use longhaul::{CancelHandle, Client, PathMemory, blocking};
use longhaul::{Cipher, CopyRequest, Filter, Location, Names, Protocol, ReachOptions, Receive};
use longhaul_proto::registry;
use longhaul_proto::settings::Settings;
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};
use longhaul_text::{quoted, used_by_others};

use super::files_from;
use super::pipe::{self, Pipe};
use super::remote::{self, Plan};
use super::{CopyArgs, FilterFlag, Mirror, Streams};
use crate::config::{self, Setting, names};
use crate::error::{Error, ErrorKind};
use crate::protocol_settings::Of;
use crate::screen::Screen;

/// Parallel TCP, which is not in the registry of protocols.
pub(crate) const TCP: &str = "tcp";

/// Protocol name in the events of a copy within this host.
const LOCAL: &str = "local";
/// Protocol name in the events of a copy from an HTTP server.
const HTTP: &str = "http";
/// Limit of a token file, in bytes.
const MOST_TOKEN: u64 = 16 << 10;

/// Names for `--cipher`.
pub(super) const CIPHERS: [&str; 4] = ["auto", "aes-128-gcm", "chacha20-poly1305", "none"];
/// Names for `--receive`.
pub(super) const RECEIVES: [&str; 3] = ["naive", "scatter", "fake"];

const CHUNK: u64 = 1 << 20;
/// Minimum of `--rate` and `--bwlimit`: one datagram of 1,500 bytes a second.
const LEAST_RATE: Rate = Rate::from_bps(12_000);
/// Limit of `--streams`.
pub(crate) const MOST_STREAMS: u16 = 64;

pub(super) fn protocol_help() -> String {
    format!(
        "Protocol that carries the data; 'longhaul help cp NAME' lists its settings [default: {}, \
         from several hosts {}]",
        registry::all()[0].name,
        registry::of_many().name
    )
}

pub(crate) fn protocols() -> Vec<&'static str> {
    registry::all().iter().map(|row| row.name).chain([TCP]).collect()
}

pub(super) struct Prepared {
    pub(super) request: CopyRequest,
    pub(super) sources: Vec<Location>,
    pub(super) destination: Location,
    /// A name for `--protocol`, or [`LOCAL`] or [`HTTP`].
    pub(super) protocol: &'static str,
    pub(super) pipe: Option<Pipe>,
    /// A warning about the token file.
    pub(super) warning: Option<String>,
}

fn client(args: &CopyArgs, places: &[&Location], screen: Arc<Screen>) -> Result<Client, Error> {
    let client = args.reach.client(places, move |server| screen.trusts(server))?;
    Ok(match args.no_path_memory {
        true => client,
        false => client.path_memory(PathMemory::in_file(config::path_file()?)),
    }
    .build()?)
}

/// Builds the copy from the flags and the `defaults` of configuration files.
pub(super) fn prepare(
    args: &CopyArgs,
    mirror: Option<Mirror>,
    filters: Vec<FilterFlag>,
    defaults: &[Setting],
    screen: &Arc<Screen>,
) -> Result<Prepared, Error> {
    let is_default = &|flag: &str| config::has(defaults, flag);
    if args.partial_progress {
        refuse_port(&args.locations)?;
    }
    let (named, mut destination) = ends(&args.locations)?;
    check_quantities(args)?;
    let name = protocol_name(args, &named);
    if args.streams.is_some() && name != TCP && !is_default("streams") {
        let what = format!("--streams does not work with --protocol {name}");
        return Err(usage(what, "add --protocol tcp"));
    }
    args.reach.check(&args.locations.iter().collect::<Vec<_>>(), is_default)?;
    let (protocol, asking) = (protocol(args, name), screen.clone());
    let places: Vec<&Location> = args.locations.iter().collect();
    let client = client(args, &places, asking)?;
    let mut sources = expand(args, &client, named)?;
    if mirror.is_some() {
        (sources, destination) = mirrored(&sources, destination)?;
    }
    check_replicas(args, &sources)?;
    let source_settings = source_settings(args, name, &sources, is_default)?;
    let pipe = pipe(args, &sources, &destination)?;
    let mut filters = check_anchors(args, mirror, read_filters(args, filters)?)?;
    if let Some(list) = &args.files_from {
        sources = vec![files_from::folder(&sources)?];
        filters.extend(files_from::read(list, args.from0, args.watch_stdin)?);
    }
    let (from, to) = match &pipe {
        Some(pipe) => pipe.ends(&sources, &destination),
        None => (sources.clone(), destination.clone()),
    };
    let (token, warning) = args.token_file.as_deref().map(token).transpose()?.unzip();
    let request = client
        .copy(from, to)
        .replicas(args.replicas)
        .recursive(args.recursive || args.archive || mirror.is_some() || args.files_from.is_some())
        .preserve(args.preserve || args.archive || mirror.is_some() && !args.no_preserve)
        .delete(mirror.and_then(|mirror| mirror.delete))
        .checksum(args.checksum)
        .dry_run(args.dry_run)
        .make_path(args.mkpath)
        .filters(filters)
        .names(names_wanted(args, screen))
        .settings(settings(args, name, Of::All, is_default)?)
        .source_settings(source_settings)
        .protocol(protocol.clone())
        .rate(args.rate)
        .rate_limit(args.bwlimit)
        .weight(args.share)
        .cipher(cipher(&args.cipher))
        .receive(receive(&args.receive))
        .segment(args.segment)
        .memory(args.memory)
        .datagram(args.datagram)
        .retry_for(duration(args.retry_for))
        .stall(duration(args.stall))
        .token(token)
        .allow_downgrade(args.allow_downgrade)
        .reach(args.reach.options());
    let protocol = shown_protocol(&protocol, &sources, &destination);
    Ok(Prepared { request, sources, destination, protocol, pipe, warning: warning.flatten() })
}

fn names_wanted(args: &CopyArgs, screen: &Screen) -> Names {
    match args.verbose {
        0 if screen.shows_names() => Names::Done,
        0 => Names::None,
        1 => Names::Done,
        _ => Names::All,
    }
}

/// Plans a copy between other hosts, which one of them runs; `None` for any other copy.
pub(super) fn remote(
    args: &CopyArgs,
    mirror: Option<Mirror>,
    filters: &[FilterFlag],
    defaults: &[Setting],
    matches: &ArgMatches,
    screen: &Arc<Screen>,
) -> Result<Option<Plan>, Error> {
    let Some(mut plan) = remote::plan(&args.locations)? else { return Ok(None) };
    let is_default = &|flag: &str| config::has(defaults, flag);
    check_quantities(args)?;
    let places: Vec<&Location> = args.locations.iter().collect();
    args.reach.check(&places, is_default)?;
    if plan.sources.iter().any(|source| plan.is_there(source)) {
        let client = client(args, &places, screen.clone())?;
        plan.sources = expand(args, &client, plan.sources)?;
    }
    let mut filters = read_filters(args, filters.to_vec())?;
    if let Some(list) = &args.files_from {
        filters.extend(files_from::read(list, args.from0, false)?);
    }
    let subcommand = if mirror.is_some() { "sync" } else { "cp" };
    let ReachOptions { ssh_command, remote_path, .. } = args.reach.options();
    let verbose = args.verbose.max(u8::from(screen.shows_names()));
    plan.complete(subcommand, ssh_command, remote_path, matches, verbose, &filters)?;
    Ok(Some(plan))
}

/// Applies rsync's trailing-slash rule: `folder` is copied into the destination under its name; of
/// `folder/`, only the contents are copied.
fn mirrored(
    sources: &[Location],
    destination: Location,
) -> Result<(Vec<Location>, Location), Error> {
    let [source] = sources else {
        return Err(usage("sync takes one source folder", "run it once for each folder"));
    };
    let path = source.path();
    let is_pipe = |place: &Location| place.is_local() && place.path() == Path::new("-");
    if is_pipe(source) || is_pipe(&destination) {
        return Err(usage("sync copies a folder, not a pipe", "use longhaul cp"));
    }
    if source.is_local() && path.exists() && !path.is_dir() {
        return Err(usage(format!("{source} is not a folder"), "use longhaul cp for a file"));
    }
    let bytes = path.as_os_str().as_bytes();
    let says_contents = bytes.ends_with(b"/") || bytes.ends_with(b"/.");
    let destination = match path.file_name().filter(|_| !says_contents) {
        Some(name) => destination.with_path(destination.path().join(name)),
        None => destination,
    };
    Ok((vec![source.clone().contents()], destination))
}

/// With deletion, refuses globs that start with the source folder's name. `sync --delete run42
/// there` compares globs with paths below `run42`, so such a glob would protect nothing.
fn check_anchors(
    args: &CopyArgs,
    mirror: Option<Mirror>,
    filters: Vec<Filter>,
) -> Result<Vec<Filter>, Error> {
    let deletes = mirror.is_some_and(|mirror| mirror.delete.is_some());
    let source = args.locations.first().filter(|_| deletes);
    let Some(name) = source.and_then(|source| source.path().file_name()) else {
        return Ok(filters);
    };
    let starts = |glob: &str| {
        let rest = glob.trim_start_matches('/').as_bytes().strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.first() == Some(&b'/'))
    };
    let glob = filters.iter().find_map(|filter| match filter {
        Filter::Include(glob) | Filter::Exclude(glob) if starts(glob) => Some(glob),
        _ => None,
    });
    let Some(glob) = glob else { return Ok(filters) };
    let what = format!("the glob {glob} names the source folder, but sync matches paths inside it");
    Err(usage(what, "write the glob as a path below the source folder"))
}

fn shown_protocol(
    protocol: &Protocol,
    sources: &[Location],
    destination: &Location,
) -> &'static str {
    match protocol {
        _ if destination.is_local() && sources.iter().all(Location::is_local) => LOCAL,
        _ if is_http(sources) => HTTP,
        Protocol::Registry(name) => name,
        _ => TCP,
    }
}

fn expand(args: &CopyArgs, client: &Client, named: Vec<Location>) -> Result<Vec<Location>, Error> {
    // No signal handler is installed yet, so a signal ends the process.
    let cancel = &CancelHandle::default();
    let mut sources = Vec::new();
    for source in named {
        let expanded = client.expand(source, args.reach.options(), cancel);
        let expanded = blocking::wait(expanded)?;
        sources.extend(expanded.into_iter().map(|expanded| expanded.location));
    }
    Ok(sources)
}

fn check_replicas(args: &CopyArgs, sources: &[Location]) -> Result<(), Error> {
    match args.replicas && sources.len() < 2 {
        true => {
            let what = "--replicas needs two sources or more that hold the same object";
            Err(usage(what, "name all sources, then the destination"))
        }
        false => Ok(()),
    }
}

/// Returns the copy's pipe, if any. Refuses flags that a pipe cannot have.
fn pipe(
    args: &CopyArgs,
    sources: &[Location],
    destination: &Location,
) -> Result<Option<Pipe>, Error> {
    let pipe = pipe::of(sources, destination)?;
    if pipe.is_some() && args.mkpath {
        return Err(usage("--mkpath cannot be used with a pipe", "create the folder first"));
    }
    if pipe.is_some() && (args.recursive || args.archive || args.files_from.is_some()) {
        return Err(usage(
            "a pipe carries one file, not a folder",
            "leave -r and --files-from out, or pipe tar",
        ));
    }
    if matches!(pipe, Some(Pipe::Out(_))) && args.json {
        return Err(usage(
            "--json and the file would be mixed on standard output",
            "leave --json out, or write to a file",
        ));
    }
    Ok(pipe)
}

fn check_quantities(args: &CopyArgs) -> Result<(), Error> {
    check_segment(args)?;
    check_rates(args)?;
    match args.stall {
        Span::ZERO => Err(usage("--stall 0s would stop every copy", "leave it out, or write 60s")),
        _ => Ok(()),
    }
}

fn check_segment(args: &CopyArgs) -> Result<(), Error> {
    let Some(segment) = args.segment.filter(|segment| segment.get() % CHUNK != 0) else {
        return Ok(());
    };
    let near = segment.get().div_ceil(CHUNK);
    let what = format!("--segment of {} bytes is not a multiple of 1Mi", segment.get());
    Err(usage(what, &format!("write {near}Mi, or 0 for the whole object")))
}

fn check_rates(args: &CopyArgs) -> Result<(), Error> {
    for (flag, rate) in [("--rate", args.rate), ("--bwlimit", args.bwlimit)] {
        match rate {
            Some(Rate::ZERO) => {
                return Err(usage(format!("a copy with {flag} 0 would never end"), "leave it out"));
            }
            Some(rate) if rate < LEAST_RATE => {
                let bits = rate.as_bps();
                let what = format!("{flag} of {bits} bit/s is less than one datagram a second");
                return Err(usage(what, &format!("write {bits}M if you mean Mbit/s")));
            }
            _ => {}
        }
    }
    Ok(())
}

fn usage(what: impl Into<String>, advice: &str) -> Error {
    Error::new(ErrorKind::Usage, what).advise(advice)
}

/// Splits the locations into sources and destination. Refuses a mix of local and remote sources.
fn ends(locations: &[Location]) -> Result<(Vec<Location>, Location), Error> {
    let Some((destination, sources)) = locations.split_last().filter(|(_, s)| !s.is_empty()) else {
        let what = "the sources are given without a destination";
        return Err(usage(what, "name the sources, then the destination"));
    };
    let local = sources.iter().find(|source| source.is_local());
    let remote = sources.iter().find(|source| !source.is_local());
    match (local, remote) {
        (Some(local), Some(remote)) => Err(usage(
            format!("{local} is on this host and {remote} on another"),
            "copy the local sources with a second command",
        )),
        _ => Ok((sources.to_vec(), destination.clone())),
    }
}

/// Refuses `-P 2222`, which in scp means a port, unless a file of that name exists.
fn refuse_port(locations: &[Location]) -> Result<(), Error> {
    let is_port = |place: &&Location| match place {
        Location::Local(path) => {
            let number = path.to_str().and_then(|text| text.parse::<u16>().ok());
            number.is_some_and(|port| port > 0) && path.symlink_metadata().is_err()
        }
        _ => false,
    };
    let sources = locations.split_last().map(|(_, sources)| sources).unwrap_or_default();
    let Some(port) = sources.iter().find(is_port) else { return Ok(()) };
    let what =
        format!("-P shows progress, as in rsync, and takes no port; there is no file {port}");
    Err(usage(what, &format!("write -e 'ssh -p {port}', or lh://host:{port}/path for a server")))
}

/// Whether the sources are replicas, or are on more than one host or port.
fn are_many(args: &CopyArgs, sources: &[Location]) -> bool {
    args.replicas || sources.iter().any(|source| host(source) != host(&sources[0]))
}

fn is_http(sources: &[Location]) -> bool {
    sources.iter().any(|source| matches!(source, Location::Http { .. }))
}

fn protocol_name<'a>(args: &'a CopyArgs, sources: &[Location]) -> &'a str {
    match &args.protocol {
        Some(name) => name,
        None if is_http(sources) => TCP,
        None if are_many(args, sources) => registry::of_many().name,
        None => registry::all()[0].name,
    }
}

/// Settings of each source; empty if all sources have the same settings.
fn source_settings(
    args: &CopyArgs,
    protocol: &str,
    sources: &[Location],
    is_default: impl Fn(&str) -> bool,
) -> Result<Vec<Settings>, Error> {
    let known: Vec<Vec<String>> = sources.iter().map(names).collect();
    let mut named = args.settings.sources().peekable();
    if named.peek().is_none() {
        return Ok(Vec::new());
    }
    let is_known = |name: &str| known.iter().flatten().any(|known| known == name);
    if let Some((flag, name)) = named.find(|(_, name)| !is_known(name)) {
        let hosts: Vec<&str> = known.iter().filter_map(|n| n.first()).map(String::as_str).collect();
        let what = format!("--{flag} names {name}, which is not the host of a source");
        return Err(usage(what, &format!("the hosts are {}", hosts.join(", "))));
    }
    known.iter().map(|n| settings(args, protocol, Of::Source(n), &is_default)).collect()
}

/// The host and port of a location; `None` for this host and for HTTP servers.
fn host(location: &Location) -> Option<(&str, u16)> {
    match location {
        // Port 0, so that ssh and a server on one host count as two hosts.
        Location::Ssh { destination, .. } => Some((destination, 0)),
        Location::Daemon { host, port, .. } => Some((host, *port)),
        _ => None,
    }
}

fn read_filters(args: &CopyArgs, words: Vec<FilterFlag>) -> Result<Vec<Filter>, Error> {
    let sizes = [
        args.max_size.map(|size| Filter::MaxSize(size.get())),
        args.min_size.map(|size| Filter::MinSize(size.get())),
    ];
    let mut filters: Vec<Filter> = sizes.into_iter().flatten().collect();
    for word in words {
        match word {
            FilterFlag::Exclude(glob) => filters.push(Filter::Exclude(glob)),
            FilterFlag::Include(glob) => filters.push(Filter::Include(glob)),
            FilterFlag::ExcludeFrom(file) => filters.extend(exclude_from(&file)?),
        }
    }
    Ok(filters)
}

/// Returns the token in `file`, and a warning if other users can use the file. Errors do not
/// contain the token.
fn token(file: &Path) -> Result<(String, Option<String>), Error> {
    let mut text = String::new();
    let read = fs::File::open(file).and_then(|open| {
        let mode = open.metadata()?.mode();
        Ok((open.take(MOST_TOKEN + 1).read_to_string(&mut text)?, mode))
    });
    let (read, mode) = read.map_err(|error| {
        let what = format!("cannot read {}: {error}", file.display());
        Error::new(ErrorKind::LocalFile, what).advise("check --token-file")
    })?;
    if read as u64 > MOST_TOKEN {
        let most = Bytes::new(MOST_TOKEN);
        let what = format!("cannot use {} as a token: it has more than {most}", file.display());
        return Err(usage(what, "write the token alone into the file of --token-file"));
    }
    let token = text.trim();
    match !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => {
            let advise =
                |what| format!("{what}; chmod 600 {}", quoted(&file.display().to_string()));
            Ok((token.to_owned(), used_by_others(file, mode).map(advise)))
        }
        false => {
            let what = format!("{} does not have exactly one token", file.display());
            Err(usage(what, "write the token alone into the file of --token-file"))
        }
    }
}

fn exclude_from(file: &Path) -> Result<Vec<Filter>, Error> {
    let text = fs::read_to_string(file).map_err(|error| {
        let what = format!("cannot read {}: {error}", file.display());
        Error::new(ErrorKind::LocalFile, what).advise("check --exclude-from")
    })?;
    let globs = text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    Ok(globs.map(|glob| Filter::Exclude(glob.to_owned())).collect())
}

fn protocol(args: &CopyArgs, name: &str) -> Protocol {
    match registry::find(name) {
        Some(row) => Protocol::Registry(row.name),
        None => match args.streams.unwrap_or(Streams::Count(TCP_STREAMS)) {
            Streams::Count(streams) => Protocol::Tcp { streams },
            Streams::Auto => Protocol::TcpTried,
        },
    }
}

pub(super) fn streams_help() -> String {
    format!(
        "Number of connections of --protocol tcp [default: {TCP_STREAMS}]; auto tries 1, 2, 4, … \
         up to {MOST_TRIED} while it sends, and keeps the best"
    )
}

pub(super) fn parse_streams(text: &str) -> Result<Streams, String> {
    if text == "auto" {
        return Ok(Streams::Auto);
    }
    let count = text.parse().ok().filter(|count| (1..=MOST_STREAMS).contains(count));
    count.map(Streams::Count).ok_or_else(|| format!("expected 1..={MOST_STREAMS}, or auto"))
}

/// The protocol's settings for `source`. A configuration file, unlike the command line, may also
/// have settings of other protocols.
fn settings(
    args: &CopyArgs,
    protocol: &str,
    source: Of<'_>,
    is_default: impl Fn(&str) -> bool,
) -> Result<Settings, Error> {
    match (registry::find(protocol), args.settings.first(&is_default)) {
        (Some(row), _) => args.settings.of(row, source, is_default),
        (None, None) => Ok(Settings::default()),
        (None, Some(name)) => {
            let what = format!("--{name} does not work with --protocol {protocol}");
            Err(usage(what, "leave it out"))
        }
    }
}

fn cipher(name: &str) -> Cipher {
    match name {
        "aes-128-gcm" => Cipher::Aes128Gcm,
        "chacha20-poly1305" => Cipher::ChaCha20Poly1305,
        "none" => Cipher::None,
        _ => Cipher::Auto,
    }
}

fn receive(name: &str) -> Receive {
    match name {
        "scatter" => Receive::Scatter,
        "fake" => Receive::Fake,
        _ => Receive::Naive,
    }
}

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_nanos())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn check(locations: &[&str]) -> Result<(Vec<Location>, Location), Error> {
        let locations: Vec<Location> = locations.iter().map(|text| text.parse().unwrap()).collect();
        ends(&locations)
    }

    #[test]
    fn a_token_file_may_have_16_kib_and_is_never_cut() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let of_len = |len: usize| {
            fs::write(file.path(), "t".repeat(len)).unwrap();
            token(file.path())
        };
        assert_eq!(of_len(16_384).unwrap().0, "t".repeat(16_384));
        let error = of_len(16_385).unwrap_err().to_string();
        assert!(error.contains("more than 16.38 kB; write the token alone"), "{error}");
    }

    #[test]
    fn a_token_file_that_others_can_use_gets_a_warning_with_its_mode_and_the_chmod() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "a-token").unwrap();
        let warning = |mode| {
            fs::set_permissions(file.path(), PermissionsExt::from_mode(mode)).unwrap();
            token(file.path()).unwrap().1
        };
        let named = file.path().display();
        for (mode, shown) in [(0o644, "644"), (0o620, "620"), (0o601, "601")] {
            let text = format!("{named} can be used by others (mode {shown}); chmod 600 {named}");
            assert_eq!(warning(mode), Some(text));
        }
        assert_eq!((warning(0o600), warning(0o400)), (None, None));
    }

    #[test]
    fn sources_are_all_local_or_all_remote() {
        assert_eq!(check(&["a", "b", "host:c"]).unwrap().0.len(), 2);
        assert!(check(&["lh://h/a", "lh://h/b", "."]).is_ok());
        assert!(check(&["a", "b"]).is_ok());
        let refused = |locations: &[&str]| check(locations).unwrap_err().to_string();
        assert!(refused(&["h:a", "b", "."]).contains("on this host and h:a on another"));
        assert_eq!(check(&["h:a", "lh://g:1/a", "lh://g:2/a", "."]).unwrap().0.len(), 3);
    }

    #[test]
    fn only_the_first_name_for_a_flag_selects_the_flags_default() {
        let ciphers = CIPHERS.map(cipher);
        assert_eq!(ciphers[0], Cipher::Auto);
        assert!(ciphers[1..].iter().all(|choice| *choice != Cipher::Auto));
        let receives = RECEIVES.map(receive);
        assert_eq!(receives[0], Receive::Naive);
        assert!(receives[1..].iter().all(|choice| *choice != Receive::Naive));
    }

    #[test]
    fn the_number_of_connections_is_1_to_64_or_auto() {
        assert_eq!(parse_streams("auto"), Ok(Streams::Auto));
        for count in [1, 64] {
            assert_eq!(parse_streams(&count.to_string()), Ok(Streams::Count(count)));
        }
        for wrong in ["0", "65", "-1", "many", ""] {
            assert!(parse_streams(wrong).unwrap_err().contains("auto"), "{wrong}");
        }
    }

    #[test]
    fn a_file_of_globs_may_have_comments() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("globs");
        fs::write(&file, "# objects\n*.o\n\n; more\n.git\n").unwrap();
        let globs = exclude_from(&file).unwrap();
        assert_eq!(globs, [Filter::Exclude("*.o".into()), Filter::Exclude(".git".into())]);
    }
}
