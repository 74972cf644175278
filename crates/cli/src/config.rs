//! Defaults from `config.toml`. The keys of a section are the long flags of its subcommand. A
//! section `[host.NAME]` applies to commands that connect to NAME.
//!
//! A setting becomes a flag in front of the user's own flags. So the user's flags override the
//! section of a host, which overrides the section of the subcommand. A key in the user's file
//! overrides the same key in the same section of the system's file.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind};
use clap::error::ErrorKind as ClapKind;
use clap::{ArgAction, Command};
use etcetera::BaseStrategy;
use longhaul::{Location, ServerPin};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Subcommands with a section.
pub(crate) const SECTIONS: [&str; 2] = ["cp", "serve"];

/// The section with one subsection per host.
const HOST: &str = "host";
/// Only `[host.NAME]` has this key. VALUE becomes `--server-id=NAME=VALUE`.
const PIN: &str = "server-id";

/// Keys of `[host.NAME]` that say how to reach the host.
const REACH: [&str; 6] = ["rsh", "remote-path", "data-port", "ports", PIN, "accept-new"];

/// Flags that cannot be defaults: flags for one run, and `server-id`, which only `[host.NAME]` has.
const NO_DEFAULTS: [&str; 6] = ["help", "version", "dry-run", "show-config", "server-id", "once"];

/// This variable overrides the folder of configuration, identity and known servers.
const FOLDER_VARIABLE: &str = "LONGHAUL_CONFIG_DIR";
const PATH_FILE: &str = "paths";
const SYSTEM_FOLDER: &str = "/etc/longhaul";
const FILE: &str = "config.toml";
/// Permission bits that let others write.
const WRITABLE: u32 = 0o022;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The long flag, without dashes.
    pub(crate) key: String,
    /// The flags for the value: none for `false`, one for each item of a list.
    pub(crate) words: Vec<OsString>,
    /// Where the setting is, as `file:line`.
    pub(crate) origin: String,
}

pub(crate) fn has(settings: &[Setting], flag: &str) -> bool {
    settings.iter().any(|setting| setting.key == flag)
}

/// Selects the settings of a command.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) section: &'a str,
    pub(crate) places: &'a [Location],
    /// Whether the command line has this flag.
    pub(crate) is_given: &'a dyn Fn(&str) -> bool,
    /// Whether the subcommand has this flag.
    pub(crate) has_flag: &'a dyn Fn(&str) -> bool,
    /// Pins of the command line: ids that servers must have.
    pub(crate) pins: &'a [ServerPin],
}

impl Wanted<'_> {
    /// The locations that `[host.NAME]` applies to.
    fn hosts(&self, name: &str) -> impl Iterator<Item = &Location> {
        self.places.iter().filter(move |place| names(place).iter().any(|known| known == name))
    }

    /// Whether the subcommand takes `key` from `[host.NAME]`. `cp` takes every key. The other
    /// subcommands take a key of [`REACH`] if they have a flag with that name.
    fn has_key(&self, key: &str) -> bool {
        self.section == "cp" || REACH.contains(&key) && (self.has_flag)(key)
    }

    /// Whether `setting` applies to `host`. A pin (the id that a server must have) applies only to
    /// a server for which the command line has no pin.
    fn takes(&self, setting: &Setting, host: &Location) -> bool {
        let Location::Daemon { host, port, .. } = host else { return setting.key != PIN };
        let is_for_it = |pin: &ServerPin| pin.server.is_none() || pin.names(host, *port);
        setting.key != PIN || !self.pins.iter().any(is_for_it)
    }
}

/// Names by which `[host.NAME]` selects a location.
pub(crate) fn names(place: &Location) -> Vec<String> {
    match place {
        Location::Ssh { destination, .. } => {
            let host = destination.rsplit_once('@').map(|(_, host)| host.to_owned());
            [destination.clone()].into_iter().chain(host).collect()
        }
        Location::Daemon { host, port, .. } => {
            let bracketed = host.contains(':').then(|| format!("[{host}]"));
            let names = [format!("{host}:{port}"), host.clone()].into_iter().chain(bracketed);
            names.chain(place.server()).collect()
        }
        _ => Vec::new(),
    }
}

/// The folder of this user's configuration, identity and known servers.
pub(crate) fn folder() -> Result<PathBuf, Error> {
    if let Some(folder) = env::var_os(FOLDER_VARIABLE).filter(|value| !value.is_empty()) {
        return Ok(PathBuf::from(folder));
    }
    match etcetera::choose_base_strategy() {
        Ok(base) => Ok(base.config_dir().join("longhaul")),
        Err(_) => {
            Err(Error::new(ErrorKind::LocalFile, "no home folder to keep the configuration in")
                .advise(format!("set HOME or {FOLDER_VARIABLE}")))
        }
    }
}

/// The folder of this user's sockets (`XDG_RUNTIME_DIR`). No other host shares it.
pub(crate) fn runtime_folder() -> Option<PathBuf> {
    let base = etcetera::choose_base_strategy().ok()?;
    base.runtime_dir().filter(|folder| folder.is_dir())
}

/// The file in which copies remember the properties of network paths.
pub(crate) fn path_file() -> Result<PathBuf, Error> {
    let is_named = env::var_os(FOLDER_VARIABLE).is_some_and(|value| !value.is_empty());
    let state = match is_named {
        true => None,
        false => etcetera::choose_base_strategy().ok().and_then(|base| base.state_dir()),
    };
    match state {
        Some(state) => Ok(state.join("longhaul").join(PATH_FILE)),
        None => Ok(folder()?.join(PATH_FILE)),
    }
}

/// Reads a configuration file. Refuses one that others can change, as ssh does: the settings name
/// programs and pins.
fn read_own(file: &Path) -> io::Result<Result<String, Error>> {
    let mut opened = File::open(file)?;
    let found = opened.metadata()?;
    let (mode, owner) = (found.mode(), found.uid());
    let refused = |why: String, command: &str| {
        let what = format!("{} {why}, so others could change your settings", file.display());
        let advice = format!("run `{command} {}`", file.display());
        Ok(Err(Error::new(ErrorKind::LocalFile, what).advise(advice)))
    };
    let user = rustix::process::geteuid().as_raw();
    if ![0, user].contains(&owner) {
        return refused(format!("belongs to user {owner}"), &format!("chown {user}"));
    }
    if mode & WRITABLE != 0 {
        let why = format!("can be written by others (mode {:03o})", mode & 0o777);
        return refused(why, "chmod go-w");
    }
    let mut text = String::new();
    opened.read_to_string(&mut text)?;
    Ok(Ok(text))
}

/// Loads the `wanted` settings from the user's file and, unless [`FOLDER_VARIABLE`] is set, from
/// the system's file. The result has each key except `server-id` at most once. `root` defines the
/// valid keys and values.
pub(crate) fn load(root: &Command, wanted: Wanted<'_>) -> Result<Vec<Setting>, Error> {
    let mut folders = Vec::new();
    if env::var_os(FOLDER_VARIABLE).is_none_or(|value| value.is_empty()) {
        folders.push(PathBuf::from(SYSTEM_FOLDER));
    }
    folders.push(folder()?);
    let mut read_all = Read::default();
    for folder in folders {
        let file = folder.join(FILE);
        let text = match read_own(&file) {
            Ok(text) => text?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                let what = format!("cannot read {}: {error}", file.display());
                return Err(Error::new(ErrorKind::Usage, what).advise("fix or remove it"));
            }
        };
        let Read { general, hosts } = read(root, &file, &text, wanted)?;
        for setting in general {
            read_all.general.retain(|earlier| earlier.key != setting.key);
            read_all.general.push(setting);
        }
        for (host, setting) in hosts {
            let is_same =
                |earlier: &(String, Setting)| earlier.0 == host && earlier.1.key == setting.key;
            read_all.hosts.retain(|earlier| !is_same(earlier));
            read_all.hosts.push((host, setting));
        }
    }
    read_all.merge(wanted)
}

/// Settings of the subcommand's section, and of sections `[host.NAME]` with their NAME.
#[derive(Debug, Default)]
struct Read {
    general: Vec<Setting>,
    hosts: Vec<(String, Setting)>,
}

impl Read {
    fn merge(self, wanted: Wanted<'_>) -> Result<Vec<Setting>, Error> {
        let Read { general: mut settings, hosts } = self;
        for (at, (host, setting)) in hosts.iter().enumerate() {
            let differs = |(other, before): &&(String, Setting)| {
                other != host && before.key == setting.key && before.words != setting.words
            };
            if setting.key != PIN
                && !(wanted.is_given)(&setting.key)
                && let Some((other, before)) = hosts[..at].iter().find(differs)
            {
                let Setting { key, origin, .. } = setting;
                let what = format!(
                    "a copy has one value of {key}, but [host.{other}] ({}) and [host.{host}] \
                     ({origin}) differ",
                    before.origin
                );
                return Err(Error::new(ErrorKind::Usage, what).advise(format!("set --{key}")));
            }
            if setting.key != PIN {
                settings.retain(|earlier| earlier.key != setting.key);
            }
            settings.push(setting.clone());
        }
        Ok(settings)
    }
}

/// Reads the `wanted` settings of one file, and checks the other sections too.
fn read(root: &Command, file: &Path, text: &str, wanted: Wanted<'_>) -> Result<Read, Error> {
    let place = Place { root, file, text };
    let table = DeTable::parse(text)
        .map_err(|error| place.wrong(error.span().map_or(0, |s| s.start), error.message()))?;
    let mut settings = Read::default();
    for (name, value) in table.get_ref() {
        if name.get_ref().as_ref() == HOST {
            read_hosts(&place, value, wanted, &mut settings.hosts)?;
            continue;
        }
        let known = SECTIONS.iter().find(|known| **known == name.get_ref().as_ref());
        let Some(known) = known else {
            let what = format!("unknown section '{}'", name.get_ref());
            let error = place.wrong(name.span().start, &what);
            return Err(error.advise("a key belongs below [cp], [serve] or [host.NAME]"));
        };
        let Some(keys) = value.get_ref().as_table() else {
            return Err(place.wrong(name.span().start, &format!("'{known}' is not a section")));
        };
        for (key, value) in keys {
            let setting = place.setting(known, known, key.get_ref(), key.span().start, value)?;
            if *known == wanted.section {
                settings.general.push(setting);
            }
        }
    }
    Ok(settings)
}

/// Reads the settings of wanted hosts, and checks the others too.
fn read_hosts(
    place: &Place<'_>,
    value: &Spanned<DeValue<'_>>,
    wanted: Wanted<'_>,
    found: &mut Vec<(String, Setting)>,
) -> Result<(), Error> {
    let none = |at: usize| place.wrong(at, "a host needs a name").advise("write [host.NAME]");
    let hosts = value.get_ref().as_table().ok_or_else(|| none(value.span().start))?;
    for (name, value) in hosts {
        let keys = value.get_ref().as_table().ok_or_else(|| none(name.span().start))?;
        let name = name.get_ref();
        let title = format!("{HOST}.{name}");
        for (key, value) in keys {
            let at = key.span().start;
            let setting = match (key.get_ref().as_ref(), value.get_ref()) {
                (PIN, DeValue::String(id)) => place.pin(name, id, at)?,
                (key, _) => place.setting(&title, "cp", key, at, value)?,
            };
            if wanted.has_key(&setting.key)
                && wanted.hosts(name).any(|host| wanted.takes(&setting, host))
            {
                found.push((name.to_string(), setting));
            }
        }
    }
    Ok(())
}

/// The parsed file, and the command line that defines its keys.
struct Place<'a> {
    root: &'a Command,
    file: &'a Path,
    text: &'a str,
}

impl Place<'_> {
    fn line(&self, at: usize) -> String {
        let line = self.text[..at.min(self.text.len())].matches('\n').count() + 1;
        format!("{}:{line}", self.file.display())
    }

    fn wrong(&self, at: usize, what: &str) -> Error {
        Error::new(ErrorKind::Usage, format!("{}: {what}", self.line(at)))
    }

    fn pin(&self, host: &str, id: &str, at: usize) -> Result<Setting, Error> {
        let word: OsString = format!("--{PIN}={host}={id}").into();
        match refusal(self.root, "cp", &word) {
            Some(what) => Err(self.wrong(at, &what)),
            None => {
                let (key, words) = (PIN.to_owned(), vec![word]);
                Ok(Setting { key, words, origin: self.line(at) })
            }
        }
    }

    /// Parses a key in the section `title`. The keys are the flags of the subcommand `section`.
    fn setting(
        &self,
        title: &str,
        section: &str,
        key: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Setting, Error> {
        let command = self.root.find_subcommand(section).expect("each section is a subcommand");
        let Some(action) = action(command, key) else {
            let what = format!("unknown key '{key}' in [{title}]");
            let error = self.wrong(at, &what);
            return Err(match nearest(command, key) {
                Some(near) => error.advise(format!("did you mean '{near}'?")),
                None => error.advise(format!("longhaul {section} --help lists the keys")),
            });
        };
        let words = words(key, &action, value.get_ref()).map_err(|what| self.wrong(at, &what))?;
        for word in &words {
            if let Some(what) = refusal(self.root, section, word) {
                return Err(self.wrong(at, &what));
            }
        }
        Ok(Setting { key: key.to_owned(), words, origin: self.line(at) })
    }
}

/// The keys that `command` takes from a file.
fn keys(command: &Command) -> impl Iterator<Item = &str> {
    let long =
        command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(clap::Arg::get_long);
    long.filter(|key| !NO_DEFAULTS.contains(key) && !key.starts_with("no-"))
}

fn action(command: &Command, key: &str) -> Option<ArgAction> {
    let known = keys(command).any(|known| known == key);
    let arg = command.get_arguments().find(|arg| arg.get_long() == Some(key));
    arg.filter(|_| known).map(|arg| arg.get_action().clone())
}

fn nearest<'a>(command: &'a Command, key: &str) -> Option<&'a str> {
    let scored = keys(command).map(|known| (strsim::jaro_winkler(known, key), known));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score > 0.7).map(|(_, known)| known)
}

fn words(key: &str, action: &ArgAction, value: &DeValue<'_>) -> Result<Vec<OsString>, String> {
    let scalar = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        other => Err(format!("'{key}' takes a string or a number, not {}", other.type_str())),
    };
    match (action, value) {
        (ArgAction::SetTrue | ArgAction::Count, DeValue::Boolean(true)) => {
            Ok(vec![format!("--{key}").into()])
        }
        (ArgAction::SetTrue | ArgAction::Count, DeValue::Boolean(false)) => Ok(Vec::new()),
        (ArgAction::SetTrue | ArgAction::Count, other) => {
            Err(format!("'{key}' takes true or false, not {}", other.type_str()))
        }
        (ArgAction::Append, DeValue::Array(list)) => list
            .iter()
            .map(|item| Ok(format!("--{key}={}", scalar(item.get_ref())?).into()))
            .collect(),
        _ => Ok(vec![format!("--{key}={}", scalar(value)?).into()]),
    }
}

fn refusal(root: &Command, section: &str, word: &OsString) -> Option<String> {
    let line = ["longhaul".into(), section.into(), word.clone()];
    let error = root.clone().try_get_matches_from(line).err()?;
    if error.kind() == ClapKind::MissingRequiredArgument {
        return None;
    }
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    Some(first.strip_prefix("error: ").unwrap_or(first).to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    const FOR_ALL: Wanted<'static> =
        Wanted { section: "cp", places: &[], is_given: &|_| false, has_flag: &|_| true, pins: &[] };

    fn read_for(text: &str, places: &[Location]) -> Result<Read, Error> {
        read(&Cli::command(), Path::new("c.toml"), text, Wanted { places, ..FOR_ALL })
    }

    fn read_cp(text: &str) -> Result<Vec<Setting>, Error> {
        read_for(text, &[]).and_then(|read| read.merge(FOR_ALL))
    }

    fn error(text: &str) -> String {
        read_cp(text).unwrap_err().to_string()
    }

    #[test]
    fn a_pin_flag_for_this_host_or_for_all_overrides_the_pin_of_the_file() {
        let id = "lh1:eqjnfsyiw2ozu7vdjphd2n54w4bluhuxjnosjepvuz3efkeqkvj4rksu".to_owned();
        let text = format!("[host.a]\nserver-id = \"{id}\"\n");
        let places = ["lh://a/x", "lh://b/y"].map(|place| place.parse().unwrap());
        let takes = |server: Option<&str>| {
            let pin = ServerPin { server: server.map(str::to_owned), id: id.clone() };
            let (pins, is_given) = ([pin], |key: &str| key == PIN);
            let wanted = Wanted { places: &places, pins: &pins, is_given: &is_given, ..FOR_ALL };
            let read = read(&Cli::command(), Path::new("c.toml"), &text, wanted).unwrap();
            !read.merge(wanted).unwrap().is_empty()
        };
        assert_eq!([takes(Some("b")), takes(Some("a")), takes(None)], [true, false, false]);
    }

    #[test]
    fn a_pin_of_a_host_section_applies_if_one_server_of_that_name_has_no_pin_flag() {
        let id = "lh1:eqjnfsyiw2ozu7vdjphd2n54w4bluhuxjnosjepvuz3efkeqkvj4rksu".to_owned();
        let text = format!("[host.a]\nserver-id = \"{id}\"\n");
        let pins = [ServerPin { server: Some("a:1".to_owned()), id: "another".to_owned() }];
        for words in [["a:x", "lh://a/y"], ["lh://a:1/x", "lh://a:2/y"]] {
            let places = words.map(|place| place.parse().unwrap());
            let wanted = Wanted { places: &places, pins: &pins, ..FOR_ALL };
            let read = read(&Cli::command(), Path::new("c.toml"), &text, wanted).unwrap();
            assert_eq!(read.merge(wanted).unwrap().len(), 1, "{words:?}");
        }
    }

    #[test]
    fn a_setting_becomes_the_flag_with_its_name() {
        let text = "[cp]\nrate = \"940M\"\nstreams = 8\npreserve = true\nprogress = false\n\
                    exclude = [\".git\", \"*.o\"]\n[serve]\nmemory = \"1G\"\n";
        let settings = read_cp(text).unwrap();
        let words: Vec<&OsString> = settings.iter().flat_map(|s| &s.words).collect();
        for word in ["--rate=940M", "--streams=8", "--preserve", "--exclude=.git", "--exclude=*.o"]
        {
            assert!(words.contains(&&OsString::from(word)), "{word} in {words:?}");
        }
        assert_eq!(words.len(), 5);
        let rate = settings.iter().find(|s| s.key == "rate").unwrap();
        assert_eq!(rate.origin, "c.toml:2");
    }

    #[test]
    fn the_error_of_an_unknown_key_names_its_line_and_the_nearest_key() {
        assert_eq!(
            error("[cp]\n\nratee = \"1M\"\n"),
            "c.toml:3: unknown key 'ratee' in [cp]; did you mean 'rate'?"
        );
        assert!(error("[cp]\ndry-run = true\n").contains("unknown key 'dry-run'"));
        assert!(error("[copy]\n").contains("unknown section 'copy'"));
        assert!(error("rate = \"1M\"\n").contains("below [cp]"));
    }

    #[test]
    fn the_error_of_a_bad_value_names_its_line() {
        let wrong = error("[cp]\nrate = \"fast\"\n");
        assert!(wrong.starts_with("c.toml:2: ") && wrong.contains("950M"), "{wrong}");
        assert!(error("[cp]\npreserve = 1\n").contains("true or false"));
        assert!(error("[cp]\nrate = [1]\n").contains("not array"));
        assert!(error("[cp]\nrate = \n").starts_with("c.toml:2: "));
    }

    #[test]
    fn a_mistake_in_another_section_is_reported() {
        assert!(error("[serve]\nroots = \"/\"\n").contains("did you mean 'root'?"));
    }

    #[test]
    fn hosts_of_one_copy_must_not_set_different_values() {
        let text = "[cp]\nrate = \"1M\"\n[host.a]\nrate = \"2M\"\n[host.b]\nrate = \"3M\"\n";
        let places = |texts: &[&str]| -> Vec<Location> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let rate = |texts: &[&str]| {
            let read = read_for(text, &places(texts)).unwrap();
            read.merge(FOR_ALL).map(|settings| settings[0].words[0].clone())
        };
        assert_eq!(rate(&["a:x", "y"]).unwrap(), "--rate=2M");
        assert_eq!(rate(&["lh://b/x", "y"]).unwrap(), "--rate=3M");
        assert_eq!(rate(&["me@c:x", "y"]).unwrap(), "--rate=1M");
        let both = rate(&["me@a:x", "b:x", "y"]).unwrap_err().to_string();
        assert!(both.contains("[host.a] (c.toml:4) and [host.b] (c.toml:6) differ"), "{both}");
        assert!(error("[host.a]\nserver-id = \"x\"\n").starts_with("c.toml:2: "));
        assert!(error("host = 1\n").contains("[host.NAME]"));
    }
}
