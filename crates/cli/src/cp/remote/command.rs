//! Chooses the host that runs a copy between two other hosts, and builds its command.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::Command;

use clap::ArgMatches;
use clap::parser::ValueSource;
use longhaul::{Filter, Location};

use crate::error::{Error, ErrorKind};

/// With this flag the copy ends when its standard input ends.
pub(super) const WATCH: &str = "--watch-stdin";
/// Longest command in bytes. The other host's shell gets it as one argument, which Linux limits to
/// 128 KiB.
const MAX_COMMAND: usize = 120_000;

/// Flags that only this host needs, that the plan writes itself, or that have no effect.
const NOT_FORWARDED: [&str; 17] = [
    "locations",
    "show_config",
    "rsh",
    "remote_path",
    "json",
    "progress",
    "no_progress",
    "partial_progress",
    "_partial",
    "compress",
    "quiet",
    "verbose",
    "exclude",
    "include",
    "exclude_from",
    "files_from",
    "from0",
];

/// Flags that longhaul refuses unless a source or the destination is on an ssh host.
const OF_SSH: [&str; 1] = ["ports"];
/// Flags that longhaul refuses unless a source or the destination is on a server.
const OF_SERVERS: [&str; 2] = ["data_port", "server_id"];

#[derive(Debug)]
pub(in crate::cp) struct Plan {
    /// The host that runs the copy, as ssh takes it.
    pub(in crate::cp) runner: String,
    /// The sources as the user named them.
    pub(in crate::cp) sources: Vec<Location>,
    /// The destination as the user named it.
    pub(in crate::cp) destination: Location,
    /// The paths of `--files-from`, zero-terminated, with an empty one at the end.
    pub(super) list: Vec<u8>,
    /// Path of longhaul on the other hosts.
    pub(super) remote_path: String,
    ssh: Vec<String>,
    words: Vec<OsString>,
}

/// Plans the copy if all of `locations` are on other hosts and the destination is not an HTTP URL;
/// otherwise returns `None`.
pub(in crate::cp) fn plan(locations: &[Location]) -> Result<Option<Plan>, Error> {
    let Some((destination, sources)) = locations.split_last() else { return Ok(None) };
    let is_http = |location: &Location| matches!(location, Location::Http { .. });
    if sources.is_empty() || locations.iter().any(Location::is_local) || is_http(destination) {
        return Ok(None);
    }
    let first = host(&sources[0]).filter(|first| sources.iter().all(|s| host(s) == Some(first)));
    let Some(runner) = first.or_else(|| host(destination)) else {
        let what = format!(
            "{} and {destination} are both on other hosts, and a server cannot start a copy",
            sources[0]
        );
        let advice = match sources.len() {
            1 => "name one of them as host:path, which ssh reaches, or run longhaul there",
            _ => "copy from one host at a time, or run longhaul on the destination host",
        };
        return Err(Error::new(ErrorKind::Usage, what).advise(advice));
    };
    Ok(Some(Plan {
        runner: runner.to_owned(),
        sources: sources.to_vec(),
        destination: destination.clone(),
        list: Vec::new(),
        remote_path: String::new(),
        ssh: Vec::new(),
        words: Vec::new(),
    }))
}

fn host(location: &Location) -> Option<&str> {
    match location {
        Location::Ssh { destination, .. } => Some(destination),
        _ => None,
    }
}

impl Plan {
    /// Completes the command. `verbose` is the number of `-v`. `filters` replace the flags for
    /// globs and lists of files, because some of these flags name files on this host.
    pub(in crate::cp) fn complete(
        &mut self,
        subcommand: &str,
        ssh: Vec<String>,
        remote_path: String,
        matches: &ArgMatches,
        verbose: u8,
        filters: &[Filter],
    ) -> Result<(), Error> {
        let (sources, destination) = (self.there(&self.sources), self.there_one(&self.destination));
        let others: Vec<&Location> =
            self.sources.iter().chain([&self.destination]).filter(|l| !self.is_there(l)).collect();
        let has_ssh = others.iter().any(|place| host(place).is_some());
        let has_server = others.iter().any(|place| host(place).is_none());
        let mut words: Vec<OsString> = vec![subcommand.into(), "--json".into(), WATCH.into()];
        let is_idle =
            |id: &str| OF_SSH.contains(&id) && !has_ssh || OF_SERVERS.contains(&id) && !has_server;
        words.extend(flags(matches, is_idle));
        words.extend(std::iter::repeat_n(OsString::from("-v"), usize::from(verbose.min(2))));
        if has_ssh && remote_path != "longhaul" {
            words.push(format!("--remote-path={remote_path}").into());
        }
        words.extend(filters.iter().filter_map(filter));
        self.list = list(filters);
        if !self.list.is_empty() {
            words.extend(["--files-from=-".into(), "--from0".into()]);
        }
        words.push("--".into());
        words.extend(sources.into_iter().chain([destination]));
        (self.ssh, self.remote_path, self.words) = (ssh, remote_path, words);
        if self.line().len() > MAX_COMMAND {
            let what = format!("the command for {} is too long for its shell", self.runner);
            let advice = "name fewer sources and globs, or list them by --files-from";
            return Err(Error::new(ErrorKind::Usage, what).advise(advice));
        }
        Ok(())
    }

    /// Whether the location is on the host that runs the copy.
    pub(in crate::cp) fn is_there(&self, location: &Location) -> bool {
        host(location) == Some(&self.runner)
    }

    fn there(&self, locations: &[Location]) -> Vec<OsString> {
        locations.iter().map(|location| self.there_one(location)).collect()
    }

    /// The location as the host that runs the copy names it.
    fn there_one(&self, location: &Location) -> OsString {
        match location {
            // ssh starts in the home folder.
            at if self.is_there(at) => below_home(at.path()),
            Location::Ssh { destination, path } => {
                let mut text = OsString::from(format!("{}:", bracketed(destination)));
                text.push(path);
                text
            }
            Location::Daemon { path, .. } => {
                // The part before the path stays as the user wrote it.
                let mut text = OsString::from(location.with_path("".into()).to_string());
                text.push(path);
                text
            }
            Location::Http { url, .. } => url.into(),
            other => other.path().as_os_str().to_owned(),
        }
    }

    pub(super) fn command(&self) -> Command {
        let (program, words) = self.ssh.split_first().expect("an ssh command has a word");
        let mut command = Command::new(program);
        command.args(words).arg(&self.runner).arg(self.line());
        command
    }

    fn line(&self) -> OsString {
        let mut line = match self.remote_path.strip_prefix("~/") {
            Some(below) => [b"~/", &quoted(below.as_bytes())[..]].concat(),
            None => quoted(self.remote_path.as_bytes()),
        };
        for word in &self.words {
            line.push(b' ');
            line.extend(quoted(word.as_bytes()));
        }
        OsString::from_vec(line)
    }
}

/// An ssh host, in brackets if it is an IPv6 address.
fn bracketed(destination: &str) -> String {
    let (user, host) = match destination.rsplit_once('@') {
        Some((user, host)) => (format!("{user}@"), host),
        None => (String::new(), destination),
    };
    if host.contains(':') { format!("{user}[{host}]") } else { destination.to_owned() }
}

/// The path of an ssh location as a local path: absolute, or relative to the home folder. The
/// result is never read as a remote location, a pipe or a flag.
fn below_home(path: &Path) -> OsString {
    let bytes = path.as_os_str().as_bytes();
    let bytes = match bytes {
        b"~" => b"",
        [b'~', b'/', below @ ..] => below,
        other => other,
    };
    if bytes.first() == Some(&b'/') {
        return OsStr::from_bytes(bytes).to_owned();
    }
    let is_plain = matches!(Location::parse(OsStr::from_bytes(bytes)), Ok(Location::Local(_)));
    let prefix: &[u8] = if is_plain && bytes[0] != b'-' { b"" } else { b"./" };
    OsString::from_vec([prefix, bytes].concat())
}

/// Flags from the user or a configuration file, except [`NOT_FORWARDED`] and those for which
/// `is_idle` is true.
fn flags(matches: &ArgMatches, is_idle: impl Fn(&str) -> bool) -> Vec<OsString> {
    let mut words = Vec::new();
    // clap names a group of flags after its struct, so the id starts with a capital.
    let is_flag = |id: &&str| !id.starts_with(char::is_uppercase) && !NOT_FORWARDED.contains(id);
    for id in matches.ids().map(clap::Id::as_str).filter(is_flag) {
        if matches.value_source(id) != Some(ValueSource::CommandLine) || is_idle(id) {
            continue;
        }
        let key = id.replace('_', "-");
        let is_switch = matches.try_get_one::<bool>(id).is_ok();
        for value in matches.try_get_raw(id).ok().flatten().unwrap_or_default() {
            let mut word = OsString::from(format!("--{key}"));
            if !is_switch || value != "true" {
                word.push("=");
                word.push(value);
            }
            words.push(word);
        }
    }
    words
}

/// The word for a glob filter; `None` for sizes, whose flags are forwarded, and for listed paths.
fn filter(filter: &Filter) -> Option<OsString> {
    match filter {
        Filter::Exclude(glob) => Some(format!("--exclude={glob}").into()),
        Filter::Include(glob) => Some(format!("--include={glob}").into()),
        _ => None,
    }
}

/// The paths of `--files-from`, zero-terminated, with an empty path at the end; empty if there is
/// no list.
fn list(filters: &[Filter]) -> Vec<u8> {
    let mut list = Vec::new();
    for filter in filters {
        if let Filter::Only(path) = filter {
            list.extend_from_slice(path);
            list.push(0);
        }
    }
    if !list.is_empty() {
        list.push(0);
    }
    list
}

/// Quotes a word for a POSIX shell.
fn quoted(word: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-=:,@%+".contains(byte);
    if !word.is_empty() && word.iter().all(is_plain) {
        return word.to_vec();
    }
    let mut text = vec![b'\''];
    for byte in word {
        match byte {
            b'\'' => text.extend(b"'\\''"),
            byte => text.push(*byte),
        }
    }
    text.push(b'\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locations(texts: &[&str]) -> Vec<Location> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// The host that runs the copy, and the sources and destination as that host names them.
    fn planned(texts: &[&str]) -> (String, Vec<String>) {
        let plan = plan(&locations(texts)).unwrap().expect("all are on other hosts");
        let ends = plan.there(&locations(texts));
        (plan.runner, ends.into_iter().map(|end| end.into_string().unwrap()).collect())
    }

    #[test]
    fn the_source_host_runs_the_copy_or_else_the_destination_host() {
        let is = |texts: &[&str], runner: &str, ends: &[&str]| {
            let ends = ends.iter().map(|end| (*end).to_owned()).collect();
            assert_eq!(planned(texts), (runner.to_owned(), ends), "{texts:?}");
        };
        is(&["h:a", "h:/b", "me@g:c"], "h", &["a", "/b", "me@g:c"]);
        is(&["h:a", "lh://g:9/c d"], "h", &["a", "lh://g:9/c d"]);
        is(&["h:a", "h:b"], "h", &["a", "b"]);
        is(&["lh://g/a", "h:b"], "h", &["lh://g/a", "b"]);
        is(&["g:a", "h:b", "[::1]:c", "k:d"], "k", &["g:a", "h:b", "[::1]:c", "d"]);
        is(&["lh://[fe80::1]:9/a", "k:d/"], "k", &["lh://[fe80::1]:9/a", "d/"]);
    }

    #[test]
    fn a_copy_with_a_local_path_has_no_plan_and_a_copy_between_servers_is_refused() {
        for texts in [&["a", "h:b"][..], &["h:a", "b"], &["h:a", "b", "g:c"], &["h:a"], &[]] {
            assert!(plan(&locations(texts)).unwrap().is_none(), "{texts:?}");
        }
        let refused = plan(&locations(&["lh://g/a", "lh://h/b"])).unwrap_err().to_string();
        assert!(refused.contains("both on other hosts") && refused.contains("host:path"));
        assert!(plan(&locations(&["g:a", "h:a", "lh://h/b"])).is_err());
    }

    #[test]
    fn an_ssh_path_starts_in_the_home_folder_and_never_looks_remote_or_like_a_flag() {
        for (path, word) in [
            ("", "./"),
            ("~", "./"),
            ("~/", "./"),
            ("~/x/", "x/"),
            ("a:b", "./a:b"),
            ("lh://x", "./lh://x"),
            ("-", "./-"),
            ("-r", "./-r"),
            ("/a:b", "/a:b"),
            ("~u/x", "~u/x"),
        ] {
            assert_eq!(below_home(Path::new(path)), word, "{path}");
        }
    }

    #[test]
    fn a_switch_is_forwarded_without_a_value_but_a_flag_with_the_value_true_keeps_it() {
        let command = clap::Command::new("x").args([
            clap::Arg::new("on").long("on").action(clap::ArgAction::SetTrue),
            clap::Arg::new("name").long("name"),
        ]);
        let matches = command.get_matches_from(["x", "--on", "--name", "true"]);
        let mut words = flags(&matches, |_| false);
        words.sort();
        assert_eq!(words, ["--name=true", "--on"]);
    }

    #[test]
    fn a_shell_parses_a_quoted_word_to_the_original() {
        let words = ["plain/x.h5", "", "it's $HOME", "a\nb", "*", "~", "--exclude=*.tmp;x"];
        let script = words.map(|word| String::from_utf8(quoted(word.as_bytes())).unwrap());
        let script = format!("printf '%s|' {}", script.join(" "));
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}|", words.join("|")));
    }
}
