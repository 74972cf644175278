//! Defaults from files: `config.toml` with a section for each subcommand that has defaults, its
//! keys the long flags of that subcommand.
//!
//! A setting becomes the flag it names, put before the user's own, so that flags win over the
//! user's file, and that over the system's.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind};
use clap::error::ErrorKind as ClapKind;
use clap::{ArgAction, Command};
use etcetera::BaseStrategy;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The subcommands that have defaults.
pub(crate) const SECTIONS: [&str; 2] = ["cp", "serve"];

/// Flags that ask for one run and are no defaults.
const NO_DEFAULTS: [&str; 6] = ["help", "version", "dry-run", "show-config", "server-id", "once"];

/// Names the folder of configuration, identity and known servers, in place of all others.
const FOLDER_VARIABLE: &str = "LONGHAUL_CONFIG_DIR";
const SYSTEM_FOLDER: &str = "/etc/longhaul";
const FILE: &str = "config.toml";

/// A default from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The long flag, without dashes.
    pub(crate) key: String,
    /// The flags that it stands for: none where it says "off", several for a list.
    pub(crate) words: Vec<OsString>,
    /// Where it was found, as `file:line`.
    pub(crate) origin: String,
}

/// The folder of this user's configuration, identity and known servers.
///
/// # Errors
/// There is no home folder.
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

/// Returns the defaults of the subcommand `section`, each key once; the user's file overrides the
/// system's. `root` is the whole command line: it says which keys exist and which values they take.
///
/// # Errors
/// A file that is no TOML, an unknown key, a value that its flag refuses; with file and line.
pub(crate) fn load(root: &Command, section: &str) -> Result<Vec<Setting>, Error> {
    let mut folders = Vec::new();
    if env::var_os(FOLDER_VARIABLE).is_none_or(|value| value.is_empty()) {
        folders.push(PathBuf::from(SYSTEM_FOLDER));
    }
    folders.push(folder()?);
    let mut settings: Vec<Setting> = Vec::new();
    for folder in folders {
        let file = folder.join(FILE);
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                let what = format!("cannot read {}: {error}", file.display());
                return Err(Error::new(ErrorKind::Usage, what).advise("mend or remove it"));
            }
        };
        for setting in read(root, &file, &text, section)? {
            settings.retain(|earlier| earlier.key != setting.key);
            settings.push(setting);
        }
    }
    Ok(settings)
}

/// The settings of `section` in one file; the other sections are checked too.
fn read(root: &Command, file: &Path, text: &str, section: &str) -> Result<Vec<Setting>, Error> {
    let place = Place { root, file, text };
    let table = DeTable::parse(text)
        .map_err(|error| place.wrong(error.span().map_or(0, |s| s.start), error.message()))?;
    let mut settings = Vec::new();
    for (name, value) in table.get_ref() {
        let known = SECTIONS.iter().find(|known| **known == name.get_ref().as_ref());
        let Some(known) = known else {
            let what = format!("unknown section '{}'", name.get_ref());
            let error = place.wrong(name.span().start, &what);
            return Err(error.advise("a key belongs below [cp] or [serve]"));
        };
        let Some(keys) = value.get_ref().as_table() else {
            return Err(place.wrong(name.span().start, &format!("'{known}' is no section")));
        };
        for (key, value) in keys {
            let setting = place.setting(known, key.get_ref(), key.span().start, value)?;
            if *known == section {
                settings.push(setting);
            }
        }
    }
    Ok(settings)
}

/// Where settings are read.
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

    fn setting(
        &self,
        section: &str,
        key: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Setting, Error> {
        let command = self.root.find_subcommand(section).expect("each section is a subcommand");
        let Some(action) = action(command, key) else {
            let what = format!("unknown key '{key}' in [{section}]");
            let error = self.wrong(at, &what);
            return Err(match nearest(command, key) {
                Some(near) => error.advise(format!("did you mean '{near}'?")),
                None => error.advise(format!("keys are flags of longhaul {section} --help")),
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

/// The flags that a value stands for.
fn words(key: &str, action: &ArgAction, value: &DeValue<'_>) -> Result<Vec<OsString>, String> {
    let scalar = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        other => Err(format!("'{key}' takes a string or a number, not a {}", other.type_str())),
    };
    match (action, value) {
        (ArgAction::SetTrue | ArgAction::Count, DeValue::Boolean(true)) => {
            Ok(vec![format!("--{key}").into()])
        }
        (ArgAction::SetTrue | ArgAction::Count, DeValue::Boolean(false)) => Ok(Vec::new()),
        (ArgAction::SetTrue | ArgAction::Count, other) => {
            Err(format!("'{key}' takes true or false, not a {}", other.type_str()))
        }
        (ArgAction::Append, DeValue::Array(list)) => list
            .iter()
            .map(|item| Ok(format!("--{key}={}", scalar(item.get_ref())?).into()))
            .collect(),
        _ => Ok(vec![format!("--{key}={}", scalar(value)?).into()]),
    }
}

/// Why the flag refuses its value, if it does.
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

    fn read_cp(text: &str) -> Result<Vec<Setting>, Error> {
        read(&Cli::command(), Path::new("c.toml"), text, "cp")
    }

    fn error(text: &str) -> String {
        read_cp(text).unwrap_err().to_string()
    }

    #[test]
    fn a_setting_is_the_flag_that_it_names() {
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
    fn an_unknown_key_names_line_and_nearest() {
        assert_eq!(
            error("[cp]\n\nratee = \"1M\"\n"),
            "c.toml:3: unknown key 'ratee' in [cp]; did you mean 'rate'?"
        );
        assert!(error("[cp]\ndry-run = true\n").contains("unknown key 'dry-run'"));
        assert!(error("[copy]\n").contains("unknown section 'copy'"));
        assert!(error("rate = \"1M\"\n").contains("below [cp]"));
    }

    #[test]
    fn a_bad_value_names_its_line() {
        let wrong = error("[cp]\nrate = \"fast\"\n");
        assert!(wrong.starts_with("c.toml:2: ") && wrong.contains("950M"), "{wrong}");
        assert!(error("[cp]\npreserve = 1\n").contains("true or false"));
        assert!(error("[cp]\nrate = [1]\n").contains("not a array"));
        assert!(error("[cp]\nrate = \n").starts_with("c.toml:2: "));
    }

    #[test]
    fn a_mistake_in_another_section_is_told_too() {
        assert!(error("[serve]\nroots = \"/\"\n").contains("did you mean 'root'?"));
    }
}
